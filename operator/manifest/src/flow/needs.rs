//! The names that templates and conditions refer to.
//!
//! Unparsable texts refer to no names here; the check reports them.

use std::collections::BTreeSet;

use serde_json::Value;
use signoff_api::step::{HitlStep, Step};
use signoff_expr::{Condition, Reference, Template};

/// Names as written, in order and without duplicates.
#[derive(Debug, Default)]
pub(super) struct Needs(BTreeSet<String>);

impl Needs {
    pub(super) fn template(mut self, source: &str) -> Self {
        if let Ok(template) = Template::parse(source, "") {
            self.0.extend(template.references().iter().map(Reference::to_string));
        }
        self
    }

    pub(super) fn maybe(self, source: Option<&String>) -> Self {
        match source {
            Some(source) => self.template(source),
            None => self,
        }
    }

    pub(super) fn condition(mut self, source: Option<&String>) -> Self {
        if let Some(Ok(condition)) = source.map(|source| Condition::parse(source, "")) {
            self.0.extend(condition.references().iter().map(Reference::to_string));
        }
        self
    }

    /// Adds the names in the texts of an argument.
    fn argument(self, argument: &Value) -> Self {
        match argument {
            Value::String(text) => self.template(text),
            Value::Array(items) => items.iter().fold(self, Self::argument),
            Value::Object(fields) => fields.values().fold(self, Self::argument),
            Value::Null | Value::Bool(_) | Value::Number(_) => self,
        }
    }

    pub(super) fn gate(self, hitl: &HitlStep) -> Self {
        self.template(&hitl.prompt).maybe(hitl.context_display.as_ref())
    }

    /// Adds the names that a step refers to, without its own variables.
    pub(super) fn step(mut self, step: &Step, system: Option<&String>) -> Self {
        self = self.condition(step.skip_if.as_ref());
        if let Some(agent) = &step.agent {
            self = self.template(&agent.input).maybe(system);
        }
        if let Some(pod) = &step.pod {
            let values = pod.env.iter().filter_map(|variable| variable.value.as_ref());
            self = values
                .chain(pod.files.iter().map(|file| &file.content))
                .fold(self, |needs, value| needs.template(value));
        }
        if let Some(http) = &step.http {
            self = self.template(&http.url).maybe(http.body.as_ref());
            self = http.headers.values().fold(self, |needs, value| needs.template(value));
        }
        if let Some(arguments) = step.mcp.as_ref().and_then(|mcp| mcp.arguments.as_ref()) {
            self = arguments.0.values().fold(self, Self::argument);
        }
        if let Some(set) = &step.set {
            self = self.template(&set.value);
        }
        if let Some(hitl) = &step.hitl {
            self = self.gate(hitl);
        }
        self.0.retain(|name| !step.vars.keys().any(|var| name.split(['.', '[']).next() == Some(var)));
        step.vars.values().fold(self, |needs, value| needs.template(value))
    }

    pub(super) fn list(self) -> Vec<String> {
        self.0.into_iter().collect()
    }
}
