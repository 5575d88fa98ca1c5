//! The tools of a plan and the gates before them, checked so that no error of the author can reach a model.
//!
//! `call_gate.rs` has the gates before tools, and `steps/agent/gating.rs` decides whether a call runs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use signoff_api::{
    Digest, JsonObject, catalogue,
    gate::{GateType, TimeoutAction},
    record_path::{LONGEST_CALL, PLANNED_CALLS},
    sent_method::SentMethod,
    step::OnError,
    tool::{Effects, Tool},
    tool_rules::CallKind,
    workflow::{Agent, Gate, SpecGateType, WorkflowSpec},
};
use signoff_expr::{Condition, Known, Members};

use super::{
    Action, PlannedServer, PlannedStep, Validator,
    call_gate::{CallGate, CallGateRule, approves_unasked},
    references,
    step::{PlanContext, StepContext},
};

use crate::{
    gate::subject::GateSubject,
    policy::{self, CallFacts},
    schema::Schema,
    tools::{
        self,
        lists::{Selection, ToolList},
        names,
        rule::{CallRule, RuledTool},
    },
};

/// The maximum depth of agents that call agents.
const MOST_NESTED: usize = 4;
/// The maximum length of the path of a record, in bytes.
const LONGEST_PATH: usize = 512;

/// A tool of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedTool {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The JSON Schema of its arguments.
    pub(crate) parameters: JsonObject,
    /// The declared effects; `None` if they are unknown, also for a declared `read` of a request that can change
    /// something.
    pub(crate) effects: Option<Effects>,
    /// Whether the author declares that an equal call can be made again.
    pub(crate) repeatable: bool,
    /// The digest of the tool and its step as the author wrote them, or of the definition by the server.
    pub(crate) definition: Digest,
    pub(crate) defined_by: DefinedBy,
    /// The step of the tool. It runs only with a permission of the gates.
    pub(crate) step: PlannedStep,
}

/// The origin of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefinedBy {
    /// A tool of `spec.tools`.
    Author,
    /// A tool of a server. `is_pinned` says whether the author reviewed its definition.
    Server { is_pinned: bool },
}

impl PlannedTool {
    /// Returns the facts that the rules of gates read.
    pub(super) fn ruled(&self) -> RuledTool<'_> {
        let is_pinned = match self.defined_by {
            DefinedBy::Author => None,
            DefinedBy::Server { is_pinned } => Some(is_pinned),
        };
        RuledTool { name: &self.name, effects: self.effects, is_pinned }
    }

    /// Returns the effects of a call; unknown effects count as irreversible.
    pub(crate) fn effects(&self) -> Effects {
        self.effects.unwrap_or(Effects::Irreversible)
    }

    /// Whether an equal call can be made again without people. The author's declaration does not count if a policy has
    /// a gate.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable && !self.step.has_policy_call_gate && self.step.policy_gates.is_empty()
    }

    /// Returns the facts that are the same for all calls of the tool. A fact that depends on the call is unknown.
    pub(crate) fn facts(&self) -> CallFacts {
        let of_kind = |kind| CallFacts::of_kind(kind, self.effects);
        let is_literal = |image: &String| !["{{", "{%", "{#"].iter().any(|mark| image.contains(mark));
        match &self.step.action {
            Action::Agent(_) => of_kind(CallKind::Agent),
            Action::Pod(pod) => {
                let images = pod.spec.images();
                CallFacts { images: images.iter().all(is_literal).then_some(images), ..of_kind(CallKind::Pod) }
            }
            Action::Http(http) => CallFacts {
                sent: Some(SentMethod::of_step(&http.spec)),
                url: policy::fixed_host(&http.spec.url).map(str::to_owned),
                ..of_kind(CallKind::Http)
            },
            Action::Mcp(mcp) => CallFacts {
                url: mcp.url.clone(),
                server_tool: Some(mcp.tool.clone()).filter(|tool| !tool.is_empty()),
                ..of_kind(CallKind::Mcp)
            },
            Action::Set(_) | Action::Gate(_) => of_kind(CallKind::Set),
        }
    }
}

