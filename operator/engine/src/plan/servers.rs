//! The MCP servers of a plan, checked before the run, and the tools of each from its recorded catalogues.
//!
//! **Invariant:** no server is called here. The same plan and the same catalogue give the same tools.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use signoff_api::{
    Digest, JsonObject, WorkflowSpec,
    catalogue::{Catalogue, ServerTool, fits},
    hosts::HostPattern,
    policy::{GuardedKind, ReviewedTool},
    record_path::PLANNED_CALLS,
    server::Server,
    step::{McpStep, OnError, Step},
    tool::Effects,
    workflow::{Agent, SecretEntry},
};
use signoff_expr::{Known, Members};
use url::Url;

use super::{
    Action, CallGate, PlannedArguments, PlannedStep, PlannedTool, PlannedTools, ToolStanding, Validator,
    step::{PlanContext, StepContext},
    tools::DefinedBy,
};
use crate::tools::{self, names};

/// The name that stands for all tools of a server, as policies match it: `crm.<any>`.
const ANY: &str = "<any>";
/// The maximum number of cached catalogues of a server. A run has at most four.
const MOST_KEPT: usize = 8;

/// The tools of one catalogue, by their names for agents.
pub(crate) type ServerTools = BTreeMap<String, PlannedTool>;

/// The tools of a catalogue that was planned.
#[derive(Clone, Debug)]
struct KeptTools {
    /// The digest of its record.
    catalogue: Digest,
    tools: ServerTools,
    /// The size of the definitions, in bytes.
    bytes: usize,
}

/// A server of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedServer {
    pub(crate) spec: Server,
    pub(crate) key: Option<SecretEntry>,
    /// The step of its tools that the author declares read-only, with its gates, under the name of the server.
    reads: PlannedStep,
    /// The step of its other tools.
    changes: PlannedStep,
    /// The gates of policies that are omitted before reviewed tools: the policy, the gate, the tools.
    reviewed: Vec<(String, String, Vec<ReviewedTool>)>,
    /// The tools of the catalogues that were planned, by the digest of the catalogue.
    kept: [OnceLock<KeptTools>; MOST_KEPT],
}

impl PlannedServer {
    /// Returns the step that a tool runs, under the name of the server.
    pub(super) fn common_step(&self, tool: &str) -> &PlannedStep {
        if self.spec.reads(tool) { &self.reads } else { &self.changes }
    }

    /// Returns the steps under the name of the server.
    pub(super) fn common_steps(&mut self) -> [&mut PlannedStep; 2] {
        [&mut self.reads, &mut self.changes]
    }

    /// Returns the step of a tool without the values of the catalogue. The paths of its gates are set.
    fn step_of(&self, tool: &str) -> PlannedStep {
        let mut step = self.common_step(tool).clone();
        let (from, name) = (step.path.clone(), self.spec.tool_name(tool));
        let to = format!("{PLANNED_CALLS}{name}");
        let escalation = step.escalation.iter_mut().map(|(_, gate)| &mut **gate);
        for gate in step.policy_gates.iter_mut().chain(step.start.as_deref_mut()).chain(escalation) {
            if let Some(place) = gate.path.strip_prefix(&from) {
                gate.path = format!("{to}{place}");
            }
        }
        (step.name, step.path) = (name, to);
        step
    }

    /// Returns the tools of a catalogue that was planned before.
    pub(crate) fn cached_tools(&self, catalogue: &Digest) -> Option<&ServerTools> {
        let mut cached = self.kept.iter().filter_map(OnceLock::get);
        cached.find(|kept| kept.catalogue == *catalogue).map(|kept| &kept.tools)
    }

    /// Plans the tools of a catalogue, without tools that a model could not distinguish, and caches the tools under
    /// `digest`, the digest of the catalogue's record. Returns `None` if the cache is full.
    pub(crate) fn plan_and_cache(&self, digest: &Digest, catalogue: &Catalogue) -> Option<&ServerTools> {
        let tools = catalogue.tools().iter().filter(|tool| self.spec.has(tool.name())).map(|tool| self.plan_tool(tool));
        let mut tools: ServerTools = tools.map(|tool| (tool.name.clone(), tool)).collect();
        // A model could not distinguish two tools with the same name.
        for (first, other) in names::collisions(tools.keys().map(String::as_str)) {
            tools.remove(&first);
            tools.remove(&other);
        }
        let mut kept_tools = KeptTools { catalogue: digest.clone(), tools, bytes: catalogue.bytes() };
        for slot in &self.kept {
            match slot.set(kept_tools) {
                Ok(()) => break,
                Err(taken) => kept_tools = taken,
            }
        }
        self.cached_tools(digest)
    }

