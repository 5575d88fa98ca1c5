//! The flow of each pattern, as far as it is determined before the run.
//!
//! Every possible continuation is an edge, because agents and people decide during the run. A way back from a gate is
//! part of its verdicts, and no edge.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use signoff_api::{
    Verdict, Workflow, WorkflowSpec,
    pattern::{EvaluatorOptimizer, Graph, OnExhausted, OrchestratorWorkers, Parallel, Routing},
    pod::PodStep,
    sent_method::SentMethod,
    step::{HitlStep, Step as Spec},
    workflow::SpecGateType,
};
use signoff_engine::{Plan, Settings};

use crate::{check::placeholder, server_tools::Catalogues};

use super::{
    Edge, Flow, Input, Step,
    gate::Gate,
    gates::{Start, StepTraits, allows},
    needs::Needs,
    tools,
};

/// The predecessors of a list of steps: their ids and conditions. The start of the run is the empty id.
pub(super) type Ends = Vec<(String, Option<String>)>;

/// Builds the flow of a Workflow, with the tools of the servers that have a catalogue.
pub(super) fn build_flow(workflow: &Workflow, catalogues: &Catalogues) -> Flow {
    let with_tools = with_default_verdicts(workflow);
    let mut spec = with_tools.clone();
    // Steps of tools run when a model calls them, not in the order of the list.
    spec.steps.retain(|step| !workflow.spec.runs_as_tool(step));
    let spec = &spec;
    let mut build = Build { spec, flow: Flow::default(), starts: BTreeMap::new(), leaves: BTreeMap::new() };
    let generated = workflow.metadata.generate_name.as_ref().map(|prefix| format!("{prefix}…"));
    build.flow.name = workflow.metadata.name.clone().or(generated).unwrap_or_default();
    build.flow.agents = tools::tools_of_agents(&with_tools, catalogues);
    build.flow.inputs = spec.inputs.iter().map(flow_input).collect();
    let pattern = spec.pattern.clone().unwrap_or_default();
    let begin: Ends = vec![(String::new(), None)];
    let ends = if pattern.dag.is_some() {
        build.flow.pattern = "dag";
        build.add_dag(&spec.steps)
    } else if let Some(routing) = &pattern.routing {
        build.flow.pattern = "routing";
        build.add_routing(routing, begin)
    } else if let Some(parallel) = &pattern.parallel {
        build.flow.pattern = "parallel";
        build.add_parallel(parallel, &begin)
    } else if let Some(evaluator) = &pattern.evaluator_optimizer {
        build.flow.pattern = "evaluatorOptimizer";
        build.add_evaluator(evaluator, begin)
    } else if let Some(workers) = &pattern.orchestrator_workers {
        build.flow.pattern = "orchestratorWorkers";
        build.add_workers(workers, begin)
    } else if let Some(graph) = &pattern.graph {
        build.flow.pattern = "graph";
        build.add_graph(graph)
    } else {
        build.flow.pattern = "chain";
        build.add_list(&spec.steps.iter().collect::<Vec<_>>(), "", 0, begin)
    };
    let ends = build.add_run_gate(".final", SpecGateType::FinalResponse, ends);
    build.enter("", ends);
    let outputs = spec.outputs.clone().unwrap_or_default();
    let needs = outputs.artifacts.iter().fold(Needs::default().maybe(outputs.from.as_ref()), |needs, artifact| {
        needs.template(&artifact.path).template(&artifact.from).condition(artifact.skip_if.as_ref())
    });
    build.flow.needs = needs.list();
    build.flow.result = outputs.from;
    build.flow.artifacts = outputs.artifacts.into_iter().map(|artifact| artifact.path).collect();
    build.flow
}

/// Returns the spec in which each gate lists its allowed verdicts. If the Workflow cannot be planned, gates without a
/// list have none.
fn with_default_verdicts(workflow: &Workflow) -> WorkflowSpec {
    let mut spec = workflow.spec.clone();
    let mut runnable = workflow.clone();
    for input in &mut runnable.spec.inputs {
        input.value = placeholder(input).or(input.value.take());
    }
    // Commands are only shown, and never started here.
    let settings = Settings { allow_commands: true, ..Settings::default() };
    let Ok(plan) = Plan::of(&runnable, &settings, &Arc::default()) else { return spec };
    let fill = |hitl: &mut HitlStep, field: &str| {
        if hitl.allowed_verdicts.is_empty() {
            hitl.allowed_verdicts = plan.allowed_verdicts(field).to_vec();
        }
    };
    for (index, step) in spec.steps.iter_mut().enumerate() {
        if let Some(hitl) = &mut step.hitl {
            fill(hitl, &format!("spec.steps[{index}].hitl"));
        }
    }
    for (index, gate) in spec.gates.iter_mut().enumerate() {
        fill(&mut gate.hitl, &format!("spec.gates[{index}].hitl"));
    }
    spec
}

