//! The calls of one turn: each is checked, asked about where gates say so, run, and answered; all of them at once.
//!
//! **Invariant:** every call id has exactly one result, in the order of the model. Nothing that the model says chooses a gate, an
//! approver, or a tool that its agent does not have.

use std::{collections::BTreeSet, rc::Rc};

use serde_json::{Value, json};
use signoff_api::{
    RecordPath,
    approval::SiblingCall,
    journal::{StepPhase, StepRecord},
    turn::{RequestedArguments, RequestedCall, TurnCalls},
};
use signoff_expr::text;

use super::{
    ask::{NOT_APPROVED_AGAIN, PeopleSaid, ask, ask_people},
    equal::{EqualCalls, not_again},
    gating::{Cleared, Gating},
    proposal::{propose, step_path},
    refusal::{
        ARGUMENTS_INVALID, LIMIT, NO_TOOL, REFUSED, check_of, next_seq, not_made_again, refuse, refuse_call, refused,
        refused_at_check, was_checked,
    },
    rejected::{escalate, refused_before},
    shown,
    site::{Answered, CallOfTurn, ToolCallSite, TurnSite, cut, cut_at},
};
use crate::{
    evaluation::{Part, within},
    plan::{Action, PlannedStep, PlannedTool},
    replay::{
        activity::error,
        run::Run,
        scope::{RecordNamespace, StepScope, editors},
        step_invocation::StepInvocation,
        tool_turn::ToolTurn,
    },
    schema::Schema,
    steps::{
        attempts::{Attempts, Performed},
        failure::StepFailure,
        flow::{EarlyEnd, StepResult},
        join::{Member, join_all},
        turn::{self, Turn},
    },
    tools::{MOST_CALLS, arguments::Arguments, names},
    transition::{NOT_ALLOWED, ToolCall},
};

/// The bytes of all results of a turn that the model is told.
const RESULTS: usize = 128 * 1024;
/// The bytes of all arguments of a turn that the model is told again; with more, long ones are left out.
const ARGUMENTS: usize = 64 * 1024;
/// The default `limits.turns` of an agent.
const TURNS: i32 = 20;
/// The default `limits.calls` of an agent.
const CALLS: i32 = 100;

/// A call that may run.
pub(in crate::steps) struct ClearedCall<'a> {
    pub(in crate::steps) step_scope: StepScope<'a>,
    pub(in crate::steps) step: &'a PlannedStep,
    /// The path of its step.
    pub(in crate::steps) path: String,
    pub(in crate::steps) attempts: Attempts,
    /// The number before which everything is known that its templates see.
    pub(in crate::steps) seen: i64,
    pub(in crate::steps) cleared: Cleared,
}

