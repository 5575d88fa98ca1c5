//! Every way in which people and programs can write in Kubernetes: each can decide, and the rules apply to each. No
//! client of Signoff is used.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use signoff_api::Approval;

use super::harness::{Answer, Harness, assert_refused, group, to_answer, user};

const ALICE: &str = "alice@example.com";

async fn apply(harness: &Harness, who: &str, manager: &str, approval: &Approval, decisions: Value) -> Answer<Approval> {
    let patch = Patch::Apply(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Approval",
        "metadata": {"name": approval.name_any()},
        "spec": {"decisions": decisions},
    }));
    to_answer(harness.approvals(who).await.patch(&approval.name_any(), &PatchParams::apply(manager), &patch).await)
}

#[tokio::test]
async fn server_side_apply_changes_only_the_entry_of_its_user() {
    let harness = Harness::open("ways").await;
    let approval = harness.ask(json!({"threshold": 2})).await;
    let vote = json!({"verdict": "Approve"});
    apply(&harness, "alice", "argocd-controller", &approval, json!({ALICE: vote})).await.unwrap();
    assert_refused(
        apply(&harness, "bob", "kustomize-controller", &approval, json!({ALICE: vote, "carol@example.com": vote}))
            .await,
        "only under your own user name",
    );
    let approval =
        apply(&harness, "bob", "kustomize-controller", &approval, json!({"bob@example.com": vote})).await.unwrap();
    assert_eq!(approval.spec.decisions.len(), 2);
    // A controller applies the same object again at every reconcile.
    apply(&harness, "alice", "argocd-controller", &approval, json!({ALICE: vote})).await.unwrap();
    assert_refused(apply(&harness, "alice", "argocd-controller", &approval, json!({})).await, "a decision is final");
}

#[tokio::test]
async fn a_stamped_group_survives_the_next_apply() {
    let harness = Harness::open("ways").await;
    let fields =
        json!({"approvers": [group("finance"), user("bob")], "requiredFrom": [{"group": "finance", "min": 1}]});
    let approval = harness.ask(fields).await;
    let vote = json!({ALICE: {"verdict": "Approve"}});
    for _ in 0..2 {
        let approval = apply(&harness, "alice", "flux", &approval, vote.clone()).await.unwrap();
        assert_eq!(approval.spec.decisions[ALICE].groups, ["finance"]);
    }
}

#[tokio::test]
async fn a_git_controller_can_apply_its_entry_again_after_groups_changed() {
    let harness = Harness::open("ways").await;
    let approvers = json!([group("finance"), group("audit"), user("bob")]);
    let required = json!([{"group": "finance", "min": 1}, {"group": "audit", "min": 1}]);
    let approval = harness.ask(json!({"approvers": approvers, "requiredFrom": required, "threshold": 2})).await;
    let (name, namespace) = (approval.name_any(), harness.namespace.name.clone());
    let entry = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": name},
        "spec": {"decisions": {ALICE: {"verdict": "Approve", "reason": "from Git"}}}});
    let controller = async |groups: &[&str]| {
        let mut arguments = vec!["apply", "--server-side", "--field-manager=kustomize-controller", "-f", "-"];
        arguments.extend(["-n", &namespace, "--as", ALICE]);
        arguments.extend(groups.iter().flat_map(|group| ["--as-group", group]));
        harness.cluster.kubectl(&arguments).input(entry.to_string()).run().await.unwrap().ok().unwrap();
        harness.approvals_of_operator().get(&name).await.unwrap()
    };
    // The rights depend on the name: the groups are only counted.
    let first = controller(&["finance", "staff"]).await;
    assert_eq!(first.spec.decisions[ALICE].groups, ["finance"]);
    for groups in [&["finance", "staff"][..], &["finance", "audit"], &["audit"], &["staff"]] {
        let again = controller(groups).await;
        assert_eq!(again.resource_version(), first.resource_version(), "{groups:?}");
        assert_eq!(again.spec, first.spec, "{groups:?}");
    }
    // Another manager's entry for another user does not change it, and neither does its own.
    apply(&harness, "bob", "another-controller", &approval, json!({"bob@example.com": {"verdict": "Approve"}}))
        .await
        .unwrap();
    let voted = controller(&["audit"]).await;
    assert_eq!(voted.spec.decisions[ALICE], first.spec.decisions[ALICE]);
    assert_eq!(voted.spec.decisions.len(), 2);
}

#[tokio::test]
async fn real_kubectl_decides_by_merge_patch_json_patch_and_server_side_apply() {
    let harness = Harness::open("ways").await;
    let approval = harness.ask(json!({"approvers": [user("alice"), user("bob"), user("erin")], "threshold": 3})).await;
    let name = approval.name_any();
    let kubectl = async |who: &str, arguments: &[&str], input: Option<String>| {
        let mut command = harness.cluster.kubectl([arguments, &["-n", &harness.namespace.name]].concat()).person(who);
        if let Some(input) = input {
            command = command.input(input);
        }
        command.run().await.unwrap()
    };
    let merge = r#"{"spec":{"decisions":{"alice@example.com":{"verdict":"Approve","reason":"checked"}}}}"#;
    let by_bob = kubectl("bob", &["patch", "approval", &name, "--type=merge", "-p", merge], None).await;
    assert!(by_bob.refused().unwrap().contains("only under your own user name"));
    kubectl("alice", &["patch", "approval", &name, "--type=merge", "-p", merge], None).await.ok().unwrap();
    let json = r#"[{"op":"add","path":"/spec/decisions/bob@example.com","value":{"verdict":"Approve"}}]"#;
    kubectl("bob", &["patch", "approval", &name, "--type=json", "-p", json], None).await.ok().unwrap();
    let own = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": name},
        "spec": {"decisions": {"erin@example.com": {"verdict": "Approve"}}}});
    let apply = ["apply", "--server-side", "--field-manager=reviews", "-f", "-"];
    kubectl("erin", &apply, Some(own.to_string())).await.ok().unwrap();
    let stored = harness.approvals_of_operator().get(&name).await.unwrap();
    assert_eq!(stored.spec.decisions.len(), 3);
}
