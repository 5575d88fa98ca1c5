//! The response of a step: parse -> ask the agent again after a parse error -> review.
//!
//! **Invariant:** no answer is repaired: an invalid one is requested again, replaced by a person, or refused.
//! A result that differs from the answer as given is recorded below the step, as `.answer`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::{
    Digest, FailureClass, JsonObject, RecordPath, Seq, Verdict,
    journal::{StepError, StepKind, StepPhase, StepRecord},
};
use signoff_expr::{endless, text};

use super::{
    attempts::{is_repeated_by_people_only, run_attempts},
    flow::EarlyEnd,
    gate::{self, DecidedGate, verdict_or_end},
    gate_before::{self, GateBefore},
    turn::Turn,
};
use crate::{
    evaluation::{self, Part, within},
    journal::Journal,
    plan::{Action, PlannedAgent, PlannedOutput, PlannedStep},
    replay::{
        activity::{ActivityKey, Start, error},
        origins::Origins,
        run::Run,
        scope::StepScope,
        step_invocation::{Override, StepInvocation},
    },
    schema::Schema,
    steps::{excerpt::Fields, request::ReviewSubject, sent},
};

/// The number of further requests after an answer that does not match its schema.
const ASKED_AGAIN: i32 = 2;
/// The number of further requests after an empty answer.
const ASKED_FOR_TEXT: i32 = 1;
/// The verdicts by which the step runs again. Then people are asked about its new answer.
const ASKS_AGAIN: [Verdict; 2] = [Verdict::Defer, Verdict::Retry];
/// The maximum length of a quoted problem, in characters.
const QUOTED: usize = 600;

/// The parser of an answer, and the number of further requests after an answer that does not parse.
pub(crate) struct AnswerParser<'r> {
    pub(crate) parse: &'r dyn Fn(&str) -> Result<(), String>,
    pub(crate) retries: i32,
}

/// The result of reading an answer.
pub(super) enum AnswerResult {
    /// The answer is accepted, with this text.
    Accepted(String),
    /// The answer is requested again.
    Again,
    /// The answer is not used.
    Refused(StepError),
    /// People discarded the answer.
    Rejected(StepError),
}

impl AnswerResult {
    /// Returns the result with the error of its record. An earlier version of the operator may have worded the error
    /// differently, and inputs that were sent since then contain the recorded wording.
    fn with_error(self, recorded: Option<StepError>) -> Self {
        match (self, recorded) {
            (Self::Refused(_), Some(error)) => Self::Refused(error),
            (Self::Rejected(_), Some(error)) => Self::Rejected(error),
            (settled, _) => settled,
        }
    }
}

/// Validates the answer of a successful attempt at a turn, asks the agent or people about an invalid one, and records a
/// result that differs from the answer.
pub(super) async fn process_answer<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    policy_gates: &[GateBefore<'a>],
    (turn, attempt): (&Turn, i32),
    parser: Option<&AnswerParser<'_>>,
) -> Result<AnswerResult, EarlyEnd> {
    let (path, step) = (turn.path.as_str(), invocation.step);
    let raw_answer = load_answer(run, path, attempt).await?;
    *run.settled.borrow_mut() = (path.to_owned(), attempt);
    let is_empty = is_empty_answer(run, step, &raw_answer.text);
    if parser.is_none() && step.output.is_none() && !is_empty {
        record_end(run, invocation, turn, Start::Immediate(raw_answer.text.clone())).await;
        return Ok(AnswerResult::Accepted(raw_answer.text));
    }
    let text = raw_answer.text.clone();
    let result = match cost_error(run, invocation, turn, attempt) {
        Some(why) => AnswerResult::Refused(why),
        None => validate_answer(run, invocation, (path, attempt), policy_gates, raw_answer, parser).await?,
    };
    let end = match &result {
        AnswerResult::Accepted(accepted) if *accepted != text || turn.number > 1 => Start::Immediate(accepted.clone()),
        AnswerResult::Refused(error) | AnswerResult::Rejected(error) => Start::Failed(error.clone()),
        // The record of the attempt already has the result.
        AnswerResult::Accepted(_) | AnswerResult::Again => return Ok(result),
    };
    let recorded = record_answer(run, invocation, &end).await;
    Ok(result.with_error(recorded.error))
}

/// Records the end of a step whose agent called tools, because the step's own record is that of its first turn. Returns
/// the recorded error; `None` also if the agent called no tools.
pub(super) async fn record_end<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    turn: &Turn,
    end: Start,
) -> Option<StepError> {
    if turn.number > 1 { record_answer(run, invocation, &end).await.error } else { None }
}

