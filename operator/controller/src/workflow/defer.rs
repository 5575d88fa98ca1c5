//! Decides whether the commit of a transition waits for the next one *(pure)*: it adds only ends of calls of an agent that may be
//! repeated, and the end of another call of the run follows, which is committed anyway.
//!
//! **Invariant:** never waits with the end of a call that must not be repeated, or that people were asked about.

use std::time::Duration;

use signoff_api::{Moment, WorkflowStatus};
use signoff_engine::{Plan, Transition};

use super::{
    claim_slots::{SlotClaims, pending_conditions},
    observe::ObservedRun,
    status,
};
use crate::context::Context;

/// The longest time for which an end is not committed.
const LONGEST: Duration = Duration::from_secs(30);
/// The most bytes of results of one run that are not committed.
const MOST_BYTES: usize = 256 * 1024;

/// Returns until when the commit waits, or `None` if it must not.
pub(super) fn deferred_until(
    context: &Context,
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    claims: &SlotClaims,
) -> Option<Moment> {
    let (taken, bytes) = transition.repeatable_ends(&seen.journal, plan)?;
    let until = context.runs.oldest_result(&seen.name, &seen.uid, taken)?.after(LONGEST);
    let can_wait = bytes <= MOST_BYTES && claims.begin.is_empty() && seen.now < until && !context.is_draining();
    (can_wait && changes_only_journal(context, seen, plan, transition, claims)).then_some(until)
}

/// Whether the status changes in nothing but the journal, so that readers of the status miss nothing but journal records.
fn changes_only_journal(
    context: &Context,
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    claims: &SlotClaims,
) -> bool {
    let pending = pending_conditions(context, seen, transition, claims);
    let next = status::after_transition(seen, plan, transition, pending);
    let (seq, value_bytes, steps) = (seen.status.seq, seen.status.value_bytes, seen.status.steps.clone());
    WorkflowStatus { seq, value_bytes, steps, ..next } == seen.status
}
