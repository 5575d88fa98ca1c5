//! The tally: the result of an Approval's request and its decisions at one moment.
//!
//! Pure. Only this module and `quorum` count votes. All present votes are evaluated together, by priority and not by
//! order: Abort, Reject, Escalate, Defer, then the verdicts that need a quorum. User names are used as they are,
//! because the API server has verified every key.

use std::collections::{BTreeMap, BTreeSet};

use signoff_api::{
    Approval, ApprovalRequest, ApprovalStatus, EventReason, Moment, Outcome, Verdict,
    approval::{ApprovalPhase, Source, TallyStatus},
    conditions::{self, ConditionUpdate},
    occurrence::GateEvent,
};
use signoff_expr::text;

use super::{
    deadline::ASKED_LATE,
    quorum::{QuorumProgress, Quorums},
    votes::{self, Ballot},
};
use crate::{gate::payload, transition::Now};

/// The state of the run that owns an Approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// The run waits.
    Live,
    /// The run has ended, is being deleted, or is being canceled.
    Finished,
    /// The run does not exist, or another Workflow has its name.
    Missing,
}

/// The result of a tally.
#[derive(Clone, Debug, PartialEq)]
pub struct TallyResult {
    /// The status to be written, or the stored status if `changed` is false.
    pub status: ApprovalStatus,
    /// Whether the status differs from the stored one. `status.seq` is then increased by one.
    pub changed: bool,
    /// The time at which to reconcile again without an event.
    pub wake_at: Option<Moment>,
    /// The passed deadline that decided, or `None`. The caller compares this deadline with the time of the API server
    /// before writing the status.
    pub due: Option<Moment>,
    /// The Events to be reported.
    pub events: Vec<ApprovalEvent>,
}

/// An Event to be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalEvent {
    /// The reason of the Event.
    pub reason: EventReason,
    /// The message of the Event, one sentence for people.
    pub message: String,
    /// A key that is equal for every report of the same event, so that a repeated Event is recognized.
    pub key: String,
    /// The typed event, or `None` for an Event about a single vote.
    pub gate: Option<GateEvent>,
}

/// The maximum number of escalations, by people or by timeouts.
pub(super) const MAX_LEVEL: i32 = 8;

/// The decisions that a tally evaluates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VoteFilter {
    /// All decisions but the costly ones, by key. A costly decision is invalid for the reason that is its value.
    AllBut(BTreeMap<String, String>),
    /// No decisions. Only deadlines and the end of the run count.
    Nothing,
}

/// Counts the votes of an Approval, and evaluates its deadline.
#[must_use]
pub fn tally(approval: &Approval, owner: OwnerState, now: &Now) -> TallyResult {
    tally_filtered(approval, owner, now, &VoteFilter::AllBut(BTreeMap::new()))
}

/// Like [`tally`], and evaluates only the decisions that `filter` admits.
#[must_use]
pub fn tally_filtered(approval: &Approval, owner: OwnerState, now: &Now, filter: &VoteFilter) -> TallyResult {
    let before = approval.status.clone().unwrap_or_default();
    if before.phase.is_end() || before.outcome.is_some() {
        return TallyResult { status: before, changed: false, wake_at: None, due: None, events: Vec::new() };
    }
    let request = &approval.spec.request;
    // Without a quorum no vote counts, and no timeout decides for people. The Approval ends with its run.
    if request.quorums.is_empty() && owner == OwnerState::Live {
        return TallyResult { status: before, changed: false, wake_at: None, due: None, events: Vec::new() };
    }
    let mut tally = Tally { approval, request, now, status: before.clone(), due: None, events: Vec::new(), filter };
    tally.status.observed_generation = approval.metadata.generation;
    match owner {
        OwnerState::Live if is_undecided_first_visit(approval, &before) && tally.was_asked_late() => {
            tally.ask_again(ASKED_LATE)
        }
        OwnerState::Live if tally.enter_current_epoch() => match filter {
            VoteFilter::AllBut(costly) => tally.evaluate_votes(costly),
            VoteFilter::Nothing => tally.evaluate_deadline(),
        },
        OwnerState::Live => tally.supersede(),
        OwnerState::Finished => tally.cancel("its Workflow has ended"),
        OwnerState::Missing => tally.cancel("its Workflow was deleted"),
    }
    let wake_at = if tally.status.outcome.is_some() { None } else { tally.next_wake() };
    let Tally { mut status, due, events, .. } = tally;
    // A tally without a change writes nothing. A new generation alone is not a change.
    let has_changed = ApprovalStatus { observed_generation: before.observed_generation, ..status.clone() } != before;
    if !has_changed {
        return TallyResult { status: before, changed: false, wake_at, due: None, events: Vec::new() };
    }
    status.seq = before.seq + 1;
    TallyResult { status, changed: true, wake_at, due, events }
}

