//! Runs that were accepted under other rules than those of this version are held: nothing of them is counted or begun.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::rules::RULES;
use signoff_tests::sim::{Answer, Garbage};

use crate::{
    ending::list,
    harness::{Harness, Life, NAMESPACE, OPERATOR, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, post},
};

fn payment() -> Value {
    chain(json!([
        gate("review", json!({"timeout": {"after": "1h", "action": "Approve"}})),
        post("pay", "42 EUR", "fail")
    ]))
}

/// Stores the number of the rules under which the run was accepted.
fn set_rules(harness: &Harness, rules: Option<i32>) {
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| {
        let status = object["status"].as_object_mut().unwrap();
        status.remove("rules");
        status.extend(rules.map(|rules| ("rules".to_owned(), json!(rules))));
    });
}

/// Starts a run that waits at its gate, accepted under these rules, with a vote of alice, and an operator of this
/// version.
async fn begin_with_vote(rules: Option<i32>) -> (Harness, Life) {
    let harness = Harness::new();
    harness.apply(RUN, &payment());
    let life = harness.begin(OPERATOR);
    let asked = harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    assert_eq!(harness.workflow(RUN)["status"]["rules"], RULES, "the number is pinned at acceptance");
    life.crash().await;
    set_rules(&harness, rules);
    harness.people().vote("alice", &asked, verdict("Approve"));
    let life = harness.begin(OPERATOR);
    (harness, life)
}

fn is_held(harness: &Harness) -> bool {
    harness.condition("Held") == ("True".to_owned(), "OldRules".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_run_of_other_rules_is_held_and_its_vote_is_not_counted() {
    for rules in [None, Some(1), Some(RULES + 1)] {
        let (harness, life) = begin_with_vote(rules).await;
        let before = harness.workflow(RUN);
        harness.pass(48 * 3600).await;
        assert!(is_held(&harness), "{rules:?}: {:#}", harness.workflow(RUN));
        let held = harness.workflow(RUN);
        for field in ["phase", "steps", "pending", "rules", "finishedAt"] {
            assert_eq!(held["status"][field], before["status"][field], "{field}");
        }
        let message = held["status"]["message"].as_str().unwrap();
        assert!(message.contains("cancel it and start it anew"), "{message}");
        assert!(list(&held["status"]["conditions"]).all(|condition| condition["type"] != "Waiting"), "{held:#}");
        assert_eq!(harness.events("Held").len(), 1, "it is told once");
        let approval = harness.approval();
        assert!(approval["spec"]["decisions"]["alice"].is_object(), "{approval:#}");
        for field in ["outcome", "votes", "tally", "invalid"] {
            assert!(approval["status"][field].is_null(), "{field}: {approval:#}");
        }
        assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
        life.crash().await;

        // The operator of these rules counts the vote, although the deadline has passed since.
        set_rules(&harness, Some(RULES));
        let life = harness.begin(OPERATOR);
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
        assert!(!is_held(&harness));
        assert_eq!(harness.approval()["status"]["outcome"]["source"], "Human");
        assert_eq!(harness.world.effects().len(), 1, "{}", harness.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_of_these_rules_goes_on_when_its_operator_is_replaced() {
    let (harness, life) = begin_with_vote(Some(RULES)).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
    assert_eq!((harness.events("Held").len(), harness.world.effects().len()), (0, 1));
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_of_other_rules_can_be_suspended_cancelled_and_deleted() {
    for end in ["suspend", "cancel", "delete"] {
        let (harness, life) = begin_with_vote(None).await;
        harness.pass(10).await;
        assert!(is_held(&harness), "{end}");
        match end {
            "suspend" => {
                harness.people().set_field(RUN, "suspend", true);
                harness.wait_for_phase(RUN, "Suspended").await;
                harness.people().set_field(RUN, "suspend", false);
                harness.wait_for_phase(RUN, "Waiting").await;
                harness.pass(3600).await;
                assert!(is_held(&harness) && harness.approval()["status"]["outcome"].is_null());
            }
            "cancel" => {
                harness.people().set_field(RUN, "cancel", true);
                assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
                harness.pass(10).await;
                assert!(!is_held(&harness));
                assert_eq!(harness.approval()["status"]["outcome"]["phase"], "Cancelled");
            }
            _ => {
                harness.server.garbage(Garbage::WhenTold);
                assert!(harness.server.remove(&workflows(), NAMESPACE, RUN));
                harness.pass(10).await;
                assert_eq!(harness.approval()["status"]["outcome"]["phase"], "Cancelled");
            }
        }
        harness.pass(3600).await;
        assert_eq!(harness.world.effects().len(), 0, "{end}: {}", harness.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_of_a_run_of_other_rules_is_recorded() {
    let harness = Harness::new();
    harness.world.answers(format!("{RUN}/pay"), Answer::value("paid").after(Duration::from_secs(20)));
    harness.apply(RUN, &chain(json!([post("pay", "42 EUR", "fail"), post("tell", "paid", "fail")])));
    let life = harness.begin(OPERATOR);
    harness.pass(10).await;
    set_rules(&harness, None);
    harness.pass(3600).await;
    let run = harness.workflow(RUN);
    assert!(is_held(&harness), "{run:#}\n{}", harness.server.story());
    let records: Vec<_> = list(&run["status"]["steps"]).map(|record| (&record["path"], &record["phase"])).collect();
    assert_eq!(records, [(&json!("pay"), &json!("Succeeded"))], "{run:#}");
    assert_eq!(harness.world.effects().len(), 1, "{}", harness.server.story());
    life.crash().await;
}
