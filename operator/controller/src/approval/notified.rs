//! The condition `Notified` of an open Approval, which is false while a channel does not get its notices.
//!
//! **Invariant:** causes no write while every notice is delivered. An ended Approval does not have the condition.

use signoff_api::{
    Approval, Moment,
    conditions::{self, ConditionUpdate},
};
use signoff_engine::approval::TallyResult;

use super::evaluate::{earlier, mark_changed};
use crate::{context::Context, notices::NotifiedState};

/// Returns the tally with the current condition `Notified`.
pub(super) fn update_notified(
    context: &Context,
    approval: &Approval,
    mut result: TallyResult,
    now: Moment,
) -> TallyResult {
    if result.status.phase.is_end() {
        // The removal is written together with the outcome.
        conditions::remove(&mut result.status.conditions, conditions::NOTIFIED);
        return result;
    }
    let NotifiedState { problem, is_resolved, wake_at } = match context.notices() {
        Some(notices) => notices.notified_state(approval, now),
        None => NotifiedState::without_channels(approval, now),
    };
    if let Some(wake_at) = wake_at {
        result.wake_at = earlier(result.wake_at, wake_at);
    }
    let mut updated = result.status.conditions.clone();
    let is_news = match &problem {
        Some((reason, message)) => {
            let update = ConditionUpdate { kind: conditions::NOTIFIED, holds: false, reason, message };
            conditions::set(&mut updated, &update, approval.metadata.generation, now)
        }
        None => is_resolved && conditions::remove(&mut updated, conditions::NOTIFIED),
    };
    // Nothing is written for a changed request.
    if !is_news || approval.spec.request.is_changed() {
        return result;
    }
    result.status.conditions = updated;
    mark_changed(result, true)
}
