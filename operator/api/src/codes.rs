//! The codes of refusals, such as `SO0012`, which programs and pages print and `docs/reference/codes.md` explains.
//!
//! A code stands for one remedy. Messages of the API server have no code: [`Code::of_message`] finds the code by the
//! part of a message that does not change. Refusals of our own code carry the code of their variant.
//!
//! **Invariant:** the number of a code never changes, and no number is used again. A new code takes the next number of
//! its group: 0 for votes of approvers, 100 for Workflows of requesters, 200 for runs that are held or stuck, 300 for
//! installations.

use std::fmt;

use crate::{Decision, Verdict, conditions::reason};

/// A code of refusals, with a section in the page of the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(u16);

/// The codes that our own refusals carry. The others are found by a message or by a reason.
impl Code {
    /// The decision is under the name of another user.
    pub const OTHER_NAME: Self = Self(1);
    /// No list of approvers has the voter.
    pub const NOT_AN_APPROVER: Self = Self(2);
    /// `onBehalfOf` names the voter.
    pub const ON_BEHALF_OF: Self = Self(5);
    /// The rules for persons read the user name as no person, or as two.
    pub const NOT_ONE_PERSON: Self = Self(6);
    /// The gate excludes the requester.
    pub const REQUESTER: Self = Self(7);
    /// The gate excludes the person.
    pub const EXCLUDED: Self = Self(8);
    /// The person has decided.
    pub const FINAL: Self = Self(9);
    /// The gate is closed.
    pub const TOO_LATE: Self = Self(10);
    /// Another Approval replaces this one.
    pub const SUPERSEDED: Self = Self(11);
    /// The request has no quorum.
    pub const NO_QUORUM: Self = Self(12);
    /// The gate does not accept the verdict.
    pub const VERDICT: Self = Self(13);
    /// The gate requires a reason.
    pub const NO_REASON: Self = Self(14);
    /// The decision is for another request.
    pub const OTHER_REQUEST: Self = Self(15);
    /// The payload does not fit the verdict or what the gate asks.
    pub const PAYLOAD: Self = Self(18);
    /// The answers do not fit the questions.
    pub const ANSWERS: Self = Self(19);
    /// The gate does not have the approvers to whom the decision escalates.
    pub const ESCALATE_TO: Self = Self(20);
}

/// A row of the table: the code, its title, and the texts that it stands for.
struct CodeEntry {
    code: Code,
    title: &'static str,
    /// The constant parts of messages of the admission policies.
    messages: &'static [&'static str],
    /// The reasons of conditions.
    reasons: &'static [&'static str],
}

