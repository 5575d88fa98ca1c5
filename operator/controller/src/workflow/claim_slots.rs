//! Claims slots for the calls of a transition *(pure)*. A call with a slot is marked as started by this operator, and
//! the commit stores that before the call starts.
//!
//! **Invariant:** starts nothing, because the transition is not committed.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt as _;
use signoff_api::{
    conditions::reason,
    journal::{StepPhase, StepRecord},
    workflow::Provider,
};
use signoff_cluster::kinds::Name;
use signoff_engine::{
    Transition,
    transition::{Call, CallContent, PodCall, had_no_room},
};

use signoff_executor::room::{HTTP_ANSWER_BYTES, TURN_ANSWER_BYTES};

use super::observe::ObservedRun;
use crate::{
    call_slots::{self, CallBytes, CallTicket, CallWait},
    context::{Calls, Context, StartSlot},
    pods::{PodIndex, PodWait, QueuedPod},
};

/// The bytes of a request that are not counted.
const SHORT_REQUEST: usize = 64 * 1024;

/// A call that starts when the transition is committed.
pub(super) struct SlotClaim {
    pub(super) call: Call,
    pub(super) hold: StartSlot,
}

/// The calls that start with a transition, and those that wait.
pub(super) struct SlotClaims {
    pub(super) begin: Vec<SlotClaim>,
    /// The steps that wait for their Pods, by path, with the reason.
    pub(super) wait: Vec<(String, PodWait)>,
    /// The steps that wait for a slot, by path, with the reason.
    pub(super) calls_wait: Vec<(String, CallWait)>,
}

/// Claims a slot for each call of a transition that may start now, and marks the call as started. Calls without a free
/// slot are queued. A suspended run starts nothing new, and leaves the queues.
pub(super) fn claim_slots(context: &Context, seen: &ObservedRun, transition: &mut Transition) -> SlotClaims {
    let calls = &context.calls;
    let mut claims = SlotClaims { begin: Vec::new(), wait: Vec::new(), calls_wait: Vec::new() };
    let wanted: Vec<Call> = transition.calls().cloned().collect();
    let is_suspended = seen.workflow.spec.suspend == Some(true);
    let is_wanted =
        |pod: &Name| wanted.iter().any(|call| matches!(&call.content, CallContent::Pod(p) if *p.name == *pod.name));
    calls.pod_quota.retain_queued(&seen.name, |pod| !is_suspended && is_wanted(pod));
    let tickets: BTreeSet<_> = wanted.iter().filter_map(|call| ticket(seen, transition, call)).collect();
    calls.slots.retain(&seen.name, |ticket| !is_suspended && tickets.contains(ticket));
    for mut call in wanted {
        let Some(record) = transition.journal.get(&call.path, call.attempt).cloned() else { continue };
        if calls.runs.has_call(&seen.name, &seen.uid, &call.key()) {
            // The call began before its record was stored.
            if seen.journal.get(&call.path, call.attempt).is_none() {
                transition.mark_begun(&call.path, call.attempt, &calls.incarnation);
            }
            continue;
        }
        if calls.is_draining() {
            continue;
        }
        // A call that this process marked as started, but that is not in flight, never began: the answer to its commit
        // was lost.
        let is_own = record.phase == StepPhase::Started && record.by.as_deref() == Some(&calls.incarnation);
        let is_new = match &call.content {
            CallContent::Pod(pod) => is_new_pod(calls, seen, &record, pod, is_own),
            CallContent::Agent(_) | CallContent::Http(_) | CallContent::Mcp(_) => true,
        };
        // A started Pod is followed even in a suspended run. A missing Pod would be created again if its call is
        // idempotent, so that counts as a start.
        let would_start = is_new || call.idempotent && !is_there(&calls.pods, seen, &call);
        if is_suspended && would_start {
            continue;
        }
        let hold = match &call.content {
            CallContent::Pod(pod) => match pod_slot(calls, seen, &record, pod, is_new) {
                Ok(hold) => hold,
                Err(wait) => {
                    claims.wait.push((record.path.clone(), wait));
                    continue;
                }
            },
            CallContent::Agent(_) | CallContent::Http(_) | CallContent::Mcp(_) => {
                // The current setting also applies to Workflows that were accepted under an earlier one.
                call.timeout = call.timeout.min(context.settings.max_call_timeout);
                let Some(ticket) = ticket(seen, transition, &call) else { continue };
                match calls.slots.acquire(ticket) {
                    Ok(slot) => StartSlot::Call(slot),
                    Err(wait) => {
                        claims.calls_wait.push((record.path.clone(), wait));
                        continue;
                    }
                }
            }
        };
        // A Pod that was started before is found again by its name, so its record does not change.
        let is_found_again = matches!(hold, StartSlot::Pod { begins: false, .. });
        if !is_own && !is_found_again {
            transition.mark_started(&call.path, call.attempt, &calls.incarnation);
        }
        claims.begin.push(SlotClaim { call, hold });
    }
    claims
}

