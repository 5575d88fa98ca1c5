//! Tests of every word and operator of templates with large operands: each charges for the bytes of all its operands,
//! and a loop of it ends.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::budget::MAX_WORK;
use super::{Template, vocabulary};
use crate::{LanguageError, Scope, budget};

/// The size of a large text in bytes, and the approximate charge for a large list or map.
const LARGE: u64 = 300_000;

/// The minimum charge of an expression.
#[derive(Clone, Copy)]
enum Least {
    /// One large operand is read.
    One,
    /// Two large operands are read.
    Both,
    /// Only the type or one number of an operand is read.
    Nothing,
}
use Least::{Both, Nothing, One};

/// The kinds of words: filters, tests, methods, functions and operators.
const TABLE: &[(&str, &str, &str, Least)] = &[
    ("filter", "abs", "5 | abs", Nothing),
    ("filter", "bool", "text | bool", Nothing),
    ("filter", "capitalize", "text | capitalize", One),
    ("filter", "count", "list | count", One),
    ("filter", "d", "text | d('x')", Nothing),
    ("filter", "default", "text | default('x')", Nothing),
    ("filter", "dictsort", "map | dictsort", Both),
    ("filter", "dictsort", "map | dictsort(by='value')", Both),
    ("filter", "first", "list | first", Nothing),
    ("filter", "float", "digits | float(0)", One),
    ("filter", "int", "digits | int(0)", One),
    ("filter", "items", "map | items", One),
    ("filter", "join", "list | join(',')", One),
    ("filter", "join", "['a', 'b', 'c'] | join(text)", One),
    ("filter", "last", "list | last", Nothing),
    ("filter", "length", "text | length", One),
    ("filter", "lines", "text | lines", One),
    ("filter", "list", "text | list", One),
    ("filter", "lower", "text | lower", One),
    ("filter", "map", "list | map('string')", One),
    ("filter", "map", "records | map(attribute=text, default=1)", Both),
    ("filter", "map", "[text, text] | map('replace', text, 'x')", Both),
    ("filter", "max", "list | max", Both),
    ("filter", "max", "[text, same] | max", Both),
    ("filter", "max", "records | max(attribute='name')", One),
    ("filter", "min", "list | min", Both),
    ("filter", "regex_search", "text | regex_search('z')", One),
    ("filter", "regex_search", "text | regex_search('[ab]{9}[^a][a-c]{90}z')", Both),
    ("filter", "reject", "list | reject('in', list)", Both),
    ("filter", "rejectattr", "records | rejectattr('name', 'in', text)", Both),
    ("filter", "replace", "text | replace(same, 'x')", Both),
    ("filter", "replace", "'x' | replace('x', text)", One),
    ("filter", "reverse", "text | reverse", One),
    ("filter", "reverse", "list | reverse", One),
    ("filter", "round", "1.5 | round", Nothing),
    ("filter", "select", "list | select('in', list)", Both),
    ("filter", "select", "[text, text] | select('==', same)", Both),
    ("filter", "selectattr", "records | selectattr(text, 'defined')", Both),
    ("filter", "sort", "list | sort", Both),
    ("filter", "sort", "[text, same, text] | sort", Both),
    ("filter", "sort", "records | sort(attribute='name')", One),
    ("filter", "split", "text | split('b')", One),
    ("filter", "string", "list | string", One),
    ("filter", "title", "text | title", One),
    ("filter", "tojson", "list | tojson", One),
    ("filter", "trim", "text | trim", One),
    ("filter", "trim", "text | trim(same)", Both),
    ("filter", "truncate", "text | truncate(200000)", One),
    ("filter", "truncate", "text | truncate(500000, end=same)", Both),
    ("filter", "unique", "list | unique", Both),
    ("filter", "unique", "[text, same] | unique", Both),
    ("filter", "upper", "text | upper", One),
    ("filter", "urlencode", "text | urlencode", One),
    ("test", "==", "[text] | select('==', same)", One),
    ("test", "!=", "[text] | select('!=', same)", One),
    ("test", "<", "[text] | select('<', same)", One),
    ("test", "<=", "[text] | select('<=', same)", One),
    ("test", ">", "[text] | select('>', same)", One),
    ("test", ">=", "[list] | select('>=', list | list)", One),
    ("test", "boolean", "text is boolean", Nothing),
    ("test", "contains", "text is contains(same)", Both),
    ("test", "defined", "text is defined", Nothing),
    ("test", "divisibleby", "5 is divisibleby(2)", Nothing),
    ("test", "endingwith", "text is endingwith(same)", Both),
    ("test", "eq", "text is eq(same)", One),
    ("test", "even", "5 is even", Nothing),
    ("test", "false", "text is false", Nothing),
    ("test", "float", "text is float", Nothing),
    ("test", "in", "'z' is in(list)", One),
    ("test", "in", "text is in(same)", Both),
    ("test", "in", "text is in([same, same])", Both),
    ("test", "integer", "text is integer", Nothing),
    ("test", "iterable", "text is iterable", One),
    ("test", "lower", "text is lower", One),
    ("test", "mapping", "text is mapping", Nothing),
    ("test", "ne", "text is ne(same)", One),
    ("test", "none", "text is none", Nothing),
    ("test", "number", "text is number", Nothing),
    ("test", "odd", "5 is odd", Nothing),
    ("test", "sameas", "text is sameas(same)", One),
    ("test", "sequence", "text is sequence", Nothing),
    ("test", "startingwith", "text is startingwith(same)", Both),
    ("test", "string", "text is string", Nothing),
    ("test", "true", "text is true", Nothing),
    ("test", "undefined", "text is undefined", Nothing),
    ("test", "upper", "text is upper", One),
    ("method", "capitalize", "text.capitalize()", One),
    ("method", "count", "text.count(same)", Both),
    ("method", "count", "[text, text].count(same)", Both),
    ("method", "endswith", "text.endswith(same)", Both),
    ("method", "endswith", "text.endswith([same, same])", Both),
    ("method", "find", "text.find(same)", Both),
    ("method", "get", "map.get(text)", One),
    ("method", "isalnum", "text.isalnum()", One),
    ("method", "isalpha", "text.isalpha()", One),
    ("method", "isascii", "text.isascii()", One),
    ("method", "isdigit", "digits.isdigit()", One),
    ("method", "islower", "text.islower()", One),
    ("method", "isnumeric", "digits.isnumeric()", One),
    ("method", "isspace", "text.isspace()", One),
    ("method", "isupper", "text.isupper()", One),
    ("method", "items", "map.items()", One),
    ("method", "join", "text.join(['a', 'b', 'c'])", One),
    ("method", "keys", "map.keys()", One),
    ("method", "lower", "text.lower()", One),
    ("method", "lstrip", "text.lstrip(same)", Both),
    ("method", "replace", "text.replace(same, 'x')", Both),
    ("method", "rfind", "text.rfind(same)", Both),
    ("method", "rstrip", "text.rstrip(same)", Both),
    ("method", "split", "text.split('b')", One),
    ("method", "splitlines", "text.splitlines()", One),
    ("method", "startswith", "text.startswith(same)", Both),
    ("method", "strip", "text.strip(same)", Both),
    ("method", "title", "text.title()", One),
    ("method", "upper", "text.upper()", One),
    ("method", "values", "map.values()", One),
    ("function", "range", "range(1000)", Nothing),
    ("operator", "in", "text in same", Both),
    ("operator", "in", "'z' in list", One),
    ("operator", "in", "text in [same, same]", Both),
    ("operator", "in", "text in map", One),
    ("operator", "not in", "text not in same", Both),
    ("operator", "==", "text == same", One),
    ("operator", "==", "list == (list | list)", One),
    ("operator", "==", "map == other", One),
    ("operator", "!=", "text != same", One),
    ("operator", "<", "text < same", One),
    ("operator", "<=", "text <= same", One),
    ("operator", ">", "text > same", One),
    ("operator", ">=", "list >= (list | list)", One),
    ("operator", "chain", "text <= same <= text", Both),
    ("operator", "+", "text + same", Both),
    ("operator", "+", "list + list", Both),
    ("operator", "~", "text ~ same", Both),
    ("operator", "~", "list ~ 'x'", One),
    ("operator", "-", "5 - 2", Nothing),
    ("operator", "*", "5 * 2", Nothing),
    ("operator", "/", "5 / 2", Nothing),
    ("operator", "//", "5 // 2", Nothing),
    ("operator", "%", "5 % 2", Nothing),
    ("operator", "**", "5 ** 2", Nothing),
    ("operator", "-x", "-(5)", Nothing),
    ("operator", "not", "not text", Nothing),
    ("operator", "and", "text and same", Nothing),
    ("operator", "or", "text or same", Nothing),
    ("operator", "if", "text if same else list", Nothing),
    ("operator", "x[y]", "map[text] | default(1)", One),
    ("operator", "x.y", "map.k1", Nothing),
    ("operator", "x[y:z]", "text[1:]", One),
    ("operator", "x[y:z]", "list[::-1]", One),
    ("operator", "[x]", "[text, same]", Nothing),
    ("operator", "{x: y}", "{text: 1}", One),
];