/// Performs the step of a tool for one call.
pub(in crate::steps) type PerformCall<'a> = for<'r> fn(&'r Run<'a>, ClearedCall<'a>) -> Member<'r, Performed>;

/// A call of a turn, with an id of its own and its arguments read once.
struct Call {
    id: String,
    /// As the model wrote it.
    tool: String,
    arguments: Result<Arguments, String>,
}

/// Makes the calls of a turn whose record is finished. `perform`: performs the step of the tool of one of them.
pub(crate) async fn perform_turn<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    record: &StepRecord,
    turn: &Turn,
    perform: PerformCall<'a>,
) -> Result<Result<Rc<ToolTurn>, StepFailure>, EarlyEnd> {
    let Action::Agent(planned) = &invocation.step.action else { return Ok(Err(failure("Internal", "it is no agent"))) };
    let agent = planned.agent.as_str();
    let limit = run.plan.agents.get(agent).and_then(|agent| agent.spec.limits).and_then(|limits| limits.turns);
    let limit = limit.unwrap_or(TURNS);
    if turn.number >= limit {
        let why = format!(
            "agent {agent} still calls tools in turn {}, and its limit is {limit} turns: raise limits.turns of the agent, or change its instructions",
            turn.number
        );
        return Ok(Err(failure("TurnLimit", &why)));
    }
    let text = run.render(|| run.text_of(record.response.as_ref(), record.response_ref.as_ref())).await;
    let text = text.map_err(EarlyEnd::Failed)?.unwrap_or_default();
    let Ok(reply) = serde_json::from_str::<TurnCalls>(&text) else {
        return Ok(Err(failure("Malformed", "the recorded calls of its turn cannot be read")));
    };
    let path = turn.path_of_calls(run, &invocation.base);
    let (says, truncated) = (text::clean(&reply.text), reply.truncated);
    let dropped = reply.dropped;
    let calls = read(reply.calls);
    let equal = equal_calls(&calls);
    let siblings = calls.iter().take(MOST_CALLS).enumerate();
    let siblings = siblings.map(|(at, call)| SiblingCall {
        path: RecordPath::new(&path).call_at(at).into(),
        tool: shown_tool(&call.tool),
    });
    let seen = record.done.unwrap_or(record.seq) + 1;
    let next = run.next_visit(&RecordPath::new(&invocation.base).turn(turn.number + 1));
    let is_answered = run.state.borrow().journal.get(&next, 1).is_some();
    let site = TurnSite {
        invocation,
        agent,
        seen,
        is_answered,
        limits: limits(run, &path, seen),
        says,
        truncated,
        siblings: siblings.collect(),
        path,
        told: Rc::new(turn::told(&invocation.turns)),
        count: calls.len() + dropped,
        equal: places(&equal, calls.len()),
    };
    let mut results = within_budget(answer_all(run, &site, perform, &calls, &equal).await?, RESULTS);
    if let Some(last) = results.last_mut().filter(|_| dropped > 0) {
        last.push_str(&format!("\n[{dropped} further calls of your message were not kept, and none of them was made]"));
    }
    let (calls, told) = as_told(calls, &site.path);
    Ok(Ok(Rc::new(ToolTurn { text: cut(&site.says), calls, told, results })))
}

/// The calls as the model is told them again, and the paths of those that it is told with their arguments. Where all
/// arguments together are too long for a conversation, long ones are replaced by their length.
fn as_told(calls: Vec<Call>, turn: &str) -> (Vec<ToolCall>, BTreeSet<String>) {
    let text = |call: &Call| call.arguments.as_ref().map_or_else(|_| "{}".to_owned(), |read| read.text().to_owned());
    let are_long = calls.iter().map(|call| text(call).len()).sum::<usize>() > ARGUMENTS;
    let mut whole = BTreeSet::new();
    let mut told = Vec::new();
    for (at, call) in calls.into_iter().enumerate() {
        let arguments = match text(&call) {
            long if are_long && long.len() > ARGUMENTS / TurnCalls::MAX_CALLS => {
                json!({"left_out": format!("{} bytes", long.len())}).to_string()
            }
            short => {
                whole.insert(RecordPath::new(turn).call_at(at).into());
                short
            }
        };
        told.push(ToolCall { tool: names::wire(&shown_tool(&call.tool)), id: call.id, arguments });
    }
    (told, whole)
}

/// The name of a tool as the model wrote it, for people; never empty.
fn shown_tool(name: &str) -> String {
    let shown = text::display(name, 64);
    if shown.trim().is_empty() { "unknown".to_owned() } else { shown }
}

/// Cuts the longest results where all of them together are too long for a conversation.
fn within_budget(results: Vec<String>, most: usize) -> Vec<String> {
    if results.iter().map(String::len).sum::<usize>() <= most {
        return results;
    }
    let each = (most / results.len().max(1)).max(256);
    results.into_iter().map(|result| cut_at(&result, each)).collect()
}

fn failure(class: &str, why: &str) -> StepFailure {
    StepFailure::of(error(class, why))
}

