//! The notice of a typed event, built from the object that the event is derived from *(pure)*.
//!
//! **Invariant:** an outcome is announced only after the run has committed it. Only if the run is gone, the Approval's
//! own cancellation is announced.

use std::{collections::BTreeSet, time::Duration};

use signoff_api::{
    Approval, ApprovalStatus, Moment, Workflow,
    approval::ApprovalPhase,
    gate::{Subject, TimeoutAction},
    occurrence::{GateEvent, Occurrence, RunEvent},
    workflow::WorkflowPhase,
};
use signoff_cluster::kinds::ReconciledKind as _;
use signoff_expr::text;
use signoff_notify::{CUT, NoticeEvent, Occasion};

/// The longest text of authors and models in a notice, in characters.
const MAX_DETAILS: usize = 3000;
/// The transition of an Approval for the notice of its outcome.
pub(super) const TAKEN: &str = "taken";
/// The transition of an Approval for the notice of a void vote.
pub(super) const VOIDED: &str = "voided";
/// The largest number of levels of an Approval, and of reminders of a level.
const MAX_ASKS: (i32, i32) = (8, 20);
/// The longest time between a request and the creation of its Approval, unless the operator was down in between.
const CREATED_WITHIN: Duration = Duration::from_secs(60);

/// The events by which an Approval asks, in the order in which they occur. The latest of each is derived from the
/// stored object.
pub(super) const ASKS: [GateEvent; 3] = [GateEvent::Asked, GateEvent::Escalated, GateEvent::Reminded];

/// Returns the transitions by which an Approval may have asked earlier: all of them if it has ended, else those that a
/// later transition replaces.
pub(super) fn earlier_asks(approval: &Approval) -> Vec<String> {
    let fresh = ApprovalStatus::default();
    let status = approval.status.as_ref().unwrap_or(&fresh);
    let latest = match approval.is_finished() {
        true => Vec::new(),
        false => Vec::from(ASKS.map(|event| event.key(status))),
    };
    let key = |event: GateEvent, level, reminder| {
        event.key(&ApprovalStatus { level: Some(level), reminders: Some(reminder), ..ApprovalStatus::default() })
    };
    let mut keys = vec![GateEvent::Asked.key(status)];
    for level in 0..=status.level.unwrap_or(0).clamp(0, MAX_ASKS.0) {
        keys.push(key(GateEvent::Escalated, level, 0));
        if approval.spec.request.timeout.reminder_interval.is_some() {
            keys.extend((1..=MAX_ASKS.1).map(|reminder| key(GateEvent::Reminded, level, reminder)));
        }
    }
    keys.retain(|key| !latest.contains(key));
    keys
}

/// Whether an Approval was created so long after its request that it may be a copy from a backup. The end of such a
/// copy is not announced if its run is gone, because the original may have ended otherwise. An Approval that asks again
/// has a shorter timeout, so it does not count as a copy.
pub(super) fn may_be_copy(approval: &Approval) -> bool {
    let request = &approval.spec.request;
    let began = request.deadline.before(request.timeout_of_level(0));
    approval.asks_again().is_none() && approval.is_created_after(began.after(CREATED_WITHIN))
}

/// Returns the event of the notice and its transition, or `None` if the event has no notice.
fn notice_event(gate: &Occurrence<GateEvent>) -> Option<(NoticeEvent, &str)> {
    match gate.event {
        GateEvent::Asked => Some((NoticeEvent::Asked, gate.key.as_str())),
        GateEvent::Reminded => Some((NoticeEvent::Reminded, gate.key.as_str())),
        GateEvent::Escalated => Some((NoticeEvent::Escalated, gate.key.as_str())),
        GateEvent::Taken(_) | GateEvent::Decided(ApprovalPhase::Cancelled) => Some((NoticeEvent::Taken, TAKEN)),
        GateEvent::Superseded => Some((NoticeEvent::VoteVoided, VOIDED)),
        GateEvent::Decided(_) | GateEvent::Expired => None,
    }
}

