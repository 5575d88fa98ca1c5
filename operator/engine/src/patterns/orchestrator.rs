//! `orchestratorWorkers`: divide the work -> ask people about the parts -> workers -> ask people about the results ->
//! combine.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::{Value, json};
use signoff_api::Verdict;
use signoff_expr::json as extract;

use super::{
    PLANS_AGAIN, PatternResult, assert_exact, lazy_constant, origins_of_answer, parallel::reduce, render_plain,
};

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
const MAX_PARSE_RETRIES: i32 = 2;

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
    let (step_scope, joined, origins) = run_workers(run, plan, &step_scope, &tasks).await?;
    let joined = lazy_constant(json!(joined), origins);
    if count == 0 {
        return Ok(PatternResult { step_scope, result: joined });
    }
    let reduced = match &plan.reduce {
        Some(step) => {
            let reduced = reduce(run, step, step_scope, joined).await?;
            let result = Rc::clone(&reduced.result);
            let step_scope = reduced.step_scope.with_vars(move |run, wanted, seq, scope| {
                if wanted.root("reduce") {
                    scope.set("reduce", json!({"name": step.name, "response": result(run, seq)?}));
                }
                Ok(())
            });
            PatternResult { step_scope, ..reduced }
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

/// Runs the workers and the review of their results, until no worker has to repeat its part.
///
/// Returns the scope with the results, their joined text, and its origins.
async fn run_workers<'a>(
    run: &Run<'a>,
    plan: &'a PlannedOrchestrator,
    step_scope: &StepScope<'a>,
    tasks: &Tasks,
) -> Result<(StepScope<'a>, String, Origins), EarlyEnd> {
    let count = tasks.parts.len();
    let mut results: BTreeMap<usize, WorkerResult> = BTreeMap::new();
    let mut open_parts: Vec<usize> = (0..count).collect();
    loop {
        let members = open_parts.iter().map(|index| -> Member<'_, (usize, WorkerResult)> {
            let (index, step_scope) = (*index, step_scope.clone());
            Box::pin(async move { Ok((index, perform_part(run, plan, &step_scope, index, tasks).await?)) })
        });
        results.extend(join_all(members.collect(), plan.fail_fast).await?);
        let results_scope = with_results(step_scope, tasks, &results);
        let (text, origins) = (join_results(&results), origins_of_results(&results));
        let gate = match &plan.reduce_review {
            Some(gate) if count > 0 => gate,
            _ => return Ok((results_scope, text, origins)),
        };
        let subject = ReviewSubject::of(".reduce-review", &text).made_of(origins.clone());
        let subject = ReviewSubject { parts: count, ..subject };
        let decided =
            steps::decide(run, &results_scope, gate, ".reduce-review", &|_| Ok(Some(subject.clone()))).await?;
        let parameters = || async { Ok(decided.full_outcome(run).await?.parameters.unwrap_or_default().0) };
        match steps::verdict_or_end(run, &decided, &[Verdict::Defer, Verdict::Retry])? {
            Verdict::Modify => {
                let edit = Origins::of(decided.edit_of(run, &text).await?);
                replace_results(&mut results, &parameters().await?, &edit);
                let results_scope = with_results(step_scope, tasks, &results);
                return Ok((results_scope, join_results(&results), edit.and(&origins)));
            }
            Verdict::Retry => open_parts = parse_repeated_workers(&parameters().await?, count),
            Verdict::Defer => open_parts = (0..count).collect(),
            _ => return Ok((results_scope, text, origins)),
        }
    }
}

