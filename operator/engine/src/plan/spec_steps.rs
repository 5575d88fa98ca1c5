//! The steps of a spec, grouped for their pattern: by branch, or by the names in the pattern.
//!
//! Errors name a step by its position in `spec.steps`. Journal paths and templates use its name.

use std::collections::BTreeSet;

use signoff_api::{step::Step, workflow::WorkflowSpec};

use signoff_expr::Members;

use super::{Validator, references::record};

/// The maximum number of steps of a Workflow.
pub(super) const MOST_STEPS: usize = 1024;
/// The maximum number of steps of one branch or route.
const MOST_IN_A_BRANCH: usize = 64;

/// A step of a spec with its field.
#[derive(Clone, Debug)]
pub(in crate::plan) struct SpecStep<'a> {
    /// The field, such as `spec.steps[2]`.
    pub(in crate::plan) field: String,
    pub(in crate::plan) step: &'a Step,
    /// The shape of its record in templates and conditions.
    pub(in crate::plan) record: Members,
}

/// A named chain of a spec: a branch, or a route.
pub(super) struct SpecBranch<'a> {
    pub(super) name: &'a str,
    /// The steps of the branch, in the order of `spec.steps`; never empty.
    pub(super) steps: Vec<SpecStep<'a>>,
}

/// Every step of a spec.
pub(super) struct SpecSteps<'a>(Vec<SpecStep<'a>>);

impl<'a> SpecSteps<'a> {
    pub(super) fn new(spec: &'a WorkflowSpec) -> Self {
        let spec_step = |(at, step)| SpecStep { field: format!("spec.steps[{at}]"), step, record: record(step, &[]) };
        let steps = spec.steps.iter().enumerate().map(spec_step);
        // The steps of tools run only when they are called.
        Self(steps.filter(|spec_step| !spec.runs_as_tool(spec_step.step)).collect())
    }

    /// Returns all steps, in the order of the list.
    pub(super) fn all(&self) -> &[SpecStep<'a>] {
        &self.0
    }

    /// Returns the branches, in order of appearance.
    pub(super) fn branches(&self) -> Vec<SpecBranch<'a>> {
        let mut branches: Vec<SpecBranch<'a>> = Vec::new();
        for spec_step in &self.0 {
            let Some(name) = spec_step.step.branch.as_deref() else { continue };
            match branches.iter_mut().find(|branch| branch.name == name) {
                Some(branch) => branch.steps.push(spec_step.clone()),
                None => branches.push(SpecBranch { name, steps: vec![spec_step.clone()] }),
            }
        }
        branches
    }

    /// Returns the steps without a branch.
    fn branchless(&self) -> impl Iterator<Item = &SpecStep<'a>> {
        self.0.iter().filter(|spec_step| spec_step.step.branch.is_none())
    }
}

impl Validator<'_> {
    /// Reports steps with a branch in a pattern without branches, and duplicate names.
    pub(super) fn check_no_branches(&mut self, steps: &SpecSteps<'_>) {
        for spec_step in steps.all().iter().filter(|spec_step| spec_step.step.branch.is_some()) {
            let message = "only parallel and routing have branches: give spec.pattern one of them, or leave branch out";
            self.error(format!("{}.branch", spec_step.field), message);
        }
        self.check_unique_steps(steps.all());
    }

    /// Reports more steps than a pattern can have.
    pub(super) fn check_count(&mut self, steps: &SpecSteps<'_>, most: usize, pattern: &str) {
        let count = steps.all().len();
        if count > most {
            let message = format!("a {pattern} has at most {most} steps; this one has {count}");
            self.error("spec.steps", message);
        }
    }

    /// Returns the branches of a pattern. Reports invalid branches, and steps without a branch that are not in `named`,
    /// the names in the pattern.
    pub(super) fn check_branches<'a>(&mut self, steps: &SpecSteps<'a>, named: &BTreeSet<&str>) -> Vec<SpecBranch<'a>> {
        let branches = steps.branches();
        for branch in &branches {
            let Some(first) = branch.steps.first() else { continue };
            self.check_name(branch.name, &format!("{}.branch", first.field));
            if branch.steps.len() > MOST_IN_A_BRANCH {
                let count = branch.steps.len();
                let message = format!(
                    "branch {} has {count} steps: a branch has at most {MOST_IN_A_BRANCH}, so divide it",
                    branch.name
                );
                self.error(format!("{}.branch", first.field), message);
            }
        }
        for spec_step in steps.branchless() {
            let name = spec_step.step.name.as_str();
            if branches.iter().any(|branch| branch.name == name) {
                self.error(
                    format!("{}.name", spec_step.field),
                    format!("{name} is the name of a branch: choose another"),
                );
            }
        }
        self.check_all_named(steps, named, "give it a branch");
        branches
    }

    /// Reports steps without a branch that the pattern does not name.
    pub(super) fn check_all_named(&mut self, steps: &SpecSteps<'_>, named: &BTreeSet<&str>, remedy: &str) {
        self.check_unique_steps(steps.branchless());
        for spec_step in steps.branchless().filter(|spec_step| !named.contains(spec_step.step.name.as_str())) {
            let message =
                format!("step {} would never run, for the pattern does not name it: {remedy}", spec_step.step.name);
            self.error(&spec_step.field, message);
        }
    }

    /// Finds the step without a branch that a field of a pattern names.
    pub(super) fn find_named_step<'a>(
        &mut self,
        steps: &SpecSteps<'a>,
        name: Option<&str>,
        field: &str,
    ) -> Option<SpecStep<'a>> {
        let name = name?;
        let has_name = |spec_step: &&SpecStep<'a>| spec_step.step.name == name;
        if let Some(found) = steps.branchless().find(has_name) {
            return Some(found.clone());
        }
        let message = match steps.all().iter().find(has_name).and_then(|spec_step| spec_step.step.branch.as_deref()) {
            Some(branch) => format!("step {name} belongs to the branch {branch}: name a step without a branch"),
            None => {
                let hint = self.did_you_mean(name, steps.branchless().map(|spec_step| spec_step.step.name.as_str()));
                format!("there is no step {name} in spec.steps: add it, or leave this out{hint}")
            }
        };
        self.error(field, message);
        None
    }

    /// Reports steps with the name of an earlier step.
    pub(in crate::plan) fn check_unique_steps<'s, 'a: 's>(
        &mut self,
        steps: impl IntoIterator<Item = &'s SpecStep<'a>>,
    ) {
        let mut seen = BTreeSet::new();
        for spec_step in steps {
            if !seen.insert(spec_step.step.name.as_str()) {
                let message = format!("duplicate name {}: names must be unique", spec_step.step.name);
                self.error(format!("{}.name", spec_step.field), message);
            }
        }
    }
}
