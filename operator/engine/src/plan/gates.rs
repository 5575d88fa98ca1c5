//! The gates of `spec.gates`, and the steps about which each gate asks.
//!
//! `gate.rs` checks the approvers and verdicts, as of every other gate. `call_gate.rs` has the gates before tools.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use signoff_api::{
    JsonObject, RecordPath,
    step::OnError,
    workflow::{Gate, SpecGateType, WorkflowSpec},
};
use signoff_expr::{Known, Members};

use super::{
    Action, PlannedOutput, PlannedStep, Validator,
    step::{PlanContext, StepContext},
};

use crate::{
    gate::subject::GateSubject,
    tools::{presets::expand, rule::CallRule},
};

/// The default number of attempts after which people are asked.
const AFTER_ATTEMPTS: i32 = 3;

/// The maximum length of the name of a preset, in characters.
const LONGEST_PRESET: usize = 40;

/// The fields of `error` in templates.
const ERROR: [&str; 5] = ["class", "message", "attempt", "exitCode", "log"];

/// The gates of a spec, and the steps that matched so far.
pub(super) struct Gates<'a> {
    /// The gates with the fields that declare them. A preset is replaced by its gates, all with the field of the
    /// preset.
    list: Vec<(String, Cow<'a, Gate>)>,
    /// The names of the steps that gates can ask about.
    met: RefCell<BTreeSet<String>>,
    /// The fields of the gates that ask about a step or about the run.
    asking: RefCell<BTreeSet<String>>,
    /// The names of the gates without a type that a pattern names, each with the field of the pattern.
    named: RefCell<BTreeMap<String, String>>,
    /// The gates that never ask about a step that they name, because an earlier gate of the same type does: the field
    /// of the gate, the path of the step, and the name of the earlier gate.
    shadowed: RefCell<BTreeSet<(String, String, String)>>,
}

impl<'a> Gates<'a> {
    pub(super) fn of(spec: &'a WorkflowSpec) -> Self {
        let plans = spec.pattern.as_ref().is_some_and(|p| p.routing.is_some() || p.orchestrator_workers.is_some());
        let field = |(at, gate)| (format!("spec.gates[{at}]"), gate);
        let list = spec
            .gates
            .iter()
            .enumerate()
            .map(field)
            .flat_map(|(field, gate)| expand(gate, plans).into_iter().map(move |gate| (field.clone(), gate)));
        let list = list.collect();
        Self {
            list,
            met: RefCell::default(),
            asking: RefCell::default(),
            named: RefCell::default(),
            shadowed: RefCell::default(),
        }
    }

    pub(super) fn of_type(&self, type_: SpecGateType) -> impl Iterator<Item = &(String, Cow<'a, Gate>)> {
        self.list.iter().filter(move |(_, gate)| gate.type_ == Some(type_))
    }

    /// Returns the gates that ask about calls of tools.
    pub(super) fn of_calls(&self) -> impl Iterator<Item = &(String, Cow<'a, Gate>)> {
        self.list.iter().filter(|(_, gate)| CallRule::of(gate).is_some())
    }

