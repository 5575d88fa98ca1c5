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

const SECOND: &str = "handle/.turn-1/.call-2/.gate";

/// Returns a run in which the tool was called once, and waits for people.
fn called(spec: Value) -> TestRun {
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

fn approved(path: &str) -> Fact {
    let outcome = Box::new(decided(signoff_api::Verdict::Approve));
    Fact::ApprovalDecided { path: path.into(), outcome }
}

#[test]
fn two_approvals_that_are_swapped_count_for_nothing() {
    for is_swapped in [true, false] {
        let mut run = TestRun::of(spec(gates(json!([money()]))));
        turn(&mut run, "handle", &[("c1", "refund", r#"{"amount":1}"#), ("c2", "refund", r#"{"amount":2}"#)]);
        assert_eq!(run.open(), [GATE, SECOND]);
        let digests = [GATE, SECOND].map(|path| run.record(path).input_digest.clone());
        assert!(digests[0].is_some() && digests[0] != digests[1]);
        if is_swapped {
            tamper(&mut run, |record| match record.path.as_str() {
                GATE => record.input_digest = digests[1].clone(),
                SECOND => record.input_digest = digests[0].clone(),
                _ => {}
            });
        }
        run.take(vec![approved(GATE), approved(SECOND)]);
        if is_swapped {
            assert_eq!((run.open(), run.calls()), (vec![format!("{GATE}#2"), format!("{SECOND}#2")], Vec::new()));
        } else {
            assert_eq!((run.open().len(), run.calls().len()), (0, 2));
        }
    }
}

#[test]
fn an_equal_call_is_asked_about_by_itself() {
    let mut run = called(spec(gates(json!([money()]))));
    run.approve(GATE);
    run.reply(PAY, 1, "paid");
    turn(&mut run, "handle/.turn-2", &[("c2", "refund", r#"{"amount":1}"#)]);
    assert_eq!((run.open(), run.calls()), (vec!["handle/.turn-2/.call-1/.gate".to_owned()], Vec::new()));
    let digests = [GATE, "handle/.turn-2/.call-1/.gate"].map(|path| run.record(path).input_digest.clone());
    assert_ne!(digests[0], digests[1], "the approval of the first is none of the second");
}

#[test]
fn an_approval_of_another_definition_of_the_tool_counts_for_nothing() {
    let changes: [Change; 4] = [
        ("nothing", &|_| {}),
        ("description", &|spec| spec["tools"][1]["description"] = json!("Pays everything back.")),
        ("effects", &|spec| spec["tools"][1]["effects"] = json!("write")),
        ("step", &|spec| spec["steps"][2]["http"]["body"] = json!("{{ args.amount }}00")),
    ];
    for (what, change) in changes {
        let mut run = called(spec(gates(json!([money()]))));
        let mut other = spec(gates(json!([money()])));
        change(&mut other);
        run.plan = plan_of(other);
        run.approve(GATE);
        if what == "nothing" {
            assert_eq!(run.calls(), [format!("{PAY}@1")]);
        } else {
            assert_eq!((run.open(), run.calls()), (vec![format!("{GATE}#2")], Vec::new()), "another {what}");
            run.approve(&format!("{GATE}#2"));
            assert_eq!(run.calls(), [format!("{PAY}@1")], "what is shown now is approved");
        }
    }
}

#[test]
fn a_call_that_would_send_something_else_than_was_approved_does_not_run() {
    let start = json!({"name": "before", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))});
    for is_other in [true, false] {
        let mut run = called(spec(gates(json!([money(), start]))));
        run.approve(GATE);
        let before = format!("{PAY}/.start");
        assert_eq!((run.open(), run.calls()), (vec![before.clone()], Vec::new()));
        if is_other {
            // A rendering that differs, like that of another version of the operator.
            tamper(&mut run, |record| {
                if record.path == before {
                    record.input_digest = Some(Digest::of_bytes(b"something else"));
                }
            });
        }
        run.approve(&before);
        assert_eq!(run.calls().contains(&format!("{PAY}@1")), !is_other);
        if is_other {
            let told = super::result(&run, "handle/.turn-2", "c1");
            assert!(told.contains("what would run is not what was approved"), "{told}");
        }
    }
}

#[test]
fn a_call_that_is_repeated_after_a_crash_is_the_one_that_was_approved() {
    let mut idempotent = spec(gates(json!([money()])));
    idempotent["steps"][2]["http"]["idempotent"] = json!(true);
    let mut run = called(idempotent.clone());
    run.approve(GATE);
    run.take(Vec::new());
    assert_eq!(run.calls(), [format!("{PAY}@1")], "it is sent again as it was");
    idempotent["steps"][2]["http"]["url"] = json!("https://other.example/refunds");
    run.plan = plan_of(idempotent);
    run.take(Vec::new());
    assert!(!run.calls().contains(&format!("{PAY}@1")), "{:?}", run.calls());
}

#[test]
fn an_agent_as_a_tool_is_bound_by_its_definition() {
    let delegating = |description: &str| {
        let every = json!({"name": "every", "type": "specificTools", "tools": ["delegate"], "hitl": gate(json!({}))});
        let mut spec = spec(gates(json!([every])));
        spec["agents"].as_array_mut().unwrap().push(json!({"name": "boss", "system": "lead", "tools": ["delegate"]}));
        let tool = json!({"name": "delegate", "step": "sub", "description": description});
        spec["tools"].as_array_mut().unwrap().push(tool);
        spec["steps"][0] = agent("lead", "boss", "go");
        spec["steps"].as_array_mut().unwrap().push(agent("sub", "clerk", "do it"));
        spec
    };
    let gate = "lead/.turn-1/.call-1/.gate";
    let mut run = TestRun::of(delegating("Delegates."));
    turn(&mut run, "lead", &[("c1", "delegate", "{}")]);
    run.plan = plan_of(delegating("Delegates everything."));
    run.approve(gate);
    assert_eq!((run.open(), run.calls()), (vec![format!("{gate}#2")], Vec::new()));
    run.approve(&format!("{gate}#2"));
    assert_eq!(run.calls(), ["lead/.turn-1/.call-1/sub@1"]);
}
