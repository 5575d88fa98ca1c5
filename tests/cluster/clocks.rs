//! The real operator on a machine whose clock is wrong, and while the API server does not answer. The suite's operator
//! and cluster are not used: their clocks are right, and their API server answers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Moment, Workflow};
use signoff_tests::control_plane::{Cluster, Finished, OperatorOptions, OperatorProcess};

use crate::runs::Runs;

/// A library that makes the wall clock of a process wrong by `SIGNOFF_TEST_AHEAD` seconds; the other clocks stay as
/// they are.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    const char *ahead = getenv("SIGNOFF_TEST_AHEAD");
    if (result == 0 && clock == CLOCK_REALTIME && ahead) time->tv_sec += atol(ahead);
    return result;
}
"#;

/// Compiles the library into the folder, and returns its path. A machine that compiles Rust has a C compiler, because
/// Rust links with it.
fn compile_wrong_clock(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("wrong_clock.c"), folder.join("wrong_clock.so"));
    std::fs::write(&source, WRONG_CLOCK).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").status();
    assert!(compiled.unwrap().success(), "cc cannot compile {}", source.display());
    library
}

async fn start_operator(cluster: &Cluster, clock: &Path, ahead: i64) -> OperatorProcess {
    let environment = vec![
        ("LD_PRELOAD".to_owned(), clock.display().to_string()),
        ("SIGNOFF_TEST_AHEAD".to_owned(), ahead.to_string()),
    ];
    OperatorProcess::start(cluster, OperatorOptions { environment, ..OperatorOptions::default() }).await.unwrap()
}

async fn run_doctor(cluster: &Cluster) -> Finished {
    let plugin = crate::asked::plugin();
    cluster.kubectl(["approve", "doctor"]).search(plugin.parent().unwrap()).person("admin").run().await.unwrap()
}

/// Returns the seconds from the creation of an Approval to its deadline.
fn seconds_to_decide(approval: &Approval) -> u64 {
    let created = Moment::from(approval.metadata.creation_timestamp.as_ref().unwrap().0);
    approval.spec.request.deadline.since(created).as_secs()
}

fn is_open(approval: &Approval) -> bool {
    approval.status.as_ref().is_none_or(|status| status.outcome.is_none())
}

#[tokio::test]
async fn an_operator_with_a_wrong_clock_ends_gates_in_time() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let clock = compile_wrong_clock(folder.path());
    let runs = Runs::on(cluster, "clocks").await;

    let approve = |after: &str| json!({"timeout": {"after": after, "action": "Approve"}});
    let mut open = Vec::new();
    for (ahead, reason, word) in [(25 * 3600, "MachineAhead", "ahead of"), (-600, "MachineBehind", "behind")] {
        let running = start_operator(&runs.cluster, &clock, ahead).await;
        // The runs that waited for people when this process began still wait.
        for run in [format!("long{ahead}"), format!("short{ahead}")] {
            let after = if run.starts_with("long") { "10m" } else { "6s" };
            runs.request(&run, approve(after)).await;
        }
        let (long, short) =
            (runs.wait_for_gate(&format!("long{ahead}")).await, runs.wait_for_gate(&format!("short{ahead}")).await);
        assert!((599..=602).contains(&seconds_to_decide(&long)), "{ahead}: {} s", seconds_to_decide(&long));
        open.push(long.name_any());

        // The honest twin ends by itself, after its deadline by the clock of the API server.
        let ended = runs.wait_for_end(&format!("short{ahead}")).await;
        assert_eq!(ended.status.unwrap().phase, WorkflowPhase::Succeeded);
        let ended = runs.api::<Approval>().get(&short.name_any()).await.unwrap();
        let decided: Moment = ended.status.unwrap().outcome.unwrap().decided_at.unwrap();
        let deadline = short.spec.request.deadline;
        assert!(decided >= deadline && decided.since(deadline).as_secs() < 30, "{ahead}: {decided:?}, {deadline:?}");

        for name in &open {
            assert!(is_open(&runs.api::<Approval>().get(name).await.unwrap()), "{ahead}: {name} ended");
        }
        let skewed = |run: Option<&Workflow>| {
            let conditions = run.and_then(|run| run.status.as_ref()).map(|status| &status.conditions[..]);
            conditions
                .unwrap_or_default()
                .iter()
                .any(|condition| condition.type_ == "ClockSkewed" && condition.reason == reason)
        };
        runs.until(runs.api(), &format!("long{ahead}"), "says that the clock is wrong", skewed).await;
        let finished = run_doctor(&runs.cluster).await;
        assert_eq!(finished.code, 1, "{finished:?}");
        let page = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("the clock of its machine is") && page.contains(word), "{finished:?}");
        running.stop().await.unwrap();
    }
    let running = start_operator(&runs.cluster, &clock, 0).await;
    let finished = run_doctor(&runs.cluster).await;
    assert_eq!(finished.code, 0, "{finished:?}");
    running.stop().await.unwrap();
}

/// Sends a signal to the API server of this cluster, such as `-STOP`.
fn signal_api_server(cluster: &Cluster, signal: &str) {
    let pids = cluster.plane().unwrap().pids();
    let (_, pid) = pids.iter().find(|(name, _)| *name == "kube-apiserver").unwrap();
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[tokio::test]
async fn an_outage_of_the_api_server_ends_no_gate_and_no_call_in_flight() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let running = OperatorProcess::start(&cluster, OperatorOptions::default()).await.unwrap();
    let runs = Runs::on(cluster, "outage").await;
    runs.request("open", json!({"timeout": {"after": "20s", "action": "Approve"}})).await;
    let gate = runs.wait_for_gate("open").await;
    let pid = running.pid();

    signal_api_server(&runs.cluster, "-STOP");
    tokio::time::sleep(Duration::from_secs(17)).await;
    assert!(running.get("/healthz").await.is_ok(), "the process lives");
    let error = running.get("/readyz").await.expect_err("it reaches nothing");
    signal_api_server(&runs.cluster, "-CONT");

    // The operator continues, and the gate whose time passed during the outage asks again.
    runs.another_gate_is_decided_in_time("after").await;
    assert_eq!(running.pid(), pid, "{error:#}");
    let again = |run: Option<&Workflow>| {
        run.and_then(|run| run.status.as_ref()).is_some_and(|s| s.steps.iter().any(|step| step.path == "review#2"))
    };
    runs.until(runs.api(), "open", "asks again", again).await;
    let first = runs.api::<Approval>().get(&gate.name_any()).await.unwrap();
    let outcome = first.status.unwrap().outcome.unwrap();
    assert!(outcome.verdict.is_none() && outcome.reason.is_some(), "{outcome:?}");
    running.stop().await.unwrap();
}
