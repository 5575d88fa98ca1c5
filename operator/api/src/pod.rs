//! The `pod` step: a container that runs once, and the fields its Pod is built from.
//!
//! **Invariant:** only `env` and `files` have templates; a rendered value is never part of a command line.

use std::collections::{BTreeMap, BTreeSet};

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::values::{JsonObject, Span};

/// The name of the step's own container in its Pod.
pub const CONTAINER: &str = "step";
/// The name of the volume with the files of the step.
pub const FILES: &str = "signoff-files";

/// A container that runs once, as a Pod in the Workflow's namespace. `image`, `command` and `args` are never
/// templates: rendered values reach the container as environment variables or files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("!has(self.tailLines) || (has(self.outputFrom) && self.outputFrom == 'log')")
    .message("tailLines needs outputFrom: log").field_path(".tailLines"))]
pub struct PodStep {
    /// The image. With `@sha256:…` exactly that image runs, even if the tag has moved.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// The command that replaces the entrypoint of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 16384)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub command: Vec<String>,
    /// The arguments of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 16384)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub args: Vec<String>,
    /// The environment variables of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
    /// Files that are mounted into the container, for long values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["path".into()]))]
    pub files: Vec<File>,
    /// The resources of the container, as in a Pod: `requests` and `limits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// The service account of the Pod. Default: none, and no token is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// The labels that the node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_selector: BTreeMap<String, String>,
    /// The taints of nodes that the Pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
    /// The volumes of the Pod and their mount paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub volumes: Vec<Volume>,
    /// The security context of the container. Default: the restricted profile of the Pod Security Standards. The image
    /// must then have a user other than root, or `runAsUser` must name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// Default: Always for the tag `latest`, IfNotPresent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// The source of the response. Default: termination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_from: Option<OutputFrom>,
    /// The file to which the container writes its termination message, at most 4 KiB. Default:
    /// `/dev/termination-log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub termination_message_path: Option<String>,
    /// The number of lines at the end of the log that are the response. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub tail_lines: Option<i32>,
    /// The longest time until the container runs, which includes scheduling and pulling the image. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<Span>,
    /// The longest time that the Pod runs, enforced by the kubelet. Default: the `timeout` of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline: Option<Span>,
    /// Whether running the container twice does no harm. It is then repeated when its outcome is unknown. Default:
    /// false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Fields of a Pod that have no field here, as `{metadata: …, spec: …}`, merged into the Pod. Lists of named items
    /// are merged by name (the container of the step is `step`), mounts are appended, other lists are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<JsonObject>,
}

impl PodStep {
    /// Whether the step is repeated when its outcome is unknown.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.idempotent.unwrap_or(false)
    }

    /// Returns all images of the Pod: that of the step, and those of the containers and volumes of its `podTemplate`.
    #[must_use]
    pub fn images(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::from([self.image.clone()]);
        for value in self.pod_template.iter().flat_map(|template| template.0.values()) {
            images_in(value, &mut found);
        }
        found
    }

    /// Returns the names of all Secrets in the Pod.
    #[must_use]
    pub fn secrets(&self) -> BTreeSet<String> {
        let of_env = self.env.iter().filter_map(|one| one.value_from.as_ref()?.secret_key_ref.as_ref());
        let of_volumes = self.volumes.iter().filter_map(|volume| volume.secret.as_ref());
        let named = of_env.map(|key| key.name.clone()).chain(of_volumes.map(|secret| secret.secret_name.clone()));
        let mut found: BTreeSet<_> = named.collect();
        for value in self.pod_template.iter().flat_map(|template| template.0.values()) {
            named_in(value, &mut found);
        }
        found
    }
}

/// Collects the images in a part of a Pod: a container has `image`, and an image volume has `image.reference`.
fn images_in(part: &Value, found: &mut BTreeSet<String>) {
    match part {
        Value::Object(fields) => {
            if let Some(image) = fields.get("image") {
                found.extend(image.as_str().or_else(|| image["reference"].as_str()).map(str::to_owned));
            }
            fields.values().for_each(|value| images_in(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| images_in(item, found)),
        _ => {}
    }
}

/// Collects the names of the Secrets in a part of a Pod, from every field that refers to a Secret.
fn named_in(part: &Value, found: &mut BTreeSet<String>) {
    match part {
        Value::Object(fields) => {
            for (field, value) in fields {
                match field.as_str() {
                    "secretName" => found.extend(value.as_str().map(str::to_owned)),
                    // A projected volume calls its Secret just `secret`, and a volume's own has a `secretName`.
                    "secret" | "secretRef" | "secretKeyRef" | "nodePublishSecretRef" => {
                        found.extend(value["name"].as_str().map(str::to_owned));
                    }
                    "imagePullSecrets" => {
                        let list = value.as_array().into_iter().flatten();
                        found.extend(list.filter_map(|one| one["name"].as_str().map(str::to_owned)));
                    }
                    _ => {}
                }
                named_in(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| named_in(item, found)),
        _ => {}
    }
}

/// One environment variable: a value, or its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.value) != has(self.valueFrom)")
    .message("a variable has either value or valueFrom"))]
pub struct EnvVar {
    /// The name of the variable.
    #[schemars(length(min = 1, max = 253), pattern("^[-._a-zA-Z][-._a-zA-Z0-9]*$"))]
    pub name: String,
    /// A template; at most 64 KiB once rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub value: Option<String>,
    /// A key of a Secret or ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueFrom>,
}

/// A key of a Secret or of a ConfigMap of the Workflow's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.secretKeyRef) != has(self.configMapKeyRef)")
    .message("valueFrom is exactly one of secretKeyRef and configMapKeyRef"))]
