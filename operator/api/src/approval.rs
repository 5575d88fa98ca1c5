//! The kind `Approval`: one question to people, their decisions, and what came of them.
//!
//! Two writers, two places: the operator writes `spec.request` once and all of `status`; each person writes
//! only their own entry of `spec.decisions`. Nobody writes both.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::{self, Digest},
    gate::{Also, Form, PersonRule, RejectPolicy, RequiredFrom, Subject, Timeout},
    journal::BlobRef,
    values::{JsonObject, Moment},
    verdict::Verdict,
};

/// A question and the decisions about it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "signoff.dev",
    version = "v1alpha1",
    kind = "Approval",
    namespaced,
    shortname = "appr",
    category = "signoff",
    status = "ApprovalStatus",
    derive = "PartialEq",
    selectable = ".status.phase",
    doc = "An Approval is one question of a Workflow to people: who may decide, how many of them, until when, and what they decided.",
    printcolumn(name = "Workflow", type_ = "string", json_path = ".spec.request.workflow.name"),
    printcolumn(name = "Gate", type_ = "string", json_path = ".spec.request.gate.path"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Have", type_ = "integer", json_path = ".status.tally.have"),
    printcolumn(name = "Need", type_ = "integer", json_path = ".spec.request.threshold"),
    printcolumn(name = "Decided by", type_ = "string", json_path = ".status.outcome.decidedBy[*]"),
    printcolumn(name = "Deadline", type_ = "string", json_path = ".spec.request.deadline"),
    printcolumn(name = "Prompt", type_ = "string", json_path = ".spec.request.prompt", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new(
        "!has(oldSelf.spec.decisions) || oldSelf.spec.decisions.all(k, has(self.spec.decisions) && k in self.spec.decisions && (self.spec.decisions[k] == oldSelf.spec.decisions[k] || (has(oldSelf.status) && has(oldSelf.status.invalid) && k in oldSelf.status.invalid && oldSelf.status.invalid[k].attempt == (has(oldSelf.spec.decisions[k].attempt) ? oldSelf.spec.decisions[k].attempt : 1) && has(self.spec.decisions[k].attempt) && self.spec.decisions[k].attempt == oldSelf.status.invalid[k].attempt + 1)))")
        .message("a decision is final: only its author may replace it, only after that very attempt was found invalid (status.invalid), and with attempt set to the next number")
        .field_path(".spec.decisions"),
    validation = kube::core::Rule::new("oldSelf.hasValue() || self.metadata.name.endsWith('-' + self.spec.request.digest.substring(7, 17))")
        .optional_old_self(true)
        .message("metadata.name must end with the first ten hex digits of spec.request.digest"),
    validation = kube::core::Rule::new("!has(oldSelf.status) || !has(oldSelf.status.outcome) || (has(self.status) && has(self.status.outcome) && self.status.outcome == oldSelf.status.outcome)")
        .message("status.outcome is final")
)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalSpec {
    /// What is asked. Written by the operator at creation, immutable.
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("request is immutable"))]
    pub request: ApprovalRequest,
    /// One entry a person, under that person's user name as the API server knows it, or
    /// `<person> via <me>` when one decides on behalf of another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub decisions: BTreeMap<String, Decision>,
}

/// What is asked, of whom, until when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// The run that waits.
    pub workflow: WorkflowRef,
    /// Where in the run.
    pub gate: GateRef,
    /// The digest of the Workflow's spec.
    pub spec_digest: Digest,
    /// The guard's epoch when it was asked.
    #[schemars(length(max = 80))]
    pub guard_epoch: String,
    /// When the first timeout happens.
    pub deadline: Moment,
    /// After which instant no vote counts; absent where the first timeout does not end the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Moment>,
    /// The question.
    #[schemars(length(min = 1, max = 16384))]
    pub prompt: String,
    /// What people need to know, in the run's own words; the first 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub context: Option<String>,
    /// The whole of `context` where it is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_ref: Option<BlobRef>,
    /// The step that is decided about, and its response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews: Option<Review>,
    /// What Respond has to fill in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// What may be decided.
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_verdicts: Vec<Verdict>,
    /// Whether every decision needs a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_reason: Option<bool>,
    /// Who may decide; after an escalation `status.approvers` is in force instead.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// How many distinct people must agree.
    #[schemars(range(min = 1, max = 64))]
    pub threshold: i32,
    /// So many of them from these groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["group".into()]))]
    pub required_from: Vec<RequiredFrom>,
    /// How many Rejects it takes. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_policy: Option<RejectPolicy>,
    /// Whether the requester may not decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_requester: Option<bool>,
    /// Who created the Workflow.
    #[schemars(length(min = 1, max = 512))]
    pub requested_by: String,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub requested_for: Option<String>,
    /// User names that may not decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub excluded: Vec<String>,
    /// Further quorums, all to be met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub also: Vec<Also>,
    /// Which user names are one person. Where there are any, a name that no rule matches does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub persons: Vec<PersonRule>,
    /// What happens when nobody decides in time.
    pub timeout: Timeout,
    /// Whom the verdict Escalate may add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalate_to: Vec<Subject>,
    /// SHA-256 over the canonical JSON (RFC 8785) of every other field of this request.
    pub digest: Digest,
}

