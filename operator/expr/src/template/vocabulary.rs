//! The vocabulary of templates: all filters, tests, methods and functions.
//!
//! Only listed words of the template engine are available. A listed word reads only its arguments, and its result is
//! within its limit.

use std::borrow::Cow;
use std::sync::LazyLock;

use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Environment, State, UndefinedBehavior, Value, filters, tests};

use super::meter::{Charge, Meter, assert_valid};
use super::metered::{add_charges, collect_elements};
use super::{filters as own, url};

/// The maximum number of steps of the template engine in one rendering.
pub const FUEL: u64 = 20_000;

/// The filters of templates.
pub const FILTERS: &str = "abs bool capitalize count d default dictsort first float int items join last \
    length lines list lower map max min regex_search reject rejectattr replace reverse round select selectattr \
    sort split string title tojson trim truncate unique upper urlencode";

/// The tests of templates (`x is …`).
pub const TESTS: &str = "== != < <= > >= boolean contains defined divisibleby endingwith eq even false float \
    in integer iterable lower mapping ne none number odd sameas sequence startingwith string true undefined upper";

/// The methods of texts, maps and lists, as in Python.
pub const METHODS: &str = "capitalize count endswith find get isalnum isalpha isascii isdigit islower \
    isnumeric isspace isupper items join keys lower lstrip replace rfind rstrip split splitlines startswith strip \
    title upper values";

/// The functions of templates.
pub const FUNCTIONS: &str = "range";

/// Names that exist in every template in addition to the scope's.
pub(super) const CONSTANTS: &str = "null";

/// Returns the words of a list.
pub(super) fn split_words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_whitespace()
}

/// Whether a list contains this word.
pub(super) fn has_word(list: &'static str, word: &str) -> bool {
    split_words(list).any(|known| known == word)
}

/// Returns the template engine with exactly the vocabulary of this module. The engine has no state of a rendering.
pub(super) fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(build);
    &ENVIRONMENT
}

/// Returns the engine for URLs, which prints every value in a frame.
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
    // The charging instructions count as further steps.
    env.set_fuel(Some(2 * FUEL));
    env.set_recursion_limit(64);
    env.set_unknown_method_callback(own::call_method);
    env.set_formatter(own::print);
    env.add_global("null", Value::from(()));
    env.add_function("range", own::range);
    add_own_filters(&mut env);
    add_engine_filters(&mut env);
    add_tests(&mut env);
    add_charges(&mut env);
    env
}

fn add_own_filters(env: &mut Environment<'static>) {
    env.add_filter("capitalize", |state: &mut State, v: &Value| own::change_text(state, v, own::capitalize));
    env.add_filter("lower", |state: &mut State, v: &Value| own::change_text(state, v, str::to_lowercase));
    env.add_filter("string", |state: &mut State, v: &Value| own::change_text(state, v, str::to_owned));
    env.add_filter("title", |state: &mut State, v: &Value| {
        own::change_text(state, v, |s| filters::title(Cow::Borrowed(s)))
    });
    env.add_filter("upper", |state: &mut State, v: &Value| own::change_text(state, v, str::to_uppercase));
    env.add_filter("join", own::join);
    env.add_filter("regex_search", own::regex_search);
    env.add_filter("replace", own::replace);
    env.add_filter("split", own::split);
    env.add_filter("tojson", own::tojson);
    env.add_filter("trim", own::trim);
    env.add_filter("truncate", own::truncate);
    env.add_filter("urlencode", url::urlencode);
}

