//! Tests of arguments of calls: refused ones, and that the canonical text is stable.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn problem(text: &str) -> String {
    Arguments::parse(text).unwrap_err()
}

#[test]
fn a_blank_text_means_no_arguments() {
    for blank in ["", " ", "\r\n\t ", "{}", " { } "] {
        assert_eq!(Arguments::parse(blank).unwrap().text(), "{}", "{blank:?}");
    }
}

#[test]
fn the_text_is_canonical_and_the_value_is_that_of_the_text() {
    let arguments = Arguments::parse(r#" {"b": 2.0, "a": ["\u00e9", -0.0, 1e3, 0.1, null, true]} "#).unwrap();
    assert_eq!(arguments.text(), r#"{"a":["é",0,1000,0.1,null,true],"b":2}"#);
    assert_eq!(arguments.value().get("b"), Some(&json!(2)));
    assert_eq!(arguments.digest(), Digest::of(&json!({"a": ["é", 0, 1000, 0.1, null, true], "b": 2})).unwrap());
}

#[test]
fn texts_and_keys_are_those_that_a_template_would_render() {
    let arguments =
        Arguments::parse(r#"{"t\u0085o": "mal\u007flory", "n": ["\u212aILL", "e\u0301", "a\tb\r\n"]}"#).unwrap();
    assert_eq!(arguments.text(), "{\"n\":[\"KILL\",\"é\",\"a\\tb\\r\\n\"],\"to\":\"mallory\"}");
    assert_eq!(arguments.value().get("to"), Some(&json!("mallory")));
    let edited = json!({"to": "mal\u{7f}lory"}).as_object().unwrap().clone();
    assert_eq!(Arguments::of(edited).unwrap().text(), r#"{"to":"mallory"}"#);
    assert_eq!(problem(r#"{"to": 1, "t\u007fo": 2}"#), "/to: the key is there twice; send it once");
}

#[test]
fn each_refusal_names_the_place_and_the_problem() {
    for (text, expected) in [
        ("null", "the arguments must be a JSON object and not null"),
        ("[1]", "the arguments must be a JSON object and not a list"),
        ("\"{}\"", "the arguments must be a JSON object and not a text"),
        ("{} {}", "the arguments: there is text after the JSON; leave it out"),
        ("{\"a\": 1}x", "the arguments: there is text after the JSON; leave it out"),
        (r#"{"a": 1, "a": 1}"#, "/a: the key is there twice; send it once"),
        (r#"{"a": 1, "\u0061": 2}"#, "/a: the key is there twice; send it once"),
        (r#"{"x": [{}, {"k": {"d": 1, "d": 2}}]}"#, "/x/1/k/d: the key is there twice; send it once"),
        (r#"{"n": 9007199254740993}"#, "/n: 9007199254740993 is beyond ±2^53"),
        (r#"{"n": -9007199254740993}"#, "/n: -9007199254740993 is beyond ±2^53"),
        (r#"{"n": 9007199254740993.0}"#, "/n: 9007199254740993.0 is beyond ±2^53"),
        (r#"{"n": 100000000000000000000000}"#, "/n: 100000000000000000000000 is beyond ±2^53"),
        (r#"{"customer": {"id": 1234567890123456789}}"#, "/customer/id: 1234567890123456789 is beyond ±2^53"),
        (r#"{"n": [0, 1e400]}"#, "/n/1: 1e400 is beyond ±2^53"),
        (r#"{"n": [0, 1e-400]}"#, "/n/1: 1e-400 is too close to 0"),
        (r#"{"n": NaN}"#, "/n: invalid JSON: expected a value at character 7"),
        (r#"{"n": 01}"#, "/n: invalid JSON: expected no digit after a leading 0"),
        (r#"{"t": "\ud800"}"#, "/t: invalid JSON: a text has an escape that stands for no character"),
        (r#"{"t": "\udc00\ud800"}"#, "/t: invalid JSON: "),
        (r#"{"\ud800": 1}"#, "the arguments: invalid JSON: "),
        ("{\"t\": \"\u{1}\"}", "/t: invalid JSON: expected an escape such as \\n in place of a control character"),
        (r#"{"a": 1"#, "the arguments: invalid JSON: the text ends too early"),
        (r#"{"a": 1,}"#, "the arguments: invalid JSON: expected a key in quotes"),
        ("{a: 1}", "the arguments: invalid JSON: expected a key in quotes"),
        ("I will call it", "the arguments: invalid JSON: expected a value"),
    ] {
        let found = problem(text);
        assert!(found.starts_with(expected), "{text}: {found}");
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn a_number_that_a_double_holds_only_as_0_is_refused() {
    for text in [
        r#"{"n": 1e-400}"#,
        r#"{"n": -1e-400}"#,
        r#"{"t": "a \"text\" of 1e-5 \\", "n": [0, {"m": 1E-400}]}"#,
        r#"{"n": 0.0000000001e-390}"#,
        r#"{"n":1e-99999999999999999999}"#,
        &format!(r#"{{"n":0.{}1}}"#, "0".repeat(400)),
        // A double holds these numbers with fewer digits only.
        r#"{"n": 5e-324}"#,
        r#"{"n": [2.2e-308]}"#,
    ] {
        let found = problem(text);
        assert!(found.starts_with("/n"), "{found}");
        assert!(found.ends_with(" is too close to 0, and JSON readers take it for 0; write it as a text"), "{found}");
        assert!(found.chars().count() < 200, "{found}");
    }
    // Numbers that are 0 or that a double holds with all their digits are accepted, and so are texts.
    for (text, expected) in [
        (r#"{"n": [0, -0, 0.0, 0e5, 0E-400]}"#, r#"{"n":[0,0,0,0,0]}"#),
        (r#"{"n": [2.3e-308, 1e-300]}"#, r#"{"n":[2.3e-308,1e-300]}"#),
        (r#"{"1e-400": "\\\"1e-400", "b": "1e-400"}"#, r#"{"1e-400":"\\\"1e-400","b":"1e-400"}"#),
    ] {
        assert_eq!(Arguments::parse(text).unwrap().text(), expected);
    }
}

#[test]
fn an_integer_of_2_to_the_53_is_held_exactly() {
    let text = r#"{"high":9007199254740992,"low":-9007199254740992}"#;
    assert_eq!(Arguments::parse(text).unwrap().text(), text);
}

#[test]
fn nesting_ends_at_64_levels() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    assert!(Arguments::parse(&nested(64)).is_ok());
    assert!(problem(&nested(65)).ends_with("nested more than 64 levels deep"), "{}", problem(&nested(65)));
    assert!(problem(&nested(20_000)).ends_with("nested more than 64 levels deep"));
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    assert!(Arguments::parse(&objects(64)).is_ok());
    assert!(problem(&objects(65)).ends_with("nested more than 64 levels deep"));
}

#[test]
fn arguments_end_at_64_kibibytes_as_written_and_as_canonical_text() {
    let of_size = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    assert!(Arguments::parse(&of_size(MAX_ARGUMENTS_BYTES)).is_ok());
    assert_eq!(problem(&of_size(MAX_ARGUMENTS_BYTES + 1)), "the arguments have 65537 bytes; the maximum is 65536");
    let grows = format!("{{\"a\":[{}1]}}", "1e15,".repeat(5000));
    assert!(problem(&grows).ends_with("bytes; the maximum is 65536"), "{}", problem(&grows));
}

#[test]
fn an_error_shows_at_most_80_characters_of_the_text_and_nothing_hidden() {
    let key = "k\u{202e}\u{1b}".repeat(2000);
    let text = format!("{{{0}: 1, {0}: 2}}", json!(key));
    let found = problem(&text);
    assert!(found.chars().count() < 140, "{found}");
    assert!(!found.contains(['\u{202e}', '\u{1b}']), "{found}");
    assert!(found.ends_with("the key is there twice; send it once"), "{found}");
}

#[test]
fn edited_arguments_obey_the_same_rules() {
    let edited = |value: Value| Arguments::of(value.as_object().unwrap().clone());
    assert_eq!(edited(json!({"b": 1, "a": 2.0})).unwrap().text(), r#"{"a":2,"b":1}"#);
    for number in [json!(1e20), json!(u64::MAX), json!(5e-324)] {
        let why = edited(json!({"customer": {"id": number}})).unwrap_err();
        assert!(why.starts_with("/customer/id: the number is ") && why.ends_with("; write it as a text"), "{why}");
    }
    assert!(edited(json!({"t": "x".repeat(MAX_ARGUMENTS_BYTES)})).is_err());
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53)..=(1_i64 << 53)).prop_map(Value::from),
        (-1e15..1e15).prop_map(Value::from),
        prop::num::f64::ANY.prop_filter_map("held", |n| (n == 0.0 || (f64::MIN_POSITIVE..9e15).contains(&n.abs()))
            .then(|| Value::from(n))),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonical_text_is_parsed_to_itself(value in value()) {
        let value = Map::from_iter([("a".to_owned(), signoff_expr::text::clean_json(value))]);
        let text = String::from_utf8(canonical(&value).unwrap()).unwrap();
        let parsed = Arguments::parse(&text).unwrap();
        prop_assert_eq!(parsed.text(), &text);
        prop_assert_eq!(&Arguments::of(value).unwrap(), &parsed);
        prop_assert_eq!(&Arguments::of(parsed.value().clone()).unwrap(), &parsed);
    }

    #[test]
    fn two_different_integers_never_share_a_digest(one in "-?[1-9][0-9]{0,40}", two in "-?[1-9][0-9]{0,40}", near in -3..3_i64) {
        let digest = |integer: &str| Arguments::parse(&format!(r#"{{"id": {integer}}}"#)).map(|read| read.digest());
        // Neighboring numbers at the limit of exact doubles are the most likely to be confused.
        let edge = ((1_i64 << 53) + near).to_string();
        for (one, two) in [(&one, &two), (&edge, &((1_i64 << 53) + near + 1).to_string()), (&one, &format!("{one}0"))] {
            match (digest(one), digest(two)) {
                (Ok(first), Ok(second)) => prop_assert_eq!(first == second, one == two, "{} and {}", one, two),
                (Err(why), _) | (_, Err(why)) => prop_assert!(why.starts_with("/id: "), "{}", why),
            }
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Arguments::parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_text_like_json_makes_the_parser_panic(text in r#"[\[\]{}":,\\u0-9dDeE. a-f-]{0,60}"#) {
        if let Ok(parsed) = Arguments::parse(&text) {
            prop_assert_eq!(Arguments::parse(parsed.text()).unwrap(), parsed);
        }
    }
}
