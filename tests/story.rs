//! Examples with the answers beside them, and the result of a run without the parts that differ from run to run.
//!
//! Used by the tests that run the examples on a laptop, on a control plane, on a node and from records.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use signoff_api::Workflow;

/// Examples that need more than one answering person and a script. Each has a test of its own on the control plane,
/// except for those that need a node, and those of models, which `tests/contract/models.rs` runs.
const APART: [&str; 14] = [
    // They need a service, or a real model.
    "quickstart/workflow",
    "steps/secret",
    "steps/api-key",
    "servers/",
    "models/",
    // They need several people.
    "gates/quorum",
    "gates/escalation",
    // No one answers, and time passes.
    "gates/reminders",
    "gates/timeout-asks-again",
    "gates/timeout-goes-on",
    "gates/timeout-stops",
    "gates/timeout-waits",
    // Containers, which a kubelet runs in the suite `pods`.
    "pods/",
    // Policies of an administrator, not Workflows.
    "policies/",
];

/// A Workflow and people's answers.
pub(crate) struct Example {
    /// The name, such as `dag/two-gates`.
    pub(crate) name: String,
    pub(crate) text: String,
    answers: BTreeMap<String, Vec<Value>>,
}

/// Returns every example that one person's answers bring to its end, and that needs no node.
pub(crate) fn examples() -> Vec<Example> {
    among(|name| !APART.iter().any(|apart| name.starts_with(apart)))
}

/// Returns the examples with matching names.
pub(crate) fn among(named: impl Fn(&str) -> bool) -> Vec<Example> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut found = Vec::new();
    for folder in std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.strip_prefix(&root).unwrap().display().to_string();
            let Some(name) = name.strip_suffix(".yaml").filter(|name| !name.ends_with(".answers")) else { continue };
            if !named(name) {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            found.push(Example { answers: answers(&file), name: name.to_owned(), text });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn answers(example: &Path) -> BTreeMap<String, Vec<Value>> {
    let Ok(text) = std::fs::read_to_string(example.with_extension("answers.yaml")) else { return BTreeMap::new() };
    let given: BTreeMap<String, Value> = serde_saphyr::from_str(&text).unwrap();
    let list = |value| match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    given.into_iter().map(|(gate, value)| (gate, list(value))).collect()
}

impl Example {
    /// Returns the next answer at a gate, by its path or its name.
    pub(crate) fn answer(&mut self, path: &str, gate: &str) -> Option<Value> {
        let key = [path, gate].into_iter().find(|key| self.answers.get(*key).is_some_and(|left| !left.is_empty()))?;
        Some(self.answers.get_mut(key)?.remove(0))
    }

    /// Returns the gates whose answers were not used.
    pub(crate) fn unused(&self) -> Vec<&str> {
        self.answers.iter().filter(|(_, left)| !left.is_empty()).map(|(gate, _)| gate.as_str()).collect()
    }

    /// Returns the path of its record.
    pub(crate) fn record(&self) -> PathBuf {
        let file = format!("sim/histories/{}.json", self.name.replace('/', "."));
        Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
    }
}

/// Returns the result of a run without times, uids, names of objects, digests and the order of concurrent events.
pub(crate) fn story(workflow: &Workflow) -> Value {
    let status = serde_json::to_value(workflow.status.as_ref().unwrap()).unwrap();
    let mut records: Vec<Value> = status["steps"].as_array().cloned().unwrap_or_default();
    for record in &mut records {
        let fields = record.as_object_mut().unwrap();
        for differs in ["seq", "done", "by", "object", "at", "finishedAt", "inputDigest", "request"] {
            fields.remove(differs);
        }
        if let Some(decision) = fields.get_mut("decision").and_then(Value::as_object_mut) {
            decision.remove("decidedAt");
        }
    }
    records.sort_by_key(|record| (record["path"].as_str().unwrap().to_owned(), record["attempt"].as_i64()));
    let mut story = Map::new();
    for field in ["phase", "message", "outputs", "outputsRef", "artifacts", "usage"] {
        if let Some(value) = status.get(field) {
            story.insert(field.to_owned(), value.clone());
        }
    }
    story.insert("steps".to_owned(), json!(records));
    Value::Object(story)
}