impl ApprovalRequest {
    /// The digest that `digest` must be: of every field but itself.
    ///
    /// # Errors
    /// Numbers that JSON readers round differently.
    pub fn digest_of_the_rest(&self) -> Result<Digest, digest::Error> {
        let mut value = serde_json::to_value(self)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("digest");
        }
        Digest::of(&value)
    }
}

/// The run that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowRef {
    /// Its name, in the Approval's namespace.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its uid.
    #[schemars(length(min = 36, max = 36))]
    pub uid: String,
}

/// Where in the run a gate stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateRef {
    /// The step's name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// What kind of gate.
    #[serde(rename = "type")]
    pub type_: GateType,
    /// The path of its record in the journal.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// 1 for the first time it asks.
    #[schemars(range(min = 1, max = 1000))]
    pub visit: i32,
}

/// The kinds of gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GateType {
    /// An explicit `hitl` step.
    #[default]
    Step,
}

/// The step that is decided about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    /// Its path in the journal.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// The first 4 KiB of its response.
    #[schemars(length(max = 8192))]
    pub response: String,
    /// The digest of the whole response.
    pub digest: Digest,
}

/// One person's decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("(oldSelf.hasValue() && oldSelf.value() == self) || !has(self.parameters) || self.verdict in ['Modify', 'Retry']")
        .optional_old_self(true).message("parameters belong to Modify or Retry"),
    validation = kube::core::Rule::new("(oldSelf.hasValue() && oldSelf.value() == self) || self.verdict != 'Modify' || has(self.parameters)")
        .optional_old_self(true).message("Modify needs parameters"),
    validation = kube::core::Rule::new("(oldSelf.hasValue() && oldSelf.value() == self) || ((has(self.response) || has(self.answers)) == (self.verdict == 'Respond'))")
        .optional_old_self(true).message("Respond needs a response or answers, and only Respond may carry them"),
    validation = kube::core::Rule::new("(oldSelf.hasValue() && oldSelf.value() == self) || !(has(self.response) && has(self.answers))")
        .optional_old_self(true).message("give response or answers: response is short for the text of the only question"),
    validation = kube::core::Rule::new("(oldSelf.hasValue() && oldSelf.value() == self) || (has(self.guidance) == (self.verdict == 'Defer'))")
        .optional_old_self(true).message("Defer needs guidance, and only Defer may carry it"),
    validation = kube::core::Rule::new("(oldSelf.hasValue() && oldSelf.value() == self) || !has(self.escalateTo) || self.verdict == 'Escalate'")
        .optional_old_self(true).message("escalateTo belongs to Escalate"),
    validation = kube::core::Rule::new("(oldSelf.hasValue() && oldSelf.value() == self) || !has(self.grant) || self.verdict == 'Approve'")
        .optional_old_self(true).message("a grant belongs to Approve")
)]
pub struct Decision {
    /// One of the request's `allowedVerdicts`.
    pub verdict: Verdict,
    /// 1, or one more than the attempt that `status.invalid` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub attempt: Option<i32>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub reason: Option<String>,
    /// Respond: the text of the only question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub response: Option<String>,
    /// Respond: an answer to each question, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub answers: Option<BTreeMap<String, Answer>>,
    /// Modify: what to go on with instead, e.g. `{response: "the better text"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<JsonObject>,
    /// Defer: what to do differently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub guidance: Option<String>,
    /// Escalate: whom to ask too, among the request's `escalateTo`; the next level where it is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalate_to: Vec<Subject>,
    /// Approve: answer further gates alike. Needs the verb `grant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// The digest of the request that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub request_digest: Option<String>,
    /// One's groups that the gate counts; the API server checks that they are one's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub groups: Vec<String>,
    /// The person one speaks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub on_behalf_of: Option<String>,
    /// By what means it was given; vouched for by the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub channel: Option<String>,
}

impl Decision {
    /// A bare decision.
    #[must_use]
    pub fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            attempt: None,
            reason: None,
            response: None,
            answers: None,
            parameters: None,
            guidance: None,
            escalate_to: Vec::new(),
            grant: None,
            request_digest: None,
            groups: Vec::new(),
            on_behalf_of: None,
            channel: None,
        }
    }

    /// Which attempt of its author it is, from 1.
    #[must_use]
    pub fn attempt(&self) -> i32 {
        self.attempt.unwrap_or(1)
    }
}

/// The answer to one question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The ids of the chosen options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub options: Vec<String>,
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub text: Option<String>,
}

/// A standing permission that goes with an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// run, agent or namespace.
    #[schemars(length(min = 1, max = 16))]
    pub scope: String,
    /// tool, tool+arguments, tool+fields or gate.
    #[serde(rename = "match")]
    #[schemars(length(min = 1, max = 16))]
    pub match_: String,
    /// How long.
    pub ttl: crate::values::Span,
    /// How often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_uses: Option<i32>,
}

