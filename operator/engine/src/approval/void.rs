//! Votes that no longer count: votes of another epoch of the guard, and votes older than a policy allows. The Approval
//! is superseded, its reason names the voters, and its gate asks again.

use signoff_api::{
    Approval, Decision, EventReason, Moment, Outcome, Span, Verdict,
    approval::{ApprovalPhase, Source},
};
use signoff_expr::text;

use super::{
    eligibility::allowed_verdicts,
    tally::{Tally, VoteFilter},
    votes::Ballot,
};

/// The maximum number of voters that a reason names.
const MOST_NAMED: usize = 4;

impl Tally<'_> {
    /// Ends the Approval without a verdict. An Event names every lost vote.
    pub(super) fn void_votes(&mut self, outcome: Outcome) {
        if let Some(names) = listed_votes(self.approval, usize::MAX) {
            let message = format!("void, because the gate is asked again: the votes of {names}");
            self.report(EventReason::VotesVoided, message, "voided".to_owned());
        }
        self.end(ApprovalPhase::Superseded, Source::Policy, outcome);
    }

    /// Returns the time at which the oldest vote that could complete a quorum becomes too old, or `None`.
    pub(super) fn oldest_vote_expiry(&self) -> Option<Moment> {
        let age = self.request.max_vote_age.filter(|_| *self.filter != VoteFilter::Nothing)?;
        let allowed = allowed_verdicts(self.request, &self.status);
        let counts = |verdict: &Verdict| *verdict != Verdict::Escalate && allowed.contains(verdict);
        let votes = self.status.votes.iter().filter(|vote| counts(&vote.verdict));
        votes.map(|vote| vote.at).min().map(|at| at.after(age.duration()))
    }

    /// Whether a vote is older than policies allow.
    pub(super) fn is_too_old(&self, ballot: &Ballot) -> bool {
        let Some(age) = self.request.max_vote_age.map(Span::duration) else { return false };
        let vote = self.status.votes.iter().find(|vote| vote.key == ballot.key);
        vote.is_some_and(|vote| vote.at.after(age) <= self.latest_vote())
    }

    /// Returns the latest possible time of a vote: now, or the time at which the Approval closed. The age of votes is
    /// compared with this time, so that a late tally does not make votes too old.
    pub(super) fn latest_vote(&self) -> Moment {
        self.approval.closes_at().map_or(self.now.at, |closes| closes.min(self.now.at))
    }

    /// Ends the Approval without a verdict, because its oldest vote became too old at `passed`.
    pub(super) fn void_old_votes(&mut self, passed: Moment) {
        let age = self.request.max_vote_age.map(|age| age.to_string()).unwrap_or_default();
        let names = voters(self.approval).unwrap_or_default();
        let why = format!(
            "{}: policies let votes count together for {age} (gates.maxVoteAge), and the first of them was older before the quorum was met; void are the votes of {names}; the gate is asked again",
            Outcome::VOTES_TOO_OLD
        );
        self.due = Some(passed);
        let outcome = Outcome { reason: Some(why), ..Outcome::default() };
        self.void_votes(outcome);
    }
}

/// Returns the first votes of an Approval as `alice@example.com (Approve)` and the number of the other votes, or `None`
/// without a vote.
#[must_use]
pub fn voided(approval: &Approval) -> Option<String> {
    listed_votes(approval, MOST_NAMED)
}

fn listed_votes(approval: &Approval, most: usize) -> Option<String> {
    let votes = approval.spec.decisions.iter();
    let vote = |(key, decision): (&String, &Decision)| format!("{} ({})", text::display(key, 80), decision.verdict);
    first_and_rest(votes.map(vote).collect(), most)
}

/// Returns the first voters of an Approval, for a text of its status. **Invariant:** the text names no verdict, because
/// a status never has the verdict of a vote that does not count.
pub(super) fn voters(approval: &Approval) -> Option<String> {
    first_and_rest(approval.spec.decisions.keys().map(|key| text::display(key, 80)).collect(), MOST_NAMED)
}

/// Joins the first `most` texts, and adds the number of the others. Returns `None` without texts.
fn first_and_rest(texts: Vec<String>, most: usize) -> Option<String> {
    let more = texts.len().saturating_sub(most);
    let shown: Vec<_> = texts.into_iter().take(most).collect();
    match (shown.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(shown.join(", ")),
        (false, more) => Some(format!("{} and {more} more", shown.join(", "))),
    }
}
