//! The calls of one turn: each is checked, asked about where gates say so, run, and answered; all of them at once.
//!
//! **Invariant:** every call id has exactly one result, in the order of the model. Nothing that the model says chooses a gate, an
//! approver, or a tool that its agent does not have.

use std::{future::poll_fn, rc::Rc, task::Poll};

use serde::Deserialize;
use serde_json::{Value, json};
use signoff_api::{
    Digest, Verdict,
    approval::{SiblingCall, Source},
    journal::{FACT_CALLS, StepKind, StepRecord},
};
use signoff_expr::text;

use super::{
    gating::{Cleared, Gating},
    merge, shown,
    site::{FACT_ARGUMENTS, FACT_TOOL, ToolCallSite},
    turn::Turn,
};
use crate::{
    evaluation::{Part, within},
    plan::{Action, PlannedTool},
    replay::{
        activity::{ActivityKey, Start, error, input_digest},
        run::{RenderError, Run},
        scope::{RecordNamespace, StepScope, within as within_place},
        step_invocation::StepInvocation,
        tool_turn::ToolTurn,
    },
    schema::Schema,
    steps::{
        self, DecidedGate, EarlyEnd, StepResult,
        failure::StepFailure,
        gate::decide,
        join::{Member, join_all},
        verdict_or_end,
    },
    tools::{arguments::Arguments, names, question::Asked},
    transition::{CallContent, ToolCall},
};

/// The most calls of one turn that are made; each further one is an error result.
const MOST_CALLS: usize = 32;
/// The most calls of a run that wait for people at once.
const MOST_ASKED: usize = 8;
/// The rejected calls of a tool in a run after which its calls are refused without asking.
const MOST_REJECTED: usize = 3;
/// The bytes of a result that the model is told.
const RESULT: usize = 32 * 1024;
/// The default limits of one step of an agent: turns and calls.
const LIMITS: (i32, i32) = (20, 100);
/// The answer of a model that calls tools, as the executor records it.
#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    text: String,
    #[serde(default)]
    truncated: bool,
    calls: Vec<Requested>,
}

/// A call as the model asked for it.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Requested {
    #[serde(default)]
    id: String,
    #[serde(default)]
    tool: String,
    arguments: Option<String>,
    too_long: Option<u64>,
}

/// What all calls of a turn share.
struct TurnSite<'t, 'a> {
    invocation: &'t StepInvocation<'a>,
    agent: &'t str,
    /// The path before `.call-1`.
    path: String,
    /// The number before which everything is known that decides about the calls.
    seen: i64,
    says: String,
    truncated: bool,
    siblings: Vec<SiblingCall>,
}

/// A call that was dealt with.
enum Answered {
    /// This is its result.
    Result(String),
    /// This is its result, because people rejected it: an equal call of the same turn is not asked about.
    Rejected(String),
}

