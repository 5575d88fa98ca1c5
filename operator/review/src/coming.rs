//! The calls and gates that follow a verdict, with their targets, and the run that a request is part of.
//!
//! Pure. Templates are shown as their author wrote them, because their values are filled in when a step begins.

mod gate_lines;
mod question;

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use signoff_api::{
    ApprovalRequest, Moment, Outcome, RecordPath, Verdict, Workflow, WorkflowSpec,
    gate::GateType,
    journal::StepKind,
    pattern::{Edge, OrchestratorWorkers},
    step::{OnError, Step},
};
use signoff_engine::{
    Plan, Settings,
    plan::{GateAhead, GatePlace, spec_digest},
};

use crate::{
    action::{call, is_at_tool, is_question, line},
    decisions,
    outcome::sequel,
    quorum::subjects,
    seen::RunNow,
    text::one_line,
};
pub use question::label_of_question;

use gate_lines::{
    BEFORE_RELEASE, ENDS, StepState, failure_effect, gate_line, gates_around, has_certain_gate, release_lines,
};

/// The most lines about steps that follow.
const MOST: usize = 6;
/// The longest target, in characters.
const TARGET: usize = 300;
/// The line about steps that the run chooses later.
const OPEN: &str = "the steps after it are chosen while the run goes on";
/// The line about the steps of a dag that do not follow directly.
const LATER: &str = "then the steps that wait for these run, after their own gates";
/// The most steps and gates of a run that is planned here.
const MOST_PLANNED: usize = 256;
const ASKS_AGAIN: &str = "this gate asks again";

/// Returns the run of a request if it was read, and if its spec is the one from which the request was made.
pub fn definition<'r>(request: &ApprovalRequest, run: &'r RunNow) -> Option<&'r Workflow> {
    let workflow = run.workflow.as_deref()?;
    let is_asking = workflow.metadata.uid.as_deref() == Some(request.workflow.uid.as_str());
    let is_same = spec_digest(&workflow.spec).is_ok_and(|digest| digest == request.spec_digest);
    (is_asking && is_same).then_some(workflow)
}

/// Returns the steps and gates that follow a verdict which decides the gate, in lines. `run`: the run of
/// [`definition`], if it was read.
pub fn lines(request: &ApprovalRequest, run: Option<&PlannedRun<'_>>, verdict: Verdict) -> Vec<String> {
    let sequel_line = || vec![sequel(request, verdict)];
    let Some(run) = run else { return sequel_line() };
    match verdict {
        Verdict::Reject if !request.after_reject.is_empty() => {
            let named = |name: &String| run.spec.steps.iter().find(|step| step.name == *name);
            sequel_line()
                .into_iter()
                .chain(request.after_reject.iter().filter_map(named).map(|step| run.line(step)))
                .collect()
        }
        Verdict::Reject | Verdict::Abort | Verdict::Escalate | Verdict::Defer => sequel_line(),
        Verdict::Approve | Verdict::Modify | Verdict::Respond | Verdict::Skip | Verdict::Retry => {
            if request.action.is_some() || is_at_tool(request) {
                return run.lines_at_tool(request, verdict);
            }
            run.lines_after_gate(request, verdict)
        }
    }
}

/// Returns the first `most` steps of a run that has not begun, in the order of its spec, each in a line, and a line
/// with the number of the others. Gates of policies are missing, because they are added when the run begins.
pub fn steps(workflow: &Workflow, most: usize) -> Vec<String> {
    let Some(run) = PlannedRun::plan_run(workflow) else {
        return vec!["the steps cannot be told here: read the spec".to_owned()];
    };
    let line = |step: &Step| match &step.branch {
        Some(branch) => format!("branch {}: {}", one_line(branch, 63), run.line(step)),
        None if run.spec.runs_as_tool(step) => format!("as a tool: {}", run.line(step)),
        None => run.line(step),
    };
    let mut lines: Vec<_> = run.spec.steps.iter().take(most).map(line).collect();
    match run.spec.steps.len().saturating_sub(most) {
        0 if lines.is_empty() => lines.push("no steps: the agents of its pattern do the work".to_owned()),
        0 => {}
        more => lines.push(format!("and {more} more")),
    }
    lines
}

