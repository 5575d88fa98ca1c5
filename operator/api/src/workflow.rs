//! The kind `Workflow`: the definition of one run of an agent workflow, and its state.
//!
//! The author writes the spec, which is immutable except for three fields; the operator writes the status.

mod price;
mod provider;
mod restored;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::price::Price;
pub use self::provider::{
    ModelApi, OpenAi, OpenAiApi, Provider, ProviderKind, Scripted, ScriptedCall, ScriptedReply, SecretEntry,
};
use crate::{
    digest::Digest,
    journal::{Segment, StepRecord, Usage},
    pattern::Pattern,
    pod::PodGc,
    policy::AddedStep,
    seq::Seq,
    server::Server,
    step::{HitlStep, Step},
    tool::{AgentLimits, Preset, Tool},
    values::{Json, Moment, Span},
};

/// The maximum number of values of a run whose Blob does not have its default name.
pub const MAX_VALUE_NAMES: usize = 1024;

/// The definition of a run.
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
    doc = "A Workflow is one run of an agent workflow. It stops at every human gate until people whom the API server has \
        authenticated decide, and then continues.\n\n\
        Its author writes `spec`. The API server sets or verifies `spec.requestedBy`, and refuses every change of `spec` \
        after the creation, except of `suspend`, `cancel` and `ttlAfterFinished`. Only the operator writes `status`, \
        which is the journal of the run. The phases Succeeded, Failed, Rejected, Aborted and Cancelled are final: a \
        finished run never runs again, and another run is another Workflow. The Workflow owns its Approvals, Blobs and \
        Pods, and they are deleted with it; a deletion that would orphan them is refused. Signoff sets no finalizer. As \
        soon as a deletion begins, nothing new starts; a call that was sent cannot be taken back. The operator deletes a \
        Workflow when `ttlAfterFinished` has passed since the end of its run, and never without it.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Requester", type_ = "string", json_path = ".spec.requestedBy"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    validation = kube::core::Rule::new("size(self.metadata.name) <= 63").message("metadata.name must have at most 63 characters, because it is the value of a label on every object of the run")
)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowSpec {
    /// The user who created the Workflow. The API server sets it; before Kubernetes 1.36 the author sets it and the API
    /// server checks it.
    // Optional in the schema, because clients check a list against it before the API server fills the field in. The
    // admission policy requires it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("requestedBy is immutable"))]
    pub requested_by: String,
    /// The person on whose behalf a service account created the Workflow. Requires the verb `delegate` on that person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub requested_for: Option<String>,
    /// Whether this is a copy from a backup: it keeps its requester and never runs. Requires the verb `restore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<bool>,
    /// The run that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<RerunOf>,
    /// The parameters of the run and their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub inputs: Vec<Input>,
    /// The keys of Secrets that the run uses, such as `{name: models, secret: models, key: token}`. Every other field
    /// names an entry of this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub secrets: Vec<SecretEntry>,
    /// The model providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub providers: Vec<Provider>,
    /// The MCP servers, such as `{name: crm, url: "https://crm.example.com/mcp", key: crm, read: ["get_*"]}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub servers: Vec<Server>,
    /// The tools: steps that agents can call, such as
    /// `{name: send-letter, step: letter, description: "Send a letter.", effects: irreversible}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub tools: Vec<Tool>,
    /// The agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub agents: Vec<Agent>,
    /// Gates that are not steps. A gate with a `type` asks about plans, answers, failures or results; a gate without
    /// one asks where `pattern` names it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".into()]))]
    pub gates: Vec<Gate>,
    /// The order of the steps, given by exactly one of its fields. Default: a chain, which runs `steps` in the order of
    /// the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Pattern>,
    /// Every step of the run. They run in this order unless `pattern` says otherwise. A step is a turn of an agent, a
    /// container, a request, a text or a gate, such as `{name: draft, agent: {name: writer, input: "Hello"}}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub steps: Vec<Step>,
    /// The result of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Outputs>,
    /// The longest duration of the run, without the time in which it waits for decisions. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline: Option<Span>,
    /// The finished Pods of steps that are deleted. Default: `OnSuccess`.
    #[serde(default, rename = "podGC", skip_serializing_if = "Option::is_none")]
    pub pod_gc: Option<PodGc>,
    /// Whether the run is suspended: nothing new starts, but gates can be decided and their deadlines run. Mutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Whether the run is cancelled: it ends as Cancelled. Mutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<bool>,
    /// The time after the end of the run at which the Workflow is deleted. Default: never. Mutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<Span>,
}

