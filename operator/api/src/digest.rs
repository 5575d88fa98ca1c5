//! Digests: SHA-256 over canonical JSON (RFC 8785), written `sha256:<64 hex>`.
//!
//! **Invariant:** one canonical form for the whole project; no other code hashes the bytes of an object.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The largest integer that every JSON reader reads alike, 2⁵³.
const EXACT: u64 = 1 << 53;

/// `sha256:` and 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Digest(#[schemars(length(max = 71), pattern("^sha256:[0-9a-f]{64}$"))] String);

/// The error of a value that has no digest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A number that JSON readers round in different ways.
    #[error("{0} is beyond ±2^53, where JSON readers round differently: write it as a string")]
    Inexact(String),
    /// The value cannot be written as JSON at all.
    #[error("not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
}

impl Digest {
    /// Returns the digest of raw bytes, as Blobs have it.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(format!("sha256:{}", hex::encode(Sha256::digest(bytes))))
    }

    /// Returns the digest of the canonical JSON of a value.
    ///
    /// # Errors
    /// Integers beyond 2⁵³, and values that are not JSON.
    pub fn of<T: Serialize>(value: &T) -> Result<Self, Error> {
        Ok(Self::of_bytes(&canonical(value)?))
    }

    /// Returns the text, `sha256:…`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first `digits` hex digits, as object names contain them.
    #[must_use]
    pub fn short(&self, digits: usize) -> &str {
        let hex = self.0.strip_prefix("sha256:").unwrap_or(&self.0);
        hex.get(..digits).unwrap_or(hex)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the canonical JSON (RFC 8785) of a value.
///
/// # Errors
/// Integers beyond 2⁵³, and values that are not JSON.
pub fn canonical<T: Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    let value = serde_json::to_value(value)?;
    exact(&value)?;
    Ok(serde_json_canonicalizer::to_vec(&value)?)
}

fn exact(value: &Value) -> Result<(), Error> {
    match value {
        Value::Number(number) => {
            let fits = match (number.as_i64(), number.as_u64()) {
                (Some(signed), _) => signed.unsigned_abs() <= EXACT,
                (None, Some(unsigned)) => unsigned <= EXACT,
                (None, None) => true,
            };
            if fits { Ok(()) } else { Err(Error::Inexact(number.to_string())) }
        }
        Value::Array(items) => items.iter().try_for_each(exact),
        Value::Object(fields) => fields.values().try_for_each(exact),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let one: Value = serde_json::from_str(r#"{"b": 1, "a": [2.0, "é"]}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"a": [2, "é"], "b": 1}"#).unwrap();
        assert_eq!(Digest::of(&one).unwrap(), Digest::of(&two).unwrap());
    }

    #[test]
    fn an_integer_that_readers_round_differently_has_no_digest() {
        assert!(Digest::of(&json!({"n": 9_007_199_254_740_993_u64})).is_err());
        assert!(Digest::of(&json!({"n": -9_007_199_254_740_993_i64})).is_err());
        assert!(Digest::of(&json!({"n": 9_007_199_254_740_992_u64})).is_ok());
    }

    #[test]
    fn a_digest_is_sha256_and_64_hex_digits() {
        let digest = Digest::of_bytes(b"");
        assert_eq!(digest.as_str(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.short(10), "e3b0c44298");
    }
}