/// The parts of the syntax tree of templates without names: a new operator of the engine has to be added here.
const OPERATORS: [&str; 24] = [
    "in", "not in", "==", "!=", "<", "<=", ">", ">=", "chain", "+", "~", "-", "*", "/", "//", "%", "**", "-x", "not",
    "and", "or", "if", "x[y]", "x.y",
];

fn scope() -> Scope {
    let text = "ab".repeat(200_000);
    let list: Vec<Value> = (0..20_000).map(|at| json!(format!("element {at}"))).collect();
    let records: Vec<Value> = (0..1000).map(|at| json!({"name": format!("{at:0300}")})).collect();
    let map: serde_json::Map<String, Value> = (0..20_000).map(|at| (format!("k{at}"), json!(at))).collect();
    let mut scope = Scope::new();
    scope
        .set("same", json!(text.clone()))
        .set("text", json!(text))
        .set("digits", json!("1".repeat(400_000)))
        .set("list", json!(list))
        .set("records", json!(records))
        .set("other", json!(map))
        .set("map", Value::Object(map));
    scope
}

fn measure_work<T>(run: impl FnOnce() -> T) -> (T, u64) {
    let before = budget::charged();
    let result = run();
    (result, budget::charged() - before)
}

#[test]
fn every_word_is_in_the_table_of_charges() {
    let mut missing = Vec::new();
    let lists = [
        ("filter", vocabulary::FILTERS),
        ("test", vocabulary::TESTS),
        ("method", vocabulary::METHODS),
        ("function", vocabulary::FUNCTIONS),
    ];
    let words = lists.into_iter().flat_map(|(sort, list)| vocabulary::split_words(list).map(move |word| (sort, word)));
    let operators = OPERATORS.into_iter().map(|operator| ("operator", operator));
    for (sort, word) in words.chain(operators) {
        if !TABLE.iter().any(|(kind, name, ..)| *kind == sort && *name == word) {
            missing.push(format!("{sort} {word}"));
        }
    }
    assert!(missing.is_empty(), "not in the table: {}", missing.join(", "));
    let known: BTreeSet<&str> = TABLE.iter().map(|(sort, ..)| *sort).collect();
    assert_eq!(known.len(), 5);
}

