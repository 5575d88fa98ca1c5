//! The planned steps, with every default filled in and every text parsed.
//!
//! Data without checks: the modules about steps, gates and containers make the checks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use signoff_api::{
    Digest, FailureClass, JsonObject, Span, Verdict,
    approval::RequiredBy,
    gate::{Form, PersonRule, Quorum},
    hosts,
    journal::StepRecord,
    pod::PodStep,
    record_path::PLANNED_CALLS,
    sent_method::SentMethod,
    step::{HitlStep, HttpStep, OnError, Retry},
};
use signoff_expr::{Condition, Template};
use url::Url;

use super::{Plan, argument_template::ArgumentTemplate};
use crate::{field_error::FieldError, gate::subject::GateSubject, transition::SentSecret};

/// The maximum number of automatic repetitions of a turn of a model.
const REPEATED_BY_ITSELF: i32 = 3;
/// The default timeout of one attempt of an agent.
pub(super) const AGENT_TIMEOUT: Duration = Duration::from_secs(300);

/// A step of a list, a pattern, a tool or a gate.
#[derive(Clone, Debug)]
pub(crate) struct PlannedStep {
    pub(crate) name: String,
    /// The path of its records without visits: `billing/refund`, `.router`.
    pub(crate) path: String,
    pub(crate) vars: Vec<(String, Template)>,
    /// The step is skipped if the condition holds.
    pub(crate) skip_if: Option<Condition>,
    /// The step is skipped if the condition does not hold.
    pub(crate) only_if: Option<Condition>,
    pub(crate) retry: PlannedRetry,
    pub(crate) timeout: Duration,
    pub(crate) on_error: OnError,
    pub(crate) action: Action,
    /// The validation and review of the step's response; `None` without a schema and a gate.
    pub(crate) output: Option<PlannedOutput>,
    /// The gate about the step's failure, and the number of attempts before the gate asks.
    pub(crate) escalation: Option<(i32, Box<PlannedStep>)>,
    /// Whether people are asked about a failure only if its outcome is unknown.
    pub(crate) escalates_unknown_only: bool,
    /// The policy that added the step. The author's templates do not see it.
    pub(crate) added_by: Option<String>,
    /// The author's gate before the step starts, which shows the step's input.
    pub(crate) start: Option<Box<PlannedStep>>,
    /// The gates that policies put before the step. All of the gates have to approve.
    pub(crate) policy_gates: Vec<PlannedStep>,
    /// Whether the step runs as a tool, and a gate of a policy can ask about its calls.
    pub(crate) has_policy_call_gate: bool,
}

/// The action of a step.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Agent(PlannedAgentStep),
    Pod(Box<PlannedPod>),
    Http(Box<PlannedHttp>),
    Mcp(Box<PlannedMcp>),
    Set(Template),
    Gate(Box<PlannedGate>),
}

/// A turn of an agent.
#[derive(Clone, Debug)]
pub(crate) struct PlannedAgentStep {
    pub(crate) agent: String,
    /// The input; `None` for the agent's own instructions.
    pub(crate) input: Option<Template>,
    /// A constant addition to the input.
    pub(crate) addition: Option<String>,
    pub(crate) fresh: bool,
}

/// One HTTP request.
#[derive(Clone, Debug)]
pub(crate) struct PlannedHttp {
    pub(crate) spec: HttpStep,
    pub(crate) url: Template,
    pub(crate) headers: BTreeMap<String, Template>,
    /// The headers whose values are keys of Secrets, if there are any.
    pub(crate) secrets: Option<PlannedSecretHeaders>,
    pub(crate) body: Option<Template>,
}

/// The headers of a request whose values are keys of Secrets.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSecretHeaders {
    /// Scheme, host and port of all URLs to which they can be sent, followed by `/`.
    pub(crate) origin: Url,
    pub(crate) headers: Vec<SentSecret>,
}

impl PlannedSecretHeaders {
    /// Whether the headers can be sent to a rendered URL, because it has their origin and no credentials.
    pub(crate) fn can_be_sent_to(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| url.origin() == self.origin.origin() && !hosts::has_credentials(&url))
    }
}

