//! A step that is a container: what its Pod is made from.
//!
//! It may not hold templates but in `env` and `files`: a rendered value is never part of a command line.

use std::collections::{BTreeMap, BTreeSet};

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    values::{JsonObject, Span},
    workflow::SecretKey,
};

/// The name of the step's own container in its Pod.
pub const CONTAINER: &str = "step";
/// The name of the volume that holds its files.
pub const FILES: &str = "signoff-files";

/// A container that runs once, as a Pod in the Workflow's namespace. `image`, `command` and `args` are taken as they
/// stand: what a template renders reaches the container as environment or as a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("!has(self.tailLines) || (has(self.outputFrom) && self.outputFrom == 'log')")
    .message("tailLines counts lines of the log: it needs outputFrom log").field_path(".tailLines"))]
pub struct PodStep {
    /// The image; with `@sha256:…` exactly that one runs, whatever its tag says by then.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// What runs instead of the image's own entrypoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 16384)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub command: Vec<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 16384)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
    /// Files that it finds, for values that are long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["path".into()]))]
    pub files: Vec<File>,
    /// What it may use, in Kubernetes' words: `requests` and `limits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// As whom it may ask the API server. Default: as nobody, it gets no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Labels that its node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that it bears.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
    /// What is mounted where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub volumes: Vec<Volume>,
    /// What it may do on its node. Default: the restricted profile of the Pod Security Standards, so the image must
    /// have a user other than root, or `runAsUser` name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// Default: Always for the tag `latest`, IfNotPresent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// What the response is. Default: termination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_from: Option<OutputFrom>,
    /// The file that the container writes its termination message to, of at most 4 KiB. Default:
    /// `/dev/termination-log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub termination_message_path: Option<String>,
    /// How many of the last lines of the log are the response. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub tail_lines: Option<i32>,
    /// How long it may take until the container runs: a node has to be found, an image to be pulled. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<Span>,
    /// How long it may run, as the kubelet counts it. Default: as long as the step's `timeout` lets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline: Option<Span>,
    /// Whether running it twice does no harm, so that it may run again when its outcome is not known. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Merged into the Pod: everything that has no field here, as `{metadata: …, spec: …}`. Lists of named things are
    /// merged by name, the step's container is named `step`; mounts are added; other lists are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<JsonObject>,
}

impl PodStep {
    /// Whether it may be repeated when its outcome is not known.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.idempotent.unwrap_or(false)
    }

    /// The Secrets that its Pod names, wherever it names them.
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

/// The Secrets that a part of a Pod names, by every field in which Kubernetes has such a name.
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

/// One variable of the environment: a value, or where it is taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.value) != has(self.valueFrom)")
    .message("a variable has either value or valueFrom"))]
pub struct EnvVar {
    /// Its name.
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
    /// A key of a Secret. The operator does not read it: the kubelet does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKey>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<SecretKey>,
}

/// A file that the container finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Its absolute path.
    #[schemars(length(min = 2, max = 253), pattern("^/"))]
    pub path: String,
    /// A template; all files of a step together have at most 192 KiB once rendered.
    #[schemars(length(max = 16384))]
    pub content: String,
}

/// What a container may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What a node must have free for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8, "additionalProperties" = {"type": "string", "maxLength": 32}))]
    pub requests: BTreeMap<String, String>,
    /// What it may use at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8, "additionalProperties" = {"type": "string", "maxLength": 32}))]
    pub limits: BTreeMap<String, String>,
}

/// A taint of nodes that a Pod bears.
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
    /// How long `NoExecute` is borne.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// A volume and where it is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("(has(self.secret) ? 1 : 0) + (has(self.configMap) ? 1 : 0) + (has(self.emptyDir) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0) == 1")
    .message("a volume is exactly one of secret, configMap, emptyDir and persistentVolumeClaim; others go into podTemplate"))]
pub struct Volume {
    /// Unique in the list; a DNS label.
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Where the container finds it.
    #[schemars(length(min = 2, max = 253), pattern("^/"))]
    pub mount_path: String,
    /// Only this file or folder of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub sub_path: Option<String>,
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// A Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// A `ConfigMap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolume>,
    /// An empty folder that goes with the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    /// A claim that exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
}

/// A Secret of the Workflow's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolume {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// A `ConfigMap` of the Workflow's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapVolume {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// An empty folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDir {
    /// How much it may hold: `64Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub size_limit: Option<String>,
}

/// A `PersistentVolumeClaim` of the Workflow's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
}

/// What a container may do on its node. What is not said is as the restricted profile has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityContext {
    /// The number of its user. Default: the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// The number of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    /// The group that owns its volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
}

/// Capabilities of a container. All others are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// Those it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 41), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub add: Vec<String>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "Kubernetes' own words")]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// What of a container is the step's response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutputFrom {
    /// Its termination message: at most 4 KiB.
    #[default]
    Termination,
    /// Its log: standard output and standard error.
    Log,
}

/// Which Pods of a run are deleted once they are done. All go with the Workflow; none stays of a run that was
/// rejected, aborted or cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodGc {
    /// Those whose step ended well.
    #[default]
    OnSuccess,
    /// Each.
    OnCompletion,
    /// None, but those that had to be ended because their time was over.
    Never,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn every_secret_that_a_pod_names_is_known() {
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
