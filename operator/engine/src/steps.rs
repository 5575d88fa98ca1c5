//! One step, whatever it does and wherever it stands: gates before it, attempts, what is done about its answer, and
//! what a failure means for the run.
//!
//! The kinds of steps stand below; none of them knows what pattern it is in.

mod agent;
pub(crate) mod excerpt;
mod exclusions;
mod failure;
mod gate;
mod gate_before;
mod http;
pub(crate) mod join;
mod output;
mod pod;
pub(crate) mod request;
mod sent;

use std::{rc::Rc, time::Duration};

use signoff_api::{
    Digest, Moment, Verdict,
    journal::{FACT_UNKNOWN, StepKind, StepPhase, StepRecord},
};

use crate::{
    plan::{Action, PlannedStep},
    replay::{
        activity::{ActivityKey, Start, error, input_digest},
        run::{RenderError, Run},
        scope::{self, StepScope},
        step_invocation::StepInvocation,
    },
    transition::had_no_room,
};

pub(crate) use agent::Cleared;
use failure::StepFailure;
pub(crate) use gate::{DecidedGate, decide};
use gate::{MOST_AGAIN, SubjectAt};
use gate_before::GateBefore;
pub(crate) use output::{AnswerParser, parse_again};

/// The control flow after a step of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepFlow {
    /// Continue with the next step.
    Continue,
    /// Repeat from the step at this position; `None` repeats this step alone.
    Repeat(Option<usize>),
    /// End with a refusal, unless the pattern continues after one.
    Refused(String),
}

/// The reason why a pattern ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    Failed(String),
    /// Failed because a person gave up: the branches beside it end too.
    GivenUp(String),
    Rejected(String),
    Aborted(String),
}

/// The result of a step that is not a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// It answered this.
    Answered(String),
    /// It was left out.
    Skipped,
    /// It failed, and the run goes on.
    Failed(String),
}

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

/// The end of a step, or the request for a further approval.
pub(crate) enum Performed {
    Ended(StepResult),
    /// The call of a tool shall be made once more, if the gates in front of it allow that.
    AskAgain(Attempts),
}

/// The attempts that may be made at a step before people are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    /// The number of the next one, from 1.
    pub(crate) next: i32,
    /// The number of attempts that may follow it.
    pub(crate) further: i32,
}

impl Attempts {
    pub(crate) fn first(step: &PlannedStep) -> Self {
        Self { next: 1, further: step.usual_retries() }
    }
}

/// Performs the step of a tool for one call at `path`. `seen`: the number before which everything is known that
/// its templates see.
pub(crate) async fn perform_call<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
    (path, attempts): (&str, Attempts),
    seen: i64,
    cleared: Cleared,
) -> Result<Performed, EarlyEnd> {
    let mut invocation = StepInvocation::new(step_scope, step, path);
    invocation.first_asked = Some(seen);
    invocation.permission = Some(Rc::new(cleared));
    perform_as(run, invocation, path, attempts, None).await
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
    let mut turn = agent::Turn::first(&path);
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
                match agent::perform_turn(run, &invocation, &record, &turn).await? {
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
                        (turn, limit) = (agent::Turn::first(&path), 0);
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

/// Asks at a gate that stands before or after something, until it lets the run through. Returns the decision that did.
pub(crate) async fn pass<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
    base: &str,
    shown: SubjectAt<'_>,
) -> Result<Option<DecidedGate>, EarlyEnd> {
    let Some(gate) = step.gate() else { return Ok(None) };
    loop {
        let decided = decide(run, step_scope, step, base, shown).await?;
        match gate::next_step(run, step, gate, &decided)? {
            StepFlow::Continue => return Ok(Some(decided)),
            StepFlow::Repeat(_) => {}
            StepFlow::Refused(why) => return Err(EarlyEnd::Rejected(why)),
        }
    }
}

/// Whether people were asked about a call, at the gates in front of its tool or at that of its author before the step.
fn was_call_asked(invocation: &StepInvocation<'_>) -> bool {
    let permission = invocation.permission.as_ref();
    permission.is_some_and(|permission| permission.was_asked() || invocation.step.start.is_some())
}

/// One attempt after the other, until one is not to be repeated; at most `limit` further ones. Returns the last one, and how many
/// further ones are left.
async fn run_attempts<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    key: &ActivityKey,
    limit: i32,
) -> (StepRecord, i32) {
    let (invocation, first) = (Rc::new(invocation.clone()), key.attempt);
    let (mut attempt, mut limit) = (first, limit);
    loop {
        let key = ActivityKey { attempt, ..key.clone() };
        if matches!(key.kind, StepKind::Agent | StepKind::Set) {
            run.invocations.borrow_mut().insert((key.path.clone(), attempt), Rc::clone(&invocation));
        }
        let open = |seq| open_attempt(run, &invocation, seq, &key, || open(run, &invocation, seq, &key));
        let record = run.activity(&invocation.step_scope, key.clone(), open).await;
        // A turn of a model has no effect: it may be made once more.
        let was_asked = key.kind != StepKind::Agent && was_call_asked(&invocation);
        let is_covered = (invocation.step.policy_gates.is_empty() && !was_asked) || is_failure_certain(&record);
        // Whether there is room is no matter of the step: it is not counted, and people are not asked.
        let is_counted = !had_no_room(&record);
        if is_counted && (!is_retryable(invocation.step, &record) || !is_covered || limit <= 0) {
            return (record, limit);
        }
        attempt += 1;
        let next = ActivityKey { attempt, ..key.clone() };
        run.pause(retry_at(run, invocation.step, &record), &next).await;
        let first = ActivityKey { attempt: first, ..key.clone() };
        if was_made_meanwhile(run, &invocation, &first, &next).await {
            return (record, limit);
        }
        limit -= i32::from(is_counted);
    }
}