    /// Finds the gate of a type for a step, and whether the gate lists the step, by its name or by its path. A gate
    /// without a list of steps is for every step that no other gate lists. Notes the step, and the gates that never ask
    /// about it.
    fn find_for_step(&self, type_: SpecGateType, step: &PlannedStep) -> Option<(&(String, Cow<'a, Gate>), bool)> {
        let (name, path) = (step.name.trim_start_matches('.'), step.path.as_str());
        self.met.borrow_mut().extend([name.to_owned(), path.to_owned()]);
        let mut listing =
            self.of_type(type_).filter(|(_, gate)| gate.steps.iter().any(|step| step == name || step == path));
        let first_listing = listing.next();
        for (field, _) in listing {
            let first = first_listing.map(|(_, gate)| gate.name.clone()).unwrap_or_default();
            self.shadowed.borrow_mut().insert((field.clone(), path.to_owned(), first));
        }
        let general = || self.of_type(type_).find(|(_, gate)| gate.steps.is_empty());
        first_listing.map(|gate| (gate, true)).or_else(|| general().map(|gate| (gate, false)))
    }
}

impl Validator<'_> {
    /// Reports gates that could never ask.
    pub(super) fn check_spec_gates(&mut self, spec: &WorkflowSpec, gates: &Gates<'_>) {
        self.check_unique(spec.gates.iter().map(|gate| gate.name.as_str()), "spec.gates");
        let pattern = spec.pattern.clone().unwrap_or_default();
        for (field, gate) in &gates.list {
            match gate.preset {
                None => self.check_name(&gate.name, &format!("{field}.name")),
                Some(_) => self.check_preset(field, gate),
            }
            if !gate.tools.is_empty() && gate.type_ != Some(SpecGateType::SpecificTools) {
                self.error(
                    format!("{field}.tools"),
                    "only specificTools lists tools: leave tools out, or use that type",
                );
            }
            let allows = [Some(SpecGateType::ToolExecution), Some(SpecGateType::DestructiveActions)];
            if !gate.allowed_tools.is_empty() && gate.preset.is_none() && !allows.contains(&gate.type_) {
                let message = "only toolExecution and destructiveActions allow tools: leave allowedTools out, or use one of those types";
                self.error(format!("{field}.allowedTools"), message);
            }
            if gate.after_attempts.is_some() && gate.type_ != Some(SpecGateType::ErrorEscalation) {
                self.error(format!("{field}.afterAttempts"), "only errorEscalation counts attempts: leave it out");
            }
            let Some(type_) = gate.type_ else {
                self.check_untyped_gate(field, gate, gates);
                continue;
            };
            let of_steps = matches!(
                type_,
                SpecGateType::OutputValidation | SpecGateType::ErrorEscalation | SpecGateType::StepStart
            );
            if !of_steps && !gate.steps.is_empty() {
                self.error(
                    format!("{field}.steps"),
                    "a gate of this type applies to the run, not to steps: leave steps out",
                );
            }
            for name in gate.steps.iter().filter(|name| of_steps && !gates.met.borrow().contains(*name)) {
                let hint = self.did_you_mean(name, gates.met.borrow().iter().map(String::as_str));
                let message = format!("there is no step {name} to which this gate could apply{hint}");
                self.error(format!("{field}.steps"), message);
            }
            let unmet = gate.steps.is_empty() && !gates.asking.borrow().contains(field);
            match type_ {
                SpecGateType::OutputValidation if unmet => self.error(
                    format!("{field}.steps"),
                    "the gate would never ask, because no step has an outputSchema: list steps, or give a step an outputSchema",
                ),
                SpecGateType::ErrorEscalation if unmet => self.error(
                    format!("{field}.steps"),
                    "the gate would never ask, because no step has `onError: escalate`: list steps, or set it at a step",
                ),
                SpecGateType::StepStart if unmet => self.error(
                    format!("{field}.steps"),
                    "the gate would never ask, because no step is a pod, an http request or a call of a server: leave the gate out, or use a hitl step",
                ),
                _ => {}
            }
            let plans = pattern.routing.is_some() || pattern.orchestrator_workers.is_some();
            if type_ == SpecGateType::PlanApproval && !plans {
                let message = "planApproval asks about a route or about subtasks, and this pattern has neither: leave the gate out, or use another type";
                self.error(format!("{field}.type"), message);
            }
        }
        for (field, step, first) in gates.shadowed.borrow().iter() {
            let message =
                format!("gate {first} asks about step {step} already: name a step in one gate of a type only");
            self.error(format!("{field}.steps"), message);
        }
        for type_ in [SpecGateType::PlanApproval, SpecGateType::FinalResponse, SpecGateType::Question] {
            for (field, _) in gates.of_type(type_).skip(1) {
                self.error(format!("{field}.type"), "there is already a gate of this type: merge them");
            }
        }
    }

