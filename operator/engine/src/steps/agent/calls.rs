//! The calls of one turn, all at once: check -> ask where gates require it -> perform -> answer.
//!
//! **Invariant:** every call id has exactly one result, in the order of the model. Nothing that the model says chooses
//! a gate, an approver, or a tool that its agent does not have.

use std::{collections::BTreeSet, rc::Rc, sync::Arc};

use serde_json::json;
use signoff_api::{
    FailureClass, RecordPath,
    approval::SiblingCall,
    journal::{StepError, StepRecord},
    turn::{OpaqueParts, RequestedArguments, RequestedCall, TurnCalls},
};
use signoff_expr::text;

use super::{
    ask::ask_people,
    limits::{BeyondLimits, find_exceeded_limit, limits},
    ongoing_call::{OngoingCall, PerformCall},
    refusal::{check_of, refuse_call},
    site::{Answered, TurnSite, cut, cut_at},
};
use crate::{
    plan::Action,
    replay::{activity::error, run::Run, step_invocation::StepInvocation, tool_turn::ToolTurn},
    steps::{
        catalogue::{self, Offered},
        failure::StepFailure,
        flow::EarlyEnd,
        join::{Member, join_all},
        turn::{self, Turn},
    },
    tools::{MOST_CALLS, arguments::Arguments, names},
    transition::ToolCall,
};

/// The maximum size of all results of a turn that the model receives, in bytes.
const RESULTS: usize = 128 * 1024;
/// The maximum size of all arguments of a turn that the model receives again, in bytes. Beyond it, long arguments are
/// left out.
const ARGUMENTS: usize = 64 * 1024;
/// The end of the text in the record of a call beyond a limit. The number of the calls after it comes before.
const MORE_CALLS: &str = " more calls after it are not made)";
/// The default `limits.turns` of an agent.
const TURNS: i32 = 20;

/// A call of a turn with its own id and parsed arguments.
struct ParsedCall {
    id: String,
    /// The name as the model wrote it.
    tool: String,
    arguments: Result<Arguments, String>,
}

/// Performs the calls of a turn whose record is finished. `perform` performs the step of the tool of one call.
pub(crate) async fn perform_turn<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    record: &StepRecord,
    turn: &Turn,
    perform: PerformCall<'a>,
) -> Result<Result<Rc<ToolTurn>, StepFailure>, EarlyEnd> {
    let Action::Agent(planned) = &invocation.step.action else {
        return Ok(Err(failure(FailureClass::Internal, "it is no agent")));
    };
    let agent = planned.agent.as_str();
    let limit = run.plan.agents.get(agent).and_then(|agent| agent.spec.limits).and_then(|limits| limits.turns);
    let limit = limit.unwrap_or(TURNS);
    if turn.number >= limit {
        let why = format!(
            "agent {agent} still calls tools in turn {}, and its limit is {limit} turns: raise limits.turns of the agent, or change its instructions",
            turn.number
        );
        return Ok(Err(failure(FailureClass::TurnLimit, &why)));
    }
    let text = run.render(|| run.text_of(record.response.as_ref(), record.response_ref.as_ref())).await;
    let text = text.map_err(EarlyEnd::Failed)?.unwrap_or_default();
    let Ok(reply) = serde_json::from_str::<TurnCalls>(&text) else {
        return Ok(Err(failure(FailureClass::Malformed, "the recorded calls of its turn cannot be read")));
    };
    let opaque = run.render(|| run.text_of(None, record.opaque_ref.as_ref())).await.map_err(EarlyEnd::Failed)?;
    let Ok(opaque) = opaque.map(|text| serde_json::from_str::<OpaqueParts>(&text)).transpose() else {
        return Ok(Err(failure(FailureClass::Malformed, "what its provider wants back cannot be read")));
    };
    let tools = match run.plan.agents.get(agent) {
        Some(planned) => {
            let before = catalogue::catalogue_seq(invocation, record.seq);
            run.render(|| catalogue::offered_tools(run, planned, before)).await.map_err(EarlyEnd::Failed)?
        }
        None => Ok(Vec::new()),
    };
    let tools = match tools {
        Ok(tools) => tools,
        Err(why) => return Ok(Err(StepFailure::of(why))),
    };
    let path = turn.path_of_calls(run, &invocation.base);
    let (says, truncated) = (text::clean(&reply.text), reply.truncated);
    let dropped = reply.dropped;
    let calls = parse_calls(reply.calls);
    let equal = group_equal_calls(&calls);
    let siblings = calls.iter().take(MOST_CALLS).enumerate();
    let siblings = siblings.map(|(at, call)| SiblingCall {
        path: RecordPath::new(&path).call_at(at).into(),
        tool: known_tool(&tools, &call.tool).map_or_else(|| shown_tool(&call.tool), |name| shown_tool(&name)),
    });
    let siblings = siblings.collect();
    let ended = record.done.unwrap_or(record.seq);
    let next = run.next_visit(&RecordPath::new(&invocation.base).turn(turn.number + 1));
    let is_answered = run.state.borrow().journal.get(&next, 1).is_some();
    let site = TurnSite {
        invocation,
        agent,
        tools,
        seen: ended.next(),
        is_answered,
        limits: limits(run, &path, ended),
        says,
        truncated,
        siblings,
        path,
        told: Rc::new(turn::known_calls(&invocation.turns)),
        count: calls.len() + dropped,
        equal: number_in_groups(&equal, calls.len()),
    };
    let mut results = cut_to_budget(answer_all(run, &site, perform, &calls, &equal).await?, RESULTS);
    if let Some(last) = results.last_mut().filter(|_| dropped > 0) {
        last.push_str(&format!("\n[{dropped} further calls of your message were not kept, and none of them was made]"));
    }
    let (calls, told) = calls_for_model(calls, &site.path);
    Ok(Ok(Rc::new(ToolTurn { text: cut(&site.says), calls, told, results, opaque: opaque.map(Arc::new) })))
}

