//! The table of verdicts, with all properties of a verdict in one row. The engine, local runs, the plugin and the page
//! use it. The admission policy and the schema of decisions are generated from it.
//!
//! **Invariant:** a verdict without a row does not compile.

use super::Verdict;
use crate::approval_phase::ApprovalPhase;

/// The row of a verdict.
#[derive(Debug)]
pub struct VerdictRules {
    /// The name as it is stored in objects: `Approve`.
    pub name: &'static str,
    /// The words that users type for it, in lower case.
    pub words: &'static [&'static str],
    /// The number of people that it needs.
    pub quorum: VerdictQuorum,
    /// The parts that a decision can have or must have; it can have no others.
    pub payload: &'static [(PayloadPart, Need)],
    /// The final phase of an Approval with this verdict. Escalate has none.
    pub phase: ApprovalPhase,
    /// The user names under which it counts.
    pub counted_name: CountedName,
    /// The rank by caution, 0 for the most cautious: of two votes of one person the more cautious one counts.
    pub caution: u8,
    /// Whether it refuses what the gate asks about.
    pub stops: bool,
    /// Whether it is accepted after the deadline of a gate with the timeout action Expire.
    pub is_accepted_when_overdue: bool,
}

/// The number of people that a verdict needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictQuorum {
    /// The threshold of every quorum, by votes with one payload.
    Threshold,
    /// The threshold of one quorum, or one person if its `rejectPolicy` is `any`.
    RejectPolicy,
    /// One person.
    OnePerson,
}

/// The user names under which a verdict counts, if rules map user names to persons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedName {
    /// Every name from which the API server accepts votes.
    Every,
    /// Only names that can be read as one person.
    OfOnePerson,
}

/// A part of a decision that belongs to some verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadPart {
    /// `parameters`.
    Parameters,
    /// `response` or `answers`.
    Answer,
    /// `guidance`.
    Guidance,
    /// `escalateTo`.
    EscalateTo,
    /// `grant`.
    Grant,
}

/// Whether a decision can have a part, or must have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It can be left out.
    Allowed,
    /// It cannot be left out.
    Required,
}

impl PayloadPart {
    /// Returns the verdicts that can have the part.
    pub fn verdicts(self) -> impl Iterator<Item = Verdict> {
        Verdict::ALL.into_iter().filter(move |verdict| verdict.takes(self))
    }

    /// Returns the verdicts that must have the part.
    fn requiring(self) -> impl Iterator<Item = Verdict> {
        Verdict::ALL.into_iter().filter(move |verdict| verdict.requires(self))
    }

    /// Returns the expression in CEL for a decision that has the part.
    fn is_there(self) -> &'static str {
        match self {
            Self::Parameters => "has(self.parameters)",
            Self::Answer => "(has(self.response) || has(self.answers))",
            Self::Guidance => "has(self.guidance)",
            Self::EscalateTo => "has(self.escalateTo)",
            Self::Grant => "has(self.grant)",
        }
    }

    /// Returns the rule in CEL by which a decision has the part only with the verdicts that take it.
    #[must_use]
    pub fn only_with(self) -> String {
        format!("!{} || {}", self.is_there(), is_one_of(self.verdicts()))
    }

    /// Returns the rule in CEL by which a decision has the part with the verdicts that require it.
    #[must_use]
    pub fn required_with(self) -> String {
        format!("{} || {}", is_none_of(self.requiring()), self.is_there())
    }

    /// Returns both rules in one, for a part that all verdicts which take it require.
    #[must_use]
    pub fn exactly_with(self) -> String {
        format!("{} == ({})", self.is_there(), is_one_of(self.verdicts()))
    }

    /// Renders the verdicts that can have the part in words: `Modify and Retry`.
    #[must_use]
    pub fn verdicts_in_words(self, conjunction: &str) -> String {
        let names: Vec<_> = self.verdicts().map(Verdict::name).collect();
        names.join(&format!(" {conjunction} "))
    }
}

fn is_one_of(verdicts: impl Iterator<Item = Verdict>) -> String {
    let names: Vec<_> = verdicts.map(|verdict| format!("'{verdict}'")).collect();
    match names.as_slice() {
        [only] => format!("self.verdict == {only}"),
        _ => format!("self.verdict in [{}]", names.join(", ")),
    }
}

fn is_none_of(verdicts: impl Iterator<Item = Verdict>) -> String {
    let names: Vec<_> = verdicts.map(|verdict| format!("'{verdict}'")).collect();
    match names.as_slice() {
        [only] => format!("self.verdict != {only}"),
        _ => format!("!(self.verdict in [{}])", names.join(", ")),
    }
}

impl Verdict {
    /// Returns the row of the table with all properties of the verdict.
    #[must_use]
    pub const fn rules(self) -> &'static VerdictRules {
        match self {
            Self::Approve => &APPROVE,
            Self::Reject => &REJECT,
            Self::Modify => &MODIFY,
            Self::Respond => &RESPOND,
            Self::Defer => &DEFER,
            Self::Escalate => &ESCALATE,
            Self::Abort => &ABORT,
            Self::Skip => &SKIP,
            Self::Retry => &RETRY,
        }
    }
}

