//! The node itself: it runs pods to their ends, and reports their states as every kubelet does.

use k8s_openapi::api::core::v1::{ContainerState, Node, Pod};
use kube::Api;
use serde_json::json;
use signoff_tests::image::Named;

use crate::harness::{Harness, phase, shared};

fn state(pod: &Pod) -> ContainerState {
    let all = pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default();
    all.into_iter().next().and_then(|one| one.state).unwrap_or_default()
}

/// Returns the reason and the message of the waiting container.
fn waits_for(pod: Option<&Pod>) -> Option<(String, String)> {
    let waiting = state(pod?).waiting?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

#[tokio::test]
async fn the_node_is_ready() {
    let node = shared().await;
    let nodes: Api<Node> = Api::all(node.cluster().admin().await.unwrap());
    let object = nodes.get("node").await.unwrap();
    let info = object.status.unwrap().node_info.unwrap();
    assert!(info.container_runtime_version.starts_with("containerd://"), "{}", info.container_runtime_version);
    assert!(node.ready_in().as_secs() < 120, "{:?}", node.ready_in());
}

#[tokio::test]
async fn a_bare_pod_reports_its_message_exit_code_and_log() {
    let harness = Harness::open("node").await;
    harness.pod("well", "echo one; echo two; echo the result >/dev/termination-log", json!({})).await;
    harness.pod("ill", "echo the trouble; exit 7", json!({"terminationMessagePolicy": "FallbackToLogsOnError"})).await;
    let well = harness.pod_ended("well").await;
    assert_eq!(phase(Some(&well)), Some("Succeeded"));
    let ended = state(&well).terminated.unwrap();
    assert_eq!((ended.exit_code, ended.message.as_deref()), (0, Some("the result\n")));
    assert_eq!(ended.reason.as_deref(), Some("Completed"));
    assert_eq!(harness.log("well").await, "one\ntwo\n");

    let ill = harness.pod_ended("ill").await;
    assert_eq!(phase(Some(&ill)), Some("Failed"));
    let ended = state(&ill).terminated.unwrap();
    assert_eq!((ended.exit_code, ended.message.as_deref()), (7, Some("the trouble\n")));
}

#[tokio::test]
async fn a_container_over_its_memory_limit_is_reported_as_such() {
    let harness = Harness::open("memory").await;
    let few = json!({"resources": {"limits": {"memory": "16Mi"}}});
    // One line without an end, which `tail` keeps as a whole. The container runtime learns of the kernel's kill and of
    // the exit from two sources, so the shell delays the exit until the kill is known.
    harness.pod("greedy", "tail -n 1 /dev/zero || { code=$?; sleep 1; exit $code; }", few).await;
    let pod = harness.pod_ended("greedy").await;
    let ended = state(&pod).terminated.unwrap();
    assert_eq!((ended.reason.as_deref(), ended.exit_code), (Some("OOMKilled"), 137));
}

#[tokio::test]
async fn a_missing_image_is_reported_with_the_message_of_the_kubelet() {
    let harness = Harness::open("image").await;
    harness.pod("never", "true", json!({"image": "example.com/nothing:1", "imagePullPolicy": "Never"})).await;
    harness.pod("pulled", "true", json!({"image": "example.com/nothing:1"})).await;
    let never = |pod: Option<&Pod>| waits_for(pod).is_some_and(|(reason, _)| reason == "ErrImageNeverPull");
    harness.until("never", "says that it may not pull", never).await;
    let backs_off = |pod: Option<&Pod>| waits_for(pod).is_some_and(|(reason, _)| reason == "ImagePullBackOff");
    let pod = harness.until("pulled", "says that it cannot pull", backs_off).await;
    let (_, words) = waits_for(Some(&pod)).unwrap();
    assert!(words.contains("example.com/nothing:1"), "{words}");
}

#[tokio::test]
async fn an_image_is_found_only_by_its_own_digest() {
    let harness = Harness::open("digest").await;
    let busybox = shared().await.busybox();
    assert_eq!(busybox.name, "docker.io/library/busybox:1.36");
    harness.pod("by-digest", "true", json!({"image": busybox.by_digest()})).await;
    harness
        .pod("short", "true", json!({"image": format!("busybox@{}", busybox.digest), "imagePullPolicy": "Never"}))
        .await;
    let other = Named { digest: format!("sha256:{}", "0".repeat(64)), ..busybox.clone() };
    harness.pod("other", "true", json!({"image": other.by_digest(), "imagePullPolicy": "Never"})).await;
    for name in ["by-digest", "short"] {
        assert_eq!(phase(Some(&harness.pod_ended(name).await)), Some("Succeeded"), "{name}");
    }
    let refused = |pod: Option<&Pod>| waits_for(pod).is_some_and(|(reason, _)| reason == "ErrImageNeverPull");
    harness.until("other", "says that there is no such image", refused).await;
}

#[tokio::test]
async fn kubectl_logs_exec_and_delete_work() {
    let harness = Harness::open("kubectl").await;
    harness.pod("long", "echo started; sleep 3600", json!({})).await;
    let runs = |pod: Option<&Pod>| pod.is_some_and(|pod| state(pod).running.is_some());
    harness.until("long", "runs", runs).await;
    let kubectl = async |words: &[&str]| {
        let words = [&["-n", &harness.namespace.name], words].concat();
        harness.cluster.kubectl(words).run().await.unwrap().ok().unwrap()
    };
    // A container runs a moment before its output is in its log.
    assert_eq!(kubectl(&["logs", "long", "--follow", "--limit-bytes=8"]).await, "started\n");
    assert_eq!(kubectl(&["exec", "long", "--", "sh", "-c", "echo $((6 * 7))"]).await, "42\n");
    kubectl(&["delete", "pod", "long", "--wait=true"]).await;
}

#[tokio::test]
async fn a_pod_reaches_the_api_server_by_its_environment() {
    let harness = Harness::open("inside").await;
    let script = "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && \
                  test -s /var/run/secrets/kubernetes.io/serviceaccount/token";
    harness.pod("asks", script, json!({})).await;
    assert_eq!(phase(Some(&harness.pod_ended("asks").await)), Some("Succeeded"), "{}", harness.log("asks").await);
}