/// Records the result of an answer below its step, as `.answer`.
async fn record_answer<'a>(run: &Run<'a>, invocation: &StepInvocation<'a>, end: &Start) -> StepRecord {
    let (path, _) = run.visit(&RecordPath::new(&invocation.base).answer());
    let key = ActivityKey { path, attempt: 1, kind: StepKind::Condition };
    run.activity(&invocation.step_scope, key, |_| Ok(end.clone())).await
}

/// Runs `parse` for the last settled answer, and attributes its cost to the attempt that gave this answer.
pub(crate) fn parse_settled_answer<T>(run: &Run<'_>, parse: impl FnOnce() -> T) -> T {
    let part = || {
        let (path, attempt) = &*run.settled.borrow();
        Part::step(path, *attempt)
    };
    within(part, || {
        if !run.plan.has_scripted_response(&run.settled.borrow().0) {
            evaluation::record_foreign_text();
        }
        parse()
    })
}

/// Returns the error of an answer whose evaluation was stopped: the recorded error, or a new one if no event followed
/// the answer. So every replay agrees, and a stopped replay does not end a step on which other steps depend.
fn cost_error(run: &Run<'_>, invocation: &StepInvocation<'_>, turn: &Turn, attempt: i32) -> Option<StepError> {
    let (base, path) = (&invocation.base, &turn.path);
    let state = run.state.borrow();
    // A later attempt shows that this answer was settled differently.
    if state.journal.get(base, turn.attempt_after(attempt)).is_some() {
        return None;
    }
    if let Some(recorded) = state.journal.get(&run.next_visit(&RecordPath::new(base).answer()), 1) {
        return recorded.error.clone().filter(|error| error.is(FailureClass::TooCostly));
    }
    let why = state.costly.get(&(path.clone(), attempt))?;
    (!has_continued(&state.journal, base, (path, attempt), run.stored)).then(|| error(FailureClass::TooCostly, why))
}

/// Whether an answer was evaluated in an earlier transition, because a later event began after the answer. After
/// repeated requests the last answer counts. `stored` is the number of the last event before this transition.
fn has_continued(journal: &Journal, base: &str, (path, attempt): (&str, i32), stored: Seq) -> bool {
    let Some(answer_done) = journal.get(path, attempt).and_then(|record| record.done) else { return false };
    let requested_again = |record: &&StepRecord| {
        let path = RecordPath::new(&record.path);
        record.seq > answer_done && path.last().is_ask() && path.parent() == Some(RecordPath::new(base))
    };
    let last = journal.records().iter().filter(requested_again).max_by_key(|record| record.seq);
    let Some(answer_done) = last.map_or(Some(answer_done), |last| last.done) else { return true };
    journal.records().iter().any(|record| record.seq > answer_done && record.seq <= stored)
}

