//! The attempts at a step, one after the other, and the rules for repeating them.

use std::{rc::Rc, time::Duration};

use signoff_api::{
    Digest, FailureClass, Moment,
    journal::{FACT_UNKNOWN, StepKind, StepPhase, StepRecord},
};

use super::{
    catalogue,
    flow::StepResult,
    opening::{open, open_attempt},
};
use crate::{
    plan::PlannedStep,
    replay::{
        activity::{ActivityKey, Start},
        run::Run,
        step_invocation::StepInvocation,
    },
    transition::had_no_room,
};

/// The end of a step, or the request for a further approval.
pub(crate) enum Performed {
    Ended(StepResult),
    /// The call of a tool needs another approval of its gates before further attempts.
    AskAgain(Attempts),
}

/// The attempts at a step that may be made without asking people again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    /// The number of the next attempt, from 1.
    pub(crate) next: i32,
    /// The number of attempts that may follow the next one.
    pub(crate) further: i32,
}

impl Attempts {
    pub(crate) fn first(step: &PlannedStep) -> Self {
        Self { next: 1, further: step.usual_retries() }
    }
}

/// Whether people were asked about a call, at the gates before its tool or at the author's gate before the step.
pub(super) fn was_call_asked(invocation: &StepInvocation<'_>) -> bool {
    let permission = invocation.permission.as_ref();
    permission.is_some_and(|permission| permission.was_asked() || invocation.step.start.is_some())
}

/// Makes attempts until an attempt is not repeated: at most `limit` further attempts, and the automatic repetitions of
/// a turn. Returns the record of the last attempt, and the number of attempts that are left of `limit`.
pub(super) async fn run_attempts<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    key: &ActivityKey,
    limit: i32,
) -> (StepRecord, i32) {
    let (invocation, first) = (Rc::new(invocation.clone()), key.attempt);
    let (mut attempt, mut limit, mut automatic_repeats) = (first, limit, 0);
    loop {
        let key = ActivityKey { attempt, ..key.clone() };
        if matches!(key.kind, StepKind::Agent | StepKind::Set) {
            run.invocations.borrow_mut().insert((key.path.clone(), attempt), Rc::clone(&invocation));
        }
        // The catalogue that was read before the gate is used, so that what runs is what the gate showed.
        let catalogue_error = match invocation.last_asked {
            Some(_) => None,
            None => catalogue::read_catalogues(run, &invocation, &key).await,
        };
        let open = |seq| {
            open_attempt(run, &invocation, seq, &key, || match &catalogue_error {
                Some(why) => Ok(Start::Failed(why.clone())),
                None => open(run, &invocation, seq, &key),
            })
        };
        let record = run.activity(&invocation.step_scope, key.clone(), open).await;
        // A turn of a model has no effect, so it may be repeated without people.
        let was_asked = key.kind != StepKind::Agent && was_call_asked(&invocation);
        let is_covered = (invocation.step.policy_gates.is_empty() && !was_asked) || is_failure_certain(&record);
        // An attempt that failed for lack of memory for its answer is not counted, and people are not asked.
        let is_counted = !had_no_room(&record);
        let may_follow = limit > 0 || automatic_repeats < invocation.step.repeats_by_itself(run.plan, &record);
        let is_over = !is_retryable(invocation.step, &record) || !is_covered || !may_follow;
        if is_counted && (is_over || is_tool_changed(&record)) {
            return (record, limit);
        }
        attempt += 1;
        let next = ActivityKey { attempt, ..key.clone() };
        run.pause(retry_at(run, invocation.step, &record), &next).await;
        let first = ActivityKey { attempt: first, ..key.clone() };
        if was_made_meanwhile(run, &invocation, &first, &next).await {
            return (record, limit);
        }
        match limit > 0 {
            true => limit -= i32::from(is_counted),
            false => automatic_repeats += i32::from(is_counted),
        }
    }
}

/// Whether a call equal to the step was made between the step's first attempt and its next one.
pub(super) async fn was_made_meanwhile<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    first: &ActivityKey,
    next: &ActivityKey,
) -> bool {
    let began = |key: &ActivityKey| run.state.borrow().journal.get(&key.path, key.attempt).map(|record| record.seq);
    let Some(from) = began(first) else { return false };
    invocation.was_made_since(run, from, began(next)).await
}

