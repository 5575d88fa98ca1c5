//! One step, whatever it does and wherever it stands: gates before it, attempts, what is done about its answer, and
//! what a failure means for the run.
//!
//! The kinds of steps stand below; none of them knows what pattern it is in.

mod agent;
mod before;
mod failure;
mod gate;
mod http;
mod output;
mod pod;

use std::{rc::Rc, time::Duration};

use signoff_api::{
    Digest, Moment, Verdict,
    journal::{StepKind, StepPhase, StepRecord},
};

use crate::{
    activity::{Opening, Place, Run, Trouble, Work, input_digest},
    plan::{Action, PlannedStep},
    scope::{self, Frame},
};

use before::GateBefore;
use failure::StepFailure;
pub(crate) use gate::{Decided, decide};
use gate::{MOST_AGAIN, Shown};
pub(crate) use output::{Reads, read_again};
use signoff_expr::Condition;

/// Where a list of steps continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// With the next step.
    On,
    /// With the step at this position and everything after it once more; none means this step alone.
    Again(Option<usize>),
    /// Nowhere, unless the list knows what to do about a no.
    Refused(String),
}

/// The reason why a pattern ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Failed(String),
    /// Failed, because a person said no: nothing beside it goes on.
    GivenUp(String),
    Rejected(String),
    Aborted(String),
}

/// The result of a step that is not a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Performed {
    /// It answered this.
    Answered(String),
    /// It was left out.
    Skipped,
    /// It failed, and the run goes on.
    Failed(String),
}

/// Runs a step of a list once more.
pub(crate) async fn step<'a>(run: &Run<'a>, frame: &Frame<'a>, step: &'a PlannedStep) -> Result<Next, Stop> {
    let Some(gate) = step.gate() else {
        return perform(run, frame, step, &step.path, None).await.map(|_| Next::On);
    };
    let decided = decide(run, frame, step, &step.path, &|seq| gate::reviewed(run, frame, gate, seq)).await?;
    gate::judge(run, step, gate, &decided)
}

/// Performs a step that is no gate, at `base`, until it has an answer that is as it should be. `reads`: what makes sense
/// of the answer, and how often it is asked for again.
pub(crate) async fn perform<'a>(
    run: &Run<'a>,
    frame: &Frame<'a>,
    step: &'a PlannedStep,
    base: &str,
    reads: Option<&Reads<'_>>,
) -> Result<Performed, Stop> {
    let (path, _) = run.visit(base);
    let mut work = Work::new(frame, step, &path);
    let (own_gate, policy_gates) = (before::own_gate(step, &path), before::policy_gates(step, base));
    let mut gates: Vec<_> = own_gate.iter().chain(&policy_gates).cloned().collect();
    let mut attempt = 1;
    // So many further attempts before people are asked; one more each time they say so.
    let mut limit = match &step.escalation {
        Some((after, _)) => step.retry.limit.unwrap_or_else(|| step.unless_told()).min(after - 1),
        None => step.retry.limit.unwrap_or(0),
    };
    loop {
        let place = Place { path: path.clone(), attempt, kind: kind(step) };
        if !before::ask(run, &mut work, &place, gates, limit).await? {
            run.activity(frame, place, |_| Ok(Opening::Skipped)).await;
            return Ok(Performed::Skipped);
        }
        let record = attempts(run, &work, &place, limit).await;
        limit -= record.attempt - attempt;
        attempt = record.attempt;
        if is_retryable(step, &record) && !policy_gates.is_empty() && limit > 0 {
            // Nobody knows what became of the attempt: another one is another order.
            (attempt, limit) = (attempt + 1, limit - 1);
            gates = policy_gates.clone();
            continue;
        }
        let failure = match (record.phase, record.error) {
            (StepPhase::Skipped, _) => return Ok(Performed::Skipped),
            (StepPhase::Succeeded, _) => match output::settle(run, &work, &policy_gates, attempt, reads).await? {
                output::Settled::Accepted(text) => return Ok(Performed::Answered(text)),
                output::Settled::Again => {
                    (attempt, limit) = (attempt + 1, 0);
                    gates = again(&own_gate, &policy_gates, false);
                    continue;
                }
                output::Settled::Refused(why) => StepFailure::of(why),
                output::Settled::Rejected(why) => StepFailure { by_a_person: true, ..StepFailure::of(why) },
            },
            (_, Some(error)) => StepFailure::of(error),
            (_, None) => StepFailure::of(crate::activity::error("Failed", "it failed")),
        };
        match failure::decide(run, frame, step, &path, attempt, &failure).await? {
            failure::Remedy::Again(change) => {
                gates = again(&own_gate, &policy_gates, !change.parameters.is_empty());
                work.change.and(change);
                (attempt, limit) = (attempt + 1, 0);
            }
            failure::Remedy::Skip => return Ok(Performed::Skipped),
            failure::Remedy::Bear => return Ok(Performed::Failed(failure.error.message)),
        }
    }
}

