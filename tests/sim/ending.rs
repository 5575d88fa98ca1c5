//! What is left of a run once it has ended, without what may differ from one telling of it to the next: times, names
//! that hold times, and who did it. It compares; it knows no rule.

use serde_json::{Value, json};
use signoff_tests::sim::Resource;

use crate::stage::{NAMESPACE, Stage};

/// The journal and the Approvals of a run, in the order in which they came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending(pub Value);

impl Ending {
    /// How this run ended.
    pub fn of(stage: &Stage, run: &str) -> Self {
        let workflow = stage.workflow(run);
        let status = &workflow["status"];
        let steps: Vec<Value> = list(&status["steps"]).map(step).collect();
        let mut approvals: Vec<&Value> = Vec::new();
        let stored = stage.approvals();
        approvals.extend(
            stored
                .iter()
                .filter(|approval| approval["spec"]["request"]["workflow"]["uid"] == workflow["metadata"]["uid"]),
        );
        let mut approvals: Vec<Value> = approvals.into_iter().map(approval).collect();
        approvals.sort_by_key(|approval| approval["path"].to_string());
        Self(json!({
            "phase": status["phase"], "message": status["message"], "outputs": status["outputs"], "outputsRef": status["outputsRef"],
            "conditions": list(&status["conditions"]).map(|c| pick(c, &["type", "status", "reason", "message"])).collect::<Vec<_>>(),
            "pending": status["pending"], "seq": status["seq"], "steps": steps, "approvals": approvals, "values": values(stage),
        }))
    }

    /// Where it is not as `expected`, a line a place.
    pub fn differences(&self, expected: &Self) -> String {
        let mut lines = Vec::new();
        differ("", &expected.0, &self.0, &mut lines);
        lines.join("\n")
    }
}

fn differ(place: &str, expected: &Value, found: &Value, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                differ(&format!("{place}.{key}"), &expected[key], &found[key], lines);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for at in 0..one.len().max(other.len()) {
                let [expected, found] = [one, other].map(|list| list.get(at).unwrap_or(&Value::Null));
                differ(&format!("{place}[{at}]"), expected, found, lines);
            }
        }
        _ if expected == found => {}
        _ => lines.push(format!("{place} should be {expected:.200} and is {found:.200}")),
    }
}

fn step(record: &Value) -> Value {
    let fields =
        ["path", "attempt", "kind", "phase", "seq", "done", "inputDigest", "response", "responseRef", "facts", "usage"];
    let mut step = pick(record, &fields);
    step["error"] = pick(&record["error"], &["class", "message", "retryable"]);
    step["decision"] = decision(&record["decision"]);
    step["decisionIsLong"] = json!(record["decisionRef"].is_object());
    step
}

fn approval(approval: &Value) -> Value {
    let (request, status) = (&approval["spec"]["request"], &approval["status"]);
    let votes = list(&status["votes"]).map(|vote| pick(vote, &["key", "user", "verdict", "attempt"]));
    json!({
        "path": request["gate"]["path"], "prompt": request["prompt"], "context": request["context"], "contextRef": request["contextRef"],
        "reviews": request["reviews"], "phase": status["phase"], "level": status["level"], "invalid": status["invalid"],
        "votes": votes.collect::<Vec<_>>(), "outcome": decision(&status["outcome"]),
    })
}

fn decision(outcome: &Value) -> Value {
    pick(
        outcome,
        &["verdict", "phase", "response", "answers", "parameters", "guidance", "reason", "decidedBy", "source"],
    )
}

/// The large values that are stored.
fn values(stage: &Stage) -> Vec<Value> {
    let maps = stage.server.values(&Resource::new("", "configmaps"), Some(NAMESPACE));
    let mut values: Vec<Value> = maps.iter().map(|map| pick(map, &["data", "binaryData", "immutable"])).collect();
    for value in &mut values {
        // A decision that is long is stored as it is, with its time.
        let text = value["data"]["value"].as_str().unwrap_or_default();
        if let Ok(outcome) = serde_json::from_str::<Value>(text) {
            value["data"]["value"] = decision(&outcome);
        }
    }
    values.sort_by_key(Value::to_string);
    values
}

fn pick(object: &Value, fields: &[&str]) -> Value {
    if object.is_null() {
        return Value::Null;
    }
    fields
        .iter()
        .filter(|field| !object[**field].is_null())
        .map(|field| ((*field).to_owned(), object[*field].clone()))
        .collect()
}

/// The items of a list; none where there is no list.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