/// Makes the calls of a turn whose record is finished.
pub(crate) async fn perform_turn<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    record: &StepRecord,
    turn: &Turn,
) -> Result<Result<Rc<ToolTurn>, StepFailure>, EarlyEnd> {
    let Action::Agent(planned) = &invocation.step.action else { return Ok(Err(failure("Internal", "it is no agent"))) };
    let agent = planned.agent.as_str();
    let limit = run.plan.agents.get(agent).and_then(|agent| agent.spec.limits).and_then(|limits| limits.turns);
    let limit = limit.unwrap_or(LIMITS.0);
    if turn.number >= limit {
        let why = format!(
            "agent {agent} still calls tools in turn {}, and its limit is {limit} turns: raise limits.turns of the agent, or change its instructions",
            turn.number
        );
        return Ok(Err(failure("TurnLimit", &why)));
    }
    let text = run.render(|| run.text_of(record.response.as_ref(), record.response_ref.as_ref())).await;
    let text = text.map_err(EarlyEnd::Failed)?.unwrap_or_default();
    let Ok(reply) = serde_json::from_str::<Reply>(&text) else {
        return Ok(Err(failure("Malformed", "the recorded calls of its turn cannot be read")));
    };
    let path = turn.path_of_calls(run, &invocation.base);
    let number = turn.number;
    let requested = unique(reply.calls, number);
    let siblings = requested.iter().take(MOST_CALLS).enumerate();
    let siblings = siblings.map(|(at, call)| SiblingCall {
        path: format!("{path}/.call-{}", at + 1),
        tool: text::display(&call.tool, 64),
    });
    let site = TurnSite {
        invocation,
        agent,
        seen: record.done.unwrap_or(record.seq) + 1,
        says: text::clean(&reply.text),
        truncated: reply.truncated,
        siblings: siblings.collect(),
        path,
    };
    let results = answer_all(run, &site, &requested).await?;
    let calls = requested.into_iter().map(|call| ToolCall {
        arguments: call
            .arguments
            .as_deref()
            .and_then(|text| Arguments::parse(text).ok())
            .map_or_else(|| "{}".to_owned(), |a| a.text().to_owned()),
        tool: if call.tool.is_empty() { "unknown".to_owned() } else { names::wire(&call.tool) },
        id: call.id,
    });
    Ok(Ok(Rc::new(ToolTurn { text: site.says, calls: calls.collect(), results })))
}

fn failure(class: &str, why: &str) -> StepFailure {
    StepFailure::of(error(class, why))
}

/// The calls with ids of their own: one without an id gets one, and a further one with a known id is dropped, because it could not
/// be answered.
fn unique(calls: Vec<Requested>, number: i32) -> Vec<Requested> {
    let mut kept: Vec<Requested> = Vec::new();
    for (at, mut call) in calls.into_iter().enumerate() {
        if call.id.is_empty() {
            call.id = format!("turn-{number}-call-{}", at + 1);
        }
        if !kept.iter().any(|known| known.id == call.id) {
            kept.push(call);
        }
    }
    kept
}

/// Answers all calls at once; equal ones one after the other.
async fn answer_all<'a>(
    run: &Run<'a>,
    site: &TurnSite<'_, 'a>,
    requested: &[Requested],
) -> Result<Vec<String>, EarlyEnd> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (at, call) in requested.iter().enumerate() {
        let arguments = call.arguments.as_deref().map(Arguments::parse);
        let key = match arguments {
            Some(Ok(arguments)) => format!("{} {}", call.tool, arguments.text()),
            _ => format!("{at}"),
        };
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(at),
            None => groups.push((key, vec![at])),
        }
    }
    let members = groups.iter().map(|(_, members)| {
        let one: Member<'_, Vec<(usize, String)>> = Box::pin(async move {
            let (mut results, mut rejected) = (Vec::new(), None::<String>);
            for at in members {
                let Some(call) = requested.get(*at) else { continue };
                let result = match &rejected {
                    Some(why) => why.clone(),
                    None => match answer(run, site, *at, call).await? {
                        Answered::Result(result) => result,
                        Answered::Rejected(why) => rejected.insert(why).clone(),
                    },
                };
                results.push((*at, result));
            }
            Ok(results)
        });
        one
    });
    let mut results: Vec<_> = join_all(members.collect(), true).await?.into_iter().flatten().collect();
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Answers one call.
async fn answer<'a>(run: &Run<'a>, site: &TurnSite<'_, 'a>, at: usize, call: &Requested) -> Result<Answered, EarlyEnd> {
    let error = |why: String| Ok(Answered::Result(format!("Error: {why}")));
    if at >= MOST_CALLS {
        return error(format!("at most {MOST_CALLS} calls are made in a turn: make this one in a later turn"));
    }
    if site.truncated {
        return error(
            "your message was cut at its largest length, so its calls were not made: call again with less text"
                .to_owned(),
        );
    }
    if let Some(limit) = reached_limit(run, site, at) {
        return error(format!("the limit of {limit} calls is reached: answer with what you have"));
    }
    let own = run.plan.agents.get(site.agent).map_or(&[][..], |agent| agent.tools.as_slice());
    let Some(name) = own.iter().find(|name| names::wire(name) == call.tool) else {
        let all = own.iter().map(|name| names::wire(name)).collect::<Vec<_>>().join(", ");
        let all = if all.is_empty() { "none".to_owned() } else { all };
        return error(format!("there is no tool {}; your tools: {all}", text::display(&call.tool, 64)));
    };
    let arguments = match (&call.arguments, call.too_long) {
        (Some(arguments), _) => Arguments::parse(arguments),
        (None, Some(bytes)) => Err(format!("the arguments have {bytes} bytes, which is too much: give less")),
        (None, None) => Arguments::parse(""),
    };
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(why) => return error(format!("the arguments cannot be used: {why}")),
    };
    let path = format!("{}/.call-{}", site.path, at + 1);
    if names::is_built_in(name) {
        return ask_people(run, site, &path, name, &arguments).await;
    }
    let Some(tool) = run.plan.tools.tools.get(name) else { return error(format!("there is no tool {name}")) };
    call_tool(run, site, at, path, tool, arguments).await
}

