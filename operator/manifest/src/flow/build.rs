//! The flow of each pattern, as far as it can be known before the run.
//!
//! It may not guess what agents will decide: every way that can be taken is an edge.

use signoff_api::{
    Workflow, WorkflowSpec,
    gate::Subject,
    pattern::{EvaluatorOptimizer, Graph, OrchestratorWorkers, Parallel, Routing},
    step::{HitlStep, Step as Spec},
};

use super::{Edge, Flow, Gate, Input, Step, needs::Needs};

/// What a list of steps begins after: ids, and when. The beginning of the run is the empty id.
type Ends = Vec<(String, Option<String>)>;

pub(super) fn flow(workflow: &Workflow) -> Flow {
    let spec = &workflow.spec;
    let mut build = Build { spec, flow: Flow::default() };
    build.flow.name = workflow.metadata.name.clone().unwrap_or_default();
    build.flow.inputs = spec.inputs.iter().map(input).collect();
    let pattern = &spec.pattern;
    let begin: Ends = vec![(String::new(), None)];
    let ends = if let Some(chain) = &pattern.chain {
        build.flow.pattern = "chain";
        build.list(&chain.steps, "", 0, begin)
    } else if let Some(dag) = &pattern.dag {
        build.flow.pattern = "dag";
        build.dag(&dag.tasks)
    } else if let Some(routing) = &pattern.routing {
        build.flow.pattern = "routing";
        build.routing(routing, begin)
    } else if let Some(parallel) = &pattern.parallel {
        build.flow.pattern = "parallel";
        build.parallel(parallel, &begin)
    } else if let Some(evaluator) = &pattern.evaluator_optimizer {
        build.flow.pattern = "evaluatorOptimizer";
        build.evaluator(evaluator, begin)
    } else if let Some(workers) = &pattern.orchestrator_workers {
        build.flow.pattern = "orchestratorWorkers";
        build.workers(workers, begin)
    } else if let Some(graph) = &pattern.graph {
        build.flow.pattern = "graph";
        build.graph(graph)
    } else {
        begin
    };
    build.enter("", ends);
    for gate in &spec.gates {
        let needs = Needs::default().gate(&gate.hitl).condition(gate.condition.as_ref());
        let when =
            serde_json::to_value(gate.type_).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        build.step(format!("gates/{}", gate.name), &gate.name, 0, format!("asks people ({when})"), "hitl", needs);
        build.gate_of(&gate.hitl);
    }
    let outputs = spec.outputs.clone().unwrap_or_default();
    build.flow.result = outputs.from;
    build.flow.artifacts = outputs.artifacts.into_iter().map(|artifact| artifact.path).collect();
    build.flow
}

fn input(input: &signoff_api::workflow::Input) -> Input {
    let value = input.value.as_ref().or(input.default.as_ref()).map(|value| value.0.clone());
    Input { name: input.name.clone(), wanted: value.is_none() && input.required == Some(true), value }
}

struct Build<'w> {
    spec: &'w WorkflowSpec,
    flow: Flow,
}

