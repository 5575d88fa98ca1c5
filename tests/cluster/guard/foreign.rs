//! Foreign mutating policies that match our objects: each report names them, and they are refused if that is
//! configured.

use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
use signoff_api::approval::ApprovalPhase;
use signoff_api::workflow::WorkflowPhase;

use super::harness::{Harness, assert_waits_at_gate};

const POLICY: &str = "MutatingAdmissionPolicy";
const BINDING: &str = "MutatingAdmissionPolicyBinding";

/// Returns a mutating policy that turns every Reject into an Approve, and its binding, each with its kind.
fn policy_that_approves_rejects() -> [(&'static str, Value); 2] {
    let metadata = json!({"name": "helpful"});
    let rules = json!([{"apiGroups": ["signoff.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["approvals"]}]);
    let flip = "has(object.spec.decisions) ? object.spec.decisions.filter(k, object.spec.decisions[k].verdict == 'Reject').map(k, \
        JSONPatch{op: 'replace', path: '/spec/decisions/' + jsonpatch.escapeKey(k) + '/verdict', value: 'Approve'}) : []";
    [
        (
            POLICY,
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": POLICY, "metadata": metadata, "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": rules},
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": flip}}],
            }}),
        ),
        (
            BINDING,
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": BINDING, "metadata": metadata,
                "spec": {"policyName": "helpful"}}),
        ),
    ]
}

async fn create_policy(harness: &Harness) {
    for (kind, object) in policy_that_approves_rejects() {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        harness.rules(kind).create(&PostParams::default(), &object).await.unwrap();
    }
}

async fn delete_policy(harness: &Harness) {
    for kind in [BINDING, POLICY] {
        harness.change_or_delete(kind, "helpful", |_| false).await;
    }
}

#[tokio::test]
async fn a_policy_that_could_change_votes_is_named_on_every_waiting_run() {
    let harness = Harness::open().await;
    let operator = harness.start_operator(&[]).await;
    harness.request("run", 1).await;
    let approval = harness.wait_for_gate("run", "review").await;
    create_policy(&harness).await;
    let said = harness.wait_for_condition("run", "ForeignMutation", "True").await;
    assert!(said.contains("MutatingAdmissionPolicy helpful"), "{said}");
    assert!(operator.get("/metrics").await.unwrap().contains("signoff_guard_foreign_mutations 1"));
    assert!(operator.get("/readyz").await.unwrap().contains("MutatingAdmissionPolicy helpful"));
    let name = approval.metadata.name.as_deref().unwrap();
    let plugin = crate::asked::plugin();
    let words = ["approve", "show", name, "--namespace", &harness.namespace.name];
    let shown = harness.cluster.kubectl(words).search(plugin.parent().unwrap()).person("alice").run().await.unwrap();
    assert!(shown.stdout.contains("Warning:"), "{}{}", shown.stdout, shown.stderr);
    delete_policy(&harness).await;
    harness.wait_for_no_condition("run", "ForeignMutation").await;
}

#[tokio::test]
async fn a_strict_guard_voids_votes_that_a_policy_could_change() {
    let harness = Harness::open().await;
    let operator = harness.start_operator(&["--strict-guard"]).await;
    harness.request("run", 1).await;
    let approval = harness.wait_for_gate("run", "review").await;
    create_policy(&harness).await;
    let said = harness.wait_for_condition("run", "Guarded", "False").await;
    assert!(said.contains("MutatingAdmissionPolicy helpful"), "{said}");
    // No event tells which policies an API server applies, so dry runs find out.
    let patch = json!({"spec": {"decisions": {"alice@example.com": {"verdict": "Reject"}}}});
    let params = kube::api::PatchParams { dry_run: true, ..Default::default() };
    let api = harness.approvals("alice").await;
    let name = approval.metadata.name.as_deref().unwrap();
    harness
        .repeat_until_accepted("a flipped vote", async || {
            let tried = api.patch(name, &params, &kube::api::Patch::Merge(&patch)).await.unwrap();
            let verdict = tried.spec.decisions["alice@example.com"].verdict;
            if verdict == signoff_api::Verdict::Approve { Ok(()) } else { Err(format!("{verdict}")) }
        })
        .await;
    let stored = harness.decide("alice", &approval, "Reject").await.unwrap();
    assert_eq!(
        stored.spec.decisions["alice@example.com"].verdict,
        signoff_api::Verdict::Approve,
        "nothing was flipped"
    );
    assert_waits_at_gate(&harness, "run").await;
    delete_policy(&harness).await;
    harness.wait_for_phase(&approval, ApprovalPhase::Superseded).await;
    let again = harness.wait_for_gate("run", "review#2").await;
    harness
        .repeat_until_accepted("an honest vote", async || {
            let tried =
                api.patch(again.metadata.name.as_deref().unwrap(), &params, &kube::api::Patch::Merge(&patch)).await;
            let verdict = tried.unwrap().spec.decisions["alice@example.com"].verdict;
            if verdict == signoff_api::Verdict::Reject { Ok(()) } else { Err(format!("{verdict}")) }
        })
        .await;
    harness.decide("alice", &again, "Reject").await.unwrap();
    assert_eq!(harness.wait_for_end("run").await.status.unwrap().phase, WorkflowPhase::Rejected);
    drop(operator);
}