/// One call of a tool of an MCP server.
#[derive(Clone, Debug)]
pub(crate) struct PlannedMcp {
    /// The name of the server in the Workflow.
    pub(crate) server: String,
    /// The URL of the server; `None` if the server is a command.
    pub(crate) url: Option<String>,
    /// The name of the tool on the server.
    pub(crate) tool: String,
    pub(crate) arguments: PlannedArguments,
    /// Whether the author of the Workflow declares that the tool changes nothing.
    pub(crate) reads: bool,
    /// The only definition with which the tool is called, because a policy omits its gate for this definition.
    pub(crate) requires: Option<Digest>,
}

/// The arguments of a call of a tool of an MCP server.
#[derive(Clone, Debug)]
pub(crate) enum PlannedArguments {
    /// The arguments that an agent gave, for a tool that its server describes.
    OfAgent(ToolStanding),
    /// The arguments that the author of the Workflow wrote.
    OfAuthor(ArgumentTemplate),
}

/// The definition of a tool of a server, and the rights of its calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolStanding {
    pub(crate) definition: Digest,
    /// Whether the tool changes nothing, as the author declares, or as the server declares if the author trusts that.
    pub(crate) reads: bool,
    /// Whether the author pinned the definition.
    pub(crate) is_pinned: bool,
    /// The whole definition as the server wrote it, only to be shown to people.
    pub(crate) described: Arc<Map<String, Value>>,
}

/// The validation and review of the response of a step.
#[derive(Clone, Debug)]
pub(crate) struct PlannedOutput {
    pub(crate) schema: Option<JsonObject>,
    /// The gate that reviews the response; `None` if an invalid response fails the step.
    pub(crate) gate: Option<Box<PlannedStep>>,
    /// Whether people are asked also about a valid answer.
    pub(crate) always: bool,
}

/// The retry policy of a step.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRetry {
    /// The declared number of retries. If it is `None`, a step is retried only before a gate about its failure asks.
    pub(crate) limit: Option<i32>,
    pub(crate) base: Duration,
    pub(crate) factor: f64,
    pub(crate) max: Duration,
    pub(crate) jitter: f64,
    /// The classes of failures that are retried. If this list and `on_exit_codes` are empty, all failures are retried.
    on_reasons: Vec<String>,
    on_exit_codes: Vec<i32>,
}

impl PlannedStep {
    /// Returns a step with defaults for everything but its name and its action.
    pub(super) fn new(name: &str, action: Action) -> Self {
        Self {
            name: name.to_owned(),
            path: name.to_owned(),
            vars: Vec::new(),
            skip_if: None,
            only_if: None,
            retry: PlannedRetry::of(None),
            timeout: AGENT_TIMEOUT,
            on_error: OnError::Fail,
            action,
            output: None,
            escalation: None,
            escalates_unknown_only: false,
            added_by: None,
            start: None,
            policy_gates: Vec::new(),
            has_policy_call_gate: false,
        }
    }

    /// Whether the step runs as a tool. People can only change its arguments.
    pub(crate) fn is_tool(&self) -> bool {
        self.path.starts_with(PLANNED_CALLS)
    }

