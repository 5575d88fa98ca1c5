//! One turn: take facts into the journal, run the pattern as far as it goes, say what follows.
//!
//! The same input gives the same turn on every machine; whoever calls commits it and then acts.

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
    Moment, Span, WorkflowSpec,
    journal::{StepError, StepKind, StepPhase, StepRecord},
    workflow::WorkflowPhase,
};
use signoff_expr::text;

use crate::{
    activity::{Books, CANCELLED, Control, RUN_ENDED, Run, error, superseded},
    journal::Journal,
    patterns,
    plan::{Plan, PlannedStep},
    scope, status,
    steps::Stop,
    turn::{Blobs, End, Fact, Now, TOO_COSTLY, TOO_LARGE, Turn},
    values::{MAX_VALUE, ValueLimits},
};

/// Takes one turn.
#[must_use]
pub fn advance(plan: &Plan, control: Control, journal: Journal, facts: Vec<Fact>, blobs: &Blobs, now: &Now) -> Turn {
    let before = journal.clone();
    let run = Run::new(plan, control, blobs, now, journal);
    take_in(&run, facts);
    let mut end = if control.cancel { Some(End::Cancelled) } else { too_long(&run) };
    let mut artifacts = Vec::new();
    if end.is_none() {
        end = match poll(patterns::run(&run)) {
            None => None,
            Some(Ok(shown)) => {
                let files = shown.artifacts.iter().map(|(_, content)| content.as_str());
                let long = status::is_apart(&shown.outputs).then_some(shown.outputs.as_str());
                let room = run.books.borrow().can_store(files.chain(long));
                Some(match room {
                    Err(why) => End::Failed(format!("the outputs and files: {why}")),
                    Ok(()) => {
                        artifacts = shown.artifacts;
                        End::Succeeded(shown.outputs)
                    }
                })
            }
            Some(Err(Stop::Failed(why) | Stop::GivenUp(why))) => Some(End::Failed(why)),
            Some(Err(Stop::Rejected(why))) => Some(End::Rejected(why)),
            Some(Err(Stop::Aborted(why))) => Some(End::Aborted(why)),
        };
        // What began just now has a deadline too.
        end = end.or_else(|| too_long(&run));
    }
    if end.is_some() {
        call_off(&run);
    }
    let books = run.books.into_inner();
    if books.missing.is_empty() { turn(control, books, end, artifacts) } else { wait_for_values(before, books) }
}

/// Polls a pattern without a runtime until it is quiescent.
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

/// Takes what has happened into the journal, ordered by path. A record that is finished stays as it is.
fn take_in(run: &Run<'_>, mut facts: Vec<Fact>) {
    facts.sort_by(|a, b| a.key().cmp(&b.key()));
    let mut books = run.books.borrow_mut();
    for fact in facts {
        if let Fact::TooCostly { path, attempt, why } = &fact {
            books.costly.insert((path.clone(), *attempt), why.clone());
        }
        let (path, attempt) = fact.key();
        let Some(mut record) = books.journal.get(path, attempt).filter(|r| !r.phase.is_end()).cloned() else {
            continue;
        };
        let mut at = run.now.at;
        match fact {
            Fact::Gone { path } => {
                books.gone.insert(path);
                continue;
            }
            ended @ (Fact::Ended { .. } | Fact::Lost { .. }) => at = close(&mut books, &mut record, ended, at),
            Fact::TooCostly { why, .. } => {
                let repeatable = run.plan.step_of(&record.path).is_none_or(PlannedStep::is_idempotent);
                let is_known = record.phase != StepPhase::Started || repeatable;
                record.phase = if is_known { StepPhase::Failed } else { StepPhase::Unknown };
                record.error = Some(error(TOO_COSTLY, &why));
            }
            Fact::Decided { outcome, .. } => decided(run.plan, &mut books, &mut record, *outcome),
        }
        record.done = Some(books.journal.draw());
        record.finished_at = Some(at);
        books.journal.put(record);
    }
}

