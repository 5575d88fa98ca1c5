//! The steps of a plan: parsed, with every default filled in and every name known to exist.
//!
//! Nothing here renders: a plan holds templates, a turn holds texts.

use std::{collections::BTreeMap, time::Duration};

use signoff_api::{
    Span,
    floor::AddedStep,
    step::{AgentStep, Conversation, HttpStep, OnError, Step},
    workflow::WorkflowSpec,
};

use super::{Check, PlannedAgent, PlannedGate, added::Placed};
use crate::{
    floors,
    language::{Condition, Known, Template},
    scope::RESERVED,
};

/// One step of a list.
#[derive(Clone, Debug)]
pub(crate) struct PlannedStep {
    pub(crate) name: String,
    pub(crate) vars: Vec<(String, Template)>,
    pub(crate) skip_if: Option<Condition>,
    pub(crate) retry: PlannedRetry,
    pub(crate) timeout: Duration,
    pub(crate) on_error: OnError,
    pub(crate) action: Action,
    /// Whether a floor added it: the author's templates do not see it.
    pub(crate) added: bool,
    /// Whether it was added before the next step of its list, which never begins without it.
    pub(crate) guards: bool,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Agent(PlannedAgentStep),
    Http(PlannedHttp),
    Set(Template),
    Gate(Box<PlannedGate>),
}

/// A turn of an agent.
#[derive(Clone, Debug)]
pub(crate) struct PlannedAgentStep {
    pub(crate) agent: String,
    pub(crate) input: Template,
    pub(crate) fresh: bool,
}

/// One HTTP request.
#[derive(Clone, Debug)]
pub(crate) struct PlannedHttp {
    pub(crate) spec: HttpStep,
    pub(crate) url: Template,
    pub(crate) headers: BTreeMap<String, Template>,
    pub(crate) body: Option<Template>,
}

/// How often and how fast a failed step is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedRetry {
    pub(crate) limit: i32,
    pub(crate) base: Duration,
    pub(crate) factor: f64,
    pub(crate) max: Duration,
    pub(crate) jitter: f64,
}

impl PlannedStep {
    /// Whether running it twice does no harm.
    pub(crate) fn is_idempotent(&self) -> bool {
        match &self.action {
            Action::Http(http) => http.spec.is_idempotent(),
            Action::Agent(_) | Action::Set(_) | Action::Gate(_) => true,
        }
    }
}

/// Where a step stands while it is checked.
pub(super) struct Place<'a> {
    pub(super) spec: &'a WorkflowSpec,
    pub(super) agents: &'a BTreeMap<String, PlannedAgent>,
    /// The steps before it in its list.
    pub(super) earlier: &'a [PlannedStep],
    pub(super) known: Known,
    pub(super) field: String,
    /// The policy that added it.
    pub(super) added_by: Option<&'a str>,
    /// The step that it was added before.
    pub(super) guarded: Option<&'a Step>,
}

impl Place<'_> {
    fn field(&self, part: &str) -> String {
        format!("{}.{part}", self.field)
    }
}

