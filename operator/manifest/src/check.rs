//! All problems of the documents of a text: YAML, fields, schema, and errors of the plan.
//!
//! The check continues after a problem, so that an author sees all of them at once.

mod kubectl;

use std::sync::Arc;

use signoff_api::{
    GROUP, Json, VERSION, Workflow, names,
    workflow::{Input, InputType, Provider},
};
use signoff_engine::{FieldError, Plan, Settings};
use signoff_expr::nearest;

use crate::{
    old_fields,
    problem::{Problem, Problems, Severity, place},
    schema,
    source::{self, Node},
};

/// The assumed requester of a file: the API server writes the real one.
pub const REQUESTER: &str = "the requester";

/// The maximum number of characters of the name of a Workflow, which its Pods have in a label.
const MAX_WORKFLOW_NAME: usize = 63;
/// The maximum number of characters of the name of any other object.
const MAX_NAME: usize = 253;

/// One document of a text.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The kind as written with the object's name, or a description if there is no kind.
    pub title: String,
    /// The Workflow, if it could be read.
    pub workflow: Option<Box<Workflow>>,
    /// Whether the document has an apiVersion or a kind. Files of values and of answers have neither.
    pub is_named: bool,
    /// All problems of the document, in the order of the text.
    pub problems: Vec<Problem>,
}

impl Checked {
    /// Whether the document can run, or be applied.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity != Severity::Error)
    }
}

/// Checks every object of a text with the settings of the later run: its documents, and the items of lists.
#[must_use]
pub fn check(text: &str, settings: &Settings) -> Vec<Checked> {
    check_with(text, settings, |_| None)
}

/// Checks every object of a text like [`check`]. `other` checks the objects of another format, and returns `None` for
/// an object of Signoff.
#[must_use]
pub fn check_with(text: &str, settings: &Settings, other: impl Fn(&Node) -> Option<Checked>) -> Vec<Checked> {
    let check_one = |node: &Node| other(node).unwrap_or_else(|| check_object(text, node, settings));
    let check_document = |document| match document {
        Ok(node) => objects(&node).into_iter().map(&check_one).collect(),
        Err(source::Unreadable { why, at }) => {
            let mut problems = Problems::of(text);
            problems.error("NotYaml", "", at, why);
            vec![Checked { title: "document".to_owned(), workflow: None, is_named: true, problems: problems.found }]
        }
    };
    source::documents(text).into_iter().flat_map(check_document).collect()
}

/// Returns the objects of a document: the items of a `List`, as kubectl writes it, or the document itself.
fn objects(node: &Node) -> Vec<&Node> {
    let has = |field: &str, value: &str| node.get(field).and_then(Node::text) == Some(value);
    if has("apiVersion", "v1") && has("kind", "List") {
        node.get("items").map_or(&[][..], Node::items).iter().collect()
    } else {
        vec![node]
    }
}

/// Checks one object of a text by its kind, its schema and its plan.
fn check_object(text: &str, node: &Node, settings: &Settings) -> Checked {
    let mut problems = Problems::of(text);
    let field = |name: &str| node.get(name).and_then(Node::text);
    let kind = field("kind").unwrap_or_default().to_owned();
    let title =
        format!("{} {}", if kind.is_empty() { "document" } else { &kind }, object_name(node)).trim_end().to_owned();
    let ours = format!("{GROUP}/{VERSION}");
    let is_foreign =
        |version: &str| !version.starts_with(&format!("{GROUP}/")) && !kind.is_empty() && schema::of(&kind).is_none();
    match field("apiVersion") {
        Some(version) if version == ours => {}
        Some(version) if is_foreign(version) => {
            problems.warn(
                "NotOurs",
                "kind",
                place(node, "kind"),
                format!("{kind} of {version} is not a kind of Signoff: it was not checked"),
            );
            return Checked { title, workflow: None, is_named: true, problems: problems.found };
        }
        _ => {
            problems.error("UnknownKind", "apiVersion", place(node, "apiVersion"), format!("write apiVersion: {ours}"))
        }
    }
    check_by_kind(node, &kind, &mut problems);
    let workflow = plan_unless_moved(node, &kind, settings, &mut problems);
    kubectl::warn_of_refused_texts(text, node, &mut problems);
    let all = problems.found.clone();
    problems.found.retain(|problem| !follows_from_unknown(problem, &all));
    // Problems about missing checks come after the problems that have to be corrected first.
    problems.found.sort_by_key(|problem| (problem.reason == "NotChecked", problem.at.start, problem.severity));
    let is_named = ["apiVersion", "kind"].iter().any(|name| node.get(name).is_some());
    Checked { title, workflow, is_named, problems: problems.found }
}

