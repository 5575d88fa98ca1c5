//! Our own filters, methods and functions: replacements of those that the template engine has without limits or
//! differently from the manual, and additional ones.
//!
//! Each of these functions charges for the bytes that it reads and creates, and reads only its arguments.

use std::borrow::Cow;
use std::collections::BTreeSet;

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Output, State, Value, escape_formatter, filters, functions};
use minijinja_contrib::pycompat;

use super::budget::{Bounded, Bytes, Limited, MAX_TEXT, too_much};
use super::meter::{Meter, charge_creation, count_output, output_left, pay_for, spend};
use super::metered::collect_elements;
use super::vocabulary::{METHODS, has_word};
use crate::pattern::Pattern;

/// The maximum number of elements of a `range`, and the largest number in one.
pub const MAX_RANGE: usize = 1000;
const MAX_RANGE_BOUND: usize = 1_000_000_000;
/// The charge for compiling a pattern, as bytes read.
const PATTERN_WORK: usize = 256 << 10;
/// The maximum nesting of a template's own lists and maps.
const MAX_LITERAL_DEPTH: usize = 24;

/// Prints a value: texts and numbers as they are, other values as JSON, so that `true` and `null` are printed as
/// conditions and templates write them.
pub(super) fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Undefined => {
            let bytes = value.as_str().map_or_else(|| value.to_string().len(), str::len);
            count_output(state, bytes)?;
            escape_formatter(out, state, value)
        }
        _ => {
            Meter::run(state, |meter| assert_printable(meter, value))?;
            let maximum = output_left(state);
            let mut limited = Limited { out, left: maximum };
            serde_json::to_writer(Bytes(&mut limited), value).map_err(|error| match error.classify() {
                serde_json::error::Category::Io => Error::from(ErrorKind::WriteFailure),
                _ => no_json_error(),
            })?;
            let written = maximum.saturating_sub(limited.left);
            count_output(state, written)
        }
    }
}

fn assert_printable(meter: &mut Meter, value: &Value) -> Result<(), Error> {
    meter.assert_exact(value)?;
    assert_defined(meter, value, MAX_LITERAL_DEPTH)
}

/// Checks for undefined names inside of a literal such as `[inputs.missing]`, which would become `null` in JSON.
fn assert_defined(meter: &mut Meter, value: &Value, depth: usize) -> Result<(), Error> {
    meter.charge_bytes(16)?;
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "a list or map here holds something undefined"));
    }
    let Some(deeper) = depth.checked_sub(1) else {
        return Ok(());
    };
    match value.kind() {
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| assert_defined(meter, &item, deeper)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| assert_defined(meter, &value.get_item(&key)?, deeper)),
        _ => Ok(()),
    }
}

fn no_json_error() -> Error {
    Error::new(ErrorKind::InvalidOperation, "this value has no JSON form")
}

/// Returns the text that printing the value shows.
pub(super) fn render_text<'v>(state: &mut State, value: &'v Value) -> Result<Cow<'v, str>, Error> {
    if let Some(text) = value.as_str() {
        spend(state, text.len())?;
        return Ok(Cow::Borrowed(text));
    }
    match value.kind() {
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::Number => Ok(Cow::Owned(value.to_string())),
        _ => render_json(state, value, false).map(Cow::Owned),
    }
}

/// Renders the value as JSON, within the limit for texts.
fn render_json(state: &mut State, value: &Value, pretty: bool) -> Result<String, Error> {
    Meter::run(state, |meter| assert_printable(meter, value))?;
    let mut json = Bounded(String::new());
    let written = if pretty {
        serde_json::to_writer_pretty(Bytes(&mut json), value)
    } else {
        serde_json::to_writer(Bytes(&mut json), value)
    };
    written.map_err(|error| match error.classify() {
        serde_json::error::Category::Io => too_much("a value is larger than 1 MiB as JSON"),
        _ => no_json_error(),
    })?;
    spend(state, json.0.len())?;
    Ok(json.0)
}

/// Applies a filter that changes a text.
pub(super) fn change_text(state: &mut State, value: &Value, change: impl Fn(&str) -> String) -> Result<Value, Error> {
    Ok(Value::from(change(&render_text(state, value)?)))
}

pub(super) fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars.flat_map(char::to_lowercase)).collect())
}

pub(super) fn trim(state: &mut State, value: &Value, chars: Option<&str>) -> Result<Value, Error> {
    strip(state, value, chars, Ends::Both)
}

#[derive(Clone, Copy)]
enum Ends {
    Left,
    Right,
    Both,
}

