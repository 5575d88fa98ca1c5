//! The time of an Approval: deadlines, escalation, reminders.
//!
//! Only this module compares a deadline with the time; the transition of a run does not.

use std::time::Duration;

use signoff_api::{
    EventReason, Moment, Outcome, Span, Verdict,
    approval::{ApprovalPhase, Source},
    conditions::{self, ConditionUpdate, reason},
    gate::{Subject, TimeoutAction},
    occurrence::GateEvent,
    verdict,
};
use signoff_expr::text;

use super::{
    tally::{MAX_LEVEL, Tally, VoteFilter},
    votes::Ballot,
};
use crate::gate::payload;

/// The reason of an outcome after its deadline, if no decision before it was impossible for another reason.
pub const DEADLINE_PASSED: &str = "the deadline passed";

/// The delay after which a created request counts as late.
const LATE: Duration = Duration::from_secs(5);
/// The maximum number of approvers in a status.
const MAX_APPROVERS: usize = 64;
/// The default of `timeout.maxReminders`.
const DEFAULT_REMINDERS: i32 = 3;
/// The reason of an Approval that is superseded because it was created late.
pub(super) const ASKED_LATE: &str =
    "people were asked after the time of this request had begun: the gate is asked again, with its whole time";
/// The reason of an Approval that is superseded because the operator could not read its decisions in time.
const OUT_OF_REACH: &str = "the operator could not reach the API server for more than half of the time of this request: the gate is asked again, with its whole time";

