//! Tests of the quota: the Pods that start, the Pods that wait, and the Workflows that are woken.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use serde_json::json;
use signoff_api::{Moment, Seq};
use signoff_cluster::{
    kinds::{DecodedKind as _, Name},
    watch::WatchEvent,
};

use super::{PodIndex, PodQuota, PodSettings, PodSlot, PodWait, QueuedPod, StepPod};

fn quota(most_in_namespace: usize, most_of_workflow: usize) -> Arc<PodQuota> {
    quota_on(Arc::default(), most_in_namespace, most_of_workflow)
}

fn quota_on(index: Arc<PodIndex>, most_in_namespace: usize, most_of_workflow: usize) -> Arc<PodQuota> {
    for event in [WatchEvent::Listing, WatchEvent::ListDone("1".to_owned())] {
        index.apply((None, event));
    }
    Arc::new(PodQuota::new(PodSettings { most_in_namespace, most_of_workflow, ..PodSettings::default() }, index))
}

/// Returns the Pod of a Workflow that has waited since this second.
fn ticket(since: i64, workflow: &str, pod: &str) -> QueuedPod {
    QueuedPod {
        since: Moment::from(jiff::Timestamp::from_second(since).unwrap()),
        workflow: Name::new("team", workflow),
        run: format!("uid of {workflow}").into(),
        seq: Seq::from(1),
        pod: Name::new("team", pod),
    }
}

#[track_caller]
fn begins(quota: &Arc<PodQuota>, ticket: &QueuedPod) -> PodSlot {
    quota.acquire(ticket.clone()).unwrap_or_else(|wait| panic!("{}: {wait:?}", ticket.pod))
}

#[track_caller]
fn waits(quota: &Arc<PodQuota>, ticket: &QueuedPod) -> PodWait {
    quota.acquire(ticket.clone()).map_or_else(|wait| wait, |_| panic!("{} begins", ticket.pod))
}

fn told(quota: &PodQuota) -> Vec<String> {
    quota.workflows_to_wake().iter().map(|name| name.name.to_string()).collect()
}

#[test]
fn the_longest_waiting_begins_first_whoever_asks_first() {
    let quota = quota(1, 9);
    let (a, b, c) = (ticket(1, "a", "a"), ticket(2, "z", "b"), ticket(3, "c", "c"));
    let place = begins(&quota, &a);
    assert_eq!(waits(&quota, &c), PodWait::Namespace { before: 0, most: 1 });
    assert_eq!(waits(&quota, &b), PodWait::Namespace { before: 0, most: 1 });
    assert_eq!(waits(&quota, &c), PodWait::Namespace { before: 1, most: 1 }, "one that has waited longer has come");
    drop(place);
    assert_eq!(waits(&quota, &c), PodWait::Namespace { before: 1, most: 1 }, "the place is another's");
    let _place = begins(&quota, &b);
    assert_eq!(waits(&quota, &c), PodWait::Namespace { before: 0, most: 1 });
}

/// Returns a Pod of the Workflow `a` with a running sidecar that others injected. Its step has ended, or runs too.
fn injected(has_ended: bool) -> StepPod {
    let running = json!({"running": {"startedAt": "2026-11-22T09:30:05Z"}});
    let ended = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-11-22T09:31:00Z"}});
    let step = if has_ended { ended } else { running.clone() };
    let pod = json!({
        "metadata": {"name": "a", "namespace": "team", "uid": "1", "labels": {"signoff.dev/workflow": "a"},
            "ownerReferences": [{"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": "a", "uid": "uid of a",
                "controller": true}]},
        "spec": {"nodeName": "node-1", "containers": [{"name": "step"}, {"name": "proxy"}]},
        "status": {"phase": "Running",
            "containerStatuses": [{"name": "step", "state": step}, {"name": "proxy", "state": running}]},
    });
    StepPod::read(pod).unwrap()
}

#[test]
fn a_pod_whose_step_has_ended_holds_no_slot_although_a_sidecar_runs_on() {
    for has_ended in [false, true] {
        let index = Arc::new(PodIndex::default());
        let quota = quota_on(Arc::clone(&index), 1, 1);
        index.record(injected(has_ended));
        let ticket = ticket(1, "b", "b");
        if has_ended {
            let _place = begins(&quota, &ticket);
        } else {
            assert_eq!(waits(&quota, &ticket), PodWait::Namespace { before: 0, most: 1 });
        }
    }
}

#[test]
fn one_whose_workflow_is_full_lets_others_pass() {
    let quota = quota(3, 1);
    let place = begins(&quota, &ticket(1, "a", "a1"));
    let second = ticket(2, "a", "a2");
    assert_eq!(waits(&quota, &second), PodWait::Workflow { before: 0, most: 1 });
    let third = QueuedPod { seq: Seq::from(2), ..ticket(2, "a", "a0") };
    assert_eq!(
        waits(&quota, &third),
        PodWait::Workflow { before: 1, most: 1 },
        "in the order in which they were asked for"
    );
    let _other = begins(&quota, &ticket(3, "b", "b1"));
    assert_eq!(told(&quota), Vec::<String>::new(), "nobody who waits may begin");
    drop(place);
    assert_eq!(told(&quota), ["a"]);
    let _place = begins(&quota, &second);
}