    /// Returns the size of the definitions in all planned catalogues, in bytes.
    pub(super) fn cached_bytes(&self) -> usize {
        self.kept.iter().filter_map(OnceLock::get).map(|kept| kept.bytes).sum()
    }

    /// Returns the tools of all catalogues that were planned.
    pub(crate) fn all_cached_tools(&self) -> impl Iterator<Item = &PlannedTool> {
        self.kept.iter().filter_map(OnceLock::get).flat_map(|kept| kept.tools.values())
    }

    /// Plans one tool of a catalogue.
    fn plan_tool(&self, tool: &ServerTool) -> PlannedTool {
        let definition = tool.digest();
        let hinted = tool.hinted_effects().filter(|_| self.spec.trusts_hints());
        let effects = if self.spec.reads(tool.name()) { Some(Effects::Read) } else { hinted };
        let is_pinned = self.spec.pin(tool.name()) == Some(&definition);
        let mut step = self.step_of(tool.name());
        let asking = step.policy_gates.len();
        step.policy_gates.retain(|gate| !self.is_reviewed(gate, tool.name(), &definition));
        // A call of such a tool still counts as changing, because the policy omits its gate for this definition only.
        step.has_policy_call_gate |= step.policy_gates.len() < asking;
        if let Action::Mcp(mcp) = &mut step.action {
            let reads = effects == Some(Effects::Read);
            let described = Arc::new(tool.definition().clone());
            mcp.tool = tool.name().to_owned();
            mcp.arguments =
                PlannedArguments::OfAgent(ToolStanding { definition: definition.clone(), reads, is_pinned, described });
        }
        PlannedTool {
            name: step.name.clone(),
            description: tool.description().to_owned(),
            parameters: tool.parameters(),
            effects,
            repeatable: false,
            definition,
            defined_by: DefinedBy::Server { is_pinned },
            step,
        }
    }

    /// Whether a gate of a policy is omitted before calls of a tool with this definition.
    fn is_reviewed(&self, gate: &PlannedStep, tool: &str, definition: &Digest) -> bool {
        let of_gate = self
            .reviewed
            .iter()
            .filter(|(source, name, _)| *name == gate.name && gate.added_by.as_ref() == Some(source));
        of_gate
            .flat_map(|(_, _, reviewed)| reviewed)
            .any(|tool_of_policy| is_reviewed(tool_of_policy, &self.spec, tool, definition))
    }

    /// Returns one tool that stands for all tools of the server, without their definitions.
    pub(super) fn any_tool(&self) -> PlannedTool {
        let mut step = self.changes.clone();
        let is_omitted = |gate: &PlannedStep| self.reviewed.iter().any(|(_, name, _)| *name == gate.name);
        step.policy_gates.retain(|gate| !is_omitted(gate));
        PlannedTool {
            name: self.spec.tool_name(ANY),
            description: String::new(),
            parameters: JsonObject::default(),
            effects: None,
            repeatable: false,
            definition: Digest::of_bytes(b""),
            defined_by: DefinedBy::Server { is_pinned: false },
            step,
        }
    }
}

impl PlannedTools {
    /// Returns the server and the tool of a path below the step of a server's tool, and the path in the plan:
    /// `.call/crm/.start` for `.call/crm.refund/.start`. Other paths stay the same.
    pub(super) fn place_of_server<'p>(&self, place: &'p str) -> Option<(&PlannedServer, &'p str, String)> {
        let rest = place.strip_prefix(PLANNED_CALLS)?;
        let (name, beneath) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (server, tool) = name.split_once('.')?;
        let planned = self.servers.get(server)?;
        Some((planned, tool, format!("{PLANNED_CALLS}{server}{beneath}")))
    }

    /// Returns the step or the gate at a path below the step of a server's tool, without the values of the catalogue.
    pub(super) fn step_of_server(&self, place: &str) -> Option<&PlannedStep> {
        let (server, tool, place) = self.place_of_server(place)?;
        server.common_step(tool).with_its_gates().find(|step| step.path == place)
    }
}

/// Whether a policy reviewed a tool of a server with this definition.
pub(super) fn is_reviewed(reviewed: &ReviewedTool, server: &Server, tool: &str, definition: &Digest) -> bool {
    let url = server.url.as_ref().and_then(|url| Url::parse(url).ok());
    let is_host = url.is_some_and(|url| HostPattern::parse(&reviewed.host).is_some_and(|host| host.covers(&url)));
    is_host && reviewed.tool == tool && reviewed.definition == *definition
}