/// A turn of an agent of the pattern.
struct Turn<'t> {
    agent: &'t str,
    input: Option<&'t String>,
    does: &'t str,
    traits: StepTraits,
}

impl<'t> Turn<'t> {
    fn of(agent: &'t str, input: Option<&'t String>, does: &'t str) -> Self {
        Self { agent, input, does, traits: StepTraits::default() }
    }
}

fn flow_input(input: &signoff_api::workflow::Input) -> Input {
    let value = input.value.as_ref().or(input.default.as_ref()).map(|value| value.0.clone());
    Input { name: input.name.clone(), wanted: value.is_none() && input.required == Some(true), value }
}

pub(super) struct Build<'w> {
    pub(super) spec: &'w WorkflowSpec,
    pub(super) flow: Flow,
    /// The gates before steps that are about to begin.
    pub(super) starts: BTreeMap<String, Start>,
    /// The ends of each step from which the run continues: the step itself, or the gates below it.
    pub(super) leaves: BTreeMap<String, Ends>,
}

impl<'w> Build<'w> {
    /// Adds a step without a gate and without edges.
    pub(super) fn add_step(
        &mut self,
        id: String,
        name: &str,
        depth: usize,
        does: String,
        kind: &'static str,
        needs: Needs,
    ) {
        let needs = needs.list();
        self.flow.steps.push(Step { id, name: name.to_owned(), kind, does, depth, needs, ..Step::default() });
    }

    /// Makes the last step a gate.
    pub(super) fn make_gate(&mut self, hitl: &HitlStep) {
        if let Some(step) = self.flow.steps.last_mut() {
            step.gate = Some(Gate::of(hitl));
        }
    }

    /// Adds edges from the predecessors to a step, or to the gate before it.
    pub(super) fn enter(&mut self, to: &str, from: Ends) {
        let start = self.starts.get(to);
        let edges = |to: &str, from: Ends| {
            let to = to.to_owned();
            from.into_iter().map(move |(from, when)| Edge { from, to: to.clone(), when })
        };
        let to_step = start.is_none_or(|start| start.is_conditional).then(|| from.clone());
        let to_gate = start.map(|start| edges(&start.path, from));
        self.flow.edges.extend(to_gate.into_iter().flatten().chain(edges(to, to_step.unwrap_or_default())));
    }

    /// Returns the ends of a step from which the next step continues. `when`: the condition of each end, or `None` for
    /// the end's own condition.
    fn ends_of(&self, id: &str, when: Option<&str>) -> Ends {
        let ends = self.leaves.get(id).cloned().unwrap_or_else(|| vec![(id.to_owned(), None)]);
        ends.into_iter().map(|(id, own)| (id, when.map(str::to_owned).or(own))).collect()
    }

    /// Returns the system prompt of an agent.
    fn system_prompt(&self, agent: &str) -> Option<String> {
        self.spec.agents.iter().find(|known| known.name == agent).and_then(|agent| agent.system.clone())
    }

    /// Adds a step of the spec with its gates, without edges to the step, and returns its id.
    fn add_spec_step(&mut self, step: &Spec, prefix: &str, depth: usize) -> String {
        let id = format!("{prefix}{}", step.name);
        self.add_start_gate(&id, step, depth);
        let system = step.agent.as_ref().and_then(|agent| self.system_prompt(&agent.name));
        let needs = Needs::default().step(step, system.as_ref());
        let (kind, does) = describe_step(step);
        self.add_step(id.clone(), &step.name, depth, does, kind, needs);
        if let Some(added) = self.flow.steps.last_mut() {
            added.gate = step.hitl.as_ref().map(Gate::of);
            added.skip_if.clone_from(&step.skip_if);
            added.uses = step.pod.iter().flat_map(used_objects).collect();
            added.command = step.pod.iter().flat_map(|pod| pod.command.iter().chain(&pod.args)).cloned().collect();
        }
        if step.hitl.is_none() {
            self.add_gates_below(&id, &step.name, depth, StepTraits::of(step));
        }
        id
    }

    /// Adds steps that run one after the other, with their edges. Returns the ends of the last step.
    fn add_list(&mut self, steps: &[&Spec], prefix: &str, depth: usize, begin: Ends) -> Ends {
        steps.iter().fold(begin, |before, step| {
            let id = self.add_spec_step(step, prefix, depth);
            self.enter(&id, before);
            self.ends_of(&id, None)
        })
    }