/// Asks the orchestrator to divide the work and people to review the parts, until the parts are accepted. Returns the
/// parts with the edits of people.
async fn divide<'a>(
    run: &Run<'a>,
    plan: &'a PlannedOrchestrator,
    step_scope: &StepScope<'a>,
) -> Result<Tasks, EarlyEnd> {
    let parse = |text: &str| parse_parts(text, plan.max_tasks).map(drop);
    loop {
        let parser = AnswerParser { parse: &parse, retries: MAX_PARSE_RETRIES };
        let answer = match steps::perform(run, step_scope, &plan.orchestrator, ".orchestrator", Some(&parser)).await? {
            StepResult::Answered(answer) => answer,
            _ => return Err(EarlyEnd::Failed("the orchestrator was skipped, so there are no parts".to_owned())),
        };
        let parts =
            steps::parse_settled_answer(run, || parse_parts(&answer, plan.max_tasks)).map_err(EarlyEnd::Failed)?;
        let origins = origins_of_answer(run, step_scope, &plan.orchestrator, ".orchestrator").await?;
        let tasks = Tasks { parts, origins };
        let Some(gate) = &plan.decomposition_review else { return Ok(tasks) };
        let text = Value::Array(tasks.parts.clone()).to_string();
        let shown = ReviewSubject::of(".orchestrator", &text).made_of(tasks.origins.clone());
        let review_scope = with_tasks(step_scope, &tasks);
        let decided = steps::decide(run, &review_scope, gate, ".decomposition", &|_| Ok(Some(shown.clone()))).await?;
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
fn parse_parts(text: &str, maximum: usize) -> Result<Vec<Value>, String> {
    let Some(Value::Array(parts)) = extract::extract_where(text, Value::is_array) else {
        return Err("there is no JSON array in it".to_owned());
    };
    if parts.len() > maximum {
        return Err(format!("it has {} parts; the maximum is {maximum}", parts.len()));
    }
    // A part is shown to people and workers as a whole, so each number in it has to be readable.
    let parts = Value::Array(parts);
    assert_exact(&parts, "")?;
    let Value::Array(parts) = parts else { return Ok(Vec::new()) };
    let is_task = |part: &Value| part.get("task").and_then(Value::as_str).is_some_and(|task| !task.trim().is_empty());
    match parts.iter().position(|part| !is_task(part)) {
        Some(index) => Err(format!("part {index} is not an object with a text `task`")),
        None => Ok(parts),
    }
}

/// Runs the worker of a part of the work, and returns its result.
async fn perform_part<'a>(
    run: &Run<'a>,
    plan: &'a PlannedOrchestrator,
    step_scope: &StepScope<'a>,
    index: usize,
    tasks: &Tasks,
) -> Result<WorkerResult, EarlyEnd> {
    let path = format!(".worker-{index}");
    let limit = plan.max_workers.map(|maximum| (".worker-".to_owned(), maximum));
    let worker_scope =
        StepScope { conversation: path.clone(), feedback_from: Some(path.clone()), limit, ..step_scope.clone() };
    let (task, origins) = (text_of_part(tasks, index), tasks.origins.clone());
    let worker_scope = worker_scope.with_vars(move |run, wanted, _, scope| {
        if wanted.root("task") {
            run.origins.note(&origins);
        }
        scope.set("task", task.clone());
        scope.set("index", json!(index));
        Ok(())
    });
    let (response, status) = match steps::perform(run, &worker_scope, &plan.worker, &path, None).await? {
        StepResult::Answered(text) => (json!(text), "succeeded"),
        StepResult::Skipped => (Value::Null, "skipped"),
        StepResult::Failed(_) => (Value::Null, "failed"),
    };
    let origins = origins_of_answer(run, step_scope, &plan.worker, &path).await?;
    Ok(WorkerResult { response, status, origins })
}

/// Returns the text of a part of the work, or `null` if the part does not exist.
fn text_of_part(tasks: &Tasks, index: usize) -> Value {
    tasks.parts.get(index).and_then(|part| part.get("task")).cloned().unwrap_or(Value::Null)
}

fn origins_of_results(results: &BTreeMap<usize, WorkerResult>) -> Origins {
    results.values().fold(Origins::default(), |all, result| all.and(&result.origins))
}

/// Returns the scope with the variables of [`TASKS`].
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

/// Returns the scope with `workers[i]` and the joined results as `last_response`.
fn with_results<'a>(
    step_scope: &StepScope<'a>,
    tasks: &Tasks,
    results: &BTreeMap<usize, WorkerResult>,
) -> StepScope<'a> {
    let view = |(index, result): (&usize, &WorkerResult)| json!({"task": text_of_part(tasks, *index), "response": result.response, "status": result.status});
    let workers: Vec<_> = results.iter().map(view).collect();
    let (text, origins_of_tasks) = (join_results(results), tasks.origins.clone());
    let origins_of_responses: Vec<Origins> = results.values().map(|result| result.origins.clone()).collect();
    step_scope.with_vars(move |run, wanted, _, scope| {
        for (index, origins) in origins_of_responses.iter().enumerate() {
            let entry = PathPart::entry(index, origins_of_responses.len());
            if wanted.reads("workers", &[entry, PathPart::field("task")]) {
                run.origins.note(&origins_of_tasks);
            }
            if wanted.root("last_response") || wanted.reads("workers", &[entry, PathPart::field("response")]) {
                run.origins.note(origins);
            }
        }
        scope.set("workers", json!(workers));
        scope.set("last_response", json!(text));
        Ok(())
    })
}

fn join_results(results: &BTreeMap<usize, WorkerResult>) -> String {
    let render =
        |(index, result): (&usize, &WorkerResult)| format!("Worker {index}: {}", render_plain(&result.response));
    results.iter().map(render).collect::<Vec<_>>().join("\n\n")
}

/// Replaces results of workers by the texts of a person: `{workers: {"0": ...}}`.
fn replace_results(
    results: &mut BTreeMap<usize, WorkerResult>,
    parameters: &serde_json::Map<String, Value>,
    edit: &Origins,
) {
    let edited = parameters.get("workers").and_then(Value::as_object).into_iter().flatten();
    for (index, response) in edited.filter_map(|(key, response)| Some((key.parse::<usize>().ok()?, response))) {
        if let Some(result) = results.get_mut(&index) {
            let origins = edit.clone().and(&result.origins);
            *result = WorkerResult { response: response.clone(), status: "modified", origins };
        }
    }
}

/// Returns the sorted indexes of the workers that repeat their part: those in the parameter `workers`, or all of them.
fn parse_repeated_workers(parameters: &serde_json::Map<String, Value>, count: usize) -> Vec<usize> {
    let parse =
        |index: &Value| index.as_u64().and_then(|index| usize::try_from(index).ok()).filter(|index| *index < count);
    let mut indexes: Vec<usize> = match parameters.get("workers").and_then(Value::as_array) {
        Some(list) => list.iter().filter_map(parse).collect(),
        None => (0..count).collect(),
    };
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}
