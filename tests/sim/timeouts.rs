//! Deadlines: they pass without any person, after downtime, and against a decision of the same instant. There is always
//! one outcome, the Approval and the journal agree on it, and it stays.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Crash, Fault, On};

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, OPERATOR, approvals},
    people::{name, verdict},
    scenarios::{RUN, chain, gate, set},
};

/// Returns a run whose only gate has a deadline of five minutes.
fn run_of_five_minutes(action: &str, more: Value) -> Value {
    let mut timeout = json!({"after": "5m", "action": action});
    for (field, value) in more.as_object().into_iter().flatten() {
        timeout[field] = value.clone();
    }
    chain(json!([gate("review", json!({"timeout": timeout})), set("send", "sent")]))
}

fn harness_with_run(action: &str) -> Harness {
    let harness = Harness::new();
    harness.apply(RUN, &run_of_five_minutes(action, json!({})));
    harness
}

/// Returns the decision in the journal.
fn recorded_decision(harness: &Harness) -> Value {
    list(&harness.workflow(RUN)["status"]["steps"])
        .find(|step| step["path"] == "review")
        .map(|step| step["decision"].clone())
        .unwrap_or_default()
}

/// Checks that the journal and the Approval have the same outcome, and keep it under later operators.
async fn check_final_outcome(harness: &Harness) -> Value {
    harness.wait_for_end(RUN).await;
    let (journal, workflow) = (recorded_decision(harness), harness.workflow(RUN));
    assert!(journal["verdict"].is_string());
    for field in ["verdict", "source", "phase", "decidedBy", "decidedAt"] {
        assert_eq!(
            harness.approval()["status"]["outcome"][field],
            journal[field],
            "{field}:\n{}",
            harness.server.story()
        );
    }
    let approval = harness.approval();
    for _ in 0..3 {
        let life = harness.begin(OPERATOR);
        harness.pass(3600).await;
        life.crash().await;
    }
    assert_eq!(
        (harness.approval(), harness.workflow(RUN)),
        (approval, workflow),
        "nothing may change any more:\n{}",
        harness.server.story()
    );
    journal
}

