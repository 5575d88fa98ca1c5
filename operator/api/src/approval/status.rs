//! The status of an Approval: how far its votes have come, and what came of it.
//!
//! Written by the operator only, and `outcome` once.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::{
    gate::Subject,
    values::{JsonObject, Moment},
    verdict::Verdict,
};

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
    /// Standard conditions: `Decided` at its end; `Quarantined` and `Undecidable` only while they hold.
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
    #[schemars(length(max = 81), inner(length(max = 253)))]
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
