//! Tests of excerpts: short enough, with every field, and with every cut marked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::Digest;

use crate::steps::excerpt::{Fields, SHOWN};

fn excerpt(fields: &Value, front: &[&'static str], first: &'static str) -> String {
    let fields = Fields::of(fields, front, first).unwrap_or_else(|_| panic!("fields"));
    let shown = fields.excerpt("attempts: 1");
    assert!(shown.len() <= SHOWN, "{} bytes", shown.len());
    shown
}

/// Replaces line breaks by spaces, because YAML folds long lines.
fn unfolded(shown: &str) -> String {
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_long_field_is_cut_with_the_size_and_digest_of_the_rest() {
    let text = "b".repeat(9000);
    let shown = excerpt(&json!({"url": "https://a.org/", "body": text, "method": "POST"}), &["url"], "url");
    assert!(unfolded(&shown).contains(&format!("more bytes, {}", Digest::of_bytes(text.as_bytes()))), "{shown}");
    assert!(shown.contains("https://a.org/") && shown.contains("method: POST"), "{shown}");
    let kept = shown.matches('b').count();
    assert!((3000..4000).contains(&kept), "{kept} bytes of the body are shown");
}

#[test]
fn the_first_field_stays_whole_up_to_half_of_the_excerpt() {
    let url = format!("https://a.org/{}/end", "u".repeat(1400));
    let shown = excerpt(&json!({"url": url, "a": "a".repeat(9000), "b": "b".repeat(9000)}), &["url"], "url");
    assert!(shown.contains(&url), "{shown}");
    assert!(shown.matches('a').count() > 700 && shown.matches('b').count() > 700, "{shown}");
}

#[test]
fn every_name_is_shown_when_there_are_many() {
    let headers: serde_json::Map<_, _> = (0..60).map(|at| (format!("X-Header-{at}"), json!("v".repeat(300)))).collect();
    let shown = excerpt(&json!({"url": "https://a.org/", "body": "pay 42000", "headers": headers}), &["url"], "url");
    for at in 0..60 {
        assert!(shown.contains(&format!("X-Header-{at}:")), "{at}: {shown}");
    }
    assert!(shown.contains("pay 42000"), "{shown}");
    let headers: serde_json::Map<_, _> = (0..9000).map(|at| (format!("X-{at}"), json!("v"))).collect();
    let shown = excerpt(&json!({"url": "https://a.org/", "headers": headers, "body": "pay"}), &["url"], "url");
    assert!(unfolded(&shown).contains("more names, sha256:") && shown.contains("pay"), "{shown}");
}

#[test]
fn the_first_and_the_last_items_are_shown_when_there_are_too_many() {
    let items: Vec<_> = (0..500).map(|at| format!("item {at} {}", "x".repeat(50))).collect();
    let shown = excerpt(&json!({"messages": items, "system": "s".repeat(9000)}), &[], "messages");
    assert!(shown.contains("item 0 ") && shown.contains("item 499 "), "{shown}");
    assert!(unfolded(&shown).contains("more of them, sha256:") && shown.contains("system:"), "{shown}");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z \n:#'\"é…\u{1}\u{202e}]{0,60}",
        (1..6000_usize, prop::sample::select(vec!["a", "\n", "\"", "é", "\u{1}", "a: b\n", "- "]))
            .prop_map(|(times, text)| text.repeat(times)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![text().prop_map(Value::from), any::<i32>().prop_map(Value::from), Just(Value::Null)];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..60).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..12).prop_map(|list| Value::Object(list.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_field_is_shown_beside_long_fields(values in prop::collection::vec(value(), 1..10), short in "[a-z]{1,60}") {
        let mut fields: serde_json::Map<_, _> =
            values.into_iter().enumerate().map(|(at, value)| (format!("field{at}"), value)).collect();
        fields.insert("short".to_owned(), json!(short));
        let shown = excerpt(&Value::Object(fields.clone()), &[], "field0");
        prop_assert!(shown.contains(&format!("short: {short}")) || shown.contains(&format!("short: \"{short}\"")), "{shown}");
        for name in fields.keys() {
            prop_assert!(shown.contains(&format!("\n{name}:")), "{name} is not in {shown}");
        }
        let Ok(fields) = Fields::of(&fields, &[], "field0") else { panic!("fields") };
        prop_assert!(shown.contains("sha256:") || fields.to_yaml().len() <= SHOWN, "nothing is cut in silence: {shown}");
    }
}
