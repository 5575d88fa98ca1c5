//! The CRDs, generated from the types alone.
//!
//! ```text
//! types -> declared CRDs -> installed CRDs    (all pure)
//! ```

mod hot;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{
    approval::Approval,
    blob::Blob,
    names,
    policy::{ApprovalPolicy, ClusterApprovalPolicy},
    workflow::Workflow,
};

/// Returns the CRDs of all kinds as they are installed. A `status` has a default, so that a new object is Pending and a
/// JSON Patch `test` on `/status/seq` succeeds on the first write too.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    declared().into_iter().map(hot::to_installed).collect()
}

/// Returns the CRDs with everything that the types declare, for programs that check objects themselves. The installed
/// CRDs of `Workflow` and `Approval` have fewer rules, because the API server evaluates all of them at each write.
#[must_use]
pub fn declared() -> Vec<CustomResourceDefinition> {
    DECLARED.clone()
}

/// Returns the schema of a kind as its types declare it, or null for an unknown kind.
#[must_use]
pub fn declared_schema(kind: &str) -> Value {
    let crd = DECLARED.iter().find(|crd| crd.spec.names.kind == kind);
    let schema = crd.and_then(|crd| crd.spec.versions.first()?.schema.as_ref()?.open_api_v3_schema.as_ref());
    schema.and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default()
}

/// The declared CRDs, built once because building them is slow.
static DECLARED: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
    let crds = [ApprovalPolicy::crd(), Approval::crd(), Blob::crd(), ClusterApprovalPolicy::crd(), Workflow::crd()];
    crds.into_iter().map(finish).collect()
});

/// Returns a derived CRD with everything that the derivation cannot declare: required fields, defaults, a label, and
/// short documentation of conditions.
fn finish(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let Ok(mut value) = serde_json::to_value(&crd) else { return crd };
    for version in value.pointer_mut("/spec/versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            schema["required"] = json!(["spec"]);
            if let Some(status) = schema.pointer_mut("/properties/status").and_then(Value::as_object_mut) {
                status.remove("nullable");
                status.insert("default".into(), json!({"phase": "Pending", "seq": 0}));
            }
            if crd.spec.names.kind == "Approval"
                && let Some(spec) = schema.pointer_mut("/properties/spec").and_then(Value::as_object_mut)
            {
                // The type requires only the request. The admission policy requires it with a message of its own.
                spec.remove("required");
            }
            remove_nullable(schema);
            shorten_conditions(schema);
        }
    }
    value["metadata"]["labels"] = json!({names::LABEL_GUARD: "true"});
    serde_json::from_value(value).unwrap_or(crd)
}

/// The fields of a condition of Kubernetes, in a sentence each: their own documentation takes a kilobyte of each CRD.
const CONDITION: [(&str, &str); 6] = [
    ("lastTransitionTime", "The time of the last change of `status`."),
    ("message", "A sentence for users."),
    ("observedGeneration", "The generation of the spec that the condition describes."),
    ("reason", "The cause, as one CamelCase word."),
    ("status", "True, False or Unknown."),
    ("type", "The type of the condition."),
];

/// Replaces the documentation of conditions and their fields.
fn shorten_conditions(schema: &mut Value) {
    let Some(condition) = schema.pointer_mut("/properties/status/properties/conditions/items") else { return };
    condition["description"] = "A condition.".into();
    for (name, words) in CONDITION {
        if let Some(field) = condition["properties"].get_mut(name) {
            field["description"] = words.into();
        }
    }
}

