//! The rules of approval policies for calls of tools: which calls are forbidden, and which tools need a gate.

use std::collections::BTreeSet;

use signoff_api::{
    glob::is_like,
    hosts::HostPattern,
    sent_method::SentMethod,
    tool::Effects,
    tool_rules::{CallKind, CallMatch, ToolRules},
};
use url::Url;

use super::Policies;
use crate::transition::{CallContent, McpRequest};

/// The facts by which policies match a call of a tool. Before the run, facts that depend on the call are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallFacts {
    pub(crate) kind: CallKind,
    /// The method of an http request, and the methods that its headers name.
    pub(crate) sent: Option<SentMethod>,
    /// The address of an http request or of a server, at least up to the end of its host; `None` if it depends on the
    /// call.
    pub(crate) url: Option<String>,
    /// The images of a Pod; `None` if one depends on the call.
    pub(crate) images: Option<BTreeSet<String>>,
    /// The tool of a server, by the server's name for it; `None` if unknown.
    pub(crate) server_tool: Option<String>,
    /// The effects that the author declares.
    pub(crate) effects: Option<Effects>,
}

impl CallFacts {
    /// Returns the facts of a call that is neither an http request nor a container.
    pub(crate) fn of_kind(kind: CallKind, effects: Option<Effects>) -> Self {
        Self { kind, sent: None, url: None, images: None, server_tool: None, effects }
    }

    /// Returns the facts of a rendered call.
    pub(crate) fn of(call: &CallContent, effects: Option<Effects>) -> Self {
        let of_kind = |kind| Self::of_kind(kind, effects);
        match call {
            CallContent::Agent(_) => of_kind(CallKind::Agent),
            CallContent::Pod(pod) => Self { images: Some(pod.spec.images()), ..of_kind(CallKind::Pod) },
            CallContent::Http(http) => {
                Self { sent: Some(http.sent_method()), url: Some(http.url.clone()), ..of_kind(CallKind::Http) }
            }
            CallContent::Mcp(mcp) => {
                let server_tool = match &mcp.request {
                    McpRequest::Call(call) => Some(call.tool.clone()),
                    McpRequest::Catalogue { .. } => None,
                };
                Self { url: mcp.url.clone(), server_tool, ..of_kind(CallKind::Mcp) }
            }
        }
    }

    /// Whether the call can change something. `effects: read` counts only for read-only requests, and never for a tool
    /// of a server.
    pub(crate) fn changes(&self) -> bool {
        let only_reads = self.sent.as_ref().is_some_and(SentMethod::only_reads);
        !(only_reads && self.effects == Some(Effects::Read))
    }
}

/// Whether a rule matches a call, or `None` if it depends on the rendered call.
pub(crate) fn matches(rule: &CallMatch, call: &CallFacts) -> Option<bool> {
    let matches_kinds =
        |is_limited: bool, kinds: &[CallKind], known: Option<bool>| match (is_limited, kinds.contains(&call.kind)) {
            (false, _) => Some(true),
            (true, false) => Some(false),
            (true, true) => known,
        };
    let is_listed = |url: &String| {
        let url = Url::parse(url).ok()?;
        // An unreadable entry could mean any host.
        Some(rule.hosts.iter().any(|host| HostPattern::parse(host).is_none_or(|pattern| pattern.covers(&url))))
    };
    let is_like_one =
        |images: &BTreeSet<String>| images.iter().any(|image| rule.images.iter().any(|glob| is_like(glob, image)));
    let is_tool = |tool: &String| rule.server_tools.iter().any(|glob| is_like(glob, tool));
    let has_method = |sent: &SentMethod| {
        let parts: Vec<_> = rule.methods.iter().map(|method| sent.can_be(*method)).collect();
        if parts.contains(&Some(true)) { Some(true) } else { (!parts.contains(&None)).then_some(false) }
    };
    let parts = [
        Some(rule.kinds.is_empty() || rule.kinds.contains(&call.kind)),
        Some(rule.changes != Some(true) || call.changes()),
        matches_kinds(!rule.methods.is_empty(), &[CallKind::Http], call.sent.as_ref().and_then(has_method)),
        matches_kinds(!rule.hosts.is_empty(), &[CallKind::Http, CallKind::Mcp], call.url.as_ref().and_then(is_listed)),
        matches_kinds(!rule.images.is_empty(), &[CallKind::Pod], call.images.as_ref().map(is_like_one)),
        matches_kinds(!rule.server_tools.is_empty(), &[CallKind::Mcp], call.server_tool.as_ref().map(is_tool)),
    ];
    if parts.contains(&Some(false)) { Some(false) } else { (!parts.contains(&None)).then_some(true) }
}

impl Policies {
    fn tool_rules(&self) -> impl Iterator<Item = (&str, &ToolRules)> {
        self.list.iter().filter_map(|applied| Some((applied.source.as_str(), applied.rules.tools.as_ref()?)))
    }

    /// Returns the reason why no agent may make a call, or `None` if no policy forbids it or it depends on the call.
    pub(crate) fn forbids_call(&self, call: &CallFacts) -> Option<String> {
        self.tool_rules().find_map(|(source, rules)| {
            let (at, rule) = rules.never.iter().enumerate().find(|(_, rule)| matches(rule, call) == Some(true))?;
            Some(format!(
                "{source} forbids {rule} (tools.never[{at}]): let the tool do something else, or ask the administrator of the policy to change it"
            ))
        })
    }

    /// Returns the policies that require a gate before tools that can change something.
    pub(crate) fn require_gates(&self) -> Vec<&str> {
        self.tool_rules().filter(|(_, rules)| rules.require_gate == Some(true)).map(|(source, _)| source).collect()
    }
}
