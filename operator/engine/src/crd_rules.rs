//! The rules of the API types beyond types and bounds: unique items of lists, and CEL rules.
//!
//! The API server enforces these rules by admission policies, which can be missing. [`check_spec`] checks a spec at its
//! acceptance, and [`check_decision`] checks a vote before it is counted. Rules that the CRD enforces are left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde_json::Value;
use signoff_api::{Decision, WorkflowSpec, conditions::reason, crds};
use signoff_expr::{Condition, Scope, budget, text};

use crate::field_error::FieldError;

/// The rules of a JSON value and of the values in it. Parts without rules are left out.
#[derive(Debug, Default)]
struct ValueRules {
    rules: Vec<CelRule>,
    unique: Option<UniqueFields>,
    fields: BTreeMap<String, ValueRules>,
    items: Option<Box<ValueRules>>,
    values: Option<Box<ValueRules>>,
}

#[derive(Debug)]
struct CelRule {
    condition: Condition,
    message: String,
    /// The field below the value that the rule is about, with a leading dot.
    below: String,
}

/// The fields by which the items of a list differ. Without fields, whole items are compared.
#[derive(Debug)]
struct UniqueFields(Vec<String>);

static SPEC: LazyLock<ValueRules> =
    LazyLock::new(|| ValueRules::new(&crds::declared_schema("Workflow")["properties"]["spec"]));

static DECISION_SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let spec = &crds::declared_schema("Approval")["properties"]["spec"];
    spec["properties"]["decisions"]["additionalProperties"].clone()
});

static DECISION: LazyLock<ValueRules> = LazyLock::new(|| ValueRules::new(&DECISION_SCHEMA));

/// Compiles the rules of the API types. A driver with a time limit for evaluations calls this function before the first
/// evaluation, because compiling takes part of the limit.
pub fn prepare() {
    LazyLock::force(&SPEC);
    LazyLock::force(&DECISION);
}

/// Returns every declared rule that a spec breaks, in the order of its fields. Only for specs that are not accepted
/// yet: the rules of a later version do not apply to accepted runs, whose specs are compared with the recorded digest.
pub(crate) fn check_spec(spec: &WorkflowSpec) -> Vec<FieldError> {
    let mut broken = Vec::new();
    match serde_json::to_value(spec) {
        Ok(value) => SPEC.check(&value, "spec", &mut broken),
        Err(why) => broken.push(error("spec", &format!("it cannot be serialized as JSON: {why}"))),
    }
    broken
}

/// Checks one entry of `spec.decisions`, also the lengths of its texts, because a local run has no CRD that bounds the
/// lengths.
///
/// # Errors
/// The first broken rule, as one sentence for the author.
pub(crate) fn check_decision(decision: &Decision) -> Result<(), String> {
    let mut broken = Vec::new();
    match serde_json::to_value(decision) {
        Ok(value) => {
            DECISION.check(&value, "", &mut broken);
            broken.extend(length_error(&DECISION_SCHEMA, &value, ""));
        }
        Err(why) => broken.push(error("", &format!("it cannot be serialized as JSON: {why}"))),
    }
    broken.first().map_or(Ok(()), |FieldError { field, message, .. }| {
        Err(if field.is_empty() { message.clone() } else { format!("{}: {message}", field.trim_start_matches('.')) })
    })
}

/// Returns the first text in objects within a value that is shorter or longer than its schema allows, or `None`.
fn length_error(schema: &Value, value: &Value, field: &str) -> Option<FieldError> {
    // The parameters have no bounds of their own, and can be large.
    if schema.is_null() {
        return None;
    }
    if let Some(text) = value.as_str() {
        let bound = |name: &str| schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok());
        let length = text.chars().count();
        let (least, most) = (bound("minLength").unwrap_or(0), bound("maxLength").unwrap_or(usize::MAX));
        return if length < least {
            Some(error(field, &format!("it has {length} characters; the minimum is {least}")))
        } else if length > most {
            Some(error(field, &format!("it has {length} characters; the maximum is {most}")))
        } else {
            None
        };
    }
    value.as_object()?.iter().find_map(|(name, inner)| {
        let schema = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
        length_error(schema, inner, &format!("{field}.{name}"))
    })
}

/// Returns every declared rule that a request breaks. Tests check the operator's requests with this function, because
/// the API server enforces the rules.
#[cfg(test)]
pub(crate) fn check_request(request: &signoff_api::ApprovalRequest) -> Vec<FieldError> {
    let schema = &crds::declared_schema("Approval")["properties"]["spec"]["properties"]["request"];
    let (value, mut broken) = (serde_json::to_value(request), Vec::new());
    match value {
        Ok(value) => ValueRules::new(schema).check(&value, "request", &mut broken),
        Err(why) => broken.push(error("request", &why.to_string())),
    }
    broken
}

