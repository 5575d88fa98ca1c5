//! Operations of the operator that keep failing: told on the object after a minute, and cleared once they succeed.

use serde_json::{Value, json};
use signoff_tests::sim::{Fault, On, Refusal, Request, Verb};

use crate::{
    ending::list,
    harness::{OPERATOR, Stage, condition, workflows},
    people::verdict,
    scenarios::{ONE_GATE, RUN, chain, gate, pod, set},
};

const QUOTA: &str =
    "exceeded quota: people, requested: count/approvals.signoff.dev=1, limited: count/approvals.signoff.dev=0";

fn refused(code: u16, reason: &'static str, message: &str) -> Fault {
    Fault::Refuse(Refusal::new(code, reason, message))
}

fn creates(plural: &'static str) -> impl Fn(&Request) -> bool + Send + Sync {
    move |request| request.verb == Verb::Create && request.resource.plural == plural
}

fn writes_status_of(plural: &'static str) -> impl Fn(&Request) -> bool + Send + Sync {
    move |request| request.subresource.is_some() && request.resource.plural == plural
}

fn said(workflow: &Value) -> String {
    let said = list(&workflow["status"]["conditions"]).find(|c| c["type"] == "Stalled").cloned();
    said.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_a_quota_refuses_is_told_on_its_workflow_after_a_minute() {
    let stage = Stage::new();
    stage.server.fault(On::writes_of(OPERATOR).only(creates("approvals")), refused(403, "Forbidden", QUOTA));
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.apply(RUN, &(ONE_GATE.spec)());
    stage.apply("twin", &chain(json!([set("only", "x")])));
    stage.pass(58).await;
    assert_eq!(condition(&stage.workflow(RUN), "Stalled").0, "", "not before a minute is over");
    stage.pass(4).await;
    assert_eq!(stage.condition("Stalled"), ("True".to_owned(), "Forbidden".to_owned()), "{}", stage.server.story());
    let message = said(&stage.workflow(RUN));
    assert!(message.starts_with("creating Approval default/refund-review-") && message.contains(QUOTA), "{message}");
    let events = stage.events("Stalled");
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!((&events[0]["regarding"]["name"], &events[0]["type"]), (&json!(RUN), &json!("Warning")));
    assert!(events[0]["note"].as_str().unwrap().contains(QUOTA));
    // The honest twin has nothing to say.
    assert_eq!(stage.ended("twin").await["status"]["phase"], "Succeeded");
    assert_eq!(condition(&stage.workflow("twin"), "Stalled").0, "");
    // It is told once, however long it lasts.
    let writes = |stage: &Stage| stage.server.count(crate::harness::is_status_write);
    let before = writes(&stage);
    stage.pass(3600).await;
    assert_eq!((writes(&stage), stage.events("Stalled").len()), (before, 1));
    // The quota is raised.
    stage.server.heal();
    stage.pass(61).await;
    assert_eq!(stage.condition("Stalled"), Default::default());
    let approval = stage.people().asked("review").await;
    stage.people().votes("alice", &approval, verdict("Approve"));
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_less_than_a_minute_is_told_nowhere() {
    let stage = Stage::new();
    stage.server.fault(On::writes_of(OPERATOR).only(creates("approvals")), refused(403, "Forbidden", QUOTA));
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.apply(RUN, &(ONE_GATE.spec)());
    stage.pass(40).await;
    stage.server.heal();
    stage.people().asked("review").await;
    stage.pass(600).await;
    assert_eq!((stage.condition("Stalled").0.as_str(), stage.events("Stalled").len()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn the_next_operator_clears_what_the_last_one_told() {
    let stage = Stage::new();
    stage.server.fault(On::writes_of(OPERATOR).only(creates("approvals")), refused(403, "Forbidden", QUOTA));
    let life = stage.begin_and_settle(OPERATOR).await;
    stage.apply(RUN, &(ONE_GATE.spec)());
    stage.pass(70).await;
    assert_eq!(stage.condition("Stalled").0, "True");
    life.crash().await;
    stage.server.heal();
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.pass(5).await;
    assert_eq!(stage.condition("Stalled"), Default::default(), "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_status_that_a_webhook_or_a_policy_refuses_is_told_by_an_event_and_a_number() {
    let webhook = "admission webhook \"strict.example.com\" denied the request: no status on Sundays";
    let policy = "workflows.signoff.dev \"refund\" is forbidden: ValidatingAdmissionPolicy 'strict' with binding 'all' denied request: no";
    for (code, reason, denied) in [(403, "Forbidden", webhook), (422, "Invalid", policy)] {
        let stage = Stage::new();
        let status = On::writes_of(OPERATOR).only(writes_status_of("workflows"));
        stage.server.fault(status, refused(code, reason, denied));
        let _life = stage.begin_and_settle(OPERATOR).await;
        stage.apply(RUN, &(ONE_GATE.spec)());
        assert_eq!(stage.metric("signoff_stalled"), 0);
        stage.pass(70).await;
        let events = stage.events("Stalled");
        assert_eq!(events.len(), 1, "{}", stage.server.story());
        let note = events[0]["note"].as_str().unwrap();
        assert!(note.starts_with("writing the status of Workflow default/refund: ") && note.contains(denied), "{note}");
        assert!(!note.contains("internal error"), "{note}");
        assert_eq!(stage.metric("signoff_stalled"), 1);
        assert_eq!(stage.condition("Stalled").0, "");
        stage.server.heal();
        stage.people().asked("review").await;
        stage.pass(61).await;
        assert_eq!((stage.metric("signoff_stalled"), stage.condition("Stalled").0.as_str()), (0, ""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_cannot_be_recorded_is_told_on_its_approval() {
    let stage = Stage::new();
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.apply(RUN, &(ONE_GATE.spec)());
    let approval = stage.people().asked("review").await;
    stage.pass(5).await;
    stage.server.fault(
        On::writes_of(OPERATOR).only(writes_status_of("approvals")),
        refused(500, "InternalError", "failed calling webhook \"votes.example.com\": connection refused"),
    );
    stage.people().votes("alice", &approval, verdict("Approve"));
    stage.pass(70).await;
    let events = stage.events("Stalled");
    assert_eq!(events.len(), 1, "{}", stage.server.story());
    assert_eq!(
        (&events[0]["regarding"]["kind"], &events[0]["regarding"]["name"]),
        (&json!("Approval"), &json!(approval))
    );
    assert!(events[0]["note"].as_str().unwrap().contains("votes.example.com"));
    assert_eq!(events[0]["regarding"]["uid"], stage.approval()["metadata"]["uid"]);
    stage.server.heal();
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_stored_is_told_on_its_run() {
    let stage = Stage::new();
    stage.server.fault(
        On::writes_of(OPERATOR).only(creates("blobs")),
        refused(403, "Forbidden", "blobs.signoff.dev \"x\" is forbidden: exceeded quota: values"),
    );
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.apply(RUN, &chain(json!([set("long", &"x".repeat(2000)), gate("review", json!({}))])));
    stage.pass(70).await;
    assert_eq!(stage.condition("Stalled"), ("True".to_owned(), "Forbidden".to_owned()), "{}", stage.server.story());
    assert!(said(&stage.workflow(RUN)).contains("exceeded quota: values"), "{}", said(&stage.workflow(RUN)));
    stage.server.heal();
    stage.people().asked("review").await;
    stage.pass(2).await;
    assert_eq!(stage.condition("Stalled"), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_while_it_is_stalled_does_not_stay_so() {
    let stage = Stage::new();
    stage.server.fault(On::writes_of(OPERATOR).only(creates("approvals")), refused(403, "Forbidden", QUOTA));
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.apply(RUN, &(ONE_GATE.spec)());
    stage.pass(70).await;
    stage.people().sets(RUN, "cancel", true);
    let ended = stage.ended(RUN).await;
    assert_eq!((&ended["status"]["phase"], condition(&ended, "Stalled").0.as_str()), (&json!("Cancelled"), ""));
    assert_eq!(stage.server.value(&workflows(), "default", RUN).unwrap()["status"]["phase"], "Cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_broken_webhook_keeps_from_being_made_is_told_on_its_run() {
    let stage = Stage::new();
    let broken = "Internal error occurred: failed calling webhook \"pods.example.com\": connection refused";
    stage.server.fault(On::writes_of(OPERATOR).only(creates("pods")), refused(500, "InternalError", broken));
    let _life = stage.begin_and_settle(OPERATOR).await;
    stage.apply(RUN, &chain(json!([pod("build", json!({}))])));
    stage.pass(45).await;
    assert_eq!(stage.condition("PodsPending").0, "");
    stage.pass(45).await;
    assert_eq!(
        stage.condition("PodsPending"),
        ("True".to_owned(), "NotCreated".to_owned()),
        "{}",
        stage.server.story()
    );
    assert_eq!(stage.events("Stalled").len(), 1);
    stage.server.heal();
    let ended = stage.ended(RUN).await;
    assert_eq!((&ended["status"]["phase"], condition(&ended, "PodsPending").0.as_str()), (&json!("Succeeded"), ""));
}