impl Build<'_> {
    fn step(&mut self, id: String, name: &str, depth: usize, does: String, kind: &'static str, needs: Needs) {
        let needs = needs.list();
        self.flow.steps.push(Step { id, name: name.to_owned(), kind, does, depth, needs, ..Step::default() });
    }

    /// Makes the newest step a gate.
    fn gate_of(&mut self, hitl: &HitlStep) {
        if let Some(step) = self.flow.steps.last_mut() {
            step.gate = Some(gate(hitl));
        }
    }

    /// Edges from everything that came before to a step.
    fn enter(&mut self, to: &str, from: Ends) {
        let edge = |(from, when)| Edge { from, to: to.to_owned(), when };
        self.flow.edges.extend(from.into_iter().map(edge));
    }

    fn system(&self, agent: &str) -> Option<String> {
        self.spec.agents.iter().find(|known| known.name == agent).and_then(|agent| agent.system.clone())
    }

    /// A step of a list, without edges; its id is given back.
    fn spec_step(&mut self, step: &Spec, prefix: &str, depth: usize) -> String {
        let id = format!("{prefix}{}", step.name);
        let system = step.agent.as_ref().and_then(|agent| self.system(&agent.name));
        let needs = Needs::default().step(step, system.as_ref());
        let (kind, does) = does(step);
        self.step(id.clone(), &step.name, depth, does, kind, needs);
        if let Some(made) = self.flow.steps.last_mut() {
            made.gate = step.hitl.as_ref().map(gate);
            made.skip_if.clone_from(&step.skip_if);
        }
        id
    }

    /// One after the other.
    fn list(&mut self, steps: &[Spec], prefix: &str, depth: usize, begin: Ends) -> Ends {
        steps.iter().fold(begin, |before, step| {
            let id = self.spec_step(step, prefix, depth);
            self.enter(&id, before);
            vec![(id, None)]
        })
    }

    /// A turn of an agent that the pattern itself asks for.
    fn turn(&mut self, id: &str, agent: &str, input: Option<&String>, does: &str, before: Ends) -> Ends {
        let needs = Needs::default().maybe(input).maybe(self.system(agent).as_ref());
        self.step(id.to_owned(), id, 0, format!("agent {agent} {does}"), "agent", needs);
        self.enter(id, before);
        vec![(id.to_owned(), None)]
    }

    /// A gate that the pattern itself has; without one everything goes on.
    fn review(&mut self, id: &str, hitl: Option<&HitlStep>, before: Ends) -> Ends {
        let Some(hitl) = hitl else { return before };
        self.step(id.to_owned(), id, 0, "asks people".to_owned(), "hitl", Needs::default().gate(hitl));
        self.gate_of(hitl);
        self.enter(id, before);
        vec![(id.to_owned(), None)]
    }

    fn dag(&mut self, tasks: &[Spec]) -> Ends {
        let mut left: Vec<&Spec> = tasks.iter().collect();
        let mut done: Vec<&str> = Vec::new();
        while !left.is_empty() {
            let ready = |task: &&Spec| task.deps.iter().all(|dep| done.contains(&dep.as_str()));
            // A cycle was refused before; should there be one, its tasks stand as they were written.
            let at = left.iter().position(ready).unwrap_or(0);
            let task = left.remove(at);
            let id = self.spec_step(task, "", 0);
            let before = task.deps.iter().map(|dep| (dep.clone(), None)).collect::<Ends>();
            self.enter(&id, if before.is_empty() { vec![(String::new(), None)] } else { before });
            done.push(&task.name);
        }
        let sinks = tasks.iter().filter(|task| !tasks.iter().any(|other| other.deps.contains(&task.name)));
        sinks.map(|task| (task.name.clone(), None)).collect()
    }

    fn routing(&mut self, routing: &Routing, begin: Ends) -> Ends {
        let router = &routing.router;
        let chosen = self.turn("router", &router.agent, Some(&router.input), "chooses a route", begin);
        let chosen = self.review("router-review", router.review.as_deref(), chosen);
        let routes = routing.routes.iter().map(|route| {
            let begin = chosen.iter().map(|(id, _)| (id.clone(), Some(format!("route {}", route.name)))).collect();
            self.list(&route.steps, &format!("routes/{}/", route.name), 1, begin)
        });
        routes.collect::<Vec<_>>().concat()
    }

    fn parallel(&mut self, parallel: &Parallel, begin: &Ends) -> Ends {
        let branches = parallel.branches.iter().map(|branch| {
            let begin = begin.iter().map(|(id, _)| (id.clone(), Some(format!("branch {}", branch.name)))).collect();
            self.list(&branch.steps, &format!("branches/{}/", branch.name), 1, begin)
        });
        let ends = branches.collect::<Vec<_>>().concat();
        self.last(parallel.reduce.as_ref(), ends)
    }

    fn last(&mut self, step: Option<&Spec>, before: Ends) -> Ends {
        match step {
            Some(step) => self.list(std::slice::from_ref(step), "", 0, before),
            None => before,
        }
    }

    fn evaluator(&mut self, pattern: &EvaluatorOptimizer, begin: Ends) -> Ends {
        let accept = pattern.accept.clone().unwrap_or_default();
        let (score, most) = (accept.min_score.unwrap_or(80), accept.max_iterations.unwrap_or(3));
        let drafted = self.turn("produce", &pattern.producer, pattern.input.as_ref(), "drafts", begin);
        let judge = format!("judges, at most {most} times");
        self.turn("evaluate", &pattern.evaluator.agent, pattern.evaluator.input.as_ref(), &judge, drafted);
        let below = vec![("evaluate".to_owned(), Some(format!("score below {score}")))];
        let reviewed = self.review("review-gate", pattern.review_gate.as_deref(), below);
        self.turn("revise", &pattern.producer, pattern.revise_prompt.as_ref(), "revises", reviewed);
        self.enter("evaluate", vec![("revise".to_owned(), None)]);
        let mut ends = vec![("evaluate".to_owned(), Some(format!("score {score} or more")))];
        if pattern.review_gate.is_some() {
            ends.push(("review-gate".to_owned(), Some("Approve".to_owned())));
        }
        ends
    }

    fn workers(&mut self, pattern: &OrchestratorWorkers, begin: Ends) -> Ends {
        let boss = &pattern.orchestrator;
        let most = boss.max_tasks.unwrap_or(32);
        let divided = self.turn(
            "orchestrate",
            &boss.agent,
            boss.input.as_ref(),
            &format!("divides the work into at most {most} parts"),
            begin,
        );
        let divided = self.review("decomposition-review", pattern.decomposition_review.as_deref(), divided);
        let at_once = boss.max_workers.map_or_else(|| "all at once".to_owned(), |most| format!("{most} at once"));
        let done = self.turn(
            "workers",
            &pattern.worker.agent,
            pattern.worker.input.as_ref(),
            &format!("does each part, {at_once}"),
            divided,
        );
        let reviewed = self.review("reduce-review", pattern.reduce_review.as_deref(), done);
        let reduced = self.last(pattern.reduce.as_ref(), reviewed);
        self.last(pattern.writeup.as_ref(), reduced)
    }

    fn graph(&mut self, graph: &Graph) -> Ends {
        for node in &graph.nodes {
            self.spec_step(node, "", 0);
        }
        let entry = graph.entry.clone().or_else(|| graph.nodes.first().map(|node| node.name.clone()));
        self.enter(&entry.unwrap_or_default(), vec![(String::new(), None)]);
        let mut ends: Ends = Vec::new();
        for node in &graph.nodes {
            let mut always = false;
            for edge in graph.edges.iter().filter(|edge| edge.from == node.name) {
                if let Some(to) = &edge.to {
                    self.enter(to, vec![(node.name.clone(), None)]);
                    always = true;
                }
                for way in &edge.choose {
                    self.enter(&way.to, vec![(node.name.clone(), Some(way.when.clone()))]);
                    always |= way.when.trim() == "else";
                }
            }
            if !always {
                let leaves = graph.edges.iter().any(|edge| edge.from == node.name);
                ends.push((node.name.clone(), leaves.then(|| "nothing else".to_owned())));
            }
        }
        ends
    }
}

