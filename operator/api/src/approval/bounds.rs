//! The limits of a decision: its size and depth, and the size of all decisions of an Approval together.
//!
//! The admission policies compute the same numbers in CEL, and use the limits from here.
//! `tests/cluster/policies/bounds.rs` compares them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{ActionKind, ApprovalRequest, Decision};
use crate::verdict::Verdict;

/// The parameter of Modify with the arguments of a call.
pub const ARGUMENTS: &str = "arguments";

/// The size of a field that is not a text, and of each item and key beside its own size.
const EACH: usize = 8;
/// The size of a chosen option of an answer.
const OPTION: usize = 72;

impl Decision {
    /// The maximum size of a decision.
    pub const MAX_SIZE: usize = 16 * 1024;
    /// The maximum size of an edit of a call whose arguments are one JSON text, if few people must agree.
    pub const MAX_EDIT_SIZE: usize = 72 * 1024;
    /// The maximum threshold of each quorum for an edit of [`Self::MAX_EDIT_SIZE`].
    pub const MAX_EDIT_THRESHOLD: i32 = 2;
    /// The maximum nesting of `parameters`, which are level 1.
    pub const MAX_LEVELS: usize = 5;
    /// The maximum size of all decisions of an Approval.
    pub const MAX_SIZE_OF_ALL: usize = 192 * 1024;
    /// The maximum size of all decisions that are not larger than [`Self::MAX_SIZE`].
    pub const MAX_SIZE_OF_SMALL: usize = 96 * 1024;
    /// The size of a decision that always fits, independent of other decisions.
    pub const ALWAYS_FITS: usize = 1024;
    /// The times that a character of arguments which are one text counts among all decisions, if JSON stores it as six
    /// bytes.
    pub const ESCAPED: usize = 6;

    /// Returns the size of the parts without a small limit, or `None` if `parameters` are nested too deep. Texts count
    /// by characters, arguments of a call as one text by bytes.
    #[must_use]
    pub fn size(&self) -> Option<usize> {
        let text = |text: &Option<String>| text.as_ref().map_or(0, |text| text.chars().count());
        let answers = self.answers.iter().flatten();
        let answers =
            answers.map(|(id, answer)| id.chars().count() + text(&answer.text) + OPTION * answer.options.len());
        let arguments = self.text_of_arguments().map_or(0, |text| text.len() - text.chars().count());
        let parameters = match &self.parameters {
            Some(parameters) => size_of_fields(&parameters.0, Self::MAX_LEVELS)?,
            None => 0,
        };
        let texts = text(&self.reason) + text(&self.response) + text(&self.guidance);
        Some(texts + answers.sum::<usize>() + arguments + parameters)
    }

    /// Returns the arguments of a call that are one JSON text.
    #[must_use]
    pub fn text_of_arguments(&self) -> Option<&str> {
        self.parameters.as_ref()?.0.get(ARGUMENTS)?.as_str()
    }

    /// Returns the size for the sum of all decisions. Escaped characters count more, so that long edits cannot fill the
    /// object.
    fn size_among_all(&self, size: usize) -> usize {
        let text = self.text_of_arguments().unwrap_or_default();
        size + (Self::ESCAPED - 1) * text.chars().filter(|c| is_escaped(*c)).count()
    }

