//! `parallel`: chains that know nothing of each other, all at once, and what becomes of their results.

use std::rc::Rc;

use serde_json::{Map, Value, json};
use signoff_api::Verdict;

use super::{Done, Later, chain, last_response, plain, together::Member, together::together};
use crate::{
    activity::{Run, Trouble},
    plan::{PlannedBranch, PlannedParallel, PlannedStep},
    request::Reviewed,
    scope::{self, Frame, Listed},
    steps::{self, Performed, Stop},
};

pub(super) async fn run<'a>(run: &Run<'a>, parallel: &'a PlannedParallel) -> Result<Done<'a>, Stop> {
    let members = parallel.branches.iter().map(|branch| -> Member<'_, ()> {
        let limit = parallel.max_parallel.map(|most| (String::new(), most));
        let frame = Frame { limit, ..frame(branch) };
        Box::pin(async move { chain::list(run, &frame, &branch.steps).await })
    });
    together(members.collect(), parallel.fail_fast).await?;
    let all = parallel.branches.iter().flat_map(|branch| &branch.steps);
    let frame = Frame { beside: all.collect(), ..Frame::of("", Listed::Nothing, []) };
    let frame = frame.giving(move |run, wanted, seq, scope| {
        if wanted.root("branches") {
            scope.set("branches", branches(run, parallel, seq)?);
        }
        if wanted.root("last_response") {
            scope.set("last_response", joined(run, parallel, seq)?);
        }
        Ok(())
    });
    let joined: Later<'a> = Rc::new(move |run, seq| joined(run, parallel, seq));
    match &parallel.reduce {
        None => Ok(Done { frame, result: joined }),
        Some(step) => reduce(run, step, frame, joined).await,
    }
}

/// The last word on a result: a step like any other, or people.
pub(super) async fn reduce<'a>(
    run: &Run<'a>,
    step: &'a PlannedStep,
    frame: Frame<'a>,
    joined: Later<'a>,
) -> Result<Done<'a>, Stop> {
    let own = Frame {
        listed: Listed::Named,
        list: frame.list.iter().copied().chain([step]).collect(),
        memory: step.path.clone(),
        ..frame
    };
    let Some(gate) = step.gate() else {
        return match steps::perform(run, &own, step, &step.path, None).await? {
            Performed::Answered(text) => Ok(Done { frame: own, result: Rc::new(move |_, _| Ok(json!(text))) }),
            Performed::Skipped | Performed::Failed(_) => Ok(Done { frame: own, result: joined }),
        };
    };
    loop {
        let shown = |seq: i64| Ok(Some(Reviewed::of(&step.path, &plain(&joined(run, seq)?))));
        let decided = steps::decide(run, &own, step, &step.path, &shown).await?;
        if decided.verdict == Verdict::Reject && !gate.stops_on_reject {
            return Ok(Done { frame: own, result: joined });
        }
        let result: Later<'a> = match steps::or_stop(run, &decided, &[Verdict::Retry])? {
            Verdict::Retry => continue,
            Verdict::Modify => {
                let parameters = decided.whole(run).await?.parameters.unwrap_or_default();
                let value = parameters.0.get("response").cloned().unwrap_or(Value::Null);
                Rc::new(move |_, _| Ok(value.clone()))
            }
            Verdict::Respond => {
                let own = own.clone();
                Rc::new(move |run, seq| last_response(run, &Frame { beside: Vec::new(), ..own.clone() }, seq))
            }
            _ => Rc::clone(&joined),
        };
        return Ok(Done { frame: own, result });
    }
}

fn frame(branch: &PlannedBranch) -> Frame<'_> {
    Frame::of(&format!("{}/", branch.name), Listed::Steps, &branch.steps)
}

/// `branches.<name>`, in declared order.
fn branches<'a>(run: &Run<'a>, parallel: &'a PlannedParallel, seq: i64) -> Result<Value, Trouble> {
    let one = |branch: &'a PlannedBranch| {
        let frame = frame(branch);
        let seen = frame.seen(run, seq);
        let views: Vec<_> =
            seen.iter().map(|one| Ok((one.step.name.clone(), scope::view(run, &frame, one, seq)?))).collect();
        let steps: Map<String, Value> = scope::all(views)?.into_iter().collect();
        let failed = steps.values().any(|view| view["status"] == "failed" || view["status"] == "unknown");
        let status = if failed { "failed" } else { "succeeded" };
        let response = last_response(run, &frame, seq)?;
        Ok((branch.name.clone(), json!({"response": response, "status": status, "steps": steps})))
    };
    let all = scope::all(parallel.branches.iter().map(one).collect())?;
    Ok(Value::Object(all.into_iter().collect()))
}

fn joined<'a>(run: &Run<'a>, parallel: &'a PlannedParallel, seq: i64) -> Result<Value, Trouble> {
    let one = |branch: &'a PlannedBranch| {
        let response = last_response(run, &frame(branch), seq)?;
        Ok(format!("Branch {}:\n{}", branch.name, plain(&response)))
    };
    Ok(json!(scope::all(parallel.branches.iter().map(one).collect())?.join("\n\n---\n\n")))
}