/// The tools and gates of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedTools {
    pub(crate) tools: BTreeMap<String, PlannedTool>,
    /// The gates of policies, followed by those of the Workflow in its order.
    pub(crate) gates: Vec<CallGate>,
    /// The gate for questions of agents.
    pub(crate) question: Option<PlannedStep>,
    /// The servers whose tools agents and steps may call, by name.
    pub(crate) servers: BTreeMap<String, PlannedServer>,
}

impl PlannedTools {
    /// Whether a gate can ask about a call or a question of an agent, or about the step of a tool.
    pub(super) fn can_ask(&self) -> bool {
        let has_gate = |tool: &PlannedTool| tool.step.with_its_gates().nth(1).is_some();
        let of_servers = || self.servers.values().map(PlannedServer::any_tool).any(|tool| has_gate(&tool));
        self.question.is_some() || !self.gates.is_empty() || self.tools.values().any(has_gate) || of_servers()
    }

    /// Whether a call of a tool only reads, by its HTTP method, and no gate of the Workflow or of a policy can ask
    /// about it.
    pub(super) fn is_unasked_read(&self, tool: &PlannedTool) -> bool {
        let facts = tool.facts();
        // For a tool of a server the author's declaration counts, not the server's annotations.
        let is_read = facts.sent.as_ref().is_some_and(SentMethod::only_reads)
            || matches!(&tool.step.action, Action::Mcp(mcp) if mcp.reads);
        let only_reads = tool.effects == Some(Effects::Read) && is_read;
        let has_gate = || tool.step.start.is_some() || !tool.step.policy_gates.is_empty();
        let is_asked = || has_gate() || self.gates.iter().any(|gate| gate.reason(tool, &facts).is_some());
        only_reads && !is_asked()
    }
}

