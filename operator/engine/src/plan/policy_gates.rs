//! The gates that policies add to a run: at its start, at its end, and before steps of certain kinds.
//!
//! **Invariant:** no gate is omitted; a gate that cannot be added is an error.

use signoff_api::{
    conditions::reason,
    gate::GateType,
    policy::{AddedStep, GuardedKind, Position},
    step::Step,
};
use signoff_expr::Known;

use super::{
    Action, CallGate, PlannedStep, Validator,
    call_gate::CallGateRule,
    mcp::reviewed_definition,
    step::{PlanContext, StepContext},
};

use crate::{gate::subject::GateSubject, policy::MOST_ADDED};

/// Whether an action is of this kind. Every action is listed, so that the compiler demands a decision about `egress`
/// for a new action.
fn covers(kind: GuardedKind, action: &Action) -> bool {
    match action {
        // The gates of tools are before the call, with those of the author: see `plan_policy_call_gates`.
        _ if kind == GuardedKind::Tool => false,
        Action::Agent(_) => matches!(kind, GuardedKind::Agent | GuardedKind::Egress),
        Action::Http(_) => matches!(kind, GuardedKind::Http | GuardedKind::Egress),
        Action::Mcp(_) => matches!(kind, GuardedKind::Mcp | GuardedKind::Egress),
        // A container has its own network, which a NetworkPolicy restricts.
        Action::Pod(_) => kind == GuardedKind::Pod,
        Action::Set(_) | Action::Gate(_) => false,
    }
}

impl Validator<'_> {
    /// Plans the gates that policies add at one end of the run.
    pub(super) fn plan_policy_gates(
        &mut self,
        plan: &PlanContext<'_>,
        position: Position,
        known: &Known,
    ) -> Vec<PlannedStep> {
        let here = plan.added.iter().filter(|added| added.step.at == Some(position));
        here.filter_map(|added| self.plan_policy_gate(plan, added, added.step.name.clone(), None, "", known.clone()))
            .collect()
    }

    /// Adds the gates of policies before a step. If a policy omits its gate for a reviewed definition, only a tool with
    /// this definition is called. `step` is the step as its author wrote it.
    pub(super) fn add_policy_gates(&mut self, planned: &mut PlannedStep, step: &Step, context: &StepContext<'_>) {
        let covers_step = |added: &&AddedStep| {
            added
                .step
                .before
                .as_ref()
                .is_some_and(|before| before.kinds.iter().any(|kind| covers(*kind, &planned.action)))
        };
        let name = |added: &AddedStep| format!("{}-{}", added.step.name, step.name.trim_start_matches('.'));
        let before = Some((step, planned.changeable_fields()));
        let mut covering: Vec<_> = context.plan.added.iter().filter(covers_step).collect();
        let servers = context.plan.spec.servers.as_slice();
        let required = covering.iter().find_map(|added| reviewed_definition(added, &planned.action, servers));
        covering.retain(|added| reviewed_definition(added, &planned.action, servers).is_none());
        let gates = covering.into_iter().filter_map(|added| {
            self.plan_policy_gate(context.plan, added, name(added), before, context.prefix, context.known.clone())
        });
        let url_begins = planned.url_begins();
        let with_vars_of_step = |gate| {
            let mut gate = PlannedStep { vars: planned.vars.clone(), ..gate };
            gate.limit_url(url_begins.as_ref());
            gate
        };
        planned.policy_gates = gates.map(with_vars_of_step).collect();
        if let Action::Mcp(mcp) = &mut planned.action {
            mcp.requires = required;
        }
    }

    /// Plans the gates that policies put before calls of tools, in the order of the policies. `path` is the path of
    /// their records.
    pub(super) fn plan_policy_call_gates(
        &mut self,
        plan: &PlanContext<'_>,
        path: &str,
        known: &Known,
    ) -> Vec<CallGate> {
        let mut gates = Vec::new();
        for added in plan.added {
            let Some(before) = added.step.before.as_ref().filter(|before| before.kinds.contains(&GuardedKind::Tool))
            else {
                continue;
            };
            let field = format!("{}: spec.steps[{}]", added.source, added.step.name);
            let mut context = StepContext::new(plan, &field, "", known.clone());
            context.added_by = Some(added.source.as_str());
            let type_ = GateType::ToolExecution;
            if let Some(asked) =
                self.plan_gate(&added.step.hitl, &format!("{field}.hitl"), &context, GateSubject::Call(type_))
            {
                let gate = PlannedStep::new(&added.step.name, Action::Gate(Box::new(asked)));
                let gate = PlannedStep { path: path.to_owned(), added_by: Some(added.source.clone()), ..gate };
                let rule = CallGateRule::Policy(before.calls.clone().unwrap_or_default());
                gates.push(CallGate { gate, type_, rule, condition: None });
            }
        }
        gates
    }

    /// Plans one gate that a policy added. Returns `None` after an error.
    fn plan_policy_gate(
        &mut self,
        plan: &PlanContext<'_>,
        added: &AddedStep,
        name: String,
        before: Option<(&Step, &'static [&'static str])>,
        prefix: &str,
        known: Known,
    ) -> Option<PlannedStep> {
        let field = format!("{}: spec.steps[{}]", added.source, added.step.name);
        let mut context = StepContext::new(plan, field, prefix, known);
        (context.added_by, context.before) = (Some(added.source.as_str()), before);
        let step = Step { name, hitl: Some(added.step.hitl.clone()), ..Step::default() };
        self.plan_step(&step, &context)
    }

    /// Reports too many added gates, and added gates with the name of another step.
    pub(super) fn check_policy_gates<'p>(&mut self, added: &[AddedStep], steps: impl Iterator<Item = &'p PlannedStep>) {
        if added.len() > MOST_ADDED {
            let message = format!(
                "policies add {} gates to every run, and at most {MOST_ADDED} are allowed: merge some of them",
                added.len()
            );
            self.error_as(reason::POLICY_CONFLICT, "spec.steps", message);
        }
        let mut seen = std::collections::BTreeMap::new();
        let mut authors_first: Vec<_> = steps.collect();
        authors_first.sort_by_key(|step| step.added_by.is_some());
        for step in authors_first {
            let taken = seen.insert(&step.path, ()).is_some();
            if let (true, Some(source)) = (taken, &step.added_by) {
                let message = format!(
                    "{source} adds a gate named {}, and there is a step of that name: give one of them another",
                    step.name
                );
                self.error_as(reason::POLICY_CONFLICT, "spec.steps", message);
            }
        }
    }
}
