//! The course of one step: gates before it, attempts, calls of its agent, the check of its answer, and the consequence
//! of a failure.
//!
//! The kinds of steps (`kinds.rs`) have modules of their own, which do not depend on the pattern.

use std::rc::Rc;

use signoff_api::{
    FailureClass, Seq,
    journal::{StepPhase, StepRecord},
};

use super::{
    agent::{self, ClearedCall},
    attempts::{
        Attempts, Performed, is_retryable, is_tool_changed, retry_at, run_attempts, was_call_asked, was_made_meanwhile,
    },
    catalogue,
    failure::{self, FailureAction, StepFailure},
    flow::{EarlyEnd, StepFlow, StepResult},
    gate::{self, decide},
    gate_before::{self, GateBefore},
    join::Member,
    kinds::kind,
    opening::open_attempt,
    output::{self, AnswerParser, AnswerResult},
    turn::Turn,
};
use crate::{
    plan::PlannedStep,
    replay::{
        activity::{ActivityKey, Start, error},
        run::Run,
        scope::StepScope,
        step_invocation::{Override, StepInvocation},
    },
};

/// Runs a step of a list, as its next visit.
pub(crate) async fn run_step<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
) -> Result<StepFlow, EarlyEnd> {
    let Some(gate) = step.gate() else {
        return perform(run, step_scope, step, &step.path, None).await.map(|_| StepFlow::Continue);
    };
    let decided =
        decide(run, step_scope, step, &step.path, &|seq| gate::reviewed_step(run, step_scope, gate, seq)).await?;
    gate::next_step(run, step, gate, &decided)
}

/// Performs a step that is not a gate, at `base`, until it has a valid answer. `parser` parses the answer, and limits
/// the requests after an answer that does not parse.
pub(crate) async fn perform<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
    base: &str,
    parser: Option<&AnswerParser<'_>>,
) -> Result<StepResult, EarlyEnd> {
    let (path, _) = run.visit(base);
    let ongoing = OngoingStep::new(run, StepInvocation::new(step_scope, step, &path), base, parser);
    match ongoing.perform(Attempts::first(step)).await? {
        Performed::Ended(result) => Ok(result),
        Performed::AskAgain(_) => Err(EarlyEnd::Failed(format!(
            "internal error; report this as a bug: step {} is no call of a tool",
            step.name
        ))),
    }
}

/// Performs the step of a tool for one call.
fn perform_call<'r, 'a>(run: &'r Run<'a>, call: ClearedCall<'a>) -> Member<'r, Performed> {
    let mut invocation = StepInvocation::new(&call.step_scope, call.step, &call.path);
    invocation.first_asked = Some(call.seen);
    invocation.permission = Some(Rc::new(call.cleared));
    Box::pin(OngoingStep::new(run, invocation, &call.path, None).perform(call.attempts))
}

/// A step in progress.
struct OngoingStep<'r, 'a> {
    run: &'r Run<'a>,
    /// Contains the changes of people and the finished turns.
    invocation: StepInvocation<'a>,
    parser: Option<&'r AnswerParser<'r>>,
    /// The author's gate before the step.
    own_gate: Option<GateBefore<'a>>,
    policy_gates: Vec<GateBefore<'a>>,
    /// The current turn.
    turn: Turn,
}

/// The state of a step between two activities. Each number is the number of an attempt.
enum StepState<'a> {
    /// The gates ask, and then the attempts are made.
    Opening(Attempts, Vec<GateBefore<'a>>),
    /// One or more attempts have ended. `further` attempts can follow without another approval.
    Attempted {
        first: ActivityKey,
        last: StepRecord,
        further: i32,
    },
    /// The attempt succeeded, and its agent calls tools.
    CallsTools(StepRecord),
    /// The attempt succeeded with an answer.
    Answered(i32),
    /// The attempt failed, or its answer is not used.
    Failed(i32, StepFailure),
    Ended(Performed),
}

impl StepState<'_> {
    /// Returns the state after an attempt that is not repeated.
    fn after_attempt(last: StepRecord) -> Self {
        let attempt = last.attempt;
        match last.phase {
            StepPhase::Skipped => Self::Ended(Performed::Ended(StepResult::Skipped)),
            StepPhase::Succeeded if last.calls_tools() => Self::CallsTools(last),
            StepPhase::Succeeded => Self::Answered(attempt),
            _ => Self::Failed(
                attempt,
                StepFailure::of(last.error.unwrap_or_else(|| error(FailureClass::Failed, "it failed"))),
            ),
        }
    }
}

impl<'r, 'a> OngoingStep<'r, 'a> {
    /// Returns a step before its first attempt. `base` is the path without the number of the visit.
    fn new(run: &'r Run<'a>, invocation: StepInvocation<'a>, base: &str, parser: Option<&'r AnswerParser<'r>>) -> Self {
        let own_gate = gate_before::own_gate(invocation.step, &invocation.base);
        let policy_gates = gate_before::policy_gates(invocation.step, base);
        Self { run, turn: Turn::first(&invocation.base), invocation, parser, own_gate, policy_gates }
    }

