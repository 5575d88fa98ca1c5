//! Collects the facts about an Approval: the object, the state of its run, and whether its decisions are verified.
//!
//! **Invariant:** changes nothing. Only the API server's own answer proves that a run is gone.

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
    /// The generation of the spec of its run, where that waits.
    pub(super) generation: Option<i64>,
    pub(super) guard_epoch: Arc<str>,
}

pub(super) async fn observe(context: &Context, name: &Name) -> Result<ApprovalObservation, Error> {
    let approval = match context.objects.approvals.find(name) {
        Found::Here(approval) => Some(approval),
        Found::Finished { .. } | Found::NotFound => None,
        Found::Stale => context.fresh(&context.objects.approvals, name).await?,
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
    let Some((owner, generation)) = owner(context, &run, &workflow.uid).await? else {
        return Ok(ApprovalObservation::Nothing);
    };
    // Its run asks again when it is gone.
    if owner == OwnerState::Live && approval.metadata.deletion_timestamp.is_some() {
        return Ok(ApprovalObservation::Nothing);
    }
    let guard_epoch = guarded.epoch;
    Ok(ApprovalObservation::Open(Box::new(ObservedApproval { approval, run, owner, generation, guard_epoch })))
}

/// The state of a run, and the generation of its spec where it waits.
type Owner = (OwnerState, Option<i64>);

/// Returns the state of the run, or `None` where its Approvals are not this operator's to count or to end: a newer
/// operator wrote its journal, or it was accepted under other rules.
async fn owner(context: &Context, run: &Name, wanted: &str) -> Result<Option<Owner>, Error> {
    let judge = |workflow: &Workflow| {
        if uid(workflow) != wanted {
            Some((OwnerState::Missing, None))
        } else if workflow.is_finished() || context.objects.withdrawal(workflow).is_some() {
            Some((OwnerState::Finished, None))
        } else {
            is_ours(workflow).then_some((OwnerState::Live, workflow.metadata.generation))
        }
    };
    match context.objects.workflows.find(run) {
        Found::Here(workflow) if uid(&*workflow) == wanted => return Ok(judge(&workflow)),
        Found::Finished { uid, .. } if uid == wanted => return Ok(Some((OwnerState::Finished, None))),
        _ => {}
    }
    let Some(workflow) = context.fresh(&context.objects.workflows, run).await? else {
        return Ok(Some((OwnerState::Missing, None)));
    };
    // What is read here is no news to the watch any more.
    context.enqueue_workflow(run.clone());
    Ok(judge(&workflow))
}

fn is_ours(workflow: &Workflow) -> bool {
    let Some(status) = &workflow.status else { return true };
    status.journal_version.is_none_or(|version| version <= journal::VERSION) && status.other_rules().is_none()
}
