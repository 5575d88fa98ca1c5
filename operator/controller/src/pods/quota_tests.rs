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

/// Returns the Pod of a Workflow that has waited since the second `since`.
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
fn take_slot(quota: &Arc<PodQuota>, ticket: &QueuedPod) -> PodSlot {
    quota.acquire(ticket.clone()).unwrap_or_else(|wait| panic!("{}: {wait:?}", ticket.pod))
}

#[track_caller]
fn expect_wait(quota: &Arc<PodQuota>, ticket: &QueuedPod) -> PodWait {
    quota.acquire(ticket.clone()).map_or_else(|wait| wait, |_| panic!("{} begins", ticket.pod))
}

fn woken_workflows(quota: &PodQuota) -> Vec<String> {
    quota.workflows_to_wake().iter().map(|name| name.name.to_string()).collect()
}

#[test]
fn the_pod_that_has_waited_longest_starts_first() {
    let quota = quota(1, 9);
    let (a, b, c) = (ticket(1, "a", "a"), ticket(2, "z", "b"), ticket(3, "c", "c"));
    let slot = take_slot(&quota, &a);
    assert_eq!(expect_wait(&quota, &c), PodWait::Namespace { before: 0, most: 1 });
    assert_eq!(expect_wait(&quota, &b), PodWait::Namespace { before: 0, most: 1 });
    assert_eq!(
        expect_wait(&quota, &c),
        PodWait::Namespace { before: 1, most: 1 },
        "one that has waited longer has come"
    );
    drop(slot);
    assert_eq!(expect_wait(&quota, &c), PodWait::Namespace { before: 1, most: 1 }, "the place is another's");
    let _slot = take_slot(&quota, &b);
    assert_eq!(expect_wait(&quota, &c), PodWait::Namespace { before: 0, most: 1 });
}

/// Returns a Pod of the Workflow `a` with a running sidecar that others injected. `has_ended` says whether its step has
/// ended, or runs too.
fn pod_with_sidecar(has_ended: bool) -> StepPod {
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
        index.record(pod_with_sidecar(has_ended));
        let ticket = ticket(1, "b", "b");
        if has_ended {
            let _slot = take_slot(&quota, &ticket);
        } else {
            assert_eq!(expect_wait(&quota, &ticket), PodWait::Namespace { before: 0, most: 1 });
        }
    }
}

#[test]
fn a_workflow_at_its_limit_does_not_block_other_workflows() {
    let quota = quota(3, 1);
    let slot = take_slot(&quota, &ticket(1, "a", "a1"));
    let second = ticket(2, "a", "a2");
    assert_eq!(expect_wait(&quota, &second), PodWait::Workflow { before: 0, most: 1 });
    let third = QueuedPod { seq: Seq::from(2), ..ticket(2, "a", "a0") };
    assert_eq!(
        expect_wait(&quota, &third),
        PodWait::Workflow { before: 1, most: 1 },
        "in the order in which they were asked for"
    );
    let _other = take_slot(&quota, &ticket(3, "b", "b1"));
    assert_eq!(woken_workflows(&quota), Vec::<String>::new(), "nobody who waits may begin");
    drop(slot);
    assert_eq!(woken_workflows(&quota), ["a"]);
    let _slot = take_slot(&quota, &second);
}

#[test]
fn a_pod_is_queued_once() {
    let quota = quota(1, 1);
    let slot = take_slot(&quota, &ticket(1, "a", "a1"));
    expect_wait(&quota, &ticket(2, "b", "b1"));
    assert_eq!(expect_wait(&quota, &ticket(3, "b", "b1")), PodWait::Namespace { before: 0, most: 1 });
    drop(slot);
    let _slot = take_slot(&quota, &ticket(3, "b", "b1"));
    assert_eq!(woken_workflows(&quota), Vec::<String>::new());
}

#[test]
fn running_pods_are_counted_above_the_limits() {
    let quota = quota(1, 1);
    let found = [
        quota.keep_running("uid of a", &Name::new("team", "a1")),
        quota.keep_running("uid of a", &Name::new("team", "a2")),
    ];
    assert_eq!(expect_wait(&quota, &ticket(1, "b", "b1")), PodWait::Namespace { before: 0, most: 1 });
    let [one, other] = found;
    drop(one);
    assert_eq!(expect_wait(&quota, &ticket(1, "b", "b1")), PodWait::Namespace { before: 0, most: 1 });
    drop(other);
    let _slot = take_slot(&quota, &ticket(1, "b", "b1"));
}

