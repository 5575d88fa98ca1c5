//! The steps of a Workflow: the fields of each kind and the fields that all kinds share.
//!
//! A step is a definition; the journal has the results.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    gate::{Form, RejectPolicy, RequiredFrom, Subject, Timeout},
    pod::PodStep,
    sent_method::SentMethod,
    values::{self, JsonObject, Span},
    verdict::Verdict,
};

/// One step, with exactly one of `agent`, `pod`, `http`, `mcp`, `set` and `hitl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new(
    "(has(self.agent) ? 1 : 0) + (has(self.pod) ? 1 : 0) + (has(self.http) ? 1 : 0) + (has(self.mcp) ? 1 : 0) + (has(self.set) ? 1 : 0) + (has(self.hitl) ? 1 : 0) == 1")
    .message("a step must have exactly one of agent, pod, http, mcp, set and hitl"),
    validation = kube::core::Rule::new("!has(self.hitl) || (!has(self.retry) && !has(self.timeout) && !has(self.onError))")
    .message("a hitl step must not have retry, timeout or onError: remove them; its deadline is hitl.timeout"),
    validation = kube::core::Rule::new("!has(self.hitl) || !has(self.outputSchema)")
    .message("a hitl step must not have outputSchema: remove it; hitl.form describes the answer"))]
pub struct Step {
    /// The name of the step; templates read `steps.<name>`. A DNS label, unique among the steps of its branch; where
    /// there are no branches, among all steps.
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The branch (`parallel`) or the route (`routing`) of the step, such as `legal`; a DNS label. The steps of a
    /// branch run in the order of `spec.steps` and need not be adjacent there. In `parallel` only the step that
    /// `reduce` names has no branch. Other patterns have no branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub branch: Option<String>,
    /// In `dag`: the names of the steps that must finish before this one begins, such as `[fetch, check]`. Default: it
    /// begins at once. Not used by other patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub depends_on: Vec<String>,
    /// A turn of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStep>,
    /// A container that runs once, as a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodStep>,
    /// One HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpStep>,
    /// One call of a tool of an MCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpStep>,
    /// A rendered template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<SetStep>,
    /// A human gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hitl: Option<HitlStep>,
    /// Further names for the templates of this step, such as `{customer: "{{ inputs.order.customer }}"}`. Each value is
    /// a template.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub vars: BTreeMap<String, String>,
    /// The further attempts after a failure, such as `{limit: 3}`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The longest duration of one attempt, such as `90s`, `15m` or `2h`. Default: 5m for agents, 30s for http and mcp,
    /// 1h for pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// A CEL condition, such as `inputs.amount < 100`. If it is true, the step is skipped; if it has no value, the step
    /// fails, and a gate asks. Default: never skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub skip_if: Option<String>,
    /// The consequence of a failure for the run. Default: `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// A JSON Schema of the response, such as `{type: object, required: [score]}`. An agent whose answer does not match
    /// is asked again; any other step fails. Default: any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonObject>,
}

impl Step {
    /// Returns the step as its author wrote it, as YAML.
    #[must_use]
    pub fn definition(&self) -> String {
        values::as_yaml(self)
    }
}

/// The consequence of a failure for the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnError {
    /// The run fails.
    #[default]
    Fail,
    /// The run continues; the record of the step has the error.
    Continue,
    /// A gate of the type errorEscalation asks for a decision.
    Escalate,
}

/// A turn of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStep {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The message to the agent, a template.
    #[schemars(length(min = 1, max = 16384))]
    pub input: String,
    /// The earlier turns that the agent remembers. Default: `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
}

/// The earlier turns that an agent remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Conversation {
    /// All earlier turns of the agent in this run.
    #[default]
    Run,
    /// No earlier turns.
    Fresh,
}

/// One HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpStep {
    /// The HTTP method. Default: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The URL (http or https), a template. Values in path and query are percent-encoded. One value can be the whole
    /// URL or its beginning.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// The headers; each value is a template.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub headers: BTreeMap<String, String>,
    /// The headers whose values are keys of Secrets, such as `{name: Authorization, prefix: "Bearer ", from: letters}`.
    /// The URL must then begin with scheme, host and `/` as literal text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub secret_headers: Vec<SecretHeader>,
    /// The body, a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub body: Option<String>,
    /// The responses that count as success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Whether repeating the request does no harm. It is then repeated when its outcome is unknown. Default: true for
    /// PUT, DELETE, and GET and HEAD without a body; false otherwise, and with a header that names a method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
}

impl HttpStep {
    /// Whether the step is repeated when its outcome is unknown.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.idempotent.unwrap_or_else(|| SentMethod::of_step(self).is_idempotent())
    }
}

/// A header whose value is a key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretHeader {
    /// The name of the header. No other header of the step has it.
    #[schemars(length(min = 1, max = 63), pattern("^[A-Za-z0-9_-]+$"))]
    pub name: String,
    /// The text before the value, such as `Bearer ` with its space. No template. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), pattern("^[!-z|~ ]*$"))]
    pub prefix: Option<String>,
    /// The value: the name of an entry of `spec.secrets`. It has at least 16 bytes.
    #[schemars(length(min = 1, max = 63))]
    pub from: String,
}

