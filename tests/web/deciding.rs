//! Each verdict, by mouse and by keyboard: the confirmation, the stored decision, and the end of the run.

use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::browser::{Look, Page, css, label, role, text};

use crate::harness::{Harness, show_decided_request};
use crate::runs::{Runs, path, spec, user};

/// The way in which a person uses the page.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hand {
    Mouse,
    Keyboard,
}

const BOTH_HANDS: [(Hand, &str); 2] = [(Hand::Mouse, "by-mouse"), (Hand::Keyboard, "by-keyboard")];

/// The most presses of Tab until a control of a page has the focus.
const MAX_STOPS: usize = 40;

/// A browser in which alice has the page of a request open.
struct Alice {
    page: Page,
    hand: Hand,
}

impl Alice {
    async fn press_button(&self, button: &str) {
        match self.hand {
            Hand::Mouse => self.page.click(role("button", button)).await.unwrap(),
            Hand::Keyboard => {
                self.page.tab_to(&format!("button {button}"), MAX_STOPS).await.unwrap();
                self.page.press("Enter").await.unwrap();
            }
        }
    }

    async fn open_summary(&self, summary: &str) {
        match self.hand {
            Hand::Mouse => self.page.click(text(summary).exactly().inside(css(".decision"))).await.unwrap(),
            Hand::Keyboard => {
                self.page.tab_to(&format!("summary {summary}"), MAX_STOPS).await.unwrap();
                self.page.press("Enter").await.unwrap();
            }
        }
    }

    /// Writes into a field, in place of its value.
    async fn fill(&self, kind: &str, field: &str, value: &str) {
        match self.hand {
            Hand::Mouse => self.page.fill(label(field).nth(0), value).await.unwrap(),
            Hand::Keyboard => {
                self.page.tab_to(&format!("{kind} {field}"), MAX_STOPS).await.unwrap();
                self.page.press("Control+A").await.unwrap();
                self.page.keys(value).await.unwrap();
            }
        }
    }

    async fn tick(&self, choice: &str) {
        match self.hand {
            Hand::Mouse => self.page.check(label(choice), true).await.unwrap(),
            Hand::Keyboard => {
                self.page.tab_to(&format!("input {choice}"), MAX_STOPS).await.unwrap();
                self.page.press("Space").await.unwrap();
            }
        }
    }

    /// Checks the page of the confirmation, confirms, and waits for the page of the decided request.
    async fn confirm(&self, verdict: &str, target: &str, approval: &Approval) {
        self.page.wait(role("heading", &format!("{verdict}: {target}?"))).await.unwrap();
        let confirmation = self.page.text(css(".confirm")).await.unwrap();
        for part in [verdict, target, &approval.spec.request.prompt, "Unchanged since it was asked"] {
            assert!(confirmation.contains(part), "the confirmation repeats {part}: {confirmation}");
        }
        let digest = "document.querySelector('.confirm details.digest code').textContent";
        let digest = self.page.evaluate(digest).await.unwrap();
        assert_eq!(digest, json!(approval.spec.request.digest.to_string()));
        match self.hand {
            Hand::Mouse => self.page.click(role("button", verdict)).await.unwrap(),
            Hand::Keyboard => {
                // A second Enter decides nothing: the focus is at the heading.
                assert_ne!(self.page.focused().await.unwrap(), format!("button {verdict}"));
                self.page.tab_to(&format!("button {verdict}"), 12).await.unwrap();
                self.page.press("Enter").await.unwrap();
            }
        }
        show_decided_request(&self.page).await;
        self.page.wait(role("heading", "Decisions so far")).await.unwrap();
        assert!(self.page.url().await.unwrap().ends_with(&path(approval)), "the page of the request follows");
    }
}

/// The environment of one test.
struct Case {
    harness: Harness,
    runs: Runs,
}

impl Case {
    async fn new(prefix: &str) -> Self {
        let (harness, [runs]) = Harness::with_runs([prefix]).await.unwrap();
        Self { harness, runs }
    }

    /// Starts a run with this spec, and opens the page of its request as alice.
    async fn open_request(&self, name: &str, spec: Value, hand: Hand) -> (Alice, Approval) {
        self.runs.start_as("dana", name, spec).await;
        let approval = self.runs.wait_for_request(name).await;
        let page = self.harness.open_as("alice", &Look::default()).await.unwrap();
        page.goto(&self.harness.url(&path(&approval))).await.unwrap();
        (Alice { page, hand }, approval)
    }

    /// Checks that exactly the sent decision is stored, for the request that was shown.
    async fn assert_stored(&self, approval: &Approval, decision: Value) {
        let mut expected = decision;
        expected["requestDigest"] = json!(approval.spec.request.digest);
        assert_eq!(self.runs.read_decision(approval, "alice").await, expected);
    }
}

