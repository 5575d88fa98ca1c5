//! One transition: add facts to the journal, run the pattern as far as it goes, return the commands *(pure)*.
//!
//! The same input gives the same transition on every machine. The caller commits it and then executes its commands.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use signoff_api::{
    FailureClass, Moment, Span, WorkflowSpec,
    journal::{StepError, StepKind, StepPhase, StepRecord},
    workflow::WorkflowPhase,
};
use signoff_expr::text;

use crate::{
    journal::{
        Journal,
        values::{MAX_VALUE, ValueLimits},
    },
    patterns,
    plan::{Plan, PlannedStep},
    replay::{
        activity::{RUN_ENDED, error, superseded},
        run::{Control, Run},
        scope,
        transition_state::TransitionState,
    },
    status,
    steps::EarlyEnd,
    transition::{Blobs, End, Fact, Now, Transition},
};

/// Computes the transition that follows from a journal and new facts.
#[must_use]
pub fn advance(
    plan: &Plan,
    control: Control,
    journal: Journal,
    facts: Vec<Fact>,
    blobs: &Blobs,
    now: &Now,
) -> Transition {
    let before = journal.clone();
    let run = Run::new(plan, control, blobs, now, journal);
    apply_facts(&run, facts);
    let mut end = if control.cancel { Some(End::Cancelled) } else { check_active_deadline(&run) };
    let (mut artifacts, mut left_out) = (Vec::new(), Vec::new());
    if end.is_none() {
        end = match poll(patterns::run(&run)) {
            None => None,
            Some(Ok(release)) => {
                let files = release.artifacts.iter().map(|(_, content)| content.as_str());
                let long_output = status::is_too_long_for_status(&release.outputs).then_some(release.outputs.as_str());
                let fit = run.state.borrow().check_blobs_fit(files.chain(long_output));
                Some(match fit {
                    Err(why) => End::Failed(format!("outputs and artifacts: {why}")),
                    Ok(()) => {
                        (artifacts, left_out) = (release.artifacts, release.left_out);
                        End::Succeeded(release.outputs)
                    }
                })
            }
            Some(Err(EarlyEnd::Failed(why) | EarlyEnd::GivenUp(why))) => Some(End::Failed(why)),
            Some(Err(EarlyEnd::Rejected(why))) => Some(End::Rejected(why)),
            Some(Err(EarlyEnd::Aborted(why))) => Some(End::Aborted(why)),
        };
        // The deadline applies also to calls that have just begun.
        end = end.or_else(|| check_active_deadline(&run));
    }
    if end.is_some() {
        close_in_flight(&run);
    }
    let state = run.state.into_inner();
    if !state.missing.is_empty() {
        return request_values(before, state);
    }
    Transition { left_out, ..to_transition(control, state, end, artifacts) }
}

/// Polls a pattern without a runtime. Returns its result, or `None` once it waits for facts.
fn poll<T>(pattern: impl Future<Output = T>) -> Option<T> {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let mut pattern = pin!(pattern);
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(flag.clone());
    loop {
        match pattern.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending if flag.0.swap(false, Ordering::Relaxed) => {}
            Poll::Pending => return None,
        }
    }
}

/// Adds facts to the open records of the journal, ordered by path, and notes missing Approvals and costly steps. A
/// finished record stays as it is.
fn apply_facts(run: &Run<'_>, mut facts: Vec<Fact>) {
    facts.sort_by(|a, b| a.key().cmp(&b.key()));
    let mut state = run.state.borrow_mut();
    for fact in facts {
        if let Fact::TooCostly { path, attempt, why } = &fact {
            state.costly.insert((path.clone(), *attempt), why.clone());
        }
        let (path, attempt) = fact.key();
        let Some(mut record) = state.journal.get(path, attempt).filter(|r| !r.phase.is_end()).cloned() else {
            continue;
        };
        let mut at = run.now.at;
        match fact {
            Fact::ApprovalMissing { path } => {
                state.gone.insert(path);
                continue;
            }
            ended @ (Fact::CallFinished { .. } | Fact::CallLost { .. }) => {
                at = record_result(&mut state, &mut record, ended, at)
            }
            Fact::TooCostly { why, .. } => {
                let repeatable = run.plan.step_of(&record.path).is_none_or(PlannedStep::is_idempotent);
                let is_known = record.phase != StepPhase::Started || repeatable;
                record.phase = if is_known { StepPhase::Failed } else { StepPhase::Unknown };
                record.error = Some(error(FailureClass::TooCostly, &why));
            }
            Fact::ApprovalDecided { outcome, .. } => record_decision(run.plan, &mut state, &mut record, *outcome),
        }
        record.done = Some(state.journal.next_seq());
        record.finished_at = Some(at);
        state.journal.put(record);
    }
}

