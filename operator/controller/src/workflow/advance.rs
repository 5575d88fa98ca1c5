//! Computes the engine's transition, and fetches the long values that it needs *(I/O)*.
//!
//! **Invariant:** executes no command of the transition: nothing counts before it is committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use signoff_api::{Digest, Workflow, journal::StepPhase};
use signoff_cluster::{kinds::Name, workqueue::Key};
use signoff_engine::{
    Blobs, Command, Control, Fact, Now, Plan, Transition,
    evaluation::Part,
    transition::{Failure, NOT_ALLOWED, What},
};
use signoff_executor::{Owner, Stopped};

use super::observe::Seen;
use crate::{
    blobs::usual_name,
    context::{Context, owner},
    error::Error,
};

/// More rounds than this mean that the engine asks for the same value again and again.
const ROUNDS: usize = 64;
/// The most evaluations of a run that are stopped in one reconcile. What they came to is kept, and the next reconcile
/// goes on from there.
const MOST_STOPPED: usize = 8;

/// Returns the transition, or `None` where it takes another reconcile.
pub(super) async fn advance(context: &Context, seen: &Seen, plan: &Arc<Plan>) -> Result<Option<Transition>, Error> {
    let owner = owner(&seen.name, &seen.uid);
    let mut values = Arc::new(context.runs.values(&seen.name, &seen.uid));
    let mut facts = seen.facts.clone();
    facts.extend(context.quarantines.costly(&seen.name, &seen.uid));
    let (mut stopped, mut judged) = (0, plan.validated_answers());
    let mut memory = None;
    for _ in 0..ROUNDS {
        let transition = match take(context, seen, plan, facts.clone(), &values).await {
            Ok(transition) => transition,
            Err(why) => {
                // Answers that were judged are not judged again: the next evaluation gets further.
                let gets_on = matches!(why, Stopped::TooCostly { .. }) && plan.validated_answers() > judged;
                judged = plan.validated_answers();
                if !gets_on {
                    let fact = blamed(context, seen, &facts, why)?;
                    context.quarantines.keep_costly(&seen.name, &seen.uid, fact.clone());
                    facts.push(fact);
                }
                stopped += 1;
                if stopped >= MOST_STOPPED {
                    return Ok(None);
                }
                continue;
            }
        };
        if !transition.missing.is_empty() {
            if memory.is_none() {
                memory = context.value_quota.memory_for(&context.workflows, &seen.name).await;
            }
            for digest in &transition.missing {
                let value = fetch(context, &seen.name, &owner, &seen.status.value_names, digest).await?;
                Arc::make_mut(&mut values).insert(digest.clone(), value);
            }
            continue;
        }
        let mut never = lost(context, seen, &transition);
        never.extend(refused(context, seen, plan, &transition, &never));
        if never.is_empty() {
            context.clear_suspect::<Workflow>(&seen.name, &seen.uid);
            let mut values = Arc::unwrap_or_clone(values);
            values.extend(at_hand(&transition));
            context.runs.keep_values(&seen.name, &seen.uid, values);
            return Ok(Some(transition));
        }
        // A result never comes for these: the turn is taken again with that known.
        facts.extend(never);
    }
    Err(Error::Bug { object: seen.name.as_a::<Workflow>(), what: format!("a turn took more than {ROUNDS} rounds") })
}

/// Returns the long values of a transition that later ones may need. Logs of containers are for people, unless one was the answer.
fn at_hand(transition: &Transition) -> impl Iterator<Item = (Digest, String)> {
    let records = transition.journal.records();
    let logs = records.iter().filter_map(|record| record.log.as_ref()?.ref_.as_ref());
    let logs: BTreeSet<_> = logs.map(|log| &log.digest).collect();
    let answers: BTreeSet<_> =
        records.iter().filter_map(|record| record.response_ref.as_ref()).map(|r| &r.digest).collect();
    transition.blobs.iter().filter(move |(digest, _)| !logs.contains(digest) || answers.contains(digest)).cloned()
}

