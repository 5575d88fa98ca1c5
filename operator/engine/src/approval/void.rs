//! Votes that do not count any more, because they are of another epoch of the guard. The Approval is superseded, an Event has their names,
//! and its gate asks again.

use signoff_api::{
    Approval, Decision, Outcome,
    approval::{ApprovalPhase, Source},
};
use signoff_expr::text;

use super::tally::Tally;

/// The most voters that a reason names.
const MOST_NAMED: usize = 4;

impl Tally<'_> {
    /// Ends without a verdict; an Event names every vote that is lost, as far as there is room.
    pub(super) fn void_votes(&mut self, outcome: Outcome) {
        if let Some(names) = names(self.approval, usize::MAX) {
            let message = format!("void, because the gate is asked again: the votes of {names}");
            self.report("VotesVoided", true, message, "voided".to_owned());
        }
        self.end(ApprovalPhase::Superseded, Source::Policy, outcome);
    }
}

/// Returns the first votes of an Approval as `alice@example.com (Approve)`, and how many more there are; `None` without a vote.
#[must_use]
pub fn voided(approval: &Approval) -> Option<String> {
    names(approval, MOST_NAMED)
}

fn names(approval: &Approval, most: usize) -> Option<String> {
    let votes = approval.spec.decisions.iter();
    let vote = |(key, decision): (&String, &Decision)| format!("{} ({})", text::display(key, 80), decision.verdict);
    listed(votes.map(vote).collect(), most)
}

/// Returns the first voters of an Approval, for a text of its status. **Invariant:** it names no verdict, because a status never has the
/// verdict of a vote that is not honoured.
pub(super) fn voters(approval: &Approval) -> Option<String> {
    listed(approval.spec.decisions.keys().map(|key| text::display(key, 80)).collect(), MOST_NAMED)
}

fn listed(all: Vec<String>, most: usize) -> Option<String> {
    let more = all.len().saturating_sub(most);
    let shown: Vec<_> = all.into_iter().take(most).collect();
    match (shown.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(shown.join(", ")),
        (false, more) => Some(format!("{} and {more} more", shown.join(", "))),
    }
}
