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

/// Returns the object to be created.
pub(super) fn pod(run: &RunRef, call: &Call, pod: &PodCall, digest: &Digest) -> Value {
    let spec = &pod.spec;
    let template = spec.pod_template.as_ref().map(|template| &template.0);
    let wished = |part: &str| -> Map<String, Value> {
        template.and_then(|template| template.get("metadata")?.get(part)?.as_object()).cloned().unwrap_or_default()
    };
    let mut annotations = wished("annotations");
    annotations.insert(names::ANNOTATION_INPUT_DIGEST.to_owned(), json!(digest));
    annotations.insert(names::ANNOTATION_PATH.to_owned(), json!(call.path));
    for (number, file) in spec.files.iter().enumerate() {
        annotations.insert(format!("{}{number}", names::ANNOTATION_FILE), json!(file.content));
    }
    let step = RecordPath::new(&call.path).last().name();
    let step = names::cut(step.trim_start_matches('.'), 63);
    let mut labels = wished("labels");
    labels.insert(names::LABEL_WORKFLOW.to_owned(), json!(run.workflow));
    labels.insert(names::LABEL_WORKFLOW_UID.to_owned(), json!(run.uid));
    labels.insert(names::LABEL_STEP.to_owned(), json!(step));
    let mut made = json!({
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
            "securityContext": of_pod(spec.security_context.as_ref()),
            "containers": [container(spec)],
            "volumes": volumes(spec),
        },
    });
    let fields = &mut made["spec"];
    let mut say = |name: &str, value: Value| fields[name] = value;
    if let Some(account) = &spec.service_account_name {
        say("serviceAccountName", json!(account));
    }
    if let Some(deadline) = spec.active_deadline {
        say("activeDeadlineSeconds", json!(deadline.duration().as_secs().max(1)));
    }
    if !spec.node_selector.is_empty() {
        say("nodeSelector", json!(spec.node_selector));
    }
    if !spec.tolerations.is_empty() {
        say("tolerations", json!(spec.tolerations));
    }
    if let Some(more) = template.and_then(|template| template.get("spec")) {
        merge("spec", fields, more);
    }
    made
}

fn of_pod(asked: Option<&SecurityContext>) -> Value {
    let asked = asked.cloned().unwrap_or_default();
    let mut context = json!({
        "runAsNonRoot": asked.run_as_non_root.unwrap_or(true),
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    for (name, value) in
        [("runAsUser", asked.run_as_user), ("runAsGroup", asked.run_as_group), ("fsGroup", asked.fs_group)]
    {
        if let Some(value) = value {
            context[name] = json!(value);
        }
    }
    context
}

fn of_container(asked: Option<&SecurityContext>) -> Value {
    let asked = asked.cloned().unwrap_or_default();
    let privileged = asked.privileged.unwrap_or(false);
    let add = asked.capabilities.map(|capabilities| capabilities.add).unwrap_or_default();
    let mut context = json!({
        // A privileged container can always escalate.
        "allowPrivilegeEscalation": asked.allow_privilege_escalation.unwrap_or(privileged),
        "readOnlyRootFilesystem": asked.read_only_root_filesystem.unwrap_or(false),
        "privileged": privileged,
        "capabilities": {"drop": ["ALL"]},
    });
    if !add.is_empty() {
        context["capabilities"]["add"] = json!(add);
    }
    context
}

fn container(spec: &PodStep) -> Value {
    let env: Vec<_> = spec
        .env
        .iter()
        .map(|one| match &one.value {
            // The kubelet would replace `$(NAME)` in a value by another variable, perhaps from a Secret, so `$` is
            // escaped.
            Some(value) => json!({"name": one.name, "value": value.replace('$', "$$")}),
            None => json!({"name": one.name, "valueFrom": one.value_from}),
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
        "securityContext": of_container(spec.security_context.as_ref()),
        "terminationMessagePolicy": "File",
    });
    let mut say = |name: &str, value: Value| container[name] = value;
    if !spec.command.is_empty() {
        say("command", json!(spec.command));
    }
    if !spec.args.is_empty() {
        say("args", json!(spec.args));
    }
    if let Some(resources) = &spec.resources {
        say("resources", json!(resources));
    }
    if let Some(policy) = spec.image_pull_policy {
        say("imagePullPolicy", json!(policy));
    }
    if let Some(path) = &spec.termination_message_path {
        say("terminationMessagePath", json!(path));
    }
    container
}

fn volumes(spec: &PodStep) -> Vec<Value> {
    let mut volumes: Vec<_> = spec
        .volumes
        .iter()
        .map(|volume| {
            let mut made = json!({"name": volume.name});
            if let Some(secret) = &volume.secret {
                made["secret"] = json!(secret);
            }
            if let Some(config_map) = &volume.config_map {
                made["configMap"] = json!(config_map);
            }
            if let Some(empty) = &volume.empty_dir {
                made["emptyDir"] = json!(empty);
            }
            if let Some(claim) = &volume.persistent_volume_claim {
                made["persistentVolumeClaim"] = json!(claim);
            }
            made
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
    let said = spec.pod_template.as_ref().and_then(|t| t.0.get("spec")?.get("terminationGracePeriodSeconds")?.as_u64());
    said.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(30)
}

/// Whether the response is the log, so that the log is not only for people.
pub(super) fn needs_log(spec: &PodStep) -> bool {
    spec.output_from == Some(OutputFrom::Log)
}
