//! The claims of a JSON Web Token, unverified: the second of its three parts.
//!
//! Callers have verified the token before, or use the claims only to shorten a session.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use signoff_api::Moment;

/// The claims of a token.
pub type Claims = Map<String, Value>;

/// Returns the claims of a token, or `None` if it is not a JSON Web Token.
#[must_use]
pub fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

/// Whether a claim has to be fetched: `_claim_names` names a source of it, and the token itself has no such claim.
#[must_use]
pub fn is_elsewhere(claims: &Claims, name: &str) -> bool {
    let names = claims.get("_claim_names").and_then(Value::as_object);
    !claims.contains_key(name) && names.is_some_and(|names| names.contains_key(name))
}

/// Returns the instant of a claim in seconds since 1970.
#[must_use]
pub fn instant(claims: &Claims, name: &str) -> Option<Moment> {
    let value = claims.get(name)?;
    #[allow(clippy::cast_possible_truncation, reason = "seconds of a claim; what is too large is no instant")]
    let seconds = value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64))?;
    jiff::Timestamp::from_second(seconds).ok().map(Moment::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn the_expiry_of_a_json_web_token_is_read_also_as_a_fraction() {
        let exp = |text: &str| claims(&token(text)).and_then(|claims| instant(&claims, "exp")).map(|at| at.to_string());
        assert_eq!(exp(r#"{"exp": 1700000000}"#).unwrap(), "2023-11-14T22:13:20Z");
        assert_eq!(exp(r#"{"exp": 1700000000.7}"#).unwrap(), "2023-11-14T22:13:20Z");
        for none in [r"{}", r#"{"exp": "soon"}"#, r#"{"exp": 1e300}"#, r"[]"] {
            assert_eq!(exp(none), None, "{none}");
        }
    }

    #[test]
    fn a_claim_is_elsewhere_if_only_its_source_is_named() {
        let elsewhere = |text: &str| is_elsewhere(&claims(&token(text)).unwrap(), "groups");
        assert!(elsewhere(
            r#"{"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x"}}}"#
        ));
        for here in [
            r#"{"_claim_names": {"groups": "src1"}, "groups": ["a"]}"#,
            r#"{"_claim_names": {"roles": "src1"}}"#,
            r#"{"_claim_names": "groups"}"#,
            r"{}",
        ] {
            assert!(!elsewhere(here), "{here}");
        }
    }

    #[test]
    fn other_tokens_have_no_claims() {
        for other in ["opaque", "a.b", "a.b.c", "a.e30.c.d", "a.!!.c", ""] {
            assert!(claims(other).is_none(), "{other}");
        }
    }
}