#[test]
fn a_pod_stands_in_the_queue_once() {
    let quota = quota(1, 1);
    let place = begins(&quota, &ticket(1, "a", "a1"));
    waits(&quota, &ticket(2, "b", "b1"));
    assert_eq!(waits(&quota, &ticket(3, "b", "b1")), PodWait::Namespace { before: 0, most: 1 });
    drop(place);
    let _place = begins(&quota, &ticket(3, "b", "b1"));
    assert_eq!(told(&quota), Vec::<String>::new());
}

#[test]
fn what_runs_already_is_counted_whatever_the_limits_say() {
    let quota = quota(1, 1);
    let found = [
        quota.keep_running("uid of a", &Name::new("team", "a1")),
        quota.keep_running("uid of a", &Name::new("team", "a2")),
    ];
    assert_eq!(waits(&quota, &ticket(1, "b", "b1")), PodWait::Namespace { before: 0, most: 1 });
    let [one, other] = found;
    drop(one);
    assert_eq!(waits(&quota, &ticket(1, "b", "b1")), PodWait::Namespace { before: 0, most: 1 });
    drop(other);
    let _place = begins(&quota, &ticket(1, "b", "b1"));
}

#[test]
fn places_in_other_namespaces_are_others() {
    let quota = quota(1, 1);
    let _here = begins(&quota, &ticket(1, "a", "a"));
    let there = QueuedPod { workflow: Name::new("other", "b"), pod: Name::new("other", "b"), ..ticket(2, "b", "b") };
    let _there = begins(&quota, &there);
}

#[test]
fn a_place_is_told_anew_each_time_it_has_halved_and_only_to_those_who_may_begin_where_one_is_free() {
    let quota = quota(1, 1);
    let place = begins(&quota, &ticket(0, "first", "first"));
    for n in 1..=20 {
        waits(&quota, &ticket(n, &format!("run-{n:02}"), &format!("pod-{n:02}")));
    }
    assert_eq!(told(&quota), ["run-01", "run-02", "run-03", "run-05", "run-09", "run-17"]);
    drop(place);
    assert_eq!(told(&quota), ["run-01"]);
}

#[test]
fn a_place_that_is_free_is_said_to_whoever_listens() {
    let quota = quota(1, 1);
    let mut freed = quota.freed();
    let place = begins(&quota, &ticket(1, "a", "a"));
    assert!(!freed.has_changed().unwrap());
    drop(place);
    assert!(freed.has_changed().unwrap());
    freed.mark_unchanged();
    quota.announce_free();
    assert!(!freed.has_changed().unwrap(), "nobody waits");
}

#[test]
fn what_cannot_begin_stands_in_nobodys_way_and_keeps_its_turn() {
    let quota = quota(1, 2);
    let place = begins(&quota, &ticket(1, "a", "a"));
    let (suspended, other) = (ticket(2, "b", "b1"), ticket(3, "c", "c"));
    waits(&quota, &suspended);
    assert_eq!(waits(&quota, &other), PodWait::Namespace { before: 1, most: 1 });
    let freed = quota.freed();
    quota.retain_queued(&suspended.workflow, |pod| *pod.name == *"b2");
    assert!(freed.has_changed().unwrap(), "who comes next has moved up");
    waits(&quota, &suspended);
    drop(place);
    assert_eq!(waits(&quota, &other), PodWait::Namespace { before: 1, most: 1 }, "it has waited longer");
    quota.forget(&suspended.workflow);
    let _place = begins(&quota, &other);
}

#[test]
fn nothing_begins_before_it_is_known_what_runs_nor_where_no_pod_may_be() {
    let index = Arc::new(PodIndex::default());
    let quota = Arc::new(PodQuota::new(PodSettings::default(), Arc::clone(&index)));
    assert_eq!(waits(&quota, &ticket(1, "a", "a")), PodWait::Unknown);
    for event in [WatchEvent::Listing, WatchEvent::ListDone("1".to_owned())] {
        index.apply((Some("other".to_owned()), event));
    }
    assert_eq!(waits(&quota, &ticket(1, "a", "a")), PodWait::Unknown, "that is another namespace");
    let namespaces = vec!["other".to_owned()];
    for settings in
        [PodSettings { namespaces, ..PodSettings::default() }, PodSettings { enabled: false, ..PodSettings::default() }]
    {
        let quota = Arc::new(PodQuota::new(settings, Arc::clone(&index)));
        assert_eq!(waits(&quota, &ticket(1, "a", "a")), PodWait::PodsNotAllowed);
    }
}

#[test]
fn each_wait_is_told_in_a_sentence() {
    let told = |wait: PodWait| wait.message("team");
    let (reason, words) = told(PodWait::Namespace { before: 2, most: 5 });
    assert_eq!(
        (reason, words.contains("position 3 in the queue of namespace team, where at most 5 Pods")),
        ("Queued", true),
        "{words}"
    );
    assert!(
        told(PodWait::Workflow { before: 2, most: 2 })
            .1
            .contains("position 3 in the queue of its Workflow, which runs at most 2 Pods")
    );
    let (reason, words) = told(PodWait::PodsNotAllowed);
    assert_eq!((reason, words.contains("--pod-namespace")), ("PodsNotAllowed", true), "{words}");
}
