//! The CRDs may grow, but still accept what they once accepted: a new or tighter rule would freeze every object that
//! breaks it, its status too. They are compared with the format frozen in `tests/contract/upgrade/`;
//! `tests/cluster/upgrade.rs` tests the same on a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns every schema of a CRD by its path.
fn schemas(text: &str) -> BTreeMap<String, Value> {
    fn collect(path: &str, schema: &Value, found: &mut BTreeMap<String, Value>) {
        found.insert(path.to_owned(), schema.clone());
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            collect(&format!("{path}.{name}"), inner, found);
        }
        for (field, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
            if schema[field].is_object() {
                collect(&format!("{path}{mark}"), &schema[field], found);
            }
        }
    }
    let crd: Value = serde_saphyr::from_str(text).unwrap();
    let mut found = BTreeMap::new();
    for version in crd["spec"]["versions"].as_array().unwrap() {
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        let at = format!("{kind}/{}", version["name"].as_str().unwrap());
        collect(&at, &version["schema"]["openAPIV3Schema"], &mut found);
    }
    found
}

fn first_schemas(kind: &str) -> BTreeMap<String, Value> {
    let path = root().join(format!("tests/contract/upgrade/chart/files/crd-{kind}.yaml"));
    schemas(&std::fs::read_to_string(path).unwrap())
}

/// Returns the schemas by which the operator reads, also where the installed CRD has none.
fn declared_schemas(kind: &str) -> BTreeMap<String, Value> {
    let crd = signoff_api::crds::declared().into_iter().find(|crd| crd.spec.names.plural == kind).unwrap();
    schemas(&serde_json::to_string(&crd).unwrap())
}

/// Returns whether a path is within a part that accepts anything.
fn is_open(path: &str, schemas: &BTreeMap<String, Value>) -> bool {
    let within = |part: &str| path.strip_prefix(part).is_some_and(|rest| rest.starts_with(['.', '[', '{']));
    schemas.iter().any(|(part, schema)| schema["x-kubernetes-preserve-unknown-fields"] == true && within(part))
}

fn current_schemas(kind: &str) -> BTreeMap<String, Value> {
    let path = format!("{}/crd-{kind}.yaml", signoff_admission::files::FOLDER);
    let files = signoff_admission::files::generated().unwrap();
    schemas(&files.iter().find(|(file, _)| *file == path).unwrap().1)
}

/// Describes each value that the current schema refuses at a path and the frozen one accepted.
fn describe_tightened(path: &str, old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let strings =
        |value: &Value| -> BTreeSet<String> { value.as_array().into_iter().flatten().map(Value::to_string).collect() };
    for (bound, upper) in [
        ("maxLength", true),
        ("maxItems", true),
        ("maxProperties", true),
        ("maximum", true),
        ("minLength", false),
        ("minItems", false),
        ("minProperties", false),
        ("minimum", false),
    ] {
        let tighter = match (old[bound].as_f64(), new[bound].as_f64()) {
            (None, Some(_)) => true,
            (Some(old), Some(new)) => {
                if upper {
                    new < old
                } else {
                    new > old
                }
            }
            (_, None) => false,
        };
        if tighter {
            found.push(format!("{path}: {bound} was {} and is {}", old[bound], new[bound]));
        }
    }
    for exact in ["type", "pattern", "format", "x-kubernetes-list-type", "x-kubernetes-map-type"] {
        // An atomic list may have every content of a map or a set, and the fields of several owners.
        let is_loosened = exact.starts_with("x-kubernetes") && new[exact] == "atomic";
        if !new[exact].is_null() && new[exact] != old[exact] && !is_loosened {
            found.push(format!("{path}: {exact} was {} and is {}", old[exact], new[exact]));
        }
    }
    found.extend(
        strings(&new["required"])
            .difference(&strings(&old["required"]))
            .map(|field| format!("{path}: {field} is required now")),
    );
    if new["enum"].is_array() {
        let removed = |value: &String| format!("{path}: {value} is allowed no more");
        found.extend(strings(&old["enum"]).difference(&strings(&new["enum"])).map(removed));
        if old["enum"].is_null() {
            found.push(format!("{path}: an enum is new"));
        }
    }
    let old_rules: Vec<_> =
        old["x-kubernetes-validations"].as_array().into_iter().flatten().map(|rule| &rule["rule"]).collect();
    let known = |field: &str| old["properties"].get(field).is_some();
    let added: Vec<_> =
        new["properties"].as_object().into_iter().flatten().filter(|(field, _)| !known(field)).collect();
    for rule in new["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = rule["rule"].as_str().unwrap();
        // A rule that counts fields may count a new one: no recorded object has that field.
        let without =
            |text: String, (field, _): &(&String, &Value)| text.replace(&format!("(has(self.{field}) ? 1 : 0) + "), "");
        let for_recorded = Value::from(added.iter().fold(text.to_owned(), without));
        // A rule that compares with the old value can spare recorded objects.
        let spares = rule["optionalOldSelf"] == true && text.contains("oldSelf.hasValue()");
        if !old_rules.contains(&&for_recorded) && !spares {
            found.push(format!(
                "{path}: this rule is new and spares nothing that is recorded (optionalOldSelf): {text}"
            ));
        }
    }
    found
}

