//! The patterns: ordinary async functions whose only await points are journaled activities.
//!
//! None of them keeps any state of its own between turns: each turn replays it from its beginning.

mod chain;
mod dag;
mod evaluator;
mod graph;
mod orchestrator;
mod parallel;
mod release;
mod routing;
mod together;

use std::rc::Rc;

use serde_json::Value;
use signoff_api::Verdict;

use crate::{
    activity::{Run, Trouble},
    plan::PlannedPattern,
    scope::{Frame, Listed},
    steps::{self, Stop},
};

/// The result of a run that succeeded.
pub(crate) struct Shown {
    pub(crate) outputs: String,
    /// Relative paths, and what stands in them.
    pub(crate) artifacts: Vec<(String, String)>,
}

/// The verdicts on a plan by which it is made anew, and people are asked about the new one.
const PLANS_AGAIN: [Verdict; 3] = [Verdict::Respond, Verdict::Defer, Verdict::Retry];

/// A value that is made when it is asked for, from what was known at a number of the journal.
type Later<'a> = Rc<dyn Fn(&Run<'a>, i64) -> Result<Value, Trouble> + 'a>;

/// A pattern that has come to its end: what can be seen from there, and its result.
struct Done<'a> {
    frame: Frame<'a>,
    result: Later<'a>,
}

/// Runs the whole of a plan: the gates that policies put before it, the pattern, and the release of its result.
pub(crate) async fn run(run: &Run<'_>) -> Result<Shown, Stop> {
    let plan = run.plan;
    let nothing = Frame::of("", Listed::Nothing, []);
    for gate in &plan.start {
        steps::pass(run, &nothing, gate, &gate.path, &|_| Ok(None)).await?;
    }
    let done = match &plan.pattern {
        PlannedPattern::Chain(steps) => chain::run(run, steps).await,
        PlannedPattern::Dag(dag) => dag::run(run, dag).await,
        PlannedPattern::Routing(routing) => routing::run(run, routing).await,
        PlannedPattern::Parallel(parallel) => parallel::run(run, parallel).await,
        PlannedPattern::Evaluator(evaluator) => evaluator::run(run, evaluator).await,
        PlannedPattern::Orchestrator(orchestrator) => orchestrator::run(run, orchestrator).await,
        PlannedPattern::Graph(graph) => graph::run(run, graph).await,
    }?;
    release::release(run, done.with_result()).await
}

impl<'a> Done<'a> {
    /// The result is the newest response that can be seen.
    fn newest(frame: Frame<'a>) -> Self {
        let own = frame.clone();
        Self { frame, result: Rc::new(move |run, seq| last_response(run, &own, seq)) }
    }

    /// After a pattern, `last_response` is its result.
    fn with_result(self) -> Self {
        let result = Rc::clone(&self.result);
        let frame = self.frame.giving(move |run, wanted, seq, scope| {
            if wanted.root("last_response") {
                scope.set("last_response", result(run, seq)?);
            }
            Ok(())
        });
        Self { frame, result: self.result }
    }
}

/// The newest response that a frame sees, as people left it.
fn last_response<'a>(run: &Run<'a>, frame: &Frame<'a>, seq: i64) -> Result<Value, Trouble> {
    let newest = frame.newest(run, seq, |record| crate::scope::answers(run, record, seq));
    match newest {
        Some(newest) => Ok(crate::scope::response(run, frame, &newest, seq)?.0),
        None => Ok(Value::Null),
    }
}

/// A value as people read it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The number that everything known now comes before.
fn now(run: &Run<'_>) -> i64 {
    run.books.borrow().journal.seq() + 1
}

#[cfg(test)]
mod tests;