    /// Performs the step until it ends, or until a call needs another approval.
    async fn perform(mut self, attempts: Attempts) -> Result<Performed, EarlyEnd> {
        let mut state = StepState::Opening(attempts, self.gates(true));
        loop {
            state = match state {
                StepState::Opening(attempts, gates) => self.attempt(attempts, gates).await?,
                StepState::Attempted { first, last, further } => self.judge_attempt(&first, last, further).await,
                StepState::CallsTools(record) => self.make_calls(&record).await?,
                StepState::Answered(attempt) => self.judge_answer(attempt).await?,
                StepState::Failed(attempt, failure) => self.judge_failure(attempt, &failure).await?,
                StepState::Ended(performed) => return Ok(performed),
            }
        }
    }

    /// Returns the gates before an attempt: the gates of policies, and with `with_own` also the author's gate.
    fn gates(&self, with_own: bool) -> Vec<GateBefore<'a>> {
        self.own_gate.iter().filter(|_| with_own).chain(&self.policy_gates).cloned().collect()
    }

    /// Asks at gates, and then makes the attempts that the approval covers.
    async fn attempt(&mut self, attempts: Attempts, gates: Vec<GateBefore<'a>>) -> Result<StepState<'a>, EarlyEnd> {
        let path = self.turn.path.clone();
        let first = ActivityKey { path, attempt: attempts.next, kind: kind(self.invocation.step) };
        if let Some(last) = self.fail_without_catalogue(&first, &gates).await {
            return Ok(StepState::Attempted { first, last, further: attempts.further });
        }
        if gate_before::ask(self.run, &mut self.invocation, &first, gates, attempts.further).await? {
            let (last, further) = run_attempts(self.run, &self.invocation, &first, attempts.further).await;
            return Ok(StepState::Attempted { first, last, further });
        }
        self.run.activity(&self.invocation.step_scope, first, |_| Ok(Start::Skipped)).await;
        Ok(self.end(Start::Skipped, StepResult::Skipped).await)
    }

    /// Fails an attempt before its gates ask if a server cannot list its tools: the gates cannot show a request whose
    /// content is unknown. Returns the record of the failed attempt, or `None` if the gates can ask.
    async fn fail_without_catalogue(&self, first: &ActivityKey, gates: &[GateBefore<'a>]) -> Option<StepRecord> {
        let run = self.run;
        if gates.is_empty() || catalogue::servers_of(run, self.invocation.step).is_empty() {
            return None;
        }
        if self.has_gate_asked(first, gates) {
            return None;
        }
        let unreadable = catalogue::read_catalogues(run, &self.invocation, first).await;
        if unreadable.is_none() && self.began_at(&first.path, first.attempt).is_none() {
            return None;
        }
        let failure = unreadable.unwrap_or_else(|| error(FailureClass::Internal, "its gates were not asked"));
        let fail = |seq| open_attempt(run, &self.invocation, seq, first, || Ok(Start::Failed(failure.clone())));
        Some(run.activity(&self.invocation.step_scope, first.clone(), fail).await)
    }

    /// Whether one of the gates has a request about this attempt. A request that was created after the attempt began
    /// is about a later attempt.
    fn has_gate_asked(&self, first: &ActivityKey, gates: &[GateBefore<'a>]) -> bool {
        let attempt_began = self.began_at(&first.path, first.attempt);
        gates.iter().any(|(_, path)| {
            let gate_began = self.began_at(&self.run.next_visit(path), 1);
            gate_began.is_some_and(|gate| attempt_began.is_none_or(|attempt| gate < attempt))
        })
    }

    /// Returns the number of the event with which the attempt at a path began, or `None` without a record.
    fn began_at(&self, path: &str, attempt: i32) -> Option<Seq> {
        self.run.state.borrow().journal.get(path, attempt).map(|record| record.seq)
    }

    /// Returns the state after attempts without a valid approval for another attempt: back to the gates if the last
    /// attempt can be repeated, else the state of its result.
    async fn judge_attempt(&self, first: &ActivityKey, last: StepRecord, further: i32) -> StepState<'a> {
        if is_tool_changed(&last) {
            // The catalogue is read again, and the gates ask about the new definition. An agent receives the error
            // instead.
            return match self.invocation.permission {
                Some(_) => StepState::after_attempt(last),
                None => StepState::Opening(Attempts { next: last.attempt + 1, further }, self.gates(true)),
            };
        }
        if is_retryable(self.invocation.step, &last) && further > 0 {
            let next = Attempts { next: last.attempt + 1, further: further - 1 };
            if self.needs_approval(first, next.next).await {
                return StepState::Ended(Performed::AskAgain(next));
            }
            if last.input_digest.is_none() && !catalogue::servers_of(self.run, self.invocation.step).is_empty() {
                let key = ActivityKey { attempt: next.next, ..first.clone() };
                self.run.pause(retry_at(self.run, self.invocation.step, &last), &key).await;
            }
            // People were not asked about an attempt without input.
            let is_unasked = last.input_digest.is_none() && self.own_gate.is_some();
            if !self.policy_gates.is_empty() || is_unasked {
                return StepState::Opening(next, self.gates(is_unasked));
            }
        }
        StepState::after_attempt(last)
    }

    /// Whether another attempt at a call needs another approval: people were asked about the call, or an equal call was
    /// made since the first attempt.
    async fn needs_approval(&self, first: &ActivityKey, next: i32) -> bool {
        let next = ActivityKey { attempt: next, ..first.clone() };
        !self.invocation.step.is_agent()
            && (was_call_asked(&self.invocation) || was_made_meanwhile(self.run, &self.invocation, first, &next).await)
    }

    /// Makes the calls of a turn, and continues with the next turn.
    async fn make_calls(&mut self, turn: &StepRecord) -> Result<StepState<'a>, EarlyEnd> {
        let tool_turn = match agent::perform_turn(self.run, &self.invocation, turn, &self.turn, perform_call).await? {
            Ok(tool_turn) => tool_turn,
            Err(failure) => return Ok(StepState::Failed(turn.attempt, failure)),
        };
        self.invocation.continue_with(tool_turn, turn.seq);
        self.turn = self.turn.next(self.run, &self.invocation.base, turn.attempt);
        Ok(StepState::Opening(Attempts::first(self.invocation.step), self.gates(false)))
    }

    /// Validates the answer of an attempt, and returns the state that follows.
    async fn judge_answer(&mut self, attempt: i32) -> Result<StepState<'a>, EarlyEnd> {
        let answered = (&self.turn, attempt);
        let answer =
            output::process_answer(self.run, &self.invocation, &self.policy_gates, answered, self.parser).await?;
        Ok(match answer {
            AnswerResult::Accepted(text) => StepState::Ended(Performed::Ended(StepResult::Answered(text))),
            AnswerResult::Again => self.start_again(attempt),
            AnswerResult::Refused(why) => StepState::Failed(attempt, StepFailure::of(why)),
            AnswerResult::Rejected(why) => {
                StepState::Failed(attempt, StepFailure { by_a_person: true, ..StepFailure::of(why) })
            }
        })
    }

    /// Starts again with the first turn, after people did not accept an answer.
    fn start_again(&mut self, attempt: i32) -> StepState<'a> {
        let attempts = Attempts { next: self.turn.attempt_after(attempt), further: 0 };
        if self.invocation.permission.is_some() {
            return StepState::Ended(Performed::AskAgain(attempts));
        }
        self.turn = Turn::first(&self.invocation.base);
        (self.invocation.turns, self.invocation.first_heard) = (Vec::new(), None);
        StepState::Opening(attempts, self.gates(false))
    }

    /// Determines the consequence of a failure, and applies it.
    async fn judge_failure(&mut self, attempt: i32, failure: &StepFailure) -> Result<StepState<'a>, EarlyEnd> {
        match failure::decide(self.run, &self.invocation, &self.turn.path, attempt, failure).await? {
            FailureAction::Again(change) => Ok(self.repeat(attempt, change)),
            FailureAction::Answer(text) => {
                Ok(self.end(Start::Immediate(text.clone()), StepResult::Answered(text)).await)
            }
            FailureAction::Skip => Ok(self.end(Start::Skipped, StepResult::Skipped).await),
            FailureAction::Continue => {
                let failed = StepResult::Failed(failure.error.message.clone());
                Ok(self.end(Start::Failed(failure.error.clone()), failed).await)
            }
        }
    }

    /// Repeats a failed attempt with the changes of people.
    fn repeat(&mut self, attempt: i32, change: Override) -> StepState<'a> {
        if self.invocation.permission.is_some() {
            let next = self.turn.attempt_after(attempt);
            return StepState::Ended(Performed::AskAgain(Attempts { next, further: 0 }));
        }
        // The first attempt failed before its gate could ask.
        let is_unasked = self.own_gate.is_some() && self.invocation.last_asked.is_none();
        let gates = self.gates(is_unasked || !change.parameters.is_empty());
        self.invocation.overrides.merge(change);
        StepState::Opening(Attempts { next: attempt + 1, further: 0 }, gates)
    }

    /// Ends the step with a result that is not the answer of an attempt, and records `end` if an agent called tools. A
    /// failed result gets the message of that record.
    async fn end(&self, end: Start, result: StepResult) -> StepState<'a> {
        let recorded = output::record_end(self.run, &self.invocation, &self.turn, end).await;
        let result = match (result, recorded) {
            (StepResult::Failed(_), Some(error)) => StepResult::Failed(error.message),
            (result, _) => result,
        };
        StepState::Ended(Performed::Ended(result))
    }
}
