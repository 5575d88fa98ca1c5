//! Tests of evaluations that end, that end when told to, and that never end.
#![allow(clippy::unwrap_used)]

use std::{hint::spin_loop, sync::Mutex, time::Instant};

use signoff_expr::budget;

use super::*;

fn subject(namespace: &str, name: &str) -> Subject {
    let text = |text: &str| text.to_owned();
    Subject { kind: text("Workflow"), namespace: text(namespace), name: text(name), uid: text(name), generation: 1 }
}

fn settings() -> EvaluatorSettings {
    EvaluatorSettings {
        limit: Duration::from_millis(60),
        grace: Duration::from_millis(60),
        ..EvaluatorSettings::default()
    }
}

/// Runs until the evaluation is told to stop.
fn run_forever() {
    while budget::charge(1).is_ok() {
        spin_loop();
    }
}

/// Ignores that the evaluation is told to stop, and ends after five seconds, so that no test leaves spinning threads.
fn ignore_stop() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        spin_loop();
    }
}

#[tokio::test]
async fn an_evaluation_that_costs_too_much_ends_and_others_go_on() {
    let evaluator = Evaluator::start(settings()).unwrap();
    let hostile = evaluator.run(subject("a", "hostile"), run_forever);
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
        let result = evaluator.run(subject("a", "hostile"), ignore_stop).await;
        assert_eq!(result, Err(Stopped::Lost { part: None, limit: settings().limit + settings().grace }));
        evaluator.lost().wait_for(|count| *count == lost).await.unwrap();
        assert_eq!(evaluator.run(subject("a", "honest"), || 7).await, Ok(7));
    }
}

#[tokio::test]
async fn a_thread_that_cannot_be_started_is_started_once_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().join("marks");
    let alone = EvaluatorSettings { threads: 1, marks: Some(marks.clone()), ..settings() };
    let evaluator = Evaluator::start(alone).unwrap();
    // A thread needs a mark, and without the folder no mark can be written.
    std::fs::remove_dir_all(&marks).unwrap();
    assert!(matches!(evaluator.run(subject("a", "hostile"), ignore_stop).await, Err(Stopped::Lost { .. })));
    let mut honest = std::pin::pin!(evaluator.run(subject("b", "honest"), || 7));
    let waited = tokio::time::timeout(Duration::from_millis(200), &mut honest).await;
    assert!(waited.is_err(), "there is no thread");
    std::fs::create_dir(&marks).unwrap();
    assert_eq!(honest.await, Ok(7));
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
    let long = EvaluatorSettings { limit: Duration::from_secs(1), ..settings() };
    let evaluator = Evaluator::start(long).unwrap();
    let hostile: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let e = evaluator.clone();
                async move { e.run(subject("a", "a"), run_forever).await }
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
async fn parsing_in_an_evaluation_is_charged_to_its_namespace() {
    let evaluator = Evaluator::start(EvaluatorSettings { threads: 1, ..EvaluatorSettings::default() }).unwrap();
    let long = serde_json::to_string(&vec!["a recorded value"; 20_000]).unwrap();
    let parses = move || serde_json::from_str::<serde_json::Value>(&long).is_ok();
    assert_eq!(evaluator.run(subject("parses", "1"), parses).await, Ok(true));
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(name)
    };
    // The only thread is occupied until both wait.
    let (release, waits) = std::sync::mpsc::channel::<()>();
    let taken = evaluator.run(subject("taken", "2"), move || waits.recv().is_ok());
    let (parses, honest) = (subject("parses", "3"), subject("honest", "4"));
    let (parses, honest) = (evaluator.run(parses, note("parses")), evaluator.run(honest, note("honest")));
    let released = async {
        while evaluator.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
    };
    let ended = tokio::join!(taken, parses, honest, released);
    assert_eq!(ended, (Ok(true), Ok(()), Ok(()), ()));
    assert_eq!(*order.lock().unwrap(), ["honest", "parses"]);
}