/// Takes the end of a call into its record. Returns when it ended.
fn close(books: &mut Books, record: &mut StepRecord, fact: Fact, now: Moment) -> Moment {
    let mut at = now;
    match fact {
        Fact::Ended { result: Ok(reply), at: ended, .. } => {
            at = ended;
            let response = match reply.response {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            record.facts = reply.facts;
            record.log = reply.log.and_then(|log| books.keep_log(&log));
            record.usage = reply.usage;
            if response.len() > MAX_VALUE {
                let why = format!("its response has {} bytes and may have {MAX_VALUE}", response.len());
                record.error = Some(error(TOO_LARGE, &why));
                record.phase = StepPhase::Failed;
            } else if let Err(why) = books.has_room_for(&response) {
                record.error = Some(error(TOO_LARGE, &why));
                record.phase = StepPhase::Failed;
            } else {
                (record.response, record.response_ref) = books.keep(&response);
                record.phase = StepPhase::Succeeded;
            }
        }
        Fact::Ended { result: Err(failure), at: ended, .. } => {
            at = ended;
            record.facts = failure.facts;
            record.log = failure.log.and_then(|log| books.keep_log(&log));
            record.error = Some(StepError {
                class: failure.class,
                message: text::display(&failure.message, 1000),
                retryable: failure.retryable && !failure.unknown,
                not_before: failure.not_before,
            });
            record.phase = if failure.unknown { StepPhase::Unknown } else { StepPhase::Failed };
        }
        Fact::Lost { .. } => {
            let why = "the operator that started it was lost before its result was recorded: it may or may not have happened, and it must not be repeated";
            record.error = Some(error("OutcomeUnknown", why));
            record.phase = StepPhase::Unknown;
        }
        Fact::Decided { .. } | Fact::Gone { .. } | Fact::TooCostly { .. } => {}
    }
    at
}

fn decided(plan: &Plan, books: &mut Books, record: &mut StepRecord, outcome: signoff_api::Outcome) {
    use signoff_api::Verdict;

    let gate = plan.step_of(&record.path).and_then(PlannedStep::gate);
    let twin = match (outcome.verdict, gate) {
        (Some(Verdict::Respond), _) => outcome.response.clone(),
        (Some(Verdict::Skip), _) => Some(String::new()),
        (Some(verdict), Some(gate)) => Some(scope::word(gate, verdict)),
        _ => None,
    };
    record.phase = match outcome.verdict {
        None | Some(Verdict::Skip | Verdict::Defer | Verdict::Retry) => StepPhase::Skipped,
        Some(_) => StepPhase::Succeeded,
    };
    if let Some(twin) = twin {
        (record.response, record.response_ref) = books.keep(&twin);
    }
    let (decision, reference) = books.keep_decision(outcome);
    (record.decision, record.decision_ref) = (Some(decision), reference);
}

/// Ends the run where it has worked for longer than it may. Time that only people were waited for does not count.
fn too_long(run: &Run<'_>) -> Option<End> {
    past_deadline(&mut run.books.borrow_mut(), run.plan.active_deadline?, run.now.at)
}

fn past_deadline(books: &mut Books, most: Duration, now: Moment) -> Option<End> {
    let works = |r: &&StepRecord| r.kind != StepKind::Hitl && r.phase != StepPhase::Skipped;
    let mut spans: Vec<(Moment, Moment)> =
        books.journal.records().iter().filter(works).map(|r| (r.at, r.finished_at.unwrap_or(now))).collect();
    let in_flight = books.journal.records().iter().filter(works).any(|r| !r.phase.is_end());
    spans.sort();
    let mut worked = Duration::ZERO;
    let mut until: Option<Moment> = None;
    for (from, to) in spans {
        let from = until.map_or(from, |until| from.max(until));
        worked += to.since(from);
        until = Some(until.map_or(to, |until| until.max(to)));
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
            books.wake_at = Some(books.wake_at.map_or(at, |known| known.min(at)));
            None
        }
    }
}

/// Closes the records of everything that is still under way when a run ends.
fn call_off(run: &Run<'_>) {
    let is_idempotent = |path: &str| run.plan.step_of(path).is_none_or(PlannedStep::is_idempotent);
    close_open_records(&mut run.books.borrow_mut(), is_idempotent, run.now.at);
}

