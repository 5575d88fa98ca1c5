//! The agents of patterns (routers, producers, orchestrators, workers), and the gates beside them.
//!
//! An agent of a pattern is planned like a step. Its name begins with a dot, as in `.router`.

use std::collections::BTreeSet;

use signoff_api::{
    pattern::OrchestratorWorkers,
    step::{AgentStep, Step},
    workflow::SpecGateType,
};
use signoff_expr::Members;

use super::{
    Known, PlanContext, PlannedOrchestrator, PlannedPattern, PlannedStep, SpecStep, SpecSteps, Validator, count,
};

use crate::{
    gate::subject::GateSubject,
    plan::{
        Action, PlannedAgentStep,
        planned_step::{AGENT_TIMEOUT, PlannedRetry},
        references::{RECORD, with_decision, with_records},
        step::StepContext,
    },
};

/// The default maximum number of parts of the work.
const MAX_TASKS: usize = 32;

/// An agent of a pattern as its author wrote it, and the names of the fields that declare it.
pub(super) struct PatternAgent<'m> {
    pub(super) agent: &'m str,
    pub(super) agent_field: &'m str,
    pub(super) input: Option<&'m str>,
    pub(super) input_field: &'m str,
    pub(super) addition: Option<String>,
}

impl<'m> PatternAgent<'m> {
    /// Returns an agent that is written as `agent` and `input`.
    pub(super) fn of(agent: &'m str, input: Option<&'m str>, addition: Option<String>) -> Self {
        Self { agent, agent_field: "agent", input, input_field: "input", addition }
    }
}

