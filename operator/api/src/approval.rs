//! The kind `Approval`: one request for a decision, the decisions of users, and the outcome.
//!
//! **Invariant:** the operator writes `spec.request` once and `status`; each user writes only their own entry of
//! `spec.decisions`. No one writes both.

mod action;
mod bounds;
mod decision;
mod for_gate;
mod level;
mod review;
mod status;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{
    digest::{self, Digest},
    gate::{Form, GateType, PersonRule, Quorum, Subject, SubjectKind, Timeout},
    journal::BlobRef,
    names, turn,
    values::{JsonObject, Moment, Span},
    verdict::Verdict,
};

pub use crate::approval_phase::ApprovalPhase;
pub use action::{Action, ActionKind, AskingGate, SiblingCall};
pub use bounds::ARGUMENTS;
pub use decision::{Answer, Decision, Grant, GrantMatch, GrantScope};
pub use review::{Edit, Exclusion, Review, Sent};
pub use status::{ApprovalStatus, Invalid, Outcome, Source, TallyStatus, Vote};

/// A request for a decision, and the decisions.
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
    doc = "An Approval is one request of a Workflow for a human decision: the approvers, the number of them who must agree, \
        the deadline, and their decisions.\n\n\
        Only the operator creates Approvals. It writes `spec.request` once, and the request is immutable from the \
        creation. Users write only their own entries of `spec.decisions`, under the name that the API server has \
        authenticated, until the gate is decided or closed. A stored decision is final: it cannot be removed, and its \
        author can replace it only if `status.invalid` lists it, as the next `attempt`. Only the operator writes \
        `status`. `status.outcome` is the decision and never changes once it is set; every phase except Pending and \
        Overdue is final. An Approval is owned by its Workflow and deleted with it. Users cannot delete it alone, \
        because that could undo a Reject that is not counted yet. Signoff sets no finalizer.",
    printcolumn(name = "Workflow", type_ = "string", json_path = ".spec.request.workflow.name", priority = 1),
    printcolumn(name = "Gate", type_ = "string", json_path = ".spec.request.gate.path", priority = 1),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Have", type_ = "integer", json_path = ".status.have"),
    printcolumn(name = "Need", type_ = "integer", json_path = ".spec.request.quorums[0].threshold"),
    printcolumn(name = "Decided by", type_ = "string", json_path = ".status.decidedBy", priority = 1),
    printcolumn(name = "Deadline", type_ = "string", json_path = ".spec.request.deadline"),
    printcolumn(name = "Extended to", type_ = "string", json_path = ".status.deadline", priority = 1),
    printcolumn(name = "Prompt", type_ = "string", json_path = ".spec.request.prompt", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new(
        "!has(oldSelf.spec.decisions) || oldSelf.spec.decisions.all(k, has(self.spec.decisions) && k in self.spec.decisions && (self.spec.decisions[k] == oldSelf.spec.decisions[k] || (has(oldSelf.status) && has(oldSelf.status.invalid) && k in oldSelf.status.invalid && oldSelf.status.invalid[k].attempt == (has(oldSelf.spec.decisions[k].attempt) ? oldSelf.spec.decisions[k].attempt : 1) && has(self.spec.decisions[k].attempt) && self.spec.decisions[k].attempt == oldSelf.status.invalid[k].attempt + 1)))")
        .message("a decision is final: only its author can replace it, only if status.invalid lists exactly that attempt, and only with attempt set to the next number")
        .field_path(".spec.decisions"),
    validation = kube::core::Rule::new("!has(self.spec.request) || self.metadata.name.endsWith('-' + self.spec.request.digest.substring(7, 17))")
        .message("metadata.name must end with the first ten hex digits of spec.request.digest"),
    validation = kube::core::Rule::new("!has(oldSelf.status) || !has(oldSelf.status.outcome) || (has(self.status) && has(self.status.outcome) && self.status.outcome == oldSelf.status.outcome)")
        .message("status.outcome is final")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!oldSelf.hasValue() || !has(oldSelf.value().request) || has(self.request)")
        .message("a stored request cannot be removed")
        .reason(kube::core::Reason::FieldValueRequired)
        .field_path(".request")
        .optional_old_self(true)
)]
pub struct ApprovalSpec {
    /// The request. Written by the operator at creation, immutable.
    // Optional in the CRD alone, so that a decision file without its Approval is refused by the admission policy, whose
    // message says why: an Approval without a request cannot be read.
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("request is immutable"))]
    pub request: ApprovalRequest,
    /// The decisions, by the authenticated user name of the approver, or by `<person> via <user>` if a user decides on
    /// behalf of another person.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub decisions: BTreeMap<String, Decision>,
}