/// Whether a call that is equal to the step was made since its first attempt began, before the next one.
async fn was_made_meanwhile<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    first: &ActivityKey,
    next: &ActivityKey,
) -> bool {
    let began = |key: &ActivityKey| run.state.borrow().journal.get(&key.path, key.attempt).map(|record| record.seq);
    let Some(from) = began(first) else { return false };
    invocation.was_made_since(run, from, began(next)).await
}

fn kind(step: &PlannedStep) -> StepKind {
    match step.action {
        Action::Agent(_) => StepKind::Agent,
        Action::Pod(_) => StepKind::Pod,
        Action::Http(_) => StepKind::Http,
        Action::Set(_) => StepKind::Set,
        Action::Gate(_) => StepKind::Hitl,
    }
}

/// Whether an attempt failed in a way that is tried again.
fn is_retryable(step: &PlannedStep, record: &StepRecord) -> bool {
    let is_meant = record.phase == StepPhase::Failed && record.error.as_ref().is_some_and(|error| error.retryable);
    is_meant && step.retry.covers(record)
}

/// Whether it is known that an attempt failed: the server itself said so, or a container has ended. A gateway does not know
/// what the server behind it did (of 502 and 504, records of earlier versions do not say so), and a status below 400 says
/// that it was done.
fn is_failure_certain(record: &StepRecord) -> bool {
    if !matches!(record.kind, StepKind::Agent | StepKind::Http) {
        return true;
    }
    let status = record.facts.get("statusCode").and_then(|status| status.parse::<u16>().ok());
    let is_gateway = |status| matches!(status, 502 | 504) || record.facts.contains_key(FACT_UNKNOWN);
    status.is_some_and(|status| status >= 400 && !is_gateway(status))
}

/// Whether a call had its effect, or may have had it: it succeeded, its outcome is unknown, or it was answered with an
/// error.
pub(crate) fn may_have_effect(record: &StepRecord) -> bool {
    let was_sent = || {
        let class = record.error.as_ref().map_or("", |error| error.class.as_str());
        record.input_digest.is_some() && !matches!(class, "Invalid" | "Refused" | "Unreachable")
    };
    match record.phase {
        StepPhase::Succeeded | StepPhase::Unknown => true,
        StepPhase::Failed => was_sent(),
        StepPhase::Pending | StepPhase::Started | StepPhase::Waiting | StepPhase::Skipped => false,
    }
}

/// Whether only people can say that an attempt is made once more: it had its effect, or may have had it, and it is
/// never repeated by itself. A deadline is no such decision.
fn is_repeated_by_people_only(step: &PlannedStep, record: &StepRecord) -> bool {
    let is_safe = record.phase == StepPhase::Failed && record.error.as_ref().is_some_and(|error| error.retryable);
    matches!(record.kind, StepKind::Http | StepKind::Pod)
        && !step.is_idempotent()
        && may_have_effect(record)
        && !is_safe
}

/// Opens an attempt at a step, unless its conditions skip it or cannot be evaluated. Every attempt evaluates them when it begins, with the
/// values that the first one saw, so an attempt never runs without. An attempt that has begun is repeated without them.
fn open_attempt<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    seq: i64,
    key: &ActivityKey,
    open: impl FnOnce() -> Result<Start, RenderError>,
) -> Result<Start, RenderError> {
    if key.path != invocation.base || has_begun(run, key) {
        return open();
    }
    let seen = invocation.visible_before(run, seq);
    match conditions(run, &invocation.step_scope, invocation.step, seen)? {
        Conditions::Hold => open(),
        Conditions::Skip => Ok(Start::Skipped),
        Conditions::Undecided(why) => Ok(Start::Failed(error(CONDITION, &why))),
    }
}

/// Opens a gate, unless its conditions skip it. A gate whose condition cannot be evaluated asks.
fn open_gate<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    gate: &PlannedStep,
    seq: i64,
    key: &ActivityKey,
    open: impl FnOnce() -> Result<Start, RenderError>,
) -> Result<Start, RenderError> {
    let is_skipped = !has_begun(run, key) && matches!(conditions(run, step_scope, gate, seq)?, Conditions::Skip);
    if is_skipped { Ok(Start::Skipped) } else { open() }
}

fn has_begun(run: &Run<'_>, key: &ActivityKey) -> bool {
    run.state.borrow().journal.get(&key.path, key.attempt).is_some()
}

