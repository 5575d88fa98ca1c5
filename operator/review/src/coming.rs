//! The calls and gates that follow a verdict, with their targets, and the run as the readers of a request know it.
//!
//! Pure. Templates stand as their author wrote them: their values are known only when a step begins.

use serde_json::Value;
use signoff_api::{
    ApprovalRequest, Moment, Outcome, RecordPath, Verdict, Workflow, WorkflowSpec,
    gate::{GateType, Subject},
    journal::StepKind,
    policy::{AddedStep, GuardedKind, Position},
    step::{OnError, Step},
    workflow::{Gate, SpecGateType},
};
use signoff_engine::plan::spec_digest;

use crate::{
    action::{call, is_at_tool, is_question, line},
    decisions,
    outcome::sequel,
    quorum::subjects,
    seen::RunNow,
    text::one_line,
};

/// The most lines about what follows.
const MOST: usize = 6;
/// The longest target.
const TARGET: usize = 300;
/// The line about steps that the definition does not name.
const OPEN: &str = "the steps after it are chosen while the run goes on";
const ENDS: &str = "then the run ends";

/// Returns the run that asks, if its definition is the one that the request was made from.
pub fn definition<'r>(request: &ApprovalRequest, run: &'r RunNow) -> Option<&'r Workflow> {
    let workflow = run.workflow.as_deref()?;
    let is_asking = workflow.metadata.uid.as_deref() == Some(request.workflow.uid.as_str());
    let is_same = spec_digest(&workflow.spec).is_ok_and(|digest| digest == request.spec_digest);
    (is_asking && is_same).then_some(workflow)
}

/// Returns what follows a verdict that decides the gate, in lines. `workflow`: the [`definition`], if it was read.
pub fn lines(request: &ApprovalRequest, workflow: Option<&Workflow>, verdict: Verdict) -> Vec<String> {
    let told = || vec![sequel(request, verdict)];
    let Some(workflow) = workflow else { return told() };
    let run = Run::new(workflow);
    match verdict {
        Verdict::Reject if !request.after_reject.is_empty() => {
            let named = |name: &String| run.spec.steps.iter().find(|step| step.name == *name);
            told().into_iter().chain(request.after_reject.iter().filter_map(named).map(|step| run.line(step))).collect()
        }
        Verdict::Reject | Verdict::Abort | Verdict::Escalate | Verdict::Defer => told(),
        Verdict::Approve | Verdict::Modify | Verdict::Respond | Verdict::Skip | Verdict::Retry => {
            if request.action.is_some() || is_at_tool(request) {
                return at_tool(request, verdict);
            }
            run.onward(request, verdict)
        }
    }
}

/// Returns the label of the question of a request: its source, and whether values of the run are in it.
/// `workflow`: the [`definition`], if it was read.
pub fn label_of_question(request: &ApprovalRequest, workflow: Option<&Workflow>) -> &'static str {
    match workflow.and_then(|workflow| has_values(request, workflow)) {
        Some(false) => "the Workflow's question",
        Some(true) => "the Workflow's question, with values of the run filled in",
        None => "the Workflow's question; values of the run may be filled in",
    }
}

/// Returns whether the question of a request has values of the run in it, or `None` where one of its templates is
/// not known.
fn has_values(request: &ApprovalRequest, workflow: &Workflow) -> Option<bool> {
    let run = Run::new(workflow);
    let has = |template: &&str| template.contains("{{") || template.contains("{%");
    let own = run.prompts(request, &request.gate.name);
    if !own.is_empty() && own.iter().all(has) {
        return Some(true);
    }
    // The question of a call has the prompts of all gates that ask about it.
    let gates = request.action.iter().flat_map(|action| &action.gates);
    let mut all = gates.map(|gate| run.prompts(request, &gate.name)).chain([own]);
    all.all(|templates| !templates.is_empty() && !templates.iter().any(has)).then_some(false)
}

/// Returns the inputs of a run with their values, each in a line.
pub fn inputs(workflow: &Workflow, most: usize) -> Vec<(String, String)> {
    let shown =
        |value: &Value| value.as_str().map_or_else(|| one_line(&value.to_string(), most), |text| one_line(text, most));
    let given = workflow.spec.inputs.iter().filter_map(|input| {
        let value = input.value.as_ref().or(input.default.as_ref())?;
        Some((one_line(&input.name, 63), shown(&value.0)))
    });
    given.collect()
}

