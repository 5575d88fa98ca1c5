//! The search for JSON in an answer of a model that may hold other text too.
//!
//! Nothing is evaluated or repaired: a text either holds well-formed JSON or it does not. The search is bounded for
//! every text. A number that no double holds does not make the rest unreadable: see [`number`](super::number).

mod reader;

use serde_json::Value;

use super::{budget, text};

pub use reader::{Problem, read, read_exact};

/// The maximum size of the searched beginning of a text, in bytes.
const MAX_SEARCHED_BYTES: usize = 1 << 20;
/// The maximum number of positions that are tried as the start of an object or array.
const MAX_ATTEMPTS: usize = 64;
/// The maximum number of bytes read by all attempts together: a text of opening brackets would be read once for each.
const MAX_READ_BYTES: usize = 4 << 20;

/// Returns the JSON in `text`: the whole text if it is JSON, else the first object or array in a fenced
/// ```` ```json ```` block, else the first object or array anywhere in the text.
///
/// Returns `None` if no JSON is in the first MiB, among the first 64 possible starts or after 4 MiB were read, or if
/// the [`budget`] is stopped. Nesting is limited to 128. Texts and keys are cleaned, so that conditions and schemas
/// read the same text as rendered templates.
pub fn extract(text: &str) -> Option<Value> {
    extract_where(text, |_| true)
}

/// Like [`extract`], but only returns JSON that `accept` accepts: a router's answer is the first object with a `route`,
/// not the `[1]` of a footnote before it.
pub fn extract_where(text: &str, accept: impl Fn(&Value) -> bool) -> Option<Value> {
    let text = &text[..floor_char_boundary(text, MAX_SEARCHED_BYTES)];
    budget::charge(text.len()).ok()?;
    if let Ok(whole) = read(text.trim()).map(text::clean_json)
        && accept(&whole)
    {
        return Some(whole);
    }
    let mut attempts = Attempts { places: MAX_ATTEMPTS, bytes: MAX_READ_BYTES };
    fenced_blocks(text)
        .find_map(|block| find_container(block, &mut attempts, &accept))
        .or_else(|| find_container(text, &mut attempts, &accept))
}

/// Returns the largest index up to `limit` that is a character boundary.
fn floor_char_boundary(text: &str, limit: usize) -> usize {
    (0..=limit.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

/// Returns the contents of the fenced blocks that are marked as JSON or have no mark.
fn fenced_blocks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once("```")?;
            let (tag, body) = after.split_once('\n')?;
            let (block, next) = body.split_once("```").unwrap_or((body, ""));
            rest = next;
            let tag = tag.trim();
            if tag.is_empty() || tag.eq_ignore_ascii_case("json") {
                return Some(block);
            }
        }
    })
}

/// Returns the first object or array in `text` that parses and is accepted, or `None` if `attempts` or the [`budget`]
/// is used up before.
fn find_container(text: &str, attempts: &mut Attempts, accept: &impl Fn(&Value) -> bool) -> Option<Value> {
    let mut from = 0;
    while let Some(offset) = text.get(from..)?.find(['{', '[']) {
        attempts.places = attempts.places.checked_sub(1)?;
        let start = from + offset;
        let (container, bytes) = match reader::read_first(&text[start..]) {
            Ok((value, bytes)) => (Some(text::clean_json(value)), bytes),
            Err(bytes) => (None, bytes),
        };
        budget::charge(bytes).ok()?;
        from = match container {
            Some(value) if accept(&value) => return Some(value),
            // After valid JSON that is not accepted, the search continues behind the JSON and not inside of it.
            Some(_) => start + bytes.max(1),
            _ => start + 1,
        };
        attempts.bytes = attempts.bytes.checked_sub(bytes)?;
    }
    None
}

/// The remaining budget of the search.
struct Attempts {
    places: usize,
    bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_whole_text_as_json_wins() {
        assert_eq!(extract(" {\"route\": \"a\"}\n"), Some(json!({"route": "a"})));
        assert_eq!(extract("[1, 2]"), Some(json!([1, 2])));
    }

    #[test]
    fn a_fenced_block_wins_over_an_earlier_object() {
        let text = "Not {\"route\": \"wrong\"} but\n```JSON\n{\"route\": \"right\"}\n```\ndone";
        assert_eq!(extract(text), Some(json!({"route": "right"})));
    }

    #[test]
    fn a_fence_of_another_language_is_not_json() {
        let text = "```yaml\n{\"a\": 1}\n```\n```json\n{\"b\": 2}\n```";
        assert_eq!(extract(text), Some(json!({"b": 2})));
    }

    #[test]
    fn the_first_balanced_object_is_found_despite_braces_in_strings() {
        let text = r#"I choose {this}: {"why": "a } in \" a string", "n": {"m": []}} and {"x": 1}"#;
        assert_eq!(extract(text), Some(json!({"why": "a } in \" a string", "n": {"m": []}})));
    }

    #[test]
    fn a_footnote_is_skipped_if_an_object_is_searched() {
        let text = r#"See [1]. Answer: {"route": "billing"}"#;
        assert_eq!(extract(text), Some(json!([1])));
        assert_eq!(extract_where(text, |v| v.get("route").is_some()), Some(json!({"route": "billing"})));
    }

    #[test]
    fn texts_and_keys_are_cleaned_before_anything_reads_them() {
        let text = r#"so {"t\u007fo": ["mal\u0000lory", "e\u0301"]} it is"#;
        assert_eq!(extract_where(text, |value| value.get("to").is_some()), Some(json!({"to": ["mallory", "é"]})));
        assert_eq!(extract(r#""\u212aill""#), Some(json!("Kill")));
    }

    #[test]
    fn a_number_that_no_double_holds_is_found_with_the_rest_of_the_answer() {
        for number in ["1234567890123456789", "123456789012345678901234567890", "1e400", "-1e-400"] {
            for text in [
                format!(r#"{{"status": "ok", "id": {number}}}"#),
                format!(r#"so: [{{"status": "ok", "id": {number}}}]."#),
            ] {
                let found = extract(&text).unwrap_or_default();
                let object = found.get(0).unwrap_or(&found);
                assert_eq!(object.get("status"), Some(&json!("ok")), "{text}");
                assert!(crate::number::first_inexact(object).is_some_and(|(pointer, _)| pointer == "/id"), "{text}");
            }
        }
    }

    #[test]
    fn a_text_without_json_gives_none() {
        for text in ["", "approved", "{", "[[[", "{\"a\": }", "```json\n```", "```"] {
            assert_eq!(extract(text), None, "{text:?}");
        }
    }

    #[test]
    fn hostile_text_is_searched_within_bounds() {
        assert_eq!(extract(&"[".repeat(1 << 20)), None);
        assert_eq!(extract(&"{\"a\":".repeat(200_000)), None);
        assert_eq!(extract(&"```json\n".repeat(100_000)), None);
        assert_eq!(extract(&("é".repeat(1 << 20) + "{\"a\": 1}")), None);
        let before = budget::charged();
        let open = "[1,".repeat(100) + &"1,\n".repeat(300_000);
        assert_eq!(extract(&open), None);
        assert!(budget::charged() - before < 8 << 20, "{}", budget::charged() - before);
    }
}
