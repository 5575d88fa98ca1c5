//! Runs that end, are ended or suspended while they have Pods: nothing more starts, and Pods that must not stay are
//! deleted.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Answer, Crash, Fault, On, Request, Verb};

use super::{record, starts};
use crate::{
    harness::{Harness, Life, NAMESPACE, OPERATOR, QUIET, workflows},
    laws,
    people::{name, verdict},
    scenarios::{RUN, chain, gate, pod, set},
};

/// Starts a run with a container before its gate and one after it, each a minute long.
fn begin_around_a_gate(more: Value) -> (Harness, Life) {
    let harness = Harness::new();
    for step in ["refund/build", "refund/deploy"] {
        harness.world.answers(step, Answer::value("done").after(Duration::from_secs(60)));
    }
    let mut spec =
        chain(json!([pod("build", json!({})), gate("review", json!({})), pod("deploy", json!({})), set("note", "x")]));
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    harness.apply(RUN, &spec);
    let life = harness.begin(OPERATOR);
    (harness, life)
}

/// Waits until a container of this step runs.
async fn wait_until_running(harness: &Harness, step: &str) {
    harness.world.until(|world| world.times(&format!("{RUN}/{step}")) == 1).await;
}

/// Checks that the run ends with this phase and this number of Pods, and that every law holds afterwards.
async fn check_end(harness: &Harness, phase: &str, pods: usize) {
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], phase, "{}", harness.server.story());
    harness.server.clock().pass(QUIET).await;
    laws::hold(harness, RUN).unwrap_or_else(|broken| panic!("{broken}\n{}", harness.server.story()));
    assert_eq!(harness.all_pods().len(), pods, "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_while_a_container_runs_ends_it_with_grace() {
    let (harness, _life) = begin_around_a_gate(json!({}));
    wait_until_running(&harness, "build").await;
    let began = harness.server.clock().now();
    harness.people().set_field(RUN, "cancel", true);
    harness.server.until_all(|_| harness.all_pods().is_empty()).await;
    let took = harness.server.clock().now().duration_since(began).as_secs();
    assert!(took < 5, "it was asked to end at once: {took} s");
    check_end(&harness, "Cancelled", 0).await;
    let story = harness.server.story();
    assert_eq!((starts(&harness, "build", 1), harness.world.times("refund/deploy")), (1, 0), "{story}");
}

