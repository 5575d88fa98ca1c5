//! Refusals in words about the gate: the user has decided already, the gate is closed, or it does not take the verdict.
//!
//! The API server refuses the same decisions. Any other refusal keeps the message of the admission policy.

use serde_json::Value;
use signoff_api::{
    Approval, ApprovalRequest, Code, Decision, Moment, Verdict, approval::ApprovalPhase, gate::TimeoutAction,
};
use signoff_engine::approval::eligibility::{
    IneligibleReason, Voter, allowed_verdicts, closed, ineligible, voter_problem,
};

use crate::{
    clock::distance,
    outcome::done,
    quorum::{possible, subjects},
    request::counts_as,
    seen::Seen,
    text::one_line,
    voter::Me,
};

/// The reason why a decision is refused. Its text is a sentence without a full stop, so that the caller can add a
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The gate is closed.
    Closed {
        /// The sentence about the end of the gate.
        why: String,
        /// Whether another Approval asks the same again. The caller can look for it.
        is_superseded: bool,
    },
    /// The same person has decided already. The text has the time.
    Decided(String),
    /// The gate does not take the verdict. The text has the verdicts that it takes.
    Verdict(String),
    /// The gate requires a reason with a letter or a digit.
    NoReason,
    /// An Escalate names subjects, and the gate has none that can be named.
    NoTargets {
        /// Whether an Escalate without names would ask the next level.
        has_level: bool,
    },
}

impl Refusal {
    /// Returns the code of the refusal.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Closed { is_superseded: true, .. } => Code::SUPERSEDED,
            Self::Closed { is_superseded: false, .. } => Code::TOO_LATE,
            Self::Decided(_) => Code::FINAL,
            Self::Verdict(_) => Code::VERDICT,
            Self::NoReason => Code::NO_REASON,
            Self::NoTargets { .. } => Code::ESCALATE_TO,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Closed { why, .. } | Self::Decided(why) | Self::Verdict(why) => why,
            Self::NoReason => "this gate requires a reason with at least one letter or digit",
            Self::NoTargets { has_level: true } => {
                "this gate has no subjects to be named (escalateTo is empty): leave the names out, to ask its next level"
            }
            Self::NoTargets { has_level: false } => {
                "this gate has no approvers to escalate to (escalateTo): give another verdict"
            }
        })
    }
}

/// Returns the reason why a decision is refused, in words about the gate. Returns `None` if the decision is not
/// refused, or if the message of the admission policy explains it best, such as a missing right of the voter. Of the
/// decision, only the verdict, the reason, the named subjects and the person on whose behalf it is sent are used.
pub fn explain(seen: &Seen, me: &Me, decision: &Decision, now: Moment) -> Option<Refusal> {
    let approval = &seen.approval;
    if let Some(why) = closed_gate(approval, now) {
        let is_superseded = approval.status.as_ref().is_some_and(|status| status.phase == ApprovalPhase::Superseded);
        return Some(Refusal::Closed { why, is_superseded });
    }
    let on_behalf_of = decision.on_behalf_of.as_deref();
    if let Some(why) = second_vote(seen, on_behalf_of, me, now) {
        return Some(Refusal::Decided(why));
    }
    if voter_problem(approval, &me.voter_for(on_behalf_of)).is_some() {
        return None;
    }
    if let Some(why) = open_gate(approval, decision.verdict, now) {
        return Some(Refusal::Verdict(why));
    }
    if is_reason_missing(approval, decision.reason.as_deref()) {
        return Some(Refusal::NoReason);
    }
    missing_targets(approval, decision)
}

/// Whether the gate requires a reason, and `reason` has no letter and no digit.
pub fn is_reason_missing(approval: &Approval, reason: Option<&str>) -> bool {
    let reason = reason.unwrap_or_default();
    approval.spec.request.require_reason == Some(true) && !reason.chars().any(char::is_alphanumeric)
}

/// Returns the refusal of an Escalate that names subjects at a gate without subjects to name, or `None`.
fn missing_targets(approval: &Approval, decision: &Decision) -> Option<Refusal> {
    let request = &approval.spec.request;
    if decision.escalate_to.is_empty() || !request.escalate_to.is_empty() {
        return None;
    }
    let level = approval.status.as_ref().and_then(|status| status.level).unwrap_or(0);
    let next = usize::try_from(level).ok().and_then(|level| request.timeout.escalation.get(level));
    Some(Refusal::NoTargets { has_level: next.is_some() })
}