pub struct ValueFrom {
    /// A key of a Secret. The kubelet reads it, the operator does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKey>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<SecretKey>,
}

/// A key of an object in the namespace of the Workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the object.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A file in the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// The absolute path of the file.
    #[schemars(length(min = 2, max = 253), pattern("^/"))]
    pub path: String,
    /// A template; all files of a step together have at most 192 KiB once rendered.
    #[schemars(length(max = 16384))]
    pub content: String,
}

/// The resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// The resources that a node must have free.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8, "additionalProperties" = {"type": "string", "maxLength": 32}))]
    pub requests: BTreeMap<String, String>,
    /// The largest amounts that the container uses.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8, "additionalProperties" = {"type": "string", "maxLength": 32}))]
    pub limits: BTreeMap<String, String>,
}

/// A taint of nodes that a Pod tolerates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's key; every taint where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// Equal or Exists. Default: Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub operator: Option<String>,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; all of them where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub effect: Option<String>,
    /// The time for which `NoExecute` is tolerated, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// A volume and its mount path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("(has(self.secret) ? 1 : 0) + (has(self.configMap) ? 1 : 0) + (has(self.emptyDir) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0) == 1")
    .message("a volume is exactly one of secret, configMap, emptyDir and persistentVolumeClaim; others go into podTemplate"))]
pub struct Volume {
    /// Unique in the list; a DNS label.
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The absolute path at which the volume is mounted.
    #[schemars(length(min = 2, max = 253), pattern("^/"))]
    pub mount_path: String,
    /// The only file or folder of the volume that is mounted. Default: the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub sub_path: Option<String>,
    /// Whether the volume is mounted read-only. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// A Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// A `ConfigMap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolume>,
    /// An empty folder that is deleted with the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    /// An existing PersistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
}

/// A Secret of the Workflow's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolume {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// A `ConfigMap` of the Workflow's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapVolume {
    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// An empty folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDir {
    /// The largest size of the folder, such as `64Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub size_limit: Option<String>,
}

/// A `PersistentVolumeClaim` of the Workflow's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// The name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
}

/// The security context of a container. Fields that are absent have the values of the restricted profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityContext {
    /// The numeric user id. Default: the user of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// The numeric group id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    /// The group that owns its volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// Whether the user must not be root. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// Whether the root filesystem is read-only. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,
    /// Whether a process may gain more privileges than its parent. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// Whether the container runs privileged. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// The Linux capabilities of the container. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
}

/// Capabilities of a container. All others are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// The capabilities that are added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 41), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub add: Vec<String>,
}

/// The pull policy of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "Kubernetes' own words")]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// The source of the response of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutputFrom {
    /// The termination message, at most 4 KiB.
    #[default]
    Termination,
    /// The log: standard output and standard error.
    Log,
}

/// The finished Pods of a run that are deleted before the Workflow is. All Pods of a run that was rejected, aborted or
/// cancelled are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodGc {
    /// The Pods whose step succeeded.
    #[default]
    OnSuccess,
    /// Every finished Pod.
    OnCompletion,
    /// Only Pods that were stopped because their deadline passed.
    Never,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_finds_every_secret_of_a_pod() {
        let pod: PodStep = serde_json::from_value(json!({
            "image": "x",
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "of-env", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "no-secret", "key": "k"}}}],
            "volumes": [{"name": "v", "mountPath": "/v", "secret": {"secretName": "of-volume"}}],
            "podTemplate": {"spec": {
                "imagePullSecrets": [{"name": "of-registry"}],
                "containers": [{"name": "step", "envFrom": [{"secretRef": {"name": "of-all"}}]},
                    {"name": "side", "env": [{"name": "C", "valueFrom": {"secretKeyRef": {"name": "of-side", "key": "k"}}}]}],
                "volumes": [{"name": "p", "projected": {"sources": [{"secret": {"name": "of-projection"}}]}},
                    {"name": "s", "secret": {"secretName": "of-template"}},
                    {"name": "c", "csi": {"nodePublishSecretRef": {"name": "of-driver"}}}],
            }},
        }))
        .unwrap();
        let expected =
            ["of-all", "of-driver", "of-env", "of-projection", "of-registry", "of-side", "of-template", "of-volume"];
        assert_eq!(pod.secrets().into_iter().collect::<Vec<_>>(), expected);
    }
}