/// Returns the name and the value of each input of a run that has a value or a default. `most`: the maximum length of a
/// value, in characters.
pub fn inputs(workflow: &Workflow, most: usize) -> Vec<(String, String)> {
    let shown =
        |value: &Value| value.as_str().map_or_else(|| one_line(&value.to_string(), most), |text| one_line(text, most));
    let inputs = workflow.spec.inputs.iter().filter_map(|input| {
        let value = input.value.as_ref().or(input.default.as_ref())?;
        Some((one_line(&input.name, 63), shown(&value.0)))
    });
    inputs.collect()
}

/// Returns the decisions of a run on other Approvals than `approval`, the newest first, each in a line. `most`: the
/// maximum number of decisions.
pub fn decided(workflow: &Workflow, approval: &str, now: Moment, most: usize) -> Vec<String> {
    let records = workflow.status.iter().flat_map(|status| &status.steps);
    let mut decided: Vec<_> = records
        .filter(|record| record.kind == StepKind::Hitl && record.object.as_deref() != Some(approval))
        .filter_map(|record| Some((record.seq, record, record.decision.as_ref()?)))
        .collect();
    decided.sort_by_key(|(seq, ..)| std::cmp::Reverse(*seq));
    let outcome_line = |outcome: &Outcome| {
        let reason = outcome.reason.as_ref().map(|reason| format!(": {}", one_line(reason, TARGET)));
        format!("{}{}", decisions::outcome(outcome, now), reason.unwrap_or_default())
    };
    decided
        .into_iter()
        .take(most)
        .map(|(_, record, outcome)| format!("{}: {}", one_line(&record.path, 512), outcome_line(outcome)))
        .collect()
}

/// Returns the step of a path. Visits, and parts that begin with a dot, do not count.
fn step_at<'w>(spec: &'w WorkflowSpec, path: &str) -> Option<&'w Step> {
    let names: Vec<&str> =
        RecordPath::new(path).segments().filter(|part| !part.is_part()).map(|part| part.name()).collect();
    let is_named = |step: &&Step| match names.as_slice() {
        [name] => step.branch.is_none() && step.name == *name,
        [branch, name] => step.branch.as_deref() == Some(*branch) && step.name == *name,
        _ => false,
    };
    spec.steps.iter().find(is_named)
}

/// A run with its spec and with the plan of the engine, which knows the gates that ask.
pub struct PlannedRun<'w> {
    spec: &'w WorkflowSpec,
    plan: Plan,
}

impl<'w> PlannedRun<'w> {
    /// Returns the run with its plan. Returns `None` if the run was not accepted, has more than 256 steps and gates, or
    /// cannot be planned by this version.
    #[must_use]
    pub fn of(workflow: &'w Workflow) -> Option<Self> {
        workflow.status.as_ref()?.spec_digest.as_ref()?;
        Self::plan_run(workflow)
    }

    /// Returns the run with its plan, also before it was accepted.
    fn plan_run(workflow: &'w Workflow) -> Option<Self> {
        // The administrator's limits were checked when the run was accepted.
        let settings = Settings { max_gate_timeout: Duration::MAX, ..Settings::default() };
        let is_small = workflow.spec.steps.len() + workflow.spec.gates.len() <= MOST_PLANNED;
        let plan = is_small.then(|| Plan::of(workflow, &settings, &Arc::default()).ok())??;
        Some(Self { spec: &workflow.spec, plan })
    }

