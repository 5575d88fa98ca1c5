//! Decides whether the commit of a transition waits for the next one *(pure)*: it adds only ends of calls of an agent
//! that may be repeated, and the end of another call of the run follows, which is committed anyway; or ends of turns
//! whose calls only read.
//!
//! **Invariant:** never waits with the end of a call that must not be repeated, or that people were asked about.

use std::time::Duration;

use signoff_api::{Moment, WorkflowStatus};
use signoff_engine::{Plan, Transition, driver::CallKey};

use super::{
    claim_slots::{SlotClaims, pending_conditions},
    observe::ObservedRun,
    status,
};
use crate::context::Context;

/// The longest time for which an end is not committed.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest time for which the end of a turn is not committed: a crash within it repeats the turn, which costs
/// money.
const LONGEST_OF_A_TURN: Duration = Duration::from_secs(1);
/// The most bytes of results of one run that are not committed.
const MOST_BYTES: usize = 256 * 1024;

/// Returns until when the commit waits, or `None` if it must not. The claimed calls begin all the same.
pub(super) fn deferred_until(
    context: &Context,
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    claims: &SlotClaims,
) -> Option<Moment> {
    let until = waits_for_calls(context, seen, plan, transition, claims)
        .or_else(|| waits_for_reads(context, seen, plan, transition, claims))?;
    let can_wait = seen.now < until && !context.is_draining();
    (can_wait && changes_only_journal(context, seen, plan, transition, claims)).then_some(until)
}

/// Returns until when the ends of calls that may be repeated wait for the end of another call.
fn waits_for_calls(
    context: &Context,
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    claims: &SlotClaims,
) -> Option<Moment> {
    let (taken, bytes) = transition.repeatable_ends(&seen.journal, plan)?;
    let until = context.runs.oldest_result(&seen.name, &seen.uid, taken)?.after(LONGEST);
    (bytes <= MOST_BYTES && claims.begin.is_empty()).then_some(until)
}

/// Returns until when the end of a turn waits for the ends of its calls, which only read. Each of them is in flight, or
/// begins now.
fn waits_for_reads(
    context: &Context,
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    claims: &SlotClaims,
) -> Option<Moment> {
    let (open, bytes) = transition.unstored_reads(&seen.journal, plan)?;
    let begins = |key: &CallKey| claims.begin.iter().any(|claim| claim.call.key() == *key);
    // A result that is here and that the transition has not taken is stored, so that the next one takes it.
    let goes_on = |key: &CallKey| begins(key) || context.runs.is_in_flight(&seen.name, &seen.uid, key);
    let only_reads_begin = claims.begin.iter().all(|claim| open.contains(&claim.call.key()));
    let until = context.runs.oldest(&seen.name, &seen.uid)?.after(LONGEST_OF_A_TURN);
    (bytes <= MOST_BYTES && only_reads_begin && open.iter().all(goes_on)).then_some(until)
}

/// Whether the status changes in nothing but the journal, so that readers of the status miss nothing but journal
/// records.
fn changes_only_journal(
    context: &Context,
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    claims: &SlotClaims,
) -> bool {
    let pending = pending_conditions(context, seen, transition, claims);
    let next = status::after_transition(seen, plan, transition, pending);
    let WorkflowStatus { seq, value_bytes, journal_version, usage, ref steps, .. } = seen.status;
    let same_journal = WorkflowStatus { seq, value_bytes, journal_version, usage, steps: steps.clone(), ..next };
    same_journal == seen.status
}
