//! Value types that several kinds share: free-form JSON, durations and instants, each with the schema that the API
//! server enforces.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Renders a value as YAML.
#[must_use]
pub fn as_yaml(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    serde_saphyr::to_string(&value).unwrap_or_else(|_| value.to_string())
}

/// Returns the number of values in a JSON text, including nested ones, before the text is parsed, because a parsed
/// value can take a hundred times its memory.
#[must_use]
pub fn count_values(json: &str) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (1, false, false);
    for byte in json.bytes() {
        match (byte, is_text) {
            (_, true) if is_escaped => is_escaped = false,
            (b'\\', true) => is_escaped = true,
            (b'"', _) => is_text = !is_text,
            (b',' | b'[' | b'{', false) => count += 1,
            _ => {}
        }
    }
    count
}

/// Any JSON value, stored unchanged. Its schema has no type, so no CEL rule of a CRD can read it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(pub Value);

impl JsonSchema for Json {
    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-preserve-unknown-fields": true})
    }
}

/// A JSON object with any keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JsonObject(pub serde_json::Map<String, Value>);

impl JsonSchema for JsonObject {
    fn schema_name() -> Cow<'static, str> {
        "JsonObject".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

/// A duration as Kubernetes writes it: `90s`, `1h30m`, `24h`; never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub struct Span(kube::core::Duration);

impl Span {
    /// Returns the duration as the type of the standard library.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0.into()
    }
}

impl From<Duration> for Span {
    fn from(length: Duration) -> Self {
        Self(length.into())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Formats like `24h` and `1h30m`; `90s` becomes `1m30s`, `1.5s` stays.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.duration();
        let (hours, minutes) = (length.as_secs() / 3600, length.as_secs() / 60 % 60);
        let seconds = length - Duration::from_secs(hours * 3600 + minutes * 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if seconds > Duration::ZERO || (hours == 0 && minutes == 0) {
            write!(f, "{}s", seconds.as_secs_f64())?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('-') && text.len() > 1 {
            return Err(format!("`{text}` is negative: a duration is at least 0s"));
        }
        if !is_spelled_like_a_duration(text) {
            return Err(format!("`{text}` is not a duration like 30s, 5m or 24h"));
        }
        let length: kube::core::Duration =
            text.parse().map_err(|why| format!("`{text}` is not a duration like 30s, 5m or 24h: {why}"))?;
        Ok(Self(length))
    }
}

/// Whether a text has only digits, points and units, and no number of more than ten digits before its point. kube's
/// parser panics at a sign within the text and at a number that is too large.
fn is_spelled_like_a_duration(text: &str) -> bool {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'h' | 'm' | 's' | 'u' | 'µ' | 'n'))
        && (1..=64).contains(&text.len())
        && numbers.all(|number| number.split('.').next().is_none_or(|whole| whole.len() <= 10))
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 16,
            "pattern": "^([0-9]{1,7}(\\.[0-9]{1,3})?(ms|s|m|h))+$",
        })
    }
}

/// An instant, kept to the millisecond, written as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(jiff::Timestamp);

impl Moment {
    /// Returns the instant as the type of the time library.
    #[must_use]
    pub fn timestamp(self) -> jiff::Timestamp {
        self.0
    }

    /// Returns the first whole second that is not before this instant, as clients and columns print it.
    #[must_use]
    pub fn ceil_to_second(self) -> Self {
        let whole = self.floor_to_second();
        if whole >= self {
            whole
        } else {
            Self(jiff::Timestamp::from_second(whole.0.as_second() + 1).unwrap_or(self.0))
        }
    }

    /// Returns the last whole second that is not after this instant, as Kubernetes stores times of metadata.
    #[must_use]
    pub fn floor_to_second(self) -> Self {
        Self(jiff::Timestamp::from_second(self.0.as_second()).unwrap_or(self.0))
    }

    /// Returns this instant plus a duration, or the latest possible instant if the sum is out of range.
    #[must_use]
    pub fn after(self, length: Duration) -> Self {
        let end = jiff::SignedDuration::try_from(length)
            .ok()
            .and_then(|length| self.0.checked_add(length).ok())
            .unwrap_or(jiff::Timestamp::MAX);
        Self::from(end)
    }

    /// Returns this instant minus a duration, or the earliest possible instant if the difference is out of range.
    #[must_use]
    pub fn before(self, length: Duration) -> Self {
        let length = jiff::SignedDuration::try_from(length).ok();
        let begin = length.and_then(|length| self.0.checked_sub(length).ok()).unwrap_or(jiff::Timestamp::MIN);
        Self::from(begin)
    }

    /// Returns the duration from `earlier` until this instant; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::try_from(self.0.duration_since(earlier.0)).unwrap_or(Duration::ZERO)
    }
}

impl From<jiff::Timestamp> for Moment {
    fn from(at: jiff::Timestamp) -> Self {
        Self(jiff::Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        jiff::Timestamp::deserialize(from).map(Self::from)
    }
}

impl JsonSchema for Moment {
    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time", "maxLength": 40})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_text_that_only_resembles_a_duration_is_refused_without_a_panic() {
        for text in ["1h-30m", "1h+5m", "--5m", "1h-30m-review", "99999999999999999999999h", "1e400s", "soon", "", "-"]
        {
            let refused = text.parse::<Span>().unwrap_err();
            assert!(refused.contains("duration"), "{text}: {refused}");
        }
        for text in ["0s", "1.5s", "1h30m", "168h", "0.30000000000000004s"] {
            assert!(text.parse::<Span>().is_ok(), "{text}");
        }
    }
}
