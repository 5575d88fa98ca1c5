//! Tests with attempts of an author to release something that the approvers of a policy's gate at the end did not
//! approve, each with a valid counterpart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use signoff_api::Verdict;

use super::{
    bypass_tests::{agent_chain, modify_outcome, own_gates},
    run_tests::{PolicyRun, gate},
    tests::cluster,
    *,
};
use crate::{End, Journal};

/// Returns a policy with a gate of each name at the end of every run.
fn policies_at_end(names: &[&str]) -> Policies {
    let hitl = gate(json!({"allowedVerdicts": ["Approve", "Reject", "Retry", "Skip"]}));
    let steps: Vec<_> = names.iter().map(|name| json!({"name": name, "at": "End", "hitl": hitl})).collect();
    cluster(&[("prod", json!({"steps": steps}))])
}

/// Returns a spec with a letter of an agent, and a gate of the author before the release, which allows `verdicts`.
fn spec_with_letter(verdicts: Value) -> Value {
    let mut gates = own_gates("finalResponse");
    gates[0]["hitl"]["allowedVerdicts"] = verdicts;
    agent_chain(json!({}), gates)
}

impl PolicyRun {
    #[track_caller]
    fn assert_released(&self, text: &str) {
        assert_eq!(self.transition.end, Some(End::Succeeded(text.into())));
    }

    #[track_caller]
    fn assert_rejected(&self) {
        assert!(matches!(self.transition.end, Some(End::Rejected(_))), "{:?}", self.transition.end);
        assert!(self.transition.artifacts.is_empty());
    }
}

#[test]
fn the_policys_end_gate_shows_a_modify_at_the_authors_final_gate() {
    let policies = policies_at_end(&["end"]);
    let start = || {
        let mut run = PolicyRun::of(&policies, spec_with_letter(json!(["Approve", "Modify", "Reject"])));
        run.reply(&policies, "pay", "a harmless letter");
        run.asked(".final");
        run
    };
    let mut run = start();
    run.decide_with(&policies, ".final", modify_outcome(json!({"response": "pay 42000 to evil"})));
    run.assert_shows("end", "pay 42000 to evil");
    let by = run.asked("end").reviews.clone().unwrap().by;
    assert_eq!((by.len(), by[0].path.as_str(), by[0].verdict), (1, ".final", Verdict::Modify));
    assert!(run.transition.end.is_none());
    run.decide(&policies, "end", Verdict::Reject);
    run.assert_rejected();

    let mut run = start();
    run.decide_with(&policies, ".final", modify_outcome(json!({"response": "a better letter"})));
    run.assert_shows("end", "a better letter");
    run.decide(&policies, "end", Verdict::Approve);
    run.assert_released("a better letter");

    let mut honest = start();
    honest.decide(&policies, ".final", Verdict::Approve);
    honest.assert_shows("end", "a harmless letter");
    honest.decide(&policies, "end", Verdict::Approve);
    honest.assert_released("a harmless letter");
}

#[test]
fn the_policys_end_gate_shows_a_respond_or_skip_at_the_final_gate() {
    let policies = policies_at_end(&["end"]);
    let start = || {
        let mut run = PolicyRun::of(&policies, spec_with_letter(json!(["Approve", "Respond", "Skip"])));
        run.reply(&policies, "pay", "a harmless letter");
        run
    };
    let mut run = start();
    let outcome = signoff_api::Outcome {
        verdict: Some(Verdict::Respond),
        phase: signoff_api::approval::ApprovalPhase::of(Verdict::Respond),
        response: Some("pay evil".into()),
        ..signoff_api::Outcome::default()
    };
    run.decide_with(&policies, ".final", outcome);
    run.assert_shows("end", "pay evil");
    run.decide(&policies, "end", Verdict::Approve);
    run.assert_released("pay evil");
    let mut run = start();
    run.decide(&policies, ".final", Verdict::Skip);
    let shown = run.asked("end").reviews.clone().unwrap().response;
    assert!(!shown.contains("harmless"), "{shown}");
    run.decide(&policies, "end", Verdict::Approve);
    run.assert_released("");
}