    /// Adds a turn of an agent of the pattern, with its gates and edges. Returns the ends of the turn.
    fn add_turn(&mut self, id: &str, turn: Turn<'_>, before: Ends) -> Ends {
        let Turn { agent, input, does, traits } = turn;
        let needs = Needs::default().maybe(input).maybe(self.system_prompt(agent).as_ref());
        let name = id.trim_start_matches('.');
        self.add_step(id.to_owned(), name, 0, format!("agent {agent} {does}"), "agent", needs);
        self.enter(id, before);
        self.add_gates_below(id, name, 0, traits);
        self.ends_of(id, None)
    }

    /// Returns the branches with their steps, in order of appearance.
    fn branches(&self) -> Vec<(&'w str, Vec<&'w Spec>)> {
        let mut branches: Vec<(&str, Vec<&Spec>)> = Vec::new();
        for step in &self.spec.steps {
            let Some(name) = step.branch.as_deref() else { continue };
            match branches.iter_mut().find(|(known, _)| *known == name) {
                Some((_, steps)) => steps.push(step),
                None => branches.push((name, vec![step])),
            }
        }
        branches
    }

    fn add_dag(&mut self, tasks: &[Spec]) -> Ends {
        let mut remaining: Vec<&Spec> = tasks.iter().collect();
        let mut added: Vec<&str> = Vec::new();
        while !remaining.is_empty() {
            let is_ready = |task: &&Spec| task.depends_on.iter().all(|dep| added.contains(&dep.as_str()));
            // The check refuses cycles. In a cycle no task is ready, and the first one is added.
            let index = remaining.iter().position(is_ready).unwrap_or(0);
            let task = remaining.remove(index);
            let id = self.add_spec_step(task, "", 0);
            let before = task.depends_on.iter().flat_map(|dep| self.ends_of(dep, None)).collect::<Ends>();
            self.enter(&id, if before.is_empty() { vec![(String::new(), None)] } else { before });
            added.push(&task.name);
        }
        let sinks = tasks.iter().filter(|task| !tasks.iter().any(|other| other.depends_on.contains(&task.name)));
        sinks.flat_map(|task| self.ends_of(&task.name, None)).collect()
    }

    fn add_routing(&mut self, routing: &Routing, begin: Ends) -> Ends {
        let router = &routing.router;
        let choose = Turn::of(&router.agent, Some(&router.input), "chooses a route");
        let chosen = self.add_turn(".router", choose, begin);
        let chosen = self.add_review(".review", router.review.as_deref(), chosen);
        let chosen = self.add_run_gate(".review", SpecGateType::PlanApproval, chosen);
        let routes = self.branches().into_iter().map(|(name, steps)| {
            let begin = chosen.iter().map(|(id, _)| (id.clone(), Some(format!("route {name}")))).collect();
            self.add_list(&steps, &format!("{name}/"), 1, begin)
        });
        routes.collect::<Vec<_>>().concat()
    }

    fn add_parallel(&mut self, parallel: &Parallel, begin: &Ends) -> Ends {
        let branches = self.branches().into_iter().map(|(name, steps)| {
            let begin = begin.iter().map(|(id, _)| (id.clone(), Some(format!("branch {name}")))).collect();
            self.add_list(&steps, &format!("{name}/"), 1, begin)
        });
        let ends = branches.collect::<Vec<_>>().concat();
        self.add_named_step(parallel.reduce.as_deref(), ends)
    }

    /// Adds the step without a branch that the pattern names. The flow stays as it is if the pattern names no step.
    fn add_named_step(&mut self, name: Option<&str>, before: Ends) -> Ends {
        let is_named = |step: &&Spec| step.branch.is_none() && Some(step.name.as_str()) == name;
        match self.spec.steps.iter().find(is_named) {
            Some(step) => self.add_list(&[step], "", 0, before),
            None => before,
        }
    }

    fn add_evaluator(&mut self, pattern: &EvaluatorOptimizer, begin: Ends) -> Ends {
        let accept = pattern.accept.clone().unwrap_or_default();
        let (score, most) = (accept.min_score.unwrap_or(80), accept.max_iterations.unwrap_or(3));
        let draft = Turn::of(&pattern.producer, pattern.input.as_ref(), "drafts");
        let drafted = self.add_turn(".producer", draft, begin);
        let judge = format!("judges, at most {most} times");
        let judge = Turn::of(&pattern.evaluator.agent, pattern.evaluator.input.as_ref(), &judge);
        self.add_turn(".evaluator", judge, drafted);
        let below = self.ends_of(".evaluator", Some(&format!("score below {score}")));
        let reviewed = self.add_review(".review", pattern.review_gate.as_deref(), below);
        self.add_turn(".reviser", Turn::of(&pattern.producer, pattern.revise_prompt.as_ref(), "revises"), reviewed);
        self.enter(".evaluator", self.ends_of(".reviser", None));
        let mut ends = self.ends_of(".evaluator", Some(&format!("score {score} or more")));
        if pattern.on_exhausted == Some(OnExhausted::AcceptBest) {
            ends.extend(self.ends_of(".evaluator", Some(&format!("{most} drafts judged: the best"))));
        }
        if let Some(gate) = self.untyped_gate(pattern.review_gate.as_deref()) {
            let decided = |verdict: Verdict| vec![(".review".to_owned(), Some(verdict.to_string()))];
            if allows(&gate.hitl, Verdict::Modify) {
                self.enter(".evaluator", decided(Verdict::Modify));
            }
            ends.extend(decided(Verdict::Approve));
        }
        ends
    }