fn error(field: &str, message: &str) -> FieldError {
    FieldError { field: field.to_owned(), message: message.to_owned(), reason: reason::INVALID }
}

impl ValueRules {
    fn new(schema: &Value) -> Self {
        if !schema.is_object() {
            return Self::default();
        }
        let strings = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|key| key.as_str().map(str::to_owned)).collect()
        };
        let unique = match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => Some(UniqueFields(strings(&schema["x-kubernetes-list-map-keys"]))),
            Some("set") => Some(UniqueFields(Vec::new())),
            _ => None,
        };
        let rules =
            schema["x-kubernetes-validations"].as_array().into_iter().flatten().filter_map(CelRule::new).collect();
        let fields = schema["properties"].as_object().into_iter().flatten();
        let fields = fields.map(|(name, inner)| (name.clone(), Self::new(inner)));
        let [items, values] = ["items", "additionalProperties"].map(|part| Self::new(&schema[part]));
        Self {
            rules,
            unique,
            fields: fields.filter(|(_, shape)| !shape.is_empty()).collect(),
            items: (!items.is_empty()).then(|| Box::new(items)),
            values: (!values.is_empty()).then(|| Box::new(values)),
        }
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty()
            && self.unique.is_none()
            && self.fields.is_empty()
            && self.items.is_none()
            && self.values.is_none()
    }

    fn check(&self, value: &Value, field: &str, broken: &mut Vec<FieldError>) {
        if !self.rules.is_empty() {
            let mut scope = Scope::new();
            scope.set("self", value.clone());
            broken.extend(self.rules.iter().filter_map(|rule| rule.violation(&scope, field)));
        }
        for (name, shape) in &self.fields {
            if let Some(inner) = value.get(name) {
                shape.check(inner, &format!("{field}.{name}"), broken);
            }
        }
        if let Some(shape) = &self.values {
            for (name, inner) in value.as_object().into_iter().flatten() {
                shape.check(inner, &format!("{field}.{name}"), broken);
            }
        }
        for (at, item) in value.as_array().into_iter().flatten().enumerate() {
            if let Some(shape) = &self.items {
                shape.check(item, &format!("{field}[{at}]"), broken);
            }
        }
        if let Some(unique) = &self.unique {
            unique.check(value, field, broken);
        }
    }
}

impl CelRule {
    /// Returns the rule, or `None` if it compares with an older object, which is not available.
    fn new(declared: &Value) -> Option<Self> {
        let source = declared["rule"].as_str().filter(|source| !source.contains("oldSelf"))?;
        let condition = Condition::parse(source, "rule").ok()?;
        let text = |field: &str| declared[field].as_str().unwrap_or_default().to_owned();
        Some(Self { condition, message: text("message"), below: text("fieldPath") })
    }

    /// Returns the error about the value `self` of a scope, or `None` if the rule holds.
    fn violation(&self, scope: &Scope, field: &str) -> Option<FieldError> {
        match self.condition.evaluate(scope) {
            Ok(true) => None,
            Ok(false) => Some(error(&format!("{field}{}", self.below), &self.message)),
            Err(why) => Some(error(field, &format!("{} (this cannot be checked: {})", self.message, why.problem()))),
        }
    }
}

impl UniqueFields {
    fn check(&self, list: &Value, field: &str, broken: &mut Vec<FieldError>) {
        let mut seen = BTreeSet::new();
        for (at, item) in list.as_array().into_iter().flatten().enumerate() {
            let identity: Vec<String> = match self.0.as_slice() {
                [] => vec![item.to_string()],
                keys => keys.iter().map(|key| item[key].to_string()).collect(),
            };
            if budget::charge(identity.iter().map(String::len).sum()).is_err() {
                return;
            }
            if seen.contains(&identity) {
                let place =
                    self.0.first().map_or_else(|| format!("{field}[{at}]"), |key| format!("{field}[{at}].{key}"));
                let texts: Vec<_> = identity.iter().map(|part| text::display(part.trim_matches('"'), 120)).collect();
                let what = self.0.first().map_or("items", |key| if key == "path" { "paths" } else { "names" });
                broken.push(error(&place, &format!("duplicate {}: {what} must be unique", texts.join(", "))));
            }
            seen.insert(identity);
        }
    }
}

#[cfg(test)]
#[path = "crd_rules_tests.rs"]
mod tests;
