//! Builds the Pod of a step from its call *(pure)*, with restrictions that its author can lift.
//!
//! **Invariant:** to the fields that approvers reviewed, it adds only the owner and the fields that every Pod of a step
//! has.

use kube::Resource;
use serde_json::{Map, Value, json};
use signoff_api::{
    Digest, RecordPath, Workflow, names,
    pod::{CONTAINER, FILES, OutputFrom, PodStep, SecurityContext},
};
use signoff_engine::transition::{Call, PodCall};
use signoff_executor::RunRef;

/// Returns the Pod to be created for a call.
pub(super) fn build_pod(run: &RunRef, call: &Call, pod: &PodCall, digest: &Digest) -> Value {
    let spec = &pod.spec;
    let template = spec.pod_template.as_ref().map(|template| &template.0);
    let from_template = |part: &str| -> Map<String, Value> {
        template.and_then(|template| template.get("metadata")?.get(part)?.as_object()).cloned().unwrap_or_default()
    };
    let mut annotations = from_template("annotations");
    annotations.insert(names::ANNOTATION_INPUT_DIGEST.to_owned(), json!(digest));
    annotations.insert(names::ANNOTATION_PATH.to_owned(), json!(call.path));
    for (number, file) in spec.files.iter().enumerate() {
        annotations.insert(format!("{}{number}", names::ANNOTATION_FILE), json!(file.content));
    }
    let step = RecordPath::new(&call.path).last().name();
    let step = names::cut(step.trim_start_matches('.'), 63);
    let mut labels = from_template("labels");
    labels.insert(names::LABEL_WORKFLOW.to_owned(), json!(run.workflow));
    labels.insert(names::LABEL_WORKFLOW_UID.to_owned(), json!(run.uid));
    labels.insert(names::LABEL_STEP.to_owned(), json!(step));
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod.name, "namespace": run.namespace, "annotations": annotations, "labels": labels,
            "ownerReferences": [{
                "apiVersion": Workflow::api_version(&()), "kind": Workflow::kind(&()), "name": run.workflow,
                "uid": run.uid, "controller": true,
            }],
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": spec.service_account_name.is_some(),
            "enableServiceLinks": false,
            "securityContext": pod_security_context(spec.security_context.as_ref()),
            "containers": [build_container(spec)],
            "volumes": build_volumes(spec),
        },
    });
    let fields = &mut object["spec"];
    let mut set = |name: &str, value: Value| fields[name] = value;
    if let Some(account) = &spec.service_account_name {
        set("serviceAccountName", json!(account));
    }
    if let Some(deadline) = spec.active_deadline {
        set("activeDeadlineSeconds", json!(deadline.duration().as_secs().max(1)));
    }
    if !spec.node_selector.is_empty() {
        set("nodeSelector", json!(spec.node_selector));
    }
    if !spec.tolerations.is_empty() {
        set("tolerations", json!(spec.tolerations));
    }
    if let Some(more) = template.and_then(|template| template.get("spec")) {
        merge("spec", fields, more);
    }
    object
}

