//! The words of templates: every filter, test, method and function there is.
//!
//! Each is bounded in what it makes and pays for what it reads. Nothing may be added here that
//! reads more than its arguments, and nothing the template engine brings along is available
//! unless it is listed.

use std::borrow::Cow;
use std::sync::LazyLock;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value, escape_formatter};
use minijinja::{filters, functions, tests};
use minijinja_contrib::pycompat;

/// How every message about a bound begins.
pub(super) const TOO_MUCH: &str = "too much";

/// Steps of the template engine in one rendering.
const FUEL: u64 = 20_000;
/// Bytes of text that filters, tests and methods may read or make in one rendering.
const MAX_WORK: usize = 64 << 20;
/// Bytes of a text one of them makes.
const MAX_TEXT: usize = 1 << 20;
/// Elements of a `range`.
const MAX_RANGE: usize = 1000;
/// Characters of a regular expression, bytes it may compile to, and what compiling costs.
const MAX_PATTERN: usize = 256;
const MAX_COMPILED_PATTERN: usize = 1 << 18;
const PATTERN_WORK: usize = 256 << 10;

/// The filters of templates.
pub(super) const FILTERS: [&str; 37] = [
    "abs",
    "bool",
    "capitalize",
    "count",
    "d",
    "default",
    "dictsort",
    "first",
    "float",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "regex_search",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "select",
    "selectattr",
    "sort",
    "split",
    "string",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
];

/// The tests of templates (`x is …`).
pub(super) const TESTS: [&str; 31] = [
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "boolean",
    "contains",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "even",
    "false",
    "float",
    "in",
    "integer",
    "iterable",
    "lower",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
    "upper",
];

/// The methods of texts, maps and lists, as in Python.
pub(super) const METHODS: [&str; 28] = [
    "capitalize",
    "count",
    "endswith",
    "find",
    "get",
    "isalnum",
    "isalpha",
    "isascii",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "items",
    "join",
    "keys",
    "lower",
    "lstrip",
    "replace",
    "rfind",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "title",
    "upper",
    "values",
];

/// The functions of templates.
pub(super) const FUNCTIONS: [&str; 1] = ["range"];

/// Names that exist in every template besides the scope's.
pub(super) const CONSTANTS: [&str; 1] = ["null"];

/// The template engine with exactly this vocabulary. It holds no state of any rendering.
pub(super) fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(build);
    &ENVIRONMENT
}

fn build() -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(64);
    env.set_unknown_method_callback(method);
    env.set_formatter(print);
    env.add_global("null", Value::from(()));
    env.add_function("range", range);
    add_own_filters(&mut env);
    add_engine_filters(&mut env);
    add_tests(&mut env);
    env
}

fn add_own_filters(env: &mut Environment<'static>) {
    env.add_filter("lower", |state: &mut State, v: &Value| mapped(state, v, |s| s.to_lowercase()));
    env.add_filter("upper", |state: &mut State, v: &Value| mapped(state, v, |s| s.to_uppercase()));
    env.add_filter("title", |state: &mut State, v: &Value| mapped(state, v, |s| filters::title(Cow::Borrowed(s))));
    env.add_filter("capitalize", |state: &mut State, v: &Value| mapped(state, v, capitalized));
    env.add_filter("trim", |state: &mut State, v: &Value, chars: Option<&str>| {
        mapped(state, v, |s| match chars {
            Some(chars) => s.trim_matches(|c| chars.contains(c)).to_owned(),
            None => s.trim().to_owned(),
        })
    });
    env.add_filter("string", |state: &mut State, v: &Value| mapped(state, v, str::to_owned));
    env.add_filter("replace", |state: &mut State, v: &Value, old: &Value, new: &Value| {
        let (v, old, new) = (text(state, v)?, text(state, old)?, text(state, new)?);
        replaced(state, &v, &old, &new, None)
    });
    env.add_filter("join", |state: &mut State, v: &Value, separator: Option<&str>| {
        joined(state, v, separator.unwrap_or(""))
    });
    env.add_filter("truncate", truncate);
    env.add_filter("tojson", tojson);
    env.add_filter("regex_search", regex_search);
    env.add_filter("split", |state: &mut State, v: &Value, separator: Option<&str>, parts: Option<i64>| {
        pay_for(state, v)?;
        Ok::<_, Error>(filters::split(v, separator.map(Into::into), parts)?.try_iter()?.collect::<Value>())
    });
    env.add_filter("lines", |state: &mut State, v: &Value| {
        pay_for(state, v)?;
        filters::lines(v)
    });
    env.add_filter("list", |state: &mut State, v: Value| {
        pay_for(state, &v)?;
        filters::list(state, v)
    });
    env.add_filter("sort", |state: &mut State, v: Value, kwargs: Kwargs| {
        pay_for(state, &v)?;
        filters::sort(state, v, kwargs)
    });
    env.add_filter("unique", |state: &mut State, v: Value, kwargs: Kwargs| {
        pay_for(state, &v)?;
        filters::unique(state, v, kwargs)
    });
}

