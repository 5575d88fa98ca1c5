//! Calls of tools and questions of agents, decided on the page: the page, the stored decision, and the results that the
//! model gets.

use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::browser::{Look, Page, css, label, role, text};

use crate::harness::{Harness, decided};
use crate::looks::every_look;
use crate::refusals::forced;
use crate::runs::{Runs, path, user};

/// The notice above every question.
const NOTICE: &str = "This answers the agent; it approves nothing. Do not enter secrets.";

/// Returns a run whose agent calls these tools in its first turn. `gates`: those in front of its tools; alice answers
/// its questions. `told`: texts of results that the model repeats.
pub(crate) fn agent(calls: &Value, gates: &Value, told: &[&str]) -> Value {
    let mut all = gates.as_array().unwrap().clone();
    all.push(json!({"name": "questions", "type": "question",
        "hitl": {"prompt": "The clerk needs to know.", "approvers": [user("alice")]}}));
    let mut replies = vec![json!({"contains": "ACME", "text": "The customer is entitled to it.", "calls": calls})];
    replies.extend(told.iter().map(|part| json!({"contains": part, "text": format!("told: {part}")})));
    let tool = |name: &str, step: &str, effects: &str, parameters: Value| json!({"name": name, "step": step, "effects": effects, "description": format!("The tool {name}."), "parameters": parameters});
    let amount = json!({"type": "object", "required": ["amount"], "additionalProperties": false,
        "properties": {"amount": {"type": "integer", "maximum": 1000}, "note": {"type": "string"}}});
    let to = json!({"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}});
    json!({
        "providers": [{"name": "models", "scripted": {"replies": replies}}],
        "agents": [{"name": "clerk", "system": "You answer customers.", "tools": ["refund", "letter", "ask-human"]}],
        "tools": [
            tool("refund", "send-refund", "irreversible", amount),
            tool("letter", "send-letter", "write", to),
        ],
        "gates": all,
        "steps": [
            {"name": "handle", "agent": {"name": "clerk", "input": "ACME asks about order 4711."}},
            {"name": "send-refund", "set": {"value": "refunded {{ args.amount }}"}},
            {"name": "send-letter", "set": {"value": "sent to {{ args.to }}"}},
        ],
    })
}

/// Returns the same run, whose gate for questions has these further fields.
fn with_questions(mut spec: Value, fields: &Value) -> Value {
    let hitl = &mut spec["gates"].as_array_mut().unwrap().last_mut().unwrap()["hitl"];
    fields.as_object().unwrap().iter().for_each(|(field, value)| hitl[field] = value.clone());
    spec
}

/// Returns the same run, with a refund that is sent to a bank. Nothing is sent unless it is approved.
pub(crate) fn to_a_bank(mut spec: Value) -> Value {
    spec["steps"][1] = json!({"name": "send-refund",
        "http": {"method": "POST", "url": "https://bank.example/refunds", "body": "{{ args.amount }}"}});
    spec
}

/// Returns a gate that asks alice about refunds of more than 50.
fn money(allowed: &Value) -> Value {
    json!([{"name": "money", "type": "custom", "condition": "tool != 'refund' || args.amount > 50",
        "hitl": {"prompt": "May the refund be sent?", "approvers": [user("alice")], "allowedVerdicts": allowed}}])
}

/// Starts a run that asks, and opens the page of its request as alice.
async fn asks(harness: &Harness, runs: &Runs, name: &str, spec: Value) -> (Page, Approval) {
    runs.start_as("dana", name, spec).await;
    let asked = runs.asked(name).await;
    let page = harness.signed_in("alice", &Look::default()).await.unwrap();
    page.goto(&harness.at(&path(&asked))).await.unwrap();
    (page, asked)
}

async fn confirms(page: &Page, verdict: &str, target: &str) {
    page.wait(role("heading", &format!("{verdict}: {target}?"))).await.unwrap();
    page.click(role("button", verdict)).await.unwrap();
    decided(page).await;
    page.wait(role("heading", "Decisions so far")).await.unwrap();
}

const REFUND: &str = "refund: a text of this run";

#[tokio::test]
async fn model_gets_each_verdict_and_only_an_approved_call_runs() {
    let (harness, [runs]) = Harness::with_runs(["verdicts"]).await.unwrap();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420}}]);
    let all = json!(["Approve", "Modify", "Reject", "Defer", "Skip", "Abort"]);
    for (name, verdict, told) in [
        ("approved", "Approve", "refunded 420"),
        ("rejected", "Reject", "Denied by a human: too much"),
        ("skipped", "Skip", "Skipped by a human"),
        ("deferred", "Defer", "Not now. Try another approach: ask for less"),
    ] {
        let (page, asked) = asks(&harness, &runs, name, agent(&calls, &money(&all), &[told])).await;
        match verdict {
            "Defer" => {
                page.click(css(".more > summary")).await.unwrap();
                page.fill(css("#guidance"), "ask for less").await.unwrap();
            }
            _ => page.fill(css("#reason"), "too much").await.unwrap(),
        }
        if verdict == "Skip" {
            page.click(css(".more > summary")).await.unwrap();
        }
        page.tab_to(&format!("button {verdict}"), 40).await.unwrap();
        page.press("Enter").await.unwrap();
        confirms(&page, verdict, REFUND).await;
        assert_eq!(runs.result(name).await, format!("told: {told}"));
        let decision = runs.decision(&asked, "alice").await;
        assert_eq!(
            (&decision["verdict"], &decision["requestDigest"]),
            (&json!(verdict), &json!(asked.spec.request.digest))
        );
        let steps = runs.ended(name).await.status.unwrap().steps;
        assert_eq!(steps.iter().any(|step| step.path.ends_with("/send-refund")), verdict == "Approve", "{name}");
        page.close().await.unwrap();
    }
    let (page, _) = asks(&harness, &runs, "aborted", agent(&calls, &money(&all), &[])).await;
    page.click(css(".more > summary")).await.unwrap();
    page.click(role("button", "Abort the run")).await.unwrap();
    confirms(&page, "Abort", REFUND).await;
    assert_eq!(runs.ended("aborted").await.status.unwrap().phase, WorkflowPhase::Aborted);
}

