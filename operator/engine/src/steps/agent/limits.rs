//! The limits on calls: of a turn, of its agent, and of each agent that called the agent.

use signoff_api::{RecordPath, Seq};

use super::site::TurnSite;
use crate::{plan::Action, replay::run::Run, tools::MOST_CALLS};

/// The default `limits.calls` of an agent.
const CALLS: i32 = 100;

/// A call beyond the limits of its turn or of an agent.
pub(super) struct BeyondLimits {
    /// The reason why the call is not made, as its agent reads it.
    pub(super) why: String,
    /// The position of the first call of the turn beyond the limit.
    pub(super) first: usize,
    /// The reason why the call at `first` is not made. Another limit than in `why` can be the reason.
    pub(super) why_first: String,
}

/// Returns the limit that a call exceeds, of its turn or of an agent, or `None`.
pub(super) fn find_exceeded_limit(site: &TurnSite<'_, '_>, at: usize) -> Option<BeyondLimits> {
    let why = |at: usize| {
        if at >= MOST_CALLS {
            return Some(format!("at most {MOST_CALLS} calls are made in a turn: make this one in a later turn"));
        }
        if site.truncated {
            let why =
                "your message was cut at its largest length, so its calls were not made: call again with less text";
            return Some(why.to_owned());
        }
        let limit = reached_limit(site, at)?;
        Some(format!("the limit of {limit} calls is reached: answer with what you have"))
    };
    let own = why(at)?;
    let (first, why_first) = (0..at).find_map(|at| Some((at, why(at)?))).unwrap_or_else(|| (at, own.clone()));
    Some(BeyondLimits { why: own, first, why_first })
}

/// Returns the exceeded limit of calls: of the call's own agent, or of an agent that called it.
fn reached_limit(site: &TurnSite<'_, '_>, at: usize) -> Option<i32> {
    let is_reached = |(limit, made): &&(i32, usize)| made + at + 1 > usize::try_from(*limit).unwrap_or(usize::MAX);
    site.limits.iter().find(is_reached).map(|(limit, _)| *limit)
}

/// Returns for each step of an agent around a turn, the outermost first, its limit of calls and the number of its calls
/// before `ended`.
pub(super) fn limits(run: &Run<'_>, path: &str, ended: Seq) -> Vec<(i32, usize)> {
    let limit_of = |step: &str| {
        let limit = |agent: &str| {
            let limits = run.plan.agents.get(agent).and_then(|agent| agent.spec.limits);
            limits.and_then(|limits| limits.calls).unwrap_or(CALLS)
        };
        let limit = agents_at(run, step).into_iter().map(limit).min()?;
        // The calls of the turn itself are counted by their position.
        Some((limit, run.call_history().calls_within(step, ended)))
    };
    steps_around(path).filter_map(limit_of).collect()
}

/// Returns the path of each step of an agent around a turn, the outermost first. The last step is the step of the turn.
fn steps_around(path: &str) -> impl Iterator<Item = &str> {
    RecordPath::new(path).agents_around().map(RecordPath::as_str)
}

/// Returns the agent of a step, or all agents that revise at the same path.
fn agents_at<'r>(run: &'r Run<'_>, step: &str) -> Vec<&'r str> {
    match run.plan.step_of(step).map(|step| &step.action) {
        Some(Action::Agent(agent)) => vec![&agent.agent],
        Some(_) => Vec::new(),
        None => run.plan.revising_agents(step).collect(),
    }
}

/// Returns the agents around a call, the outermost first. The last one makes the call.
pub(super) fn agents_around(run: &Run<'_>, turn: &TurnSite<'_, '_>) -> Vec<String> {
    let mut outer: Vec<&str> = steps_around(&turn.path).collect();
    outer.pop();
    let outer = outer.into_iter().flat_map(|step| agents_at(run, step));
    outer.chain([turn.agent]).map(str::to_owned).collect()
}