#[tokio::test]
async fn approve_continues_the_run() {
    let case = Case::new("approve").await;
    for (hand, name) in BOTH_HANDS {
        let (alice, approval) = case.open_request(name, spec(json!({})), hand).await;
        alice.fill("textarea", "Reason (may be left out)", "It is in the plan").await;
        alice.press_button("Approve").await;
        alice.confirm("Approve", "review", &approval).await;
        case.assert_stored(&approval, json!({"verdict": "Approve", "reason": "It is in the plan"})).await;
        assert_eq!(case.runs.wait_for_result(name).await, "done");
        alice.page.wait(text("Approved (Approve) by alice@example.com")).await.unwrap();
    }
}

#[tokio::test]
async fn reject_ends_the_run_unless_the_gate_has_on_reject_continue() {
    let case = Case::new("reject").await;
    for (hand, name) in BOTH_HANDS {
        let (alice, approval) = case.open_request(name, spec(json!({})), hand).await;
        alice.press_button("Reject").await;
        alice.confirm("Reject", "review", &approval).await;
        case.assert_stored(&approval, json!({"verdict": "Reject"})).await;
        assert_eq!(case.runs.wait_for_end(name).await.status.unwrap().phase, WorkflowPhase::Rejected);
    }
    let goes_on = spec(json!({"onReject": "continue"}));
    let (alice, approval) = case.open_request("goes-on", goes_on, Hand::Mouse).await;
    alice.press_button("Reject").await;
    alice.page.wait(text("the run goes on with act")).await.unwrap();
    alice.confirm("Reject", "review", &approval).await;
    assert_eq!(case.runs.wait_for_result("goes-on").await, "done");
}

#[tokio::test]
async fn modify_shows_the_difference_and_the_run_continues_with_the_new_text() {
    let case = Case::new("modify").await;
    for (hand, name) in BOTH_HANDS {
        let steps = json!({"steps": [
            {"name": "notice", "set": {"value": "Dear all,\nclosed on Monday.\nBye"}},
            {"name": "review", "hitl": {"prompt": "Publish?", "reviews": "notice", "approvers": [user("alice")],
                "allowedVerdicts": ["Approve", "Modify", "Reject"]}},
            {"name": "act", "set": {"value": "{{ steps.notice.response }}"}},
        ]});
        let (alice, approval) = case.open_request(name, steps, hand).await;
        alice.open_summary("Change…").await;
        alice.fill("textarea", "response text", "Dear all,\nclosed on Tuesday.\nBye").await;
        alice.press_button("See the difference").await;
        alice.page.wait(role("heading", "Modify: review?")).await.unwrap();
        let difference = alice.page.text(css(".difference")).await.unwrap();
        let words: Vec<_> = difference.split_whitespace().collect();
        let words = words.join(" ");
        assert!(words.contains("− removed: closed on Monday. + added: closed on Tuesday."), "{words}");
        alice.confirm("Modify", "review", &approval).await;
        let changed = json!({"response": "Dear all,\nclosed on Tuesday.\nBye"});
        case.assert_stored(&approval, json!({"verdict": "Modify", "parameters": changed})).await;
        assert_eq!(case.runs.wait_for_result(name).await, "Dear all,\nclosed on Tuesday.\nBye");
    }
}

#[tokio::test]
async fn respond_answers_a_form_of_several_questions() {
    let case = Case::new("respond").await;
    let form = json!({"questions": [
        {"id": "carrier", "question": "By what?", "options": [{"id": "road", "label": "Lorry"}, {"id": "rail", "label": "Train"}]},
        {"id": "extras", "question": "With what?", "multiple": true, "required": false,
            "options": [{"id": "insured"}, {"id": "express"}, {"id": "gift"}]},
        {"id": "note", "question": "What else?", "maxLength": 100},
    ]});
    for (hand, name) in BOTH_HANDS {
        let mut steps = spec(json!({"allowedVerdicts": ["Respond", "Abort"], "form": form}));
        steps["steps"][2]["set"]["value"] =
            json!("{{ steps.review.answers.carrier.options[0] }}, {{ steps.review.answers.note.text }}");
        let (alice, approval) = case.open_request(name, steps, hand).await;
        match hand {
            Hand::Mouse => alice.tick("Train").await,
            // One stop for the whole group, and then the arrows.
            Hand::Keyboard => {
                alice.page.tab_to("input Lorry", MAX_STOPS).await.unwrap();
                alice.page.press("ArrowDown").await.unwrap();
            }
        }
        alice.tick("insured").await;
        alice.tick("gift").await;
        alice.fill("textarea", "note: text", "Leave it\nat the door").await;
        alice.press_button("Respond").await;
        alice.confirm("Respond", "review", &approval).await;
        let answers = json!({"carrier": {"options": ["rail"]}, "extras": {"options": ["insured", "gift"]},
            "note": {"text": "Leave it\nat the door"}});
        case.assert_stored(&approval, json!({"verdict": "Respond", "answers": answers})).await;
        assert_eq!(case.runs.wait_for_result(name).await, "rail, Leave it\nat the door");
    }
}

