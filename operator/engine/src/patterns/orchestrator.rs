//! `orchestratorWorkers`: an agent divides the work, people may look at the parts, workers do them, people may look at
//! the results, and something whole is made of them.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::{Value, json};
use signoff_api::{Verdict, approval::Edit};
use signoff_expr::json as extract;

use super::{LazyValue, PLANS_AGAIN, PatternResult, assert_exact, edits_of, known_edits, parallel::reduce, plain_text};

use crate::steps::join::{Member, join_all};
use crate::{
    plan::PlannedOrchestrator,
    replay::{
        run::Run,
        scope::{RecordNamespace, StepScope, editors},
    },
    steps::{self, AnswerParser, EarlyEnd, StepResult, request::ReviewSubject},
};

/// The further requests of an orchestrator's answer that does not parse.
const ASKED_AGAIN: i32 = 2;

/// The variables that have the parts of the work.
const TASKS: [&str; 2] = ["subtasks", "task"];

/// The result of a worker: its answer and its status.
#[derive(Clone)]
struct WorkerResult {
    response: Value,
    status: &'static str,
}

pub(super) async fn run<'a>(run: &Run<'a>, plan: &'a PlannedOrchestrator) -> Result<PatternResult<'a>, EarlyEnd> {
    let also_visible: Vec<_> = plan.decomposition_review.iter().chain(&plan.reduce_review).collect();
    let step_scope = StepScope { also_visible, ..StepScope::of("", RecordNamespace::Nothing, []) };
    let (tasks, edits) = divide(run, plan, &step_scope).await?;
    let step_scope = with_tasks(&step_scope, &tasks).with_edits(&TASKS, known_edits(edits));
    let mut parts: BTreeMap<usize, WorkerResult> = BTreeMap::new();
    let mut open: Vec<usize> = (0..tasks.len()).collect();
    let (step_scope, joined, edits) = loop {
        let members = open.iter().map(|at| -> Member<'_, (usize, WorkerResult)> {
            let (at, step_scope) = (*at, step_scope.clone());
            let task = tasks.get(at).cloned().unwrap_or(Value::Null);
            Box::pin(async move { Ok((at, work(run, plan, &step_scope, at, task).await?)) })
        });
        parts.extend(join_all(members.collect(), plan.fail_fast).await?);
        let edits = edits_of_workers(run, plan, &step_scope, tasks.len()).await?;
        let seen = with_parts(&step_scope, &tasks, &parts, &edits);
        let text = joined(&parts);
        match &plan.reduce_review {
            Some(gate) if !tasks.is_empty() => {
                let shown = ReviewSubject::of(".reduce-review", &text).changed_by(edits.clone());
                let shown = ReviewSubject { parts: tasks.len(), ..shown };
                let decided = steps::decide(run, &seen, gate, ".reduce-review", &|_| Ok(Some(shown.clone()))).await?;
                let parameters = || async { Ok(decided.full_outcome(run).await?.parameters.unwrap_or_default().0) };
                match steps::verdict_or_end(run, &decided, &[Verdict::Defer, Verdict::Retry])? {
                    Verdict::Modify => {
                        replace(&mut parts, &parameters().await?);
                        let edits = [vec![decided.edit_of(run, &text).await?], edits].concat();
                        break (with_parts(&step_scope, &tasks, &parts, &edits), self::joined(&parts), edits);
                    }
                    Verdict::Retry => open = named(&parameters().await?, tasks.len()),
                    Verdict::Defer => open = (0..tasks.len()).collect(),
                    _ => break (seen, text, edits),
                }
            }
            _ => break (seen, text, edits),
        }
    };
    let joined: LazyValue<'a> = Rc::new(move |_, _| Ok(json!(joined)));
    let edits = known_edits(edits);
    if tasks.is_empty() {
        return Ok(PatternResult { step_scope, result: joined, edits });
    }
    let reduced = match &plan.reduce {
        Some(step) => {
            let done = reduce(run, step, step_scope, (joined, edits)).await?;
            let result = Rc::clone(&done.result);
            let step_scope = done.step_scope.with_vars(move |run, wanted, seq, scope| {
                if wanted.root("reduce") {
                    scope.set("reduce", json!({"name": step.name, "response": result(run, seq)?}));
                }
                Ok(())
            });
            let step_scope = step_scope.with_edits(&["reduce"], Rc::clone(&done.edits));
            PatternResult { step_scope, ..done }
        }
        None => PatternResult { step_scope, result: joined, edits },
    };
    match &plan.writeup {
        Some(step) => {
            let PatternResult { step_scope, result, edits } = reduced.with_result();
            reduce(run, step, step_scope, (result, edits)).await
        }
        None => Ok(reduced),
    }
}

