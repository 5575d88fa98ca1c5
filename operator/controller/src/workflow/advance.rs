//! Computes the engine's transition, and fetches the long values that it needs *(I/O)*.
//!
//! **Invariant:** executes no command of the transition: nothing counts before it is committed.

use std::sync::Arc;

use signoff_api::Workflow;
use signoff_cluster::workqueue::Key;
use signoff_engine::{
    Control, Now, Plan, Transition,
    driver::{AfterStop, CallKey, Round, TransitionLoop},
};
use signoff_executor::Stopped;

use super::{observe::ObservedRun, stops};
use crate::{
    context::{Context, owner},
    error::Error,
    quarantine::{MOST_STOPS, Quarantines},
    withdrawal::Orders,
};

/// The most stopped evaluations of a run in one reconcile. Their failed steps are kept, and the next reconcile
/// continues.
const MOST_STOPPED: usize = 8;

/// Returns the transition, or `None` if another reconcile is needed.
pub(super) async fn advance(
    context: &Context,
    seen: &ObservedRun,
    plan: &Arc<Plan>,
) -> Result<Option<Transition>, Error> {
    let owner = owner(&seen.name, &seen.uid);
    let values = Arc::new(context.calls.runs.values(&seen.name, &seen.uid));
    let mut facts = seen.facts.clone();
    facts.extend(context.evaluations.quarantines.costly(&seen.name, &seen.uid));
    let orders = Orders::of(&seen.workflow);
    let Orders { suspend, cancel } = orders;
    let control = Control { suspend, cancel, values: seen.values, ..Control::default() };
    let max_gate_timeout = context.settings.max_gate_timeout;
    let now = Now { max_gate_timeout, ..Now::new(seen.now, seen.guarded.epoch.to_string()) };
    let mut rounds = TransitionLoop::new(Arc::clone(plan), control, seen.journal.clone(), facts, values, now)
        .with_unstored(seen.unstored.clone());
    let is_in_flight = |key: &CallKey| context.calls.runs.has_call(&seen.name, &seen.uid, key);
    let mut stopped = 0;
    loop {
        let transition = match context.evaluate(&*seen.workflow, orders, rounds.evaluation()).await {
            Ok(transition) => transition,
            Err(why) => {
                on_stopped_evaluation(&context.evaluations.quarantines, seen, &mut rounds, why)?;
                stopped += 1;
                if stopped >= MOST_STOPPED {
                    return Ok(None);
                }
                continue;
            }
        };
        let round = rounds.on_evaluated(transition, &context.calls.incarnation, is_in_flight);
        match round.map_err(|what| Error::Bug { object: seen.name.as_a::<Workflow>(), what })? {
            Round::Evaluate => {}
            Round::Fetch(missing) => {
                seen.memory.take(&context.values.quota, &context.objects.workflows, &seen.name).await;
                for digest in missing {
                    let value = context.values.fetch(&seen.name, &owner, &seen.status.value_names, &digest).await?;
                    rounds.add_value(digest, value);
                }
            }
            Round::Commit(transition) => {
                context.evaluations.clear_suspect::<Workflow>(&seen.name, &seen.uid);
                context.calls.runs.keep_values(&seen.name, &seen.uid, Arc::unwrap_or_clone(rounds.into_values()));
                return Ok(Some(*transition));
            }
        }
    }
}

/// Handles a stopped evaluation. If text of a model, a tool or a person is the cause, only its step fails, so that
/// others cannot stop a run. If text of the run's author is the cause, or many evaluations were stopped, an error is
/// returned and the run is put into quarantine.
fn on_stopped_evaluation(
    quarantines: &Quarantines,
    seen: &ObservedRun,
    rounds: &mut TransitionLoop,
    why: Stopped,
) -> Result<(), Error> {
    let stopped = |why| Error::Stopped { object: seen.name.as_a::<Workflow>(), why };
    if matches!(why, Stopped::Withdrawn | Stopped::Closed) {
        return Err(stopped(why));
    }
    let is_limit = matches!(why, Stopped::TooCostly { .. });
    match rounds.on_stopped(is_limit, why.part().filter(|part| part.is_foreign()), &why.to_string()) {
        AfterStop::Evaluate => {}
        AfterStop::Failed(fact) => {
            let (path, attempt) = fact.key();
            quarantines.record_stopped_part(&Key::Workflow(seen.name.clone()), seen.now);
            tracing::warn!(workflow = %seen.name, path, attempt, "a step fails: {why}");
            quarantines.add_costly(&seen.name, &seen.uid, *fact);
            if stops::record_stop(quarantines, seen, &why) >= MOST_STOPS {
                return Err(stopped(why));
            }
        }
        AfterStop::GiveUp => {
            stops::record_stop(quarantines, seen, &why);
            return Err(stopped(why));
        }
    }
    Ok(())
}