#[tokio::test]
async fn model_gets_the_arguments_that_a_person_edited() {
    let (harness, [runs]) = Harness::with_runs(["edited"]).await.unwrap();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420, "note": "as agreed"}}]);
    let told = r#"This ran: {"amount":40,"note":"as agreed"}"#;
    let gates = money(&json!(["Approve", "Modify", "Reject"]));
    let (page, asked) = asks(&harness, &runs, "edited", agent(&calls, &gates, &[told])).await;
    page.click(text("Change…")).await.unwrap();
    let field = css("#modify-arguments");
    assert_eq!(page.value(&field).await.unwrap(), "{\n  \"amount\": 420,\n  \"note\": \"as agreed\"\n}");
    for (slip, said) in
        [("{\"amount\": 4000}", "amount"), ("{\"amount\": 40, \"to\": \"me\"}", "to"), ("{amount: 40}", "not JSON")]
    {
        page.fill(&field, slip).await.unwrap();
        page.click(role("button", "See the difference")).await.unwrap();
        page.wait(text(said).inside("#modify-arguments-problem")).await.unwrap();
        page.wait(text("Nothing was sent.")).await.unwrap();
        assert_eq!(page.value(&field).await.unwrap(), slip, "the draft is kept");
    }
    page.accessible().await.unwrap();
    page.screenshot("call-problem").await.unwrap();
    page.fill(&field, "{\n  \"amount\": 40,\n  \"note\": \"as agreed\"\n}").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    page.wait(role("heading", &format!("Modify: {REFUND}?"))).await.unwrap();
    let difference = page.text(css(".difference")).await.unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(difference.contains("removed: \"amount\": 420, + added: \"amount\": 40,"), "{difference}");
    page.accessible().await.unwrap();
    page.screenshot("call-edited").await.unwrap();
    confirms(&page, "Modify", REFUND).await;
    let parameters = json!({"arguments": {"amount": 40, "note": "as agreed"}});
    assert_eq!(runs.decision(&asked, "alice").await["parameters"], parameters);
    assert_eq!(runs.result("edited").await, format!("told: {told}"));
}

