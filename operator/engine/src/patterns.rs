//! The patterns: ordinary async functions whose only await points are journaled activities.
//!
//! None of them keeps any state of its own between transitions: each transition replays it from its beginning.

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
    /// Relative paths, and what stands in them.
    pub(crate) artifacts: Vec<(String, String)>,
    /// The artifacts that were left out because their condition could not be evaluated: the path of each, and why.
    pub(crate) left_out: Vec<String>,
}

/// The verdicts on a plan after which it is planned again, and people are asked about the new plan.
const PLANS_AGAIN: [Verdict; 3] = [Verdict::Respond, Verdict::Defer, Verdict::Retry];

/// A value that is made when it is asked for, from what was known at a number of the journal; its origins are noted
/// then.
type LazyValue<'a> = Rc<dyn Fn(&Run<'a>, Seq) -> Result<Value, RenderError> + 'a>;

/// A pattern that has come to its end: what can be seen from there, and its result.
struct PatternResult<'a> {
    step_scope: StepScope<'a>,
    result: LazyValue<'a>,
}

/// Runs the whole of a plan: the gates that policies put before it, the pattern, and the release of its result.
pub(crate) async fn run(run: &Run<'_>) -> Result<RunResult, EarlyEnd> {
    let plan = run.plan;
    let nothing = StepScope::of("", RecordNamespace::Nothing, []);
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

impl<'a> PatternResult<'a> {
    /// The result is the newest response that can be seen.
    fn newest(step_scope: StepScope<'a>) -> Self {
        let own = step_scope.clone();
        Self { step_scope, result: Rc::new(move |run, seq| last_response(run, &own, seq)) }
    }

    /// After a pattern, `last_response` is its result.
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

/// The newest response that a frame sees, as people left it.
fn last_response<'a>(run: &Run<'a>, step_scope: &StepScope<'a>, seq: Seq) -> Result<Value, RenderError> {
    let newest = step_scope.newest(run, seq, |record| scope::answers(run, record, seq));
    match newest {
        Some(newest) => Ok(scope::response(run, step_scope, &newest, seq)?.0),
        None => Ok(Value::Null),
    }
}

/// A value as people read it.
fn plain(value: &Value) -> Result<String, RenderError> {
    assert_exact(value, "").map(|()| plain_text(value)).map_err(RenderError::Invalid)
}

/// A value that people wrote, or a text, as people read it.
fn plain_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Every number in a part of an answer can be read; the JSON pointer of the part is `place`.
fn assert_exact(part: &Value, place: &str) -> Result<(), String> {
    match first_inexact(part) {
        Some((within, why)) => {
            Err(format!("the number at {} is {why}", text::display(&format!("{place}{within}"), 120)))
        }
        None => Ok(()),
    }
}

/// Returns the origins of the answer that a step at `base` gave last.
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
    // Nothing beneath a step that has answered changes any more.
    let read = || run.origins.collect_only(|| scope::response(run, step_scope, &answered, Seq::END));
    run.render(read).await.map_err(EarlyEnd::Failed)
}

/// A value that is known, and what it was rendered from.
fn known<'a>(value: Value, origins: Origins) -> LazyValue<'a> {
    Rc::new(move |run, _| {
        run.origins.note(&origins);
        Ok(value.clone())
    })
}

/// The number that everything known now comes before.
fn next_seq(run: &Run<'_>) -> Seq {
    run.state.borrow().journal.seq().next()
}

#[cfg(test)]
mod tests;
