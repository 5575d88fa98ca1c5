//! The catalogues of servers in a run: the record of each, the catalogue that applies at a number of the journal, and
//! the tools that an agent may call with it.
//!
//! **Invariant:** a server is asked for its tools only if no record has the tools. A replay sends no request.

use signoff_api::{
    Digest, FailureClass, Seq,
    catalogue::Catalogue,
    journal::{FACT_CHANGED, StepError, StepKind, StepPhase, StepRecord},
    record_path::RecordPathBuf,
};

use crate::{
    plan::{
        Action, PlannedAgent, PlannedArguments, PlannedServer, PlannedStep, PlannedTool, ServerTools, ToolStanding,
    },
    replay::{
        activity::{ActivityKey, Start, error},
        run::{RenderError, Run},
        scope::StepScope,
        step_invocation::StepInvocation,
    },
    tools::names,
    transition::{Call, CallContent, McpCall, McpRequest, bytes_of},
};

/// The largest number of catalogues of a server in a run.
const MOST_VISITS: i32 = 4;
/// The time that a server has to list its tools.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
/// The maximum size of all definitions of tools of servers that a model receives in one turn, in bytes.
const MAX_DEFINITIONS: usize = 128 * 1024;

/// A tool that an agent may call in a turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Offered<'a> {
    /// A tool of the Workflow, or of a server.
    Tool(&'a PlannedTool),
    /// The built-in tool of this name.
    BuiltIn(&'a str),
}

impl<'a> Offered<'a> {
    pub(super) fn name(self) -> &'a str {
        match self {
            Self::Tool(tool) => &tool.name,
            Self::BuiltIn(name) => name,
        }
    }
}

/// Returns the number of the journal as of which an attempt that begins at `seq` reads the catalogue. The call of a
/// tool reads the catalogue as of its proposal, and another attempt as of the request at its gate, so that what runs
/// is what people saw.
pub(super) fn catalogue_seq(invocation: &StepInvocation<'_>, seq: Seq) -> Seq {
    let is_call = invocation.step.is_tool() && !invocation.step.is_agent();
    let asked = if is_call { invocation.first_asked } else { invocation.last_asked };
    asked.unwrap_or(seq)
}

/// Returns the tools of a server in its last catalogue before `seq`, or `None` without a catalogue.
pub(super) fn tools_before<'a>(run: &Run<'a>, server: &str, seq: Seq) -> Result<Option<&'a ServerTools>, RenderError> {
    let Some(planned) = run.plan.tools.servers.get(server) else { return Ok(None) };
    let is_known =
        |record: &StepRecord| record.phase == StepPhase::Succeeded && record.done.is_some_and(|done| done < seq);
    let mut visits = (1..=MOST_VISITS).rev().filter_map(|visit| last_attempt(run, server, visit));
    let Some(record) = visits.find(is_known) else { return Ok(None) };
    tools_of(run, planned, &record).map(Some)
}

/// Returns the tools of a recorded catalogue, planned once and cached in the plan.
fn tools_of<'a>(run: &Run<'a>, server: &'a PlannedServer, record: &StepRecord) -> Result<&'a ServerTools, RenderError> {
    let digest = match &record.response_ref {
        Some(reference) => reference.digest.clone(),
        None => {
            let inline = record.response.as_ref().map(|response| response.0.to_string()).unwrap_or_default();
            Digest::of_bytes(inline.as_bytes())
        }
    };
    if let Some(tools) = server.cached_tools(&digest) {
        run.record_value_read();
        return Ok(tools);
    }
    let text = run.text_of(record.response.as_ref(), record.response_ref.as_ref())?.unwrap_or_default();
    let unreadable = |why: String| {
        RenderError::Invalid(format!("the recorded tools of the server {} cannot be read: {why}", server.spec.name))
    };
    let catalogue: Catalogue = serde_json::from_str(&text).map_err(|why| unreadable(why.to_string()))?;
    server.plan_and_cache(&digest, &catalogue).ok_or_else(|| unreadable("there are too many of them".to_owned()))
}

/// Returns the last attempt at a catalogue.
fn last_attempt(run: &Run<'_>, server: &str, visit: i32) -> Option<StepRecord> {
    let path = RecordPathBuf::of_catalogue(server, visit);
    let state = run.state.borrow();
    let mut attempts = (1..).map_while(|attempt| state.journal.get(&path, attempt));
    let first = attempts.next()?;
    Some(attempts.last().unwrap_or(first).clone())
}