/// What a step does, in a few words.
fn does(step: &Spec) -> (&'static str, String) {
    if let Some(agent) = &step.agent {
        ("agent", format!("agent {}", agent.name))
    } else if let Some(http) = &step.http {
        ("http", format!("{} {}", http.method.unwrap_or_default().name(), http.url))
    } else if step.hitl.is_some() {
        ("hitl", "asks people".to_owned())
    } else {
        ("set", "renders a text".to_owned())
    }
}

fn gate(hitl: &HitlStep) -> Gate {
    let timeout = hitl.timeout.clone().unwrap_or_default();
    let mut excluded = hitl.excluded.clone();
    if hitl.exclude_requester == Some(true) {
        excluded.insert(0, "the requester".to_owned());
    }
    Gate {
        approvers: hitl.approvers.iter().map(Subject::to_string).collect(),
        threshold: hitl.threshold.unwrap_or(1),
        required_from: hitl.required_from.iter().map(|one| format!("{} from Group {}", one.min, one.group)).collect(),
        excluded,
        after: timeout.after.map(|after| after.to_string()),
        action: format!("{:?}", timeout.action.unwrap_or_default()),
        verdicts: hitl.allowed_verdicts.iter().map(ToString::to_string).collect(),
        reviews: hitl.reviews.clone(),
    }
}
