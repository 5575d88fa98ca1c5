//! The lines about recorded decisions, compared whole.
#![allow(clippy::unwrap_used)]
use serde_json::json;
use signoff_api::{
    Decision,
    approval::{TallyStatus, Vote},
    gate::{Quorum, Subject},
};

use super::*;
use crate::sample;

const ME: &str = "alice@example.com";

fn entry(verdict: Verdict) -> Entry {
    Entry { key: ME.into(), decision: Decision::new(verdict) }
}

fn closed_state(phase: ApprovalPhase, verdict: Option<Verdict>, by: &[&str], source: Source) -> DecisionState {
    let decided_by = by.iter().map(|&name| name.to_owned()).collect();
    counted_state(Outcome { verdict, phase, decided_by, source, ..Outcome::default() })
}

/// Returns the state of a decision that the outcome counts.
fn counted_state(outcome: Outcome) -> DecisionState {
    DecisionState::Closed { outcome: Box::new(outcome), is_counted: true, invalid: None }
}

/// Returns the same state for a decision that the outcome does not count.
fn uncounted_state(state: DecisionState, why: Option<&str>) -> DecisionState {
    match state {
        DecisionState::Closed { outcome, .. } => {
            DecisionState::Closed { outcome, is_counted: false, invalid: why.map(str::to_owned) }
        }
        other => other,
    }
}

fn vote(user: &str) -> Vote {
    serde_json::from_value(json!({"key": user, "user": user, "verdict": "Approve", "attempt": 1,
        "at": "2026-11-22T10:00:00Z", "epoch": "epoch-1"}))
    .unwrap()
}

#[test]
fn an_outcome_as_voted_has_the_effect_on_the_run() {
    let mut approval = sample::approval();
    let line_of = |approval: &Approval, verdict| {
        let state = closed_state(ApprovalPhase::of(verdict), Some(verdict), &[ME], Source::Human);
        line(approval, &state, &entry(verdict), "")
    };
    for (verdict, words) in [
        (Verdict::Approve, "approved; the run goes on"),
        (Verdict::Reject, "rejected; the run ends"),
        (Verdict::Abort, "aborted; the run ends"),
        (Verdict::Defer, "deferred; it is done again with the guidance, and then asked again"),
    ] {
        assert_eq!(line_of(&approval, verdict), words);
    }
    approval.spec.request.after_reject = vec!["send".to_owned(), "log".to_owned()];
    assert_eq!(
        line_of(&approval, Verdict::Reject),
        "rejected; the run goes on with send or log, as its conditions say"
    );
}

#[test]
fn a_suspended_run_does_not_go_on_by_a_decision() {
    let approval = sample::approval();
    let request = &approval.spec.request;
    let run = |is_suspended| RunNow { is_suspended, ..RunNow::default() };
    let state = closed_state(ApprovalPhase::Approved, Some(Verdict::Approve), &[ME], Source::Human);
    let held = suspended(request, Verdict::Approve, &run(true)).unwrap();
    assert_eq!(
        line(&approval, &state, &entry(Verdict::Approve), &held),
        "approved; the run is suspended, and goes on when it is resumed"
    );
    assert_eq!(suspended(request, Verdict::Approve, &run(false)), None);
    assert_eq!(suspended(request, Verdict::Reject, &run(true)), None, "the run ends although it is suspended");
}

#[test]
fn a_suspended_run_has_the_effect_after_its_resumption() {
    let run = RunNow { is_suspended: true, ..RunNow::default() };
    let mut plain = sample::approval().spec.request;
    plain.after_reject = vec!["log".to_owned()];
    let call = sample::call().spec.request;
    for (request, verdict, then) in [
        (&call, Verdict::Approve, "the call goes on with exactly these arguments"),
        (&call, Verdict::Skip, "the call does not run, and the agent continues"),
        (&plain, Verdict::Defer, "it is done again with the guidance, and then asked again"),
        (&plain, Verdict::Reject, "the run goes on with log"),
    ] {
        assert_eq!(suspended(request, verdict, &run), Some(format!("{SUSPENDED}; then {then}")), "{verdict}");
    }
    for verdict in [Verdict::Abort, Verdict::Escalate] {
        assert_eq!(suspended(&plain, verdict, &run), None, "{verdict} does not wait");
    }
    assert_eq!(suspended(&call, Verdict::Reject, &run), None, "the run ends");
}

