//! The formats of `-o`: an object or a List as JSON, as YAML, as names, by a JSONPath template, or in custom columns.
//!
//! The commands render the tables for people themselves.

mod jsonpath;
pub mod wrap;

use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde_json::Value;
use signoff_cli::{
    sanitize::{self, hides, one_line},
    table::render_table,
    terminal,
};
use signoff_expr::text::display;

use crate::error::Failure;

use jsonpath::{Path, Template, render_plain};

/// The longest cell of a custom column, in characters.
const LONGEST_CELL: usize = 4096;

/// The names of the formats that shell completion offers.
pub const FORMATS: [&str; 6] = ["wide", "name", "json", "yaml", "jsonpath=", "custom-columns="];

/// The options of commands that print objects.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// The format: wide, name, json, yaml, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,...
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Format>,
    /// Print tables without their header line
    #[arg(long)]
    pub no_headers: bool,
    /// Keep metadata.managedFields in the output
    #[arg(long)]
    pub show_managed_fields: bool,
}

/// The option of commands that print facts instead of an object. The guides document the shape of the facts.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactsArgs {
    /// Print the result for programs
    #[arg(short = 'o', long = "output", value_enum, value_name = "json|yaml")]
    pub facts: Option<FactsFormat>,
}

/// A format of facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FactsFormat {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl FactsArgs {
    /// Renders facts in the chosen format, or returns `None` without the option. Documents of YAML begin with `---`.
    ///
    /// # Errors
    /// The facts cannot be serialized.
    pub fn render(self, facts: &Value) -> Result<Option<String>, Failure> {
        Ok(Some(match self.facts {
            None => return Ok(None),
            Some(FactsFormat::Json) => json(facts)?,
            Some(FactsFormat::Yaml) => format!("---\n{}\n", yaml(facts)?.trim_end()),
        }))
    }
}

/// The format that `-o` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// More columns.
    Wide,
    /// One `approval.signoff.dev/NAME` a line.
    Name,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// A JSONPath template.
    JsonPath(Template),
    /// A table with these columns.
    CustomColumns(Vec<Column>),
}

/// A column of `custom-columns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    header: String,
    path: Path,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let (format, argument) = typed.split_once('=').map_or((typed, None), |(format, rest)| (format, Some(rest)));
        match (format, argument) {
            ("wide", None) => Ok(Self::Wide),
            ("name", None) => Ok(Self::Name),
            ("json", None) => Ok(Self::Json),
            ("yaml", None) => Ok(Self::Yaml),
            ("jsonpath", Some(template)) if !template.is_empty() => Template::parse(template).map(Self::JsonPath),
            ("jsonpath", _) => Err("a template is missing; write jsonpath={.metadata.name}".to_owned()),
            ("custom-columns", Some(columns)) if !columns.is_empty() => {
                columns.split(',').map(parse_column).collect::<Result<_, _>>().map(Self::CustomColumns)
            }
            ("custom-columns", _) => {
                Err("columns are missing; write custom-columns=NAME:.metadata.name,GATE:.spec.request.gate.path"
                    .to_owned())
            }
            _ => {
                Err("unknown format; write wide, name, json, yaml, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,..."
                    .to_owned())
            }
        }
    }
}

fn parse_column(text: &str) -> Result<Column, String> {
    let (header, path) = text
        .split_once(':')
        .filter(|(header, path)| !header.is_empty() && !path.is_empty())
        .ok_or_else(|| format!("`{text}` is not a column; write HEADER:PATH, such as NAME:.metadata.name"))?;
    Ok(Column { header: header.to_owned(), path: Path::parse_relaxed(path)? })
}

