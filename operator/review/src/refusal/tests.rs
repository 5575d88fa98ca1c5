//! Refusals in words about the gate, compared whole.
#![allow(clippy::unwrap_used)]
use std::time::Duration;

use serde_json::json;
use signoff_api::{
    Decision, Outcome,
    approval::Source,
    gate::{Level, Subject},
};

use super::*;
use crate::sample;

const ME: &str = "alice@example.com";

fn seen(approval: Approval) -> Seen {
    Seen { raw: serde_json::to_value(&approval).unwrap(), approval }
}

#[test]
fn a_second_vote_is_refused_with_the_time_of_the_first() {
    let mut approval = sample::approval();
    approval.spec.decisions.insert(ME.into(), Decision::new(Verdict::Approve));
    let now = sample::now().after(Duration::from_secs(10));
    let me = sample::me(ME, &[]);
    let mut found = seen(approval);
    let sentence = |found: &Seen| second_vote(found, None, &me, now);
    assert_eq!(sentence(&found).unwrap(), "you approved; a decision is final");
    found.raw["metadata"]["managedFields"] = json!([
        {"time": "2026-11-22T09:00:00Z", "fieldsV1": {"f:spec": {"f:decisions": {"f:bob": {}}}}},
        {"time": "2026-11-22T10:00:00Z", "fieldsV1": {"f:spec": {"f:decisions": {"f:alice@example.com": {}}}}},
    ]);
    assert_eq!(sentence(&found).unwrap(), "you approved 10s ago; a decision is final");
    let votes = json!([{"key": ME, "user": ME, "verdict": "Approve", "attempt": 1, "at": "2026-11-22T09:59:40Z", "epoch": "e"}]);
    found.approval.status.get_or_insert_default().votes = serde_json::from_value(votes).unwrap();
    assert_eq!(sentence(&found).unwrap(), "you approved 30s ago; a decision is final");
    assert_eq!(second_vote(&found, None, &sample::me("bob", &["finance"]), now), None);
}

#[test]
fn a_closed_gate_is_described_by_its_outcome() {
    let mut approval = sample::approval();
    assert_eq!(closed_gate(&approval, sample::now()), None);
    let now = sample::now().after(Duration::from_secs(60));
    let mut sentence = |phase, verdict, by: &[&str], source, reason: Option<&str>| {
        let outcome = Outcome {
            phase,
            verdict,
            decided_by: by.iter().map(|&name| name.to_owned()).collect(),
            decided_at: Some(sample::now()),
            source,
            reason: reason.map(str::to_owned),
            ..Outcome::default()
        };
        let status = approval.status.get_or_insert_default();
        (status.phase, status.outcome) = (phase, Some(outcome));
        closed_gate(&approval, now).unwrap()
    };
    assert_eq!(
        sentence(ApprovalPhase::Rejected, Some(Verdict::Reject), &["bob"], Source::Human, Some("no")),
        "too late: this gate was decided 60s ago: Reject by bob"
    );
    assert_eq!(
        sentence(ApprovalPhase::Expired, Some(Verdict::Reject), &[], Source::Timeout, None),
        "too late: this gate timed out 60s ago without a decision, which amounts to Reject"
    );
    assert_eq!(
        sentence(ApprovalPhase::Superseded, None, &[], Source::Policy, Some("recorded while unguarded")),
        "too late: this gate was superseded 60s ago: recorded while unguarded"
    );
    assert_eq!(
        sentence(ApprovalPhase::Cancelled, None, &[], Source::Policy, Some("its Workflow has ended")),
        "too late: this gate was cancelled 60s ago: its Workflow has ended"
    );
}

#[test]
fn a_gate_past_its_deadline_is_closed_before_the_operator_writes_it() {
    let approval = sample::approval();
    let late = approval.closes_at().unwrap().after(Duration::from_secs(5));
    assert_eq!(
        closed_gate(&approval, late).unwrap(),
        "too late: the deadline passed 5s ago (2026-11-23T09:30:00Z), and then it counts as Reject"
    );
}

