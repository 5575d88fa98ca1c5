//! The way of one step: gates before it, attempts, the calls of its agent, what is done about its answer, and what a
//! failure means for the run.
//!
//! The kinds of steps stand beside this module; none of them knows what pattern it is in.

use std::rc::Rc;

use signoff_api::journal::StepPhase;

use super::{
    agent::{self, ClearedCall},
    attempts::{Attempts, Performed, is_retryable, run_attempts, was_call_asked, was_made_meanwhile},
    failure::{self, StepFailure},
    flow::{EarlyEnd, StepFlow, StepResult},
    gate::{self, decide},
    gate_before::{self, GateBefore},
    join::Member,
    opening::kind,
    output::{self, AnswerParser},
    turn::Turn,
};
use crate::{
    plan::PlannedStep,
    replay::{
        activity::{ActivityKey, Start, error},
        run::Run,
        scope::StepScope,
        step_invocation::StepInvocation,
    },
};

/// Runs a step of a list once more.
pub(crate) async fn step<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
) -> Result<StepFlow, EarlyEnd> {
    let Some(gate) = step.gate() else {
        return perform(run, step_scope, step, &step.path, None).await.map(|_| StepFlow::Continue);
    };
    let decided = decide(run, step_scope, step, &step.path, &|seq| gate::reviewed(run, step_scope, gate, seq)).await?;
    gate::next_step(run, step, gate, &decided)
}

/// Performs a step that is no gate, at `base`, until it has an answer that is as it should be. `parser`: reads
/// the answer, and says how often an unreadable one is requested again.
pub(crate) async fn perform<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
    base: &str,
    parser: Option<&AnswerParser<'_>>,
) -> Result<StepResult, EarlyEnd> {
    let (path, _) = run.visit(base);
    match perform_as(run, StepInvocation::new(step_scope, step, &path), base, Attempts::first(step), parser).await? {
        Performed::Ended(result) => Ok(result),
        Performed::AskAgain(_) => Err(EarlyEnd::Failed(format!(
            "internal error; report this as a bug: step {} is no call of a tool",
            step.name
        ))),
    }
}