/// The limit of calls that this call would exceed: of its own agent, or of one that called it.
fn reached_limit(run: &Run<'_>, site: &TurnSite<'_, '_>, at: usize) -> Option<i32> {
    let ends = site.path.match_indices("/.turn-").map(|(end, _)| end);
    let state = run.state.borrow();
    ends.filter_map(|end| site.path.get(..end)).find_map(|step| {
        let Action::Agent(agent) = &run.plan.step_of(step)?.action else { return None };
        let limits = run.plan.agents.get(&agent.agent).and_then(|agent| agent.spec.limits);
        let limit = limits.and_then(|limits| limits.calls).unwrap_or(LIMITS.1);
        let turns = state.journal.under(step).filter(|r| {
            within_place(&r.path, step) && r.calls_tools() && r.done.is_some_and(|done| done + 1 < site.seen)
        });
        let made: usize =
            turns.filter_map(|r| r.facts.get(FACT_CALLS)?.parse().ok()).map(|n: usize| n.min(MOST_CALLS)).sum();
        (made + at + 1 > usize::try_from(limit).unwrap_or(usize::MAX)).then_some(limit)
    })
}

async fn call_tool<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    at: usize,
    path: String,
    tool: &'a PlannedTool,
    mut arguments: Arguments,
) -> Result<Answered, EarlyEnd> {
    let mut authors: Vec<String> = Vec::new();
    let mut changed = false;
    loop {
        if let Some(why) = problem(run, &path, tool, &arguments) {
            return Ok(Answered::Result(format!("Error: the arguments do not fit the tool {}: {why}", tool.name)));
        }
        if let Some(why) = refused_before(run, turn.seen, tool, &arguments) {
            return Ok(Answered::Result(why));
        }
        let site =
            ToolCallSite { tool, path: path.clone(), scope: scope(turn, tool, &path, &arguments), seen: turn.seen };
        let rendered = run.render(|| preview(run, &site)).await;
        let (target, sends) = match rendered {
            Ok(rendered) => rendered,
            Err(why) => {
                return Ok(Answered::Result(format!(
                    "Error: {} cannot be called with these arguments: {why}",
                    tool.name
                )));
            }
        };
        let action = json!({
            "tool": tool.name, "arguments": arguments.text(), "definition": tool.definition, "run": run.plan.uid,
            "path": path, "target": target, "sends": sends,
        });
        let action = Digest::of(&action).map_err(|why| EarlyEnd::Failed(why.to_string()))?;
        let mut gating = run.render(|| Gating::of(run, &site, action.clone())).await.map_err(EarlyEnd::Failed)?;
        let edited = match ask(run, turn, at, &site, &mut gating, (&arguments, &target, &action), &authors).await? {
            PeopleSaid::Approved => None,
            PeopleSaid::Answered(answered) => return Ok(answered),
            PeopleSaid::Edited(edited, by) => Some((edited, by)),
        };
        if let Some((edited, by)) = edited {
            (arguments, changed) = (edited, true);
            authors.extend(by);
            continue;
        }
        let Some(cleared) = gating.clear(&site, sends) else {
            return Err(EarlyEnd::Failed("internal error; report this as a bug: a call was not cleared".to_owned()));
        };
        let note = if changed {
            format!("A human changed the arguments. This ran: {}\n", arguments.text())
        } else {
            String::new()
        };
        if let Some(result) = perform(run, &site, cleared).await? {
            return Ok(Answered::Result(format!("{note}{}", cut(&result))));
        }
        // People said that the call is made once more: every gate that asks about it is asked again.
    }
}

