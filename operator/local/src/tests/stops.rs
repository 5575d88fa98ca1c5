//! Tests of pauses and crashes: finished calls, repeated calls, and calls that are never repeated. Without sleeps.

use std::{fs, time::Duration};

use super::*;
use crate::object;

const POST: &str = "{name: send, http: {method: POST, url: 'http://x.example', body: Hello}}";
const PUT: &str = "{name: keep, http: {method: PUT, url: 'http://x.example', body: Hello}}";

/// Begins a run whose first call hangs, and drops it there, like a kill.
async fn kill_during(folder: &TempDir, step: &str) -> (String, Echo) {
    let echo = Echo::hanging();
    let mut run = local(folder).caller(echo.clone()).begin(chain(step)).unwrap();
    let id = run.id().to_owned();
    tokio::select! {
        biased;
        ended = run.go() => panic!("{ended:?}"),
        () = echo.began() => {}
    }
    (id, echo)
}

#[tokio::test]
async fn a_killed_call_that_must_not_be_repeated_has_an_unknown_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let (id, first) = kill_during(&folder, POST).await;
    let second = Echo::default();
    let mut run = local(&folder).caller(second.clone()).resume(&id).await.unwrap();
    let RunOutcome::Over(End::Failed(why)) = run.go().await.unwrap() else { panic!("it did not fail") };
    assert!(why.contains("send"), "{why}");
    assert_eq!((first.count(), second.count()), (1, 0));
    let step = run.snapshot().workflow.status.unwrap().steps[0].clone();
    assert_eq!(step.phase, signoff_api::journal::StepPhase::Unknown);
}

#[tokio::test]
async fn a_call_that_may_be_repeated_is_repeated_with_the_same_input() {
    let folder = tempfile::tempdir().unwrap();
    let (id, first) = kill_during(&folder, PUT).await;
    let second = Echo::default();
    let mut run = local(&folder).caller(second.clone()).resume(&id).await.unwrap();
    assert_eq!(run.go().await.unwrap(), succeeded("PUT Hello"));
    assert_eq!(first.inputs(), second.inputs());
}

#[tokio::test]
async fn a_pause_does_not_wait_for_calls_that_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::hanging();
    let local_run = local(&folder).caller(echo.clone());
    let stop = local_run.stop();
    let mut run = local_run.begin(chain(PUT)).unwrap();
    let id = run.id().to_owned();
    let ask = async {
        echo.began().await;
        stop.ask();
    };
    let (ended, ()) = tokio::join!(run.go(), ask);
    assert_eq!(ended.unwrap(), RunOutcome::Paused);
    drop(run);
    assert_eq!(local(&folder).resume(&id).await.unwrap().go().await.unwrap(), succeeded("PUT Hello"));
}

