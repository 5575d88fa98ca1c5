//! The agents of a plan, each with its provider.

use std::collections::BTreeMap;

use signoff_api::{
    WorkflowSpec,
    server::Server,
    workflow::{Agent, Provider, ProviderKind, SecretEntry},
};
use signoff_expr::Template;

use super::Validator;
use crate::tools;

/// An agent with its provider.
#[derive(Clone, Debug)]
pub(crate) struct PlannedAgent {
    pub(crate) spec: Agent,
    pub(crate) provider: Provider,
    /// The key for the provider.
    pub(crate) key: Option<SecretEntry>,
    pub(crate) system: Option<Template>,
    /// The names of its tools, as declared, followed by the built-in ones.
    pub(crate) tools: Vec<String>,
    /// The servers whose catalogues are read before its turns, in the order of the spec.
    pub(crate) servers: Vec<String>,
}

impl PlannedAgent {
    /// Whether the author of the Workflow wrote its answers.
    pub(crate) fn is_scripted(&self) -> bool {
        matches!(self.provider.kind(), Some(ProviderKind::Scripted(_)))
    }
}

impl Validator<'_> {
    /// Checks the Secrets and the providers of a Workflow.
    pub(super) fn check_providers(&mut self, spec: &WorkflowSpec) {
        for (at, entry) in spec.secrets.iter().enumerate() {
            self.report_forbidden(format!("spec.secrets[{at}]"), self.policies.refuses_secret(&entry.secret));
        }
        for (at, provider) in spec.providers.iter().enumerate() {
            let field = format!("spec.providers[{at}]");
            let kind = match provider.try_kind() {
                Ok(kind) => kind,
                Err(why) => {
                    self.error(field, why);
                    continue;
                }
            };
            // An accepted run continues: its turns fail on their own.
            if let Some(why) = kind.base_url_error().filter(|_| !self.accepted) {
                self.error(format!("{field}.{}.baseURL", kind.name()), why);
            }
            // The error does not repeat the text, because it may be a key in the wrong field.
            if kind.key().is_some() && key_of(spec, provider).is_none() {
                self.error(
                    format!("{field}.{}.key", kind.name()),
                    format!("its key is no name of spec.secrets: {}", name_an_entry(spec)),
                );
            }
            self.report_forbidden(field, self.policies.refuses_provider(provider, None));
        }
    }

    /// Plans the agents, each with its provider.
    pub(super) fn plan_agents(&mut self, spec: &WorkflowSpec) -> BTreeMap<String, PlannedAgent> {
        let mut agents = BTreeMap::new();
        for (at, agent) in spec.agents.iter().enumerate() {
            let field = format!("spec.agents[{at}]");
            let provider = match (&agent.provider, spec.providers.as_slice()) {
                (Some(name), all) => all.iter().find(|p| p.name == *name),
                (None, [only]) => Some(only),
                (None, _) => None,
            };
            let system =
                agent.system.as_ref().and_then(|source| self.parse_template(source, &format!("{field}.system")));
            if provider.is_none() {
                let names: Vec<_> = spec.providers.iter().map(|p| p.name.as_str()).collect();
                self.error(
                    format!("{field}.provider"),
                    format!(
                        "name one of spec.providers ({})",
                        if names.is_empty() { "there is none: add one".into() } else { names.join(", ") }
                    ),
                );
            }
            // The steps of the agent get no further error about an unknown agent.
            let provider = provider.cloned().unwrap_or_default();
            let is_asked = provider.kind().is_some_and(|kind| kind.endpoint().is_some());
            if is_asked && agent.model.is_none() {
                self.error(format!("{field}.model"), format!("provider {} needs a model", provider.name));
            }
            let (key, tools) = (key_of(spec, &provider).cloned(), self.resolve_tools(spec, agent, &field));
            let servers = servers_of(spec, agent, &tools);
            let planned = PlannedAgent { spec: agent.clone(), provider, key, system, tools, servers };
            if agents.insert(agent.name.clone(), planned).is_some() {
                self.error(format!("{field}.name"), format!("duplicate name {}: names must be unique", agent.name));
            }
        }
        agents
    }
}

/// Returns the remedy for a name that is not in `spec.secrets`.
pub(super) fn name_an_entry(spec: &WorkflowSpec) -> String {
    let names: Vec<_> = spec.secrets.iter().map(|entry| entry.name.as_str()).collect();
    let names = if names.is_empty() { "there is none: add one".into() } else { names.join(", ") };
    format!("name one of them ({names})")
}

/// Returns the servers whose tools an agent may call, directly or through tools of the Workflow.
fn servers_of(spec: &WorkflowSpec, agent: &Agent, own: &[String]) -> Vec<String> {
    let listed = tools::servers_of(spec, agent);
    let is_wrapped = |server: &Server| {
        let steps = spec.tools.iter().filter(|tool| own.contains(&tool.name)).map(|tool| &tool.step);
        let mut steps = steps.filter_map(|name| spec.steps.iter().find(|step| step.name == *name));
        steps.any(|step| step.mcp.as_ref().is_some_and(|mcp| mcp.server == server.name))
    };
    let is_meant = |server: &&Server| listed.contains(server) || is_wrapped(server);
    spec.servers.iter().filter(is_meant).map(|server| server.name.clone()).collect()
}

/// Returns the entry of `spec.secrets` that is the key of a provider.
fn key_of<'a>(spec: &'a WorkflowSpec, provider: &Provider) -> Option<&'a SecretEntry> {
    let name = provider.kind()?.key()?;
    spec.secrets.iter().find(|entry| entry.name == name)
}