/// What people did about a call.
enum PeopleSaid {
    Approved,
    Answered(Answered),
    Edited(Arguments, Vec<String>),
}

/// Asks every gate that asks about a call, until all of them have approved it.
async fn ask<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    at: usize,
    site: &ToolCallSite<'a>,
    gating: &mut Gating<'a>,
    (arguments, target, action): (&Arguments, &str, &Digest),
    authors: &[String],
) -> Result<PeopleSaid, EarlyEnd> {
    while let Some(group) = gating.next() {
        let Some(step) = merge::merged(group, authors) else {
            return Err(EarlyEnd::Failed(
                "internal error; report this as a bug: a gate in front of a tool is no gate".to_owned(),
            ));
        };
        let subject =
            shown::call(run, site, turn.agent, &turn.says, others(turn, at), arguments, target, action, group);
        let base = format!("{}/.gate", site.path);
        room_to_ask(run, &base).await;
        let decided = match decide(run, &site.scope, &step, &base, &|_| Ok(Some(subject.clone()))).await {
            // The request cannot be made from these arguments: people are not asked, so nothing runs.
            Err(EarlyEnd::Failed(why)) => {
                let why = format!("Error: people cannot be asked about this call: {}", text::display(&why, 1000));
                return Ok(PeopleSaid::Answered(Answered::Result(why)));
            }
            decided => decided?,
        };
        let outcome = decided.full_outcome(run).await?;
        let because =
            |none: &str| outcome.reason.clone().filter(|r| !r.trim().is_empty()).unwrap_or_else(|| none.to_owned());
        match decided.verdict {
            Verdict::Approve => {
                gating.approve(decided.record.input_digest.as_ref());
            }
            Verdict::Modify => {
                let edited = outcome.parameters.as_ref().and_then(|p| p.0.get("arguments")).and_then(Value::as_object);
                let edited = edited.ok_or_else(|| "the decision has no arguments".to_owned());
                match edited.and_then(|fields| Arguments::of(fields.clone())) {
                    Ok(edited) => return Ok(PeopleSaid::Edited(edited, outcome.decided_by)),
                    Err(why) => return Err(EarlyEnd::Failed(decided.describe(&format!(": {why}")))),
                }
            }
            Verdict::Reject if !stops(&step) => {
                return Ok(PeopleSaid::Answered(Answered::Rejected(denied(&outcome, &because))));
            }
            Verdict::Respond => {
                return Ok(PeopleSaid::Answered(Answered::Result(cut(&outcome.response.unwrap_or_default()))));
            }
            Verdict::Defer => {
                let guidance = outcome.guidance.unwrap_or_default();
                return Ok(PeopleSaid::Answered(Answered::Result(format!(
                    "Not now. Try another approach: {guidance}"
                ))));
            }
            Verdict::Skip => return Ok(PeopleSaid::Answered(Answered::Result("Skipped by a human".to_owned()))),
            // A timeout asks again; everything else ends the run.
            _ => {
                verdict_or_end(run, &decided, &[Verdict::Retry])?;
            }
        }
    }
    Ok(PeopleSaid::Approved)
}