    /// Returns the fields that Modify can replace, before the step starts or after it failed.
    pub(super) fn changeable_fields(&self) -> &'static [&'static str] {
        match &self.action {
            _ if self.is_tool() => &[],
            Action::Agent(_) => &["input"],
            Action::Pod(_) => &["image", "memory", "cpu"],
            // A body would turn a read-only request into one that can change something.
            Action::Http(http) if SentMethod::of_step(&http.spec).only_reads() => &["url"],
            Action::Http(_) => &["url", "body"],
            Action::Mcp(_) => &[],
            Action::Set(_) => &["value"],
            Action::Gate(_) => &[],
        }
    }

    /// Returns the required beginning of the URLs of the step, or `None` if it sends no value of a Secret.
    pub(super) fn url_begins(&self) -> Option<String> {
        match &self.action {
            Action::Http(http) => http.secrets.as_ref().map(|secrets| secrets.origin.to_string()),
            Action::Agent(_) | Action::Pod(_) | Action::Mcp(_) | Action::Set(_) | Action::Gate(_) => None,
        }
    }

    /// Sets the required beginning of every URL that Modify can give to the reviewed step.
    pub(super) fn limit_url(&mut self, begins: Option<&String>) {
        if let Action::Gate(gate) = &mut self.action {
            gate.url_begins = begins.cloned();
        }
    }

    /// Whether the step can run twice without harm. If a policy has a gate before the step or before calls of its tool,
    /// the author's declaration does not count, only the kind of the step and the method of its request.
    pub(crate) fn is_idempotent(&self) -> bool {
        let author_says = self.policy_gates.is_empty() && !self.has_policy_call_gate;
        match &self.action {
            Action::Http(http) => {
                http.spec.is_idempotent() && (author_says || SentMethod::of_step(&http.spec).is_idempotent())
            }
            Action::Pod(pod) => author_says && pod.spec.is_idempotent(),
            Action::Mcp(mcp) => author_says && mcp.reads && mcp.requires.is_none(),
            Action::Agent(_) | Action::Set(_) | Action::Gate(_) => true,
        }
    }

    /// Returns the default number of retries before people are asked. A container has none.
    pub(crate) fn default_retry_limit(&self) -> i32 {
        if matches!(self.action, Action::Pod(_)) && !self.is_idempotent() { 0 } else { i32::MAX }
    }

    /// Returns the number of retries before people are asked. Each Retry of a person allows one more attempt.
    pub(crate) fn usual_retries(&self) -> i32 {
        match &self.escalation {
            Some((after, _)) if !self.escalates_unknown_only => {
                self.retry.limit.unwrap_or_else(|| self.default_retry_limit()).min(after - 1)
            }
            _ => self.retry.limit.unwrap_or(0),
        }
    }

    /// Returns how often a failed attempt is repeated automatically. Only the turn of a model is repeated, if the
    /// model's server was busy or lost the request.
    pub(crate) fn repeats_by_itself(&self, plan: &Plan, failed: &StepRecord) -> i32 {
        let is_temporary = failed.error.as_ref().is_some_and(|error| {
            let status = failed.facts.get("statusCode").and_then(|status| status.parse::<u16>().ok());
            let is_busy = status.is_some_and(|status| status == 408 || status == 429 || status >= 500);
            // If a server asks for a longer pause, its turns are not repeated automatically.
            let latest = failed.finished_at.unwrap_or(failed.at).after(self.retry.max);
            let is_soon = error.not_before.is_none_or(|earliest| earliest <= latest);
            error.retryable && is_soon && (is_busy || error.is(FailureClass::Protocol))
        });
        let asks = self.start.is_some() || !self.policy_gates.is_empty();
        let escalates = self.escalation.is_some() && !self.escalates_unknown_only;
        let is_eligible =
            self.is_agent() && !self.is_scripted(plan) && self.retry.limit.is_none() && !asks && !escalates;
        if is_eligible && is_temporary { REPEATED_BY_ITSELF } else { 0 }
    }

    /// Whether the step is a gate.
    pub(crate) fn is_gate(&self) -> bool {
        matches!(self.action, Action::Gate(_))
    }

    /// Whether the step is a turn of an agent.
    pub(crate) fn is_agent(&self) -> bool {
        matches!(self.action, Action::Agent(_))
    }

    /// Whether the step is a turn of an agent with a scripted provider.
    pub(crate) fn is_scripted(&self, plan: &Plan) -> bool {
        matches!(&self.action, Action::Agent(agent) if plan.is_scripted(&agent.agent))
    }

    /// Returns the gate, or `None` for another step.
    pub(crate) fn gate(&self) -> Option<&PlannedGate> {
        match &self.action {
            Action::Gate(gate) => Some(gate),
            _ => None,
        }
    }

    /// Returns the gates of the step, followed by the step itself.
    pub(crate) fn with_its_gates(&self) -> impl Iterator<Item = &Self> {
        let output = self.output.iter().filter_map(|output| output.gate.as_deref());
        let escalation = self.escalation.iter().map(|(_, gate)| &**gate);
        self.policy_gates.iter().chain(self.start.as_deref()).chain(output).chain(escalation).chain([self])
    }
}

