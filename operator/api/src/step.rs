//! The steps of a pattern: what each kind does and what all have in common.
//!
//! A step says what shall happen and holds nothing of what did: that is the journal's.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    gate::{Form, RejectPolicy, RequiredFrom, Subject, Timeout},
    pod::PodStep,
    values::{self, JsonObject, Span},
    verdict::Verdict,
};

/// One step. Exactly one of `agent`, `pod`, `http`, `set` and `hitl` says what it does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new(
    "(has(self.agent) ? 1 : 0) + (has(self.pod) ? 1 : 0) + (has(self.http) ? 1 : 0) + (has(self.set) ? 1 : 0) + (has(self.hitl) ? 1 : 0) == 1")
    .message("a step does exactly one thing: give one of agent, pod, http, set and hitl"),
    validation = kube::core::Rule::new("!has(self.hitl) || (!has(self.retry) && !has(self.timeout) && !has(self.onError))")
    .message("a hitl step has its own hitl.timeout and never fails by itself: leave out retry, timeout and onError"),
    validation = kube::core::Rule::new("!has(self.hitl) || !has(self.outputSchema)")
    .message("people answer a hitl step by its form: leave out outputSchema"))]
pub struct Step {
    /// Templates say `steps.<name>`. A DNS label, unique among the steps of its branch; where there are no branches, among
    /// all steps.
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// In `parallel` the branch, in `routing` the route that the step belongs to, such as `legal`; a DNS label. The steps
    /// of a branch run in the order of `spec.steps` and may stand apart there. In `parallel` only the step that `reduce`
    /// names has no branch. Other patterns have no branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub branch: Option<String>,
    /// In `dag`: the names of the steps that are done before this one begins, such as `[fetch, check]`. Default: it begins
    /// at once. Other patterns have an order of their own.
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
    /// Nothing but a rendered template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<SetStep>,
    /// A human gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hitl: Option<HitlStep>,
    /// Further names for this step's templates, such as `{customer: "{{ inputs.order.customer }}"}`; each value is a
    /// template itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub vars: BTreeMap<String, String>,
    /// How often it is tried again when it failed, such as `{limit: 3}`. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The longest time of one attempt, such as `90s`, `15m` or `2h`. Default: 5m for agents, 30s for http, 1h for pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// A CEL condition, such as `inputs.amount < 100`: where it holds, the step is skipped. Default: never skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub skip_if: Option<String>,
    /// The meaning of a failure for the run. Default: `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// A JSON Schema of the response, such as `{type: object, required: [score]}`: an agent whose answer holds no JSON like
    /// that is asked again, any other step fails. Default: any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonObject>,
}

impl Step {
    /// The step as its author wrote it, as YAML.
    #[must_use]
    pub fn definition(&self) -> String {
        values::as_yaml(self)
    }
}

/// What a failure means for the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnError {
    /// The run fails.
    #[default]
    Fail,
    /// The run goes on; the step's record says that it failed, and why.
    Continue,
    /// People are asked, by a gate of the type errorEscalation.
    Escalate,
}

/// A turn of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStep {
    /// One of `spec.agents`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// What it is told, a template.
    #[schemars(length(min = 1, max = 16384))]
    pub input: String,
    /// `fresh` starts without what this agent said and heard earlier in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
}

/// What an agent remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Conversation {
    /// Its earlier turns of this run.
    #[default]
    Run,
    /// Nothing.
    Fresh,
}

/// One HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpStep {
    /// Default: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// http or https, a template. Values in its path and query are percent-encoded; one value may be the whole URL, or its
    /// beginning.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// Each value is a template.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub headers: BTreeMap<String, String>,
    /// A template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub body: Option<String>,
    /// Which answers are a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Whether repeating it does no harm, so that it may be sent again when its outcome is not known.
    /// Default: true for GET, HEAD, PUT and DELETE, false otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
}

impl HttpStep {
    /// Whether it may be repeated when its outcome is not known.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.idempotent.unwrap_or(self.method.unwrap_or_default().is_idempotent())
    }
}

