//! Each verdict, by mouse and by keyboard: the confirmation, the stored decision, and the end of the run.

use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::browser::{Look, Page, css, label, role, text};

use crate::harness::{Harness, decided};
use crate::runs::{Runs, path, spec, user};

/// The way in which a person uses the page.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hand {
    Mouse,
    Keyboard,
}

const BOTH: [(Hand, &str); 2] = [(Hand::Mouse, "by-mouse"), (Hand::Keyboard, "by-keyboard")];

/// More stops than any page here has.
const STOPS: usize = 40;

/// alice before the page of a request.
struct Alice {
    page: Page,
    hand: Hand,
}

impl Alice {
    async fn presses(&self, button: &str) {
        match self.hand {
            Hand::Mouse => self.page.click(role("button", button)).await.unwrap(),
            Hand::Keyboard => {
                self.page.tab_to(&format!("button {button}"), STOPS).await.unwrap();
                self.page.press("Enter").await.unwrap();
            }
        }
    }

    async fn opens(&self, summary: &str) {
        match self.hand {
            Hand::Mouse => self.page.click(text(summary).exactly().inside(css(".decision"))).await.unwrap(),
            Hand::Keyboard => {
                self.page.tab_to(&format!("summary {summary}"), STOPS).await.unwrap();
                self.page.press("Enter").await.unwrap();
            }
        }
    }

    /// Writes into a field, in place of its value.
    async fn writes(&self, kind: &str, field: &str, value: &str) {
        match self.hand {
            Hand::Mouse => self.page.fill(label(field).nth(0), value).await.unwrap(),
            Hand::Keyboard => {
                self.page.tab_to(&format!("{kind} {field}"), STOPS).await.unwrap();
                self.page.press("Control+A").await.unwrap();
                self.page.keys(value).await.unwrap();
            }
        }
    }

    async fn ticks(&self, choice: &str) {
        match self.hand {
            Hand::Mouse => self.page.check(label(choice), true).await.unwrap(),
            Hand::Keyboard => {
                self.page.tab_to(&format!("input {choice}"), STOPS).await.unwrap();
                self.page.press("Space").await.unwrap();
            }
        }
    }

    /// Checks the page of the confirmation, and confirms.
    async fn confirms(&self, verdict: &str, target: &str, asked: &Approval) {
        self.page.wait(role("heading", &format!("{verdict}: {target}?"))).await.unwrap();
        let said = self.page.text(css(".confirm")).await.unwrap();
        for part in [verdict, target, &asked.spec.request.prompt, "Unchanged since it was asked"] {
            assert!(said.contains(part), "the confirmation repeats {part}: {said}");
        }
        let digest = "document.querySelector('.confirm details.digest code').textContent";
        let digest = self.page.evaluate(digest).await.unwrap();
        assert_eq!(digest, json!(asked.spec.request.digest.to_string()));
        match self.hand {
            Hand::Mouse => self.page.click(role("button", verdict)).await.unwrap(),
            Hand::Keyboard => {
                // A second Enter decides nothing: the focus is at the heading.
                assert_ne!(self.page.focused().await.unwrap(), format!("button {verdict}"));
                self.page.tab_to(&format!("button {verdict}"), 12).await.unwrap();
                self.page.press("Enter").await.unwrap();
            }
        }
        decided(&self.page).await;
        self.page.wait(role("heading", "Decisions so far")).await.unwrap();
        assert!(self.page.url().await.unwrap().ends_with(&path(asked)), "the page of the request follows");
    }
}

/// The environment of one case: runs, and alice before their requests.
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
    async fn asks(&self, name: &str, spec: Value, hand: Hand) -> (Alice, Approval) {
        self.runs.start_as("dana", name, spec).await;
        let asked = self.runs.asked(name).await;
        let page = self.harness.signed_in("alice", &Look::default()).await.unwrap();
        page.goto(&self.harness.at(&path(&asked))).await.unwrap();
        (Alice { page, hand }, asked)
    }

    /// Checks that exactly the sent decision is stored, for the request that was shown.
    async fn stored(&self, asked: &Approval, decision: Value) {
        let mut expected = decision;
        expected["requestDigest"] = json!(asked.spec.request.digest);
        assert_eq!(self.runs.decision(asked, "alice").await, expected);
    }
}

