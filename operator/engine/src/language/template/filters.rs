//! The filters, methods and functions of our own: those of the template engine that are unbounded
//! or differ from the manual, and what it does not have.
//!
//! Each pays for what it reads and makes. None may see more than its arguments.

use std::borrow::Cow;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value, escape_formatter, filters, functions};
use minijinja_contrib::pycompat;

use super::budget::{Bounded, Bytes, MAX_TEXT, go_on, making, pay_for, spend, too_much};
use super::vocabulary::{METHODS, has};
use crate::language::pattern::Pattern;

/// Elements of a `range`, and the largest number in one.
pub(in crate::language) const MAX_RANGE: usize = 1000;
const MAX_RANGE_BOUND: usize = 1_000_000_000;
/// What compiling a pattern costs, as bytes read.
const PATTERN_WORK: usize = 256 << 10;
/// How deep a template's own lists and maps are within each other, at most.
const MAX_LITERAL_DEPTH: usize = 24;

/// Prints a value: texts and numbers as they are, everything else as JSON, so that what conditions
/// and templates call `true` and `null` is written that way too.
pub(super) fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    go_on(0)?;
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Undefined => escape_formatter(out, state, value),
        _ => {
            assert_defined(value, MAX_LITERAL_DEPTH)?;
            serde_json::to_writer(Bytes(out), value).map_err(|error| match error.classify() {
                serde_json::error::Category::Io => Error::from(ErrorKind::WriteFailure),
                _ => no_json(),
            })
        }
    }
}

/// An undefined name inside a literal, `[inputs.missing]`, would become `null` in JSON.
fn assert_defined(value: &Value, depth: usize) -> Result<(), Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "a list or map here holds something undefined"));
    }
    let Some(deeper) = depth.checked_sub(1) else {
        return Ok(());
    };
    match value.kind() {
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| assert_defined(&item, deeper)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| assert_defined(&value.get_item(&key)?, deeper)),
        _ => Ok(()),
    }
}

fn no_json() -> Error {
    Error::new(ErrorKind::InvalidOperation, "this value has no JSON form")
}

/// The value as text: what printing it would show.
pub(super) fn text<'v>(state: &mut State, value: &'v Value) -> Result<Cow<'v, str>, Error> {
    if let Some(text) = value.as_str() {
        spend(state, text.len())?;
        return Ok(Cow::Borrowed(text));
    }
    match value.kind() {
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::Number => Ok(Cow::Owned(value.to_string())),
        _ => json(state, value, false).map(Cow::Owned),
    }
}

/// The value as JSON, within the bound for texts.
fn json(state: &mut State, value: &Value, pretty: bool) -> Result<String, Error> {
    assert_defined(value, MAX_LITERAL_DEPTH)?;
    let mut json = Bounded(String::new());
    let written = if pretty {
        serde_json::to_writer_pretty(Bytes(&mut json), value)
    } else {
        serde_json::to_writer(Bytes(&mut json), value)
    };
    written.map_err(|error| match error.classify() {
        serde_json::error::Category::Io => too_much("a value is larger than 1 MiB as JSON"),
        _ => no_json(),
    })?;
    spend(state, json.0.len())?;
    Ok(json.0)
}

/// A filter that changes a text.
pub(super) fn mapped(state: &mut State, value: &Value, change: impl Fn(&str) -> String) -> Result<Value, Error> {
    Ok(Value::from(change(&text(state, value)?)))
}

pub(super) fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars.flat_map(char::to_lowercase)).collect())
}

pub(super) fn trim(state: &mut State, value: &Value, chars: Option<&str>) -> Result<Value, Error> {
    mapped(state, value, |s| match chars {
        Some(chars) => s.trim_matches(|c| chars.contains(c)).to_owned(),
        None => s.trim().to_owned(),
    })
}

pub(super) fn replace(state: &mut State, value: &Value, old: &Value, new: &Value) -> Result<Value, Error> {
    replace_times(state, value, old, new, usize::MAX)
}

fn replace_times(state: &mut State, value: &Value, old: &Value, new: &Value, times: usize) -> Result<Value, Error> {
    let (value, old, new) = (text(state, value)?, text(state, old)?, text(state, new)?);
    let found = value.matches(old.as_ref()).count().min(times);
    making(state, value.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::from(value.replacen(old.as_ref(), &new, found)))
}