/// Filters that pick from what is there and make nothing larger than it.
fn add_engine_filters(env: &mut Environment<'static>) {
    env.add_filter("abs", filters::abs);
    env.add_filter("bool", filters::bool);
    env.add_filter("count", filters::length);
    env.add_filter("d", filters::default);
    env.add_filter("default", filters::default);
    env.add_filter("dictsort", filters::dictsort);
    env.add_filter("first", filters::first);
    env.add_filter("float", filters::float);
    env.add_filter("int", filters::int);
    env.add_filter("items", filters::items);
    env.add_filter("last", filters::last);
    env.add_filter("length", filters::length);
    env.add_filter("map", filters::map);
    env.add_filter("max", filters::max);
    env.add_filter("min", filters::min);
    env.add_filter("reject", filters::reject);
    env.add_filter("rejectattr", filters::rejectattr);
    env.add_filter("reverse", filters::reverse);
    env.add_filter("round", filters::round);
    env.add_filter("select", filters::select);
    env.add_filter("selectattr", filters::selectattr);
}

fn add_tests(env: &mut Environment<'static>) {
    env.add_test("boolean", tests::is_boolean);
    env.add_test("defined", tests::is_defined);
    env.add_test("divisibleby", tests::is_divisibleby);
    env.add_test("endingwith", tests::is_endingwith);
    env.add_test("even", tests::is_even);
    env.add_test("false", tests::is_false);
    env.add_test("float", tests::is_float);
    env.add_test("in", tests::is_in);
    env.add_test("integer", tests::is_integer);
    env.add_test("iterable", tests::is_iterable);
    env.add_test("lower", tests::is_lower);
    env.add_test("mapping", tests::is_mapping);
    env.add_test("none", tests::is_none);
    env.add_test("number", tests::is_number);
    env.add_test("odd", tests::is_odd);
    env.add_test("sameas", tests::is_sameas);
    env.add_test("sequence", tests::is_sequence);
    env.add_test("startingwith", tests::is_startingwith);
    env.add_test("string", tests::is_string);
    env.add_test("true", tests::is_true);
    env.add_test("undefined", tests::is_undefined);
    env.add_test("upper", tests::is_upper);
    for name in ["eq", "=="] {
        env.add_test(name, tests::is_eq);
    }
    for name in ["ne", "!="] {
        env.add_test(name, tests::is_ne);
    }
    env.add_test("<", tests::is_lt);
    env.add_test("<=", tests::is_le);
    env.add_test(">", tests::is_gt);
    env.add_test(">=", tests::is_ge);
    env.add_test("contains", |state: &State, container: &Value, item: &Value| tests::is_in(state, item, container));
}

fn too_much(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{TOO_MUCH}: {problem}"))
}

/// Pays for reading or making `bytes` of text. What is left is kept with the rendering.
fn spend(state: &mut State, bytes: usize) -> Result<(), Error> {
    const LEFT: &str = "work left";
    let left = state.get_temp(LEFT).and_then(|left| left.as_usize()).unwrap_or(MAX_WORK);
    let left = left.checked_sub(bytes).ok_or_else(|| {
        too_much("filters read or make more than 64 MiB in this rendering; loop over less or truncate first")
    })?;
    state.set_temp(LEFT, Value::from(left));
    Ok(())
}

/// Pays for reading all of a value once.
fn pay_for(state: &mut State, value: &Value) -> Result<(), Error> {
    let size = value.as_str().map_or_else(|| value.len().unwrap_or(0).saturating_mul(16), str::len);
    spend(state, size)
}

/// Pays for a text that is about to be made.
fn making(state: &mut State, bytes: usize) -> Result<(), Error> {
    if bytes > MAX_TEXT {
        return Err(too_much("a text made here would be larger than 1 MiB; truncate first"));
    }
    spend(state, bytes)
}