/// Returns the server whose tools an entry of a list can mean, and the rest of the entry. A glob means tools of a
/// server only if it begins with the server's name and a dot. So no name that a server chooses can match a glob that
/// was written for other tools.
fn server_of<'s>(spec: &'s WorkflowSpec, entry: &str) -> Option<(&'s Server, String)> {
    let (server, tool) = entry.split_once('.')?;
    let server = spec.servers.iter().find(|one| one.name == server)?;
    Some((server, tool.to_owned()))
}

/// Returns the entries by which agents list tools of a server that may change something, have no pin, and have no gate.
fn unasked_entries<'s>(spec: &'s WorkflowSpec, server: &Server, any: &PlannedTool, gates: &[CallGate]) -> Vec<&'s str> {
    let is_unasked = |entry: &&String| {
        let Some((_, tool)) = server_of(spec, entry).filter(|(listed, _)| listed.name == server.name) else {
            return false;
        };
        if tool.contains('*') {
            return !server.read.iter().any(|glob| *glob == "*" || *glob == tool);
        }
        let named_tool = PlannedTool { name: (*entry).clone(), ..any.clone() };
        let is_asked = gates.iter().any(|gate| gate.reason(&named_tool, &named_tool.facts()).is_some());
        !(is_asked || server.reads(&tool) || server.pin(&tool).is_some())
    };
    let entries: BTreeSet<&String> = spec.agents.iter().flat_map(|agent| &agent.tools).filter(is_unasked).collect();
    entries.into_iter().map(String::as_str).collect()
}

