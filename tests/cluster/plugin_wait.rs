//! The report of `kubectl approve` on a recorded decision, with an operator that counts, one that was killed, and one
//! that voids it. `plugin.rs` tests recorded decisions.

use kube::ResourceExt;
use serde_json::json;
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, Finished, OperatorOptions, OperatorProcess};

use crate::asked::plugin;
use crate::runs::Runs;

/// Runs `kubectl approve …` in the namespace of the runs.
async fn approve(runs: &Runs, person: &str, words: &[&str]) -> Finished {
    let program = plugin();
    let words = [&["approve"], words, &["--namespace", &runs.namespace.name]].concat();
    runs.cluster.kubectl(words).search(program.parent().unwrap()).person(person).run().await.unwrap()
}

/// Returns the line on standard output without the Approval's name, and the exit code.
fn line_and_code<'a>(finished: &'a Finished, approval: &str) -> (&'a str, i32) {
    let line = finished.stdout.strip_prefix(&format!("approval.signoff.dev/{approval} ")).unwrap_or(&finished.stdout);
    (line.trim_end(), finished.code)
}

#[tokio::test]
async fn a_wait_ends_with_the_outcome_of_the_operator() {
    let runs = Runs::on(Cluster::operated().unwrap(), "plugin-wait").await;
    let people = json!([{"kind": "User", "name": "alice@example.com"}, {"kind": "User", "name": "bob@example.com"}]);
    runs.request("one", json!({})).await;
    runs.request("two", json!({"approvers": people, "threshold": 2})).await;
    runs.request("no", json!({})).await;

    let one = runs.wait_for_gate("one").await.name_any();
    let finished = approve(&runs, "alice", &["approve", &one, "--wait=1m"]).await;
    assert_eq!(line_and_code(&finished, &one), ("approved; the run goes on", 0), "{finished:?}");
    let again = approve(&runs, "alice", &["approve", &one]).await;
    assert!(line_and_code(&again, &one).0.starts_with("unchanged (you approved ") && again.code == 0, "{again:?}");
    let other = approve(&runs, "alice", &["reject", &one]).await;
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.stderr.contains("refused: too late: this gate was decided "), "{other:?}");
    assert!(other.stderr.contains(": Approve by alice@example.com [SO0010]\n"), "{other:?}");

    let no = runs.wait_for_gate("no").await.name_any();
    let finished = approve(&runs, "alice", &["reject", &no, "--wait"]).await;
    assert_eq!(line_and_code(&finished, &no), ("rejected; the run ends", 0), "{finished:?}");

    let two = runs.wait_for_gate("two").await.name_any();
    let counted = "Approve counted (1 of 2; still asked: bob@example.com)";
    let finished = approve(&runs, "alice", &["approve", &two, "--wait=2s"]).await;
    assert_eq!(line_and_code(&finished, &two), (counted, 4), "{finished:?}");
    assert!(finished.stderr.ends_with("not decided when --wait ended\n"), "{finished:?}");
    let second = approve(&runs, "alice", &["reject", &two]).await;
    assert!(second.stderr.contains("refused: you approved ") && second.code == 1, "{second:?}");
    assert!(second.stderr.ends_with(" ago; a decision is final [SO0009]\n"), "{second:?}");
    let (approves, rejects) = (["approve", &two, "--wait=1m"], ["reject", &two, "--wait=1m"]);
    let (alice, bob) = tokio::join!(approve(&runs, "alice", &approves), approve(&runs, "bob", &rejects));
    assert_eq!(line_and_code(&bob, &two), ("rejected; the run ends", 0), "{bob:?}");
    assert_eq!(line_and_code(&alice, &two), ("Approve recorded; decided: Reject by bob@example.com", 5), "{alice:?}");
    assert!(alice.stderr.ends_with("not decided as you voted\n"), "{alice:?}");
}

#[tokio::test]
async fn a_vote_without_a_running_operator_is_reported_and_later_void() {
    // The operator is killed and the rules are changed, so this test has a control plane of its own.
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let operator = OperatorProcess::start(&cluster, OperatorOptions::default()).await.unwrap();
    let runs = Runs::on(cluster, "plugin-wait").await;
    runs.request("letter", json!({})).await;
    let name = runs.wait_for_gate("letter").await.name_any();
    operator.kill();

    let plain = approve(&runs, "alice", &["approve", &name]).await;
    assert_eq!(plain.code, 0, "{plain:?}");
    assert!(line_and_code(&plain, &name).0.starts_with("Approve recorded; not counted yet: "), "{plain:?}");
    // The Lease is valid for some seconds after the operator has ended, so the call is repeated.
    let mut last = plain;
    for _ in 0..12 {
        last = approve(&runs, "alice", &["approve", &name, "--wait=5s"]).await;
        assert_eq!(last.code, 4, "{last:?}");
        if last.stdout.contains("no operator has renewed its Lease for ") {
            break;
        }
    }
    let gone = line_and_code(&last, &name).0;
    assert!(gone.starts_with("Approve recorded; not counted yet: no operator has renewed its Lease for "), "{last:?}");

    // A user who replaces a binding could have let a forged vote in before.
    let binding = ["get", "validatingadmissionpolicybinding", "signoff-approvals", "-o", "json"];
    let stored = runs.cluster.kubectl(binding).run().await.unwrap().ok().unwrap();
    runs.cluster.kubectl(["replace", "--force", "-f", "-"]).input(stored).run().await.unwrap().ok().unwrap();
    let _operator = OperatorProcess::start(&runs.cluster, OperatorOptions::default()).await.unwrap();
    let void = approve(&runs, "alice", &["approve", &name, "--wait=2m"]).await;
    assert_eq!(void.code, 5, "{void:?}");
    let line = line_and_code(&void, &name).0;
    assert!(line.starts_with("Approve recorded; it does not count, superseded: recorded while unguarded"), "{void:?}");

    let asks_again = |run: Option<&Workflow>| {
        let pending = run.and_then(|run| run.status.as_ref()).map(|status| status.pending.clone()).unwrap_or_default();
        pending.first().is_some_and(|next| *next != name)
    };
    let run = runs.until(runs.api::<Workflow>(), "letter", "asks again", asks_again).await;
    let next = run.status.unwrap().pending[0].clone();
    runs.until(runs.api::<Approval>(), &next, "is there", |found: Option<&Approval>| found.is_some()).await;
    let command = format!("kubectl approve show {next} -n {}", runs.namespace.name);
    let void = approve(&runs, "alice", &["approve", &name, "--wait=2m"]).await;
    assert!(void.stdout.ends_with(&format!(": {command}\n")), "{void:?}");
    let refused = approve(&runs, "alice", &["reject", &name]).await;
    assert!(refused.stderr.contains("refused: too late: this gate was superseded "), "{refused:?}");
    assert!(refused.stderr.ends_with(&format!("; it is asked again: {command}\n")), "{refused:?}");
}