async fn take(
    context: &Context,
    seen: &Seen,
    plan: &Arc<Plan>,
    facts: Vec<Fact>,
    values: &Arc<Blobs>,
) -> Result<Transition, Stopped> {
    let spec = &seen.workflow.spec;
    let (suspend, cancel) = (spec.suspend.unwrap_or(false), spec.cancel.unwrap_or(false));
    let control = Control { suspend, cancel, values: seen.values };
    let now = Now { at: seen.now, guard_epoch: seen.guarded.epoch.to_string() };
    let (plan, journal, values) = (Arc::clone(plan), seen.journal.clone(), Arc::clone(values));
    let advance = move || signoff_engine::advance(&plan, control, journal, facts, &values, &now);
    context.evaluate(&*seen.workflow, advance).await
}

/// Returns the fact that one step is too costly, where what others wrote is to blame: models, tools and people must not
/// be able to stop a run. Where its author's own text is, the run is set aside.
fn blamed(context: &Context, seen: &Seen, facts: &[Fact], why: Stopped) -> Result<Fact, Error> {
    let stopped = |why| Error::Stopped { object: seen.name.as_a::<Workflow>(), why };
    let Some(Part::Step { path, attempt, is_foreign: true }) = why.part().cloned() else { return Err(stopped(why)) };
    if facts.iter().any(|fact| matches!(fact, Fact::TooCostly { .. }) && fact.key() == (&path, attempt)) {
        return Err(stopped(why));
    }
    context.quarantines.part_stopped(&Key::Workflow(seen.name.clone()), seen.now);
    tracing::warn!(workflow = %seen.name, path, attempt, "a step fails: {why}");
    Ok(Fact::TooCostly { path, attempt, why: why.to_string() })
}

/// Returns the calls that must not be repeated and that an earlier process started. Only the holder of the Lease gets here, so that
/// process has ended.
fn lost(context: &Context, seen: &Seen, transition: &Transition) -> Vec<Fact> {
    let calls = transition.commands.iter().filter_map(|command| match command {
        // A Pod is found again by its name.
        Command::Call(call) if !call.idempotent && !matches!(call.what, What::Pod(_)) => Some(call),
        _ => None,
    });
    calls
        .filter(|call| {
            seen.journal.get(&call.path, call.attempt).is_some_and(|record| {
                record.phase == StepPhase::Started && record.by.as_deref() != Some(&context.incarnation)
            })
        })
        .map(|call| Fact::Lost { path: call.path.clone(), attempt: call.attempt })
        .collect()
}

/// Returns the calls that would start now, or again, and that policies no longer allow. Calls in flight go on: their result
/// must be known.
fn refused(context: &Context, seen: &Seen, plan: &Plan, transition: &Transition, lost: &[Fact]) -> Vec<Fact> {
    let mut refused = Vec::new();
    for command in &transition.commands {
        let Command::Call(call) = command else { continue };
        let key = (call.path.clone(), call.attempt);
        let is_settled = lost.iter().any(|fact| fact.key() == (&key.0, key.1));
        // One that begins in this very turn was looked at when it began.
        let record = seen.journal.get(&call.path, call.attempt);
        // A container that has begun is found again and not made again: what it comes to must be known.
        let runs = matches!(call.what, What::Pod(_)) && record.is_some_and(|r| r.phase == StepPhase::Started);
        if record.is_none() || runs || is_settled || context.runs.is_known(&seen.name, &seen.uid, &key) {
            continue;
        }
        if let Some(why) = plan.refuses(call) {
            let failure = Failure {
                class: NOT_ALLOWED.to_owned(),
                message: why,
                retryable: false,
                unknown: false,
                not_before: None,
                facts: BTreeMap::new(),
                log: None,
            };
            let (path, attempt) = key;
            refused.push(Fact::Ended { path, attempt, result: Err(failure), at: seen.now });
        }
    }
    refused
}

/// Fetches a long value that the journal names. `names` are those of values whose usual name is another object's.
pub(super) async fn fetch(
    context: &Context,
    name: &Name,
    owner: &Owner,
    names: &BTreeMap<Digest, String>,
    digest: &Digest,
) -> Result<String, Error> {
    let object = || name.as_a::<Workflow>();
    let recorded = names.get(digest).map(String::as_str);
    let found = context.blobs.get(owner, digest.as_str(), recorded).await;
    let found = found.map_err(|source| Error::Blob { object: object(), source })?;
    match found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Some(text) => Ok(text),
        None => Err(Error::ValueGone {
            object: object(),
            digest: digest.to_string(),
            blob: recorded.map_or_else(|| usual_name(owner, digest.as_str()).unwrap_or_default(), str::to_owned),
        }),
    }
}
