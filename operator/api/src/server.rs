//! The MCP servers of a Workflow: their addresses, and the tools that the run can use.
//!
//! **Invariant:** a name that a server chooses exempts no call. Only `read` and `pins` of the author do, and with
//! `trust: hints` the annotations of the server.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{digest::Digest, glob::is_like, hosts};

/// An MCP server. Exactly one of `url` and `command`. Agents know its tools as `<name>.<tool>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("has(self.url) != has(self.command)")
    .message("a server has exactly one of url and command"),
    validation = kube::core::Rule::new("has(self.url) || !has(self.key)")
    .message("a command is sent no key: leave key out"),
    validation = kube::core::Rule::new("has(self.key) || !has(self.header)")
    .message("header is the header of the key: add key, or leave header out"))]
pub struct Server {
    /// The name by which agents and steps refer to the server; a DNS label.
    #[schemars(length(min = 1, max = 20), pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The URL (http or https). No template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), pattern("^https?://"))]
    pub url: Option<String>,
    /// The program and its arguments. Only in local runs, with `--allow-commands`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 1024)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub command: Vec<String>,
    /// The key, sent as `Authorization: Bearer …`: the name of an entry of `spec.secrets`. It has at least 16 bytes.
    /// Default: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub key: Option<String>,
    /// The header that is the key, alone, instead of `Authorization`; such as `X-Api-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), pattern("^[A-Za-z0-9_-]+$"))]
    pub header: Option<String>,
    /// The tools of the server that exist for this run, by the server's own name or glob. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64), pattern("^[A-Za-z0-9_*-]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub only: Vec<String>,
    /// The tools that change nothing, by the server's own name or glob: the author's word, like `effects: read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64), pattern("^[A-Za-z0-9_*-]+$")))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub read: Vec<String>,
    /// Whether the annotations of the server count as effects of its tools. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<ServerTrust>,
    /// The tools whose definitions were reviewed, as `signoff tools --pin` writes them. A tool with another definition
    /// counts as one without a pin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["tool".into()]))]
    pub pins: Vec<ToolPin>,
}

/// The trusted part of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ServerTrust {
    /// Its annotations `readOnlyHint` and `destructiveHint`.
    Hints,
}

/// A tool of a server with the definition that was reviewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolPin {
    /// The server's own name of the tool.
    #[schemars(length(min = 1, max = 64))]
    pub tool: String,
    /// The digest of its definition.
    pub definition: Digest,
}

impl Server {
    /// Returns the error of the URL of the server, or `None`. The error does not quote the URL, which can have a key.
    #[must_use]
    pub fn url_error(&self) -> Option<&'static str> {
        let url = Url::parse(self.url.as_deref()?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url else {
            return Some("not a valid URL: write it as in https://crm.example.com/mcp");
        };
        if hosts::has_credentials(&url) {
            Some("it has a user name or a password: leave them out, and give a key by `key` and `spec.secrets`")
        } else {
            url.fragment().map(|_| "it has a fragment: leave out `#` and the rest")
        }
    }

    /// Returns the name of a tool of the server for agents, gates and people: `<server>.<tool>`.
    #[must_use]
    pub fn tool_name(&self, tool: &str) -> String {
        format!("{}.{tool}", self.name)
    }

    /// Returns the digest of the definition of a tool that was reviewed, or `None`.
    #[must_use]
    pub fn pin(&self, tool: &str) -> Option<&Digest> {
        self.pins.iter().find(|pin| pin.tool == tool).map(|pin| &pin.definition)
    }

    /// Whether the author declares that a tool changes nothing.
    #[must_use]
    pub fn reads(&self, tool: &str) -> bool {
        self.read.iter().any(|glob| is_like(glob, tool))
    }

    /// Whether the run can use a tool of the server, by the lists of the author.
    #[must_use]
    pub fn has(&self, tool: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|glob| is_like(glob, tool))
    }

    /// Whether the annotations of the server decide the effects of its tools.
    #[must_use]
    pub fn trusts_hints(&self) -> bool {
        matches!(self.trust, Some(ServerTrust::Hints))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_url_of_a_server_has_no_credentials() {
        let error = |url: &str| Server { url: Some(url.into()), ..Server::default() }.url_error();
        for url in ["https://crm.example.com/mcp", "http://localhost:3001/mcp?team=a"] {
            assert_eq!(error(url), None, "{url}");
        }
        for (url, part) in [
            ("https://dana:hunter2@crm.example.com/mcp", "a user name or a password"),
            ("https://crm.example.com/mcp#hunter2", "a fragment"),
            ("https://", "not a valid URL"),
        ] {
            let why = error(url).unwrap();
            assert!(why.contains(part) && !why.contains("hunter2"), "{url}: {why}");
        }
        assert_eq!(Server { command: vec!["npx".into()], ..Server::default() }.url_error(), None);
    }

    #[test]
    fn a_server_is_read_as_it_was_written() {
        let pin = Digest::of_bytes(b"refund");
        let written = json!({"name": "crm", "url": "https://crm.example.com/mcp", "key": "crm", "only": ["get_*", "refund"],
            "read": ["get_*"], "trust": "hints", "pins": [{"tool": "refund", "definition": pin}]});
        let server: Server = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&server).unwrap(), written);
        assert_eq!((server.pin("refund"), server.pin("get_customer")), (Some(&pin), None));
        assert!(server.trusts_hints());
        assert_eq!(server.tool_name("refund"), "crm.refund");
    }
}
