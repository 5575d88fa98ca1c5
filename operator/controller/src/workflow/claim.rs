//! Which calls begin with this turn: those that find a place in the pool are marked as begun by this operator,
//! so that the commit says so before they do.
//!
//! It may not begin one: a turn that is not committed begins nothing.

use signoff_api::journal::{StepPhase, StepRecord};
use signoff_engine::{
    Command, Turn,
    turn::{Call, PodCall, What},
};

use super::observe::Seen;
use crate::{
    context::{Context, Hold},
    kinds::Name,
    pods::{Ticket, Wait},
};

/// A call that begins once the turn is committed.
pub(super) struct Claim {
    pub(super) call: Call,
    pub(super) hold: Hold,
}

/// What begins with this turn, and which Pods have to wait.
pub(super) struct Claims {
    pub(super) begin: Vec<Claim>,
    /// The names of steps, and why.
    pub(super) wait: Vec<(String, Wait)>,
}

pub(super) fn claim(context: &Context, seen: &Seen, turn: &mut Turn) -> Claims {
    let mut claims = Claims { begin: Vec::new(), wait: Vec::new() };
    let calls: Vec<Call> = turn
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::Call(call) => Some((**call).clone()),
            Command::Ask(_) => None,
        })
        .collect();
    let is_suspended = seen.workflow.spec.suspend == Some(true);
    let asked = |pod: &Name| calls.iter().any(|call| matches!(&call.what, What::Pod(p) if *p.name == *pod.name));
    context.room_for_pods.forget_all_but(&seen.name, |pod| !is_suspended && asked(pod));
    for call in calls {
        let key = (call.path.clone(), call.attempt);
        if context.is_draining() || context.runs.is_known(&seen.name, &seen.uid, &key) {
            continue;
        }
        let Some(record) = turn.journal.get(&call.path, call.attempt).cloned() else { continue };
        if record.phase == StepPhase::Pending && is_suspended {
            continue;
        }
        // What this very process marked and does not know of was never begun: its commit's answer was lost.
        let ours = record.phase == StepPhase::Started && record.by.as_deref() == Some(&context.incarnation);
        let hold = match &call.what {
            What::Pod(pod) => match place(context, seen, &record, pod, ours) {
                Ok(hold) => hold,
                Err(wait) => {
                    claims.wait.push((record.path.clone(), wait));
                    continue;
                }
            },
            What::Agent(_) | What::Http(_) => {
                let Some(permit) = context.pool.try_acquire() else {
                    context.runs.wants_place(&seen.name);
                    continue;
                };
                Hold::Call { _place: permit }
            }
        };
        // A Pod that was begun stays what it is: it is found again by its name.
        let is_found_again = matches!(hold, Hold::Pod { begins: false, .. });
        if !ours && !is_found_again {
            let mut begun = record;
            begun.phase = StepPhase::Started;
            begun.by = Some(context.incarnation.clone());
            turn.journal.put(begun);
        }
        claims.begin.push(Claim { call, hold });
    }
    claims
}

/// A place for a Pod: one that was begun keeps it, whatever the limits say by now.
fn place(context: &Context, seen: &Seen, record: &StepRecord, pod: &PodCall, ours: bool) -> Result<Hold, Wait> {
    let name = seen.name.beside(&pod.name);
    // This process asks for each Pod once: where it does not remember that it did, it did not.
    let begins = record.phase != StepPhase::Started || (ours && !context.runs.has_tried(&seen.name, &pod.name));
    if record.phase == StepPhase::Started {
        return Ok(Hold::Pod { _place: context.room_for_pods.keep(&seen.uid, &name), begins });
    }
    let (workflow, run) = (seen.name.clone(), seen.uid.as_str().into());
    let ticket = Ticket { since: record.at, workflow, run, seq: record.seq, pod: name };
    context.room_for_pods.take(ticket).map(|place| Hold::Pod { _place: place, begins })
}
