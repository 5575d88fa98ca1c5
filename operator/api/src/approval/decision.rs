//! One person's entry of `spec.decisions`: a verdict and what goes with it.
//!
//! The shape only: who may write it, and when, is the business of the admission policies.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::ApprovalRequest;
use crate::{
    gate::{Quorum, Subject},
    values::{JsonObject, Span},
    verdict::Verdict,
};

/// One person's decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!has(self.parameters) || self.verdict in ['Modify', 'Retry']")
        .message("parameters belong to Modify or Retry"),
    validation = kube::core::Rule::new("self.verdict != 'Modify' || has(self.parameters)")
        .message("Modify needs parameters"),
    validation = kube::core::Rule::new("(has(self.response) || has(self.answers)) == (self.verdict == 'Respond')")
        .message("Respond needs a response or answers, and only Respond may carry them"),
    validation = kube::core::Rule::new("!(has(self.response) && has(self.answers))")
        .message("give response or answers: response is short for the text of the only question"),
    validation = kube::core::Rule::new("has(self.guidance) == (self.verdict == 'Defer')")
        .message("Defer needs guidance, and only Defer may carry it"),
    validation = kube::core::Rule::new("!has(self.escalateTo) || self.verdict == 'Escalate'")
        .message("escalateTo belongs to Escalate"),
    validation = kube::core::Rule::new("!has(self.grant) || self.verdict == 'Approve'")
        .message("a grant belongs to Approve")
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
    #[schemars(length(max = 81), inner(length(min = 1, max = 253)))]
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
    /// The most groups that a vote names: of each quorum those of its `requiredFrom` rules, and one of its approvers.
    pub const MAX_GROUPS: usize = ApprovalRequest::MAX_QUORUMS * (Quorum::MAX_REQUIRED_FROM + 1);

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
    pub ttl: Span,
    /// How often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_uses: Option<i32>,
}
