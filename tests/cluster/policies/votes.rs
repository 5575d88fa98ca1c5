//! Whose vote it is, and who may vote at all. These tests may not know anything about what a vote says.

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use signoff_api::Approval;
use signoff_tests::control_plane::{Disguise, named};

use super::stage::{self, Stage, group, refused, said, user};

#[tokio::test]
async fn a_decision_stands_under_its_authors_own_name_only() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({})).await;
    let forged = json!({"spec": {"decisions": {"bob@example.com": {"verdict": "Approve"}}}});
    refused(stage.patch("alice", &approval, forged).await, "only under your own user name (alice@example.com)");
    let both = json!({"spec": {"decisions": {"alice@example.com": {"verdict": "Approve"}, "bob@example.com": {"verdict": "Approve"}}}});
    refused(stage.patch("alice", &approval, both).await, "only under your own user name");

    let approval = stage.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
    assert_eq!(approval.spec.decisions.keys().collect::<Vec<_>>(), ["alice@example.com"]);
}

#[tokio::test]
async fn a_second_approver_cannot_change_or_remove_the_first_ones_vote() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({})).await;
    stage.decide("alice", &approval, json!({"verdict": "Reject"})).await.unwrap();
    for theft in [json!({"verdict": "Approve"}), json!({"reason": "added"}), json!(null)] {
        let patch =
            json!({"spec": {"decisions": {"alice@example.com": theft, "bob@example.com": {"verdict": "Approve"}}}});
        let answer = stage.patch("bob", &approval, patch).await;
        assert!(answer.is_err(), "accepted {theft}: {answer:?}");
    }
    stage.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn names_that_break_pointers_and_labels_vote_like_any_other() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({"approvers": [group("finance")]})).await;
    for who in ["slash", "tilde"] {
        let approval = stage.decide(who, &approval, json!({"verdict": "Approve"})).await.unwrap();
        assert!(approval.spec.decisions.contains_key(named(who).unwrap().user));
    }
}