/// Reads the arguments of the calls. An id of an earlier turn is replaced when the conversation is told.
fn read(requested: Vec<RequestedCall>) -> Vec<Call> {
    let read = |RequestedCall { id, tool, arguments }| {
        let arguments = match arguments {
            RequestedArguments::Text(text) => Arguments::parse(&text),
            RequestedArguments::TooLong(bytes) => {
                Err(format!("the arguments have {bytes} bytes, which is too much: give less"))
            }
        };
        Call { id, tool, arguments }
    };
    requested.into_iter().map(read).collect()
}

/// Returns the positions of the calls in groups of equal ones: of the same tool with the same arguments.
fn equal_calls(calls: &[Call]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let is_equal = |group: &&mut Vec<usize>| {
            let first = group.first().and_then(|first| calls.get(*first));
            first.is_some_and(|first| {
                first.tool == call.tool && first.arguments.is_ok() && first.arguments == call.arguments
            })
        };
        match groups.iter_mut().find(is_equal) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Returns for each call its number among the equal ones, from 1, and their count.
fn places(groups: &[Vec<usize>], calls: usize) -> Vec<(usize, usize)> {
    let mut places = vec![(1, 1); calls];
    for group in groups {
        for (number, at) in group.iter().enumerate() {
            if let Some(place) = places.get_mut(*at) {
                *place = (number + 1, group.len());
            }
        }
    }
    places
}

/// Answers equal calls one after the other.
async fn answer_equal<'a>(
    run: &Run<'a>,
    site: &TurnSite<'_, 'a>,
    perform: PerformCall<'a>,
    calls: &[Call],
    group: &[usize],
) -> Result<Vec<(usize, String)>, EarlyEnd> {
    let mut results = Vec::new();
    let mut rest = group.iter();
    while let Some(at) = rest.next() {
        let Some(call) = calls.get(*at) else { continue };
        let of_all = match answer(run, site, perform, *at, call).await? {
            Answered::Result(result) => {
                results.push((*at, result));
                continue;
            }
            Answered::OfAllEqual(result) => result,
        };
        results.push((*at, of_all.clone()));
        // One record says so for all of them.
        if let Some(first) = rest.as_slice().first().filter(|first| **first < MOST_CALLS) {
            let more = match rest.as_slice().len() {
                1 => String::new(),
                count => format!(", and the same holds for {} more equal calls", count - 1),
            };
            let why = format!("it is equal to call {} of this turn, which was not made{more}", at + 1);
            refuse_call(run, site, *first, REFUSED, &why).await;
        }
        results.extend(rest.by_ref().map(|at| (*at, of_all.clone())));
    }
    Ok(results)
}

/// Answers all calls at once; equal ones one after the other.
async fn answer_all<'a>(
    run: &Run<'a>,
    site: &TurnSite<'_, 'a>,
    perform: PerformCall<'a>,
    calls: &[Call],
    groups: &[Vec<usize>],
) -> Result<Vec<String>, EarlyEnd> {
    let members = groups.iter().map(|group| {
        let one: Member<'_, Vec<(usize, String)>> = Box::pin(answer_equal(run, site, perform, calls, group));
        one
    });
    let mut results: Vec<_> = join_all(members.collect(), false).await?.into_iter().flatten().collect();
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Answers one call.
async fn answer<'a>(
    run: &Run<'a>,
    site: &TurnSite<'_, 'a>,
    perform: PerformCall<'a>,
    at: usize,
    call: &Call,
) -> Result<Answered, EarlyEnd> {
    let error = |why: String| Ok(Answered::Result(format!("Error: {why}")));
    if let Some((is_first, why)) = beyond_limits(site, at) {
        // One record says so for all calls of the turn that are beyond.
        if is_first {
            // It stands for all calls of the turn that are beyond. The model is told of each one.
            let told = match site.count.saturating_sub(at + 1) {
                0 => why.clone(),
                more => format!("{why} ({more} more calls after it are not made)"),
            };
            refuse_call(run, site, at, LIMIT, &told).await;
        }
        return error(why);
    }
    let own = run.plan.agents.get(site.agent).map_or(&[][..], |agent| agent.tools.as_slice());
    let Some(name) = own.iter().find(|name| names::wire(name) == call.tool) else {
        let all = own.iter().map(|name| names::wire(name)).collect::<Vec<_>>().join(", ");
        let all = if all.is_empty() { "none".to_owned() } else { all };
        let why = format!("there is no tool {}; your tools: {all}", text::display(&call.tool, 64));
        return error(refuse_call(run, site, at, NO_TOOL, &why).await);
    };
    let arguments = match &call.arguments {
        Ok(arguments) => arguments,
        Err(why) => {
            let why = format!("the arguments cannot be used: {why}");
            return error(refuse_call(run, site, at, ARGUMENTS_INVALID, &why).await);
        }
    };
    let path = RecordPath::new(&site.path).call_at(at).into_string();
    if names::is_built_in(name) {
        return ask_people(run, site, &path, name, arguments).await;
    }
    let Some(tool) = run.plan.tools.tools.get(name) else { return error(format!("there is no tool {name}")) };
    call_tool(run, site, perform, (at, path), tool, arguments.clone()).await
}