/// Returns the notice of an event of a gate, or `None` if the event has none.
pub(super) fn of_gate(gate: &Occurrence<GateEvent>, approval: &Approval) -> Option<Occasion> {
    let (event, key) = notice_event(gate)?;
    let audience = audience_of(event, approval);
    // No votes were cast, or the gate asks again for another reason.
    if event == NoticeEvent::VoteVoided && (audience.is_empty() || !voids_votes(approval)) {
        return None;
    }
    let request = &approval.spec.request;
    let is_open = event.is_open();
    let outcome = match gate.event {
        GateEvent::Taken(phase) | GateEvent::Decided(phase) => Some(gate_outcome(phase)),
        GateEvent::Superseded => Some(gate_outcome(ApprovalPhase::Superseded)),
        GateEvent::Expired => Some(gate_outcome(ApprovalPhase::Expired)),
        GateEvent::Asked | GateEvent::Reminded | GateEvent::Escalated => None,
    };
    Some(Occasion {
        event,
        uid: gate.uid.clone(),
        key: key.to_owned(),
        namespace: approval.metadata.namespace.clone().unwrap_or_default(),
        run: request.workflow.name.clone(),
        approval: Some(gate.name.clone()),
        digest: Some(request.digest.clone()),
        gate: Some(request.gate.name.clone()),
        gate_type: Some(request.gate.type_),
        requester: requester(request.requested_for.as_ref(), &request.requested_by),
        deadline: is_open.then(|| approval.deadline()),
        then: is_open.then(|| consequence(request.timeout.action.unwrap_or(TimeoutAction::Reject)).to_owned()),
        outcome: outcome.map(str::to_owned),
        details: Some(render_details(approval)),
        audience,
        added: approval.channels().map(str::to_owned).collect(),
        at: gate.at,
    })
}

/// Returns the notice of an event of a run, or `None` if the event has none.
pub(super) fn of_run(run: &Occurrence<RunEvent>, workflow: &Workflow) -> Option<Occasion> {
    let phase = match run.event {
        RunEvent::Accepted => return None,
        RunEvent::Ended(phase) => phase,
    };
    let requester = requester(workflow.spec.requested_for.as_ref(), &workflow.spec.requested_by);
    Some(Occasion {
        event: NoticeEvent::Ended,
        uid: run.uid.clone(),
        key: run.key.clone(),
        namespace: workflow.metadata.namespace.clone().unwrap_or_default(),
        run: run.name.clone(),
        approval: None,
        digest: None,
        gate: None,
        gate_type: None,
        audience: vec![Subject::user(&requester)],
        requester,
        deadline: None,
        then: None,
        outcome: Some(run_outcome(phase).to_owned()),
        details: None,
        added: Vec::new(),
        at: run.at,
    })
}

/// Returns the notice that the run has taken the outcome `phase` of an Approval, or `None` if the run took the outcome
/// of another object.
pub(super) fn notice_of_outcome(approval: &Approval, phase: ApprovalPhase, at: Moment) -> Option<Occasion> {
    if approval.is_created_after(at) {
        return None;
    }
    let request = &approval.spec.request;
    let gate = Occurrence {
        event: GateEvent::Taken(phase),
        name: approval.metadata.name.clone()?,
        uid: approval.metadata.uid.clone()?,
        digest: Some(request.digest.clone()),
        key: TAKEN.to_owned(),
        number: 0,
        at,
    };
    of_gate(&gate, approval)
}

/// Returns the notice of an Approval's end without the outcome, which only the run has.
pub(super) fn notice_of_end(approval: &Approval, at: Moment) -> Option<Occasion> {
    Some(Occasion { outcome: None, ..notice_of_outcome(approval, ApprovalPhase::Cancelled, at)? })
}

/// Returns the notice of an end with the outcome that the run has taken, and with its time.
pub(super) fn with_outcome(occasion: Occasion, phase: ApprovalPhase, at: Moment) -> Occasion {
    Occasion { outcome: Some(gate_outcome(phase).to_owned()), at, ..occasion }
}

/// Returns the bytes that a notice takes in memory.
pub(super) fn bytes_of(occasion: &Occasion) -> usize {
    let Occasion { uid, key, namespace, run, requester, audience, added, .. } = occasion;
    let Occasion { approval, gate, then, outcome, details, .. } = occasion;
    let names = [uid, key, namespace, run, requester].map(String::len);
    let further = [approval, gate, then, outcome, details].map(|text| text.as_ref().map_or(0, String::len));
    let bytes_of_subject = |subject: &Subject| {
        let namespace = subject.namespace.as_ref().map_or(0, String::len);
        size_of::<Subject>() + subject.name.len() + namespace
    };
    let people: usize = audience.iter().map(bytes_of_subject).sum();
    let channels: usize = added.iter().map(String::len).sum();
    size_of::<Occasion>() + names.iter().chain(&further).sum::<usize>() + people + channels
}

fn voids_votes(approval: &Approval) -> bool {
    let outcome = approval.status.as_ref().and_then(|status| status.outcome.as_ref());
    outcome.is_some_and(|outcome| outcome.voids_votes())
}