impl Validator<'_> {
    /// Checks the servers, and plans for each the step that the calls of its tools run.
    pub(super) fn plan_servers(
        &mut self,
        plan: &PlanContext<'_>,
        everywhere: &Known,
    ) -> BTreeMap<String, PlannedServer> {
        let spec = plan.spec;
        self.check_unique(spec.servers.iter().map(|server| server.name.as_str()), "spec.servers");
        let mut planned = BTreeMap::new();
        for (at, server) in spec.servers.iter().enumerate() {
            let field = format!("spec.servers[{at}]");
            self.check_server(spec, server, &field);
            let known = everywhere.clone().with("args", Members::Open);
            let Some(changes) = self.plan_server_step(plan, server, &field, &known) else { continue };
            let mut reads = changes.clone();
            if let Action::Mcp(mcp) = &mut reads.action {
                mcp.reads = true;
            }
            let meant = plan.added.iter().filter_map(|added| {
                let before = added.step.before.as_ref().filter(|before| before.kinds.contains(&GuardedKind::Mcp))?;
                let name = format!("{}-{}", added.step.name, server.name);
                Some((added.source.clone(), name, before.except.clone()))
            });
            let reviewed = meant.filter(|(_, _, tools)| !tools.is_empty()).collect();
            let key = server.key.as_ref().and_then(|key| spec.secrets.iter().find(|entry| entry.name == *key));
            let planned_server = PlannedServer {
                spec: server.clone(),
                key: key.cloned(),
                reads,
                changes,
                reviewed,
                kept: std::array::from_fn(|_| OnceLock::new()),
            };
            planned.insert(server.name.clone(), planned_server);
        }
        planned
    }

    /// Reports errors in the fields of a server, and tools of the Workflow that models could take for tools of the
    /// server.
    fn check_server(&mut self, spec: &WorkflowSpec, server: &Server, field: &str) {
        self.check_name(&server.name, &format!("{field}.name"));
        if server.url.is_some() != server.command.is_empty() {
            self.error(field, "a server has exactly one of url and command");
        }
        if !server.command.is_empty() && !self.settings.allow_commands {
            let message = "a command is started in local runs only: give the url of the server, or run the Workflow \
                           with `signoff run --allow-commands`";
            self.error(format!("{field}.command"), message);
        }
        if let Some(why) = server.url_error() {
            self.error(format!("{field}.url"), why);
        }
        if let Some(url) = &server.url {
            self.report_forbidden(format!("{field}.url"), self.policies.refuses_url(url));
        }
        // The error does not repeat the text, because it may be a key in the wrong field.
        if server.key.as_ref().is_some_and(|key| spec.secrets.iter().all(|entry| entry.name != *key)) {
            let names: Vec<_> = spec.secrets.iter().map(|entry| entry.name.as_str()).collect();
            let names = if names.is_empty() { "there is none: add one".into() } else { names.join(", ") };
            let message = format!("its key is no name of spec.secrets: name one of them ({names})");
            self.error(format!("{field}.key"), message);
        }
        self.check_pins(server, field);
        let wired = names::wire(&server.tool_name(""));
        for tool in spec.tools.iter().filter(|tool| tool.name.starts_with(&wired)) {
            let message = format!(
                "models would know {} by the name of a tool of the server {}: rename one of them",
                tool.name, server.name
            );
            self.error("spec.tools", message);
        }
    }

    /// Reports several pins of one tool, and pins of tools that the run cannot use.
    fn check_pins(&mut self, server: &Server, field: &str) {
        for (at, pin) in server.pins.iter().enumerate() {
            let field = format!("{field}.pins[{at}].tool");
            if server.pins.iter().take(at).any(|other| other.tool == pin.tool) {
                self.error(&field, format!("duplicate pin of {}: a tool has one definition", pin.tool));
            }
            if !fits(&pin.tool) || !server.has(&pin.tool) {
                let message =
                    format!("{} does not exist for this run: add it to `only`, or leave the pin out", pin.tool);
                self.error(&field, message);
            }
        }
    }

    /// Plans the step of the tools of a server that can change something.
    fn plan_server_step(
        &mut self,
        plan: &PlanContext<'_>,
        server: &Server,
        field: &str,
        known: &Known,
    ) -> Option<PlannedStep> {
        let mcp = McpStep { server: server.name.clone(), ..McpStep::default() };
        let step = Step { name: server.name.clone(), mcp: Some(mcp), ..Step::default() };
        let context = StepContext::new(plan, field, PLANNED_CALLS, known.clone()).of_server();
        let mut planned = self.plan_step(&step, &context)?;
        for gate in &mut planned.policy_gates {
            gate.path = format!("{}/{}", planned.path, gate.name);
        }
        // The model receives a failure. After an unknown outcome people are asked.
        planned.on_error = OnError::Continue;
        let mut before = plan.added.iter().filter_map(|added| added.step.before.as_ref());
        planned.has_policy_call_gate = before.any(|before| before.kinds.contains(&GuardedKind::Tool));
        Some(planned)
    }

    /// Refuses servers whose tools a policy forbids or requires gates for, and warns of servers without gates.
    pub(super) fn check_gates_of_servers(&mut self, plan: &PlanContext<'_>, planned: &PlannedTools) {
        for (at, server) in plan.spec.servers.iter().enumerate() {
            let field = format!("spec.servers[{at}]");
            let Some(any) = planned.servers.get(&server.name).map(PlannedServer::any_tool) else { continue };
            let is_meant =
                |agent: &Agent| tools::servers_of(plan.spec, agent).iter().any(|one| one.name == server.name);
            if plan.spec.agents.iter().any(is_meant) {
                self.check_gates_of_tool(&any, &planned.gates, &field);
                let asks = |gate: &CallGate| gate.always_asks(&any) || gate.asks_about_changes_of(&server.name);
                let is_asked = planned.gates.iter().any(asks);
                let unasked = unasked_entries(plan.spec, server, &any, &planned.gates);
                if !is_asked && !unasked.is_empty() && any.step.start.is_none() && any.step.policy_gates.is_empty() {
                    let message = format!(
                        "no gate asks about all calls of {}: a call that may change something is refused where no gate asks \
                         about it, unless its definition is pinned. Add a gate of the type destructiveActions or \
                         toolExecution, or pins with `signoff tools --pin`",
                        unasked.join(", ")
                    );
                    self.warn(&field, &message);
                }
            } else if !plan.spec.steps.iter().any(|step| step.mcp.as_ref().is_some_and(|mcp| mcp.server == server.name))
            {
                let message = format!(
                    "nothing calls a tool of {0}: list `{0}.*` in the tools of an agent, or leave the server out",
                    server.name
                );
                self.warn(&field, &message);
            }
        }
    }

    /// Returns whether an entry of a list of tools names tools of a server. Reports an entry for a tool that the run
    /// cannot use.
    pub(super) fn check_tool_of_server(&mut self, spec: &WorkflowSpec, entry: &str, field: &str) -> bool {
        let Some((server, tool)) = server_of(spec, entry) else { return false };
        let exists = tool.contains('*') || (fits(&tool) && server.has(&tool));
        if !exists {
            let message =
                format!("{entry} does not exist for this run: add {tool} to `only` of the server {}", server.name);
            self.error(field, message);
        }
        true
    }
}
