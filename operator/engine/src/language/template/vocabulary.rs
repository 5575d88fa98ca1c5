//! The words of templates: every filter, test, method and function there is.
//!
//! Nothing that the template engine brings along is available unless it is listed here, and
//! nothing may be listed that reads more than its arguments or makes more than its bound.

use std::borrow::Cow;
use std::sync::LazyLock;

use minijinja::value::Kwargs;
use minijinja::{Environment, State, UndefinedBehavior, Value, filters, tests};

use super::budget::pay_for;
use super::{filters as own, url};

/// Steps of the template engine in one rendering.
pub(in crate::language) const FUEL: u64 = 20_000;

/// The filters of templates.
pub(in crate::language) const FILTERS: &str = "abs bool capitalize count d default dictsort first float int items join last \
    length lines list lower map max min regex_search reject rejectattr replace reverse round select selectattr \
    sort split string title tojson trim truncate unique upper urlencode";

/// The tests of templates (`x is …`).
pub(in crate::language) const TESTS: &str = "== != < <= > >= boolean contains defined divisibleby endingwith eq even false float \
    in integer iterable lower mapping ne none number odd sameas sequence startingwith string true undefined upper";

/// The methods of texts, maps and lists, as in Python.
pub(in crate::language) const METHODS: &str = "capitalize count endswith find get isalnum isalpha isascii isdigit islower \
    isnumeric isspace isupper items join keys lower lstrip replace rfind rstrip split splitlines startswith strip \
    title upper values";

/// The functions of templates.
pub(in crate::language) const FUNCTIONS: &str = "range";

/// Names that exist in every template besides the scope's.
pub(super) const CONSTANTS: &str = "null";

/// The words of a list.
pub(super) fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_whitespace()
}

/// Whether a list has this word.
pub(super) fn has(list: &'static str, word: &str) -> bool {
    words(list).any(|w| w == word)
}

/// The template engine with exactly this vocabulary. It holds no state of any rendering.
pub(super) fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(build);
    &ENVIRONMENT
}

/// The same for a URL: every value is printed in a frame.
pub(super) fn url_environment() -> &'static Environment<'static> {
    static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
        let mut env = build();
        env.set_formatter(url::print_framed);
        env
    });
    &ENVIRONMENT
}

fn build() -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(64);
    env.set_unknown_method_callback(own::method);
    env.set_formatter(own::print);
    env.add_global("null", Value::from(()));
    env.add_function("range", own::range);
    add_own_filters(&mut env);
    add_engine_filters(&mut env);
    add_tests(&mut env);
    env
}

fn add_own_filters(env: &mut Environment<'static>) {
    env.add_filter("capitalize", |state: &mut State, v: &Value| own::mapped(state, v, own::capitalize));
    env.add_filter("lower", |state: &mut State, v: &Value| own::mapped(state, v, str::to_lowercase));
    env.add_filter("string", |state: &mut State, v: &Value| own::mapped(state, v, str::to_owned));
    env.add_filter("title", |state: &mut State, v: &Value| own::mapped(state, v, |s| filters::title(Cow::Borrowed(s))));
    env.add_filter("upper", |state: &mut State, v: &Value| own::mapped(state, v, str::to_uppercase));
    env.add_filter("join", own::join);
    env.add_filter("regex_search", own::regex_search);
    env.add_filter("replace", own::replace);
    env.add_filter("split", own::split);
    env.add_filter("tojson", own::tojson);
    env.add_filter("trim", own::trim);
    env.add_filter("truncate", own::truncate);
    env.add_filter("urlencode", url::urlencode);
}

/// Filters that pick from what is there and make nothing larger than it.
fn add_engine_filters(env: &mut Environment<'static>) {
    env.add_filter("abs", filters::abs);
    env.add_filter("bool", filters::bool);
    env.add_filter("count", filters::length);
    env.add_filter("d", filters::default);
    env.add_filter("default", filters::default);
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
    env.add_filter("round", filters::round);
    env.add_filter("select", filters::select);
    env.add_filter("selectattr", filters::selectattr);
    // These make a copy, which is paid for.
    env.add_filter("dictsort", |state: &mut State, v: &Value, kwargs: Kwargs| {
        pay_for(state, v).and_then(|()| filters::dictsort(v, kwargs))
    });
    env.add_filter("lines", |state: &mut State, v: &Value| pay_for(state, v).and_then(|()| filters::lines(v)));
    env.add_filter("list", |state: &mut State, v: Value| pay_for(state, &v).and_then(|()| filters::list(state, v)));
    env.add_filter("reverse", |state: &mut State, v: &Value| pay_for(state, v).and_then(|()| filters::reverse(v)));
    env.add_filter("sort", |state: &mut State, v: Value, kwargs: Kwargs| {
        pay_for(state, &v).and_then(|()| filters::sort(state, v, kwargs))
    });
    env.add_filter("unique", |state: &mut State, v: Value, kwargs: Kwargs| {
        pay_for(state, &v).and_then(|()| filters::unique(state, v, kwargs))
    });
}

fn add_tests(env: &mut Environment<'static>) {
    env.add_test("boolean", tests::is_boolean);
    env.add_test("defined", tests::is_defined);
    env.add_test("divisibleby", own::is_divisible_by);
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