/// Returns the servers whose catalogues an attempt at a step needs. The step of a tool needs none, because it runs
/// after a turn whose attempt needed the catalogues.
pub(super) fn servers_of<'a>(run: &Run<'a>, step: &'a PlannedStep) -> &'a [String] {
    match &step.action {
        Action::Agent(agent) => run.plan.agents.get(&agent.agent).map_or(&[][..], |agent| agent.servers.as_slice()),
        Action::Mcp(mcp) if !step.is_tool() => std::slice::from_ref(&mcp.server),
        Action::Mcp(_) | Action::Pod(_) | Action::Http(_) | Action::Set(_) | Action::Gate(_) => &[],
    }
}

/// Waits until the catalogues for an attempt are read, and requests missing and outdated ones. Returns the error with
/// which the attempt fails if one cannot be read. `next` is the attempt: once it has begun, its catalogues do not
/// change.
pub(super) async fn read_catalogues<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    next: &ActivityKey,
) -> Option<StepError> {
    for server in servers_of(run, invocation.step) {
        if let Err(why) = read_catalogue(run, &invocation.step_scope, server, next).await {
            return Some(why);
        }
    }
    None
}

/// Waits until the catalogue of a server is read. Requests a missing or outdated one, and repeats a failed request once
/// an attempt at a step has failed with its error.
async fn read_catalogue<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    server: &str,
    next: &ActivityKey,
) -> Result<(), StepError> {
    let Some(planned) = run.plan.tools.servers.get(server) else { return Ok(()) };
    loop {
        if run.state.borrow().journal.get(&next.path, next.attempt).is_some() {
            return Ok(());
        }
        let visit = (1..=MOST_VISITS).rev().find(|visit| last_attempt(run, server, *visit).is_some());
        let last = visit.and_then(|visit| last_attempt(run, server, visit));
        let (visit, attempt) = match (visit, last) {
            // The request is in flight, or was canceled with the run.
            (Some(visit), Some(last)) if !last.phase.is_end() || was_canceled(&last) => (visit, last.attempt),
            (Some(visit), Some(last)) if last.phase == StepPhase::Succeeded => {
                let tools = run.render(|| tools_of(run, planned, &last)).await;
                let tools = tools.map_err(|why| error(FailureClass::Malformed, &why))?;
                match has_changed(run, server, &last, tools) {
                    false => return Ok(()),
                    true if visit < MOST_VISITS => (visit + 1, 1),
                    true => {
                        let why = format!(
                            "the tools of the server {server} changed {visit} times in this run: pin their definitions, \
                             or run it again when the server has settled"
                        );
                        return Err(error(FailureClass::ToolChanged, &why));
                    }
                }
            }
            (Some(visit), Some(last)) => {
                let why = listing_error(server, &last);
                if !has_failed_attempt(run, &last, &why) {
                    return Err(why);
                }
                (visit, last.attempt + 1)
            }
            _ => (1, 1),
        };
        let path = RecordPathBuf::of_catalogue(server, visit).into_string();
        let key = ActivityKey { path, attempt, kind: StepKind::Mcp };
        run.activity(step_scope, key.clone(), |_| Ok(Start::Call(catalogue_request(planned, &key)))).await;
    }
}

fn was_canceled(record: &StepRecord) -> bool {
    record.error.as_ref().is_some_and(|error| error.is(FailureClass::Cancelled))
}

/// Returns the request for the tools of a server.
fn catalogue_request(server: &PlannedServer, key: &ActivityKey) -> Call {
    let content = request_to_server(server, McpRequest::Catalogue { only: server.spec.only.clone() });
    Call { path: key.path.clone(), attempt: key.attempt, idempotent: true, timeout: TIMEOUT, content }
}

/// Returns a request to a server with its URL and its key.
pub(super) fn request_to_server(server: &PlannedServer, request: McpRequest) -> CallContent {
    CallContent::Mcp(Box::new(McpCall {
        server: server.spec.name.clone(),
        url: server.spec.url.clone(),
        command: server.spec.command.clone(),
        key: server.key.clone(),
        header: server.spec.header.clone(),
        request,
    }))
}

/// Returns the error of an attempt whose catalogue could not be read.
fn listing_error(server: &str, failed: &StepRecord) -> StepError {
    let why = failed.error.clone().unwrap_or_else(|| error(FailureClass::Failed, "the request failed"));
    let message = format!("the tools of the server {server} cannot be listed: {}", why.message);
    StepError { message: signoff_expr::text::display(&message, 1000), ..why }
}

/// Whether an attempt already failed with this error, so that another attempt at the catalogue is due.
fn has_failed_attempt(run: &Run<'_>, failed: &StepRecord, why: &StepError) -> bool {
    let state = run.state.borrow();
    let mut later = state.journal.records().iter().filter(|record| Some(record.seq) > failed.done);
    later.any(|record| record.input_digest.is_none() && record.error.as_ref() == Some(why))
}