#[tokio::test]
async fn editor_of_a_call_cannot_approve_it_at_the_next_gate() {
    let (harness, [runs]) = Harness::with_runs(["edited-again"]).await.unwrap();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420}}]);
    let told = "This ran: {\"amount\":300}\nrefunded 300";
    let mut gates = money(&json!(["Approve", "Modify", "Reject"]));
    gates[0]["hitl"]["approvers"] = json!([user("alice"), user("bob")]);
    let (page, asked) = asks(&harness, &runs, "edited", agent(&calls, &gates, &[told])).await;
    page.click(text("Change…")).await.unwrap();
    page.fill(css("#modify-arguments"), "{\"amount\": 300}").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    confirms(&page, "Modify", REFUND).await;
    let again = runs.asked_again("edited", &asked).await;
    assert_eq!(again.spec.request.reviews.as_ref().unwrap().response, r#"{"amount":300}"#);
    page.goto(&harness.at(&path(&again))).await.unwrap();
    page.wait(text("cannot decide")).await.unwrap();
    assert!(!page.visible(role("button", "Approve")).await.unwrap(), "the editor is no approver of the edited call");
    let answer = forced(&page, &again, "Approve").await;
    assert!(answer.contains("excluded from deciding this gate (spec.request.excluded)"), "{answer}");
    page.close().await.unwrap();
    let page = harness.signed_in("bob", &Look::default()).await.unwrap();
    page.goto(&harness.at(&path(&again))).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    confirms(&page, "Approve", REFUND).await;
    assert_eq!(runs.result("edited").await, format!("told: {told}"));
    assert_eq!(runs.decision(&again, "alice").await, Value::Null);
}

#[tokio::test]
async fn escalated_call_and_question_are_decided_by_the_new_approvers() {
    let (harness, [runs]) = Harness::with_runs(["escalated"]).await.unwrap();
    let further = json!([{"kind": "Group", "name": "sre"}, user("bob")]);
    let mut gates = money(&json!(["Approve", "Escalate"]));
    gates[0]["hitl"]["escalateTo"] = further.clone();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420}}]);
    let call = agent(&calls, &gates, &["refunded 420"]);
    let fields = json!({"allowedVerdicts": ["Respond", "Escalate"], "escalateTo": further});
    let question = with_questions(agent(&when(), &json!([]), &["on Monday"]), &fields);
    let bob = harness.signed_in("bob", &Look::default()).await.unwrap();
    for (name, spec, target, verdict, told) in [
        ("call", call, REFUND, "Approve", "told: refunded 420"),
        ("question", question, "the question of clerk", "Respond", "told: on Monday"),
    ] {
        let (page, asked) = asks(&harness, &runs, name, spec).await;
        bob.goto(&harness.at(&path(&asked))).await.unwrap();
        bob.wait(text("cannot decide")).await.unwrap();
        assert!(!bob.visible(role("button", verdict)).await.unwrap(), "{name}: he was not asked yet");
        page.click(css(".more > summary")).await.unwrap();
        page.check(label("bob@example.com"), true).await.unwrap();
        page.click(role("button", "Escalate")).await.unwrap();
        confirms(&page, "Escalate", target).await;
        let decision = runs.decision(&asked, "alice").await;
        assert_eq!((&decision["verdict"], &decision["escalateTo"]), (&json!("Escalate"), &json!([user("bob")])));
        page.wait(text("alice@example.com, bob@example.com")).await.unwrap();
        page.close().await.unwrap();
        bob.goto(&harness.at(&path(&asked))).await.unwrap();
        if verdict == "Respond" {
            bob.fill(label("Question: text"), "on Monday").await.unwrap();
        }
        bob.click(role("button", verdict)).await.unwrap();
        confirms(&bob, verdict, target).await;
        assert_eq!(runs.result(name).await, told);
    }
}

#[tokio::test]
async fn an_answer_in_the_place_of_a_call_is_its_result() {
    let (harness, [runs]) = Harness::with_runs(["instead"]).await.unwrap();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420}}]);
    let gates = money(&json!(["Approve", "Respond"]));
    let (page, _) = asks(&harness, &runs, "instead", agent(&calls, &gates, &["paid by hand"])).await;
    page.fill(label("Answer: text"), "paid by hand").await.unwrap();
    page.click(role("button", "Respond")).await.unwrap();
    confirms(&page, "Respond", REFUND).await;
    assert_eq!(runs.result("instead").await, "told: paid by hand");
    let steps = runs.ended("instead").await.status.unwrap().steps;
    assert!(!steps.iter().any(|step| step.path.ends_with("/send-refund")), "the call did not run");
}

/// Returns a question of an agent with two parts.
fn channel() -> Value {
    json!([{"tool": "ask-human", "arguments": {"questions": [
        {"id": "channel", "question": "How shall I tell ACME?", "options": [{"label": "By mail"}, {"label": "By phone"}]},
        {"id": "when", "question": "When?", "allowSkip": true},
    ]}}])
}

/// Returns a question of an agent that takes a text.
fn when() -> Value {
    json!([{"tool": "ask-human", "arguments": {"questions": [{"question": "When?"}]}}])
}

