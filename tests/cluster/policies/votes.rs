//! Votes are their author's own, and only approvers can vote.

use kube::ResourceExt;
use serde_json::json;
use signoff_api::approval::ApprovalPhase;
use signoff_tests::control_plane::named;

use super::harness::{Harness, assert_refused, count_votes, group, user};

#[tokio::test]
async fn a_service_account_is_listed_by_its_kind_and_votes_in_its_own_name() {
    let harness = Harness::open("votes").await;
    let robot =
        |namespace: &str| json!({"kind": "ServiceAccount", "namespace": namespace, "name": "kustomize-controller"});
    let elsewhere = harness.ask(json!({"approvers": [robot("other")]})).await;
    assert_refused(
        harness.decide("flux", &elsewhere, json!({"verdict": "Approve"})).await,
        "is not an approver of this gate",
    );
    let approval = harness.ask(json!({"approvers": [robot("flux-system")]})).await;
    harness.decide("flux", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn the_new_list_of_approvers_applies_after_an_escalation() {
    let harness = Harness::open("votes").await;
    let approval = harness.ask(json!({"approvers": [user("alice")], "timeout": {"action": "Escalate", "escalation": [{"to": [user("bob")]}]}})).await;
    assert_refused(harness.decide("bob", &approval, json!({"verdict": "Approve"})).await, "not an approver");
    harness.status(&approval, json!({"level": 1, "approvers": [user("alice"), user("bob")]})).await.unwrap();
    harness.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn a_person_of_a_further_quorum_alone_is_an_approver_too() {
    let harness = Harness::open("votes").await;
    let further = json!([{"source": "policy production", "approvers": [user("erin")], "threshold": 1}]);
    let approval = harness.ask(json!({"approvers": [user("alice")], "further": further})).await;
    assert_refused(harness.decide("bob", &approval, json!({"verdict": "Approve"})).await, "not an approver");
    harness.decide("erin", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn groups_that_a_quorum_counts_are_stamped() {
    let harness = Harness::open("votes").await;
    let further = json!([{"source": "policy", "approvers": [group("finance")], "threshold": 1,
        "requiredFrom": [{"group": "finance", "min": 1}]}]);
    let approval = harness
        .ask(json!({"approvers": [group("finance-leads"), user("bob")], "requiredFrom": [{"group": "finance-leads", "min": 1}], "further": further}))
        .await;
    for (who, groups) in [("alice", &["finance-leads", "finance"][..]), ("bob", &["finance"][..])] {
        let approval = harness.decide(who, &approval, json!({"verdict": "Approve"})).await.unwrap();
        assert_eq!(approval.spec.decisions[named(who).unwrap().user].groups, groups);
    }
}

#[tokio::test]
async fn a_voter_in_many_groups_decides_by_a_plain_kubectl_patch() {
    let harness = Harness::open("votes").await;
    let alice = named("alice").unwrap().user;
    let quorum = |n: usize| {
        let approvers: Vec<_> = (0..20).map(|at| group(&format!("approvers{n}-{at}"))).collect();
        let required: Vec<_> = (0..8).map(|at| json!({"group": format!("required{n}-{at}"), "min": 1})).collect();
        json!({"source": format!("policy {n}"), "approvers": approvers, "requiredFrom": required, "threshold": 1})
    };
    let [first, further @ ..] = &(0..4).map(quorum).collect::<Vec<_>>()[..] else { unreachable!() };
    let fields = json!({"approvers": first["approvers"], "requiredFrom": first["requiredFrom"], "further": further});
    // Some identity providers name a group twice.
    let groups: Vec<_> = (0..4)
        .flat_map(|n| {
            (0..20).map(move |at| format!("approvers{n}-{at}")).chain((0..8).map(move |at| format!("required{n}-{at}")))
        })
        .chain(["required0-0".to_owned(), "approvers1-0".to_owned()])
        .collect();
    for (verdict, phase) in [("Approve", ApprovalPhase::Approved), ("Reject", ApprovalPhase::Rejected)] {
        let approval = harness.ask(fields.clone()).await;
        let patch = json!({"spec": {"decisions": {alice: {"verdict": verdict}}}}).to_string();
        let name = approval.name_any();
        let mut arguments =
            vec!["patch", "approval", &name, "--type=merge", "-p", &patch, "-n", &harness.namespace.name];
        arguments.extend(["--as", alice]);
        arguments.extend(groups.iter().flat_map(|group| ["--as-group", group]));
        harness.cluster.kubectl(&arguments).run().await.unwrap().ok().unwrap();
        let stored = harness.approvals_of_operator().get(&name).await.unwrap();
        let named = &stored.spec.decisions[alice].groups;
        assert_eq!((named.len(), named), (4 * 8 + 4, &stored.groups_of_voter(&groups)), "{verdict}");
        let status = count_votes(&stored);
        assert_eq!((status.phase, status.outcome.unwrap().decided_by), (phase, vec![alice.to_owned()]), "{verdict}");
    }
}

#[tokio::test]
async fn the_requester_decides_their_own_gate_unless_it_excludes_them() {
    let harness = Harness::open("votes").await;
    harness.namespace.bind("signoff-approver", "dana@example.com").await.unwrap();
    let approvers = json!([user("alice"), user("dana")]);
    let open = harness.ask(json!({"approvers": approvers})).await;
    harness.decide("dana", &open, json!({"verdict": "Approve"})).await.unwrap();

    let closed = harness.ask(json!({"approvers": approvers, "excludeRequester": true})).await;
    assert_refused(
        harness.decide("dana", &closed, json!({"verdict": "Approve"})).await,
        "the requester must not decide this gate (excludeRequester)",
    );
    harness.decide("alice", &closed, json!({"verdict": "Approve"})).await.unwrap();

    let by_machine = json!({"approvers": approvers, "excludeRequester": true, "requestedBy": "system:serviceaccount:ci:bot", "requestedFor": "dana@example.com"});
    let closed = harness.ask(by_machine).await;
    assert_refused(
        harness.decide("dana", &closed, json!({"verdict": "Approve"})).await,
        "the requester must not decide this gate (excludeRequester)",
    );
}

#[tokio::test]
async fn a_quorum_that_excludes_the_requester_does_not_list_them() {
    let harness = Harness::open("votes").await;
    harness.namespace.bind("signoff-approver", "dana@example.com").await.unwrap();
    let further = |exclude: bool| json!([{"source": "policy", "approvers": [user("dana"), user("bob")], "threshold": 1, "excludeRequester": exclude}]);
    let approval = harness.ask(json!({"approvers": [user("alice")], "further": further(true)})).await;
    assert_refused(harness.decide("dana", &approval, json!({"verdict": "Approve"})).await, "not an approver");
    harness.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
    let approval = harness.ask(json!({"approvers": [user("alice")], "further": further(false)})).await;
    harness.decide("dana", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn another_user_name_of_an_excluded_person_is_excluded_too() {
    let harness = Harness::open("votes").await;
    let persons = json!([
        {"pattern": "bob@example\\.com", "person": "Robert"},
        {"pattern": "(oidc:)?b\\.obson", "person": "Robert"},
        {"pattern": "(.+)@example\\.com", "person": "$1"},
        {"pattern": "(.+)-admin", "person": "$1"},
    ]);
    let approvers = json!([user("alice"), user("bob"), user("slash")]);
    let ask = async |excluded: &str| {
        harness.ask(json!({"approvers": approvers, "persons": persons, "excluded": [excluded]})).await
    };
    let vote = json!({"verdict": "Approve"});
    for (excluded, who) in [("b.obson", "bob"), ("alice-admin", "alice")] {
        let approval = ask(excluded).await;
        assert_refused(harness.decide(who, &approval, vote.clone()).await, "excluded from deciding this gate");
    }
    let approval = ask("carol-admin").await;
    harness.decide("alice", &approval, vote.clone()).await.unwrap();
    harness.decide("bob", &approval, vote.clone()).await.unwrap();
    assert_refused(harness.decide("slash", &approval, vote).await, "must match a rule of spec.request.persons");
}

#[tokio::test]
async fn a_decision_about_another_request_is_stale() {
    let harness = Harness::open("votes").await;
    let approval = harness.ask(json!({})).await;
    let about = |digest: &str| json!({"verdict": "Approve", "requestDigest": digest});
    assert_refused(
        harness.decide("alice", &approval, about(&format!("sha256:{}", "f".repeat(64)))).await,
        "stale: requestDigest",
    );
    let digest = approval.spec.request.digest.to_string();
    harness.decide("alice", &approval, about(&digest)).await.unwrap();
}

#[tokio::test]
async fn a_standing_grant_is_refused_also_with_the_verb_grant() {
    let harness = Harness::open("votes").await;
    let approval = harness.ask(json!({})).await;
    let vote = json!({"verdict": "Approve", "grant": {"scope": "run", "match": "tool", "ttl": "1h"}});
    assert_refused(harness.decide("alice", &approval, vote.clone()).await, "a standing grant is not possible yet");
    harness
        .grant(
            "alice@example.com",
            json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["grant"]}),
        )
        .await;
    assert_refused(harness.decide("alice", &approval, vote).await, "a standing grant is not possible yet");
    harness.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
}