impl Validator<'_> {
    /// Returns the names of the tools that an agent may call. Reports entries that name no tool.
    pub(super) fn resolve_tools(&mut self, spec: &WorkflowSpec, agent: &Agent, field: &str) -> Vec<String> {
        for (at, entry) in agent.tools.iter().enumerate() {
            let list = ToolList::of(std::slice::from_ref(entry));
            let is_known = spec.tools.iter().any(|tool| matches!(list.selects(&tool.name), Selection::Listed(_)))
                || self.check_tool_of_server(spec, entry, &format!("{field}.tools[{at}]"));
            if entry.starts_with('!') || !(is_known || names::is_built_in(entry)) {
                let hint = self.did_you_mean(entry, spec.tools.iter().map(|tool| tool.name.as_str()));
                let message = format!(
                    "there is no tool {entry}: name tools of spec.tools or of a server, globs that match some, or {}{hint}",
                    names::ASK_HUMAN
                );
                self.error(format!("{field}.tools[{at}]"), message);
            }
        }
        tools::offered(spec, agent).into_iter().map(str::to_owned).collect()
    }

    /// Plans the tools and the gates before them.
    pub(super) fn plan_tools(&mut self, plan: &PlanContext<'_>, everywhere: &Known) -> PlannedTools {
        let spec = plan.spec;
        self.check_unique(spec.tools.iter().map(|tool| tool.name.as_str()), "spec.tools");
        let built_in = |tool: &&Tool| names::is_reserved(&tool.name);
        for tool in spec.tools.iter().filter(built_in) {
            self.error("spec.tools", format!("{} is the name of a built-in tool: choose another", tool.name));
        }
        let tool_names = spec.tools.iter().map(|tool| tool.name.as_str());
        let tool_names = tool_names.chain(plan.agents.values().flat_map(|agent| &agent.tools).map(String::as_str));
        let tool_names: BTreeSet<&str> = tool_names.collect();
        for (first, other) in names::collisions(tool_names) {
            let message = format!("models would know {first} and {other} by the same name: rename one of them");
            self.error("spec.tools", message);
        }
        let mut tools = BTreeMap::new();
        for (at, tool) in spec.tools.iter().enumerate() {
            if let Some(planned) = self.plan_tool(plan, tool, &format!("spec.tools[{at}]"), everywhere) {
                tools.insert(tool.name.clone(), planned);
            }
        }
        let known = everywhere.clone();
        let known = ["args", "tool", "effects", "agent", "agents"]
            .into_iter()
            .fold(known, |k, name| k.with(name, Members::Open));
        let servers = self.plan_servers(plan, everywhere);
        let (mut gates, mut question) = (Vec::new(), None);
        if !spec.tools.is_empty() || !spec.servers.is_empty() {
            gates = self.plan_policy_call_gates(plan, &format!("{PLANNED_CALLS}.gate"), &known);
        }
        for tool in tools.values_mut() {
            let can_ask = gates.iter().any(|gate| gate.reason(tool, &tool.facts()).is_some());
            tool.step.has_policy_call_gate = can_ask;
        }
        for (field, gate) in plan.gates.of_calls() {
            gates.extend(self.plan_call_gate(plan, field, gate, &known));
        }
        let ask: Vec<_> = plan.gates.of_type(SpecGateType::Question).collect();
        if let Some((field, gate)) = ask.first() {
            question = self.plan_question_gate(plan, field, gate, everywhere);
        }
        self.check_nesting(plan);
        let planned = PlannedTools { tools, gates, question, servers };
        self.check_gates_of_tools(plan, &planned);
        planned
    }

    fn plan_tool(&mut self, plan: &PlanContext<'_>, tool: &Tool, field: &str, globals: &Known) -> Option<PlannedTool> {
        let parameters = tool.parameters.clone().unwrap_or_else(no_parameters);
        if parameters.0.get("type") != Some(&json!("object")) {
            self.error(format!("{field}.parameters"), "the schema must say `type: object`: arguments have names");
        } else if !self.accepted
            && let Err(why) = Schema::compile(&parameters)
        {
            self.error(format!("{field}.parameters"), why);
        }
        if !self.accepted {
            self.advise_identifiers(&parameters.0, &format!("{field}.parameters"));
        }
        let Some((at, step)) =
            plan.spec.steps.iter().enumerate().find(|(_, step)| step.branch.is_none() && step.name == tool.step)
        else {
            let hint = self.did_you_mean(&tool.step, plan.spec.steps.iter().map(|step| step.name.as_str()));
            let message = format!("there is no step {} without a branch in spec.steps: add it{hint}", tool.step);
            self.error(format!("{field}.step"), message);
            return None;
        };
        let at = format!("spec.steps[{at}]");
        if step.hitl.is_some() {
            self.error(
                format!("{field}.step"),
                "a tool runs an agent, pod, http, mcp or set step: put a gate of spec.gates before the tool",
            );
            return None;
        }
        if !step.depends_on.is_empty() {
            self.error(
                format!("{at}.dependsOn"),
                format!("the step runs only as the tool {}: leave dependsOn out", tool.name),
            );
        }
        // The step of several tools can read arguments that only some of them have. New rules do not stop an accepted
        // run.
        let is_alike = |other: &Tool| other.step != tool.step || other.parameters == tool.parameters;
        let is_alike = plan.spec.tools.iter().all(is_alike);
        let arguments = if is_alike && !self.accepted { references::members(&parameters.0) } else { Members::Open };
        let known = globals.clone().with("args", arguments);
        let mut planned = self.plan_step(step, &StepContext::new(plan, &at, PLANNED_CALLS, known))?;
        // The gates of policies are below each call.
        for gate in &mut planned.policy_gates {
            gate.path = format!("{}/{}", planned.path, gate.name);
        }
        if step.on_error.is_none() {
            // The model receives a failure. After an unknown outcome people are asked.
            planned.on_error = OnError::Continue;
        }
        let definition = Digest::of(&json!({"tool": tool, "step": step}));
        match definition {
            Err(why) => {
                self.error(field, why.to_string());
                None
            }
            Ok(definition) => Some(PlannedTool {
                name: tool.name.clone(),
                description: tool.description.clone(),
                parameters,
                repeatable: tool.repeatable == Some(true),
                effects: tool.effects_of(step),
                definition,
                defined_by: DefinedBy::Author,
                step: planned,
            }),
        }
    }

    fn plan_call_gate(&mut self, plan: &PlanContext<'_>, field: &str, gate: &Gate, known: &Known) -> Option<CallGate> {
        let (type_, rule) = CallRule::of(gate)?;
        if type_ == GateType::SpecificTools && gate.tools.is_empty() {
            self.error(format!("{field}.tools"), "the gate would never ask: list the tools that it asks about");
        }
        if type_ == GateType::Custom && gate.condition.is_none() {
            self.error(
                format!("{field}.condition"),
                "a gate of the type custom needs a condition: add one, or use toolExecution",
            );
        }
        for (list, entries) in [("tools", &gate.tools), ("allowedTools", &gate.allowed_tools)] {
            for entry in entries {
                let name = entry.strip_prefix('!').unwrap_or(entry);
                let exists = name.contains('*')
                    || plan.spec.tools.iter().any(|tool| tool.name == name)
                    || self.check_tool_of_server(plan.spec, name, &format!("{field}.{list}"));
                if !exists && gate.preset.is_none() {
                    let hint = self.did_you_mean(name, plan.spec.tools.iter().map(|tool| tool.name.as_str()));
                    self.error(format!("{field}.{list}"), format!("there is no tool {name} in spec.tools{hint}"));
                }
            }
        }
        let planned = self.plan_spec_gate(
            plan,
            field,
            gate,
            &format!("{PLANNED_CALLS}.gate"),
            known.clone(),
            GateSubject::Call(type_),
        )?;
        let condition = planned.only_if.clone();
        self.check_condition_on_agent(plan, field, condition.as_ref());
        let rule = CallGateRule::Author(rule);
        Some(CallGate { gate: PlannedStep { only_if: None, ..planned }, type_, rule, condition })
    }

    /// Warns of a condition that reads the name of the calling agent, if agents call each other.
    fn check_condition_on_agent(&mut self, plan: &PlanContext<'_>, field: &str, condition: Option<&Condition>) {
        let reads = |name: &str| condition.is_some_and(|c| c.references().iter().any(|one| one.root == name));
        let is_agent = |tool: &Tool| plan.spec.steps.iter().any(|step| step.name == tool.step && step.agent.is_some());
        if reads("agent") && !reads("agents") && plan.spec.tools.iter().any(is_agent) {
            let message = "the condition reads agent, which is the agent that makes the call, and not those that called that agent: use agents, as in `'NAME' in agents`, where the gate is also meant for calls beneath";
            self.warn(&format!("{field}.condition"), message);
        }
    }

    fn plan_question_gate(
        &mut self,
        plan: &PlanContext<'_>,
        field: &str,
        gate: &Gate,
        everywhere: &Known,
    ) -> Option<PlannedStep> {
        if gate.hitl.form.is_some() {
            self.error(format!("{field}.hitl.form"), "the agent asks its own questions: leave form out");
        }
        let refused = match gate.hitl.timeout.as_ref().and_then(|timeout| timeout.action) {
            Some(TimeoutAction::Default) => {
                Some("the questions of an agent have no default answer: use Skip, Reject or Abort")
            }
            Some(TimeoutAction::Approve) => Some("an answer approves nothing: use Skip, Reject or Abort"),
            _ => None,
        };
        if let Some(why) = refused {
            self.error(format!("{field}.hitl.timeout.action"), why);
        }
        if gate.condition.is_some() {
            self.error(format!("{field}.condition"), "a question is always asked: leave condition out");
        }
        let known = everywhere.clone().with("agent", Members::Open);
        self.plan_spec_gate(plan, field, gate, &format!("{PLANNED_CALLS}.gate"), known, GateSubject::Question)
    }

    /// Reports agents that call themselves or nest calls too deep, and names that are too long for nested records.
    fn check_nesting(&mut self, plan: &PlanContext<'_>) {
        let called_agents = |agent: &str| -> Vec<String> {
            let names = plan.agents.get(agent).into_iter().flat_map(|agent| &agent.tools);
            let steps = names.filter_map(|name| plan.spec.tools.iter().find(|tool| tool.name == *name));
            let steps = steps.filter_map(|tool| plan.spec.steps.iter().find(|step| step.name == tool.step));
            steps.filter_map(|step| step.agent.as_ref()).map(|agent| agent.name.clone()).collect()
        };
        for (at, agent) in plan.spec.agents.iter().enumerate() {
            let mut paths = vec![vec![agent.name.clone()]];
            while let Some(path) = paths.pop() {
                for next in path.last().map(|last| called_agents(last)).unwrap_or_default() {
                    let field = format!("spec.agents[{at}].tools");
                    let chain = path.iter().chain([&next]).map(String::as_str).collect::<Vec<_>>().join(" → ");
                    if path.contains(&next) {
                        self.error(&field, format!("an agent would call itself: {chain}: remove one of the tools"));
                    } else if path.len() >= MOST_NESTED {
                        self.error(&field, format!("agents call each other at most {MOST_NESTED} deep: {chain}"));
                    } else {
                        paths.push(path.iter().cloned().chain([next]).collect());
                    }
                    if self.errors.len() > 64 {
                        return;
                    }
                }
            }
        }
        let longest = |steps: &mut dyn Iterator<Item = usize>| steps.max().unwrap_or_default();
        let branch = longest(&mut plan.spec.steps.iter().filter_map(|step| step.branch.as_ref()).map(String::len));
        let step = longest(&mut plan.spec.steps.iter().map(|step| step.name.len()));
        let of_tool = longest(&mut plan.spec.tools.iter().map(|tool| tool.step.len()));
        // A tool of a server calls no agent, so it is the innermost.
        let of_server =
            longest(&mut plan.spec.servers.iter().map(|server| server.tool_name("").len() + catalogue::MAX_NAME));
        let calls = (MOST_NESTED - 1) * of_tool + of_tool.max(of_server) + MOST_NESTED * LONGEST_CALL.len();
        let path = branch + step + 16 + calls + 64;
        if !(plan.spec.tools.is_empty() && plan.spec.servers.is_empty()) && path > LONGEST_PATH {
            let message = format!(
                "the names of branches and steps are too long for the journal of nested agents ({path} characters; the maximum is {LONGEST_PATH}): shorten them"
            );
            self.error("spec.steps", message);
        }
    }

    /// Reports agents without a gate for their questions, and gates that never ask. Warns of unused and unasked tools.
    fn check_gates_of_tools(&mut self, plan: &PlanContext<'_>, planned: &PlannedTools) {
        for (at, agent) in plan.spec.agents.iter().enumerate() {
            if agent.tools.iter().any(|name| names::is_built_in(name)) && planned.question.is_none() {
                let message = "an agent that asks people needs a gate of the type question in spec.gates, which says whom: add one";
                self.error(format!("spec.agents[{at}].tools"), message);
            }
        }
        let offered: BTreeSet<&str> = plan.agents.values().flat_map(|agent| &agent.tools).map(String::as_str).collect();
        for (at, tool) in plan.spec.tools.iter().enumerate() {
            let field = format!("spec.tools[{at}]");
            if !offered.contains(tool.name.as_str()) {
                self.warn(&field, &format!("no agent may call {}: list it in the tools of an agent", tool.name));
            }
            if let Some(planned_tool) = planned.tools.get(&tool.name) {
                if let (true, Some(sent)) = (tool.effects != planned_tool.effects, planned_tool.facts().sent) {
                    let message = format!(
                        "effects says that {} only reads, and its step sends {sent}, so its effects count as unknown: write `effects: write` or irreversible",
                        tool.name
                    );
                    self.warn(&field, &message);
                }
                self.check_gates_of_tool(planned_tool, &planned.gates, &field);
            }
        }
        self.check_gates_of_servers(plan, planned);
        for gate in &planned.gates {
            let can_ask = |server: &PlannedServer| gate.can_ask_about(server);
            if planned.servers.values().any(can_ask) {
                continue;
            }
            let asks = |tool: &PlannedTool| gate.reason(tool, &tool.facts()).is_some();
            // The gates of a preset are named after it, and can name tools that the Workflow lacks.
            let is_own = gate.gate.added_by.is_none() && !gate.gate.name.contains('.');
            if is_own && !planned.tools.is_empty() && !planned.tools.values().any(asks) {
                let message = format!("gate {} would never ask: it asks about none of spec.tools", gate.gate.name);
                self.warn(gate.gate.gate().map_or("spec.gates", |planned| planned.field.as_str()), &message);
            }
        }
        if offered.is_empty() && plan.agents.values().all(|agent| agent.servers.is_empty()) {
            // The author cannot omit gates of policies.
            let of_tools = plan.gates.of_calls().chain(plan.gates.of_type(SpecGateType::Question));
            let fields: Vec<_> =
                of_tools.filter(|(_, gate)| gate.preset.is_none()).map(|(field, _)| field.clone()).collect();
            for field in fields {
                self.error(
                    format!("{field}.type"),
                    "the gate would never ask, because no agent has tools: give an agent tools, or leave the gate out",
                );
            }
        }
    }
}

