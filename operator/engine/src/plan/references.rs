//! The names that the templates and conditions of a step can use.
//!
//! Only names that exist when the step begins are allowed, so that a misspelled one is found before the run.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use signoff_api::{
    Verdict,
    step::Step,
    workflow::{InputType, WorkflowSpec},
};
use signoff_expr::{AnswerShape, Kind, Known, Members, Reference, check};

use super::{Validator, spec_steps::SpecStep};

/// Names that inputs and variables must not have. The importer of other files renames such inputs.
pub const RESERVED: [&str; 10] =
    ["inputs", "run", "steps", "last_response", "hitl", "hitl_response", "null", "true", "false", "loop"];

/// The fields of a step's record in templates.
pub(super) const RECORD: [&str; 16] = [
    "name",
    "type",
    "status",
    "response",
    "original",
    "decision",
    "answers",
    "parameters",
    "guidance",
    "reason",
    "decidedBy",
    "decidedAt",
    "error",
    "statusCode",
    "exitCode",
    "log",
];
/// The fields of the newest decision in templates.
const HITL: [&str; 9] =
    ["decision", "response", "answers", "parameters", "guidance", "reason", "decidedBy", "decidedAt", "approval"];

/// Keywords of a JSON Schema that allow names which `properties` does not list.
const BESIDE_PROPERTIES: [&str; 10] =
    ["$ref", "$dynamicRef", "patternProperties", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"];

/// Returns the names in the arguments of a tool: the properties of its schema, if the schema allows no others.
pub(super) fn members(schema: &Map<String, Value>) -> Members {
    let is_closed = schema.get("additionalProperties").is_none_or(|more| *more == Value::Bool(false));
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Members::Open };
    if !is_closed || BESIDE_PROPERTIES.iter().any(|key| schema.contains_key(*key)) {
        return Members::Open;
    }
    let shape = |property: &Value| {
        let Some(property) = property.as_object() else { return Members::Open };
        match AnswerShape::of_schema(property) {
            scalar if scalar.is_scalar() => Members::answer(scalar),
            _ => members(property),
        }
    };
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let required = required.map(|name| (name.to_owned(), Members::Open));
    Members::shapes(required.chain(properties.iter().map(|(name, property)| (name.clone(), shape(property)))))
}

impl Validator<'_> {
    /// Returns the names that exist in every template of a run.
    pub(super) fn known_everywhere(spec: &WorkflowSpec) -> Known {
        let inputs = || spec.inputs.iter().map(|input| (input.name.clone(), of_input(input.type_)));
        inputs()
            .fold(Known::new(), |known, (name, shape)| known.with(name, shape))
            .with("inputs", Members::shapes(inputs()))
            .with("run", Members::fields(["name", "namespace", "uid", "startedAt"]))
    }

    /// Returns the names that exist when step `at` of a list begins.
    pub(super) fn known_in_list(base: &Known, steps: &[SpecStep<'_>], at: usize) -> Known {
        let earlier: Vec<_> = steps.iter().take(at).map(|one| one.step).collect();
        let records = steps.iter().take(at).map(|one| (one.step.name.clone(), one.record.clone()));
        let records = Members::records(records);
        let mut known = base.clone().with("steps", records);
        if !earlier.is_empty() {
            known = known.with("last_response", Members::Open);
        }
        if earlier.iter().any(|s| s.hitl.is_some()) || steps.iter().skip(at).any(|one| defers(one.step)) {
            known = with_decision(known);
        }
        known
    }

    /// Adds a step's own variables to the names.
    pub(super) fn with_vars(known: Known, step: &Step) -> Known {
        step.vars.keys().fold(known, |known, name| known.with(name.clone(), Members::Open))
    }

    /// Reports every name that will not exist.
    pub(super) fn check_references(&mut self, references: &BTreeSet<Reference>, known: &Known, field: &str) {
        for unknown in check(references, known, field) {
            self.error(field, unknown.problem());
        }
    }
}

/// Returns the shape of an input. Only the shape of a scalar is known.
fn of_input(type_: Option<InputType>) -> Members {
    let kind = match type_.unwrap_or_default() {
        InputType::String => Kind::Text,
        InputType::Number | InputType::Integer => Kind::Number,
        InputType::Boolean => Kind::Bool,
        InputType::Object | InputType::Array => return Members::Open,
    };
    Members::answer(AnswerShape::scalar(&[kind]))
}

/// Whether a gate can send the run back in its list.
pub(super) fn defers(step: &Step) -> bool {
    step.hitl.as_ref().is_some_and(|hitl| hitl.allowed_verdicts.contains(&Verdict::Defer))
}

/// Adds the newest decision to the names.
pub(super) fn with_decision(known: Known) -> Known {
    known.with("hitl", Members::fields(HITL)).with("hitl_response", Members::Open)
}

/// Adds the records of `steps` to the names, by step name. `further` are additional fields of each record.
pub(super) fn with_records<'s, 'a: 's>(
    known: Known,
    steps: impl Iterator<Item = &'s SpecStep<'a>>,
    further: &[&'static str],
) -> Known {
    let shape = |one: &SpecStep<'_>| match further {
        [] => one.record.clone(),
        _ => record(one.step, further),
    };
    known.with("steps", Members::shapes(steps.map(|one| (one.step.name.clone(), shape(one)))))
}

/// Returns the fields of the record of a step.
pub(super) fn record(step: &Step, further: &[&'static str]) -> Members {
    let response = match &step.output_schema {
        _ if step.hitl.is_some() => Members::Open,
        Some(schema) => Members::answer(AnswerShape::of_schema(&schema.0)),
        None => Members::answer(AnswerShape::Unchecked),
    };
    let fields = RECORD.iter().chain(further).map(|name| ((*name).to_owned(), Members::Open));
    let code = || Members::answer(AnswerShape::scalar(&[Kind::Number]));
    let typed = [("response", response), ("statusCode", code()), ("exitCode", code())];
    Members::shapes(fields.chain(typed.map(|(name, shape)| (name.to_owned(), shape))))
}