fn denied(outcome: &signoff_api::Outcome, because: &dyn Fn(&str) -> String) -> String {
    match outcome.source {
        Source::Timeout => "Denied: no human decided before the deadline".to_owned(),
        _ => format!("Denied by a human: {}", because("no reason was given")),
    }
}

fn stops(step: &crate::plan::PlannedStep) -> bool {
    step.gate().is_none_or(|gate| gate.stops_on_reject)
}

/// Asks people a question of an agent. The answer approves nothing.
async fn ask_people<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    path: &str,
    tool: &str,
    arguments: &Arguments,
) -> Result<Answered, EarlyEnd> {
    let asked = match Asked::read(tool, arguments) {
        Ok(asked) => asked,
        Err(why) => return Ok(Answered::Result(format!("Error: the question cannot be asked: {why}"))),
    };
    let Some(step) = &run.plan.tools.question else {
        return Ok(Answered::Result("Error: no human can be asked in this run".to_owned()));
    };
    let agent = turn.agent.to_owned();
    let scope = StepScope::of("", RecordNamespace::Nothing, []).with_vars(move |_, _, _, scope| {
        scope.set("agent", json!(agent));
        Ok(())
    });
    let subject = shown::question(turn.agent, &turn.says, path, tool, arguments, &asked);
    let base = format!("{path}/.gate");
    loop {
        room_to_ask(run, &base).await;
        let decided: DecidedGate = decide(run, &scope, step, &base, &|_| Ok(Some(subject.clone()))).await?;
        let outcome = decided.full_outcome(run).await?;
        match decided.verdict {
            Verdict::Respond => {
                let answers = outcome.answers.unwrap_or_default();
                return Ok(Answered::Result(cut(&asked.answer(&answers))));
            }
            Verdict::Skip => return Ok(Answered::Result("Skipped by a human".to_owned())),
            Verdict::Reject if !stops(step) => {
                let because = |none: &str| outcome.reason.clone().unwrap_or_else(|| none.to_owned());
                return Ok(Answered::Result(denied(&outcome, &because)));
            }
            _ => {
                verdict_or_end(run, &decided, &[Verdict::Retry])?;
            }
        }
    }
}

/// Waits until fewer calls of the run than may are waiting for people.
async fn room_to_ask(run: &Run<'_>, base: &str) {
    let next = run.next_visit(base);
    poll_fn(|_| {
        let state = run.state.borrow();
        let waits = |r: &&StepRecord| r.kind == StepKind::Hitl && !r.phase.is_end() && r.facts.contains_key(FACT_TOOL);
        let is_begun = state.journal.get(&next, 1).is_some();
        if is_begun || state.journal.records().iter().filter(waits).count() < MOST_ASKED {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Why arguments do not fit the schema of their tool; found once for each call.
fn problem(run: &Run<'_>, path: &str, tool: &PlannedTool, arguments: &Arguments) -> Option<String> {
    run.plan.validated_answers.get_or_validate(path, &arguments.digest(), || {
        within(
            || Part::step(path, 1),
            || {
                crate::evaluation::record_foreign_text();
                let judged = Schema::compile(&tool.parameters)
                    .map(|schema| schema.check(&Value::Object(arguments.value().clone())));
                match judged {
                    Ok(Ok(())) => None,
                    Ok(Err((place, problem))) => {
                        Some(text::display(&format!("{place} {problem}"), 400).trim().to_owned())
                    }
                    Err(why) => Some(why),
                }
            },
        )
    })
}

/// The result of a call that people rejected before, or whose tool they rejected too often.
fn refused_before(run: &Run<'_>, seen: i64, tool: &PlannedTool, arguments: &Arguments) -> Option<String> {
    let state = run.state.borrow();
    let rejected = |r: &&StepRecord| {
        r.facts.get(FACT_TOOL) == Some(&tool.name)
            && r.done.is_some_and(|done| done < seen)
            && r.decision.as_ref().is_some_and(|outcome| outcome.verdict == Some(Verdict::Reject))
    };
    let digest = arguments.digest();
    let all: Vec<_> = state.journal.records().iter().filter(rejected).cloned().collect();
    let same = all.iter().find(|r| r.facts.get(FACT_ARGUMENTS).is_some_and(|known| *known == digest.to_string()));
    if let Some(same) = same {
        let reason = same.decision.as_ref().and_then(|outcome| outcome.reason.clone()).unwrap_or_default();
        return Some(format!("Already refused by a human: {}", text::display(&reason, 1000)));
    }
    (all.len() >= MOST_REJECTED).then(|| {
        format!("Refused: calls of {} were rejected {} times in this run; do not call it again", tool.name, all.len())
    })
}

/// What the templates of a call see.
fn scope<'a>(turn: &TurnSite<'_, 'a>, tool: &'a PlannedTool, path: &str, arguments: &Arguments) -> StepScope<'a> {
    let (args, agent) = (Value::Object(arguments.value().clone()), turn.agent.to_owned());
    let own = StepScope::of(&format!("{path}/"), RecordNamespace::Nothing, [&tool.step]);
    let limit = turn.invocation.step_scope.limit.clone();
    let scope = StepScope { limit, ..own };
    scope.with_vars(move |_, _, _, scope| {
        scope.set("args", args.clone());
        scope.set("tool", json!(tool.name));
        scope.set("effects", json!(tool.effects().name()));
        scope.set("agent", json!(agent));
        Ok(())
    })
}

fn others(turn: &TurnSite<'_, '_>, at: usize) -> Vec<SiblingCall> {
    turn.siblings.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, call)| call.clone()).collect()
}