impl Approval {
    /// Returns the guard epoch in force for the Approval. Votes of another epoch do not count.
    #[must_use]
    pub fn guard_epoch(&self) -> &str {
        let moved = self.status.as_ref().and_then(|status| status.guard_epoch.as_deref());
        moved.unwrap_or(&self.spec.request.guard_epoch)
    }

    /// Returns the current approvers of the first quorum: after an escalation those of the status.
    #[must_use]
    pub fn approvers(&self) -> &[Subject] {
        match (&self.status, self.spec.request.quorums.first()) {
            (Some(status), Some(_)) if !status.approvers.is_empty() => &status.approvers,
            (_, Some(first)) => &first.approvers,
            (_, None) => &[],
        }
    }

    /// Returns the time after which no vote is accepted: of the request, or after an escalation of the status.
    #[must_use]
    pub fn closes_at(&self) -> Option<Moment> {
        match &self.status {
            Some(status) if status.level.unwrap_or(0) > 0 => status.closes_at,
            _ => self.spec.request.closes_at,
        }
    }

    /// Returns the name of the superseded Approval that this one asks again, or `None`.
    #[must_use]
    pub fn asks_again(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(names::ANNOTATION_ASKS_AGAIN).map(String::as_str)
    }

    /// Returns the notification channels of the gate. They are not part of the request, and no digest covers them.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        let listed = self.metadata.annotations.as_ref().and_then(|notes| notes.get(names::ANNOTATION_NOTIFY));
        listed.into_iter().flat_map(|listed| listed.split(',')).filter(|name| names::is_label(name))
    }

    /// Returns the time of the next timeout.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.status.as_ref().and_then(|status| status.deadline).unwrap_or(self.spec.request.deadline)
    }

    /// Returns the groups of an approver that a vote must list, each once: all groups in `requiredFrom` of a quorum,
    /// and, if there are several quorums, the first matching group of each list of approvers. An escalation only
    /// appends approvers, so that first group stays valid. The admission policies compute the same list.
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

/// The request of an Approval: the question, the approvers and the deadline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// The Workflow that waits.
    pub workflow: WorkflowRef,
    /// The gate of the Workflow.
    pub gate: GateRef,
    /// The digest of the Workflow's spec.
    pub spec_digest: Digest,
    /// The guard epoch in which the request was created.
    #[schemars(length(max = 80))]
    pub guard_epoch: String,
    /// The time of the first timeout.
    pub deadline: Moment,
    /// The time after which no vote counts. Absent if the first timeout does not end the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Moment>,
    /// The question.
    #[schemars(length(min = 1, max = 16384))]
    pub prompt: String,
    /// The context that approvers need to decide, as text of the run; the first 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub context: Option<String>,
    /// The reference to the whole context, if it is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_ref: Option<BlobRef>,
    /// The reviewed step and its response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews: Option<Review>,
    /// The call of a tool, or the question of an agent, that is asked about. `reviews` has the arguments of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The fields that the call sends or has sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends: Option<Sent>,
    /// The text of the agent beside the call, the first 4 KiB, not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub says: Option<String>,
    /// The form that Respond fills in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// The verdicts that are allowed.
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub allowed_verdicts: Vec<Verdict>,
    /// The steps that can run after a Reject, as names or in words. Absent if a Reject ends the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub after_reject: Vec<String>,
    /// The JSON Schema of the `parameters` of a decision, by verdict. Default: Modify takes `{response: ...}`, other
    /// verdicts take none. Under Respond: the schema of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<JsonObject>,
    /// Whether every decision needs a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_reason: Option<bool>,
    /// The quorums, all of which must be met: first the gate's own, whose approvers `status.approvers` replaces after
    /// an escalation.
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub quorums: Vec<Quorum>,
    /// The user who created the Workflow.
    #[schemars(length(min = 1, max = 512))]
    pub requested_by: String,
    /// The person on whose behalf a service account created the Workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub requested_for: Option<String>,
    /// The persons who requested the runs that this one repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 512)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub earlier_requesters: Vec<String>,
    /// The user names that cannot decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub excluded: Vec<String>,
    /// The reasons why names of `excluded` cannot decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub excluded_because: Vec<Exclusion>,
    /// Rules that map user names to persons. Votes of a name that no rule matches do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub persons: Vec<PersonRule>,
    /// The time within which the votes of a quorum must be given. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vote_age: Option<Span>,
    /// The approval policies that apply to this request, and the requirements of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub required_by: Vec<RequiredBy>,
    /// The deadline and its consequence.
    pub timeout: Timeout,
    /// The approvers that the verdict Escalate can add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub escalate_to: Vec<Subject>,
    /// SHA-256 over the canonical JSON (RFC 8785) of every other field of this request.
    #[x_kube(validation = kube::core::Rule::new("!oldSelf.hasValue() || self == oldSelf.value()").message("request is immutable, and so is its digest").optional_old_self(true))]
    pub digest: Digest,
}