/// Returns the steps of a run in the order of its spec, each in a line. Gates that policies add are not known before
/// the run begins.
pub fn steps(workflow: &Workflow, most: usize) -> Vec<String> {
    let run = Run::new(workflow);
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

/// Whether the steps of a run tell all that follows a verdict: no gate of a type, of a preset or of a policy may ask.
#[must_use]
pub fn is_told_by_steps(workflow: &Workflow) -> bool {
    workflow.spec.gates.is_empty() && workflow.status.iter().all(|status| status.added_steps.is_empty())
}

/// Returns the decisions of a run on other Approvals than this one, the newest first, each in a line.
pub fn decided(workflow: &Workflow, approval: &str, now: Moment, most: usize) -> Vec<String> {
    let records = workflow.status.iter().flat_map(|status| &status.steps);
    let mut decided: Vec<_> = records
        .filter(|record| record.kind == StepKind::Hitl && record.object.as_deref() != Some(approval))
        .filter_map(|record| Some((record.seq, record, record.decision.as_ref()?)))
        .collect();
    decided.sort_by_key(|(seq, ..)| std::cmp::Reverse(*seq));
    let told = |outcome: &Outcome| {
        let reason = outcome.reason.as_ref().map(|reason| format!(": {}", one_line(reason, TARGET)));
        format!("{}{}", decisions::outcome(outcome, now), reason.unwrap_or_default())
    };
    decided
        .into_iter()
        .take(most)
        .map(|(_, record, outcome)| format!("{}: {}", one_line(&record.path, 512), told(outcome)))
        .collect()
}

/// Returns the lines after a verdict on a call or a question of an agent, which chooses its next action itself.
fn at_tool(request: &ApprovalRequest, verdict: Verdict) -> Vec<String> {
    let target = line(request).filter(|_| call(request).is_some() && verdict == Verdict::Approve);
    let first = match target {
        Some(target) => format!("{}: {target}", sequel(request, verdict)),
        None if is_question(request) && verdict == Verdict::Respond => "the agent is told your answer".to_owned(),
        None => sequel(request, verdict),
    };
    vec![first, "the agent chooses what it does next; its further calls meet the gates of this run".to_owned()]
}

/// The definition of a run, with the gates that policies add.
struct Run<'w> {
    spec: &'w WorkflowSpec,
    added: &'w [AddedStep],
}

impl<'w> Run<'w> {
    fn new(workflow: &'w Workflow) -> Self {
        let added = workflow.status.as_ref().map(|status| status.added_steps.as_slice());
        Self { spec: &workflow.spec, added: added.unwrap_or_default() }
    }

