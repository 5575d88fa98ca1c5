//! `evaluatorOptimizer`: draft -> evaluate -> ask people -> revise, until the draft is good enough or the attempts are
//! used up.

use serde_json::{Value, json};
use signoff_api::Verdict;
use signoff_expr::json as extract;

use super::{PatternResult, assert_exact, known, origins_of_answer};

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
const ASKED_AGAIN: i32 = 1;

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

/// An evaluated draft.
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
    let mut draft = written(run, &step_scope, &plan.producer, ".producer").await?;
    loop {
        let iteration = judged.len() + 1;
        let seen = judging_scope(&step_scope, &draft, iteration, &judged);
        let now = judge(run, &seen, plan, &draft).await?;
        let score = now.score;
        judged.push(now);
        let seen = judging_scope(&step_scope, &draft, iteration, &judged);
        if score >= plan.min_score {
            return Ok(done(seen, draft));
        }
        if iteration >= plan.max_iterations {
            let best = judged.iter().max_by(|a, b| a.score.total_cmp(&b.score)).cloned();
            return match best.filter(|_| plan.accepts_best) {
                Some(best) => Ok(done(seen, best.draft)),
                None => Err(EarlyEnd::Failed(format!(
                    "no draft reached the minimum score {}: {iteration} were judged, the last one with score {score}",
                    plan.min_score
                ))),
            };
        }
        if let Some(gate) = &plan.review {
            let shown = ReviewSubject::of(".review", &draft.text).made_of(draft.origins.clone());
            let decided = steps::decide(run, &seen, gate, ".review", &|_| Ok(Some(shown.clone()))).await?;
            // The number of drafts is limited, which also limits how often this gate asks.
            match steps::verdict_or_end(run, &decided, &[])? {
                // Without a true condition the gate is not asked, so no person approved the draft.
                Verdict::Approve if !decided.was_not_asked() => return Ok(done(seen, draft)),
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
        draft = written(run, &seen, &plan.reviser, ".reviser").await?;
    }
}

async fn written<'a>(
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
    let parser = AnswerParser { parse: &|text| evaluation(text).map(drop), retries: ASKED_AGAIN };
    match steps::perform(run, step_scope, &plan.evaluator, ".evaluator", Some(&parser)).await? {
        StepResult::Answered(answer) => {
            let (score, evaluation) = steps::parse_again(run, || evaluation(&answer)).map_err(EarlyEnd::Failed)?;
            let origins = origins_of_answer(run, step_scope, &plan.evaluator, ".evaluator").await?;
            Ok(JudgedDraft { draft: draft.clone(), evaluation, score, origins })
        }
        _ => Err(EarlyEnd::Failed("the evaluator was skipped, so the draft was not judged".to_owned())),
    }
}

/// Parses an evaluation: the score, and the whole answer.
fn evaluation(text: &str) -> Result<(f64, Value), String> {
    let found = extract::extract_where(text, |value| value.get("score").is_some());
    let Some(found) = found else { return Err("there is no JSON object with a score in it".to_owned()) };
    assert_exact(&found["score"], "/score")?;
    let list = |field: &str| found.get(field).filter(|value| value.is_array()).cloned().unwrap_or_else(|| json!([]));
    match found.get("score").and_then(Value::as_f64).filter(|score| (0.0..=100.0).contains(score)) {
        Some(score) => Ok((score, json!({"score": found["score"], "issues": list("issues"), "fixes": list("fixes")}))),
        None => Err(format!("score is {} and must be a number from 0 to 100", found["score"])),
    }
}

/// Returns the scope while a draft is evaluated, reviewed or revised.
fn judging_scope<'a>(
    step_scope: &StepScope<'a>,
    draft: &Draft,
    iteration: usize,
    judged: &[JudgedDraft],
) -> StepScope<'a> {
    let (draft, judged) = (draft.clone(), judged.to_vec());
    step_scope.with_vars(move |run, wanted, _, scope| {
        note_origins(run, wanted, &draft, &judged);
        let all: Vec<_> =
            judged.iter().map(|one| json!({"draft": one.draft.text, "evaluation": one.evaluation})).collect();
        let last = judged.last().map_or(Value::Null, |one| one.evaluation.clone());
        for name in DRAFT {
            scope.set(name, json!(draft.text));
        }
        for name in EVALUATION {
            scope.set(name, last.clone());
        }
        scope.set("iteration", json!(iteration));
        scope.set("iterations", json!(all));
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
    for (at, one) in judged.iter().enumerate() {
        for (field, origins) in [("draft", &one.draft.origins), ("evaluation", &one.origins)] {
            if wanted.reads("iterations", &[PathPart::entry(at, judged.len()), PathPart::field(field)]) {
                run.origins.note(origins);
            }
        }
    }
}

fn done(step_scope: StepScope<'_>, draft: Draft) -> PatternResult<'_> {
    PatternResult { step_scope, result: known(json!(draft.text), draft.origins) }
}
