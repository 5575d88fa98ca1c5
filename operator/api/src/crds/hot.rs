//! The installed CRDs of the two kinds that are written often, `Workflow` and `Approval`.
//!
//! They have three CEL rules, because the API server evaluates every rule of the spec again at each write of the
//! status. The other rules are in admission policies. A part that one writer writes is atomic, so that `managedFields`
//! list the part instead of each field and item. **Invariant:** `spec.decisions`, which many users write, stays
//! granular.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// The parts that only one writer changes, by kind. The spec of a Workflow is not among them: users also change single
/// fields, such as `suspend`.
const ONE_WRITER: [(&str, &[&str]); 2] = [("Approval", &["/spec/request", "/status"]), ("Workflow", &["/status"])];
/// The parts whose lists have one writer, by kind.
const UNSHARED_LISTS: [(&str, &[&str]); 2] =
    [("Approval", &["/spec/request", "/status"]), ("Workflow", &["/spec", "/status"])];

/// The lists, by kind, for which the installed CRD has only the maximum number of items. Only the operator writes these
/// lists, and it parses each item by its type. With a full schema, the API server would copy, prune, default and
/// validate each field of each item at every write of the object.
const OPEN_PARTS: [(&str, &[&str]); 1] = [("Workflow", &["/status/steps"])];

/// The key of the CEL rules of a schema.
const RULES: &str = "x-kubernetes-validations";
/// The rules that stay, by their messages, in addition to the admission policies. Each compares a few bytes and reads
/// no object with many fields: for each field that a rule reads, the API server copies the schemas of all sibling
/// fields.
const LOCKS: [&str; 3] =
    ["status.outcome is final", "a stored request cannot be removed", "request is immutable, and so is its digest"];

/// Returns the installed CRD for a declared CRD. A CRD of another kind is returned as it is.
pub(super) fn to_installed(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let kind = crd.spec.names.kind.clone();
    let parts_in = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, parts)| parts)
    };
    let Ok(mut value) = serde_json::to_value(&crd) else { return crd };
    for version in value.pointer_mut("/spec/versions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") else { continue };
        if !parts_in(&ONE_WRITER).is_empty() {
            retain_locks(schema);
        }
        for part in parts_in(&UNSHARED_LISTS) {
            if let Some(part) = schema.pointer_mut(&schema_pointer(part)) {
                make_lists_atomic(part);
            }
        }
        for part in parts_in(&OPEN_PARTS) {
            if let Some(part) = schema.pointer_mut(&schema_pointer(part)) {
                *part = json!({"x-kubernetes-preserve-unknown-fields": true, "maxItems": part["maxItems"]});
            }
        }
        for part in parts_in(&ONE_WRITER) {
            if let Some(part) = schema.pointer_mut(&schema_pointer(part)).and_then(Value::as_object_mut) {
                part.insert("x-kubernetes-map-type".into(), json!("atomic"));
            }
        }
    }
    serde_json::from_value(value).unwrap_or(crd)
}

/// Returns the pointer to the schema of a part: `/spec/request` is at `/properties/spec/properties/request`.
fn schema_pointer(part: &str) -> String {
    part.replace('/', "/properties/")
}

/// Removes every rule except the locks from a schema and from all schemas in it.
fn retain_locks(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(mut rules)) = fields.remove(RULES) {
                rules.retain(|rule| rule["message"].as_str().is_some_and(|message| LOCKS.contains(&message)));
                if !rules.is_empty() {
                    fields.insert(RULES.into(), rules.into());
                }
            }
            fields.values_mut().for_each(retain_locks);
        }
        Value::Array(items) => items.iter_mut().for_each(retain_locks),
        _ => {}
    }
}

