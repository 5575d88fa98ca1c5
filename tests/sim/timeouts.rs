//! Deadlines: they come to pass with nobody there, after downtime, and against a decision of the same instant.
//! Whatever wins, there is one outcome, the Approval and the journal tell the same one, and it stays.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Crash, Fault, On};

use crate::{
    ending::list,
    harness::{NAMESPACE, OPERATOR, Stage, approvals},
    people::{name, verdict},
    scenarios::{RUN, chain, gate, set},
};

/// A run whose only gate is rejected after five minutes.
fn five_minutes(action: &str, more: Value) -> Value {
    let mut timeout = json!({"after": "5m", "action": action});
    for (field, value) in more.as_object().into_iter().flatten() {
        timeout[field] = value.clone();
    }
    chain(json!([gate("review", json!({"timeout": timeout})), set("send", "sent")]))
}

fn applied(action: &str) -> Stage {
    let stage = Stage::new();
    stage.apply(RUN, &five_minutes(action, json!({})));
    stage
}

/// What the journal says was decided.
fn decided(stage: &Stage) -> Value {
    list(&stage.workflow(RUN)["status"]["steps"])
        .find(|step| step["path"] == "review")
        .map(|step| step["decision"].clone())
        .unwrap_or_default()
}

/// The journal and the Approval say the same, and keep saying it to operators to come.
async fn one_outcome_for_ever(stage: &Stage) -> Value {
    stage.ended(RUN).await;
    let (journal, workflow) = (decided(stage), stage.workflow(RUN));
    assert!(journal["verdict"].is_string());
    for field in ["verdict", "source", "phase", "decidedBy", "decidedAt"] {
        assert_eq!(stage.approval()["status"]["outcome"][field], journal[field], "{field}:\n{}", stage.server.story());
    }
    let approval = stage.approval();
    for _ in 0..3 {
        let life = stage.begin(OPERATOR);
        stage.pass(3600).await;
        life.crash().await;
    }
    assert_eq!(
        (stage.approval(), stage.workflow(RUN)),
        (approval, workflow),
        "nothing may change any more:\n{}",
        stage.server.story()
    );
    journal
}