pub(super) fn join(state: &mut State, values: &Value, separator: Option<&str>) -> Result<Value, Error> {
    let separator = separator.unwrap_or("");
    let mut joined = String::new();
    for (index, value) in values.try_iter()?.checked().enumerate() {
        let value = value?;
        let piece = text(state, &value)?;
        if joined.len() + separator.len() + piece.len() > MAX_TEXT {
            return Err(too_much("a text made here would be larger than 1 MiB; truncate first"));
        }
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&piece);
    }
    spend(state, joined.len())?;
    Ok(Value::from(joined))
}

pub(super) fn split(
    state: &mut State,
    value: &Value,
    separator: Option<&str>,
    parts: Option<i64>,
) -> Result<Value, Error> {
    pay_for(state, value)?;
    Ok(filters::split(value, separator.map(Into::into), parts)?.try_iter()?.collect())
}

/// `truncate(n)`: at most `n` characters in all, the ellipsis included.
pub(super) fn truncate(
    state: &mut State,
    value: &Value,
    length: Option<usize>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let named: Option<usize> = match kwargs.get("length")? {
        Some(length) => Some(length),
        None => kwargs.get("n")?,
    };
    let length = length.or(named).unwrap_or(255);
    let end: Option<&str> = kwargs.get("end")?;
    let end = end.unwrap_or("...");
    kwargs.assert_all_used()?;
    let source = text(state, value)?;
    let Some((cut, _)) = source.char_indices().nth(length) else {
        return Ok(Value::from(source.as_ref()));
    };
    let kept = length.saturating_sub(end.chars().count());
    if kept == 0 {
        return Ok(Value::from(&source[..cut]));
    }
    let shortened: String = source.chars().take(kept).chain(end.chars()).collect();
    Ok(Value::from(shortened))
}

/// `tojson`: plain JSON. Nothing is escaped for HTML, because nothing here is HTML.
pub(super) fn tojson(state: &mut State, value: &Value, indent: Option<usize>, kwargs: Kwargs) -> Result<Value, Error> {
    let named: Option<usize> = kwargs.get("indent")?;
    kwargs.assert_all_used()?;
    let pretty = indent.or(named).is_some_and(|width| width > 0);
    Ok(Value::from(json(state, value, pretty)?))
}

/// `regex_search(p)`: the first match of the pattern, or none.
pub(super) fn regex_search(state: &mut State, value: &Value, source: &str) -> Result<Value, Error> {
    let text = text(state, value)?;
    spend(state, PATTERN_WORK)?;
    let pattern = Pattern::compile(source).map_err(|problem| Error::new(ErrorKind::InvalidOperation, problem))?;
    spend(state, pattern.cost(text.len()))?;
    Ok(pattern.find(&text).map_or(Value::from(()), |found| Value::from(found.as_str())))
}

pub(super) fn range(lower: isize, upper: Option<isize>, step: Option<isize>) -> Result<Value, Error> {
    // The engine's own would overflow on the extremes.
    let extreme = |n: isize| n.unsigned_abs() > MAX_RANGE_BOUND;
    if [Some(lower), upper, step].into_iter().flatten().any(extreme) {
        return Err(too_much("the numbers of a `range` are at most 1000000000"));
    }
    let range = functions::range(lower, upper, step)?;
    if range.len().is_none_or(|len| len > MAX_RANGE) {
        return Err(too_much("`range` gives at most 1000 numbers"));
    }
    Ok(range)
}

/// `x is divisibleby(n)`. The engine's own panics where `n` is zero.
pub(super) fn is_divisible_by(value: i64, divisor: i64) -> bool {
    value.checked_rem(divisor) == Some(0)
}

/// Python's methods, of those in the vocabulary.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if !has(METHODS, name) {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    pay_for(state, value)?;
    match (value.as_str(), name, args) {
        (Some(separator), "join", [values]) => join(state, values, Some(separator)),
        (Some(_), "replace", [old, new, rest @ ..]) => {
            let times = rest.first().and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok());
            replace_times(state, value, old, new, times.unwrap_or(usize::MAX))
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}
