//! The calls that a gate asks about, by its type and lists; and why, in words for people.

use signoff_api::{
    gate::GateType,
    tool::Effects,
    workflow::{Gate, SpecGateType},
};

use super::lists::{Selection, ToolList};

/// The calls that a gate asks about.
#[derive(Clone, Debug)]
pub(crate) enum CallRule {
    /// Every call except those of these tools.
    Every(ToolList),
    /// The calls of these tools.
    Listed(ToolList),
    /// The calls of tools whose effects are not `read`, except those of these tools.
    Destructive(ToolList),
    /// Every call for which the condition of the gate is true or cannot be evaluated.
    Condition,
}

impl CallRule {
    /// Returns the type and the rule of a gate in front of tools, and nothing for any other gate.
    pub(crate) fn of(gate: &Gate) -> Option<(GateType, Self)> {
        let allowed = || ToolList::of(&gate.allowed_tools);
        Some(match gate.type_? {
            SpecGateType::ToolExecution => (GateType::ToolExecution, Self::Every(allowed())),
            SpecGateType::SpecificTools => (GateType::SpecificTools, Self::Listed(ToolList::of(&gate.tools))),
            SpecGateType::DestructiveActions => (GateType::DestructiveActions, Self::Destructive(allowed())),
            SpecGateType::Custom => (GateType::Custom, Self::Condition),
            SpecGateType::PlanApproval
            | SpecGateType::FinalResponse
            | SpecGateType::OutputValidation
            | SpecGateType::ErrorEscalation
            | SpecGateType::StepStart
            | SpecGateType::Question => return None,
        })
    }

    /// Why a gate with this rule asks about a call of a tool; `None` where it does not.
    pub(crate) fn reason(&self, tool: &str, effects: Option<Effects>) -> Option<String> {
        let allows = |list: &ToolList, else_: String| match list.selects(tool) {
            Selection::Excluded(entry) => Some(format!("{entry} in allowedTools: the gate always asks about it")),
            Selection::Listed(_) => None,
            Selection::None => Some(else_),
        };
        match self {
            Self::Every(allowed) => {
                allows(allowed, "the gate asks about every call except those of allowedTools".to_owned())
            }
            Self::Listed(list) => match list.selects(tool) {
                Selection::Listed(entry) => Some(format!("{entry} is listed")),
                Selection::Excluded(_) | Selection::None => None,
            },
            Self::Destructive(allowed) => match (effects, allowed.selects(tool)) {
                (Some(Effects::Read), Selection::Listed(_) | Selection::None) => None,
                (None, _) => allows(allowed, "what the call can change is not known".to_owned()),
                (Some(effects), _) => allows(allowed, format!("the effects of the tool are {}", effects.name())),
            },
            Self::Condition => Some("its condition holds".to_owned()),
        }
    }
}
