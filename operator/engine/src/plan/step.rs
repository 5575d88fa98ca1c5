//! The steps of a plan: parsed, with every default filled in and every name checked.
//!
//! Nothing is rendered here: a plan holds templates, a transition renders them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use signoff_api::{
    Span, hosts, names,
    policy::AddedStep,
    step::{AgentStep, Conversation, HttpStep, Step},
    workflow::{Input, InputType, WorkflowSpec},
};
use signoff_expr::{Condition, Known, ReadProblem, Template, is_identifier};
use url::Url;

use super::{
    Action, PlannedAgent, PlannedAgentStep, PlannedHttp, PlannedStep, Validator,
    gates::Gates,
    planned_step::{AGENT_TIMEOUT, PlannedRetry},
    references::RESERVED,
    spec_steps::SpecStep,
};

use crate::{policy, schema::Schema};

/// The default timeout of one attempt of a container.
const POD_TIMEOUT: Duration = Duration::from_secs(3600);

/// The parts of the spec that every list of steps is checked against.
#[derive(Clone)]
pub(super) struct PlanContext<'a> {
    pub(super) spec: &'a WorkflowSpec,
    pub(super) agents: &'a BTreeMap<String, PlannedAgent>,
    pub(super) added: &'a [AddedStep],
    pub(super) gates: &'a Gates<'a>,
}

