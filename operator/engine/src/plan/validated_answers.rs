//! The cache of validated answers in the plan of a run, so that a replay does not validate the same answer again.
//!
//! **Invariant:** the cache changes the cost of a transition and never its result. The key of an answer is its digest
//! and the path of the attempt, whose schema never changes. A result of a stopped evaluation is not cached.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signoff_api::Digest;
use signoff_expr::budget;

/// The maximum size of the validated answers of one plan, in bytes.
const MAX_BYTES: usize = 512 << 10;
/// The size of an entry beside its texts, in bytes.
const OVERHEAD: usize = 128;

/// The problem of an answer, or `None` if it is valid.
type Problem = Option<String>;

/// The validated answers of one plan. Copies share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValidatedAnswers {
    inner: Arc<Mutex<AnswerCache>>,
}

#[derive(Debug, Default)]
struct AnswerCache {
    /// By the path of the validated attempt, and the digest of the answer.
    by_answer: BTreeMap<(String, Digest), Problem>,
    bytes: usize,
}

impl ValidatedAnswers {
    fn lock(&self) -> MutexGuard<'_, AnswerCache> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the problem of an answer at `path`, and validates it only if the result is not cached.
    pub(crate) fn get_or_validate(&self, path: &str, answer: &Digest, validate: impl FnOnce() -> Problem) -> Problem {
        let key = (path.to_owned(), answer.clone());
        if let Some(known) = self.lock().by_answer.get(&key) {
            return known.clone();
        }
        let problem = validate();
        if !budget::is_stopped() {
            self.lock().insert_if_fits(key, problem.clone());
        }
        problem
    }

    /// Returns the number of validated answers.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_answer.len()
    }
}

impl AnswerCache {
    /// Caches a result if it fits into [`MAX_BYTES`]. Entries are never evicted, because a replay needs all of them.
    fn insert_if_fits(&mut self, key: (String, Digest), problem: Problem) {
        let bytes = key.0.len() + key.1.as_str().len() + problem.as_ref().map_or(0, String::len) + OVERHEAD;
        if self.bytes + bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.by_answer.insert(key, problem);
        }
    }
}

#[cfg(test)]
mod tests;
