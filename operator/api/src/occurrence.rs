//! The events of gates and runs for listeners: Kubernetes Events, metrics, a terminal.
//!
//! **Invariant:** an occurrence is a function of stored objects: deriving it again, after a crash or in another
//! process, gives an equal one.

use crate::{
    Approval, ApprovalStatus, Digest, EventReason, Moment, Workflow, approval::ApprovalPhase, journal::StepRecord,
    workflow::WorkflowPhase,
};

/// An event of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateEvent {
    /// The Approval exists.
    Asked,
    /// A reminder is due.
    Reminded,
    /// A further level began, so that more people may decide.
    Escalated,
    /// An outcome is stored that no timeout gave: by votes, or `Cancelled` with the run.
    Decided(ApprovalPhase),
    /// The run has closed the gate with this outcome: that of the Approval, or another one that replaces it.
    Taken(ApprovalPhase),
    /// An outcome is stored that voids all votes; the gate asks again.
    Superseded,
    /// An outcome is stored that a timeout gave.
    Expired,
}

impl GateEvent {
    /// Returns the event for the end of an Approval in this phase, or `None` for a phase in which it is open.
    #[must_use]
    pub fn of_end(phase: ApprovalPhase) -> Option<Self> {
        match phase {
            ApprovalPhase::Pending | ApprovalPhase::Overdue => None,
            ApprovalPhase::Expired => Some(Self::Expired),
            ApprovalPhase::Superseded => Some(Self::Superseded),
            ApprovalPhase::Approved
            | ApprovalPhase::Rejected
            | ApprovalPhase::Modified
            | ApprovalPhase::Responded
            | ApprovalPhase::Deferred
            | ApprovalPhase::Skipped
            | ApprovalPhase::Aborted
            | ApprovalPhase::Retried
            | ApprovalPhase::Cancelled => Some(Self::Decided(phase)),
        }
    }

    /// Returns the final phase of the Approval that this event reports, or `None` for another event.
    #[must_use]
    pub fn stored_end(self) -> Option<ApprovalPhase> {
        match self {
            Self::Asked | Self::Reminded | Self::Escalated | Self::Taken(_) => None,
            Self::Decided(phase) => Some(phase),
            Self::Superseded => Some(ApprovalPhase::Superseded),
            Self::Expired => Some(ApprovalPhase::Expired),
        }
    }

    /// Returns the reason of the Kubernetes Event, or `None` if there is no Event.
    #[must_use]
    pub fn reason(self) -> Option<EventReason> {
        match self {
            Self::Asked => Some(EventReason::ApprovalRequested),
            Self::Reminded => Some(EventReason::Reminder),
            Self::Escalated => Some(EventReason::Escalated),
            Self::Decided(_) | Self::Superseded | Self::Expired => self.stored_end().map(EventReason::GateEnded),
            Self::Taken(ApprovalPhase::Superseded) => Some(EventReason::GateSuperseded),
            Self::Taken(_) => None,
        }
    }

    /// Returns the key of the transition of the Approval. Equal transitions have equal keys, by which repetitions are
    /// recognised.
    #[must_use]
    pub fn key(self, status: &ApprovalStatus) -> String {
        let level = status.level.unwrap_or(0);
        match self {
            Self::Asked => "asked".to_owned(),
            Self::Reminded => format!("reminder-{level}-{}", status.reminders.unwrap_or(0)),
            Self::Escalated => format!("escalated-{level}"),
            Self::Decided(_) | Self::Superseded | Self::Expired => "decided".to_owned(),
            Self::Taken(_) => "taken".to_owned(),
        }
    }
}

/// An event in the life of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// The spec was frozen, and the run began.
    Accepted,
    /// The run has ended in this phase.
    Ended(WorkflowPhase),
}

/// One event of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence<E> {
    /// The event.
    pub event: E,
    /// The name of the Approval or Workflow.
    pub name: String,
    /// Its uid. Empty for the Approvals of local runs, which are identified by their names.
    pub uid: String,
    /// The digest of the request of a gate, or of the frozen spec of a run; `None` if the spec was never accepted.
    pub digest: Option<Digest>,
    /// The transition of the object: equal for the same one.
    pub key: String,
    /// The number of the reminder in its level, or of the level; the visit of the gate for events that an Approval has
    /// once; the number in the journal for `Taken` and events of runs.
    pub number: i64,
    /// The time, as an object stores it.
    pub at: Moment,
}