impl OutputArgs {
    /// Renders an object, or a `List` of objects, in the chosen format. Leaves managed fields out without the option
    /// that keeps them. Returns `None` if the command renders its own table.
    ///
    /// # Errors
    /// The document cannot be written in this format.
    pub fn render(&self, mut document: Value) -> Result<Option<String>, Failure> {
        if !self.show_managed_fields {
            items_mut(&mut document).into_iter().for_each(remove_managed_fields);
        }
        Ok(Some(match &self.output {
            None | Some(Format::Wide) => return Ok(None),
            Some(Format::Json) => json(&document)?,
            Some(Format::Yaml) => yaml(&document)?,
            Some(Format::Name) => items(&document).into_iter().map(render_name).collect::<Result<_, _>>()?,
            Some(Format::JsonPath(template)) => {
                escape_for_terminal(template.render(&document), terminal::is_stdout_terminal())
            }
            Some(Format::CustomColumns(columns)) => self.table(render_columns(columns, &document)),
        }))
    }

    /// Returns the table, without its first line if `--no-headers` is set.
    pub fn table(&self, table: String) -> String {
        match table.split_once('\n') {
            Some((_, rows)) if self.no_headers => rows.to_owned(),
            _ => table,
        }
    }
}

/// Returns the objects of a List, or the object itself.
fn items(document: &Value) -> Vec<&Value> {
    match (document["kind"].as_str(), document["items"].as_array()) {
        (Some("List"), Some(items)) => items.iter().collect(),
        _ => vec![document],
    }
}

fn items_mut(document: &mut Value) -> Vec<&mut Value> {
    if document["kind"] == "List" && document["items"].is_array() {
        return document["items"].as_array_mut().into_iter().flatten().collect();
    }
    vec![document]
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
}

/// Returns the exact text for programs. For a terminal, escapes characters that move the cursor or hide text.
fn escape_for_terminal(text: String, is_terminal: bool) -> String {
    if is_terminal { display(&text, usize::MAX) } else { text }
}

fn render_name(object: &Value) -> Result<String, Failure> {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    match (object["metadata"]["name"].as_str(), group) {
        (Some(name), Some(group)) => Ok(format!("{kind}.{group}/{}\n", one_line(name, 253))),
        _ => Err(Failure::Usage("-o name: this object has no name; use -o json".to_owned())),
    }
}

fn render_columns(columns: &[Column], document: &Value) -> String {
    let headers: Vec<_> = columns.iter().map(|column| one_line(&column.header, 253)).collect();
    let headers: Vec<_> = headers.iter().map(String::as_str).collect();
    let row = |object: &Value| columns.iter().map(|column| render_cell(column, object)).collect();
    render_table(&headers, items(document).into_iter().map(row).collect())
}

fn render_cell(column: &Column, object: &Value) -> String {
    let values: Vec<_> = column.path.values(object, object).into_iter().map(render_plain).collect();
    if values.is_empty() { "<none>".to_owned() } else { one_line(&values.join(","), LONGEST_CELL) }
}

/// Returns a value as indented JSON that is also safe on a terminal.
///
/// # Errors
/// The value cannot be serialized.
pub fn json(document: &Value) -> Result<String, Failure> {
    sanitize::json(document).map_err(|error| Failure::Other(error.to_string()))
}

