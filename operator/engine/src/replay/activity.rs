//! Activities: the only await points of a pattern.
//!
//! A finished activity is ready. A new activity begins once and stays pending, and its command is repeated in every
//! transition. The module is independent of the kinds of steps.

use std::{collections::BTreeMap, future::poll_fn, task::Poll};

use signoff_api::{
    Digest, FailureClass, Moment, Outcome, RecordPath, Seq,
    journal::{FACT_GIVEN, StepError, StepKind, StepPhase, StepRecord},
};
use signoff_expr::text;

use super::{
    run::{RenderError, Run, is_call},
    scope::StepScope,
    transition_state::TransitionState,
};
use crate::{
    evaluation::{Part, within},
    field_error::FieldError,
    journal::values,
    transition::{Ask, Call, CallContent, Command},
};

/// The start of an activity.
#[derive(Clone)]
pub(crate) enum Start {
    /// Finishes immediately, with this response.
    Immediate(String),
    /// Fails immediately.
    Failed(StepError),
    /// Is skipped.
    Skipped,
    /// Calls a model, a container or an address with this input.
    Call(Call),
    /// Asks people.
    Gate(Box<Ask>),
    /// Does not start while this error lasts, such as a host that a policy forbids.
    Blocked(FieldError),
}

/// The key of an activity in the journal.
#[derive(Clone, Debug)]
pub(crate) struct ActivityKey {
    pub(crate) path: String,
    pub(crate) attempt: i32,
    pub(crate) kind: StepKind,
}

impl ActivityKey {
    fn is_call(&self) -> bool {
        is_call(self.kind)
    }

    fn part(&self) -> Part {
        Part::step(&self.path, self.attempt)
    }
}

impl<'a> Run<'a> {
    /// Whether the limit of calls in flight below a path is reached. Calls that the end of the run closed count too, so
    /// that a replay begins no more calls than the first evaluation did.
    fn is_limit_reached(&self, limit: Option<&(String, usize)>) -> bool {
        let Some((prefix, most)) = limit else { return false };
        let state = self.state.borrow();
        let in_flight = |r: &&StepRecord| (!r.phase.is_end() || was_closed_with_run(r)) && is_call(r.kind);
        state.journal.under(prefix).filter(in_flight).count() >= *most
    }

    /// Waits for the finished record of an activity.
    ///
    /// `open` renders the input of the activity, from the values at its beginning. It is called when the activity
    /// begins, and again in each transition in which a call or a lost gate has to be repeated.
    pub(crate) async fn activity(
        &self,
        step_scope: &StepScope<'a>,
        key: ActivityKey,
        open: impl Fn(Seq) -> Result<Start, RenderError>,
    ) -> StepRecord {
        poll_fn(|_| {
            let known = self.state.borrow().journal.get(&key.path, key.attempt).cloned();
            match known {
                // The activity was canceled with its run, and stays pending in every replay.
                Some(record) if was_closed_with_run(&record) => Poll::Pending,
                Some(record) if record.phase.is_end() => Poll::Ready(record),
                Some(record) => {
                    self.repeat(&record, &open);
                    self.poll_finished(&key)
                }
                None if self.control.suspend => Poll::Pending,
                None if key.is_call() && self.is_limit_reached(step_scope.limit.as_ref()) => Poll::Pending,
                None => {
                    self.begin(&key, step_scope.given.clone(), &open);
                    self.poll_finished(&key)
                }
            }
        })
        .await
    }

    /// Waits until a time, or until the activity `next` has begun.
    pub(crate) async fn pause(&self, until: Moment, next: &ActivityKey) {
        poll_fn(|_| {
            let begun = self.state.borrow().journal.get(&next.path, next.attempt).is_some();
            if begun || self.now.at >= until {
                return Poll::Ready(());
            }
            self.state.borrow_mut().wake(until);
            Poll::Pending
        })
        .await;
    }

    fn poll_finished(&self, key: &ActivityKey) -> Poll<StepRecord> {
        match self.state.borrow().journal.get(&key.path, key.attempt) {
            Some(record) if record.phase.is_end() => Poll::Ready(record.clone()),
            _ => Poll::Pending,
        }
    }

