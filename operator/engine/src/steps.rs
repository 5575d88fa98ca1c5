//! One step of a list, whatever it does: skipping, attempts, and what a failure means for the run.
//!
//! The kinds of steps stand below; none of them knows what pattern it is in.

mod agent;
mod gate;
mod http;

use std::time::Duration;

use signoff_api::{
    Digest, Moment,
    journal::{StepKind, StepPhase, StepRecord},
    step::OnError,
};

use crate::{
    activity::{Opening, Place, Run, Trouble},
    plan::{Action, PlannedStep},
};

/// Where a list goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// With the next step.
    On,
    /// With the step at this position, and everything after it once more.
    Again(usize),
}

/// Why a pattern ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Failed(String),
    Rejected(String),
    Aborted(String),
}

/// Runs the step at position `at` for the `visit`-th time.
pub(crate) async fn step(run: &Run<'_>, at: usize, visit: i32) -> Result<Next, Stop> {
    let Some(step) = run.plan.steps.get(at) else { return Ok(Next::On) };
    let path = path(&step.name, visit);
    match &step.action {
        Action::Gate(gate) => {
            let place = Place { path, attempt: 1, kind: StepKind::Hitl };
            let record = run
                .activity(place.clone(), |seq| {
                    unless_skipped(run, step, seq, || gate::ask(run, step, gate, visit, seq, &place))
                })
                .await;
            gate::judge(run, step, gate, at, &record)
        }
        Action::Set(template) => {
            let place = Place { path, attempt: 1, kind: StepKind::Set };
            let open = |seq| Ok(Opening::Done(template.render(&run.scope(step, seq)?)?));
            let record = run.activity(place, |seq| unless_skipped(run, step, seq, || open(seq))).await;
            outcome(step, &record)
        }
        Action::Agent(agent) => {
            let open = |place: &Place, seq| agent::call(run, step, agent, seq, place);
            outcome(step, &attempts(run, step, path, StepKind::Agent, open).await)
        }
        Action::Http(http) => {
            let open = |place: &Place, seq| http::call(run, step, http, seq, place);
            outcome(step, &attempts(run, step, path, StepKind::Http, open).await)
        }
    }
}

/// The path of a step's n-th visit.
pub(crate) fn path(name: &str, visit: i32) -> String {
    if visit == 1 { name.to_owned() } else { format!("{name}#{visit}") }
}

/// One attempt after the other, until one is not to be repeated.
async fn attempts(
    run: &Run<'_>,
    step: &PlannedStep,
    path: String,
    kind: StepKind,
    open: impl Fn(&Place, i64) -> Result<Opening, Trouble>,
) -> StepRecord {
    let mut attempt = 1;
    loop {
        let place = Place { path: path.clone(), attempt, kind };
        let record = run.activity(place.clone(), |seq| unless_skipped(run, step, seq, || open(&place, seq))).await;
        let again = record.phase == StepPhase::Failed && record.error.as_ref().is_some_and(|e| e.retryable);
        if !again || attempt > step.retry.limit {
            return record;
        }
        attempt += 1;
        let next = Place { attempt, ..place };
        run.pause(due(run, step, &record), &next).await;
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

/// Leaves the step out where its condition holds; a condition without a value does not hold.
fn unless_skipped(
    run: &Run<'_>,
    step: &PlannedStep,
    seq: i64,
    open: impl FnOnce() -> Result<Opening, Trouble>,
) -> Result<Opening, Trouble> {
    if let Some(condition) = &step.skip_if {
        let scope = match run.scope(step, seq) {
            Err(Trouble::Missing) => return Err(Trouble::Missing),
            Err(_) => return open(),
            Ok(scope) => scope,
        };
        if condition.evaluate(&scope).unwrap_or(false) {
            return Ok(Opening::Skipped);
        }
    }
    open()
}

/// What the end of a step means for its list.
fn outcome(step: &PlannedStep, record: &StepRecord) -> Result<Next, Stop> {
    let why = match (record.phase, &record.error) {
        (StepPhase::Failed | StepPhase::Unknown, Some(error)) => error.message.clone(),
        (StepPhase::Failed, None) => "it failed".to_owned(),
        (StepPhase::Unknown, None) => "its outcome is not known, and it must not be repeated".to_owned(),
        _ => return Ok(Next::On),
    };
    if step.on_error == OnError::Continue {
        return Ok(Next::On);
    }
    Err(Stop::Failed(format!("step {}: {why}", step.name)))
}
