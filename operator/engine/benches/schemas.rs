//! The time of a charged step of each keyword of JSON Schema, beside that of `type`: a line of JSON a keyword.
//!
//! Reports times only: `cargo xtask bench schemas` builds it in the release profile of the engine and prints the
//! numbers.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures the engine from outside")]
#![allow(clippy::print_stdout, reason = "its output is the result")]

#[path = "../src/schema/cost_table.rs"]
mod cost_table;

use std::{collections::BTreeMap, hint::black_box, time::Instant};

use serde_json::{Value, json};
use signoff_engine::Schema;

/// The evaluations of each row. The fastest counts, because other programs only slow one down.
const TIMES: usize = 3;

/// The slowest row of a keyword.
struct Slowest {
    rows: usize,
    nanoseconds: f64,
    schema: Value,
}

fn main() {
    let plain = step(&json!({"items": {"allOf": vec![json!({"type": "integer"}); 50]}}), &json!(vec![7; 2_000]));
    let mut keywords: BTreeMap<&str, Slowest> = BTreeMap::new();
    for (keyword, schema, value) in cost_table::table() {
        let nanoseconds = step(&schema, &value);
        let none = Slowest { rows: 0, nanoseconds: 0.0, schema: Value::Null };
        let slowest = keywords.entry(keyword).or_insert(none);
        slowest.rows += 1;
        if nanoseconds > slowest.nanoseconds {
            (slowest.nanoseconds, slowest.schema) = (nanoseconds, schema);
        }
    }
    for (keyword, Slowest { rows, nanoseconds, schema }) in keywords {
        let schema = format!("{:.80}", schema.to_string());
        let ratio = nanoseconds / plain;
        println!(
            "{}",
            json!({"keyword": keyword, "rows": rows, "nanoseconds": nanoseconds, "ratio": ratio, "schema": schema})
        );
    }
}

/// Returns the nanoseconds of a charged step.
fn step(schema: &Value, value: &Value) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..TIMES {
        // The validations of one compiled schema share one budget.
        let compiled = Schema::of_value(schema).unwrap_or_else(|why| panic!("{why}: {schema:.200}"));
        let began = Instant::now();
        black_box(compiled.is_valid(value)).unwrap_or_else(|why| panic!("{why}: {schema:.200}"));
        best = best.min(began.elapsed().as_secs_f64() * 1e9 / compiled.steps(value) as f64);
    }
    best
}