    /// Returns the reason why a decision of a user is too large or too deep, given the decisions of others, or `None`.
    #[must_use]
    pub fn too_large(&self, request: &ApprovalRequest, others: &BTreeMap<String, Self>) -> Option<&'static str> {
        let most = match self.text_of_arguments() {
            Some(_) if self.verdict == Verdict::Modify && request.takes_long_edits() => Self::MAX_EDIT_SIZE,
            _ => Self::MAX_SIZE,
        };
        let Some(size) = self.size().filter(|size| *size <= most) else { return Some(Self::TOO_LARGE) };
        if size <= Self::ALWAYS_FITS {
            return None;
        }
        let sizes = || others.values().filter_map(|other| Some((other, other.size()?))).chain([(self, size)]);
        let all: usize = sizes().map(|(one, size)| one.size_among_all(size)).sum();
        let small: usize = sizes().map(|(_, size)| size).filter(|size| *size <= Self::MAX_SIZE).sum();
        let is_full = all > Self::MAX_SIZE_OF_ALL || (size <= Self::MAX_SIZE && small > Self::MAX_SIZE_OF_SMALL);
        is_full.then_some(Self::FULL)
    }

    /// The error of a decision that is too large or too deep.
    pub const TOO_LARGE: &str = "a decision must have at most 16 KiB, and its parameters at most five levels; of a call with quorums of at most two people, parameters.arguments can be one JSON text, with 72 KiB in all";
    /// The error of a decision that does not fit beside those of others.
    pub const FULL: &str = "spec.decisions is full: shorten the decision to at most 1 KiB";
}

impl ApprovalRequest {
    /// Whether the request asks about a call of a tool.
    #[must_use]
    pub fn is_about_call(&self) -> bool {
        self.action.as_ref().is_some_and(|action| action.kind == ActionKind::ToolCall)
    }

    /// Whether an edit of the call can be larger than other decisions.
    #[must_use]
    pub fn takes_long_edits(&self) -> bool {
        self.is_about_call() && self.quorums.iter().all(|quorum| quorum.threshold <= Decision::MAX_EDIT_THRESHOLD)
    }
}

/// Whether JSON stores a character of a text as `\u` and four digits. Go's encoder, which the API server uses, does so
/// with `<`, `>` and `&`.
fn is_escaped(c: char) -> bool {
    matches!(c, '<' | '>' | '&' | '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}')
}

/// Returns the size of a JSON value, or `None` if it is nested deeper than `levels`.
fn size_of(value: &Value, levels: usize) -> Option<usize> {
    match value {
        Value::Object(_) | Value::Array(_) if levels == 0 => None,
        Value::Object(fields) => size_of_fields(fields, levels),
        Value::Array(items) => items.iter().map(|item| Some(EACH + size_of(item, levels - 1)?)).sum(),
        Value::String(text) => Some(text.chars().count()),
        _ => Some(EACH),
    }
}