/// Returns a value as YAML, or as JSON if the YAML would hide characters.
fn yaml(document: &Value) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(document).map_err(|error| Failure::Other(error.to_string()))?;
    // YAML's plain and block styles have no escapes. JSON is YAML too, and has escapes.
    if hides(&text) { json(document) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn list(prompt: &str) -> Value {
        let approval = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval",
            "metadata": {"name": "a-1", "managedFields": [{"manager": "x"}]}, "spec": {"request": {"prompt": prompt}}});
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": [approval]})
    }

    fn render(format: &str, document: Value) -> String {
        let args = OutputArgs { output: Some(format.parse().unwrap()), ..OutputArgs::default() };
        args.render(document).unwrap().unwrap()
    }

    #[test]
    fn every_format_prints_a_list_and_an_object() {
        let object = list("Send?")["items"][0].clone();
        assert_eq!(render("name", list("Send?")), "approval.signoff.dev/a-1\n");
        assert_eq!(render("name", object.clone()), "approval.signoff.dev/a-1\n");
        assert_eq!(render("jsonpath={.items[*].metadata.name}", list("Send?")), "a-1");
        assert_eq!(render("jsonpath={.metadata.name}", object.clone()), "a-1");
        let columns = "custom-columns=NAME:.metadata.name,ASKS:.spec.request.prompt,NOT:.spec.nothing";
        assert_eq!(render(columns, list("Send?")), "NAME   ASKS    NOT\na-1    Send?   <none>\n");
        assert_eq!(render(columns, object), "NAME   ASKS    NOT\na-1    Send?   <none>\n");
        assert!(render("yaml", list("Send?")).starts_with("apiVersion: v1\nkind: List\n"));
        let wide = OutputArgs { output: Some(Format::Wide), ..OutputArgs::default() };
        assert_eq!(wide.render(list("Send?")).unwrap(), None);
    }

    #[test]
    fn facts_are_printed_for_programs_on_demand() {
        let facts = json!({"operator": {"state": "alive\u{202e}"}});
        assert_eq!(FactsArgs::default().render(&facts).unwrap(), None);
        for format in [FactsFormat::Json, FactsFormat::Yaml] {
            let text = FactsArgs { facts: Some(format) }.render(&facts).unwrap().unwrap();
            assert!(
                !hides(&text) && text.starts_with(if format == FactsFormat::Json { "{" } else { "---\n" }),
                "{text}"
            );
            assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), facts);
        }
    }

    #[test]
    fn managed_fields_are_printed_only_on_demand() {
        for format in ["json", "yaml"] {
            assert!(!render(format, list("Send?")).contains("managedFields"));
            let args = OutputArgs { output: format.parse().ok(), show_managed_fields: true, ..OutputArgs::default() };
            assert!(args.render(list("Send?")).unwrap().unwrap().contains("managedFields"));
        }
    }

    #[test]
    fn headers_are_dropped_on_demand() {
        let args = OutputArgs {
            no_headers: true,
            output: "custom-columns=N:.metadata.name".parse().ok(),
            ..OutputArgs::default()
        };
        assert_eq!(args.render(list("Send?")).unwrap().unwrap(), "a-1\n");
        assert_eq!(args.table("NAME\nx\n".to_owned()), "x\n");
    }

    #[test]
    fn machine_readable_formats_keep_the_object_and_hide_nothing() {
        let hostile = "a\u{202e}b\u{9b}c\nfake";
        let mut expected = list(hostile);
        remove_managed_fields(&mut expected["items"][0]);
        for format in ["json", "yaml"] {
            let text = render(format, list(hostile));
            assert!(!hides(&text), "{text}");
            assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), expected);
        }
        let row = render("custom-columns=ASKS:.spec.request.prompt", list(hostile));
        assert!(row.lines().count() == 2 && !hides(&row), "{row}");
        assert!(!hides(&escape_for_terminal(hostile.to_owned(), true)));
        assert_eq!(escape_for_terminal(hostile.to_owned(), false), hostile);
    }

    #[test]
    fn an_unknown_format_is_refused_with_the_known_formats() {
        for (typed, why) in [
            ("xml", "unknown format; write wide, name, json"),
            ("json=x", "unknown format"),
            ("jsonpath", "a template is missing"),
            ("jsonpath={.a", "is not closed"),
            ("custom-columns=", "columns are missing"),
            ("custom-columns=NAME", "`NAME` is not a column"),
            ("custom-columns=NAME:.a[", "a bracket is not closed"),
            ("jsonpath-as-json={.a}", "unknown format"),
        ] {
            let refusal = typed.parse::<Format>().unwrap_err();
            assert!(refusal.contains(why), "{typed}: {refusal}");
        }
    }
}
