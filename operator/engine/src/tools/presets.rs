//! The presets of `spec.gates`, each of which stands for several gates.

use std::borrow::Cow;

use signoff_api::{
    tool::Preset,
    workflow::{Gate, SpecGateType},
};

/// Returns the gate itself, or the gates of its preset. `plans` says whether the run has a plan to approve.
pub(crate) fn expanded(gate: &Gate, plans: bool) -> Vec<Cow<'_, Gate>> {
    let Some(preset) = gate.preset else { return vec![Cow::Borrowed(gate)] };
    let one = |name: &str, type_| {
        let name = format!("{}.{name}", gate.name);
        Cow::Owned(Gate { name, type_: Some(type_), preset: Some(preset), ..gate.clone() })
    };
    let destructive = || one("destructive", SpecGateType::DestructiveActions);
    let strict = || vec![one("tools", SpecGateType::ToolExecution), one("final", SpecGateType::FinalResponse)];
    match preset {
        Preset::Minimal => vec![destructive()],
        Preset::Standard => {
            let tools = ["web_search", "send_email", "api_call"].map(str::to_owned).to_vec();
            let specific = one("specific", SpecGateType::SpecificTools).into_owned();
            vec![destructive(), Cow::Owned(Gate { tools, allowed_tools: Vec::new(), ..specific })]
        }
        Preset::Strict => strict(),
        Preset::Paranoid => {
            let plan = plans.then(|| one("plan", SpecGateType::PlanApproval));
            strict().into_iter().chain(plan).collect()
        }
    }
}
