//! The answers that were validated already, kept with the plan of their run: every transition replays the run from its
//! beginning, and must not pay for the same answer each time.
//!
//! **Invariant:** it changes what a transition costs and never what it comes to. An answer is named by its digest and
//! by the path of the attempt, whose schema never changes; what was found while the evaluation was stopped is not kept.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signoff_api::Digest;
use signoff_expr::budget;

/// The bytes that the validated answers of one plan may take.
const MAX_BYTES: usize = 512 << 10;
/// The bytes of an entry beside its texts.
const OVERHEAD: usize = 128;

/// The problem of an answer, or `None` where it is as it should be.
type Problem = Option<String>;

/// The validated answers of one plan. Copies share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValidatedAnswers {
    inner: Arc<Mutex<AnswerCache>>,
}

#[derive(Debug, Default)]
struct AnswerCache {
    /// By the path of the attempt that was validated, and the digest of the answer.
    by_answer: BTreeMap<(String, Digest), Problem>,
    bytes: usize,
}

impl ValidatedAnswers {
    fn lock(&self) -> MutexGuard<'_, AnswerCache> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is wrong with an answer at `path`, which is validated only once.
    pub(crate) fn get_or_validate(&self, path: &str, answer: &Digest, validate: impl FnOnce() -> Problem) -> Problem {
        let key = (path.to_owned(), answer.clone());
        if let Some(known) = self.lock().by_answer.get(&key) {
            return known.clone();
        }
        let problem = validate();
        if !budget::is_stopped() {
            self.lock().keep(key, problem.clone());
        }
        problem
    }

    /// The number of validated answers.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_answer.len()
    }
}

impl AnswerCache {
    /// Keeps a result while there is room. Nothing makes room for another one: a replay needs all of them.
    fn keep(&mut self, key: (String, Digest), problem: Problem) {
        let bytes = key.0.len() + key.1.as_str().len() + problem.as_ref().map_or(0, String::len) + OVERHEAD;
        if self.bytes + bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.by_answer.insert(key, problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of_bytes(text.as_bytes())
    }

    #[test]
    fn an_answer_is_judged_once_for_each_step() {
        let (judged, calls) = (ValidatedAnswers::default(), std::cell::Cell::new(0));
        let judge = |path: &str, text: &str| {
            judged.get_or_validate(path, &digest(text), || {
                calls.set(calls.get() + 1);
                (text == "bad").then(|| format!("{path}: bad"))
            })
        };
        for _ in 0..3 {
            assert_eq!(judge("one", "good"), None);
            assert_eq!(judge("one", "bad").as_deref(), Some("one: bad"));
            assert_eq!(judge("two", "bad").as_deref(), Some("two: bad"));
        }
        assert_eq!((calls.get(), judged.clone().count()), (3, 3));
    }

    #[test]
    fn what_was_found_while_the_evaluation_was_stopped_is_not_kept() {
        let judged = ValidatedAnswers::default();
        let stopped = || budget::charge(1).err().map(|why| why.to_string());
        budget::with_stop(Arc::new(AtomicBool::new(true)), || {
            assert!(judged.get_or_validate("one", &digest("a"), stopped).is_some());
        });
        assert_eq!(judged.count(), 0);
        assert_eq!(judged.get_or_validate("one", &digest("a"), stopped), None);
    }

    #[test]
    fn its_bytes_are_bounded() {
        let judged = ValidatedAnswers::default();
        for number in 0..100 {
            judged.get_or_validate("one", &digest(&number.to_string()), || Some("x".repeat(10_000)));
        }
        assert!((40..100).contains(&judged.count()), "{}", judged.count());
        assert!(judged.lock().bytes <= MAX_BYTES);
    }
}
