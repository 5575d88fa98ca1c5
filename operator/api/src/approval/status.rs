//! The status of an Approval: its phase, the counted votes and the outcome.
//!
//! **Invariant:** only the operator writes it, and `outcome` only once.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::{
    approval_phase::ApprovalPhase,
    gate::Subject,
    values::{JsonObject, Moment},
    verdict::Verdict,
};

/// The state of an Approval. Written by the operator only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalStatus {
    /// The phase of the Approval.
    #[serde(default)]
    pub phase: ApprovalPhase,
    /// The number of writes of this status.
    #[serde(default)]
    pub seq: i64,
    /// The number of different people who agree so far on the leading verdict, as in `tally`; 0 before the first vote.
    #[serde(default)]
    #[schemars(range(min = 0, max = 64))]
    pub have: i32,
    /// The people of `outcome.decidedBy` in one line, for a column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub decided_by: Option<String>,
    /// Standard conditions: `Decided` at the end; `Quarantined`, `Undecidable` and `Notified` only while they apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The time of the next timeout, if it differs from the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Moment>,
    /// The time after which no vote counts, once `level` is above 0. Absent if there is no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Moment>,
    /// The number of escalations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub level: Option<i32>,
    /// The time of the last escalation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level_at: Option<Moment>,
    /// The number of reminders that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub reminders: Option<i32>,
    /// The approvers after an escalation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub approvers: Vec<Subject>,
    /// The tally of the leading verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<TallyStatus>,
    /// The votes that count, in the order in which the operator found them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["key".into()]))]
    pub votes: Vec<Vote>,
    /// The outcome. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The decisions with an invalid payload, by their keys. Their authors can send the next attempt.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub invalid: BTreeMap<String, Invalid>,
    /// The guard epoch in force for this Approval, if it differs from the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub guard_epoch: Option<String>,
}

/// The tally of the leading verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TallyStatus {
    /// The number of different people who must agree.
    pub needed: i32,
    /// The number of different people who agree so far.
    pub have: i32,
}

/// A vote that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// The key in `spec.decisions`.
    #[schemars(length(min = 1, max = 600))]
    pub key: String,
    /// The person who is counted.
    #[schemars(length(min = 1, max = 512))]
    pub user: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The number of the attempt.
    pub attempt: i32,
    /// The time at which the operator first found the vote.
    pub at: Moment,
    /// The groups in the vote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 81), inner(length(max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub groups: Vec<String>,
    /// The channel through which the vote was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub channel: Option<String>,
    /// The guard epoch in which the operator found the vote.
    #[schemars(length(max = 80))]
    pub epoch: String,
}

/// The outcome of an Approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The verdict. Absent if there is no decision (Cancelled, Superseded).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The final phase.
    pub phase: ApprovalPhase,
    /// Respond: the answer as one text, options as their labels joined by `, `.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub response: Option<String>,
    /// Respond: an answer to each question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub answers: Option<BTreeMap<String, Answer>>,
    /// Modify and Retry: the values with which the run continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<JsonObject>,
    /// Defer: the instructions for the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub guidance: Option<String>,
    /// The reason of the first decider who gave one, or of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub reason: Option<String>,
    /// The people whose votes led to the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub decided_by: Vec<String>,
    /// The accounts that sent these votes on behalf of people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub via: Vec<String>,
    /// The time at which the operator recorded the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Moment>,
    /// The source of the decision.
    pub source: Source,
}

impl Outcome {
    /// The beginning of the reason of an Approval that was superseded because its decisions cannot be trusted.
    pub const UNGUARDED: &str = "recorded while unguarded";
    /// The beginning of the reason of an Approval that was superseded because a vote was too old.
    pub const VOTES_TOO_OLD: &str = "a vote became too old";

    /// Whether the Approval was superseded because its votes are void.
    #[must_use]
    pub fn voids_votes(&self) -> bool {
        let begins = |why: &str| self.reason.as_ref().is_some_and(|reason| reason.starts_with(why));
        let is_superseded = self.verdict.is_none() && self.phase == ApprovalPhase::Superseded;
        is_superseded && [Self::UNGUARDED, Self::VOTES_TOO_OLD].into_iter().any(begins)
    }

    /// Returns all people whose votes led to the outcome, and the accounts that sent these votes.
    pub fn actors(&self) -> impl Iterator<Item = &String> {
        self.decided_by.iter().chain(&self.via)
    }
}

/// The source of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Source {
    /// Votes of people.
    #[default]
    Human,
    /// A timeout.
    Timeout,
    /// A grant of an earlier approval.
    Grant,
    /// The operator: cancelled with its Workflow, or superseded.
    Policy,
}

impl Source {
    /// Returns the name as it is stored in objects.
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

/// A decision with an invalid payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invalid {
    /// The number of the attempt.
    #[schemars(range(min = 1, max = 8))]
    pub attempt: i32,
    /// The error and the remedy.
    #[schemars(length(max = 1024))]
    pub why: String,
}
