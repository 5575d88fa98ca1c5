//! Decisions that one account carries for others, as a Git controller does for its reviewers.

use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_tests::control_plane::named;

use super::harness::{Answer, Harness, assert_refused, group, user};

const ALICE: &str = "alice@example.com";
const BOB: &str = "bob@example.com";

fn flux() -> &'static str {
    named("flux").unwrap().user
}

fn delegated_key(person: &str) -> String {
    format!("{person} via {}", flux())
}

fn approval_on_behalf_of(person: &str) -> Value {
    json!({"verdict": "Approve", "onBehalfOf": person})
}

async fn send_by_flux(harness: &Harness, approval: &Approval, entries: &[(String, Value)]) -> Answer<Approval> {
    let decisions: serde_json::Map<_, _> = entries.iter().cloned().collect();
    harness.patch("flux", approval, json!({"spec": {"decisions": decisions}})).await
}

async fn let_flux_decide_for(harness: &Harness, people: &[&str]) {
    let rule =
        json!({"apiGroups": ["signoff.dev"], "resources": ["people"], "resourceNames": people, "verbs": ["delegate"]});
    harness.grant(flux(), rule).await;
}

#[tokio::test]
async fn one_controller_carries_several_reviewers() {
    let harness = Harness::open("delegation").await;
    let_flux_decide_for(&harness, &[ALICE, BOB]).await;
    let approval = harness.ask(json!({"threshold": 2})).await;
    let entries =
        [(delegated_key(ALICE), approval_on_behalf_of(ALICE)), (delegated_key(BOB), approval_on_behalf_of(BOB))];
    let approval = send_by_flux(&harness, &approval, &entries).await.unwrap();
    assert_eq!(approval.spec.decisions[&delegated_key(ALICE)].on_behalf_of.as_deref(), Some(ALICE));
    assert_eq!(approval.spec.decisions.len(), 2);
}

#[tokio::test]
async fn a_decision_for_another_claims_no_groups() {
    let harness = Harness::open("delegation").await;
    let_flux_decide_for(&harness, &[ALICE]).await;
    let approval = harness
        .ask(json!({"approvers": [user("alice"), group("finance")], "requiredFrom": [{"group": "finance", "min": 1}]}))
        .await;
    let mut vote = approval_on_behalf_of(ALICE);
    vote["groups"] = json!(["system:serviceaccounts"]);
    assert_refused(
        send_by_flux(&harness, &approval, &[(delegated_key(ALICE), vote)]).await,
        "must be absent with onBehalfOf",
    );
    let approval =
        send_by_flux(&harness, &approval, &[(delegated_key(ALICE), approval_on_behalf_of(ALICE))]).await.unwrap();
    assert!(approval.spec.decisions[&delegated_key(ALICE)].groups.is_empty(), "a delegated vote fills no group");
}

#[tokio::test]
async fn a_delegate_needs_the_verb_approve_too() {
    let harness = Harness::open("delegation").await;
    let approval = harness.ask(json!({})).await;
    let bot = "system:serviceaccount:ci:bot";
    harness.grant(bot, json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["patch"]})).await;
    harness.grant(bot, json!({"apiGroups": ["signoff.dev"], "resources": ["people"], "resourceNames": [ALICE], "verbs": ["delegate"]})).await;
    let api: kube::Api<Approval> =
        kube::Api::namespaced(harness.cluster.client(bot, &[]).await.unwrap(), &harness.namespace.name);
    let patch = json!({"spec": {"decisions": {format!("{ALICE} via {bot}"): approval_on_behalf_of(ALICE)}}});
    let vote = async || {
        let name = approval.metadata.name.as_deref().unwrap();
        super::harness::to_answer(api.patch(name, &Default::default(), &kube::api::Patch::Merge(&patch)).await)
    };
    assert_refused(vote().await, "lacks the RBAC verb approve");
    harness.grant(bot, json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["approve"]})).await;
    vote().await.unwrap();
}