#[tokio::test]
async fn a_call_that_must_not_be_repeated_is_waited_for_and_its_result_is_kept() {
    struct Slow {
        began: Arc<tokio::sync::Notify>,
        done: Arc<tokio::sync::Notify>,
    }
    #[async_trait]
    impl Caller for Slow {
        async fn call(&self, _: &RunRef, _: Call, _: &dyn AnswerRoom) -> Result<Reply, Failure> {
            self.began.notify_one();
            self.done.notified().await;
            Ok(Reply { response: "sent".into(), ..Reply::default() })
        }
    }
    /// A caller that finishes its call after the run reports that it waits for it.
    struct Waits(Arc<tokio::sync::Notify>);
    #[async_trait]
    impl Handler for Waits {
        async fn answer(&self, _: GateQuestion) -> Option<Decision> {
            None
        }
        fn happened(&self, event: &Event<'_>) {
            if let Event::Finishing { calls: 1 } = event {
                self.0.notify_one();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (began, done) = (Arc::<tokio::sync::Notify>::default(), Arc::<tokio::sync::Notify>::default());
    let steps = format!("{POST}, {{name: done, set: {{value: '{{{{ steps.send.response }}}}!'}}}}");
    let slow = Slow { began: Arc::clone(&began), done: Arc::clone(&done) };
    let local_run = local(&folder).caller(slow).handler(Waits(done));
    let stop = local_run.stop();
    let mut run = local_run.begin(chain(&steps)).unwrap();
    let id = run.id().to_owned();
    let ask = async {
        began.notified().await;
        stop.ask();
    };
    let (ended, ()) = tokio::join!(run.go(), ask);
    assert_eq!(ended.unwrap(), RunOutcome::Paused);
    assert_eq!(run.snapshot().workflow.status.unwrap().steps.len(), 1, "nothing new began");
    drop(run);
    let again = Echo::default();
    let mut run = local(&folder).caller(again.clone()).resume(&id).await.unwrap();
    assert_eq!(run.go().await.unwrap(), succeeded("sent!"));
    assert_eq!(again.count(), 0);
}

#[tokio::test]
async fn a_second_request_to_pause_does_not_wait_for_calls() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::hanging();
    let local_run = local(&folder).caller(echo.clone());
    let stop = local_run.stop();
    let mut run = local_run.begin(chain(POST)).unwrap();
    let ask = async {
        echo.began().await;
        stop.ask();
        stop.ask();
    };
    let (ended, ()) = tokio::join!(run.go(), ask);
    assert_eq!(ended.unwrap(), RunOutcome::Paused);
}

/// A clock that a test moves forward.
#[derive(Clone, Default)]
struct ManualClock(Arc<std::sync::atomic::AtomicU32>);

impl ManualClock {
    fn forward(&self, seconds: u32) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH + Duration::from_secs(self.0.load(Ordering::SeqCst).into())
    }
}

fn with_deadline(steps: &str) -> Workflow {
    let mut workflow = chain(steps);
    workflow.spec.active_deadline = Some("10m".parse().unwrap());
    workflow
}

/// Ends a process while its call is in flight, and returns its session.
async fn kill_while_calling(mut run: Run, echo: &Echo) -> String {
    tokio::select! {
        biased;
        ended = run.go() => panic!("{ended:?}"),
        () = echo.began() => {}
    }
    run.id().to_owned()
}

#[tokio::test]
async fn the_time_between_two_processes_does_not_count() {
    let (folder, clock, echo) = (tempfile::tempdir().unwrap(), ManualClock::default(), Echo::hanging());
    let run = local(&folder).clock(clock.clone()).caller(echo.clone()).begin(with_deadline(PUT)).unwrap();
    let id = kill_while_calling(run, &echo).await;
    clock.forward(24 * 3600);
    let mut run = local(&folder).clock(clock.clone()).resume(&id).await.unwrap();
    assert_eq!(run.go().await.unwrap(), succeeded("PUT Hello"));
    let step = run.snapshot().workflow.status.unwrap().steps[0].clone();
    assert_eq!(step.at, Clock::now(&clock).into(), "what is repeated begins when it is repeated");
}

#[tokio::test]
async fn an_ended_run_does_not_change_when_it_is_continued() {
    let (folder, clock, echo) = (tempfile::tempdir().unwrap(), ManualClock::default(), Echo::hanging());
    let steps = format!("{{name: first, set: {{value: x}}}}, {PUT}");
    let local = local(&folder).clock(clock.clone()).caller(echo.clone());
    let id = kill_while_calling(local.begin(with_deadline(&steps)).unwrap(), &echo).await;
    // The first step has used up the whole time.
    let file = folder.path().join(&id).join("workflow.yaml");
    let mut workflow: Workflow = object::read(&file).unwrap().unwrap();
    workflow.status.as_mut().unwrap().steps[0].finished_at = Some(Clock::now(&clock).into());
    workflow.status.as_mut().unwrap().steps[0].at = (Clock::now(&clock) - Duration::from_secs(600)).into();
    object::write(&file, &workflow).unwrap();
    let mut run = local.resume(&id).await.unwrap();
    let ended = fs::read(&file).unwrap();
    for _ in 0..2 {
        let over = run.go().await.unwrap();
        assert!(matches!(&over, RunOutcome::Over(End::Failed(why)) if why.contains("activeDeadline")), "{over:?}");
    }
    assert_eq!(fs::read(&file).unwrap(), ended, "nothing is written after the end");
    drop(run);
    assert!(matches!(local.resume(&id).await, Err(Error::Over { .. })));
    assert_eq!(echo.count(), 1);
}
