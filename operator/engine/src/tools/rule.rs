//! The calls that a gate asks about, by its type and lists, with the reason as text for people.

use signoff_api::{
    gate::GateType,
    tool::Effects,
    workflow::{Gate, SpecGateType},
};

use super::lists::{Selection, ToolList};

/// The rule that says about which calls a gate asks.
#[derive(Clone, Debug)]
pub(crate) enum CallRule {
    /// Every call, except calls of the listed tools.
    Every(ToolList),
    /// The calls of the listed tools.
    Listed(ToolList),
    /// The calls of tools whose effects are not `read`, except calls of the listed tools.
    Destructive(ToolList),
    /// Every call for which the condition of the gate is true or cannot be evaluated.
    Condition,
}

/// The properties of a tool on which the rule of a gate depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuledTool<'t> {
    pub(crate) name: &'t str,
    pub(crate) effects: Option<Effects>,
    /// Whether the author pinned the tool's definition; `None` for a tool of the Workflow, which the author defined.
    pub(crate) is_pinned: Option<bool>,
}

impl RuledTool<'_> {
    /// Returns the reason why an entry of `allowedTools` does not exempt the tool, or `None` if the entry exempts it. A
    /// server chooses the names of its tools, so a name alone does not exempt a tool of a server.
    fn exemption_problem(&self, entry: &str) -> Option<String> {
        let is_glob = entry.contains('*');
        match self.is_pinned {
            None => None,
            Some(_) if self.effects == Some(Effects::Read) => None,
            Some(true) if !is_glob => None,
            Some(_) if is_glob => Some(format!(
                "{entry} in allowedTools exempts only those tools of a server that are known to change nothing"
            )),
            Some(_) => {
                Some(format!("{entry} in allowedTools exempts a tool of a server only with the pin of its definition"))
            }
        }
    }
}

impl CallRule {
    /// Returns the type and the rule of a gate before tools, or `None` for another gate.
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

    /// Returns the reason why a gate with this rule asks about a call of a tool, or `None` if the gate does not ask.
    pub(crate) fn reason(&self, tool: &RuledTool<'_>) -> Option<String> {
        let unless_exempt = |list: &ToolList, default_reason: String| match list.selects(tool.name) {
            Selection::Excluded(entry) => Some(format!("{entry} in allowedTools: the gate always asks about it")),
            Selection::Listed(entry) => tool.exemption_problem(&entry),
            Selection::None => Some(default_reason),
        };
        match self {
            Self::Every(allowed) => {
                unless_exempt(allowed, "the gate asks about every call except those of allowedTools".to_owned())
            }
            Self::Listed(list) => match list.selects(tool.name) {
                Selection::Listed(entry) => Some(format!("{entry} is listed")),
                Selection::Excluded(_) | Selection::None => None,
            },
            Self::Destructive(allowed) => match (tool.effects, allowed.selects(tool.name)) {
                (Some(Effects::Read), Selection::Listed(_) | Selection::None) => None,
                (None, _) => unless_exempt(allowed, "what the call can change is not known".to_owned()),
                (Some(effects), _) => unless_exempt(allowed, format!("the effects of the tool are {}", effects.name())),
            },
            Self::Condition => Some("its condition holds".to_owned()),
        }
    }

    /// Whether the gate asks about every call of every tool of a server, independent of the names and annotations that
    /// the server gives them.
    pub(crate) fn asks_about_all_of(&self, server: &str) -> bool {
        match self {
            Self::Every(allowed) => !allowed.can_list(server),
            Self::Listed(list) => list.lists_all_of(server),
            Self::Destructive(_) | Self::Condition => false,
        }
    }

    /// Whether the gate asks about every call of a server's tools that may change something and have no pin.
    pub(crate) fn asks_about_changes_of(&self, server: &str) -> bool {
        match self {
            Self::Every(_) | Self::Destructive(_) => true,
            Self::Listed(list) => list.lists_all_of(server),
            Self::Condition => false,
        }
    }

    /// Whether the gate can ask about a call of some tool of a server.
    pub(crate) fn can_ask_about(&self, server: &str) -> bool {
        match self {
            Self::Listed(list) => list.can_list(server),
            Self::Every(_) | Self::Destructive(_) | Self::Condition => true,
        }
    }

    /// Returns the tools that the rule's list names without a glob.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Every(list) | Self::Listed(list) | Self::Destructive(list) => list.names().collect(),
            Self::Condition => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> ToolList {
        ToolList::of(&entries.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_name_that_a_server_chooses_exempts_nothing_without_a_pin() {
        let tool = |effects, is_pinned| RuledTool { name: "crm.refund", effects, is_pinned };
        for (entries, effects, is_pinned, asks) in [
            // A glob exempts read-only tools, pinned or not.
            (["crm.*"], Some(Effects::Read), Some(false), false),
            (["crm.*"], Some(Effects::Write), Some(true), true),
            (["crm.*"], None, Some(true), true),
            (["*"], None, Some(false), true),
            // An exact name needs a pin.
            (["crm.refund"], None, Some(true), false),
            (["crm.refund"], None, Some(false), true),
            (["crm.refund"], Some(Effects::Read), Some(false), false),
            // An entry with `!` always asks.
            (["!crm.refund"], Some(Effects::Read), Some(true), true),
            // The author defined the other tools.
            (["crm.*"], None, None, false),
            (["crm.refund"], None, None, false),
        ] {
            let rule = CallRule::Every(list(&entries));
            assert_eq!(rule.reason(&tool(effects, is_pinned)).is_some(), asks, "{entries:?} {effects:?} {is_pinned:?}");
            let is_read = effects == Some(Effects::Read) && !entries[0].starts_with('!');
            let destructive = CallRule::Destructive(list(&entries)).reason(&tool(effects, is_pinned));
            assert_eq!(destructive.is_some(), asks && !is_read, "{entries:?} {effects:?} {is_pinned:?}");
        }
    }

    #[test]
    fn a_server_counts_as_asked_only_if_every_name_is() {
        for (rule, all, some) in [
            (CallRule::Every(list(&[])), true, true),
            (CallRule::Every(list(&["send-letter", "mail.*"])), true, true),
            (CallRule::Every(list(&["crm.get_*"])), false, true),
            (CallRule::Every(list(&["*"])), false, true),
            (CallRule::Every(list(&["!crm.refund"])), true, true),
            (CallRule::Listed(list(&["crm.*"])), true, true),
            (CallRule::Listed(list(&["*"])), true, true),
            (CallRule::Listed(list(&["crm*"])), true, true),
            (CallRule::Listed(list(&["crm.*", "!crm.get_*"])), false, true),
            (CallRule::Listed(list(&["crm.*", "!mail.*"])), true, true),
            (CallRule::Listed(list(&["crm.refund"])), false, true),
            (CallRule::Listed(list(&["mail.*", "send-letter"])), false, false),
            (CallRule::Destructive(list(&[])), false, true),
            (CallRule::Condition, false, true),
        ] {
            assert_eq!((rule.asks_about_all_of("crm"), rule.can_ask_about("crm")), (all, some), "{rule:?}");
            // A gate that asks about all calls also asks about the changing ones.
            assert!(!all || rule.asks_about_changes_of("crm"), "{rule:?}");
            assert!(some || !rule.asks_about_changes_of("crm"), "{rule:?}");
        }
    }
}
