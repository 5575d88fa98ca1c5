//! The content of a request about a call or a question: facts that the operator computed, then the agent's own words.

use serde_json::{Value, json};
use signoff_api::{
    JsonObject, RecordPath, Seq, Verdict,
    approval::{Action, ActionKind, ApprovalPhase, AskingGate},
    journal::{FACT_GIVEN, StepKind, StepRecord},
    tool::Effects,
};
use signoff_expr::text;

use super::{
    equal,
    gating::Asking,
    merge::DeadlineSource,
    proposal::step_path,
    site::{CallOfTurn, FACT_ARGUMENTS, FACT_INPUT, Proposal, ToolCallSite, TurnSite},
};
use crate::{
    plan::PlannedTool,
    replay::{
        run::{RenderError, Run},
        scope::within,
    },
    steps::{
        excerpt::{Fields, SHOWN},
        request::{CallReview, FACT_TOOL, ReviewSubject},
    },
    tools::{arguments::Arguments, question::AgentQuestions},
};

/// The maximum size of the schema for edited arguments, in bytes. With a longer schema, the arguments cannot be edited.
const MOST_SCHEMA: usize = 16 * 1024;
/// The maximum number of lines about earlier calls of the run.
const MOST_DONE: usize = 16;
/// The maximum length of a line about an earlier call, in characters.
const LINE: usize = 250;
/// The maximum length of the arguments of a call in its records and in a line about it, in characters.
const GIVEN: usize = 120;

/// Returns the review of a call. `at` is its position in the turn, `seq` the number of the journal at which people are
/// asked.
pub(super) fn call_review<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    at: usize,
    site: &ToolCallSite<'a>,
    proposal: &Proposal,
    group: &[Asking<'a>],
    seq: Seq,
) -> Result<ReviewSubject, RenderError> {
    let (tool, arguments) = (site.tool, &proposal.arguments);
    let schema = json!({"Modify": edit_schema(&tool.parameters)});
    let is_short = schema.to_string().len() <= MOST_SCHEMA;
    let gates = group.iter().enumerate().map(|(at, asking)| AskingGate {
        name: asking.gate.gate.name.clone(),
        type_: asking.gate.type_,
        source: asking.gate.gate.added_by.clone(),
        because: match DeadlineSource::deadline_note(group, at) {
            Some(deadline) => format!("{}; {deadline}", text::display(&asking.because, 440)),
            None => text::display(&asking.because, 500),
        },
    });
    let siblings = turn.siblings.iter().enumerate().filter(|(other, _)| *other != at);
    let action = Action {
        kind: ActionKind::ToolCall,
        agent: turn.agent.to_owned(),
        tool: tool.name.clone(),
        effects: tool.effects,
        target: Some(proposal.target.clone()),
        definition: Some(tool.definition.clone()),
        attempts: Some(site.attempts.further + 1),
        gates: gates.collect(),
        siblings: siblings.map(|(_, call)| call.clone()).collect(),
        done: earlier_events(run, turn, at, site, proposal, seq)?,
    };
    let input = proposal.input.as_ref().map(|input| (FACT_INPUT, input.to_string()));
    let call = CallReview {
        action,
        says: own_words(&turn.says),
        parameters: schema.as_object().filter(|_| is_short).cloned().map(JsonObject),
        form: None,
        withheld: if is_short { Vec::new() } else { vec![Verdict::Modify] },
        facts: record_facts(&tool.name, arguments).into_iter().chain(input).collect(),
    };
    let subject = ReviewSubject::of(&site.path, arguments.text());
    let (binds, call) = (Some(proposal.digest.clone()), Some(Box::new(call)));
    Ok(ReviewSubject { excerpt: excerpt(arguments), binds, call, sends: proposal.shows.clone(), ..subject })
}

/// Returns the beginning of each argument if the arguments together are too long for a request, so that a long argument
/// does not hide another. Returns `None` for short arguments.
fn excerpt(arguments: &Arguments) -> Option<String> {
    let is_long = arguments.text().len() > SHOWN;
    let fields = is_long.then(|| Fields::of(arguments.value(), &[], "").ok()).flatten()?;
    Some(fields.excerpt("# the arguments, as YAML"))
}