/// Removes characters from the ends of a text, by look-ups in a set.
fn strip(state: &mut State, value: &Value, chars: Option<&str>, ends: Ends) -> Result<Value, Error> {
    let text = render_text(state, value)?;
    let chars: Option<BTreeSet<char>> = match chars {
        Some(chars) => {
            spend(state, chars.len().saturating_mul(16))?;
            Some(chars.chars().collect())
        }
        None => None,
    };
    let is_removed = |c: char| chars.as_ref().map_or_else(|| c.is_whitespace(), |chars| chars.contains(&c));
    Ok(Value::from(match ends {
        Ends::Left => text.trim_start_matches(is_removed),
        Ends::Right => text.trim_end_matches(is_removed),
        Ends::Both => text.trim_matches(is_removed),
    }))
}

pub(super) fn replace(state: &mut State, value: &Value, old: &Value, new: &Value) -> Result<Value, Error> {
    replace_times(state, value, old, new, usize::MAX)
}

fn replace_times(state: &mut State, value: &Value, old: &Value, new: &Value, times: usize) -> Result<Value, Error> {
    let (value, old, new) = (render_text(state, value)?, render_text(state, old)?, render_text(state, new)?);
    let occurrences = value.matches(old.as_ref()).count().min(times);
    charge_creation(state, value.len().saturating_add(occurrences.saturating_mul(new.len())))?;
    Ok(Value::from(value.replacen(old.as_ref(), &new, occurrences)))
}

