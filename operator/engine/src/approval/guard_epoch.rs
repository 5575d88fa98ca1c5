//! Whether the rules that vouch for an Approval's decisions were in force all the time: by the guard's epoch.
//!
//! The only place where epochs are compared. An epoch says that nothing of the guard was changed since it began, not
//! when it began: decisions of an earlier one may be forged, however well they look.

use signoff_api::{
    Approval, ApprovalStatus, Outcome,
    approval::{ApprovalPhase, Source},
};
use signoff_expr::text;

use super::{tally::Tally, void::voters};

impl Tally<'_> {
    /// Whether everything that was decided so far was decided in this epoch. An Approval without any decision is taken
    /// over into it, unless its request was changed.
    pub(super) fn is_current_epoch(&mut self) -> bool {
        if self.approval.guard_epoch() == self.now.guard_epoch {
            return true;
        }
        let untouched = self.approval.spec.decisions.is_empty() && is_blank(&self.status) && !self.request.is_changed();
        if untouched {
            self.status.guard_epoch = Some(self.now.guard_epoch.clone());
        }
        untouched
    }

    pub(super) fn supersede(&mut self) {
        let outcome = match self.request.is_changed() {
            true => changed(),
            false => superseded(self.approval, &self.now.guard_epoch),
        };
        self.void_votes(outcome);
    }
}

/// Returns the result for an Approval that was decided, in part or as a whole, in another epoch than the one in force.
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

/// Returns the result for an Approval whose request is not the one that its run asked.
#[must_use]
pub fn changed() -> Outcome {
    let why = format!(
        "{}: its request was changed after it was created, which the admission policies refuse, so the decisions cannot be trusted; the gate is asked again",
        Outcome::UNGUARDED
    );
    Outcome { phase: ApprovalPhase::Superseded, source: Source::Policy, reason: Some(why), ..Outcome::default() }
}

/// Whether who may decide, until when, and in which epoch are all the request's: nothing in this stored status changes
/// what a vote comes to.
#[must_use]
pub fn rests_on_request(status: Option<&ApprovalStatus>) -> bool {
    status.is_none_or(|status| is_blank(status) && status.guard_epoch.is_none() && status.reminders.is_none())
}

/// Whether a status has nothing that an unauthorized writer could profit from: who may decide and until
/// when are still the request's.
fn is_blank(status: &ApprovalStatus) -> bool {
    status.votes.is_empty()
        && status.invalid.is_empty()
        && status.approvers.is_empty()
        && status.level.is_none_or(|level| level == 0)
        && status.level_at.is_none()
        && status.deadline.is_none()
        && status.closes_at.is_none()
}
