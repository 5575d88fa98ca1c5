//! `evaluatorOptimizer`: draft -> evaluate -> ask people -> revise, until the draft is good enough or the attempts are
//! used up.

use serde_json::{Value, json};
use signoff_api::Verdict;
use signoff_expr::json as extract;

use super::{PatternResult, assert_exact, lazy_constant, origins_of_answer};

use crate::{
    plan::{PlannedEvaluator, PlannedStep},
    replay::{
        origins::Origins,
        run::Run,
        scope::{PathPart, RecordNamespace, RequestedNames, StepScope},
    },
    steps::{self, AnswerParser, EarlyEnd, StepResult, request::ReviewSubject},
};

/// The number of further requests after an evaluator's answer that does not parse.
const MAX_PARSE_RETRIES: i32 = 1;

/// The variables for the draft.
const DRAFT: [&str; 3] = ["draft", "current_draft", "last_response"];
/// The variables for the evaluation.
const EVALUATION: [&str; 2] = ["evaluation", "current_evaluation"];

/// A draft and its origins.
#[derive(Clone)]
struct Draft {
    text: String,
    origins: Origins,
}

/// A draft with its evaluation and score.
#[derive(Clone)]
struct JudgedDraft {
    draft: Draft,
    evaluation: Value,
    score: f64,
    /// The origins of the evaluation.
    origins: Origins,
}

pub(super) async fn run<'a>(run: &Run<'a>, plan: &'a PlannedEvaluator) -> Result<PatternResult<'a>, EarlyEnd> {
    let also_visible: Vec<_> = plan.review.iter().collect();
    let step_scope = StepScope { also_visible, ..StepScope::of("", RecordNamespace::Nothing, []) };
    let mut judged: Vec<JudgedDraft> = Vec::new();
    let mut draft = write_draft(run, &step_scope, &plan.producer, ".producer").await?;
    loop {
        let iteration = judged.len() + 1;
        let draft_scope = scope_of_draft(&step_scope, &draft, iteration, &judged);
        let judged_draft = judge(run, &draft_scope, plan, &draft).await?;
        let score = judged_draft.score;
        judged.push(judged_draft);
        let draft_scope = scope_of_draft(&step_scope, &draft, iteration, &judged);
        if score >= plan.min_score {
            return Ok(accept(draft_scope, draft));
        }
        if iteration >= plan.max_iterations {
            let best = judged.iter().max_by(|a, b| a.score.total_cmp(&b.score)).cloned();
            return match best.filter(|_| plan.accepts_best) {
                Some(best) => Ok(accept(draft_scope, best.draft)),
                None => Err(EarlyEnd::Failed(format!(
                    "no draft reached the minimum score {}: {iteration} were judged, the last one with score {score}",
                    plan.min_score
                ))),
            };
        }
        if let Some(gate) = &plan.review {
            let shown = ReviewSubject::of(".review", &draft.text).made_of(draft.origins.clone());
            let decided = steps::decide(run, &draft_scope, gate, ".review", &|_| Ok(Some(shown.clone()))).await?;
            // The number of drafts is limited, which also limits how often this gate asks.
            match steps::verdict_or_end(run, &decided, &[])? {
                // Without a true condition the gate is not asked, so no person approved the draft.
                Verdict::Approve if !decided.was_not_asked() => return Ok(accept(draft_scope, draft)),
                Verdict::Modify => {
                    let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                    let text =
                        parameters.0.get("draft").and_then(|draft| draft.as_str()).unwrap_or_default().to_owned();
                    let origins = Origins::of(decided.edit_of(run, &draft.text).await?).and(&draft.origins);
                    draft = Draft { text, origins };
                    continue;
                }
                _ => {}
            }
        }
        draft = write_draft(run, &draft_scope, &plan.reviser, ".reviser").await?;
    }
}

async fn write_draft<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
    base: &str,
) -> Result<Draft, EarlyEnd> {
    match steps::perform(run, step_scope, step, base, None).await? {
        StepResult::Answered(text) => {
            Ok(Draft { text, origins: origins_of_answer(run, step_scope, step, base).await? })
        }
        _ => Err(EarlyEnd::Failed(format!("{} was skipped, so there is no draft", base.trim_start_matches('.')))),
    }
}

