//! Tests of gates of local runs: answers, votes, and deadlines in virtual time.

use std::{sync::Mutex, time::Duration};

use signoff_api::approval::ApprovalPhase;

use super::*;

/// Returns a clock that follows tokio's, which a test pauses.
fn paused_clock() -> impl Clock {
    let began = tokio::time::Instant::now();
    move || jiff::Timestamp::UNIX_EPOCH + began.elapsed()
}

#[tokio::test]
async fn a_run_pauses_at_a_gate_and_is_resumed_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::default();
    let steps = format!(
        "{{name: draft, http: {{method: POST, url: 'http://x.example', body: Hello}}}}, {GATE}, \
         {{name: done, set: {{value: '{{{{ steps.draft.response }}}} was {{{{ hitl_response }}}} by {{{{ hitl.decidedBy[0] }}}}'}}}}"
    );
    let (id, gate) = begin_until_paused(&local(&folder).caller(echo.clone()), chain(&steps)).await;
    // Only the folder of the first process is left.
    let mut run = local(&folder).caller(echo.clone()).resume(&id).await.unwrap();
    assert_eq!(run.decide(&gate, "erin", approve()).await.unwrap(), DecisionOutcome::Decided);
    assert_eq!(run.go().await.unwrap(), succeeded("POST Hello was approved by erin"));
    assert_eq!(echo.count(), 1, "what was done is not done again");
    drop(run);
    assert!(matches!(local(&folder).resume(&id).await, Err(Error::Over { .. })));
}