    /// Plans the gate of a type that asks about the whole run, with its records at `path`. Returns `None` without such
    /// a gate.
    pub(super) fn plan_gate_of_run(
        &mut self,
        plan: &PlanContext<'_>,
        type_: SpecGateType,
        path: &str,
        known: &Known,
        subject: GateSubject,
    ) -> Option<PlannedStep> {
        let (field, gate) = plan.gates.of_type(type_).next()?;
        self.plan_spec_gate(plan, field, gate, path, known.clone(), subject)
    }

    /// Adds to a step the gates of the spec before its start, about its answers and about its failures.
    pub(super) fn add_spec_gates(
        &mut self,
        step: &mut PlannedStep,
        schema: Option<JsonObject>,
        context: &StepContext<'_>,
    ) {
        if step.is_gate() {
            return;
        }
        let (plan, path) = (context.plan, step.path.clone());
        let output_gate = plan.gates.find_for_step(SpecGateType::OutputValidation, step);
        let output_gate = output_gate.filter(|(_, is_listed)| *is_listed || schema.is_some());
        if schema.is_some() || output_gate.is_some() {
            let always = output_gate.is_some_and(|(_, is_listed)| is_listed);
            let known = context.known.clone().with("output", Members::Open).with("problem", Members::Open);
            let gate = output_gate.and_then(|((field, gate), _)| {
                self.plan_spec_gate(plan, field, gate, &RecordPath::new(&path).output(), known, GateSubject::Output)
            });
            step.output = Some(PlannedOutput { schema, gate: gate.map(Box::new), always });
        }
        let failure_gate = plan.gates.find_for_step(SpecGateType::ErrorEscalation, step);
        // A failed call of a tool is the result for the model. If the outcome is unknown, people are asked, if there is
        // a gate.
        let of_tool =
            step.is_tool() && step.on_error == OnError::Fail && !failure_gate.is_some_and(|(_, is_listed)| is_listed);
        step.escalates_unknown_only = of_tool && failure_gate.is_some();
        match failure_gate.filter(|(_, is_listed)| *is_listed || of_tool || step.on_error == OnError::Escalate) {
            Some(((field, gate), _)) => {
                let known = context.known.clone().with("error", Members::fields(ERROR));
                let subject = GateSubject::Failure(step.changeable_fields());
                let asked = self.plan_spec_gate(plan, field, gate, &RecordPath::new(&path).error(), known, subject);
                let after = gate.after_attempts.unwrap_or(AFTER_ATTEMPTS);
                step.escalation = asked.map(|asked| (after, Box::new(asked)));
            }
            None if step.on_error == OnError::Escalate => {
                let message = "escalate needs a gate to ask: add one of the type errorEscalation to spec.gates";
                self.error(format!("{}.onError", context.field), message);
            }
            None => {}
        }
        self.add_start_gate(step, context);
        // The gates of a step can also use the step's own variables.
        let (vars, url_begins) = (step.vars.clone(), step.url_begins());
        let output = step.output.iter_mut().filter_map(|output| output.gate.as_deref_mut());
        let escalation = step.escalation.iter_mut().map(|(_, gate)| &mut **gate);
        for gate in output.chain(escalation).chain(step.start.as_deref_mut()) {
            gate.vars.clone_from(&vars);
            gate.limit_url(url_begins.as_ref());
        }
    }

    /// Adds to a step the gate of the spec before its start. Reports a gate that lists a step without an input to show.
    fn add_start_gate(&mut self, step: &mut PlannedStep, context: &StepContext<'_>) {
        let start_gate = context.plan.gates.find_for_step(SpecGateType::StepStart, step);
        let can_be_shown = matches!(step.action, Action::Pod(_) | Action::Http(_) | Action::Mcp(_));
        let Some(((field, gate), is_listed)) = start_gate else { return };
        if !can_be_shown {
            if is_listed {
                let message = format!(
                    "step {} is neither a pod, an http request nor a call of a server: use a hitl step before it",
                    step.name
                );
                self.error(format!("{field}.steps"), message);
            }
            return;
        }
        if let Action::Pod(pod) = &step.action
            && !pod.spec.image.contains("@sha256:")
        {
            let field = format!("{}.pod.image", context.field);
            self.warn(
                &field,
                "people approve a tag, which can point to another image when the step runs: name the image by its digest",
            );
        }
        let subject = GateSubject::Start(step.changeable_fields());
        let path = RecordPath::new(&step.path).start();
        let asked = self.plan_spec_gate(context.plan, field, gate, &path, context.known.clone(), subject);
        step.start = asked.map(Box::new);
    }

