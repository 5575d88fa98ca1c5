//! A call is made once unless people decide about exactly it: across a Defer, in one turn, and after an edit. The log
//! of the bank shows the payments.

use serde_json::{Value, json};
use signoff_api::{conditions, workflow::WorkflowPhase};

use super::scene::{Scene, call, error, gate_of, last_turn, turn_of};
use super::{clerk, payments};

/// Returns a refund of this amount, as a call with this id.
fn refund(id: &str, amount: u32) -> Value {
    call(id, "refund", &json!({"amount": amount, "customer": "ACME"}))
}

fn refund_arguments(amount: u32) -> Value {
    json!({"amount": amount, "customer": "ACME"})
}

/// Returns the spec of [`clerk`] without its first gate, the one before refunds, and with a review of the agent's
/// answer that can defer. `change` edits the spec last.
fn spec_with_review(scene: &Scene, run: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = clerk(scene, run, json!({}), json!({}));
    spec["gates"].as_array_mut().unwrap().remove(0);
    let verdicts = json!({"allowedVerdicts": ["Approve", "Reject", "Defer", "Abort"]});
    let review = json!({"name": "review", "hitl": gate_of("finance", verdicts)});
    spec["steps"].as_array_mut().unwrap().insert(1, review);
    change(&mut spec);
    spec
}

/// Moves the review into a gate about the answer of the agent, which does not know its earlier turns.
fn review_fresh_answer(spec: &mut Value) {
    let review = spec["steps"].as_array_mut().unwrap().remove(1);
    let check = json!({"name": "review", "type": "outputValidation", "steps": ["handle"], "hitl": review["hitl"]});
    spec["gates"].as_array_mut().unwrap().push(check);
    spec["steps"][0]["agent"]["conversation"] = json!("fresh");
}

/// Defers a run twice at its review, and then approves.
async fn defer_twice_and_approve(scene: &Scene, run: &str, review: &str) {
    for gate in [review.to_owned(), format!("{review}#2")] {
        let approval = scene.wait_for_gate(run, &gate).await;
        scene.run_verdict("carol", "defer", &approval, &["--guidance", "say it warmer"]).await.ok().unwrap();
    }
    let approval = scene.wait_for_gate(run, &format!("{review}#3")).await;
    scene.run_verdict("carol", "approve", &approval, &[]).await.ok().unwrap();
    scene.wait_for_success(run).await;
}

#[tokio::test]
async fn a_deferred_agent_does_not_pay_again_unless_its_tool_is_repeatable() {
    let visits = || (0..3).flat_map(|_| [turn_of(&[refund("call_a", 420)]), last_turn()]).collect::<Vec<_>>();
    let models = ["remembers", "fresh", "repeatable"].map(|run| (run, visits()));
    let scene = Scene::open("deferred", models.into(), &[]).await;
    let repeatable = |spec: &mut Value| {
        review_fresh_answer(spec);
        spec["tools"][0]["repeatable"] = json!(true);
    };
    tokio::join!(
        scene.begin("remembers", spec_with_review(&scene, "remembers", |_| {})),
        scene.begin("fresh", spec_with_review(&scene, "fresh", review_fresh_answer)),
        scene.begin("repeatable", spec_with_review(&scene, "repeatable", repeatable)),
        scene.begin(
            "refused",
            spec_with_review(&scene, "refused", |spec| spec["steps"][0]["agent"]["conversation"] = json!("fresh"))
        ),
    );
    tokio::join!(
        defer_twice_and_approve(&scene, "remembers", "review"),
        defer_twice_and_approve(&scene, "fresh", "handle/.output"),
        defer_twice_and_approve(&scene, "repeatable", "handle/.output"),
    );
    for run in ["remembers", "fresh"] {
        assert_eq!(payments(&scene, run), [refund_arguments(420)], "{run}");
        let told = scene.results_of_last_turn(run).pop().unwrap().result;
        let marked = told.starts_with("Not made again: an equal call was made at ");
        assert!(marked && told.ends_with("Its result was:\npaid"), "{run}: {told}");
    }
    assert_eq!(payments(&scene, "repeatable"), [refund_arguments(420), refund_arguments(420), refund_arguments(420)]);

    // A step of the list that forgets its calls cannot be deferred.
    let refused = scene.wait_for_end("refused").await;
    let accepted = refused.conditions.iter().find(|condition| condition.type_ == conditions::ACCEPTED).unwrap();
    assert!(accepted.message.contains("Defer runs step handle again"), "{}", accepted.message);
    assert!(
        refused.phase == WorkflowPhase::Failed && scene.model_requests("refused").is_empty(),
        "{:?}",
        refused.phase
    );
}

