//! Verdicts, and the words that users type for them. The properties of each verdict are in its row of the table in
//! `rules`, the gates that allow it in `GateSubject` of the engine (`gate/subject.rs`).
//!
//! **Invariant:** a word counts only if it is the whole text; a verdict is never searched for inside a sentence.

mod rules;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use rules::{CountedName, Need, PayloadPart, VerdictQuorum, VerdictRules};

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

    /// The verdicts that the API server accepts after the deadline of a gate with the timeout action Expire,
    /// independent of the gate.
    pub const WHEN_OVERDUE: [Self; 3] = [Self::Retry, Self::Reject, Self::Abort];

    /// Returns the name as it is stored in objects: `Approve`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.rules().name
    }

    /// Returns the words that users type for the verdict, in lower case. Respond has no words, because the answer
    /// itself is typed.
    #[must_use]
    pub fn words(self) -> &'static [&'static str] {
        self.rules().words
    }

    /// Whether the verdict needs as many people as the threshold of the gate.
    #[must_use]
    pub fn needs_quorum(self) -> bool {
        self.rules().quorum == VerdictQuorum::Threshold
    }

    /// Whether the verdict refuses what the gate asks about.
    #[must_use]
    pub fn stops(self) -> bool {
        self.rules().stops
    }

    /// Whether a decision with this verdict can have the part, or must have it.
    #[must_use]
    pub fn takes(self, part: PayloadPart) -> bool {
        self.need(part).is_some()
    }

    /// Whether a decision with this verdict must have the part.
    #[must_use]
    pub fn requires(self, part: PayloadPart) -> bool {
        self.need(part) == Some(Need::Required)
    }

    fn need(self, part: PayloadPart) -> Option<Need> {
        self.rules().payload.iter().find(|(taken, _)| *taken == part).map(|(_, need)| *need)
    }
}

/// Renders verdicts as a list in words: `Retry, Reject and Abort`.
#[must_use]
pub fn in_words(verdicts: &[Verdict]) -> String {
    let names: Vec<_> = verdicts.iter().map(|verdict| verdict.name()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
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
    /// The error for a word of trust. The caller appends the remedy.
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
    fn the_verdicts_of_an_overdue_gate_are_those_of_the_table() {
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::WHEN_OVERDUE.contains(&verdict), verdict.rules().is_accepted_when_overdue, "{verdict}");
        }
    }

    #[test]
    fn all_verdicts_of_the_schema_are_listed() {
        let schema = serde_json::to_value(schemars::schema_for!(Verdict)).unwrap_or_default();
        let names: Vec<_> = schema["oneOf"].as_array().into_iter().flatten().map(|one| one["const"].clone()).collect();
        assert_eq!(names, Verdict::ALL.map(|verdict| serde_json::json!(verdict.name())));
    }

    #[test]
    fn every_verdict_serializes_as_its_name() {
        for verdict in Verdict::ALL {
            assert_eq!(serde_json::to_value(verdict).ok(), Some(serde_json::json!(verdict.name())));
        }
    }
}
