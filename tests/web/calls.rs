//! Calls of tools and questions of agents, decided on the page: the page, the stored decision, and the results that the
//! model gets.

use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::browser::{Look, Page, css, label, role, text};

use crate::harness::{Harness, show_decided_request};
use crate::looks::check_every_look;
use crate::refusals::force_decision;
use crate::runs::{Runs, path, user};

/// The notice above every question.
const NOTICE: &str = "This answers the agent; it approves nothing. Do not enter secrets.";

/// Returns the spec of a run whose agent makes these calls in its first turn. `gates`: the gates about its tools; a
/// further gate asks alice about its questions. `repeated`: parts of results that make the model repeat them.
pub(crate) fn agent_spec(calls: &Value, gates: &Value, repeated: &[&str]) -> Value {
    let mut all_gates = gates.as_array().unwrap().clone();
    all_gates.push(json!({"name": "questions", "type": "question",
        "hitl": {"prompt": "The clerk needs to know.", "approvers": [user("alice")]}}));
    let mut replies = vec![json!({"contains": "ACME", "text": "The customer is entitled to it.", "calls": calls})];
    replies.extend(repeated.iter().map(|part| json!({"contains": part, "text": format!("told: {part}")})));
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
        "gates": all_gates,
        "steps": [
            {"name": "handle", "agent": {"name": "clerk", "input": "ACME asks about order 4711."}},
            {"name": "send-refund", "set": {"value": "refunded {{ args.amount }}"}},
            {"name": "send-letter", "set": {"value": "sent to {{ args.to }}"}},
        ],
    })
}

/// Adds fields to the gate for questions of a spec of [`agent_spec`].
fn spec_with_question_fields(mut spec: Value, fields: &Value) -> Value {
    let hitl = &mut spec["gates"].as_array_mut().unwrap().last_mut().unwrap()["hitl"];
    fields.as_object().unwrap().iter().for_each(|(field, value)| hitl[field] = value.clone());
    spec
}

/// Makes the refund of a spec of [`agent_spec`] an HTTP request to a bank. The tests approve no such refund.
pub(crate) fn spec_with_bank_refund(mut spec: Value) -> Value {
    spec["steps"][1] = json!({"name": "send-refund",
        "http": {"method": "POST", "url": "https://bank.example/refunds", "body": "{{ args.amount }}"}});
    spec
}

/// Returns a gate that asks alice about refunds of more than 50.
fn refund_gate(allowed: &Value) -> Value {
    json!([{"name": "money", "type": "custom", "condition": "tool != 'refund' || args.amount > 50",
        "hitl": {"prompt": "May the refund be sent?", "approvers": [user("alice")], "allowedVerdicts": allowed}}])
}

/// Starts a run with a gate, and opens the page of its request as alice.
async fn open_request(harness: &Harness, runs: &Runs, name: &str, spec: Value) -> (Page, Approval) {
    runs.start_as("dana", name, spec).await;
    let approval = runs.wait_for_request(name).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    (page, approval)
}

/// Confirms a decision on the page of the confirmation, and waits for the page of the decided request.
async fn confirm(page: &Page, verdict: &str, target: &str) {
    page.wait(role("heading", &format!("{verdict}: {target}?"))).await.unwrap();
    page.click(role("button", verdict)).await.unwrap();
    show_decided_request(page).await;
    page.wait(role("heading", "Decisions so far")).await.unwrap();
}

const REFUND: &str = "refund: a text of this run";