fn pod_security_context(written: Option<&SecurityContext>) -> Value {
    let written = written.cloned().unwrap_or_default();
    let mut context = json!({
        "runAsNonRoot": written.run_as_non_root.unwrap_or(true),
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    for (name, value) in
        [("runAsUser", written.run_as_user), ("runAsGroup", written.run_as_group), ("fsGroup", written.fs_group)]
    {
        if let Some(value) = value {
            context[name] = json!(value);
        }
    }
    context
}

fn container_security_context(written: Option<&SecurityContext>) -> Value {
    let written = written.cloned().unwrap_or_default();
    let privileged = written.privileged.unwrap_or(false);
    let add = written.capabilities.map(|capabilities| capabilities.add).unwrap_or_default();
    let mut context = json!({
        // A privileged container can always escalate.
        "allowPrivilegeEscalation": written.allow_privilege_escalation.unwrap_or(privileged),
        "readOnlyRootFilesystem": written.read_only_root_filesystem.unwrap_or(false),
        "privileged": privileged,
        "capabilities": {"drop": ["ALL"]},
    });
    if !add.is_empty() {
        context["capabilities"]["add"] = json!(add);
    }
    context
}

fn build_container(spec: &PodStep) -> Value {
    let env: Vec<_> = spec
        .env
        .iter()
        .map(|variable| match &variable.value {
            // The kubelet would replace `$(NAME)` in a value by another variable, perhaps from a Secret, so `$` is
            // escaped.
            Some(value) => json!({"name": variable.name, "value": value.replace('$', "$$")}),
            None => json!({"name": variable.name, "valueFrom": variable.value_from}),
        })
        .collect();
    let volumes = spec.volumes.iter().map(|volume| {
        let mut mount = json!({"name": volume.name, "mountPath": volume.mount_path});
        if let Some(path) = &volume.sub_path {
            mount["subPath"] = json!(path);
        }
        if let Some(read_only) = volume.read_only {
            mount["readOnly"] = json!(read_only);
        }
        mount
    });
    let files = spec.files.iter().enumerate().map(|(number, file)| {
        json!({"name": FILES, "mountPath": file.path, "subPath": number.to_string(), "readOnly": true})
    });
    let mut container = json!({
        "name": CONTAINER, "image": spec.image, "env": env,
        "volumeMounts": volumes.chain(files).collect::<Vec<_>>(),
        "securityContext": container_security_context(spec.security_context.as_ref()),
        "terminationMessagePolicy": "File",
    });
    let mut set = |name: &str, value: Value| container[name] = value;
    if !spec.command.is_empty() {
        set("command", json!(spec.command));
    }
    if !spec.args.is_empty() {
        set("args", json!(spec.args));
    }
    if let Some(resources) = &spec.resources {
        set("resources", json!(resources));
    }
    if let Some(policy) = spec.image_pull_policy {
        set("imagePullPolicy", json!(policy));
    }
    if let Some(path) = &spec.termination_message_path {
        set("terminationMessagePath", json!(path));
    }
    container
}

fn build_volumes(spec: &PodStep) -> Vec<Value> {
    let mut volumes: Vec<_> = spec
        .volumes
        .iter()
        .map(|volume| {
            let mut object = json!({"name": volume.name});
            if let Some(secret) = &volume.secret {
                object["secret"] = json!(secret);
            }
            if let Some(config_map) = &volume.config_map {
                object["configMap"] = json!(config_map);
            }
            if let Some(empty) = &volume.empty_dir {
                object["emptyDir"] = json!(empty);
            }
            if let Some(claim) = &volume.persistent_volume_claim {
                object["persistentVolumeClaim"] = json!(claim);
            }
            object
        })
        .collect();
    if !spec.files.is_empty() {
        let items: Vec<_> = (0..spec.files.len())
            .map(|number| {
                let field = format!("metadata.annotations['{}{number}']", names::ANNOTATION_FILE);
                json!({"path": number.to_string(), "fieldRef": {"fieldPath": field}})
            })
            .collect();
        volumes.push(json!({"name": FILES, "downwardAPI": {"items": items}}));
    }
    volumes
}

/// Merges a field as documented for `podTemplate`: objects by their fields, and lists of named items by their names.
/// Mounts are appended, and everything else is replaced.
fn merge(field: &str, into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(name, into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        // Mounts have the names of volumes, and a volume may be mounted twice.
        (Value::Array(into), Value::Array(from)) if matches!(field, "volumeMounts" | "volumeDevices") => {
            into.extend(from.iter().cloned());
        }
        (Value::Array(into), Value::Array(from)) if from.iter().all(|item| item.get("name").is_some()) => {
            for item in from {
                match into.iter_mut().find(|known| known.get("name") == item.get("name")) {
                    Some(known) => merge(field, known, item),
                    None => into.push(item.clone()),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Returns the grace period, in seconds.
pub(super) fn grace(spec: &PodStep) -> u32 {
    let template = spec.pod_template.as_ref();
    let seconds = template.and_then(|t| t.0.get("spec")?.get("terminationGracePeriodSeconds")?.as_u64());
    seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(30)
}

/// Whether the response is the log, so that the log is not only for people.
pub(super) fn needs_log(spec: &PodStep) -> bool {
    spec.output_from == Some(OutputFrom::Log)
}