/// Describes a call for the gates of its tool's step, which ask in addition to the gates of the call. `needs_people`
/// says whether only people, and not a deadline, can let the call run. People are asked at `seq`.
pub(super) fn describe_at_step(
    run: &Run<'_>,
    call: &CallOfTurn,
    tool: &PlannedTool,
    proposal: &Proposal,
    (needs_people, seq): (bool, Seq),
) -> Result<String, RenderError> {
    let Proposal { arguments, target, .. } = proposal;
    let effects = tool.effects.map_or("unknown", Effects::name);
    let by_people = needs_people.then(|| Action::BY_PEOPLE.to_owned());
    let of_this_call =
        by_people.into_iter().chain(last_attempt(run, call, tool)).chain(repetition_lines(run, call, proposal, seq)?);
    let mut earlier = earlier_calls(run, &call.path, seq);
    earlier.drain(..earlier.len().saturating_sub(MOST_DONE));
    let earlier = earlier.into_iter().map(|line| format!("earlier: {line}"));
    let done: String = of_this_call.chain(earlier).map(|line| format!("\n{line}")).collect();
    Ok(format!(
        "A call of the tool {} by the agent {}\ntarget: {target}\neffects, as the author declares: {effects}{done}\narguments ({} bytes): {}",
        tool.name,
        call.agent,
        arguments.text().len(),
        text::display(arguments.text(), 1500)
    ))
}

/// Returns the beginning of the arguments of a call, for its records.
pub(super) fn arguments_beginning(arguments: &Arguments) -> String {
    text::display(arguments.text(), GIVEN)
}

/// Returns the JSON Schema for edited arguments. Definitions are valid only at the root of a schema, so they are moved
/// there.
fn edit_schema(parameters: &JsonObject) -> Value {
    let mut arguments = parameters.0.clone();
    let mut schema = json!({"type": "object", "required": ["arguments"], "additionalProperties": false});
    for place in ["$defs", "definitions"] {
        if let Some(definitions) = arguments.remove(place) {
            schema[place] = definitions;
        }
    }
    schema["properties"] = json!({"arguments": arguments});
    schema
}

/// Returns a line about the end of the last attempt at a call, or `None` before the first attempt.
fn last_attempt(run: &Run<'_>, call: &CallOfTurn, tool: &PlannedTool) -> Option<String> {
    let last = call.attempt - 1;
    let state = run.state.borrow();
    let record = state.journal.get(&step_path(&call.path, tool), last)?;
    let why = record.error.as_ref().map(|error| format!(": {}: {}", error.class, error.message)).unwrap_or_default();
    Some(text::display(&format!("{}{last}: {}{why}", Action::LAST_ATTEMPT, record.phase.name()), LINE))
}

/// Returns the review of a call at the gate that asks whether its tool continues after rejections.
pub(super) fn escalation_review<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    at: usize,
    site: &ToolCallSite<'a>,
    proposal: &Proposal,
    asking: AskingGate,
    seq: Seq,
) -> Result<ReviewSubject, RenderError> {
    let mut subject = call_review(run, turn, at, site, proposal, &[], seq)?;
    if let Some(call) = &mut subject.call {
        (call.action.gates, call.parameters) = (vec![asking], None);
    }
    Ok(subject)
}

/// Returns the review of a question. Only its form is reviewed.
pub(super) fn question_review(
    turn: &TurnSite<'_, '_>,
    path: &str,
    tool: &str,
    arguments: &Arguments,
    asked: &AgentQuestions,
) -> ReviewSubject {
    let action = Action {
        kind: ActionKind::Question,
        agent: turn.agent.to_owned(),
        tool: tool.to_owned(),
        effects: None,
        target: None,
        definition: None,
        attempts: None,
        gates: Vec::new(),
        siblings: Vec::new(),
        done: Vec::new(),
    };
    let words: Vec<_> = [Some(turn.says.as_str()), asked.context.as_deref()].into_iter().flatten().collect();
    let call = CallReview {
        action,
        says: own_words(&words.join("\n\n")),
        parameters: None,
        form: Some(asked.form.clone()),
        withheld: Vec::new(),
        facts: record_facts(tool, arguments),
    };
    let subject = ReviewSubject::of(path, arguments.text());
    ReviewSubject { binds: Some(arguments.digest()), call: Some(Box::new(call)), ..subject }
}

/// Returns the facts of the record of a gate, which identify a rejected call later.
fn record_facts(tool: &str, arguments: &Arguments) -> Vec<(&'static str, String)> {
    let digest = arguments.digest().to_string();
    vec![(FACT_TOOL, tool.to_owned()), (FACT_ARGUMENTS, digest), (FACT_GIVEN, arguments_beginning(arguments))]
}