const APPROVE: VerdictRules = VerdictRules {
    name: "Approve",
    words: &["approve", "approved", "yes", "y", "true", "continue", "confirm", "allow", "proceed"],
    quorum: VerdictQuorum::Threshold,
    payload: &[(PayloadPart::Grant, Need::Allowed)],
    phase: ApprovalPhase::Approved,
    counted_name: CountedName::OfOnePerson,
    caution: 4,
    stops: false,
    is_accepted_when_overdue: false,
};

const REJECT: VerdictRules = VerdictRules {
    name: "Reject",
    words: &["reject", "rejected", "deny", "denied", "decline", "no", "n", "false"],
    quorum: VerdictQuorum::RejectPolicy,
    payload: &[],
    phase: ApprovalPhase::Rejected,
    counted_name: CountedName::Every,
    caution: 1,
    stops: true,
    is_accepted_when_overdue: true,
};

const MODIFY: VerdictRules = VerdictRules {
    name: "Modify",
    words: &["modify", "edit", "update"],
    quorum: VerdictQuorum::Threshold,
    payload: &[(PayloadPart::Parameters, Need::Required)],
    phase: ApprovalPhase::Modified,
    counted_name: CountedName::OfOnePerson,
    caution: 4,
    stops: false,
    is_accepted_when_overdue: false,
};

const RESPOND: VerdictRules = VerdictRules {
    name: "Respond",
    words: &[],
    quorum: VerdictQuorum::Threshold,
    payload: &[(PayloadPart::Answer, Need::Required)],
    phase: ApprovalPhase::Responded,
    counted_name: CountedName::OfOnePerson,
    caution: 4,
    stops: false,
    is_accepted_when_overdue: false,
};

const DEFER: VerdictRules = VerdictRules {
    name: "Defer",
    words: &["defer", "revise", "reconsider"],
    quorum: VerdictQuorum::OnePerson,
    payload: &[(PayloadPart::Guidance, Need::Required)],
    phase: ApprovalPhase::Deferred,
    counted_name: CountedName::OfOnePerson,
    caution: 3,
    stops: false,
    is_accepted_when_overdue: false,
};

const ESCALATE: VerdictRules = VerdictRules {
    name: "Escalate",
    words: &["escalate"],
    quorum: VerdictQuorum::OnePerson,
    payload: &[(PayloadPart::EscalateTo, Need::Allowed)],
    phase: ApprovalPhase::Pending,
    counted_name: CountedName::OfOnePerson,
    caution: 2,
    stops: false,
    is_accepted_when_overdue: false,
};

const ABORT: VerdictRules = VerdictRules {
    name: "Abort",
    words: &["abort", "stop", "cancel"],
    quorum: VerdictQuorum::OnePerson,
    payload: &[],
    phase: ApprovalPhase::Aborted,
    counted_name: CountedName::Every,
    caution: 0,
    stops: true,
    is_accepted_when_overdue: true,
};

const SKIP: VerdictRules = VerdictRules {
    name: "Skip",
    words: &["skip"],
    quorum: VerdictQuorum::Threshold,
    payload: &[],
    phase: ApprovalPhase::Skipped,
    counted_name: CountedName::OfOnePerson,
    caution: 4,
    stops: false,
    is_accepted_when_overdue: false,
};

const RETRY: VerdictRules = VerdictRules {
    name: "Retry",
    words: &["retry"],
    quorum: VerdictQuorum::Threshold,
    payload: &[(PayloadPart::Parameters, Need::Allowed)],
    phase: ApprovalPhase::Retried,
    counted_name: CountedName::OfOnePerson,
    caution: 4,
    stops: false,
    is_accepted_when_overdue: true,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_required_with_all_its_verdicts_has_one_rule() {
        let is_exact = |part: &PayloadPart| part.verdicts().eq(part.requiring());
        let exact: Vec<_> = PARTS.into_iter().filter(is_exact).map(PayloadPart::exactly_with).collect();
        let expected = [
            "(has(self.response) || has(self.answers)) == (self.verdict == 'Respond')",
            "has(self.guidance) == (self.verdict == 'Defer')",
        ];
        assert_eq!(exact, expected);
        assert!(PARTS.iter().all(|part| part.verdicts().next().is_some()), "a part of no verdict");
    }

    #[test]
    fn a_rule_names_one_verdict_or_a_list() {
        assert_eq!(PayloadPart::Parameters.only_with(), "!has(self.parameters) || self.verdict in ['Modify', 'Retry']");
        assert_eq!(PayloadPart::Parameters.required_with(), "self.verdict != 'Modify' || has(self.parameters)");
        assert_eq!(PayloadPart::Grant.only_with(), "!has(self.grant) || self.verdict == 'Approve'");
        assert_eq!(PayloadPart::Parameters.verdicts_in_words("and"), "Modify and Retry");
    }

    const PARTS: [PayloadPart; 5] = [
        PayloadPart::Parameters,
        PayloadPart::Answer,
        PayloadPart::Guidance,
        PayloadPart::EscalateTo,
        PayloadPart::Grant,
    ];
}
