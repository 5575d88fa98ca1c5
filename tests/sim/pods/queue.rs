//! Limits: never more Pods at once than may be, the longest-waiting first, and each that waits knows its place.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_controller::PodSettings;
use signoff_tests::sim::{Answer, Verb};

use crate::{
    ending::list,
    harness::{NAMESPACE, OPERATOR, Stage, condition, is_status_write},
    people::verdict,
    scenarios::{RUN, pod},
};

/// So many branches of a container each, all at once.
fn branches(most: usize) -> Value {
    let of_branch = |n| {
        let mut step = pod("build", json!({}));
        step["branch"] = json!(format!("b{n}"));
        step
    };
    let steps: Vec<_> = (0..most).map(of_branch).collect();
    json!({"requestedBy": "dana", "pattern": {"parallel": {}}, "steps": steps})
}

fn limited(in_namespace: usize, of_workflow: usize) -> Stage {
    let pods = PodSettings { most_in_namespace: in_namespace, most_of_workflow: of_workflow, ..PodSettings::default() };
    Stage { pods, ..Stage::new() }
}

fn runs_for(stage: &Stage, run: &str, branches: usize, seconds: u64) {
    for n in 0..branches {
        stage.world.answers(format!("{run}/b{n}/build"), Answer::value("done").after(Duration::from_secs(seconds)));
    }
}