/// Returns the person for whom a run was requested.
fn requester(requested_for: Option<&String>, requested_by: &str) -> String {
    requested_for.map_or(requested_by, String::as_str).to_owned()
}

/// Returns the audience of an event of a gate: the approvers, the requester, or the voters.
fn audience_of(event: NoticeEvent, approval: &Approval) -> Vec<Subject> {
    let request = &approval.spec.request;
    let further = request.quorums.iter().skip(1).flat_map(|quorum| &quorum.approvers);
    let approvers = approval.approvers().iter().chain(further);
    let asker = Subject::user(&requester(request.requested_for.as_ref(), &request.requested_by));
    let can_decide = |subject: &&Subject| {
        let is_requester = request.bars_requester() && request.requesters().any(|name| subject.means(name, &[]));
        !is_requester && !request.excluded.iter().any(|name| subject.means(name, &[]))
    };
    let first = request.quorums.first().map(|quorum| quorum.approvers.as_slice()).unwrap_or_default();
    match event {
        NoticeEvent::Asked | NoticeEvent::Reminded => approvers.filter(can_decide).cloned().collect(),
        NoticeEvent::Escalated => {
            let is_new = |subject: &&Subject| !first.contains(*subject);
            approval.approvers().iter().filter(is_new).filter(can_decide).cloned().collect()
        }
        NoticeEvent::Taken => approvers.cloned().chain([asker]).collect(),
        NoticeEvent::VoteVoided => voters(approval).into_iter().map(Subject::user).collect(),
        NoticeEvent::Ended => vec![asker],
    }
}

/// Returns the voters, including those whose votes were not counted yet.
fn voters(approval: &Approval) -> BTreeSet<&str> {
    let votes = approval.status.iter().flat_map(|status| &status.votes);
    let counted = votes.map(|vote| vote.user.as_str());
    let sent = approval.spec.decisions.keys().map(|key| key.split(" via ").next().unwrap_or(key));
    counted.chain(sent).collect()
}

/// Returns the prompt and the reviewed text, marked if it was cut.
fn render_details(approval: &Approval) -> String {
    let request = &approval.spec.request;
    let sent = request.sends.as_ref().map(|sent| sent.text.as_str());
    let shown = sent.or_else(|| request.reviews.as_ref().map(|review| review.response.as_str()));
    let whole = match shown {
        Some(shown) => format!("{}\n\n{shown}", request.prompt),
        None => request.prompt.clone(),
    };
    let shown = text::display(&whole, MAX_DETAILS);
    if shown == text::display(&whole, usize::MAX) { shown } else { format!("{shown}{CUT}") }
}

/// Returns the consequence of the deadline in words.
fn consequence(action: TimeoutAction) -> &'static str {
    match action {
        TimeoutAction::Reject => "it is rejected",
        TimeoutAction::Approve => "it is approved without a decision",
        TimeoutAction::Retry => "it is asked again",
        TimeoutAction::Escalate => "more people may decide; without more people it is rejected",
        TimeoutAction::Abort => "the whole run is aborted",
        TimeoutAction::Skip => "it is skipped, and the run goes on",
        TimeoutAction::Default => "the default answer is given",
        TimeoutAction::Expire => "it stays open for Retry, Reject and Abort only",
    }
}

/// Returns the outcome of a gate in words.
fn gate_outcome(phase: ApprovalPhase) -> &'static str {
    match phase {
        ApprovalPhase::Pending | ApprovalPhase::Overdue => "still open",
        ApprovalPhase::Approved => "approved",
        ApprovalPhase::Rejected => "rejected",
        ApprovalPhase::Modified => "approved with changes",
        ApprovalPhase::Responded => "answered",
        ApprovalPhase::Deferred => "deferred",
        ApprovalPhase::Skipped => "skipped",
        ApprovalPhase::Aborted => "aborted",
        ApprovalPhase::Retried => "retried",
        ApprovalPhase::Expired => "the deadline passed",
        ApprovalPhase::Cancelled => "cancelled with its run",
        ApprovalPhase::Superseded => "its votes are void, and it is asked again",
    }
}

/// Returns the end of a run in words.
fn run_outcome(phase: WorkflowPhase) -> &'static str {
    match phase {
        WorkflowPhase::Pending | WorkflowPhase::Running | WorkflowPhase::Waiting | WorkflowPhase::Suspended => {
            "not ended"
        }
        WorkflowPhase::Succeeded => "succeeded",
        WorkflowPhase::Failed => "failed",
        WorkflowPhase::Rejected => "rejected",
        WorkflowPhase::Aborted => "aborted",
        WorkflowPhase::Cancelled => "cancelled",
    }
}