impl Validator<'_> {
    /// Refuses a tool that a policy forbids or requires a gate for, and warns of a changing tool without a gate.
    pub(super) fn check_gates_of_tool(&mut self, tool: &PlannedTool, gates: &[CallGate], field: &str) {
        let facts = tool.facts();
        self.report_forbidden(field, self.policies.forbids_call(&facts));
        let asks = |gate: &CallGate| gate.reason(tool, &facts).is_some();
        if tool.defined_by == DefinedBy::Author && tool.effects() != Effects::Read && !gates.iter().any(asks) {
            self.warn(field, &format!("calls of {} can change something, and no gate asks about them", tool.name));
        }
        let is_certain = gates.iter().any(|gate| gate.always_asks(tool))
            || !tool.step.policy_gates.is_empty()
            || tool.step.start.as_ref().is_some_and(|start| start.only_if.is_none() && !approves_unasked(start));
        if facts.changes() && !is_certain {
            let by = self.policies.require_gates().join(" and ");
            let why = (!by.is_empty()).then(|| {
                format!(
                    "{by} requires that people are asked about every call of {} (tools.requireGate), and no gate asks that has neither a condition nor the timeout action Approve: add one of the type toolExecution or specificTools, or of the type stepStart for its step; only GET and HEAD requests without a body of tools with `effects: read` need none",
                    tool.name
                )
            });
            self.report_forbidden(field, why);
        }
    }
}

