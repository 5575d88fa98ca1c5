//! Votes that a changed policy voids: the plugin, the list and an Event tell the voters, and the gate keeps its time.

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use signoff_api::approval::ApprovalPhase;
use signoff_api::workflow::WorkflowPhase;

use super::harness::Harness;

#[tokio::test]
async fn a_vote_that_a_changed_policy_voids_is_reported_to_its_voter() {
    let harness = Harness::open().await;
    let operator = harness.start_operator_with_lease().await;
    harness.request("run", 2).await;
    let first = harness.wait_for_gate("run", "review").await;
    let namespace = harness.namespace.name.clone();
    let plugin = crate::asked::plugin();
    let approve = async |who: &str, words: &[&str]| {
        let of: &[&str] = if words.contains(&"--upgrade") { &[] } else { &["--namespace", &namespace] };
        let words = [&["approve"], words, of].concat();
        harness.cluster.kubectl(words).search(plugin.parent().unwrap()).person(who).run().await.unwrap()
    };
    // While there is no problem, the list does not mention the guard.
    let list = approve("alice", &["list"]).await;
    assert!(list.stdout.contains(&first.name_any()) && !list.stderr.contains("NOT GUARDED"), "{list:?}");
    harness.decide("alice", &first, "Approve").await.unwrap();
    let upgrade = approve("admin", &["doctor", "--upgrade"]).await;
    assert_eq!(upgrade.code, 0, "{upgrade:?}");
    assert!(upgrade.stdout.contains("voids no vote"), "{upgrade:?}");

    let binding = "ValidatingAdmissionPolicyBinding";
    let audit = |object: &mut serde_json::Value| {
        object["spec"]["validationActions"] = json!(["Audit"]);
        true
    };
    let before = harness.change_or_delete(binding, "signoff-approvals", audit).await;
    harness.wait_for_condition("run", "Guarded", "False").await;
    let list = approve("bob", &["list"]).await;
    assert!(list.stderr.contains("NOT GUARDED:") && list.stdout.contains(&first.name_any()), "{list:?}");
    // The rules of this plugin differ from those in the cluster, as those of a new version do.
    let upgrade = approve("admin", &["doctor", "--upgrade"]).await;
    assert_eq!(upgrade.code, 1, "{upgrade:?}");
    assert!(upgrade.stdout.contains("alice@example.com (Approve)"), "{upgrade:?}");
    assert!(upgrade.stderr.contains("an upgrade would void"), "{upgrade:?}");

    harness.restore(binding, before).await;
    let superseded = harness.wait_for_phase(&first, ApprovalPhase::Superseded).await;
    assert_eq!(superseded.spec.decisions.len(), 1, "no vote is removed");
    let second = harness.wait_for_gate("run", "review#2").await;
    assert_eq!(second.asks_again(), Some(first.name_any().as_str()));
    let moved = second.spec.request.deadline.since(first.spec.request.deadline);
    assert!(moved.as_secs() < 60, "it keeps the time that was left: {moved:?}");
    let (name, old) = (second.name_any(), first.name_any());
    let lost = format!("your Approve of {old} is void, because the gate asks again: decide again");
    let shown = approve("alice", &["show", &name]).await;
    assert!(shown.stdout.contains(&lost), "{shown:?}");
    assert!(
        shown.stdout.contains(&format!("Void votes:   alice@example.com (Approve), of {old}: recorded")),
        "{shown:?}"
    );
    let shown = approve("bob", &["show", &name]).await;
    assert!(
        shown.stdout.contains("alice@example.com (Approve), of") && !shown.stdout.contains("your Approve"),
        "{shown:?}"
    );
    let list = approve("alice", &["list"]).await;
    assert!(list.stdout.contains("0/2 (asked again)") && list.stderr.contains(&lost), "{list:?}");

    let events: Api<Event> = Api::namespaced(harness.admin.clone(), &namespace);
    for (reason, words) in [("VotesVoided", "alice@example.com (Approve)"), ("Guarded", "in force again")] {
        harness
            .repeat_until_accepted(reason, async || {
                let all = events.list(&ListParams::default()).await.unwrap();
                let mut told = all.iter().filter(|event| event.reason.as_deref() == Some(reason));
                let is_told = told.any(|event| event.note.as_ref().is_some_and(|note| note.contains(words)));
                if is_told { Ok(()) } else { Err(format!("{:?}", all.items)) }
            })
            .await;
    }
    harness.decide("alice", &second, "Approve").await.unwrap();
    let shown = approve("alice", &["show", &name]).await;
    assert!(shown.stdout.contains("Void votes:") && !shown.stdout.contains("decide again"), "{shown:?}");
    harness.decide("bob", &second, "Approve").await.unwrap();
    assert_eq!(harness.wait_for_end("run").await.status.unwrap().phase, WorkflowPhase::Succeeded);
    drop(operator);
}
