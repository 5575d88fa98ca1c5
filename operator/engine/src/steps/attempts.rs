//! The attempts at a step: one after the other, until one is not to be repeated, and what may be repeated.

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

/// Whether people were asked about a call, at the gates in front of its tool or at that of its author before the step.
pub(super) fn was_call_asked(invocation: &StepInvocation<'_>) -> bool {
    let permission = invocation.permission.as_ref();
    permission.is_some_and(|permission| permission.was_asked() || invocation.step.start.is_some())
}

/// One attempt after the other, until one is not to be repeated; at most `limit` further ones, and those by which a
/// turn is repeated by itself. Returns the last one, and how many of `limit` are left.
pub(super) async fn run_attempts<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    key: &ActivityKey,
    limit: i32,
) -> (StepRecord, i32) {
    let (invocation, first) = (Rc::new(invocation.clone()), key.attempt);
    let (mut attempt, mut limit, mut by_itself) = (first, limit, 0);
    loop {
        let key = ActivityKey { attempt, ..key.clone() };
        if matches!(key.kind, StepKind::Agent | StepKind::Set) {
            run.invocations.borrow_mut().insert((key.path.clone(), attempt), Rc::clone(&invocation));
        }
        // What a gate showed is what runs, with the catalogue that was read before it.
        let unread = match invocation.last_asked {
            Some(_) => None,
            None => catalogue::read_catalogues(run, &invocation, &key).await,
        };
        let open = |seq| {
            open_attempt(run, &invocation, seq, &key, || match &unread {
                Some(why) => Ok(Start::Failed(why.clone())),
                None => open(run, &invocation, seq, &key),
            })
        };
        let record = run.activity(&invocation.step_scope, key.clone(), open).await;
        // A turn of a model has no effect: it may be made once more.
        let was_asked = key.kind != StepKind::Agent && was_call_asked(&invocation);
        let is_covered = (invocation.step.policy_gates.is_empty() && !was_asked) || is_failure_certain(&record);
        // Whether there is room is no matter of the step: it is not counted, and people are not asked.
        let is_counted = !had_no_room(&record);
        let may_follow = limit > 0 || by_itself < invocation.step.repeats_by_itself(run.plan, &record);
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
            false => by_itself += i32::from(is_counted),
        }
    }
}

/// Whether a call that is equal to the step was made since its first attempt began, before the next one.
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

/// Whether a call was not sent, because its tool has another definition than the one that was approved.
pub(super) fn is_tool_changed(record: &StepRecord) -> bool {
    record.input_digest.is_some() && record.error.as_ref().is_some_and(|error| error.is(FailureClass::ToolChanged))
}

/// The classes of failures of a call that was not sent.
const NOT_SENT: [FailureClass; 4] =
    [FailureClass::Invalid, FailureClass::Refused, FailureClass::ToolChanged, FailureClass::Unreachable];

fn was_not_sent(record: &StepRecord) -> bool {
    record.error.as_ref().is_some_and(|error| NOT_SENT.into_iter().any(|class| error.is(class)))
}

/// Whether an attempt failed in a way that is tried again.
pub(super) fn is_retryable(step: &PlannedStep, record: &StepRecord) -> bool {
    let is_meant = record.phase == StepPhase::Failed && record.error.as_ref().is_some_and(|error| error.retryable);
    is_meant && step.retry.covers(record)
}

/// Whether it is known that an attempt failed: the server itself said so, or a container has ended. Of a tool of an MCP
/// server that is known only where nothing was sent. A gateway does not know what the server behind it did (of 502 and
/// 504, records of earlier versions do not say so), and a status below 400 says that it was done.
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

/// Whether a call had its effect, or may have had it: it succeeded, its outcome is unknown, or it was answered with an
/// error.
pub(crate) fn may_have_effect(record: &StepRecord) -> bool {
    let was_sent = || record.input_digest.is_some() && !was_not_sent(record);
    match record.phase {
        StepPhase::Succeeded | StepPhase::Unknown => true,
        StepPhase::Failed => was_sent(),
        StepPhase::Pending | StepPhase::Started | StepPhase::Waiting | StepPhase::Skipped => false,
    }
}

/// Whether only people can say that an attempt is made once more: it had its effect, or may have had it, and it is
/// never repeated by itself. A deadline is no such decision.
pub(super) fn is_repeated_by_people_only(step: &PlannedStep, record: &StepRecord) -> bool {
    let is_safe = record.phase == StepPhase::Failed && record.error.as_ref().is_some_and(|error| error.retryable);
    matches!(record.kind, StepKind::Http | StepKind::Mcp | StepKind::Pod)
        && !step.is_idempotent()
        && may_have_effect(record)
        && !is_safe
}

/// When the attempt after this one may begin. What is left to chance is the same at every replay.
pub(super) fn retry_at(run: &Run<'_>, step: &PlannedStep, failed: &StepRecord) -> Moment {
    let retry = &step.retry;
    let pause = (retry.base.as_secs_f64() * retry.factor.powi(failed.attempt - 1)).min(retry.max.as_secs_f64());
    let seed = Digest::of_bytes(format!("{}/{}/{}", run.plan.uid, failed.path, failed.attempt).as_bytes());
    let chance = u32::from_str_radix(seed.short(8), 16).map_or(0.0, |n| f64::from(n) / f64::from(u32::MAX));
    let pause = Duration::try_from_secs_f64(pause * (1.0 - retry.jitter * chance)).unwrap_or(retry.max);
    let after = failed.finished_at.unwrap_or(failed.at).after(pause);
    failed.error.as_ref().and_then(|e| e.not_before).map_or(after, |asked| asked.max(after))
}
