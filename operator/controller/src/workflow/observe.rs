//! What is known of a run: its object, what people decided at its open gates, and what its calls came to.
//!
//! It may not change anything. It asks the API server only where what is known does not suffice.

use std::sync::Arc;

use kube::ResourceExt;
use signoff_api::{
    Approval, Moment, Workflow, WorkflowStatus,
    journal::{StepKind, StepPhase, StepRecord},
};
use signoff_engine::{Fact, Journal};

use crate::{
    context::Context,
    error::Error,
    guard::Standing,
    kinds::{Name, uid},
    store::Found,
};

/// What a look at a Workflow found.
pub(super) enum Observed {
    /// A run that goes on.
    Run(Box<Seen>),
    /// A run whose decisions nobody vouches for at the moment, and why.
    Unguarded(Arc<Workflow>, String),
    /// A run that has ended.
    Over { uid: String, due: Option<Moment> },
    /// Nothing, or something that is being deleted.
    Gone { uid: Option<String> },
}

/// A run that goes on.
pub(super) struct Seen {
    pub(super) name: Name,
    pub(super) uid: String,
    pub(super) workflow: Arc<Workflow>,
    pub(super) status: WorkflowStatus,
    pub(super) journal: Journal,
    pub(super) facts: Vec<Fact>,
    pub(super) guard_epoch: Arc<str>,
    /// The moment of the turn.
    pub(super) now: Moment,
    /// Whether an open gate of the run is overdue.
    pub(super) overdue: bool,
}

pub(super) async fn observe(context: &Context, name: &Name) -> Result<Observed, Error> {
    let workflow = match context.workflows.find(name) {
        Found::Here(workflow) => workflow,
        Found::Over { uid, due } => return Ok(Observed::Over { uid, due }),
        Found::Nowhere => return Ok(Observed::Gone { uid: None }),
        Found::Doubtful => match context.fresh(&context.workflows, name).await? {
            Some(workflow) => workflow,
            None => return Ok(Observed::Gone { uid: None }),
        },
    };
    let uid = uid(&*workflow).to_owned();
    if workflow.metadata.deletion_timestamp.is_some() {
        return Ok(Observed::Gone { uid: Some(uid) });
    }
    let status = workflow.status.clone().unwrap_or_default();
    if status.phase.is_end() {
        let due = crate::kinds::Kind::due(&*workflow);
        return Ok(Observed::Over { uid, due });
    }
    let standing = context.guard.borrow().clone();
    let guard_epoch = match standing {
        Standing::InForce { epoch } => epoch,
        other => return Ok(Observed::Unguarded(workflow, other.to_string())),
    };
    let journal = Journal::of(&status);
    let mut seen = Seen {
        name: name.clone(),
        uid,
        workflow,
        status,
        journal,
        facts: Vec::new(),
        guard_epoch,
        now: context.now(),
        overdue: false,
    };
    gates(context, &mut seen).await?;
    let results = context.runs.facts(name, &seen.uid, &seen.journal);
    seen.facts.extend(results);
    seen.now = context.now();
    Ok(Observed::Run(Box::new(seen)))
}

/// What became of the open gates.
async fn gates(context: &Context, seen: &mut Seen) -> Result<(), Error> {
    let open: Vec<_> =
        seen.journal.records().iter().filter(|r| r.kind == StepKind::Hitl && r.phase == StepPhase::Waiting).collect();
    let mut facts = Vec::new();
    let mut overdue = false;
    for record in open {
        let Some(object) = &record.object else { continue };
        let place = seen.name.beside(object);
        let approval = match context.approvals.find(&place) {
            Found::Here(approval) => Some(approval),
            Found::Over { .. } | Found::Doubtful | Found::Nowhere => {
                let found = context.fresh(&context.approvals, &place).await?;
                // What is read here is no news to the watch any more.
                found.inspect(|_| context.look_at_approval(place.clone()))
            }
        };
        let Some(approval) = approval else {
            facts.push(Fact::Gone { path: record.path.clone() });
            continue;
        };
        if let Some(why) = stranger(&approval, record, &seen.uid) {
            return Err(Error::Foreign {
                object: seen.name.as_a::<Workflow>(),
                name: place.as_a::<Approval>(),
                why: why.to_owned(),
            });
        }
        let status = approval.status.as_ref();
        overdue |= status.is_some_and(|status| status.phase == signoff_api::approval::ApprovalPhase::Overdue);
        if let Some(outcome) = status.and_then(|status| status.outcome.clone()) {
            facts.push(Fact::Decided { path: record.path.clone(), outcome: Box::new(outcome) });
        }
    }
    seen.facts.extend(facts);
    seen.overdue = overdue;
    Ok(())
}

/// Why an Approval is not the one that a record stands for; none where it is.
pub(super) fn stranger(approval: &Approval, record: &StepRecord, uid: &str) -> Option<&'static str> {
    let request = &approval.spec.request;
    let asked = record.request.as_ref().map(|facts| &facts.digest);
    if request.workflow.uid != uid || !approval.owner_references().iter().any(|owner| owner.uid == uid) {
        Some("belongs to another Workflow")
    } else if asked != Some(&request.digest) || request.gate.path != record.path {
        Some("asks something else")
    } else if request.digest_of_the_rest().ok().as_ref() != Some(&request.digest) {
        Some("asks something else than its digest says")
    } else {
        None
    }
}
