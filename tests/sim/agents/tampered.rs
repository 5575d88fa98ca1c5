//! Tests of the laws of calls: each law fails on one change that breaks it, with everything else unchanged.

use kube::api::PostParams;
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::sim::EffectKey;

use crate::{
    harness::{Harness, NAMESPACE, approvals},
    laws::calls,
    people::name,
    scenario_runner::{ALONE, play},
    scenarios::{CALLS, RUN},
};

const REFUND: &str = "handle/.turn-1/.call-2/.gate";

/// Plays [`CALLS`] without failures.
async fn play_calls() -> Harness {
    let harness = play(&CALLS, ALONE, |_| {}).await.harness;
    assert_eq!(calls::hold(&harness, RUN), Ok(()));
    harness
}

/// Asserts that a law fails once a field of the Approval of the refund has another value.
async fn assert_noticed(place: &str, value: Value, law: &str) {
    let harness = play_calls().await;
    let asked = harness.approvals().into_iter().find(|one| one["spec"]["request"]["gate"]["path"] == REFUND).unwrap();
    let edit = |approval: &mut Value| *approval.pointer_mut(place).unwrap() = value.clone();
    harness.server.edit(&approvals(), NAMESPACE, &name(&asked), edit).unwrap();
    let broken = calls::hold(&harness, RUN).expect_err(place);
    assert!(broken.contains(law), "{place}: {broken}");
}

/// Asserts that a law fails once another actor has done this effect in the name of the run.
async fn assert_effect_noticed(path: &str, attempt: u32, what: Value, law: &str) {
    let harness = play_calls().await;
    let seat = harness.world.seat(&harness.server.incarnation("mallory"));
    let key = EffectKey::new(format!("{RUN}/{path}"), attempt);
    let _ = seat.call(&key, &json!({"idempotent": false, "what": what})).await;
    let broken = calls::hold(&harness, RUN).expect_err(path);
    assert!(broken.contains(law), "{path}: {broken}");
}

#[tokio::test(start_paused = true)]
async fn an_unapproved_call_is_noticed() {
    assert_noticed("/status/outcome/verdict", json!("Skip"), "gate changes asks").await;
    assert_noticed("/status/outcome/source", json!("Timeout"), "gate changes asks").await;
    assert_noticed("/status/outcome/decidedBy", json!(["mallory"]), "gate changes asks").await;
    assert_noticed("/status/outcome/decidedAt", json!("2027-01-01T00:00:00Z"), "gate changes asks").await;
    assert_noticed("/spec/request/reviews/digest", json!("sha256:00"), "gate changes asks").await;
    assert_noticed("/spec/request/action/gates/0/name", json!("other"), "gate changes asks").await;
    let pam =
        json!([{"source": "ClusterApprovalPolicy p", "approvers": [{"kind": "User", "name": "pam"}], "threshold": 1}]);
    assert_noticed("/spec/request/quorums", pam, "is not met by").await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_or_unexplained_call_is_noticed() {
    let pay = json!({"method": "POST", "body": "42"});
    let refund = "handle/.turn-1/.call-2/pay";
    assert_effect_noticed(refund, 2, pay.clone(), "that takes 2 approvals, and there are 1").await;
    assert_effect_noticed("handle/.turn-1/.call-4/pay", 1, pay.clone(), "no model called it").await;
    assert_effect_noticed("handle/.turn-1/.call-1/pay", 1, pay, "has no such tool").await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_in_which_a_call_has_no_answer_or_two_is_noticed() {
    let call = |id: &str| json!({"id": id, "tool": "lookup", "arguments": "{}"});
    let says = |calls: Value| json!({"role": "Assistant", "text": "", "calls": calls});
    let answers = |id: &str| json!({"role": "Tool", "text": "order 7", "answers": id});
    for (messages, law) in [
        (json!([says(json!([call("c1")]))]), "have no answer"),
        (json!([says(json!([call("c1"), call("c2")])), answers("c2"), answers("c1")]), "is answered where"),
        (json!([says(json!([call("c1")])), answers("c1"), answers("c1")]), "is answered where"),
        (json!([says(json!([call("c1"), call("c1")])), answers("c1"), answers("c1")]), "there are two calls"),
        (json!([says(json!([call("c1")])), answers("c1")]), "is told of calls that the model did not make"),
    ] {
        assert_effect_noticed("handle/.turn-2", 9, json!({"agent": "writer", "messages": messages}), law).await;
    }
}

/// Creates a request about another call, as the operator would; its arguments are this number.
async fn create_request(harness: &Harness, call: u8, arguments: u8) {
    let asked = harness.approvals().into_iter().find(|one| one["spec"]["request"]["gate"]["path"] == REFUND).unwrap();
    let mut approval = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "spec": {"request": asked["spec"]["request"]}});
    approval["metadata"] = json!({"name": format!("more-{call}"), "namespace": NAMESPACE});
    approval["spec"]["request"]["gate"]["path"] = json!(format!("handle/.turn-9/.call-{call}/.gate"));
    approval["spec"]["request"]["reviews"]["digest"] = json!(signoff_api::Digest::of_bytes(&[arguments]));
    let api = kube::Api::<Approval>::namespaced(harness.server.as_person("operator").client(), NAMESPACE);
    api.create(&PostParams::default(), &serde_json::from_value(approval).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_ninth_request_that_waits_is_noticed() {
    let harness = play_calls().await;
    for call in 1..=8 {
        create_request(&harness, call, call).await;
        assert_eq!(calls::hold(&harness, RUN), Ok(()), "{call}");
    }
    create_request(&harness, 9, 9).await;
    assert!(calls::hold(&harness, RUN).unwrap_err().contains("9 calls wait for people"));
}

#[tokio::test(start_paused = true)]
async fn a_second_request_about_an_equal_call_of_a_turn_is_noticed() {
    let harness = play_calls().await;
    create_request(&harness, 1, 1).await;
    create_request(&harness, 2, 1).await;
    assert!(calls::hold(&harness, RUN).unwrap_err().contains("so does an equal call"));
}