    /// Returns the lines after a verdict on a call or a question of an agent. The agent chooses its next action itself.
    fn lines_at_tool(&self, request: &ApprovalRequest, verdict: Verdict) -> Vec<String> {
        let target = line(request).filter(|_| call(request).is_some() && verdict == Verdict::Approve);
        let first = match target {
            Some(target) => format!("{}: {target}", sequel(request, verdict)),
            None if is_question(request) && verdict == Verdict::Respond => "the agent is told your answer".to_owned(),
            None => sequel(request, verdict),
        };
        let gates = match (self.plan.place_of_gate(&request.gate.path), verdict) {
            (Some(GatePlace::Step { then, .. }), Verdict::Approve | Verdict::Respond) => then,
            (Some(GatePlace::Step { after_change, .. }), Verdict::Modify) => after_change,
            (None, Verdict::Approve) => {
                let gates = call(request).and_then(|call| self.plan.gates_of_tool(&call.tool));
                gates.map(|gates| gates.before).unwrap_or_default()
            }
            (_, _) => Vec::new(),
        };
        let about = gates.iter().map(|gate| format!("{} about the same call", gate_line(gate)));
        let asking = request.action.as_ref().map_or(0, |action| action.gates.len());
        let is_more = call(request).is_some() && verdict == Verdict::Approve && self.plan.gates_of_calls() > asking;
        let more = is_more.then(|| "other gates of this run may ask about this call first".to_owned());
        let last = "the agent chooses what it does next; its further calls meet the gates of this run".to_owned();
        std::iter::once(first).chain(about).chain(more).chain([last]).collect()
    }

    /// Returns the lines after a verdict with which the run goes on.
    fn lines_after_gate(&self, request: &ApprovalRequest, verdict: Verdict) -> Vec<String> {
        let gate = &request.gate;
        let step = step_at(self.spec, &gate.path);
        let is_retry = verdict == Verdict::Retry;
        match (self.plan.place_of_gate(&gate.path), step) {
            (Some(GatePlace::End(_)), _) if is_retry && gate.type_ == GateType::FinalResponse => {
                vec![format!("the result is written again, and {ASKS_AGAIN}")]
            }
            (Some(_), _) if is_retry => vec![ASKS_AGAIN.to_owned()],
            (Some(GatePlace::Start(then)), _) => {
                let next = if has_certain_gate(&then) { Vec::new() } else { self.first_lines() };
                then.iter().map(gate_line).chain(next).collect()
            }
            (Some(GatePlace::Step { path, .. }), _) if verdict == Verdict::Skip => {
                step_at(self.spec, path).map_or_else(open_lines, |step| self.lines_after_step(step, request))
            }
            (Some(GatePlace::Step { path, agent, then, after_change }), _) => {
                let is_changed = verdict == Verdict::Modify;
                let (gates, about) =
                    if is_changed { (after_change, "the changed call") } else { (then, "the same call") };
                self.lines_before_step((step_at(self.spec, path), agent), &gates, about, request)
            }
            (Some(GatePlace::End(then)), _) => release_lines(&then, gate.type_, verdict),
            (None, Some(step)) => match (gate.type_, verdict) {
                (GateType::ErrorEscalation, Verdict::Modify) => self.repeat_lines(step, StepState::Changed),
                (GateType::ErrorEscalation, Verdict::Retry | Verdict::Respond) => {
                    self.repeat_lines(step, StepState::Again)
                }
                (GateType::OutputValidation, Verdict::Retry) => self.repeat_lines(step, StepState::Again),
                (_, Verdict::Retry) => vec![ASKS_AGAIN.to_owned()],
                (_, _) => self.lines_after_step(step, request),
            },
            (None, None) => self.lines_after_gate_of_pattern(request, verdict).unwrap_or_else(open_lines),
        }
    }

    /// Returns the line about a step that runs again.
    fn repeat_lines(&self, step: &Step, state: StepState) -> Vec<String> {
        vec![format!("the step runs again: {}", self.line_in(step, state))]
    }

