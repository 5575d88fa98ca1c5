//! Decides whether the commit of a transition waits for the next one *(pure)*. It waits if the transition adds only
//! ends of repeatable calls of an agent, and the end of another call of the run will be committed anyway. It also waits
//! if the transition adds only ends of turns whose calls only read.
//!
//! **Invariant:** never delays the end of a call that must not be repeated, or that people were asked about.

use std::time::Duration;

use signoff_api::{Moment, WorkflowStatus};
use signoff_engine::{Plan, Transition, driver::CallKey};

use super::{
    claim_slots::{SlotClaims, pending_conditions},
    observe::ObservedRun,
    status,
};
use crate::context::Context;

/// The longest time for which the end of a call stays uncommitted.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The longest time for which the end of a turn stays uncommitted. A crash within it repeats the turn, which costs
/// money.
const MAX_WAIT_OF_TURN: Duration = Duration::from_secs(1);
/// The most bytes of uncommitted results of one run.
const MAX_UNCOMMITTED_BYTES: usize = 256 * 1024;

/// A transition that is not committed yet.
pub(super) struct Uncommitted<'a> {
    pub(super) context: &'a Context,
    pub(super) seen: &'a ObservedRun,
    pub(super) plan: &'a Plan,
    pub(super) transition: &'a Transition,
    pub(super) claims: &'a SlotClaims,
}

impl Uncommitted<'_> {
    /// Returns the time until which the commit waits, or `None` to commit now. The claimed calls begin in both cases.
    pub(super) fn waits_until(&self) -> Option<Moment> {
        let until = self.waits_for_calls().or_else(|| self.waits_for_reads())?;
        let can_wait = self.seen.now < until && !self.context.calls.is_draining();
        (can_wait && self.changes_only_journal()).then_some(until)
    }

    /// Returns the time until which ends of repeatable calls wait for the end of another call, or `None`.
    fn waits_for_calls(&self) -> Option<Moment> {
        let (taken, bytes) = self.transition.repeatable_ends(&self.seen.journal, self.plan)?;
        let until = self.context.calls.runs.oldest_result(&self.seen.name, &self.seen.uid, taken)?.after(MAX_WAIT);
        (bytes <= MAX_UNCOMMITTED_BYTES && self.claims.begin.is_empty()).then_some(until)
    }

    /// Returns the time until which the end of a turn waits for the ends of its reading calls, or `None`. Each of these
    /// calls must be in flight or begin now.
    fn waits_for_reads(&self) -> Option<Moment> {
        let Self { context, seen, claims, .. } = self;
        let (open, bytes) = self.transition.unstored_reads(&seen.journal, self.plan)?;
        let begins = |key: &CallKey| claims.begin.iter().any(|claim| claim.call.key() == *key);
        // If a result has arrived that the transition does not contain, the commit does not wait, so that the next
        // transition takes it.
        let continues = |key: &CallKey| begins(key) || context.calls.runs.is_in_flight(&seen.name, &seen.uid, key);
        let only_reads_begin = claims.begin.iter().all(|claim| open.contains(&claim.call.key()));
        let until = context.calls.runs.oldest(&seen.name, &seen.uid)?.after(MAX_WAIT_OF_TURN);
        (bytes <= MAX_UNCOMMITTED_BYTES && only_reads_begin && open.iter().all(continues)).then_some(until)
    }

    /// Whether only the journal in the status changes, so that readers of the status miss only journal records and
    /// their tokens.
    fn changes_only_journal(&self) -> bool {
        let Self { context, seen, plan, transition, claims } = *self;
        let pending = pending_conditions(&context.calls.pods, seen, transition, claims);
        let next = status::after_transition(seen, plan, transition, pending);
        let WorkflowStatus { seq, value_bytes, journal_version, usage, ref steps, .. } = seen.status;
        let same_journal = WorkflowStatus { seq, value_bytes, journal_version, usage, steps: steps.clone(), ..next };
        same_journal == seen.status
    }
}
