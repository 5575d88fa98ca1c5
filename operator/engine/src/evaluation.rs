//! The current part of an evaluation: one vote, or one step. A driver that stops an evaluation reads here which text
//! was too costly.
//!
//! Parts do not nest: a part within another part is not reported, and counts as a piece of the outer part.

use std::{cell::RefCell, sync::Arc};

use serde::{Deserialize, Serialize};

/// A part of an evaluation whose text may come from others than the author of the Workflow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// The decision under this key of an Approval.
    Vote(String),
    /// This attempt at an activity of a run.
    Step {
        /// The path of its record.
        path: String,
        /// The number of the attempt, from 1.
        attempt: i32,
        /// Whether the step read text that the author of the Workflow did not write.
        #[serde(default)]
        is_foreign: bool,
    },
}

impl Part {
    /// Returns a part for a step that has read nothing yet.
    #[must_use]
    pub fn step(path: &str, attempt: i32) -> Self {
        Self::Step { path: path.to_owned(), attempt, is_foreign: false }
    }

    /// Whether the part read text that the author of the Workflow did not write; always true for a vote.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::Vote(_) | Self::Step { is_foreign: true, .. })
    }
}

/// The receiver of the parts of an evaluation on this thread.
pub trait Observer {
    /// Called when a part begins.
    fn enter(&self, part: Part);
    /// Called when the current part reads text that the author of the Workflow did not write.
    fn record_foreign_text(&self);
    /// Called when the current part ends.
    fn leave(&self);
}

thread_local! {
    static OBSERVER: RefCell<Option<Arc<dyn Observer>>> = const { RefCell::new(None) };
    /// The observer while a part is evaluated.
    static IN_PART: RefCell<Option<Arc<dyn Observer>>> = const { RefCell::new(None) };
}

/// Runs `evaluate`, and notifies `observer` of each part.
pub fn observe<T>(observer: Arc<dyn Observer>, evaluate: impl FnOnce() -> T) -> T {
    let _guard = RestoreObserver(OBSERVER.replace(Some(observer)));
    evaluate()
}

struct RestoreObserver(Option<Arc<dyn Observer>>);

impl Drop for RestoreObserver {
    fn drop(&mut self) {
        OBSERVER.set(self.0.take());
    }
}

/// Evaluates one part, and reports its begin and end to the observer of this thread.
pub(crate) fn within<T>(part: impl FnOnce() -> Part, evaluate: impl FnOnce() -> T) -> T {
    // Taken during the part, so that parts within it are not reported.
    let Some(observer) = OBSERVER.take() else { return evaluate() };
    observer.enter(part());
    IN_PART.set(Some(observer));
    let guard = LeavePart;
    let result = evaluate();
    drop(guard);
    result
}

/// Reports that the current part reads text that the author of the Workflow did not write.
pub(crate) fn record_foreign_text() {
    IN_PART.with_borrow(|observer| observer.iter().for_each(|observer| observer.record_foreign_text()));
}

struct LeavePart;

impl Drop for LeavePart {
    fn drop(&mut self) {
        if let Some(observer) = IN_PART.take() {
            observer.leave();
            OBSERVER.set(Some(observer));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use super::*;

    fn vote(key: &str) -> Part {
        Part::Vote(key.to_owned())
    }

    #[derive(Default)]
    struct Log(Mutex<Vec<Option<Part>>>);

    impl Observer for Log {
        fn enter(&self, part: Part) {
            self.0.lock().unwrap().push(Some(part));
        }

        fn record_foreign_text(&self) {
            self.0.lock().unwrap().push(Some(vote("read")));
        }

        fn leave(&self) {
            self.0.lock().unwrap().push(None);
        }
    }

    #[test]
    fn a_part_within_a_part_is_not_reported() {
        let log = Arc::new(Log::default());
        observe(log.clone(), || {
            within(|| vote("a"), || within(|| vote("inner"), || ()));
            within(|| vote("b"), record_foreign_text);
            record_foreign_text();
        });
        within(|| vote("outside"), record_foreign_text);
        let [a, b, read] = ["a", "b", "read"].map(|key| Some(vote(key)));
        assert_eq!(*log.0.lock().unwrap(), [a, None, b, read, None]);
    }
}