#[test]
fn an_outcome_at_a_call_or_a_question_has_its_effect_on_the_agent() {
    let call = sample::call().spec.request;
    for (verdict, words) in [
        (Verdict::Approve, "the call goes on with exactly these arguments"),
        (Verdict::Modify, "the changed call is checked, and its gates ask"),
        (Verdict::Respond, "the answer is the result, and the call does not run"),
        (Verdict::Defer, "the call does not run, and the agent is told the guidance"),
        (Verdict::Skip, "the call does not run, and the agent continues"),
    ] {
        assert_eq!(sequel(&call, verdict), words);
    }
    assert_eq!(sequel(&sample::question().spec.request, Verdict::Skip), "the agent gets no answer and continues");
    assert_eq!(sequel(&sample::approval().spec.request, Verdict::Skip), "the run goes on");
}

#[test]
fn an_edit_names_who_cannot_approve_the_changed_call() {
    let mut approval = sample::call();
    let after = |approval: &Approval| after_edit(approval, &entry(Verdict::Modify));
    assert_eq!(after(&approval).as_deref(), Some("alice@example.com cannot approve the changed call"));
    approval.spec.request.quorums[0].approvers = vec![Subject::user(ME)];
    let alone = "alice@example.com cannot approve the changed call, and too few other approvers are left: it will be refused if the same gates ask";
    assert_eq!(after(&approval).as_deref(), Some(alone));
    assert_eq!(after_edit(&approval, &entry(Verdict::Approve)), None);
    assert_eq!(after(&sample::approval()), None);
}

#[test]
fn a_gate_of_the_step_of_a_tool_says_whether_the_call_runs() {
    let mut request = sample::approval().spec.request;
    request.gate.path = "handle/.turn-1/.call-1/pay/.start".to_owned();
    for (type_, verdict, words) in [
        (GateType::StepStart, Verdict::Approve, "the call goes on with exactly what was shown"),
        (GateType::StepStart, Verdict::Skip, "the call does not run, and the agent is told"),
        (GateType::StepStart, Verdict::Reject, "the run ends"),
        (GateType::ErrorEscalation, Verdict::Retry, "the call is made once more, after its gates"),
        (GateType::OutputValidation, Verdict::Approve, "the agent is told this response"),
    ] {
        request.gate.type_ = type_;
        assert_eq!(sequel(&request, verdict), words);
    }
    request.gate.path = "pay/.start".to_owned();
    request.gate.type_ = GateType::StepStart;
    assert_eq!(sequel(&request, Verdict::Skip), "the run goes on");
}

#[test]
fn a_quorum_that_is_not_full_names_who_is_still_asked() {
    let mut approval = sample::approval();
    let request = &mut approval.spec.request;
    request.quorums[0].threshold = 2;
    request.quorums[0].approvers.push(Subject::user("bob@example.com"));
    let status = approval.status.get_or_insert_default();
    status.tally = Some(TallyStatus { needed: 2, have: 1 });
    status.votes = vec![vote(ME)];
    let line_of = |approval: &Approval| line(approval, &DecisionState::Counted, &entry(Verdict::Approve), "");
    assert_eq!(line_of(&approval), "Approve counted (1 of 2; still asked: group finance, bob@example.com)");
    approval.spec.request.quorums.truncate(1);
    let strict: Quorum = serde_json::from_value(
        json!({"source": "ApprovalPolicy strict", "approvers": [{"kind": "Group", "name": "security"}], "threshold": 1}),
    )
    .unwrap();
    approval.spec.request.quorums.push(strict);
    approval.spec.decisions.insert(ME.to_owned(), Decision::new(Verdict::Approve));
    assert_eq!(
        line_of(&approval),
        "Approve counted (1 of 2 for gate review, 0 of 1 for ApprovalPolicy strict; still asked: group finance, bob@example.com, group security)"
    );
    approval.spec.request.quorums[0].threshold = 1;
    assert_eq!(
        line_of(&approval),
        "Approve counted (1 of 1 for gate review, 0 of 1 for ApprovalPolicy strict; still asked: group security)"
    );
    assert_eq!(crate::quorum::cell(&approval), "1/1,0/1");
    assert_eq!(
        crate::quorum::lines(&approval),
        [
            "1 person out of alice@example.com, group finance, bob@example.com (required by gate review; 1 of 1 so far)",
            "1 person out of group security (required by ApprovalPolicy strict; 0 of 1 so far)",
        ]
    );
}

