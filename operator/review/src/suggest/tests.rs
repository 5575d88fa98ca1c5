//! The suggested commands, compared whole.
#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};
use signoff_api::approval::ApprovalPhase;

use super::*;
use crate::sample;

fn suggested_lines(approval: &Approval) -> String {
    let name = approval.metadata.name.clone().unwrap();
    lines(&CallFlags::default().decisions(approval)).replace(&name, "NAME")
}

#[test]
fn every_verdict_that_the_gate_takes_has_its_command_and_no_other() {
    assert_eq!(
        suggested_lines(&sample::approval()),
        "  kubectl approve approve NAME -n finance
  kubectl approve reject NAME -n finance
  kubectl approve modify NAME --set 'response=better' -n finance
    takes {response: <any>}
  kubectl approve abort NAME -n finance
"
    );
}

#[test]
fn an_error_gate_suggests_no_approve_and_a_required_reason_is_in_every_command() {
    let mut approval = sample::approval();
    let request = &mut approval.spec.request;
    request.allowed_verdicts = vec![Verdict::Retry, Verdict::Skip, Verdict::Reject];
    request.require_reason = Some(true);
    assert_eq!(
        suggested_lines(&approval),
        "  kubectl approve retry NAME --reason '…' -n finance
  kubectl approve skip NAME --reason '…' -n finance
  kubectl approve reject NAME --reason '…' -n finance
"
    );
}

#[test]
fn an_overdue_gate_suggests_only_its_remaining_verdicts() {
    let mut approval = sample::approval();
    approval.status.get_or_insert_default().phase = ApprovalPhase::Overdue;
    assert_eq!(
        suggested_lines(&approval),
        "  kubectl approve retry NAME -n finance
  kubectl approve reject NAME -n finance
  kubectl approve abort NAME -n finance
"
    );
}

#[test]
fn a_form_is_answered_question_by_question() {
    let mut approval = sample::approval();
    let request = &mut approval.spec.request;
    request.allowed_verdicts = vec![Verdict::Respond];
    assert_eq!(suggested_lines(&approval), "", "without a question there is nothing to answer");
    for (form, words) in [
        (json!([{"id": "answer"}]), "--response '…'"),
        (json!([{"id": "answer", "default": "no"}]), "--response no"),
        (json!([{"id": "tone", "options": [{"id": "soft"}, {"id": "firm"}]}]), "--choose 'tone=soft'"),
        (
            json!([{"id": "tone", "options": [{"id": "soft"}, {"id": "firm", "label": "Firm"}], "default": "Firm"},
                {"id": "iban"}, {"id": "note", "required": false}]),
            "--choose 'tone=firm' --answer 'iban=…'",
        ),
        (json!([{"id": "a", "required": false, "default": "x"}, {"id": "b", "required": false}]), "--answer 'a=x'"),
    ] {
        approval.spec.request.form = serde_json::from_value(json!({"questions": form})).unwrap();
        assert_eq!(suggested_lines(&approval), format!("  kubectl approve respond NAME {words} -n finance\n"));
    }
}

#[test]
fn escalate_is_suggested_only_while_there_are_further_approvers() {
    let mut approval = sample::approval();
    approval.spec.request.allowed_verdicts = vec![Verdict::Defer, Verdict::Escalate];
    let defer = "  kubectl approve defer NAME --guidance '…' -n finance\n";
    assert_eq!(suggested_lines(&approval), defer);
    let level = json!([{"to": [{"kind": "Group", "name": "directors"}]}]);
    approval.spec.request.timeout.escalation = serde_json::from_value(level).unwrap();
    let both = format!("{defer}  kubectl approve escalate NAME -n finance\n");
    assert_eq!(suggested_lines(&approval), both);
    approval.status.get_or_insert_default().level = Some(1);
    assert_eq!(suggested_lines(&approval), defer);
    approval.spec.request.escalate_to = vec![signoff_api::gate::Subject::group("sre")];
    assert_eq!(suggested_lines(&approval), both);
}

#[test]
fn parameters_are_quoted_as_a_shell_reads_them() {
    let mut approval = sample::approval();
    approval.spec.request.allowed_verdicts = vec![Verdict::Modify, Verdict::Retry];
    let schema =
        |field: &str, schema: Value| json!({"type": "object", "required": [field], "properties": {field: schema}});
    for (field, type_, words, option) in [
        ("route", json!({"enum": ["billing", "42"]}), r#"{route: "billing" or "42"}"#, "--set 'route=billing'"),
        ("route", json!({"enum": ["42"]}), r#"{route: "42"}"#, "--set-string 'route=42'"),
        ("draft", json!({"type": "string"}), "{draft: <text>}", "--set 'draft=better'"),
        (
            "parts",
            json!({"type": "array", "items": {"type": "string"}}),
            "{parts: [<text>, ...]}",
            r#"--set 'parts=["better"]'"#,
        ),
    ] {
        let workers = schema("workers", json!({"type": "array", "items": {"type": "integer"}}));
        approval.spec.request.parameters =
            serde_json::from_value(json!({"Modify": schema(field, type_), "Retry": workers})).unwrap();
        let modify = format!("  kubectl approve modify NAME {option} -n finance\n    takes {words}\n");
        let retry =
            "  kubectl approve retry NAME -n finance\n    can take {workers: [<integer>, ...]}: --set 'workers=[0]'\n";
        assert_eq!(suggested_lines(&approval), modify + retry);
    }
}

#[test]
fn the_flags_of_the_call_are_repeated() {
    let words = ["--kubeconfig", "a config", "--context", "prod", "--as", "zoe", "--as-group", "finance"];
    let call = CallFlags::new(words.map(str::to_owned).to_vec());
    assert_eq!(
        call.show(Some("finance"), "x"),
        "kubectl approve show x -n finance --kubeconfig 'a config' --context prod --as zoe --as-group finance"
    );
    assert!(!CallFlags::default().show(None, "x\u{1b}[2J").contains('\u{1b}'));
}
