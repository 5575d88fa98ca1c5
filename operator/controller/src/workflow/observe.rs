//! Collects the facts about a run *(I/O)*: its object, the decisions at its open gates, and the results of its calls.
//!
//! **Invariant:** changes no object. Asks the API server only if the cache does not suffice.

use std::sync::Arc;

use signoff_api::{
    Approval, Moment, Outcome, Workflow, WorkflowStatus,
    journal::{StepKind, StepPhase},
};
use signoff_cluster::{
    kinds::{Name, uid},
    store::Found,
};
use signoff_engine::{
    Fact, Journal, ValueLimits,
    approval::{changed, superseded},
};

use super::journal::load_or_report;
use crate::{
    context::{Context, ReadMemory},
    error::Error,
    guard::{ConfirmScope, GuardEpoch, GuardStatus},
    withdrawal::Withdrawal,
};

/// The state of a Workflow at the beginning of a reconcile.
pub(super) enum WorkflowObservation {
    /// A run that has not finished.
    Run(Box<ObservedRun>),
    /// A newer operator wrote the journal. `until`: when to report it again.
    NewerJournal { until: Moment },
    /// The admission policies are not in force, with the reason.
    PoliciesNotInForce(Arc<Workflow>, String),
    /// The guard is inspecting. The run is reconciled again when the inspection has finished.
    GuardUnsettled,
    /// A finished run. `due`: when it is to be deleted.
    Finished { uid: String, due: Option<Moment> },
    /// The Workflow does not exist, or it or its namespace is being deleted.
    Missing { uid: Option<String> },
}

/// A run that has not finished.
pub(super) struct ObservedRun {
    pub(super) name: Name,
    pub(super) uid: String,
    pub(super) workflow: Arc<Workflow>,
    pub(super) status: WorkflowStatus,
    pub(super) journal: Journal,
    pub(super) facts: Vec<Fact>,
    /// The results of calls that began before their records were stored.
    pub(super) unstored: Vec<Fact>,
    /// The open gates of the stored journal: their paths and their Approvals.
    pub(super) open_gates: Vec<(String, Arc<Approval>)>,
    pub(super) guarded: GuardEpoch,
    /// Whether the clock of this machine is ahead of the API server's, or `None` if the difference is too small to be
    /// reported.
    pub(super) is_machine_ahead: Option<bool>,
    /// The limits of its long values.
    pub(super) values: ValueLimits,
    /// The time of the transition.
    pub(super) now: Moment,
    /// Whether an open gate of the run is overdue.
    pub(super) overdue: bool,
    /// The memory for its long values, taken when the first is read.
    pub(super) memory: ReadMemory,
}

/// Reads the state of a Workflow. A run that has not finished is observed with its journal, the outcomes of its open
/// gates, and the results of its calls.
pub(super) async fn observe(context: &Context, name: &Name) -> Result<WorkflowObservation, Error> {
    let workflow = match context.objects.workflows.find(name) {
        Found::Here(workflow) => workflow,
        Found::Finished { uid, delete_at: due } => return Ok(WorkflowObservation::Finished { uid, due }),
        Found::NotFound => return Ok(WorkflowObservation::Missing { uid: None }),
        Found::Stale => match context.read_fresh(&context.objects.workflows, name).await? {
            Some(workflow) => workflow,
            None => return Ok(WorkflowObservation::Missing { uid: None }),
        },
    };
    let uid = uid(&*workflow).to_owned();
    if context.objects.withdrawal(&workflow) == Some(Withdrawal::Deleted) {
        return Ok(WorkflowObservation::Missing { uid: Some(uid) });
    }
    let status = workflow.status.clone().unwrap_or_default();
    if status.phase.is_end() {
        let due = signoff_cluster::kinds::ReconciledKind::delete_at(&*workflow);
        return Ok(WorkflowObservation::Finished { uid, due });
    }
    if let Some(until) = super::journal::report_newer_journal(context, &workflow) {
        return Ok(WorkflowObservation::NewerJournal { until });
    }
    let guarded = match context.api.guard.borrow().clone() {
        GuardStatus::InForce(guarded) => guarded,
        GuardStatus::Unknown | GuardStatus::Inspecting(_) => return Ok(WorkflowObservation::GuardUnsettled),
        broken @ GuardStatus::Broken(_) => {
            return Ok(WorkflowObservation::PoliciesNotInForce(workflow, broken.to_string()));
        }
    };
    let memory = ReadMemory::default();
    let journal = load_or_report(context, &workflow, &status, &memory).await?;
    let mut seen = ObservedRun {
        name: name.clone(),
        uid,
        workflow,
        status,
        journal,
        facts: Vec::new(),
        unstored: Vec::new(),
        open_gates: Vec::new(),
        guarded,
        is_machine_ahead: context.api.clock.is_machine_ahead(),
        values: context.values.quota.limits(&context.objects.workflows, name),
        now: context.api.now(),
        overdue: false,
        memory,
    };
    // A copy from a backup takes no decision, because its gates belong to the original.
    if !seen.workflow.is_restored() && !collect_gates(context, &mut seen).await? {
        return Ok(WorkflowObservation::GuardUnsettled);
    }
    let results = context.calls.runs.facts(name, &seen.uid, &seen.journal);
    seen.facts.extend(results);
    seen.unstored = context.calls.runs.unstored_facts(name, &seen.uid, &seen.journal);
    seen.now = context.api.now();
    Ok(WorkflowObservation::Run(Box::new(seen)))
}

