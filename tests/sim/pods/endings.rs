//! Runs that end, are ended or rest while Pods are there: nothing more starts, and what must not stay goes.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Answer, Crash, Fault, On, Request, Verb};

use super::{record, starts};
use crate::{
    harness::{Life, NAMESPACE, OPERATOR, QUIET, Stage, workflows},
    laws,
    people::{name, verdict},
    scenarios::{RUN, chain, gate, pod, set},
};

/// A run with a container before its gate and one after it, each a minute long.
fn around_a_gate(more: Value) -> (Stage, Life) {
    let stage = Stage::new();
    for step in ["refund/build", "refund/deploy"] {
        stage.world.answers(step, Answer::value("done").after(Duration::from_secs(60)));
    }
    let mut spec =
        chain(json!([pod("build", json!({})), gate("review", json!({})), pod("deploy", json!({})), set("note", "x")]));
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    stage.apply(RUN, &spec);
    let life = stage.begin(OPERATOR);
    (stage, life)
}

/// Whether a container of this step runs.
async fn runs(stage: &Stage, step: &str) {
    stage.world.until(|world| world.times(&format!("{RUN}/{step}")) == 1).await;
}

/// The run has this phase, keeps every law for ever, and left this many Pods.
async fn ends_as(stage: &Stage, phase: &str, pods: usize) {
    assert_eq!(stage.ended(RUN).await["status"]["phase"], phase, "{}", stage.server.story());
    stage.server.clock().pass(QUIET).await;
    laws::hold(stage, RUN).unwrap_or_else(|broken| panic!("{broken}\n{}", stage.server.story()));
    assert_eq!(stage.all_pods().len(), pods, "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_while_a_container_runs_ends_it_with_grace() {
    let (stage, _life) = around_a_gate(json!({}));
    runs(&stage, "build").await;
    let began = stage.server.clock().now();
    stage.people().sets(RUN, "cancel", true);
    stage.server.until_all(|_| stage.all_pods().is_empty()).await;
    let took = stage.server.clock().now().duration_since(began).as_secs();
    assert!(took < 5, "it was asked to end at once: {took} s");
    ends_as(&stage, "Cancelled", 0).await;
    let story = stage.server.story();
    assert_eq!((starts(&stage, "build", 1), stage.world.times("refund/deploy")), (1, 0), "{story}");
}

#[tokio::test(start_paused = true)]
async fn wherever_the_operator_dies_while_a_run_is_cancelled_no_pod_stays() {
    for crash in [Crash::NotApplied, Crash::Applied, Crash::AppliedAfter(Duration::from_secs(3))] {
        for n in 1.. {
            let stage = Stage::new();
            stage.world.answers("refund/build", Answer::value("done").after(Duration::from_secs(60)));
            stage.apply(RUN, &chain(json!([pod("build", json!({})), set("note", "x")])));
            stage.server.fault(On::writes_of(OPERATOR).nth(n), Fault::Crash(crash));
            let story = async {
                stage.pass(5).await;
                stage.people().sets(RUN, "cancel", true);
                let ended = stage.ended(RUN).await;
                stage.server.clock().pass(QUIET).await;
                ended
            };
            let (ended, deaths) = stage.keep_alive(&[OPERATOR], story).await;
            let what = || format!("{crash:?} no. {n}:\n{}", stage.server.story());
            laws::hold(&stage, RUN).unwrap_or_else(|broken| panic!("{broken}: {}", what()));
            // A Pod that was lost between its commit and its creation fails the run before it can be cancelled.
            assert!(
                ended["status"]["phase"] == "Cancelled" || starts(&stage, "build", 1) == 0 || deaths > 0,
                "{}",
                what()
            );
            assert_eq!(stage.all_pods().len(), 0, "{}", what());
            assert!(stage.world.times("refund/build") <= 1, "{}", what());
            if deaths == 0 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_comes_after_the_cancellation_starts_nothing() {
    let (stage, _life) = around_a_gate(json!({}));
    let approval = stage.people().asked("review").await;
    stage.people().sets(RUN, "cancel", true);
    stage.people().votes("alice", &approval, verdict("Approve"));
    ends_as(&stage, "Cancelled", 0).await;
    stage.people().votes("bob", &approval, verdict("Approve"));
    stage.pass(3600).await;
    assert_eq!(stage.world.times("refund/deploy"), 0, "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_made_while_its_run_is_cancelled_goes_again() {
    let (stage, _life) = around_a_gate(json!({}));
    // Its creation is on its way when the run is over.
    let creation = |request: &Request| request.resource.plural == "pods" && request.verb == Verb::Create;
    stage.server.fault(
        On::writes_of(OPERATOR).only(creation).nth(1),
        Fault::before(|server| {
            server.edit(&workflows(), NAMESPACE, RUN, |workflow| workflow["spec"]["cancel"] = json!(true));
        }),
    );
    ends_as(&stage, "Cancelled", 0).await;
    assert_eq!(stage.world.times("refund/build"), 0, "it had no time to begin");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_rejected_leaves_no_pod_whatever_was_to_be_kept() {
    for keep in ["Never", "OnSuccess", "OnCompletion"] {
        let (stage, life) = around_a_gate(json!({"podGC": keep}));
        let approval = stage.people().asked("review").await;
        stage.pass(60).await;
        assert_eq!(stage.all_pods().len(), usize::from(keep == "Never"), "{keep}");
        stage.people().votes("alice", &approval, verdict("Reject"));
        ends_as(&stage, "Rejected", 0).await;
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_done_go_or_stay_as_the_workflow_says() {
    for (keep, good, bad) in [("OnSuccess", 0, 1), ("OnCompletion", 0, 0), ("Never", 1, 1)] {
        for (code, left) in [(0, good), (1, bad)] {
            let stage = Stage::new();
            stage.world.answers("refund/build", Answer::value(json!({"exitCode": code})));
            let mut spec = chain(json!([pod("build", json!({})), set("note", "x")]));
            spec["podGC"] = json!(keep);
            stage.apply(RUN, &spec);
            let life = stage.begin(OPERATOR);
            ends_as(&stage, if code == 0 { "Succeeded" } else { "Failed" }, left).await;
            life.crash().await;
            let writes = stage.server.writes().len();
            let next = stage.begin(OPERATOR);
            stage.pass(600).await;
            assert_eq!(
                (stage.all_pods().len(), stage.server.writes().len()),
                (left, writes),
                "{keep}, {code}: another operator changes nothing"
            );
            next.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_is_deleted_takes_its_running_pod_with_it() {
    let (stage, _life) = around_a_gate(json!({}));
    runs(&stage, "build").await;
    stage.server.remove(&workflows(), NAMESPACE, RUN);
    assert!(stage.all_pods()[0]["metadata"]["deletionTimestamp"].is_string(), "its container is left time to end");
    stage.pass(60).await;
    assert_eq!((stage.all_pods().len(), stage.world.effects().len()), (0, 1), "{}", stage.server.story());
    // One of the same name is another run.
    stage.apply(RUN, &chain(json!([pod("build", json!({}))])));
    stage.ended(RUN).await;
    assert_eq!(stage.world.effects().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_starts_no_pod_and_lets_one_that_runs_end() {
    let (stage, _life) = around_a_gate(json!({}));
    runs(&stage, "build").await;
    stage.people().sets(RUN, "suspend", true);
    stage.pass(3600).await;
    assert_eq!(record(&stage, "build", 1)["phase"], "Succeeded", "{}", stage.server.story());
    assert_eq!((stage.approvals().len(), stage.workflow(RUN)["status"]["phase"].clone()), (0, json!("Suspended")));
    stage.people().sets(RUN, "suspend", false);
    let approval = stage.people().asked("review").await;
    stage.people().sets(RUN, "suspend", true);
    stage.people().votes("alice", &approval, verdict("Approve"));
    stage.pass(3600).await;
    assert_eq!(stage.world.times("refund/deploy"), 0, "{}", stage.server.story());
    stage.people().sets(RUN, "suspend", false);
    ends_as(&stage, "Succeeded", 0).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_people_holds_no_pod() {
    let (stage, life) = around_a_gate(json!({}));
    stage.people().asked("review").await;
    stage.pass(60).await;
    assert_eq!(stage.all_pods().len(), 0);
    let before = stage.server.writes().len();
    life.crash().await;
    let _life = stage.begin(OPERATOR);
    stage.pass(7200).await;
    assert_eq!(stage.server.writes().len(), before, "{}", stage.server.story());
    stage.people().votes("alice", &name(&stage.approval()), verdict("Approve"));
    ends_as(&stage, "Succeeded", 0).await;
}
