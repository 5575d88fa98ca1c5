//! Tests that a body is shown as a structure only if that hides no part of it.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::Digest;

use super::{fields_of_text, structure, without_spaces};

#[test]
fn json_becomes_a_structure_with_any_white_space() {
    let body = "{\n  \"refund\": 1000000, \"to\" : [\"DE 02\", null, 1.5, true],\t\"say\": \"a \\\"b\\\" \\\\\" }";
    let expected = json!({"refund": 1_000_000, "to": ["DE 02", null, 1.5, true], "say": "a \"b\" \\"});
    assert_eq!(structure(body), Some(expected));
    let fields = fields_of_text("body", body);
    assert_eq!(fields["bodyBytes"], json!(body.len()));
    assert_eq!(fields["bodyDigest"], json!(Digest::of_bytes(body.as_bytes())));
    assert!(fields["body"].is_object());
}

#[test]
fn a_body_stays_text_when_a_structure_would_change_it() {
    for body in [
        r#"{"refund": 1, "refund": 1000000}"#,
        r#"{"amount": 9007199254740993123456789}"#,
        r#"{"amount": 1.00}"#,
        r#"{"amount": 1e3}"#,
        r#"{"\u0061mount": 1}"#,
        r#"{"a": "\/"}"#,
        r#"{"a": 1} x"#,
        r#"{"a": 1,}"#,
        "refund=1000000",
        "\"text\"",
        "420",
        "",
    ] {
        assert_eq!(structure(body), None, "{body}");
        assert_eq!(Value::Object(fields_of_text("body", body)), json!({"body": body}));
    }
}

proptest! {
    #[test]
    fn a_structure_is_the_text_but_for_white_space(body in "[{\\[][ \\n\\t\"\\\\a0:,.{}\\[\\]etrunfals-]{0,24}[}\\]]") {
        if let Some(value) = structure(&body) {
            prop_assert_eq!(serde_json::to_string(&value).unwrap(), without_spaces(&body));
        }
    }
}