/// Returns the row of a code that stands for messages of the admission policies.
const fn refusal(code: Code, title: &'static str, messages: &'static [&'static str]) -> CodeEntry {
    CodeEntry { code, title, messages, reasons: &[] }
}

/// Returns the row of a code that stands for reasons of conditions.
const fn condition(number: u16, title: &'static str, reasons: &'static [&'static str]) -> CodeEntry {
    CodeEntry { code: Code(number), title, messages: &[], reasons }
}

/// Every code, ascending.
const TABLE: &[CodeEntry] = &[
    // Votes of approvers.
    refusal(
        Code::OTHER_NAME,
        "The decision is under another name",
        &["you may record a decision only under your own user name ("],
    ),
    refusal(
        Code::NOT_AN_APPROVER,
        "You are not an approver of this gate",
        &[
            " is not an approver of this gate, by name or by group",
            " is not an approver of this gate by user name",
            ": no gate lists users of system:",
        ],
    ),
    refusal(Code(3), "The verb approve is missing", &[" lacks the RBAC verb approve on approvals.signoff.dev"]),
    refusal(Code(4), "The verb delegate is missing", &[" lacks the RBAC verb delegate on people.signoff.dev"]),
    refusal(
        Code::ON_BEHALF_OF,
        "The decision on behalf of another person does not fit",
        &[
            ": onBehalfOf must name another person who has not decided yet",
            "at most two decisions on behalf of others in one request",
        ],
    ),
    refusal(
        Code::NOT_ONE_PERSON,
        "The user name is not that of one person",
        &[": every one of these user names must match a rule of spec.request.persons"],
    ),
    refusal(
        Code::REQUESTER,
        "The requester must not decide",
        &["the requester must not decide this gate (excludeRequester)"],
    ),
    refusal(Code::EXCLUDED, "You are excluded from this gate", &[": excluded from deciding this gate"]),
    refusal(
        Code::FINAL,
        "A decision is final",
        &["a decision is final: ", "a decision on your behalf is already recorded"],
    ),
    refusal(
        Code::TOO_LATE,
        "It is too late to decide",
        &[
            "too late: this gate was already decided",
            "too late: this Approval is being deleted with its Workflow",
            "too late: this gate closed at ",
        ],
    ),
    refusal(Code::SUPERSEDED, "The gate asks again", &[]),
    refusal(
        Code::NO_QUORUM,
        "The Approval has no quorum",
        &["this Approval cannot be decided, because spec.request.quorums is empty"],
    ),
    refusal(Code::VERDICT, "The gate does not accept this verdict", &["verdict must be one of "]),
    refusal(
        Code::NO_REASON,
        "A reason is required",
        &["this gate requires a reason with at least one letter or digit"],
    ),
    refusal(
        Code::OTHER_REQUEST,
        "The decision is for another request",
        &["stale: requestDigest is not the digest of this request ("],
    ),
    refusal(
        Code(16),
        "The groups of the decision do not fit",
        &["this gate counts groups: add groups: [", "groups must list only groups that you are in"],
    ),
    refusal(
        Code(17),
        "The channel of the decision is not verified",
        &["channel must be the value of the impersonation extra signoff.dev/channel"],
    ),
    refusal(
        Code::PAYLOAD,
        "The payload does not fit the verdict",
        &[
            ": parameters are allowed only with Modify and Retry",
            ": Modify needs parameters",
            ": Respond needs response or answers",
            ": give response or answers, not both",
            ": Defer needs guidance",
            ": escalateTo is allowed only with Escalate",
            ": grant is allowed only with Approve",
            "a standing grant is not possible yet",
        ],
    ),
    refusal(
        Code::ANSWERS,
        "The answers do not fit the questions",
        &[
            "this gate asks no question",
            "this gate asks several questions",
            "answers must be for the questions of this gate: ",
            "an answer is missing for: ",
            " must be among: ",
            "choose one option for ",
            "the answer to ",
            "the whole answer to ",
        ],
    ),
    refusal(
        Code::ESCALATE_TO,
        "The gate has no such approvers to escalate to",
        &[
            "escalateTo must be among the subjects of spec.request.escalateTo",
            "this gate has no approvers to escalate to (spec.request.escalateTo)",
        ],
    ),
    refusal(Code(21), "The decision is too large", &[Decision::TOO_LARGE, Decision::FULL]),
    refusal(Code(22), "A decision without its Approval", &[" (not asked yet, or its run is gone): remove this file"]),
    refusal(
        Code(23),
        "The request cannot be changed",
        &["spec.request is immutable", "it is immutable, and cannot be removed"],
    ),
    refusal(
        Code(24),
        "The metadata cannot be changed in this way",
        &[
            "only an approver of this gate can change this Approval",
            "only the operator can change labels and annotations of signoff.dev",
            "only the operator can change owner references and finalizers",
            "metadata must have at most 24 labels, 24 annotations and 64 KiB of annotations",
            "metadata.managedFields is nested too deeply",
            "metadata.managedFields tell when a decision was made",
        ],
    ),
    // Workflows of requesters.
    refusal(
        Code(101),
        "The requester of a Workflow is its creator",
        &["spec.requestedBy: Required value", ", and a Workflow is requested by its creator ("],
    ),
    refusal(Code(102), "The verb restore is missing", &[" lacks the RBAC verb restore on workflows.signoff.dev"]),
    CodeEntry {
        code: Code(103),
        title: "The requester is a service account",
        messages: &["a gate excludes the requester, and a service account creates this Workflow"],
        reasons: &[reason::REQUESTER_IS_MACHINE],
    },
    refusal(
        Code(104),
        "No Workflows in this namespace",
        &["a Workflow must not be in the operator's or a system namespace"],
    ),
    refusal(
        Code(105),
        "The spec cannot be changed",
        &["spec is immutable except suspend, cancel and ttlAfterFinished", "spec.requestedBy is immutable"],
    ),
    refusal(
        Code(106),
        "You cannot read a Secret of the Workflow",
        &[" lacks the RBAC verb get on the Secrets that this Workflow uses"],
    ),
    refusal(Code(107), "You cannot create Pods", &[" lacks the RBAC verb create on pods in "]),
    refusal(
        Code(108),
        "A Workflow from Git must not delete itself",
        &["spec.ttlAfterFinished must be absent from a Workflow that Flux or Argo CD applies"],
    ),
    CodeEntry {
        code: Code(109),
        title: "The steps are not in spec.steps",
        messages: &["spec.steps is empty: every step must be in spec.steps"],
        reasons: &[reason::OLD_SHAPE],
    },
    refusal(
        Code(110),
        "An input does not fit its declaration",
        &[
            "spec.inputs: a value must nest at most ",
            ": value, default and enum must be of the type ",
            ": value and default must be among enum",
            ": a value is required",
        ],
    ),
    refusal(
        Code(111),
        "A Workflow is deleted with its Approvals",
        &["a Workflow must be deleted with its Approvals", "metadata.finalizers must not contain orphan"],
    ),
    refusal(
        Code(112),
        "An Approval or a Blob is deleted with its Workflow",
        &["an Approval is deleted with its Workflow", "a Blob is deleted with its Workflow"],
    ),
    condition(113, "The spec has errors", &[reason::INVALID]),
    condition(114, "An approval policy does not allow the Workflow", &[reason::NOT_ALLOWED, reason::POLICY_CONFLICT]),
    condition(115, "The Workflow is too large", &[reason::TOO_LARGE]),
    condition(116, "The requester is not verified", &[reason::REQUESTER_UNVERIFIED]),
    condition(117, "The spec was changed after the run was accepted", &[reason::SPEC_TAMPERED]),
    condition(118, "The stored object cannot be read", &[reason::UNREADABLE, reason::APPROVAL_UNREADABLE]),
    refusal(
        Code(119),
        "The metadata of a Workflow is not allowed",
        &["metadata must have at most 64 labels", "metadata.ownerReferences of a Workflow is immutable"],
    ),
    // Runs that are held or stuck.
    condition(201, "An approval policy cannot be read", &[reason::POLICY_UNKNOWN]),
    condition(202, "The run has other rules", &[reason::OLD_RULES]),
    condition(203, "A gate excludes too many people", &[reason::TOO_MANY_EXCLUDED]),
    condition(204, "The run is a copy from a backup", &[reason::NOT_RESUMED]),
    condition(
        205,
        "The run is in quarantine",
        &[reason::TOO_COSTLY, reason::NOT_STOPPED, reason::ENDED_OPERATOR, reason::PANICKED],
    ),
    condition(206, "The gate is overdue", &[reason::OVERDUE]),
    condition(207, "No verdict can reach its quorum", &[reason::QUORUM_OUT_OF_REACH]),
    condition(208, "Steps cannot be Pods in this namespace", &[reason::PODS_NOT_ALLOWED]),
    condition(209, "The API server refuses the Pod", &[reason::NOT_CREATED]),
    condition(210, "The Pod has no node", &[reason::NOT_SCHEDULED, reason::UNSCHEDULABLE]),
    condition(211, "The API server refuses a request of the operator", &[reason::FORBIDDEN, reason::REFUSED]),
    condition(
        212,
        "The API server does not answer the operator",
        &[reason::TOO_MANY_REQUESTS, reason::SERVER_ERROR, reason::NO_ANSWER],
    ),
    condition(213, "Another object has the name", &[reason::FOREIGN_OBJECT, reason::NAMES_TAKEN]),
    condition(214, "A bug of the operator", &[reason::INTERNAL_ERROR]),
    condition(215, "A long value is lost", &[reason::VALUE_MISSING, reason::VALUE_DAMAGED]),
    condition(
        216,
        "Notices do not reach a channel",
        &[reason::NOT_DELIVERED, reason::GIVEN_UP, reason::UNKNOWN_CHANNEL, reason::CHANNEL_NOT_ALLOWED],
    ),
    // Installations.
    condition(301, "The admission policies are not in force", &[reason::POLICIES_DIFFER]),
    condition(302, "Votes can be changed before they are stored", &[reason::EXTERNAL_MUTATOR_FOUND]),
    condition(303, "A clock is wrong", &[reason::MACHINE_AHEAD, reason::MACHINE_BEHIND]),
    refusal(Code(304), "The token of the operator is bound to no Pod", &[" must use a token that is bound to its pod"]),
    refusal(Code(305), "The verb administer is missing", &[" lacks the verb administer on installations.signoff.dev"]),
    refusal(Code(306), "The verb debug is missing", &[" lacks the verb debug on workflows.signoff.dev"]),
    refusal(
        Code(307),
        "Only the operator writes this object",
        &[
            "only the operator can create Approvals",
            "only the operator can create Blobs",
            "a Blob must have one owner",
            "a Blob is immutable",
            "only the operator can write labels and annotations of signoff.dev on the pod of a step",
            "only the operator can create pods named signoff-step-",
            "only the operator can create and change objects with the label signoff.dev/workflow",
            "only the operator, from its pod, can write status",
            "status.outcome is final",
        ],
    ),
];

impl Code {
    /// Returns every code, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|entry| entry.code)
    }

    /// Returns the code of this text, such as `SO0012`, in upper or lower case, or `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::all().find(|code| code.to_string().eq_ignore_ascii_case(text))
    }

    /// Returns the code of a refusal by an admission policy, or `None`. A message that quotes another one has the code
    /// of the part that comes first.
    #[must_use]
    pub fn of_message(message: &str) -> Option<Self> {
        let found = TABLE.iter().filter_map(|entry| {
            let begin = entry.messages.iter().filter_map(|part| position(message, part)).min()?;
            Some((begin, entry.code))
        });
        found.min().map(|(_, code)| code)
    }

    /// Returns the code of the reason of a condition, or `None`: no remedy is needed, or the reason is a phase or a
    /// reason of the kubelet.
    #[must_use]
    pub fn of_reason(reason: &str) -> Option<Self> {
        TABLE.iter().find(|entry| entry.reasons.contains(&reason)).map(|entry| entry.code)
    }

    /// Returns the code of a decision whose payload does not fit its verdict.
    #[must_use]
    pub fn of_payload(verdict: Verdict) -> Self {
        if verdict == Verdict::Respond { Self::ANSWERS } else { Self::PAYLOAD }
    }

    /// Returns the title, as in the page of the codes.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.entry().map_or("", |entry| entry.title)
    }

    /// Returns the constant parts of the messages of admission policies that the code stands for.
    #[must_use]
    pub fn messages(self) -> &'static [&'static str] {
        self.entry().map_or(&[], |entry| entry.messages)
    }

    /// Returns the end of a sentence that has a code, such as ` [SO0012]`; empty without a code.
    #[must_use]
    pub fn bracketed(code: Option<Self>) -> String {
        code.map(|code| format!(" [{code}]")).unwrap_or_default()
    }

    fn entry(self) -> Option<&'static CodeEntry> {
        TABLE.iter().find(|entry| entry.code == self)
    }
}

