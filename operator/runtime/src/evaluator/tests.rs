//! Evaluations that end, that end when told to, and that never do.
#![allow(clippy::unwrap_used)]

use std::{hint::spin_loop, sync::Mutex, time::Instant};

use signoff_engine::language::budget;

use super::*;

fn subject(namespace: &str, name: &str) -> Subject {
    let text = |text: &str| text.to_owned();
    Subject { kind: text("Workflow"), namespace: text(namespace), name: text(name), uid: text(name), generation: 1 }
}

fn settings() -> Settings {
    Settings { limit: Duration::from_millis(60), grace: Duration::from_millis(60), ..Settings::default() }
}

/// Ends when it is told to.
fn endless() {
    while budget::charge(1).is_ok() {
        spin_loop();
    }
}

/// Ends with the test only.
fn deaf() {
    while !GIVE_UP.load(Ordering::Relaxed) {
        spin_loop();
    }
}

static GIVE_UP: AtomicBool = AtomicBool::new(false);

#[tokio::test]
async fn an_evaluation_that_costs_too_much_ends_and_others_go_on() {
    let evaluator = Evaluator::start(settings()).unwrap();
    let hostile = evaluator.run(subject("a", "hostile"), endless);
    let honest = evaluator.run(subject("b", "honest"), || 7);
    let (hostile, honest) = tokio::join!(hostile, honest);
    assert_eq!(hostile, Err(Stopped::TooCostly { part: None, limit: settings().limit }));
    assert_eq!(honest, Ok(7));
    assert_eq!(*evaluator.lost().borrow(), 0);
}

#[tokio::test]
async fn a_thread_that_ignores_the_flag_is_replaced_and_counted() {
    let evaluator = Evaluator::start(settings()).unwrap();
    for lost in 1..=3 {
        let result = evaluator.run(subject("a", "hostile"), deaf).await;
        assert_eq!(result, Err(Stopped::Lost { part: None, limit: settings().limit + settings().grace }));
        evaluator.lost().wait_for(|count| *count == lost).await.unwrap();
        assert_eq!(evaluator.run(subject("a", "honest"), || 7).await, Ok(7));
    }
    GIVE_UP.store(true, Ordering::Relaxed);
}

#[tokio::test]
async fn time_in_which_an_evaluation_has_no_cpu_is_not_charged() {
    let evaluator = Evaluator::start(settings()).unwrap();
    let waits = || std::thread::sleep(settings().limit * 5);
    assert_eq!(evaluator.run(subject("a", "waits"), waits).await, Ok(()));
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_evaluation() {
    let evaluator = Evaluator::start(settings()).unwrap();
    let result = evaluator.run(subject("a", "a"), || std::panic::resume_unwind(Box::new(()))).await;
    assert_eq!(result, Err::<(), _>(Stopped::Panicked { part: None }));
    assert_eq!(evaluator.run(subject("a", "a"), || 7).await, Ok(7));
}

#[tokio::test]
async fn a_namespace_leaves_a_thread_to_others() {
    let long = Settings { limit: Duration::from_secs(1), ..settings() };
    let evaluator = Evaluator::start(long).unwrap();
    let hostile: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let e = evaluator.clone();
                async move { e.run(subject("a", "a"), endless).await }
            })
        })
        .collect();
    while evaluator.waiting() < 4 {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(evaluator.run(subject("b", "honest"), || 7).await, Ok(7));
    }
    assert_eq!(evaluator.waiting(), 4, "the first hostile evaluation still runs after {:?}", began.elapsed());
    hostile.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_evaluation_that_is_not_waited_for_ends() {
    let evaluator = Evaluator::start(Settings { limit: Duration::from_secs(3600), threads: 1, ..settings() }).unwrap();
    let dropped = tokio::time::timeout(Duration::from_millis(50), evaluator.run(subject("a", "a"), endless)).await;
    assert!(dropped.is_err());
    assert_eq!(evaluator.run(subject("a", "honest"), || 7).await, Ok(7));
}

#[tokio::test]
async fn what_ended_the_process_is_tried_alone_and_then_set_aside_once() {
    let folder = tempfile::tempdir().unwrap();
    let settings = || Settings { marks: Some(folder.path().to_owned()), ..Settings::default() };
    // As a process leaves it that dies: with the mark of what it evaluated.
    let dies = |name: &str| {
        let copy = folder.path().join("evaluating-9");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (taken, path) = (Arc::clone(&seen), folder.path().to_owned());
        let work = move || {
            for entry in std::fs::read_dir(&path).unwrap() {
                let text = std::fs::read(entry.unwrap().path()).unwrap();
                if text.starts_with(b"{") {
                    *taken.lock().unwrap() = text;
                }
            }
        };
        let subject = subject("a", name);
        async move {
            let result = Evaluator::start(settings()).unwrap().run(subject, work).await;
            std::fs::write(copy, &*seen.lock().unwrap()).unwrap();
            result
        }
    };
    assert_eq!(dies("a").await, Ok(()));
    assert_eq!(dies("a").await, Ok(()), "tried once more, alone");
    // It has the mark of one that was alone.
    let evaluator = Evaluator::start(settings()).unwrap();
    assert_eq!(evaluator.run(subject("a", "a"), || 7).await, Err(Stopped::Deadly { part: None }));
    assert_eq!(evaluator.run(subject("a", "b"), || 7).await, Ok(7));
    assert_eq!(evaluator.run(subject("a", "a"), || 7).await, Ok(7), "the next attempt is made");
    drop(evaluator);
    let evaluator = Evaluator::start(settings()).unwrap();
    assert_eq!(evaluator.run(subject("a", "a"), || 7).await, Ok(7), "and clears it");
}

#[tokio::test]
async fn a_suspect_waits_until_nothing_else_is_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let marks = || Settings { marks: Some(folder.path().to_owned()), ..settings() };
    let mark = serde_json::json!({"subject": subject("a", "a"), "alone": false, "part": null});
    std::fs::write(folder.path().join("evaluating-0"), mark.to_string()).unwrap();
    let evaluator = Evaluator::start(marks()).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str, pause: u64| {
        let order = Arc::clone(&order);
        move || {
            std::thread::sleep(Duration::from_millis(pause));
            order.lock().unwrap().push(name);
        }
    };
    let first = evaluator.run(subject("b", "first"), note("first", 50));
    let suspect = evaluator.run(subject("a", "a"), note("suspect", 0));
    let second = evaluator.run(subject("c", "second"), note("second", 100));
    let (first, suspect, second) = tokio::join!(first, suspect, second);
    assert_eq!((first, suspect, second), (Ok(()), Ok(()), Ok(())));
    assert_eq!(*order.lock().unwrap(), ["first", "second", "suspect"]);
}
