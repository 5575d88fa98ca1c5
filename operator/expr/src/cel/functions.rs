//! The functions and the arithmetic of conditions.
//!
//! All of them are total: overflow, a division by zero or an argument of the wrong type is a fault. Only functions that
//! are named after a type convert.

use std::rc::Rc;

use super::Fault;
use super::evaluate::Work;
use super::signature::Function;
use super::tree::Operator;
use super::value::{Evaluated, Value};

/// The maximum size of a created text, in bytes.
pub const MAX_TEXT: usize = 1 << 20;
/// The maximum number of parts of a split text.
const MAX_PARTS: usize = 1000;

pub(super) fn overflow(at: usize) -> Fault {
    Fault::evaluation(at, "the result is beyond 64-bit signed integers; use `double(…)`")
}

/// Evaluates `+ - * / %` of numbers, and `+` of texts. Both sides must have the same type.
pub(super) fn calculate<'a>(
    operator: Operator,
    left: &Value<'a>,
    right: &Value<'a>,
    work: &Work,
    at: usize,
) -> Evaluated<'a> {
    match (operator, left, right) {
        (Operator::Divide | Operator::Remainder, Value::Int(_), Value::Int(0)) => {
            Err(Fault::evaluation(at, "division by zero"))
        }
        (_, Value::Int(a), Value::Int(b)) => match operator {
            Operator::Add => a.checked_add(*b),
            Operator::Subtract => a.checked_sub(*b),
            Operator::Multiply => a.checked_mul(*b),
            Operator::Divide => a.checked_div(*b),
            Operator::Remainder => a.checked_rem(*b),
            _ => None,
        }
        .map(Value::Int)
        .ok_or_else(|| overflow(at)),
        (Operator::Add, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Operator::Subtract, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Operator::Multiply, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        (Operator::Divide, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        (Operator::Add, Value::Text(a), Value::Text(b)) => {
            let (a, b) = (a.as_str(), b.as_str());
            charge_text(a.len() + b.len(), work, at)?;
            Ok([a, b].concat().into())
        }
        _ => {
            let hint = match (left, right) {
                (Value::Int(_), Value::Double(_)) | (Value::Double(_), Value::Int(_)) => {
                    "; convert one with `double(…)`"
                }
                (Value::Text(_), _) | (_, Value::Text(_)) => "; convert with `string(…)`, `int(…)` or `double(…)`",
                _ => "",
            };
            Err(Fault::evaluation(
                at,
                format!("`{}` does not work on {} and {}{hint}", operator.symbol(), left.kind(), right.kind()),
            ))
        }
    }
}

/// Returns the value of `function`. The parser has checked the number of arguments.
pub(super) fn call<'a>(function: Function, arguments: &[Value<'a>], work: &Work, at: usize) -> Evaluated<'a> {
    let wrong = || {
        let kinds: Vec<&str> = arguments.iter().map(Value::kind).collect();
        Fault::evaluation(at, format!("`{}` does not work on {}", function.name(), kinds.join(" and ")))
    };
    let Some(first) = arguments.first() else {
        return Err(wrong());
    };
    // Every function reads its texts at most once. Created values are charged where they are created.
    for argument in arguments {
        if let Value::Text(text) = argument {
            work.spend_text(text.as_str().len(), at)?;
        }
    }
    match function {
        Function::Dyn => return Ok(first.clone()),
        Function::Size => {
            return first.size().and_then(to_int).ok_or_else(wrong);
        }
        Function::Int | Function::Double | Function::String | Function::Bool => {
            return convert(function, first, at)?.ok_or_else(wrong);
        }
        Function::Join => return join(arguments, work, at)?.ok_or_else(wrong),
        _ => {}
    }
    let Value::Text(text) = first else {
        return Err(wrong());
    };
    let text = text.as_str();
    let part = match arguments.get(1) {
        Some(Value::Text(part)) => Some(part.as_str()),
        _ => None,
    };
    let value = match (function, part, arguments) {
        (Function::Contains, Some(part), _) => Value::Bool(text.contains(part)),
        (Function::StartsWith, Some(part), _) => Value::Bool(text.starts_with(part)),
        (Function::EndsWith, Some(part), _) => Value::Bool(text.ends_with(part)),
        (Function::LowerAscii, _, _) => text.to_ascii_lowercase().into(),
        (Function::UpperAscii, _, _) => text.to_ascii_uppercase().into(),
        (Function::Trim, _, _) => text.trim().to_owned().into(),
        (Function::IndexOf, Some(part), _) => match text.find(part) {
            Some(byte) => to_int(text[..byte].chars().count()).ok_or_else(wrong)?,
            None => Value::Int(-1),
        },
        (Function::Split, Some(separator), _) => split(text, separator, at)?,
        (Function::Replace, Some(old), [_, _, Value::Text(new)]) => {
            let new = new.as_str();
            let times = text.matches(old).count();
            charge_text(text.len().saturating_add(times.saturating_mul(new.len())), work, at)?;
            text.replace(old, new).into()
        }
        (Function::Substring, _, [_, Value::Int(from)]) => substring(text, *from, None, at)?,
        (Function::Substring, _, [_, Value::Int(from), Value::Int(to)]) => substring(text, *from, Some(*to), at)?,
        _ => return Err(wrong()),
    };
    Ok(value)
}