/// Returns why a call is beyond the limits of its turn or of an agent, and whether it is the first of its turn.
fn beyond_limits(site: &TurnSite<'_, '_>, at: usize) -> Option<(bool, String)> {
    let why = |at: usize| {
        if at >= MOST_CALLS {
            return Some(format!("at most {MOST_CALLS} calls are made in a turn: make this one in a later turn"));
        }
        if site.truncated {
            let why =
                "your message was cut at its largest length, so its calls were not made: call again with less text";
            return Some(why.to_owned());
        }
        let limit = reached_limit(site, at)?;
        Some(format!("the limit of {limit} calls is reached: answer with what you have"))
    };
    let is_first = at.checked_sub(1).is_none_or(|before| why(before).is_none());
    why(at).map(|why| (is_first, why))
}

/// Returns the limit of calls that this call would exceed: of its own agent, or of an agent that called it.
fn reached_limit(site: &TurnSite<'_, '_>, at: usize) -> Option<i32> {
    let is_reached = |(limit, made): &&(i32, usize)| made + at + 1 > usize::try_from(*limit).unwrap_or(usize::MAX);
    site.limits.iter().find(is_reached).map(|(limit, _)| *limit)
}

/// Returns the limit of calls of each step of an agent around a turn, the outermost first, and the calls that were made there before
/// `seen`.
fn limits(run: &Run<'_>, path: &str, seen: i64) -> Vec<(i32, usize)> {
    let limit_of = |step: &str| {
        let limit = |agent: &str| {
            let limits = run.plan.agents.get(agent).and_then(|agent| agent.spec.limits);
            limits.and_then(|limits| limits.calls).unwrap_or(CALLS)
        };
        let limit = agents_at(run, step).into_iter().map(limit).min()?;
        // The calls of the turn itself are counted by their place.
        Some((limit, run.call_history().calls_within(step, seen - 1)))
    };
    steps_around(path).filter_map(limit_of).collect()
}

/// The path of each step of an agent around a turn, the outermost first; the last is that of the turn itself.
fn steps_around(path: &str) -> impl Iterator<Item = &str> {
    RecordPath::new(path).agents_around().map(RecordPath::as_str)
}

/// The agent of a step, or the agents that revise at a place: all of them do it at one.
fn agents_at<'r>(run: &'r Run<'_>, step: &str) -> Vec<&'r str> {
    match run.plan.step_of(step).map(|step| &step.action) {
        Some(Action::Agent(agent)) => vec![&agent.agent],
        Some(_) => Vec::new(),
        None => run.plan.revising_agents(step).collect(),
    }
}

/// The agents around a call, the outermost first: the last makes the call.
fn agents_around(run: &Run<'_>, turn: &TurnSite<'_, '_>) -> Vec<String> {
    let mut outer: Vec<&str> = steps_around(&turn.path).collect();
    outer.pop();
    let outer = outer.into_iter().flat_map(|step| agents_at(run, step));
    outer.chain([turn.agent]).map(str::to_owned).collect()
}

