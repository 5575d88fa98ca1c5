//! `graph`: after each node the run follows the first edge that matches, and ends if none does.

use signoff_api::{
    FailureClass, RecordPath, Seq,
    journal::{StepKind, StepPhase},
};
use signoff_expr::Condition;

use super::PatternResult;

use crate::{
    plan::{PlannedEdge, PlannedGraph, PlannedStep},
    replay::{
        activity::{ActivityKey, Start, error},
        run::{RenderError, Run},
        scope::{self, RecordNamespace, StepScope},
    },
    steps::{self, EarlyEnd, StepFlow},
};

pub(super) async fn run<'a>(run: &Run<'a>, graph: &'a PlannedGraph) -> Result<PatternResult<'a>, EarlyEnd> {
    let step_scope = StepScope::of("", RecordNamespace::Visited, &graph.nodes);
    let mut visits = vec![0; graph.nodes.len()];
    let (mut position, mut steps) = (graph.entry, 0);
    while let (Some(node), Some(visited)) = (graph.nodes.get(position), visits.get_mut(position)) {
        if *visited >= graph.max_iterations {
            return Err(EarlyEnd::Failed(format!("step {} has run {visited} times, as often as it may", node.name)));
        }
        if steps >= graph.max_steps {
            return Err(EarlyEnd::Failed(format!("{steps} steps have run, the maximum (graph.maxSteps)")));
        }
        (*visited, steps) = (*visited + 1, steps + 1);
        let refused = match steps::run_step(run, &step_scope, node).await? {
            StepFlow::Continue => None,
            StepFlow::Refused(why) => Some(why),
            StepFlow::Repeat(from) => {
                position = from.unwrap_or(position);
                continue;
            }
        };
        match (choose_next(run, &step_scope, graph, position, refused.is_some()).await?, refused) {
            (Some(to), _) => position = to,
            (None, Some(why)) => return Err(EarlyEnd::Rejected(why)),
            (None, None) => break,
        }
    }
    Ok(PatternResult::from_newest_response(step_scope))
}

/// Returns the next node. After a Reject only an edge with a condition can continue the run.
async fn choose_next<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    graph: &'a PlannedGraph,
    position: usize,
    is_refused: bool,
) -> Result<Option<usize>, EarlyEnd> {
    let Some(node) = graph.nodes.get(position) else { return Ok(None) };
    for edge in graph.edges.get(position).into_iter().flatten() {
        match edge {
            PlannedEdge::Always(to) if !is_refused => return Ok(Some(*to)),
            PlannedEdge::Always(_) => {}
            PlannedEdge::Choose(choices) => {
                let to = record_choice(run, step_scope, graph, node, choices).await?;
                if to.is_some() {
                    return Ok(to);
                }
            }
        }
    }
    Ok(None)
}

/// Evaluates the conditions of an edge once, and records the chosen node, which replays read. Returns `None` if no
/// condition holds.
async fn record_choice<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    graph: &'a PlannedGraph,
    node: &'a PlannedStep,
    choices: &'a [(Condition, usize)],
) -> Result<Option<usize>, EarlyEnd> {
    let (path, _) = run.visit(&RecordPath::new(&node.path).chosen_edge());
    let key = ActivityKey { path, attempt: 1, kind: StepKind::Condition };
    let evaluate = |seq| find_target(run, step_scope, graph, (&node.name, choices), seq);
    let record = run.activity(step_scope, key, evaluate).await;
    if record.phase != StepPhase::Succeeded {
        return Err(EarlyEnd::Failed(match record.error {
            Some(error) if error.is(FailureClass::Condition) => error.message,
            error => format!("edge from {}: {}", node.name, error.map_or_else(String::new, |e| e.message)),
        }));
    }
    let name = record.response.as_ref().and_then(|name| name.0.as_str()).unwrap_or_default();
    Ok(graph.nodes.iter().position(|node| node.name == name))
}

/// Returns the name of the node of the first condition that holds, or an empty name if no condition holds. A condition
/// that cannot be evaluated fails the choice, because each condition applies only if no earlier condition holds.
fn find_target<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    graph: &PlannedGraph,
    (from, choices): (&str, &[(Condition, usize)]),
    seq: Seq,
) -> Result<Start, RenderError> {
    let wanted = choices.iter().flat_map(|(when, _)| when.references()).collect();
    let scope = scope::general(run, step_scope, &wanted, seq)?;
    for (when, to) in choices {
        let target = graph.nodes.get(*to).map(|node| node.name.clone()).unwrap_or_default();
        match when.evaluate(&scope) {
            _ if when.is_else() => return Ok(Start::Immediate(target)),
            Ok(true) => return Ok(Start::Immediate(target)),
            Ok(false) => {}
            Err(why) => {
                return Ok(Start::Failed(error(
                    FailureClass::Condition,
                    &format!("edge from {from} to {target}: {why}"),
                )));
            }
        }
    }
    Ok(Start::Immediate(String::new()))
}
