//! Makes JSON of any depth readable: what nests too deep is replaced by null.
//!
//! It may not change anything else, and expects JSON: what comes out of other bytes is no JSON either.

/// serde_json gives up at 128.
const LIMIT: u32 = 100;

/// The same JSON, with every object or list beyond the hundredth level replaced by `null`.
#[must_use]
pub fn shallow(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for &byte in json {
        let hidden = depth > LIMIT;
        if in_string {
            (escaped, in_string) = (byte == b'\\' && !escaped, byte != b'"' || escaped);
        } else {
            match byte {
                b'"' => in_string = true,
                b'{' | b'[' => {
                    depth += 1;
                    if depth == LIMIT + 1 {
                        out.extend_from_slice(b"null");
                    }
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if !hidden && depth <= LIMIT {
            out.push(byte);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use super::*;

    #[test]
    fn json_that_is_not_deep_stays_as_it_is() {
        let text = br#"{"a": ["]}\"{[", {"b": "\\"}], "c": null}"#;
        assert_eq!(shallow(text), text);
    }

    #[test]
    fn what_nests_too_deep_becomes_null_and_the_rest_stays() {
        let text = format!(r#"[{}"]"{}, {{"after": 1}}]"#, "[".repeat(10_000), "]".repeat(10_000));
        let value: Value = serde_json::from_slice(&shallow(text.as_bytes())).unwrap();
        assert_eq!(value[1]["after"], 1);
        let mut inner = &value[0];
        while inner.is_array() {
            inner = &inner[0];
        }
        assert!(inner.is_null());
    }
}