/// Makes one call: it is checked, asked about and run, and all of that once more where people changed its arguments or said that it
/// is made again.
async fn call_tool<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    perform: PerformCall<'a>,
    (at, path): (usize, String),
    tool: &'a PlannedTool,
    mut arguments: Arguments,
) -> Result<Answered, EarlyEnd> {
    let result = |text: String| Ok(Answered::Result(text));
    let (mut editors, mut edited, mut note, mut is_escalated) = (Vec::new(), None, String::new(), false);
    let mut attempts = Attempts::first(&tool.step);
    loop {
        let (check, _) = run.visit(&check_of(&path));
        let was_checked = || turn.is_answered || was_checked(run, tool, &path, attempts.next);
        if let Some(why) = refused_at_check(run, turn, &check, was_checked).await {
            return result(refused(&why, attempts, edited.is_some()));
        }
        let is_authored = edited.is_none() && run.plan.is_scripted(turn.agent);
        if let Some(why) = problem(run, &check, tool, &arguments, is_authored) {
            let why = format!("the arguments do not fit the tool {}: {why}", tool.name);
            let why = refuse(run, turn, &check, ARGUMENTS_INVALID, &why).await;
            return result(refused(&why, attempts, edited.is_some()));
        }
        if let Some(why) = refused_before(run, turn.seen, &tool.name, &arguments) {
            refuse(run, turn, &check, REFUSED, &why).await;
            return result(why);
        }
        let scope = scope(run, turn, tool, &path, &arguments);
        let site = ToolCallSite { tool, path: path.clone(), scope, seen: turn.seen, attempts, edited: edited.clone() };
        let part = || Part::step(&check, 1);
        let mut proposal = match run.render(|| within(part, || propose(run, &site, &arguments))).await {
            Ok(proposal) => proposal,
            Err(why) => {
                let why = format!("{} cannot be called with these arguments: {why}", tool.name);
                let why = if was_checked() { why } else { refuse(run, turn, &check, "Template", &why).await };
                return result(refused(&why, attempts, edited.is_some()));
            }
        };
        // Nobody is asked about a call that would not be made. Where a gate or the step has a record, the step refuses it when it starts.
        if !was_checked()
            && let Some(why) = &proposal.forbidden
        {
            let why = refuse(run, turn, &check, NOT_ALLOWED, why).await;
            return result(refused(&why, attempts, edited.is_some()));
        }
        proposal.equal = EqualCalls::of(run, turn, tool, &path, &proposal);
        if !is_escalated {
            is_escalated = true;
            if let Some(answered) = escalate(run, turn, at, (&site, &check), &proposal).await? {
                return Ok(answered);
            }
        }
        let gating = run.render(|| within(part, || Gating::of(run, &site, &proposal))).await;
        let mut gating = gating.map_err(EarlyEnd::Failed)?;
        let is_asked = gating.asks() || tool.step.start.is_some() || !tool.step.policy_gates.is_empty();
        if let Some(of_all) = not_made_again(run, turn, &site, &check, &proposal, is_asked).await? {
            return Ok(Answered::OfAllEqual(of_all));
        }
        match ask(run, turn, at, &site, &proposal, &mut gating, &editors).await? {
            PeopleSaid::Approved => {}
            PeopleSaid::Answered(answered) => return Ok(answered.after(earlier_success(run, &path, tool, attempts))),
            PeopleSaid::Edited(new, outcome) => {
                note = format!("A human changed the arguments. This ran: {}\n", new.text());
                edited = Some(format!(
                    "this call, changed by {}; before: {}",
                    outcome.decided_by.join(", "),
                    arguments.text()
                ));
                arguments = new;
                editors.extend(outcome.actors().cloned());
                continue;
            }
        }
        let place = step_path(&path, tool);
        let earlier = proposal.equal.as_ref().and_then(|equal| {
            let began = run.state.borrow().journal.get(&place, attempts.next).map(|record| record.seq);
            equal.made_before(run, began.unwrap_or_else(|| next_seq(run)))
        });
        let is_repeated = earlier.is_some() || attempts.next > 1;
        let needs_people = is_repeated && !gating.asks();
        let Some(cleared) = gating.clear(&site, &proposal, &editors, is_repeated) else {
            return Err(EarlyEnd::Failed("internal error; report this as a bug: a call was not cleared".to_owned()));
        };
        let (call, given) = (CallOfTurn::of(turn, at, &site), Some(shown::given(&arguments)));
        let describe = move |run: &Run<'a>, seq: i64| {
            run.origins.note_edits(&editors::of_call(run, &call.path, i64::MAX)?);
            shown::at_step(run, &call, tool, &proposal, (needs_people, seq))
        };
        let step_scope = StepScope { call: Some(Rc::new(describe)), given, ..site.scope.clone() };
        let call = ClearedCall { step_scope, step: &tool.step, path: place, attempts, seen: site.seen, cleared };
        match perform(run, call).await? {
            Performed::Ended(StepResult::Answered(text)) => return result(format!("{note}{}", cut(&text))),
            Performed::Ended(StepResult::Skipped) => {
                let text = match &earlier {
                    Some(earlier) => not_again(run, earlier).await.map_err(EarlyEnd::Failed)?,
                    None if attempts.next > 1 => NOT_APPROVED_AGAIN.to_owned(),
                    None => "Skipped: the tool was left out".to_owned(),
                };
                return result(format!("{note}{text}"));
            }
            Performed::Ended(StepResult::Failed(why)) => {
                return result(format!("{note}Error: {}", text::display(&why, 2000)));
            }
            // Every gate that asks about the call is asked again.
            Performed::AskAgain(next) => attempts = next,
        }
    }
}

