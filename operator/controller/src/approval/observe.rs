//! What is known of an Approval: the object, how its run stands, and whether anybody vouches for its decisions.
//!
//! It may not change anything. That a run is gone is believed only of the API server itself.

use std::sync::Arc;

use signoff_api::{Approval, Workflow, journal};
use signoff_engine::tally::Owner;

use crate::{
    context::Context,
    error::Error,
    guard::GuardStatus,
    kinds::{Kind, Name, uid},
    store::Found,
};

pub(super) enum Observed {
    /// An Approval that may be decided.
    Open(Box<Seen>),
    /// Nothing that could be decided now.
    Nothing,
}

pub(super) struct Seen {
    pub(super) approval: Arc<Approval>,
    pub(super) owner: Owner,
    pub(super) guard_epoch: Arc<str>,
}

pub(super) async fn observe(context: &Context, name: &Name) -> Result<Observed, Error> {
    let approval = match context.approvals.find(name) {
        Found::Here(approval) => Some(approval),
        Found::Over { .. } | Found::Nowhere => None,
        Found::Doubtful => context.fresh(&context.approvals, name).await?,
    };
    let Some(approval) = approval else { return Ok(Observed::Nothing) };
    let workflow = &approval.spec.request.workflow;
    let run = name.beside(&workflow.name);
    if approval.is_over() {
        if context.workflows.is_open(&run, &workflow.uid) {
            context.look_at_workflow(run);
        } else {
            context.approvals.shrink(name);
        }
        return Ok(Observed::Nothing);
    }
    let GuardStatus::InForce(guarded) = context.guard.borrow().clone() else { return Ok(Observed::Nothing) };
    let Some(owner) = owner(context, &run, &workflow.uid).await? else { return Ok(Observed::Nothing) };
    Ok(Observed::Open(Box::new(Seen { owner, guard_epoch: guarded.epoch, approval })))
}

/// How the run stands; none where its journal is a newer operator's, to whom its Approvals belong as well.
async fn owner(context: &Context, run: &Name, wanted: &str) -> Result<Option<Owner>, Error> {
    let judge = |workflow: &Workflow| {
        if uid(workflow) != wanted {
            Some(Owner::Gone)
        } else if workflow.is_over()
            || workflow.metadata.deletion_timestamp.is_some()
            || workflow.spec.cancel == Some(true)
        {
            Some(Owner::Over)
        } else {
            is_ours(workflow).then_some(Owner::Live)
        }
    };
    match context.workflows.find(run) {
        Found::Here(workflow) if uid(&*workflow) == wanted => return Ok(judge(&workflow)),
        Found::Over { uid, .. } if uid == wanted => return Ok(Some(Owner::Over)),
        _ => {}
    }
    let Some(workflow) = context.fresh(&context.workflows, run).await? else { return Ok(Some(Owner::Gone)) };
    // What is read here is no news to the watch any more.
    context.look_at_workflow(run.clone());
    Ok(judge(&workflow))
}

fn is_ours(workflow: &Workflow) -> bool {
    let version = workflow.status.as_ref().and_then(|status| status.journal_version);
    version.is_none_or(|version| version <= journal::VERSION)
}