/// The constant beginning of the messages about an Approval without a request.
const NO_REQUEST: &str = "spec.request: Required value: ";

/// Returns the byte at which the constant part of a message begins, or `None`. A part that begins with a space or a
/// punctuation mark follows a name or a value, and any other part begins its message, so that a name within a message
/// is not read as the beginning of another one.
fn position(message: &str, part: &str) -> Option<usize> {
    let message = message.strip_prefix(NO_REQUEST).unwrap_or(message);
    match part.starts_with([' ', ':', ',']) {
        true => message.find(part),
        false => message.starts_with(part).then_some(0),
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SO{:04}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_is_printed() {
        assert_eq!(Code::REQUESTER.to_string(), "SO0007");
        assert_eq!(Code::parse("so0007"), Some(Code::REQUESTER));
        assert!(Code::all().all(|code| Code::parse(&code.to_string()) == Some(code)));
        for other in ["7", "SO7", "SO9999", ""] {
            assert_eq!(Code::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_message_has_the_code_of_the_part_that_comes_first() {
        let of = |message: &str| Code::of_message(message);
        assert_eq!(of("the requester must not decide this gate (excludeRequester)"), Some(Code::REQUESTER));
        let named =
            "User \"it is too late: this gate was already decided\" is not an approver of this gate by user name";
        assert_eq!(of(named), Some(Code::NOT_AN_APPROVER));
        let removed = "spec.request: Required value: it is immutable, and cannot be removed";
        assert_eq!(of(removed), Some(Code(23)));
        let quoting = "the answer to note: this gate requires a reason with at least one letter or digit";
        assert_eq!(of(quoting), Some(Code::ANSWERS));
        assert_eq!(of("User \"dana\" cannot patch resource \"approvals\""), None);
    }

    #[test]
    fn a_reason_with_a_remedy_has_a_code() {
        assert_eq!(Code::of_reason(reason::POLICIES_DIFFER), Some(Code(301)));
        assert_eq!(Code::of_reason(reason::ACCEPTED), None);
        assert_eq!(Code::bracketed(Code::of_reason(reason::OVERDUE)), " [SO0206]");
        assert_eq!(Code::bracketed(None), "");
    }
}