/// Returns what the model is told beside a decision about a further attempt: what people refuse then is not the attempt that succeeded.
fn earlier_success(run: &Run<'_>, path: &str, tool: &PlannedTool, attempts: Attempts) -> Option<String> {
    let state = run.state.borrow();
    let earlier = state.journal.get(&step_path(path, tool), attempts.next - 1)?;
    let succeeded = earlier.phase == StepPhase::Succeeded;
    succeeded.then(|| format!("[attempt {} at this call succeeded; this is about a further one]", attempts.next - 1))
}

/// Returns why arguments do not fit the schema of their tool. Each call is validated once. `is_authored`: the author of the Workflow
/// wrote them.
fn problem(run: &Run<'_>, path: &str, tool: &PlannedTool, arguments: &Arguments, is_authored: bool) -> Option<String> {
    run.plan.validated_answers.get_or_validate(path, &arguments.digest(), || {
        within(
            || Part::step(path, 1),
            || {
                if !is_authored {
                    crate::evaluation::record_foreign_text();
                }
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

/// Returns the scope of the templates of a call.
fn scope<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    tool: &'a PlannedTool,
    path: &str,
    arguments: &Arguments,
) -> StepScope<'a> {
    let args = Value::Object(arguments.value().clone());
    let (agent, agents) = (turn.agent.to_owned(), agents_around(run, turn));
    let own = StepScope::of(&format!("{path}/"), RecordNamespace::Nothing, [&tool.step]);
    let limit = turn.invocation.step_scope.limit.clone();
    let call = path.to_owned();
    let scope = StepScope { limit, ..own };
    scope.with_vars(move |run, wanted, _, scope| {
        if wanted.root("args") {
            run.origins.note_edits(&editors::of_call(run, &call, i64::MAX)?);
        }
        scope.set("args", args.clone());
        scope.set("tool", json!(tool.name));
        scope.set("effects", json!(tool.effects().name()));
        scope.set("agent", json!(agent));
        scope.set("agents", json!(agents));
        Ok(())
    })
}
