//! Tests of rendered arguments, and of values that keep their type.
#![allow(clippy::unwrap_used)]
use serde_json::json;

use super::*;

fn render_arguments(arguments: Value) -> Value {
    let mut scope = Scope::new();
    scope.set("args", json!({"amount": 49.5, "who": "A \"B\"", "lines": [1, "two"], "urgent": true}));
    let mut parse = |text: &str, place: &str| Template::parse(text, place).ok();
    ArgumentTemplate::of(&arguments, "", &mut parse).unwrap().render(&scope).unwrap()
}

#[test]
fn only_texts_of_arguments_are_templates() {
    let written =
        json!({"to": "Dear {{ args.who }}", "copies": 2, "draft": false, "none": null, "tags": ["{{ args.amount }}"]});
    let expected = json!({"to": "Dear A \"B\"", "copies": 2, "draft": false, "none": null, "tags": ["49.5"]});
    assert_eq!(render_arguments(written), expected);
}

#[test]
fn a_single_value_with_tojson_keeps_its_type() {
    for (text, value) in [
        ("{{ args.amount | tojson }}", json!(49.5)),
        (" {{args.urgent|tojson}} ", json!(true)),
        ("{{ args.lines | tojson }}", json!([1, "two"])),
        ("{{ args.who | tojson }}", json!("A \"B\"")),
        ("{{ args.amount }}", json!("49.5")),
        ("{{ args.amount | tojson }} EUR", json!("49.5 EUR")),
        ("{{ args.amount | tojson }}{{ args.urgent | tojson }}", json!("49.5true")),
    ] {
        assert_eq!(render_arguments(json!(text)), value, "{text}");
    }
}