/// Returns the ticket by which a call queues for a slot, or `None` for a Pod and for a call without a record.
fn ticket(seen: &ObservedRun, transition: &Transition, call: &Call) -> Option<CallTicket> {
    let host = match &call.content {
        CallContent::Agent(agent) => host_of(&agent.provider),
        CallContent::Http(http) => call_slots::host_of_url(&http.url),
        CallContent::Mcp(mcp) => mcp.url.as_deref().and_then(call_slots::host_of_url),
        CallContent::Pod(_) => return None,
    };
    let seq = transition.journal.get(&call.path, call.attempt)?.seq;
    let bytes = bytes_of(transition, call);
    let (call, workflow) = (call.key(), seen.name.clone());
    Some(CallTicket { seq, call, workflow, run: seen.uid.as_str().into(), host, bytes })
}

/// Returns the host of a provider, or `None` if it has no server.
fn host_of(provider: &Provider) -> Option<Arc<str>> {
    call_slots::host_of_url(provider.kind()?.endpoint()?)
}

/// Returns the bytes that a call needs in memory. Room for the whole answer is reserved for a call with effects, and
/// for a turn whose last attempt found no room.
fn bytes_of(transition: &Transition, call: &Call) -> CallBytes {
    let request = match &call.content {
        CallContent::Agent(agent) => agent.bytes(),
        CallContent::Http(http) => http.body.as_ref().map_or(0, String::len),
        CallContent::Mcp(mcp) => mcp.bytes(),
        CallContent::Pod(_) => 0,
    };
    let had_no_room = || transition.journal.get(&call.path, call.attempt - 1).is_some_and(had_no_room);
    let answer = match &call.content {
        CallContent::Http(_) | CallContent::Mcp(_) => HTTP_ANSWER_BYTES,
        CallContent::Agent(_) if had_no_room() => TURN_ANSWER_BYTES,
        CallContent::Agent(_) | CallContent::Pod(_) => 0,
    };
    // Twice, for the texts and the encoded body.
    CallBytes { request: request.saturating_sub(SHORT_REQUEST).saturating_mul(2), answer }
}

/// Whether a Pod was certainly never created. This process records each attempt to create a Pod, so a Pod without a
/// recorded attempt does not exist. `is_own`: whether this process marked the call as started.
fn is_new_pod(calls: &Calls, seen: &ObservedRun, record: &StepRecord, pod: &PodCall, is_own: bool) -> bool {
    record.phase != StepPhase::Started || (is_own && !calls.runs.has_attempted_pod(&seen.name, &pod.name))
}

/// Whether the index contains the Pod of a call.
fn is_there(pods: &PodIndex, seen: &ObservedRun, call: &Call) -> bool {
    let CallContent::Pod(pod) = &call.content else { return false };
    pods.of_run(&seen.uid).iter().any(|known| known.name_any() == pod.name)
}

