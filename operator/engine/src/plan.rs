//! The plan of a Workflow. All errors of the author are found here at once, before the first step runs.
//!
//! A plan has no state of a run: it is the same at every transition.

mod after_reject;
mod argument_template;
mod call_gate;
mod gate;
mod gates;
mod gates_ahead;
mod inputs;
mod mcp;
mod numbers;
mod outputs;
mod patterns;
mod planned_agent;
mod planned_step;
mod pod;
mod policy_gates;
mod references;
mod secret_headers;
mod servers;
mod spec_steps;
mod step;
mod tools;
mod validated_answers;
mod validator;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use signoff_api::{
    Digest, RecordPath, Verdict, Workflow, WorkflowSpec,
    conditions::reason,
    digest::{self},
    json_bytes, names,
    policy::{AddedStep, Position},
    tool::Effects,
    tool_rules::CallKind,
    workflow::SpecGateType,
};

use crate::{
    crd_rules,
    field_error::FieldError,
    gate::subject::GateSubject,
    policy::{CallFacts, Policies},
    transition::{Call, CallContent, MAX_GATE_TIMEOUT},
};

use gates::Gates;
use signoff_expr::{Members, Template};
use step::PlanContext;
use validated_answers::ValidatedAnswers;

pub(crate) use after_reject::AGENT as TOLD_AGENT;
pub(crate) use call_gate::CallGate;
pub use gates_ahead::{GateAhead, GatePlace, StepGates};
pub(crate) use outputs::{PlannedArtifact, check_artifact_path};
pub(crate) use patterns::{
    PlannedBranch, PlannedDag, PlannedEdge, PlannedEvaluator, PlannedGraph, PlannedOrchestrator, PlannedParallel,
    PlannedPattern, PlannedRouting, PlannedTask,
};
pub(crate) use planned_agent::PlannedAgent;
pub(crate) use planned_step::{
    Action, PlannedAgentStep, PlannedArguments, PlannedGate, PlannedHttp, PlannedMcp, PlannedOutput, PlannedPod,
    PlannedSecretHeaders, PlannedStep, ToolStanding,
};
pub(crate) use pod::is_quantity;
pub use references::RESERVED;
pub(crate) use servers::{PlannedServer, ServerTools};
pub(crate) use tools::{DefinedBy, PlannedTool, PlannedTools};
pub(crate) use validator::Validator;

/// The default timeout of a gate.
const GATE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The administrator's settings for all runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The default timeout of a gate.
    pub default_gate_timeout: Duration,
    /// The default timeout of a gate before a call of a tool.
    pub default_call_gate_timeout: Duration,
    /// The maximum timeout of a gate.
    pub max_gate_timeout: Duration,
    /// The maximum `timeout` of an http step and of a turn of an agent.
    pub max_call_timeout: Duration,
    /// The maximum size of a spec, inputs included, in bytes.
    pub max_spec_bytes: usize,
    /// Whether servers may be commands. Only local runs allow them, with the consent of the user.
    pub allow_commands: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_gate_timeout: GATE_TIMEOUT,
            default_call_gate_timeout: GATE_TIMEOUT,
            max_gate_timeout: MAX_GATE_TIMEOUT,
            max_call_timeout: Duration::from_secs(3600),
            max_spec_bytes: 512 * 1024,
            allow_commands: false,
        }
    }
}

/// A validated Workflow, ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) created: String,
    /// The number of runs before this run, in the chain in which each run started the next; 0 if no run started it.
    pub(crate) depth: u32,
    pub(crate) requested_by: String,
    pub(crate) requested_for: Option<String>,
    /// The requesters of the earlier runs that this run repeats.
    pub(crate) earlier_requesters: Vec<String>,
    pub(crate) inputs: Map<String, Value>,
    pub(crate) agents: BTreeMap<String, PlannedAgent>,
    pub(crate) tools: PlannedTools,
    /// The gates that policies add before the first step.
    pub(crate) start: Vec<PlannedStep>,
    pub(crate) pattern: PlannedPattern,
    /// The gates that policies add after the last step.
    pub(crate) end: Vec<PlannedStep>,
    pub(crate) outputs: Option<Template>,
    pub(crate) artifacts: Vec<PlannedArtifact>,
    /// The gates before the outputs are released.
    pub(crate) release: Option<PlannedStep>,
    /// The step by which each agent writes a final response again.
    revisers: Vec<PlannedStep>,
    pub(crate) active_deadline: Option<Duration>,
    pub(crate) policies: Arc<Policies>,
    added: Vec<AddedStep>,
    spec_digest: Digest,
    warnings: Vec<String>,
    /// The verdicts that each gate allows, by the field of its `hitl`.
    allowed: BTreeMap<String, Vec<Verdict>>,
    /// The answers that were validated by this plan.
    pub(crate) validated_answers: ValidatedAnswers,
}

