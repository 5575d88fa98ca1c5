//! Tests of the states of Pods, as kubelets, schedulers and the control plane write them.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use signoff_cluster::kinds::DecodedKind;

use super::{
    StepPod,
    state::{PodProblem, PodState},
};

/// Returns a Pod with a spec and a status, as the API server returns it.
fn read(spec: &Value, status: &Value) -> StepPod {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "signoff-step-release-0123456789", "namespace": "team", "uid": "2f6c", "resourceVersion": "4711",
            "creationTimestamp": "2026-11-22T09:30:00Z", "generation": 1,
            "labels": {"signoff.dev/workflow": "release", "signoff.dev/workflow-uid": "77aa", "signoff.dev/step": "build"},
            "annotations": {"signoff.dev/input-digest": "sha256:ab", "signoff.dev/path": "build", "signoff.dev/file-0": "a long file", "team.example/note": "x"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"},
                {"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": "release", "uid": "77aa", "controller": true}
            ],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:conditions": {}}}, "subresource": "status"}],
        },
        "spec": spec, "status": status,
    });
    StepPod::read(pod).unwrap()
}

fn state(status: Value) -> PodState {
    read(&json!({"nodeName": "node-1", "containers": [{"name": "step", "image": "tool"}]}), &status).state()
}

fn container(state: Value) -> Value {
    json!([{"name": "step", "image": "tool", "imageID": "", "ready": false, "restartCount": 0, "started": false, "state": state, "lastState": {}}])
}

fn problem(reason: &str, message: &str) -> PodProblem {
    PodProblem { reason: reason.to_owned(), message: message.to_owned() }
}

#[test]
fn only_the_needed_fields_of_a_pod_are_kept() {
    let pod = read(&json!({"nodeName": "node-1"}), &json!({"phase": "Pending"}));
    assert_eq!((pod.uid(), pod.node.as_deref()), ("2f6c", Some("node-1")));
    assert_eq!(pod.owner(), Some(("release", "77aa")));
    assert_eq!(pod.input_digest(), Some("sha256:ab"));
    assert_eq!(pod.created().unwrap().to_string(), "2026-11-22T09:30:00Z");
    let debug = format!("{pod:?}");
    for gone in ["a long file", "team.example", "kubelet"] {
        assert!(!debug.contains(gone), "{gone} is kept: {debug}");
    }
}

#[test]
fn the_owner_of_a_pod_is_proven_by_the_guarded_label() {
    let owned = |labels: Value| {
        let owner = json!([{"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": "release", "uid": "77aa", "controller": true}]);
        StepPod::read(
            json!({"metadata": {"name": "p", "namespace": "team", "labels": labels, "ownerReferences": owner}}),
        )
        .unwrap()
        .owner()
        .is_some()
    };
    assert!(owned(json!({"signoff.dev/workflow": "release"})));
    for labels in [json!(null), json!({"signoff.dev/workflow-uid": "77aa"}), json!({"signoff.dev/workflow": "other"})] {
        assert!(!owned(labels.clone()), "{labels}");
    }
}

#[test]
fn a_failed_init_container_is_named() {
    let waiting = container(json!({"waiting": {"reason": "PodInitializing"}}));
    let before = |end: Value| {
        state(json!({"phase": "Failed", "containerStatuses": waiting, "initContainerStatuses": [
            {"name": "fine", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "prepare", "state": {"terminated": end}}]}))
    };
    let end = json!({"exitCode": 3, "reason": "Error", "message": "no such table"});
    let why = problem("InitFailed", "its container prepare ended with exit code 3: Error: no such table");
    assert_eq!(before(end), PodState::Failed(why));
    assert_eq!(
        before(json!({"exitCode": 1})),
        PodState::Failed(problem("InitFailed", "its container prepare ended with exit code 1"))
    );
}

#[test]
fn more_containers_leave_fewer_bytes_for_a_message() {
    let max_bytes = |containers: usize, before: usize| {
        let list = |n| vec![json!({"name": "x"}); n];
        read(&json!({"containers": list(containers), "initContainers": list(before)}), &json!({})).max_message_bytes()
    };
    assert_eq!([max_bytes(1, 0), max_bytes(2, 1), max_bytes(2, 2), max_bytes(3, 3)], [4096, 4096, 3072, 2048]);
}

#[test]
fn a_container_that_ended_before_the_deletion_is_not_its_effect() {
    let ended_in = |over: &str, grace: i64, at: &str| {
        let pod = json!({
            "metadata": {"name": "p", "deletionTimestamp": over, "deletionGracePeriodSeconds": grace},
            "status": {"containerStatuses": container(json!({"terminated": {"exitCode": 0, "finishedAt": at}}))},
        });
        let pod = StepPod::read(pod).unwrap();
        let PodState::Ended(end) = pod.state() else { return None };
        Some(pod.deletion_requested_before_exit(&end))
    };
    let ended = |at: &str| ended_in("2026-11-22T10:00:30Z", 30, at);
    assert_eq!(ended("2026-11-22T09:59:59Z"), Some(false));
    assert_eq!(ended("2026-11-22T10:00:00Z"), Some(true), "in doubt it was");
    assert_eq!(ended("2026-11-22T10:00:12Z"), Some(true));
    // The grace period makes no difference.
    assert_eq!(ended_in("2026-11-24T17:33:20Z", 200_000, "2026-11-22T10:00:01Z"), Some(true));
    assert_eq!(ended_in("2026-11-22T10:00:30Z", i64::MIN, "2026-11-22T10:00:01Z"), Some(false));
}