impl Occurrence<GateEvent> {
    /// Returns the latest event of this kind in a stored Approval. Returns `None` if there is none, if an operator of
    /// an earlier version did not store its time, or if the object is a copy of one that had it.
    #[must_use]
    pub fn stored(event: GateEvent, approval: &Approval) -> Option<Self> {
        let fresh = ApprovalStatus::default();
        let (request, status) = (&approval.spec.request, approval.status.as_ref().unwrap_or(&fresh));
        let visit = i64::from(request.gate.visit);
        let (number, at) = match event {
            GateEvent::Asked => (visit, approval.metadata.creation_timestamp.as_ref().map(|at| at.0.into())?),
            GateEvent::Reminded => {
                let number = status.reminders.filter(|number| *number > 0)?;
                (number.into(), request.reminder_at(status, number)?)
            }
            GateEvent::Escalated => {
                let at = status.level_at.filter(|at| !approval.is_created_after(*at))?;
                (status.level.filter(|level| *level > 0)?.into(), at)
            }
            GateEvent::Decided(_) | GateEvent::Superseded | GateEvent::Expired => {
                let outcome = status.outcome.as_ref().filter(|end| GateEvent::of_end(end.phase) == Some(event))?;
                (visit, outcome.decided_at.filter(|at| !approval.is_created_after(*at))?)
            }
            // The event is derived from the run: see `taken`.
            GateEvent::Taken(_) => return None,
        };
        Some(Self {
            event,
            name: approval.metadata.name.clone().unwrap_or_default(),
            uid: approval.metadata.uid.clone().unwrap_or_default(),
            digest: Some(request.digest.clone()),
            key: event.key(status),
            number,
            at,
        })
    }

    /// Returns the end of a stored Approval, or `None` if it is open, or if the object is a copy of one that had ended.
    #[must_use]
    pub fn end(approval: &Approval) -> Option<Self> {
        let outcome = approval.status.as_ref()?.outcome.as_ref()?;
        Self::stored(GateEvent::of_end(outcome.phase)?, approval)
    }

    /// Returns every event of a stored Approval, in the order of time. Of levels and reminders only the latest is
    /// included. An Approval whose request was changed has only an end without a verdict. Whether the run accepts an
    /// outcome is shown by `Taken` alone.
    #[must_use]
    pub fn all_of(approval: &Approval) -> Vec<Self> {
        let outcome = approval.status.as_ref().and_then(|status| status.outcome.as_ref());
        let is_changed = approval.spec.request.is_changed();
        let end = outcome.filter(|outcome| !is_changed || outcome.verdict.is_none());
        let end = end.and_then(|outcome| GateEvent::of_end(outcome.phase));
        if is_changed {
            return end.and_then(|event| Self::stored(event, approval)).into_iter().collect();
        }
        let events = [Some(GateEvent::Asked), Some(GateEvent::Escalated), Some(GateEvent::Reminded), end];
        events.into_iter().flatten().filter_map(|event| Self::stored(event, approval)).collect()
    }

    /// Returns the event for the committed record of a gate whose Approval has this uid, or `None` if the record has no
    /// outcome.
    #[must_use]
    pub fn taken(record: &StepRecord, uid: &str) -> Option<Self> {
        let event = GateEvent::Taken(record.decision.as_ref()?.phase);
        Some(Self {
            event,
            name: record.object.clone()?,
            uid: uid.to_owned(),
            digest: record.request.as_ref().map(|facts| facts.digest.clone()),
            key: event.key(&ApprovalStatus::default()),
            number: record.done?.number(),
            at: record.finished_at?,
        })
    }
}

impl Occurrence<RunEvent> {
    /// Returns the acceptance of a run, or `None` if it was not accepted, or if the object is a copy of a run.
    #[must_use]
    pub fn accepted(workflow: &Workflow) -> Option<Self> {
        let status = workflow.status.as_ref().filter(|_| !workflow.is_restored())?;
        let digest = status.spec_digest.clone()?;
        Some(Self::new(workflow, RunEvent::Accepted, Some(digest), "accepted", 0, status.started_at?))
    }

    /// Returns the end of a run, or `None` if it has not ended, or if the object is a copy of a run that had ended.
    #[must_use]
    pub fn ended(workflow: &Workflow) -> Option<Self> {
        let status = workflow.status.as_ref().filter(|status| status.phase.is_end())?;
        let (event, digest) = (RunEvent::Ended(status.phase), status.spec_digest.clone());
        let at = status.finished_at.filter(|at| !workflow.is_created_after(*at))?;
        Some(Self::new(workflow, event, digest, "end", status.seq.number(), at))
    }

    fn new(workflow: &Workflow, event: RunEvent, digest: Option<Digest>, key: &str, number: i64, at: Moment) -> Self {
        let name = workflow.metadata.name.clone().unwrap_or_default();
        let uid = workflow.metadata.uid.clone().unwrap_or_default();
        Self { event, name, uid, digest, key: key.to_owned(), number, at }
    }
}

#[cfg(test)]
mod tests;
