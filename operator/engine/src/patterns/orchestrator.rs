//! `orchestratorWorkers`: an agent divides the work, people may look at the parts, workers do them, people may look at
//! the results, and something whole is made of them.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::{Value, json};
use signoff_api::Verdict;
use signoff_expr::json as extract;

use super::{Done, Later, PLANS_AGAIN, parallel::reduce, plain, together::Member, together::together};

use crate::{
    activity::Run,
    plan::PlannedOrchestrator,
    request::Reviewed,
    scope::{Frame, Listed},
    steps::{self, Performed, Reads, Stop},
};

/// How often an orchestrator's answer is requested again where it does not parse.
const ASKED_AGAIN: i32 = 2;

/// The result of a worker: its answer and its status.
#[derive(Clone)]
struct Part {
    response: Value,
    status: &'static str,
}

pub(super) async fn run<'a>(run: &Run<'a>, plan: &'a PlannedOrchestrator) -> Result<Done<'a>, Stop> {
    let beside: Vec<_> = plan.decomposition_review.iter().chain(&plan.reduce_review).collect();
    let frame = Frame { beside, ..Frame::of("", Listed::Nothing, []) };
    let tasks = divide(run, plan, &frame).await?;
    let frame = with_tasks(&frame, &tasks);
    let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
    let mut open: Vec<usize> = (0..tasks.len()).collect();
    let (frame, joined) = loop {
        let members = open.iter().map(|at| -> Member<'_, (usize, Part)> {
            let (at, frame) = (*at, frame.clone());
            let task = tasks.get(at).cloned().unwrap_or(Value::Null);
            Box::pin(async move { Ok((at, work(run, plan, &frame, at, task).await?)) })
        });
        parts.extend(together(members.collect(), plan.fail_fast).await?);
        let seen = with_parts(&frame, &tasks, &parts);
        let text = joined(&parts);
        match &plan.reduce_review {
            Some(gate) if !tasks.is_empty() => {
                let shown = Reviewed { parts: tasks.len(), ..Reviewed::of(".reduce-review", &text) };
                let decided = steps::decide(run, &seen, gate, ".reduce-review", &|_| Ok(Some(shown.clone()))).await?;
                let parameters = || async { Ok(decided.whole(run).await?.parameters.unwrap_or_default().0) };
                match steps::or_stop(run, &decided, &[Verdict::Defer, Verdict::Retry])? {
                    Verdict::Modify => {
                        replace(&mut parts, &parameters().await?);
                        break (with_parts(&frame, &tasks, &parts), self::joined(&parts));
                    }
                    Verdict::Retry => open = named(&parameters().await?, tasks.len()),
                    Verdict::Defer => open = (0..tasks.len()).collect(),
                    _ => break (seen, text),
                }
            }
            _ => break (seen, text),
        }
    };
    let joined: Later<'a> = Rc::new(move |_, _| Ok(json!(joined)));
    if tasks.is_empty() {
        return Ok(Done { frame, result: joined });
    }
    let reduced = match &plan.reduce {
        Some(step) => {
            let done = reduce(run, step, frame, joined).await?;
            let result = Rc::clone(&done.result);
            let frame = done.frame.giving(move |run, wanted, seq, scope| {
                if wanted.root("reduce") {
                    scope.set("reduce", json!({"name": step.name, "response": result(run, seq)?}));
                }
                Ok(())
            });
            Done { frame, result: done.result }
        }
        None => Done { frame, result: joined },
    };
    match &plan.writeup {
        Some(step) => {
            let Done { frame, result } = reduced.with_result();
            reduce(run, step, frame, result).await
        }
        None => Ok(reduced),
    }
}

