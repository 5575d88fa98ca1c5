//! The page of a turn, its confirmation, and what a batch takes.
#![allow(clippy::unwrap_used, clippy::panic)]

use askama::Template;
use serde_json::json;
use signoff_api::{Approval, Digest};
use signoff_review::{action::NOTICE, sample};

use super::*;
use crate::{
    approval::{
        read::Read,
        tests::{caller, read_of, unverified, with},
    },
    history::tests::server,
    session::fake::World,
};

fn call(number: u32, tool: &str, verdicts: &[&str]) -> Approval {
    let arguments = format!("{{\"number\":{number}}}");
    with(
        sample::call(),
        &json!({
            "gate": {"name": tool, "type": "specificTools", "path": format!("handle/.turn-2/.call-{number}/.gate"), "visit": 1},
            "action": {
                "kind": "toolCall", "agent": "clerk", "tool": tool, "effects": "write", "target": "POST https://bank.example",
                "siblings": [{"path": "handle/.turn-2/.call-9", "tool": "lookup"}, {"path": "handle/.turn-2/.call-1", "tool": "refund"}],
            },
            "reviews": {"path": "x", "response": arguments, "digest": Digest::of_bytes(arguments.as_bytes())},
            "allowedVerdicts": verdicts,
        }),
    )
}

fn turn(calls: &[Approval]) -> Turn {
    Turn {
        namespace: "finance".to_owned(),
        name: "0a1b2c".to_owned(),
        calls: calls.iter().map(read_of).collect(),
        run: sample::run(),
    }
}

fn shown_to(user: &str, calls: &[Approval], typed: &Typed) -> String {
    TurnPage::of(&caller(user), &turn(calls), typed, &Problems::default()).render().unwrap()
}

#[tokio::test]
async fn every_call_stands_with_its_arguments_and_digest_and_is_chosen() {
    let calls = [call(1, "refund", &["Approve", "Reject", "Defer"]), call(2, "letter", &["Approve", "Reject"])];
    let page = shown_to("alice@example.com", &calls, &Typed::default());
    for one in &calls {
        let box_of = format!(
            "<input type=\"checkbox\" name=\"call\" value=\"{} {}\" checked>",
            one.metadata.name.as_deref().unwrap(),
            one.spec.request.digest
        );
        assert!(page.contains(&box_of), "{box_of}: {page}");
    }
    assert!(page.contains("&#34;number&#34;: 1"), "{page}");
    assert!(page.contains("not allowed for letter: POST https://bank.example"), "Defer is not taken by all: {page}");
    assert!(page.contains("lookup (call 9)") && !page.contains("refund (call 1)"), "what does not wait: {page}");
    for absent in ["value=\"Modify\"", "value=\"Respond\"", "value=\"Skip\"", "value=\"Abort\""] {
        assert!(!page.contains(absent), "{absent}: {page}");
    }
}

#[tokio::test]
async fn a_call_that_the_reader_cannot_decide_or_that_was_changed_cannot_be_chosen() {
    let mut changed = call(2, "letter", &["Approve"]);
    changed.spec.request.prompt = "Something else?".to_owned();
    let calls = [call(1, "refund", &["Approve"]), changed];
    let page = shown_to("alice@example.com", &calls, &Typed::default());
    assert_eq!(page.matches("type=\"checkbox\"").count(), 1, "{page}");
    assert!(page.contains("do not decide it, and tell the administrators"), "{page}");
    let page = shown_to("mallory@example.com", &calls, &Typed::default());
    assert_eq!(page.matches("type=\"checkbox\"").count(), 0, "{page}");
    assert!(!page.contains("<button type=\"submit\" name=\"verdict\""), "{page}");
}

#[tokio::test]
async fn a_call_with_any_problem_cannot_be_chosen() {
    let page = |call: Read| {
        let turn = Turn { calls: vec![call], ..turn(&[]) };
        let page = TurnPage::of(&caller("alice@example.com"), &turn, &Typed::default(), &Problems::default());
        page.render().unwrap().replace("&#39;", "'")
    };
    for problem in sample::problems() {
        let said = page(unverified(&problem));
        assert!(!said.contains("type=\"checkbox\"") && said.contains(&problem.to_string()), "{problem}: {said}");
    }
    assert!(page(read_of(&call(1, "refund", &["Approve"]))).contains("type=\"checkbox\""));
}

#[tokio::test]
async fn what_was_chosen_and_typed_is_kept_where_something_is_wrong() {
    let calls = [call(1, "refund", &["Approve"]), call(2, "letter", &["Approve"])];
    let second = format!("{} x", calls[1].metadata.name.as_deref().unwrap());
    let fields = [("verdict", "Approve"), ("call", second.as_str()), ("reason", "as agreed")];
    let typed = Typed(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
    let page = shown_to("alice@example.com", &calls, &typed);
    assert_eq!(page.matches(" checked>").count(), 1, "{page}");
    assert!(page.contains("as agreed"), "{page}");
}

#[tokio::test]
async fn a_question_in_a_turn_keeps_its_notice_and_is_answered_elsewhere() {
    let asked = with(
        sample::question(),
        &json!({"gate": {"name": "questions", "type": "question", "path": "handle/.turn-2/.call-3/.gate", "visit": 1}}),
    );
    let page = shown_to("alice@example.com", &[call(1, "refund", &["Approve", "Skip"]), asked], &Typed::default());
    assert!(page.contains(NOTICE) && page.contains("Which account?") && page.contains("Answer it on its own page."));
    assert!(page.contains("not allowed for the question of clerk"), "Approve: {page}");
    assert!(page.contains("value=\"Skip\""), "{page}");
}

#[tokio::test]
async fn a_turn_in_which_nothing_waits_says_so() {
    let page = shown_to("alice@example.com", &[], &Typed::default());
    assert!(
        page.contains("No call of this turn waits") && !page.contains("<form method=\"post\" action=\"/n/"),
        "{page}"
    );
}

#[tokio::test]
async fn a_batch_on_a_suspended_run_is_confirmed_with_what_it_waits_for() {
    let late = "2999-01-01T00:00:00Z";
    let approval = with(sample::call(), &json!({"deadline": late, "closesAt": late}));
    let (name, request) = (approval.metadata.name.clone().unwrap(), &approval.spec.request);
    let (turn, chosen) = (request.turn().unwrap(), format!("{name} {}", request.digest));
    let typed =
        Typed([("verdict", "Approve"), ("call", &chosen)].map(|(name, value)| (name.into(), value.into())).to_vec());
    let stored = serde_json::to_value(&approval).unwrap();
    for (suspend, comes_to) in [
        (
            true,
            "your decision is enough: the run is suspended, and goes on when it is resumed; then the call goes on with exactly these arguments",
        ),
        (false, "your decision is enough: the call goes on with exactly these arguments"),
    ] {
        let (world, stored) = (World::new(&[]), stored.clone());
        let run = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "refund-4711", "uid": approval.spec.request.workflow.uid}, "spec": {"suspend": suspend}});
        let tried = crate::approval::tests::approved(&approval);
        let answer = move |address: &str| match address {
            run_of if run_of.contains("/workflows/") => (200, run.clone()),
            trial if trial.contains("dryRun") => (200, tried.clone()),
            _ => (200, stored.clone()),
        };
        let caller = Caller { client: server(answer).0, ..caller("alice@example.com") };
        let batch = Batch::prepare(&world.state, &caller, "finance", &turn, &typed).await.unwrap();
        let batch = batch.unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(batch.calls[0].planned.as_ref().map(|planned| planned.comes_to.as_str()).unwrap(), comes_to);
    }
}