    /// Returns the lines after a gate before a step: the other gates that ask about the step, and the step.
    fn lines_before_step(
        &self,
        (step, agent): (Option<&'w Step>, Option<&str>),
        gates: &[GateAhead<'_>],
        about: &str,
        request: &ApprovalRequest,
    ) -> Vec<String> {
        let now = if gates.is_empty() { "this runs now" } else { "then this runs" };
        let what = match (step, agent) {
            (Some(step), _) => self.line_in(step, StepState::Begins),
            (None, Some(agent)) => format!("agent {}", one_line(agent, 63)),
            (None, None) => "an agent, which writes the result again".to_owned(),
        };
        let waits = has_certain_gate(gates) || step.is_some_and(|step| self.asks_about_answer(step));
        let next = match step {
            Some(step) if !waits => self.lines_after_step(step, request),
            None if !waits => open_lines(),
            Some(_) | None => Vec::new(),
        };
        let asked = gates.iter().map(|gate| format!("{} about {about}", gate_line(gate)));
        asked.chain([format!("{now}: {what}")]).chain(next).collect()
    }

    /// Returns the lines after a gate that the pattern has between its agents, or `None` for any other gate.
    fn lines_after_gate_of_pattern(&self, request: &ApprovalRequest, verdict: Verdict) -> Option<Vec<String>> {
        let pattern = self.spec.pattern.as_ref()?;
        let place = RecordPath::new(&request.gate.path).place();
        let plans_again = matches!(verdict, Verdict::Respond | Verdict::Retry);
        let again = |agent: &str, path: &str, does: &str| {
            let before = self.before_turn(path);
            vec![format!("agent {} {does} again, and {ASKS_AGAIN}{before}", one_line(agent, 63))]
        };
        if let (Some(routing), ".review") = (&pattern.routing, &*place) {
            if plans_again {
                return Some(again(&routing.router.agent, ".router", "chooses"));
            }
            let chosen = request.reviews.as_ref().map(|review| review.response.as_str());
            let chosen = chosen.filter(|_| verdict == Verdict::Approve);
            let is_chosen = |step: &&Step| chosen.is_some() && step.branch.as_deref() == chosen;
            let steps: Vec<&Step> = self.ordered_steps().into_iter().filter(is_chosen).collect();
            let next = if steps.is_empty() { Vec::new() } else { self.chain_lines(&steps, None) };
            return Some(std::iter::once("the steps of the chosen route run".to_owned()).chain(next).collect());
        }
        if let (Some(drafts), ".review") = (&pattern.evaluator_optimizer, &*place) {
            let scored = self.before_turn(".evaluator");
            return Some(match verdict {
                Verdict::Approve => {
                    std::iter::once("this draft is the result".to_owned()).chain(self.end_lines()).collect()
                }
                Verdict::Modify => vec![format!("your draft is scored next{scored}")],
                Verdict::Respond
                | Verdict::Skip
                | Verdict::Retry
                | Verdict::Reject
                | Verdict::Abort
                | Verdict::Escalate
                | Verdict::Defer => {
                    let (producer, before) = (one_line(&drafts.producer, 63), self.before_turn(".reviser"));
                    vec![format!("agent {producer} revises the draft, and it is scored again{before}{scored}")]
                }
            });
        }
        let workers = pattern.orchestrator_workers.as_ref()?;
        let worker = one_line(&workers.worker.agent, 63);
        let before = self.before_turn(".worker");
        match &*place {
            ".decomposition" if plans_again => {
                Some(again(&workers.orchestrator.agent, ".orchestrator", "divides the work"))
            }
            ".decomposition" => {
                let first = format!("agent {worker} does each part of the work{before}");
                let gate = self.plan.gate_at(".reduce-review");
                let asked = gate.iter().map(|gate| format!("then {} about the parts", gate_line(gate)));
                let next = if gate.as_ref().is_some_and(|gate| gate.is_certain) {
                    Vec::new()
                } else {
                    self.chain_lines(&self.joining_steps(workers), None)
                };
                Some(std::iter::once(first).chain(asked).chain(next).collect())
            }
            ".reduce-review" if verdict == Verdict::Retry => {
                Some(vec![format!("agent {worker} does parts of the work again, and {ASKS_AGAIN}{before}")])
            }
            ".reduce-review" => Some(self.chain_lines(&self.joining_steps(workers), None)),
            _ => None,
        }
    }

    /// Returns the gates before the turns of an agent of the pattern as the end of a line. `path`: the path of the
    /// agent.
    fn before_turn(&self, path: &str) -> String {
        let gates = self.plan.gates_of_step(path);
        gates.map(|gates| gates_around(&gates, StepState::Ahead)).unwrap_or_default()
    }

    /// Returns the steps that join the work of an orchestrator, in their order.
    fn joining_steps(&self, workers: &OrchestratorWorkers) -> Vec<&'w Step> {
        let named = [&workers.reduce, &workers.writeup].into_iter().flatten();
        named.filter_map(|name| self.spec.steps.iter().find(|step| step.name == *name)).collect()
    }

    /// Returns the lines about the first steps of the spec.
    fn first_lines(&self) -> Vec<String> {
        match &self.spec.pattern {
            None => self.chain_lines(&self.ordered_steps(), None),
            Some(_) => open_lines(),
        }
    }

    /// Returns the steps that run in order, without those that run as tools.
    fn ordered_steps(&self) -> Vec<&'w Step> {
        self.spec.steps.iter().filter(|step| !self.spec.runs_as_tool(step)).collect()
    }