/// Whether a call was not sent because the definition of its tool differs from the approved one.
pub(super) fn is_tool_changed(record: &StepRecord) -> bool {
    record.input_digest.is_some() && record.error.as_ref().is_some_and(|error| error.is(FailureClass::ToolChanged))
}

/// The classes of failures of a call that was not sent.
const NOT_SENT: [FailureClass; 4] =
    [FailureClass::Invalid, FailureClass::Refused, FailureClass::ToolChanged, FailureClass::Unreachable];

fn was_not_sent(record: &StepRecord) -> bool {
    record.error.as_ref().is_some_and(|error| NOT_SENT.into_iter().any(|class| error.is(class)))
}

/// Whether an attempt failed in a way that may be retried.
pub(super) fn is_retryable(step: &PlannedStep, record: &StepRecord) -> bool {
    let may_be_retried =
        record.phase == StepPhase::Failed && record.error.as_ref().is_some_and(|error| error.retryable);
    may_be_retried && step.retry.covers(record)
}

/// Whether the failure of an attempt is certain: the server answered with an error, or a container has ended. For a
/// tool of an MCP server only a call that was not sent has certainly failed. After 502 and 504 (which records of
/// earlier versions lack) a gateway does not know whether the server acted, and a status below 400 is a success.
fn is_failure_certain(record: &StepRecord) -> bool {
    if record.kind == StepKind::Mcp {
        return record.input_digest.is_none() || was_not_sent(record);
    }
    if !matches!(record.kind, StepKind::Agent | StepKind::Http) {
        return true;
    }
    let status = record.facts.get("statusCode").and_then(|status| status.parse::<u16>().ok());
    let is_gateway = |status| matches!(status, 502 | 504) || record.facts.contains_key(FACT_UNKNOWN);
    status.is_some_and(|status| status >= 400 && !is_gateway(status))
}

/// Whether a call had or may have had its effect: it succeeded, its outcome is unknown, or it was answered with an
/// error.
pub(crate) fn may_have_effect(record: &StepRecord) -> bool {
    let was_sent = || record.input_digest.is_some() && !was_not_sent(record);
    match record.phase {
        StepPhase::Succeeded | StepPhase::Unknown => true,
        StepPhase::Failed => was_sent(),
        StepPhase::Pending | StepPhase::Started | StepPhase::Waiting | StepPhase::Skipped => false,
    }
}

/// Whether only people can approve another attempt: the attempt had or may have had its effect, and the step is never
/// repeated automatically. A deadline cannot approve it.
pub(super) fn is_repeated_by_people_only(step: &PlannedStep, record: &StepRecord) -> bool {
    let is_safe = record.phase == StepPhase::Failed && record.error.as_ref().is_some_and(|error| error.retryable);
    matches!(record.kind, StepKind::Http | StepKind::Mcp | StepKind::Pod)
        && !step.is_idempotent()
        && may_have_effect(record)
        && !is_safe
}

/// Returns the time at which the next attempt may begin. The random part is the same at every replay.
pub(super) fn retry_at(run: &Run<'_>, step: &PlannedStep, failed: &StepRecord) -> Moment {
    let retry = &step.retry;
    let pause = (retry.base.as_secs_f64() * retry.factor.powi(failed.attempt - 1)).min(retry.max.as_secs_f64());
    let seed = Digest::of_bytes(format!("{}/{}/{}", run.plan.uid, failed.path, failed.attempt).as_bytes());
    let chance = u32::from_str_radix(seed.short(8), 16).map_or(0.0, |n| f64::from(n) / f64::from(u32::MAX));
    let pause = Duration::try_from_secs_f64(pause * (1.0 - retry.jitter * chance)).unwrap_or(retry.max);
    let after = failed.finished_at.unwrap_or(failed.at).after(pause);
    failed.error.as_ref().and_then(|e| e.not_before).map_or(after, |asked| asked.max(after))
}
