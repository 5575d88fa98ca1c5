//! Executes the commands of a committed transition: creates Approvals *(I/O)*, starts calls.
//!
//! **Invariant:** waits for no call and no decision, and adopts only an Approval that equals the one that it would have
//! created.

use std::{collections::BTreeMap, sync::Arc};

use signoff_api::{Approval, ApprovalStatus, Workflow, names};
use signoff_cluster::{error::status_code, kinds::WriteAnswer};
use signoff_engine::{
    Transition,
    transition::{Ask, CallContent},
};
use signoff_executor::RunRef;

use super::{
    claim_slots::{SlotClaim, SlotClaims},
    observe::ObservedRun,
    report,
};
use crate::{
    context::{CallStart, Calls, Context},
    error::Error,
};

/// Executes the commands. Each gate whose Approval is stored is announced, even if a later Approval cannot be created.
pub(super) async fn dispatch(
    context: &Context,
    seen: &ObservedRun,
    transition: &Transition,
    claims: SlotClaims,
) -> Result<(), Error> {
    // Calls start first, so that an Approval that cannot be created does not delay them.
    start_calls(context, seen, claims)?;
    for request in transition.asks() {
        let approval = create_approval(context, seen, transition, request).await?;
        context.enqueue_approval(seen.name.beside(&request.name));
        report::announce_asked(context, seen, &approval);
    }
    Ok(())
}

/// Ends calls that began before their records were stored and whose records no journal has any more. Drops their
/// results.
pub(super) fn end_calls_that_do_not_follow(calls: &Calls, seen: &ObservedRun, transition: &Transition) {
    calls.runs.end_where_not(&seen.name, &seen.uid, |(path, attempt)| {
        seen.journal.get(path, *attempt).or_else(|| transition.journal.get(path, *attempt)).is_some()
    });
}

/// Starts the calls that have slots. Fails if another operator may act, so that they are dispatched again.
pub(super) fn start_calls(context: &Context, seen: &ObservedRun, claims: SlotClaims) -> Result<(), Error> {
    if !claims.begin.is_empty() && !context.api.lease_guard.is_valid() {
        return Err(Error::conflict(format!("the Lease for what begins in {}", seen.name.as_a::<Workflow>())));
    }
    for claim in claims.begin {
        start_call(&context.calls, seen, claim);
    }
    Ok(())
}

/// Registers a call as in flight, and hands it to the event loop.
fn start_call(calls: &Calls, seen: &ObservedRun, claim: SlotClaim) {
    let SlotClaim { call, hold } = claim;
    let pod = match &call.content {
        CallContent::Pod(pod) => Some(pod.name.as_str()),
        CallContent::Agent(_) | CallContent::Http(_) | CallContent::Mcp(_) => None,
    };
    calls.runs.begin_call(&seen.name, &seen.uid, call.key(), pod);
    let run = RunRef {
        namespace: seen.name.namespace.to_string(),
        workflow: seen.name.name.to_string(),
        uid: seen.uid.clone(),
    };
    // Sending fails only while the operator ends, when no call starts any more.
    let generation = seen.workflow.metadata.generation;
    let _ = calls.starts.send(CallStart { name: seen.name.clone(), run, call, generation, hold });
}

/// Creates the Approval of a gate, or adopts an existing one that equals it.
async fn create_approval(
    context: &Context,
    seen: &ObservedRun,
    transition: &Transition,
    ask: &Ask,
) -> Result<Arc<Approval>, Error> {
    let name = seen.name.beside(&ask.name);
    if !context.api.lease_guard.is_valid() {
        return Err(Error::conflict(format!("the Lease for writing {}", name.as_a::<Approval>())));
    }
    let mut approval = Approval::for_gate(&seen.workflow, &ask.name, ask.request.clone());
    let superseded = transition.journal.superseded_before(&ask.path).and_then(|earlier| earlier.object.clone());
    let channels = (!ask.channels.is_empty()).then(|| ask.channels.join(","));
    let annotations = [(names::ANNOTATION_ASKS_AGAIN, superseded), (names::ANNOTATION_NOTIFY, channels)];
    let annotations = annotations.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let annotations: BTreeMap<_, _> = annotations.collect();
    approval.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    let error = match context.api.requests.create(&approval, context.api.answer_form()).await {
        Ok(WriteAnswer::Whole(approval)) => return Ok(context.objects.approvals.record(approval)),
        Ok(WriteAnswer::Metadata(metadata)) => {
            // A new Approval has the default status of its schema.
            let status = Some(ApprovalStatus::default());
            return Ok(context.objects.approvals.record_sent(Approval { metadata: *metadata, status, ..approval }));
        }
        Err(error) => error,
    };
    if status_code(&error) == Some(409)
        && let Some(there) = context.read_fresh(&context.objects.approvals, &name).await?
    {
        let record = transition.journal.get(&ask.path, 1);
        return match record.map(|record| there.mismatch(record, &seen.uid)) {
            Some(None) => Ok(there),
            why => Err(Error::Foreign {
                object: seen.name.as_a::<Workflow>(),
                name: name.as_a::<Approval>(),
                why: why.flatten().unwrap_or("is not expected").to_owned(),
            }),
        };
    }
    Err(Error::of(format!("creating {}", name.as_a::<Approval>()))(error))
}