#[tokio::test]
async fn model_gets_each_verdict_on_a_question_and_the_notice_is_above_it() {
    let (harness, [runs]) = Harness::with_runs(["questions"]).await.unwrap();
    let told = r#"{"answers":{"channel":"By mail","when":"on Monday"}}"#;
    let (page, asked) = asks(&harness, &runs, "answered", agent(&channel(), &json!([]), &[told])).await;
    page.wait(role("heading", "Question of clerk")).await.unwrap();
    page.wait(text(NOTICE).nth(1)).await.unwrap();
    page.check(label("By mail"), true).await.unwrap();
    page.fill(label("Question 2 of 2: text"), "on Monday").await.unwrap();
    page.click(role("button", "Respond")).await.unwrap();
    page.wait(text(NOTICE)).await.unwrap();
    confirms(&page, "Respond", "the question of clerk").await;
    let answers = json!({"q1": {"options": ["o1"]}, "q2": {"text": "on Monday"}});
    assert_eq!(runs.decision(&asked, "alice").await["answers"], answers);
    assert_eq!(runs.result("answered").await, format!("told: {told}"));
    // The question stays on the page.
    page.reload().await.unwrap();
    page.wait(text("How shall I tell ACME?")).await.unwrap();
    page.close().await.unwrap();

    let (page, _) = asks(&harness, &runs, "skipped", agent(&channel(), &json!([]), &["Skipped by a human"])).await;
    page.click(css(".more > summary")).await.unwrap();
    page.click(role("button", "Skip")).await.unwrap();
    confirms(&page, "Skip", "the question of clerk").await;
    assert_eq!(runs.result("skipped").await, "told: Skipped by a human");
    page.close().await.unwrap();

    let (page, _) = asks(&harness, &runs, "aborted", agent(&channel(), &json!([]), &[])).await;
    page.click(css(".more > summary")).await.unwrap();
    page.click(role("button", "Abort the run")).await.unwrap();
    confirms(&page, "Abort", "the question of clerk").await;
    assert_eq!(runs.ended("aborted").await.status.unwrap().phase, WorkflowPhase::Aborted);
}

#[tokio::test]
async fn model_gets_the_reason_of_a_rejected_question() {
    let (harness, [runs]) = Harness::with_runs(["not-asked"]).await.unwrap();
    let told = "Denied by a human: decide it yourself";
    let fields = json!({"allowedVerdicts": ["Respond", "Reject"]});
    let spec = with_questions(agent(&channel(), &json!([]), &[told]), &fields);
    let (page, asked) = asks(&harness, &runs, "rejected", spec).await;
    page.fill(css("#reason"), "decide it yourself").await.unwrap();
    page.click(role("button", "Reject")).await.unwrap();
    confirms(&page, "Reject", "the question of clerk").await;
    assert_eq!(runs.decision(&asked, "alice").await["verdict"], "Reject");
    assert_eq!(runs.result("rejected").await, format!("told: {told}"));
}

#[tokio::test]
async fn a_call_and_a_question_are_accessible_and_fit_in_every_look() {
    let (harness, [runs]) = Harness::with_runs(["agents"]).await.unwrap();
    let note = "as agreed by phone, ".repeat(12) + &"averylongword".repeat(30);
    let calls = json!([
        {"tool": "refund", "arguments": {"amount": 420, "note": note}}, {"tool": "letter", "arguments": {"to": "ACME"}},
    ]);
    let gates = money(&json!(["Approve", "Modify", "Reject", "Defer", "Skip", "Abort"]));
    runs.start_as("dana", "refund-4711", to_a_bank(agent(&calls, &gates, &[]))).await;
    let asked = runs.asks_all("refund-4711", 2).await;
    let page = harness.signed_in("alice", &Look::default()).await.unwrap();
    page.goto(&harness.at(&path(&asked[0]))).await.unwrap();
    page.wait(text("POST https://bank.example/refunds").nth(0)).await.unwrap();
    every_look(&page, "call").await;
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)").await.unwrap();
    every_look(&page, "call-open").await;
    runs.start_as("dana", "question", agent(&channel(), &json!([]), &[])).await;
    let asked = runs.asked("question").await;
    page.goto(&harness.at(&path(&asked))).await.unwrap();
    every_look(&page, "question").await;
    let other = harness.signed_in("bob", &Look::default()).await.unwrap();
    other.goto(&harness.at(&path(&asked))).await.unwrap();
    other.wait(text("How shall I tell ACME?")).await.unwrap();
    every_look(&other, "question-of-others").await;
    harness.content(&page).await.unwrap();
}
