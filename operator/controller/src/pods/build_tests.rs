//! Tests of the object that is created for a step.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::{Digest, pod::PodStep};
use signoff_engine::transition::{Call, CallContent, PodCall};
use signoff_executor::RunRef;

use super::build;

fn pod_at(path: &str, step: Value) -> Value {
    let spec: PodStep = serde_json::from_value(step).unwrap();
    let pod_call = PodCall { name: "signoff-step-release-0123456789".to_owned(), spec };
    let run = RunRef { namespace: "team".to_owned(), workflow: "release".to_owned(), uid: "77aa".to_owned() };
    let call = Call {
        path: path.to_owned(),
        attempt: 1,
        idempotent: false,
        timeout: Duration::from_secs(60),
        content: CallContent::Pod(Box::new(pod_call.clone())),
    };
    build::build_pod(&run, &call, &pod_call, &Digest::of_bytes(b"input"))
}

fn pod_of(step: Value) -> Value {
    pod_at("build", step)
}

#[test]
fn a_container_is_restricted_by_default() {
    assert_eq!(
        pod_of(json!({"image": "tool@sha256:1"})),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "signoff-step-release-0123456789", "namespace": "team",
                "annotations": {"signoff.dev/input-digest": Digest::of_bytes(b"input"), "signoff.dev/path": "build"},
                "labels": {"signoff.dev/workflow": "release", "signoff.dev/workflow-uid": "77aa", "signoff.dev/step": "build"},
                "ownerReferences": [{
                    "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": "release", "uid": "77aa", "controller": true,
                }],
            },
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{
                    "name": "step", "image": "tool@sha256:1", "env": [], "volumeMounts": [],
                    "terminationMessagePolicy": "File",
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": false, "privileged": false,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }],
                "volumes": [],
            },
        })
    );
}

#[test]
fn the_fields_of_a_step_are_in_its_pod() {
    let pod = pod_of(json!({
        "image": "tool", "command": ["sh", "-c"], "args": ["echo \"$WHO\""], "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}, "serviceAccountName": "builder",
        "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "activeDeadline": "90s", "terminationMessagePath": "/out/result",
        "securityContext": {"runAsUser": 1000, "fsGroup": 2000, "readOnlyRootFilesystem": true, "capabilities": {"add": ["NET_BIND_SERVICE"]}},
    }));
    let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
    assert_eq!((&spec["serviceAccountName"], &spec["automountServiceAccountToken"]), (&json!("builder"), &json!(true)));
    assert_eq!((&spec["activeDeadlineSeconds"], &spec["nodeSelector"]), (&json!(90), &json!({"disk": "ssd"})));
    assert_eq!(spec["tolerations"], json!([{"key": "gpu", "operator": "Exists"}]));
    assert_eq!(
        spec["securityContext"],
        json!({"runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 2000, "seccompProfile": {"type": "RuntimeDefault"}})
    );
    assert_eq!((&container["command"], &container["args"]), (&json!(["sh", "-c"]), &json!(["echo \"$WHO\""])));
    assert_eq!(container["resources"], json!({"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}));
    assert_eq!(
        (&container["terminationMessagePath"], &container["imagePullPolicy"]),
        (&json!("/out/result"), &json!("Never"))
    );
    let context = &container["securityContext"];
    assert_eq!(context["capabilities"], json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}));
    assert_eq!((&context["readOnlyRootFilesystem"], &context["privileged"]), (&json!(true), &json!(false)));
}

#[test]
fn a_container_is_privileged_only_on_request() {
    let pod = pod_of(json!({"image": "tool", "securityContext": {"privileged": true, "runAsNonRoot": false}}));
    let context = &pod["spec"]["containers"][0]["securityContext"];
    // An API server refuses a privileged container without privilege escalation.
    assert_eq!((&context["privileged"], &context["allowPrivilegeEscalation"]), (&json!(true), &json!(true)));
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], false);
}

#[test]
fn the_value_of_a_variable_is_not_expanded() {
    let secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let pod = pod_of(json!({"image": "tool", "env": [
        {"name": "KEY", "valueFrom": secret},
        {"name": "SAID", "value": "$(KEY) $$(KEY) ${KEY} costs 5$"},
    ]}));
    let env = &pod["spec"]["containers"][0]["env"];
    assert_eq!(env[0], json!({"name": "KEY", "valueFrom": secret}));
    // A kubelet turns `$$` into `$`, and expands `$(KEY)` only after a single `$`.
    assert_eq!(env[1]["value"], "$$(KEY) $$$$(KEY) $${KEY} costs 5$$");
}

#[test]
fn files_are_stored_in_annotations_and_mounted_read_only() {
    let files = json!([{"path": "/in/plan.json", "content": "{}"}, {"path": "/in/note", "content": "$(KEY)"}]);
    let pod = pod_of(json!({"image": "tool", "files": files}));
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(
        (&annotations["signoff.dev/file-0"], &annotations["signoff.dev/file-1"]),
        (&json!("{}"), &json!("$(KEY)"))
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "signoff-files", "downwardAPI": {"items": [
            {"path": "0", "fieldRef": {"fieldPath": "metadata.annotations['signoff.dev/file-0']"}},
            {"path": "1", "fieldRef": {"fieldPath": "metadata.annotations['signoff.dev/file-1']"}},
        ]}}])
    );
    assert_eq!(
        pod["spec"]["containers"][0]["volumeMounts"][1],
        json!({"name": "signoff-files", "mountPath": "/in/note", "subPath": "1", "readOnly": true})
    );
}

