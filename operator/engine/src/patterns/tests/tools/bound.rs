//! Tests that an approval covers exactly one call: no other call, no other definition of the tool, and no other sent
//! data.

use serde_json::{Value, json};
use signoff_api::{Digest, journal::StepRecord};

use super::{GATE, PAY, gates, money, spec, turn};
use crate::{
    Fact, Journal,
    tests::test_run::{TestRun, agent, decided, gate, plan_of},
};

/// A change of a Workflow, with its name.
type Change = (&'static str, &'static dyn Fn(&mut Value));

const SECOND_GATE: &str = "handle/.turn-1/.call-2/.gate";

/// Returns a run in which the tool was called once, and waits for people.
fn run_with_call(spec: Value) -> TestRun {
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#)]);
    assert_eq!(run.open(), [GATE]);
    run
}

/// Changes the records of a run.
fn tamper(run: &mut TestRun, change: impl Fn(&mut StepRecord)) {
    let records = run.journal.records().iter().cloned().map(|mut record| {
        change(&mut record);
        record
    });
    run.journal = Journal::new(run.journal.seq(), records.collect());
}

fn approval_at(path: &str) -> Fact {
    let outcome = Box::new(decided(signoff_api::Verdict::Approve));
    Fact::ApprovalDecided { path: path.into(), outcome }
}

#[test]
fn swapped_approvals_do_not_count() {
    for is_swapped in [true, false] {
        let mut run = TestRun::of(spec(gates(json!([money()]))));
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#), ("c2", "refund", r#"{"amount":2}"#)]);
        assert_eq!(run.open(), [GATE, SECOND_GATE]);
        let digests = [GATE, SECOND_GATE].map(|path| run.record(path).input_digest.clone());
        assert!(digests[0].is_some() && digests[0] != digests[1]);
        if is_swapped {
            tamper(&mut run, |record| match record.path.as_str() {
                GATE => record.input_digest = digests[1].clone(),
                SECOND_GATE => record.input_digest = digests[0].clone(),
                _ => {}
            });
        }
        run.take(vec![approval_at(GATE), approval_at(SECOND_GATE)]);
        if is_swapped {
            assert_eq!((run.open(), run.calls()), (vec![format!("{GATE}#2"), format!("{SECOND_GATE}#2")], Vec::new()));
        } else {
            assert_eq!((run.open().len(), run.calls().len()), (0, 2));
        }
    }
}

#[test]
fn an_equal_call_needs_its_own_approval() {
    let mut run = run_with_call(spec(gates(json!([money()]))));
    run.approve(GATE);
    run.reply(PAY, 1, "paid");
    turn(&mut run, "handle/.turn-2", &[("c2", "refund", r#"{"amount":1}"#)]);
    assert_eq!((run.open(), run.calls()), (vec!["handle/.turn-2/.call-1/.gate".to_owned()], Vec::new()));
    let digests = [GATE, "handle/.turn-2/.call-1/.gate"].map(|path| run.record(path).input_digest.clone());
    assert_ne!(digests[0], digests[1], "the approval of the first is none of the second");
}

#[test]
fn an_approval_of_another_tool_definition_does_not_count() {
    let changes: [Change; 4] = [
        ("nothing", &|_| {}),
        ("description", &|spec| spec["tools"][1]["description"] = json!("Pays everything back.")),
        ("effects", &|spec| spec["tools"][1]["effects"] = json!("write")),
        ("step", &|spec| spec["steps"][2]["http"]["body"] = json!("{{ args.amount }}00")),
    ];
    for (changed_part, change) in changes {
        let mut run = run_with_call(spec(gates(json!([money()]))));
        let mut changed_spec = spec(gates(json!([money()])));
        change(&mut changed_spec);
        run.plan = plan_of(changed_spec);
        run.approve(GATE);
        if changed_part == "nothing" {
            assert_eq!(run.calls(), [format!("{PAY}@1")]);
        } else {
            assert_eq!((run.open(), run.calls()), (vec![format!("{GATE}#2")], Vec::new()), "another {changed_part}");
            run.approve(&format!("{GATE}#2"));
            assert_eq!(run.calls(), [format!("{PAY}@1")], "what is shown now is approved");
        }
    }
}

#[test]
fn a_call_that_would_send_unapproved_data_does_not_run() {
    let gate_before_step = json!({"name": "before", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))});
    for is_changed in [true, false] {
        let mut run = run_with_call(spec(gates(json!([money(), gate_before_step]))));
        run.approve(GATE);
        let step_gate = format!("{PAY}/.start");
        assert_eq!((run.open(), run.calls()), (vec![step_gate.clone()], Vec::new()));
        if is_changed {
            // A rendering that differs, like that of another version of the operator.
            tamper(&mut run, |record| {
                if record.path == step_gate {
                    record.input_digest = Some(Digest::of_bytes(b"something else"));
                }
            });
        }
        run.approve(&step_gate);
        assert_eq!(run.calls().contains(&format!("{PAY}@1")), !is_changed);
        if is_changed {
            let tool_result = super::result(&run, "handle/.turn-2", "c1");
            assert!(tool_result.contains("what would run is not what was approved"), "{tool_result}");
        }
    }
}

#[test]
fn a_call_repeated_after_a_crash_is_the_approved_call() {
    let mut spec_of_idempotent_call = spec(gates(json!([money()])));
    spec_of_idempotent_call["steps"][2]["http"]["idempotent"] = json!(true);
    let mut run = run_with_call(spec_of_idempotent_call.clone());
    run.approve(GATE);
    run.take(Vec::new());
    assert_eq!(run.calls(), [format!("{PAY}@1")], "it is sent again as it was");
    spec_of_idempotent_call["steps"][2]["http"]["url"] = json!("https://other.example/refunds");
    run.plan = plan_of(spec_of_idempotent_call);
    run.take(Vec::new());
    assert!(!run.calls().contains(&format!("{PAY}@1")), "{:?}", run.calls());
}

#[test]
fn an_approval_of_an_agent_as_a_tool_covers_its_definition() {
    let spec_with_description = |description: &str| {
        let gate_of_delegate =
            json!({"name": "every", "type": "specificTools", "tools": ["delegate"], "hitl": gate(json!({}))});
        let mut spec = spec(gates(json!([gate_of_delegate])));
        spec["agents"].as_array_mut().unwrap().push(json!({"name": "boss", "system": "lead", "tools": ["delegate"]}));
        let tool = json!({"name": "delegate", "step": "sub", "description": description});
        spec["tools"].as_array_mut().unwrap().push(tool);
        spec["steps"][0] = agent("lead", "boss", "go");
        spec["steps"].as_array_mut().unwrap().push(agent("sub", "clerk", "do it"));
        spec
    };
    let gate = "lead/.turn-1/.call-1/.gate";
    let mut run = TestRun::of(spec_with_description("Delegates."));
    turn(&mut run, "lead", &[("c1", "delegate", "{}")]);
    run.plan = plan_of(spec_with_description("Delegates everything."));
    run.approve(gate);
    assert_eq!((run.open(), run.calls()), (vec![format!("{gate}#2")], Vec::new()));
    run.approve(&format!("{gate}#2"));
    assert_eq!(run.calls(), ["lead/.turn-1/.call-1/sub@1"]);
}