impl Plan {
    /// Checks and parses a Workflow under the approval policies of its namespace.
    ///
    /// For an accepted run the gates of policies come from its status, and conflicts with policies are not errors: the
    /// affected gates are blocked when they are about to ask. The rules of the types are evaluated at acceptance only,
    /// because a rule of a newer version must not stop an accepted run. Callers compare [`Plan::spec_digest`] with the
    /// digest that was recorded then, so that the acceptance covers no other spec.
    ///
    /// # Errors
    /// All errors of the author, in the order of the fields.
    pub fn of(workflow: &Workflow, settings: &Settings, policies: &Arc<Policies>) -> Result<Self, Vec<FieldError>> {
        let spec = &workflow.spec;
        let accepted = workflow.status.as_ref().filter(|status| status.spec_digest.is_some());
        if let (None, Some(why)) = (accepted, size_error(spec, settings)) {
            return Err(vec![why]);
        }
        let added = accepted.map_or_else(|| policies.added_steps(), |status| status.added_steps.clone());
        let mut validator = Validator {
            settings,
            policies,
            accepted: accepted.is_some(),
            errors: Vec::new(),
            warnings: Vec::new(),
            allowed: BTreeMap::new(),
        };
        if accepted.is_none() && spec.requested_by.is_empty() {
            let why =
                "the requester is missing: write your own user name, or leave the field out from Kubernetes 1.36 on";
            validator.error("spec.requestedBy", why);
        }
        if accepted.is_none() && spec.steps.len() > MANY_STEPS {
            validator.warn("spec.steps", &many_steps_advice(spec.steps.len()));
        }
        let has_inexact = accepted.is_none() && validator.check_numbers(spec);
        let spec_digest = match spec_digest(spec) {
            Ok(digest) => digest,
            Err(why) => {
                if !has_inexact {
                    validator.error("spec", why.to_string());
                }
                Digest::of_bytes(b"")
            }
        };
        let inputs = inputs::resolve_values(&spec.inputs, &mut validator);
        validator.check_providers(spec);
        let agents = validator.plan_agents(spec);
        let gates = Gates::of(spec);
        let plan = PlanContext { spec, agents: &agents, added: &added, gates: &gates };
        let everywhere = Validator::known_everywhere(spec);
        let mut tools = validator.plan_tools(&plan, &everywhere);
        let mut start = validator.plan_policy_gates(&plan, Position::Start, &everywhere);
        let mut pattern = validator.plan_pattern(&plan);
        let known = pattern.as_ref().map_or(everywhere, |(_, known)| known.clone());
        let shown = known.with("last_response", Members::Open);
        let mut end = validator.plan_policy_gates(&plan, Position::End, &shown);
        let (outputs, artifacts) = validator.plan_outputs(spec, &shown);
        let asked = shown.with("output", Members::Open);
        let revisable = pattern.iter().flat_map(|(pattern, _)| pattern.steps()).any(PlannedStep::is_agent);
        let subject = GateSubject::Final(revisable);
        let release = validator.plan_gate_of_run(&plan, SpecGateType::FinalResponse, ".final", &asked, subject);
        let revisers = if release.is_some() && revisable { validator.plan_revisers(&plan, &asked) } else { Vec::new() };
        validator.check_spec_gates(spec, &gates);
        if let Some((pattern, _)) = &mut pattern {
            validator.set_after_reject(&mut start, pattern, &mut end, &mut tools);
        }
        let steps = pattern.iter().flat_map(|(pattern, _)| pattern.steps());
        validator.check_policy_gates(&added, steps.chain(&start).chain(&end));
        if accepted.is_none() && validator.errors.is_empty() {
            // An error of the plan replaces the error of the type's rule about the same field.
            validator.errors = crd_rules::check_spec(spec);
        }
        let metadata = &workflow.metadata;
        match pattern {
            Some((pattern, _)) if validator.errors.is_empty() => Ok(Self {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: metadata.name.clone().unwrap_or_default(),
                uid: metadata.uid.clone().unwrap_or_default(),
                depth: depth_of(metadata.annotations.as_ref()),
                created: metadata.creation_timestamp.as_ref().map(|t| t.0.to_string()).unwrap_or_default(),
                requested_by: spec.requested_by.clone(),
                requested_for: spec.requested_for.clone(),
                earlier_requesters: spec.rerun_of.iter().flat_map(|rerun| rerun.requesters.clone()).collect(),
                inputs,
                agents,
                tools,
                start,
                pattern,
                end,
                outputs,
                artifacts,
                release,
                revisers,
                active_deadline: spec.active_deadline.map(signoff_api::Span::duration),
                policies: Arc::clone(policies),
                added,
                spec_digest,
                warnings: validator.warnings,
                allowed: validator.allowed,
                validated_answers: ValidatedAnswers::default(),
            }),
            _ => Err(validator.errors),
        }
    }