impl Tally<'_> {
    /// Returns the current deadline.
    pub(super) fn deadline(&self) -> Moment {
        self.status.deadline.unwrap_or(self.request.deadline)
    }

    fn action(&self) -> TimeoutAction {
        self.request.timeout.action.unwrap_or_default()
    }

    fn level(&self) -> i32 {
        self.status.level.unwrap_or(0)
    }

    /// Applies the timeout action after the deadline. The gate asks again instead if the Approval was created late, or
    /// if the operator could not read decisions in time.
    pub(super) fn on_deadline(&mut self) {
        self.due = Some(self.deadline());
        if self.was_asked_late() {
            return self.ask_again(ASKED_LATE);
        }
        let can_continue =
            matches!(self.action(), TimeoutAction::Approve | TimeoutAction::Default | TimeoutAction::Skip);
        if can_continue && self.was_out_of_reach() {
            return self.ask_again(OUT_OF_REACH);
        }
        self.apply_timeout(self.action(), DEADLINE_PASSED);
    }

    /// Whether the Approval was created more than [`LATE`] after its time had begun, or not before its deadline.
    pub(super) fn was_asked_late(&self) -> bool {
        let created = self.approval.metadata.creation_timestamp.as_ref().map(|at| Moment::from(at.0));
        let (Some(created), Some(after)) = (created, self.request.timeout.after.map(Span::duration)) else {
            return false;
        };
        let lost = created.after(after).since(self.request.deadline);
        self.level() == 0 && (lost > LATE || lost >= after)
    }

    /// Whether the operator could not read decisions for more than half of the time that people had for a decision.
    fn was_out_of_reach(&self) -> bool {
        let (timeout, deadline) = (self.request.timeout_of_level(self.level()), self.deadline());
        let lost = |(from, to): &(Moment, Moment)| {
            // Only the part within the time of this level counts.
            let before_deadline = deadline.since(*from).min(timeout);
            before_deadline.saturating_sub(deadline.since(*to))
        };
        self.now.outages.iter().map(lost).sum::<Duration>() > timeout / 2
    }

    /// Ends this request without a decision: the gate asks again, with its whole timeout.
    pub(super) fn ask_again(&mut self, why: &str) {
        let outcome = Outcome { reason: Some(why.to_owned()), ..Outcome::default() };
        self.end(ApprovalPhase::Superseded, Source::Policy, outcome);
    }

    /// Applies the timeout action, because the deadline has passed or no quorum can be reached any more.
    fn apply_timeout(&mut self, action: TimeoutAction, why: &str) {
        match action {
            TimeoutAction::Escalate => {
                let next = usize::try_from(self.level()).ok().and_then(|at| self.request.timeout.escalation.get(at));
                match next.map(|level| level.to.clone()) {
                    Some(to) if self.level() < MAX_LEVEL => self.escalate(&to, self.deadline_of_next_level(), why),
                    _ => self.expire(Verdict::Reject, &format!("{why}, and there are no further approvers")),
                }
            }
            TimeoutAction::Expire => {
                self.status.phase = ApprovalPhase::Overdue;
                self.report(
                    EventReason::Overdue,
                    format!("{why}: only {} are accepted now", verdict::in_words(&Verdict::WHEN_OVERDUE)),
                    "overdue".into(),
                );
            }
            ends => self.expire(ends.verdict(), why),
        }
    }

    /// Ends the Approval with the verdict of its timeout. A Respond without a valid default answer becomes a Reject.
    fn expire(&mut self, verdict: Verdict, why: &str) {
        let mut outcome = Outcome { verdict: Some(verdict), reason: Some(why.to_owned()), ..Outcome::default() };
        if verdict == Verdict::Respond && *self.filter == VoteFilter::Nothing {
            outcome.verdict = Some(Verdict::Reject);
            outcome.reason = Some(format!("{why}, and checking the default answer took too much CPU time"));
        } else if verdict == Verdict::Respond {
            match payload::default_answers(self.request.form.as_ref(), self.request.timeout.default.as_deref()) {
                Ok(answers) => {
                    outcome.response = Some(payload::as_text(self.request.form.as_ref(), &answers));
                    outcome.answers = Some(answers);
                }
                Err(problem) => {
                    outcome.verdict = Some(Verdict::Reject);
                    outcome.reason = Some(format!("{why}, and the default answer does not fit: {problem}"));
                }
            }
        }
        self.end(ApprovalPhase::Expired, Source::Timeout, outcome);
    }

    /// Adds approvers after an Escalate by people: the approvers that the ballots name, or else those of the next
    /// level. Reports an Event if no further approvers are left.
    pub(super) fn escalate_on_request(&mut self, ballots: &[&Ballot]) {
        let users: Vec<_> = ballots.iter().map(|b| text::display(&b.user, 80)).collect();
        let mut to: Vec<Subject> = Vec::new();
        for ballot in ballots {
            let named = if ballot.escalate_to.is_empty() { self.next_level() } else { ballot.escalate_to.clone() };
            to.extend(named);
        }
        to.retain(|subject| self.request.escalate_to.contains(subject) || self.next_level().contains(subject));
        if self.level() < MAX_LEVEL && !to.is_empty() {
            // The deadline never becomes earlier. It becomes later at most up to the maximum timeout of a gate.
            let created = self.approval.metadata.creation_timestamp.as_ref().map_or(self.now.at, |at| at.0.into());
            let latest = created.after(self.now.max_gate_timeout).ceil_to_second();
            let deadline = self.deadline_of_next_level().min(latest).max(self.deadline());
            self.escalate(&to, deadline, &format!("Escalate by {}", users.join(", ")));
        } else {
            let key = format!("escalate-nobody-{}", self.status.votes.len());
            self.report(
                EventReason::EscalationExhausted,
                format!("Escalate by {}: there are no further approvers", users.join(", ")),
                key,
            );
        }
    }

    fn next_level(&self) -> Vec<Subject> {
        let at = usize::try_from(self.level()).unwrap_or(usize::MAX);
        match self.request.timeout.escalation.get(at) {
            Some(level) => level.to.clone(),
            None => self.request.escalate_to.clone(),
        }
    }

    fn deadline_of_next_level(&self) -> Moment {
        self.now.at.after(self.request.timeout_of_level(self.level() + 1)).ceil_to_second()
    }

    /// Adds approvers with a new deadline, and removes the condition `Undecidable`. Quorum, exclusions and earlier
    /// votes stay.
    fn escalate(&mut self, to: &[Subject], deadline: Moment, why: &str) {
        let own = self.request.quorums.first().map(|quorum| quorum.approvers.clone()).unwrap_or_default();
        let mut approvers = if self.status.approvers.is_empty() { own } else { self.status.approvers.clone() };
        for subject in to {
            if !approvers.contains(subject) && approvers.len() < MAX_APPROVERS {
                approvers.push(subject.clone());
            }
        }
        let level = self.level() + 1;
        let has_next_level = usize::try_from(level).is_ok_and(|at| at < self.request.timeout.escalation.len());
        let closes = match self.action() {
            TimeoutAction::Escalate => !has_next_level || level >= MAX_LEVEL,
            other => other.ends(),
        };
        self.status.approvers = approvers;
        self.status.level = Some(level);
        self.status.level_at = Some(self.now.at);
        self.status.deadline = Some(deadline);
        self.status.closes_at = closes.then_some(deadline);
        self.status.reminders = None;
        // The new approvers can decide.
        conditions::remove(&mut self.status.conditions, conditions::UNDECIDABLE);
        let names: Vec<_> = to.iter().map(|s| text::display(&s.to_string(), 80)).collect();
        let message = format!("{why}: {} may decide too, until {deadline}", names.join(", "));
        self.report_gate(GateEvent::Escalated, message);
    }

    /// Sets the condition `Undecidable`, and applies the timeout action before the deadline, because no verdict can
    /// reach its quorum any more. An action that would let the run continue becomes a Reject.
    pub(super) fn on_undecidable(&mut self, why: &str) {
        let condition = ConditionUpdate {
            kind: conditions::UNDECIDABLE,
            holds: true,
            reason: reason::QUORUM_OUT_OF_REACH,
            message: why,
        };
        conditions::set(&mut self.status.conditions, &condition, self.approval.metadata.generation, self.now.at);
        let action = match self.action() {
            action @ (TimeoutAction::Escalate
            | TimeoutAction::Reject
            | TimeoutAction::Abort
            | TimeoutAction::Expire) => action,
            _ => TimeoutAction::Reject,
        };
        self.apply_timeout(action, &format!("no verdict can reach its quorum any more: {why}"));
    }

    /// Returns the number of due reminders, and the time of the next one.
    fn due_reminders(&self) -> (i32, Option<Moment>) {
        let timeout = &self.request.timeout;
        let Some(every) = timeout.reminder_interval.map(Span::duration).filter(|every| !every.is_zero()) else {
            return (0, None);
        };
        let most = timeout.max_reminders.unwrap_or(DEFAULT_REMINDERS);
        let passed = self.now.at.since(self.request.level_began(&self.status));
        let due = i32::try_from(passed.as_millis() / every.as_millis().max(1)).unwrap_or(i32::MAX).min(most);
        let next = self.request.reminder_at(&self.status, due.saturating_add(1));
        (due, next.filter(|next| due < most && *next < self.deadline()))
    }

    /// Reports a reminder if more reminders are due than the status counts.
    pub(super) fn remind(&mut self) {
        let (due, _) = self.due_reminders();
        if due > self.status.reminders.unwrap_or(0) && self.status.phase == ApprovalPhase::Pending {
            self.status.reminders = Some(due);
            let message = format!("still waiting for a decision until {}", self.deadline());
            self.report_gate(GateEvent::Reminded, message);
        }
    }

    /// Returns the time at which to reconcile again without an event.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        let vote_passes = self.oldest_vote_expiry();
        if self.status.phase == ApprovalPhase::Overdue {
            return vote_passes;
        }
        let (_, reminder) = self.due_reminders();
        [Some(self.deadline()), reminder, vote_passes].into_iter().flatten().min()
    }
}
