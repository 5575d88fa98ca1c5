//! Operations of the operator that keep failing: reported on the object after a minute, and cleared once they succeed.

use serde_json::{Value, json};
use signoff_tests::sim::{Fault, On, Refusal, Request, Verb};

use crate::{
    ending::list,
    harness::{Harness, OPERATOR, condition, workflows},
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

fn stalled_message(workflow: &Value) -> String {
    let said = list(&workflow["status"]["conditions"]).find(|c| c["type"] == "Stalled").cloned();
    said.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_a_quota_refuses_is_reported_after_a_minute() {
    let harness = Harness::new();
    harness.server.fault(On::writes_of(OPERATOR).only(creates("approvals")), refused(403, "Forbidden", QUOTA));
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply(RUN, &(ONE_GATE.spec)());
    harness.apply("twin", &chain(json!([set("only", "x")])));
    harness.pass(58).await;
    assert_eq!(condition(&harness.workflow(RUN), "Stalled").0, "", "not before a minute is over");
    harness.pass(4).await;
    assert_eq!(harness.condition("Stalled"), ("True".to_owned(), "Forbidden".to_owned()), "{}", harness.server.story());
    let message = stalled_message(&harness.workflow(RUN));
    assert!(message.starts_with("creating Approval default/refund-review-") && message.contains(QUOTA), "{message}");
    assert!(message.ends_with("and is retried until it succeeds"), "{message}");
    let events = harness.events("Stalled");
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!((&events[0]["regarding"]["name"], &events[0]["type"]), (&json!(RUN), &json!("Warning")));
    assert!(events[0]["note"].as_str().unwrap().contains(QUOTA));
    // The honest twin reports nothing.
    assert_eq!(harness.wait_for_end("twin").await["status"]["phase"], "Succeeded");
    assert_eq!(condition(&harness.workflow("twin"), "Stalled").0, "");
    // It is reported once, however long it lasts.
    let writes = |harness: &Harness| harness.server.count(crate::harness::is_status_write);
    let before = writes(&harness);
    harness.pass(3600).await;
    assert_eq!((writes(&harness), harness.events("Stalled").len()), (before, 1));
    // The quota is raised.
    harness.server.heal();
    harness.pass(61).await;
    assert_eq!(harness.condition("Stalled"), Default::default());
    harness.people().decide("alice", "review", 1, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_less_than_a_minute_is_not_reported() {
    let harness = Harness::new();
    harness.server.fault(On::writes_of(OPERATOR).only(creates("approvals")), refused(403, "Forbidden", QUOTA));
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply(RUN, &(ONE_GATE.spec)());
    harness.pass(40).await;
    harness.server.heal();
    harness.people().wait_for_gate("review").await;
    harness.pass(600).await;
    assert_eq!((harness.condition("Stalled").0.as_str(), harness.events("Stalled").len()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn the_next_operator_clears_a_reported_failure() {
    let harness = Harness::new();
    harness.server.fault(On::writes_of(OPERATOR).only(creates("approvals")), refused(403, "Forbidden", QUOTA));
    let life = harness.begin_and_settle(OPERATOR).await;
    harness.apply(RUN, &(ONE_GATE.spec)());
    harness.pass(70).await;
    assert_eq!(harness.condition("Stalled").0, "True");
    life.crash().await;
    harness.server.heal();
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.pass(5).await;
    assert_eq!(harness.condition("Stalled"), Default::default(), "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_refused_status_is_reported_by_an_event_and_a_metric() {
    let webhook = "admission webhook \"strict.example.com\" denied the request: no status on Sundays";
    let policy = "workflows.signoff.dev \"refund\" is forbidden: ValidatingAdmissionPolicy 'strict' with binding 'all' denied request: no";
    for (code, reason, denied) in [(403, "Forbidden", webhook), (422, "Invalid", policy)] {
        let harness = Harness::new();
        let status = On::writes_of(OPERATOR).only(writes_status_of("workflows"));
        harness.server.fault(status, refused(code, reason, denied));
        let _life = harness.begin_and_settle(OPERATOR).await;
        harness.apply(RUN, &(ONE_GATE.spec)());
        assert_eq!(harness.metric("signoff_stalled"), 0);
        harness.pass(70).await;
        let events = harness.events("Stalled");
        assert_eq!(events.len(), 1, "{}", harness.server.story());
        let note = events[0]["note"].as_str().unwrap();
        assert!(note.starts_with("writing the status of Workflow default/refund: ") && note.contains(denied), "{note}");
        assert!(!note.contains("internal error"), "{note}");
        assert_eq!(harness.metric("signoff_stalled"), 1);
        assert_eq!(harness.condition("Stalled").0, "");
        harness.server.heal();
        harness.people().wait_for_gate("review").await;
        harness.pass(61).await;
        assert_eq!((harness.metric("signoff_stalled"), harness.condition("Stalled").0.as_str()), (0, ""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_cannot_be_recorded_is_reported_on_its_approval() {
    let harness = Harness::new();
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply(RUN, &(ONE_GATE.spec)());
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(5).await;
    harness.server.fault(
        On::writes_of(OPERATOR).only(writes_status_of("approvals")),
        refused(500, "InternalError", "failed calling webhook \"votes.example.com\": connection refused"),
    );
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.pass(70).await;
    let events = harness.events("Stalled");
    assert_eq!(events.len(), 1, "{}", harness.server.story());
    assert_eq!(
        (&events[0]["regarding"]["kind"], &events[0]["regarding"]["name"]),
        (&json!("Approval"), &json!(approval))
    );
    assert!(events[0]["note"].as_str().unwrap().contains("votes.example.com"));
    assert_eq!(events[0]["regarding"]["uid"], harness.approval()["metadata"]["uid"]);
    harness.server.heal();
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_stored_is_reported_on_its_run() {
    let harness = Harness::new();
    harness.server.fault(
        On::writes_of(OPERATOR).only(creates("blobs")),
        refused(403, "Forbidden", "blobs.signoff.dev \"x\" is forbidden: exceeded quota: values"),
    );
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply(RUN, &chain(json!([set("long", &"x".repeat(2000)), gate("review", json!({}))])));
    harness.pass(70).await;
    assert_eq!(harness.condition("Stalled"), ("True".to_owned(), "Forbidden".to_owned()), "{}", harness.server.story());
    assert!(
        stalled_message(&harness.workflow(RUN)).contains("exceeded quota: values"),
        "{}",
        stalled_message(&harness.workflow(RUN))
    );
    harness.server.heal();
    harness.people().wait_for_gate("review").await;
    harness.pass(2).await;
    assert_eq!(harness.condition("Stalled"), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_is_no_longer_stalled() {
    let harness = Harness::new();
    harness.server.fault(On::writes_of(OPERATOR).only(creates("approvals")), refused(403, "Forbidden", QUOTA));
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply(RUN, &(ONE_GATE.spec)());
    harness.pass(70).await;
    harness.people().set_field(RUN, "cancel", true);
    let ended = harness.wait_for_end(RUN).await;
    assert_eq!((&ended["status"]["phase"], condition(&ended, "Stalled").0.as_str()), (&json!("Cancelled"), ""));
    assert_eq!(harness.server.value(&workflows(), "default", RUN).unwrap()["status"]["phase"], "Cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_broken_webhook_refuses_is_reported_on_its_run() {
    let harness = Harness::new();
    let broken = "Internal error occurred: failed calling webhook \"pods.example.com\": connection refused";
    harness.server.fault(On::writes_of(OPERATOR).only(creates("pods")), refused(500, "InternalError", broken));
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.apply(RUN, &chain(json!([pod("build", json!({}))])));
    harness.pass(45).await;
    assert_eq!(harness.condition("PodsPending").0, "");
    harness.pass(45).await;
    assert_eq!(
        harness.condition("PodsPending"),
        ("True".to_owned(), "NotCreated".to_owned()),
        "{}",
        harness.server.story()
    );
    assert_eq!(harness.events("Stalled").len(), 1);
    harness.server.heal();
    let ended = harness.wait_for_end(RUN).await;
    assert_eq!((&ended["status"]["phase"], condition(&ended, "PodsPending").0.as_str()), (&json!("Succeeded"), ""));
}