#[tokio::test(start_paused = true)]
async fn no_pod_stays_when_the_operator_dies_during_a_cancellation() {
    for crash in [Crash::NotApplied, Crash::Applied, Crash::AppliedAfter(Duration::from_secs(3))] {
        for n in 1.. {
            let harness = Harness::new();
            harness.world.answers("refund/build", Answer::value("done").after(Duration::from_secs(60)));
            harness.apply(RUN, &chain(json!([pod("build", json!({})), set("note", "x")])));
            harness.server.fault(On::writes_of(OPERATOR).nth(n), Fault::Crash(crash));
            let story = async {
                harness.pass(5).await;
                harness.people().set_field(RUN, "cancel", true);
                let ended = harness.wait_for_end(RUN).await;
                harness.server.clock().pass(QUIET).await;
                ended
            };
            let (ended, deaths) = harness.keep_alive(&[OPERATOR], story).await;
            let what = || format!("{crash:?} no. {n}:\n{}", harness.server.story());
            laws::hold(&harness, RUN).unwrap_or_else(|broken| panic!("{broken}: {}", what()));
            // A Pod that was lost between its commit and its creation fails the run before it can be cancelled.
            assert!(
                ended["status"]["phase"] == "Cancelled" || starts(&harness, "build", 1) == 0 || deaths > 0,
                "{}",
                what()
            );
            assert_eq!(harness.all_pods().len(), 0, "{}", what());
            assert!(harness.world.times("refund/build") <= 1, "{}", what());
            if deaths == 0 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_comes_after_the_cancellation_starts_nothing() {
    let (harness, _life) = begin_around_a_gate(json!({}));
    let approval = harness.people().wait_for_gate("review").await;
    harness.people().set_field(RUN, "cancel", true);
    harness.people().vote("alice", &approval, verdict("Approve"));
    check_end(&harness, "Cancelled", 0).await;
    harness.people().vote("bob", &approval, verdict("Approve"));
    harness.pass(3600).await;
    assert_eq!(harness.world.times("refund/deploy"), 0, "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_created_during_the_cancellation_is_deleted() {
    let (harness, _life) = begin_around_a_gate(json!({}));
    // Its creation is in flight when the run ends.
    let creation = |request: &Request| request.resource.plural == "pods" && request.verb == Verb::Create;
    harness.server.fault(
        On::writes_of(OPERATOR).only(creation).nth(1),
        Fault::before(|server| {
            server.edit(&workflows(), NAMESPACE, RUN, |workflow| workflow["spec"]["cancel"] = json!(true));
        }),
    );
    check_end(&harness, "Cancelled", 0).await;
    assert_eq!(harness.world.times("refund/build"), 0, "it had no time to begin");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_run_leaves_no_pod_even_if_pods_are_kept() {
    for keep in ["Never", "OnSuccess", "OnCompletion"] {
        let (harness, life) = begin_around_a_gate(json!({"podGC": keep}));
        let approval = harness.people().wait_for_gate("review").await;
        harness.pass(60).await;
        assert_eq!(harness.all_pods().len(), usize::from(keep == "Never"), "{keep}");
        harness.people().vote("alice", &approval, verdict("Reject"));
        check_end(&harness, "Rejected", 0).await;
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn finished_pods_are_deleted_or_kept_as_the_workflow_declares() {
    for (keep, good, bad) in [("OnSuccess", 0, 1), ("OnCompletion", 0, 0), ("Never", 1, 1)] {
        for (code, left) in [(0, good), (1, bad)] {
            let harness = Harness::new();
            harness.world.answers("refund/build", Answer::value(json!({"exitCode": code})));
            let mut spec = chain(json!([pod("build", json!({})), set("note", "x")]));
            spec["podGC"] = json!(keep);
            harness.apply(RUN, &spec);
            let life = harness.begin(OPERATOR);
            check_end(&harness, if code == 0 { "Succeeded" } else { "Failed" }, left).await;
            life.crash().await;
            let writes = harness.server.writes().len();
            let next = harness.begin(OPERATOR);
            harness.pass(600).await;
            assert_eq!(
                (harness.all_pods().len(), harness.server.writes().len()),
                (left, writes),
                "{keep}, {code}: another operator changes nothing"
            );
            next.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_is_deleted_takes_its_running_pod_with_it() {
    let (harness, _life) = begin_around_a_gate(json!({}));
    wait_until_running(&harness, "build").await;
    harness.server.remove(&workflows(), NAMESPACE, RUN);
    assert!(harness.all_pods()[0]["metadata"]["deletionTimestamp"].is_string(), "its container is left time to end");
    harness.pass(60).await;
    assert_eq!((harness.all_pods().len(), harness.world.effects().len()), (0, 1), "{}", harness.server.story());
    // A run of the same name is another run.
    harness.apply(RUN, &chain(json!([pod("build", json!({}))])));
    harness.wait_for_end(RUN).await;
    assert_eq!(harness.world.effects().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_starts_no_pod_and_keeps_a_running_one() {
    let (harness, _life) = begin_around_a_gate(json!({}));
    wait_until_running(&harness, "build").await;
    harness.people().set_field(RUN, "suspend", true);
    harness.pass(3600).await;
    assert_eq!(record(&harness, "build", 1)["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!((harness.approvals().len(), harness.workflow(RUN)["status"]["phase"].clone()), (0, json!("Suspended")));
    harness.people().set_field(RUN, "suspend", false);
    let approval = harness.people().wait_for_gate("review").await;
    harness.people().set_field(RUN, "suspend", true);
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.pass(3600).await;
    assert_eq!(harness.world.times("refund/deploy"), 0, "{}", harness.server.story());
    harness.people().set_field(RUN, "suspend", false);
    check_end(&harness, "Succeeded", 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_gate_holds_no_pod() {
    let (harness, life) = begin_around_a_gate(json!({}));
    harness.people().wait_for_gate("review").await;
    harness.pass(60).await;
    assert_eq!(harness.all_pods().len(), 0);
    let before = harness.server.writes().len();
    life.crash().await;
    let _life = harness.begin(OPERATOR);
    harness.pass(7200).await;
    assert_eq!(harness.server.writes().len(), before, "{}", harness.server.story());
    harness.people().vote("alice", &name(&harness.approval()), verdict("Approve"));
    check_end(&harness, "Succeeded", 0).await;
}
