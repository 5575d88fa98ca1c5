//! Tests of numbers that no double can hold: an error if a condition or a template reads one, and ignored otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::json;

use crate::{Condition, LanguageError, Scope, Template, json};

const ANSWER: &str = r#"{"status": "ok", "customer": {"id": 123456789012345678901234567890, "name": "Ada"},
    "rows": [{"n": 1, "big": 1e400}, {"n": 2, "big": 2}], "tiny": 1e-400, "ids": [1, 1234567890123456789], "ok": [1, 2.0]}"#;

fn scope() -> Scope {
    let answer = json::extract(ANSWER).unwrap();
    let mut scope = Scope::new();
    scope.set("last_response", answer.clone());
    scope.set_records("steps", vec![("look".to_owned(), json!({"name": "look", "response": answer}))]);
    scope
}

fn condition(source: &str) -> Result<bool, LanguageError> {
    Condition::parse(source, "spec.when").unwrap().evaluate(&scope())
}

fn template(source: &str) -> Result<String, LanguageError> {
    Template::parse(source, "spec.value").unwrap().render(&scope())
}

#[track_caller]
fn assert_unreadable<T: std::fmt::Debug>(result: Result<T, LanguageError>, source: &str) -> String {
    let why = result.expect_err(source);
    assert!(matches!(why, LanguageError::Evaluation { .. }), "{source}: {why:?}");
    let why = why.to_string();
    assert!(why.contains("; write it as a text"), "{source}: {why}");
    assert!(!why.contains("1234567890"), "{source}: {why}");
    why
}

#[test]
fn a_condition_that_reads_the_number_names_its_pointer() {
    for (source, pointer) in [
        ("steps.look.response.customer.id == 5", "/customer/id of `steps.look.response`"),
        ("steps.look.response.customer['id'] != 'x'", "/customer/id of `steps.look.response`"),
        ("steps[0].response.tiny == 0.0", "/tiny of `steps.look.response`"),
        ("last_response.tiny > 0.0", "/tiny of `last_response`"),
        ("double(last_response.rows[0].big) > 1.0", "/rows/0/big of `last_response`"),
        ("string(last_response.rows[0].big) == '1e400'", "/rows/0/big of `last_response`"),
        ("1 in last_response.ids", "/ids/1 of `last_response`"),
        ("last_response.ids == [1, 2]", "/ids/1 of `last_response`"),
        ("last_response.customer == {'id': 5, 'name': 'Ada'}", "/customer/id of `last_response`"),
        ("last_response == steps.look.response", "/customer/id of `"),
        ("last_response.rows.exists(row, row.big == 3)", "/rows/0/big of `last_response`"),
        ("last_response.ids.map(n, n + 1) == [2]", "/ids/1 of `last_response`"),
        ("!(last_response.customer.id == 5)", "/customer/id of `last_response`"),
    ] {
        let why = assert_unreadable(condition(source), source);
        assert!(why.contains(&format!("the number at {pointer}")), "{source}: {why}");
    }
    let whole = Condition::parse("last_response.customer", "spec.when").unwrap().evaluate_value(&scope());
    assert!(assert_unreadable(whole, "the whole object").contains("/customer/id of `last_response`"));
}

#[test]
fn a_condition_that_does_not_read_the_number_is_unaffected() {
    for source in [
        "steps.look.response.status == 'ok'",
        "steps.look.response.customer.name == 'Ada'",
        "has(steps.look.response.customer.id)",
        "has(last_response.tiny) && !has(last_response.missing)",
        "size(last_response.rows) == 2 && last_response.rows[1].big == 2",
        "last_response.rows.exists(row, row.n == 2)",
        "last_response.ids.size() == 2 && last_response.ids[0] == 1",
        "last_response.ok == [1, 2]",
        "'customer' in last_response",
    ] {
        assert_eq!(condition(source), Ok(true), "{source}");
    }
}

