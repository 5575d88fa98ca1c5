//! Tests of the one form of all verdicts: parts that are not sent with the pressed button, Back, the order, and errors.
#![allow(clippy::unwrap_used, clippy::panic)]

use askama::Template;
use serde_json::json;
use signoff_api::Approval;
use signoff_review::{action::NOTICE, foreseen, sample};

use super::{
    tests::{HOSTILE, assert_in_order, caller, read_of, with},
    *,
};
use crate::{history::tests::server, session::fake::World};

/// Returns the fields of the form of a request, as a browser sends them.
fn typed(approval: &Approval, fields: &[(&str, &str)]) -> Typed {
    let digest = ("digest", approval.spec.request.digest.as_str());
    let all = std::iter::once(&digest).chain(fields);
    Typed(all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

/// Returns the page of a request with the form as it was typed.
fn form(approval: &Approval, fields: &[(&str, &str)]) -> String {
    let (caller, typed) = (caller("alice@example.com"), typed(approval, fields));
    ApprovalPage::of(&caller, &read_of(approval), &typed, &Problems::default()).render().unwrap()
}

/// Returns the confirmation of a typed decision.
async fn confirmation(approval: &Approval, fields: &[(&str, &str)]) -> String {
    let (read, world, typed) = (read_of(approval), World::new(&[]), typed(approval, fields));
    let alice = caller("alice@example.com");
    let proposed = send::propose(&world.state, &alice, &read, &typed).ok().unwrap();
    let stored = serde_json::to_value(foreseen::with(approval, proposed.entry())).unwrap();
    let alice = Caller { client: server(move |_| (200, stored.clone())).0, ..alice };
    let sender = send::Sender { caller: &alice, namespace: "finance", name: "refund-4711-review" };
    let rehearsed = sender.rehearse(&world.state, &read, proposed).await.unwrap().ok().unwrap();
    confirm::confirm(&alice, &read, &rehearsed, &typed).render().unwrap()
}

/// Returns a request that takes all verdicts that have fields of their own, such as guidance or answers.
fn all_fields() -> Approval {
    let questions = json!([
        {"id": "size", "options": [{"id": "small"}, {"id": "large"}], "default": "small"},
        {"id": "note", "required": false},
    ]);
    let fields = json!({
        "allowedVerdicts": ["Approve", "Reject", "Modify", "Respond", "Defer", "Escalate"],
        "form": {"questions": questions}, "escalateTo": [{"kind": "User", "name": "bob@example.com"}],
    });
    with(sample::approval(), &fields)
}

#[tokio::test]
async fn confirmation_names_filled_parts_that_are_not_sent() {
    let approval = all_fields();
    let letter = approval.spec.request.reviews.as_ref().unwrap().response.clone();
    let (same, other) = (letter.replace('\n', "\r\n"), format!("{letter} and more"));
    let untouched =
        [("option.size", "small"), ("answers.note", ""), ("guidance", ""), ("parameters.response", same.as_str())];
    for (verdict, own) in [("Approve", None), ("Modify", Some(("parameters.response", other.as_str())))] {
        let fields: Vec<_> = [("verdict", verdict)].into_iter().chain(untouched).chain(own).collect();
        let page = confirmation(&approval, &fields).await;
        assert!(!page.contains("is not sent with"), "{verdict}: {page}");
    }
    for (field, part) in [
        (("parameters.response", other.as_str()), "Change…"),
        (("option.size", "large"), "Your answer"),
        (("answers.note", "at the door"), "Your answer"),
        (("guidance", "shorter"), "Guidance"),
        (("to", "0"), "Ask further people"),
    ] {
        let rest = untouched.into_iter().filter(|(name, _)| *name != field.0);
        let fields: Vec<_> = [("verdict", "Approve"), field].into_iter().chain(rest).collect();
        let page = confirmation(&approval, &fields).await;
        let note = format!("What you changed under {part} is not sent with Approve.");
        assert_in_order(&page, &["role=\"alert\"", &note, "Effect"]);
        assert_in_order(&page, &[&format!("<textarea name=\"{}\" hidden>\n{}<", field.0, field.1), "name=\"back\""]);
    }
    let several = [
        ("verdict", "Reject"),
        ("parameters.response", other.as_str()),
        ("option.size", "small"),
        ("guidance", "shorter"),
        ("to", "0"),
    ];
    let note = "What you changed under Change…, Guidance and Ask further people is not sent with Reject.";
    assert_in_order(&confirmation(&approval, &several).await, &[note]);
}

#[tokio::test]
async fn back_keeps_the_fields_of_all_verdicts() {
    let approval = all_fields();
    let page = form(
        &approval,
        &[
            ("verdict", "Approve"),
            ("back", "yes"),
            ("reason", "as agreed"),
            ("parameters.response", "Dear all"),
            ("option.size", "large"),
            ("answers.note", "at the door"),
            ("guidance", "shorter"),
            ("to", "0"),
        ],
    );
    assert_in_order(
        &page,
        &[
            "value=\"large\" checked",
            "\nat the door</textarea>",
            "\nas agreed</textarea>",
            "<details class=\"way\" open>",
            "\nDear all</textarea>",
            "<details class=\"way more\" open>",
            "\nshorter</textarea>",
            "name=\"to\" value=\"0\" checked",
        ],
    );
    assert!(!page.contains("value=\"small\" checked"), "{page}");
    let untouched = form(&approval, &[]);
    assert_in_order(
        &untouched,
        &["value=\"small\" checked", "<details class=\"way\">", "<details class=\"way more\">"],
    );
}

#[tokio::test]
async fn confirmation_escapes_texts_and_drops_unknown_fields() {
    let fields = [("verdict", "Approve"), ("parameters.response", HOSTILE), (HOSTILE, "x"), ("planted", "planted")];
    let page = confirmation(&sample::approval(), &fields).await;
    assert_in_order(&page, &["is not sent with Approve", "&#60;script&#62;"]);
    for markup in ["<script>alert", "<img src=x", "</div></pre>", "planted"] {
        assert!(!page.contains(markup), "{markup}: {page}");
    }
}

#[tokio::test]
async fn questions_come_first_if_the_answer_continues_the_run() {
    let words = ["<h1>", "Your answer", NOTICE, "Which account?", "If you answer", "Who can answer", "id=\"decide\""];
    assert_in_order(&form(&sample::question(), &[]), &words);
    // If the request can be approved, its effect comes before the questions.
    let words = ["<h1>", "If you approve", "Who must agree", "Your answer", "id=\"decide\"", "Respond</button>"];
    assert_in_order(&form(&all_fields(), &[]), &words);
}

#[tokio::test]
async fn error_message_of_an_author_is_escaped_at_its_field() {
    let (world, caller) = (World::new(&[]), caller("alice@example.com"));
    let questions = json!([{"id": "ticket", "pattern": "CHG-[0-9]+", "errorMessage": HOSTILE}]);
    let asked = with(sample::approval(), &json!({"form": {"questions": questions}, "allowedVerdicts": ["Respond"]}));
    let (read, typed) = (read_of(&asked), typed(&asked, &[("verdict", "Respond"), ("answers.ticket", "CH-1")]));
    let problems = send::answer_problems(&world.state, &caller, &read, &typed).await;
    let page = ApprovalPage::of(&caller, &read, &typed, &problems).render().unwrap();
    let at = "aria-invalid=\"true\">\nCH-1</textarea>";
    assert_in_order(
        &page,
        &["aria-describedby=\"wrong-1\"", at, "id=\"wrong-1\"", "&#60;script&#62;alert(1)", "⟨U+202E⟩"],
    );
    assert!(!page.contains("<script>alert") && !page.contains('\u{202e}'), "{page}");
}

#[tokio::test]
async fn missing_reason_is_reported_with_other_problems() {
    let (world, caller) = (World::new(&[]), caller("alice@example.com"));
    let call = with(sample::call(), &json!({"requireReason": true}));
    let typed = typed(&call, &[("verdict", "Modify"), ("parameters.arguments", "{amount"), ("reason", "...")]);
    let problems = send::propose(&world.state, &caller, &read_of(&call), &typed).err().unwrap().problems;
    assert!(problems.at("parameters.arguments").is_some_and(|why| why.contains("not JSON")), "{problems:?}");
    assert!(problems.at("reason").is_some_and(|why| why.contains("requires a reason")), "{problems:?}");
}

#[tokio::test]
async fn retry_names_the_call_that_runs_again() {
    let gate = json!({"name": "help", "type": "errorEscalation", "path": "pay/.error", "visit": 1});
    let verdicts = json!(["Retry", "Skip", "Reject"]);
    let fields = json!({"gate": gate, "sends": {"text": sample::SENT}, "allowedVerdicts": verdicts});
    let failed = with(sample::approval(), &fields);
    let again = "run the step again: POST https://bank.example/refunds";
    assert_in_order(&form(&failed, &[]), &["value=\"Retry\"", &format!(">Retry ({again})</button>")]);
    let page = confirmation(&failed, &[("verdict", "Retry")]).await;
    assert_in_order(&page, &[&format!("<dt>Meaning</dt><dd>{again}</dd>"), "Effect"]);
    let other = with(sample::approval(), &json!({"allowedVerdicts": ["Approve", "Retry"]}));
    assert_in_order(&form(&other, &[]), &[">Retry</button>"]);
    assert!(!confirmation(&other, &[("verdict", "Retry")]).await.contains("<dt>Meaning</dt>"));
}
