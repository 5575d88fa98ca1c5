//! What a step answered: whether it makes sense, asking an agent again where it does not, and asking people about it.
//!
//! It may not repair an answer: one that is not as it should be is asked for again, replaced by a person, or refused.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::{
    Verdict,
    journal::{StepError, StepPhase},
};

use super::{Stop, attempts, gate, or_stop};
use crate::{
    activity::{Change, Run, error},
    decision,
    language::{json as extract, text},
    plan::{Action, PlannedOutput, PlannedStep},
    scope::Frame,
};

/// How often an agent is asked again for an answer that fits its schema.
const ASKED_AGAIN: i32 = 2;
/// How much of a problem is quoted, in characters.
const QUOTED: usize = 600;

/// What makes sense of an answer, and how often it is asked for again where nothing does.
pub(crate) struct Reads<'r> {
    pub(crate) read: &'r dyn Fn(&str) -> Result<(), String>,
    pub(crate) retries: i32,
}

/// What became of an answer.
pub(super) enum Settled {
    /// It is this text.
    Accepted(String),
    /// It shall be answered once more.
    Again,
    /// It is not used.
    Refused(StepError),
}

/// Settles the answer of the attempt at `path` that succeeded last.
pub(super) async fn settle<'a>(
    run: &Run<'a>,
    frame: &Frame<'a>,
    step: &'a PlannedStep,
    path: &str,
    attempt: i32,
    reads: Option<&Reads<'_>>,
) -> Result<Settled, Stop> {
    let mut answer = answer(run, path, attempt).await?;
    if reads.is_none() && step.output.is_none() {
        return Ok(Settled::Accepted(answer));
    }
    let schema = step.output.as_ref().and_then(|output| output.schema.as_ref());
    let problem = |text: &str| -> Option<String> {
        if let Some(Err(why)) = reads.map(|reads| (reads.read)(text)) {
            return Some(why);
        }
        schema.and_then(|schema| fits(schema, text).err())
    };
    let retries = reads.map_or(ASKED_AGAIN, |reads| reads.retries);
    let mut found = problem(&answer);
    let mut asked = 0;
    while let (Some(why), Action::Agent(_), true) = (&found, &step.action, asked < retries) {
        asked += 1;
        let (_, count) = run.visit(&format!("{path}/.ask"));
        let place = format!("{path}/.ask-{}", count + 1);
        let change = Change { parameters: BTreeMap::from([("input".to_owned(), clarification(step, why))]) };
        let record = attempts(run, frame, step, &place, 1, step.retry.limit.unwrap_or(0), &change).await;
        if record.phase != StepPhase::Succeeded {
            let failed = record.error.unwrap_or_else(|| error("Failed", "it failed"));
            return Ok(Settled::Refused(failed));
        }
        answer = self::answer(run, &place, record.attempt).await?;
        found = problem(&answer);
    }
    match &step.output {
        Some(PlannedOutput { gate: Some(gate), always, .. }) if *always || found.is_some() => {
            judged(run, frame, gate, path, answer, found).await
        }
        _ => Ok(match found {
            None => Settled::Accepted(answer),
            Some(why) => Settled::Refused(error("Malformed", &format!("its answer is not as it should be: {why}"))),
        }),
    }
}

/// Asks people about an answer.
async fn judged<'a>(
    run: &Run<'a>,
    frame: &Frame<'a>,
    gate: &'a PlannedStep,
    path: &str,
    answer: String,
    problem: Option<String>,
) -> Result<Settled, Stop> {
    let (output, why) = (answer.clone(), problem.clone());
    let frame = frame.giving(move |_, _, _, scope| {
        scope.set("output", json!(output));
        scope.set("problem", json!(why));
        Ok(())
    });
    let shown = (path.to_owned(), answer.clone());
    let decided = gate::decide(run, &frame, gate, &format!("{path}/.output"), &|_| Ok(Some(shown.clone()))).await?;
    if decided.record.decision.is_none() && problem.is_some() {
        // The gate's condition did not hold, so nobody vouches for an answer that is not as it should be.
        let why = problem.unwrap_or_default();
        return Ok(Settled::Refused(error("Malformed", &format!("its answer is not as it should be: {why}"))));
    }
    if decided.verdict == Verdict::Reject {
        return Ok(Settled::Refused(error("Rejected", &decided.told(""))));
    }
    match or_stop(run, &decided)? {
        Verdict::Modify => {
            let parameters = decided.whole(run).await?.parameters.unwrap_or_default();
            let replaced = parameters.0.get("response").cloned().unwrap_or(Value::Null);
            Ok(Settled::Accepted(replaced.as_str().map_or_else(|| replaced.to_string(), str::to_owned)))
        }
        Verdict::Defer | Verdict::Retry => Ok(Settled::Again),
        _ => Ok(Settled::Accepted(answer)),
    }
}

async fn answer(run: &Run<'_>, path: &str, attempt: i32) -> Result<String, Stop> {
    run.made(|| {
        let record = run.books.borrow().journal.get(path, attempt).cloned();
        let text = record.map(|record| run.text_of(record.response.as_ref(), record.response_ref.as_ref()));
        Ok(text.transpose()?.flatten().unwrap_or_default())
    })
    .await
    .map_err(Stop::Failed)
}

/// Whether a text holds JSON that fits a schema.
fn fits(schema: &signoff_api::JsonObject, text: &str) -> Result<(), String> {
    let validator = decision::compile(schema)?;
    let found = extract::extract_where(text, |value| validator.is_valid(value));
    if found.is_some() {
        return Ok(());
    }
    let Some(value) = extract::extract(text) else { return Err("there is no JSON in it".to_owned()) };
    let why = validator.iter_errors(&value).next().map(|e| e.to_string()).unwrap_or_default();
    Err(text::display(&why, QUOTED))
}

/// What an agent is told about an answer that makes no sense. The problem may quote its own words: it is shown as data.
fn clarification(step: &PlannedStep, problem: &str) -> String {
    let wanted = match &step.action {
        Action::Agent(agent) => agent.addition.clone(),
        _ => None,
    };
    let schema = step.output.as_ref().and_then(|output| output.schema.as_ref());
    let wanted = wanted.or_else(|| {
        let schema = serde_json::to_string(schema?).unwrap_or_default();
        Some(format!("Answer with JSON that fits this schema, and nothing else: {schema}"))
    });
    format!(
        "Your last answer cannot be used. The problem: {}\n{}",
        text::display(problem, QUOTED),
        wanted.unwrap_or_default()
    )
}