/// Returns the model's text, or `None` if it is empty. Repeated empty lines are removed, because they would push the
/// facts out of sight.
fn own_words(says: &str) -> Option<String> {
    let mut lines: Vec<_> = says.trim().lines().collect();
    let is_empty = |line: &str| line.chars().all(|c| c.is_whitespace() || text::is_invisible(c));
    lines.dedup_by(|line, before| is_empty(line) && is_empty(before));
    let words = lines.join("\n");
    (!words.is_empty()).then(|| text::first(&words, 4096).to_owned())
}

/// Returns the events before this call, the newest last: earlier calls with their outcomes, the editors of this
/// call, the end of its last attempt, and equal calls.
fn earlier_events(
    run: &Run<'_>,
    turn: &TurnSite<'_, '_>,
    at: usize,
    site: &ToolCallSite<'_>,
    proposal: &Proposal,
    seq: Seq,
) -> Result<Vec<String>, RenderError> {
    let edited = site.edited.as_ref().map(|edited| text::display(edited, LINE));
    let call = CallOfTurn::of(turn, at, site);
    let mut of_this_call: Vec<_> = edited.into_iter().chain(last_attempt(run, &call, site.tool)).collect();
    of_this_call.extend(repetition_lines(run, &call, proposal, seq)?);
    let mut lines: Vec<_> = earlier_calls(run, &site.path, seq).into_iter().chain(of_this_call).collect();
    lines.drain(..lines.len().saturating_sub(MOST_DONE));
    Ok(lines)
}

/// Returns the lines about equal calls: the time and result of the last one, and the number in this turn.
fn repetition_lines(
    run: &Run<'_>,
    call: &CallOfTurn,
    proposal: &Proposal,
    seq: Seq,
) -> Result<Vec<String>, RenderError> {
    let Some(equal) = &proposal.equal else { return Ok(Vec::new()) };
    let made = equal.last_made_before(run, seq).map(|earlier| equal::repetition_line(run, &earlier)).transpose()?;
    let mut lines: Vec<_> = made.map(|line| text::display(&line, LINE)).into_iter().collect();
    let (number, count) = call.place;
    if count > 1 {
        let ran = equal.made_in_turn(run, &call.turn, seq);
        lines.push(format!("this is call {number} of {count} equal calls of this turn, {ran} of them ran"));
    }
    Ok(lines)
}

/// Returns the outcomes of the calls that the run made before `seq`, the newest last, without the call at `own`.
fn earlier_calls(run: &Run<'_>, own: &str, seq: Seq) -> Vec<String> {
    let state = run.state.borrow();
    // The record of an agent ends with its first turn. If that turn called tools, the answer is in a record of its own.
    let end = |record: &StepRecord| match record.calls_tools() {
        true => state.journal.get(&RecordPath::new(&record.path).answer(), 1)?.done,
        false => record.done,
    };
    let others = state.journal.records().iter().filter(|record| !within(&record.path, own));
    let ended = others.filter_map(|record| Some((end(record)?, record)));
    let mut ended: Vec<_> = ended.filter(|(end, _)| *end < seq).collect();
    ended.sort_by_key(|(end, _)| *end);
    ended.into_iter().filter_map(|(_, record)| call_line(run, record)).collect()
}

/// Returns the tool, the arguments and the outcome of a call, or the decision by which it did not run.
fn call_line(run: &Run<'_>, record: &StepRecord) -> Option<String> {
    let path = RecordPath::new(&record.path);
    path.turn_above()?;
    let name = path.last().name();
    let given = record.facts.get(FACT_GIVEN).map(|given| format!(" {given}")).unwrap_or_default();
    let what = match record.kind {
        StepKind::Hitl => {
            let tool = record.facts.get(FACT_TOOL)?;
            let verdict = record.decision.as_ref()?.verdict.filter(|verdict| *verdict != Verdict::Approve)?;
            format!("{tool}{given}: {}", ApprovalPhase::of(verdict).name())
        }
        _ => format!("{}{given}: {}", tool_of(run, name)?, record.phase.name()),
    };
    Some(text::display(&what, LINE))
}

/// Returns the tool that runs a step, or the tools if there are several.
fn tool_of(run: &Run<'_>, step: &str) -> Option<String> {
    let tools = run.plan.tools.tools.values().filter(|tool| tool.step.name == step);
    let names: Vec<_> = tools.map(|tool| tool.name.as_str()).collect();
    // The step of a tool of a server has the name of the tool.
    if names.is_empty() && step.split_once('.').is_some_and(|(server, _)| run.plan.tools.servers.contains_key(server)) {
        return Some(step.to_owned());
    }
    (!names.is_empty()).then(|| names.join(" or "))
}