impl Validator<'_> {
    /// Returns the step of an agent that the pattern calls, with the gates of policies and of the spec.
    pub(super) fn pattern_agent(
        &mut self,
        name: &str,
        agent: PatternAgent<'_>,
        context: &StepContext<'_>,
    ) -> Option<PlannedStep> {
        let PatternAgent { agent, agent_field, input, input_field, addition } = agent;
        let field = |field: &str| format!("{}.{field}", context.field);
        self.check_agent(agent, &field(agent_field), context);
        let planned_agent = context.plan.agents.get(agent);
        if input.is_none() && planned_agent.is_some_and(|agent| agent.system.is_none()) {
            let message = format!("agent {agent} has no system prompt: set this input");
            self.error(field(input_field), message);
        }
        let input = match input {
            Some(source) => Some(self.parse_known_template(source, &field(input_field), &context.known)?),
            None => None,
        };
        let action = Action::Agent(PlannedAgentStep { agent: agent.to_owned(), input, addition, fresh: false });
        let mut step = PlannedStep { path: format!(".{name}"), ..PlannedStep::new(&format!(".{name}"), action) };
        self.add_spec_gates(&mut step, None, context);
        let agent = AgentStep { name: agent.to_owned(), ..AgentStep::default() };
        let written = Step { name: format!(".{name}"), agent: Some(agent), ..Step::default() };
        self.add_policy_gates(&mut step, &written, context);
        Some(step)
    }

    /// Plans a step outside of a list, such as a reduce or a writeup.
    pub(super) fn single_step(
        &mut self,
        plan: &PlanContext<'_>,
        spec_step: &SpecStep<'_>,
        known: &Known,
    ) -> Option<PlannedStep> {
        self.check_no_dependencies(spec_step, "leave dependsOn out");
        self.plan_step(
            spec_step.step,
            &StepContext { result: true, ..StepContext::new(plan, &spec_step.field, "", known.clone()) },
        )
    }

    /// Plans the gate about a route or about subtasks: the gate that the pattern names, or the gate of `spec.gates`
    /// with the type planApproval.
    pub(super) fn plan_review(
        &mut self,
        plan: &PlanContext<'_>,
        own: Option<&str>,
        (path, field): (&str, &str),
        known: &Known,
        subject: GateSubject,
    ) -> Option<PlannedStep> {
        let known = with_decision(known.clone());
        let general = self.plan_gate_of_run(plan, SpecGateType::PlanApproval, path, &known, subject.clone());
        let Some(name) = own else { return general };
        if general.is_some() {
            self.error(field, "a gate of spec.gates with the type planApproval asks already: keep one of them");
        }
        self.plan_named_gate(plan, name, (path, field), &known, subject).or(general)
    }

    pub(super) fn orchestrator(
        &mut self,
        plan: &PlanContext<'_>,
        spec: &OrchestratorWorkers,
        steps: &SpecSteps<'_>,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        let field = "spec.pattern.orchestratorWorkers";
        self.check_no_branches(steps);
        let named: BTreeSet<&str> = spec.reduce.as_deref().into_iter().chain(spec.writeup.as_deref()).collect();
        self.check_all_named(steps, &named, "name it in reduce or writeup, or leave it out");
        let max_tasks = count(spec.orchestrator.max_tasks).unwrap_or(MAX_TASKS);
        let context = StepContext::new(plan, format!("{field}.orchestrator"), "", with_decision(base.clone()));
        let addition = format!(
            "Answer with JSON and nothing else: [{{\"task\": \"<what a worker shall do>\"}}, ...], at most {max_tasks} of them."
        );
        let own = &spec.orchestrator;
        let agent = PatternAgent::of(&own.agent, own.input.as_deref(), Some(addition));
        let orchestrator = self.pattern_agent("orchestrator", agent, &context);
        let parts = base.clone().with("subtasks", Members::Open).with("task_count", Members::Open);
        let review = self.plan_review(
            plan,
            spec.decomposition_review.as_deref(),
            (".decomposition", &format!("{field}.decompositionReview")),
            &parts,
            GateSubject::Subtasks(max_tasks),
        );
        let parts = with_decision(parts).with("num_workers", Members::Open);
        let at_work = parts.clone().with("task", Members::Open).with("index", Members::Open);
        // The gates of policies are below each worker, because several workers run at once.
        let context = StepContext::new(plan, format!("{field}.worker"), ".worker/", at_work);
        let input = spec.worker.input.as_deref().unwrap_or("{{ task }}");
        self.check_call_timeout(spec.worker.timeout, &format!("{field}.worker.timeout"));
        let worker = self
            .pattern_agent("worker", PatternAgent::of(&spec.worker.agent, Some(input), None), &context)
            .map(|worker| PlannedStep {
                retry: PlannedRetry::of(spec.worker.retry.as_ref()),
                timeout: spec.worker.timeout.map_or(AGENT_TIMEOUT, signoff_api::Span::duration),
                on_error: spec.worker.on_error.unwrap_or_default(),
                ..worker
            });
        let done = parts.with("workers", Members::Open).with("last_response", Members::Open);
        let reduce_review = spec.reduce_review.as_deref().and_then(|name| {
            self.plan_named_gate(
                plan,
                name,
                (".reduce-review", &format!("{field}.reduceReview")),
                &done,
                GateSubject::Workers,
            )
        });
        let spec_reduce = self.find_named_step(steps, spec.reduce.as_deref(), &format!("{field}.reduce"));
        let reduce = spec_reduce.as_ref().and_then(|spec_step| self.single_step(plan, spec_step, &done));
        let reduced = match &spec_reduce {
            Some(spec_step) => {
                with_records(done.clone(), [spec_step].into_iter(), &[]).with("reduce", Members::fields(RECORD))
            }
            None => done.clone(),
        };
        let spec_writeup = self.find_named_step(steps, spec.writeup.as_deref(), &format!("{field}.writeup"));
        let writeup = spec_writeup.as_ref().and_then(|spec_step| self.single_step(plan, spec_step, &reduced));
        if let (Some(reduce), Some(writeup)) = (&spec.reduce, &spec.writeup)
            && reduce == writeup
        {
            self.error(format!("{field}.writeup"), format!("{writeup} is the step of reduce: name another"));
        }
        let own_steps = spec_reduce.iter().chain(&spec_writeup);
        let after = match spec_writeup {
            Some(_) => with_records(reduced.clone(), own_steps, &[]),
            None => reduced,
        };
        let planned = PlannedOrchestrator {
            orchestrator: orchestrator?,
            max_workers: count(own.max_workers),
            max_tasks,
            decomposition_review: review,
            worker: worker?,
            reduce_review,
            reduce,
            writeup,
            fail_fast: spec.fail_fast.unwrap_or(true),
        };
        Some((PlannedPattern::Orchestrator(Box::new(planned)), after))
    }
}