#[tokio::test]
async fn model_gets_each_verdict_and_only_an_approved_call_runs() {
    let (harness, [runs]) = Harness::with_runs(["verdicts"]).await.unwrap();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420}}]);
    let verdicts = json!(["Approve", "Modify", "Reject", "Defer", "Skip", "Abort"]);
    for (name, verdict, result) in [
        ("approved", "Approve", "refunded 420"),
        ("rejected", "Reject", "Denied by a human: too much"),
        ("skipped", "Skip", "Skipped by a human"),
        ("deferred", "Defer", "Not now. Try another approach: ask for less"),
    ] {
        let (page, approval) =
            open_request(&harness, &runs, name, agent_spec(&calls, &refund_gate(&verdicts), &[result])).await;
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
        confirm(&page, verdict, REFUND).await;
        assert_eq!(runs.wait_for_result(name).await, format!("told: {result}"));
        let decision = runs.read_decision(&approval, "alice").await;
        assert_eq!(
            (&decision["verdict"], &decision["requestDigest"]),
            (&json!(verdict), &json!(approval.spec.request.digest))
        );
        let steps = runs.wait_for_end(name).await.status.unwrap().steps;
        assert_eq!(steps.iter().any(|step| step.path.ends_with("/send-refund")), verdict == "Approve", "{name}");
        page.close().await.unwrap();
    }
    let (page, _) = open_request(&harness, &runs, "aborted", agent_spec(&calls, &refund_gate(&verdicts), &[])).await;
    page.click(css(".more > summary")).await.unwrap();
    page.click(role("button", "Abort the run")).await.unwrap();
    confirm(&page, "Abort", REFUND).await;
    assert_eq!(runs.wait_for_end("aborted").await.status.unwrap().phase, WorkflowPhase::Aborted);
}

#[tokio::test]
async fn model_gets_the_arguments_that_a_person_edited() {
    let (harness, [runs]) = Harness::with_runs(["edited"]).await.unwrap();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420, "note": "as agreed"}}]);
    let result = r#"This ran: {"amount":40,"note":"as agreed"}"#;
    let gates = refund_gate(&json!(["Approve", "Modify", "Reject"]));
    let (page, approval) = open_request(&harness, &runs, "edited", agent_spec(&calls, &gates, &[result])).await;
    page.click(text("Change…")).await.unwrap();
    let field = css("#modify-arguments");
    assert_eq!(page.value(&field).await.unwrap(), "{\n  \"amount\": 420,\n  \"note\": \"as agreed\"\n}");
    for (invalid, problem) in
        [("{\"amount\": 4000}", "amount"), ("{\"amount\": 40, \"to\": \"me\"}", "to"), ("{amount: 40}", "not JSON")]
    {
        page.fill(&field, invalid).await.unwrap();
        page.click(role("button", "See the difference")).await.unwrap();
        page.wait(text(problem).inside("#modify-arguments-problem")).await.unwrap();
        page.wait(text("Nothing was sent.")).await.unwrap();
        assert_eq!(page.value(&field).await.unwrap(), invalid, "the draft is kept");
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
    confirm(&page, "Modify", REFUND).await;
    let parameters = json!({"arguments": {"amount": 40, "note": "as agreed"}});
    assert_eq!(runs.read_decision(&approval, "alice").await["parameters"], parameters);
    assert_eq!(runs.wait_for_result("edited").await, format!("told: {result}"));
}

#[tokio::test]
async fn editor_of_a_call_cannot_approve_it_at_the_next_gate() {
    let (harness, [runs]) = Harness::with_runs(["edited-again"]).await.unwrap();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420}}]);
    let result = "This ran: {\"amount\":300}\nrefunded 300";
    let mut gates = refund_gate(&json!(["Approve", "Modify", "Reject"]));
    gates[0]["hitl"]["approvers"] = json!([user("alice"), user("bob")]);
    let (page, approval) = open_request(&harness, &runs, "edited", agent_spec(&calls, &gates, &[result])).await;
    page.click(text("Change…")).await.unwrap();
    page.fill(css("#modify-arguments"), "{\"amount\": 300}").await.unwrap();
    page.click(role("button", "See the difference")).await.unwrap();
    confirm(&page, "Modify", REFUND).await;
    let again = runs.wait_for_next_request("edited", &approval).await;
    assert_eq!(again.spec.request.reviews.as_ref().unwrap().response, r#"{"amount":300}"#);
    page.goto(&harness.url(&path(&again))).await.unwrap();
    page.wait(text("cannot decide")).await.unwrap();
    assert!(!page.visible(role("button", "Approve")).await.unwrap(), "the editor is no approver of the edited call");
    let answer = force_decision(&page, &again, "Approve").await;
    assert!(answer.contains("excluded from deciding this gate (spec.request.excluded)"), "{answer}");
    page.close().await.unwrap();
    let page = harness.open_as("bob", &Look::default()).await.unwrap();
    page.goto(&harness.url(&path(&again))).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    confirm(&page, "Approve", REFUND).await;
    assert_eq!(runs.wait_for_result("edited").await, format!("told: {result}"));
    assert_eq!(runs.read_decision(&again, "alice").await, Value::Null);
}