/// Returns the sentence about the end of a gate, or `None` while it is open.
pub fn closed_gate(approval: &Approval, now: Moment) -> Option<String> {
    let status = approval.status.clone().unwrap_or_default();
    let Some(outcome) = &status.outcome else {
        return match closed(approval, now)? {
            IneligibleReason::Closed(at) => Some(format!(
                "too late: the deadline passed {} ({at}), and then {}",
                distance(at, now),
                timeout_effect(&approval.spec.request)
            )),
            _ => None,
        };
    };
    let when = outcome.decided_at.map(|at| format!(" {}", distance(at, now))).unwrap_or_default();
    let reason = outcome.reason.as_ref().map(|reason| format!(": {}", one_line(reason, 1024))).unwrap_or_default();
    let verdict = outcome.verdict.map_or("no verdict", Verdict::name);
    Some(match outcome.phase {
        ApprovalPhase::Superseded => format!("too late: this gate was superseded{when}{reason}"),
        ApprovalPhase::Cancelled => format!("too late: this gate was cancelled{when}{reason}"),
        ApprovalPhase::Expired => {
            let verdict = outcome.verdict.map(|verdict| counts_as(verdict, Some(&approval.spec.request)));
            let verdict = verdict.as_deref().unwrap_or("no verdict");
            format!("too late: this gate timed out{when} without a decision, which amounts to {verdict}{reason}")
        }
        _ if outcome.decided_by.is_empty() => {
            format!("too late: this gate was decided{when}: {verdict} by {}{reason}", outcome.source.name())
        }
        _ => {
            let who = one_line(&outcome.decided_by.join(", "), 600);
            format!("too late: this gate was decided{when}: {verdict} by {who}")
        }
    })
}

fn timeout_effect(request: &ApprovalRequest) -> String {
    match request.timeout.action.unwrap_or_default() {
        TimeoutAction::Escalate => "more people are asked, or it counts as rejected".to_owned(),
        TimeoutAction::Expire => "only Retry, Reject and Abort are accepted".to_owned(),
        ends => format!("it counts as {}", counts_as(ends.verdict(), Some(request))),
    }
}

/// Returns the approvers of an open gate that does not ask this user, such as `alice, group finance may decide it`.
/// Returns `None` if the user can decide, if the gate is closed, or if the same person has decided.
pub fn who_may(approval: &Approval, voter: &Voter<'_>, now: Moment) -> Option<String> {
    let asks_others = match ineligible(approval, voter, now)? {
        IneligibleReason::Ended(_)
        | IneligibleReason::Deleting
        | IneligibleReason::Closed(_)
        | IneligibleReason::NoQuorum
        | IneligibleReason::Via(_)
        | IneligibleReason::OnBehalfOfSelf(_)
        | IneligibleReason::Decided(..)
        | IneligibleReason::DecidedFor(..) => false,
        IneligibleReason::NoPerson(_)
        | IneligibleReason::TwoPersons(_)
        | IneligibleReason::Requester(_)
        | IneligibleReason::Excluded(..)
        | IneligibleReason::RequesterOf(..)
        | IneligibleReason::NotListed(_)
        | IneligibleReason::NotListedByName(_) => true,
    };
    asks_others.then(|| format!("{} may decide it", subjects(&possible(approval))))
}

/// Returns the sentence about an earlier decision of the same person, or `None`.
fn second_vote(seen: &Seen, on_behalf_of: Option<&str>, me: &Me, now: Moment) -> Option<String> {
    let voter = me.voter_for(on_behalf_of);
    let Some(IneligibleReason::Decided(user, verdict)) = voter_problem(&seen.approval, &voter) else { return None };
    let key = if seen.approval.spec.decisions.contains_key(&voter.key()) { voter.key() } else { user.clone() };
    let who = if user == me.user { "you".to_owned() } else { one_line(&user, 253) };
    Some(format!("{who} {}{}; a decision is final", done(verdict), when(seen, &key, now)))
}

/// Returns the age of a recorded decision, such as ` 10s ago`; empty if it was not recorded with a time.
pub fn when(seen: &Seen, key: &str, now: Moment) -> String {
    let votes = seen.approval.status.as_ref().map(|status| status.votes.as_slice()).unwrap_or_default();
    let counted = votes.iter().find(|vote| vote.key == key).map(|vote| vote.at);
    counted.or_else(|| recorded_at(seen, key)).map(|at| format!(" {}", distance(at, now))).unwrap_or_default()
}

/// Returns the time at which the API server recorded a decision, by the managed fields of the Approval.
fn recorded_at(seen: &Seen, key: &str) -> Option<Moment> {
    let owners = seen.raw.pointer("/metadata/managedFields").and_then(Value::as_array)?;
    let owns = |owner: &&Value| !owner["fieldsV1"]["f:spec"]["f:decisions"][format!("f:{key}")].is_null();
    let time = owners.iter().filter(owns).filter_map(|owner| owner["time"].as_str()).max()?;
    time.parse::<jiff::Timestamp>().ok().map(Moment::from)
}

/// Returns the reason why an open gate does not take a verdict, or `None`.
pub fn open_gate(approval: &Approval, verdict: Verdict, now: Moment) -> Option<String> {
    let status = approval.status.clone().unwrap_or_default();
    let allowed = allowed_verdicts(&approval.spec.request, &status);
    if allowed.contains(&verdict) {
        return None;
    }
    let names: Vec<_> = allowed.iter().copied().map(Verdict::name).collect();
    let names = names.join(", ");
    Some(match status.phase {
        ApprovalPhase::Overdue => format!(
            "this gate is overdue (the deadline passed {}), so it does not take {verdict}, only {names}",
            distance(approval.deadline(), now),
        ),
        _ => format!("this gate does not take {verdict}, only {names}"),
    })
}

#[cfg(test)]
#[path = "refusal/tests.rs"]
mod tests;