impl Check<'_> {
    /// The steps of a chain with those that floors added, and the template of the run's output.
    pub(super) fn chain(
        &mut self,
        spec: &WorkflowSpec,
        agents: &BTreeMap<String, PlannedAgent>,
        added: &[AddedStep],
    ) -> (Vec<PlannedStep>, Option<Template>) {
        let Some(chain) = &spec.pattern.chain else {
            self.complain("spec.pattern", "a pattern is needed: give chain");
            return (Vec::new(), None);
        };
        if chain.steps.is_empty() {
            self.complain("spec.pattern.chain.steps", "a chain needs at least one step");
        }
        let steps = self.list(spec, agents, &chain.steps, "spec.pattern.chain.steps", added);
        let outputs = spec.outputs.as_ref().and_then(|outputs| outputs.from.as_ref()).and_then(|source| {
            let known = Self::known_at(spec, &chain.steps, chain.steps.len());
            self.known_template(source, "spec.outputs.from", &known)
        });
        (steps, outputs)
    }

    /// A list of steps, one after the other, with the gates that floors add to it.
    fn list(
        &mut self,
        spec: &WorkflowSpec,
        agents: &BTreeMap<String, PlannedAgent>,
        steps: &[Step],
        field: &str,
        added: &[AddedStep],
    ) -> Vec<PlannedStep> {
        let mut earlier: Vec<PlannedStep> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for placed in self.with_added(steps, field, added) {
            let Placed { step, field, at, added_by, guarded } = placed;
            if names.contains(&step.name) {
                match added_by {
                    None => {
                        self.complain(format!("{field}.name"), format!("{} stands twice: names are unique", step.name));
                    }
                    Some(source) => self.complain_as(
                        "FloorsContradict",
                        field.clone(),
                        format!(
                            "{source} adds a gate named {}, and there is a step of that name: give one of them another",
                            step.name
                        ),
                    ),
                }
            }
            names.push(step.name.clone());
            let known = Self::known_at(spec, steps, at);
            let place = Place { spec, agents, earlier: &earlier, known, field, added_by, guarded };
            if let Some(step) = self.step(&step, &place) {
                earlier.push(step);
            }
        }
        earlier
    }

    fn step(&mut self, step: &Step, place: &Place<'_>) -> Option<PlannedStep> {
        if !is_dns_label(&step.name) {
            self.complain(
                place.field("name"),
                "a step's name has 1 to 63 lower-case letters, digits and `-`, and starts and ends with a letter or digit",
            );
        }
        let kinds = [step.agent.is_some(), step.http.is_some(), step.set.is_some(), step.hitl.is_some()];
        if kinds.into_iter().filter(|given| *given).count() != 1 {
            let message = format!("step {} does exactly one thing: give one of agent, http, set and hitl", step.name);
            self.complain(&place.field, message);
        }
        if step.on_error == Some(OnError::Escalate) {
            self.complain(place.field("onError"), "escalate is not supported yet: use fail or continue");
        }
        let vars = self.vars(step, place);
        let known = Self::with_vars(place.known.clone(), step);
        let place = &Place { known, field: place.field.clone(), ..*place };
        let skip_if =
            step.skip_if.as_ref().and_then(|source| self.condition(source, &place.field("skipIf"), &place.known));
        let action = self.action(step, place)?;
        let usual = Duration::from_secs(if step.agent.is_some() { 300 } else { 30 });
        Some(PlannedStep {
            name: step.name.clone(),
            vars,
            skip_if,
            retry: PlannedRetry::of(step),
            timeout: step.timeout.map_or(usual, Span::duration),
            on_error: step.on_error.unwrap_or_default(),
            action,
            added: place.added_by.is_some(),
            guards: place.guarded.is_some(),
        })
    }

    fn vars(&mut self, step: &Step, place: &Place<'_>) -> Vec<(String, Template)> {
        let mut vars = Vec::new();
        for (name, source) in &step.vars {
            let field = place.field(&format!("vars.{name}"));
            if RESERVED.contains(&name.as_str()) || !is_identifier(name) {
                self.complain(
                    &field,
                    "a variable's name has letters, digits and `_` and is none that templates know already",
                );
            }
            if let Some(template) = self.known_template(source, &field, &place.known) {
                vars.push((name.clone(), template));
            }
        }
        vars
    }

    fn action(&mut self, step: &Step, place: &Place<'_>) -> Option<Action> {
        if let Some(agent) = &step.agent {
            self.agent_step(agent, place).map(Action::Agent)
        } else if let Some(http) = &step.http {
            self.http_step(http, place).map(Action::Http)
        } else if let Some(set) = &step.set {
            self.known_template(&set.value, &place.field("set.value"), &place.known).map(Action::Set)
        } else {
            let gate = self.gate(step.hitl.as_ref()?, &place.field("hitl"), place)?;
            Some(Action::Gate(Box::new(gate)))
        }
    }

    fn agent_step(&mut self, agent: &AgentStep, place: &Place<'_>) -> Option<PlannedAgentStep> {
        match place.agents.get(&agent.name) {
            Some(planned) => {
                if let Some(system) = &planned.system {
                    let field = format!("{} (the system prompt of {})", place.field("agent.name"), agent.name);
                    self.references(system.references(), &place.known, &field);
                }
            }
            None => {
                let names: Vec<_> = place.agents.keys().map(String::as_str).collect();
                let message = format!("no agent is named {}; spec.agents has: {}", agent.name, names.join(", "));
                self.complain(place.field("agent.name"), message);
            }
        }
        let input = self.known_template(&agent.input, &place.field("agent.input"), &place.known)?;
        let fresh = agent.conversation == Some(Conversation::Fresh);
        Some(PlannedAgentStep { agent: agent.name.clone(), input, fresh })
    }

    fn http_step(&mut self, http: &HttpStep, place: &Place<'_>) -> Option<PlannedHttp> {
        let refused = floors::fixed_host(&http.url).and_then(|url| self.floors.refuses_url(url));
        self.not_allowed(place.field("http.url"), refused);
        let url = self.known_template(&http.url, &place.field("http.url"), &place.known);
        let mut headers = BTreeMap::new();
        for (name, source) in &http.headers {
            let field = place.field(&format!("http.headers.{name}"));
            if let Some(template) = self.known_template(source, &field, &place.known) {
                headers.insert(name.clone(), template);
            }
        }
        let body = match &http.body {
            Some(source) => Some(self.known_template(source, &place.field("http.body"), &place.known)?),
            None => None,
        };
        Some(PlannedHttp { spec: http.clone(), url: url?, headers, body })
    }

    /// A template whose every name is known.
    pub(super) fn known_template(&mut self, source: &str, field: &str, known: &Known) -> Option<Template> {
        let template = self.template(source, field)?;
        self.references(template.references(), known, field);
        Some(template)
    }

    /// A condition whose every name is known.
    fn condition(&mut self, source: &str, field: &str, known: &Known) -> Option<Condition> {
        match Condition::parse(source, field) {
            Ok(condition) => {
                self.references(&condition.references(), known, field);
                Some(condition)
            }
            Err(why) => {
                self.complain(field, why.problem());
                None
            }
        }
    }
}

impl PlannedRetry {
    fn of(step: &Step) -> Self {
        let retry = step.retry.clone().unwrap_or_default();
        let backoff = retry.backoff.unwrap_or_default();
        Self {
            limit: retry.limit.clamp(0, 20),
            base: backoff.base.map_or(Duration::from_secs(1), Span::duration),
            factor: backoff.factor.unwrap_or(2.0).clamp(1.0, 10.0),
            max: backoff.max.map_or(Duration::from_secs(300), Span::duration),
            jitter: backoff.jitter.unwrap_or(0.1).clamp(0.0, 1.0),
        }
    }
}

fn is_dns_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len()) && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_identifier(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.starts_with(|c: char| c.is_ascii_digit())
}
