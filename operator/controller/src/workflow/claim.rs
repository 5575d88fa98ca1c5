//! Which calls begin with this turn: those that find a place in the pool are marked as begun by this operator,
//! so that the commit says so before they do.
//!
//! It may not begin one: a turn that is not committed begins nothing.

use signoff_api::journal::StepPhase;
use signoff_engine::{Command, Turn, turn::Call};
use signoff_runtime::Permit;

use super::observe::Seen;
use crate::context::Context;

/// A call that begins once the turn is committed.
pub(super) struct Claim {
    pub(super) call: Call,
    pub(super) permit: Permit,
}

pub(super) fn claim(context: &Context, seen: &Seen, turn: &mut Turn) -> Vec<Claim> {
    let mut claims = Vec::new();
    let calls: Vec<Call> = turn
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::Call(call) => Some((**call).clone()),
            Command::Ask(_) => None,
        })
        .collect();
    for call in calls {
        let key = (call.path.clone(), call.attempt);
        if context.is_draining() || context.runs.is_known(&seen.name, &seen.uid, &key) {
            continue;
        }
        let Some(record) = turn.journal.get(&call.path, call.attempt).cloned() else { continue };
        let Some(permit) = context.pool.try_acquire() else {
            context.runs.wants_place(&seen.name);
            continue;
        };
        // What this very process marked and does not know of was never begun: its commit's answer was lost.
        let ours = record.phase == StepPhase::Started && record.by.as_deref() == Some(&context.incarnation);
        if !ours {
            let mut begun = record;
            begun.phase = StepPhase::Started;
            begun.by = Some(context.incarnation.clone());
            turn.journal.put(begun);
        }
        claims.push(Claim { call, permit });
    }
    claims
}
