//! Money: amounts without a currency, and what the tokens of a model cost.

use std::fmt;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::journal::Usage;

/// The parts of one unit.
const MICRO: i128 = 1_000_000;

/// An amount in millionths of a unit of a currency that is not named. JSON has it as a decimal text, such as `0.0042`. A sum
/// that is too large is the largest amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(i64);

impl Money {
    /// Returns an amount of millionths.
    #[must_use]
    pub fn of_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the millionths.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Returns about how many units it is.
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
        self.0 = self.0.saturating_add(more.0);
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

/// The prices of a model, in any one currency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// The price of a million tokens that the model reads, such as `"3.00"`.
    pub input_per_million: Money,
    /// The price of a million tokens that the provider had in its cache. Default: `inputPerMillion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_per_million: Option<Money>,
    /// The price of a million tokens that the model writes.
    pub output_per_million: Money,
}

impl Price {
    /// Returns the cost of some tokens, rounded up to a millionth.
    #[must_use]
    pub fn of(&self, usage: Usage) -> Money {
        let cached = usage.cached_tokens.clamp(0, usage.input_tokens.max(0));
        let cost = |tokens: i64, price: Money| i128::from(tokens.max(0)) * i128::from(price.0);
        let sum = cost(usage.input_tokens.max(0) - cached, self.input_per_million)
            + cost(cached, self.cached_input_per_million.unwrap_or(self.input_per_million))
            + cost(usage.output_tokens, self.output_per_million);
        Money(i64::try_from((sum + MICRO - 1) / MICRO).unwrap_or(i64::MAX))
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
        for text in ["", ".5", "5.", "-1", "+1", "1e3", "1,5", "0.0000001", "1234567890", "٣", " 1", "1 "] {
            assert_eq!(Money::parse(text), None, "{text}");
        }
    }

    #[test]
    fn tokens_cost_what_their_price_says_rounded_up() {
        let money = |text: &str| Money::parse(text).unwrap();
        let price = Price {
            input_per_million: money("3.00"),
            cached_input_per_million: Some(money("0.30")),
            output_per_million: money("15.00"),
        };
        let usage = |input, cached, output| Usage {
            input_tokens: input,
            cached_tokens: cached,
            output_tokens: output,
            ..Usage::default()
        };
        assert_eq!(price.of(usage(1_000_000, 0, 1_000_000)), money("18"));
        assert_eq!(price.of(usage(1000, 400, 10)).to_string(), "0.00207");
        assert_eq!(price.of(usage(1, 1, 0)), Money::of_micros(1), "a third of a millionth");
        let dear = Price { cached_input_per_million: None, ..price };
        assert_eq!(dear.of(usage(1000, 400, 0)), money("0.003"));
        // Numbers that no provider means.
        assert_eq!(dear.of(usage(i64::MAX, i64::MAX, i64::MAX)), Money::of_micros(i64::MAX));
        assert_eq!(dear.of(usage(-5, 7, -1)), Money::default());
        let mut sum = Money::of_micros(i64::MAX);
        sum += money("1");
        assert_eq!(sum, Money::of_micros(i64::MAX));
    }
}