impl WorkflowSpec {
    /// Returns the users that `excludeRequester` excludes: the requester, the person on whose behalf it acts, and the
    /// requesters of the runs that this one repeats.
    pub fn requesters(&self) -> impl Iterator<Item = &String> {
        let earlier = self.rerun_of.iter().flat_map(|rerun| &rerun.requesters);
        self.requested_for.iter().chain([&self.requested_by]).chain(earlier)
    }

    /// Whether a step runs only as a tool, outside of the order of steps.
    #[must_use]
    pub fn runs_as_tool(&self, step: &Step) -> bool {
        step.branch.is_none() && self.tools.iter().any(|tool| tool.step == step.name)
    }
}

/// The run that a run repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RerunOf {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its uid.
    #[schemars(length(min = 36, max = 36))]
    pub uid: String,
    /// Its requesters, and those of the runs that it repeats: `excludeRequester` excludes them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub requesters: Vec<String>,
}

impl RerunOf {
    /// The maximum number of earlier requesters.
    pub const MAX_REQUESTERS: usize = 8;
    /// The maximum length of the name of an earlier requester, in characters.
    pub const MAX_NAME: usize = 253;
}

/// One parameter of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// The name of the input; templates read `inputs.<name>`.
    #[schemars(length(min = 1, max = 63), pattern("^[a-zA-Z_][a-zA-Z0-9_]*$"))]
    pub name: String,
    /// The type of the value. Default: string.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<InputType>,
    /// A description for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// Whether a Workflow without a value is refused. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// The value if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Json>,
    /// The allowed values. Default: any value.
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

/// An agent: a model with instructions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The name by which steps refer to the agent.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// One of `spec.providers`. Default: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub provider: Option<String>,
    /// The name of the model at its provider. Not needed for scripted replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub model: Option<String>,
    /// The system prompt, a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub system: Option<String>,
    /// The sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// The largest number of tokens in an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: Option<i32>,
    /// The tools that the agent may call: names of `spec.tools`, tools of `spec.servers` such as `crm.refund`, globs
    /// such as `crm.*`, and the built-in `ask-human`.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 85), pattern("^[A-Za-z0-9_*.-]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub tools: Vec<String>,
    /// The limits of one step of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<AgentLimits>,
    /// The prices of the model, by which `status.usage.cost` is computed. Default: no cost is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outputs {
    /// The result as text, a template. Default: the response of the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub from: Option<String>,
    /// The files of the result. A local run writes them under `--out`; on a cluster `status.artifacts` refers to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub artifacts: Vec<Artifact>,
}

/// One file of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// The path, a template; relative and without `..`.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// The content, a template.
    #[schemars(length(min = 1, max = 16384))]
    pub from: String,
    /// A CEL condition. If it is true or has no value, the file is not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub skip_if: Option<String>,
}

/// A gate that is not a step. With a `type` it asks whenever the run reaches a subject of that type; without a type it
/// asks where a field of `pattern` names it, such as `routing.router.review`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// Unique in the list; a DNS label.
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The subject of the gate. Default: none, and exactly one field of `pattern` must name the gate.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<SpecGateType>,
    /// The steps to which the gate applies: `refund` is the step of that name in every branch, `billing/refund` that of
    /// one branch. Default: for `errorEscalation` the steps with `onError: escalate`, for `outputValidation` the steps
    /// whose answer does not match their `outputSchema`. The gate always asks about the steps that are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 127)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub steps: Vec<String>,
    /// Several gates at once, instead of `type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// `specificTools`: the tools whose calls the gate asks about, by name or glob; `!name` leaves out what a glob
    /// matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 86), pattern("^!?[A-Za-z0-9_*.-]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub tools: Vec<String>,
    /// `toolExecution` and `destructiveActions`: the tools that run without this gate, by name or glob; `!name` is
    /// always asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 86), pattern("^!?[A-Za-z0-9_*.-]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_tools: Vec<String>,
    /// A CEL condition. The gate asks unless it is false; it also asks if the condition cannot be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub condition: Option<String>,
    /// `errorEscalation`: the number of attempts after which the gate asks; it asks earlier if a retry is pointless.
    /// Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub after_attempts: Option<i32>,
    /// The request of the gate. Its templates can read everything that the step can read, and `error` or `output`;
    /// those of a gate in front of tools read `args`, `tool`, `effects`, `agent`, `agents`, `inputs` and `run`.
    pub hitl: HitlStep,
}

