//! From a Workflow to a plan: everything its author could have got wrong is found here, all of it at once,
//! before the first step runs.
//!
//! A plan says what shall happen and never what has: it is the same at every turn of a run.

mod added;
mod gate;
mod references;
mod step;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use signoff_api::{
    Digest, Workflow, WorkflowSpec,
    digest::{self},
    floor::AddedStep,
    workflow::{Agent, Provider},
};

use crate::{floors::Floors, inputs, language::Template, turn::Call};

pub(crate) use gate::{PlannedGate, allowed, form};
pub(crate) use step::{Action, PlannedAgentStep, PlannedHttp, PlannedStep};

/// What the administrator decided for all runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long people have at a gate that does not say.
    pub default_gate_timeout: Duration,
    /// The longest time a gate may give.
    pub max_gate_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_gate_timeout: Duration::from_secs(24 * 3600),
            max_gate_timeout: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// One thing that is wrong with a Workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where: `spec.pattern.chain.steps[1].hitl.prompt`.
    pub field: String,
    /// What is wrong, and the remedy.
    pub message: String,
    /// A reason of the condition `Accepted`: `Invalid`, `RequesterIsMachine`, `FloorsContradict` or `NotAllowed`.
    pub reason: &'static str,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// A Workflow that can be run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) created: String,
    pub(crate) requested_by: String,
    pub(crate) requested_for: Option<String>,
    pub(crate) inputs: Map<String, Value>,
    pub(crate) agents: BTreeMap<String, PlannedAgent>,
    pub(crate) steps: Vec<PlannedStep>,
    pub(crate) outputs: Option<Template>,
    pub(crate) active_deadline: Option<Duration>,
    pub(crate) floors: Arc<Floors>,
    added: Vec<AddedStep>,
    spec_digest: Digest,
    warnings: Vec<String>,
}

/// An agent with its provider.
#[derive(Clone, Debug)]
pub(crate) struct PlannedAgent {
    pub(crate) spec: Agent,
    pub(crate) provider: Provider,
    pub(crate) system: Option<Template>,
}

impl Plan {
    /// Checks and parses a Workflow under the floors that hold in its namespace.
    ///
    /// Once it was accepted, the gates that floors added are those of its status, and what floors contradict is no
    /// complaint: the gates in question are held when they are about to ask.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its fields.
    pub fn of(workflow: &Workflow, settings: &Settings, floors: &Arc<Floors>) -> Result<Self, Vec<Complaint>> {
        let spec = &workflow.spec;
        let accepted = workflow.status.as_ref().filter(|status| status.spec_digest.is_some());
        let added = accepted.map_or_else(|| floors.added_steps(), |status| status.added_steps.clone());
        let mut check =
            Check { settings, floors, accepted: accepted.is_some(), complaints: Vec::new(), warnings: Vec::new() };
        let spec_digest = match spec_digest(spec) {
            Ok(digest) => digest,
            Err(why) => {
                check.complain("spec", why.to_string());
                Digest::of_bytes(b"")
            }
        };
        let inputs = inputs::values(&spec.inputs, &mut check);
        let agents = check.agents(spec);
        let (steps, outputs) = check.chain(spec, &agents, &added);
        let metadata = &workflow.metadata;
        if check.complaints.is_empty() {
            Ok(Self {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: metadata.name.clone().unwrap_or_default(),
                uid: metadata.uid.clone().unwrap_or_default(),
                created: metadata.creation_timestamp.as_ref().map(|t| t.0.to_string()).unwrap_or_default(),
                requested_by: spec.requested_by.clone(),
                requested_for: spec.requested_for.clone(),
                inputs,
                agents,
                steps,
                outputs,
                active_deadline: spec.active_deadline.map(signoff_api::Span::duration),
                floors: Arc::clone(floors),
                added,
                spec_digest,
                warnings: check.warnings,
            })
        } else {
            Err(check.complaints)
        }
    }

