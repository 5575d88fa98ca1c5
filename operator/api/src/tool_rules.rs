//! The requirements of approval policies for the tools of agents, and the calls that they apply to.
//!
//! **Invariant:** rules match what runs, never names that an author chooses: the kind of the step, and the host,
//! method, image or tool of a server. A declared effect, and the name that a server gives its tool, can only make a
//! rule match more calls.

use std::fmt;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::step::Method;

/// The requirements of a policy for the tools of agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolRules {
    /// Whether a Workflow is refused if one of its tools can change something and no gate always asks about the calls
    /// of that tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_gate: Option<bool>,
    /// The calls that no agent may make, even if people would approve them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(
        merge_strategy = kube::core::ListMerge::Atomic,
        validation = kube::core::Rule::new("self.all(c, has(c.kinds) || has(c.hosts) || has(c.methods) || has(c.images) || has(c.serverTools) || has(c.changes))")
            .message("each entry needs at least one field: an empty one would forbid every call; for that write kinds: [http, mcp, pod, agent, set]")
    )]
    pub never: Vec<CallMatch>,
}

/// Calls of tools by agents: those that match every given field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("!has(self.images) || (!has(self.hosts) && !has(self.methods))")
    .message("images are of containers, hosts and methods of http requests, so nothing would match: write two entries"),
    validation = kube::core::Rule::new("!has(self.serverTools) || (!has(self.images) && !has(self.methods))")
    .message("serverTools are of MCP servers, images of containers, methods of http requests, so nothing would match: write two entries"))]
pub struct CallMatch {
    /// The kinds of steps that the tools run. Default: every kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 5))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub kinds: Vec<CallKind>,
    /// The hosts of http requests and MCP servers: a name or an address, optionally with a port, or `*.` and a suffix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253), pattern(r"^([*][.])?[^*/@\s]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub hosts: Vec<String>,
    /// The methods of http requests, also those that a header names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 6))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub methods: Vec<Method>,
    /// The images of containers, as a step names them; `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 512)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub images: Vec<String>,
    /// The tools of MCP servers, by the server's own name; `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 64), pattern("^[A-Za-z0-9_*-]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub server_tools: Vec<String>,
    /// Only calls that can change something: all but plain GET and HEAD requests of tools with `effects: read`. A body,
    /// or a header that names a method, can change something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [true]))]
    pub changes: Option<bool>,
}

/// The kind of the step that a tool runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CallKind {
    /// An agent with a conversation of its own.
    Agent,
    /// A container.
    Pod,
    /// One HTTP request.
    Http,
    /// A tool of an MCP server.
    Mcp,
    /// A text that the operator renders.
    Set,
}

impl CallKind {
    /// Returns the name as in a Workflow.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Pod => "pod",
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::Set => "set",
        }
    }
}

/// Writes the calls that match:
/// `calls of tools that are http steps, with POST, to bank.example, that can change something`.
impl fmt::Display for CallMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |f: &mut fmt::Formatter<'_>, before: &str, names: &[&str], after: &str| match names {
            [] => Ok(()),
            names => write!(f, "{before}{}{after}", names.join(" or ")),
        };
        f.write_str("calls of tools")?;
        any(f, " that are ", &self.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(), " steps")?;
        any(f, ", with ", &self.methods.iter().map(|method| method.name()).collect::<Vec<_>>(), "")?;
        any(f, ", to ", &self.hosts.iter().map(String::as_str).collect::<Vec<_>>(), "")?;
        any(f, ", of image ", &self.images.iter().map(String::as_str).collect::<Vec<_>>(), "")?;
        any(f, ", of the server's tool ", &self.server_tools.iter().map(String::as_str).collect::<Vec<_>>(), "")?;
        if self.changes == Some(true) { f.write_str(", that can change something") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_calls_of_a_rule_are_rendered_in_words() {
        let said = |rule: serde_json::Value| serde_json::from_value::<CallMatch>(rule).unwrap().to_string();
        assert_eq!(said(json!({})), "calls of tools");
        assert_eq!(
            said(json!({"kinds": ["http"], "methods": ["POST", "PUT"], "hosts": ["bank.example"], "changes": true})),
            "calls of tools that are http steps, with POST or PUT, to bank.example, that can change something"
        );
        assert_eq!(said(json!({"images": ["*:latest"]})), "calls of tools, of image *:latest");
        assert_eq!(
            said(json!({"kinds": ["mcp"], "hosts": ["crm.example.com"], "serverTools": ["delete_*", "drop"]})),
            "calls of tools that are mcp steps, to crm.example.com, of the server's tool delete_* or drop"
        );
    }
}