    fn add_workers(&mut self, pattern: &OrchestratorWorkers, begin: Ends) -> Ends {
        let orchestrator = &pattern.orchestrator;
        let divide = format!("divides the work into at most {} parts", orchestrator.max_tasks.unwrap_or(32));
        let divided =
            self.add_turn(".orchestrator", Turn::of(&orchestrator.agent, orchestrator.input.as_ref(), &divide), begin);
        let divided = self.add_review(".decomposition", pattern.decomposition_review.as_deref(), divided);
        let divided = self.add_run_gate(".decomposition", SpecGateType::PlanApproval, divided);
        let concurrency =
            orchestrator.max_workers.map_or_else(|| "all at once".to_owned(), |most| format!("{most} at once"));
        let (worker, does) = (&pattern.worker, format!("does each part, {concurrency}"));
        let work = Turn {
            traits: StepTraits::on_error(worker.on_error),
            ..Turn::of(&worker.agent, worker.input.as_ref(), &does)
        };
        let worked = self.add_turn(".worker", work, divided);
        let reviewed = self.add_review(".reduce-review", pattern.reduce_review.as_deref(), worked);
        let reduced = self.add_named_step(pattern.reduce.as_deref(), reviewed);
        self.add_named_step(pattern.writeup.as_deref(), reduced)
    }

    fn add_graph(&mut self, graph: &Graph) -> Ends {
        let nodes = &self.spec.steps;
        for node in nodes {
            self.add_spec_step(node, "", 0);
        }
        let entry = graph.entry.clone().or_else(|| nodes.first().map(|node| node.name.clone()));
        self.enter(&entry.unwrap_or_default(), vec![(String::new(), None)]);
        let mut ends: Ends = Vec::new();
        for node in nodes {
            let mut always_continues = false;
            for edge in graph.edges.iter().filter(|edge| edge.from == node.name) {
                if let Some(to) = &edge.to {
                    self.enter(to, self.ends_of(&node.name, None));
                    always_continues = true;
                }
                for choice in &edge.choose {
                    self.enter(&choice.to, self.ends_of(&node.name, Some(&choice.when)));
                    always_continues |= choice.when.trim() == "else";
                }
            }
            if !always_continues {
                let leaves = graph.edges.iter().any(|edge| edge.from == node.name);
                ends.extend(self.ends_of(&node.name, leaves.then_some("nothing else")));
            }
        }
        ends
    }
}

/// Returns the kind of a step and a short description.
pub(super) fn describe_step(step: &Spec) -> (&'static str, String) {
    if let Some(agent) = &step.agent {
        ("agent", format!("agent {}", agent.name))
    } else if let Some(pod) = &step.pod {
        ("pod", format!("pod {}", pod.image))
    } else if let Some(http) = &step.http {
        ("http", format!("{} {}", SentMethod::of_step(http), http.url))
    } else if let Some(mcp) = &step.mcp {
        ("mcp", format!("tool {} of the server {}", mcp.tool, mcp.server))
    } else if step.hitl.is_some() {
        ("hitl", "asks people".to_owned())
    } else {
        ("set", "renders a text".to_owned())
    }
}

/// Returns the objects of its namespace that a container uses, such as `Secret models`, without duplicates.
fn used_objects(pod: &PodStep) -> BTreeSet<String> {
    let key = |kind: &str, name: &str| format!("{kind} {name}");
    let of_env = pod.env.iter().filter_map(|variable| variable.value_from.as_ref()).flat_map(|from| {
        let secret = from.secret_key_ref.iter().map(|of| key("Secret", &of.name));
        secret.chain(from.config_map_key_ref.iter().map(|of| key("ConfigMap", &of.name)))
    });
    let of_volumes = pod.volumes.iter().flat_map(|volume| {
        let secret = volume.secret.iter().map(|of| key("Secret", &of.secret_name));
        let claim = volume.persistent_volume_claim.iter().map(|of| key("PersistentVolumeClaim", &of.claim_name));
        secret.chain(volume.config_map.iter().map(|of| key("ConfigMap", &of.name))).chain(claim)
    });
    let account = pod.service_account_name.iter().map(|name| key("ServiceAccount", name));
    of_env.chain(of_volumes).chain(account).collect()
}
