//! The positions of the gates of `spec.gates` in a flow: at a plan, before the steps that are about to begin, below the
//! steps that they ask about, and before the end.
//!
//! A way back from a gate is part of its verdicts, and no edge.

use signoff_api::{
    RecordPath, Verdict,
    step::{HitlStep, OnError, Step as Spec},
    workflow::{Gate, SpecGateType},
};

use super::{
    build::{Build, Ends},
    needs::Needs,
};

/// The properties of a step that determine which gates apply to it.
#[derive(Clone, Copy, Default)]
pub(super) struct StepTraits {
    has_schema: bool,
    escalates: bool,
    /// Whether the run can continue without the step.
    can_be_skipped: bool,
}

/// The gate before a step.
pub(super) struct Start {
    pub(super) path: String,
    /// Whether the step can also begin without the gate.
    pub(super) is_conditional: bool,
    /// Whether people can skip the step.
    may_skip: bool,
}

impl StepTraits {
    /// Returns the properties of a step of the spec.
    pub(super) fn of(step: &Spec) -> Self {
        Self { has_schema: step.output_schema.is_some(), ..Self::on_error(step.on_error) }
    }

    /// Returns the properties of a step with this `onError` and without a schema.
    pub(super) fn on_error(error: Option<OnError>) -> Self {
        Self { escalates: error == Some(OnError::Escalate), has_schema: false, can_be_skipped: true }
    }
}

impl<'w> Build<'w> {
    /// Returns the gate that asks about the whole run.
    fn gate_of_run(&self, type_: SpecGateType) -> Option<&'w Gate> {
        self.spec.gates.iter().find(|gate| gate.type_ == Some(type_))
    }

    /// Returns the gate without a type that a pattern names.
    pub(super) fn untyped_gate(&self, name: Option<&str>) -> Option<&'w Gate> {
        self.spec.gates.iter().find(|gate| gate.type_.is_none() && Some(gate.name.as_str()) == name)
    }

    /// Returns the gate of a type for a step, and whether the gate names the step by its name, or by its branch and
    /// name. `applies_unnamed`: whether a gate without `steps` applies to the step.
    fn gate_of_step(
        &self,
        type_: SpecGateType,
        (id, name): (&str, &str),
        applies_unnamed: bool,
    ) -> Option<(&'w Gate, bool)> {
        let gates = || self.spec.gates.iter().filter(|gate| gate.type_ == Some(type_));
        let is_named = |gate: &&Gate| gate.steps.iter().any(|step| step == name || step == id);
        let named = gates().find(is_named).map(|gate| (gate, true));
        named.or_else(|| {
            gates().find(|gate| gate.steps.is_empty()).filter(|_| applies_unnamed).map(|gate| (gate, false))
        })
    }

    /// Adds a gate of the spec as a step, without edges.
    fn add_gate(&mut self, id: &str, gate: &Gate, depth: usize) {
        let type_ = serde_json::to_value(gate.type_).ok();
        let type_ = type_.as_ref().and_then(|type_| type_.as_str());
        let needs = Needs::default().gate(&gate.hitl).condition(gate.condition.as_ref());
        let does = match type_ {
            Some(type_) => format!("asks people ({type_}, gate {})", gate.name),
            None => format!("asks people (gate {})", gate.name),
        };
        self.add_step(id.to_owned(), &gate.name, depth, does, "hitl", needs);
        self.make_gate(&gate.hitl);
        if let Some(step) = self.flow.steps.last_mut() {
            step.only_if.clone_from(&gate.condition);
        }
    }

    /// Adds the gate of this type that asks about the whole run, if the spec has one.
    pub(super) fn add_run_gate(&mut self, id: &str, type_: SpecGateType, before: Ends) -> Ends {
        let gate = self.gate_of_run(type_);
        self.add_gate_after(id, gate, before)
    }

    /// Adds the gate that a pattern names, if it names one.
    pub(super) fn add_review(&mut self, id: &str, name: Option<&str>, before: Ends) -> Ends {
        let gate = self.untyped_gate(name);
        self.add_gate_after(id, gate, before)
    }

    /// Adds a gate with its edges, and returns the ends after the gate. Without a gate, the ends stay as they are.
    fn add_gate_after(&mut self, id: &str, gate: Option<&Gate>, before: Ends) -> Ends {
        let Some(gate) = gate else { return before };
        self.add_gate(id, gate, 0);
        self.enter(id, before.clone());
        let passed = before.into_iter().filter(|_| gate.condition.is_some());
        passed.chain([(id.to_owned(), None)]).collect()
    }

    /// Adds the gate before a step with the edge to the step. Only pod, http and mcp steps have such a gate.
    pub(super) fn add_start_gate(&mut self, id: &str, step: &Spec, depth: usize) {
        if step.pod.is_none() && step.http.is_none() && step.mcp.is_none() {
            return;
        }
        let Some((gate, _)) = self.gate_of_step(SpecGateType::StepStart, (id, &step.name), true) else { return };
        let path = RecordPath::new(id).start().into_string();
        self.add_gate(&path, gate, depth);
        if let Some(added) = self.flow.steps.last_mut() {
            added.skip_if.clone_from(&step.skip_if);
        }
        self.enter(id, vec![(path.clone(), None)]);
        // Skip is not among the default verdicts here.
        let may_skip = gate.hitl.allowed_verdicts.contains(&Verdict::Skip);
        self.starts.insert(id.to_owned(), Start { path, is_conditional: gate.condition.is_some(), may_skip });
    }

    /// Adds the gates below a step, about its answer and about its failure, with the edges to them. Sets the ends of
    /// the step from which the next step continues.
    pub(super) fn add_gates_below(&mut self, id: &str, name: &str, depth: usize, traits: StepTraits) {
        let mut ends: Ends = vec![(id.to_owned(), None)];
        let skipped = self.starts.get(id).filter(|start| start.may_skip).map(|start| start.path.clone());
        if let Some((gate, always)) = self.gate_of_step(SpecGateType::OutputValidation, (id, name), traits.has_schema) {
            let path = RecordPath::new(id).output().into_string();
            self.add_gate(&path, gate, depth + 1);
            let when = (!always).then(|| "its answer does not fit".to_owned());
            self.enter(&path, vec![(id.to_owned(), when)]);
            if always && gate.condition.is_none() {
                ends.clear();
            }
            ends.push((path, None));
        }
        if let Some((gate, _)) = self.gate_of_step(SpecGateType::ErrorEscalation, (id, name), traits.escalates) {
            let path = RecordPath::new(id).error().into_string();
            self.add_gate(&path, gate, depth + 1);
            self.enter(&path, vec![(id.to_owned(), Some("it failed".to_owned()))]);
            if traits.can_be_skipped && allows(&gate.hitl, Verdict::Skip) {
                ends.push((path, Some("Skip".to_owned())));
            }
        }
        ends.extend(skipped.map(|path| (path, Some("Skip".to_owned()))));
        self.leaves.insert(id.to_owned(), ends);
    }
}

/// Whether a gate allows a verdict.
pub(super) fn allows(hitl: &HitlStep, verdict: Verdict) -> bool {
    hitl.allowed_verdicts.is_empty() || hitl.allowed_verdicts.contains(&verdict)
}