#[tokio::test]
async fn a_user_whose_name_looks_like_a_delegation_cannot_vote() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({"approvers": [group("finance"), user("via")]})).await;
    refused(stage.decide("via", &approval, json!({"verdict": "Approve"})).await, "only under your own user name");
    stage.decide("carol", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn only_those_who_are_listed_decide() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({"approvers": [user("alice"), group("sre")]})).await;
    refused(
        stage.decide("bob", &approval, json!({"verdict": "Approve"})).await,
        "bob@example.com is not an approver of this gate",
    );
    stage.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
    stage.decide("erin", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn users_and_groups_of_the_system_are_never_approvers() {
    let stage = Stage::open("votes").await;
    let api = stage.approvals_of_operator();
    let words = "system users and groups cannot decide";
    for approver in [
        group("system:authenticated"),
        group("system:serviceaccounts"),
        json!({"kind": "User", "name": "system:admin"}),
    ] {
        let asked = stage::approval(json!({"approvers": [user("alice"), approver]}));
        refused(said(api.create(&PostParams::default(), &asked).await), words);
        let gate = json!({"prompt": "Send it?", "approvers": [approver]});
        let fields = json!({"pattern": {"chain": {"steps": [{"name": "ask", "hitl": gate}]}}});
        refused(stage.request("dana", "refund", fields).await, words);
    }
    stage.ask(json!({"approvers": [group("finance")]})).await;
}

#[tokio::test]
async fn nobody_lists_themselves_and_decides_in_one_request() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({"approvers": [user("alice")]})).await;
    let patch = json!({"spec": {
        "request": {"approvers": [user("alice"), user("bob")]},
        "decisions": {"bob@example.com": {"verdict": "Approve"}},
    }});
    refused(stage.patch("bob", &approval, patch).await, "immutable");
    stage.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn who_is_listed_needs_the_verb_approve_too() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({"approvers": [user("viktor"), user("nina"), user("alice")]})).await;
    // Whoever may write the object without holding the verb: as an administrator's own role might allow.
    let write = json!({"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["patch"]});
    stage.grant(named("nina").unwrap().user, write).await;
    refused(stage.decide("nina", &approval, json!({"verdict": "Approve"})).await, "lacks the RBAC verb approve");
    refused(stage.decide("viktor", &approval, json!({"verdict": "Approve"})).await, "forbidden");
    stage.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn the_built_in_roles_edit_and_admin_decide_nothing() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({"approvers": [user("nina"), user("adam"), user("alice")]})).await;
    for who in ["nina", "adam"] {
        refused(stage.decide(who, &approval, json!({"verdict": "Approve"})).await, "forbidden");
    }
    stage.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn a_service_account_is_listed_by_its_kind_and_votes_in_its_own_name() {
    let stage = Stage::open("votes").await;
    let robot =
        |namespace: &str| json!({"kind": "ServiceAccount", "namespace": namespace, "name": "kustomize-controller"});
    let elsewhere = stage.ask(json!({"approvers": [robot("other")]})).await;
    refused(stage.decide("flux", &elsewhere, json!({"verdict": "Approve"})).await, "is not an approver of this gate");
    let approval = stage.ask(json!({"approvers": [robot("flux-system")]})).await;
    stage.decide("flux", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn after_an_escalation_the_new_list_is_in_force() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({"approvers": [user("alice")], "timeout": {"action": "Escalate", "escalation": [{"to": [user("bob")]}]}})).await;
    refused(stage.decide("bob", &approval, json!({"verdict": "Approve"})).await, "not an approver");
    stage.status(&approval, json!({"level": 1, "approvers": [user("alice"), user("bob")]})).await.unwrap();
    stage.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn a_person_of_a_further_quorum_alone_is_an_approver_too() {
    let stage = Stage::open("votes").await;
    let also = json!([{"source": "floor production", "approvers": [user("erin")]}]);
    let approval = stage.ask(json!({"approvers": [user("alice")], "also": also})).await;
    refused(stage.decide("bob", &approval, json!({"verdict": "Approve"})).await, "not an approver");
    stage.decide("erin", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn groups_are_ones_own() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({})).await;
    let vote = |groups| json!({"verdict": "Approve", "groups": groups});
    refused(stage.decide("bob", &approval, vote(["finance", "finance-leads"])).await, "only groups you are in");
    stage.decide("bob", &approval, vote(["finance", "system:authenticated"])).await.unwrap();
}

#[tokio::test]
async fn groups_that_a_quorum_counts_are_stamped() {
    let stage = Stage::open("votes").await;
    let also =
        json!([{"source": "floor", "approvers": [group("finance")], "requiredFrom": [{"group": "finance", "min": 1}]}]);
    let approval = stage
        .ask(json!({"approvers": [group("finance-leads"), user("bob")], "requiredFrom": [{"group": "finance-leads", "min": 1}], "also": also}))
        .await;
    for (who, groups) in [("alice", &["finance", "finance-leads"][..]), ("bob", &["finance"][..])] {
        let approval = stage.decide(who, &approval, json!({"verdict": "Approve"})).await.unwrap();
        assert_eq!(approval.spec.decisions[named(who).unwrap().user].groups, groups);
    }
}

#[tokio::test]
async fn the_channel_is_vouched_for_and_never_typed() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({})).await;
    let vote = json!({"verdict": "Approve", "channel": "web"});
    refused(stage.decide("alice", &approval, vote.clone()).await, "channel is vouched for by the channel itself");

    let alice = Disguise {
        user: "alice@example.com".into(),
        groups: vec!["finance".into(), "system:authenticated".into()],
        extra: vec![("signoff.dev/channel".into(), "web".into())],
    };
    let through_web = Api::<Approval>::namespaced(stage.cluster.disguised(alice).await.unwrap(), &stage.namespace.name);
    let vote = Patch::Merge(json!({"spec": {"decisions": {"alice@example.com": vote}}}));
    let name = approval.metadata.name.unwrap();
    let approval = said(through_web.patch(&name, &PatchParams::default(), &vote).await).unwrap();
    assert_eq!(approval.spec.decisions["alice@example.com"].channel.as_deref(), Some("web"));
}

