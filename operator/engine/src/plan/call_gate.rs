//! A gate before tools: the author's rule or a policy's, and the reason why it asks about a call.
//!
//! The author's rule is in `tools/rule.rs`; a policy's rule is matched in `policy/calls.rs`. Whether a call runs is
//! decided in `steps/agent/gating.rs`.

use signoff_api::{
    gate::{GateType, TimeoutAction},
    tool_rules::CallMatch,
};
use signoff_expr::Condition;

use super::{DefinedBy, PlannedServer, PlannedStep, PlannedTool};
use crate::{
    gate::subject::GateSubject,
    policy::{self, CallFacts},
    tools::rule::CallRule,
};

/// The rule by which a gate before tools asks about calls.
#[derive(Clone, Debug)]
pub(crate) enum CallGateRule {
    /// The rule of a gate of the Workflow.
    Author(CallRule),
    /// The rule of a gate that a policy added.
    Policy(CallMatch),
}

/// A gate before tools.
#[derive(Clone, Debug)]
pub(crate) struct CallGate {
    pub(crate) gate: PlannedStep,
    pub(crate) type_: GateType,
    pub(crate) rule: CallGateRule,
    /// The condition under which the gate asks; `None` for a gate that always asks.
    pub(crate) condition: Option<Condition>,
}

impl CallGate {
    /// Returns the reason why the gate asks about a call, without regard to its condition, or `None` if it does not
    /// ask. `call` has all known facts of the call.
    pub(crate) fn reason(&self, tool: &PlannedTool, call: &CallFacts) -> Option<String> {
        match &self.rule {
            CallGateRule::Author(rule) => rule.reason(&tool.ruled()),
            // An unknown value counts as a match.
            CallGateRule::Policy(rule) => {
                (policy::matches(rule, call) != Some(false)).then(|| format!("it asks about {rule}"))
            }
        }
    }

    /// Whether the gate can ask about a call of a tool of a server.
    pub(super) fn can_ask_about(&self, server: &PlannedServer) -> bool {
        match &self.rule {
            CallGateRule::Author(rule) => rule.can_ask_about(&server.spec.name),
            CallGateRule::Policy(_) => true,
        }
    }

    /// Returns the tools that the gate's lists name without a glob; none for a gate of a policy.
    pub(crate) fn names(&self) -> Vec<&str> {
        match &self.rule {
            CallGateRule::Author(rule) => rule.names(),
            CallGateRule::Policy(_) => Vec::new(),
        }
    }

    /// Whether people decide at the gate about every call of a server that may change something and has no pin.
    pub(super) fn asks_about_changes_of(&self, server: &str) -> bool {
        let asks = match &self.rule {
            CallGateRule::Author(rule) => rule.asks_about_changes_of(server) && !approves_unasked(&self.gate),
            CallGateRule::Policy(_) => false,
        };
        asks && self.condition.is_none()
    }

    /// Whether people decide at the gate about every call of a tool.
    pub(super) fn always_asks(&self, tool: &PlannedTool) -> bool {
        let asks = match &self.rule {
            CallGateRule::Author(rule) => {
                let is_of_all = |(server, _): (&str, &str)| rule.asks_about_all_of(server);
                let always = match tool.defined_by {
                    DefinedBy::Server { .. } => tool.name.split_once('.').is_some_and(is_of_all),
                    DefinedBy::Author => rule.reason(&tool.ruled()).is_some(),
                };
                always && !approves_unasked(&self.gate)
            }
            CallGateRule::Policy(rule) => policy::matches(rule, &tool.facts()) == Some(true),
        };
        asks && self.condition.is_none()
    }
}

/// Whether a deadline approves at a gate. Before a step, a response approves too.
pub(super) fn approves_unasked(gate: &PlannedStep) -> bool {
    let Some(gate) = gate.gate() else { return false };
    match gate.spec.timeout.as_ref().and_then(|timeout| timeout.action) {
        Some(TimeoutAction::Approve) => true,
        Some(TimeoutAction::Default) => matches!(gate.subject, GateSubject::Start(_)),
        _ => false,
    }
}