/// Returns the calls as the model receives them again, and the paths of the calls with complete arguments. If all
/// arguments together are too long for a conversation, long arguments are replaced by their length.
fn calls_for_model(calls: Vec<ParsedCall>, turn: &str) -> (Vec<ToolCall>, BTreeSet<String>) {
    let text =
        |call: &ParsedCall| call.arguments.as_ref().map_or_else(|_| "{}".to_owned(), |read| read.text().to_owned());
    let are_long = calls.iter().map(|call| text(call).len()).sum::<usize>() > ARGUMENTS;
    let mut whole = BTreeSet::new();
    let mut shortened = Vec::new();
    for (position, call) in calls.into_iter().enumerate() {
        let arguments = match text(&call) {
            long if are_long && long.len() > ARGUMENTS / TurnCalls::MAX_CALLS => {
                json!({"left_out": format!("{} bytes", long.len())}).to_string()
            }
            short => {
                whole.insert(RecordPath::new(turn).call_at(position).into());
                short
            }
        };
        shortened.push(ToolCall { tool: names::wire(&shown_tool(&call.tool)), id: call.id, arguments });
    }
    (shortened, whole)
}

/// Returns the name of a tool of a server that the model wrote as `server__tool`.
fn known_tool(tools: &[Offered<'_>], written: &str) -> Option<String> {
    let mut known = tools.iter().filter(|_| written.contains("__")).map(|offered| offered.name());
    known.find(|name| names::wire(name) == written).map(str::to_owned)
}

/// Returns the name of a tool as the model wrote it, for people; never empty.
fn shown_tool(name: &str) -> String {
    let shown = text::display(name, 64);
    if shown.trim().is_empty() { "unknown".to_owned() } else { shown }
}

/// Cuts the longest results if all of them together are too long for a conversation.
fn cut_to_budget(results: Vec<String>, most: usize) -> Vec<String> {
    if results.iter().map(String::len).sum::<usize>() <= most {
        return results;
    }
    let each = (most / results.len().max(1)).max(256);
    results.into_iter().map(|result| cut_at(&result, each)).collect()
}

fn failure(class: FailureClass, why: &str) -> StepFailure {
    StepFailure::of(error(class, why))
}

/// Parses the arguments of the calls. Duplicate ids of earlier turns are replaced when the conversation is built.
fn parse_calls(requested: Vec<RequestedCall>) -> Vec<ParsedCall> {
    let read = |RequestedCall { id, tool, arguments }| {
        let arguments = match arguments {
            RequestedArguments::Text(text) => Arguments::parse(&text),
            RequestedArguments::TooLong(bytes) => {
                Err(format!("the arguments have {bytes} bytes, which is too much: give less"))
            }
        };
        ParsedCall { id, tool, arguments }
    };
    requested.into_iter().map(read).collect()
}

/// Returns the positions of the calls, grouped by tool and arguments. Calls with invalid arguments are never equal.
fn group_equal_calls(calls: &[ParsedCall]) -> Vec<Vec<usize>> {
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

/// Returns for each call its number in its group of equal calls, from 1, and the size of the group.
fn number_in_groups(groups: &[Vec<usize>], calls: usize) -> Vec<(usize, usize)> {
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

/// Answers the equal calls of a group one after the other. A result for all equal calls ends the group: the other calls
/// are not made.
async fn answer_equal<'a>(
    run: &Run<'a>,
    site: &TurnSite<'_, 'a>,
    perform: PerformCall<'a>,
    calls: &[ParsedCall],
    group: &[usize],
) -> Result<Vec<(usize, String)>, EarlyEnd> {
    let mut results = Vec::new();
    let mut rest = group.iter();
    while let Some(at) = rest.next() {
        let Some(call) = calls.get(*at) else { continue };
        let of_all = match answer_call(run, site, perform, *at, call).await? {
            Answered::Result(result) => {
                results.push((*at, result));
                continue;
            }
            Answered::OfAllEqual(result) => result,
        };
        results.push((*at, of_all.clone()));
        // One record covers all calls that are not made.
        if let Some(first) = rest.as_slice().first().filter(|first| **first < MOST_CALLS) {
            let more = match rest.as_slice().len() {
                1 => String::new(),
                count => format!(", and the same holds for {} more equal calls", count - 1),
            };
            let why = format!("it is equal to call {} of this turn, which was not made{more}", at + 1);
            refuse_call(run, site, *first, FailureClass::Refused, &why).await;
        }
        results.extend(rest.by_ref().map(|at| (*at, of_all.clone())));
    }
    Ok(results)
}

/// Answers all calls at once, but equal calls one after the other. Returns the results in the order of the calls.
async fn answer_all<'a>(
    run: &Run<'a>,
    site: &TurnSite<'_, 'a>,
    perform: PerformCall<'a>,
    calls: &[ParsedCall],
    groups: &[Vec<usize>],
) -> Result<Vec<String>, EarlyEnd> {
    let members = groups.iter().map(|group| {
        let member: Member<'_, Vec<(usize, String)>> = Box::pin(answer_equal(run, site, perform, calls, group));
        member
    });
    let mut results: Vec<_> = join_all(members.collect(), false).await?.into_iter().flatten().collect();
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Returns the reason why a call is beyond a limit. If the first such call was refused for the same reason, the wording
/// in its record is kept, so that a new version of the operator does not change the conversation.
fn recorded_limit(run: &Run<'_>, site: &TurnSite<'_, '_>, beyond: BeyondLimits) -> String {
    let check = check_of(&RecordPath::new(&site.path).call_at(beyond.first));
    let recorded = run.state.borrow().journal.get(&check, 1).and_then(|record| record.error.clone());
    match recorded.filter(|error| error.is(FailureClass::Limit) && beyond.why == beyond.why_first) {
        Some(StepError { message, .. }) => {
            let why = message.strip_suffix(MORE_CALLS).and_then(|rest| rest.rsplit_once(" ("));
            why.map_or_else(|| message.clone(), |(why, _)| why.to_owned())
        }
        None => beyond.why,
    }
}

/// Returns the result of the call at a position of a turn: of its tool or question, or the reason why it is refused.
async fn answer_call<'a>(
    run: &Run<'a>,
    site: &TurnSite<'_, 'a>,
    perform: PerformCall<'a>,
    at: usize,
    call: &ParsedCall,
) -> Result<Answered, EarlyEnd> {
    let error = |why: String| Ok(Answered::Result(format!("Error: {why}")));
    if let Some(beyond) = find_exceeded_limit(site, at) {
        // One record stands for all calls of the turn beyond the limit. The model gets a result for each.
        if beyond.first == at {
            let recorded = match site.count.saturating_sub(at + 1) {
                0 => beyond.why.clone(),
                more => format!("{} ({more}{MORE_CALLS}", beyond.why),
            };
            refuse_call(run, site, at, FailureClass::Limit, &recorded).await;
        }
        return error(recorded_limit(run, site, beyond));
    }
    let Some(offered) = site.tools.iter().find(|offered| names::wire(offered.name()) == call.tool) else {
        let names = site.tools.iter().map(|offered| names::wire(offered.name())).collect::<Vec<_>>().join(", ");
        let names = if names.is_empty() { "none".to_owned() } else { names };
        let why = format!("there is no tool {}; your tools: {names}", text::display(&call.tool, 64));
        return error(refuse_call(run, site, at, FailureClass::NoTool, &why).await);
    };
    let arguments = match &call.arguments {
        Ok(arguments) => arguments,
        Err(why) => {
            let why = format!("the arguments cannot be used: {why}");
            return error(refuse_call(run, site, at, FailureClass::Arguments, &why).await);
        }
    };
    let path = RecordPath::new(&site.path).call_at(at).into_string();
    match *offered {
        Offered::BuiltIn(name) => ask_people(run, site, &path, name, arguments).await,
        Offered::Tool(tool) => OngoingCall::new(run, site, (at, path), tool, arguments.clone()).make(perform).await,
    }
}
