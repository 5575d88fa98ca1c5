//! The kind `Workflow`: one run of an agent workflow, what shall happen and what did.
//!
//! The spec is its author's and, save for three fields, never changes; the status is the operator's.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    floor::AddedStep,
    journal::{Segment, StepRecord, Usage},
    pattern::Pattern,
    pod::PodGc,
    step::{HitlStep, Step},
    values::{Json, Moment, Span},
};

/// The most values of a run that may have another name than the usual one.
pub const MAX_VALUE_NAMES: usize = 1024;

/// What shall run.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "signoff.dev",
    version = "v1alpha1",
    kind = "Workflow",
    namespaced,
    shortname = "wf",
    category = "signoff",
    status = "WorkflowStatus",
    derive = "PartialEq",
    selectable = ".status.phase",
    doc = "A Workflow is one run of an agent workflow. It stops at every human gate until people whom the API server vouches for have decided, and goes on from there.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Waiting for", type_ = "string", json_path = ".status.pending[*]"),
    printcolumn(name = "Requester", type_ = "string", json_path = ".spec.requestedBy"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("size(self.metadata.name) <= 63").message("metadata.name has at most 63 characters: it is the value of a label on everything the run owns")
)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowSpec {
    /// Who created it, stamped by the API server (typed on clusters that cannot stamp).
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("requestedBy is immutable"))]
    pub requested_by: String,
    /// The person on whose behalf a service account created it; needs the verb `delegate` on that person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub requested_for: Option<String>,
    /// The parameters of the run and their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub inputs: Vec<Input>,
    /// Where models are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub providers: Vec<Provider>,
    /// Who does the thinking.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub agents: Vec<Agent>,
    /// Gates besides the steps: those with a `type` ask by themselves, about plans, answers, failures and results; those
    /// without one ask where `pattern` names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub gates: Vec<Gate>,
    /// The order of the steps, where they do not simply run one after the other. Exactly one of its fields. Default: a
    /// chain, which runs `steps` in the order of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Pattern>,
    /// Every step of the run. They run in this order unless `pattern` says otherwise. A step is a turn of an agent, a
    /// container, a request, a text or a gate, such as `{name: draft, agent: {name: writer, input: "Hello"}}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub steps: Vec<Step>,
    /// What the run has to show in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Outputs>,
    /// How long the run may take, not counting the time it waits for people. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline: Option<Span>,
    /// Which Pods of steps are deleted once they are done. Default: `OnSuccess`.
    #[serde(default, rename = "podGC", skip_serializing_if = "Option::is_none")]
    pub pod_gc: Option<PodGc>,
    /// Starts nothing new while true; gates stay decidable and their deadlines run. Mutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Ends the run as Cancelled. Mutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<bool>,
    /// Deletes the Workflow that long after its end; never without it. Mutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<Span>,
}

/// One parameter of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Templates say `inputs.<name>`.
    #[schemars(length(min = 1, max = 63), pattern("^[a-zA-Z_][a-zA-Z0-9_]*$"))]
    pub name: String,
    /// Default: string.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<InputType>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// Whether a run without it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// The value where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Json>,
    /// The only values it may have.
    #[serde(default, rename = "enum", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub enum_: Vec<Json>,
    /// The value of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
}

/// The types of inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "JSON Schema's own words")]
pub enum InputType {
    #[default]
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
}

/// Where models are. Exactly one of `openai` and `scripted`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.openai) != has(self.scripted)")
    .message("a provider is exactly one of openai and scripted"))]
pub struct Provider {
    /// Agents name it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Any server that speaks OpenAI's chat completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openai: Option<OpenAi>,
    /// Answers by a script: for demonstrations and tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripted: Option<Scripted>,
}

/// Any server that speaks OpenAI's chat completions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenAi {
    /// Up to and without `/chat/completions`.
    #[serde(rename = "baseURL")]
    #[schemars(length(min = 1, max = 512), pattern("^https?://"))]
    pub base_url: String,
    /// The key, from a Secret of the Workflow's namespace whose annotation `signoff.dev/allowed-hosts` names
    /// the host of `baseURL`, and which the Workflow's creator may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_from: Option<SecretKey>,
}

/// A key of a Secret in the Workflow's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Answers by a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scripted {
    /// The first whose `contains` occurs in what the agent was told last answers.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub replies: Vec<ScriptedReply>,
}

/// One line of a script: a text or an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.text) != has(self.error)").message("a scripted reply is either text or error"))]
pub struct ScriptedReply {
    /// What must occur in the last message; anything where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub contains: Option<String>,
    /// What the model says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub text: Option<String>,
    /// How the model fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub error: Option<String>,
}

/// Who does the thinking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Steps name it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// One of `spec.providers`. Default: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub provider: Option<String>,
    /// The model's name at its provider; a script needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub model: Option<String>,
    /// Its instructions, a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub system: Option<String>,
    /// How freely it chooses its words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// How long its answer may get, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: Option<i32>,
}

/// What the run has to show in the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outputs {
    /// A template. Default: the response of the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub from: Option<String>,
    /// Files: written under `--out` by a local run, kept by reference in `status.artifacts` on a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub artifacts: Vec<Artifact>,
}