/// What a call would send: in words, and the digest of all of it where that is known now.
fn preview<'a>(run: &Run<'a>, site: &ToolCallSite<'a>) -> Result<(String, Option<Digest>), RenderError> {
    let step = &site.tool.step;
    if let Action::Agent(agent) = &step.action {
        return Ok((format!("agent {}", agent.agent), None));
    }
    let base = base(site);
    let mut invocation = StepInvocation::new(&site.scope, step, &base);
    invocation.first_asked = Some(site.seen);
    let key = ActivityKey { path: base, attempt: 1, kind: steps::kind(step) };
    match steps::render_input(run, &invocation, site.seen, &key)? {
        Start::Call(call) => {
            let target = match &call.content {
                CallContent::Http(http) => format!("{} {}", http.method, http.url),
                CallContent::Pod(pod) => format!("image {}", pod.spec.image),
                CallContent::Agent(agent) => format!("agent {}", agent.agent),
            };
            Ok((text::display(&target, 1500), Some(input_digest(&call).map_err(RenderError::Invalid)?)))
        }
        _ => Ok(("a text of this run".to_owned(), None)),
    }
}

fn base(site: &ToolCallSite<'_>) -> String {
    format!("{}/{}", site.path, site.tool.step.name)
}

/// Runs a call. `None`: people said that it is made once more.
async fn perform<'a>(run: &Run<'a>, site: &ToolCallSite<'a>, cleared: Cleared) -> Result<Option<String>, EarlyEnd> {
    let base = base(site);
    let ended = Box::pin(steps::perform_call(run, &site.scope, &site.tool.step, &base, site.seen, cleared)).await?;
    match ended {
        Some(StepResult::Answered(text)) => Ok(Some(text)),
        Some(StepResult::Skipped) => Ok(Some("Skipped: the tool was left out".to_owned())),
        Some(StepResult::Failed(why)) => Ok(Some(format!("Error: {}", text::display(&why, 2000)))),
        None => Ok(None),
    }
}

/// The result as the model is told it.
fn cut(result: &str) -> String {
    let result = text::clean(result);
    let shown = text::first(&result, RESULT);
    if shown.len() == result.len() {
        return result;
    }
    format!("{shown}\n[cut: the first {} of {} bytes]", shown.len(), result.len())
}