    /// Returns the step or the gate of the record at a path.
    pub(crate) fn step_of(&self, path: &str) -> Option<&PlannedStep> {
        let planned_path = without_visits(path);
        let of_pattern = self.pattern.steps();
        let of_revisers = self.revisers.iter().flat_map(|reviser| &reviser.policy_gates);
        let mut steps_and_gates =
            of_pattern.into_iter().chain(&self.start).chain(&self.end).chain(&self.release).chain(of_revisers);
        // The step of a tool has one path in the plan, for every agent that calls it.
        match RecordPath::new(&planned_path).place_of_tool() {
            Some(of_tool) => {
                let mut steps = self.tools.tools.values().flat_map(|tool| tool.step.with_its_gates());
                steps.find(|step| step.path == of_tool.as_str()).or_else(|| self.tools.step_of_server(of_tool.as_str()))
            }
            None => steps_and_gates.find(|step| step.path == planned_path),
        }
    }

    /// Returns the servers that are commands. Only local runs start them.
    pub fn commands(&self) -> impl Iterator<Item = &signoff_api::server::Server> {
        self.tools.servers.values().map(|server| &server.spec).filter(|server| !server.command.is_empty())
    }

    /// Whether the record at a path belongs to a call that only reads and about which no gate can ask. If several tools
    /// run the step, the condition holds for all of them.
    pub(crate) fn is_unasked_read(&self, path: &str) -> bool {
        let place = without_visits(path);
        let Some(place) = RecordPath::new(&place).place_of_tool() else { return false };
        let of_step = |tool: &&PlannedTool| tool.step.path == place.as_str();
        let of_servers = self.tools.servers.values().flat_map(PlannedServer::all_cached_tools);
        let mut tools = self.tools.tools.values().chain(of_servers).filter(of_step).peekable();
        tools.peek().is_some() && tools.all(|tool| self.tools.is_unasked_read(tool))
    }

    /// Whether the author of the Workflow wrote the answers of an agent, because its provider is scripted.
    pub(crate) fn is_scripted(&self, agent: &str) -> bool {
        self.agents.get(agent).is_some_and(|agent| agent.is_scripted())
    }

    /// Whether the author of the Workflow wrote the response of the record at a path, because the provider of its agent
    /// is scripted.
    pub(crate) fn has_scripted_response(&self, path: &str) -> bool {
        self.step_of(RecordPath::new(path).step_of_answer().as_str()).is_some_and(|step| step.is_scripted(self))
    }

    /// Returns the position of a record's step among all steps, in the order of declaration.
    pub(crate) fn position_of(&self, path: &str) -> Option<usize> {
        let place = without_visits(path);
        self.pattern.steps().iter().position(|step| step.path == place)
    }

    /// Returns the agents that revise a final response at a path.
    pub(crate) fn revising_agents(&self, path: &str) -> impl Iterator<Item = &str> {
        let place = without_visits(path);
        let here = self.revisers.iter().filter(move |reviser| reviser.path == place);
        here.filter_map(|reviser| match &reviser.action {
            Action::Agent(agent) => Some(agent.agent.as_str()),
            _ => None,
        })
    }

    /// Returns the step by which an agent revises a final response.
    pub(crate) fn reviser_of(&self, step: &PlannedStep) -> Option<&PlannedStep> {
        let agent = |step: &PlannedStep| match &step.action {
            Action::Agent(agent) => Some(agent.agent.clone()),
            _ => None,
        };
        self.revisers.iter().find(|reviser| agent(reviser) == agent(step))
    }

    /// Returns the digest that pins the spec; see [`spec_digest`].
    #[must_use]
    pub fn spec_digest(&self) -> &Digest {
        &self.spec_digest
    }

    /// Returns the gates that policies added.
    #[must_use]
    pub fn added_steps(&self) -> &[AddedStep] {
        &self.added
    }

    /// Returns the paths of the steps that are containers, as declared. Only a cluster runs containers.
    pub fn containers(&self) -> impl Iterator<Item = &str> {
        let of_pods = self.pattern.steps().into_iter().filter(|step| matches!(step.action, Action::Pod(_)));
        of_pods.map(|step| step.path.as_str())
    }

