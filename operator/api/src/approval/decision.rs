//! One entry of `spec.decisions`: a verdict and its payload.
//!
//! The admission policies decide who can write an entry, and when.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ApprovalRequest;
use crate::{
    gate::{Quorum, Subject},
    values::{JsonObject, Span},
    verdict::{PayloadPart, Verdict},
};

/// The decision of one approver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new(PayloadPart::Parameters.only_with())
        .message(format!("parameters are allowed only with {}: remove them", PayloadPart::Parameters.verdicts_in_words("and")).as_str()),
    validation = kube::core::Rule::new(PayloadPart::Parameters.required_with())
        .message("Modify needs parameters: add what replaces the shown values"),
    validation = kube::core::Rule::new(PayloadPart::Answer.exactly_with())
        .message("Respond needs response or answers; other verdicts must have neither"),
    validation = kube::core::Rule::new("!(has(self.response) && has(self.answers))")
        .message("give response or answers, not both: response answers the only question of a form"),
    validation = kube::core::Rule::new(PayloadPart::Guidance.exactly_with())
        .message("Defer needs guidance; other verdicts must not have it"),
    validation = kube::core::Rule::new(PayloadPart::EscalateTo.only_with())
        .message("escalateTo is allowed only with Escalate: remove it"),
    validation = kube::core::Rule::new(PayloadPart::Grant.only_with())
        .message("grant is allowed only with Approve: remove it")
)]
pub struct Decision {
    /// The verdict, one of `allowedVerdicts` of the request.
    pub verdict: Verdict,
    /// The number of the attempt: 1, or one more than the attempt in `status.invalid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub attempt: Option<i32>,
    /// The reason for the decision.
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
    /// Modify: the values that replace the shown ones, e.g. `{response: "the better text"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<JsonObject>,
    /// Defer: the instructions for the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub guidance: Option<String>,
    /// Escalate: the approvers to add, among `escalateTo` of the request. Default: the next level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalate_to: Vec<Subject>,
    /// Approve: a standing permission for further gates. Refused until grants work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// The digest of the request that the approver read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub request_digest: Option<String>,
    /// The groups of the approver that the gate counts. The API server checks the membership.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 81), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub groups: Vec<String>,
    /// The person on whose behalf the user decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub on_behalf_of: Option<String>,
    /// The channel through which the decision was sent, verified by the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub channel: Option<String>,
}

impl Decision {
    /// The largest number of groups in a vote: for each quorum those of its `requiredFrom` rules and one of its
    /// approvers.
    pub const MAX_GROUPS: usize = ApprovalRequest::MAX_QUORUMS * (Quorum::MAX_REQUIRED_FROM + 1);

    /// Returns a decision without a payload.
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

    /// Returns the number of the attempt, from 1.
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
    /// The free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub text: Option<String>,
}

/// A standing permission for further gates. Until grants work, a decision with one is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The scope.
    pub scope: GrantScope,
    /// The calls that are alike.
    #[serde(rename = "match")]
    pub match_: GrantMatch,
    /// The lifetime of the grant, at most 24h.
    pub ttl: Span,
    /// The largest number of uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub max_uses: Option<i32>,
}

/// The scope of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GrantScope {
    /// All agents of the run.
    Run,
    /// The agent whose call was approved.
    Agent,
}

/// The calls that a grant covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GrantMatch {
    /// Calls of the same tool.
    Tool,
    /// Calls with the same arguments.
    Arguments,
    /// Calls in which the fields that were approved are the same.
    Fields,
}

impl Grant {
    /// The error for a decision with a grant, with the remedy.
    pub const REFUSED: &str =
        "a standing grant is not possible yet: leave grant out, and decide each request on its own";
}
