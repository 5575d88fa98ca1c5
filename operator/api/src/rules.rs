//! The number of the meaning of Workflows, which is pinned when a run is accepted.

use crate::WorkflowStatus;

/// The number of the meaning of Workflows in this version: the effects of steps, gates, verdicts and conditions, and
/// the records that follow from others.
///
/// It increases by one if the same spec with the same answers and votes would lead to other records or effects than
/// before, so that a run is never continued with a meaning that was not accepted. It stays the same for new fields,
/// errors of the plan (checked before acceptance), texts or speed.
///
/// * 1: until the first rules for tools. A status without the number has this one.
/// * 2: an error, a gap or a repetition lets no effect through, a turn that its server lost is repeated, and an empty
///   answer is requested again.
pub const RULES: i32 = 2;

impl WorkflowStatus {
    /// Returns the number of the rules under which the run was accepted if this version has others, or `None`.
    #[must_use]
    pub fn other_rules(&self) -> Option<i32> {
        self.spec_digest.as_ref()?;
        Some(self.rules.unwrap_or(1)).filter(|rules| *rules != RULES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Digest;

    #[test]
    fn an_accepted_run_without_the_number_has_the_first_rules() {
        let accepted =
            |rules| WorkflowStatus { spec_digest: Some(Digest::of_bytes(b"")), rules, ..WorkflowStatus::default() };
        assert_eq!(accepted(None).other_rules(), Some(1));
        assert_eq!(accepted(Some(RULES + 1)).other_rules(), Some(RULES + 1));
        assert_eq!(accepted(Some(RULES)).other_rules(), None);
    }

    #[test]
    fn a_run_that_was_not_accepted_yet_has_no_other_rules() {
        assert_eq!(WorkflowStatus::default().other_rules(), None);
    }
}