/// The workflows of the containers, in the order in which they began.
fn order(stage: &Stage) -> Vec<String> {
    stage.world.effects().iter().filter_map(|e| e.key.path.split('/').next().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn twelve_containers_under_two_limits_never_run_too_many_at_once() {
    let stage = limited(3, 2);
    let _life = stage.begin_and_settle(OPERATOR).await;
    for run in ["one", "two"] {
        runs_for(&stage, run, 6, 60);
        stage.apply(run, &branches(6));
    }
    stage.pass(10).await;
    assert_eq!(stage.kubelet.most_at_once(None), 3);
    for run in ["one", "two"] {
        let (status, reason) = condition(&stage.workflow(run), "PodsPending");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "Queued"), "{run}");
    }
    for run in ["one", "two"] {
        assert_eq!(stage.ended(run).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    }
    let most = [None, Some("one"), Some("two")].map(|run| stage.kubelet.most_at_once(run));
    assert_eq!(most, [3, 2, 2], "as many as may, and no more");
    assert_eq!(stage.world.effects().len(), 12);
    assert_eq!(stage.world.repeated().len(), 0);
    // Three rounds of two and one, which is the first run's; then what is left of the second, two at a time.
    let took = stage.server.clock().elapsed().as_secs();
    assert!((300..330).contains(&took), "places are not left free: {took} s");
    for run in ["one", "two"] {
        assert_eq!(condition(&stage.workflow(run), "PodsPending").0, "");
    }
    // Each container begins and ends by a commit of its own at the most; few more tell how long the queue still is.
    let writes = stage.server.count(is_status_write);
    assert!(writes <= 2 * 12 + 2 * 8, "{writes} status writes:\n{}", stage.server.story());
    stage.pass(5).await;
    assert_eq!(stage.all_pods().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_came_first_begins_first() {
    let stage = limited(1, 1);
    let _life = stage.begin_and_settle(OPERATOR).await;
    let runs = ["zeta", "alpha", "mid", "beta"];
    for run in runs {
        stage.world.answers(format!("{run}/build"), Answer::value("done").after(Duration::from_secs(60)));
        stage.apply(run, &branches_of_one());
        stage.pass(2).await;
    }
    let said = |run: &str| {
        let workflow = stage.workflow(run);
        let said = list(&workflow["status"]["conditions"]).find(|c| c["type"] == "PodsPending").cloned();
        said.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(said("zeta"), "", "it runs");
    for (run, place) in [("alpha", "place 1 "), ("mid", "place 2 "), ("beta", "place 3 ")] {
        assert!(said(run).contains(place) && said(run).contains("1 Pods of steps"), "{run}: {}", said(run));
    }
    stage.ended("beta").await;
    assert_eq!(order(&stage), runs);
}

fn branches_of_one() -> Value {
    json!({"requestedBy": "dana", "steps": [pod("build", json!({}))]})
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_costs_few_writes() {
    let stage = limited(1, 1);
    let _life = stage.begin_and_settle(OPERATOR).await;
    let runs: Vec<String> = (0..32).map(|n| format!("run-{n:02}")).collect();
    for run in &runs {
        stage.world.answers(format!("{run}/build"), Answer::value("done").after(Duration::from_secs(10)));
        stage.apply(run, &branches_of_one());
        stage.pass(1).await;
    }
    for run in &runs {
        stage.ended(run).await;
    }
    assert_eq!(order(&stage), runs, "in the order of their arrival");
    assert_eq!(stage.kubelet.most_at_once(None), 1);
    let most =
        runs.iter().map(|run| stage.server.count(|entry| is_status_write(entry) && entry.name.as_deref() == Some(run)));
    let most = most.max().unwrap_or_default();
    // It waits, it begins, it ends; and its place is told anew each time that it has halved.
    assert!(most <= 3 + 6, "{most} status writes for one run of 32:\n{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_comes_back_counts_what_runs_already() {
    let stage = limited(2, 2);
    runs_for(&stage, RUN, 5, 60);
    stage.apply(RUN, &branches(5));
    let life = stage.begin(OPERATOR);
    stage.pass(30).await;
    life.crash().await;
    assert_eq!(stage.world.effects().len(), 2);
    let _life = stage.begin(OPERATOR);
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    assert_eq!((stage.kubelet.most_at_once(None), stage.world.effects().len()), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_in_the_queue_starts_nothing_and_gives_its_place_up() {
    let stage = limited(1, 1);
    let _life = stage.begin_and_settle(OPERATOR).await;
    for run in ["first", "second", "third"] {
        stage.world.answers(format!("{run}/build"), Answer::value("done").after(Duration::from_secs(60)));
        stage.apply(run, &branches_of_one());
        stage.pass(1).await;
    }
    stage.people().sets("second", "cancel", true);
    assert_eq!(stage.ended("second").await["status"]["phase"], "Cancelled");
    stage.people().sets("first", "cancel", true);
    stage.ended("third").await;
    assert_eq!(order(&stage), ["first", "third"], "{}", stage.server.story());
    let created = stage.server.count(|entry| entry.verb == Verb::Create && entry.resource.plural == "pods");
    assert_eq!(created, 2);
    assert!(stage.server.clock().elapsed().as_secs() < 80, "a place is free as soon as its container has ended");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_suspended_in_the_queue_stands_in_nobodys_way_and_keeps_its_turn() {
    let stage = limited(1, 1);
    let _life = stage.begin_and_settle(OPERATOR).await;
    for run in ["first", "second", "third", "fourth"] {
        stage.world.answers(format!("{run}/build"), Answer::value("done").after(Duration::from_secs(60)));
        stage.apply(run, &branches_of_one());
        stage.pass(1).await;
    }
    stage.people().sets("second", "suspend", true);
    stage.ended("first").await;
    stage.pass(10).await;
    assert_eq!(order(&stage), ["first", "third"], "{}", stage.server.story());
    stage.people().sets("second", "suspend", false);
    stage.ended("fourth").await;
    assert_eq!(order(&stage), ["first", "third", "second", "fourth"]);
}

#[tokio::test(start_paused = true)]
async fn where_no_pods_may_be_made_the_condition_says_who_can_change_that() {
    let stage = Stage { pods: PodSettings { enabled: false, ..PodSettings::default() }, ..Stage::new() };
    let _life = stage.begin(OPERATOR);
    stage.apply(RUN, &branches_of_one());
    stage.pass(60).await;
    assert_eq!(stage.condition("PodsPending"), ("True".to_owned(), "PodsNotAllowed".to_owned()));
    assert_eq!(
        stage.server.count(|entry| entry.resource.plural == "pods"),
        0,
        "it does not even look:\n{}",
        stage.server.story()
    );
    stage.people().sets(RUN, "cancel", true);
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Cancelled");
}

#[tokio::test(start_paused = true)]
async fn only_the_namespaces_that_an_administrator_named_are_watched() {
    let named = |namespace: &str| PodSettings { namespaces: vec![namespace.to_owned()], ..PodSettings::default() };
    let stage = Stage { pods: named(NAMESPACE), ..Stage::new() };
    let _life = stage.begin(OPERATOR);
    stage.apply(RUN, &branches_of_one());
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    let elsewhere = stage.server.count(|e| e.resource.plural == "pods" && e.namespace.as_deref() != Some(NAMESPACE));
    assert_eq!(elsewhere, 0, "{}", stage.server.story());
    let stage = Stage { pods: named("elsewhere"), ..Stage::new() };
    let _life = stage.begin(OPERATOR);
    stage.apply(RUN, &branches_of_one());
    stage.pass(60).await;
    assert_eq!(stage.condition("PodsPending").1, "PodsNotAllowed");
    assert_eq!(stage.world.effects().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn people_are_asked_before_a_container_takes_a_place() {
    let stage = limited(1, 1);
    let _life = stage.begin_and_settle(OPERATOR).await;
    let mut spec = branches_of_one();
    let hitl = crate::scenarios::gate("x", json!({}))["hitl"].take();
    spec["gates"] = json!([{"name": "before", "type": "stepStart", "hitl": hitl}]);
    stage.apply("asks", &spec);
    let approval = stage.people().asked("build/.start").await;
    stage.world.answers("other/build", Answer::value("done").after(Duration::from_secs(60)));
    stage.apply("other", &branches_of_one());
    stage.pass(10).await;
    assert_eq!(order(&stage), ["other"], "who waits for people holds no place");
    stage.people().votes("alice", &approval, verdict("Approve"));
    stage.pass(10).await;
    assert_eq!(order(&stage), ["other"], "approved, and still one at a time");
    stage.ended("asks").await;
    assert_eq!(order(&stage), ["other", "asks"]);
}