/// Adds filters of the engine, each with its cost.
fn add_engine_filters(env: &mut Environment<'static>) {
    // Filters that read one value, or each element of a list once.
    let shallow: [(&'static str, Value); 9] = [
        ("count", Value::from_function(filters::length)),
        ("float", Value::from_function(filters::float)),
        ("int", Value::from_function(filters::int)),
        ("last", Value::from_function(filters::last)),
        ("length", Value::from_function(filters::length)),
        ("map", Value::from_function(filters::map)),
        ("reject", Value::from_function(filters::reject)),
        ("select", Value::from_function(filters::select)),
        // The result of `reverse` is computed during the iteration.
        ("reverse", Value::from_function(filters::reverse)),
    ];
    for (name, function) in shallow {
        add_metered(env, name, function, own::charge_elements);
    }
    // Filters that read the type of a value, a number, or the first element of a list.
    env.add_filter("abs", filters::abs);
    env.add_filter("bool", |state: &State, value: &Value| {
        assert_valid(value)?;
        filters::bool(state, value)
    });
    env.add_filter("d", filters::default);
    env.add_filter("default", filters::default);
    env.add_filter("first", filters::first);
    env.add_filter("round", filters::round);
    add_metered(env, "rejectattr", Value::from_function(filters::rejectattr), own::charge_attributes);
    add_metered(env, "selectattr", Value::from_function(filters::selectattr), own::charge_attributes);
    add_metered(env, "items", Value::from_function(filters::items), own::charge_elements);
    add_metered(env, "lines", Value::from_function(filters::lines), own::charge_parts);
    add_metered(env, "list", Value::from_function(filters::list), own::charge_parts);
    add_metered(env, "dictsort", Value::from_function(filters::dictsort), |meter, operands| {
        own::charge_order(meter, operands, true)
    });
    add_metered(env, "max", Value::from_function(filters::max), |meter, operands| {
        own::charge_order(meter, operands, false)
    });
    add_metered(env, "min", Value::from_function(filters::min), |meter, operands| {
        own::charge_order(meter, operands, false)
    });
    add_metered(env, "sort", Value::from_function(filters::sort), |meter, operands| {
        own::charge_order(meter, operands, true)
    });
    add_metered(env, "unique", Value::from_function(filters::unique), own::charge_unique);
}

/// Adds a filter of the engine that is charged before it runs, and whose result is collected.
fn add_metered(env: &mut Environment<'static>, name: &'static str, function: Value, charge: Charge) {
    env.add_filter(name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
        let arguments = arguments.into_values();
        Meter::run(state, |meter| charge(meter, &arguments))?;
        let result = function.call(state, &arguments)?;
        collect_elements(state, result)
    });
}

fn add_tests(env: &mut Environment<'static>) {
    let tests: [(&'static str, Value, Charge); 31] = [
        ("boolean", Value::from_function(tests::is_boolean), own::charge_count),
        ("defined", Value::from_function(tests::is_defined), own::charge_count),
        ("divisibleby", Value::from_function(own::is_divisible_by), own::charge_count),
        ("endingwith", Value::from_function(tests::is_endingwith), own::charge_all),
        ("even", Value::from_function(tests::is_even), own::charge_count),
        ("false", Value::from_function(tests::is_false), own::charge_count),
        ("float", Value::from_function(tests::is_float), own::charge_count),
        ("in", Value::from_function(tests::is_in), own::charge_in),
        ("integer", Value::from_function(tests::is_integer), own::charge_count),
        ("iterable", Value::from_function(tests::is_iterable), own::charge_elements),
        ("lower", Value::from_function(tests::is_lower), own::charge_elements),
        ("mapping", Value::from_function(tests::is_mapping), own::charge_count),
        ("none", Value::from_function(tests::is_none), own::charge_count),
        ("number", Value::from_function(tests::is_number), own::charge_count),
        ("odd", Value::from_function(tests::is_odd), own::charge_count),
        ("sameas", Value::from_function(tests::is_sameas), own::charge_comparison),
        ("sequence", Value::from_function(tests::is_sequence), own::charge_count),
        ("startingwith", Value::from_function(tests::is_startingwith), own::charge_all),
        ("string", Value::from_function(tests::is_string), own::charge_count),
        ("true", Value::from_function(tests::is_true), own::charge_count),
        ("undefined", Value::from_function(tests::is_undefined), own::charge_count),
        ("upper", Value::from_function(tests::is_upper), own::charge_elements),
        ("eq", Value::from_function(tests::is_eq), own::charge_comparison),
        ("==", Value::from_function(tests::is_eq), own::charge_comparison),
        ("ne", Value::from_function(tests::is_ne), own::charge_comparison),
        ("!=", Value::from_function(tests::is_ne), own::charge_comparison),
        ("<", Value::from_function(tests::is_lt), own::charge_comparison),
        ("<=", Value::from_function(tests::is_le), own::charge_comparison),
        (">", Value::from_function(tests::is_gt), own::charge_comparison),
        (">=", Value::from_function(tests::is_ge), own::charge_comparison),
        ("contains", Value::from_function(contains), own::charge_contains),
    ];
    for (name, function, charge) in tests {
        env.add_test(name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
            let arguments = arguments.into_values();
            arguments.iter().try_for_each(assert_valid)?;
            Meter::run(state, |meter| charge(meter, &arguments))?;
            function.call(state, &arguments)
        });
    }
}

fn contains(state: &State, container: &Value, item: &Value) -> Result<bool, minijinja::Error> {
    tests::is_in(state, item, container)
}