/// The HTTP methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "HTTP's own words")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// Returns the name as in HTTP.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// The responses of an http step that count as success.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expect {
    /// The status codes. Default: 200 to 299.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), inner(range(min = 100, max = 599)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub status: Vec<i32>,
}

/// One call of a tool of an MCP server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpStep {
    /// One of `spec.servers`.
    #[schemars(length(min = 1, max = 20))]
    pub server: String,
    /// The server's own name of the tool. No template.
    #[schemars(length(min = 1, max = 64), pattern("^[A-Za-z0-9_-]+$"))]
    pub tool: String,
    /// The arguments, such as `{id: "{{ inputs.customer }}"}`. Each text in them is a template. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<JsonObject>,
}

/// A rendered template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetStep {
    /// The response of the step, a template.
    #[schemars(length(max = 16384))]
    pub value: String,
}

/// The further attempts after a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// The largest number of further attempts.
    #[schemars(range(min = 0, max = 20))]
    pub limit: i32,
    /// The pause before each further attempt. Default: 1s, doubled each time, at most 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The classes of failures that are retried: `OOMKilled`, `Evicted`, `Timeout`, … Default: every failure whose
    /// outcome is known and that is retryable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub on_reasons: Vec<String>,
    /// The exit codes of containers that are retried, in addition to `onReasons`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 1, max = 255)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub on_exit_codes: Vec<i32>,
}

/// The pauses between attempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    /// The first pause. Default: 1s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Span>,
    /// The factor from each pause to the next. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 10.0))]
    pub factor: Option<f64>,
    /// The longest pause. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Span>,
    /// The random part of each pause, 0 to 1. Default: 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub jitter: Option<f64>,
}

/// A human gate: the run waits for an Approval that is created from these fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.threshold) || self.approvers.exists(a, a.kind == 'Group') || self.threshold <= size(self.approvers)")
        .message("threshold must not be larger than the number of approvers: lower it or add approvers or a group").field_path(".threshold"),
    validation = kube::core::Rule::new("!has(self.escalateTo) || !has(self.allowedVerdicts) || 'Escalate' in self.allowedVerdicts")
        .message("escalateTo needs the verdict Escalate: add it to allowedVerdicts").field_path(".escalateTo"),
    validation = kube::core::Rule::new("!has(self.timeout) || !has(self.timeout.action) || self.timeout.action != 'Escalate' || has(self.timeout.escalation)")
        .message("timeout.action Escalate needs timeout.escalation: list the approvers that it adds").field_path(".timeout"),
    validation = kube::core::Rule::new("!has(self.timeout) || !has(self.timeout.default) || (has(self.timeout.action) && self.timeout.action == 'Default')")
        .message("timeout.default needs timeout.action Default: set the action or remove the default").field_path(".timeout")
)]
pub struct HitlStep {
    /// The question, a template.
    #[schemars(length(min = 1, max = 8192))]
    pub prompt: String,
    /// The context that approvers need to decide, a template. Clients show it as text of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub context_display: Option<String>,
    /// The earlier step whose response is reviewed. Default: the nearest earlier step that is not a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub reviews: Option<String>,
    /// The users, groups and service accounts that can decide.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// The number of different people who must agree. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub threshold: Option<i32>,
    /// The groups from which deciders must come, with their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// The number of Rejects that reject the request. Default: any, one Reject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_policy: Option<RejectPolicy>,
    /// Whether the requester cannot decide. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
    /// The user names that cannot decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub excluded: Vec<String>,
    /// The earlier gates whose deciders cannot decide here, by name; `*` for every other gate of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 95)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub exclude_deciders: Vec<String>,
    /// The verdicts that are allowed. Default: Approve, Reject and Abort; also Respond if one person decides or there
    /// are options, and Modify if a step is reviewed. Gates of `spec.gates` about tools, questions, starts and failures
    /// have other defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_verdicts: Vec<Verdict>,
    /// Whether every decision needs a reason. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_reason: Option<bool>,
    /// The form that Respond fills in. Default: one question with free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// Whether Approve can be listed although it leaves required questions of the form unanswered. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_unanswered: Option<bool>,
    /// The deadline and its consequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// The approvers that the verdict Escalate can add. Default: the levels of `timeout.escalation`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalate_to: Vec<Subject>,
    /// The consequence of Reject. Default: stop, the run ends as Rejected; at gates in front of tools and of questions:
    /// continue, and the agent is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_reject: Option<OnReject>,
    /// The value of `hitl_response` after Approve. Default: approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub approve_text: Option<String>,
    /// The value of `hitl_response` after Reject. Default: rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub reject_text: Option<String>,
    /// The channels of notices that are added to those of administrators, such as `[finance]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub notify: Vec<String>,
}

/// The consequence of Reject at a `hitl` step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnReject {
    /// The run ends as Rejected.
    #[default]
    Stop,
    /// The run continues and can read the decision.
    Continue,
}