#[test]
fn every_word_charges_by_the_sizes_of_all_its_operands() {
    let scope = scope();
    let mut problems = Vec::new();
    for (sort, word, expression, least) in TABLE {
        let source = format!("{{% if ({expression}) is defined %}}{{% endif %}}");
        let template = Template::parse(&source, "spec.value").unwrap();
        let (result, charged) = measure_work(|| template.render(&scope));
        if let Err(error) = &result
            && !matches!(error, LanguageError::Limit { .. })
            && !error.to_string().contains("undefined")
        {
            problems.push(format!("{sort} {word}: {expression}: {error}"));
        }
        let least = match least {
            One => LARGE,
            Both => 2 * LARGE,
            Nothing => 0,
        };
        // An expression that stopped at the limit was charged for everything before it.
        if charged < least && result.is_ok() {
            problems.push(format!("{sort} {word}: {expression}: charged {charged}, reads at least {least}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_loop_over_two_large_operands_ends_within_the_work_of_a_rendering() {
    let scope = scope();
    let mut tried = BTreeSet::new();
    for (sort, word, expression, least) in TABLE {
        // An expression that reads one operand once is limited by its charge; expressions with two operands are tried
        // here.
        if !(matches!(least, Both) || *sort == "operator") || !tried.insert((sort, word)) {
            continue;
        }
        let source =
            format!("{{% for i in range(1000) %}}{{% if ({expression}) is defined %}}{{% endif %}}{{% endfor %}}");
        let template = Template::parse(&source, "spec.value").unwrap();
        let start = Instant::now();
        let (_, charged) = measure_work(|| template.render(&scope));
        let maximum = u64::try_from(MAX_WORK).unwrap() * 2;
        assert!(charged <= maximum, "{sort} {word}: {expression}: charged {charged}");
        assert!(start.elapsed() < Duration::from_secs(120), "{sort} {word}: {expression}: {:?}", start.elapsed());
    }
}

#[test]
fn nested_copies_of_a_value_are_read_within_the_work_of_a_rendering() {
    let mut scope = scope();
    scope.set("x", json!([1]));
    let mut source = String::new();
    for at in 0..20 {
        let inner = if at == 0 { "x".to_owned() } else { format!("y{}", at - 1) };
        source.push_str(&format!("{{% for y{at} in [[{inner}, {inner}, {inner}, {inner}] | list] %}}"));
    }
    for last in
        ["{{ y19 }}", "{{ y19 ~ 'x' }}", "{% if y19 == [y18, y18, y18, y18] %}{% endif %}", "{{ y19 | tojson }}"]
    {
        let source = format!("{source}{last}{}", "{% endfor %}".repeat(20));
        let template = Template::parse(&source, "spec.value").unwrap();
        let (result, charged) = measure_work(|| template.render(&scope));
        assert!(matches!(result, Err(LanguageError::Limit { .. })), "{last}: {result:?}");
        assert!(charged < u64::try_from(MAX_WORK).unwrap() * 2, "{last}: {charged}");
    }
}

#[test]
fn charges_do_not_change_the_results_of_operators() {
    let mut scope = Scope::new();
    scope.set("a", json!(1)).set("b", json!([1, 2, 3])).set("t", json!("abc")).set("m", json!({"k": {"n": 5}}));
    for (source, expected) in [
        ("{{ 1 < a + 1 <= 2 < 3 }}", "true"),
        ("{{ 1 < a < 3 }}", "false"),
        ("{{ a in b in [b] }}", "true"),
        ("{{ 5 not in b }}{{ 'b' in t }}{{ 'k' in m }}", "truetruetrue"),
        ("{{ b[1:] }}{{ b[::-1] }}{{ t[::-1] }}{{ t[1:2] }}", "[2,3][3,2,1]cbab"),
        ("{{ (b[1:]) | length }}{{ (b + [4]) | length }}{{ b + [4] }}", "24[1,2,3,4]"),
        ("{{ m['k'].n }}{{ m.k['n'] }}{{ {'x': a}.x }}{{ {t: a}['abc'] }}", "5511"),
        ("{% for x in b if x > 1 %}{{ x }}{% if loop.last %}.{% endif %}{% else %}none{% endfor %}", "23."),
        ("{% for x in [] %}{% else %}none{% endfor %}", "none"),
        ("{% for x in b %}{{ loop.changed(x > 1) }} {% endfor %}", "true true false "),
        ("{% for k, v in m | items %}{{ k }}={{ v }}{% endfor %}", "k={\"n\":5}"),
        ("{{ 'x' if a == 1 and t ~ 'd' == 'abcd' else 'y' }}", "x"),
        ("{{ t.strip('ac') }}{{ t.lstrip('a') }}{{ t.rstrip('c') }}{{ ' q '.strip() }}", "bbcabq"),
        ("{{ (b | map('string') | join('-')) == '1-2-3' }}", "true"),
        ("raw\n{# gone #}{{ a }}\nraw", "raw\n1\nraw"),
    ] {
        let template = Template::parse(source, "spec.value").unwrap();
        assert_eq!(template.render(&scope), Ok(expected.to_owned()), "{source}");
    }
}
