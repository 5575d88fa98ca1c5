//! Verdicts, and the words that users type for them.
//!
//! **Invariant:** a word counts only if it is the whole text; a verdict is never searched for inside a sentence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A decision at a gate, by a person, a timeout or a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// Continue with exactly what was shown.
    Approve,
    /// Reject the request.
    Reject,
    /// Continue with `parameters` instead of what was shown.
    Modify,
    /// Answer with `response` or `answers`.
    Respond,
    /// Repeat the reviewed steps with `guidance`, then ask again.
    Defer,
    /// Ask more people; the Approval stays pending.
    Escalate,
    /// End the whole run.
    Abort,
    /// Continue without an answer.
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

    /// Returns the name as it is stored in objects: `Approve`.
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

    /// Returns the words that users type for the verdict, in lower case. Respond has none: the answer itself is typed.
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

    /// Whether the verdict needs as many people as the threshold of the gate. The other verdicts need one person
    /// (Reject only if `rejectPolicy` is `any`).
    #[must_use]
    pub fn needs_quorum(self) -> bool {
        match self {
            Self::Approve | Self::Modify | Self::Respond | Self::Skip | Self::Retry => true,
            Self::Reject | Self::Defer | Self::Escalate | Self::Abort => false,
        }
    }

    /// Whether the verdict refuses what the gate asks about.
    #[must_use]
    pub fn stops(self) -> bool {
        match self {
            Self::Reject | Self::Abort => true,
            Self::Approve | Self::Modify | Self::Respond | Self::Defer | Self::Escalate | Self::Skip | Self::Retry => {
                false
            }
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The meaning of a typed text.
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
    /// Why a word of trust is refused. The remedy follows.
    pub const NO_TRUST: &str = "trust is not possible yet, and each request is decided on its own";

    /// Parses a typed text. Surrounding white space and case are ignored, nothing else is.
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
    fn every_verdict_serializes_as_its_name() {
        for verdict in Verdict::ALL {
            assert_eq!(serde_json::to_value(verdict).ok(), Some(serde_json::json!(verdict.name())));
        }
    }
}