/// The gates that are asked before an attempt that people or a timeout ordered: those of policies always, that of the
/// author where something was changed.
fn again<'a>(own: &Option<GateBefore<'a>>, of_policies: &[GateBefore<'a>], changed: bool) -> Vec<GateBefore<'a>> {
    own.iter().filter(|_| changed).chain(of_policies).cloned().collect()
}

/// Asks at a gate that stands before or after something, until it lets the run through. Returns the decision that did.
pub(crate) async fn pass<'a>(
    run: &Run<'a>,
    frame: &Frame<'a>,
    step: &'a PlannedStep,
    base: &str,
    shown: Shown<'_>,
) -> Result<Option<Decided>, Stop> {
    let Some(gate) = step.gate() else { return Ok(None) };
    loop {
        let decided = decide(run, frame, step, base, shown).await?;
        match gate::judge(run, step, gate, &decided)? {
            Next::On => return Ok(Some(decided)),
            Next::Again(_) => {}
            Next::Refused(why) => return Err(Stop::Rejected(why)),
        }
    }
}

/// One attempt after the other, until one is not to be repeated.
async fn attempts<'a>(run: &Run<'a>, work: &Work<'a>, place: &Place, limit: i32) -> StepRecord {
    let (work, first) = (Rc::new(work.clone()), place.attempt);
    let mut attempt = first;
    loop {
        let place = Place { attempt, ..place.clone() };
        if place.kind == StepKind::Agent {
            run.told.borrow_mut().insert((place.path.clone(), attempt), Rc::clone(&work));
        }
        let open = |seq| unless_left_out(run, &work, seq, &place, || open(run, &work, seq, &place));
        let record = run.activity(&work.frame, place.clone(), open).await;
        let is_covered = work.step.policy_gates.is_empty() || is_known(&record);
        if !is_retryable(work.step, &record) || !is_covered || attempt - first >= limit {
            return record;
        }
        attempt += 1;
        let next = Place { attempt, ..place.clone() };
        run.pause(due(run, work.step, &record), &next).await;
    }
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

/// Whether it is known that an attempt failed: the server itself said so, or a container has ended. A gateway (502, 504)
/// does not know what the server behind it did, and a status below 400 says that it was done.
fn is_known(record: &StepRecord) -> bool {
    if !matches!(record.kind, StepKind::Agent | StepKind::Http) {
        return true;
    }
    let status = record.facts.get("statusCode").and_then(|status| status.parse::<u16>().ok());
    status.is_some_and(|status| status >= 400 && !matches!(status, 502 | 504))
}

/// Skips an attempt where the conditions of its step say so. That is asked once, about the first attempt, and the gates
/// before it see the same.
fn unless_left_out<'a>(
    run: &Run<'a>,
    work: &Work<'a>,
    seq: i64,
    place: &Place,
    open: impl FnOnce() -> Result<Opening, Trouble>,
) -> Result<Opening, Trouble> {
    if place.attempt == 1 && place.path == work.base {
        return unless_skipped(run, &work.frame, work.step, work.began(run, seq), open);
    }
    open()
}