/// Checks an object by the schema of its kind. An unknown kind, or one that authors do not write, is an error.
fn check_by_kind(node: &Node, kind: &str, problems: &mut Problems<'_>) {
    match schema::of(kind) {
        Some(_) if kind == "Approval" => {
            let message = "only the operator creates Approvals: write a Workflow with a hitl step";
            problems.error("UnknownKind", "kind", place(node, "kind"), message);
        }
        Some(schema) => {
            schema::check(node, schema, "", problems);
            check_metadata(node, kind, problems);
        }
        None => {
            let kinds: Vec<&str> = schema::kinds().filter(|kind| *kind != "Approval").collect();
            let remedy = match nearest(kind, kinds.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are {}", kinds.join(", ")),
            };
            problems.error("UnknownKind", "kind", place(node, "kind"), format!("write the kind: {remedy}"));
        }
    }
}

/// Plans a Workflow, and returns it; `None` for another kind. If fields have moved, the Workflow is not planned,
/// because errors of the plan about old fields would be misleading.
fn plan_unless_moved(
    node: &Node,
    kind: &str,
    settings: &Settings,
    problems: &mut Problems<'_>,
) -> Option<Box<Workflow>> {
    let has_moved = |field: &str| field.starts_with("spec.pattern.") && old_fields::remedy(field).is_some();
    let moved = problems.found.iter().find(|problem| has_moved(&problem.field));
    if let Some(at) = moved.map(|problem| problem.at.clone()) {
        let message = "names, references and gates are checked once the fields above are moved";
        problems.warn("NotChecked", "spec", at, message);
        return None;
    }
    if kind == "Workflow" { check_plan(node, settings, problems) } else { None }
}

/// Whether a step has no action, or a provider no kind, only because the name of the field is misspelt: then an unknown
/// field is reported in the same object.
fn follows_from_unknown(problem: &Problem, all: &[Problem]) -> bool {
    let is_within = |field: &str| field.strip_prefix(&problem.field).is_some_and(|rest| rest.starts_with('.'));
    let says = |words: &str| problem.message.contains(words);
    let misses_one = says("exactly one of agent, pod, http, mcp, set and hitl") || says(Provider::ONE_KIND);
    misses_one && all.iter().any(|other| other.reason == "UnknownField" && is_within(&other.field))
}

/// Returns the name of an object, `refund-…` for a generated one, or an empty text.
fn object_name(node: &Node) -> String {
    let field = |name: &str| node.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Node::text);
    match (field("name"), field("generateName")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}…"),
        (None, None) => String::new(),
    }
}

/// Checks the name and the namespace of an object, as the API server does.
fn check_metadata(node: &Node, kind: &str, problems: &mut Problems<'_>) {
    if let Some(namespace) = node.get("metadata").and_then(|metadata| metadata.get("namespace"))
        && !names::is_label(namespace.text().unwrap_or_default())
    {
        let message =
            "a namespace has 1 to 63 lower-case letters, digits and `-`, and starts and ends with a letter or digit";
        problems.error("WrongForm", "metadata.namespace", namespace.at.clone(), message);
    }
    let field = |name: &str| node.get("metadata").and_then(|metadata| metadata.get(name));
    let most = if kind == "Workflow" { MAX_WORKFLOW_NAME } else { MAX_NAME };
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    match (field("name"), field("generateName")) {
        (Some(name), _) => {
            let text = name.text().unwrap_or_default();
            let has_form = text.chars().all(is_inner) && text.starts_with(is_end) && text.ends_with(is_end);
            if name.text().is_none() {
                let message = format!("expected a text, found {}: put it into quotes", name.kind());
                problems.error("WrongType", "metadata.name", name.at.clone(), message);
            } else if !has_form || text.len() > most {
                let message = format!(
                    "a name has 1 to {most} lower-case letters, digits, `-` and `.`, and starts and ends with a letter or digit"
                );
                problems.error("WrongForm", "metadata.name", name.at.clone(), message);
            }
        }
        (None, Some(prefix)) => {
            let text = prefix.text().unwrap_or_default();
            if !text.chars().all(is_inner) || !text.starts_with(is_end) || text.len() > most {
                let message = format!(
                    "the beginning of a name has 1 to {most} lower-case letters, digits, `-` and `.`, and starts with a letter or digit, such as refund-"
                );
                problems.error("WrongForm", "metadata.generateName", prefix.at.clone(), message);
            }
        }
        (None, None) => {
            let message = "metadata.name is missing: give it, or metadata.generateName for a new name with each run";
            problems.error("MissingField", "metadata.name", place(node, "metadata.name"), message);
        }
    }
}