/// Makes every list of a schema atomic, also a set and a list with keys.
fn make_lists_atomic(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("x-kubernetes-list-type") {
                fields.insert("x-kubernetes-list-type".into(), json!("atomic"));
                fields.remove("x-kubernetes-list-map-keys");
            }
            fields.values_mut().for_each(make_lists_atomic);
        }
        Value::Array(items) => items.iter_mut().for_each(make_lists_atomic),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::crds;

    fn schema(kind: &str, crds: Vec<CustomResourceDefinition>) -> Value {
        let crd = crds.into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        serde_json::to_value(crd).unwrap().pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap().clone()
    }

    fn list_types(schema: &Value, found: &mut Vec<String>) {
        if let Some(fields) = schema.as_object() {
            found.extend(fields.get("x-kubernetes-list-type").and_then(Value::as_str).map(str::to_owned));
        }
        let inner = schema.as_object().into_iter().flat_map(serde_json::Map::values);
        inner.chain(schema.as_array().into_iter().flatten()).for_each(|inner| list_types(inner, found));
    }

    #[test]
    fn lists_of_one_writer_are_atomic() {
        let (workflow, approval) = (schema("Workflow", crds::all()), schema("Approval", crds::all()));
        for part in [
            &workflow["properties"],
            &approval["properties"]["spec"]["properties"]["request"],
            &approval["properties"]["status"],
        ] {
            let mut types = Vec::new();
            list_types(part, &mut types);
            assert!(types.len() > 5 && types.iter().all(|list| list == "atomic"), "{types:?}");
        }
    }

    fn rules(schema: &Value, found: &mut Vec<String>) {
        for rule in schema[RULES].as_array().into_iter().flatten() {
            found.push(rule["message"].as_str().unwrap().to_owned());
        }
        let inner = schema.as_object().into_iter().flat_map(serde_json::Map::values);
        inner.chain(schema.as_array().into_iter().flatten()).for_each(|inner| rules(inner, found));
    }

    #[test]
    fn the_installed_crds_of_both_kinds_have_no_rules_but_the_locks() {
        for (kind, locks) in [("Workflow", &[][..]), ("Approval", &LOCKS[..])] {
            let (mut installed, mut declared) = (Vec::new(), Vec::new());
            rules(&schema(kind, crds::all()), &mut installed);
            rules(&schema(kind, crds::declared()), &mut declared);
            assert_eq!(installed, locks, "{kind}");
            assert!(declared.len() > 15, "{kind}: {declared:?}");
        }
    }

    #[test]
    fn decisions_and_their_entries_stay_granular() {
        for crds in [crds::all(), crds::declared()] {
            let approval = schema("Approval", crds);
            let decisions = &approval["properties"]["spec"]["properties"]["decisions"];
            let entry = &decisions["additionalProperties"];
            for granular in [&approval["properties"]["spec"], decisions, entry] {
                assert_eq!(granular["x-kubernetes-map-type"], Value::Null);
            }
            assert_eq!(entry["properties"]["groups"]["x-kubernetes-list-type"], "set");
        }
    }

    #[test]
    fn parts_of_one_writer_are_atomic_and_have_defaults() {
        for (kind, parts) in ONE_WRITER {
            let schema = schema(kind, crds::all());
            for part in parts {
                assert_eq!(
                    schema.pointer(&schema_pointer(part)).unwrap()["x-kubernetes-map-type"],
                    "atomic",
                    "{kind}{part}"
                );
            }
            assert_eq!(schema["properties"]["status"]["default"], json!({"phase": "Pending", "seq": 0}));
        }
    }

    #[test]
    fn records_have_a_schema_in_the_declared_crds_only() {
        let steps = |crds| schema("Workflow", crds)["properties"]["status"]["properties"]["steps"].clone();
        assert_eq!(steps(crds::all()), json!({"x-kubernetes-preserve-unknown-fields": true, "maxItems": 4096}));
        assert!(steps(crds::declared())["items"]["properties"].as_object().unwrap().len() > 15);
    }

    /// The policy `signoff-status` lists `approvals/status` and `workflows/status`.
    #[test]
    fn the_status_is_the_only_subresource_of_both_kinds() {
        for crd in
            crds::all().into_iter().filter(|crd| ["Approval", "Workflow"].contains(&crd.spec.names.kind.as_str()))
        {
            for version in crd.spec.versions {
                let subresources = serde_json::to_value(version.subresources).unwrap();
                assert_eq!(subresources, json!({"status": {}}), "{}", crd.spec.names.kind);
            }
        }
    }

    #[test]
    fn the_kinds_of_policies_are_installed_as_they_are_declared() {
        for kind in ["ApprovalPolicy", "ClusterApprovalPolicy"] {
            assert_eq!(schema(kind, crds::all()), schema(kind, crds::declared()));
        }
    }
}
