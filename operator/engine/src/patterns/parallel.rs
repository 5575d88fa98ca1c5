//! `parallel`: chains that know nothing of each other, all at once, and what becomes of their results.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use signoff_api::{Verdict, approval::Edit};

use super::{LazyValue, PatternResult, chain, edits_of, known_edits, last_response, plain};
use crate::steps::join::{Member, join_all};
use crate::{
    plan::{PlannedBranch, PlannedParallel, PlannedStep},
    replay::{
        run::{RenderError, Run},
        scope::{
            self, RecordNamespace, StepScope,
            editors::{self, EditsAt},
        },
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
    let edits: EditsAt<'a> = Rc::new(move |run, seq| edits_of_branches(run, parallel, seq));
    let step_scope = step_scope.with_edits(&["branches", "last_response"], Rc::clone(&edits));
    match &parallel.reduce {
        None => Ok(PatternResult { step_scope, result: joined, edits }),
        Some(step) => reduce(run, step, step_scope, (joined, edits)).await,
    }
}

/// The last word on a result: a step like any other, or people.
pub(super) async fn reduce<'a>(
    run: &Run<'a>,
    step: &'a PlannedStep,
    step_scope: StepScope<'a>,
    (joined, edits): (LazyValue<'a>, EditsAt<'a>),
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
                let edits = known_edits(edits_of(run, &own, step, &step.path).await?);
                Ok(PatternResult { step_scope: own, result: Rc::new(move |_, _| Ok(json!(text))), edits })
            }
            StepResult::Skipped | StepResult::Failed(_) => Ok(PatternResult { step_scope: own, result: joined, edits }),
        };
    };
    loop {
        let shown = |seq: i64| {
            let subject = ReviewSubject::of(&step.path, &plain(&joined(run, seq)?)?);
            Ok(Some(subject.changed_by(edits(run, seq)?)))
        };
        let decided = steps::decide(run, &own, step, &step.path, &shown).await?;
        if decided.verdict == Verdict::Reject && !gate.stops_on_reject {
            return Ok(PatternResult { step_scope: own, result: joined, edits });
        }
        let verdict = steps::verdict_or_end(run, &decided, &[Verdict::Retry])?;
        let edits = match verdict {
            Verdict::Modify | Verdict::Respond => {
                let seq = decided.record.seq;
                let replaced = run.render(|| Ok((plain(&joined(run, seq)?)?, edits(run, seq)?))).await;
                let (replaced, before) = replaced.map_err(EarlyEnd::Failed)?;
                known_edits([vec![decided.edit_of(run, &replaced).await?], before].concat())
            }
            _ => Rc::clone(&edits),
        };
        let result: LazyValue<'a> = match verdict {
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
        return Ok(PatternResult { step_scope: own, result, edits });
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

/// Returns the edits of the results of all branches, newest first.
fn edits_of_branches<'a>(run: &Run<'a>, parallel: &'a PlannedParallel, seq: i64) -> Result<Vec<Edit>, RenderError> {
    let of_branch = |branch: &'a PlannedBranch| editors::of_newest(run, &scope_of_branch(branch), seq);
    let all = scope::all(parallel.branches.iter().map(of_branch).collect())?;
    Ok(editors::newest_first(run, all.into_iter().flatten().collect()))
}

fn joined<'a>(run: &Run<'a>, parallel: &'a PlannedParallel, seq: i64) -> Result<Value, RenderError> {
    let one = |branch: &'a PlannedBranch| {
        let response = last_response(run, &scope_of_branch(branch), seq)?;
        Ok(format!("Branch {}:\n{}", branch.name, plain(&response)?))
    };
    Ok(json!(scope::all(parallel.branches.iter().map(one).collect())?.join("\n\n---\n\n")))
}