    /// Returns the lines after a step, by the pattern.
    fn lines_after_step(&self, step: &Step, request: &ApprovalRequest) -> Vec<String> {
        let rest_of = |steps: Vec<&'w Step>| -> Vec<&'w Step> {
            steps.into_iter().skip_while(|other| other.name != step.name).skip(1).collect()
        };
        let of_branch = || self.ordered_steps().into_iter().filter(|other| other.branch == step.branch).collect();
        let Some(pattern) = &self.spec.pattern else {
            return self.chain_lines(&rest_of(self.ordered_steps()), Some(request));
        };
        if pattern.routing.is_some() {
            return self.chain_lines(&rest_of(of_branch()), Some(request));
        }
        if let Some(parallel) = &pattern.parallel {
            return match step.branch {
                Some(_) => self.lines_in_branch(&rest_of(of_branch()), parallel.reduce.as_ref(), request),
                None => self.end_lines(),
            };
        }
        if pattern.dag.is_some() {
            return self.dag_lines(step);
        }
        if let Some(graph) = &pattern.graph {
            return self.edge_lines(&graph.edges, step);
        }
        if let Some(workers) = &pattern.orchestrator_workers {
            return self.chain_lines(&rest_of(self.joining_steps(workers)), Some(request));
        }
        self.chain_lines(&rest_of(self.ordered_steps()), Some(request))
    }

    /// Returns the lines of the rest of a branch, and of the step `reduce` that follows all branches.
    fn lines_in_branch(&self, rest: &[&'w Step], reduce: Option<&String>, request: &ApprovalRequest) -> Vec<String> {
        let (mut lines, waits) = self.lines_until_gate(rest, Some(request));
        if lines.len() <= MOST && !waits {
            let reduce = reduce.and_then(|name| self.spec.steps.iter().find(|step| step.name == *name));
            lines.push("then the run waits until all branches have ended".to_owned());
            lines.extend(self.chain_lines(reduce.as_slice(), Some(request)));
        }
        lines
    }

    /// Returns the lines after a step of a `dag`: the steps that wait for it, or the line that no step waits for it.
    fn dag_lines(&self, step: &Step) -> Vec<String> {
        let waiting_for = |before: &Step| -> Vec<&'w Step> {
            self.ordered_steps().into_iter().filter(|next| next.depends_on.contains(&before.name)).collect()
        };
        let waiting = waiting_for(step);
        let lines: Vec<_> = waiting.iter().map(|next| self.waiting_line(next, step)).collect();
        let last = || vec!["no other step waits for it; the run ends when its other steps have ended".to_owned()];
        let mut lines = if lines.is_empty() { last() } else { shorten(lines) };
        if waiting.iter().any(|next| !waiting_for(next).is_empty()) {
            lines.push(LATER.to_owned());
        }
        lines.into_iter().chain(self.gates_at_end()).collect()
    }