/// Performs the step of a tool for one call.
fn perform_call<'r, 'a>(run: &'r Run<'a>, call: ClearedCall<'a>) -> Member<'r, Performed> {
    Box::pin(async move {
        let mut invocation = StepInvocation::new(&call.step_scope, call.step, &call.path);
        invocation.first_asked = Some(call.seen);
        invocation.permission = Some(Rc::new(call.cleared));
        perform_as(run, invocation, &call.path, call.attempts, None).await
    })
}

async fn perform_as<'a>(
    run: &Run<'a>,
    mut invocation: StepInvocation<'a>,
    base: &str,
    attempts: Attempts,
    parser: Option<&AnswerParser<'_>>,
) -> Result<Performed, EarlyEnd> {
    let (step, step_scope, path) = (invocation.step, invocation.step_scope.clone(), invocation.base.clone());
    let step_scope = &step_scope;
    let mut turn = Turn::first(&path);
    let (own_gate, policy_gates) = (gate_before::own_gate(step, &path), gate_before::policy_gates(step, base));
    let mut gates: Vec<_> = own_gate.iter().chain(&policy_gates).cloned().collect();
    let Attempts { next: mut attempt, further: mut limit } = attempts;
    loop {
        let key = ActivityKey { path: turn.path.clone(), attempt, kind: kind(step) };
        if !gate_before::ask(run, &mut invocation, &key, gates, limit).await? {
            run.activity(step_scope, key, |_| Ok(Start::Skipped)).await;
            output::record_end(run, &invocation, &turn, Start::Skipped).await;
            return Ok(Performed::Ended(StepResult::Skipped));
        }
        let record;
        (record, limit) = run_attempts(run, &invocation, &key, limit).await;
        attempt = record.attempt;
        if is_retryable(step, &record) && limit > 0 {
            // The outcome of the attempt is unknown, or an equal call was made meanwhile: a further one needs a further approval.
            let next = ActivityKey { attempt: attempt + 1, ..key.clone() };
            if !step.is_agent()
                && (was_call_asked(&invocation) || was_made_meanwhile(run, &invocation, &key, &next).await)
            {
                return Ok(Performed::AskAgain(Attempts { next: attempt + 1, further: limit - 1 }));
            }
            if !policy_gates.is_empty() {
                (attempt, limit) = (attempt + 1, limit - 1);
                gates = policy_gates.clone();
                continue;
            }
        }
        let failure = match (record.phase, record.error.clone()) {
            (StepPhase::Skipped, _) => return Ok(Performed::Ended(StepResult::Skipped)),
            (StepPhase::Succeeded, _) if record.calls_tools() => {
                match agent::perform_turn(run, &invocation, &record, &turn, perform_call).await? {
                    Ok(done) => {
                        invocation.continue_with(done, record.seq);
                        turn = turn.next(run, &path, attempt);
                        Attempts { next: attempt, further: limit } = Attempts::first(step);
                        gates = policy_gates.clone();
                        continue;
                    }
                    Err(why) => why,
                }
            }
            (StepPhase::Succeeded, _) => {
                match output::process_answer(run, &invocation, &policy_gates, (&turn, attempt), parser).await? {
                    output::AnswerResult::Accepted(text) => return Ok(Performed::Ended(StepResult::Answered(text))),
                    output::AnswerResult::Again if invocation.permission.is_some() => {
                        return Ok(Performed::AskAgain(Attempts { next: turn.attempt_after(attempt), further: 0 }));
                    }
                    output::AnswerResult::Again => {
                        attempt = turn.attempt_after(attempt);
                        (turn, limit) = (Turn::first(&path), 0);
                        (invocation.turns, invocation.first_heard) = (Vec::new(), None);
                        gates = gates_of_repeat(&own_gate, &policy_gates, false);
                        continue;
                    }
                    output::AnswerResult::Refused(why) => StepFailure::of(why),
                    output::AnswerResult::Rejected(why) => StepFailure { by_a_person: true, ..StepFailure::of(why) },
                }
            }
            (_, Some(error)) => StepFailure::of(error),
            (_, None) => StepFailure::of(error("Failed", "it failed")),
        };
        match failure::decide(run, &invocation, &turn.path, attempt, &failure).await? {
            failure::FailureAction::Again(_) if invocation.permission.is_some() => {
                return Ok(Performed::AskAgain(Attempts { next: turn.attempt_after(attempt), further: 0 }));
            }
            failure::FailureAction::Again(change) => {
                gates = gates_of_repeat(&own_gate, &policy_gates, !change.parameters.is_empty());
                invocation.overrides.merge(change);
                (attempt, limit) = (attempt + 1, 0);
            }
            failure::FailureAction::Answer(text) => {
                output::record_end(run, &invocation, &turn, Start::Immediate(text.clone())).await;
                return Ok(Performed::Ended(StepResult::Answered(text)));
            }
            failure::FailureAction::Skip => {
                output::record_end(run, &invocation, &turn, Start::Skipped).await;
                return Ok(Performed::Ended(StepResult::Skipped));
            }
            failure::FailureAction::Continue => {
                output::record_end(run, &invocation, &turn, Start::Failed(failure.error.clone())).await;
                return Ok(Performed::Ended(StepResult::Failed(failure.error.message)));
            }
        }
    }
}

/// The gates that are asked before an attempt that people or a timeout ordered: those of policies always, that of the
/// author where something was changed.
fn gates_of_repeat<'a>(
    own: &Option<GateBefore<'a>>,
    of_policies: &[GateBefore<'a>],
    changed: bool,
) -> Vec<GateBefore<'a>> {
    own.iter().filter(|_| changed).chain(of_policies).cloned().collect()
}