#[tokio::test]
async fn escalated_call_and_question_are_decided_by_the_new_approvers() {
    let (harness, [runs]) = Harness::with_runs(["escalated"]).await.unwrap();
    let further = json!([{"kind": "Group", "name": "sre"}, user("bob")]);
    let mut gates = refund_gate(&json!(["Approve", "Escalate"]));
    gates[0]["hitl"]["escalateTo"] = further.clone();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420}}]);
    let call = agent_spec(&calls, &gates, &["refunded 420"]);
    let fields = json!({"allowedVerdicts": ["Respond", "Escalate"], "escalateTo": further});
    let question = spec_with_question_fields(agent_spec(&text_question(), &json!([]), &["on Monday"]), &fields);
    let bob = harness.open_as("bob", &Look::default()).await.unwrap();
    for (name, spec, target, verdict, result) in [
        ("call", call, REFUND, "Approve", "told: refunded 420"),
        ("question", question, "the question of clerk", "Respond", "told: on Monday"),
    ] {
        let (page, approval) = open_request(&harness, &runs, name, spec).await;
        bob.goto(&harness.url(&path(&approval))).await.unwrap();
        bob.wait(text("cannot decide")).await.unwrap();
        assert!(!bob.visible(role("button", verdict)).await.unwrap(), "{name}: he was not asked yet");
        page.click(css(".more > summary")).await.unwrap();
        page.check(label("bob@example.com"), true).await.unwrap();
        page.click(role("button", "Escalate")).await.unwrap();
        confirm(&page, "Escalate", target).await;
        let decision = runs.read_decision(&approval, "alice").await;
        assert_eq!((&decision["verdict"], &decision["escalateTo"]), (&json!("Escalate"), &json!([user("bob")])));
        page.wait(text("alice@example.com, bob@example.com")).await.unwrap();
        page.close().await.unwrap();
        bob.goto(&harness.url(&path(&approval))).await.unwrap();
        if verdict == "Respond" {
            bob.fill(label("Question: text"), "on Monday").await.unwrap();
        }
        bob.click(role("button", verdict)).await.unwrap();
        confirm(&bob, verdict, target).await;
        assert_eq!(runs.wait_for_result(name).await, result);
    }
}

#[tokio::test]
async fn answer_to_a_call_becomes_its_result_and_the_call_does_not_run() {
    let (harness, [runs]) = Harness::with_runs(["instead"]).await.unwrap();
    let calls = json!([{"tool": "refund", "arguments": {"amount": 420}}]);
    let gates = refund_gate(&json!(["Approve", "Respond"]));
    let (page, _) = open_request(&harness, &runs, "instead", agent_spec(&calls, &gates, &["paid by hand"])).await;
    page.fill(label("Answer: text"), "paid by hand").await.unwrap();
    page.click(role("button", "Respond")).await.unwrap();
    confirm(&page, "Respond", REFUND).await;
    assert_eq!(runs.wait_for_result("instead").await, "told: paid by hand");
    let steps = runs.wait_for_end("instead").await.status.unwrap().steps;
    assert!(!steps.iter().any(|step| step.path.ends_with("/send-refund")), "the call did not run");
}

/// Returns a call with which an agent asks two questions.
fn two_part_question() -> Value {
    json!([{"tool": "ask-human", "arguments": {"questions": [
        {"id": "channel", "question": "How shall I tell ACME?", "options": [{"label": "By mail"}, {"label": "By phone"}]},
        {"id": "when", "question": "When?", "allowSkip": true},
    ]}}])
}

/// Returns a call with which an agent asks one question, whose answer is a text.
fn text_question() -> Value {
    json!([{"tool": "ask-human", "arguments": {"questions": [{"question": "When?"}]}}])
}