#[tokio::test]
async fn approve_lets_the_run_go_on() {
    let case = Case::new("approve").await;
    for (hand, name) in BOTH {
        let (alice, asked) = case.asks(name, spec(json!({})), hand).await;
        alice.writes("textarea", "Reason (may be left out)", "It is in the plan").await;
        alice.presses("Approve").await;
        alice.confirms("Approve", "review", &asked).await;
        case.stored(&asked, json!({"verdict": "Approve", "reason": "It is in the plan"})).await;
        assert_eq!(case.runs.result(name).await, "done");
        alice.page.wait(text("Approved (Approve) by alice@example.com")).await.unwrap();
    }
}

#[tokio::test]
async fn reject_ends_the_run_or_leads_it_on_as_its_author_said() {
    let case = Case::new("reject").await;
    for (hand, name) in BOTH {
        let (alice, asked) = case.asks(name, spec(json!({})), hand).await;
        alice.presses("Reject").await;
        alice.confirms("Reject", "review", &asked).await;
        case.stored(&asked, json!({"verdict": "Reject"})).await;
        assert_eq!(case.runs.ended(name).await.status.unwrap().phase, WorkflowPhase::Rejected);
    }
    let goes_on = spec(json!({"onReject": "continue"}));
    let (alice, asked) = case.asks("goes-on", goes_on, Hand::Mouse).await;
    alice.presses("Reject").await;
    alice.page.wait(text("the run goes on with act")).await.unwrap();
    alice.confirms("Reject", "review", &asked).await;
    assert_eq!(case.runs.result("goes-on").await, "done");
}

