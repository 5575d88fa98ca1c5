//! Builds the status of a Workflow on a cluster *(pure)*, with all its conditions. The same transition results in the
//! same status, so that nothing is written twice.

use signoff_api::{
    Moment, Workflow, WorkflowStatus,
    conditions::{self, reason},
    workflow::WorkflowPhase,
};
use signoff_engine::{
    Plan, Transition,
    status::{after as after_turn, finish, say, waiting},
};
use signoff_expr::text;

use super::{claim_slots::PendingConditions, observe::ObservedRun, plan::Refusal};
use crate::guard::external_mutators_message;

/// Returns the status after a transition.
pub(super) fn after_transition(
    seen: &ObservedRun,
    plan: &Plan,
    transition: &Transition,
    pending: PendingConditions,
) -> WorkflowStatus {
    let (workflow, now) = (&*seen.workflow, seen.now);
    let mut status = after_turn(workflow, plan, transition, seen.overdue, now);
    remove_quarantine_condition(&mut status);
    conditions::remove(&mut status.conditions, conditions::GUARDED);
    set_external_mutator_condition(&mut status, workflow, &seen.guarded.external_mutators, now);
    set_clock_condition(&mut status, workflow, seen.is_machine_ahead, now);
    set_policy_conditions(&mut status, workflow, plan, transition, now);
    set_waiting_condition(&mut status, workflow, conditions::PODS_PENDING, pending.pods, now);
    set_waiting_condition(&mut status, workflow, conditions::CALLS_PENDING, pending.calls, now);
    conditions::remove(&mut status.conditions, conditions::VALUE_UNAVAILABLE);
    if transition.end.is_some() {
        remove_waiting_conditions(&mut status);
    }
    status
}

/// Removes the conditions that only an open run has.
pub(super) fn remove_waiting_conditions(status: &mut WorkflowStatus) {
    for kind in [
        conditions::GUARDED,
        conditions::CLOCK_SKEWED,
        conditions::HELD,
        conditions::RESTORED,
        conditions::QUARANTINED,
        conditions::PODS_PENDING,
        conditions::CALLS_PENDING,
        conditions::STALLED,
        conditions::VALUE_UNAVAILABLE,
    ] {
        conditions::remove(&mut status.conditions, kind);
    }
}

/// Removes the quarantine of a run from its status, with the condition `Quarantined`.
fn remove_quarantine_condition(status: &mut WorkflowStatus) {
    status.quarantine = None;
    conditions::remove(&mut status.conditions, conditions::QUARANTINED);
}

/// Sets the condition `kind` with the reason and message of a waiting step, or removes the condition if no step waits.
fn set_waiting_condition(
    status: &mut WorkflowStatus,
    workflow: &Workflow,
    kind: &str,
    pending: Option<(String, String)>,
    now: Moment,
) {
    match pending {
        Some((reason, message)) => say(status, workflow, now, kind, true, &reason, &message),
        None => {
            conditions::remove(&mut status.conditions, kind);
        }
    }
}

/// Sets `addedSteps` to the gates that policies added to the plan. Sets the condition `Held` while policies hold gates
/// in this transition, and removes the condition otherwise.
fn set_policy_conditions(
    status: &mut WorkflowStatus,
    workflow: &Workflow,
    plan: &Plan,
    transition: &Transition,
    now: Moment,
) {
    status.added_steps = plan.added_steps().to_vec();
    match transition.blocked.first() {
        Some(first) => {
            let why = transition.blocked.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            status.message = Some(text::display(&format!("held: {why}"), 1024));
            say(status, workflow, now, conditions::HELD, true, first.reason, &why);
        }
        None => {
            conditions::remove(&mut status.conditions, conditions::HELD);
        }
    }
}

/// Returns the status of a run that policies hold.
pub(super) fn status_held_by_policy(workflow: &Workflow, why: &Refusal, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    remove_quarantine_condition(&mut status);
    status.observed_generation = workflow.metadata.generation;
    status.message = Some(text::display(&format!("held: {}", why.message), 1024));
    say(&mut status, workflow, now, conditions::HELD, true, why.reason, &why.message);
    status
}

