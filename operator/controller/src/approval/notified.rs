//! The condition `Notified` of an open Approval: written while notices about it do not reach a channel.
//!
//! **Invariant:** no write is made for it while every notice is delivered, and an Approval that has ended does not have
//! it.

use signoff_api::{
    Approval, Moment,
    conditions::{self, ConditionUpdate},
};
use signoff_engine::approval::TallyResult;

use super::evaluate::{changed, earlier};
use crate::{context::Context, notices::NotifiedState};

/// Returns the ruling with the condition as it applies now.
pub(super) fn notified(context: &Context, approval: &Approval, mut result: TallyResult, now: Moment) -> TallyResult {
    if result.status.phase.is_end() {
        // Written with the outcome.
        conditions::remove(&mut result.status.conditions, conditions::NOTIFIED);
        return result;
    }
    let NotifiedState { problem, is_mended, wake_at } = match context.notices() {
        Some(notices) => notices.notified(approval, now),
        None => NotifiedState::without_channels(approval, now),
    };
    if let Some(wake_at) = wake_at {
        result.wake_at = earlier(result.wake_at, wake_at);
    }
    let mut told = result.status.conditions.clone();
    let is_news = match &problem {
        Some((reason, message)) => {
            let update = ConditionUpdate { kind: conditions::NOTIFIED, holds: false, reason, message };
            conditions::set(&mut told, &update, approval.metadata.generation, now)
        }
        None => is_mended && conditions::remove(&mut told, conditions::NOTIFIED),
    };
    // Of a changed request nothing is written.
    if !is_news || approval.spec.request.is_changed() {
        return result;
    }
    result.status.conditions = told;
    changed(result, true)
}