/// Writes the result of a call into its record. Returns the time at which the call ended.
fn record_result(state: &mut TransitionState, record: &mut StepRecord, fact: Fact, now: Moment) -> Moment {
    let mut at = now;
    match fact {
        Fact::CallFinished { result: Ok(reply), at: ended, .. } => {
            at = ended;
            let response = match reply.response {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            let opaque = reply.opaque.and_then(|parts| serde_json::to_string(&parts).ok());
            record.facts.extend(reply.facts);
            record.log = reply.log.and_then(|log| state.store_log(&log));
            record.usage = reply.usage;
            if response.len() > MAX_VALUE {
                let why = format!(
                    "its response has {} bytes; the maximum is {MAX_VALUE}: let the step answer less, or with a reference",
                    response.len()
                );
                record.error = Some(error(FailureClass::TooLarge, &why));
                record.phase = StepPhase::Failed;
            } else if let Err(why) = state.check_turn_fits(&response, opaque.as_deref()) {
                record.error = Some(error(FailureClass::TooLarge, &why));
                record.phase = StepPhase::Failed;
            } else {
                record.opaque_ref = opaque.map(|opaque| state.store_blob(&opaque));
                (record.response, record.response_ref) = state.store_value(&response);
                record.phase = StepPhase::Succeeded;
            }
        }
        Fact::CallFinished { result: Err(failure), at: ended, .. } => {
            at = ended;
            record.facts.extend(failure.facts);
            record.log = failure.log.and_then(|log| state.store_log(&log));
            record.error = Some(StepError {
                class: failure.class,
                message: text::display(&failure.message, 1000),
                retryable: failure.retryable && !failure.unknown,
                not_before: failure.not_before,
            });
            record.phase = if failure.unknown { StepPhase::Unknown } else { StepPhase::Failed };
        }
        Fact::CallLost { .. } => {
            let why = "the process that made the call stopped before its result was recorded: the call may or may not have happened, and it must not be repeated";
            record.error = Some(error(FailureClass::OutcomeUnknown, why));
            record.phase = StepPhase::Unknown;
        }
        Fact::ApprovalDecided { .. } | Fact::ApprovalMissing { .. } | Fact::TooCostly { .. } => {}
    }
    at
}

/// Writes the outcome of an Approval into the record of its gate. The response of the record is the text that templates
/// read as `hitl_response`.
fn record_decision(plan: &Plan, state: &mut TransitionState, record: &mut StepRecord, outcome: signoff_api::Outcome) {
    use signoff_api::Verdict;

    let gate = plan.step_of(&record.path).and_then(PlannedStep::gate);
    let response = match (outcome.verdict, gate) {
        (Some(Verdict::Respond), _) => outcome.response.clone(),
        (Some(Verdict::Skip), _) => Some(String::new()),
        (Some(verdict), Some(gate)) => Some(scope::verdict_text(gate, verdict)),
        _ => None,
    };
    record.phase = match outcome.verdict {
        None | Some(Verdict::Skip | Verdict::Defer | Verdict::Retry) => StepPhase::Skipped,
        Some(_) => StepPhase::Succeeded,
    };
    if let Some(response) = response {
        (record.response, record.response_ref) = state.store_value(&response);
    }
    let (decision, reference) = state.store_decision(outcome);
    (record.decision, record.decision_ref) = (Some(decision), reference);
}

/// Returns the end of a run whose working time exceeds its active deadline. Time spent waiting for people does not
/// count.
fn check_active_deadline(run: &Run<'_>) -> Option<End> {
    end_past_deadline(&mut run.state.borrow_mut(), run.plan.active_deadline?, run.now.at)
}

/// Returns the end of a run whose records cover at least `most` of working time. If some time is left, wakes the run
/// when it is used up. Without open work no time passes, so neither happens.
fn end_past_deadline(state: &mut TransitionState, most: Duration, now: Moment) -> Option<End> {
    let is_work = |r: &&StepRecord| r.kind != StepKind::Hitl && r.phase != StepPhase::Skipped;
    let mut spans: Vec<(Moment, Moment)> =
        state.journal.records().iter().filter(is_work).map(|r| (r.at, r.finished_at.unwrap_or(now))).collect();
    let in_flight = state.journal.records().iter().filter(is_work).any(|r| !r.phase.is_end());
    spans.sort();
    let mut worked = Duration::ZERO;
    let mut worked_until: Option<Moment> = None;
    for (from, to) in spans {
        let from = worked_until.map_or(from, |worked_until| from.max(worked_until));
        worked += to.since(from);
        worked_until = Some(worked_until.map_or(to, |worked_until| worked_until.max(to)));
    }
    if !in_flight {
        return None;
    }
    match most.checked_sub(worked) {
        None | Some(Duration::ZERO) => {
            Some(End::Failed(format!("activeDeadline: the run has worked for {}", signoff_api::Span::from(most))))
        }
        Some(left) => {
            let at = now.after(left);
            state.wake_at = Some(state.wake_at.map_or(at, |known| known.min(at)));
            None
        }
    }
}

/// Closes the records of all activities that are in flight when a run ends.
fn close_in_flight(run: &Run<'_>) {
    let is_idempotent = |path: &str| run.plan.step_of(path).is_none_or(PlannedStep::is_idempotent);
    close_open_records(&mut run.state.borrow_mut(), is_idempotent, run.now.at);
}

/// Ends all open records, because the run has ended. A started call that is not idempotent has an unknown outcome.
fn close_open_records(state: &mut TransitionState, is_idempotent: impl Fn(&str) -> bool, now: Moment) {
    let open: Vec<_> = state.journal.records().iter().filter(|r| !r.phase.is_end()).cloned().collect();
    for mut record in open {
        let repeatable = record.phase != StepPhase::Started || is_idempotent(&record.path);
        record.phase = if repeatable { StepPhase::Skipped } else { StepPhase::Unknown };
        if record.kind == StepKind::Hitl {
            record.decision = Some(superseded(RUN_ENDED, now));
            if let Some(decision) = &mut record.decision {
                decision.phase = signoff_api::approval::ApprovalPhase::Cancelled;
            }
        } else {
            record.error = Some(error(FailureClass::Cancelled, "the run ended while the call was in flight"));
        }
        record.done = Some(state.journal.next_seq());
        record.finished_at = Some(now);
        state.journal.put(record);
    }
}

/// Computes the transition of a run in quarantine: finished calls are recorded, and the run ends if it is canceled or
/// has reached its `activeDeadline`. No text of the Workflow is evaluated, so no plan is needed.
#[must_use]
pub fn advance_quarantined(spec: &WorkflowSpec, journal: Journal, facts: Vec<Fact>, now: Moment) -> Transition {
    let values = ValueLimits { of_run: u64::MAX, ..ValueLimits::default() };
    let (suspend, cancel) = (spec.suspend == Some(true), spec.cancel == Some(true));
    let control = Control { suspend, cancel, values, ..Control::default() };
    let mut state = TransitionState::new(journal, values);
    let mut ended: Vec<Fact> =
        facts.into_iter().filter(|fact| matches!(fact, Fact::CallFinished { .. } | Fact::CallLost { .. })).collect();
    ended.sort_by(|a, b| a.key().cmp(&b.key()));
    for fact in ended {
        let (path, attempt) = fact.key();
        let record = state.journal.get(path, attempt).filter(|record| !record.phase.is_end()).cloned();
        let Some(mut record) = record else { continue };
        let at = record_result(&mut state, &mut record, fact, now);
        record.done = Some(state.journal.next_seq());
        record.finished_at = Some(at);
        state.journal.put(record);
    }
    let deadline = spec.active_deadline.map(Span::duration);
    let end = if control.cancel {
        Some(End::Cancelled)
    } else {
        deadline.and_then(|most| end_past_deadline(&mut state, most, now))
    };
    if end.is_some() {
        // Without a plan, a started call counts as one that must not be repeated.
        close_open_records(&mut state, |_| false, now);
    }
    to_transition(control, state, end, Vec::new())
}

/// Returns the transition with the phase of the run. A run that has ended has no commands.
fn to_transition(
    control: Control,
    state: TransitionState,
    end: Option<End>,
    artifacts: Vec<(String, String)>,
) -> Transition {
    let open = || state.journal.records().iter().filter(|r| !r.phase.is_end());
    let pending: Vec<_> = open().filter(|r| r.kind == StepKind::Hitl).filter_map(|r| r.object.clone()).collect();
    let phase = match &end {
        Some(end) => end.phase(),
        None if control.suspend => WorkflowPhase::Suspended,
        None if !pending.is_empty() && open().all(|r| r.kind == StepKind::Hitl) => WorkflowPhase::Waiting,
        None => WorkflowPhase::Running,
    };
    Transition {
        commands: if end.is_some() { Vec::new() } else { state.commands },
        blobs: state.stored,
        missing: BTreeSet::new(),
        wake_at: if end.is_some() { None } else { state.wake_at },
        journal: state.journal,
        blocked: if end.is_some() { Vec::new() } else { state.blocked },
        artifacts,
        left_out: Vec::new(),
        end,
        phase,
        pending,
    }
}

/// Returns a transition that only names the values to be fetched, with the journal unchanged.
fn request_values(journal: Journal, state: TransitionState) -> Transition {
    Transition {
        journal,
        commands: Vec::new(),
        blobs: Vec::new(),
        missing: state.missing,
        end: None,
        wake_at: None,
        phase: WorkflowPhase::Running,
        blocked: Vec::new(),
        pending: Vec::new(),
        artifacts: Vec::new(),
        left_out: Vec::new(),
    }
}

#[cfg(test)]
#[path = "advance_tests.rs"]
mod tests;