#[tokio::test]
async fn defer_repeats_the_step_and_asks_again() {
    let case = Case::new("defer").await;
    for (hand, name) in BOTH_HANDS {
        let steps = json!({
            "providers": [{"name": "models", "scripted": {"replies": [
                {"contains": "shorter", "text": "Closed."}, {"text": "Dear all, we herewith beg to inform you."}]}}],
            "agents": [{"name": "writer", "system": "You write notices."}],
            "steps": [
                {"name": "draft", "agent": {"name": "writer", "input": "Write."}},
                {"name": "review", "hitl": {"prompt": "Publish?", "contextDisplay": "{{ steps.draft.response }}",
                    "approvers": [user("alice")], "allowedVerdicts": ["Approve", "Defer"]}},
                {"name": "act", "set": {"value": "{{ steps.draft.response }}"}},
            ],
        });
        let (alice, approval) = case.open_request(name, steps, hand).await;
        alice.open_summary("More").await;
        alice.fill("textarea", "Guidance", "Make it shorter").await;
        alice.press_button("Defer").await;
        alice.confirm("Defer", "review", &approval).await;
        case.assert_stored(&approval, json!({"verdict": "Defer", "guidance": "Make it shorter"})).await;
        let again = case.runs.wait_for_next_request(name, &approval).await;
        alice.page.goto(&case.harness.url(&path(&approval))).await.unwrap();
        alice.page.click(role("link", "The run waits again")).await.unwrap();
        alice.page.wait_url(&path(&again)).await.unwrap();
        alice.page.wait(text("asked 2 times by now")).await.unwrap();
        alice.press_button("Approve").await;
        alice.confirm("Approve", "review#2", &again).await;
        assert_eq!(case.runs.wait_for_result(name).await, "Closed.");
    }
}

#[tokio::test]
async fn escalate_asks_further_people_and_the_vote_is_final() {
    let case = Case::new("escalate").await;
    for (hand, name) in BOTH_HANDS {
        let gate = json!({"allowedVerdicts": ["Approve", "Escalate"], "escalateTo": [{"kind": "Group", "name": "sre"}, user("bob")]});
        let (alice, approval) = case.open_request(name, spec(gate), hand).await;
        alice.open_summary("More").await;
        alice.tick("bob@example.com").await;
        alice.press_button("Escalate").await;
        alice.confirm("Escalate", "review", &approval).await;
        case.assert_stored(&approval, json!({"verdict": "Escalate", "escalateTo": [user("bob")]})).await;
        alice.page.wait(text("alice@example.com, bob@example.com")).await.unwrap();
        assert!(!alice.page.visible(role("heading", "Decide")).await.unwrap(), "she has decided");
        case.runs
            .decide_as("bob", &approval, json!({"verdict": "Approve", "requestDigest": approval.spec.request.digest}))
            .await;
        assert_eq!(case.runs.wait_for_result(name).await, "done");
    }
}

/// Returns the spec of a run with a step that fails, and a gate that asks how to go on.
fn failing_step_spec() -> Value {
    json!({
        "providers": [{"name": "models", "scripted": {"replies": [{"error": "the model refused"}]}}],
        "agents": [{"name": "writer", "system": "You write notices."}],
        "gates": [{"name": "help", "type": "errorEscalation", "afterAttempts": 1,
            "hitl": {"prompt": "It failed. What now?", "approvers": [user("alice")]}}],
        "steps": [{"name": "draft", "agent": {"name": "writer", "input": "Write."}, "onError": "escalate"},
            {"name": "act", "set": {"value": "done"}}],
    })
}

#[tokio::test]
async fn skip_goes_on_without_the_step_that_failed() {
    let case = Case::new("skip").await;
    for (hand, name) in BOTH_HANDS {
        let (alice, approval) = case.open_request(name, failing_step_spec(), hand).await;
        alice.open_summary("More").await;
        alice.press_button("Skip").await;
        alice.confirm("Skip", &approval.spec.request.gate.path, &approval).await;
        case.assert_stored(&approval, json!({"verdict": "Skip"})).await;
        assert_eq!(case.runs.wait_for_result(name).await, "done");
    }
}

#[tokio::test]
async fn retry_tries_the_step_again() {
    let case = Case::new("retry").await;
    for (hand, name) in BOTH_HANDS {
        let (alice, approval) = case.open_request(name, failing_step_spec(), hand).await;
        alice.press_button("Retry (run the step again)").await;
        alice.page.wait(text("run the step again").inside(css(".confirm"))).await.unwrap();
        alice.confirm("Retry", &approval.spec.request.gate.path, &approval).await;
        case.assert_stored(&approval, json!({"verdict": "Retry"})).await;
        let again = case.runs.wait_for_next_request(name, &approval).await;
        assert_eq!(again.spec.request.gate.visit, 2, "it failed again");
    }
}

#[tokio::test]
async fn abort_ends_the_run() {
    let case = Case::new("abort").await;
    for (hand, name) in BOTH_HANDS {
        let (alice, approval) =
            case.open_request(name, spec(json!({"allowedVerdicts": ["Approve", "Abort"]})), hand).await;
        alice.open_summary("More").await;
        alice.press_button("Abort the run").await;
        alice.confirm("Abort", "review", &approval).await;
        case.assert_stored(&approval, json!({"verdict": "Abort"})).await;
        assert_eq!(case.runs.wait_for_end(name).await.status.unwrap().phase, WorkflowPhase::Aborted);
    }
}