/// Where an Approval stands. Written by the operator only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalStatus {
    /// Where it stands.
    #[serde(default)]
    pub phase: ApprovalPhase,
    /// How many times this status was written.
    #[serde(default)]
    pub seq: i64,
    /// Standard conditions: Decided, Undecidable, Guarded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the next timeout happens, where it is no longer the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Moment>,
    /// After which instant no vote counts, once `level` is above 0; open where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Moment>,
    /// How many times it was escalated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub level: Option<i32>,
    /// How many reminders were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub reminders: Option<i32>,
    /// Who may decide now, after an escalation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// How far the leading verdict has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<TallyStatus>,
    /// The votes that count, as they were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["key".into()]))]
    pub votes: Vec<Vote>,
    /// What came of it. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Decisions whose payload cannot be used; their authors may give the next attempt.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub invalid: BTreeMap<String, Invalid>,
    /// The guard's epoch in force for this Approval, where it is no longer the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub guard_epoch: Option<String>,
}

/// Where an Approval stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalPhase {
    /// Open.
    #[default]
    Pending,
    /// Its time is up and it stays open for Retry, Reject and Abort.
    Overdue,
    /// Ended by Approve.
    Approved,
    /// Ended by Reject.
    Rejected,
    /// Ended by Modify.
    Modified,
    /// Ended by Respond.
    Responded,
    /// Ended by Defer.
    Deferred,
    /// Ended by Skip.
    Skipped,
    /// Ended by Abort.
    Aborted,
    /// Ended by Retry.
    Retried,
    /// Ended by a timeout; `outcome.verdict` says what that amounts to.
    Expired,
    /// Ended with its Workflow.
    Cancelled,
    /// Ended because it could not be trusted any more; its gate asks again.
    Superseded,
}

impl ApprovalPhase {
    /// Whether votes are no longer counted.
    #[must_use]
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Pending | Self::Overdue)
    }

    /// The end that a person's verdict leads to; Escalate leads to none.
    #[must_use]
    pub fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Approve => Self::Approved,
            Verdict::Reject => Self::Rejected,
            Verdict::Modify => Self::Modified,
            Verdict::Respond => Self::Responded,
            Verdict::Defer => Self::Deferred,
            Verdict::Escalate => Self::Pending,
            Verdict::Abort => Self::Aborted,
            Verdict::Skip => Self::Skipped,
            Verdict::Retry => Self::Retried,
        }
    }

    /// As it stands in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Overdue => "Overdue",
            Self::Approved => "Approved",
            Self::Rejected => "Rejected",
            Self::Modified => "Modified",
            Self::Responded => "Responded",
            Self::Deferred => "Deferred",
            Self::Skipped => "Skipped",
            Self::Aborted => "Aborted",
            Self::Retried => "Retried",
            Self::Expired => "Expired",
            Self::Cancelled => "Cancelled",
            Self::Superseded => "Superseded",
        }
    }
}

/// How far the leading verdict has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TallyStatus {
    /// Distinct people it takes.
    pub needed: i32,
    /// Distinct people who agree so far.
    pub have: i32,
}

/// A vote that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// Its key in `spec.decisions`.
    #[schemars(length(min = 1, max = 600))]
    pub key: String,
    /// The person who is counted.
    #[schemars(length(min = 1, max = 512))]
    pub user: String,
    /// What they decided.
    pub verdict: Verdict,
    /// Which attempt it was.
    pub attempt: i32,
    /// When the operator first found it.
    pub at: Moment,
    /// The groups it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub groups: Vec<String>,
    /// By what means it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub channel: Option<String>,
    /// The guard's epoch under which it was found.
    #[schemars(length(max = 80))]
    pub epoch: String,
}

/// What came of an Approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// What it amounts to; absent where nobody decided anything (Cancelled, Superseded).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The phase it ended in.
    pub phase: ApprovalPhase,
    /// Respond: the answer as one text, options as their labels joined by `, `.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub response: Option<String>,
    /// Respond: an answer to each question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub answers: Option<BTreeMap<String, Answer>>,
    /// Modify and Retry: what to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<JsonObject>,
    /// Defer: what to do differently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub guidance: Option<String>,
    /// Why, in the words of the first decider who gave a reason, or of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub reason: Option<String>,
    /// The people whose votes made it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub decided_by: Vec<String>,
    /// When the operator recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Moment>,
    /// Who or what decided.
    pub source: Source,
}

/// Who or what decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Source {
    /// People.
    #[default]
    Human,
    /// Nobody in time.
    Timeout,
    /// An earlier approval that stands for this one.
    Grant,
    /// The operator: cancelled with its Workflow, or not to be trusted any more.
    Policy,
}

impl Source {
    /// As it stands in objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Human => "Human",
            Self::Timeout => "Timeout",
            Self::Grant => "Grant",
            Self::Policy => "Policy",
        }
    }
}

/// A decision whose payload cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invalid {
    /// Which attempt.
    #[schemars(range(min = 1, max = 8))]
    pub attempt: i32,
    /// What is wrong, and the remedy.
    #[schemars(length(max = 1024))]
    pub why: String,
}
