//! Inputs: those that a file declares, those with only a value, and those that are only referred to.
//!
//! **Invariant:** no value is invented: a value that the file lacks becomes a required input.

use serde_json::{Map, Value, json};
use signoff_engine::plan::RESERVED;
use signoff_expr::is_identifier;
use signoff_manifest::source::Node;

use super::{gates::scalar_text, import::Import, import_notes::NoteLevel};

/// The names that exist in every run.
const EVERYWHERE: [&str; 7] = ["inputs", "run", "hitl", "hitl_response", "last_response", "loop", "range"];

impl Import<'_> {
    /// Registers the names and types of the inputs, before any template is read. Adds a note about a reserved name.
    pub(super) fn prepare_inputs(&mut self, inputs: &Node) {
        for section in ["required", "optional", "values"] {
            for (key, spec) in inputs.get(section).map(Node::fields).unwrap_or_default() {
                let name = input_name(&key.name);
                if name != key.name {
                    let message = format!("this name is reserved in templates: the input is called {name}");
                    self.notes.tell(NoteLevel::Changed, &format!("inputs.{section}.{}", key.name), &key.at, message);
                    self.names.inputs.insert(key.name.clone(), name);
                }
                let kind = if section == "values" { kind_of(spec).to_owned() } else { type_of(spec) };
                self.names.types.entry(self.input_of(&key.name)).or_insert(kind);
                if section == "optional" && spec.get("default").is_none() {
                    self.names.optional.insert(key.name.clone());
                }
            }
        }
    }

    /// Returns `spec.inputs`, after all references were read: the declared inputs, the servers of tools, and the names
    /// that the file uses without a declaration. `known`, `own`: the names of the pattern and of variables, which are
    /// no inputs.
    pub(super) fn import_inputs(&mut self, inputs: Option<&Node>, known: &[&str], own: &[String]) -> Vec<Value> {
        let mut list: Vec<Map<String, Value>> = Vec::new();
        let section = |name: &str| inputs.and_then(|inputs| inputs.get(name)).map(Node::fields).unwrap_or_default();
        if let Some(inputs) = inputs {
            self.notes.read(inputs, "inputs", "inputs");
        }
        for (name, required) in [("required", true), ("optional", false)] {
            for (key, spec) in section(name) {
                self.notes.read(spec, "input", &format!("inputs.{name}.{}", key.name));
                list.push(declared_input(&self.input_of(&key.name), spec, required));
            }
        }
        for (key, value) in section("values") {
            let name = self.input_of(&key.name);
            let known = list.iter_mut().find(|input| input.get("name") == Some(&json!(name)));
            match known {
                Some(input) => {
                    let text = input.get("type").is_none_or(|kind| kind == "string");
                    let value = if text { json!(scalar_text(value)) } else { value.to_json() };
                    input.insert("value".into(), value);
                }
                None => {
                    let kind = kind_of(value);
                    list.push(Map::from_iter([
                        ("name".to_owned(), json!(name)),
                        ("type".to_owned(), json!(kind)),
                        ("value".to_owned(), value.to_json()),
                    ]));
                }
            }
        }
        let is_declared =
            |list: &[Map<String, Value>], name: &str| list.iter().any(|input| input.get("name") == Some(&json!(name)));
        for (name, description) in std::mem::take(&mut self.servers) {
            if !is_declared(&list, &name) {
                let input = json!({"name": name, "type": "string", "description": description, "required": true});
                list.extend(input.as_object().cloned());
            }
        }
        for name in self.roots.clone() {
            if EVERYWHERE.contains(&name.as_str())
                || known.contains(&name.as_str())
                || own.contains(&name)
                || is_declared(&list, &name)
            {
                continue;
            }
            let kind = if self.found.numeric.contains(&name) { "number" } else { "string" };
            let message =
                format!("the file uses the input {name} without declaring it: it is required, as `--var {name}=…`");
            self.notes.tell(NoteLevel::Info, "inputs", &inputs.map_or(0..0, |node| node.at.clone()), message);
            list.push(Map::from_iter([
                ("name".to_owned(), json!(name)),
                ("type".to_owned(), json!(kind)),
                ("required".to_owned(), json!(true)),
            ]));
        }
        list.into_iter().map(Value::Object).collect()
    }

    /// Returns the name in the Workflow for an input of the file.
    fn input_of(&self, name: &str) -> String {
        self.names.inputs.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }
}

/// Returns the entry of `spec.inputs` for an input that the file declares.
fn declared_input(name: &str, spec: &Node, required: bool) -> Map<String, Value> {
    let kind = type_of(spec);
    let mut input = Map::from_iter([("name".to_owned(), json!(name)), ("type".to_owned(), json!(kind))]);
    for field in ["description", "default", "enum"] {
        if let Some(value) = spec.get(field) {
            input.insert(field.into(), value.to_json());
        }
    }
    let has_default = spec.get("default").is_some();
    if required && !has_default {
        input.insert("required".into(), json!(true));
    } else if !has_default && kind == "string" && spec.get("enum").is_none() {
        // The Strands CLI renders a missing input as an empty text.
        input.insert("default".into(), json!(""));
    }
    input
}

/// Returns the declared type of an input, from either form of the declaration.
fn type_of(spec: &Node) -> String {
    spec.text().map(ToOwned::to_owned).or(spec.get("type").map(scalar_text)).unwrap_or("string".to_owned())
}

/// Returns the type of a value as an input declares it.
fn kind_of(value: &Node) -> &'static str {
    match value.to_json() {
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        _ => "string",
    }
}

/// Returns the name of an input in the Workflow: an identifier that the plan does not reserve.
fn input_name(name: &str) -> String {
    let mut plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !is_identifier(&plain) {
        plain = format!("input_{plain}");
    }
    if RESERVED.contains(&plain.as_str()) { format!("input_{plain}") } else { plain }
}