/// The parts of the work, as people left them, and the edits of people.
async fn divide<'a>(
    run: &Run<'a>,
    plan: &'a PlannedOrchestrator,
    step_scope: &StepScope<'a>,
) -> Result<(Vec<Value>, Vec<Edit>), EarlyEnd> {
    let parse = |text: &str| subtasks(text, plan.max_tasks).map(drop);
    loop {
        let parser = AnswerParser { parse: &parse, retries: ASKED_AGAIN };
        let answer = match steps::perform(run, step_scope, &plan.orchestrator, ".orchestrator", Some(&parser)).await? {
            StepResult::Answered(answer) => answer,
            _ => return Err(EarlyEnd::Failed("the orchestrator was skipped, so there are no parts".to_owned())),
        };
        let tasks = steps::parse_again(run, || subtasks(&answer, plan.max_tasks)).map_err(EarlyEnd::Failed)?;
        let edits = edits_of(run, step_scope, &plan.orchestrator, ".orchestrator").await?;
        let Some(gate) = &plan.decomposition_review else { return Ok((tasks, edits)) };
        let text = Value::Array(tasks.clone()).to_string();
        let shown = ReviewSubject::of(".orchestrator", &text).changed_by(edits.clone());
        let asked = with_tasks(step_scope, &tasks);
        let decided = steps::decide(run, &asked, gate, ".decomposition", &|_| Ok(Some(shown.clone()))).await?;
        match steps::verdict_or_end(run, &decided, &PLANS_AGAIN)? {
            Verdict::Modify => {
                let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                let edits = [vec![decided.edit_of(run, &text).await?], edits].concat();
                let tasks = parameters.0.get("subtasks").and_then(Value::as_array).cloned();
                return Ok((tasks.unwrap_or_default(), edits));
            }
            // The orchestrator hears what was said, and divides again.
            verdict if PLANS_AGAIN.contains(&verdict) => {}
            _ => return Ok((tasks, edits)),
        }
    }
}

/// The parts that an answer holds.
fn subtasks(text: &str, most: usize) -> Result<Vec<Value>, String> {
    let Some(Value::Array(found)) = extract::extract_where(text, Value::is_array) else {
        return Err("there is no JSON array in it".to_owned());
    };
    if found.len() > most {
        return Err(format!("it has {} parts; the maximum is {most}", found.len()));
    }
    // People and workers are given all of each part.
    let found = Value::Array(found);
    assert_exact(&found, "")?;
    let Value::Array(found) = found else { return Ok(Vec::new()) };
    let is_task = |part: &Value| part.get("task").and_then(Value::as_str).is_some_and(|task| !task.trim().is_empty());
    match found.iter().position(|part| !is_task(part)) {
        Some(at) => Err(format!("part {at} is not an object with a text `task`")),
        None => Ok(found),
    }
}