#[test]
fn an_uncounted_decision_has_the_reason() {
    let approval = sample::approval();
    let why = "no operator has renewed its Lease for 42s";
    assert_eq!(
        line(&approval, &DecisionState::Recorded, &entry(Verdict::Approve), why),
        "Approve recorded; not counted yet: no operator has renewed its Lease for 42s"
    );
    let unknown = line(&approval, &DecisionState::Recorded, &entry(Verdict::Approve), "");
    assert_eq!(unknown, "Approve recorded; not counted yet");
}

#[test]
fn a_decision_with_another_outcome_is_never_called_approved() {
    let approval = sample::approval();
    let line_of = |state: &DecisionState| line(&approval, state, &entry(Verdict::Approve), "kubectl approve show x");
    assert_eq!(
        line_of(&closed_state(ApprovalPhase::Aborted, Some(Verdict::Abort), &["dora"], Source::Human)),
        "Approve recorded; decided: Abort by dora"
    );
    assert_eq!(
        line_of(&closed_state(ApprovalPhase::Expired, Some(Verdict::Reject), &[], Source::Timeout)),
        "Approve recorded; the deadline passed first, which amounts to Reject"
    );
    let outcome = Outcome {
        phase: ApprovalPhase::Superseded,
        reason: Some("recorded while unguarded".into()),
        source: Source::Policy,
        ..Outcome::default()
    };
    assert_eq!(
        line_of(&counted_state(outcome)),
        "Approve recorded; it does not count, superseded: recorded while unguarded: kubectl approve show x"
    );
    assert_eq!(
        line_of(&DecisionState::Invalid("no\u{1b}[2J such field".into())),
        "Approve recorded; it does not count: no[2J such field; decide again"
    );
    assert_eq!(line_of(&DecisionState::Deleted), "Approve recorded; it does not count: the Approval was deleted");
}

#[test]
fn a_decision_outside_the_votes_does_not_count_with_any_outcome() {
    let approval = sample::approval();
    let entry = entry(Verdict::Approve);
    let approved = || closed_state(ApprovalPhase::Approved, Some(Verdict::Approve), &["bob"], Source::Human);
    let late = uncounted_state(approved(), None);
    assert_eq!(
        line(&approval, &late, &entry, ""),
        "Approve recorded; it does not count, it was recorded too late; decided: Approve by bob"
    );
    let invalid = uncounted_state(approved(), Some("no such field"));
    assert_eq!(
        line(&approval, &invalid, &entry, ""),
        "Approve recorded; it does not count: no such field; decided: Approve by bob"
    );
    let expired = closed_state(ApprovalPhase::Expired, Some(Verdict::Reject), &[], Source::Timeout);
    assert_eq!(
        line(&approval, &uncounted_state(expired, None), &entry, ""),
        "Approve recorded; the deadline passed first, which amounts to Reject"
    );
}

#[test]
fn an_escalation_names_the_approvers_in_force() {
    let mut approval = sample::approval();
    let line_of = |approval: &Approval, state| line(approval, &state, &entry(Verdict::Escalate), "");
    let none = line_of(&approval, DecisionState::NotEscalated);
    assert_eq!(none, "Escalate counted; there are no further approvers");
    let status = approval.status.get_or_insert_default();
    status.level = Some(1);
    status.approvers = vec![Subject::user(ME), Subject::group("sre")];
    let now = "approvers now: alice@example.com, group sre, until 2026-11-23T09:30:00Z";
    assert_eq!(line_of(&approval, DecisionState::Escalated), format!("escalated; {now}"));
    assert_eq!(line_of(&approval, DecisionState::Counted), format!("Escalate counted; {now}"));
    // The sentence is the same after a timeout escalated the gate.
    assert_eq!(line_of(&approval, DecisionState::NotEscalated), none);
}

#[test]
fn the_represented_person_is_named() {
    let mut on_behalf = entry(Verdict::Abort);
    on_behalf.decision.on_behalf_of = Some("bob".into());
    let state = closed_state(ApprovalPhase::Aborted, Some(Verdict::Abort), &["bob"], Source::Human);
    assert_eq!(line(&sample::approval(), &state, &on_behalf, ""), "aborted on behalf of bob; the run ends");
}
