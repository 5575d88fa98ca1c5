//! The prices of a model, and the cost of its tokens.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{
    journal::Usage,
    money::{MICRO, Money},
};

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
        let cost = |tokens: i64, price: Money| i128::from(tokens.max(0)) * i128::from(price.micros());
        let sum = cost(usage.input_tokens.max(0) - cached, self.input_per_million)
            + cost(cached, self.cached_input_per_million.unwrap_or(self.input_per_million))
            + cost(usage.output_tokens, self.output_per_million);
        Money::of_micros(i64::try_from((sum + MICRO - 1) / MICRO).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_cost_of_tokens_is_rounded_up() {
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
        assert_eq!(Money::parse(&sum.to_string()), Some(sum), "what is written can be read");
    }
}
