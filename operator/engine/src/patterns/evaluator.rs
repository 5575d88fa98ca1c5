//! `evaluatorOptimizer`: draft, judge, ask people, revise, until the draft is good enough or nobody may try any more.

use std::rc::Rc;

use serde_json::{Value, json};
use signoff_api::Verdict;
use signoff_expr::json as extract;

use super::Done;

use crate::{
    activity::Run,
    plan::{PlannedEvaluator, PlannedStep},
    request::Reviewed,
    scope::{Frame, Listed},
    steps::{self, Performed, Reads, Stop},
};

/// How often an evaluator's answer is requested again where it does not parse.
const ASKED_AGAIN: i32 = 1;

/// A draft that was judged.
#[derive(Clone)]
struct Judged {
    draft: String,
    evaluation: Value,
    score: f64,
}

pub(super) async fn run<'a>(run: &Run<'a>, plan: &'a PlannedEvaluator) -> Result<Done<'a>, Stop> {
    let beside: Vec<_> = plan.review.iter().collect();
    let frame = Frame { beside, ..Frame::of("", Listed::Nothing, []) };
    let mut judged: Vec<Judged> = Vec::new();
    let mut draft = written(run, &frame, &plan.producer, ".producer").await?;
    loop {
        let iteration = judged.len() + 1;
        let seen = at_work(&frame, &draft, iteration, &judged);
        let now = judge(run, &seen, plan, &draft).await?;
        let score = now.score;
        judged.push(now);
        let seen = at_work(&frame, &draft, iteration, &judged);
        if score >= plan.min_score {
            return Ok(done(seen, draft));
        }
        if iteration >= plan.max_iterations {
            let best = judged.iter().max_by(|a, b| a.score.total_cmp(&b.score)).cloned();
            return match best.filter(|_| plan.accepts_best) {
                Some(best) => Ok(done(seen, best.draft)),
                None => Err(Stop::Failed(format!(
                    "no draft was good enough: {iteration} were judged, the last one {score} of {}",
                    plan.min_score
                ))),
            };
        }
        if let Some(gate) = &plan.review {
            let shown = Reviewed::of(".review", &draft);
            let decided = steps::decide(run, &seen, gate, ".review", &|_| Ok(Some(shown.clone()))).await?;
            // So many drafts are judged, whatever people say: that bounds how often this gate asks.
            match steps::or_stop(run, &decided, &[])? {
                // Where the gate's condition does not hold, nobody has approved the draft.
                Verdict::Approve if !decided.is_nobodys() => return Ok(done(seen, draft)),
                Verdict::Modify => {
                    let parameters = decided.whole(run).await?.parameters.unwrap_or_default();
                    draft = parameters.0.get("draft").and_then(|draft| draft.as_str()).unwrap_or_default().to_owned();
                    continue;
                }
                _ => {}
            }
        }
        draft = written(run, &seen, &plan.reviser, ".reviser").await?;
    }
}

async fn written<'a>(run: &Run<'a>, frame: &Frame<'a>, step: &'a PlannedStep, base: &str) -> Result<String, Stop> {
    match steps::perform(run, frame, step, base, None).await? {
        Performed::Answered(text) => Ok(text),
        _ => Err(Stop::Failed(format!("{} was left out, so there is no draft", base.trim_start_matches('.')))),
    }
}

async fn judge<'a>(run: &Run<'a>, frame: &Frame<'a>, plan: &'a PlannedEvaluator, draft: &str) -> Result<Judged, Stop> {
    let reads = Reads { read: &|text| evaluation(text).map(drop), retries: ASKED_AGAIN };
    match steps::perform(run, frame, &plan.evaluator, ".evaluator", Some(&reads)).await? {
        Performed::Answered(answer) => {
            let (score, evaluation) = steps::read_again(run, || evaluation(&answer)).map_err(Stop::Failed)?;
            Ok(Judged { draft: draft.to_owned(), evaluation, score })
        }
        _ => Err(Stop::Failed("the evaluator was left out, so nobody judged the draft".to_owned())),
    }
}

/// The score and the whole judgement that an answer holds.
fn evaluation(text: &str) -> Result<(f64, Value), String> {
    let found = extract::extract_where(text, |value| value.get("score").is_some());
    let Some(found) = found else { return Err("there is no JSON object with a score in it".to_owned()) };
    let list = |field: &str| found.get(field).filter(|value| value.is_array()).cloned().unwrap_or_else(|| json!([]));
    match found.get("score").and_then(Value::as_f64).filter(|score| (0.0..=100.0).contains(score)) {
        Some(score) => Ok((score, json!({"score": found["score"], "issues": list("issues"), "fixes": list("fixes")}))),
        None => Err(format!("score is {} and must be a number from 0 to 100", found["score"])),
    }
}

/// Returns the variables that are visible while a draft is judged, reviewed or revised.
fn at_work<'a>(frame: &Frame<'a>, draft: &str, iteration: usize, judged: &[Judged]) -> Frame<'a> {
    let (draft, judged) = (draft.to_owned(), judged.to_vec());
    frame.giving(move |_, _, _, scope| {
        let all: Vec<_> = judged.iter().map(|one| json!({"draft": one.draft, "evaluation": one.evaluation})).collect();
        let last = judged.last().map_or(Value::Null, |one| one.evaluation.clone());
        for (name, value) in [
            ("draft", json!(draft)),
            ("current_draft", json!(draft)),
            ("last_response", json!(draft)),
            ("iteration", json!(iteration)),
            ("iterations", json!(all)),
            ("evaluation", last.clone()),
            ("current_evaluation", last),
        ] {
            scope.set(name, value);
        }
        Ok(())
    })
}

fn done(frame: Frame<'_>, draft: String) -> Done<'_> {
    Done { frame, result: Rc::new(move |_, _| Ok(json!(draft))) }
}
