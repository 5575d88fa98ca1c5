//! Limits: never more Pods at once than allowed, the longest-waiting first, and each waiting Pod shows its position.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_controller::PodSettings;
use signoff_tests::sim::{Answer, Verb};

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, OPERATOR, condition, is_status_write},
    people::verdict,
    scenarios::{RUN, pod},
};

/// Returns `most` branches of a container each, all at once.
fn branches(most: usize) -> Value {
    let of_branch = |n| {
        let mut step = pod("build", json!({}));
        step["branch"] = json!(format!("b{n}"));
        step
    };
    let steps: Vec<_> = (0..most).map(of_branch).collect();
    json!({"requestedBy": "dana", "pattern": {"parallel": {}}, "steps": steps})
}

fn harness_with_limits(in_namespace: usize, of_workflow: usize) -> Harness {
    let pods = PodSettings { most_in_namespace: in_namespace, most_of_workflow: of_workflow, ..PodSettings::default() };
    Harness { pods, ..Harness::new() }
}

fn apply_branches(harness: &Harness, run: &str, branches: usize, seconds: u64) {
    for n in 0..branches {
        harness.world.answers(format!("{run}/b{n}/build"), Answer::value("done").after(Duration::from_secs(seconds)));
    }
}

/// Returns the workflows of the containers, in the order in which they began.
fn order_of_starts(harness: &Harness) -> Vec<String> {
    harness.world.effects().iter().filter_map(|e| e.key.path.split('/').next().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn twelve_containers_under_two_limits_never_run_too_many_at_once() {
    let harness = harness_with_limits(3, 2);
    let _life = harness.begin_and_settle(OPERATOR).await;
    for run in ["one", "two"] {
        apply_branches(&harness, run, 6, 60);
        harness.apply(run, &branches(6));
    }
    harness.pass(10).await;
    assert_eq!(harness.kubelet.most_at_once(None), 3);
    for run in ["one", "two"] {
        let (status, reason) = condition(&harness.workflow(run), "PodsPending");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "Queued"), "{run}");
    }
    for run in ["one", "two"] {
        assert_eq!(harness.wait_for_end(run).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    }
    let most = [None, Some("one"), Some("two")].map(|run| harness.kubelet.most_at_once(run));
    assert_eq!(most, [3, 2, 2], "as many as may, and no more");
    assert_eq!(harness.world.effects().len(), 12);
    assert_eq!(harness.world.repeated().len(), 0);
    // Three rounds of two and one, which is the first run's; then the rest of the second, two at a time.
    let took = harness.server.clock().elapsed().as_secs();
    assert!((300..330).contains(&took), "places are not left free: {took} s");
    for run in ["one", "two"] {
        assert_eq!(condition(&harness.workflow(run), "PodsPending").0, "");
    }
    // Each container begins and ends with at most one commit; few more report the length of the queue.
    let writes = harness.server.count(is_status_write);
    assert!(writes <= 2 * 12 + 2 * 8, "{writes} status writes:\n{}", harness.server.story());
    harness.pass(5).await;
    assert_eq!(harness.all_pods().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_container_that_waits_longest_begins_first() {
    let harness = harness_with_limits(1, 1);
    let _life = harness.begin_and_settle(OPERATOR).await;
    let runs = ["zeta", "alpha", "mid", "beta"];
    for run in runs {
        harness.world.answers(format!("{run}/build"), Answer::value("done").after(Duration::from_secs(60)));
        harness.apply(run, &branches_of_one());
        harness.pass(2).await;
    }
    let said = |run: &str| {
        let workflow = harness.workflow(run);
        let said = list(&workflow["status"]["conditions"]).find(|c| c["type"] == "PodsPending").cloned();
        said.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(said("zeta"), "", "it runs");
    for (run, place) in [("alpha", "position 1 "), ("mid", "position 2 "), ("beta", "position 3 ")] {
        assert!(said(run).contains(place) && said(run).contains("1 Pods of steps"), "{run}: {}", said(run));
    }
    harness.wait_for_end("beta").await;
    assert_eq!(order_of_starts(&harness), runs);
}

fn branches_of_one() -> Value {
    json!({"requestedBy": "dana", "steps": [pod("build", json!({}))]})
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_costs_few_writes() {
    let harness = harness_with_limits(1, 1);
    let _life = harness.begin_and_settle(OPERATOR).await;
    let runs: Vec<String> = (0..32).map(|n| format!("run-{n:02}")).collect();
    for run in &runs {
        harness.world.answers(format!("{run}/build"), Answer::value("done").after(Duration::from_secs(10)));
        harness.apply(run, &branches_of_one());
        harness.pass(1).await;
    }
    for run in &runs {
        harness.wait_for_end(run).await;
    }
    assert_eq!(order_of_starts(&harness), runs, "in the order of their arrival");
    assert_eq!(harness.kubelet.most_at_once(None), 1);
    let most = runs
        .iter()
        .map(|run| harness.server.count(|entry| is_status_write(entry) && entry.name.as_deref() == Some(run)));
    let most = most.max().unwrap_or_default();
    // It waits, begins and ends, and its position is reported each time that it has halved.
    assert!(most <= 3 + 6, "{most} status writes for one run of 32:\n{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn the_next_operator_counts_running_containers() {
    let harness = harness_with_limits(2, 2);
    apply_branches(&harness, RUN, 5, 60);
    harness.apply(RUN, &branches(5));
    let life = harness.begin(OPERATOR);
    harness.pass(30).await;
    life.crash().await;
    assert_eq!(harness.world.effects().len(), 2);
    let _life = harness.begin(OPERATOR);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!((harness.kubelet.most_at_once(None), harness.world.effects().len()), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_leaves_the_queue() {
    let harness = harness_with_limits(1, 1);
    let _life = harness.begin_and_settle(OPERATOR).await;
    for run in ["first", "second", "third"] {
        harness.world.answers(format!("{run}/build"), Answer::value("done").after(Duration::from_secs(60)));
        harness.apply(run, &branches_of_one());
        harness.pass(1).await;
    }
    harness.people().set_field("second", "cancel", true);
    assert_eq!(harness.wait_for_end("second").await["status"]["phase"], "Cancelled");
    harness.people().set_field("first", "cancel", true);
    harness.wait_for_end("third").await;
    assert_eq!(order_of_starts(&harness), ["first", "third"], "{}", harness.server.story());
    let created = harness.server.count(|entry| entry.verb == Verb::Create && entry.resource.plural == "pods");
    assert_eq!(created, 2);
    assert!(harness.server.clock().elapsed().as_secs() < 80, "a place is free as soon as its container has ended");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_keeps_its_position_and_blocks_no_other_run() {
    let harness = harness_with_limits(1, 1);
    let _life = harness.begin_and_settle(OPERATOR).await;
    for run in ["first", "second", "third", "fourth"] {
        harness.world.answers(format!("{run}/build"), Answer::value("done").after(Duration::from_secs(60)));
        harness.apply(run, &branches_of_one());
        harness.pass(1).await;
    }
    harness.people().set_field("second", "suspend", true);
    harness.wait_for_end("first").await;
    harness.pass(10).await;
    assert_eq!(order_of_starts(&harness), ["first", "third"], "{}", harness.server.story());
    harness.people().set_field("second", "suspend", false);
    harness.wait_for_end("fourth").await;
    assert_eq!(order_of_starts(&harness), ["first", "third", "second", "fourth"]);
}

#[tokio::test(start_paused = true)]
async fn the_condition_names_the_remedy_where_pods_are_not_allowed() {
    let harness = Harness { pods: PodSettings { enabled: false, ..PodSettings::default() }, ..Harness::new() };
    let _life = harness.begin(OPERATOR);
    harness.apply(RUN, &branches_of_one());
    harness.pass(60).await;
    assert_eq!(harness.condition("PodsPending"), ("True".to_owned(), "PodsNotAllowed".to_owned()));
    assert_eq!(
        harness.server.count(|entry| entry.resource.plural == "pods"),
        0,
        "it does not even look:\n{}",
        harness.server.story()
    );
    harness.people().set_field(RUN, "cancel", true);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
}

#[tokio::test(start_paused = true)]
async fn only_configured_namespaces_are_watched() {
    let named = |namespace: &str| PodSettings { namespaces: vec![namespace.to_owned()], ..PodSettings::default() };
    let harness = Harness { pods: named(NAMESPACE), ..Harness::new() };
    let _life = harness.begin(OPERATOR);
    harness.apply(RUN, &branches_of_one());
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    let elsewhere = harness.server.count(|e| e.resource.plural == "pods" && e.namespace.as_deref() != Some(NAMESPACE));
    assert_eq!(elsewhere, 0, "{}", harness.server.story());
    let harness = Harness { pods: named("elsewhere"), ..Harness::new() };
    let _life = harness.begin(OPERATOR);
    harness.apply(RUN, &branches_of_one());
    harness.pass(60).await;
    assert_eq!(harness.condition("PodsPending").1, "PodsNotAllowed");
    assert_eq!(harness.world.effects().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_gate_is_asked_before_its_container_is_counted() {
    let harness = harness_with_limits(1, 1);
    let _life = harness.begin_and_settle(OPERATOR).await;
    let mut spec = branches_of_one();
    let hitl = crate::scenarios::gate("x", json!({}))["hitl"].take();
    spec["gates"] = json!([{"name": "before", "type": "stepStart", "hitl": hitl}]);
    harness.apply("asks", &spec);
    let approval = harness.people().wait_for_gate("build/.start").await;
    harness.world.answers("other/build", Answer::value("done").after(Duration::from_secs(60)));
    harness.apply("other", &branches_of_one());
    harness.pass(10).await;
    assert_eq!(order_of_starts(&harness), ["other"], "who waits for people holds no place");
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.pass(10).await;
    assert_eq!(order_of_starts(&harness), ["other"], "approved, and still one at a time");
    harness.wait_for_end("asks").await;
    assert_eq!(order_of_starts(&harness), ["other", "asks"]);
}
