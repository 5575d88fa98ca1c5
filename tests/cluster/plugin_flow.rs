//! The requests of `kubectl approve` for a decision, and the requests that it refuses to decide. No operator runs.
//! `plugin.rs` tests recorded decisions.

use serde_json::{Value, json};
use signoff_tests::control_plane::{Seen, Witness};

use crate::asked::Place;
use crate::plugin::refusal;

#[tokio::test]
async fn a_decision_sends_three_reads_a_dry_run_and_the_patch() {
    let place = Place::shared("plugin").await;
    let witness = Witness::start(&place.cluster).await.unwrap();
    let login = std::fs::read_to_string(place.cluster.kubeconfig_of("alice").unwrap()).unwrap();
    let login: Value = serde_saphyr::from_str(&login).unwrap();
    let alice = login["users"].as_array().unwrap().iter().find(|user| user["name"] == "alice").unwrap();
    let file = witness.kubeconfig(alice["user"]["token"].as_str()).unwrap();
    let asks = async |words: &[&str]| {
        let name = place.ask(|_| {}).await;
        witness.forget();
        let words = [&words[..1], &[&name], &words[1..], &["--kubeconfig", file.to_str().unwrap()]].concat();
        place.approve("alice", &words).await.ok().unwrap();
        let path = |path: &str| path.split('?').next().unwrap().rsplit('/').nth(1).unwrap().to_owned();
        let sent = |seen: &Seen| format!("{} {}{}", seen.method, path(&seen.path), dry_run(&seen.path));
        let mut sent: Vec<_> = witness.seen().iter().map(sent).collect();
        // The first two requests are sent at the same time, in no fixed order.
        sent[..2].sort();
        sent
    };
    let dry_run_only = ["GET approvals", "POST v1", "GET workflows", "PATCH approvals on trial"];
    let recorded = [&dry_run_only[..], &["PATCH approvals"]].concat();
    assert_eq!(asks(&["approve", "--wait=0s"]).await, recorded);
    assert_eq!(asks(&["reject", "--yes", "--wait=0s"]).await, recorded);
    assert_eq!(asks(&["approve", "--dry-run=server"]).await, dry_run_only);
    assert_eq!(asks(&["approve", "--dry-run=client"]).await, dry_run_only[..3]);
}

fn dry_run(path: &str) -> &'static str {
    if path.contains("dryRun=All") { " on trial" } else { "" }
}

#[tokio::test]
async fn a_request_whose_run_is_gone_or_unguarded_is_not_decided() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let other = place.ask(|request| request.workflow.uid = "6f1c3e5a-0000-4000-8000-000000000001".to_owned()).await;
    let missing = place.ask(|request| request.workflow.name = "refund-4712".to_owned()).await;
    let said = async |name: &str| refusal(&place.approve("alice", &["approve", name]).await);
    let not_the_run =
        "refused: the run refund-4711 is not the run that asked (it has another uid): do not decide this request";
    assert!(said(&other).await.starts_with(not_the_run));
    assert!(said(&missing).await.starts_with("refused: the run refund-4712 of this request does not exist"));
    let condition = json!({"type": "Guarded", "status": "False", "reason": "PoliciesDiffer", "message": "signoff-approvals differs",
        "lastTransitionTime": "2026-11-22T10:00:00Z"});
    place.set_run_conditions(json!([condition])).await;
    assert_eq!(said(&name).await, "refused: decisions are not honoured now: signoff-approvals differs");
    for name in [&name, &other, &missing] {
        assert!(place.stored(name).await.spec.decisions.is_empty());
    }
    place.set_run_conditions(json!([])).await;
    place.approve("alice", &["approve", &name]).await.ok().unwrap();
}
