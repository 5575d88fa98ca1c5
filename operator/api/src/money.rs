//! Money: amounts without a currency.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The parts of one unit.
pub(crate) const MICRO: i128 = 1_000_000;

/// An amount in millionths of a unit of a currency that is not named. JSON has it as a decimal text, such as `0.0042`.
/// A sum that is too large is the largest amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(i64);

/// The largest amount that its text can hold, in millionths.
const MAX: i64 = 999_999_999_999_999;

impl Money {
    /// Returns an amount of millionths, limited to the range from zero to the maximum.
    #[must_use]
    pub fn of_micros(micros: i64) -> Self {
        Self(micros.clamp(0, MAX))
    }

    /// Returns the amount in millionths.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Returns the amount in units, rounded to a float.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
    pub fn units(self) -> f64 {
        self.0 as f64 / MICRO as f64
    }

    /// Reads a decimal text with at most nine digits before the point and six after it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').map_or((text, None), |(whole, part)| (whole, Some(part)));
        let are_digits = |digits: &str, most| {
            (1..=most).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
        };
        if !are_digits(whole, 9) || part.is_some_and(|part| !are_digits(part, 6)) {
            return None;
        }
        format!("{whole}{:0<6}", part.unwrap_or_default()).parse().ok().map(Self)
    }
}

impl std::ops::AddAssign for Money {
    fn add_assign(&mut self, more: Self) {
        *self = Self::of_micros(self.0.saturating_add(more.0));
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (i128::from(self.0) / MICRO, i128::from(self.0) % MICRO);
        let part = format!("{part:06}");
        let part = part.trim_end_matches('0');
        if part.is_empty() { write!(f, "{whole}") } else { write!(f, "{whole}.{part}") }
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not an amount: write it as in \"3.00\""))
    }
}

impl JsonSchema for Money {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Money".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 16, "pattern": "^[0-9]{1,9}([.][0-9]{1,6})?$"})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_amount_is_read_and_written_as_a_decimal_text() {
        for (text, micros, written) in [
            ("3.00", 3_000_000, "3"),
            ("0.000001", 1, "0.000001"),
            ("12.5", 12_500_000, "12.5"),
            ("999999999.999999", 999_999_999_999_999, "999999999.999999"),
            ("007", 7_000_000, "7"),
        ] {
            let money = Money::parse(text).unwrap();
            assert_eq!((money.micros(), money.to_string().as_str()), (micros, written), "{text}");
            assert_eq!(Money::parse(written), Some(money));
        }
        let most = Money::of_micros(i64::MAX);
        assert_eq!(Money::parse(&most.to_string()), Some(most), "what is written can be read");
        for text in ["", ".5", "5.", "-1", "+1", "1e3", "1,5", "0.0000001", "1234567890", "٣", " 1", "1 "] {
            assert_eq!(Money::parse(text), None, "{text}");
        }
    }
}