/// One file that a run that succeeded leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Its relative path, a template: not absolute, and without `..`.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// What stands in it, a template.
    #[schemars(length(min = 1, max = 16384))]
    pub from: String,
    /// A CEL condition: where it holds, there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub skip_if: Option<String>,
}

/// A gate that is no step. With a `type` it asks by itself wherever the run comes to something of its kind; without one
/// it asks where a field of `pattern` names it, such as `routing.router.review`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// Unique in the list; a DNS label.
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The subject of a gate that asks by itself. Default: none, then exactly one field of `pattern` names the gate.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<SpecGateType>,
    /// The steps it is for: `refund` is the step of that name in every branch, `billing/refund` that of one branch.
    /// Default: for `errorEscalation` the steps with `onError: escalate`, for `outputValidation` the steps whose answer does
    /// not fit their `outputSchema`. Those it names are asked about always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 127)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub steps: Vec<String>,
    /// A CEL condition: the gate asks unless it is false. A condition that cannot be evaluated asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub condition: Option<String>,
    /// `errorEscalation`: after so many attempts, or as soon as a failure is not worth another attempt. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub after_attempts: Option<i32>,
    /// Who is asked what. Templates may use everything the step in question sees, and `error` or `output`.
    pub hitl: HitlStep,
}

/// What a gate of `spec.gates` asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SpecGateType {
    /// The route a router chose, or the parts an orchestrator made, before anything of it runs.
    #[default]
    PlanApproval,
    /// What the run has to show, before it is released.
    FinalResponse,
    /// What a step answered.
    OutputValidation,
    /// What to do about a step that failed, or whose outcome is not known.
    ErrorEscalation,
    /// A step that is about to begin: shows exactly what will run.
    StepStart,
}

/// What has happened so far. Written by the operator only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// Where the run stands.
    #[serde(default)]
    pub phase: WorkflowPhase,
    /// The number of the last event of this run.
    #[serde(default)]
    pub seq: i64,
    /// One sentence on why the run is where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Standard conditions: `Accepted` and `Waiting`; at the end `Finished` and one of `Complete` and `Failed`. Every other one,
    /// such as `Held`, `Stalled` or `PodsPending`, is listed only while it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The form of the journal: 2 where `segments` hold a part of it, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_version: Option<i32>,
    /// The digest of the spec without its mutable fields, pinned when the run was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The gates that policies of the administrators added when the run was accepted; they are part of the run like its
    /// own steps, whatever becomes of the policies. Each has `source` (the policy) and `step` (an entry of its `spec.steps`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Json>", length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub added_steps: Vec<AddedStep>,
    /// When the run was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Moment>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Moment>,
    /// The names of the open Approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub pending: Vec<String>,
    /// The part of the journal that moved out of this object because it grew long, oldest first. Each segment is a
    /// Blob that the Workflow owns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub segments: Vec<Segment>,
    /// How many bytes the long values of this run have together. They are in Blobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub value_bytes: Option<i64>,
    /// The names of Blobs whose usual name another object had, by the digest of the value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        with = "BTreeMap<String, String>",
        extend("maxProperties" = MAX_VALUE_NAMES, "additionalProperties" = {"type": "string", "maxLength": 63})
    )]
    pub value_names: BTreeMap<Digest, String>,
    /// The journal: one record an attempt at an activity. Records that are not finished are always here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["path".into(), "attempt".into()]))]
    pub steps: Vec<StepRecord>,
    /// What the run had to show in the end, where it is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub outputs: Option<String>,
    /// Where `outputs` is long: the digest and size of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_ref: Option<crate::journal::BlobRef>,
    /// The files of a run that succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub artifacts: Vec<ArtifactRef>,
    /// Tokens used by models, summed over the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Set while the run is set aside because the evaluation of its text was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// Since which attempts a run is set aside, and until when. Another generation or version of the operator lifts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quarantine {
    /// The generation that was evaluated.
    pub generation: i64,
    /// The version of the operator that evaluated it.
    #[schemars(length(min = 1, max = 64))]
    pub operator_version: String,
    /// The number of attempts that were stopped.
    #[schemars(range(min = 1))]
    pub failures: i32,
    /// The earliest moment of the next attempt.
    pub until: Moment,
}

/// A file of a run that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// Its relative path.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// Its content, among the run's blobs.
    pub content: crate::journal::BlobRef,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WorkflowPhase {
    /// Not looked at yet, or not accepted.
    #[default]
    Pending,
    /// Something is in flight.
    Running,
    /// Nothing is in flight but people's decisions.
    Waiting,
    /// Starts nothing new.
    Suspended,
    /// Ended well.
    Succeeded,
    /// Ended by an error.
    Failed,
    /// Ended by a person's no.
    Rejected,
    /// Ended by a person who stopped the whole run.
    Aborted,
    /// Ended by `spec.cancel`.
    Cancelled,
}

impl WorkflowPhase {
    /// Whether the run is over.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Rejected | Self::Aborted | Self::Cancelled)
    }

    /// As it stands in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Suspended => "Suspended",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Rejected => "Rejected",
            Self::Aborted => "Aborted",
            Self::Cancelled => "Cancelled",
        }
    }
}