#[tokio::test]
async fn the_requester_decides_their_own_gate_unless_it_excludes_them() {
    let stage = Stage::open("votes").await;
    stage.namespace.bind("signoff-approver", "dana@example.com").await.unwrap();
    let approvers = json!([user("alice"), user("dana")]);
    let open = stage.ask(json!({"approvers": approvers})).await;
    stage.decide("dana", &open, json!({"verdict": "Approve"})).await.unwrap();

    let closed = stage.ask(json!({"approvers": approvers, "excludeRequester": true})).await;
    refused(
        stage.decide("dana", &closed, json!({"verdict": "Approve"})).await,
        "the requester may not decide this gate",
    );
    stage.decide("alice", &closed, json!({"verdict": "Approve"})).await.unwrap();

    let by_machine = json!({"approvers": approvers, "excludeRequester": true, "requestedBy": "system:serviceaccount:ci:bot", "requestedFor": "dana@example.com"});
    let closed = stage.ask(by_machine).await;
    refused(
        stage.decide("dana", &closed, json!({"verdict": "Approve"})).await,
        "the requester may not decide this gate",
    );
}

#[tokio::test]
async fn a_quorum_that_excludes_the_requester_does_not_list_them() {
    let stage = Stage::open("votes").await;
    stage.namespace.bind("signoff-approver", "dana@example.com").await.unwrap();
    let also = |exclude: bool| json!([{"source": "floor", "approvers": [user("dana"), user("bob")], "excludeRequester": exclude}]);
    let approval = stage.ask(json!({"approvers": [user("alice")], "also": also(true)})).await;
    refused(stage.decide("dana", &approval, json!({"verdict": "Approve"})).await, "not an approver");
    stage.decide("bob", &approval, json!({"verdict": "Approve"})).await.unwrap();
    let approval = stage.ask(json!({"approvers": [user("alice")], "also": also(false)})).await;
    stage.decide("dana", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn who_is_excluded_by_name_does_not_decide() {
    let stage = Stage::open("votes").await;
    let approval = stage.ask(json!({"excluded": ["bob@example.com"]})).await;
    refused(stage.decide("bob", &approval, json!({"verdict": "Approve"})).await, "excluded from deciding this gate");
    stage.decide("alice", &approval, json!({"verdict": "Approve"})).await.unwrap();
}

#[tokio::test]
async fn another_user_name_of_an_excluded_person_is_excluded_too() {
    let stage = Stage::open("votes").await;
    let persons = json!([
        {"pattern": "bob@example\\.com", "person": "Robert"},
        {"pattern": "(oidc:)?b\\.obson", "person": "Robert"},
        {"pattern": "(.+)@example\\.com", "person": "$1"},
        {"pattern": "(.+)-admin", "person": "$1"},
    ]);
    let approvers = json!([user("alice"), user("bob"), user("slash")]);
    let ask = async |excluded: &str| {
        stage.ask(json!({"approvers": approvers, "persons": persons, "excluded": [excluded]})).await
    };
    let vote = json!({"verdict": "Approve"});
    for (excluded, who) in [("b.obson", "bob"), ("alice-admin", "alice")] {
        let approval = ask(excluded).await;
        refused(stage.decide(who, &approval, vote.clone()).await, "excluded from deciding this gate");
    }
    let approval = ask("carol-admin").await;
    stage.decide("alice", &approval, vote.clone()).await.unwrap();
    stage.decide("bob", &approval, vote.clone()).await.unwrap();
    refused(stage.decide("slash", &approval, vote).await, "a person by the rules of this gate");
}
