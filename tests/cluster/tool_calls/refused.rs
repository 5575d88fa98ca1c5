//! An error lets no effect through: conditions that cannot be evaluated, and numbers that JSON readers round. The log
//! of the server shows what was sent.

use kube::ResourceExt;
use serde_json::{Value, json};
use signoff_api::{Verdict, journal::StepPhase, workflow::WorkflowPhase};
use signoff_tests::control_plane::named;

use super::scene::{Scene, call, error, gate_of, last_turn, raw_call, record, turn_of};

/// Returns a step that reads, and one that pays unless the answer is `refunded`.
fn steps_that_read_and_pay(scene: &Scene, run: &str, look: &str, answers_object: bool) -> [Value; 2] {
    let mut looks = json!({"name": look, "http": {"url": scene.url(run, &format!("/{look}"))}});
    if answers_object {
        looks["outputSchema"] = json!({"type": "object"});
    }
    let http = json!({"method": "POST", "url": scene.url(run, &format!("/pay-{look}")), "body": "420"});
    let skips = format!("steps.{look}.response.status == 'refunded'");
    [looks, json!({"name": format!("pay-{look}"), "skipIf": skips, "http": http})]
}

#[tokio::test]
async fn a_payment_whose_condition_cannot_be_evaluated_is_not_sent() {
    let answers = [
        ("GET /alone/text", "it was refunded"),
        ("GET /asked/text", "it was refunded"),
        ("GET /asked/bare", r#"{"state": "refunded"}"#),
        ("GET /asked/paid", r#"{"status": "paid"}"#),
        ("GET /asked/refunded", r#"{"status": "refunded"}"#),
    ];
    let scene = Scene::open("condition", Vec::new(), &answers).await;
    let alone = json!({"steps": steps_that_read_and_pay(&scene, "alone", "text", false)});
    let steps =
        ["text", "bare", "paid", "refunded"].map(|look| steps_that_read_and_pay(&scene, "asked", look, look != "text"));
    let verdicts = json!({"allowedVerdicts": ["Retry", "Skip", "Reject", "Abort"]});
    let help = json!({"name": "help", "type": "errorEscalation", "steps": ["pay-text", "pay-bare"],
        "hitl": gate_of("finance", verdicts)});
    tokio::join!(
        scene.begin("alone", alone),
        scene.begin("asked", json!({"gates": [help], "steps": steps.as_flattened()})),
    );

    // The run without a gate fails.
    let status = scene.wait_for_end("alone").await;
    let (class, why) = error(&status, "pay-text");
    assert!(class == "Condition" && why.contains("skipIf"), "{class}: {why}");
    assert_eq!((status.phase, record(&status, "pay-text").phase), (WorkflowPhase::Failed, StepPhase::Failed));
    assert!(status.message.as_ref().is_some_and(|message| message.contains("pay-text")), "{:?}", status.message);
    assert_eq!(scene.sent_requests("alone"), [("GET /text".to_owned(), String::new())]);

    // People can skip the payment. Retry is no answer, although its author lists it.
    let bob = scene.runs.cluster.token_client("bob").await.unwrap();
    for look in ["text", "bare"] {
        let approval = scene.wait_for_gate("asked", &format!("pay-{look}/.error")).await;
        assert_eq!(approval.spec.request.allowed_verdicts, [Verdict::Skip, Verdict::Reject, Verdict::Abort]);
        let user = named("bob").unwrap().user;
        let retry = scene.runs.decide(&bob, user, &approval.name_any(), json!({"verdict": "Retry"})).await;
        let refused = retry.unwrap_err();
        assert!(refused.ends_with("verdict must be one of Skip, Reject, Abort"), "{refused}");
        scene.run_verdict("bob", "skip", &approval, &[]).await.ok().unwrap();
    }
    // The honest twins: one condition is false and the payment is sent, the other one is true and it is skipped.
    let status = scene.wait_for_success("asked").await;
    for look in ["text", "bare"] {
        assert_eq!(error(&status, &format!("pay-{look}")).0, "Condition");
    }
    assert_eq!(record(&status, "pay-refunded").phase, StepPhase::Skipped);
    let sent: Vec<_> = scene.sent_requests("asked").into_iter().map(|(what, _)| what).collect();
    assert_eq!(sent, ["GET /text", "GET /bare", "GET /paid", "POST /pay-paid", "GET /refunded"]);
}

#[tokio::test]
async fn a_number_that_would_be_rounded_is_not_sent_and_one_in_a_text_is() {
    const RUN: &str = "numbers";
    const LONG: &str = "123456789012345678901234567890";
    let beyond = ["1234567890123456789", LONG, "1e400"];
    let mut calls: Vec<_> = beyond
        .iter()
        .enumerate()
        .map(|(at, number)| raw_call(&format!("c{}", at + 1), "refund", &format!(r#"{{"order": {number}}}"#)))
        .collect();
    calls.push(call("c4", "refund", &json!({"order": LONG})));
    calls.push(raw_call("c5", "refund", r#"{"order": 9007199254740992}"#));
    let scene = Scene::open(RUN, vec![(RUN, vec![turn_of(&calls), last_turn()])], &[]).await;
    let parameters =
        json!({"type": "object", "required": ["order"], "properties": {"order": {"type": ["integer", "string"]}}});
    let http = json!({"method": "POST", "url": scene.url(RUN, "/refunds"), "body": "{{ args | tojson }}"});
    // There is no gate, so a call that is not refused is sent.
    let spec = json!({
        "providers": scene.providers(RUN),
        "agents": [{"name": "clerk", "model": "small", "provider": "models", "tools": ["refund"]}],
        "tools": [{"name": "refund", "step": "pay", "description": "Refund an order.", "effects": "irreversible",
            "parameters": parameters}],
        "steps": [{"name": "handle", "agent": {"name": "clerk", "input": "Refund them."}}, {"name": "pay", "http": http}],
    });
    scene.begin(RUN, spec).await;
    let status = scene.wait_for_success(RUN).await;
    let told: Vec<_> = scene.results_of_last_turn(RUN).into_iter().map(|told| told.result).collect();
    let tree = scene.approve("dana", &["status", RUN]).await.ok().unwrap();
    // Without the lines of the tree and the ends of lines.
    let tree = tree.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" ");
    for (at, number) in beyond.iter().enumerate() {
        let why = format!("/order: {number} is beyond ±2^53, where JSON readers round differently; write it as a text");
        let (class, recorded) = error(&status, &format!("handle/.turn-1/.call-{}/.check", at + 1));
        assert!(class == "Arguments" && recorded.contains(&why), "{class}: {recorded}");
        assert!(told[at].starts_with("Error: ") && told[at].contains(&why), "{told:?}");
        assert!(tree.contains(&why), "{why}: {tree}");
    }
    assert_eq!(told[3..], ["paid", "paid"]);
    let mut sent: Vec<_> = scene.sent_requests(RUN).into_iter().map(|(_, body)| body).collect();
    sent.sort();
    assert_eq!(sent, [format!(r#"{{"order":"{LONG}"}}"#), r#"{"order":9007199254740992}"#.to_owned()]);
}
