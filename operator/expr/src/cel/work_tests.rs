//! Tests of every function, macro and operator of conditions with large operands: each charges for the bytes that it
//! reads, and none exceeds the work of an evaluation.

#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};

use super::evaluate::MAX_WORK;
use super::{Condition, words};
use crate::{LanguageError, Scope, budget};

/// The size of a large operand, in bytes.
const LARGE: u64 = 300_000;

/// The name, an expression, and the number of large operands that it reads.
const TABLE: &[(&str, &str, u64)] = &[
    ("size", "size(text) > 0", 1),
    ("size", "text.size() > 0", 1),
    ("int", "int(text) > 0", 1),
    ("double", "double(text) > 0.0", 1),
    ("string", "string(text) == ''", 1),
    ("bool", "bool(text)", 1),
    ("dyn", "dyn(text) == ''", 1),
    ("contains", "text.contains(same)", 2),
    ("startsWith", "text.startsWith(same)", 2),
    ("endsWith", "text.endsWith(same)", 2),
    ("lowerAscii", "text.lowerAscii() == ''", 1),
    ("upperAscii", "text.upperAscii() == ''", 1),
    ("trim", "text.trim() == ''", 1),
    ("split", "text.split(same).size() > 0", 2),
    ("join", "[text, same].join() == ''", 2),
    ("replace", "text.replace(same, 'x') == ''", 2),
    ("replace", "'x'.replace('x', text) == ''", 1),
    ("substring", "text.substring(1, 2) == ''", 1),
    ("indexOf", "text.indexOf(same) == 0", 2),
    ("matches", "text.matches('z')", 1),
    ("matches", "text.matches('[ab]{9}[^a][a-c]{90}z')", 2),
    ("has", "has(map.x)", 0),
    ("exists", "words.exists(w, w == same)", 1),
    ("exists_one", "words.exists_one(w, w == same)", 1),
    ("existsOne", "words.existsOne(w, w == same)", 1),
    ("all", "words.all(w, w == same)", 1),
    ("filter", "words.filter(w, w == same).size() == 0", 1),
    ("map", "words.map(w, w == same).size() == 0", 1),
    ("==", "text == same", 1),
    ("==", "list == other", 1),
    ("==", "map == map", 1),
    ("!=", "text != same", 1),
    ("<", "text < same", 1),
    ("<=", "text <= same", 1),
    (">", "text > same", 1),
    (">=", "text >= same", 1),
    ("in", "'z' in list", 1),
    ("in", "text in words", 1),
    ("in", "text in map", 1),
    ("+", "(text + same) == ''", 2),
    ("+", "(list + other).size() == 0", 1),
    ("-", "5 - 2 == 3", 0),
    ("*", "5 * 2 == 10", 0),
    ("/", "5 / 2 == 2", 0),
    ("%", "5 % 2 == 1", 0),
    ("[]", "map[text] == 1", 1),
];

fn scope() -> Scope {
    let text = "ab".repeat(200_000);
    let list: Vec<Value> = (0..20_000).map(|at| json!(format!("element {at}"))).collect();
    let map: serde_json::Map<String, Value> = (0..20_000).map(|at| (format!("k{at}"), json!(at))).collect();
    let mut scope = Scope::new();
    scope
        .set("same", json!(text.clone()))
        .set("words", json!(vec![text.clone(); 10]))
        .set("text", json!(text))
        .set("other", json!(list.clone()))
        .set("list", json!(list))
        .set("map", Value::Object(map));
    scope
}

#[test]
fn every_word_of_conditions_is_in_the_table_of_charges() {
    let operators = ["==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%", "[]"];
    let all_words = words::macros().chain(words::functions()).chain(words::methods()).chain(operators);
    let missing: Vec<_> = all_words.filter(|word| !TABLE.iter().any(|(name, ..)| name == word)).collect();
    assert!(missing.is_empty(), "not in the table: {}", missing.join(", "));
}

#[test]
fn every_word_of_conditions_charges_by_the_sizes_of_its_operands() {
    let scope = scope();
    let maximum = u64::try_from(MAX_WORK).unwrap() * 32;
    let mut problems = Vec::new();
    for (word, source, large) in TABLE {
        let condition = Condition::parse(source, "spec.when").unwrap();
        let before = budget::charged();
        let result = condition.evaluate(&scope);
        let charged = budget::charged() - before;
        // Work beyond the limit was charged before it was done.
        if charged < large * LARGE || (charged > 2 * maximum && !matches!(result, Err(LanguageError::Limit { .. }))) {
            problems.push(format!("{word}: {source}: charged {charged}: {result:?}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