/// Claims the slot of a Pod. A started Pod keeps its slot, whatever the limits are now.
fn pod_slot(
    calls: &Calls,
    seen: &ObservedRun,
    record: &StepRecord,
    pod: &PodCall,
    begins: bool,
) -> Result<StartSlot, PodWait> {
    let name = seen.name.beside(&pod.name);
    if record.phase == StepPhase::Started {
        return Ok(StartSlot::Pod { _slot: calls.pod_quota.keep_running(&seen.uid, &name), begins });
    }
    let (workflow, run) = (seen.name.clone(), seen.uid.as_str().into());
    let queued = QueuedPod { since: record.at, workflow, run, seq: record.seq, pod: name };
    calls.pod_quota.acquire(queued).map(|slot| StartSlot::Pod { _slot: slot, begins })
}

/// The reasons and messages of the conditions about waiting steps, each `None` if no step waits.
pub(super) struct PendingConditions {
    /// For the condition `PodsPending`.
    pub(super) pods: Option<(String, String)>,
    /// For the condition `CallsPending`.
    pub(super) calls: Option<(String, String)>,
}

/// Returns the conditions about the steps of a run that wait for their Pods or for a slot.
pub(super) fn pending_conditions(
    pods: &PodIndex,
    seen: &ObservedRun,
    transition: &Transition,
    claims: &SlotClaims,
) -> PendingConditions {
    if transition.end.is_some() {
        return PendingConditions { pods: None, calls: None };
    }
    PendingConditions { pods: pending_pods(pods, seen, transition, claims), calls: pending_calls(seen, claims) }
}

/// Returns the reason and the message about steps that wait for slots, or `None` if none waits.
fn pending_calls(seen: &ObservedRun, claims: &SlotClaims) -> Option<(String, String)> {
    let (path, wait) = claims.calls_wait.first()?;
    let why = wait.message(&seen.name.namespace);
    Some((reason::QUEUED.to_owned(), format!("step {path}: {why}{}", behind_text(claims.calls_wait.len() - 1))))
}

/// Returns the end of a message about the steps that wait behind the first one.
fn behind_text(more: usize) -> String {
    if more > 0 { format!("; {more} more of its steps wait behind it") } else { String::new() }
}

/// Returns the reason and the message about Pods that have a problem or wait for their start, or `None`.
fn pending_pods(
    pods: &PodIndex,
    seen: &ObservedRun,
    transition: &Transition,
    claims: &SlotClaims,
) -> Option<(String, String)> {
    let step = |pod: &str| {
        let record =
            transition.journal.records().iter().find(|r| !r.phase.is_end() && r.object.as_deref() == Some(pod));
        record.map(|record| record.path.clone())
    };
    let problems = pods.problems_of(&seen.uid);
    let mut problems_of_steps = problems.iter().filter_map(|(pod, problem)| Some((step(&pod.name)?, pod, problem)));
    if let Some((path, pod, problem)) = problems_of_steps.next() {
        let more = problems_of_steps.count() + claims.wait.len();
        let more = if more > 0 { format!(" ({more} more wait)") } else { String::new() };
        return Some((problem.reason.clone(), format!("step {path}, Pod {}: {}{more}", pod.name, problem.message)));
    }
    let (path, wait) = claims.wait.first()?;
    let (reason, why) = wait.message(&seen.name.namespace);
    Some((reason.to_owned(), format!("step {path}: {why}{}", behind_text(claims.wait.len() - 1))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_turn_of_each_kind_with_a_server_has_the_slot_of_its_host() {
        for kind in Provider::KINDS {
            let fields = if kind == "scripted" { json!({"replies": []}) } else { json!({}) };
            let provider = serde_json::from_value(json!({"name": "p", kind: fields})).unwrap();
            assert_eq!(host_of(&provider).is_some(), kind != "scripted", "{kind}");
        }
    }
}