/// The position of a step while it is checked.
pub(super) struct StepContext<'a> {
    pub(super) plan: &'a PlanContext<'a>,
    /// The earlier steps that a gate can review, with their positions, in the order in which they run.
    pub(super) earlier: Vec<(usize, &'a PlannedStep)>,
    pub(super) known: Known,
    /// The field of the spec that declares the step, for errors.
    pub(super) field: String,
    /// The prefix of the paths of its list in the journal: empty, or `billing/`.
    pub(super) prefix: &'a str,
    /// The policy that added the step.
    pub(super) added_by: Option<&'a str>,
    /// For a gate that a policy added before a step: the step, and the fields of the step that Modify can change.
    pub(super) before: Option<(&'a Step, &'static [&'static str])>,
    /// Whether a gate here can review a joined result.
    pub(super) result: bool,
    /// Whether the step stands for all tools of a server, whose definitions are in the catalogue.
    pub(super) is_of_server: bool,
}

impl<'a> StepContext<'a> {
    pub(super) fn new(plan: &'a PlanContext<'a>, field: impl Into<String>, prefix: &'a str, known: Known) -> Self {
        Self {
            plan,
            earlier: Vec::new(),
            known,
            field: field.into(),
            prefix,
            added_by: None,
            before: None,
            result: false,
            is_of_server: false,
        }
    }

    /// Returns the same context for the step of all tools of a server.
    pub(super) fn of_server(self) -> Self {
        Self { is_of_server: true, ..self }
    }

    pub(super) fn field(&self, part: &str) -> String {
        format!("{}.{part}", self.field)
    }
}

impl Validator<'_> {
    /// Plans a list of steps, one after the other. `base` are the names from outside of the list.
    pub(super) fn plan_list(
        &mut self,
        plan: &PlanContext<'_>,
        steps: &[SpecStep<'_>],
        prefix: &str,
        base: &Known,
    ) -> Vec<PlannedStep> {
        self.check_unique_steps(steps);
        let mut planned: Vec<PlannedStep> = Vec::new();
        for (at, spec_step) in steps.iter().enumerate() {
            let known = Self::known_in_list(base, steps, at);
            let mut context = StepContext::new(plan, &spec_step.field, prefix, known);
            context.earlier = planned.iter().enumerate().collect();
            let is_chain = prefix.is_empty();
            let remedy =
                if is_chain { "add `pattern: {dag: {}}`, or leave dependsOn out" } else { "leave dependsOn out" };
            self.check_no_dependencies(spec_step, remedy);
            if let Some(step) = self.plan_step(spec_step.step, &context) {
                planned.push(step);
            }
        }
        planned
    }

    /// Reports `dependsOn` outside of a dag.
    pub(super) fn check_no_dependencies(&mut self, spec_step: &SpecStep<'_>, remedy: &str) {
        if !spec_step.step.depends_on.is_empty() {
            let message = format!("only the steps of a dag depend on each other: {remedy}");
            self.error(format!("{}.dependsOn", spec_step.field), message);
        }
    }

    /// Reports duplicate names.
    pub(super) fn check_unique<'n>(&mut self, names: impl Iterator<Item = &'n str>, field: &str) {
        let mut seen = std::collections::BTreeSet::new();
        for (at, name) in names.enumerate() {
            if !seen.insert(name) {
                self.error(format!("{field}[{at}].name"), format!("duplicate name {name}: names must be unique"));
            }
        }
    }

    /// Plans a step with its gates. Returns `None` if its action has an error.
    pub(super) fn plan_step(&mut self, step: &Step, context: &StepContext<'_>) -> Option<PlannedStep> {
        self.check_name(&step.name, &context.field("name"));
        let kinds = [
            step.agent.is_some(),
            step.pod.is_some(),
            step.http.is_some(),
            step.mcp.is_some(),
            step.set.is_some(),
            step.hitl.is_some(),
        ];
        if kinds.into_iter().filter(|given| *given).count() != 1 {
            let message = format!("step {} needs exactly one of agent, pod, http, mcp, set and hitl", step.name);
            self.error(&context.field, message);
        }
        let vars = self.plan_vars(step, context);
        let known = Self::with_vars(context.known.clone(), step);
        let context =
            &StepContext { known, field: context.field.clone(), earlier: context.earlier.clone(), ..*context };
        let consequence = if step.hitl.is_some() { "the gate then asks" } else { "the step then fails" };
        let skip_if = step
            .skip_if
            .as_ref()
            .and_then(|source| self.parse_condition(source, &context.field("skipIf"), &context.known, consequence));
        if let Some(schema) = &step.output_schema
            // An accepted run continues: an answer that cannot be validated fails on its own.
            && !self.accepted
            && let Err(why) = Schema::compile(schema)
        {
            self.error(context.field("outputSchema"), why);
        }
        let action = self.plan_action(step, context)?;
        if step.pod.is_none() && step.retry.as_ref().is_some_and(|retry| !retry.on_exit_codes.is_empty()) {
            self.error(context.field("retry.onExitCodes"), "only containers have exit codes: use onReasons");
        }
        let usual = match &action {
            Action::Agent(_) => AGENT_TIMEOUT,
            Action::Pod(_) => POD_TIMEOUT,
            _ => Duration::from_secs(30),
        };
        if matches!(action, Action::Agent(_) | Action::Http(_) | Action::Mcp(_)) {
            self.check_call_timeout(step.timeout, &context.field("timeout"));
        }
        let mut planned = PlannedStep {
            path: format!("{}{}", context.prefix, step.name),
            vars,
            skip_if,
            only_if: None,
            escalates_unknown_only: false,
            retry: PlannedRetry::of(step.retry.as_ref()),
            timeout: step.timeout.map_or(usual, Span::duration),
            on_error: step.on_error.unwrap_or_default(),
            added_by: context.added_by.map(str::to_owned),
            ..PlannedStep::new(&step.name, action)
        };
        self.add_spec_gates(&mut planned, step.output_schema.clone(), context);
        if context.added_by.is_none() {
            self.add_policy_gates(&mut planned, step, context);
        }
        self.check_mcp_is_asked(&planned, context);
        Some(planned)
    }

    /// Refuses a `timeout` of a call above the operator's maximum. An accepted run keeps its spec: the operator
    /// shortens the timeout of its calls.
    pub(super) fn check_call_timeout(&mut self, timeout: Option<Span>, field: &str) {
        let (given, most) = (timeout.map(Span::duration).unwrap_or_default(), self.settings.max_call_timeout);
        if given > most && !self.accepted {
            let (given, most) = (Span::from(given), Span::from(most));
            let message = format!(
                "{given} is longer than a call may take: give at most {most}, or ask an administrator to raise --max-call-timeout"
            );
            self.error(field, message);
        }
    }

    /// Reports a name that is not a label of Kubernetes.
    pub(super) fn check_name(&mut self, name: &str, field: &str) {
        if !names::is_label(name) {
            self.error(
                field,
                "a name has 1 to 63 lower-case letters, digits and `-`, and starts and ends with a letter or digit",
            );
        }
    }

    fn plan_vars(&mut self, step: &Step, context: &StepContext<'_>) -> Vec<(String, Template)> {
        let mut vars = Vec::new();
        for (name, source) in &step.vars {
            let field = context.field(&format!("vars.{name}"));
            if RESERVED.contains(&name.as_str()) || !is_identifier(name) {
                self.error(
                    &field,
                    "a variable's name has letters, digits and `_`, and must not be a name that templates define",
                );
            }
            if let Some(template) = self.parse_known_template(source, &field, &context.known) {
                vars.push((name.clone(), template));
            }
        }
        vars
    }

    fn plan_action(&mut self, step: &Step, context: &StepContext<'_>) -> Option<Action> {
        if let Some(agent) = &step.agent {
            self.plan_agent_step(agent, context).map(Action::Agent)
        } else if let Some(pod) = &step.pod {
            self.plan_pod_step(pod, context).map(|pod| Action::Pod(Box::new(pod)))
        } else if let Some(http) = &step.http {
            self.plan_http_step(http, context).map(Action::Http)
        } else if let Some(mcp) = &step.mcp {
            self.plan_mcp_step(mcp, context).map(|mcp| Action::Mcp(Box::new(mcp)))
        } else if let Some(set) = &step.set {
            self.parse_known_template(&set.value, &context.field("set.value"), &context.known).map(Action::Set)
        } else {
            let gate = self.plan_gate_step(step.hitl.as_ref()?, &context.field("hitl"), context)?;
            Some(Action::Gate(Box::new(gate)))
        }
    }

    /// Reports an unknown agent, and names in its instructions that do not exist here.
    pub(super) fn check_agent(&mut self, name: &str, field: &str, context: &StepContext<'_>) {
        match context.plan.agents.get(name) {
            Some(planned) => {
                if let Some(system) = &planned.system {
                    let field = format!("{field} (the system prompt of {name})");
                    self.check_references(system.references(), &context.known, &field);
                }
            }
            None => {
                let names: Vec<_> = context.plan.agents.keys().map(String::as_str).collect();
                let names = if names.is_empty() { "no agents".to_owned() } else { names.join(", ") };
                self.error(field, format!("no agent is named {name}; spec.agents has {names}"));
            }
        }
    }

    fn plan_agent_step(&mut self, agent: &AgentStep, context: &StepContext<'_>) -> Option<PlannedAgentStep> {
        self.check_agent(&agent.name, &context.field("agent.name"), context);
        let input = self.parse_known_template(&agent.input, &context.field("agent.input"), &context.known)?;
        let fresh = agent.conversation == Some(Conversation::Fresh);
        Some(PlannedAgentStep { agent: agent.name.clone(), input: Some(input), addition: None, fresh })
    }

    fn plan_http_step(&mut self, http: &HttpStep, context: &StepContext<'_>) -> Option<Box<PlannedHttp>> {
        let fixed = policy::fixed_host(&http.url);
        self.report_forbidden(context.field("http.url"), fixed.and_then(|url| self.policies.refuses_url(url)));
        // An accepted run continues: the call fails on its own.
        if !self.accepted && fixed.and_then(|url| Url::parse(url).ok()).is_some_and(|url| hosts::has_credentials(&url))
        {
            self.error(
                context.field("http.url"),
                "it has a user name or a password: leave them out, and send a key by `secretHeaders`",
            );
        }
        let url = self.parse_known_template(&http.url, &context.field("http.url"), &context.known);
        let mut headers = BTreeMap::new();
        for (name, source) in &http.headers {
            let field = context.field(&format!("http.headers.{name}"));
            if let Some(template) = self.parse_known_template(source, &field, &context.known) {
                headers.insert(name.clone(), template);
            }
        }
        let secrets = self.plan_secret_headers(http, context);
        let body = match &http.body {
            Some(source) => Some(self.parse_known_template(source, &context.field("http.body"), &context.known)?),
            None => None,
        };
        let is_no_text = |input: &Input| !matches!(input.type_, None | Some(InputType::String));
        let is_plain = |expression: &str| {
            let name = expression.strip_prefix("inputs.").unwrap_or_default();
            context.plan.spec.inputs.iter().any(|input| input.name == name && is_no_text(input))
        };
        for advice in body.iter().flat_map(|body| body.json_advice(is_plain)) {
            self.warn(&context.field("http.body"), &advice);
        }
        Some(Box::new(PlannedHttp { spec: http.clone(), url: url?, headers, secrets, body }))
    }

    /// Parses a template, and checks its names.
    pub(super) fn parse_known_template(&mut self, source: &str, field: &str, known: &Known) -> Option<Template> {
        let template = self.parse_template(source, field)?;
        self.check_references(template.references(), known, field);
        Some(template)
    }

    /// Parses a condition, checks its names, and reports or warns of values that it cannot read. `consequence` is the
    /// part of the message about a condition that cannot be evaluated.
    pub(super) fn parse_condition(
        &mut self,
        source: &str,
        field: &str,
        known: &Known,
        consequence: &str,
    ) -> Option<Condition> {
        match Condition::parse(source, field) {
            Ok(condition) => {
                self.check_references(&condition.references(), known, field);
                // An accepted run continues: a condition that cannot be evaluated fails on its own.
                let problems =
                    if self.accepted { BTreeSet::new() } else { condition.read_problems(known, consequence) };
                for ReadProblem { is_certain, problem } in problems {
                    match is_certain {
                        true => self.error(field, problem),
                        false => self.warn(field, &problem),
                    }
                }
                Some(condition)
            }
            Err(why) => {
                self.error(field, why.problem());
                None
            }
        }
    }
}
