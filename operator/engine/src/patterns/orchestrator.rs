//! `orchestratorWorkers`: divide the work -> ask people about the parts -> workers -> ask people about the results ->
//! combine.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::{Value, json};
use signoff_api::Verdict;
use signoff_expr::json as extract;

use super::{PLANS_AGAIN, PatternResult, assert_exact, known, origins_of_answer, parallel::reduce, plain_text};

use crate::steps::join::{Member, join_all};
use crate::{
    plan::PlannedOrchestrator,
    replay::{
        origins::Origins,
        run::Run,
        scope::{PathPart, RecordNamespace, StepScope},
    },
    steps::{self, AnswerParser, EarlyEnd, StepResult, request::ReviewSubject},
};

/// The number of further requests after an orchestrator's answer that does not parse.
const ASKED_AGAIN: i32 = 2;

/// The variables for the parts of the work and their number.
const TASKS: [&str; 3] = ["subtasks", "task_count", "num_workers"];

/// The parts of the work with the edits of people, and their origins.
#[derive(Clone)]
struct Tasks {
    parts: Vec<Value>,
    origins: Origins,
}

/// The result of a worker: its answer and its status.
#[derive(Clone)]
struct WorkerResult {
    response: Value,
    status: &'static str,
    /// The origins of the response.
    origins: Origins,
}

pub(super) async fn run<'a>(run: &Run<'a>, plan: &'a PlannedOrchestrator) -> Result<PatternResult<'a>, EarlyEnd> {
    let also_visible: Vec<_> = plan.decomposition_review.iter().chain(&plan.reduce_review).collect();
    let step_scope = StepScope { also_visible, ..StepScope::of("", RecordNamespace::Nothing, []) };
    let tasks = divide(run, plan, &step_scope).await?;
    let count = tasks.parts.len();
    let step_scope = with_tasks(&step_scope, &tasks);
    let mut parts: BTreeMap<usize, WorkerResult> = BTreeMap::new();
    let mut open: Vec<usize> = (0..count).collect();
    let (step_scope, joined, origins) = loop {
        let members = open.iter().map(|at| -> Member<'_, (usize, WorkerResult)> {
            let (at, step_scope) = (*at, step_scope.clone());
            let tasks = &tasks;
            Box::pin(async move { Ok((at, work(run, plan, &step_scope, at, tasks).await?)) })
        });
        parts.extend(join_all(members.collect(), plan.fail_fast).await?);
        let seen = with_parts(&step_scope, &tasks, &parts);
        let (text, origins) = (joined(&parts), origins_of_parts(&parts));
        match &plan.reduce_review {
            Some(gate) if count > 0 => {
                let shown = ReviewSubject::of(".reduce-review", &text).made_of(origins.clone());
                let shown = ReviewSubject { parts: count, ..shown };
                let decided = steps::decide(run, &seen, gate, ".reduce-review", &|_| Ok(Some(shown.clone()))).await?;
                let parameters = || async { Ok(decided.full_outcome(run).await?.parameters.unwrap_or_default().0) };
                match steps::verdict_or_end(run, &decided, &[Verdict::Defer, Verdict::Retry])? {
                    Verdict::Modify => {
                        let edit = Origins::of(decided.edit_of(run, &text).await?);
                        replace(&mut parts, &parameters().await?, &edit);
                        let origins = edit.and(&origins);
                        break (with_parts(&step_scope, &tasks, &parts), self::joined(&parts), origins);
                    }
                    Verdict::Retry => open = named(&parameters().await?, count),
                    Verdict::Defer => open = (0..count).collect(),
                    _ => break (seen, text, origins),
                }
            }
            _ => break (seen, text, origins),
        }
    };
    let joined = known(json!(joined), origins);
    if count == 0 {
        return Ok(PatternResult { step_scope, result: joined });
    }
    let reduced = match &plan.reduce {
        Some(step) => {
            let done = reduce(run, step, step_scope, joined).await?;
            let result = Rc::clone(&done.result);
            let step_scope = done.step_scope.with_vars(move |run, wanted, seq, scope| {
                if wanted.root("reduce") {
                    scope.set("reduce", json!({"name": step.name, "response": result(run, seq)?}));
                }
                Ok(())
            });
            PatternResult { step_scope, ..done }
        }
        None => PatternResult { step_scope, result: joined },
    };
    match &plan.writeup {
        Some(step) => {
            let PatternResult { step_scope, result } = reduced.with_result();
            reduce(run, step, step_scope, result).await
        }
        None => Ok(reduced),
    }
}

