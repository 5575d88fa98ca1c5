//! The words about gates that a run has not reached: their approvers, and the step that each asks about.
//!
//! Pure.

use signoff_api::{
    Verdict,
    gate::{GateType, Subject},
    step::{OnError, Step},
};
use signoff_engine::plan::{GateAhead, StepGates};

use crate::{quorum::subjects, text::one_line};

/// The last line of a run.
pub(super) const ENDS: &str = "then the run ends";
/// The end of the line of a gate before the outputs are released.
pub(super) const BEFORE_RELEASE: &str = " before the result is published";

/// The state of a step in the lines after a verdict.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StepState {
    /// The run has not reached the step.
    Ahead,
    /// The gates before the step have asked.
    Begins,
    /// The step has ended, and runs again unchanged.
    Again,
    /// The step has ended, and runs again with the changes of people.
    Changed,
}

impl StepState {
    /// Whether a gate before the step still asks in this state. The gates of policies ask before every attempt. The
    /// gate of the author asks before the first attempt, and about a changed call.
    fn is_asked(self, gate: &GateAhead<'_>, has_tools: bool) -> bool {
        match self {
            Self::Ahead | Self::Changed => true,
            Self::Begins => has_tools && gate.added_by.is_some(),
            Self::Again => gate.added_by.is_some(),
        }
    }
}

/// Returns the gates before and after a step as the end of its line.
pub(super) fn gates_around(gates: &StepGates<'_>, state: StepState) -> String {
    let before = gates.before.iter().filter(|gate| state.is_asked(gate, gates.has_tools));
    let before = before.map(|gate| {
        let when = match (gates.has_tools && gate.added_by.is_some(), state) {
            (true, StepState::Begins) => "before each further turn",
            (true, StepState::Ahead | StepState::Again | StepState::Changed) => "before each of its turns",
            (false, _) => "before it",
        };
        format!("; {when} {}", gate_line(gate))
    });
    let calls = gates.asks_about_calls.then(|| "; gates may ask about its calls".to_owned());
    let output = gates.output.iter().map(|gate| format!("; {} about its answer", gate_line(gate)));
    before.chain(calls).chain(output).collect()
}

/// Returns the effect of a failure of a step as the end of its line.
pub(super) fn failure_effect(step: &Step, gate: Option<GateAhead<'_>>) -> String {
    match (gate, step.on_error) {
        (Some(gate), _) if gate.is_certain => format!("; if it fails {}", are_asked(gate.approvers)),
        (Some(gate), _) => format!("; if it fails {}", gate_line(&gate)),
        (None, Some(OnError::Continue)) => "; if it fails the run goes on".to_owned(),
        (None, Some(OnError::Fail | OnError::Escalate) | None) if step.set.is_some() => String::new(),
        (None, Some(OnError::Fail | OnError::Escalate) | None) => "; if it fails the run fails".to_owned(),
    }
}

/// Returns the lines after a gate before the outputs are released. `then`: the gates that ask after this one.
pub(super) fn release_lines(then: &[GateAhead<'_>], type_: GateType, verdict: Verdict) -> Vec<String> {
    let is_withheld = verdict == Verdict::Skip && type_ == GateType::FinalResponse;
    let before = if is_withheld { " before the run ends" } else { BEFORE_RELEASE };
    let first = match (is_withheld, then) {
        (true, _) => Some("nothing is published".to_owned()),
        (false, []) => Some("the result is published".to_owned()),
        (false, [_, ..]) => None,
    };
    let asked = then.iter().map(|gate| gate_line(gate) + before);
    first.into_iter().chain(asked).chain([ENDS.to_owned()]).collect()
}

pub(super) fn has_certain_gate(gates: &[GateAhead<'_>]) -> bool {
    gates.iter().any(|gate| gate.is_certain)
}

/// Returns a gate with its approvers: `gate ok asks group ops`, or `may ask` if a condition decides.
pub(super) fn gate_line(gate: &GateAhead<'_>) -> String {
    let source = gate.added_by.map(|source| format!(" of {}", one_line(source, 253))).unwrap_or_default();
    let verb = if gate.is_certain { "asks" } else { "may ask" };
    format!("gate {}{source} {verb} {}", one_line(gate.name, 63), subjects(gate.approvers))
}

/// Returns the approvers as a clause: `group ops is asked`.
fn are_asked(approvers: &[Subject]) -> String {
    let verb = if approvers.len() == 1 { "is" } else { "are" };
    format!("{} {verb} asked", subjects(approvers))
}
