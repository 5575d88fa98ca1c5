//! The clock of the operator's machine decides nothing: deadlines, timers and recorded times are those of the API
//! server.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use serde_json::{Value, json};
use signoff_tests::sim::{Fault, On, Refusal, Request, Verb};

use crate::{
    harness::{Harness, OPERATOR},
    people::{name, verdict},
    scenarios::{RUN, chain, gate, set},
};

const DAY: i64 = 24 * 3600;
/// The seconds by which the machine's clock is ahead.
const AHEAD: [i64; 5] = [0, DAY + 3600, -600, 30 * DAY, -30 * DAY];

/// Applies a gate that a deadline approves after an hour, on a machine whose clock is wrong.
fn harness_with_gate(ahead: i64) -> Harness {
    let harness = Harness::new();
    harness.server.set_machines_ahead(ahead);
    let timeout = json!({"after": "1h", "action": "Approve"});
    harness.apply(RUN, &chain(json!([gate("review", json!({"timeout": timeout})), set("send", "sent")])));
    harness
}

fn parse_time(value: &Value) -> jiff::Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_gate_keeps_its_deadline_on_a_machine_with_a_wrong_clock() {
    for ahead in AHEAD {
        let harness = harness_with_gate(ahead);
        let _life = harness.begin_and_settle(OPERATOR).await;
        let asked = harness.server.clock().now();
        let expected = match ahead {
            0 => ("", ""),
            1.. => ("True", "MachineAhead"),
            ..0 => ("True", "MachineBehind"),
        };
        assert_eq!(harness.condition("ClockSkewed"), (expected.0.into(), expected.1.into()), "{ahead}");
        let deadline = parse_time(&harness.approval()["spec"]["request"]["deadline"]);
        let time = deadline.duration_since(asked).as_secs();
        assert!((3598..=3601).contains(&time), "{ahead}: a gate of an hour has {time} s");
        harness.pass(3500).await;
        assert!(harness.approval()["status"]["outcome"].is_null(), "{ahead}: ended early");
        harness.pass(110).await;
        let ended = harness.approval()["status"]["outcome"].clone();
        assert_eq!(ended["source"], "Timeout", "{ahead}");
        assert!(parse_time(&ended["decidedAt"]) >= deadline, "{ahead}: {ended}");
        assert_eq!(harness.workflow(RUN)["status"]["phase"], "Succeeded", "{ahead}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_while_a_gate_waits_changes_nothing() {
    for ahead in AHEAD {
        let harness = harness_with_gate(0);
        let _life = harness.begin_and_settle(OPERATOR).await;
        harness.pass(60).await;
        harness.server.set_machines_ahead(ahead);
        harness.pass(1800).await;
        assert!(harness.approval()["status"]["outcome"].is_null(), "{ahead}");
        // The honest twin: a person decides before the deadline, and the recorded time is that of the API server.
        harness.people().vote("alice", &name(&harness.approval()), verdict("Approve"));
        harness.pass(5).await;
        let outcome = harness.approval()["status"]["outcome"].clone();
        assert_eq!(outcome["source"], "Human", "{ahead}");
        let apart = parse_time(&outcome["decidedAt"]).duration_since(harness.server.clock().now()).abs();
        assert!(apart.as_secs() <= 6, "{ahead}: {outcome}");
    }
}

/// Before its first answer a new process has only its machine's time, and it decides nothing.
#[tokio::test(start_paused = true)]
async fn a_new_process_on_a_wrong_machine_ends_no_open_gate() {
    for ahead in AHEAD {
        let harness = harness_with_gate(0);
        harness.begin_and_settle(OPERATOR).await.crash().await;
        harness.server.set_machines_ahead(ahead);
        harness.server.fault(On::requests_of(OPERATOR).nth(1), Fault::Reset);
        let _life = harness.begin_and_settle(OPERATOR).await;
        harness.server.clock().pass(Duration::from_secs(600)).await;
        assert!(harness.approval()["status"]["outcome"].is_null(), "{ahead}");
    }
}

fn approvals_of(operator: &str) -> On {
    On::writes_of(operator).only(|request| request.resource.plural == "approvals" && request.verb == Verb::Create)
}

/// No person was asked at this gate: a quota refused its Approval until its deadline had passed.
#[tokio::test(start_paused = true)]
async fn a_gate_without_an_approval_does_not_approve_itself() {
    let harness = harness_with_gate(0);
    harness.server.fault(approvals_of(OPERATOR), Fault::Refuse(Refusal::new(403, "Forbidden", "exceeded quota: q")));
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.pass(2 * 3600).await;
    assert!(harness.approvals().is_empty(), "the premise");
    harness.server.heal();
    harness.pass(300).await;
    let asked = harness.approvals();
    let phases: Vec<_> = asked.iter().map(|approval| approval["status"]["phase"].to_string()).collect();
    assert_eq!(phases, [r#""Superseded""#, r#""Pending""#], "{}", harness.server.story());
    let left = parse_time(&asked[1]["spec"]["request"]["deadline"]).duration_since(harness.server.clock().now());
    assert!(left.as_secs() > 3000, "it has its whole time: {left}");
    assert_eq!(harness.workflow(RUN)["status"]["phase"], "Waiting");
}

/// Every Approval is created late, as behind a slow webhook.
#[tokio::test(start_paused = true)]
async fn a_gate_can_be_decided_when_every_creation_is_late() {
    let harness = harness_with_gate(0);
    let (clock, since) = (harness.server.clock(), Mutex::new(BTreeMap::new()));
    let is_early = move |request: &Request| {
        let is_creation = request.resource.plural == "approvals" && request.verb == Verb::Create;
        is_creation && {
            let mut since = since.lock().unwrap();
            let first = *since.entry(request.name.clone()).or_insert_with(|| clock.now());
            clock.now().duration_since(first).as_secs() < 10
        }
    };
    harness.server.fault(On::writes_of(OPERATOR).only(is_early), Fault::Refuse(Refusal::unavailable(1)));
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.pass(1800).await;
    let phases: Vec<_> = harness.approvals().iter().map(|approval| approval["status"]["phase"].clone()).collect();
    assert_eq!(phases.len(), 2, "{phases:?}");
    harness.people().decide("alice", "review", 1, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

/// A deadline approves nothing if decisions could not be read for more than half of the time, and the process lives.
#[tokio::test(start_paused = true)]
async fn a_gate_does_not_approve_itself_after_an_outage_of_half_its_time() {
    for (away, is_approved, lease) in [
        (2400, false, true),
        (600, true, true),
        (3601, false, true),
        (2400, false, false),
        (600, true, false),
        (3601, false, false),
    ] {
        let mut harness = harness_with_gate(0);
        harness.lease = lease;
        let life = harness.begin_and_settle(OPERATOR).await;
        assert_eq!(harness.approvals().len(), 1, "the premise");
        harness.server.fault(On::requests_of(OPERATOR), Fault::Reset);
        harness.server.drop_watches(OPERATOR);
        harness.pass(away).await;
        assert!(life.is_alive(), "{away} s: the process must not end");
        harness.server.heal();
        harness.pass(3900 - away).await;
        let phase = harness.workflow(RUN)["status"]["phase"].clone();
        assert_eq!(phase, if is_approved { "Succeeded" } else { "Waiting" }, "{away} s:\n{}", harness.server.story());
    }
}
