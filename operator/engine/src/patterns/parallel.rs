//! `parallel`: independent chains that run at once, and the combination of their results.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use signoff_api::{Seq, Verdict};

use super::{LazyValue, PatternResult, chain, last_response, lazy_constant, origins_of_answer, render_exact};
use crate::steps::join::{Member, join_all};
use crate::{
    plan::{PlannedBranch, PlannedParallel, PlannedStep},
    replay::{
        origins::Origins,
        run::{RenderError, Run},
        scope::{self, PathPart, RecordNamespace, RequestedNames, StepScope, VisibleRecord},
    },
    steps::{self, EarlyEnd, StepResult, request::ReviewSubject},
};

pub(super) async fn run<'a>(run: &Run<'a>, parallel: &'a PlannedParallel) -> Result<PatternResult<'a>, EarlyEnd> {
    let members = parallel.branches.iter().map(|branch| -> Member<'_, ()> {
        let limit = parallel.max_parallel.map(|maximum| (String::new(), maximum));
        let step_scope = StepScope { limit, ..scope_of_branch(branch) };
        Box::pin(async move { chain::run_steps(run, &step_scope, &branch.steps).await })
    });
    join_all(members.collect(), parallel.fail_fast).await?;
    let all_steps = parallel.branches.iter().flat_map(|branch| &branch.steps);
    let step_scope = StepScope { also_visible: all_steps.collect(), ..StepScope::of("", RecordNamespace::Nothing, []) };
    let step_scope = step_scope.with_vars(move |run, wanted, seq, scope| {
        if wanted.root("branches") {
            scope.set("branches", view_branches(run, parallel, wanted, seq)?);
        }
        if wanted.root("last_response") {
            scope.set("last_response", join_responses(run, parallel, seq)?);
        }
        Ok(())
    });
    let joined: LazyValue<'a> = Rc::new(move |run, seq| join_responses(run, parallel, seq));
    match &parallel.reduce {
        None => Ok(PatternResult { step_scope, result: joined }),
        Some(step) => reduce(run, step, step_scope, joined).await,
    }
}

/// Runs a step that combines results: a gate about the text `joined`, or another step. Returns the scope with the step
/// and its result: `joined` if the step is skipped, fails, or is a rejected gate that does not end the run.
pub(super) async fn reduce<'a>(
    run: &Run<'a>,
    step: &'a PlannedStep,
    step_scope: StepScope<'a>,
    joined: LazyValue<'a>,
) -> Result<PatternResult<'a>, EarlyEnd> {
    let step_scope = step_scope.with_step(step);
    let step_scope = StepScope { listed: RecordNamespace::Named, conversation: step.path.clone(), ..step_scope };
    let Some(gate) = step.gate() else {
        let result = match steps::perform(run, &step_scope, step, &step.path, None).await? {
            StepResult::Answered(text) => {
                lazy_constant(json!(text), origins_of_answer(run, &step_scope, step, &step.path).await?)
            }
            StepResult::Skipped | StepResult::Failed(_) => joined,
        };
        return Ok(PatternResult { step_scope, result });
    };
    loop {
        let render = |seq: Seq| -> Result<(String, Origins), RenderError> {
            let (value, origins) = run.origins.collect(|| joined(run, seq));
            Ok((render_exact(&value?)?, origins))
        };
        let subject = |seq: Seq| {
            let (text, origins) = render(seq)?;
            Ok(Some(ReviewSubject::of(&step.path, &text).made_of(origins)))
        };
        let decided = steps::decide(run, &step_scope, step, &step.path, &subject).await?;
        if decided.verdict == Verdict::Reject && !gate.stops_on_reject {
            return Ok(PatternResult { step_scope, result: joined });
        }
        let verdict = steps::verdict_or_end(run, &decided, &[Verdict::Retry])?;
        let origins_of_edit = || async {
            let (before, origins) = run.render(|| render(decided.record.seq)).await.map_err(EarlyEnd::Failed)?;
            Ok(Origins::of(decided.edit_of(run, &before).await?).and(&origins))
        };
        let result: LazyValue<'a> = match verdict {
            Verdict::Retry => continue,
            Verdict::Modify => {
                let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                let value = parameters.0.get("response").cloned().unwrap_or(Value::Null);
                lazy_constant(value, origins_of_edit().await?)
            }
            Verdict::Respond => {
                let (own_scope, origins) = (step_scope.clone(), origins_of_edit().await?);
                Rc::new(move |run, seq| {
                    run.origins.note(&origins);
                    last_response(run, &StepScope { also_visible: Vec::new(), ..own_scope.clone() }, seq)
                })
            }
            _ => Rc::clone(&joined),
        };
        return Ok(PatternResult { step_scope, result });
    }
}

fn scope_of_branch(branch: &PlannedBranch) -> StepScope<'_> {
    StepScope::of(&format!("{}/", branch.name), RecordNamespace::Steps, &branch.steps)
}

/// Returns the value of `branches`: the response, the status and the steps of each branch, by name.
fn view_branches<'a>(
    run: &Run<'a>,
    parallel: &'a PlannedParallel,
    wanted: &RequestedNames<'_>,
    seq: Seq,
) -> Result<Value, RenderError> {
    let view_branch = |branch: &'a PlannedBranch| {
        let step_scope = scope_of_branch(branch);
        let is_read = |fields: &[&str]| {
            let parts: Vec<_> = [branch.name.as_str()].iter().chain(fields).map(|name| PathPart::field(name)).collect();
            wanted.reads("branches", &parts)
        };
        let records = step_scope.newest_records(run, seq);
        let view_step = |record: &VisibleRecord<'a>| {
            let name = record.step.name.as_str();
            let view = scope::view(run, &step_scope, record, seq, &|field| is_read(&["steps", name, field]))?;
            Ok((name.to_owned(), view))
        };
        let steps: Map<String, Value> = scope::all(records.iter().map(view_step).collect())?.into_iter().collect();
        let has_failed = steps.values().any(|view| view["status"] == "failed" || view["status"] == "unknown");
        let status = if has_failed { "failed" } else { "succeeded" };
        let response = run.origins.note_if(is_read(&["response"]), || last_response(run, &step_scope, seq))?;
        Ok((branch.name.clone(), json!({"response": response, "status": status, "steps": steps})))
    };
    let views = scope::all(parallel.branches.iter().map(view_branch).collect())?;
    Ok(Value::Object(views.into_iter().collect()))
}

/// Returns one text with the response of every branch, in the order of declaration.
fn join_responses<'a>(run: &Run<'a>, parallel: &'a PlannedParallel, seq: Seq) -> Result<Value, RenderError> {
    let render_branch = |branch: &'a PlannedBranch| {
        let response = last_response(run, &scope_of_branch(branch), seq)?;
        Ok(format!("Branch {}:\n{}", branch.name, render_exact(&response)?))
    };
    Ok(json!(scope::all(parallel.branches.iter().map(render_branch).collect())?.join("\n\n---\n\n")))
}