#[test]
fn a_template_that_reads_the_number_names_its_pointer() {
    let customer = "/customer/id of `";
    for (source, pointer) in [
        ("{{ steps.look.response.customer.id }}", "/customer/id of `steps.look.response`"),
        ("{{ steps['look'].response['customer']['id'] }}", "/customer/id of `steps.look.response`"),
        ("{{ steps[0].response.tiny + 1 }}", "/tiny of `steps.look.response`"),
        ("{{ last_response.tiny | round }}", "/tiny of `last_response`"),
        ("{{ last_response.customer }}", customer),
        ("{{ last_response | tojson }}", customer),
        ("{{ [last_response] | string }}", customer),
        ("{{ last_response.customer ~ '' }}", customer),
        ("{{ last_response.customer == {'id': 5, 'name': 'Ada'} }}", customer),
        ("{{ {'id': 5, 'name': 'Ada'} == last_response.customer }}", customer),
        ("{{ last_response.customer in [{'id': 5, 'name': 'Ada'}] }}", customer),
        ("{{ last_response.customer is eq({'id': 5, 'name': 'Ada'}) }}", customer),
        ("{{ last_response.customer.get('id') }}", customer),
        ("{{ last_response.customer.get('id') == 5 }}", customer),
        ("{{ last_response.customer.get('id') is number }}", customer),
        ("{{ 'x' if last_response.customer.get('id') else 'y' }}", customer),
        ("{{ last_response.customer.values() | list }}", customer),
        ("{% for k, v in last_response.customer.items() %}{{ v }}{% endfor %}", customer),
        ("{% if last_response.customer.id == 5 %}{% endif %}", customer),
        ("{% if last_response.customer.id %}{% endif %}", customer),
        ("{{ last_response.customer.id | default(5) }}", customer),
        ("{{ last_response.ids | join(',') }}", "/ids/1 of `"),
        ("{{ last_response.ids | last }}", "/ids/1 of `"),
        ("{{ last_response.ids | max }}", "/ids/1 of `"),
        ("{{ last_response.ids | sort }}", "/ids/1 of `"),
        ("{{ last_response.ids | map('bool') | list }}", "/ids/1 of `"),
        ("{{ last_response.ids | map('string') | list }}", "/ids/1 of `"),
        ("{{ last_response.ids | select('eq', 7) | list }}", "/ids/1 of `"),
        ("{{ last_response.ids | reject('number') | list }}", "/ids/1 of `"),
        ("{{ 7 in last_response.ids }}", "/ids/1 of `"),
        ("{{ last_response.ids.count(7) }}", "/ids/1 of `"),
        ("{% for n in last_response.ids %}{{ n }}{% endfor %}", "/ids/1 of `"),
        ("{{ last_response.rows | map(attribute='big') | join }}", "/rows/0/big of `"),
        ("{{ last_response.rows | selectattr('big') | list | length }}", "/rows/0/big of `"),
        ("{{ last_response.rows | selectattr('big', 'eq', 2) | list | length }}", "/rows/0/big of `"),
        ("{{ last_response.rows | rejectattr('big', 'eq', 2) | list | length }}", "/rows/0/big of `"),
        ("{{ last_response.rows | sort(attribute='big') | length }}", "/rows/0/big of `"),
    ] {
        let why = assert_unreadable(template(source), source);
        assert!(why.contains(&format!("the number at {pointer}")), "{source}: {why}");
    }
    let url = Template::parse("http://x.svc/{{ last_response.customer.id }}", "spec.url").unwrap().render_url(&scope());
    assert!(assert_unreadable(url, "a URL").contains(customer));
}

#[test]
fn a_template_that_does_not_read_the_number_is_unaffected() {
    for (source, text) in [
        ("{{ steps.look.response.status }} {{ last_response.customer.name }}", "ok Ada"),
        ("{{ last_response.rows | length }} {{ last_response.ids[0] }} {{ last_response.ids | first }}", "2 1 1"),
        ("{{ last_response.rows | map(attribute='n') | join(',') }}", "1,2"),
        ("{{ last_response.rows | selectattr('n', 'eq', 2) | map(attribute='big') | join }}", "2"),
        ("{% for row in last_response.rows %}{{ row.n }}{% endfor %}", "12"),
        ("{{ last_response.customer is mapping }} {{ 'id' in last_response.customer }}", "true true"),
        ("{{ last_response.keys() | list | first }} {{ last_response.ok | tojson }}", "status [1,2.0]"),
        ("{{ steps[0].name }}{{ steps | length }}", "look1"),
    ] {
        assert_eq!(template(source), Ok(text.to_owned()), "{source}");
    }
}