/// Whether an Approval of this run has a changed request and has ended without a verdict. Its gate then asks again, and
/// the changed request is ignored.
fn is_asked_again(approval: &Approval, outcome: Option<&Outcome>, uid: &str) -> bool {
    let ended_undecided = outcome.is_some_and(|outcome| outcome.verdict.is_none());
    ended_undecided && approval.belongs_to(uid) && approval.spec.request.is_changed()
}

/// Collects the outcomes of the open gates. Returns `false` if the guard has to inspect before they count.
async fn collect_gates(context: &Context, seen: &mut ObservedRun) -> Result<bool, Error> {
    let open: Vec<_> =
        seen.journal.records().iter().filter(|r| r.kind == StepKind::Hitl && r.phase == StepPhase::Waiting).collect();
    let (mut facts, mut open_gates) = (Vec::new(), Vec::new());
    let (mut overdue, mut unconfirmed) = (false, false);
    for record in open {
        let Some(object) = &record.object else { continue };
        let name = seen.name.beside(object);
        let approval = match context.objects.approvals.find(&name) {
            Found::Here(approval) => Some(approval),
            Found::Finished { .. } | Found::Stale | Found::NotFound => {
                let found = context.read_fresh(&context.objects.approvals, &name).await?;
                // The object read here is cached now, so its watch event will not enqueue the Approval.
                found.inspect(|_| context.enqueue_approval(name.clone()))
            }
        };
        let Some(approval) = approval else {
            facts.push(Fact::ApprovalMissing { path: record.path.clone() });
            continue;
        };
        let status = approval.status.as_ref();
        let outcome = status.and_then(|status| status.outcome.as_ref());
        let asks_again = is_asked_again(&approval, outcome, &seen.uid);
        if let Some(why) = approval.mismatch(record, &seen.uid).filter(|_| !asks_again) {
            // A cancelled run ends even if another object has the name of its Approval.
            if seen.workflow.spec.cancel == Some(true) {
                continue;
            }
            return Err(Error::Foreign {
                object: seen.name.as_a::<Workflow>(),
                name: name.as_a::<Approval>(),
                why: why.to_owned(),
            });
        }
        open_gates.push((record.path.clone(), Arc::clone(&approval)));
        overdue |= status.is_some_and(|status| status.phase == signoff_api::approval::ApprovalPhase::Overdue);
        if let Some(outcome) = outcome {
            let outcome = if asks_again {
                Outcome { decided_at: Some(context.api.now()), ..changed() }
            } else if outcome.verdict.is_none() || approval.guard_epoch() == &*seen.guarded.epoch {
                unconfirmed |= outcome.verdict.is_some() && !context.caches.confirmed_outcomes.contains(&approval);
                outcome.clone()
            } else {
                // A user who can remove the policies can also write this status, so an outcome of another epoch does
                // not count.
                let outcome = superseded(&approval, &seen.guarded.epoch);
                Outcome { decided_at: Some(context.api.now()), ..outcome }
            };
            facts.push(Fact::ApprovalDecided { path: record.path.clone(), outcome: Box::new(outcome) });
        }
    }
    if unconfirmed && !context.api.confirms(ConfirmScope::StoredStatus, &seen.guarded.epoch).await? {
        return Ok(false);
    }
    seen.facts.extend(facts);
    seen.open_gates = open_gates;
    seen.overdue = overdue;
    Ok(true)
}
