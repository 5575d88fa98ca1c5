//! Tests of the entry that is sent for a typed decision.
#![allow(clippy::unwrap_used)]
use serde_json::json;

use signoff_review::{
    reading::{Texts, verify},
    sample,
    seen::Seen,
};

use super::*;
use crate::args::CommonArgs;

fn args(verdict: Verdict, payload: Payload) -> DecisionArgs {
    DecisionArgs {
        name: "x".into(),
        verdict,
        payload,
        common: CommonArgs { reason: Some("checked".into()), ..CommonArgs::default() },
    }
}

fn set(pairs: &[(&str, &str)]) -> Payload {
    let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Payload::Parameters { set: pairs, set_string: vec![("id".into(), "0042".into())], from_file: None }
}

fn alice() -> Me {
    sample::me("alice@example.com", &["finance", "finance-leads"])
}

#[test]
fn the_reason_and_the_represented_user_are_part_of_the_entry() {
    let mut args = args(Verdict::Reject, Payload::Nothing);
    args.common.on_behalf_of = Some("bob@example.com".into());
    let entry = build_entry(&args, None, &sample::approval(), &alice()).unwrap();
    assert_eq!(entry.key, "bob@example.com via alice@example.com");
    assert_eq!(entry.decision.reason.as_deref(), Some("checked"));
}

#[test]
fn parameters_are_json_if_they_are_valid_json() {
    let approval = sample::approval();
    let args = args(Verdict::Modify, set(&[("amount", "42"), ("note", "42 EUR"), ("tags", "[\"a\"]")]));
    let entry = build_entry(&args, Some("amount: 1\nresponse: |\n  two\n  lines\n"), &approval, &alice()).unwrap();
    let parameters = entry.decision.parameters.unwrap();
    assert_eq!(
        Value::Object(parameters.0),
        json!({"amount": 42, "response": "two\nlines\n", "note": "42 EUR", "tags": ["a"], "id": "0042"})
    );
}

#[test]
fn null_is_sent_as_a_value() {
    let approval = sample::approval();
    let args = args(Verdict::Modify, set(&[("a", "{\"b\": null}"), ("response", "null")]));
    let entry = build_entry(&args, Some("c: null\nd:\n"), &approval, &alice()).unwrap();
    let expected = json!({"a": {"b": null}, "c": null, "d": null, "id": "0042", "response": null});
    assert_eq!(Value::Object(entry.decision.parameters.unwrap().0), expected);
}

#[test]
fn parameters_that_cannot_be_sent_unchanged_are_refused() {
    let approval = sample::approval();
    let failed = |payload| build_entry(&args(Verdict::Modify, payload), None, &approval, &alice()).unwrap_err();
    assert!(failed(set(&[("amount", "9007199254740993")])).to_string().contains("write it as a string"));
    let nothing = Payload::Parameters { set: vec![], set_string: vec![], from_file: None };
    assert_eq!(failed(nothing.clone()).code(), 2);
    assert!(failed(nothing).to_string().contains("modify needs parameters, here {response: <any>}"));
    let list = build_entry(&args(Verdict::Modify, set(&[])), Some("[1]"), &approval, &alice()).unwrap_err();
    assert!(list.to_string().contains("must hold an object: this gate takes {response: <any>}"));
}

#[test]
fn arguments_of_a_call_are_read_strictly_and_must_change_something() {
    let approval = sample::call();
    let typed =
        |text: &str| build_entry(&args(Verdict::Modify, set(&[("arguments", text)])), None, &approval, &alice());
    let same = typed(r#"{"customer":"ACME","amount":420.0,"note":"as agreed\\nby phone"}"#).unwrap();
    let (seen, run) =
        (Seen { raw: serde_json::to_value(&approval).unwrap(), approval: approval.clone() }, sample::run());
    let proposed = |entry| {
        let shown = verify(&seen, &run, Texts::OfRequest).unwrap().shown(approval.spec.request.digest.as_str());
        shown.and_then(|shown| shown.propose(entry, &alice(), sample::now()))
    };
    assert!(proposed(same).unwrap_err().to_string().contains("nothing was changed"));
    assert!(proposed(typed(r#"{"customer":"ACME","amount":42}"#).unwrap()).is_ok());
    for (text, why) in [
        (r#"{"amount":1,"amount":900}"#, "amount"),
        (r#"{"amount":9007199254740993}"#, "amount"),
        ("amount=3", "--set arguments: not JSON: expected value at line 1 column 1"),
        ("[1]", "must be a JSON object"),
    ] {
        let failure = typed(text).unwrap_err().to_string();
        assert!(failure.contains(why), "{text}: {failure}");
    }
    let twice =
        build_entry(&args(Verdict::Modify, set(&[])), Some("{\"arguments\":{\"a\":1,\"a\":2}}"), &approval, &alice());
    let twice = twice.unwrap_err().to_string();
    assert!(!twice.contains("DuplicateKeyPolicy") && twice.contains("duplicate"), "{twice}");
}

#[test]
fn answers_are_collected_by_question() {
    let approval = sample::approval();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let typed = Payload::Answers {
        texts: vec![pair("why", "because")],
        options: vec![pair("colour", "red"), pair("colour", "blue"), pair("colour", "red")],
    };
    let entry = build_entry(&args(Verdict::Respond, typed), None, &approval, &alice()).unwrap();
    let answers = entry.decision.answers.unwrap();
    assert_eq!(answers["colour"].options, ["red", "blue"]);
    assert_eq!(answers["why"].text.as_deref(), Some("because"));
    assert!(
        super::collect_answers(&[pair("a", "1"), pair("a", "2")], &[]).unwrap_err().to_string().contains("duplicate")
    );
}

#[test]
fn a_file_with_an_answer_loses_only_its_last_line_end() {
    let approval = sample::approval();
    let typed = args(Verdict::Respond, Payload::ResponseFile("answer.txt".into()));
    let entry = build_entry(&typed, Some("one\ntwo\n\n"), &approval, &alice()).unwrap();
    assert_eq!(entry.decision.response.as_deref(), Some("one\ntwo\n"));
}

#[test]
fn a_target_is_the_subject_of_that_name_at_the_gate() {
    let mut approval = sample::approval();
    let bot = Subject { kind: SubjectKind::ServiceAccount, name: "bot".into(), namespace: Some("ci".into()) };
    approval.spec.request.escalate_to = vec![Subject::group("directors"), bot.clone()];
    let request = &approval.spec.request;
    assert_eq!(parse_subject("directors", request), Subject::group("directors"));
    assert_eq!(parse_subject("serviceaccount:ci/bot", request), bot);
    assert_eq!(parse_subject("group:others", request), Subject::group("others"));
    assert_eq!(parse_subject("oidc:a/b", request), Subject::user("oidc:a/b"));
    assert_eq!(parse_subject("user:group:x", request), Subject::user("group:x"));
}
