//! `parallel`: chains that know nothing of each other, all at once, and what becomes of their results.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use signoff_api::Verdict;

use super::{LazyValue, PatternResult, chain, last_response, plain};
use crate::steps::join::{Member, join_all};
use crate::{
    plan::{PlannedBranch, PlannedParallel, PlannedStep},
    replay::{
        run::{RenderError, Run},
        scope::{self, RecordNamespace, StepScope},
    },
    steps::{self, EarlyEnd, StepResult, request::ReviewSubject},
};

pub(super) async fn run<'a>(run: &Run<'a>, parallel: &'a PlannedParallel) -> Result<PatternResult<'a>, EarlyEnd> {
    let members = parallel.branches.iter().map(|branch| -> Member<'_, ()> {
        let limit = parallel.max_parallel.map(|most| (String::new(), most));
        let step_scope = StepScope { limit, ..scope_of_branch(branch) };
        Box::pin(async move { chain::list(run, &step_scope, &branch.steps).await })
    });
    join_all(members.collect(), parallel.fail_fast).await?;
    let all = parallel.branches.iter().flat_map(|branch| &branch.steps);
    let step_scope = StepScope { also_visible: all.collect(), ..StepScope::of("", RecordNamespace::Nothing, []) };
    let step_scope = step_scope.with_vars(move |run, wanted, seq, scope| {
        if wanted.root("branches") {
            scope.set("branches", branches(run, parallel, seq)?);
        }
        if wanted.root("last_response") {
            scope.set("last_response", joined(run, parallel, seq)?);
        }
        Ok(())
    });
    let joined: LazyValue<'a> = Rc::new(move |run, seq| joined(run, parallel, seq));
    match &parallel.reduce {
        None => Ok(PatternResult { step_scope, result: joined }),
        Some(step) => reduce(run, step, step_scope, joined).await,
    }
}

/// The last word on a result: a step like any other, or people.
pub(super) async fn reduce<'a>(
    run: &Run<'a>,
    step: &'a PlannedStep,
    step_scope: StepScope<'a>,
    joined: LazyValue<'a>,
) -> Result<PatternResult<'a>, EarlyEnd> {
    let own = StepScope {
        listed: RecordNamespace::Named,
        list: step_scope.list.iter().copied().chain([step]).collect(),
        conversation: step.path.clone(),
        ..step_scope
    };
    let Some(gate) = step.gate() else {
        return match steps::perform(run, &own, step, &step.path, None).await? {
            StepResult::Answered(text) => {
                Ok(PatternResult { step_scope: own, result: Rc::new(move |_, _| Ok(json!(text))) })
            }
            StepResult::Skipped | StepResult::Failed(_) => Ok(PatternResult { step_scope: own, result: joined }),
        };
    };
    loop {
        let shown = |seq: i64| Ok(Some(ReviewSubject::of(&step.path, &plain(&joined(run, seq)?)?)));
        let decided = steps::decide(run, &own, step, &step.path, &shown).await?;
        if decided.verdict == Verdict::Reject && !gate.stops_on_reject {
            return Ok(PatternResult { step_scope: own, result: joined });
        }
        let result: LazyValue<'a> = match steps::verdict_or_end(run, &decided, &[Verdict::Retry])? {
            Verdict::Retry => continue,
            Verdict::Modify => {
                let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                let value = parameters.0.get("response").cloned().unwrap_or(Value::Null);
                Rc::new(move |_, _| Ok(value.clone()))
            }
            Verdict::Respond => {
                let own = own.clone();
                Rc::new(move |run, seq| last_response(run, &StepScope { also_visible: Vec::new(), ..own.clone() }, seq))
            }
            _ => Rc::clone(&joined),
        };
        return Ok(PatternResult { step_scope: own, result });
    }
}

fn scope_of_branch(branch: &PlannedBranch) -> StepScope<'_> {
    StepScope::of(&format!("{}/", branch.name), RecordNamespace::Steps, &branch.steps)
}

/// `branches.<name>`, in declared order.
fn branches<'a>(run: &Run<'a>, parallel: &'a PlannedParallel, seq: i64) -> Result<Value, RenderError> {
    let one = |branch: &'a PlannedBranch| {
        let step_scope = scope_of_branch(branch);
        let seen = step_scope.seen(run, seq);
        let views: Vec<_> =
            seen.iter().map(|one| Ok((one.step.name.clone(), scope::view(run, &step_scope, one, seq)?))).collect();
        let steps: Map<String, Value> = scope::all(views)?.into_iter().collect();
        let failed = steps.values().any(|view| view["status"] == "failed" || view["status"] == "unknown");
        let status = if failed { "failed" } else { "succeeded" };
        let response = last_response(run, &step_scope, seq)?;
        Ok((branch.name.clone(), json!({"response": response, "status": status, "steps": steps})))
    };
    let all = scope::all(parallel.branches.iter().map(one).collect())?;
    Ok(Value::Object(all.into_iter().collect()))
}

fn joined<'a>(run: &Run<'a>, parallel: &'a PlannedParallel, seq: i64) -> Result<Value, RenderError> {
    let one = |branch: &'a PlannedBranch| {
        let response = last_response(run, &scope_of_branch(branch), seq)?;
        Ok(format!("Branch {}:\n{}", branch.name, plain(&response)?))
    };
    Ok(json!(scope::all(parallel.branches.iter().map(one).collect())?.join("\n\n---\n\n")))
}