impl ApprovalRequest {
    /// The maximum number of quorums of a request.
    pub const MAX_QUORUMS: usize = 9;
    /// The maximum number of user names that a request excludes.
    pub const MAX_EXCLUDED: usize = 32;

    /// Returns the threshold of the first quorum, or 0 if there is no quorum; such a request cannot be decided.
    #[must_use]
    pub fn threshold(&self) -> i32 {
        self.quorums.first().map_or(0, |first| first.threshold)
    }

    /// Returns the turn of the agent that calls or asks, as in [`names::turn`], or `None` if the request is about
    /// neither a call nor a question.
    #[must_use]
    pub fn turn(&self) -> Option<String> {
        self.action.as_ref()?;
        let (path, _) = turn::turn_of(&self.gate.path)?;
        Some(names::turn(&self.workflow.uid, path))
    }

    /// Returns the reviewed or sent text with this digest. The inner value is `None` if the request has only a part of
    /// it.
    #[must_use]
    pub fn shown_text(&self, digest: &Digest) -> Option<Option<&str>> {
        let whole = |text| Some(text).filter(|text: &&str| Digest::of_bytes(text.as_bytes()) == *digest);
        let review = self.reviews.as_ref().filter(|review| review.digest == *digest);
        let sent = self.sends.as_ref().filter(|sent| sent.digest() == *digest);
        review.map(|review| whole(&review.response)).or_else(|| sent.map(|sent| whole(&sent.text)))
    }

    /// Returns the users and persons that `excludeRequester` excludes.
    pub fn requesters(&self) -> impl Iterator<Item = &String> {
        self.requested_for.iter().chain([&self.requested_by]).chain(&self.earlier_requesters)
    }

    /// Whether the requester must not vote at all.
    #[must_use]
    pub fn bars_requester(&self) -> bool {
        self.quorums.first().is_some_and(Quorum::excludes_requester)
    }

    /// Whether the digest does not match the request, because the request was changed while the admission policies were
    /// absent. No decision about such a request counts.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.digest_of_the_rest().ok().as_ref() != Some(&self.digest)
    }

    /// Returns the digest of every field except `digest`.
    ///
    /// # Errors
    /// A number is beyond ±2^53, where JSON readers round differently.
    pub fn digest_of_the_rest(&self) -> Result<Digest, digest::Error> {
        let mut value = serde_json::to_value(self)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("digest");
        }
        Digest::of(&value)
    }
}

/// An approval policy that applies to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequiredBy {
    /// The kind and name of the policy.
    #[schemars(length(min = 1, max = 320))]
    pub source: String,
    /// The requirements of the policy, in sentences for users.
    #[schemars(length(min = 1, max = 10), inner(length(min = 1, max = 512)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub rules: Vec<String>,
}

/// The Workflow that waits for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowRef {
    /// The name, in the namespace of the Approval.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The uid.
    #[schemars(length(min = 36, max = 36))]
    pub uid: String,
}

/// The gate of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateRef {
    /// The name of the gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The type of the gate.
    #[serde(rename = "type")]
    pub type_: GateType,
    /// The path of the record of the gate in the journal.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// The number of the visit of the gate, from 1.
    #[schemars(range(min = 1, max = 1000))]
    pub visit: i32,
}