    /// Begins an activity: renders its input, and records the command or the immediate end. `given` is the beginning of
    /// the arguments if the activity is the step of a call.
    fn begin(&self, key: &ActivityKey, given: Option<String>, open: &impl Fn(Seq) -> Result<Start, RenderError>) {
        let seq = self.state.borrow().journal.seq().next();
        let costly = self.state.borrow().costly.get(&(key.path.clone(), key.attempt)).cloned();
        let opening = match costly {
            Some(why) => Ok(Start::Failed(error(FailureClass::TooCostly, &why))),
            None => within(|| key.part(), || open(seq)),
        };
        let mut state = self.state.borrow_mut();
        match opening {
            Err(RenderError::Missing) => return,
            Ok(Start::Blocked(why)) => return state.blocked.push(why),
            _ => {}
        }
        let seq = state.journal.next_seq();
        let mut record = self.new_record(key, seq);
        record.facts.extend(
            given
                .filter(|_| RecordPath::new(&key.path).turn_above().is_some())
                .map(|text| (FACT_GIVEN.to_owned(), text)),
        );
        match opening {
            Ok(Start::Call(call)) if let Some(why) = self.plan.refuses(&call) => {
                self.fail(&mut state, &mut record, FailureClass::NotAllowed, &why);
            }
            Ok(Start::Immediate(_)) if let Some(why) = self.plan.refuses_text(&key.path) => {
                self.fail(&mut state, &mut record, FailureClass::NotAllowed, &why);
            }
            Ok(Start::Immediate(response)) if let Err(why) = state.check_fits(&response) => {
                self.fail(&mut state, &mut record, FailureClass::TooLarge, &why);
            }
            Ok(Start::Immediate(response)) => {
                (record.response, record.response_ref) = state.store_value(&response);
                self.finish(&mut state, &mut record, StepPhase::Succeeded);
            }
            Ok(Start::Failed(error)) => {
                record.error = Some(error);
                self.finish(&mut state, &mut record, StepPhase::Failed);
            }
            Ok(Start::Skipped) => self.finish(&mut state, &mut record, StepPhase::Skipped),
            Ok(Start::Call(call)) => match input_digest(&call) {
                Ok(digest) => {
                    record.input_digest = Some(digest);
                    if let CallContent::Pod(pod) = &call.content {
                        record.object = Some(pod.name.clone());
                    }
                    state.requested.insert((record.path.clone(), record.attempt));
                    state.commands.push(Command::Call(Box::new(call)));
                }
                Err(why) => self.fail(&mut state, &mut record, FailureClass::Input, &why),
            },
            Ok(Start::Gate(ask)) => {
                let request = &ask.request;
                record.phase = StepPhase::Waiting;
                record.object = Some(ask.name.clone());
                record.input_digest.clone_from(&ask.binds);
                record.facts.clone_from(&ask.facts);
                record.request = Some(signoff_api::journal::RequestFacts {
                    digest: request.digest.clone(),
                    deadline: request.deadline,
                    closes_at: request.closes_at,
                    guard_epoch: request.guard_epoch.clone(),
                    shows: values::shown_by(request),
                });
                state.commands.push(Command::Ask(ask));
            }
            Err(RenderError::Language(why)) => {
                self.fail(&mut state, &mut record, FailureClass::Template, &why.to_string())
            }
            Err(RenderError::Invalid(why)) => self.fail(&mut state, &mut record, FailureClass::Input, &why),
            Err(RenderError::Missing) | Ok(Start::Blocked(_)) => {}
        }
        drop(state);
        self.record_call(&record);
        self.state.borrow_mut().journal.put(record);
    }