/// The methods an http step may use.
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
    /// Whether HTTP says that repeating a request of this method does no harm.
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        !matches!(self, Self::Post | Self::Patch)
    }

    /// As HTTP writes it.
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

/// Which answers of an http step are a success.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expect {
    /// Status codes. Default: 200 to 299.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), inner(range(min = 100, max = 599)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub status: Vec<i32>,
}

/// Nothing but a rendered template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetStep {
    /// A template; the step's response.
    #[schemars(length(max = 16384))]
    pub value: String,
}

/// How often and how fast a failed step is tried again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How many further attempts.
    #[schemars(range(min = 0, max = 20))]
    pub limit: i32,
    /// The pause before each. Default: 1s, doubled each time, at most 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Only failures of these classes are tried again: `OOMKilled`, `Evicted`, `Timeout`, … Default: all whose outcome is
    /// known and that may end otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub on_reasons: Vec<String>,
    /// Only containers that end with one of these codes run again, besides what `onReasons` says.
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
    /// What each pause is multiplied by for the next. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 10.0))]
    pub factor: Option<f64>,
    /// The longest pause. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Span>,
    /// Which part of a pause is left to chance, 0 to 1. Default: 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub jitter: Option<f64>,
}

/// A human gate: the run waits for an Approval made from these fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.threshold) || self.approvers.exists(a, a.kind == 'Group') || self.threshold <= size(self.approvers)")
        .message("threshold is larger than the number of named approvers, so nobody could ever approve: lower it or name a group").field_path(".threshold"),
    validation = kube::core::Rule::new("!has(self.escalateTo) || !has(self.allowedVerdicts) || 'Escalate' in self.allowedVerdicts")
        .message("escalateTo needs Escalate among allowedVerdicts").field_path(".escalateTo"),
    validation = kube::core::Rule::new("!has(self.timeout) || !has(self.timeout.action) || self.timeout.action != 'Escalate' || has(self.timeout.escalation)")
        .message("timeout.action Escalate needs timeout.escalation: who else is asked?").field_path(".timeout"),
    validation = kube::core::Rule::new("!has(self.timeout) || !has(self.timeout.default) || (has(self.timeout.action) && self.timeout.action == 'Default')")
        .message("timeout.default is the answer of timeout.action Default: set that action or leave the default out").field_path(".timeout")
)]
pub struct HitlStep {
    /// What is asked, a template.
    #[schemars(length(min = 1, max = 8192))]
    pub prompt: String,
    /// What people need to know to decide, a template. It is shown as the run's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub context_display: Option<String>,
    /// The earlier step that is decided about. Default: the nearest earlier step that is not a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub reviews: Option<String>,
    /// Who may decide.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// How many distinct people must agree. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub threshold: Option<i32>,
    /// So many of them from these groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// How many Rejects it takes. Default: any, one suffices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_policy: Option<RejectPolicy>,
    /// Whether the requester may not decide. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
    /// User names that may not decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub excluded: Vec<String>,
    /// What people may decide. Default: Approve, Reject and Abort; Respond where one person decides or there
    /// are options; Modify where a step is reviewed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_verdicts: Vec<Verdict>,
    /// Whether every decision needs a reason. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_reason: Option<bool>,
    /// What Respond has to fill in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// What happens when nobody decides in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// Whom the verdict Escalate may add; empty means the levels of `timeout.escalation`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalate_to: Vec<Subject>,
    /// What Reject does. Default: stop, the run ends as Rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_reject: Option<OnReject>,
    /// What `hitl_response` says after Approve. Default: approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub approve_text: Option<String>,
    /// What `hitl_response` says after Reject. Default: rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub reject_text: Option<String>,
}

/// What Reject does at a `hitl` step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnReject {
    /// The run ends as Rejected.
    #[default]
    Stop,
    /// The run goes on and can read the decision.
    Continue,
}
