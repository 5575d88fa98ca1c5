//! The patterns: ordinary async functions whose only await points are journaled activities.
//!
//! **Invariant:** no pattern has state of its own between transitions: each transition replays it from its beginning.

mod chain;
mod dag;
mod evaluator;
mod graph;
mod orchestrator;
mod parallel;
mod release;
mod routing;

use std::rc::Rc;

use serde_json::Value;
use signoff_api::{Seq, Verdict};
use signoff_expr::{number::first_inexact, text};

use crate::{
    plan::{PlannedPattern, PlannedStep},
    replay::{
        origins::Origins,
        run::{RenderError, Run},
        scope::{self, RecordNamespace, StepScope, VisibleRecord},
    },
    steps::{self, EarlyEnd},
};

/// The result of a run that succeeded.
pub(crate) struct RunResult {
    pub(crate) outputs: String,
    /// The relative path and the content of each file.
    pub(crate) artifacts: Vec<(String, String)>,
    /// The skipped artifacts whose condition could not be evaluated: each with its path and the reason.
    pub(crate) left_out: Vec<String>,
}

/// The verdicts on a plan after which the agent plans again, and people are asked about the new plan.
const PLANS_AGAIN: [Verdict; 3] = [Verdict::Respond, Verdict::Defer, Verdict::Retry];

/// A value that is computed when it is read, as of a number of the journal. Its origins are noted then.
type LazyValue<'a> = Rc<dyn Fn(&Run<'a>, Seq) -> Result<Value, RenderError> + 'a>;

/// A finished pattern: the scope at its end, and its result.
struct PatternResult<'a> {
    step_scope: StepScope<'a>,
    result: LazyValue<'a>,
}

/// Runs a whole plan: the gates of policies before it, the pattern, and the release of its result.
pub(crate) async fn run(run: &Run<'_>) -> Result<RunResult, EarlyEnd> {
    let plan = run.plan;
    let empty_scope = StepScope::of("", RecordNamespace::Nothing, []);
    for gate in &plan.start {
        steps::pass(run, &empty_scope, gate, &gate.path, &|_| Ok(None)).await?;
    }
    let pattern_result = match &plan.pattern {
        PlannedPattern::Chain(steps) => chain::run(run, steps).await,
        PlannedPattern::Dag(dag) => dag::run(run, dag).await,
        PlannedPattern::Routing(routing) => routing::run(run, routing).await,
        PlannedPattern::Parallel(parallel) => parallel::run(run, parallel).await,
        PlannedPattern::Evaluator(evaluator) => evaluator::run(run, evaluator).await,
        PlannedPattern::Orchestrator(orchestrator) => orchestrator::run(run, orchestrator).await,
        PlannedPattern::Graph(graph) => graph::run(run, graph).await,
    }?;
    release::release(run, pattern_result.with_result()).await
}

impl<'a> PatternResult<'a> {
    /// Returns a result that is the newest visible response.
    fn from_newest_response(step_scope: StepScope<'a>) -> Self {
        let own = step_scope.clone();
        Self { step_scope, result: Rc::new(move |run, seq| last_response(run, &own, seq)) }
    }

    /// Makes `last_response` the result of the pattern.
    fn with_result(self) -> Self {
        let result = Rc::clone(&self.result);
        let step_scope = self.step_scope.with_vars(move |run, wanted, seq, scope| {
            if wanted.root("last_response") {
                scope.set("last_response", result(run, seq)?);
            }
            Ok(())
        });
        Self { step_scope, ..self }
    }
}

/// Returns the newest visible response with the edits of people, or `null` if there is no response.
fn last_response<'a>(run: &Run<'a>, step_scope: &StepScope<'a>, seq: Seq) -> Result<Value, RenderError> {
    let newest = step_scope.newest_where(run, seq, |record| scope::has_answer(run, record, seq));
    match newest {
        Some(newest) => Ok(scope::response(run, step_scope, &newest, seq)?.0),
        None => Ok(Value::Null),
    }
}

/// Renders a value like `render_plain`. Returns an error if a number in the value cannot be read.
fn render_exact(value: &Value) -> Result<String, RenderError> {
    assert_exact(value, "").map(|()| render_plain(value)).map_err(RenderError::Invalid)
}

/// Renders a value as plain text: a text without quotes, `null` as an empty text, and every other value as JSON.
fn render_plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Checks that every number in a part of an answer can be read. `place` is the JSON pointer of the part.
fn assert_exact(part: &Value, place: &str) -> Result<(), String> {
    match first_inexact(part) {
        Some((within, why)) => {
            Err(format!("the number at {} is {why}", text::display(&format!("{place}{within}"), 120)))
        }
        None => Ok(()),
    }
}

/// Returns the origins of the last answer of the step at `base`.
async fn origins_of_answer<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
    base: &str,
) -> Result<Origins, EarlyEnd> {
    let path = run.last_visit(base);
    let attempts = |attempt| run.state.borrow().journal.get(&path, attempt).cloned();
    let Some(record) = (1..).map_while(attempts).last() else { return Ok(Origins::default()) };
    let answered = VisibleRecord { step, record };
    // The records below an answered step do not change any more.
    let read = || run.origins.collect_only(|| scope::response(run, step_scope, &answered, Seq::END));
    run.render(read).await.map_err(EarlyEnd::Failed)
}

/// Returns a lazy value that is always `value`, with `origins`.
fn lazy_constant<'a>(value: Value, origins: Origins) -> LazyValue<'a> {
    Rc::new(move |run, _| {
        run.origins.note(&origins);
        Ok(value.clone())
    })
}

/// Returns the number of the next event of the journal.
fn next_seq(run: &Run<'_>) -> Seq {
    run.state.borrow().journal.seq().next()
}

#[cfg(test)]
mod tests;