    /// Plans a gate of the spec with its condition, and notes that the gate asks. Its records are at `path`.
    pub(super) fn plan_spec_gate(
        &mut self,
        plan: &PlanContext<'_>,
        field: &str,
        gate: &Gate,
        path: &str,
        known: Known,
        subject: GateSubject,
    ) -> Option<PlannedStep> {
        plan.gates.asking.borrow_mut().insert(field.to_owned());
        let context = StepContext::new(plan, field, "", known);
        let condition = gate.condition.as_ref();
        let only_if = condition.and_then(|source| {
            self.parse_condition(source, &format!("{field}.condition"), &context.known, "the gate then asks")
        });
        let asked = self.plan_gate(&gate.hitl, &format!("{field}.hitl"), &context, subject)?;
        let planned = PlannedStep::new(&gate.name, Action::Gate(Box::new(asked)));
        Some(PlannedStep { path: path.to_owned(), only_if, ..planned })
    }

    /// Plans the gate without a type that a field of a pattern names. Its records are at `path`. Reports a gate that is
    /// missing, has a type, or is named twice.
    pub(super) fn plan_named_gate(
        &mut self,
        plan: &PlanContext<'_>,
        name: &str,
        (path, field): (&str, &str),
        known: &Known,
        subject: GateSubject,
    ) -> Option<PlannedStep> {
        let Some((at, gate)) = plan.gates.list.iter().find(|(_, gate)| gate.name == name) else {
            let hint = self.did_you_mean(name, plan.gates.list.iter().map(|(_, gate)| gate.name.as_str()));
            let message = format!("there is no gate {name} in spec.gates: add it there, without a type{hint}");
            self.error(field, message);
            return None;
        };
        if gate.type_.is_some() {
            let message = format!("gate {name} has a type, so it asks by itself: name a gate without a type");
            self.error(field, message);
            return None;
        }
        if let Some(other) = plan.gates.named.borrow_mut().insert(name.to_owned(), field.to_owned()) {
            let message = format!("{other} names gate {name} already: give this one a gate of its own");
            self.error(field, message);
        }
        self.plan_spec_gate(plan, at, gate, path, known.clone(), subject)
    }

    /// Reports a preset that cannot be expanded.
    fn check_preset(&mut self, field: &str, gate: &Gate) {
        let name = gate.name.split_once('.').map_or(gate.name.as_str(), |(name, _)| name);
        self.check_name(name, &format!("{field}.name"));
        if name.len() > LONGEST_PRESET {
            let message =
                format!("the name of a preset has at most {LONGEST_PRESET} characters, because its gates extend it");
            self.error(format!("{field}.name"), message);
        }
        if !gate.steps.is_empty() || gate.condition.is_some() || gate.after_attempts.is_some() {
            let message = "a preset has name, allowedTools and hitl only: leave steps, condition and afterAttempts out";
            self.error(field, message);
        }
    }

    /// Reports a gate without a type that no pattern names, or that lists steps.
    fn check_untyped_gate(&mut self, field: &str, gate: &Gate, gates: &Gates<'_>) {
        if !gates.named.borrow().contains_key(&gate.name) {
            let message = format!(
                "gate {} would never ask: it has no type, and the pattern does not name it: give it a type, or name it in the pattern",
                gate.name
            );
            self.error(field, message);
        }
        if !gate.steps.is_empty() {
            let message = "a gate without a type asks where the pattern names it: leave steps out";
            self.error(format!("{field}.steps"), message);
        }
    }
}