/// Validates an answer. Requests an invalid answer again from the agent, and then asks people about it. Also asks
/// people about an answer that is always reviewed.
async fn validate_answer<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    (answered, attempt): (&str, i32),
    policy_gates: &[GateBefore<'a>],
    mut answer: Answer,
    parser: Option<&AnswerParser<'_>>,
) -> Result<AnswerResult, EarlyEnd> {
    let (path, step, step_scope) = (invocation.base.as_str(), invocation.step, &invocation.step_scope);
    let part = || Part::step(answered, attempt);
    let schema = step.output.as_ref().and_then(|output| output.schema.as_ref());
    let any_text = parser.is_none() && schema.is_none();
    let judge = |text: &str| -> Option<String> {
        if any_text && is_empty_answer(run, step, text) {
            return Some("it is empty".to_owned());
        }
        if let Some(Err(why)) = parser.map(|parser| (parser.parse)(text)) {
            return Some(why);
        }
        schema.and_then(|schema| check_schema(schema, text).err())
    };
    // Evaluated once for each answer, also in later replays.
    let find_problem = |answer: &Answer| {
        run.plan.validated_answers.get_or_validate(path, &answer.digest, || {
            within(part, || {
                if !step.is_scripted(run.plan) {
                    evaluation::record_foreign_text();
                }
                judge(&answer.text)
            })
        })
    };
    let usual = if any_text { ASKED_FOR_TEXT } else { ASKED_AGAIN };
    let retries = parser.map_or(usual, |parser| parser.retries);
    let mut found = find_problem(&answer);
    let mut newest = (answered.to_owned(), attempt);
    let mut asked = 0;
    while let (Some(why), Action::Agent(_), true) = (&found, &step.action, asked < retries) {
        asked += 1;
        let step_path = RecordPath::new(path);
        let (_, count) = run.visit(&step_path.asks());
        let key = ActivityKey { path: step_path.ask(count + 1).into(), attempt: 1, kind: StepKind::Agent };
        let parameters = BTreeMap::from([("input".to_owned(), clarification_prompt(step, why))]);
        let overrides = Override { parameters, edits: Vec::new() };
        let mut invocation = StepInvocation {
            overrides,
            approved: None,
            last_asked: None,
            turns: Vec::new(),
            first_heard: None,
            without_tools: true,
            ..invocation.clone()
        };
        let retries = step.retry.limit.unwrap_or(0);
        if !gate_before::ask(run, &mut invocation, &key, policy_gates.to_vec(), retries).await? {
            break;
        }
        let (record, _) = run_attempts(run, &invocation, &key, retries).await;
        if record.phase != StepPhase::Succeeded {
            let failed = record.error.unwrap_or_else(|| error(FailureClass::Failed, "it failed"));
            return Ok(AnswerResult::Refused(failed));
        }
        answer = load_answer(run, &key.path, record.attempt).await?;
        found = find_problem(&answer);
        newest = (key.path, record.attempt);
    }
    let newest_record = run.state.borrow().journal.get(&newest.0, newest.1).cloned();
    let cause = newest_record.as_ref().and_then(|record| token_cause(run, step, record, answer.text.trim().is_empty()));
    let found = found.map(|why| cause.map_or_else(|| why.clone(), |cause| format!("{why}: {cause}")));
    match &step.output {
        Some(PlannedOutput { gate: Some(gate), always, .. }) if *always || found.is_some() => {
            let schema = schema.filter(|_| gate.is_tool());
            let sends = sent::of_attempt(run, invocation, answered, attempt).await.map(|(sends, _)| sends);
            let mut origins = Origins::default();
            if matches!(step.action, Action::Set(_)) {
                origins.add_text((answered.to_owned(), attempt));
            }
            if newest_record.is_some_and(|record| record.is_cut()) {
                origins.add_cut(path);
            }
            let record = run.state.borrow().journal.get(answered, attempt).cloned();
            let repeats = record.is_some_and(|record| is_repeated_by_people_only(step, &record));
            let by_people = gate.is_tool() || repeats;
            let asked = AnswerReview { schema, answer: answer.text, problem: found, sends, by_people, origins };
            ask_about_answer(run, (step_scope, step), gate, path, asked).await
        }
        _ => Ok(found.map_or(AnswerResult::Accepted(answer.text), |why| refuse_malformed(run, step, &why))),
    }
}

/// The review of an answer by people.
struct AnswerReview<'a> {
    answer: String,
    /// The reason why the answer is invalid, or `None`.
    problem: Option<String>,
    /// The schema of the text by which Respond replaces the answer.
    schema: Option<&'a JsonObject>,
    /// The fields that were sent for the answer.
    sends: Option<Fields>,
    /// Whether only people can repeat the step.
    by_people: bool,
    /// The origins of the text that the answer was rendered from; empty if a model, a container or an address gave it.
    origins: Origins,
}

/// Asks people about an answer, and applies their verdict.
async fn ask_about_answer<'a>(
    run: &Run<'a>,
    (step_scope, step): (&StepScope<'a>, &PlannedStep),
    gate: &'a PlannedStep,
    path: &str,
    AnswerReview { answer, problem, schema, sends, by_people, origins }: AnswerReview<'_>,
) -> Result<AnswerResult, EarlyEnd> {
    let (output, why) = (answer.clone(), problem.clone());
    let step_scope = step_scope.with_vars(move |_, _, _, scope| {
        scope.set("output", json!(output));
        scope.set("problem", json!(why));
        Ok(())
    });
    let shown = ReviewSubject { respond: schema.cloned(), ..ReviewSubject::of(path, &answer) }.sending(sends);
    let shown = shown.made_of(origins);
    let base = RecordPath::new(path).output();
    let by_people: &[Verdict] = if by_people { &[Verdict::Retry] } else { &[] };
    let decided = gate::decide_after(run, &step_scope, gate, &base, &shown, (by_people, &ASKS_AGAIN)).await?;
    if decided.was_not_asked() && problem.is_some() {
        // The gate's condition did not hold, so no person accepted the invalid answer.
        return Ok(refuse_malformed(run, step, &problem.unwrap_or_default()));
    }
    if decided.verdict == Verdict::Reject {
        return Ok(AnswerResult::Rejected(error(FailureClass::Rejected, &decided.describe(""))));
    }
    match verdict_or_end(run, &decided, &ASKS_AGAIN)? {
        Verdict::Modify => Ok(AnswerResult::Accepted(load_replacement(run, &decided).await?)),
        Verdict::Defer | Verdict::Retry => Ok(AnswerResult::Again),
        // The agent reads only the result of its call.
        Verdict::Respond if gate.is_tool() => {
            let response = decided.full_outcome(run).await?.response.unwrap_or_default();
            // A vote was checked when it was counted, unless its request lacks the schema or the response comes from a
            // timeout.
            let problem = schema.and_then(|schema| check_schema(schema, &response).err());
            Ok(problem.map_or(AnswerResult::Accepted(response), |why| refuse_malformed(run, step, &why)))
        }
        _ => Ok(AnswerResult::Accepted(answer)),
    }
}