/// Whether a later call of a tool found a definition that differs from the definition in the catalogue.
fn has_changed(run: &Run<'_>, server: &str, catalogue: &StepRecord, tools: &ServerTools) -> bool {
    let state = run.state.borrow();
    let later = state.journal.records().iter().filter(|record| record.done > Some(catalogue.seq));
    let mut changes =
        later.filter(|record| record.kind == StepKind::Mcp).filter_map(|record| record.facts.get(FACT_CHANGED));
    // The fact is `<server>.<tool> <definition>`, without the definition if the server no longer has the tool.
    changes.any(|change| {
        let (tool, now) = change.split_once(' ').map_or((change.as_str(), None), |(tool, now)| (tool, Some(now)));
        let is_of_server = tool.split_once('.').is_some_and(|(name, _)| name == server);
        is_of_server && tools.get(tool).map(|tool| tool.definition.as_str()) != now
    })
}

/// Returns the tools that an agent may call in a turn, with the tools of servers from their last catalogues before
/// `seq`, or the error with which the turn fails.
pub(super) fn offered_tools<'a>(
    run: &Run<'a>,
    agent: &'a PlannedAgent,
    seq: Seq,
) -> Result<Result<Vec<Offered<'a>>, StepError>, RenderError> {
    let (built_in, planned): (Vec<_>, Vec<_>) = agent.tools.iter().partition(|name| names::is_built_in(name));
    let own = planned.into_iter().filter_map(|name| run.plan.tools.tools.get(name).map(Offered::Tool));
    let mut offered: Vec<_> = own.collect();
    for server in &agent.servers {
        // When the call of an agent is proposed, the catalogues of its servers can be missing.
        let Some(tools) = tools_before(run, server, seq)? else { continue };
        if let Some(missing) = missing_tool(run, agent, server, tools) {
            let why = format!(
                "the server {server} has no tool {missing} now, and a list of this Workflow names it: correct the list, or the server"
            );
            return Ok(Err(error(FailureClass::ToolMissing, &why)));
        }
        let listed = crate::tools::listed_of_server(&agent.spec, server);
        offered.extend(tools.values().filter(|tool| listed(&tool.name)).map(Offered::Tool));
    }
    offered.extend(built_in.into_iter().map(|name| Offered::BuiltIn(name.as_str())));
    Ok(Ok(offered))
}

/// Returns an error if the definitions of the tools of servers are too long for a model.
pub(super) fn size_error(tools: &[Offered<'_>]) -> Option<StepError> {
    let bytes = |offered: &Offered<'_>| match offered {
        Offered::Tool(tool) if matches!(tool.step.action, Action::Mcp(_)) => {
            let parameters = tool.parameters.0.iter().map(|(name, value)| name.len() + bytes_of(value));
            tool.name.len() + tool.description.len() + parameters.sum::<usize>()
        }
        Offered::Tool(_) | Offered::BuiltIn(_) => 0,
    };
    let total: usize = tools.iter().map(bytes).sum();
    let why = format!(
        "the tools of its servers have {total} bytes of definitions, and a model is told at most {MAX_DEFINITIONS}: list fewer tools, or \
         limit them by `only` of the servers"
    );
    (total > MAX_DEFINITIONS).then(|| error(FailureClass::TooLarge, &why))
}

/// Returns a tool of a server that the list of an agent or of a gate names and that the catalogue lacks.
fn missing_tool<'a>(run: &Run<'a>, agent: &'a PlannedAgent, server: &str, tools: &ServerTools) -> Option<&'a str> {
    let of_gates = run.plan.tools.gates.iter().flat_map(|gate| gate.names());
    let of_agent = agent.spec.tools.iter().map(String::as_str).filter(|name| !name.contains('*'));
    let is_of_server = |name: &&str| name.split_once('.').is_some_and(|(of, _)| of == server);
    of_agent.chain(of_gates).filter(is_of_server).find(|name| !tools.contains_key(*name))
}

/// Returns the definition of a tool in the last catalogue of a server before `seq`, or `None` if the catalogue lacks
/// it.
pub(super) fn current_definition(
    run: &Run<'_>,
    server: &str,
    tool: &str,
    seq: Seq,
) -> Result<Option<ToolStanding>, RenderError> {
    let name = format!("{server}.{tool}");
    let tool = tools_before(run, server, seq)?.and_then(|tools| tools.get(&name));
    let Some(Action::Mcp(mcp)) = tool.map(|tool| &tool.step.action) else { return Ok(None) };
    Ok(match &mcp.arguments {
        PlannedArguments::OfAgent(standing) => Some(standing.clone()),
        PlannedArguments::OfAuthor(_) => None,
    })
}