/// The parts of the work, as people left them.
async fn divide<'a>(run: &Run<'a>, plan: &'a PlannedOrchestrator, frame: &Frame<'a>) -> Result<Vec<Value>, Stop> {
    let read = |text: &str| subtasks(text, plan.max_tasks).map(drop);
    loop {
        let reads = Reads { read: &read, retries: ASKED_AGAIN };
        let answer = match steps::perform(run, frame, &plan.orchestrator, ".orchestrator", Some(&reads)).await? {
            Performed::Answered(answer) => answer,
            _ => return Err(Stop::Failed("the orchestrator was left out, so there are no parts".to_owned())),
        };
        let tasks = steps::read_again(run, || subtasks(&answer, plan.max_tasks)).map_err(Stop::Failed)?;
        let Some(gate) = &plan.decomposition_review else { return Ok(tasks) };
        let shown = Reviewed::of(".orchestrator", &Value::Array(tasks.clone()).to_string());
        let asked = with_tasks(frame, &tasks);
        let decided = steps::decide(run, &asked, gate, ".decomposition", &|_| Ok(Some(shown.clone()))).await?;
        match steps::or_stop(run, &decided, &PLANS_AGAIN)? {
            Verdict::Modify => {
                let parameters = decided.whole(run).await?.parameters.unwrap_or_default();
                return Ok(parameters.0.get("subtasks").and_then(Value::as_array).cloned().unwrap_or_default());
            }
            // The orchestrator hears what was said, and divides again.
            verdict if PLANS_AGAIN.contains(&verdict) => {}
            _ => return Ok(tasks),
        }
    }
}

/// The parts that an answer holds.
fn subtasks(text: &str, most: usize) -> Result<Vec<Value>, String> {
    let Some(Value::Array(found)) = extract::extract_where(text, Value::is_array) else {
        return Err("there is no JSON array in it".to_owned());
    };
    if found.len() > most {
        return Err(format!("it has {} parts and may have {most}", found.len()));
    }
    let is_task = |part: &Value| part.get("task").and_then(Value::as_str).is_some_and(|task| !task.trim().is_empty());
    match found.iter().position(|part| !is_task(part)) {
        Some(at) => Err(format!("part {at} is no object with a text `task`")),
        None => Ok(found),
    }
}

async fn work<'a>(
    run: &Run<'a>,
    plan: &'a PlannedOrchestrator,
    frame: &Frame<'a>,
    at: usize,
    part: Value,
) -> Result<Part, Stop> {
    let path = format!(".worker-{at}");
    let limit = plan.max_workers.map(|most| (".worker-".to_owned(), most));
    let own = Frame { memory: path.clone(), hears: Some(path.clone()), limit, ..frame.clone() };
    let own = own.giving(move |_, _, _, scope| {
        scope.set("task", part.get("task").cloned().unwrap_or(Value::Null));
        scope.set("index", json!(at));
        Ok(())
    });
    Ok(match steps::perform(run, &own, &plan.worker, &path, None).await? {
        Performed::Answered(text) => Part { response: json!(text), status: "succeeded" },
        Performed::Skipped => Part { response: Value::Null, status: "skipped" },
        Performed::Failed(_) => Part { response: Value::Null, status: "failed" },
    })
}

fn with_tasks<'a>(frame: &Frame<'a>, tasks: &[Value]) -> Frame<'a> {
    let tasks = tasks.to_vec();
    frame.giving(move |_, _, _, scope| {
        scope.set("subtasks", json!(tasks));
        scope.set("task_count", json!(tasks.len()));
        scope.set("num_workers", json!(tasks.len()));
        Ok(())
    })
}

/// `workers[i]`, beside the parts.
fn with_parts<'a>(frame: &Frame<'a>, tasks: &[Value], parts: &BTreeMap<usize, Part>) -> Frame<'a> {
    let one = |(at, part): (&usize, &Part)| {
        let task = tasks.get(*at).and_then(|task| task.get("task")).cloned().unwrap_or(Value::Null);
        json!({"task": task, "response": part.response, "status": part.status})
    };
    let workers: Vec<_> = parts.iter().map(one).collect();
    let text = joined(parts);
    frame.giving(move |_, _, _, scope| {
        scope.set("workers", json!(workers));
        scope.set("last_response", json!(text));
        Ok(())
    })
}

fn joined(parts: &BTreeMap<usize, Part>) -> String {
    let one = |(at, part): (&usize, &Part)| format!("Worker {at}: {}", plain(&part.response));
    parts.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// Puts a person's texts in the place of workers' results: `{workers: {"0": ...}}`.
fn replace(parts: &mut BTreeMap<usize, Part>, parameters: &serde_json::Map<String, Value>) {
    let given = parameters.get("workers").and_then(Value::as_object).into_iter().flatten();
    for (at, response) in given.filter_map(|(at, response)| Some((at.parse::<usize>().ok()?, response))) {
        if let Some(part) = parts.get_mut(&at) {
            *part = Part { response: response.clone(), status: "modified" };
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
