//! JSON Schemas: the time of a charged step of each keyword, beside that of `type`. The program
//! `operator/engine/benches/schemas.rs` measures it, built as the engine is shipped.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use signoff_tests::cargo::{cargo, output};
use signoff_tests::say;

use super::table::table;

/// One line of the program's output.
#[derive(Debug, Deserialize)]
struct Keyword {
    keyword: String,
    rows: usize,
    /// The time of a step in the slowest row.
    nanoseconds: f64,
    ratio: f64,
    schema: String,
}

pub(super) fn measure() -> Result<String> {
    say::step("building the engine as it is shipped, and judging values");
    let text = output(&mut cargo(&["bench", "--quiet", "--package", "signoff-engine", "--bench", "schemas"]))?;
    let keywords: Vec<Keyword> = text
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("the benchmark of schemas says {line}")))
        .collect::<Result<_>>()?;
    ensure!(!keywords.is_empty(), "the benchmark of schemas says nothing");
    Ok(render(keywords))
}

fn render(mut keywords: Vec<Keyword>) -> String {
    keywords.sort_by(|one, other| other.ratio.total_cmp(&one.ratio));
    let head = ["keyword, slowest first", "rows", "ns a step", ": type", "the slowest schema"];
    let row = |one: &Keyword| {
        vec![one.rows.to_string(), format!("{:.1}", one.nanoseconds), format!("{:.1}", one.ratio), one.schema.clone()]
    };
    table(&head.map(str::to_owned), keywords.iter().map(|one| (one.keyword.as_str(), row(one))))
}

#[cfg(test)]
mod tests {
    use super::{Keyword, render};

    #[test]
    fn the_slowest_keyword_comes_first() {
        let line = |keyword: &str, ratio: f64| {
            format!(r#"{{"keyword": "{keyword}", "rows": 3, "nanoseconds": 12.34, "ratio": {ratio}, "schema": "s"}}"#)
        };
        let keywords: Vec<Keyword> = [line("not", 0.5), line("format", 4.25)]
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let shown = render(keywords);
        assert!(shown.contains("12.3") && shown.contains("4.2"), "{shown}");
        assert!(shown.find("format") < shown.find("not "), "{shown}");
    }
}