/// Returns the input of an attempt that people approved.
fn open<'a>(run: &Run<'a>, invocation: &StepInvocation<'a>, seq: i64, key: &ActivityKey) -> Result<Start, RenderError> {
    let opening = render_input(run, invocation, seq, key)?;
    let is_permitted = |input: Result<&Digest, &String>| match &invocation.permission {
        Some(cleared) => cleared.allows(invocation.step, input),
        None => !invocation.step.is_tool(),
    };
    let changed = || {
        let why = "what would run is not what was approved: the Workflow, or the operator, has changed since";
        RenderError::Invalid(why.to_owned())
    };
    let Start::Call(call) = &opening else {
        let is_call = invocation.step.is_tool() && matches!(opening, Start::Immediate(_));
        return if is_call && !is_permitted(Err(&String::new())) { Err(changed()) } else { Ok(opening) };
    };
    let input = input_digest(call);
    let approved = match &invocation.approved {
        Some(approved) => input.as_ref() == Ok(approved),
        None => invocation.step.policy_gates.is_empty(),
    };
    if approved && is_permitted(input.as_ref()) { Ok(opening) } else { Err(changed()) }
}

/// Returns the input of an attempt, rendered from the values as of `seq`.
fn render_input<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    seq: i64,
    key: &ActivityKey,
) -> Result<Start, RenderError> {
    run.origins.note_edits(&invocation.overrides.edits);
    match &invocation.step.action {
        Action::Agent(agent) => agent::call(run, invocation, agent, seq, key),
        Action::Pod(pod) => pod::call(run, invocation, pod, seq, key),
        Action::Http(http) => http::call(run, invocation, http, seq, key),
        Action::Set(template) => match invocation.overrides.parameters.get("value") {
            Some(value) => Ok(Start::Immediate(value.clone())),
            None => Ok(Start::Immediate(template.render(&invocation.scope(run, seq)?)?)),
        },
        Action::Gate(_) => {
            Err(RenderError::Invalid("internal error; report this as a bug: a gate was started as a call".to_owned()))
        }
    }
}

/// When the attempt after this one may begin. What is left to chance is the same at every replay.
fn retry_at(run: &Run<'_>, step: &PlannedStep, failed: &StepRecord) -> Moment {
    let retry = &step.retry;
    let pause = (retry.base.as_secs_f64() * retry.factor.powi(failed.attempt - 1)).min(retry.max.as_secs_f64());
    let seed = Digest::of_bytes(format!("{}/{}/{}", run.plan.uid, failed.path, failed.attempt).as_bytes());
    let chance = u32::from_str_radix(seed.short(8), 16).map_or(0.0, |n| f64::from(n) / f64::from(u32::MAX));
    let pause = Duration::try_from_secs_f64(pause * (1.0 - retry.jitter * chance)).unwrap_or(retry.max);
    let after = failed.finished_at.unwrap_or(failed.at).after(pause);
    failed.error.as_ref().and_then(|e| e.not_before).map_or(after, |asked| asked.max(after))
}

/// The class of the error of a step whose conditions cannot be evaluated.
pub(crate) const CONDITION: &str = "Condition";

/// The result of the conditions of a step.
enum Conditions {
    Hold,
    Skip,
    /// A condition has no value, for this reason.
    Undecided(String),
}

/// Evaluates the conditions of a step with the values that were known at `seq`.
fn conditions<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    seq: i64,
) -> Result<Conditions, RenderError> {
    if step.skip_if.is_none() && step.only_if.is_none() {
        return Ok(Conditions::Hold);
    }
    let scope = match scope::of_conditions(run, step_scope, step, seq) {
        Err(RenderError::Missing) => return Err(RenderError::Missing),
        Err(RenderError::Language(why)) => return Ok(Conditions::Undecided(why.to_string())),
        Err(RenderError::Invalid(why)) => return Ok(Conditions::Undecided(why)),
        Ok(scope) => scope,
    };
    for (condition, skips) in [(&step.skip_if, true), (&step.only_if, false)] {
        match condition.as_ref().map(|condition| condition.evaluate(&scope)) {
            Some(Err(why)) => return Ok(Conditions::Undecided(why.to_string())),
            Some(Ok(found)) if found == skips => return Ok(Conditions::Skip),
            Some(Ok(_)) | None => {}
        }
    }
    Ok(Conditions::Hold)
}

/// Handles the verdicts that end a run, and enforces the limit of asking again. `again`: the verdicts
/// after which this gate asks once more.
pub(crate) fn verdict_or_end(run: &Run<'_>, decided: &DecidedGate, again: &[Verdict]) -> Result<Verdict, EarlyEnd> {
    match decided.verdict {
        Verdict::Abort => Err(EarlyEnd::Aborted(decided.describe(""))),
        Verdict::Reject => Err(EarlyEnd::Rejected(decided.describe(""))),
        verdict if again.contains(&verdict) && gate::asked_again(run, decided, again) >= MOST_AGAIN => {
            Err(EarlyEnd::Rejected(decided.describe(&format!(", and it has asked again {MOST_AGAIN} times already"))))
        }
        verdict => Ok(verdict),
    }
}
