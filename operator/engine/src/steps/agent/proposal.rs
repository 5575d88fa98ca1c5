//! The proposal of a call: rendered for the request to people, and compared with the call when it is sent.

use serde_json::json;
use signoff_api::Digest;
use signoff_expr::text;

use super::site::{Proposal, ToolCallSite};
use crate::{
    plan::PlannedTool,
    policy::CallFacts,
    replay::{
        activity::{ActivityKey, Start, input_digest},
        run::{RenderError, Run},
        step_invocation::StepInvocation,
    },
    steps::{
        excerpt::Fields,
        kinds::{kind, render_input},
        sent,
    },
    tools::arguments::Arguments,
    transition::{Call, CallContent, McpRequest},
};

/// Renders a call for the request and for the comparison at the time of sending.
pub(super) fn propose<'a>(
    run: &Run<'a>,
    site: &ToolCallSite<'a>,
    arguments: &Arguments,
) -> Result<Proposal, RenderError> {
    let Preview { target, facts, shows, sends, input, forbidden } = render_preview(run, site)?;
    let action = json!({
        "tool": site.tool.name, "arguments": arguments.text(), "definition": site.tool.definition, "run": run.plan.uid,
        "path": site.path, "target": target, "sends": sends,
    });
    let digest = Digest::of(&action).map_err(|why| RenderError::Invalid(why.to_string()))?;
    Ok(Proposal { arguments: arguments.clone(), target, facts, shows, sends, forbidden, input, digest, equal: None })
}

/// A rendered call: its target, the facts that policies match, the input of its step, the digests of the sent data and
/// of the input, and the reason why policies forbid it.
struct Preview {
    target: String,
    facts: CallFacts,
    shows: Option<Fields>,
    sends: Option<Digest>,
    input: Option<Digest>,
    forbidden: Option<String>,
}

/// Renders the input of a call's step, without sending the call.
fn render_preview<'a>(run: &Run<'a>, site: &ToolCallSite<'a>) -> Result<Preview, RenderError> {
    let step = &site.tool.step;
    let path = step_path(&site.path, site.tool);
    let mut invocation = StepInvocation::new(&site.scope, step, &path);
    invocation.first_asked = Some(site.seen);
    let key = ActivityKey { path: path.clone(), attempt: 1, kind: kind(step) };
    let start = render_input(run, &invocation, site.seen, &key)?;
    let shows = sent::of_input(&start)?;
    match start {
        Start::Call(Call { content: CallContent::Agent(agent), .. }) => {
            // The input of an agent can change until it starts, so the calls of the agent are asked about.
            let target = format!("agent {}", agent.agent);
            Ok(Preview { target, facts: site.tool.facts(), shows, sends: None, input: None, forbidden: None })
        }
        Start::Call(call) => {
            let target = match &call.content {
                CallContent::Http(http) => format!("{} {}", http.sent_method(), http.url),
                CallContent::Pod(pod) => {
                    let mut others = pod.spec.images();
                    others.remove(&pod.spec.image);
                    let all: Vec<_> = [pod.spec.image.clone()].into_iter().chain(others).collect();
                    format!("image {}", all.join(", "))
                }
                CallContent::Mcp(mcp) => {
                    let at = mcp.url.clone().unwrap_or_else(|| mcp.command.join(" "));
                    match &mcp.request {
                        // A server can name a tool `GET`, so the line begins with the word `tool`.
                        McpRequest::Call(call) => format!("tool {} at {at}", call.tool),
                        McpRequest::Catalogue { .. } => format!("the tools at {at}"),
                    }
                }
                CallContent::Agent(agent) => format!("agent {}", agent.agent),
            };
            let sends = Some(input_digest(&call).map_err(RenderError::Invalid)?);
            Ok(Preview {
                target: text::display(&target, 1500),
                facts: CallFacts::of(&call.content, site.tool.effects),
                shows,
                input: sends.clone(),
                sends,
                forbidden: run.plan.refuses(&call),
            })
        }
        Start::Failed(error) => Err(RenderError::Invalid(error.message)),
        opening => {
            let forbidden = run.plan.refuses_text(&path);
            let input = match opening {
                Start::Immediate(text) => Some(Digest::of_bytes(text.as_bytes())),
                _ => None,
            };
            let target = "a text of this run".to_owned();
            Ok(Preview { target, facts: site.tool.facts(), shows, sends: None, input, forbidden })
        }
    }
}

/// Returns the path of the step of a tool for the call at `path`.
pub(super) fn step_path(path: &str, tool: &PlannedTool) -> String {
    format!("{path}/{}", tool.step.name)
}