#[tokio::test]
async fn an_evaluation_waits_for_one_of_ten_hostile_namespaces() {
    let evaluator =
        Evaluator::start(EvaluatorSettings { limit: Duration::from_millis(200), ..EvaluatorSettings::default() })
            .unwrap();
    // Each evaluation reads a new object, whose cost is unknown.
    let hostile = |namespace: usize| {
        let evaluator = evaluator.clone();
        tokio::spawn(async move {
            for n in 0.. {
                let subject = subject(&format!("hostile-{namespace}"), &format!("{namespace}-{n}"));
                drop(evaluator.run(subject, run_forever).await);
            }
        })
    };
    let hostile: Vec<_> = (0..10).map(hostile).collect();
    // After 14 evaluations each namespace has had an unexpected cost.
    while evaluator.begun() < 14 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for n in 0..50 {
        let before = evaluator.begun();
        assert_eq!(evaluator.run(subject("victim", &format!("victim-{n}")), || 7).await, Ok(7));
        let others = evaluator.begun() - before - 1;
        assert!(others <= 1, "evaluation {n} waited for {others} others");
    }
    hostile.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_unexpectedly_costly_evaluation_gives_way_and_is_repeated() {
    // Such an evaluation stops for others after a tenth of the limit.
    let evaluator =
        Evaluator::start(EvaluatorSettings { limit: Duration::from_secs(2), ..EvaluatorSettings::default() }).unwrap();
    let begins = |namespace: &'static str| {
        let evaluator = evaluator.clone();
        tokio::spawn(async move { evaluator.run_repeatable(subject(namespace, namespace), run_forever).await })
    };
    let hostile = [begins("a"), begins("b")];
    while evaluator.begun() < 2 {
        tokio::task::yield_now().await;
    }
    // After this time both have used more than a tenth of the limit, and go on because nothing waits.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(evaluator.begun(), 2, "nobody waits, so that each has its thread");
    let submitted = Instant::now();
    assert_eq!(evaluator.run_repeatable(subject("honest", "honest"), || 7).await, Ok(7));
    assert!(hostile.iter().all(|task| !task.is_finished()), "both go on after {:?}", submitted.elapsed());
    // As costly evaluations they run one after the other, up to the limit.
    for task in hostile {
        assert_eq!(task.await.unwrap(), Err(Stopped::TooCostly { part: None, limit: Duration::from_secs(2) }));
    }
    assert!(evaluator.begun() >= 4, "the honest one, and at least one once more");
}

#[tokio::test]
async fn an_evaluation_without_a_caller_is_stopped() {
    let evaluator =
        Evaluator::start(EvaluatorSettings { limit: Duration::from_secs(3600), threads: 1, ..settings() }).unwrap();
    let dropped = tokio::time::timeout(Duration::from_millis(50), evaluator.run(subject("a", "a"), run_forever)).await;
    assert!(dropped.is_err());
    assert_eq!(evaluator.run(subject("a", "honest"), || 7).await, Ok(7));
}

#[tokio::test]
async fn an_evaluation_that_ended_the_process_is_tried_alone_once() {
    let folder = tempfile::tempdir().unwrap();
    let settings = || EvaluatorSettings { marks: Some(folder.path().to_owned()), ..EvaluatorSettings::default() };
    // The folder as a dying process leaves it: with the mark of its evaluation.
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
    // The process ended again, and the mark says that the evaluation was alone.
    let evaluator = Evaluator::start(settings()).unwrap();
    assert_eq!(evaluator.run(subject("a", "a"), || 7).await, Err(Stopped::Deadly { part: None }));
    assert_eq!(evaluator.run(subject("a", "b"), || 7).await, Ok(7));
    assert_eq!(evaluator.run(subject("a", "a"), || 7).await, Ok(7), "the next attempt is made");
    evaluator.clear(&subject("a", "a"));
    drop(evaluator);
    let evaluator = Evaluator::start(settings()).unwrap();
    assert_eq!(evaluator.run(subject("a", "a"), || 7).await, Ok(7), "it is no suspect any more");
}