#[tokio::test]
async fn a_call_that_was_edited_twice_is_not_edited_a_third_time() {
    // One model proposes the same call in each turn, the other model three times in one turn.
    let ids = ["a", "b", "c"];
    let mut turns: Vec<_> = ids.iter().map(|id| turn_of(&[refund(id, 420)])).collect();
    turns.extend([turn_of(&[refund("d", 7)]), last_turn()]);
    let at_once = vec![turn_of(&ids.map(|id| refund(id, 420))), last_turn()];
    let scene = Scene::open("edited", vec![("refused", turns), ("escalated", at_once)], &[]).await;
    let mut escalated = clerk(&scene, "escalated", json!({}), json!({}));
    let help = json!({"name": "help", "type": "errorEscalation", "steps": ["pay"], "hitl": gate_of("sre", json!({}))});
    escalated["gates"].as_array_mut().unwrap().push(help);
    tokio::join!(
        scene.begin("refused", clerk(&scene, "refused", json!({}), json!({}))),
        scene.begin("escalated", escalated),
    );
    // bob edits 420 to 42, and carol approves the edit.
    let edits = async |run: &str, gate: &str| {
        let approval = scene.wait_for_gate(run, gate).await;
        let set = format!("arguments={}", refund_arguments(42));
        scene.run_verdict("bob", "modify", &approval, &["--set", &set]).await.ok().unwrap();
        let edited = scene.wait_for_gate(run, &format!("{gate}#2")).await;
        scene.run_verdict("carol", "approve", &edited, &[]).await.ok().unwrap();
        edited.spec.request.action.unwrap().done
    };
    let turn_by_turn = async {
        edits("refused", "handle/.turn-1/.call-1/.gate").await;
        let done = edits("refused", "handle/.turn-2/.call-1/.gate").await;
        let made = done
            .iter()
            .any(|line| line.starts_with("this call was made at ") && line.ends_with("with this result: paid"));
        assert!(made, "carol is told that the edited call was made before: {done:?}");
        // A call with another amount is another call, about which people are asked.
        let other = scene.wait_for_gate("refused", "handle/.turn-4/.call-1/.gate").await;
        scene.run_verdict("carol", "approve", &other, &[]).await.ok().unwrap();
        scene.wait_for_success("refused").await;
    };
    let in_one_turn = async {
        edits("escalated", "handle/.turn-1/.call-1/.gate").await;
        edits("escalated", "handle/.turn-1/.call-2/.gate").await;
        let third = scene.wait_for_gate("escalated", "handle/.turn-1/.call-3/.error").await;
        let quorums: Vec<_> = third.spec.request.quorums.iter().map(|quorum| quorum.source.as_str()).collect();
        assert_eq!(quorums, ["gate help", "gate money"]);
        // A vote of erin alone is not enough: the approvers of the gate that edited the call are asked too.
        let recorded = scene.run_verdict("erin", "skip", &third, &["--wait=0s"]).await.ok().unwrap();
        assert!(recorded.contains("Skip recorded"), "{recorded}");
        scene.run_verdict("alice", "skip", &third, &[]).await.ok().unwrap();
        scene.wait_for_success("escalated").await;
    };
    tokio::join!(turn_by_turn, in_one_turn);
    assert_eq!(payments(&scene, "refused"), [refund_arguments(42), refund_arguments(42), refund_arguments(7)]);
    let told = scene.results_of_last_turn("refused");
    let why = "people changed the arguments of this call of refund 2 times in this run";
    assert_eq!(told[2].result, format!("Refused: {why}; do not call it again"));
    assert_eq!(told[3].result, "paid");
    assert_eq!(payments(&scene, "escalated"), [refund_arguments(42), refund_arguments(42)]);
    assert_eq!(scene.results_of_last_turn("escalated")[2].result, "Skipped by a human");
}

#[tokio::test]
async fn equal_calls_under_one_id_are_numbered_in_each_request() {
    const RUN: &str = "equal";
    let mut calls: Vec<_> = (0..4).map(|_| refund("call_a", 420)).collect();
    calls.push(refund("call_a", 10));
    let scene = Scene::open(RUN, vec![(RUN, vec![turn_of(&calls), last_turn()])], &[]).await;
    scene.begin(RUN, clerk(&scene, RUN, json!({}), json!({}))).await;
    let gate = |call: u32| format!("handle/.turn-1/.call-{call}/.gate");
    let done = async |call: u32| {
        let approval = scene.wait_for_gate(RUN, &gate(call)).await;
        let done = approval.spec.request.action.clone().unwrap().done;
        (approval, done)
    };
    let (first, nothing) = done(1).await;
    assert!(!nothing.iter().any(|line| line.contains("Succeeded")), "{nothing:?}");
    scene.run_verdict("bob", "approve", &first, &[]).await.ok().unwrap();

    let ran = r#"refund {"amount":420,"customer":"ACME"}: Succeeded"#;
    let (second, lines) = done(2).await;
    assert!(lines.iter().any(|line| line == ran), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("this call was made at ")), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "this is call 2 of 4 equal calls of this turn, 1 of them ran");
    let shown = scene.show("bob", &second).await;
    assert!(shown.contains("this is call 2 of 4 equal calls") && !shown.contains("no calls of tools"), "{shown}");
    // The honest twin: people approve exactly this repetition.
    scene.run_verdict("bob", "approve", &second, &[]).await.ok().unwrap();
    let (third, lines) = done(3).await;
    assert_eq!(lines.last().unwrap(), "this is call 3 of 4 equal calls of this turn, 2 of them ran");
    assert_eq!(payments(&scene, RUN), [refund_arguments(420), refund_arguments(420)]);
    scene.run_verdict("bob", "reject", &third, &["--reason", "twice is enough"]).await.ok().unwrap();

    // The last call has the same id and another amount, so people are asked about it too.
    let (other, _) = done(5).await;
    scene.run_verdict("bob", "approve", &other, &[]).await.ok().unwrap();
    let status = scene.wait_for_success(RUN).await;
    let (class, why) = error(&status, "handle/.turn-1/.call-4/.check");
    assert_eq!((class, why), ("Refused", "it is equal to call 3 of this turn, which was not made"));
    assert_eq!(payments(&scene, RUN), [refund_arguments(420), refund_arguments(420), refund_arguments(10)]);
    let told: Vec<_> = scene.results_of_last_turn(RUN).into_iter().map(|told| (told.id, told.result)).collect();
    let denied = "Denied by a human: twice is enough";
    let results =
        [("call_a", "paid"), ("call_a-2", "paid"), ("call_a-3", denied), ("call_a-4", denied), ("call_a-5", "paid")];
    assert_eq!(told, results.map(|(id, result)| (id.to_owned(), result.to_owned())));
}
