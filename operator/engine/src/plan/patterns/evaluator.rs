//! The evaluator-optimizer in a plan: the steps that draft, evaluate and revise, and the gates between them.

use std::collections::BTreeSet;

use signoff_api::pattern::{EvaluatorOptimizer, OnExhausted};
use signoff_expr::Members;

use super::{Known, PlanContext, PlannedEvaluator, PlannedPattern, SpecSteps, Validator, agents::PatternAgent, count};

use crate::{
    gate::subject::GateSubject,
    plan::{references::with_decision, step::StepContext},
};

/// The default score of an accepted draft, and the default number of drafts.
const USUAL: (i32, usize) = (80, 3);
const EVALUATE: &str = "Judge this draft.\n\n{{ draft }}";
const REVISE: &str = "Revise the draft.\n\nDraft:\n{{ draft }}\n\nJudgement: {{ evaluation | tojson }}\
    {% if hitl_response %}\n\nWhat a person said about it:\n{{ hitl_response }}{% endif %}";
const ANSWER: &str =
    "Answer with JSON and nothing else: {\"score\": <0 to 100>, \"issues\": [\"...\"], \"fixes\": [\"...\"]}.";

impl Validator<'_> {
    pub(super) fn evaluator(
        &mut self,
        plan: &PlanContext<'_>,
        spec: &EvaluatorOptimizer,
        steps: &SpecSteps<'_>,
        base: &Known,
    ) -> Option<(PlannedPattern, Known)> {
        let field = "spec.pattern.evaluatorOptimizer";
        self.check_no_branches(steps);
        self.check_all_named(
            steps,
            &BTreeSet::new(),
            "evaluatorOptimizer asks its agents itself, so leave the step out",
        );
        let context = StepContext::new(plan, field, "", base.clone());
        let agent =
            PatternAgent { agent_field: "producer", ..PatternAgent::of(&spec.producer, spec.input.as_deref(), None) };
        let producer = self.pattern_agent("producer", agent, &context);
        let drafted = base.clone().with("draft", Members::Open).with("iteration", Members::Open);
        let drafted = drafted.with("iterations", Members::Open).with("last_response", Members::Open);
        let context = StepContext::new(plan, format!("{field}.evaluator"), "", with_decision(drafted.clone()));
        let input = spec.evaluator.input.as_deref().unwrap_or(EVALUATE);
        let agent = PatternAgent::of(&spec.evaluator.agent, Some(input), Some(ANSWER.to_owned()));
        let evaluator = self.pattern_agent("evaluator", agent, &context);
        let judged = with_decision(drafted).with("evaluation", Members::fields(["score", "issues", "fixes"]));
        let judged = judged.with("current_draft", Members::Open);
        let judged = judged.with("current_evaluation", Members::fields(["score", "issues", "fixes"]));
        let review = spec.review_gate.as_deref().and_then(|name| {
            self.plan_named_gate(plan, name, (".review", &format!("{field}.reviewGate")), &judged, GateSubject::Draft)
        });
        let context = StepContext::new(plan, field, "", judged.clone());
        let prompt = spec.revise_prompt.as_deref().unwrap_or(REVISE);
        let agent = PatternAgent::of(&spec.producer, Some(prompt), None);
        let agent = PatternAgent { agent_field: "producer", input_field: "revisePrompt", ..agent };
        let reviser = self.pattern_agent("reviser", agent, &context);
        let accept = spec.accept.clone().unwrap_or_default();
        let planned = PlannedEvaluator {
            producer: producer?,
            evaluator: evaluator?,
            reviser: reviser?,
            review,
            min_score: f64::from(accept.min_score.unwrap_or(USUAL.0)),
            max_iterations: count(accept.max_iterations).unwrap_or(USUAL.1),
            accepts_best: spec.on_exhausted == Some(OnExhausted::AcceptBest),
        };
        Some((PlannedPattern::Evaluator(Box::new(planned)), judged))
    }
}