async fn work<'a>(
    run: &Run<'a>,
    plan: &'a PlannedOrchestrator,
    step_scope: &StepScope<'a>,
    at: usize,
    part: Value,
) -> Result<WorkerResult, EarlyEnd> {
    let path = format!(".worker-{at}");
    let limit = plan.max_workers.map(|most| (".worker-".to_owned(), most));
    let own = StepScope { conversation: path.clone(), feedback_from: Some(path.clone()), limit, ..step_scope.clone() };
    let own = own.with_vars(move |_, _, _, scope| {
        scope.set("task", part.get("task").cloned().unwrap_or(Value::Null));
        scope.set("index", json!(at));
        Ok(())
    });
    Ok(match steps::perform(run, &own, &plan.worker, &path, None).await? {
        StepResult::Answered(text) => WorkerResult { response: json!(text), status: "succeeded" },
        StepResult::Skipped => WorkerResult { response: Value::Null, status: "skipped" },
        StepResult::Failed(_) => WorkerResult { response: Value::Null, status: "failed" },
    })
}

/// Returns the edits of the answers of all workers, newest first.
async fn edits_of_workers<'a>(
    run: &Run<'a>,
    plan: &'a PlannedOrchestrator,
    step_scope: &StepScope<'a>,
    workers: usize,
) -> Result<Vec<Edit>, EarlyEnd> {
    let mut edits = Vec::new();
    for at in 0..workers {
        edits.extend(edits_of(run, step_scope, &plan.worker, &format!(".worker-{at}")).await?);
    }
    Ok(editors::newest_first(run, edits))
}

fn with_tasks<'a>(step_scope: &StepScope<'a>, tasks: &[Value]) -> StepScope<'a> {
    let tasks = tasks.to_vec();
    step_scope.with_vars(move |_, _, _, scope| {
        scope.set("subtasks", json!(tasks));
        scope.set("task_count", json!(tasks.len()));
        scope.set("num_workers", json!(tasks.len()));
        Ok(())
    })
}

/// `workers[i]`, beside the parts.
fn with_parts<'a>(
    step_scope: &StepScope<'a>,
    tasks: &[Value],
    parts: &BTreeMap<usize, WorkerResult>,
    edits: &[Edit],
) -> StepScope<'a> {
    let one = |(at, part): (&usize, &WorkerResult)| {
        let task = tasks.get(*at).and_then(|task| task.get("task")).cloned().unwrap_or(Value::Null);
        json!({"task": task, "response": part.response, "status": part.status})
    };
    let workers: Vec<_> = parts.iter().map(one).collect();
    let text = joined(parts);
    let step_scope = step_scope.clone().with_edits(&["workers", "last_response"], known_edits(edits.to_vec()));
    step_scope.with_vars(move |_, _, _, scope| {
        scope.set("workers", json!(workers));
        scope.set("last_response", json!(text));
        Ok(())
    })
}

fn joined(parts: &BTreeMap<usize, WorkerResult>) -> String {
    let one = |(at, part): (&usize, &WorkerResult)| format!("Worker {at}: {}", plain_text(&part.response));
    parts.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// Puts a person's texts in the place of workers' results: `{workers: {"0": ...}}`.
fn replace(parts: &mut BTreeMap<usize, WorkerResult>, parameters: &serde_json::Map<String, Value>) {
    let given = parameters.get("workers").and_then(Value::as_object).into_iter().flatten();
    for (at, response) in given.filter_map(|(at, response)| Some((at.parse::<usize>().ok()?, response))) {
        if let Some(part) = parts.get_mut(&at) {
            *part = WorkerResult { response: response.clone(), status: "modified" };
        }
    }
}

/// The workers that shall do their part again: those that were named, or all.
fn named(parameters: &serde_json::Map<String, Value>, all: usize) -> Vec<usize> {
    let given = parameters.get("workers").and_then(Value::as_array);
    let one = |at: &Value| at.as_u64().and_then(|at| usize::try_from(at).ok()).filter(|at| *at < all);
    let mut named: Vec<usize> = match given {
        Some(list) => list.iter().filter_map(one).collect(),
        None => (0..all).collect(),
    };
    named.sort_unstable();
    named.dedup();
    named
}