#[tokio::test]
async fn a_handler_answers_at_once_and_is_notified_of_the_outcome() {
    #[derive(Default)]
    struct Witness(Arc<Mutex<Vec<String>>>);
    #[async_trait]
    impl Handler for Witness {
        async fn answer(&self, question: GateQuestion) -> Option<Decision> {
            self.0.lock().unwrap().push(format!("asked {}", question.request().prompt));
            Some(approve())
        }
        fn resumed(&self, approval: &signoff_api::Approval) {
            let phase = approval.status.as_ref().unwrap().phase;
            self.0.lock().unwrap().push(format!("resumed {}", phase.name()));
        }
    }
    let (folder, log) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let local = local(&folder).handler(Witness(Arc::clone(&log)));
    assert_eq!(local.begin(chain(GATE)).unwrap().go().await.unwrap(), succeeded("approved"));
    assert_eq!(*log.lock().unwrap(), ["asked Go on?", "resumed Approved"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_notified_of_each_event_of_a_gate_once() {
    #[derive(Default)]
    struct Witness(Arc<Mutex<Vec<String>>>);
    #[async_trait]
    impl Handler for Witness {
        async fn answer(&self, _: GateQuestion) -> Option<Decision> {
            // The gate asks again at its second level.
            tokio::time::sleep(Duration::from_secs(90)).await;
            Some(approve())
        }
        fn resumed(&self, approval: &signoff_api::Approval) {
            let phase = approval.status.as_ref().unwrap().phase;
            self.0.lock().unwrap().push(format!("resumed {}", phase.name()));
        }
        fn happened(&self, event: &Event<'_>) {
            self.0.lock().unwrap().extend(match event {
                Event::Asks(approval) => Some(format!("asks {}", approval.spec.request.prompt)),
                Event::Said(_, sentence) => Some(format!("said {} {}", sentence.reason.name(), sentence.key)),
                _ => None,
            });
        }
    }
    let gate = "{name: review, hitl: {prompt: Go on?, approvers: [{kind: User, name: dana}], timeout: {after: 60s, \
                action: Escalate, escalation: [{after: 300s, to: [{kind: User, name: olga}]}]}}}";
    let (folder, log) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let local = local(&folder).clock(paused_clock()).handler(Witness(Arc::clone(&log)));
    assert_eq!(local.begin(chain(gate)).unwrap().go().await.unwrap(), succeeded("approved"));
    let expected = ["asks Go on?", "said Escalated escalated-1", "said Approved decided", "resumed Approved"];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_leaves_the_gate_open_and_says_why() {
    let gate = "{name: ask, hitl: {prompt: Which city?, approvers: [{kind: User, name: dana}], \
                form: {questions: [{id: answer, pattern: '[A-Z][a-z]+', errorMessage: 'one word, with a capital'}]}}}";
    let respond = |text: &str| Decision { response: Some(text.into()), ..Decision::new(Verdict::Respond) };
    struct Stubborn(Arc<Mutex<Vec<String>>>);
    #[async_trait]
    impl Handler for Stubborn {
        async fn answer(&self, question: GateQuestion) -> Option<Decision> {
            let text = if question.refused.is_some() { "Lisbon" } else { "lisbon" };
            self.0.lock().unwrap().extend(question.refused);
            Some(Decision { response: Some(text.into()), ..Decision::new(Verdict::Respond) })
        }
    }
    let (folder, log) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let local_run = local(&folder).handler(Stubborn(Arc::clone(&log)));
    assert_eq!(local_run.begin(chain(gate)).unwrap().go().await.unwrap(), succeeded("Lisbon"));
    assert_eq!(*log.lock().unwrap(), ["answers.answer: one word, with a capital"]);

    let (id, name) = begin_until_paused(&local(&folder), chain(gate)).await;
    let mut run = local(&folder).resume(&id).await.unwrap();
    let why = run.decide(&name, "dana", respond("lisbon")).await.unwrap_err().to_string();
    assert_eq!(why, "answers.answer: one word, with a capital");
    assert!(run.decide(&name, "dana", respond(" ")).await.unwrap_err().to_string().contains("empty"));
    assert!(run.pending()[0].spec.decisions.is_empty(), "nothing was written of it");
    assert_eq!(run.decide(&name, "dana", respond("Lisbon")).await.unwrap(), DecisionOutcome::Decided);
}

#[tokio::test]
async fn a_handler_with_invalid_answers_is_asked_eight_times() {
    struct Wrong(Arc<AtomicUsize>);
    #[async_trait]
    impl Handler for Wrong {
        async fn answer(&self, _: GateQuestion) -> Option<Decision> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Some(Decision::new(Verdict::Skip))
        }
    }
    let (folder, asked) = (tempfile::tempdir().unwrap(), Arc::new(AtomicUsize::new(0)));
    let local = local(&folder).handler(Wrong(Arc::clone(&asked)));
    assert_eq!(local.begin(chain(GATE)).unwrap().go().await.unwrap(), RunOutcome::Paused);
    assert_eq!(asked.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn a_threshold_of_two_needs_two_people() {
    let gate = "{name: review, hitl: {prompt: Go on?, approvers: [{kind: Group, name: finance}], threshold: 2, \
                requiredFrom: [{group: finance, min: 1}], excludeRequester: true}}";
    let folder = tempfile::tempdir().unwrap();
    let (id, name) = begin_until_paused(&local(&folder), chain(gate)).await;
    let mut run = local(&folder).resume(&id).await.unwrap();
    assert!(run.decide(&name, "dana", approve()).await.unwrap_err().to_string().contains("is the requester"));
    assert_eq!(run.decide(&name, "erin", approve()).await.unwrap(), DecisionOutcome::Needs { have: 1, needed: 2 });
    assert!(run.decide(&name, "erin", approve()).await.unwrap_err().to_string().contains("already"));
    drop(run);
    let mut run = local(&folder).resume(&id).await.unwrap();
    assert_eq!(run.decide(&name, "bob", approve()).await.unwrap(), DecisionOutcome::Decided);
    assert_eq!(run.go().await.unwrap(), succeeded("approved"));
    let decided = history(&run.snapshot());
    assert_eq!(decided[0].user.as_deref(), Some("erin, bob"));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passed_during_a_pause_applies_at_resume() {
    let gate = |action: &str| {
        format!(
            "{{name: ask, hitl: {{prompt: Which?, approvers: [{{kind: User, name: dana}}], timeout: {{after: 1h, {action}}}}}}}"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    for (action, end) in [
        ("action: Reject", RunOutcome::Over(End::Rejected("ask: rejected: the deadline passed".into()))),
        ("action: Default, default: Lisbon", succeeded("Lisbon")),
    ] {
        let clock = Arc::new(paused_clock());
        let local_at = |clock: &Arc<_>| {
            let clock = Arc::clone(clock);
            local(&folder).clock(move || Clock::now(&*clock))
        };
        let (id, name) = begin_until_paused(&local_at(&clock), chain(&gate(action))).await;
        tokio::time::advance(Duration::from_secs(3601)).await;
        let mut run = local_at(&clock).resume(&id).await.unwrap();
        let late = run.decide(&name, "dana", approve()).await.unwrap_err().to_string();
        assert!(late.contains("decided already (Expired)"), "{late}");
        let ended = run.go().await.unwrap();
        assert_eq!(std::mem::discriminant(&ended), std::mem::discriminant(&end), "{ended:?}");
        if let RunOutcome::Over(End::Succeeded(_)) = end {
            assert_eq!(ended, end);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_while_the_handler_has_not_answered() {
    struct NeverAnswers;
    #[async_trait]
    impl Handler for NeverAnswers {
        async fn answer(&self, _: GateQuestion) -> Option<Decision> {
            std::future::pending().await
        }
    }
    let gate = "{name: ask, hitl: {prompt: Which?, approvers: [{kind: User, name: dana}], timeout: {after: 1h, action: Skip}}}, \
                {name: done, set: {value: went on}}";
    let folder = tempfile::tempdir().unwrap();
    let local = local(&folder).clock(paused_clock()).handler(NeverAnswers);
    let mut run = local.begin(chain(gate)).unwrap();
    assert_eq!(run.go().await.unwrap(), succeeded("went on"));
    assert_eq!(run.snapshot().approvals[0].status.as_ref().unwrap().phase, ApprovalPhase::Expired);
    assert!(history(&run.snapshot())[0].user.is_none());
}

#[tokio::test]
async fn an_ended_run_has_no_open_approval() {
    let folder = tempfile::tempdir().unwrap();
    let (id, name) = begin_until_paused(&local(&folder), chain(GATE)).await;
    let mut run = local(&folder).resume(&id).await.unwrap();
    run.decide(&name, "dana", Decision { reason: Some("enough".into()), ..Decision::new(Verdict::Abort) })
        .await
        .unwrap();
    assert!(matches!(run.go().await.unwrap(), RunOutcome::Over(End::Aborted(why)) if why.contains("enough")));
    let snapshot = run.snapshot();
    assert!(snapshot.workflow.status.unwrap().pending.is_empty());
    assert!(snapshot.approvals.iter().all(|a| a.status.as_ref().unwrap().phase.is_end()));
}