fn refuse_malformed(run: &Run<'_>, step: &PlannedStep, why: &str) -> AnswerResult {
    let model = asked_agent(run, step).map(|agent| {
        let model = text::display(agent.spec.model.as_deref().unwrap_or_default(), 200);
        format!("model {model} of provider {}: ", agent.provider.name)
    });
    let model = model.unwrap_or_default();
    AnswerResult::Refused(error(FailureClass::Malformed, &format!("{model}its answer is not as it should be: {why}")))
}

/// Returns the agent of a step that a model answers.
fn asked_agent<'r>(run: &'r Run<'_>, step: &PlannedStep) -> Option<&'r PlannedAgent> {
    let Action::Agent(planned) = &step.action else { return None };
    run.plan.agents.get(&planned.agent).filter(|agent| !agent.is_scripted())
}

/// Returns the reason why the end or all of a model's answer is missing, with the remedy, if its record shows that the
/// tokens were used up.
fn token_cause(run: &Run<'_>, step: &PlannedStep, record: &StepRecord, is_empty: bool) -> Option<String> {
    let agent = asked_agent(run, step)?;
    let usage = record.usage.unwrap_or_default();
    let (written, reasoning) = (usage.output_tokens, usage.reasoning_tokens);
    let cut = record.is_cut().then(|| format!("it was {}", StepRecord::CUT));
    let has_reasoned = reasoning > 0 && (cut.is_some() || (is_empty && reasoning >= written));
    let reasoned = has_reasoned.then(|| format!("reasoning used {reasoning} of its {written} tokens"));
    let causes: Vec<_> = cut.into_iter().chain(reasoned).collect();
    (!causes.is_empty()).then(|| format!("{}; raise maxTokens of agent {}", causes.join(", "), agent.spec.name))
}

/// Returns the answer of a person that replaces the step's answer; JSON as its text.
async fn load_replacement(run: &Run<'_>, decided: &DecidedGate) -> Result<String, EarlyEnd> {
    let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
    let replaced = parameters.0.get("response").cloned().unwrap_or(Value::Null);
    Ok(replaced.as_str().map_or_else(|| replaced.to_string(), str::to_owned))
}

/// An answer and its digest.
struct Answer {
    text: String,
    digest: Digest,
}

/// Loads the answer of an attempt; empty if the agent called a tool instead.
async fn load_answer(run: &Run<'_>, path: &str, attempt: i32) -> Result<Answer, EarlyEnd> {
    run.render(|| {
        let record = run.state.borrow().journal.get(path, attempt).cloned();
        let Some(record) = record else { return Ok(Answer::new(String::new(), None)) };
        if record.calls_tools() {
            // The agent was asked for an answer and called a tool, so there is no answer.
            return Ok(Answer::new(String::new(), None));
        }
        let text = run.text_of(record.response.as_ref(), record.response_ref.as_ref())?;
        Ok(Answer::new(text.unwrap_or_default(), record.response_ref.map(|reference| reference.digest)))
    })
    .await
    .map_err(EarlyEnd::Failed)
}

impl Answer {
    fn new(text: String, digest: Option<Digest>) -> Self {
        Self { digest: digest.unwrap_or_else(|| Digest::of_bytes(text.as_bytes())), text }
    }
}

/// Whether an answer of a model is empty. A scripted answer may be empty.
fn is_empty_answer(run: &Run<'_>, step: &PlannedStep, text: &str) -> bool {
    step.is_agent() && !step.is_scripted(run.plan) && text.trim().is_empty()
}

/// Checks that a text holds JSON that matches a schema.
fn check_schema(schema: &JsonObject, text: &str) -> Result<(), String> {
    endless::meet("output", text);
    Schema::compile(schema)?.check_text(text).map_err(|why| text::display(&why, QUOTED))
}

/// Returns the prompt that requests an invalid answer again. The problem can quote the agent's text, so it is marked as
/// data.
fn clarification_prompt(step: &PlannedStep, problem: &str) -> String {
    let wanted = match &step.action {
        Action::Agent(agent) => agent.addition.clone(),
        _ => None,
    };
    let schema = step.output.as_ref().and_then(|output| output.schema.as_ref());
    let wanted = wanted.or_else(|| {
        let schema = serde_json::to_string(schema?).unwrap_or_default();
        Some(format!("Answer with JSON that fits this schema, and nothing else: {schema}"))
    });
    format!(
        "Your last answer cannot be used. The problem: {}\n{}",
        text::display(problem, QUOTED),
        wanted.unwrap_or_else(|| "Answer in words, and call no tool.".to_owned())
    )
}
