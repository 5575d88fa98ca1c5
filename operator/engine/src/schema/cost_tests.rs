//! Tests that every keyword that `jsonschema` evaluates is charged or refused. The time of a charged step is measured
//! by `cargo xtask bench schemas`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use super::cost_table::table;
use super::{MAX_STEPS, REFUSED, Schema};

/// The release of `jsonschema` whose keywords are in this table. Before this is changed to another release, read its
/// `src/keywords/mod.rs` again.
const READ: &str = "name = \"jsonschema\"\nversion = \"0.60.2\"";
/// The keywords of that file, and those that they read in addition.
const KEYWORDS: [&str; 46] = [
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "then",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

#[test]
fn every_row_of_the_table_is_evaluated_within_the_allowance() {
    let rows = table();
    println!("tried: {} rows of schemas and values", rows.len());
    for (keyword, schema, value) in rows {
        let compiled = Schema::of_value(&schema).unwrap_or_else(|why| panic!("{keyword}: {why}"));
        let steps = compiled.steps(&value);
        assert!(steps <= MAX_STEPS, "{keyword}: {steps} steps: {schema:.200}");
        // Each value is charged at least once for each value of the schema.
        assert!(
            steps >= compiled.measure.values * super::size(&value).values(),
            "{keyword}: {steps} steps: {schema:.200}"
        );
    }
}

#[test]
fn every_keyword_of_the_crate_is_in_the_table_or_refused() {
    assert!(
        include_str!("../../../../Cargo.lock").contains(READ),
        "another jsonschema: read its keywords, run `cargo xtask bench schemas`, and name it in READ"
    );
    let known: BTreeSet<&str> =
        table().iter().map(|(keyword, _, _)| *keyword).chain(REFUSED.iter().map(|(keyword, _)| *keyword)).collect();
    let unknown: Vec<&str> = KEYWORDS.into_iter().filter(|keyword| !known.contains(keyword)).collect();
    assert_eq!(unknown, [] as [&str; 0]);
}