fn close_open_records(books: &mut Books, is_idempotent: impl Fn(&str) -> bool, now: Moment) {
    let open: Vec<_> = books.journal.records().iter().filter(|r| !r.phase.is_end()).cloned().collect();
    for mut record in open {
        let repeatable = record.phase != StepPhase::Started || is_idempotent(&record.path);
        record.phase = if repeatable { StepPhase::Skipped } else { StepPhase::Unknown };
        if record.kind == StepKind::Hitl {
            record.decision = Some(superseded(RUN_ENDED, now));
            if let Some(decision) = &mut record.decision {
                decision.phase = signoff_api::approval::ApprovalPhase::Cancelled;
            }
        } else {
            record.error = Some(error(CANCELLED, "the run ended while it was under way"));
        }
        record.done = Some(books.journal.draw());
        record.finished_at = Some(now);
        books.journal.put(record);
    }
}

/// Takes the turn of a run that is set aside: calls that ended are recorded, and the run ends where it is cancelled or
/// has reached its `activeDeadline`. Evaluates no text of the Workflow, so it needs no plan.
#[must_use]
pub fn set_aside(spec: &WorkflowSpec, journal: Journal, facts: Vec<Fact>, now: Moment) -> Turn {
    let values = ValueLimits { of_run: u64::MAX, ..ValueLimits::default() };
    let control = Control { suspend: spec.suspend == Some(true), cancel: spec.cancel == Some(true), values };
    let mut books = Books::new(journal, values);
    let mut ended: Vec<Fact> =
        facts.into_iter().filter(|fact| matches!(fact, Fact::Ended { .. } | Fact::Lost { .. })).collect();
    ended.sort_by(|a, b| a.key().cmp(&b.key()));
    for fact in ended {
        let (path, attempt) = fact.key();
        let record = books.journal.get(path, attempt).filter(|record| !record.phase.is_end()).cloned();
        let Some(mut record) = record else { continue };
        let at = close(&mut books, &mut record, fact, now);
        record.done = Some(books.journal.draw());
        record.finished_at = Some(at);
        books.journal.put(record);
    }
    let deadline = spec.active_deadline.map(Span::duration);
    let end = if control.cancel {
        Some(End::Cancelled)
    } else {
        deadline.and_then(|most| past_deadline(&mut books, most, now))
    };
    if end.is_some() {
        // Without a plan, a call that has begun is taken for one that must not be repeated.
        close_open_records(&mut books, |_| false, now);
    }
    turn(control, books, end, Vec::new())
}

fn turn(control: Control, books: Books, end: Option<End>, artifacts: Vec<(String, String)>) -> Turn {
    let open = || books.journal.records().iter().filter(|r| !r.phase.is_end());
    let pending: Vec<_> = open().filter(|r| r.kind == StepKind::Hitl).filter_map(|r| r.object.clone()).collect();
    let phase = match &end {
        Some(end) => end.phase(),
        None if control.suspend => WorkflowPhase::Suspended,
        None if !pending.is_empty() && open().all(|r| r.kind == StepKind::Hitl) => WorkflowPhase::Waiting,
        None => WorkflowPhase::Running,
    };
    Turn {
        commands: if end.is_some() { Vec::new() } else { books.commands },
        blobs: books.stored,
        missing: BTreeSet::new(),
        wake_at: if end.is_some() { None } else { books.wake_at },
        journal: books.journal,
        held: if end.is_some() { Vec::new() } else { books.held },
        artifacts,
        end,
        phase,
        pending,
    }
}

/// A turn that needs values that are not there: nothing of it counts.
fn wait_for_values(journal: Journal, books: Books) -> Turn {
    Turn {
        journal,
        commands: Vec::new(),
        blobs: Vec::new(),
        missing: books.missing,
        end: None,
        wake_at: None,
        phase: WorkflowPhase::Running,
        held: Vec::new(),
        pending: Vec::new(),
        artifacts: Vec::new(),
    }
}

#[cfg(test)]
#[path = "advance_tests.rs"]
mod tests;