/// Removes `nullable` everywhere: an absent field is omitted, never null, so that `has()` in CEL is reliable.
fn remove_nullable(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("nullable") == Some(&Value::Bool(true)) {
                fields.remove("nullable");
            }
            fields.values_mut().for_each(remove_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nullable),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn nodes(schema: &Value) -> usize {
        let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(_, inner)| inner);
        let items = ["items", "additionalProperties"].into_iter().filter_map(|key| schema.get(key));
        1 + fields.chain(items.filter(|inner| inner.is_object())).map(nodes).sum::<usize>()
    }

    #[test]
    fn each_crd_has_at_most_80_kib_and_650_nodes() {
        for crd in all() {
            let size = serde_json::to_vec(&crd).unwrap().len();
            assert!(size <= 80 * 1024, "{:?} has {size} bytes", crd.metadata.name);
            let crd = serde_json::to_value(&crd).unwrap();
            let nodes = nodes(crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap());
            assert!((2..=650).contains(&nodes), "{} has {nodes} nodes", crd["metadata"]["name"]);
        }
    }

    #[test]
    fn the_request_of_an_approval_is_optional_in_the_schema_alone() {
        for crds in [all(), declared()] {
            let crd = crds.iter().find(|crd| crd.spec.names.kind == "Approval").unwrap();
            let spec = serde_json::to_value(crd).unwrap();
            let spec = spec.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap();
            assert_eq!(spec.get("required"), None);
            assert!(spec["properties"]["request"]["required"].as_array().unwrap().contains(&json!("digest")));
        }
        for spec in [json!({}), json!({"request": null}), json!({"request": {}}), json!({"decisions": {}})] {
            let approval = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": "a"}, "spec": spec});
            let read = serde_json::from_value::<Approval>(approval);
            assert!(read.is_err(), "an Approval without a request is no Approval with an empty one: {read:?}");
        }
    }

    #[test]
    fn no_column_shows_only_the_first_of_several_values() {
        let columns = all().into_iter().flat_map(|crd| crd.spec.versions);
        let paths: Vec<String> = columns
            .flat_map(|version| version.additional_printer_columns.into_iter().flatten())
            .map(|column| column.json_path)
            .collect();
        assert!(paths.len() > 20, "{paths:?}");
        assert!(
            !paths.iter().any(|path| path.contains("[*]")),
            "the API server prints the first match only: {paths:?}"
        );
    }

    #[test]
    fn every_crd_carries_the_label_of_the_guard() {
        for crd in all().into_iter().chain(declared()) {
            let labels = crd.metadata.labels.unwrap_or_default();
            assert_eq!(labels.get(names::LABEL_GUARD).map(String::as_str), Some("true"), "{:?}", crd.metadata.name);
        }
    }

    #[test]
    fn viewers_of_a_namespace_can_list_the_category() {
        let of_category = |crd: &CustomResourceDefinition| {
            let categories = crd.spec.names.categories.clone().unwrap_or_default();
            categories.contains(&"signoff".to_owned()).then(|| (crd.spec.names.kind.clone(), crd.spec.scope.clone()))
        };
        let found: Vec<_> = all().iter().filter_map(of_category).collect();
        let kinds: Vec<_> = found.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["ApprovalPolicy", "Approval", "Workflow"]);
        assert!(found.iter().all(|(_, scope)| scope == "Namespaced"), "kubectl lists all of a category: {found:?}");
    }

    #[test]
    fn a_new_object_reads_as_pending() {
        let names = ["approvals.signoff.dev", "workflows.signoff.dev"];
        for crd in all().into_iter().filter(|crd| names.contains(&crd.metadata.name.as_deref().unwrap())) {
            let crd = serde_json::to_value(&crd).unwrap();
            let status = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/default");
            assert_eq!(status, Some(&json!({"phase": "Pending", "seq": 0})));
        }
    }

    #[test]
    fn every_list_and_every_string_is_bounded() {
        fn check(path: &str, schema: &Value) {
            let kind = schema.get("type").and_then(Value::as_str);
            let bounded = |by: &str| schema.get(by).is_some();
            match kind {
                Some("array") => assert!(bounded("maxItems"), "{path} has no maxItems"),
                Some("string") => {
                    assert!(bounded("maxLength") || bounded("enum") || bounded("format"), "{path} has no maxLength");
                }
                _ => {}
            }
            if schema.get("additionalProperties").is_some() {
                assert!(bounded("maxProperties"), "{path} has no maxProperties");
            }
            for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                check(&format!("{path}.{name}"), inner);
            }
            for key in ["items", "additionalProperties"] {
                if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
                    check(&format!("{path}[]"), inner);
                }
            }
        }
        for crd in all() {
            let crd = serde_json::to_value(&crd).unwrap();
            let root = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties").unwrap();
            check(".spec", &root["spec"]);
            let mut status = root.get("status").cloned().unwrap_or_default();
            if let Some(fields) = status.get_mut("properties").and_then(Value::as_object_mut) {
                fields.remove("conditions");
            }
            check(".status", &status);
        }
    }
}
