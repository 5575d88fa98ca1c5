//! The state of a request: its phase, its deadline and its outcome.
//!
//! Pure.

use signoff_api::{Approval, ApprovalStatus, Moment, Outcome, approval::ApprovalPhase};
use signoff_engine::gate::parameters;
use signoff_expr::text::display;
use signoff_review::{clock::distance, decisions, request::consequence, text::one_line};

use super::{LONGEST, heading::RequestId, path};
use crate::{approval::read::Read, page::Instant};

/// The state of a request.
pub(super) struct RequestState {
    pub(super) phase: &'static str,
    /// The shape beside the phase.
    pub(super) mark: &'static str,
    /// The note beside the phase while the operator has not counted.
    pub(super) uncounted: &'static str,
    /// Whether the gate is decided or has ended.
    pub(super) is_closed: bool,
    pub(super) deadline: DeadlineText,
    pub(super) ending: Option<Ending>,
}

/// The deadline of a request.
pub(super) struct DeadlineText {
    pub(super) at: Instant,
    /// The distance from now in words.
    pub(super) left: String,
    /// Whether the deadline has passed.
    pub(super) is_late: bool,
    /// The effect of the timeout; completes the sentence "then …".
    pub(super) consequence: String,
}

/// The outcome of a gate.
pub(super) struct Ending {
    pub(super) line: String,
    pub(super) at: Option<Instant>,
    pub(super) reason: Option<String>,
    /// The texts of the outcome, each with its title.
    pub(super) texts: Vec<(&'static str, String)>,
    /// The page of another request for which the run waits now.
    pub(super) next: Option<String>,
}

impl RequestState {
    /// Returns the state of a request as it was read.
    pub(super) fn of(read: &Read, id: &RequestId) -> Self {
        let approval = &read.seen.approval;
        let status = approval.status.clone().unwrap_or_default();
        Self {
            phase: status.phase.name(),
            mark: mark(status.phase),
            uncounted: if decisions::has_uncounted(approval) { "recorded, not counted yet" } else { "" },
            is_closed: status.phase.is_end() || status.outcome.is_some(),
            deadline: DeadlineText::of(approval, &status, read.at),
            ending: status.outcome.as_ref().map(|outcome| Ending::of(outcome, read, id)),
        }
    }
}

impl DeadlineText {
    fn of(approval: &Approval, status: &ApprovalStatus, now: Moment) -> Self {
        let deadline = approval.deadline();
        Self {
            at: Instant::from(deadline),
            left: distance(deadline, now),
            is_late: deadline <= now,
            consequence: consequence(&approval.spec.request, status),
        }
    }
}

impl Ending {
    fn of(outcome: &Outcome, read: &Read, id: &RequestId) -> Self {
        let parameters = outcome
            .parameters
            .as_ref()
            .map(|given| serde_json::to_string_pretty(&parameters::as_object(given).0).unwrap_or_default());
        let texts = [
            ("Response", outcome.response.clone()),
            ("Parameters", parameters),
            ("Guidance", outcome.guidance.clone()),
        ];
        Self {
            line: decisions::outcome(&Outcome { decided_at: None, ..outcome.clone() }, read.at),
            at: outcome.decided_at.map(Instant::from),
            reason: outcome.reason.as_ref().map(|reason| one_line(reason, 2048)),
            texts: texts.into_iter().filter_map(|(title, text)| Some((title, display(&text?, LONGEST)))).collect(),
            next: read.run.pending.iter().find(|other| **other != id.name).map(|other| path(&id.namespace, other)),
        }
    }
}

/// Returns the shape of each kind of phase, which stands beside its word.
fn mark(phase: ApprovalPhase) -> &'static str {
    match phase {
        ApprovalPhase::Pending => "○",
        ApprovalPhase::Overdue => "◔",
        ApprovalPhase::Approved | ApprovalPhase::Modified | ApprovalPhase::Responded => "✓",
        ApprovalPhase::Rejected | ApprovalPhase::Aborted | ApprovalPhase::Expired => "✕",
        ApprovalPhase::Deferred | ApprovalPhase::Retried => "↻",
        ApprovalPhase::Skipped | ApprovalPhase::Cancelled | ApprovalPhase::Superseded => "–",
    }
}