fn to_int<'a>(n: usize) -> Option<Value<'a>> {
    i64::try_from(n).ok().map(Value::Int)
}

/// Charges for a text of `bytes` bytes before it is created.
fn charge_text(bytes: usize, work: &Work, at: usize) -> Result<(), Fault> {
    if bytes > MAX_TEXT {
        return Err(Fault::limit(at, "a text made here would be larger than 1 MiB"));
    }
    work.spend_text(bytes, at)
}

/// Returns the converted value, `None` if the types do not fit, or a fault if only the value does not fit.
fn convert<'a>(function: Function, value: &Value<'a>, at: usize) -> Result<Option<Value<'a>>, Fault> {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0; // 2^63
    let unreadable = |kind: &str| Fault::evaluation(at, format!("the text is not {kind}"));
    Ok(Some(match (function, value) {
        (Function::Int, Value::Int(_))
        | (Function::Double, Value::Double(_))
        | (Function::String, Value::Text(_))
        | (Function::Bool, Value::Bool(_)) => value.clone(),
        (Function::Int, Value::Double(double)) => {
            if !(double.trunc() >= -BEYOND && *double < BEYOND) {
                return Err(overflow(at));
            }
            Value::Int(double.trunc() as i64)
        }
        (Function::Int, Value::Text(text)) => {
            Value::Int(text.as_str().parse().map_err(|_| unreadable("a whole number"))?)
        }
        (Function::Double, Value::Int(int)) => Value::Double(*int as f64),
        (Function::Double, Value::Text(text)) => {
            Value::Double(text.as_str().parse().map_err(|_| unreadable("a number"))?)
        }
        (Function::String, Value::Int(int)) => int.to_string().into(),
        (Function::String, Value::Double(double)) => double.to_string().into(),
        (Function::String, Value::Bool(b)) => b.to_string().into(),
        (Function::Bool, Value::Text(text)) => match text.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => return Err(unreadable("`true` or `false`")),
        },
        _ => return Ok(None),
    }))
}

/// Returns the joined text, or `None` if an argument is neither a list of texts nor a text.
fn join<'a>(arguments: &[Value<'a>], work: &Work, at: usize) -> Result<Option<Value<'a>>, Fault> {
    let separator = match arguments.get(1) {
        None => "",
        Some(Value::Text(separator)) => separator.as_str(),
        Some(_) => return Ok(None),
    };
    work.spend(arguments.first().and_then(Value::length).unwrap_or(0), at)?;
    let Some(items) = arguments.first().map(|list| list.elements(at)).transpose()?.flatten() else {
        return Ok(None);
    };
    let mut joined = String::new();
    for (index, item) in items.iter().enumerate() {
        let Value::Text(text) = item else {
            return Ok(None);
        };
        if index > 0 {
            joined.push_str(separator);
        }
        charge_text(joined.len() + text.as_str().len(), work, at)?;
        joined.push_str(text.as_str());
    }
    Ok(Some(joined.into()))
}

fn split<'a>(text: &str, separator: &str, at: usize) -> Evaluated<'a> {
    let parts: Vec<Value<'a>> = if separator.is_empty() {
        text.chars().take(MAX_PARTS + 1).map(|c| c.to_string().into()).collect()
    } else {
        text.split(separator).take(MAX_PARTS + 1).map(|part| part.to_owned().into()).collect()
    };
    if parts.len() > MAX_PARTS {
        return Err(Fault::limit(at, format!("the text has more than {MAX_PARTS} parts")));
    }
    Ok(Value::List(Rc::new(parts)))
}

/// Returns the characters from `from` up to but not including `to`.
fn substring<'a>(text: &str, from: i64, to: Option<i64>, at: usize) -> Evaluated<'a> {
    let size = text.chars().count();
    let from = usize::try_from(from).ok();
    let to = to.map_or(Some(size), |to| usize::try_from(to).ok());
    match (from, to) {
        (Some(from), Some(to)) if from <= to && to <= size => {
            Ok(text.chars().skip(from).take(to - from).collect::<String>().into())
        }
        _ => Err(Fault::evaluation(at, "the positions of `substring` are outside the text")),
    }
}