#[tokio::test(start_paused = true)]
async fn a_deadline_fires_to_the_instant_with_nobody_there() {
    let stage = applied("Reject");
    let _life = stage.begin(OPERATOR);
    let workflow = stage.ended(RUN).await;
    let approval = stage.approval();
    assert_eq!(approval["status"]["phase"], "Expired");
    assert_eq!(approval["status"]["outcome"]["source"], "Timeout");
    assert_eq!(approval["status"]["outcome"]["decidedAt"], approval["spec"]["request"]["deadline"]);
    assert_eq!(workflow["status"]["phase"], "Rejected");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passed_while_no_operator_lived_fires_when_one_does() {
    for action in ["Reject", "Abort", "Skip", "Approve", "Retry"] {
        let stage = applied(action);
        stage.begin_and_settle(OPERATOR).await.crash().await;
        stage.pass(7200).await;
        assert!(stage.approval()["status"]["outcome"].is_null(), "nobody was there to see");
        let _life = stage.begin_and_settle(OPERATOR).await;
        let expired = decided(&stage);
        assert_eq!((&expired["source"], &expired["phase"]), (&json!("Timeout"), &json!("Expired")), "{action}");
        let phase = match action {
            "Reject" => "Rejected",
            "Abort" => "Aborted",
            "Retry" => "Waiting",
            _ => "Succeeded",
        };
        assert_eq!(stage.workflow(RUN)["status"]["phase"], phase, "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_in_time_wins_although_the_operator_slept_over_the_deadline() {
    let stage = applied("Reject");
    stage.begin_and_settle(OPERATOR).await.crash().await;
    stage.people().votes("alice", &name(&stage.approval()), verdict("Approve"));
    stage.pass(7200).await;
    let life = stage.begin_and_settle(OPERATOR).await;
    life.crash().await;
    assert_eq!(one_outcome_for_ever(&stage).await["verdict"], "Approve");
}

#[tokio::test(start_paused = true)]
async fn a_decision_and_a_deadline_at_the_same_instant_have_one_winner() {
    let mut winners = std::collections::BTreeSet::new();
    for milliseconds in [-2_i64, -1, 0, 1, 2] {
        for delay in [0, 1, 3] {
            let stage = applied("Reject");
            stage.server.delay_events(OPERATOR, Duration::from_millis(delay));
            let life = stage.begin_and_settle(OPERATOR).await;
            let approval = name(&stage.approval());
            let deadline: jiff::Timestamp =
                stage.approval()["spec"]["request"]["deadline"].as_str().unwrap().parse().unwrap();
            let left = deadline.duration_since(stage.server.clock().now()).as_millis() as i64;
            stage.server.clock().pass(Duration::from_millis((left + milliseconds) as u64)).await;
            stage.people().votes("alice", &approval, verdict("Approve"));
            stage.pass(1).await;
            life.crash().await;
            winners.insert(one_outcome_for_ever(&stage).await["verdict"].to_string());
        }
    }
    assert_eq!(winners.len(), 2, "both must have won somewhere, else there was no race");
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_is_stored_just_before_the_expiry_is_committed_wins() {
    for crash in [None, Some(Crash::Applied), Some(Crash::NotApplied)] {
        let stage = applied("Reject");
        let expiry = || {
            On::writes_of(OPERATOR)
                .only(|request| request.resource == approvals() && request.subresource.is_some())
                .nth(1)
        };
        stage.server.fault(
            expiry(),
            Fault::before(|server| {
                let approval = name(&server.values(&approvals(), Some(NAMESPACE))[0]);
                server.as_person("alice").decides(NAMESPACE, &approval, verdict("Approve")).unwrap();
            }),
        );
        if let Some(crash) = crash {
            stage.server.fault(expiry(), Fault::Crash(crash));
        }
        let ((), deaths) = stage
            .keep_alive(&[OPERATOR], async {
                stage.ended(RUN).await;
                stage.pass(1).await
            })
            .await;
        assert_eq!(deaths, usize::from(crash.is_some()));
        assert_eq!(one_outcome_for_ever(&stage).await["verdict"], "Approve", "{crash:?}:\n{}", stage.server.story());
    }
}

#[tokio::test(start_paused = true)]
async fn an_overdue_gate_waits_for_ever_and_is_asked_again_on_request() {
    let stage = Stage::new();
    let gate = gate(
        "review",
        json!({"allowedVerdicts": ["Approve", "Reject", "Retry"], "timeout": {"after": "5m", "action": "Expire"}}),
    );
    stage.apply(RUN, &chain(json!([gate, set("send", "sent")])));
    let _life = stage.begin(OPERATOR);
    stage.pass(30 * 3600).await;
    assert_eq!(stage.approval()["status"]["phase"], "Overdue");
    let people = stage.people();
    people.votes("bob", &name(&stage.approval()), verdict("Retry"));
    people.decides("alice", "review#2", 60, verdict("Approve")).await;
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn people_are_reminded_and_the_deadline_holds() {
    let stage = Stage::new();
    stage.apply(RUN, &five_minutes("Reject", json!({"reminderInterval": "1m", "maxReminders": 3})));
    let _life = stage.begin(OPERATOR);
    stage.ended(RUN).await;
    stage.pass(10).await;
    let reminders = stage.events("Reminder");
    assert_eq!(reminders.len(), 3, "{}", stage.server.story());
    assert_eq!(stage.approval()["status"]["reminders"], 3);
    let began: jiff::Timestamp = stage.approval()["spec"]["request"]["deadline"].as_str().unwrap().parse().unwrap();
    let minutes: Vec<i64> = reminders
        .iter()
        .map(|event| {
            let at: jiff::Timestamp = event["eventTime"].as_str().unwrap().parse().unwrap();
            at.duration_since(began).as_secs() / 60
        })
        .collect();
    assert_eq!(minutes, [-4, -3, -2]);
}