/// Returns the input of an attempt that people approved.
fn open<'a>(run: &Run<'a>, work: &Work<'a>, seq: i64, place: &Place) -> Result<Opening, Trouble> {
    let opening = rendered(run, work, seq, place)?;
    let Opening::Call(call) = &opening else { return Ok(opening) };
    let approved = match &work.approved {
        Some(approved) => input_digest(call).as_ref() == Ok(approved),
        None => work.step.policy_gates.is_empty(),
    };
    if approved {
        return Ok(opening);
    }
    let why = "what would run is not what was approved: the Workflow, or the operator, has changed since";
    Err(Trouble::Invalid(why.to_owned()))
}

/// Returns the input of an attempt, rendered from the values as of `seq`.
fn rendered<'a>(run: &Run<'a>, work: &Work<'a>, seq: i64, place: &Place) -> Result<Opening, Trouble> {
    match &work.step.action {
        Action::Agent(agent) => agent::call(run, work, agent, seq, place),
        Action::Pod(pod) => pod::call(run, work, pod, seq, place),
        Action::Http(http) => http::call(run, work, http, seq, place),
        Action::Set(template) => match work.change.parameters.get("value") {
            Some(value) => Ok(Opening::Done(value.clone())),
            None => Ok(Opening::Done(template.render(&work.scope(run, seq)?)?)),
        },
        Action::Gate(_) => Err(Trouble::Invalid("a gate is asked, not performed".to_owned())),
    }
}

/// When the attempt after this one may begin. What is left to chance is the same at every replay.
fn due(run: &Run<'_>, step: &PlannedStep, failed: &StepRecord) -> Moment {
    let retry = &step.retry;
    let pause = (retry.base.as_secs_f64() * retry.factor.powi(failed.attempt - 1)).min(retry.max.as_secs_f64());
    let seed = Digest::of_bytes(format!("{}/{}/{}", run.plan.uid, failed.path, failed.attempt).as_bytes());
    let chance = u32::from_str_radix(seed.short(8), 16).map_or(0.0, |n| f64::from(n) / f64::from(u32::MAX));
    let pause = Duration::try_from_secs_f64(pause * (1.0 - retry.jitter * chance)).unwrap_or(retry.max);
    let after = failed.finished_at.unwrap_or(failed.at).after(pause);
    failed.error.as_ref().and_then(|e| e.not_before).map_or(after, |asked| asked.max(after))
}

/// Leaves the step out where its conditions say so; one without a value leaves nothing out.
fn unless_skipped<'a>(
    run: &Run<'a>,
    frame: &Frame<'a>,
    step: &PlannedStep,
    seq: i64,
    open: impl FnOnce() -> Result<Opening, Trouble>,
) -> Result<Opening, Trouble> {
    if step.skip_if.is_some() || step.only_if.is_some() {
        let scope = match scope::at(run, frame, step, seq) {
            Err(Trouble::Missing) => return Err(Trouble::Missing),
            Err(_) => return open(),
            Ok(scope) => scope,
        };
        let is = |condition: &Option<Condition>, value| {
            condition.as_ref().is_some_and(|condition| condition.evaluate(&scope).is_ok_and(|found| found == value))
        };
        if is(&step.skip_if, true) || is(&step.only_if, false) {
            return Ok(Opening::Skipped);
        }
    }
    open()
}

/// What a verdict with no meaning of its own at a gate does: the end of the run, and the bound on `again`, the verdicts
/// after which this gate asks once more.
pub(crate) fn or_stop(run: &Run<'_>, decided: &Decided, again: &[Verdict]) -> Result<Verdict, Stop> {
    match decided.verdict {
        Verdict::Abort => Err(Stop::Aborted(decided.told(""))),
        Verdict::Reject => Err(Stop::Rejected(decided.told(""))),
        verdict if again.contains(&verdict) && gate::asked_again(run, decided, again) >= MOST_AGAIN => {
            Err(Stop::Rejected(decided.told(&format!(", and it has asked again {MOST_AGAIN} times already"))))
        }
        verdict => Ok(verdict),
    }
}