/// Returns the settings of a process that finds the mark of the Workflow `a/a`.
fn settings_with_suspect(folder: &std::path::Path) -> EvaluatorSettings {
    let mark = serde_json::json!({"subject": subject("a", "a"), "alone": false, "part": null});
    std::fs::write(folder.join("evaluating-0"), mark.to_string()).unwrap();
    EvaluatorSettings { marks: Some(folder.to_owned()), ..settings() }
}

#[tokio::test]
async fn a_suspect_without_a_caller_stays_a_suspect_and_delays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let evaluator = Evaluator::start(settings_with_suspect(folder.path())).unwrap();
    let suspect = evaluator.run(subject("a", "a"), || 7);
    assert!(tokio::time::timeout(Duration::from_millis(50), suspect).await.is_err(), "it waits until it is quiet");
    assert_eq!(evaluator.run(subject("b", "honest"), || 7).await, Ok(7));
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!((evaluator.begun(), evaluator.is_suspect(&subject("a", "a"))), (1, true), "it was not tried");
    assert_eq!(evaluator.run(subject("a", "a"), || 7).await, Ok(7));
    assert_eq!((evaluator.begun(), evaluator.is_suspect(&subject("a", "a"))), (2, true), "more of it may follow");
}

#[tokio::test]
async fn a_cleared_suspect_is_trusted_by_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let evaluator = Evaluator::start(settings_with_suspect(folder.path())).unwrap();
    evaluator.clear(&subject("a", "a"));
    drop(evaluator);
    let evaluator =
        Evaluator::start(EvaluatorSettings { marks: Some(folder.path().to_owned()), ..settings() }).unwrap();
    assert!(!evaluator.is_suspect(&subject("a", "a")));
}

#[tokio::test]
async fn a_suspect_waits_until_nothing_else_is_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let evaluator = Evaluator::start(settings_with_suspect(folder.path())).unwrap();
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
    let second = async {
        // Like the pause of a run between two transitions, while the first one is written.
        tokio::time::sleep(Duration::from_millis(300)).await;
        evaluator.run(subject("c", "second"), note("second", 100)).await
    };
    let (first, suspect, second) = tokio::join!(first, suspect, second);
    assert_eq!((first, suspect, second), (Ok(()), Ok(()), Ok(())));
    assert_eq!(*order.lock().unwrap(), ["first", "second", "suspect"]);
}

#[tokio::test]
async fn a_queued_evaluation_without_a_caller_frees_its_memory() {
    use futures::FutureExt as _;
    let evaluator = Evaluator::start(EvaluatorSettings { threads: 1, ..EvaluatorSettings::default() }).unwrap();
    let (release, waits) = std::sync::mpsc::channel::<()>();
    let taken = tokio::spawn({
        let evaluator = evaluator.clone();
        async move { evaluator.run(subject("a", "taken"), move || waits.recv().is_ok()).await }
    });
    while evaluator.begun() == 0 {
        tokio::task::yield_now().await;
    }
    let journal = Arc::new("of a run that is suspended and resumed again and again");
    for _ in 0..100 {
        let read = Arc::clone(&journal);
        assert!(evaluator.run(subject("a", "toggled"), move || read.len()).now_or_never().is_none());
    }
    assert_eq!((evaluator.waiting(), Arc::strong_count(&journal)), (0, 1));
    let mut honest = Box::pin(evaluator.run(subject("a", "honest"), || 7));
    assert!(honest.as_mut().now_or_never().is_none());
    release.send(()).unwrap();
    assert_eq!((honest.await, taken.await.unwrap()), (Ok(7), Ok(true)));
    assert_eq!(evaluator.begun(), 2, "the others never began");
}
