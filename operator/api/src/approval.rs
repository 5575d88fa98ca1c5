//! The kind `Approval`: one question to people, their decisions, and what came of them.
//!
//! Two writers, two places: the operator writes `spec.request` once and all of `status`; each person writes
//! only their own entry of `spec.decisions`. Nobody writes both.

mod asking;
mod decision;
mod status;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::{self, Digest},
    gate::{Form, PersonRule, Quorum, Subject, SubjectKind, Timeout},
    journal::BlobRef,
    values::{JsonObject, Moment},
    verdict::Verdict,
};

pub use decision::{Answer, Decision, Grant};
pub use status::{ApprovalPhase, ApprovalStatus, Invalid, Outcome, Source, TallyStatus, Vote};

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
    printcolumn(name = "Need", type_ = "integer", json_path = ".spec.request.quorums[0].threshold"),
    printcolumn(name = "Decided by", type_ = "string", json_path = ".status.outcome.decidedBy[*]"),
    printcolumn(name = "Deadline", type_ = "string", json_path = ".spec.request.deadline"),
    printcolumn(name = "Prompt", type_ = "string", json_path = ".spec.request.prompt", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new(
        "!has(oldSelf.spec.decisions) || oldSelf.spec.decisions.all(k, has(self.spec.decisions) && k in self.spec.decisions && (self.spec.decisions[k] == oldSelf.spec.decisions[k] || (has(oldSelf.status) && has(oldSelf.status.invalid) && k in oldSelf.status.invalid && oldSelf.status.invalid[k].attempt == (has(oldSelf.spec.decisions[k].attempt) ? oldSelf.spec.decisions[k].attempt : 1) && has(self.spec.decisions[k].attempt) && self.spec.decisions[k].attempt == oldSelf.status.invalid[k].attempt + 1)))")
        .message("a decision is final: only its author may replace it, only after that very attempt was found invalid (status.invalid), and with attempt set to the next number")
        .field_path(".spec.decisions"),
    validation = kube::core::Rule::new("self.metadata.name.endsWith('-' + self.spec.request.digest.substring(7, 17))")
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

impl Approval {
    /// The guard's epoch in force for it: votes of another one do not count.
    #[must_use]
    pub fn guard_epoch(&self) -> &str {
        let moved = self.status.as_ref().and_then(|status| status.guard_epoch.as_deref());
        moved.unwrap_or(&self.spec.request.guard_epoch)
    }

    /// Returns the approvers of the first quorum that are in force: after an escalation those of the status.
    #[must_use]
    pub fn approvers(&self) -> &[Subject] {
        match (&self.status, self.spec.request.quorums.first()) {
            (Some(status), Some(_)) if !status.approvers.is_empty() => &status.approvers,
            (_, Some(first)) => &first.approvers,
            (_, None) => &[],
        }
    }

    /// Returns which of these groups of a voter the vote names: all that rules of the quorums ask for, and, where
    /// there are several quorums, of each list of approvers the first one. Each of them once. More are not needed: an
    /// escalation only appends to the approvers, so the first group stays one of them. The admission policies take the same.
    #[must_use]
    pub fn groups_of_voter(&self, groups: &[String]) -> Vec<String> {
        let quorums = &self.spec.request.quorums;
        let further = quorums.iter().skip(1).map(|quorum| quorum.approvers.as_slice());
        let lists = std::iter::once(self.approvers()).chain(further).filter(|_| quorums.len() > 1);
        let listed = lists.filter_map(|list| {
            let mut of_list = list.iter().filter(|subject| subject.kind == SubjectKind::Group).map(|group| &group.name);
            of_list.find(|name| groups.contains(*name))
        });
        let required = quorums.iter().flat_map(|quorum| &quorum.required_from).map(|rule| &rule.group);
        let mut named: Vec<String> = Vec::new();
        for group in required.filter(|name| groups.contains(*name)).chain(listed) {
            if !named.contains(group) {
                named.push(group.clone());
            }
        }
        named
    }
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
    /// Where the run may go on after a Reject, as names of steps or in words. Absent: a Reject ends the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub after_reject: Vec<String>,
    /// What the `parameters` of a decision must look like: a JSON Schema by verdict. Default: Modify takes
    /// `{response: ...}` and no other verdict takes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<JsonObject>,
    /// Whether every decision needs a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_reason: Option<bool>,
    /// Who may decide: the gate's own quorum first, then those that policies demand. All of them must be met. After
    /// an escalation `status.approvers` replaces the approvers of the first.
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub quorums: Vec<Quorum>,
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
    /// Which user names are one person. Where there are any, a name that no rule matches does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub persons: Vec<PersonRule>,
    /// Which policies of the administrators shaped this request, and what each of them demands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub required_by: Vec<RequiredBy>,
    /// What happens when nobody decides in time.
    pub timeout: Timeout,
    /// Whom the verdict Escalate may add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalate_to: Vec<Subject>,
    /// SHA-256 over the canonical JSON (RFC 8785) of every other field of this request.
    #[x_kube(validation = kube::core::Rule::new("!oldSelf.hasValue() || self == oldSelf.value()").message("request is immutable, and so is its digest").optional_old_self(true))]
    pub digest: Digest,
}

impl ApprovalRequest {
    /// The most quorums that a request has room for.
    pub const MAX_QUORUMS: usize = 9;

    /// Returns the number of people that the first quorum needs: 0 where the request has no quorum, so that nobody can
    /// decide it.
    #[must_use]
    pub fn threshold(&self) -> i32 {
        self.quorums.first().map_or(0, |first| first.threshold)
    }

    /// Whether the requester must not vote at all.
    #[must_use]
    pub fn bars_requester(&self) -> bool {
        self.quorums.first().is_some_and(Quorum::excludes_requester)
    }

    /// Whether the digest is not that of the request: the request was changed while the admission policies were absent. No
    /// decision about it counts.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.digest_of_the_rest().ok().as_ref() != Some(&self.digest)
    }

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

/// A policy that shaped a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequiredBy {
    /// Its kind and name.
    #[schemars(length(min = 1, max = 253))]
    pub source: String,
    /// What it demands, in sentences for people.
    #[schemars(length(min = 1, max = 10), inner(length(min = 1, max = 512)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub rules: Vec<String>,
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
    /// An explicit `hitl` step, or a review that a pattern has a place for.
    #[default]
    Step,
    /// The route a router chose, or the parts an orchestrator made.
    PlanApproval,
    /// What the run has to show, before it is released.
    FinalResponse,
    /// What a step answered.
    OutputValidation,
    /// What to do about a step that failed, or whose outcome is not known.
    ErrorEscalation,
    /// A step that is about to begin.
    StepStart,
}

/// The step that is decided about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    /// Its path in the journal.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// Its response, at most 4 KiB: the beginning of a longer text, or the beginning of each field of what has fields.
    #[schemars(length(max = 8192))]
    pub response: String,
    /// The whole of `response` where it is longer.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub ref_: Option<BlobRef>,
    /// The digest of the whole response.
    pub digest: Digest,
}
