//! The agents of a plan, each with its provider.

use std::collections::BTreeMap;

use signoff_api::{
    WorkflowSpec,
    workflow::{Agent, Provider},
};
use signoff_expr::Template;

use super::Validator;

/// An agent with its provider.
#[derive(Clone, Debug)]
pub(crate) struct PlannedAgent {
    pub(crate) spec: Agent,
    pub(crate) provider: Provider,
    pub(crate) system: Option<Template>,
    /// The names of the tools that it may call, as declared; the built-in ones last.
    pub(crate) tools: Vec<String>,
}

impl Validator<'_> {
    /// Plans the agents, each with its provider.
    pub(super) fn agents(&mut self, spec: &WorkflowSpec) -> BTreeMap<String, PlannedAgent> {
        let mut agents = BTreeMap::new();
        for (at, provider) in spec.providers.iter().enumerate() {
            if provider.openai.is_some() == provider.scripted.is_some() {
                self.error(format!("spec.providers[{at}]"), "a provider is exactly one of openai and scripted");
            }
            self.not_allowed(format!("spec.providers[{at}]"), self.policies.refuses_provider(provider));
        }
        for (at, agent) in spec.agents.iter().enumerate() {
            let field = format!("spec.agents[{at}]");
            let provider = match (&agent.provider, spec.providers.as_slice()) {
                (Some(name), all) => all.iter().find(|p| p.name == *name),
                (None, [only]) => Some(only),
                (None, _) => None,
            };
            let system = agent.system.as_ref().and_then(|source| self.template(source, &format!("{field}.system")));
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
            // Its steps are not reported as naming an unknown agent: this one error is enough.
            let provider = provider.cloned().unwrap_or_default();
            if provider.openai.is_some() && agent.model.is_none() {
                self.error(format!("{field}.model"), format!("provider {} needs a model", provider.name));
            }
            let planned =
                PlannedAgent { spec: agent.clone(), provider, system, tools: self.tools_of(spec, agent, &field) };
            if agents.insert(agent.name.clone(), planned).is_some() {
                self.error(format!("{field}.name"), format!("duplicate name {}: names must be unique", agent.name));
            }
        }
        agents
    }
}
