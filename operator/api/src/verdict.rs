//! Verdicts, and the words that people type for them.
//!
//! A word counts only when it is the whole text: nothing here may look for a verdict inside a sentence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a person, a timeout or a rule decided at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// Go on with exactly what was shown.
    Approve,
    /// Do not.
    Reject,
    /// Go on with `parameters` instead of what was shown.
    Modify,
    /// Answer with `response` or `answers`.
    Respond,
    /// Do it again with `guidance`, then ask again.
    Defer,
    /// Ask more people; the Approval stays pending.
    Escalate,
    /// End the whole run.
    Abort,
    /// Go on without.
    Skip,
    /// Ask again.
    Retry,
}

impl Verdict {
    /// Every verdict, in the order in which lists show them.
    pub const ALL: [Self; 9] = [
        Self::Approve,
        Self::Reject,
        Self::Modify,
        Self::Respond,
        Self::Defer,
        Self::Escalate,
        Self::Abort,
        Self::Skip,
        Self::Retry,
    ];

    /// The name as it stands in objects: `Approve`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::Reject => "Reject",
            Self::Modify => "Modify",
            Self::Respond => "Respond",
            Self::Defer => "Defer",
            Self::Escalate => "Escalate",
            Self::Abort => "Abort",
            Self::Skip => "Skip",
            Self::Retry => "Retry",
        }
    }

    /// The words that people type for it, in lower case; none for Respond, whose word is the answer itself.
    #[must_use]
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Approve => &["approve", "approved", "yes", "y", "true", "continue", "confirm", "allow", "proceed"],
            Self::Reject => &["reject", "rejected", "deny", "denied", "decline", "no", "n", "false"],
            Self::Modify => &["modify", "edit", "update"],
            Self::Respond => &[],
            Self::Defer => &["defer", "revise", "reconsider"],
            Self::Escalate => &["escalate"],
            Self::Abort => &["abort", "stop", "cancel"],
            Self::Skip => &["skip"],
            Self::Retry => &["retry"],
        }
    }

    /// Whether it takes as many people as the gate's threshold says. One person is enough for the others
    /// (for Reject only where `rejectPolicy` is `any`).
    #[must_use]
    pub fn needs_quorum(self) -> bool {
        matches!(self, Self::Approve | Self::Modify | Self::Respond | Self::Skip | Self::Retry)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// What a typed text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The whole text was a word for this verdict.
    Verdict(Verdict),
    /// The whole text was a word for approving and trusting for the rest of the run.
    Trust,
    /// Anything else is an answer.
    Answer(String),
}

impl Word {
    /// Reads what somebody typed: surrounding white space and case do not matter, everything else does.
    ///
    /// ```
    /// use signoff_api::verdict::{Verdict, Word};
    /// assert_eq!(Word::read(" YES "), Word::Verdict(Verdict::Approve));
    /// assert_eq!(Word::read("do not approve"), Word::Answer("do not approve".into()));
    /// ```
    #[must_use]
    pub fn read(text: &str) -> Self {
        let word = text.trim().to_lowercase();
        match Verdict::ALL.into_iter().find(|verdict| verdict.words().contains(&word.as_str())) {
            Some(verdict) => Self::Verdict(verdict),
            None if ["trust", "always", "t"].contains(&word.as_str()) => Self::Trust,
            None => Self::Answer(text.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_counts_only_when_it_is_the_whole_text() {
        assert_eq!(Word::read("\tProceed\n"), Word::Verdict(Verdict::Approve));
        for sentence in ["do not approve", "approve!", "yes please", "", "аpprove"] {
            assert_eq!(Word::read(sentence), Word::Answer(sentence.into()));
        }
    }

    #[test]
    fn every_verdict_is_written_as_it_is_named() {
        for verdict in Verdict::ALL {
            assert_eq!(serde_json::to_value(verdict).ok(), Some(serde_json::json!(verdict.name())));
        }
    }
}