#[tokio::test(start_paused = true)]
async fn a_deadline_fires_at_its_exact_time() {
    let harness = harness_with_run("Reject");
    let _life = harness.begin(OPERATOR);
    let workflow = harness.wait_for_end(RUN).await;
    let approval = harness.approval();
    assert_eq!(approval["status"]["phase"], "Expired");
    assert_eq!(approval["status"]["outcome"]["source"], "Timeout");
    assert_eq!(approval["status"]["outcome"]["decidedAt"], approval["spec"]["request"]["deadline"]);
    assert_eq!(workflow["status"]["phase"], "Rejected");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_fires_when_the_next_operator_starts() {
    for action in ["Reject", "Abort", "Skip", "Approve", "Retry"] {
        let harness = harness_with_run(action);
        harness.begin_and_settle(OPERATOR).await.crash().await;
        harness.pass(7200).await;
        assert!(harness.approval()["status"]["outcome"].is_null(), "nobody was there to see");
        let _life = harness.begin_and_settle(OPERATOR).await;
        let expired = recorded_decision(&harness);
        assert_eq!((&expired["source"], &expired["phase"]), (&json!("Timeout"), &json!("Expired")), "{action}");
        let phase = match action {
            "Reject" => "Rejected",
            "Abort" => "Aborted",
            "Retry" => "Waiting",
            _ => "Succeeded",
        };
        assert_eq!(harness.workflow(RUN)["status"]["phase"], phase, "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_in_time_counts_when_the_operator_starts_later() {
    let harness = harness_with_run("Reject");
    harness.begin_and_settle(OPERATOR).await.crash().await;
    harness.people().vote("alice", &name(&harness.approval()), verdict("Approve"));
    harness.pass(7200).await;
    let life = harness.begin_and_settle(OPERATOR).await;
    life.crash().await;
    assert_eq!(check_final_outcome(&harness).await["verdict"], "Approve");
}

#[tokio::test(start_paused = true)]
async fn a_decision_and_a_deadline_at_the_same_instant_have_one_winner() {
    let mut winners = std::collections::BTreeSet::new();
    for milliseconds in [-2_i64, -1, 0, 1, 2] {
        for delay in [0, 1, 3] {
            let harness = harness_with_run("Reject");
            harness.server.delay_events(OPERATOR, Duration::from_millis(delay));
            let life = harness.begin_and_settle(OPERATOR).await;
            let approval = name(&harness.approval());
            let deadline: jiff::Timestamp =
                harness.approval()["spec"]["request"]["deadline"].as_str().unwrap().parse().unwrap();
            let left = deadline.duration_since(harness.server.clock().now()).as_millis() as i64;
            harness.server.clock().pass(Duration::from_millis((left + milliseconds) as u64)).await;
            harness.people().vote("alice", &approval, verdict("Approve"));
            harness.pass(1).await;
            life.crash().await;
            winners.insert(check_final_outcome(&harness).await["verdict"].to_string());
        }
    }
    assert_eq!(winners.len(), 2, "both must have won somewhere, else there was no race");
}

#[tokio::test(start_paused = true)]
async fn a_decision_just_before_the_expiry_is_committed_counts() {
    for crash in [None, Some(Crash::Applied), Some(Crash::NotApplied)] {
        let harness = harness_with_run("Reject");
        let expiry = || {
            On::writes_of(OPERATOR)
                .only(|request| request.resource == approvals() && request.subresource.is_some())
                .nth(1)
        };
        harness.server.fault(
            expiry(),
            Fault::before(|server| {
                let approval = name(&server.values(&approvals(), Some(NAMESPACE))[0]);
                server.as_person("alice").decides(NAMESPACE, &approval, verdict("Approve")).unwrap();
            }),
        );
        if let Some(crash) = crash {
            harness.server.fault(expiry(), Fault::Crash(crash));
        }
        let ((), deaths) = harness
            .keep_alive(&[OPERATOR], async {
                harness.wait_for_end(RUN).await;
                harness.pass(1).await
            })
            .await;
        assert_eq!(deaths, usize::from(crash.is_some()));
        assert_eq!(check_final_outcome(&harness).await["verdict"], "Approve", "{crash:?}:\n{}", harness.server.story());
    }
}

#[tokio::test(start_paused = true)]
async fn an_overdue_gate_waits_and_is_asked_again_on_request() {
    let harness = Harness::new();
    let gate = gate(
        "review",
        json!({"allowedVerdicts": ["Approve", "Reject", "Retry"], "timeout": {"after": "5m", "action": "Expire"}}),
    );
    harness.apply(RUN, &chain(json!([gate, set("send", "sent")])));
    let _life = harness.begin(OPERATOR);
    harness.pass(30 * 3600).await;
    assert_eq!(harness.approval()["status"]["phase"], "Overdue");
    let people = harness.people();
    people.vote("bob", &name(&harness.approval()), verdict("Retry"));
    people.decide("alice", "review#2", 60, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn reminders_do_not_move_the_deadline() {
    let harness = Harness::new();
    harness.apply(RUN, &run_of_five_minutes("Reject", json!({"reminderInterval": "1m", "maxReminders": 3})));
    let _life = harness.begin(OPERATOR);
    harness.wait_for_end(RUN).await;
    harness.pass(10).await;
    let reminders = harness.events("Reminder");
    assert_eq!(reminders.len(), 3, "{}", harness.server.story());
    assert_eq!(harness.approval()["status"]["reminders"], 3);
    let began: jiff::Timestamp = harness.approval()["spec"]["request"]["deadline"].as_str().unwrap().parse().unwrap();
    let minutes: Vec<i64> = reminders
        .iter()
        .map(|event| {
            let at: jiff::Timestamp = event["eventTime"].as_str().unwrap().parse().unwrap();
            at.duration_since(began).as_secs() / 60
        })
        .collect();
    assert_eq!(minutes, [-4, -3, -2]);
}
