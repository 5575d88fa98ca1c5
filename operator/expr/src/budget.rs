//! The stop flag of an evaluation, and the counter of its charged work.
//!
//! The driver of a transition, a preview or a render installs a flag with [`with_stop`]; another thread sets it.
//! Templates, conditions, patterns, schemas and the search for JSON call [`charge`] before their work, and end with
//! [`Stopped`] after the flag is set. The result of a stopped evaluation has no meaning: the driver discards it, and
//! does not record it as the error of a step or a vote.
//!
//! Every charge reads the flag. The work between two charges is bounded: the steps of one template (20,000, each on
//! values whose size was charged before), the match of one pattern (linear in a text that was charged before), or the
//! validation of one value by one schema (the product of their sizes, which was charged before).

use std::cell::{Cell, RefCell};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

thread_local! {
    static STOP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
    static CHARGED: Cell<u64> = const { Cell::new(0) };
}

/// The error of an evaluation whose stop flag is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the evaluation was stopped")]
pub struct Stopped;

/// Runs `evaluate` with `flag` as the stop flag of this thread, and restores the earlier flag when it returns or
/// unwinds.
pub fn with_stop<T>(flag: Arc<AtomicBool>, evaluate: impl FnOnce() -> T) -> T {
    let _guard = Previous(STOP.replace(Some(flag)));
    evaluate()
}

struct Previous(Option<Arc<AtomicBool>>);

impl Drop for Previous {
    fn drop(&mut self) {
        STOP.set(self.0.take());
    }
}

/// Whether the stop flag of this thread is set. False without a flag.
#[must_use]
pub fn is_stopped() -> bool {
    STOP.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}

/// Charges `units` of work, which are about the bytes that are read or produced.
///
/// # Errors
/// [`Stopped`] if the stop flag of this thread is set.
pub fn charge(units: usize) -> Result<(), Stopped> {
    CHARGED.set(CHARGED.get().saturating_add(u64::try_from(units).unwrap_or(u64::MAX)));
    if is_stopped() { Err(Stopped) } else { Ok(()) }
}

/// Returns the units charged on this thread so far. The difference of two values is the work between them.
#[must_use]
pub fn charged() -> u64 {
    CHARGED.get()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::{Condition, LanguageError, Scope, Template, json};

    fn scope() -> Scope {
        let mut scope = Scope::new();
        scope.set("list", json!(["a", "b"]));
        scope
    }

    #[test]
    fn an_evaluation_ends_when_the_flag_is_set() {
        let flag = Arc::new(AtomicBool::new(false));
        let template = Template::parse("{% for x in list %}{{ x }}{% endfor %}", "spec.value").unwrap();
        let condition = Condition::parse("list.exists(x, x == 'b')", "spec.when").unwrap();
        with_stop(Arc::clone(&flag), || {
            assert_eq!(template.render(&scope()), Ok("ab".to_owned()));
            assert_eq!(condition.evaluate(&scope()), Ok(true));
            assert!(json::extract("so [1]").is_some());
            flag.store(true, Ordering::Relaxed);
            assert_eq!(template.render(&scope()), Err(LanguageError::Stopped { what: "spec.value".to_owned() }));
            assert_eq!(condition.evaluate(&scope()), Err(LanguageError::Stopped { what: "spec.when".to_owned() }));
            assert_eq!(json::extract("so [1]"), None);
        });
        assert_eq!(template.render(&scope()), Ok("ab".to_owned()), "the flag is of its scope only");
    }

    #[test]
    fn the_earlier_flag_is_restored_after_a_panic() {
        let outer = Arc::new(AtomicBool::new(true));
        with_stop(outer, || {
            let inner = Arc::new(AtomicBool::new(false));
            let run = || with_stop(inner, || std::panic::resume_unwind(Box::new(())));
            let ended: Result<(), _> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            assert!(ended.is_err());
            assert_eq!(charge(1), Err(Stopped));
        });
        assert_eq!(charge(1), Ok(()));
    }

    #[test]
    fn charged_units_are_counted() {
        let before = charged();
        charge(7).unwrap();
        assert_eq!(charged() - before, 7);
    }
}