#[test]
fn the_policys_end_gate_shows_the_released_outputs_and_files() {
    let policies = policies_at_end(&["end"]);
    let spec = |outputs: Value| {
        json!({"requestedBy": "dana", "outputs": outputs, "steps": [
            {"name": "other", "set": {"value": "pay 42000 to evil"}},
            {"name": "last", "set": {"value": "a harmless letter"}},
        ]})
    };
    let file = json!({"path": "pay/order.txt", "from": "{{ steps.other.response }}"});
    for outputs in [
        json!({"from": "{{ steps.other.response }}"}),
        json!({"artifacts": [file]}),
        json!({"from": "{{ last_response }}", "artifacts": [{"path": "a.txt", "from": "x".repeat(9000)}, file]}),
    ] {
        let mut run = PolicyRun::of(&policies, spec(outputs));
        run.assert_shows("end", "pay 42000 to evil");
        run.decide(&policies, "end", Verdict::Approve);
        let Some(End::Succeeded(text)) = &run.transition.end else { panic!("{:?}", run.transition.end) };
        let files = &run.transition.artifacts;
        let evil = "pay 42000 to evil";
        assert!(text == evil || files.iter().any(|(path, from)| path == "pay/order.txt" && from == evil), "{files:?}");
    }
    let mut honest = PolicyRun::of(&policies, spec(json!({"from": "{{ last_response }}"})));
    honest.assert_shows("end", "a harmless letter");
    assert!(!honest.asked("end").reviews.as_ref().unwrap().response.contains("evil"));
    honest.decide(&policies, "end", Verdict::Approve);
    honest.assert_released("a harmless letter");
}

#[test]
fn a_final_response_is_revised_only_before_the_policys_end_gate() {
    let policies = policies_at_end(&["end"]);
    let mut run = PolicyRun::of(&policies, spec_with_letter(json!(["Approve", "Retry", "Reject"])));
    run.reply(&policies, "pay", "first");
    run.decide(&policies, ".final", Verdict::Retry);
    assert!(run.asks().is_empty() && run.calls()[0].path == ".revision");
    run.reply(&policies, ".revision", "second");
    run.asked(".final#2");
    run.decide(&policies, ".final#2", Verdict::Approve);
    run.assert_shows("end", "second");
    run.decide(&policies, "end", Verdict::Reject);
    run.assert_rejected();
    assert!(run.calls().is_empty());
}

#[test]
fn every_gate_at_the_end_approves_the_same_release() {
    let policies = policies_at_end(&["one", "two"]);
    let mut run = PolicyRun::of(&policies, spec_with_letter(json!(["Approve", "Reject"])));
    run.reply(&policies, "pay", "a letter");
    run.decide(&policies, ".final", Verdict::Approve);
    run.decide(&policies, "one", Verdict::Approve);
    run.decide(&policies, "two", Verdict::Retry);
    run.assert_shows("two#2", "a letter");
    run.decide(&policies, "two#2", Verdict::Approve);
    run.assert_released("a letter");
    assert!(run.record("one").input_digest.is_some());
    assert_eq!(run.record("one").input_digest, run.record("two#2").input_digest);
}

#[test]
fn an_approval_of_another_digest_does_not_count_at_the_end_gate() {
    let policies = policies_at_end(&["end"]);
    for digest in [None, Some(signoff_api::Digest::of_bytes(b"something else"))] {
        let mut run = PolicyRun::of(&policies, spec_with_letter(json!(["Approve", "Reject"])));
        run.reply(&policies, "pay", "a letter");
        run.decide(&policies, ".final", Verdict::Approve);
        run.asked("end");
        // The request of an earlier version of the operator.
        let records = run.journal.records().iter().cloned().map(|mut record| {
            if record.path == "end" {
                record.input_digest.clone_from(&digest);
            }
            record
        });
        run.journal = Journal::new(run.journal.seq(), records.collect());
        run.decide(&policies, "end", Verdict::Approve);
        run.assert_shows("end#2", "a letter");
        run.decide(&policies, "end#2", Verdict::Approve);
        run.assert_released("a letter");
    }
}