fn size_of_fields(fields: &serde_json::Map<String, Value>, levels: usize) -> Option<usize> {
    fields.iter().map(|(key, value)| Some(key.chars().count() + EACH + size_of(value, levels - 1)?)).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn decision(value: Value) -> Decision {
        serde_json::from_value(value).unwrap()
    }

    fn modify(parameters: Value) -> Decision {
        decision(json!({"verdict": "Modify", "parameters": parameters}))
    }

    /// Returns a request with quorums of these thresholds, about a call or about no subject.
    fn request(is_call: bool, thresholds: &[i32]) -> ApprovalRequest {
        let quorum = |threshold: &i32| json!({"source": "gate g", "approvers": [{"kind": "User", "name": "a"}], "threshold": threshold});
        let action = is_call.then(|| json!({"kind": "toolCall", "agent": "clerk", "tool": "refund"}));
        serde_json::from_value(json!({
            "workflow": {"name": "w", "uid": "00000000-0000-0000-0000-000000000001"},
            "gate": {"name": "g", "type": "step", "path": "g", "visit": 1}, "prompt": "?", "action": action,
            "specDigest": crate::Digest::of_bytes(b""), "guardEpoch": "e", "deadline": "2030-01-01T00:00:00Z",
            "allowedVerdicts": ["Modify"], "quorums": thresholds.iter().map(quorum).collect::<Vec<_>>(),
            "requestedBy": "dana", "timeout": {"after": "1h"}, "digest": crate::Digest::of_bytes(b""),
        }))
        .unwrap()
    }

    #[test]
    fn a_size_is_the_characters_of_texts_and_eight_for_everything_else() {
        assert_eq!(decision(json!({"verdict": "Reject", "reason": "né"})).size(), Some(2));
        assert_eq!(modify(json!({"x": [1, "ab", true]})).size(), Some(1 + 8 + 3 * 8 + 8 + 2 + 8));
        let answers = json!({"q": {"options": ["a", "b"], "text": "abc"}});
        assert_eq!(decision(json!({"verdict": "Respond", "answers": answers})).size(), Some(1 + 3 + 2 * 72));
        assert_eq!(modify(json!({"arguments": "né"})).size(), Some(9 + 8 + 3), "a text of arguments counts by bytes");
    }

    #[test]
    fn parameters_have_five_levels_with_their_own() {
        let nested =
            |levels: usize, inner: Value| (1..levels).fold(json!({"x": inner}), |inner, _| json!({"x": inner}));
        assert!(modify(nested(5, json!(1))).size().is_some());
        assert!(modify(nested(4, json!([]))).size().is_some());
        assert_eq!(modify(nested(6, json!(1))).size(), None);
        assert_eq!(modify(nested(5, json!([]))).size(), None, "an empty list is a level too");
    }

    #[test]
    fn only_the_text_of_a_call_that_few_people_decide_can_be_longer() {
        let none = BTreeMap::new();
        let text = |bytes: usize| modify(json!({"arguments": "x".repeat(bytes - 17)}));
        let object = |bytes: usize| modify(json!({"arguments": {"x": "x".repeat(bytes - 26)}}));
        let is_refused = |decision: &Decision, request: &ApprovalRequest| decision.too_large(request, &none).is_some();
        for (is_call, thresholds, most) in [
            (true, &[1][..], Decision::MAX_EDIT_SIZE),
            (true, &[2, 2], Decision::MAX_EDIT_SIZE),
            (true, &[1, 3], Decision::MAX_SIZE),
            (false, &[1], Decision::MAX_SIZE),
        ] {
            let request = request(is_call, thresholds);
            assert!(
                !is_refused(&text(most), &request) && is_refused(&text(most + 1), &request),
                "{is_call} {thresholds:?}"
            );
            assert!(
                !is_refused(&object(Decision::MAX_SIZE), &request)
                    && is_refused(&object(Decision::MAX_SIZE + 1), &request)
            );
        }
        let reject =
            decision(json!({"verdict": "Reject", "reason": "no", "parameters": {"arguments": "x".repeat(20_000)}}));
        assert!(is_refused(&reject, &request(true, &[1])));
    }

    #[test]
    fn a_small_decision_fits_whatever_others_sent() {
        let request = request(true, &[2]);
        let text = |text: String| modify(json!({"arguments": text}));
        let many = |one: &Decision, count: usize| {
            (0..count).map(|n| (format!("u{n}"), one.clone())).collect::<BTreeMap<_, _>>()
        };
        let edit = text("x".repeat(Decision::MAX_EDIT_SIZE - 17));
        assert_eq!(edit.too_large(&request, &many(&edit, 1)), None);
        assert_eq!(edit.too_large(&request, &many(&edit, 2)), Some(Decision::FULL));
        let small = decision(json!({"verdict": "Reject", "reason": "x".repeat(1024)}));
        assert_eq!(small.too_large(&request, &many(&edit, 9)), None);
        // Angle brackets are stored as six bytes.
        let html = text("<".repeat(30_000));
        assert_eq!(html.too_large(&request, &BTreeMap::new()), None);
        assert_eq!(html.too_large(&request, &many(&html, 1)), Some(Decision::FULL));
        let list = modify(json!({"x": "x".repeat(16_000)}));
        assert_eq!(
            (list.too_large(&request, &many(&list, 5)), list.too_large(&request, &many(&list, 6))),
            (None, Some(Decision::FULL))
        );
        assert_eq!(edit.too_large(&request, &many(&list, 6)), None, "96 KiB of small decisions and one edit");
    }
}
