//! Rules that are removed for a moment and restored exactly as they were: no vote of that moment ever counts, whether
//! the operator watches, is stopped or is down.

use serde_json::{Value, json};
use signoff_api::approval::ApprovalPhase;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::control_plane::Signal;

use super::harness::{Harness, assert_waits_at_gate};

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";
const NAME: &str = "signoff-approvals";
const MATCHES_NOTHING: fn() -> Value = || json!({"matchLabels": {"nobody": "has-this"}});

/// One way of disabling the rule of votes: the object, and a change of the object. A change that returns `false`
/// deletes the object.
struct Window {
    name: &'static str,
    kind: &'static str,
    change: fn(&mut Value) -> bool,
}

/// Sets the field at this path below `spec`, of at most two parts. Returns `true`: the object is not deleted.
fn set_spec_field(object: &mut Value, field: &str, value: Value) -> bool {
    let mut place = &mut object["spec"];
    let (path, last) = field.rsplit_once('.').map_or((None, field), |(path, last)| (Some(path), last));
    if let Some(path) = path {
        place = &mut place[path];
    }
    place[last] = value;
    true
}

const WINDOWS: [Window; 9] = [
    Window { name: "binding-deleted", kind: BINDING, change: |_| false },
    Window { name: "policy-deleted", kind: POLICY, change: |_| false },
    Window { name: "audit", kind: BINDING, change: |o| set_spec_field(o, "validationActions", json!(["Audit"])) },
    Window {
        name: "namespace-selector",
        kind: BINDING,
        change: |o| set_spec_field(o, "matchResources", json!({"namespaceSelector": MATCHES_NOTHING()})),
    },
    Window {
        name: "object-selector",
        kind: POLICY,
        change: |o| set_spec_field(o, "matchConstraints.objectSelector", MATCHES_NOTHING()),
    },
    Window {
        name: "excluded",
        kind: POLICY,
        change: |o| {
            let all =
                json!([{"apiGroups": ["signoff.dev"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]);
            set_spec_field(o, "matchConstraints.excludeResourceRules", all)
        },
    },
    Window {
        name: "match-conditions",
        kind: POLICY,
        change: |o| set_spec_field(o, "matchConditions", json!([{"name": "never", "expression": "false"}])),
    },
    Window {
        name: "rewritten",
        kind: POLICY,
        change: |o| set_spec_field(o, "validations", json!([{"expression": "true"}])),
    },
    Window {
        name: "ignore",
        kind: POLICY,
        change: |o| {
            set_spec_field(o, "failurePolicy", json!("Ignore"));
            set_spec_field(o, "validations", json!([{"expression": "object.spec.nothing == 'of the kind'"}]))
        },
    },
];

/// The state of the operator while a rule is disabled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Watches,
    StandsStill,
    IsDown,
}

/// Opens each window in this state of the operator, and checks that no vote in it counts.
async fn check_that_no_vote_counts(meanwhile: Operator) {
    let harness = Harness::open().await;
    let mut operator = Some(harness.start_operator(&[]).await);
    let mut approvals = Vec::new();
    for window in &WINDOWS {
        harness.request(window.name, 1).await;
        approvals.push(harness.wait_for_gate(window.name, "review").await);
    }
    // One gate has an honest vote from before, the other gate has no votes.
    harness.request("half", 2).await;
    let half = harness.wait_for_gate("half", "review").await;
    harness.decide("alice", &half, "Approve").await.unwrap();
    harness.request("nobody", 1).await;
    let nobody = harness.wait_for_gate("nobody", "review").await;

    match meanwhile {
        Operator::Watches => {}
        Operator::StandsStill => operator.as_mut().unwrap().signal(Signal::Stop).unwrap(),
        Operator::IsDown => operator.take().unwrap().kill(),
    }
    for (window, approval) in WINDOWS.iter().zip(&approvals) {
        let before = harness.change_or_delete(window.kind, NAME, window.change).await;
        harness.forge_vote(approval).await;
        harness.restore(window.kind, before).await;
    }
    harness.cluster.in_force().await.unwrap();
    match meanwhile {
        Operator::Watches => {}
        Operator::StandsStill => operator.as_mut().unwrap().signal(Signal::Cont).unwrap(),
        Operator::IsDown => operator = Some(harness.start_operator(&[]).await),
    }

    for (window, approval) in WINDOWS.iter().zip(&approvals) {
        let ended = harness.wait_for_phase(approval, ApprovalPhase::Superseded).await;
        let why = ended.status.unwrap().outcome.unwrap().reason.unwrap();
        assert!(why.contains("recorded while unguarded"), "{}: {why}", window.name);
        harness.wait_for_gate(window.name, "review#2").await;
        assert_waits_at_gate(&harness, window.name).await;
        harness.approve_until_end("alice", window.name).await;
        assert_eq!(
            harness.wait_for_end(window.name).await.status.unwrap().phase,
            WorkflowPhase::Succeeded,
            "{}",
            window.name
        );
    }
    harness.wait_for_phase(&half, ApprovalPhase::Superseded).await;
    // The gate without votes still has the same Approval.
    harness.decide("alice", &nobody, "Approve").await.unwrap();
    assert_eq!(harness.wait_for_phase(&nobody, ApprovalPhase::Approved).await.status.unwrap().votes.len(), 1);
    assert_eq!(harness.wait_for_end("nobody").await.status.unwrap().phase, WorkflowPhase::Succeeded);
    drop(operator);
}

#[tokio::test]
async fn a_vote_without_the_rule_is_void_for_a_running_operator() {
    check_that_no_vote_counts(Operator::Watches).await;
}

#[tokio::test]
async fn a_vote_without_the_rule_is_void_for_a_frozen_operator() {
    check_that_no_vote_counts(Operator::StandsStill).await;
}

#[tokio::test]
async fn a_vote_without_the_rule_is_void_for_a_stopped_operator() {
    check_that_no_vote_counts(Operator::IsDown).await;
}

#[tokio::test]
async fn an_edited_and_restored_crd_voids_votes_before_and_in_between() {
    let harness = Harness::open().await;
    let operator = harness.start_operator(&[]).await;
    for run in ["before", "meanwhile"] {
        harness.request(run, 2).await;
    }
    let (before, meanwhile) =
        (harness.wait_for_gate("before", "review").await, harness.wait_for_gate("meanwhile", "review").await);
    harness.decide("alice", &before, "Approve").await.unwrap();
    let crd = harness
        .change_or_delete("CustomResourceDefinition", "approvals.signoff.dev", |crd| {
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = json!([]);
            true
        })
        .await;
    harness.decide("alice", &meanwhile, "Approve").await.unwrap();
    harness.wait_for_condition("meanwhile", "Guarded", "False").await;
    harness.restore("CustomResourceDefinition", crd).await;
    for approval in [&before, &meanwhile] {
        harness.wait_for_phase(approval, ApprovalPhase::Superseded).await;
    }
    drop(operator);
}

#[tokio::test]
async fn a_workflow_created_without_the_rule_about_requesters_is_not_accepted() {
    let harness = Harness::open().await;
    let operator = harness.start_operator(&[]).await;
    harness.request("settled", 1).await;
    let settled = harness.wait_for_gate("settled", "review").await;
    let before = harness.change_or_delete(BINDING, "signoff-workflows", |_| false).await;
    let stamp = harness.change_or_delete("MutatingAdmissionPolicyBinding", "signoff-requester", |_| false).await;
    let forged = crate::policies::harness::workflow("forged", json!({"requestedBy": "dana@example.com"}));
    let nina = harness.cluster.token_client("nina").await.unwrap();
    harness.namespace.bind("signoff-requester", "nina@example.com").await.unwrap();
    let api: kube::Api<signoff_api::Workflow> = kube::Api::namespaced(nina, &harness.namespace.name);
    let object = serde_json::from_value(forged).unwrap();
    // The Workflow is stored in dana's name. Until the rule is gone, the rules refuse the Workflow or store a copy that
    // never runs.
    harness
        .repeat_until_accepted("a forged request", async || {
            let made = api.create(&kube::api::PostParams::default(), &object).await;
            let made = crate::policies::harness::to_answer(made)?;
            if made.spec.requested_by == "dana@example.com" && made.spec.restored.is_none() {
                return Ok(());
            }
            api.delete("forged", &kube::api::DeleteParams::default()).await.unwrap();
            Err(format!("requestedBy is {}, restored {:?}", made.spec.requested_by, made.spec.restored))
        })
        .await;
    harness.restore(BINDING, before).await;
    harness.restore("MutatingAdmissionPolicyBinding", stamp).await;
    let why = harness.wait_for_condition("forged", "Accepted", "False").await;
    assert!(why.contains("requestedBy is not verified") && why.contains("apply it again"), "{why}");
    assert_eq!(harness.wait_for_end("forged").await.status.unwrap().phase, WorkflowPhase::Failed);
    // A run that was accepted before the rule was removed goes on.
    harness.decide("alice", &settled, "Approve").await.unwrap();
    assert_eq!(harness.wait_for_end("settled").await.status.unwrap().phase, WorkflowPhase::Succeeded);
    drop(operator);
}
