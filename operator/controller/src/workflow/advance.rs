//! Takes the engine's turn, and fetches the large values it needs.
//!
//! It may not do anything that a turn asks for: nothing of it counts before it is committed.

use std::sync::Arc;

use signoff_api::{Workflow, journal::StepPhase};
use signoff_engine::{Blobs, Command, Control, Fact, Now, Plan, Turn};
use signoff_runtime::Owner;

use super::observe::Seen;
use crate::{
    blobs::place,
    context::{Context, owner},
    error::Error,
};

/// More rounds than this mean that the engine asks for the same value again and again.
const ROUNDS: usize = 64;

pub(super) async fn advance(context: &Context, seen: &Seen, plan: &Arc<Plan>) -> Result<Turn, Error> {
    let owner = owner(&seen.name, &seen.uid);
    let mut values = context.runs.values(&seen.name, &seen.uid);
    let mut facts = seen.facts.clone();
    for _ in 0..ROUNDS {
        let turn = take(seen, plan, facts.clone(), &values);
        if !turn.missing.is_empty() {
            for digest in &turn.missing {
                values.insert(digest.clone(), fetch(context, seen, &owner, digest.as_str()).await?);
            }
            continue;
        }
        let lost = lost(context, seen, &turn);
        if lost.is_empty() {
            values.extend(turn.blobs.iter().cloned());
            context.runs.keep_values(&seen.name, &seen.uid, values);
            return Ok(turn);
        }
        // A result never comes for these: the turn is taken again with that known.
        facts.extend(lost);
    }
    Err(Error::Bug { object: seen.name.as_a::<Workflow>(), what: format!("a turn took more than {ROUNDS} rounds") })
}

fn take(seen: &Seen, plan: &Plan, facts: Vec<Fact>, values: &Blobs) -> Turn {
    let spec = &seen.workflow.spec;
    let control = Control { suspend: spec.suspend.unwrap_or(false), cancel: spec.cancel.unwrap_or(false) };
    let now = Now { at: seen.now, guard_epoch: seen.guarded.epoch.to_string() };
    signoff_engine::advance(plan, control, seen.journal.clone(), facts, values, &now)
}

/// Calls that must not be repeated, and that another incarnation of the operator began. Only the holder of the
/// Lease gets here, so that one is no more.
fn lost(context: &Context, seen: &Seen, turn: &Turn) -> Vec<Fact> {
    let calls = turn.commands.iter().filter_map(|command| match command {
        Command::Call(call) if !call.idempotent => Some(call),
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

async fn fetch(context: &Context, seen: &Seen, owner: &Owner, digest: &str) -> Result<String, Error> {
    let object = || seen.name.as_a::<Workflow>();
    let found = context.blobs.get(owner, digest).await.map_err(|source| Error::Blob { object: object(), source })?;
    match found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Some(text) => Ok(text),
        None => Err(Error::ValueGone {
            object: object(),
            digest: digest.to_owned(),
            config_map: place(owner, digest).unwrap_or_default(),
        }),
    }
}