/// Prints a value: texts and numbers as they are, everything else as JSON, so that what conditions
/// and templates call `true` and `null` is written that way too.
fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Undefined => escape_formatter(out, state, value),
        _ => serde_json::to_writer(Bytes(out), value).map_err(|error| match error.classify() {
            serde_json::error::Category::Io => Error::from(ErrorKind::WriteFailure),
            _ => no_json(),
        }),
    }
}

fn no_json() -> Error {
    Error::new(ErrorKind::InvalidOperation, "this value has no JSON form")
}

/// The value as text: what printing it would show.
fn text<'v>(state: &mut State, value: &'v Value) -> Result<Cow<'v, str>, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if let Some(text) = value.as_str() {
        spend(state, text.len())?;
        return Ok(Cow::Borrowed(text));
    }
    if value.kind() == ValueKind::Number {
        return Ok(Cow::Owned(value.to_string()));
    }
    let json = json(state, value, false)?;
    Ok(Cow::Owned(json))
}

/// The value as JSON, within the bound for texts.
fn json(state: &mut State, value: &Value, pretty: bool) -> Result<String, Error> {
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

/// A text that stops growing at the bound instead of after it.
struct Bounded(String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        if self.0.len() + piece.len() > MAX_TEXT {
            return Err(std::fmt::Error);
        }
        self.0.push_str(piece);
        Ok(())
    }
}

/// A text writer as a byte writer. JSON is written in pieces that are UTF-8 each.
struct Bytes<W>(W);

impl<W: std::fmt::Write> std::io::Write for Bytes<W> {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        let text = std::str::from_utf8(piece).map_err(std::io::Error::other)?;
        self.0.write_str(text).map_err(std::io::Error::other)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn mapped(state: &mut State, value: &Value, change: impl Fn(&str) -> String) -> Result<Value, Error> {
    Ok(Value::from(change(&text(state, value)?)))
}

fn capitalized(s: &str) -> String {
    let mut chars = s.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars.flat_map(char::to_lowercase)).collect())
}

fn replaced(state: &mut State, text: &str, old: &str, new: &str, times: Option<usize>) -> Result<Value, Error> {
    let found = text.matches(old).count().min(times.unwrap_or(usize::MAX));
    making(state, text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::from(text.replacen(old, new, found)))
}

fn joined(state: &mut State, values: &Value, separator: &str) -> Result<Value, Error> {
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

/// `truncate(n)`: at most `n` characters in all, the ellipsis included.
fn truncate(state: &mut State, value: &Value, length: Option<usize>, kwargs: Kwargs) -> Result<Value, Error> {
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
fn tojson(state: &mut State, value: &Value, indent: Option<usize>, kwargs: Kwargs) -> Result<Value, Error> {
    let named: Option<usize> = kwargs.get("indent")?;
    kwargs.assert_all_used()?;
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let pretty = indent.or(named).is_some_and(|width| width > 0);
    Ok(Value::from(json(state, value, pretty)?))
}

/// `regex_search(p)`: the first match of the pattern, or none. Matching is linear in the text.
fn regex_search(state: &mut State, value: &Value, pattern: &str) -> Result<Value, Error> {
    let source = text(state, value)?;
    spend(state, PATTERN_WORK)?;
    if pattern.chars().count() > MAX_PATTERN {
        return Err(too_much("the pattern is longer than 256 characters"));
    }
    let pattern = regex::RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_PATTERN)
        .dfa_size_limit(MAX_COMPILED_PATTERN)
        .nest_limit(16)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => too_much("the pattern is too large once compiled"),
            _ => Error::new(ErrorKind::InvalidOperation, "the pattern is not a regular expression (RE2 syntax)"),
        })?;
    Ok(pattern.find(&source).map_or(Value::from(()), |found| Value::from(found.as_str())))
}

fn range(lower: isize, upper: Option<isize>, step: Option<isize>) -> Result<Value, Error> {
    let range = functions::range(lower, upper, step)?;
    if range.len().is_none_or(|len| len > MAX_RANGE) {
        return Err(too_much("`range` gives at most 1000 numbers"));
    }
    Ok(range)
}

/// Python's methods, of those in the vocabulary.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if !METHODS.contains(&name) {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    pay_for(state, value)?;
    match (value.as_str(), name, args) {
        (Some(separator), "join", [values]) => joined(state, values, separator),
        (Some(source), "replace", [old, new, rest @ ..]) => {
            let times = rest.first().and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok());
            let (old, new) = (text(state, old)?, text(state, new)?);
            replaced(state, source, &old, &new, times)
        }
        _ if value.kind() == ValueKind::String || name != "join" => {
            pycompat::unknown_method_callback(state, value, name, args)
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}
