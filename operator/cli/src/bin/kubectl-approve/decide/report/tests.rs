//! The failures that `--wait` ends with, and the facts for programs.
#![allow(clippy::unwrap_used)]
use signoff_api::{Decision, Outcome, approval::Source};

use super::*;
use crate::{
    args::{CommonArgs, DryRun, Payload},
    output::{FactsArgs, FactsFormat},
};

fn entry(verdict: Verdict) -> Entry {
    Entry { key: "alice@example.com".into(), decision: Decision::new(verdict) }
}

#[test]
fn an_uncounted_decision_is_a_failure_with_any_outcome() {
    let entry = entry(Verdict::Approve);
    let approved = |is_counted, invalid: Option<&str>| {
        let (phase, verdict, source) = (ApprovalPhase::Approved, Some(Verdict::Approve), Source::Human);
        let outcome = Outcome { verdict, phase, decided_by: vec!["bob".into()], source, ..Outcome::default() };
        DecisionState::Closed { outcome: Box::new(outcome), is_counted, invalid: invalid.map(str::to_owned) }
    };
    assert!(wait_failure(&approved(true, None), &entry).is_none());
    assert!(matches!(wait_failure(&approved(false, None), &entry), Some(Failure::DecidedOtherwise)));
    assert!(matches!(wait_failure(&approved(false, Some("no such field")), &entry), Some(Failure::DecidedOtherwise)));
    assert!(matches!(wait_failure(&DecisionState::Counted, &entry), Some(Failure::NotDecided)));
    assert_eq!(state_name(&approved(true, None), &entry), "Decided");
    assert_eq!(state_name(&approved(false, None), &entry), "DecidedOtherwise");
}

#[test]
fn an_escalation_without_further_approvers_is_a_failure() {
    for (state, code) in [(DecisionState::Escalated, None), (DecisionState::NotEscalated, Some(5))] {
        assert_eq!(wait_failure(&state, &entry(Verdict::Escalate)).map(|failure| failure.code()), code, "{state:?}");
    }
}

fn args(facts: Option<FactsFormat>) -> DecisionArgs {
    let common = CommonArgs { dry_run: Some(DryRun::Client), output: FactsArgs { facts }, ..CommonArgs::default() };
    DecisionArgs { name: "refund-1".into(), verdict: Verdict::Approve, payload: Payload::Nothing, common }
}

#[test]
fn facts_say_that_a_gate_was_decided_otherwise() {
    let outcome = |verdict, phase, source| Outcome { verdict, phase, source, ..Outcome::default() };
    let closed = |outcome| DecisionState::Closed { outcome: Box::new(outcome), is_counted: true, invalid: None };
    let rejected = closed(outcome(Some(Verdict::Reject), ApprovalPhase::Rejected, Source::Human));
    let cancelled = closed(outcome(None, ApprovalPhase::Cancelled, Source::Policy));
    for state in [rejected, cancelled] {
        let entry = entry(Verdict::Approve);
        let report =
            Report::new(state_name(&state, &entry), "decided".into()).with_facts(&args(Some(FactsFormat::Json)));
        let facts: Value = serde_json::from_str(&report.text()).unwrap();
        assert_eq!((&facts["state"], &facts["exitCode"]), (&json!("DecidedOtherwise"), &json!(0)), "{state:?}");
    }
}

#[test]
fn a_client_dry_run_prints_the_patch_for_people_and_the_facts_for_programs() {
    let patch = json!({"spec": {"decisions": {"alice@example.com": {"verdict": "Approve"}}}});
    let read = |facts| report_not_sent(&args(facts), &patch).unwrap().text();
    assert_eq!(serde_json::from_str::<Value>(&read(None)).unwrap(), patch);
    let facts = json!({"approval": "refund-1", "verdict": "Approve", "state": "NotSent",
        "message": "not sent (client dry run)", "exitCode": 0});
    assert_eq!(serde_json::from_str::<Value>(&read(Some(FactsFormat::Json))).unwrap(), facts);
    assert_eq!(serde_saphyr::from_str::<Value>(&read(Some(FactsFormat::Yaml))).unwrap(), facts);
}
