//! Words about the decisions so far: each decision, the outcome, and whether the reader can decide.
//!
//! **Invariant:** no vote is counted here; every count is read from the status.

use serde_json::Value;
use signoff_api::{Approval, ApprovalStatus, Decision, Moment, Outcome, Verdict};
use signoff_engine::{
    approval::{
        eligibility::{IneligibleReason, Voter, counted_as, ineligible},
        progress,
    },
    gate::parameters,
};

use crate::{
    action::is_question,
    clock::distance,
    outcome::done,
    quorum::{agreement, possible, subjects},
    text::one_line,
    voter::Me,
};

/// Returns the state of a recorded decision: `recorded`, `counted 5m ago` or `invalid: …`.
pub fn state(key: &str, decision: &Decision, status: &ApprovalStatus, now: Moment) -> String {
    if let Some(invalid) = status.invalid.get(key).filter(|invalid| invalid.attempt == decision.attempt()) {
        format!("invalid: {}", one_line(&invalid.why, 120))
    } else if let Some(vote) = status.votes.iter().find(|vote| vote.key == *key) {
        format!("counted {}", distance(vote.at, now))
    } else {
        "recorded".to_owned()
    }
}

/// Returns the reason and the payload of a decision as its author wrote them. Callers shorten the text to one line, or
/// fence it.
pub fn said(decision: &Decision) -> String {
    let mut words = Vec::new();
    words.extend(decision.reason.clone());
    words.extend(decision.response.as_ref().map(|text| format!("response: {text}")));
    words.extend(
        decision
            .answers
            .as_ref()
            .map(|answers| format!("answers: {}", serde_json::to_string(answers).unwrap_or_default())),
    );
    words.extend(
        decision
            .parameters
            .as_ref()
            .map(|parameters| format!("parameters: {}", Value::Object(parameters::as_object(parameters).0))),
    );
    words.extend(decision.guidance.as_ref().map(|text| format!("guidance: {text}")));
    words.join("; ")
}

/// Returns the outcome of a gate: `Rejected (Reject) by bob, 2026-11-22T10:00:00Z (5m ago)`.
pub fn outcome(outcome: &Outcome, now: Moment) -> String {
    let verdict = outcome.verdict.map_or("no verdict", Verdict::name);
    let by = if outcome.decided_by.is_empty() {
        format!("by {}", outcome.source.name())
    } else {
        format!("by {}", one_line(&outcome.decided_by.join(", "), 2000))
    };
    let when =
        outcome.decided_at.map(|at| format!(", {} ({})", at.ceil_to_second(), distance(at, now))).unwrap_or_default();
    format!("{} ({verdict}) {by}{when}", outcome.phase.name())
}

/// Whether the reader's own decision is recorded at an open gate, and not counted yet.
pub fn is_uncounted(approval: &Approval, me: &Me) -> bool {
    let status = approval.status.clone().unwrap_or_default();
    let own = approval.spec.decisions.get(&me.user);
    is_open(&status) && own.is_some_and(|own| is_new(&me.user, own, &status))
}

fn is_open(status: &ApprovalStatus) -> bool {
    status.outcome.is_none() && !status.phase.is_end()
}

/// Whether the operator has neither counted a decision nor refused it.
fn is_new(key: &str, decision: &Decision, status: &ApprovalStatus) -> bool {
    let is_invalid = status.invalid.get(key).is_some_and(|invalid| invalid.attempt == decision.attempt());
    !is_invalid && !status.votes.iter().any(|vote| vote.key == *key && vote.attempt == decision.attempt())
}

/// Whether any decision is recorded at an open gate, and not counted yet.
pub fn has_uncounted(approval: &Approval) -> bool {
    let status = approval.status.clone().unwrap_or_default();
    is_open(&status) && approval.spec.decisions.iter().any(|(key, decision)| is_new(key, decision, &status))
}

/// Returns the sentences that replace the buttons for a reader who cannot decide: their own decision and the votes that
/// are still needed, or the approvers of the gate. Returns `None` if the reader can decide, or if others have decided
/// the gate.
pub fn instead(approval: &Approval, me: &Me, now: Moment) -> Option<String> {
    let why = ineligible(approval, &me.voter(), now)?;
    let status = approval.status.clone().unwrap_or_default();
    if let Some(own) = approval.spec.decisions.get(&me.user) {
        let did = format!("You {}.", done(own.verdict));
        return Some(match status.votes.iter().any(|vote| vote.key == me.user && vote.attempt == own.attempt()) {
            true => format!("{did} Recorded and counted.{}", still_needed(approval, own.verdict)),
            false if is_uncounted(approval, me) => format!("{did} Recorded, not counted yet."),
            false => format!("{did} Recorded; it did not count."),
        });
    }
    if !is_open(&status) {
        return None;
    }
    if why.is_about_lists() {
        let asked = possible(approval);
        let verb = if asked.len() == 1 { "is" } else { "are" };
        return Some(format!("You are not asked here: {} {verb}.", subjects(&asked)));
    }
    let why = match why {
        IneligibleReason::DecidedFor(_, key) => format!("a decision for you is recorded: {}", one_line(&key, 600)),
        other => one_line(&other.to_string(), 1000),
    };
    Some(format!("You cannot decide: {why}."))
}

