//! The presets of `spec.gates`, each of which stands for several gates.

use std::borrow::Cow;

use signoff_api::{
    tool::Preset,
    workflow::{Gate, SpecGateType},
};

/// The tools about whose calls the preset `standard` asks, in addition to destructive calls.
const STANDARD_TOOLS: [&str; 3] = ["web_search", "send_email", "api_call"];

/// Returns the gate itself, or the gates of its preset. `plans` says whether the pattern has a route or subtasks, which
/// people can approve.
pub(crate) fn expand(gate: &Gate, plans: bool) -> Vec<Cow<'_, Gate>> {
    let Some(preset) = gate.preset else { return vec![Cow::Borrowed(gate)] };
    let preset_gate = |name: &str, type_| {
        let name = format!("{}.{name}", gate.name);
        Cow::Owned(Gate { name, type_: Some(type_), preset: Some(preset), ..gate.clone() })
    };
    let destructive = || preset_gate("destructive", SpecGateType::DestructiveActions);
    let strict =
        || vec![preset_gate("tools", SpecGateType::ToolExecution), preset_gate("final", SpecGateType::FinalResponse)];
    match preset {
        Preset::Minimal => vec![destructive()],
        Preset::Standard => {
            let tools = STANDARD_TOOLS.map(str::to_owned).to_vec();
            let specific = preset_gate("specific", SpecGateType::SpecificTools).into_owned();
            vec![destructive(), Cow::Owned(Gate { tools, allowed_tools: Vec::new(), ..specific })]
        }
        Preset::Strict => strict(),
        Preset::Paranoid => {
            let plan = plans.then(|| preset_gate("plan", SpecGateType::PlanApproval));
            strict().into_iter().chain(plan).collect()
        }
    }
}