/// The subject of a gate of `spec.gates`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SpecGateType {
    /// The route of a router, or the parts of an orchestrator, before they run.
    #[default]
    PlanApproval,
    /// The result of the run, before it is released.
    FinalResponse,
    /// The answer of a step.
    OutputValidation,
    /// The handling of a step that failed or whose outcome is unknown.
    ErrorEscalation,
    /// A step before it starts, with exactly what will run.
    StepStart,
    /// Every call of a tool.
    ToolExecution,
    /// The calls of the tools that the gate lists.
    SpecificTools,
    /// The calls of tools that are not known to change nothing.
    DestructiveActions,
    /// The calls of tools for which the condition of the gate is true or cannot be evaluated.
    Custom,
    /// The questions of agents: calls of `ask-human`.
    Question,
}

/// The state of a run. Written by the operator only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// The phase of the run.
    #[serde(default)]
    pub phase: WorkflowPhase,
    /// The number of the last event of this run.
    #[serde(default)]
    pub seq: Seq,
    /// One sentence on the reason of the phase: the Approvals that the run waits for, why it is held, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Standard conditions: `Accepted` and `Waiting`; at the end `Finished` and one of `Complete` and `Failed`. Other
    /// conditions, such as `Held`, `Stalled` or `PodsPending`, are listed only while they apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The format of the journal: 1, or 2 if `segments` contain a part of it; 3 and 4 are the same where an agent
    /// called a tool, 5 and 6 where its provider also wants parts of the answer back. 7 to 12 are the same with a
    /// record of an MCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_version: Option<i32>,
    /// The digest of the spec without its mutable fields, recorded when the run was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The number of the meaning of Workflows under which the run was accepted. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<i32>,
    /// The gates that approval policies added when the run was accepted. They stay part of the run when the policies
    /// change. Each has `source` (the policy) and `step` (an entry of its `spec.steps`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Json>", length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub added_steps: Vec<AddedStep>,
    /// The time at which the run was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Moment>,
    /// The time at which the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Moment>,
    /// The names of the open Approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub pending: Vec<String>,
    /// The parts of a long journal that were moved out of this object, oldest first. Each segment is a Blob of the
    /// Workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub segments: Vec<Segment>,
    /// The total number of bytes of the long values of the run, which are in Blobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub value_bytes: Option<i64>,
    /// The names of Blobs whose usual name was taken, by the digest of the value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        with = "BTreeMap<String, String>",
        extend("maxProperties" = MAX_VALUE_NAMES, "additionalProperties" = {"type": "string", "maxLength": 63})
    )]
    pub value_names: BTreeMap<Digest, String>,
    /// The journal: one record for each attempt at an activity. Unfinished records are always in this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["path".into(), "attempt".into()]))]
    pub steps: Vec<StepRecord>,
    /// The result of the run, if it is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub outputs: Option<String>,
    /// The reference to the whole result, if it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_ref: Option<crate::journal::BlobRef>,
    /// The files of the result of a run that succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub artifacts: Vec<ArtifactRef>,
    /// Tokens used by models, summed over the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The quarantine of the run, present while the run is set aside because the evaluation of its text was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// The quarantine of a run. A new generation or another version of the operator ends it, some minutes later if `until`
/// is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quarantine {
    /// The generation that was evaluated.
    pub generation: i64,
    /// The version of the operator that evaluated it.
    #[schemars(length(min = 1, max = 64))]
    pub operator_version: String,
    /// The number of evaluations of the run that were stopped.
    #[schemars(range(min = 1))]
    pub failures: i32,
    /// The earliest time of the next attempt. Absent: there is none before the spec changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
}

/// A file of the result of a run that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// The relative path.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// The reference to the content.
    pub content: crate::journal::BlobRef,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WorkflowPhase {
    /// Not reconciled yet, or not accepted.
    #[default]
    Pending,
    /// At least one step is in flight.
    Running,
    /// Only decisions are pending.
    Waiting,
    /// Suspended: nothing new starts.
    Suspended,
    /// Ended with success.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Ended by a Reject.
    Rejected,
    /// Ended by an Abort.
    Aborted,
    /// Ended by `spec.cancel`.
    Cancelled,
}

impl WorkflowPhase {
    /// Whether the run has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Rejected | Self::Aborted | Self::Cancelled)
    }

    /// Returns the name as it is stored in objects.
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
