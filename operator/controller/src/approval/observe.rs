//! Collects the facts about an Approval *(I/O)*: the object, the state of its run, and the epoch of the guard.
//!
//! **Invariant:** changes no object. Only an answer of the API server proves that a run does not exist.

use std::sync::Arc;

use signoff_api::{Approval, Workflow, journal};
use signoff_cluster::{
    kinds::{Name, ReconciledKind, uid},
    store::Found,
};
use signoff_engine::approval::OwnerState;

use crate::{context::Context, error::Error, guard::GuardStatus};

pub(super) enum ApprovalObservation {
    /// An Approval that may be decided.
    Open(Box<ObservedApproval>),
    /// An Approval that cannot be decided now.
    Nothing,
}

pub(super) struct ObservedApproval {
    pub(super) approval: Arc<Approval>,
    pub(super) run: Name,
    pub(super) owner: OwnerState,
    /// The generation of the spec of its run, if the run is open.
    pub(super) generation: Option<i64>,
    pub(super) guard_epoch: Arc<str>,
}

/// Reads the state of an open Approval. For a finished Approval, enqueues its open run, or else reduces the cached
/// Approval to its summary, and returns `Nothing`.
pub(super) async fn observe(context: &Context, name: &Name) -> Result<ApprovalObservation, Error> {
    let approval = match context.objects.approvals.find(name) {
        Found::Here(approval) => Some(approval),
        Found::Finished { .. } | Found::NotFound => None,
        Found::Stale => context.read_fresh(&context.objects.approvals, name).await?,
    };
    let Some(approval) = approval else { return Ok(ApprovalObservation::Nothing) };
    let workflow = &approval.spec.request.workflow;
    let run = name.beside(&workflow.name);
    if approval.is_finished() {
        if context.objects.workflows.is_open(&run, &workflow.uid) {
            context.enqueue_workflow(run);
        } else {
            context.objects.approvals.keep_summary(name);
        }
        return Ok(ApprovalObservation::Nothing);
    }
    let GuardStatus::InForce(guarded) = context.api.guard.borrow().clone() else {
        return Ok(ApprovalObservation::Nothing);
    };
    let Some((owner, generation)) = read_owner_state(context, &run, &workflow.uid).await? else {
        return Ok(ApprovalObservation::Nothing);
    };
    // The run creates a new Approval after the deletion.
    if owner == OwnerState::Live && approval.metadata.deletion_timestamp.is_some() {
        return Ok(ApprovalObservation::Nothing);
    }
    let guard_epoch = guarded.epoch;
    Ok(ApprovalObservation::Open(Box::new(ObservedApproval { approval, run, owner, generation, guard_epoch })))
}

/// The state of a run, and the generation of its spec if the run is open.
type Owner = (OwnerState, Option<i64>);

/// Returns the state of the run. `None` if this operator leaves its Approvals alone, because a newer operator wrote the
/// journal or the run was accepted under other rules.
async fn read_owner_state(context: &Context, run: &Name, wanted: &str) -> Result<Option<Owner>, Error> {
    let state_of = |workflow: &Workflow| {
        if uid(workflow) != wanted {
            Some((OwnerState::Missing, None))
        } else if workflow.is_finished() || context.objects.withdrawal(workflow).is_some() {
            Some((OwnerState::Finished, None))
        } else {
            is_tallied_here(workflow).then_some((OwnerState::Live, workflow.metadata.generation))
        }
    };
    match context.objects.workflows.find(run) {
        Found::Here(workflow) if uid(&*workflow) == wanted => return Ok(state_of(&workflow)),
        Found::Finished { uid, .. } if uid == wanted => return Ok(Some((OwnerState::Finished, None))),
        _ => {}
    }
    let Some(workflow) = context.read_fresh(&context.objects.workflows, run).await? else {
        return Ok(Some((OwnerState::Missing, None)));
    };
    // The object read here is cached now, so its watch event will not enqueue the run.
    context.enqueue_workflow(run.clone());
    Ok(state_of(&workflow))
}

/// Whether this version of the operator counts the votes on the Approvals of a run.
fn is_tallied_here(workflow: &Workflow) -> bool {
    let Some(status) = &workflow.status else { return true };
    status.journal_version.is_none_or(|version| version <= journal::VERSION) && status.other_rules().is_none()
}