    /// Returns the line of a step of a `dag` with the steps that it waits for besides `before`.
    fn waiting_line(&self, step: &Step, before: &Step) -> String {
        let others: Vec<_> = step.depends_on.iter().filter(|name| **name != before.name).cloned().collect();
        let line = self.line(step);
        if others.is_empty() {
            line
        } else {
            format!("{line}; it also waits for {}", one_line(&others.join(", "), 300))
        }
    }

    /// Returns a line for each edge of a graph that the run can follow after a step.
    fn edge_lines(&self, edges: &[Edge], step: &Step) -> Vec<String> {
        let to = |name: &str| match self.spec.steps.iter().find(|step| step.name == name) {
            Some(step) => self.line(step),
            None => format!("step {}", one_line(name, 63)),
        };
        let (mut lines, mut is_certain) = (Vec::new(), false);
        for edge in edges.iter().filter(|edge| edge.from == step.name) {
            if let Some(next) = &edge.to {
                let otherwise = if lines.is_empty() { "" } else { "otherwise " };
                lines.push(format!("{otherwise}{}", to(next)));
                is_certain = true;
                break;
            }
            for choice in &edge.choose {
                is_certain |= choice.when == "else";
                let when = if choice.when == "else" { "otherwise ".to_owned() } else { condition_prefix(&choice.when) };
                lines.push(format!("{when}{}", to(&choice.to)));
            }
            if is_certain {
                break;
            }
        }
        if lines.is_empty() {
            return self.end_lines();
        }
        let last = if is_certain { "after that the edges of its graph decide" } else { "otherwise the run ends" };
        let mut lines = shorten(lines);
        lines.push(last.to_owned());
        lines.extend(self.gates_at_end());
        lines
    }