    /// The digest that pins the spec; see [`spec_digest`].
    #[must_use]
    pub fn spec_digest(&self) -> &Digest {
        &self.spec_digest
    }

    /// The gates that floors added.
    #[must_use]
    pub fn added_steps(&self) -> &[AddedStep] {
        &self.added
    }

    /// Why floors do not allow a call; none where they do.
    #[must_use]
    pub fn refuses(&self, call: &Call) -> Option<String> {
        self.floors.refuses(&call.what)
    }

    /// What is allowed but was perhaps not meant.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The digest of a spec without its three mutable fields.
///
/// # Errors
/// Numbers that JSON readers round differently.
pub fn spec_digest(spec: &WorkflowSpec) -> Result<Digest, digest::Error> {
    let mut value = serde_json::to_value(spec)?;
    if let Some(fields) = value.as_object_mut() {
        for mutable in ["suspend", "cancel", "ttlAfterFinished"] {
            fields.remove(mutable);
        }
    }
    Digest::of(&value)
}

/// What a check of a Workflow has found so far.
pub(crate) struct Check<'a> {
    settings: &'a Settings,
    floors: &'a Floors,
    /// Whether the run is under way: floors then hold gates and refuse nothing.
    accepted: bool,
    complaints: Vec<Complaint>,
    warnings: Vec<String>,
}

impl Check<'_> {
    pub(crate) fn complain(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.complain_as("Invalid", field, message);
    }

    fn complain_as(&mut self, reason: &'static str, field: impl Into<String>, message: impl Into<String>) {
        self.complaints.push(Complaint { field: field.into(), message: message.into(), reason });
    }

    /// Complains about something that floors do not allow, unless the run was accepted before they did not.
    pub(crate) fn not_allowed(&mut self, field: impl Into<String>, why: Option<String>) {
        if let (Some(why), false) = (why, self.accepted) {
            self.complain_as("NotAllowed", field, why);
        }
    }

    fn warn(&mut self, field: &str, message: &str) {
        self.warnings.push(format!("{field}: {message}"));
    }

    fn template(&mut self, source: &str, field: &str) -> Option<Template> {
        match Template::parse(source, field) {
            Ok(template) => Some(template),
            Err(why) => {
                self.complain(why.what().to_owned(), why.problem());
                None
            }
        }
    }

    fn agents(&mut self, spec: &WorkflowSpec) -> BTreeMap<String, PlannedAgent> {
        let mut agents = BTreeMap::new();
        for (at, provider) in spec.providers.iter().enumerate() {
            if provider.openai.is_some() == provider.scripted.is_some() {
                self.complain(format!("spec.providers[{at}]"), "a provider is exactly one of openai and scripted");
            }
            self.not_allowed(format!("spec.providers[{at}]"), self.floors.refuses_provider(provider));
        }
        for (at, agent) in spec.agents.iter().enumerate() {
            let field = format!("spec.agents[{at}]");
            let provider = match (&agent.provider, spec.providers.as_slice()) {
                (Some(name), all) => all.iter().find(|p| p.name == *name),
                (None, [only]) => Some(only),
                (None, _) => None,
            };
            let system = agent.system.as_ref().and_then(|source| self.template(source, &format!("{field}.system")));
            let Some(provider) = provider else {
                let names: Vec<_> = spec.providers.iter().map(|p| p.name.as_str()).collect();
                self.complain(
                    format!("{field}.provider"),
                    format!(
                        "name one of spec.providers ({})",
                        if names.is_empty() { "there are none: add one".into() } else { names.join(", ") }
                    ),
                );
                continue;
            };
            if provider.openai.is_some() && agent.model.is_none() {
                self.complain(format!("{field}.model"), format!("provider {} needs a model", provider.name));
            }
            let planned = PlannedAgent { spec: agent.clone(), provider: provider.clone(), system };
            if agents.insert(agent.name.clone(), planned).is_some() {
                self.complain(format!("{field}.name"), format!("{} stands twice: names are unique", agent.name));
            }
        }
        agents
    }
}

#[cfg(test)]
mod tests;
