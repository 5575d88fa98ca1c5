//! `multipleOf` and `uniqueItems`, evaluated in a time that is bounded by the size of the value.
//!
//! The crate `jsonschema` compares items of equal hash with one another, and divides some numbers as fractions of any
//! length, without a bound by the size of the value. **Invariant:** the results are those of JSON Schema.

use jsonschema::{Keyword, ValidationError, paths::Location};
use serde_json::{Map, Number, Value};

type Compiled<'a> = Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>>;

/// Compiles `multipleOf`.
pub(super) fn compile_multiple_of<'a>(_: &'a Map<String, Value>, divisor: &'a Value, _: Location) -> Compiled<'a> {
    match divisor.as_number().and_then(Decimal::of) {
        Some(divisor) if divisor.digits > 0 => Ok(Box::new(MultipleOf(divisor))),
        _ => Err(ValidationError::custom("multipleOf is a number above 0")),
    }
}

/// Compiles `uniqueItems`.
pub(super) fn compile_unique_items<'a>(_: &'a Map<String, Value>, wanted: &'a Value, _: Location) -> Compiled<'a> {
    Ok(Box::new(UniqueItems { wanted: *wanted == Value::Bool(true) }))
}

struct MultipleOf(Decimal);

impl<'i> Keyword<'i> for MultipleOf {
    fn is_valid(&self, value: &'i Value) -> bool {
        let Value::Number(number) = value else { return true };
        Decimal::of(number).is_some_and(|number| number.is_multiple_of(self.0))
    }

    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(value) {
            return Ok(());
        }
        Err(ValidationError::custom(format!("{value} is not a multiple of {}e{}", self.0.digits, self.0.exponent)))
    }
}

/// The absolute value of a number: `digits` times ten to the power of `exponent`, without rounding.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u64,
    exponent: i32,
}

impl Decimal {
    /// Parses a number by its shortest decimal form, or returns `None` if it has none.
    fn of(number: &Number) -> Option<Self> {
        let whole = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
        if let Some(digits) = whole {
            return Some(Self { digits, exponent: 0 });
        }
        let text = format!("{:e}", number.as_f64()?.abs());
        let (mantissa, exponent) = text.split_once('e')?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let places = i32::try_from(fraction.len()).ok()?;
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { digits, exponent: exponent.parse::<i32>().ok()?.checked_sub(places)? })
    }

    fn is_multiple_of(self, divisor: Self) -> bool {
        let shift = i64::from(self.exponent) - i64::from(divisor.exponent);
        let power = u32::try_from(shift.unsigned_abs()).unwrap_or(u32::MAX);
        if self.digits == 0 {
            true
        } else if shift >= 0 {
            let modulus = u128::from(divisor.digits);
            (u128::from(self.digits) * power_of_ten(power, modulus)).is_multiple_of(modulus)
        } else {
            // A divisor of more than 64 bits is larger than the digits, which are not 0.
            let scaled = 10_u64.checked_pow(power).and_then(|scale| scale.checked_mul(divisor.digits));
            scaled.is_some_and(|divisor| self.digits.is_multiple_of(divisor))
        }
    }
}

/// Returns ten to the power of `exponent`, modulo a number of at most 64 bits.
fn power_of_ten(mut exponent: u32, modulus: u128) -> u128 {
    let (mut power, mut square) = (1 % modulus, 10 % modulus);
    while exponent > 0 {
        if exponent % 2 == 1 {
            power = power * square % modulus;
        }
        square = square * square % modulus;
        exponent /= 2;
    }
    power
}

struct UniqueItems {
    wanted: bool,
}

impl<'i> Keyword<'i> for UniqueItems {
    fn is_valid(&self, value: &'i Value) -> bool {
        let (true, Value::Array(items)) = (self.wanted, value) else { return true };
        let mut keys: Vec<String> = items.iter().map(key).collect();
        keys.sort_unstable();
        keys.windows(2).all(|pair| !matches!(pair, [one, other] if one == other))
    }

    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(value) { Ok(()) } else { Err(ValidationError::custom("two items of the list are the same")) }
    }
}