/// The parts that no version ever used and that admission refuses: no object has them.
const NEVER_HONOURED: [&str; 1] = ["Approval/v1alpha1.spec.decisions{}.grant"];

/// The parts that were removed on purpose, before the first release: an object that has them is no longer valid, and
/// its run stops. `docs/adr/0033-providers-of-every-protocol.md` explains it.
const REPLACED: [&str; 1] = ["Workflow/v1alpha1.spec.providers[].openai.keyFrom"];

#[test]
fn the_current_schema_accepts_what_the_first_one_accepted() {
    let mut found = Vec::new();
    for kind in ["workflows", "approvals"] {
        let (new, declared) = (current_schemas(kind), declared_schemas(kind));
        for (path, old) in first_schemas(kind) {
            if NEVER_HONOURED.iter().chain(&REPLACED).any(|part| path.starts_with(part)) {
                continue;
            }
            match new.get(&path) {
                Some(new) => found.extend(describe_tightened(&path, &old, new)),
                // The API server accepts anything there, so only the types and bounds of the operator count.
                None if is_open(&path, &new) && declared.contains_key(&path) => {
                    let mut read = declared[&path].clone();
                    read.as_object_mut().unwrap().retain(|field, _| !field.starts_with("x-kubernetes-"));
                    found.extend(describe_tightened(&path, &old, &read));
                }
                None => found.push(format!("{path}: the field is gone, and with it what is recorded in it")),
            }
        }
    }
    assert_eq!(found, [] as [String; 0], "\n{}", found.join("\n"));
}

#[test]
fn a_tightened_schema_is_found() {
    let old = serde_json::json!({"type": "string", "maxLength": 5, "x-kubernetes-list-type": "set", "enum": ["a", "b"], "properties": {"a": {}},
        "x-kubernetes-validations": [{"rule": "(has(self.a) ? 1 : 0) == 1"}]});
    let rule = |rule: &str, spares: bool| serde_json::json!({"rule": rule, "optionalOldSelf": spares});
    for (new, count) in [
        (serde_json::json!({"type": "string", "maxLength": 5, "enum": ["a", "b", "c"]}), 0),
        (serde_json::json!({"type": "string", "maxLength": 4, "enum": ["a"]}), 2),
        (serde_json::json!({"type": "integer"}), 1),
        (serde_json::json!({"x-kubernetes-list-type": "atomic"}), 0),
        (serde_json::json!({"x-kubernetes-list-type": "map"}), 1),
        (serde_json::json!({"x-kubernetes-map-type": "granular"}), 1),
        (serde_json::json!({"x-kubernetes-map-type": "atomic"}), 0),
        (serde_json::json!({"required": ["x"], "minLength": 1, "pattern": "a"}), 3),
        (serde_json::json!({"x-kubernetes-validations": [rule("self != 'a'", false)]}), 1),
        (serde_json::json!({"x-kubernetes-validations": [rule("oldSelf.hasValue() || self != 'a'", true)]}), 0),
        (
            serde_json::json!({"properties": {"a": {}, "b": {}}, "x-kubernetes-validations": [rule("(has(self.b) ? 1 : 0) + (has(self.a) ? 1 : 0) == 1", false)]}),
            0,
        ),
        (
            serde_json::json!({"properties": {"a": {}, "b": {}}, "x-kubernetes-validations": [rule("(has(self.b) ? 1 : 0) + (has(self.a) ? 1 : 0) == 2", false)]}),
            1,
        ),
    ] {
        assert_eq!(describe_tightened("here", &old, &new).len(), count, "{new}");
    }
}