pub(super) fn join(state: &mut State, values: &Value, separator: Option<&str>) -> Result<Value, Error> {
    let separator = separator.unwrap_or("");
    pay_for(state, values)?;
    let mut joined = String::new();
    for (index, value) in values.try_iter()?.checked().enumerate() {
        let value = value?;
        let piece = render_text(state, &value)?;
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
    spend(state, separator.map_or(0, str::len))?;
    let parts = filters::split(value, separator.map(Into::into), parts)?;
    collect_elements(state, parts).and_then(|parts| Ok(parts.try_iter()?.collect()))
}

/// Implements `truncate(n)`: at most `n` characters including the ellipsis.
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
    spend(state, end.len())?;
    let source = render_text(state, value)?;
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

/// Implements `tojson`: plain JSON without escapes for HTML.
pub(super) fn tojson(state: &mut State, value: &Value, indent: Option<usize>, kwargs: Kwargs) -> Result<Value, Error> {
    let named: Option<usize> = kwargs.get("indent")?;
    kwargs.assert_all_used()?;
    let pretty = indent.or(named).is_some_and(|width| width > 0);
    Ok(Value::from(render_json(state, value, pretty)?))
}

/// Implements `regex_search(p)`: the first match of the pattern, or none.
pub(super) fn regex_search(state: &mut State, value: &Value, source: &str) -> Result<Value, Error> {
    let text = render_text(state, value)?;
    spend(state, PATTERN_WORK)?;
    let pattern = Pattern::compile(source).map_err(|problem| Error::new(ErrorKind::InvalidOperation, problem))?;
    spend(state, pattern.cost(text.len()))?;
    Ok(pattern.find(&text).map_or(Value::from(()), |found| Value::from(found.as_str())))
}

pub(super) fn range(lower: isize, upper: Option<isize>, step: Option<isize>) -> Result<Value, Error> {
    // The engine's `range` would overflow for extreme values.
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

/// Implements `x is divisibleby(n)`. The engine's test panics if `n` is zero.
pub(super) fn is_divisible_by(value: i64, divisor: i64) -> bool {
    value.checked_rem(divisor) == Some(0)
}

/// Calls a Python method of the vocabulary.
pub(super) fn call_method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if !has_word(METHODS, name) {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    Meter::run(state, |meter| {
        meter.charge_shallow(value)?;
        args.iter().try_for_each(|argument| meter.charge_deep(argument))
    })?;
    match (value.as_str(), name, args) {
        (Some(separator), "join", [values]) => join(state, values, Some(separator)),
        (Some(_), "replace", [old, new, rest @ ..]) => {
            let times = rest.first().and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok());
            replace_times(state, value, old, new, times.unwrap_or(usize::MAX))
        }
        (Some(_), "strip" | "lstrip" | "rstrip", [] | [_]) => {
            let ends = match name {
                "lstrip" => Ends::Left,
                "rstrip" => Ends::Right,
                _ => Ends::Both,
            };
            let (chars,): (Option<&str>,) = from_args(args)?;
            strip(state, value, chars, ends)
        }
        (Some(text), "split", [] | [_] | [_, _]) => {
            let number_of_parts = match args.first().and_then(Value::as_str) {
                Some(separator) if !separator.is_empty() => text.matches(separator).count(),
                _ => text.len(),
            };
            spend(state, number_of_parts.saturating_mul(16))?;
            pycompat::unknown_method_callback(state, value, name, args)
        }
        (None, "count", [item]) => {
            Meter::run(state, |meter| meter.charge_containment(item, value))?;
            pycompat::unknown_method_callback(state, value, name, args)
        }
        _ => {
            let result = pycompat::unknown_method_callback(state, value, name, args)?;
            collect_elements(state, result)
        }
    }
}

/// Charges one byte for each operand.
pub(super) fn charge_count(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    meter.charge_bytes(operands.len())
}

/// Charges for all operands with all their content.
pub(super) fn charge_all(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    operands.iter().try_for_each(|value| meter.charge_deep(value))
}

/// Charges for each element once, and for the name of an attribute at each element.
pub(super) fn charge_elements(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    let Some((value, arguments)) = operands.split_first() else { return Ok(()) };
    meter.charge_shallow(value)?;
    let elements = if value.as_str().is_some() { 1 } else { value.len().unwrap_or(1) };
    let names =
        arguments.iter().filter_map(attribute_name).map(|name| name.as_str().map_or(0, str::len)).sum::<usize>();
    meter.charge_bytes(elements.saturating_mul(names))
}

/// Charges like [`charge_elements`], with the attribute as the first argument.
pub(super) fn charge_attributes(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    charge_elements(meter, operands)?;
    let [value, name, ..] = operands else { return Ok(()) };
    meter.assert_exact_attributes(value, |item| name.as_str().map_or(Value::UNDEFINED, |name| value_at(item, name)))?;
    meter.charge_bytes(value.len().unwrap_or(1).saturating_mul(name.as_str().map_or(0, str::len)))
}

/// Charges for a text of which each character or line becomes a value.
pub(super) fn charge_parts(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    let Some(value) = operands.first() else { return Ok(()) };
    meter.charge_shallow(value)?;
    meter.charge_bytes(value.as_str().map_or(0, str::len).saturating_mul(8))
}

pub(super) fn charge_comparison(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    match operands {
        [a, b] => meter.charge_comparison(a, b),
        _ => charge_all(meter, operands),
    }
}

pub(super) fn charge_in(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    match operands {
        [item, container] => meter.charge_containment(item, container),
        _ => charge_all(meter, operands),
    }
}

pub(super) fn charge_contains(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    match operands {
        [container, item] => meter.charge_containment(item, container),
        _ => charge_all(meter, operands),
    }
}

/// Charges for comparing the elements of a list with each other: in one pass, or if `sorts` in the passes of a sort.
pub(super) fn charge_order(meter: &mut Meter, operands: &[Value], sorts: bool) -> Result<(), Error> {
    charge_comparisons(meter, operands, sorts, true)
}

/// Charges like [`charge_order`] for sorting, but case is folded once and not at each comparison.
pub(super) fn charge_unique(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    charge_comparisons(meter, operands, true, false)
}

fn charge_comparisons(meter: &mut Meter, operands: &[Value], sorts: bool, folds_case: bool) -> Result<(), Error> {
    charge_elements(meter, operands)?;
    let Some((value, arguments)) = operands.split_first() else { return Ok(()) };
    let named_argument = |name: &str| {
        let keyword_arguments = arguments.iter().filter(|value| value.kind() == ValueKind::Map);
        keyword_arguments.filter_map(|kwargs| kwargs.get_attr(name).ok()).find(|value| !value.is_undefined())
    };
    if value.kind() == ValueKind::Number || value.kind() == ValueKind::Bool {
        return Ok(());
    }
    let path = named_argument("attribute");
    let by_value = named_argument("by").is_some_and(|by| by.as_str() == Some("value"));
    let mut keys = Vec::new();
    for item in value.try_iter()?.checked() {
        let item = item?;
        match path.as_ref().and_then(Value::as_str) {
            Some(path) => keys.extend(path.split(',').map(|path| value_at(&item, path.trim()))),
            None if by_value => keys.push(value.get_item(&item)?),
            None => keys.push(item),
        }
    }
    let folds_case = folds_case && !named_argument("case_sensitive").is_some_and(|sensitive| sensitive.is_true());
    let passes = if sorts { usize::try_from(keys.len().checked_ilog2().unwrap_or(0)).unwrap_or(0) + 2 } else { 1 };
    meter.charge_ordering(&keys, passes, folds_case)
}

/// Returns the value at a dotted path, as the engine finds it, or undefined.
fn value_at(item: &Value, path: &str) -> Value {
    path.split('.').fold(item.clone(), |value, part| {
        let key = part.parse::<usize>().map_or_else(|_| Value::from(part), Value::from);
        value.get_item(&key).unwrap_or(Value::UNDEFINED)
    })
}

/// Returns the value of the keyword `attribute` in an argument, or `None` for a positional argument.
fn attribute_name(argument: &Value) -> Option<Value> {
    match argument.kind() {
        ValueKind::Map => argument.get_attr("attribute").ok(),
        _ => None,
    }
}