/// Returns the number of people who are still needed at an open gate, as a sentence that follows another one.
fn still_needed(approval: &Approval, verdict: Verdict) -> String {
    if approval.status.as_ref().is_some_and(|status| status.outcome.is_some()) || !verdict.needs_quorum() {
        return String::new();
    }
    match progress(approval).as_slice() {
        [only] if only.missing.is_empty() => match only.needed.saturating_sub(only.have) {
            ..=0 => String::new(),
            1 => " 1 more is needed.".to_owned(),
            more => format!(" {more} more are needed."),
        },
        _ => format!(" So far: {}.", agreement(approval)),
    }
}

/// Returns the sentence for a user whose other account has decided, or `None`.
pub fn already_counted(approval: &Approval, voter: &Voter<'_>) -> Option<String> {
    let key = counted_as(approval, voter)?;
    let is_counted = approval.status.as_ref().is_some_and(|status| status.votes.iter().any(|vote| vote.key == key));
    let other = one_line(&key, 600);
    let already = match is_counted {
        true => format!("already counted as {other}"),
        false => format!("already recorded as {other}, not counted yet"),
    };
    Some(format!("{already}: both names are one person, and of their votes the most cautious one counts"))
}

/// Returns the line about the reader: an approver, counted already under another name, or the reason why they cannot
/// decide.
pub fn standing(approval: &Approval, me: &Me, now: Moment) -> String {
    let user = one_line(&me.user, 253);
    match ineligible(approval, &me.voter(), now) {
        None if let Some(already) = already_counted(approval, &me.voter()) => format!("{user}: {already}"),
        None if is_question(&approval.spec.request) => format!("{user}, one of those who can answer"),
        None => format!("{user}, one of the approvers"),
        Some(_) if is_uncounted(approval, me) => format!("{user}: your decision is recorded, and not counted yet"),
        Some(why) => format!("{user}: cannot decide, {}", one_line(&why.to_string(), 1000)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::sample;

    #[test]
    fn a_voter_sees_the_missing_votes_and_others_see_the_approvers() {
        let mut approval = sample::approval();
        approval.spec.request.quorums[0].threshold = 2;
        let alice = sample::me("alice@example.com", &[]);
        let sentence = |approval: &Approval, me: &Me| instead(approval, me, sample::now());
        assert_eq!(sentence(&approval, &alice), None);
        let other = "You are not asked here: alice@example.com, group finance are.";
        assert_eq!(sentence(&approval, &sample::me("mallory@example.com", &[])).as_deref(), Some(other));
        approval.spec.decisions.insert("alice@example.com".into(), Decision::new(Verdict::Approve));
        assert_eq!(sentence(&approval, &alice).as_deref(), Some("You approved. Recorded, not counted yet."));
        assert!(has_uncounted(&approval));
        let vote = json!({"key": "alice@example.com", "user": "alice@example.com", "verdict": "Approve", "attempt": 1,
            "at": "2026-11-22T10:00:00Z", "epoch": "epoch-1"});
        approval.status.as_mut().unwrap().votes.push(serde_json::from_value(vote).unwrap());
        let counted = "You approved. Recorded and counted. 1 more is needed.";
        assert_eq!(sentence(&approval, &alice).as_deref(), Some(counted));
        assert!(!has_uncounted(&approval));
    }

    #[test]
    fn a_second_account_sees_the_state_of_the_first_vote() {
        let mut approval = sample::approval();
        let persons = json!([{"pattern": "github:([a-z]+)", "person": "$1@example.com"}, {"pattern": "(.+@example[.]com)", "person": "$1"}]);
        approval.spec.request.persons = serde_json::from_value(persons).unwrap();
        approval.spec.decisions.insert("bob@example.com".into(), Decision::new(Verdict::Approve));
        let sentence = |approval: &Approval| standing(approval, &sample::me("github:bob", &["finance"]), sample::now());
        let both = "both names are one person, and of their votes the most cautious one counts";
        let recorded = format!("github:bob: already recorded as bob@example.com, not counted yet: {both}");
        assert_eq!(sentence(&approval), recorded);
        let vote = json!({"key": "bob@example.com", "user": "bob@example.com", "verdict": "Approve", "attempt": 1,
            "at": "2026-11-22T10:00:00Z", "epoch": "epoch-1"});
        let status = approval.status.as_mut().unwrap();
        status.votes.push(serde_json::from_value(vote).unwrap());
        assert_eq!(sentence(&approval), format!("github:bob: already counted as bob@example.com: {both}"));
        let status = approval.status.as_mut().unwrap();
        status.votes.clear();
        let invalid = json!({"bob@example.com": {"attempt": 1, "why": "no such field"}});
        status.invalid = serde_json::from_value(invalid).unwrap();
        assert_eq!(sentence(&approval), "github:bob, one of the approvers", "that vote does not count");
    }
}
