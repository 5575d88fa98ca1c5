//! The check that the admission policies were in force for all decisions of an Approval, by the epoch of the guard.
//!
//! Only this module compares epochs. During an epoch the policies and their bindings did not change. Decisions of an
//! earlier epoch can be forged, even if they look valid.

use signoff_api::{
    Approval, ApprovalStatus, Outcome,
    approval::{ApprovalPhase, Source},
};
use signoff_expr::text;

use super::{tally::Tally, void::voters};

impl Tally<'_> {
    /// Moves an Approval of an earlier epoch to the current one if it has no decisions and its request is unchanged.
    /// Returns whether the Approval is of the current epoch now.
    pub(super) fn enter_current_epoch(&mut self) -> bool {
        if self.approval.guard_epoch() == self.now.guard_epoch {
            return true;
        }
        let can_move = self.approval.spec.decisions.is_empty() && is_blank(&self.status) && !self.request.is_changed();
        if can_move {
            self.status.guard_epoch = Some(self.now.guard_epoch.clone());
        }
        can_move
    }

    /// Ends the Approval without a verdict, because its decisions or its request cannot be trusted.
    pub(super) fn supersede(&mut self) {
        let outcome = match self.request.is_changed() {
            true => changed(),
            false => superseded(self.approval, &self.now.guard_epoch),
        };
        self.void_votes(outcome);
    }
}

/// Returns the outcome of an Approval with decisions of another epoch than the current one.
#[must_use]
pub fn superseded(approval: &Approval, in_force: &str) -> Outcome {
    let short = |epoch: &str| text::display(epoch, 12);
    let votes = match voters(approval) {
        Some(names) => format!("the votes of {names}"),
        None => "what is recorded".to_owned(),
    };
    let why = format!(
        "{}: the admission policies were changed since ({} to {}), so {votes} cannot be trusted; the gate is asked again",
        Outcome::UNGUARDED,
        short(approval.guard_epoch()),
        short(in_force)
    );
    Outcome { phase: ApprovalPhase::Superseded, source: Source::Policy, reason: Some(why), ..Outcome::default() }
}

/// Returns the outcome of an Approval whose request differs from the request that its run created.
#[must_use]
pub fn changed() -> Outcome {
    let why = format!(
        "{}: its request was changed after it was created, which the admission policies refuse, so the decisions cannot be trusted; the gate is asked again",
        Outcome::UNGUARDED
    );
    Outcome { phase: ApprovalPhase::Superseded, source: Source::Policy, reason: Some(why), ..Outcome::default() }
}

/// Whether the status changes neither the approvers nor the deadline nor the epoch of the request, so that it cannot
/// change the result of a vote.
#[must_use]
pub fn rests_on_request(status: Option<&ApprovalStatus>) -> bool {
    status.is_none_or(|status| is_blank(status) && status.guard_epoch.is_none() && status.reminders.is_none())
}

/// Whether a status has no value that an unauthorized writer could profit from: no votes, and no change of the
/// approvers or the deadline of the request.
fn is_blank(status: &ApprovalStatus) -> bool {
    status.votes.is_empty()
        && status.invalid.is_empty()
        && status.approvers.is_empty()
        && status.level.is_none_or(|level| level == 0)
        && status.level_at.is_none()
        && status.deadline.is_none()
        && status.closes_at.is_none()
}
