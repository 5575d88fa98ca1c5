//! The gates that a run has not reached, shown to people who decide at an earlier gate.
//!
//! **Invariant:** selects no gate itself: it reads the same fields of the plan as a transition.

use signoff_api::{RecordPath, gate::Subject, record_path::PLANNED_CALLS};

use super::{Action, Plan, PlannedStep, without_visits};

/// A gate that a run has not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateAhead<'p> {
    /// The name of the gate as in its request.
    pub name: &'p str,
    /// The first approvers of the gate's own quorum.
    pub approvers: &'p [Subject],
    /// The policy that added the gate; `None` for a gate of the author.
    pub added_by: Option<&'p str>,
    /// Whether the gate asks whenever the run reaches it. If false, a condition of the gate or of its step decides.
    pub is_certain: bool,
}

/// The gates of a step that is not itself a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepGates<'p> {
    /// The gates before the step starts, in the order in which they ask: the author's gate, then the gates of policies.
    pub before: Vec<GateAhead<'p>>,
    /// The gate about the step's answer. It is certain if it asks about every answer.
    pub output: Option<GateAhead<'p>>,
    /// The gate about the step's failure. It is certain if it asks about every failure that is not retried.
    pub failure: Option<GateAhead<'p>>,
    /// Whether the step is an agent with tools. Then the gates of policies in `before` ask before each turn.
    pub has_tools: bool,
    /// Whether gates can ask about the calls of the step's agent.
    pub asks_about_calls: bool,
}