#[test]
fn volumes_are_named_and_mounted_as_written() {
    let pod = pod_of(json!({"image": "tool", "volumes": [
        {"name": "keys", "mountPath": "/keys", "readOnly": true, "secret": {"secretName": "deploy"}},
        {"name": "settings", "mountPath": "/etc/tool.yaml", "subPath": "tool.yaml", "configMap": {"name": "tool"}},
        {"name": "work", "mountPath": "/work", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "data"}},
    ]}));
    assert_eq!(
        pod["spec"]["volumes"],
        json!([
            {"name": "keys", "secret": {"secretName": "deploy"}},
            {"name": "settings", "configMap": {"name": "tool"}},
            {"name": "work", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ])
    );
    let mounts = &pod["spec"]["containers"][0]["volumeMounts"];
    assert_eq!(mounts[0], json!({"name": "keys", "mountPath": "/keys", "readOnly": true}));
    assert_eq!(mounts[1], json!({"name": "settings", "mountPath": "/etc/tool.yaml", "subPath": "tool.yaml"}));
}

#[test]
fn a_template_is_merged_by_name_and_replaces_other_lists() {
    let pod = pod_of(json!({
        "image": "tool", "volumes": [{"name": "work", "mountPath": "/work", "emptyDir": {}}],
        "tolerations": [{"key": "gpu"}],
        "podTemplate": {
            "metadata": {"labels": {"team": "pay"}},
            "spec": {
                "priorityClassName": "low", "securityContext": {"supplementalGroups": [7]},
                "containers": [{"name": "step", "stdin": true, "securityContext": {"privileged": false}}, {"name": "side", "image": "proxy"}],
                "volumes": [{"name": "extra", "emptyDir": {}}],
                "tolerations": [{"operator": "Exists"}],
            },
        },
    }));
    let spec = &pod["spec"];
    assert_eq!(
        (&pod["metadata"]["labels"]["team"], &pod["metadata"]["labels"]["signoff.dev/step"]),
        (&json!("pay"), &json!("build"))
    );
    assert_eq!(spec["priorityClassName"], "low");
    assert_eq!(spec["securityContext"]["supplementalGroups"], json!([7]));
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true, "what is not said stays");
    let containers = spec["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!((&containers[0]["image"], &containers[0]["stdin"]), (&json!("tool"), &json!(true)));
    assert_eq!(containers[0]["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(containers[1], json!({"name": "side", "image": "proxy"}));
    assert_eq!(spec["volumes"].as_array().unwrap().len(), 2);
    assert_eq!(spec["tolerations"], json!([{"operator": "Exists"}]), "a list of things without names is replaced");
}

#[test]
fn the_label_of_a_nested_step_is_its_own_name() {
    let long = "a".repeat(63);
    for (path, label) in [
        ("build", "build"),
        ("build#3", "build"),
        ("eu/build", "build"),
        ("eu#2/build#10", "build"),
        ("workers/.worker-2", "worker-2"),
        (&*format!("x/{long}"), &*long),
    ] {
        let pod = pod_at(path, json!({"image": "tool"}));
        assert_eq!(pod["metadata"]["labels"]["signoff.dev/step"], label, "{path}");
        assert_eq!(pod["metadata"]["annotations"]["signoff.dev/path"], path);
    }
}