    /// Returns the lines of steps in order, up to the next gate that asks in any case, or to the end of the run.
    fn chain_lines(&self, steps: &[&'w Step], request: Option<&ApprovalRequest>) -> Vec<String> {
        let (mut lines, waits) = self.lines_until_gate(steps, request);
        if lines.len() <= MOST && !waits {
            lines.extend(self.end_lines());
        }
        lines
    }

    /// Returns the lines of steps up to the next gate that asks in any case, and whether there is such a gate. The
    /// request of that gate shows the steps after it.
    fn lines_until_gate(&self, steps: &[&'w Step], request: Option<&ApprovalRequest>) -> (Vec<String>, bool) {
        let gate = steps.iter().position(|step| self.always_asks_at(step));
        let count = gate.map_or(steps.len(), |index| index + 1);
        let lines = steps.iter().take(count.min(MOST)).map(|step| self.line(step) + body_note(step, request));
        (lines.chain(and_more(count)).collect(), gate.is_some())
    }

    /// Whether the run asks people at a step in any case, before it runs a later step. A step with `onError: Continue`
    /// can fail before its gates ask.
    fn always_asks_at(&self, step: &Step) -> bool {
        let path = path_of(step);
        if step.hitl.is_some() {
            return self.plan.gate_at(&path).is_some_and(|gate| gate.is_certain);
        }
        let gates = self.plan.gates_of_step(&path).filter(|_| !continues_on_error(step));
        gates.is_some_and(|gates| has_certain_gate(&gates.before) || gates.output.is_some_and(|gate| gate.is_certain))
    }

    /// Whether people are asked about every answer of a step before a later step runs.
    fn asks_about_answer(&self, step: &Step) -> bool {
        let gates = self.plan.gates_of_step(&path_of(step)).filter(|_| !continues_on_error(step));
        gates.and_then(|gates| gates.output).is_some_and(|gate| gate.is_certain)
    }

    /// Returns the lines about the gates before the outputs are released.
    fn gates_at_end(&self) -> impl Iterator<Item = String> {
        self.plan.gates_at_end().into_iter().map(|gate| gate_line(&gate) + BEFORE_RELEASE)
    }

    /// Returns the lines about the end of the run.
    fn end_lines(&self) -> Vec<String> {
        self.gates_at_end().chain([ENDS.to_owned()]).collect()
    }

    /// Returns the line of a step that the run has not reached.
    fn line(&self, step: &Step) -> String {
        self.line_in(step, StepState::Ahead)
    }

    /// Returns the line of a step: its target or its approvers, the gates around it, and the effect of a failure.
    fn line_in(&self, step: &Step, state: StepState) -> String {
        let (name, path) = (one_line(&step.name, 63), path_of(step));
        if let Some(hitl) = &step.hitl {
            let gate = self.plan.gate_at(&path);
            let unknown = || format!("gate {name} may ask {}", subjects(&hitl.approvers));
            return gate.map_or_else(unknown, |gate| gate_line(&gate));
        }
        let is_settled = step.skip_if.is_none() || state != StepState::Ahead;
        let unless = if is_settled { "" } else { ", unless its condition leaves it out" };
        let what = if let Some(http) = &step.http {
            format!("{} {}", http.method.unwrap_or_default().name(), template_text(&http.url))
        } else if let Some(mcp) = &step.mcp {
            format!("tool {} of the server {}", one_line(&mcp.tool, 64), one_line(&mcp.server, 20))
        } else if let Some(pod) = &step.pod {
            format!("image {}", one_line(&pod.image, TARGET))
        } else if let Some(agent) = &step.agent {
            format!("agent {}", one_line(&agent.name, 63))
        } else {
            "a text of the run".to_owned()
        };
        let gates = self.plan.gates_of_step(&path);
        let asked = gates.as_ref().map(|gates| gates_around(gates, state)).unwrap_or_default();
        format!("step {name}: {what}{unless}{asked}{}", failure_effect(step, gates.and_then(|gates| gates.failure)))
    }
}

/// Whether the run goes on when a step fails.
fn continues_on_error(step: &Step) -> bool {
    step.on_error == Some(OnError::Continue)
}

fn open_lines() -> Vec<String> {
    vec![OPEN.to_owned()]
}

/// Returns the path of a step in the plan.
fn path_of(step: &Step) -> String {
    match &step.branch {
        Some(branch) => format!("{branch}/{}", step.name),
        None => step.name.clone(),
    }
}

/// Returns the first [`MOST`] lines, and a line with the number of the others.
fn shorten(mut lines: Vec<String>) -> Vec<String> {
    let more = and_more(lines.len());
    lines.truncate(MOST);
    lines.extend(more);
    lines
}

/// Returns the line with the number of lines beyond [`MOST`], if there are any. `count`: the number of all lines.
fn and_more(count: usize) -> Option<String> {
    let more = count.saturating_sub(MOST);
    (more > 0).then(|| format!("and {more} more"))
}

fn condition_prefix(when: &str) -> String {
    format!("if {}: ", one_line(when, 200))
}

/// Returns the end of the line of an http step whose body is the reviewed text; empty for any other step.
fn body_note(step: &Step, request: Option<&ApprovalRequest>) -> &'static str {
    let template = step.http.as_ref().and_then(|http| http.body.as_ref());
    // Only these gates review a response; the others review the text that is sent.
    let is_response =
        |request: &&ApprovalRequest| matches!(request.gate.type_, GateType::Step | GateType::OutputValidation);
    let review = request.filter(is_response).and_then(|request| request.reviews.as_ref());
    let Some((template, review)) = template.zip(review) else { return "" };
    let bare: String = template.split_whitespace().collect();
    let own = format!("{{{{steps.{}.response}}}}", RecordPath::new(&review.path).last().name());
    if bare == own { "; its body is the text below" } else { "" }
}

fn template_text(template: &str) -> String {
    let values = if template.contains("{{") { " (with values that are filled in then)" } else { "" };
    format!("{}{values}", one_line(template, TARGET))
}

#[cfg(test)]
#[path = "coming/replay_tests.rs"]
mod replay_tests;
#[cfg(test)]
#[path = "coming/tests.rs"]
mod tests;