#[test]
fn an_overdue_gate_names_its_remaining_verdicts() {
    let mut approval = sample::approval();
    assert_eq!(open_gate(&approval, Verdict::Approve, sample::now()), None);
    assert_eq!(
        open_gate(&approval, Verdict::Skip, sample::now()).unwrap(),
        "this gate does not take Skip, only Approve, Reject, Modify, Abort"
    );
    approval.status.get_or_insert_default().phase = ApprovalPhase::Overdue;
    let late = approval.deadline().after(Duration::from_secs(7));
    assert_eq!(
        open_gate(&approval, Verdict::Approve, late).unwrap(),
        "this gate is overdue (the deadline passed 7s ago), so it does not take Approve, only Retry, Reject, Abort"
    );
}

#[test]
fn an_escalation_to_unlisted_names_is_refused() {
    let mut approval = sample::approval();
    let to = Decision { escalate_to: vec![Subject::group("sre")], ..Decision::new(Verdict::Escalate) };
    let me = sample::me(ME, &[]);
    approval.spec.request.allowed_verdicts.push(Verdict::Escalate);
    let sentence = |approval: &Approval| {
        explain(&seen(approval.clone()), &me, &to, sample::now()).map(|refusal| refusal.to_string())
    };
    assert_eq!(
        sentence(&approval).unwrap(),
        "this gate has no approvers to escalate to (escalateTo): give another verdict"
    );
    approval.spec.request.timeout.escalation = vec![Level { after: None, to: vec![Subject::group("directors")] }];
    assert_eq!(
        sentence(&approval).unwrap(),
        "this gate has no subjects to be named (escalateTo is empty): leave the names out, to ask its next level"
    );
    approval.spec.request.escalate_to = vec![Subject::group("sre")];
    assert_eq!(sentence(&approval), None, "the API server names those of the gate");
}

#[test]
fn the_first_reason_for_a_refusal_is_returned() {
    let mut approval = sample::approval();
    approval.spec.request.require_reason = Some(true);
    let me = sample::me(ME, &[]);
    let sentence = |approval: &Approval, me: &Me, verdict, reason: Option<&str>| {
        let decision = Decision { reason: reason.map(str::to_owned), ..Decision::new(verdict) };
        explain(&seen(approval.clone()), me, &decision, sample::now())
    };
    assert_eq!(sentence(&approval, &me, Verdict::Approve, Some("!?")), Some(Refusal::NoReason));
    assert_eq!(sentence(&approval, &me, Verdict::Approve, Some("ok")), None);
    assert!(matches!(sentence(&approval, &me, Verdict::Skip, None), Some(Refusal::Verdict(_))));
    let stranger = sample::me("mallory@example.com", &[]);
    assert_eq!(sentence(&approval, &stranger, Verdict::Skip, None), None, "the policy says who may decide");
    approval.spec.decisions.insert(ME.into(), Decision::new(Verdict::Approve));
    assert_eq!(
        sentence(&approval, &me, Verdict::Skip, None),
        Some(Refusal::Decided("you approved; a decision is final".into()))
    );
    let status = approval.status.get_or_insert_default();
    status.phase = ApprovalPhase::Superseded;
    status.outcome = Some(Outcome { phase: ApprovalPhase::Superseded, source: Source::Policy, ..Outcome::default() });
    assert!(matches!(
        sentence(&approval, &me, Verdict::Approve, None),
        Some(Refusal::Closed { is_superseded: true, .. })
    ));
}

#[test]
fn a_refusal_of_a_superseded_gate_has_a_code_of_its_own() {
    let closed = |is_superseded| Refusal::Closed { why: "too late".to_owned(), is_superseded };
    let codes = [closed(true), closed(false), Refusal::Decided("you approved".to_owned()), Refusal::NoReason];
    let codes = codes.map(|refusal| refusal.code());
    assert_eq!(codes, [Code::SUPERSEDED, Code::TOO_LATE, Code::FINAL, Code::NO_REASON]);
    assert_eq!(Code::of_message(&Refusal::NoReason.to_string()), Some(Code::NO_REASON));
}