#[test]
fn a_pod_that_does_not_run_yet_is_pending_with_its_reason() {
    assert_eq!(state(json!({})), PodState::Pending(None), "as it was created");
    let creating = container(json!({"waiting": {"reason": "ContainerCreating"}}));
    assert_eq!(state(json!({"phase": "Pending", "containerStatuses": creating})), PodState::Pending(None));
    let unscheduled = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastProbeTime": null,
        "lastTransitionTime": "2026-11-22T09:30:00Z", "message": "0/3 nodes are available: 3 Insufficient memory."}]});
    let why = problem("Unschedulable", "0/3 nodes are available: 3 Insufficient memory.");
    assert_eq!(state(unscheduled), PodState::Pending(Some(why)));
    for reason in ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"] {
        let waiting = container(json!({"waiting": {"reason": reason, "message": "its words"}}));
        let found = state(json!({"phase": "Pending", "containerStatuses": waiting}));
        assert_eq!(found, PodState::Pending(Some(problem(reason, "its words"))));
    }
    // Init containers delay the step's container.
    let found = state(json!({
        "phase": "Pending", "containerStatuses": container(json!({"waiting": {"reason": "PodInitializing"}})),
        "initContainerStatuses": [{"name": "prepare", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}],
    }));
    assert_eq!(found, PodState::Pending(Some(problem("ImagePullBackOff", "no such image"))));
}

#[test]
fn two_reasons_about_an_image_are_the_same_problem() {
    let [pull, back_off, config] =
        ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"].map(|reason| problem(reason, reason));
    assert!(pull.is_like(&back_off) && back_off.is_like(&pull) && config.is_like(&config));
    assert!(!config.is_like(&pull));
}

#[test]
fn other_containers_do_not_change_the_state_of_a_step() {
    let running = json!({"running": {"startedAt": "2026-11-22T09:30:05Z"}});
    assert_eq!(state(json!({"phase": "Running", "containerStatuses": container(running.clone())})), PodState::Running);
    let ended = json!({"terminated": {"exitCode": 3, "reason": "Error", "message": "no such table", "startedAt": null, "finishedAt": "2026-11-22T09:31:00Z", "containerID": "containerd://1"}});
    let mut statuses = container(ended);
    statuses.as_array_mut().unwrap().push(json!({"name": "side", "state": running}));
    let pod = read(&json!({}), &json!({"phase": "Running", "containerStatuses": statuses}));
    let PodState::Ended(end) = pod.state() else { unreachable!("{pod:?}") };
    assert_eq!((end.exit_code, end.reason.as_str(), end.message.as_str()), (3, "Error", "no such table"));
    assert!(!pod.is_finished() && !pod.is_ending(), "another container runs on");
    let side = json!([{"name": "side", "state": {"terminated": {"exitCode": 1}}}]);
    assert_eq!(
        state(json!({"phase": "Running", "containerStatuses": side})),
        PodState::Pending(None),
        "that is not the step's"
    );
}

#[test]
fn a_pod_that_the_cluster_ended_has_its_reason() {
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
    assert_eq!(state(evicted.clone()), PodState::Failed(problem("Evicted", "The node was low on resource: memory.")));
    let ended = json!({"terminated": {"exitCode": 137, "reason": "Error"}});
    let mut late = evicted;
    late["containerStatuses"] = container(ended);
    let pod = read(&json!({}), &late);
    assert!(matches!(pod.state(), PodState::Ended(_)));
    assert_eq!(pod.end_by_cluster().unwrap().reason, "Evicted");
    let preempted = json!({"phase": "Failed", "conditions": [
        {"type": "Ready", "status": "False"},
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempting to accommodate a higher priority pod"}]});
    let why = problem("Evicted", "PreemptionByScheduler: preempting to accommodate a higher priority pod");
    assert_eq!(state(preempted), PodState::Failed(why));
}

#[test]
fn a_container_of_a_lost_node_is_lost() {
    let lost = json!({
        "phase": "Failed", "containerStatuses": container(json!({"running": {"startedAt": "2026-11-22T09:30:05Z"}})),
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}],
    });
    assert_eq!(state(lost), PodState::Lost(problem("Evicted", "DeletionByPodGC: PodGC: node no longer exists")));
}

#[test]
fn an_incomplete_status_is_pending_or_failed() {
    for status in [
        json!({"phase": "Unknown"}),
        json!({"conditions": [], "containerStatuses": []}),
        json!({"phase": "Running", "containerStatuses": container(json!({}))}),
    ] {
        assert_eq!(state(status), PodState::Pending(None));
    }
    assert_eq!(
        state(json!({"phase": "Succeeded"})),
        PodState::Failed(problem("PodFailed", "the cluster gave no reason")),
        "nobody saw its container"
    );
}