    /// Returns the reason why the policies forbid a call, or `None`.
    #[must_use]
    pub fn refuses(&self, call: &Call) -> Option<String> {
        let forbidden = self.forbids_call(&call.path, |effects| CallFacts::of(&call.content, effects));
        forbidden.or_else(|| match &call.content {
            CallContent::Pod(pod) => self.policies.refuses_container(&pod.spec),
            CallContent::Http(http) => {
                let secrets = http.secret_headers.iter().map(|header| header.entry.secret.as_str());
                self.policies.refuses_url(&http.url).or_else(|| self.policies.refuses_secrets(secrets))
            }
            CallContent::Agent(agent) => self.policies.refuses_provider(&agent.provider, agent.key.as_ref()),
            CallContent::Mcp(mcp) => {
                let url = mcp.url.as_ref().and_then(|url| self.policies.refuses_url(url));
                url.or_else(|| self.policies.refuses_secret(&mcp.key.as_ref()?.secret))
            }
        })
    }

    /// Returns the reason why the policies forbid the text of a `set` step at a path, or `None`.
    pub(crate) fn refuses_text(&self, path: &str) -> Option<String> {
        // The record of an answer is not a call.
        if RecordPath::new(path).last().is_answer() {
            return None;
        }
        self.forbids_call(path, |effects| CallFacts::of_kind(CallKind::Set, effects))
    }

    /// Returns the reason why no agent may make the call at a path, or `None`, also for a step that no tool runs. If
    /// several tools run the step, the call is forbidden if a policy forbids it for one of them.
    fn forbids_call(&self, path: &str, facts: impl Fn(Option<Effects>) -> CallFacts) -> Option<String> {
        let place = without_visits(path);
        // The later turns of an agent, and the request for its answer, are below its step.
        let of_tool =
            RecordPath::new(&place).place_of_tool()?.ancestors().take_while(|path| path.parent().is_some()).last()?;
        if self.tools.step_of_server(of_tool.as_str()).is_some() {
            // A call of a server's tool counts as one that changes something, whatever the server or the author says.
            return self.policies.forbids_call(&facts(None));
        }
        let mut tools = self.tools.tools.values().filter(|tool| tool.step.path == of_tool.as_str());
        tools.find_map(|tool| self.policies.forbids_call(&facts(tool.effects)))
    }

    /// Returns the size of the cached definitions of servers' tools, in bytes. It grows as a run reads catalogues.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.tools.servers.values().map(PlannedServer::cached_bytes).sum()
    }

    /// Returns the number of answers that this plan has validated. It grows while a transition makes progress, also if
    /// the transition is stopped.
    #[must_use]
    pub fn validated_answers(&self) -> usize {
        self.validated_answers.count()
    }

    /// Returns the verdicts that a gate allows, including defaults. `field` names the `hitl` of the gate, such as
    /// `spec.steps[2].hitl`. A gate of several steps has the verdicts that it allows at any of the steps.
    #[must_use]
    pub fn allowed_verdicts(&self, field: &str) -> &[Verdict] {
        self.allowed.get(field).map_or(&[], Vec::as_slice)
    }

    /// Returns warnings about valid but suspicious parts of the spec.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Returns the bytes of a spec as JSON, inputs included.
#[must_use]
pub fn spec_bytes(spec: &WorkflowSpec) -> usize {
    // A spec that cannot be written as JSON is refused elsewhere.
    json_bytes(spec).unwrap_or_default()
}

/// The number of steps above which a warning about their cost is given.
const MANY_STEPS: usize = 200;

/// Returns the number of runs in the chain of runs that started a run, from its annotation. A text that is not a number
/// counts as the maximum.
fn depth_of(annotations: Option<&BTreeMap<String, String>>) -> u32 {
    let written = annotations.and_then(|annotations| annotations.get(names::ANNOTATION_DEPTH));
    written.map_or(0, |depth| depth.parse().unwrap_or(u32::MAX))
}

fn many_steps_advice(steps: usize) -> String {
    format!(
        "it has {steps} steps, and the API server reads all of them at each write of the run: above {MANY_STEPS}, divide \
         the work among several Workflows, or let one step do what several do now"
    )
}

/// Returns an error if a spec is too large, before any part of it is parsed.
fn size_error(spec: &WorkflowSpec, settings: &Settings) -> Option<FieldError> {
    let (bytes, most) = (spec_bytes(spec), settings.max_spec_bytes);
    (bytes > most).then(|| FieldError {
        field: "spec".to_owned(),
        message: format!(
            "it has {bytes} bytes, {} of them in spec.inputs; the maximum is {most}; let a step fetch what is large, or ask an administrator to raise --max-workflow-bytes",
            json_bytes(&spec.inputs).unwrap_or_default()
        ),
        reason: reason::TOO_LARGE,
    })
}

/// Returns the digest of a spec without its three mutable fields.
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

/// Removes visits and counts from a path: `.worker-3#2/.error` becomes `.worker/.error`.
pub(crate) fn without_visits(path: &str) -> String {
    RecordPath::new(path).place().into_string()
}

#[cfg(test)]
mod tests;