impl PlannedRetry {
    pub(super) fn of(retry: Option<&Retry>) -> Self {
        let limit = retry.map(|retry| retry.limit.clamp(0, 20));
        let retry = retry.cloned().unwrap_or_default();
        let backoff = retry.backoff.unwrap_or_default();
        Self {
            limit,
            base: backoff.base.map_or(Duration::from_secs(1), Span::duration),
            factor: backoff.factor.unwrap_or(2.0).clamp(1.0, 10.0),
            max: backoff.max.map_or(Duration::from_secs(300), Span::duration),
            jitter: backoff.jitter.unwrap_or(0.1).clamp(0.0, 1.0),
            on_reasons: retry.on_reasons,
            on_exit_codes: retry.on_exit_codes,
        }
    }

    /// Whether failures of this class or with this exit code are retried.
    pub(crate) fn covers(&self, failed: &StepRecord) -> bool {
        let class = failed.error.as_ref().map(|error| &error.class);
        let code = failed.facts.get("exitCode").and_then(|code| code.parse::<i32>().ok());
        let all = self.on_reasons.is_empty() && self.on_exit_codes.is_empty();
        all || class.is_some_and(|class| self.on_reasons.contains(class))
            || code.is_some_and(|code| self.on_exit_codes.contains(&code))
    }
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) struct PlannedPod {
    pub(crate) spec: PodStep,
    /// Environment variables by name.
    pub(crate) env: BTreeMap<String, Template>,
    /// Files, by path.
    pub(crate) files: BTreeMap<String, Template>,
}

/// A gate with every default set and all policies merged into it.
#[derive(Clone, Debug)]
pub(crate) struct PlannedGate {
    pub(crate) spec: HitlStep,
    pub(crate) prompt: Template,
    pub(crate) context: Option<Template>,
    /// The prompts and contexts of the gates that were merged into this gate.
    pub(crate) merged: Vec<(Template, Option<Template>)>,
    /// A text that the request shows without rendering: the definition of the step before which a policy added the
    /// gate.
    pub(crate) shows: Option<String>,
    pub(crate) subject: GateSubject,
    pub(crate) allowed: Vec<Verdict>,
    pub(crate) form: Option<Form>,
    pub(crate) after: Duration,
    pub(crate) stops_on_reject: bool,
    /// The quorums that policies demand in addition to the gate's own.
    pub(crate) policy_quorums: Vec<Quorum>,
    pub(crate) persons: Vec<PersonRule>,
    pub(crate) required_by: Vec<RequiredBy>,
    /// The conflict with policies because of which the gate does not ask, or `None`.
    pub(crate) blocked: Option<FieldError>,
    /// The field of the spec that declares the gate, for errors.
    pub(crate) field: String,
    /// The steps at which the run may continue after a Reject; empty if a Reject ends the run.
    pub(crate) after_reject: Vec<String>,
    /// The policies that demand that a Reject ends the run.
    pub(crate) ends_on_reject: Vec<String>,
    /// Whether a policy excludes the people who changed the reviewed text.
    pub(crate) excludes_editors: bool,
    /// The time within which all votes of a quorum must be given, if policies demand one.
    pub(crate) max_vote_age: Option<Span>,
    /// The gates that were merged into this gate: the name of each, and the gates whose deciders it excludes.
    pub(crate) merged_gates: Vec<(String, Vec<String>)>,
    /// The required beginning of every URL that Modify can give to the reviewed step; `None` if the step sends no value
    /// of a Secret.
    pub(crate) url_begins: Option<String>,
}

impl PlannedGate {
    /// Returns the position of the reviewed step in its list.
    pub(crate) fn reviews(&self) -> Option<usize> {
        match self.subject {
            GateSubject::Step(at) => at,
            _ => None,
        }
    }
}