#[tokio::test]
async fn modify_shows_the_difference_and_the_run_goes_on_with_it() {
    let case = Case::new("modify").await;
    for (hand, name) in BOTH {
        let steps = json!({"steps": [
            {"name": "notice", "set": {"value": "Dear all,\nclosed on Monday.\nBye"}},
            {"name": "review", "hitl": {"prompt": "Publish?", "reviews": "notice", "approvers": [user("alice")],
                "allowedVerdicts": ["Approve", "Modify", "Reject"]}},
            {"name": "act", "set": {"value": "{{ steps.notice.response }}"}},
        ]});
        let (alice, asked) = case.asks(name, steps, hand).await;
        alice.opens("Change…").await;
        alice.writes("textarea", "response text", "Dear all,\nclosed on Tuesday.\nBye").await;
        alice.presses("See the difference").await;
        alice.page.wait(role("heading", "Modify: review?")).await.unwrap();
        let difference = alice.page.text(css(".difference")).await.unwrap();
        let words: Vec<_> = difference.split_whitespace().collect();
        let words = words.join(" ");
        assert!(words.contains("− removed: closed on Monday. + added: closed on Tuesday."), "{words}");
        alice.confirms("Modify", "review", &asked).await;
        let changed = json!({"response": "Dear all,\nclosed on Tuesday.\nBye"});
        case.stored(&asked, json!({"verdict": "Modify", "parameters": changed})).await;
        assert_eq!(case.runs.result(name).await, "Dear all,\nclosed on Tuesday.\nBye");
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
    for (hand, name) in BOTH {
        let mut steps = spec(json!({"allowedVerdicts": ["Respond", "Abort"], "form": form}));
        steps["steps"][2]["set"]["value"] =
            json!("{{ steps.review.answers.carrier.options[0] }}, {{ steps.review.answers.note.text }}");
        let (alice, asked) = case.asks(name, steps, hand).await;
        match hand {
            Hand::Mouse => alice.ticks("Train").await,
            // One stop for the whole group, and then the arrows.
            Hand::Keyboard => {
                alice.page.tab_to("input Lorry", STOPS).await.unwrap();
                alice.page.press("ArrowDown").await.unwrap();
            }
        }
        alice.ticks("insured").await;
        alice.ticks("gift").await;
        alice.writes("textarea", "note: text", "Leave it\nat the door").await;
        alice.presses("Respond").await;
        alice.confirms("Respond", "review", &asked).await;
        let answers = json!({"carrier": {"options": ["rail"]}, "extras": {"options": ["insured", "gift"]},
            "note": {"text": "Leave it\nat the door"}});
        case.stored(&asked, json!({"verdict": "Respond", "answers": answers})).await;
        assert_eq!(case.runs.result(name).await, "rail, Leave it\nat the door");
    }
}

#[tokio::test]
async fn defer_has_it_done_again_and_asked_again() {
    let case = Case::new("defer").await;
    for (hand, name) in BOTH {
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
        let (alice, asked) = case.asks(name, steps, hand).await;
        alice.opens("More").await;
        alice.writes("textarea", "Guidance", "Make it shorter").await;
        alice.presses("Defer").await;
        alice.confirms("Defer", "review", &asked).await;
        case.stored(&asked, json!({"verdict": "Defer", "guidance": "Make it shorter"})).await;
        let again = case.runs.asked_again(name, &asked).await;
        alice.page.goto(&case.harness.at(&path(&asked))).await.unwrap();
        alice.page.click(role("link", "The run waits again")).await.unwrap();
        alice.page.wait_url(&path(&again)).await.unwrap();
        alice.page.wait(text("asked 2 times by now")).await.unwrap();
        alice.presses("Approve").await;
        alice.confirms("Approve", "review#2", &again).await;
        assert_eq!(case.runs.result(name).await, "Closed.");
    }
}

#[tokio::test]
async fn escalate_asks_further_people_and_the_vote_is_final() {
    let case = Case::new("escalate").await;
    for (hand, name) in BOTH {
        let gate = json!({"allowedVerdicts": ["Approve", "Escalate"], "escalateTo": [{"kind": "Group", "name": "sre"}, user("bob")]});
        let (alice, asked) = case.asks(name, spec(gate), hand).await;
        alice.opens("More").await;
        alice.ticks("bob@example.com").await;
        alice.presses("Escalate").await;
        alice.confirms("Escalate", "review", &asked).await;
        case.stored(&asked, json!({"verdict": "Escalate", "escalateTo": [user("bob")]})).await;
        alice.page.wait(text("alice@example.com, bob@example.com")).await.unwrap();
        assert!(!alice.page.visible(role("heading", "Decide")).await.unwrap(), "she has decided");
        case.runs
            .decides("bob", &asked, json!({"verdict": "Approve", "requestDigest": asked.spec.request.digest}))
            .await;
        assert_eq!(case.runs.result(name).await, "done");
    }
}

/// Returns a step that fails, with a gate that asks how to go on.
fn fails() -> Value {
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
    for (hand, name) in BOTH {
        let (alice, asked) = case.asks(name, fails(), hand).await;
        alice.opens("More").await;
        alice.presses("Skip").await;
        alice.confirms("Skip", &asked.spec.request.gate.path, &asked).await;
        case.stored(&asked, json!({"verdict": "Skip"})).await;
        assert_eq!(case.runs.result(name).await, "done");
    }
}

#[tokio::test]
async fn retry_tries_the_step_again() {
    let case = Case::new("retry").await;
    for (hand, name) in BOTH {
        let (alice, asked) = case.asks(name, fails(), hand).await;
        alice.presses("Retry (run the step again)").await;
        alice.page.wait(text("run the step again").inside(css(".confirm"))).await.unwrap();
        alice.confirms("Retry", &asked.spec.request.gate.path, &asked).await;
        case.stored(&asked, json!({"verdict": "Retry"})).await;
        let again = case.runs.asked_again(name, &asked).await;
        assert_eq!(again.spec.request.gate.visit, 2, "it failed again");
    }
}

#[tokio::test]
async fn abort_ends_the_run() {
    let case = Case::new("abort").await;
    for (hand, name) in BOTH {
        let (alice, asked) = case.asks(name, spec(json!({"allowedVerdicts": ["Approve", "Abort"]})), hand).await;
        alice.opens("More").await;
        alice.presses("Abort the run").await;
        alice.confirms("Abort", "review", &asked).await;
        case.stored(&asked, json!({"verdict": "Abort"})).await;
        assert_eq!(case.runs.ended(name).await.status.unwrap().phase, WorkflowPhase::Aborted);
    }
}