async fn judge<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    plan: &'a PlannedEvaluator,
    draft: &Draft,
) -> Result<JudgedDraft, EarlyEnd> {
    let parser = AnswerParser { parse: &|text| parse_evaluation(text).map(drop), retries: MAX_PARSE_RETRIES };
    match steps::perform(run, step_scope, &plan.evaluator, ".evaluator", Some(&parser)).await? {
        StepResult::Answered(answer) => {
            let (score, evaluation) =
                steps::parse_settled_answer(run, || parse_evaluation(&answer)).map_err(EarlyEnd::Failed)?;
            let origins = origins_of_answer(run, step_scope, &plan.evaluator, ".evaluator").await?;
            Ok(JudgedDraft { draft: draft.clone(), evaluation, score, origins })
        }
        _ => Err(EarlyEnd::Failed("the evaluator was skipped, so the draft was not judged".to_owned())),
    }
}

/// Parses an evaluation. Returns the score, and an object with the score, the issues and the fixes.
fn parse_evaluation(text: &str) -> Result<(f64, Value), String> {
    let object = extract::extract_where(text, |value| value.get("score").is_some());
    let Some(object) = object else { return Err("there is no JSON object with a score in it".to_owned()) };
    assert_exact(&object["score"], "/score")?;
    let list_of =
        |field: &str| object.get(field).filter(|value| value.is_array()).cloned().unwrap_or_else(|| json!([]));
    match object.get("score").and_then(Value::as_f64).filter(|score| (0.0..=100.0).contains(score)) {
        Some(score) => {
            let (issues, fixes) = (list_of("issues"), list_of("fixes"));
            Ok((score, json!({"score": object["score"], "issues": issues, "fixes": fixes})))
        }
        None => Err(format!("score is {} and must be a number from 0 to 100", object["score"])),
    }
}

/// Returns the scope in which a draft is evaluated, reviewed or revised. `judged` has all drafts with an evaluation.
fn scope_of_draft<'a>(
    step_scope: &StepScope<'a>,
    draft: &Draft,
    iteration: usize,
    judged: &[JudgedDraft],
) -> StepScope<'a> {
    let (draft, judged) = (draft.clone(), judged.to_vec());
    step_scope.with_vars(move |run, wanted, _, scope| {
        note_origins(run, wanted, &draft, &judged);
        let view = |judged: &JudgedDraft| json!({"draft": judged.draft.text, "evaluation": judged.evaluation});
        let iterations: Vec<_> = judged.iter().map(view).collect();
        let last_evaluation = judged.last().map_or(Value::Null, |last| last.evaluation.clone());
        for name in DRAFT {
            scope.set(name, json!(draft.text));
        }
        for name in EVALUATION {
            scope.set(name, last_evaluation.clone());
        }
        scope.set("iteration", json!(iteration));
        scope.set("iterations", json!(iterations));
        Ok(())
    })
}

/// Notes the origins of the drafts and evaluations that a template reads.
fn note_origins(run: &Run<'_>, wanted: &RequestedNames<'_>, draft: &Draft, judged: &[JudgedDraft]) {
    if DRAFT.iter().any(|name| wanted.root(name)) {
        run.origins.note(&draft.origins);
    }
    if EVALUATION.iter().any(|name| wanted.root(name)) {
        judged.last().into_iter().for_each(|last| run.origins.note(&last.origins));
    }
    for (index, iteration) in judged.iter().enumerate() {
        for (field, origins) in [("draft", &iteration.draft.origins), ("evaluation", &iteration.origins)] {
            if wanted.reads("iterations", &[PathPart::entry(index, judged.len()), PathPart::field(field)]) {
                run.origins.note(origins);
            }
        }
    }
}

fn accept(step_scope: StepScope<'_>, draft: Draft) -> PatternResult<'_> {
    PatternResult { step_scope, result: lazy_constant(json!(draft.text), draft.origins) }
}
