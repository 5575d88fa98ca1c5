//! The inputs of a run: their values, checked against their declarations.
//!
//! An invalid value does not start a run. Types are not converted.

use serde_json::{Map, Value};
use signoff_api::workflow::{Input, InputType};
use signoff_expr::number::inexact;

use super::{
    Validator,
    numbers::{identifier_advice, is_identifier_name},
    references::RESERVED,
};

/// Returns the value of every input: the given value, else the default, else null. Reports invalid declarations and
/// values.
pub(crate) fn resolve_values(inputs: &[Input], validator: &mut Validator<'_>) -> Map<String, Value> {
    let mut values = Map::new();
    for (at, input) in inputs.iter().enumerate() {
        let field = |part: &str| format!("spec.inputs[{at}].{part}");
        if RESERVED.contains(&input.name.as_str()) {
            validator
                .error(field("name"), format!("{} is a reserved name in templates: choose another name", input.name));
        }
        if matches!(input.type_, Some(InputType::Integer | InputType::Number)) && is_identifier_name(&input.name) {
            validator.warn(&field("type"), &identifier_advice(&input.name));
        }
        for (stored, part) in [(&input.default, "default"), (&input.value, "value")] {
            if let Some(stored) = stored
                && let Err(why) = check_value(input, &stored.0)
            {
                validator.error(field(part), format!("input {}: {why}", input.name));
            }
        }
        let value = input.value.as_ref().or(input.default.as_ref()).map(|stored| normalize_numbers(&stored.0));
        if value.is_none() && input.required == Some(true) {
            validator.error(field("value"), format!("input {} is required: give it a value", input.name));
        }
        if values.insert(input.name.clone(), value.unwrap_or(Value::Null)).is_some() {
            validator.error(field("name"), format!("duplicate name {}: names must be unique", input.name));
        }
    }
    values
}

/// Replaces numbers such as `1.0` and `1e3` by integers, as the API server stores them.
fn normalize_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() && inexact(number).is_none() => {
            match number.as_f64().filter(|double| double.fract() == 0.0) {
                Some(double) => (double as i64).into(),
                None => value.clone(),
            }
        }
        Value::Array(items) => items.iter().map(normalize_numbers).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, inner)| (name.clone(), normalize_numbers(inner))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

/// Checks that a value has the type of an input and is one of its `enum` values.
fn check_value(input: &Input, value: &Value) -> Result<(), String> {
    let kind = input.type_.unwrap_or_default();
    let (has_type, word) = match kind {
        InputType::String => (value.is_string(), "a string"),
        InputType::Number => (value.is_number(), "a number"),
        InputType::Integer => (normalize_numbers(value).is_i64() || value.is_u64(), "an integer"),
        InputType::Boolean => (value.is_boolean(), "true or false"),
        InputType::Object => (value.is_object(), "an object"),
        InputType::Array => (value.is_array(), "an array"),
    };
    if !has_type {
        return Err(format!("it must be {word}, as its type says"));
    }
    if !input.enum_.is_empty()
        && !input.enum_.iter().any(|allowed| normalize_numbers(&allowed.0) == normalize_numbers(value))
    {
        let allowed: Vec<_> = input.enum_.iter().map(|v| v.0.to_string()).collect();
        return Err(format!("it must be one of {}", allowed.join(", ")));
    }
    Ok(())
}