    /// Returns the templates of the questions of all gates with this name.
    fn prompts(&self, request: &ApprovalRequest, name: &str) -> Vec<&'w str> {
        let own = self.step(&request.gate.path).filter(|_| name == request.gate.name);
        let own = own.and_then(|step| step.hitl.as_ref());
        // The gates of a preset are `<name>.<gate>`.
        let preset = name.split_once('.').map(|(preset, _)| preset);
        let is_it = |gate: &&Gate| gate.name == name || gate.preset.is_some() && preset == Some(gate.name.as_str());
        // `release-pay` is the gate that the `release` of a policy puts before the step `pay`.
        let is_added = |one: &&AddedStep| {
            let rest = name.strip_prefix(one.step.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || one.step.before.is_some() && rest.starts_with('-'))
        };
        let of_spec = self.spec.gates.iter().filter(is_it).map(|gate| &gate.hitl);
        let of_policies = self.added.iter().filter(is_added).map(|one| &one.step.hitl);
        own.into_iter().chain(of_spec).chain(of_policies).map(|hitl| hitl.prompt.as_str()).collect()
    }

    /// Returns the step that a path names, without the parts and visits of the path.
    fn step(&self, path: &str) -> Option<&'w Step> {
        let names: Vec<&str> =
            RecordPath::new(path).segments().filter(|part| !part.is_part()).map(|part| part.name()).collect();
        let is_it = |step: &&Step| match names.as_slice() {
            [name] => step.branch.is_none() && step.name == *name,
            [branch, name] => step.branch.as_deref() == Some(*branch) && step.name == *name,
            _ => false,
        };
        self.spec.steps.iter().find(is_it)
    }

    /// Returns the lines after a verdict with which the run goes on.
    fn onward(&self, request: &ApprovalRequest, verdict: Verdict) -> Vec<String> {
        let gate = &request.gate;
        let step = self.step(&gate.path);
        let repeats = |step: &Step| vec![format!("the step runs again: {}", self.line(step))];
        let is_again = matches!(verdict, Verdict::Retry | Verdict::Modify);
        match (gate.type_, step) {
            (GateType::StepStart, Some(step)) if verdict != Verdict::Skip => {
                let first = format!("this runs now: {}", self.line(step));
                std::iter::once(first).chain(self.after(step, request)).collect()
            }
            (GateType::ErrorEscalation, Some(step)) if is_again => repeats(step),
            (GateType::OutputValidation, Some(step)) if verdict == Verdict::Retry => repeats(step),
            (GateType::FinalResponse, _) => {
                std::iter::once("the result is published".to_owned()).chain(self.end(true)).collect()
            }
            (_, _) if verdict == Verdict::Retry => vec!["this gate asks again".to_owned()],
            (_, Some(step)) => self.after(step, request),
            (_, None) => self.after_named(request, verdict).unwrap_or_else(|| vec![OPEN.to_owned()]),
        }
    }

    /// Returns the lines after a gate that is no step of the spec: of a policy, or one that the pattern names.
    fn after_named(&self, request: &ApprovalRequest, verdict: Verdict) -> Option<Vec<String>> {
        let gate = &request.gate;
        let is_before = |step: &&Step| {
            let named = |one: &AddedStep| format!("{}-{}", one.step.name, step.name) == gate.name;
            self.added.iter().any(|one| one.step.before.is_some() && named(one))
        };
        if let Some(step) = self.spec.steps.iter().find(is_before) {
            return Some(std::iter::once(self.line(step)).chain(self.after(step, request)).collect());
        }
        let mut here = self.added.iter().skip_while(|one| one.step.at.is_none() || one.step.name != gate.name);
        if let Some(position) = here.next().and_then(|one| one.step.at) {
            let next = here.find(|one| one.step.at == Some(position)).map(|next| vec![added_line(next)]);
            return Some(next.unwrap_or_else(|| match position {
                Position::Start => self.start(),
                Position::End => vec![ENDS.to_owned()],
            }));
        }
        let pattern = self.spec.pattern.as_ref()?;
        let is_it = |name: Option<&String>| name == Some(&gate.name);
        let is_plan = gate.type_ == GateType::PlanApproval;
        if let Some(routing) = &pattern.routing {
            let is_review = is_plan || is_it(routing.router.review.as_ref());
            return is_review.then(|| vec!["the steps of the chosen route run".to_owned()]);
        }
        if let Some(drafts) = pattern.evaluator_optimizer.as_ref().filter(|one| is_it(one.review_gate.as_ref())) {
            let next = match verdict {
                Verdict::Approve => "this draft is the result".to_owned(),
                Verdict::Modify => return Some(vec!["your draft is scored next".to_owned()]),
                Verdict::Respond
                | Verdict::Skip
                | Verdict::Retry
                | Verdict::Reject
                | Verdict::Abort
                | Verdict::Escalate
                | Verdict::Defer => {
                    let producer = one_line(&drafts.producer, 63);
                    return Some(vec![format!("agent {producer} revises the draft, and it is scored again")]);
                }
            };
            return Some(std::iter::once(next).chain(self.end(false)).collect());
        }
        let workers = pattern.orchestrator_workers.as_ref()?;
        let joined = || {
            let named = [&workers.reduce, &workers.writeup].into_iter().flatten();
            let steps = named.filter_map(|name| self.spec.steps.iter().find(|step| step.name == *name));
            self.chain(&steps.collect::<Vec<_>>(), None)
        };
        if is_it(workers.reduce_review.as_ref()) {
            return Some(joined());
        }
        let is_review = is_plan || is_it(workers.decomposition_review.as_ref());
        let first = format!("agent {} does each part of the work", one_line(&workers.worker.agent, 63));
        is_review.then(|| match &workers.reduce_review {
            Some(gate) => vec![first, format!("then gate {} asks about the parts", one_line(gate, 63))],
            None => std::iter::once(first).chain(joined()).collect(),
        })
    }

    /// Returns the lines about the beginning of the spec.
    fn start(&self) -> Vec<String> {
        match &self.spec.pattern {
            None => self.chain(&self.ordered(), None),
            Some(_) => vec![OPEN.to_owned()],
        }
    }

    /// Returns the steps that run in order, without those that run as tools.
    fn ordered(&self) -> Vec<&'w Step> {
        self.spec.steps.iter().filter(|step| !self.spec.runs_as_tool(step)).collect()
    }

    /// Returns the lines after a step, by the pattern.
    fn after(&self, step: &Step, request: &ApprovalRequest) -> Vec<String> {
        let rest_of = |steps: Vec<&'w Step>| -> Vec<&'w Step> {
            steps.into_iter().skip_while(|one| one.name != step.name).skip(1).collect()
        };
        let of_branch = || self.ordered().into_iter().filter(|one| one.branch == step.branch).collect();
        let Some(pattern) = &self.spec.pattern else { return self.chain(&rest_of(self.ordered()), Some(request)) };
        if pattern.routing.is_some() {
            return self.chain(&rest_of(of_branch()), Some(request));
        }
        if let Some(parallel) = &pattern.parallel {
            let reduce = parallel.reduce.as_ref().and_then(|name| self.spec.steps.iter().find(|one| one.name == *name));
            if step.branch.is_none() {
                return self.end(false);
            }
            let rest = rest_of(of_branch());
            let mut lines = self.until_gate(&rest, Some(request));
            if lines.len() < MOST && rest.iter().all(|one| one.hitl.is_none()) {
                lines.push("then the run waits until all branches have ended".to_owned());
                lines.extend(self.chain(reduce.as_slice(), Some(request)));
            }
            return lines;
        }
        if pattern.dag.is_some() {
            let waits = self.ordered().into_iter().filter(|one| one.depends_on.contains(&step.name));
            let lines: Vec<_> = waits.map(|one| self.waiting(one, step)).collect();
            let last = || vec!["no other step waits for it; the run ends when its other steps have ended".to_owned()];
            return if lines.is_empty() { last() } else { shortened(lines) };
        }
        if let Some(graph) = &pattern.graph {
            return self.edges(&graph.edges, step);
        }
        self.chain(&rest_of(self.ordered()), Some(request))
    }

    /// Returns the line of a step of a `dag`, with the other steps that it waits for.
    fn waiting(&self, step: &Step, before: &Step) -> String {
        let others: Vec<_> = step.depends_on.iter().filter(|name| **name != before.name).cloned().collect();
        let line = self.line(step);
        if others.is_empty() {
            line
        } else {
            format!("{line}; it also waits for {}", one_line(&others.join(", "), 300))
        }
    }

    /// Returns a line for each edge that can be followed.
    fn edges(&self, edges: &[signoff_api::pattern::Edge], step: &Step) -> Vec<String> {
        let to = |name: &str| match self.spec.steps.iter().find(|one| one.name == name) {
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
                let when = if choice.when == "else" { "otherwise ".to_owned() } else { condition(&choice.when) };
                lines.push(format!("{when}{}", to(&choice.to)));
            }
        }
        if lines.is_empty() {
            return self.end(false);
        }
        let last = if is_certain { "after that the edges of its graph decide" } else { "otherwise the run ends" };
        let mut lines = shortened(lines);
        lines.push(last.to_owned());
        lines
    }

    /// Returns the lines of steps one after the other, up to the next gate, or to the end of the run.
    fn chain(&self, steps: &[&'w Step], request: Option<&ApprovalRequest>) -> Vec<String> {
        let mut lines = self.until_gate(steps, request);
        if lines.len() <= MOST && steps.iter().all(|step| step.hitl.is_none()) {
            lines.extend(self.end(false));
        }
        lines
    }

    /// Returns the lines of steps up to the next gate, and none after it.
    fn until_gate(&self, steps: &[&'w Step], request: Option<&ApprovalRequest>) -> Vec<String> {
        let is_before = steps.iter().position(|step| step.hitl.is_some()).map_or(steps.len(), |at| at + 1);
        let lines = steps.iter().take(is_before).map(|step| self.line(step) + body(step, request));
        shortened(lines.collect())
    }

    /// Returns the lines about the end of the run. `is_published`: whether the gates about the result were asked.
    fn end(&self, is_published: bool) -> Vec<String> {
        let finals = self.spec.gates.iter().filter(|gate| gate.type_ == Some(SpecGateType::FinalResponse));
        let finals = finals.filter(|_| !is_published);
        let mut lines: Vec<_> = finals.map(|gate| format!("{} before the result is published", asks(gate))).collect();
        lines.extend(self.added.iter().filter(|one| one.step.at == Some(Position::End)).map(added_line));
        lines.push(ENDS.to_owned());
        lines
    }

    /// Returns the line of a step: what it calls or whom it asks, and what a failure of it comes to.
    fn line(&self, step: &Step) -> String {
        let name = one_line(&step.name, 63);
        let unless = if step.skip_if.is_some() { ", unless its condition leaves it out" } else { "" };
        if let Some(hitl) = &step.hitl {
            return format!("gate {name} {}{unless}", asked(&hitl.approvers));
        }
        let what = if let Some(http) = &step.http {
            format!("{} {}", http.method.unwrap_or_default().name(), filled(&http.url))
        } else if let Some(pod) = &step.pod {
            format!("image {}", one_line(&pod.image, TARGET))
        } else if let Some(agent) = &step.agent {
            format!("agent {}", one_line(&agent.name, 63))
        } else {
            "a text of the run".to_owned()
        };
        let before = self.gates_before(step).into_iter().map(|gate| format!("; before it {gate}"));
        format!("step {name}: {what}{unless}{}{}", before.collect::<String>(), self.failure(step))
    }

    /// Returns the gates that ask before a step starts.
    fn gates_before(&self, step: &Step) -> Vec<String> {
        let own = self.spec.gates.iter().filter(|gate| gate.type_ == Some(SpecGateType::StepStart));
        let own = own.filter(|gate| !gate.steps.is_empty() && is_about(gate, step));
        let own = own.map(|gate| match gate.condition {
            Some(_) => format!("{}, if its condition says so", asks(gate)),
            None => asks(gate),
        });
        let is_kind = |kind: &GuardedKind| match kind {
            GuardedKind::Agent => step.agent.is_some(),
            GuardedKind::Pod => step.pod.is_some(),
            GuardedKind::Http => step.http.is_some(),
            GuardedKind::Egress => step.http.is_some() || step.agent.is_some(),
            GuardedKind::Tool => false,
        };
        let is_before = |one: &&AddedStep| one.step.before.as_ref().is_some_and(|all| all.kinds.iter().any(is_kind));
        own.chain(self.added.iter().filter(is_before).map(added_line)).collect()
    }

    fn failure(&self, step: &Step) -> String {
        match step.on_error {
            Some(OnError::Continue) => "; if it fails the run goes on".to_owned(),
            Some(OnError::Escalate) => {
                let mut gates = self.spec.gates.iter().filter(|gate| gate.type_ == Some(SpecGateType::ErrorEscalation));
                let found = gates.find(|gate| gate.steps.is_empty() || is_about(gate, step));
                let who = found.map_or_else(|| "a gate asks".to_owned(), |gate| are_asked(&gate.hitl.approvers));
                format!("; if it fails {who}")
            }
            Some(OnError::Fail) | None if step.set.is_some() => String::new(),
            Some(OnError::Fail) | None => "; if it fails the run fails".to_owned(),
        }
    }
}

/// Returns the first lines of many, and how many are left out.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MOST);
    if more > 0 {
        lines.truncate(MOST);
        lines.push(format!("and {more} more"));
    }
    lines
}