/// Sets the message and the condition `Held` of a run that was accepted under other rules. Removes the conditions of
/// waiting and of quarantine.
pub(super) fn describe_held_by_rules(status: &mut WorkflowStatus, workflow: &Workflow, why: &str, now: Moment) {
    remove_quarantine_condition(status);
    remove_waiting_conditions(status);
    // A decision would not continue the run.
    conditions::remove(&mut status.conditions, conditions::WAITING);
    status.message = Some(text::display(&format!("held: {why}"), 1024));
    say(status, workflow, now, conditions::HELD, true, reason::OLD_RULES, why);
}

/// Sets the phase `Pending`, the message and the condition `Restored` of a run that is a copy from a backup. Removes
/// the conditions of waiting and of quarantine.
pub(super) fn describe_restored(status: &mut WorkflowStatus, workflow: &Workflow, why: &str, now: Moment) {
    remove_quarantine_condition(status);
    remove_waiting_conditions(status);
    conditions::remove(&mut status.conditions, conditions::WAITING);
    // Not `Suspended`, because a suspended run could be resumed.
    status.phase = WorkflowPhase::Pending;
    status.message = Some(text::display(&format!("restored: {why}"), 1024));
    say(status, workflow, now, conditions::RESTORED, true, reason::NOT_RESUMED, why);
}

/// Returns the status of a run of the old shape, with a condition and a message about it.
pub(super) fn status_of_old_shape(workflow: &Workflow, why: &Refusal, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    remove_quarantine_condition(&mut status);
    remove_waiting_conditions(&mut status);
    // No person has to decide, because a decision would not continue the run.
    conditions::remove(&mut status.conditions, conditions::WAITING);
    status.observed_generation = workflow.metadata.generation;
    status.message = Some(text::display(&why.message, 1024));
    say(&mut status, workflow, now, conditions::ACCEPTED, false, why.reason, &why.message);
    status
}

/// Returns the status of a run that ends because of its spec.
pub(super) fn status_of_refused(workflow: &Workflow, why: &Refusal, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    remove_quarantine_condition(&mut status);
    remove_waiting_conditions(&mut status);
    status.phase = WorkflowPhase::Failed;
    status.pending = Vec::new();
    status.observed_generation = workflow.metadata.generation;
    status.message = Some(text::display(&why.message, 1024));
    say(&mut status, workflow, now, conditions::ACCEPTED, false, why.reason, &why.message);
    waiting(&mut status, workflow, false, now);
    finish(&mut status, workflow, &why.message, now);
    status
}

/// Returns the status of a run that is held because the admission policies are not in force.
pub(super) fn status_held_by_guard(workflow: &Workflow, why: &str, now: Moment) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    say(&mut status, workflow, now, conditions::GUARDED, false, reason::POLICIES_DIFFER, why);
    status
}

/// Sets or removes the condition that the clock of the operator's machine is wrong.
fn set_clock_condition(status: &mut WorkflowStatus, workflow: &Workflow, is_ahead: Option<bool>, now: Moment) {
    let Some(is_ahead) = is_ahead else {
        conditions::remove(&mut status.conditions, conditions::CLOCK_SKEWED);
        return;
    };
    let (reason, word) = match is_ahead {
        true => (reason::MACHINE_AHEAD, "ahead of"),
        false => (reason::MACHINE_BEHIND, "behind"),
    };
    let message = format!(
        "the clock of the operator's machine is more than 5 s {word} that of the API server. Deadlines and times are the API server's, so \
         no gate ends early or late. Correct the clock of the operator's node, or of the API server's"
    );
    say(status, workflow, now, conditions::CLOCK_SKEWED, true, reason, &message);
}

/// Sets or removes the condition that webhooks or policies of others can change a vote.
fn set_external_mutator_condition(status: &mut WorkflowStatus, workflow: &Workflow, foreign: &[String], now: Moment) {
    match foreign {
        [] => {
            conditions::remove(&mut status.conditions, conditions::FOREIGN_MUTATION);
        }
        some => {
            let message = external_mutators_message(some);
            say(status, workflow, now, conditions::FOREIGN_MUTATION, true, reason::EXTERNAL_MUTATOR_FOUND, &message);
        }
    }
}
