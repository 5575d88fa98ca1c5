//! Tests that answers are validated once for each step, and that results of stopped evaluations are not cached.

use std::sync::atomic::AtomicBool;

use super::*;

fn digest(text: &str) -> Digest {
    Digest::of_bytes(text.as_bytes())
}

#[test]
fn an_answer_is_validated_once_for_each_step() {
    let (judged, calls) = (ValidatedAnswers::default(), std::cell::Cell::new(0));
    let judge = |path: &str, text: &str| {
        judged.get_or_validate(path, &digest(text), || {
            calls.set(calls.get() + 1);
            (text == "bad").then(|| format!("{path}: it is bad"))
        })
    };
    for _ in 0..3 {
        assert_eq!(judge("one", "good"), None);
        assert_eq!(judge("one", "bad").as_deref(), Some("one: it is bad"));
        assert_eq!(judge("two", "bad").as_deref(), Some("two: it is bad"));
    }
    assert_eq!((calls.get(), judged.clone().count()), (3, 3));
}

#[test]
fn a_result_of_a_stopped_evaluation_is_not_cached() {
    let judged = ValidatedAnswers::default();
    let stopped = || budget::charge(1).err().map(|why| why.to_string());
    budget::with_stop(Arc::new(AtomicBool::new(true)), || {
        assert!(judged.get_or_validate("one", &digest("a"), stopped).is_some());
    });
    assert_eq!(judged.count(), 0);
    assert_eq!(judged.get_or_validate("one", &digest("a"), stopped), None);
}

#[test]
fn the_cache_of_answers_is_bounded_in_bytes() {
    let judged = ValidatedAnswers::default();
    for number in 0..100 {
        judged.get_or_validate("one", &digest(&number.to_string()), || Some("x".repeat(10_000)));
    }
    assert!((40..100).contains(&judged.count()), "{}", judged.count());
    assert!(judged.lock().bytes <= MAX_BYTES);
}
