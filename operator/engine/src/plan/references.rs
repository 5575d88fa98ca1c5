//! Which names the templates and conditions of a step may use.
//!
//! Only names that will exist when the step begins, so that a misspelt one is found before the run and not at night.

use std::collections::BTreeSet;

use signoff_api::{Verdict, step::Step, workflow::WorkflowSpec};

use super::Check;
use crate::language::{Known, Members, Reference, check};

/// What can be asked of a step's record.
const RECORD: [&str; 14] = [
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
];
/// What can be asked of the newest decision.
const HITL: [&str; 9] =
    ["decision", "response", "answers", "parameters", "guidance", "reason", "decidedBy", "decidedAt", "approval"];

impl Check<'_> {
    /// The names that exist when step `at` of a list begins.
    pub(super) fn known_at(spec: &WorkflowSpec, steps: &[Step], at: usize) -> Known {
        let inputs = || spec.inputs.iter().map(|input| input.name.clone());
        let earlier: Vec<_> = steps.iter().take(at).collect();
        let records = earlier.iter().map(|s| (s.name.clone(), Members::fields(RECORD))).collect();
        let mut known = inputs()
            .fold(Known::new(), |known, name| known.with(name, Members::Open))
            .with("inputs", Members::fields(inputs()))
            .with("run", Members::fields(["name", "namespace", "uid", "startedAt"]))
            .with("steps", Members::Records(records));
        if !earlier.is_empty() {
            known = known.with("last_response", Members::Open);
        }
        let defers = |s: &Step| s.hitl.as_ref().is_some_and(|h| h.allowed_verdicts.contains(&Verdict::Defer));
        if earlier.iter().any(|s| s.hitl.is_some()) || steps.iter().skip(at).any(defers) {
            known = known.with("hitl", Members::fields(HITL)).with("hitl_response", Members::Open);
        }
        known
    }

    /// The same names and a step's own variables.
    pub(super) fn with_vars(known: Known, step: &Step) -> Known {
        step.vars.keys().fold(known, |known, name| known.with(name.clone(), Members::Open))
    }

    /// Complains about every name that will not exist.
    pub(super) fn references(&mut self, references: &BTreeSet<Reference>, known: &Known, field: &str) {
        for unknown in check(references, known, field) {
            self.complain(field, unknown.problem());
        }
    }
}
