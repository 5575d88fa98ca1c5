//! The steps that call a tool of a server: checked, with each text of their arguments parsed.

use std::sync::Arc;

use serde_json::Value;
use signoff_api::{Digest, catalogue::fits, policy::AddedStep, server::Server, step::McpStep};

use super::{
    Action, PlannedArguments, PlannedMcp, PlannedStep, ToolStanding, Validator, argument_template::ArgumentTemplate,
    servers::is_reviewed, step::StepContext,
};

impl Validator<'_> {
    pub(super) fn plan_mcp_step(&mut self, mcp: &McpStep, context: &StepContext<'_>) -> Option<PlannedMcp> {
        let servers = &context.plan.spec.servers;
        let Some(server) = servers.iter().find(|server| server.name == mcp.server) else {
            let hint = self.did_you_mean(&mcp.server, servers.iter().map(|server| server.name.as_str()));
            let message = format!("there is no server {} in spec.servers: add it{hint}", mcp.server);
            self.error(format!("{}.mcp.server", context.field), message);
            return None;
        };
        let of_server = |arguments, reads| PlannedMcp {
            server: server.name.clone(),
            url: server.url.clone(),
            tool: mcp.tool.clone(),
            arguments,
            reads,
            requires: None,
        };
        if context.is_of_server {
            // The plan of a catalogue replaces this placeholder by the definition of the tool.
            let definition = Digest::of_bytes(b"");
            let standing = ToolStanding { definition, reads: false, is_pinned: false, described: Arc::default() };
            return Some(of_server(PlannedArguments::OfAgent(standing), false));
        }
        if !(fits(&mcp.tool) && server.has(&mcp.tool)) {
            let message = format!(
                "the tool {} does not exist for this run: add it to `only` of the server {}",
                mcp.tool, server.name
            );
            self.error(format!("{}.mcp.tool", context.field), message);
        }
        let given = Value::Object(mcp.arguments.clone().unwrap_or_default().0);
        let mut parse = |source: &str, place: &str| {
            self.parse_known_template(source, &format!("{}.mcp.arguments{place}", context.field), &context.known)
        };
        let arguments = ArgumentTemplate::of(&given, "", &mut parse)?;
        let reads = server.reads(&mcp.tool);
        Some(of_server(PlannedArguments::OfAuthor(arguments), reads))
    }

    /// Refuses an ordinary step whose call would never be sent: it can change something, and neither a gate nor a pin
    /// covers it.
    pub(super) fn check_mcp_is_asked(&mut self, planned: &PlannedStep, context: &StepContext<'_>) {
        let Action::Mcp(mcp) = &planned.action else { return };
        let Some(server) = context.plan.spec.servers.iter().find(|server| server.name == mcp.server) else { return };
        let is_asked = planned.start.is_some() || !planned.policy_gates.is_empty();
        let can_run = mcp.reads || server.trusts_hints() || server.pin(&mcp.tool).is_some();
        if !planned.is_tool() && !is_asked && !can_run {
            let message = format!(
                "{} may change something, and no gate asks about it: add a gate of the type stepStart, pin the definition of the \
                 tool with `signoff tools --pin`, or list it in `read` of the server if it changes nothing",
                server.tool_name(&mcp.tool)
            );
            self.error(format!("{}.mcp", context.field), message);
        }
    }
}

/// Returns the definition for which a policy omits its gate before a step: the definition that the author pinned, if
/// the policy reviewed the same definition. Returns `None` if the gate asks.
pub(super) fn reviewed_definition(added: &AddedStep, action: &Action, servers: &[Server]) -> Option<Digest> {
    let Action::Mcp(mcp) = action else { return None };
    let server = servers.iter().find(|server| server.name == mcp.server)?;
    let pinned = server.pin(&mcp.tool)?;
    let reviewed = added.step.before.as_ref().map_or(&[][..], |before| before.except.as_slice());
    reviewed.iter().any(|entry| is_reviewed(entry, server, &mcp.tool, pinned)).then(|| pinned.clone())
}
