//! The status that follows from a turn on a cluster, and that of a run that has none.
//!
//! Pure, and the only place where a cluster's conditions of a Workflow are said. What follows from the same turn twice
//! is equal, so that nothing is written for it.

use signoff_api::{Moment, Workflow, WorkflowStatus, conditions, workflow::WorkflowPhase};
use signoff_engine::{
    Plan, Turn,
    language::text,
    status::{after as after_turn, finish, say, waiting},
};

use super::{observe::Seen, pending::Pending, plan::Refusal};
use crate::{guard::foreign_words, stalls};

/// The status after a turn: what it says wherever a run is driven from, and that decisions are vouched for.
pub(super) fn after(seen: &Seen, plan: &Plan, turn: &Turn, pending: Pending) -> WorkflowStatus {
    let (workflow, now) = (&*seen.workflow, seen.now);
    let mut status = after_turn(workflow, plan, turn, seen.overdue, now);
    evaluated(&mut status, workflow, now);
    let message = "the admission policies that vouch for decisions are in force";
    say(&mut status, workflow, now, conditions::GUARDED, true, "PoliciesInForce", message);
    foreign_mutation(&mut status, workflow, &seen.guarded.foreign, now);
    under_floors(&mut status, workflow, plan, turn, now);
    steps_wait(&mut status, workflow, (conditions::PODS_PENDING, "no step waits for its Pod"), pending.pods, now);
    steps_wait(&mut status, workflow, (conditions::CALLS_PENDING, "no step waits for a slot"), pending.calls, now);
    if turn.end.is_some() {
        stalls::recovered(&mut status, workflow, now);
    }
    if conditions::holds(&status.conditions, conditions::VALUE_UNAVAILABLE) {
        let message = "every large value of the run can be read and stored";
        say(&mut status, workflow, now, conditions::VALUE_UNAVAILABLE, false, "ValueAvailable", message);
    }
    status
}

/// The run is not set aside any more.
fn evaluated(status: &mut WorkflowStatus, workflow: &Workflow, now: Moment) {
    if status.quarantine.take().is_some() {
        let message = "its text was evaluated";
        say(status, workflow, now, conditions::QUARANTINED, false, "Evaluated", message);
    }
}

/// Sets the condition that a step waits; only where one waits or has waited.
fn steps_wait(
    status: &mut WorkflowStatus,
    workflow: &Workflow,
    (kind, none): (&str, &str),
    pending: Option<(String, String)>,
    now: Moment,
) {
    if let Some((reason, message)) = pending {
        say(status, workflow, now, kind, true, &reason, &message);
    } else if conditions::holds(&status.conditions, kind) {
        say(status, workflow, now, kind, false, "NothingPending", none);
    }
}

/// What policies of administrators come to in this turn: the gates that they added, once, and those that they hold.
fn under_floors(status: &mut WorkflowStatus, workflow: &Workflow, plan: &Plan, turn: &Turn, now: Moment) {
    status.added_steps = plan.added_steps().to_vec();
    match turn.held.first() {
        Some(first) => {
            let why = turn.held.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            status.message = Some(text::display(&format!("held: {why}"), 1024));
            say(status, workflow, now, conditions::HELD, true, first.reason, &why);
        }
        None if conditions::holds(&status.conditions, conditions::HELD) => {
            let message = "no policy of an administrator is in the way";
            say(status, workflow, now, conditions::HELD, false, "NothingHeld", message);
        }
        None => {}
    }
}

/// The status of a run that does not go on for now.
pub(super) fn held(workflow: &Workflow, why: &Refusal, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    evaluated(&mut status, workflow, now);
    status.observed_generation = workflow.metadata.generation;
    status.message = Some(text::display(&format!("held: {}", why.message), 1024));
    say(&mut status, workflow, now, conditions::HELD, true, why.reason, &why.message);
    status
}

/// The status of a run that ends because of its spec.
pub(super) fn refused(workflow: &Workflow, why: &Refusal, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    evaluated(&mut status, workflow, now);
    status.phase = WorkflowPhase::Failed;
    status.pending = Vec::new();
    status.observed_generation = workflow.metadata.generation;
    status.message = Some(text::display(&why.message, 1024));
    say(&mut status, workflow, now, conditions::ACCEPTED, false, why.reason, &why.message);
    waiting(&mut status, workflow, false, now);
    finish(&mut status, workflow, &why.message, now);
    status
}

/// The status of a run that is held because nobody vouches for decisions.
pub(super) fn unguarded(workflow: &Workflow, why: &str, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    say(&mut status, workflow, now, conditions::GUARDED, false, "PoliciesDiffer", why);
    status
}

/// Said only where there is or was something to say.
fn foreign_mutation(status: &mut WorkflowStatus, workflow: &Workflow, foreign: &[String], now: Moment) {
    let said = status.conditions.iter().any(|condition| condition.type_ == conditions::FOREIGN_MUTATION);
    match foreign {
        [] if !said => {}
        [] => {
            let message = "only the API server's own rules look at votes on their way";
            say(status, workflow, now, conditions::FOREIGN_MUTATION, false, "NoneFound", message);
        }
        some => {
            let message = foreign_words(some);
            say(status, workflow, now, conditions::FOREIGN_MUTATION, true, "OthersMatch", &message);
        }
    }
}