/// The position of a gate at an end of the run or before a step, with the gates that ask there after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatePlace<'p> {
    /// Before the first step.
    Start(Vec<GateAhead<'p>>),
    /// Before a step.
    Step {
        /// The path of the step in the plan.
        path: &'p str,
        /// The name of the step's agent; `None` for another kind of step, and for the revision of a final response.
        agent: Option<&'p str>,
        /// The gates that ask after an approval at this gate.
        then: Vec<GateAhead<'p>>,
        /// The gates that ask after a Modify at this gate: all gates of policies before the step.
        after_change: Vec<GateAhead<'p>>,
    },
    /// Before the outputs are released.
    End(Vec<GateAhead<'p>>),
}

impl<'p> GateAhead<'p> {
    fn of(step: &'p PlannedStep) -> Option<Self> {
        let approvers = step.gate()?.spec.approvers.as_slice();
        let is_certain = step.only_if.is_none() && step.skip_if.is_none();
        Some(Self { name: &step.name, approvers, added_by: step.added_by.as_deref(), is_certain })
    }

    fn certain_if(self, can_be: bool) -> Self {
        Self { is_certain: self.is_certain && can_be, ..self }
    }
}

impl Plan {
    /// Returns the gates of the step at a path with or without visits and numbers. Returns `None` if no step of the
    /// pattern has the path, or if the step is a gate.
    #[must_use]
    pub fn gates_of_step(&self, path: &str) -> Option<StepGates<'_>> {
        let place = without_visits(path);
        let step = self.pattern.steps().into_iter().find(|step| step.path == place && !step.is_gate())?;
        Some(self.gates_of(step))
    }

    /// Returns the gates of the step that a tool runs, without the gates about the call.
    #[must_use]
    pub fn gates_of_tool(&self, tool: &str) -> Option<StepGates<'_>> {
        let own = self.tools.tools.get(tool).map(|tool| &tool.step);
        let of_server = || self.tools.step_of_server(&format!("{PLANNED_CALLS}{tool}"));
        own.or_else(of_server).map(|step| self.gates_of(step))
    }

    /// Returns the number of gates that can ask about calls of agents.
    #[must_use]
    pub fn gates_of_calls(&self) -> usize {
        self.tools.gates.len()
    }

    /// Returns the gate at a path with or without visits and numbers, or `None` at any other path and at gates of
    /// calls.
    #[must_use]
    pub fn gate_at(&self, path: &str) -> Option<GateAhead<'_>> {
        let place = without_visits(path);
        let steps = self.pattern.steps().into_iter().chain(&self.start).chain(&self.release).chain(&self.end);
        steps.filter(|step| step.path == place).find_map(GateAhead::of)
    }

    /// Returns the gates before the outputs are released, in the order in which they ask.
    #[must_use]
    pub fn gates_at_end(&self) -> Vec<GateAhead<'_>> {
        to_gates_ahead(self.release.iter().chain(&self.end))
    }

    /// Returns the position of the gate at a path with visits and numbers. Returns `None` if the gate is a step of its
    /// own, or asks about an answer, a failure, a call or a part of a pattern.
    #[must_use]
    pub fn place_of_gate(&self, path: &str) -> Option<GatePlace<'_>> {
        let place = without_visits(path);
        let has_path = |gate: &&PlannedStep| gate.path == place;
        if self.start.iter().any(|gate| has_path(&gate)) {
            return Some(GatePlace::Start(to_gates_ahead(gates_after(self.start.iter(), &place))));
        }
        let mut at_end = self.release.iter().chain(&self.end);
        if at_end.any(|gate| has_path(&gate)) {
            return Some(GatePlace::End(to_gates_ahead(at_end)));
        }
        // The step of a tool has one path in the plan, for every agent that calls it.
        let place = RecordPath::new(&place);
        let place = place.place_of_tool().unwrap_or(place).as_str();
        let of_server = self.tools.place_of_server(place);
        let of_servers = of_server.iter().map(|(server, tool, _)| server.common_step(tool));
        let place = of_server.as_ref().map_or(place, |(_, _, place)| place.as_str());
        let of_tools = self.tools.tools.values().map(|tool| &tool.step).chain(of_servers);
        let mut steps = self.pattern.steps().into_iter().chain(&self.revisers).chain(of_tools);
        let step = steps.find(|step| gates_before(step).any(|gate| gate.path == place))?;
        let agent = match &step.action {
            // The agent that wrote the final response revises it, and the plan does not have that agent.
            _ if self.revisers.iter().any(|reviser| reviser.path == step.path) => None,
            Action::Agent(agent) => Some(agent.agent.as_str()),
            Action::Pod(_) | Action::Http(_) | Action::Mcp(_) | Action::Set(_) | Action::Gate(_) => None,
        };
        Some(GatePlace::Step {
            path: &step.path,
            agent,
            then: to_gates_ahead(gates_after(gates_before(step), place)),
            after_change: to_gates_ahead(&step.policy_gates),
        })
    }

    fn gates_of<'p>(&'p self, step: &'p PlannedStep) -> StepGates<'p> {
        // A step that its condition skips is not asked about.
        let runs = step.skip_if.is_none();
        let output = step.output.as_ref().and_then(|output| {
            let gate = GateAhead::of(output.gate.as_deref()?)?;
            Some(gate.certain_if(runs && output.always))
        });
        let failure = step.escalation.as_ref().and_then(|(_, gate)| GateAhead::of(gate));
        let agent = match &step.action {
            Action::Agent(agent) => self.agents.get(&agent.agent),
            Action::Pod(_) | Action::Http(_) | Action::Mcp(_) | Action::Set(_) | Action::Gate(_) => None,
        };
        let has_tools = agent.is_some_and(|agent| !agent.tools.is_empty() || !agent.servers.is_empty());
        StepGates {
            before: to_gates_ahead(gates_before(step)).into_iter().map(|gate| gate.certain_if(runs)).collect(),
            output,
            failure: failure.map(|gate| gate.certain_if(!step.escalates_unknown_only)),
            has_tools,
            asks_about_calls: has_tools && self.tools.can_ask(),
        }
    }
}

/// Returns the gates before a step, in the order in which they ask.
fn gates_before(step: &PlannedStep) -> impl Iterator<Item = &PlannedStep> {
    step.start.as_deref().into_iter().chain(&step.policy_gates)
}

/// Returns the gates that follow the gate at a path.
fn gates_after<'p>(gates: impl Iterator<Item = &'p PlannedStep>, place: &str) -> impl Iterator<Item = &'p PlannedStep> {
    gates.skip_while(move |gate| gate.path != place).skip(1)
}

fn to_gates_ahead<'p>(gates: impl IntoIterator<Item = &'p PlannedStep>) -> Vec<GateAhead<'p>> {
    gates.into_iter().filter_map(GateAhead::of).collect()
}

#[cfg(test)]
mod tests;
