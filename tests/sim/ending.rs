//! The comparable part of an ended run: without times, names that hold times, and actors, which may differ between two
//! plays of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use signoff_api::{Digest, Span};
use signoff_tests::sim::Resource;

use crate::harness::{Harness, NAMESPACE};

/// The journal and the Approvals of a run, in the order of their creation.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending(pub Value);

impl Ending {
    /// Returns the comparable part of an ended run.
    pub fn of(harness: &Harness, run: &str) -> Self {
        let workflow = harness.workflow(run);
        let status = &workflow["status"];
        let mut steps: Vec<Value> = list(&records(harness, status)).map(step).collect();
        let stored = harness.approvals();
        let is_of_run =
            |approval: &&Value| approval["spec"]["request"]["workflow"]["uid"] == workflow["metadata"]["uid"];
        let stored: Vec<&Value> = stored.iter().filter(is_of_run).collect();
        stored.iter().filter(|approval| is_late(&approval["status"]["outcome"])).for_each(|late| check_lateness(late));
        let mut approvals: Vec<Value> = stored.into_iter().map(approval).collect();
        approvals.sort_by_key(|approval| approval["path"].to_string());
        let late = leave_out_late(&mut steps, &mut approvals);
        // A false condition of these types only shows that something waited for a moment.
        let is_transient = |c: &&Value| c["type"] == "PodsPending" || c["type"] == "Stalled";
        let conditions = list(&status["conditions"]).filter(|c| !is_transient(c) || c["status"] == "True");
        let mut ending = Self(json!({
            "phase": status["phase"], "message": status["message"], "outputs": status["outputs"], "outputsRef": status["outputsRef"],
            "conditions": conditions.map(|c| pick(c, &["type", "status", "reason", "message"])).collect::<Vec<_>>(),
            "pending": status["pending"], "seq": status["seq"], "steps": steps, "approvals": approvals, "values": values(harness),
        }));
        if late > 0 {
            ending.leave_out_numbers();
        }
        ending
    }

    /// Returns `expected` in the form that can be compared with this ending. If people were asked late in this run, it
    /// has further writes, so `expected` loses the numbers of its writes too.
    pub fn as_asked_in_time(&self, expected: &Self) -> Self {
        let mut expected = expected.clone();
        if self.is_late() {
            expected.leave_out_numbers();
        }
        expected
    }

    /// Sorts the steps by path if people were asked late, because the order of parallel gates may then differ.
    pub fn in_any_order(mut self) -> Self {
        if self.is_late()
            && let Some(steps) = self.0["steps"].as_array_mut()
        {
            steps.sort_by_key(|step| step["path"].to_string());
        }
        self
    }

    /// Whether people were asked late: [`Ending::of`] then removed the numbers of writes.
    fn is_late(&self) -> bool {
        self.0["seq"].is_null()
    }

    fn leave_out_numbers(&mut self) {
        self.0["seq"] = Value::Null;
        for step in self.0["steps"].as_array_mut().into_iter().flatten() {
            step["seq"] = Value::Null;
            step["done"] = Value::Null;
        }
    }

    /// Returns the differences from `expected`, one line for each JSON path.
    pub fn differences(&self, expected: &Self) -> String {
        let mut lines = Vec::new();
        add_differences("", &expected.0, &self.0, &mut lines);
        lines.join("\n")
    }
}

/// Adds one line for each value in which `found` differs from `expected`.
fn add_differences(place: &str, expected: &Value, found: &Value, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                add_differences(&format!("{place}.{key}"), &expected[key], &found[key], lines);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for index in 0..one.len().max(other.len()) {
                let [expected, found] = [one, other].map(|list| list.get(index).unwrap_or(&Value::Null));
                add_differences(&format!("{place}[{index}]"), expected, found, lines);
            }
        }
        _ if expected == found => {}
        _ => lines.push(format!("{place} should be {expected:.200} and is {found:.200}")),
    }
}

/// Returns whether an outcome says that people were asked late.
pub fn is_late(outcome: &Value) -> bool {
    let why = outcome["reason"].as_str().unwrap_or_default();
    outcome["phase"] == "Superseded" && why.starts_with("people were asked after")
}