fn condition(when: &str) -> String {
    format!("if {}: ", one_line(when, 200))
}

/// Returns the end of the line of an http step whose body is the text that the gate reviews.
fn body(step: &Step, request: Option<&ApprovalRequest>) -> &'static str {
    let template = step.http.as_ref().and_then(|http| http.body.as_ref());
    let review = request.and_then(|request| request.reviews.as_ref());
    let Some((template, review)) = template.zip(review) else { return "" };
    let bare: String = template.split_whitespace().collect();
    let own = format!("{{{{steps.{}.response}}}}", RecordPath::new(&review.path).last().name());
    if bare == own { "; its body is the text below" } else { "" }
}

fn filled(template: &str) -> String {
    let values = if template.contains("{{") { " (with values that are filled in then)" } else { "" };
    format!("{}{values}", one_line(template, TARGET))
}

fn is_about(gate: &Gate, step: &Step) -> bool {
    let in_branch = step.branch.as_ref().map(|branch| format!("{branch}/{}", step.name));
    gate.steps.iter().any(|name| *name == step.name || Some(name) == in_branch.as_ref())
}

fn asks(gate: &Gate) -> String {
    format!("gate {} {}", one_line(&gate.name, 63), asked(&gate.hitl.approvers))
}

fn added_line(added: &AddedStep) -> String {
    let (name, approvers) = (one_line(&added.step.name, 63), asked(&added.step.hitl.approvers));
    format!("gate {name} of {} {approvers}", one_line(&added.source, 253))
}

fn asked(approvers: &[Subject]) -> String {
    format!("asks {}", subjects(approvers))
}

/// Returns the approvers of a gate as a clause: `group ops is asked`.
pub fn are_asked(approvers: &[Subject]) -> String {
    let verb = if approvers.len() == 1 { "is" } else { "are" };
    format!("{} {verb} asked", subjects(approvers))
}

#[cfg(test)]
#[path = "coming/tests.rs"]
mod tests;
