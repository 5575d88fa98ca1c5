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
mod tests;