/// Panics if the Approval was created at most five seconds after its gate began, so that people were not asked late.
fn check_lateness(approval: &Value) {
    let request = &approval["spec"]["request"];
    let moment = |text: &Value| text.as_str().unwrap().parse::<Timestamp>().unwrap();
    let after = request["timeout"]["after"].as_str().unwrap().parse::<Span>().unwrap().duration();
    let began = moment(&request["deadline"]) - after;
    let late = moment(&approval["metadata"]["creationTimestamp"]).duration_since(began);
    assert!(late.as_secs_f64() > 5.0, "{} was created {late} after its time began", approval["metadata"]["name"]);
}

/// Removes the visits of gates that asked late, and gives the visit that asked again the path that it would have if the
/// gate had asked in time. Returns the number of removed visits.
fn leave_out_late(steps: &mut Vec<Value>, approvals: &mut Vec<Value>) -> usize {
    let late: Vec<Value> =
        steps.iter().filter(|step| is_late(&step["decision"])).map(|step| step["path"].clone()).collect();
    steps.retain(|step| !is_late(&step["decision"]));
    approvals.retain(|approval| !is_late(&approval["outcome"]));
    for path in steps.iter_mut().chain(approvals).map(|object| &mut object["path"]) {
        for late in late.iter().rev().filter_map(Value::as_str) {
            let (gate, visit) = visit(late);
            if *path == format!("{gate}#{}", visit + 1) {
                *path = json!(late);
            }
        }
    }
    late.len()
}

/// Returns the gate of a path, and the number of its visit.
pub fn visit(path: &str) -> (&str, u32) {
    let numbered = path.rsplit_once('#').and_then(|(gate, visit)| Some((gate, visit.parse().ok()?)));
    numbered.unwrap_or((path, 1))
}

fn step(record: &Value) -> Value {
    let fields = [
        "path",
        "attempt",
        "kind",
        "phase",
        "seq",
        "done",
        "inputDigest",
        "response",
        "responseRef",
        "facts",
        "usage",
        "log",
    ];
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

/// Returns every record of the journal of a status, records in segments included, in the order in which they began. A
/// segment that is not stored becomes one null record.
pub fn records(harness: &Harness, status: &Value) -> Value {
    let stored: BTreeMap<String, String> = stored(harness).map(|text| (digest(&text), text)).collect();
    let mut records = Vec::new();
    for segment in list(&status["segments"]) {
        let text = segment["digest"].as_str().and_then(|digest| stored.get(digest));
        match text.and_then(|text| serde_json::from_str(text).ok()) {
            Some(Value::Array(of_segment)) => records.extend(of_segment),
            _ => records.push(Value::Null),
        }
    }
    records.extend(list(&status["steps"]).cloned());
    records.sort_by_key(|record| record["seq"].as_i64());
    records.into()
}

/// Returns the digest under which a value is stored.
pub fn digest(text: &str) -> String {
    Digest::of_bytes(text.as_bytes()).to_string()
}

/// Returns whether a value is a segment of a journal.
fn is_segment(text: &str) -> bool {
    let records = serde_json::from_str::<Value>(text).unwrap_or_default();
    list(&records).next().is_some_and(|record| record["path"].is_string())
}

/// Returns the text of each stored Blob.
fn stored(harness: &Harness) -> impl Iterator<Item = String> {
    let blobs = harness.server.values(&Resource::new("signoff.dev", "blobs"), Some(NAMESPACE));
    blobs.into_iter().filter_map(|blob| blob["spec"]["data"].as_str().map(str::to_owned))
}

/// Returns the stored large values, except the segments of journals: segments contain times, and one may be left over
/// from a lost commit.
fn values(harness: &Harness) -> Vec<Value> {
    let blobs = harness.server.values(&Resource::new("signoff.dev", "blobs"), Some(NAMESPACE));
    let blobs = blobs.iter().filter(|blob| !blob["spec"]["data"].as_str().is_some_and(is_segment));
    let mut values: Vec<Value> = blobs.map(|blob| blob["spec"].clone()).collect();
    for value in &mut values {
        // A long decision is stored as it is, with its time.
        let text = value["data"].as_str().unwrap_or_default();
        if let Ok(outcome) = serde_json::from_str::<Value>(text) {
            value["data"] = decision(&outcome);
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

/// Returns the items of a list; no item if the value is not a list.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
