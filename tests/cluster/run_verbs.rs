//! `kubectl approve status` and the verbs for runs, by the real kubectl, as real users, on a cluster with an operator.
//! The unit tests of the page test the layout of the tree.

use std::process::Stdio;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;
use signoff_api::Workflow;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::control_plane::{Cluster, Finished, Invocation};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::asked::plugin;
use crate::runs::Runs;

/// The deadline of every wait.
const TIMEOUT: Duration = Duration::from_secs(120);

async fn open_namespace(prefix: &str) -> Runs {
    Runs::on(Cluster::operated().unwrap(), prefix).await
}

/// Returns a call of `kubectl approve …` as this person, in the namespace of the test.
fn invocation(runs: &Runs, person: &str, arguments: &[&str]) -> Invocation {
    let program = plugin();
    let words = [&["approve"], arguments, &["--namespace", &runs.namespace.name]].concat();
    runs.cluster.kubectl(words).search(program.parent().unwrap()).person(person)
}

async fn approve(runs: &Runs, person: &str, arguments: &[&str]) -> Finished {
    invocation(runs, person, arguments).run().await.unwrap()
}

/// Waits until a run has this phase.
async fn wait_for_phase(runs: &Runs, name: &str, phase: WorkflowPhase) -> Workflow {
    let is =
        |run: Option<&Workflow>| run.and_then(|run| run.status.as_ref()).is_some_and(|status| status.phase == phase);
    runs.until(runs.api(), name, "has the phase", is).await
}

#[tokio::test]
async fn the_status_of_a_run_shows_its_steps_its_gate_and_the_next_command() {
    let runs = open_namespace("status").await;
    runs.request("letter", json!({})).await;
    let approval = runs.wait_for_gate("letter").await.name_any();
    wait_for_phase(&runs, "letter", WorkflowPhase::Waiting).await;
    let page = approve(&runs, "viktor", &["status", "letter"]).await.ok().unwrap();
    let rows = [
        "\nPhase:        Waiting\n",
        "\nRequester:    dana@example.com\n",
        "\nWaiting for:  review (alice@example.com)\n",
    ];
    for row in rows {
        assert!(page.contains(row), "{row:?} in {page}");
    }
    let word = |row: &str, state: &str| page.lines().any(|line| line.starts_with(row) && line.contains(state));
    assert!(word("draft ", " Succeeded ") && word("review ", " Waiting ") && word("act ", " Pending"), "{page}");
    let next = format!("kubectl approve show {approval} -n {}", runs.namespace.name);
    assert!(page.contains(&format!("    {approval}\n")) && page.contains(&next), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80 || line.contains("kubectl approve")), "{page}");
    let missing = approve(&runs, "viktor", &["status", "nobody"]).await;
    assert_eq!(missing.code, 3, "{missing:?}");
    assert!(missing.stderr.starts_with("error: workflows.signoff.dev \"nobody\" not found"), "{missing:?}");
}

#[tokio::test]
async fn a_watched_status_is_printed_at_each_change_until_the_run_ends() {
    let runs = open_namespace("watched").await;
    runs.request("letter", json!({})).await;
    let approval = runs.wait_for_gate("letter").await;
    wait_for_phase(&runs, "letter", WorkflowPhase::Waiting).await;
    let watching = invocation(&runs, "dana", &["status", "letter", "--watch"]).run();
    let deciding = async { runs.alice_approves(&approval).await.unwrap() };
    let (watched, _) = tokio::join!(watching, deciding);
    let pages = watched.unwrap().ok().unwrap();
    let last = pages.rsplit("Workflow:").next().unwrap();
    assert!(last.contains("Succeeded") && last.contains("by alice@example.com"), "{pages}");
    let after = approve(&runs, "dana", &["status", "letter", "--watch"]).await.ok().unwrap();
    assert_eq!(after.matches("Workflow:").count(), 1, "a run that has ended is printed once: {after}");
}

#[tokio::test]
async fn a_run_is_suspended_resumed_cancelled_and_deleted_by_verbs() {
    let runs = open_namespace("verbs").await;
    runs.request("letter", json!({})).await;
    runs.wait_for_gate("letter").await;
    let said = async |arguments: &[&str]| approve(&runs, "dana", arguments).await.ok().unwrap();
    assert_eq!(said(&["suspend", "letter"]).await, "workflow.signoff.dev/letter suspended\n");
    wait_for_phase(&runs, "letter", WorkflowPhase::Suspended).await;
    assert_eq!(said(&["suspend", "wf/letter"]).await, "workflow.signoff.dev/letter unchanged (suspended already)\n");
    assert!(said(&["status", "letter"]).await.contains("kubectl approve resume letter"));
    assert_eq!(said(&["resume", "letter"]).await, "workflow.signoff.dev/letter resumed\n");
    wait_for_phase(&runs, "letter", WorkflowPhase::Waiting).await;
    let refused = approve(&runs, "viktor", &["cancel", "letter"]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.starts_with("refused: ") && refused.stderr.contains("cannot patch resource"), "{refused:?}");
    assert_eq!(said(&["cancel", "letter"]).await, "workflow.signoff.dev/letter cancelled\n");
    wait_for_phase(&runs, "letter", WorkflowPhase::Cancelled).await;
    let ended = approve(&runs, "dana", &["resume", "letter"]).await;
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (1, "refused: workflow.signoff.dev/letter has ended (Cancelled): status says how to go on\n")
    );
    assert_eq!(said(&["delete", "letter", "--yes"]).await, "workflow.signoff.dev/letter deleted\n");
    let gone =
        kube::runtime::wait::await_condition(runs.api::<Workflow>(), "letter", |run: Option<&Workflow>| run.is_none());
    timeout(TIMEOUT, gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_rerun_is_a_new_run_of_the_same_spec_by_its_new_requester() {
    let runs = open_namespace("rerun").await;
    let old = runs.request("letter", json!({})).await;
    let approval = runs.wait_for_gate("letter").await;
    approve(&runs, "dana", &["suspend", "letter"]).await.ok().unwrap();
    let said = approve(&runs, "dana", &["rerun", "letter"]).await.ok().unwrap();
    let name = said.trim().strip_prefix("workflow.signoff.dev/").unwrap().strip_suffix(" created").unwrap();
    assert!(name.starts_with("letter-"), "{said}");
    let again = runs.wait_for_gate(name).await;
    assert_ne!(again.name_any(), approval.name_any());
    let all: Api<Workflow> = runs.api();
    let new = all.get(name).await.unwrap();
    assert_eq!((&new.spec.steps, new.spec.suspend), (&old.spec.steps, None));
    assert_eq!(new.spec.requested_by, "dana@example.com");
    assert_eq!(all.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn a_watched_list_shows_gates_as_they_are_asked() {
    let runs = open_namespace("listwatch").await;
    runs.request("first", json!({})).await;
    let first = runs.wait_for_gate("first").await.name_any();
    let program = plugin();
    // The watch never ends by itself: it is stopped once its output has both gates.
    let mut child = Command::new(&program)
        .args(["list", "--watch", "-o", "name", "--namespace", &runs.namespace.name, "--kubeconfig"])
        .arg(runs.cluster.kubeconfig_of("alice").unwrap())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = async |name: &str| {
        let expected = format!("approval.signoff.dev/{name}");
        let found = async { while lines.next_line().await.unwrap().unwrap() != expected {} };
        timeout(TIMEOUT, found).await.unwrap();
    };
    until(&first).await;
    runs.request("second", json!({})).await;
    let second = runs.wait_for_gate("second").await.name_any();
    until(&second).await;
    child.kill().await.unwrap();
}