/// Whether a tool of an agent, or of an agent that it calls, can change something.
pub(super) fn agent_can_change(plan: &PlanContext<'_>, agent: &str) -> bool {
    let (mut seen, mut left) = (BTreeSet::new(), vec![agent.to_owned()]);
    while let Some(agent) = left.pop() {
        if plan.agents.get(&agent).is_some_and(|agent| !agent.servers.is_empty()) {
            return true;
        }
        let names = plan.agents.get(&agent).into_iter().flat_map(|agent| &agent.tools);
        for tool in names.filter_map(|name| plan.spec.tools.iter().find(|tool| tool.name == *name)) {
            let Some(step) = plan.spec.steps.iter().find(|step| step.name == tool.step) else { continue };
            let reads = tool.effects == Some(Effects::Read);
            match (&step.agent, &step.http) {
                (Some(called), _) => left.extend(seen.insert(called.name.clone()).then(|| called.name.clone())),
                (None, Some(http)) => {
                    let sent = Some(SentMethod::of_step(http));
                    let facts = CallFacts { sent, ..CallFacts::of_kind(CallKind::Http, tool.effects) };
                    if facts.changes() {
                        return true;
                    }
                }
                // A rendered text changes nothing itself: its author declares its effects.
                (None, None) if step.set.is_some() && reads => {}
                (None, None) => return true,
            }
        }
    }
    false
}

fn no_parameters() -> JsonObject {
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    match schema {
        Value::Object(fields) => JsonObject(fields),
        _ => JsonObject::default(),
    }
}