/// Returns a text that is equal for equal values only: 1 and 1.0 are equal, and the order of fields does not matter.
fn key(value: &Value) -> String {
    let mut key = String::new();
    write_key(value, &mut key);
    key
}

fn write_key(value: &Value, key: &mut String) {
    match value {
        Value::Null => key.push('n'),
        Value::Bool(true) => key.push('t'),
        Value::Bool(false) => key.push('f'),
        Value::Number(number) => write_number(number, key),
        Value::String(text) => write_text(text, key),
        Value::Array(items) => {
            key.push('[');
            items.iter().for_each(|item| write_key(item, key));
            key.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            key.push('{');
            for (name, value) in fields {
                write_text(name, key);
                write_key(value, key);
            }
            key.push('}');
        }
    }
}

/// Writes a text with its length first, so that the end of one text cannot be read as another one.
fn write_text(text: &str, key: &mut String) {
    key.push_str(&text.len().to_string());
    key.push(':');
    key.push_str(text);
}

fn write_number(number: &Number, key: &mut String) {
    /// A bound above every integer that is not parsed as a floating point number.
    const BEYOND_INTEGERS: f64 = 2e19;
    let text = match number.as_f64().filter(|_| number.is_f64()) {
        Some(0.0) => "0".to_owned(),
        Some(float) if float.fract() == 0.0 && float.abs() < BEYOND_INTEGERS => format!("{float:.0}"),
        Some(float) => format!("{float:e}"),
        None => number.to_string(),
    };
    key.push('=');
    key.push_str(&text);
    key.push(',');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{from_str, json};

    use super::*;

    fn multiple(value: &str, divisor: &str) -> bool {
        let [value, divisor] = [value, divisor].map(|text| Decimal::of(&from_str(text).unwrap()).unwrap());
        value.is_multiple_of(divisor)
    }

    #[test]
    fn multiples_are_computed_on_decimal_numbers() {
        for (value, divisor) in [
            ("19.99", "0.01"),
            ("1070468.14", "0.01"),
            ("-4.02", "0.01"),
            ("0.0075", "0.0001"),
            ("5.35", "2.675"),
            ("7", "0.5"),
            ("7.0", "7"),
            ("1500", "1e2"),
            ("0", "1e300"),
            ("-0.0", "3"),
            ("1e300", "1e-293"),
            ("1e300", "0.01"),
            ("18446744073709551615", "5"),
            ("-9223372036854775808", "2"),
        ] {
            assert!(multiple(value, divisor), "{value} of {divisor}");
        }
        for (value, divisor) in [
            ("19.995", "0.01"),
            ("1070468.145", "0.01"),
            ("505661.89999999997", "0.1"),
            ("0.00751", "0.0001"),
            ("1e300", "3"),
            ("1e-293", "1e300"),
            ("5e-324", "0.01"),
            ("18446744073709551614", "5"),
            ("1550", "1e2"),
        ] {
            assert!(!multiple(value, divisor), "{value} of {divisor}");
        }
    }

    #[test]
    fn items_are_the_same_as_in_json_schema() {
        let unique = |items: &Value| UniqueItems { wanted: true }.is_valid(items);
        for items in [
            json!([]),
            json!([1, 2, "1", true, null, [1], {"a": 1}]),
            json!([[], [[]], [[], []], {}, "", 0, false]),
            json!([{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1}]),
            json!(["a", "1:a", ["a", "b"], ["ab"], ["a1:b"]]),
            json!([9_007_199_254_740_992_u64, 9_007_199_254_740_993_u64]),
            json!([u64::MAX, 18_446_744_073_709_551_615.0, 1e300, 0.5]),
            json!({"not": "a list"}),
        ] {
            assert!(unique(&items), "{items}");
        }
        for items in [
            json!([1, 1.0]),
            json!([0, -0.0]),
            json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]),
            json!([1e300, 1e300]),
            json!(["é", "x", "é"]),
            json!([i64::MIN, -9_223_372_036_854_775_808.0]),
        ] {
            assert!(!unique(&items), "{items}");
        }
        assert!(UniqueItems { wanted: false }.is_valid(&json!([1, 1])));
    }
}
