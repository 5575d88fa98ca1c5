//! The page of `signoff tools`: the tools of each server, and the gates that would ask about them.

use serde_json::{Value, json};
use signoff_api::{Workflow, catalogue::ServerTool, digest::canonical, tool::Effects};
use signoff_cli::{
    sanitize::{self, one_line},
    table::render_table,
    terminal,
};
use signoff_manifest::{
    flow::Flow,
    server_tools::{self, Catalogues, PinState},
};

use super::list::ListedServer;
use crate::run::Format;

/// The most characters of a name of a tool.
const SHOWN: usize = 120;
/// The most characters of a note.
const NOTE: usize = 600;

/// Prints the tools of the servers. `is_selected`: whether a tool is shown, by the server's own name for it.
pub(super) fn print(
    format: Format,
    listed: &[ListedServer],
    workflow: Option<&Workflow>,
    is_selected: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let catalogues: Catalogues =
        listed.iter().map(|listed| (listed.server.name.clone(), listed.catalogue.clone())).collect();
    let flow = workflow.map(|workflow| server_flow(workflow, &catalogues));
    // A server that could not be asked has its own note already.
    let missing = workflow.map(|workflow| server_tools::missing(&workflow.spec, &catalogues)).unwrap_or_default();
    let page = match format {
        Format::Json => {
            let servers: Vec<Value> = listed.iter().map(|listed| render_object(listed, &is_selected)).collect();
            let agents = flow.map(|flow| flow.agents);
            sanitize::json(&json!({"servers": servers, "agents": agents, "missing": missing}))?
        }
        Format::Text => {
            missing.iter().for_each(|note| terminal::note(&format!("warning: {}", one_line(note, NOTE))));
            let servers: Vec<String> = listed.iter().map(|listed| render_text(listed, &is_selected)).collect();
            servers.join("\n") + &flow.map(|flow| flow.tools_to_text()).unwrap_or_default()
        }
    };
    Ok(terminal::print(&page)?)
}

/// Returns the flow of a Workflow, in which agents keep only the tools of the listed servers.
fn server_flow(workflow: &Workflow, catalogues: &Catalogues) -> Flow {
    let mut flow = Flow::with_catalogues(workflow, catalogues);
    let is_of_server = |name: &str| name.split_once('.').is_some_and(|(server, _)| catalogues.contains_key(server));
    for agent in &mut flow.agents {
        agent.tools.retain(|tool| is_of_server(&tool.name));
    }
    flow.agents.retain(|agent| !agent.tools.is_empty());
    flow
}

/// Returns the tools of a server that the run has and that `is_selected` selects.
fn selected_tools<'l>(listed: &'l ListedServer, is_selected: &impl Fn(&str) -> bool) -> Vec<&'l ServerTool> {
    let is_shown = |tool: &&ServerTool| listed.server.has(tool.name()) && is_selected(tool.name());
    listed.catalogue.tools().iter().filter(is_shown).collect()
}

fn render_text(listed: &ListedServer, is_selected: &impl Fn(&str) -> bool) -> String {
    let ListedServer { server, protocol, catalogue } = listed;
    let url = one_line(server.url.as_deref().unwrap_or_default(), 512);
    let mut text = format!("Server {} ({url}), protocol {protocol}\n", one_line(&server.name, 63));
    let tools = selected_tools(listed, is_selected);
    let row = |tool: &&ServerTool| {
        vec![
            one_line(tool.name(), SHOWN),
            hints(tool).to_owned(),
            definition_bytes(tool).to_string(),
            PinState::of(server, tool).name().to_owned(),
            tool.digest().to_string(),
        ]
    };
    text += &match tools.is_empty() {
        true => "  no tools\n".to_owned(),
        false => render_table(&["TOOL", "HINTS", "BYTES", "PIN", "DEFINITION"], tools.iter().map(row).collect()),
    };
    let hidden = catalogue.tools().iter().filter(|tool| !server.has(tool.name())).count();
    if hidden > 0 {
        text += &format!("  {hidden} more, which `only` leaves out\n");
    }
    let changed = server_tools::changed_pins(server, catalogue);
    for note in changed.into_iter().chain(server_tools::left_out(&server.name, catalogue)) {
        text += &format!("  {}\n", one_line(&note, NOTE));
    }
    text
}

fn render_object(listed: &ListedServer, is_selected: &impl Fn(&str) -> bool) -> Value {
    let ListedServer { server, protocol, catalogue } = listed;
    let tool = |tool: &ServerTool| {
        json!({
            "name": tool.name(), "hints": hints(tool), "bytes": definition_bytes(tool),
            "pin": PinState::of(server, tool).name(), "definition": tool.digest(),
        })
    };
    json!({
        "server": server.name, "url": server.url, "protocol": protocol,
        "tools": selected_tools(listed, is_selected).into_iter().map(tool).collect::<Vec<_>>(),
        "notOffered": server_tools::left_out(&server.name, catalogue),
        "changedPins": server_tools::changed_pins(server, catalogue),
    })
}

/// Returns the effects of a tool by the hints of its server.
fn hints(tool: &ServerTool) -> &'static str {
    tool.hinted_effects().map_or("unknown", Effects::name)
}

/// Returns the size of a tool's definition in bytes.
fn definition_bytes(tool: &ServerTool) -> usize {
    canonical(tool.definition()).map_or(0, |bytes| bytes.len())
}