#[test]
fn slots_are_limited_per_namespace() {
    let quota = quota(1, 1);
    let _here = take_slot(&quota, &ticket(1, "a", "a"));
    let there = QueuedPod { workflow: Name::new("other", "b"), pod: Name::new("other", "b"), ..ticket(2, "b", "b") };
    let _there = take_slot(&quota, &there);
}

#[test]
fn positions_are_reported_after_powers_of_two() {
    let quota = quota(1, 1);
    let slot = take_slot(&quota, &ticket(0, "first", "first"));
    for n in 1..=20 {
        expect_wait(&quota, &ticket(n, &format!("run-{n:02}"), &format!("pod-{n:02}")));
    }
    assert_eq!(woken_workflows(&quota), ["run-01", "run-02", "run-03", "run-05", "run-09", "run-17"]);
    drop(slot);
    assert_eq!(woken_workflows(&quota), ["run-01"]);
}

#[test]
fn a_free_slot_wakes_the_receivers() {
    let quota = quota(1, 1);
    let mut freed = quota.freed();
    let slot = take_slot(&quota, &ticket(1, "a", "a"));
    assert!(!freed.has_changed().unwrap());
    drop(slot);
    assert!(freed.has_changed().unwrap());
    freed.mark_unchanged();
    quota.announce_free();
    assert!(!freed.has_changed().unwrap(), "nobody waits");
}

#[test]
fn a_pod_that_leaves_the_queue_blocks_no_other_pod() {
    let quota = quota(1, 2);
    let slot = take_slot(&quota, &ticket(1, "a", "a"));
    let (suspended, other) = (ticket(2, "b", "b1"), ticket(3, "c", "c"));
    expect_wait(&quota, &suspended);
    assert_eq!(expect_wait(&quota, &other), PodWait::Namespace { before: 1, most: 1 });
    let freed = quota.freed();
    quota.retain_queued(&suspended.workflow, |pod| *pod.name == *"b2");
    assert!(freed.has_changed().unwrap(), "who comes next has moved up");
    expect_wait(&quota, &suspended);
    drop(slot);
    assert_eq!(expect_wait(&quota, &other), PodWait::Namespace { before: 1, most: 1 }, "it has waited longer");
    quota.forget(&suspended.workflow);
    let _slot = take_slot(&quota, &other);
}

#[test]
fn no_pod_starts_before_the_first_list_or_where_not_allowed() {
    let index = Arc::new(PodIndex::default());
    let quota = Arc::new(PodQuota::new(PodSettings::default(), Arc::clone(&index)));
    assert_eq!(expect_wait(&quota, &ticket(1, "a", "a")), PodWait::Unknown);
    for event in [WatchEvent::Listing, WatchEvent::ListDone("1".to_owned())] {
        index.apply((Some("other".to_owned()), event));
    }
    assert_eq!(expect_wait(&quota, &ticket(1, "a", "a")), PodWait::Unknown, "that is another namespace");
    let namespaces = vec!["other".to_owned()];
    for settings in
        [PodSettings { namespaces, ..PodSettings::default() }, PodSettings { enabled: false, ..PodSettings::default() }]
    {
        let quota = Arc::new(PodQuota::new(settings, Arc::clone(&index)));
        assert_eq!(expect_wait(&quota, &ticket(1, "a", "a")), PodWait::PodsNotAllowed);
    }
}

#[test]
fn each_wait_has_a_message() {
    let message = |wait: PodWait| wait.message("team");
    let (reason, text) = message(PodWait::Namespace { before: 2, most: 5 });
    assert_eq!(
        (reason, text.contains("position 3 in the queue of namespace team, where at most 5 Pods")),
        ("Queued", true),
        "{text}"
    );
    assert!(
        message(PodWait::Workflow { before: 2, most: 2 })
            .1
            .contains("position 3 in the queue of its Workflow, which runs at most 2 Pods")
    );
    let (reason, text) = message(PodWait::PodsNotAllowed);
    assert_eq!((reason, text.contains("--pod-namespace")), ("PodsNotAllowed", true), "{text}");
}