#[tokio::test]
async fn model_gets_each_verdict_on_a_question_and_the_notice_is_above_it() {
    let (harness, [runs]) = Harness::with_runs(["questions"]).await.unwrap();
    let result = r#"{"answers":{"channel":"By mail","when":"on Monday"}}"#;
    let (page, approval) =
        open_request(&harness, &runs, "answered", agent_spec(&two_part_question(), &json!([]), &[result])).await;
    page.wait(role("heading", "Question of clerk")).await.unwrap();
    page.wait(text(NOTICE).nth(1)).await.unwrap();
    page.check(label("By mail"), true).await.unwrap();
    page.fill(label("Question 2 of 2: text"), "on Monday").await.unwrap();
    page.click(role("button", "Respond")).await.unwrap();
    page.wait(text(NOTICE)).await.unwrap();
    confirm(&page, "Respond", "the question of clerk").await;
    let answers = json!({"q1": {"options": ["o1"]}, "q2": {"text": "on Monday"}});
    assert_eq!(runs.read_decision(&approval, "alice").await["answers"], answers);
    assert_eq!(runs.wait_for_result("answered").await, format!("told: {result}"));
    // The question stays on the page.
    page.reload().await.unwrap();
    page.wait(text("How shall I tell ACME?")).await.unwrap();
    page.close().await.unwrap();

    let (page, _) =
        open_request(&harness, &runs, "skipped", agent_spec(&two_part_question(), &json!([]), &["Skipped by a human"]))
            .await;
    page.click(css(".more > summary")).await.unwrap();
    page.click(role("button", "Skip")).await.unwrap();
    confirm(&page, "Skip", "the question of clerk").await;
    assert_eq!(runs.wait_for_result("skipped").await, "told: Skipped by a human");
    page.close().await.unwrap();

    let (page, _) = open_request(&harness, &runs, "aborted", agent_spec(&two_part_question(), &json!([]), &[])).await;
    page.click(css(".more > summary")).await.unwrap();
    page.click(role("button", "Abort the run")).await.unwrap();
    confirm(&page, "Abort", "the question of clerk").await;
    assert_eq!(runs.wait_for_end("aborted").await.status.unwrap().phase, WorkflowPhase::Aborted);
}

#[tokio::test]
async fn model_gets_the_reason_of_a_rejected_question() {
    let (harness, [runs]) = Harness::with_runs(["not-asked"]).await.unwrap();
    let result = "Denied by a human: decide it yourself";
    let fields = json!({"allowedVerdicts": ["Respond", "Reject"]});
    let spec = spec_with_question_fields(agent_spec(&two_part_question(), &json!([]), &[result]), &fields);
    let (page, approval) = open_request(&harness, &runs, "rejected", spec).await;
    page.fill(css("#reason"), "decide it yourself").await.unwrap();
    page.click(role("button", "Reject")).await.unwrap();
    confirm(&page, "Reject", "the question of clerk").await;
    assert_eq!(runs.read_decision(&approval, "alice").await["verdict"], "Reject");
    assert_eq!(runs.wait_for_result("rejected").await, format!("told: {result}"));
}

#[tokio::test]
async fn pages_of_a_call_and_a_question_are_accessible_and_fit_in_every_look() {
    let (harness, [runs]) = Harness::with_runs(["agents"]).await.unwrap();
    let note = "as agreed by phone, ".repeat(12) + &"averylongword".repeat(30);
    let calls = json!([
        {"tool": "refund", "arguments": {"amount": 420, "note": note}}, {"tool": "letter", "arguments": {"to": "ACME"}},
    ]);
    let gates = refund_gate(&json!(["Approve", "Modify", "Reject", "Defer", "Skip", "Abort"]));
    runs.start_as("dana", "refund-4711", spec_with_bank_refund(agent_spec(&calls, &gates, &[]))).await;
    let approvals = runs.wait_for_requests("refund-4711", 2).await;
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&harness.url(&path(&approvals[0]))).await.unwrap();
    page.wait(text("POST https://bank.example/refunds").nth(0)).await.unwrap();
    check_every_look(&page, "call").await;
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)").await.unwrap();
    check_every_look(&page, "call-open").await;
    runs.start_as("dana", "question", agent_spec(&two_part_question(), &json!([]), &[])).await;
    let approval = runs.wait_for_request("question").await;
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    check_every_look(&page, "question").await;
    let other = harness.open_as("bob", &Look::default()).await.unwrap();
    other.goto(&harness.url(&path(&approval))).await.unwrap();
    other.wait(text("How shall I tell ACME?")).await.unwrap();
    check_every_look(&other, "question-of-others").await;
    harness.assert_no_browser_errors(&page).await.unwrap();
}
