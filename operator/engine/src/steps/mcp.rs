//! An `mcp` step: renders one call of a tool of a server. The executor sends it.

use serde_json::{Map, Value};
use signoff_api::{FailureClass, Seq};

use super::catalogue;
use crate::{
    plan::{PlannedArguments, PlannedMcp},
    replay::{
        activity::{ActivityKey, Start, error},
        run::{RenderError, Run},
        step_invocation::StepInvocation,
    },
    transition::{Call, McpRequest, McpToolCall},
};

/// Renders the call from the values as of `seq`.
pub(super) fn render_call<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    mcp: &PlannedMcp,
    seq: Seq,
    key: &ActivityKey,
) -> Result<Start, RenderError> {
    let PlannedMcp { server, tool, arguments, requires, .. } = mcp;
    let failed = |class, why: String| Ok(Start::Failed(error(class, &why)));
    let Some(planned) = run.plan.tools.servers.get(server) else {
        return Err(RenderError::Invalid(format!("there is no server {server}")));
    };
    let scope = invocation.scope(run, seq)?;
    let (standing, arguments) = match arguments {
        PlannedArguments::OfAgent(standing) => {
            let arguments = invocation.step_scope.arguments.as_deref().cloned();
            (Some(standing.clone()), arguments.unwrap_or_default())
        }
        PlannedArguments::OfAuthor(template) => {
            let before = catalogue::catalogue_seq(invocation, seq);
            (catalogue::current_definition(run, server, tool, before)?, object(template.render(&scope)?))
        }
    };
    let Some(standing) = standing else {
        return failed(
            FailureClass::ToolMissing,
            format!("the server {server} has no tool {tool}: correct the step, or the server"),
        );
    };
    if requires.as_ref().is_some_and(|required| *required != standing.definition) {
        let why = format!(
            "{server}.{tool} has the definition {}, and policies leave their gates out for another one only: have it reviewed and pinned",
            standing.definition
        );
        return failed(FailureClass::ToolChanged, why);
    }
    let step = invocation.step;
    let was_asked = invocation.permission.as_ref().is_some_and(|permission| permission.was_asked());
    let is_asked = was_asked || step.start.is_some() || !step.policy_gates.is_empty();
    // A call with a gate of a policy counts as changing, whatever its author declares.
    let counts_as_changing = requires.is_some() || !step.policy_gates.is_empty() || step.has_policy_call_gate;
    let request = McpRequest::Call(McpToolCall {
        tool: tool.clone(),
        arguments,
        definition: standing.definition,
        is_compared: is_asked || counts_as_changing || !standing.reads,
        needs_people: !standing.reads && !standing.is_pinned,
        reads: standing.reads && !counts_as_changing,
        described: standing.described,
        depth: run.plan.depth,
    });
    Ok(Start::Call(Call {
        path: key.path.clone(),
        attempt: key.attempt,
        idempotent: step.is_idempotent(),
        timeout: step.timeout,
        content: catalogue::request_to_server(planned, request),
    }))
}

/// Returns the fields of rendered arguments. Arguments that are not an object have no fields.
fn object(arguments: Value) -> Map<String, Value> {
    match arguments {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
