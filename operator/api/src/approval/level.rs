//! The time of one level of escalation: its timeout, its start, and its reminders. Level 0 is the request itself.

use std::time::Duration;

use super::{ApprovalRequest, ApprovalStatus};
use crate::values::{Moment, Span};

/// The default timeout of a level.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

impl ApprovalRequest {
    /// Returns the time from the start of a level to its deadline.
    #[must_use]
    pub fn timeout_of_level(&self, level: i32) -> Duration {
        let named = usize::try_from(level.saturating_sub(1))
            .ok()
            .and_then(|at| self.timeout.escalation.get(at))
            .and_then(|l| l.after);
        named.or(self.timeout.after).map_or(DEFAULT_TIMEOUT, Span::duration)
    }

    /// Returns the start of the current level, from which reminders count.
    #[must_use]
    pub fn level_began(&self, status: &ApprovalStatus) -> Moment {
        match (status.level.unwrap_or(0), status.level_at) {
            // A deadline is a whole second, and so is the start that is computed from it.
            (1.., Some(at)) => at.ceil_to_second(),
            (level, _) => status.deadline.unwrap_or(self.deadline).before(self.timeout_of_level(level)),
        }
    }

    /// Returns the time of a reminder of the current level, counted from 1, or `None` without reminders.
    #[must_use]
    pub fn reminder_at(&self, status: &ApprovalStatus, number: i32) -> Option<Moment> {
        let every = self.timeout.reminder_interval.map(Span::duration).filter(|every| !every.is_zero())?;
        let passed = every.saturating_mul(u32::try_from(number).unwrap_or(0));
        Some(self.level_began(status).after(passed))
    }
}