/// Whether an Approval is the first request of its gate and has no decision. Only then a late creation makes the gate
/// ask again at once. A later request waits for its deadline, so that a gate whose requests are always late, as behind
/// a slow webhook, can be decided.
fn is_undecided_first_visit(approval: &Approval, status: &ApprovalStatus) -> bool {
    let has_decision = !(approval.spec.decisions.is_empty() && status.votes.is_empty() && status.invalid.is_empty());
    approval.spec.request.gate.visit <= 1 && !has_decision
}

/// A tally in progress.
pub(super) struct Tally<'a> {
    pub(super) approval: &'a Approval,
    pub(super) request: &'a ApprovalRequest,
    pub(super) now: &'a Now,
    pub(super) status: ApprovalStatus,
    /// The passed deadline that decided, or `None`.
    pub(super) due: Option<Moment>,
    events: Vec<ApprovalEvent>,
    pub(super) filter: &'a VoteFilter,
}

impl Tally<'_> {
    /// Evaluates the deadline only.
    fn evaluate_deadline(&mut self) {
        if self.status.phase == ApprovalPhase::Pending && self.now.at >= self.deadline() {
            return self.on_deadline();
        }
        self.remind();
    }

    /// Records the votes and the progress of the first quorum, and applies the first verdict that holds, in the order
    /// of the module doc. Without a verdict it compares the deadline with the time.
    fn evaluate_votes(&mut self, costly: &BTreeMap<String, String>) {
        let ballots = self.record_votes(costly);
        let escalated = self.status.approvers.clone();
        let quorums = Quorums::of(self.request, &escalated);
        let persons = quorums.ballots_of_persons(&ballots);
        let first = |verdict: Verdict| persons.iter().find(|b| b.verdict == verdict).copied();

        let QuorumProgress { have, needed, .. } =
            quorums.progress_of_each(&persons).into_iter().next().unwrap_or_default();
        let tally = TallyStatus { needed, have };
        self.status.tally = (have > 0 || self.status.tally.is_some()).then_some(tally);
        self.status.have = have;

        if let Some(ballot) = first(Verdict::Abort) {
            return self.decide(&[ballot]);
        }
        let in_time: Vec<_> = persons.iter().filter(|ballot| !self.is_too_old(ballot)).copied().collect();
        if let Some(deciders) = quorums.rejection(&in_time) {
            return self.decide(&deciders);
        }
        let escalates: Vec<_> =
            persons.iter().filter(|b| b.verdict == Verdict::Escalate && b.is_new).copied().collect();
        if !escalates.is_empty() {
            return self.escalate_on_request(&escalates);
        }
        if let Some(ballot) = first(Verdict::Defer) {
            return self.decide(&[ballot]);
        }
        if let Some(passed) = self.oldest_vote_expiry().filter(|passed| *passed <= self.latest_vote()) {
            return self.void_old_votes(passed);
        }
        if let Some(deciders) = quorums.agreement(&persons) {
            return self.decide(&deciders);
        }
        if self.status.phase == ApprovalPhase::Pending && self.now.at >= self.deadline() {
            return self.on_deadline();
        }
        if let Some(why) = quorums.unreachable_reason(&persons, self.request, self.status.phase) {
            return self.on_undecidable(&why);
        }
        self.remind();
    }

    /// Records new decisions: valid ones as votes, the others as invalid with an Event. Returns all valid decisions.
    fn record_votes(&mut self, costly: &BTreeMap<String, String>) -> Vec<Ballot> {
        let (ballots, invalid) = votes::read(self.approval, &self.status, costly);
        for (key, problem) in invalid {
            let message = format!("{}: {}", text::display(&key, 120), problem.why);
            self.report(EventReason::InvalidDecision, message, format!("invalid-{key}-{}", problem.attempt));
            self.status.invalid.insert(key, problem);
        }
        for ballot in ballots.iter().filter(|b| b.is_new) {
            self.status.invalid.remove(&ballot.key);
            self.status.votes.push(ballot.vote(self.now));
        }
        ballots
    }

    /// Ends the Approval with the verdict of people. All `deciders` have the same verdict and payload.
    fn decide(&mut self, deciders: &[&Ballot]) {
        let Some(first) = deciders.first() else { return };
        let payload = first.payload.clone();
        let accounts: BTreeSet<_> = deciders.iter().filter_map(|ballot| ballot.account()).collect();
        let outcome = Outcome {
            verdict: Some(first.verdict),
            response: payload.answers.as_ref().map(|a| payload::as_text(self.request.form.as_ref(), a)),
            answers: payload.answers,
            parameters: payload.parameters,
            guidance: payload.guidance,
            reason: deciders.iter().find_map(|b| b.reason.clone()),
            decided_by: deciders.iter().map(|b| b.user.clone()).collect(),
            via: accounts.into_iter().map(str::to_owned).collect(),
            ..Outcome::default()
        };
        self.end(ApprovalPhase::of(first.verdict), Source::Human, outcome);
    }

    fn cancel(&mut self, why: &str) {
        self.end(ApprovalPhase::Cancelled, Source::Policy, Outcome { reason: Some(why.into()), ..Outcome::default() });
    }

    /// Ends the Approval: sets its phase, outcome and condition `Decided`, and reports the event.
    pub(super) fn end(&mut self, phase: ApprovalPhase, source: Source, outcome: Outcome) {
        let message = outcome_message(phase, &outcome);
        self.status.phase = phase;
        self.status.decided_by = text::listed(&outcome.decided_by, 80);
        let condition =
            ConditionUpdate { kind: conditions::DECIDED, holds: true, reason: phase.name(), message: &message };
        conditions::set(&mut self.status.conditions, &condition, self.approval.metadata.generation, self.now.at);
        self.status.outcome = Some(Outcome { phase, source, decided_at: Some(self.now.at), ..outcome });
        if let Some(event) = GateEvent::of_end(phase) {
            self.report_gate(event, message);
        }
    }

    pub(super) fn report(&mut self, reason: EventReason, message: String, key: String) {
        self.events.push(ApprovalEvent { reason, message, key, gate: None });
    }

    /// Reports an event of the gate that the status already contains.
    pub(super) fn report_gate(&mut self, event: GateEvent, message: String) {
        let Some(reason) = event.reason() else { return };
        let key = event.key(&self.status);
        self.events.push(ApprovalEvent { reason, message, key, gate: Some(event) });
    }
}

/// Returns one sentence about the end of an Approval.
fn outcome_message(phase: ApprovalPhase, outcome: &Outcome) -> String {
    let who: Vec<_> = outcome.decided_by.iter().map(|user| text::display(user, 80)).collect();
    let why = outcome.reason.as_ref().map(|r| format!(": {}", text::display(r, 400))).unwrap_or_default();
    match (phase, outcome.verdict) {
        (ApprovalPhase::Expired, Some(verdict)) => {
            format!("no decision before the deadline: this amounts to {verdict}{why}")
        }
        (_, Some(verdict)) => format!("{verdict} by {}{why}", who.join(", ")),
        (phase, None) => format!("{}{why}", phase.name()),
    }
}