/// Reads the Workflow, and adds the problems that only the plan finds: names, references, languages, gates that cannot
/// be decided.
fn check_plan(node: &Node, settings: &Settings, problems: &mut Problems<'_>) -> Option<Box<Workflow>> {
    let mut value = node.to_json();
    if let Some(spec) = value.get_mut("spec").and_then(serde_json::Value::as_object_mut) {
        spec.entry("requestedBy").or_insert_with(|| REQUESTER.into());
    }
    let workflow: Workflow = match serde_json::from_value(value) {
        Ok(workflow) => workflow,
        Err(error) => {
            let message = if problems.has_errors() {
                "names, references and gates are checked once the errors above are corrected".to_owned()
            } else {
                format!("the object cannot be read as a Workflow: {error}")
            };
            match problems.has_errors() {
                true => problems.warn("NotChecked", "spec", place(node, "spec"), message),
                false => problems.error("WrongType", "spec", place(node, "spec"), message),
            }
            return None;
        }
    };
    match Plan::of(&with_placeholders(&workflow, node, problems), settings, &Arc::default()) {
        Ok(plan) => {
            for warning in plan.warnings() {
                let (field, message) = warning.split_once(": ").unwrap_or(("", warning));
                problems.warn("Suspicious", field, place(node, field), message);
            }
        }
        Err(errors) => {
            problems.found.retain(|problem| !errors.iter().any(|error| says_the_same(error, problem)));
            for error in &errors {
                let range = place(node, &error.field);
                problems.error(error.reason, &error.field, range, error.message.clone());
            }
        }
    }
    Some(Box::new(workflow))
}

/// Whether an error of the plan says the same as a problem of the schema, and more clearly.
fn says_the_same(error: &FieldError, problem: &Problem) -> bool {
    match problem.reason {
        "WrongForm" | "Duplicate" | "OutOfBounds" => error.field == problem.field,
        // A rule reports the object or the item of a list, and the plan the field or the list.
        "RuleBroken" => {
            let below = error.field.strip_prefix(&problem.field).and_then(|rest| rest.strip_prefix('.'));
            error.field == problem.field
                || problem.field.strip_prefix(&error.field).is_some_and(|rest| rest.starts_with('['))
                || below.is_some_and(|name| problem.message.contains(name))
        }
        _ => false,
    }
}

/// Returns the Workflow with a placeholder for each required input without a value, and adds a warning for it.
fn with_placeholders(workflow: &Workflow, node: &Node, problems: &mut Problems<'_>) -> Workflow {
    let mut filled = workflow.clone();
    for (index, input) in filled.spec.inputs.iter_mut().enumerate() {
        let Some(value) = placeholder(input) else { continue };
        let field = format!("spec.inputs[{index}].value");
        let message = format!(
            "input {name} is required and has no value: give it one, or `--var {name}=…` to a local run",
            name = input.name
        );
        problems.warn("InputRequired", &field, place(node, &format!("spec.inputs[{index}].name")), message);
        input.value = Some(value);
    }
    filled
}

/// Returns a valid placeholder for a required input without a value, or `None` for any other input.
pub(crate) fn placeholder(input: &Input) -> Option<Json> {
    if input.required != Some(true) || input.value.is_some() || input.default.is_some() {
        return None;
    }
    let value = match input.type_.unwrap_or_default() {
        InputType::String => "x".into(),
        InputType::Number | InputType::Integer => 0.into(),
        InputType::Boolean => true.into(),
        InputType::Object => serde_json::json!({}),
        InputType::Array => serde_json::json!([]),
    };
    Some(input.enum_.first().cloned().unwrap_or(Json(value)))
}

#[cfg(test)]
mod tests;