/// Returns the parts of the work with the edits of people.
async fn divide<'a>(
    run: &Run<'a>,
    plan: &'a PlannedOrchestrator,
    step_scope: &StepScope<'a>,
) -> Result<Tasks, EarlyEnd> {
    let parse = |text: &str| subtasks(text, plan.max_tasks).map(drop);
    loop {
        let parser = AnswerParser { parse: &parse, retries: ASKED_AGAIN };
        let answer = match steps::perform(run, step_scope, &plan.orchestrator, ".orchestrator", Some(&parser)).await? {
            StepResult::Answered(answer) => answer,
            _ => return Err(EarlyEnd::Failed("the orchestrator was skipped, so there are no parts".to_owned())),
        };
        let parts = steps::parse_again(run, || subtasks(&answer, plan.max_tasks)).map_err(EarlyEnd::Failed)?;
        let origins = origins_of_answer(run, step_scope, &plan.orchestrator, ".orchestrator").await?;
        let tasks = Tasks { parts, origins };
        let Some(gate) = &plan.decomposition_review else { return Ok(tasks) };
        let text = Value::Array(tasks.parts.clone()).to_string();
        let shown = ReviewSubject::of(".orchestrator", &text).made_of(tasks.origins.clone());
        let asked = with_tasks(step_scope, &tasks);
        let decided = steps::decide(run, &asked, gate, ".decomposition", &|_| Ok(Some(shown.clone()))).await?;
        match steps::verdict_or_end(run, &decided, &PLANS_AGAIN)? {
            Verdict::Modify => {
                let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                let origins = Origins::of(decided.edit_of(run, &text).await?).and(&tasks.origins);
                let parts = parameters.0.get("subtasks").and_then(Value::as_array).cloned().unwrap_or_default();
                return Ok(Tasks { parts, origins });
            }
            // The orchestrator receives the feedback, and divides again.
            verdict if PLANS_AGAIN.contains(&verdict) => {}
            _ => return Ok(tasks),
        }
    }
}

/// Parses the parts of the work from an answer.
fn subtasks(text: &str, most: usize) -> Result<Vec<Value>, String> {
    let Some(Value::Array(found)) = extract::extract_where(text, Value::is_array) else {
        return Err("there is no JSON array in it".to_owned());
    };
    if found.len() > most {
        return Err(format!("it has {} parts; the maximum is {most}", found.len()));
    }
    // People and workers see the whole of each part.
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
    tasks: &Tasks,
) -> Result<WorkerResult, EarlyEnd> {
    let path = format!(".worker-{at}");
    let limit = plan.max_workers.map(|most| (".worker-".to_owned(), most));
    let own = StepScope { conversation: path.clone(), feedback_from: Some(path.clone()), limit, ..step_scope.clone() };
    let (task, origins) = (task(tasks, at), tasks.origins.clone());
    let own = own.with_vars(move |run, wanted, _, scope| {
        if wanted.root("task") {
            run.origins.note(&origins);
        }
        scope.set("task", task.clone());
        scope.set("index", json!(at));
        Ok(())
    });
    let (response, status) = match steps::perform(run, &own, &plan.worker, &path, None).await? {
        StepResult::Answered(text) => (json!(text), "succeeded"),
        StepResult::Skipped => (Value::Null, "skipped"),
        StepResult::Failed(_) => (Value::Null, "failed"),
    };
    let origins = origins_of_answer(run, step_scope, &plan.worker, &path).await?;
    Ok(WorkerResult { response, status, origins })
}

/// Returns the text of the part of a worker.
fn task(tasks: &Tasks, at: usize) -> Value {
    tasks.parts.get(at).and_then(|part| part.get("task")).cloned().unwrap_or(Value::Null)
}

fn origins_of_parts(parts: &BTreeMap<usize, WorkerResult>) -> Origins {
    parts.values().fold(Origins::default(), |all, part| all.and(&part.origins))
}

fn with_tasks<'a>(step_scope: &StepScope<'a>, tasks: &Tasks) -> StepScope<'a> {
    let tasks = tasks.clone();
    step_scope.with_vars(move |run, wanted, _, scope| {
        if TASKS.iter().any(|name| wanted.root(name)) {
            run.origins.note(&tasks.origins);
        }
        scope.set("subtasks", json!(tasks.parts));
        scope.set("task_count", json!(tasks.parts.len()));
        scope.set("num_workers", json!(tasks.parts.len()));
        Ok(())
    })
}

/// Returns the scope with `workers[i]` and the parts.
fn with_parts<'a>(step_scope: &StepScope<'a>, tasks: &Tasks, parts: &BTreeMap<usize, WorkerResult>) -> StepScope<'a> {
    let one = |(at, part): (&usize, &WorkerResult)| json!({"task": task(tasks, *at), "response": part.response, "status": part.status});
    let workers: Vec<_> = parts.iter().map(one).collect();
    let (text, of_tasks) = (joined(parts), tasks.origins.clone());
    let of_parts: Vec<Origins> = parts.values().map(|part| part.origins.clone()).collect();
    step_scope.with_vars(move |run, wanted, _, scope| {
        for (at, origins) in of_parts.iter().enumerate() {
            let part = PathPart::entry(at, of_parts.len());
            if wanted.reads("workers", &[part, PathPart::field("task")]) {
                run.origins.note(&of_tasks);
            }
            if wanted.root("last_response") || wanted.reads("workers", &[part, PathPart::field("response")]) {
                run.origins.note(origins);
            }
        }
        scope.set("workers", json!(workers));
        scope.set("last_response", json!(text));
        Ok(())
    })
}

fn joined(parts: &BTreeMap<usize, WorkerResult>) -> String {
    let one = |(at, part): (&usize, &WorkerResult)| format!("Worker {at}: {}", plain_text(&part.response));
    parts.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// Replaces results of workers by the texts of a person: `{workers: {"0": ...}}`.
fn replace(parts: &mut BTreeMap<usize, WorkerResult>, parameters: &serde_json::Map<String, Value>, edit: &Origins) {
    let given = parameters.get("workers").and_then(Value::as_object).into_iter().flatten();
    for (at, response) in given.filter_map(|(at, response)| Some((at.parse::<usize>().ok()?, response))) {
        if let Some(part) = parts.get_mut(&at) {
            let origins = edit.clone().and(&part.origins);
            *part = WorkerResult { response: response.clone(), status: "modified", origins };
        }
    }
}

/// Returns the workers that repeat their part: the named ones, or all.
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