    /// Repeats the command of an activity that has begun and is not finished. A command that can no longer be rendered
    /// as recorded ends the activity: a gate is superseded, and a call fails.
    fn repeat(&self, record: &StepRecord, open: &impl Fn(Seq) -> Result<Start, RenderError>) {
        let key = (record.path.clone(), record.attempt);
        let is_gate = record.kind == StepKind::Hitl;
        {
            let state = self.state.borrow();
            // A suspended run does not create a missing Approval again.
            let is_silent = self.control.suspend && !self.control.asks_missing;
            let keeps_request = is_gate && (is_silent || !state.gone.contains(&record.path));
            if state.requested.contains(&key) || keeps_request {
                return;
            }
        }
        let part = || Part::step(&record.path, record.attempt);
        let opening = within(part, || open(record.seq));
        let mut state = self.state.borrow_mut();
        if matches!(opening, Err(RenderError::Missing)) {
            return;
        }
        state.requested.insert(key);
        let mut record = record.clone();
        match opening {
            Ok(Start::Call(call)) if input_digest(&call).ok() == record.input_digest => {
                state.commands.push(Command::Call(Box::new(call)));
            }
            Ok(Start::Gate(ask)) if record.request.as_ref().is_some_and(|r| r.digest == ask.request.digest) => {
                state.commands.push(Command::Ask(ask));
            }
            _ if is_gate => {
                // Another version of the operator would create a different request, so the gate asks again.
                let why = "the question that was asked cannot be asked again as it was";
                record.decision = Some(superseded(why, self.now.at));
                self.finish(&mut state, &mut record, StepPhase::Skipped);
                state.journal.put(record);
            }
            _ => {
                let why =
                    "what this step was given can no longer be rendered as it was: the journal and the spec differ";
                self.fail(&mut state, &mut record, FailureClass::Journal, why);
                state.journal.put(record);
            }
        }
    }

    /// Returns a new record of an activity, without a result.
    fn new_record(&self, key: &ActivityKey, seq: Seq) -> StepRecord {
        StepRecord {
            path: key.path.clone(),
            attempt: key.attempt,
            kind: key.kind,
            phase: StepPhase::Pending,
            seq,
            done: None,
            by: None,
            object: None,
            at: self.now.at,
            finished_at: None,
            input_digest: None,
            response: None,
            response_ref: None,
            opaque_ref: None,
            facts: BTreeMap::new(),
            log: None,
            decision: None,
            decision_ref: None,
            request: None,
            usage: None,
            error: None,
        }
    }

    fn finish(&self, state: &mut TransitionState, record: &mut StepRecord, phase: StepPhase) {
        record.phase = phase;
        record.done = Some(state.journal.next_seq());
        record.finished_at = Some(self.now.at);
    }

    fn fail(&self, state: &mut TransitionState, record: &mut StepRecord, class: FailureClass, why: &str) {
        record.error = Some(error(class, why));
        self.finish(state, record, StepPhase::Failed);
    }
}

/// The reason of records that were open when their run ended.
pub(crate) const RUN_ENDED: &str = "the run ended";

/// Whether a record was closed because the run ended.
fn was_closed_with_run(record: &StepRecord) -> bool {
    // A person can write the same reason, but the decision of a person has a verdict.
    let without_verdict = record.decision.as_ref().filter(|decision| decision.verdict.is_none());
    let reason = without_verdict.and_then(|decision| decision.reason.as_deref());
    record.error.as_ref().is_some_and(|error| error.is(FailureClass::Cancelled)) || reason == Some(RUN_ENDED)
}

/// Returns the outcome of a gate that has to be asked again.
pub(crate) fn superseded(why: &str, at: Moment) -> Outcome {
    Outcome {
        phase: signoff_api::approval::ApprovalPhase::Superseded,
        reason: Some(why.to_owned()),
        decided_at: Some(at),
        source: signoff_api::approval::Source::Policy,
        ..Outcome::default()
    }
}

/// Returns an error after which another attempt is useless.
pub(crate) fn error(class: FailureClass, why: &str) -> StepError {
    StepError { class: class.name().to_owned(), message: text::display(why, 1000), retryable: false, not_before: None }
}

/// Returns the digest of the input of a call.
pub(crate) fn input_digest(call: &Call) -> Result<Digest, String> {
    let digest = match &call.content {
        CallContent::Agent(agent) => Digest::of(agent),
        CallContent::Pod(pod) => Digest::of(&pod.spec),
        CallContent::Http(http) => Digest::of(http),
        CallContent::Mcp(mcp) => Digest::of(mcp),
    };
    digest.map_err(|why| why.to_string())
}
