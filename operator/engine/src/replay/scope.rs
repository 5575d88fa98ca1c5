//! The values that the templates of a step see: inputs, the run, earlier records, the newest decision, the step's
//! variables, and the variables of its pattern.
//!
//! Only results whose `done` is smaller than the step's own `seq` count, so that every replay sees the same values as
//! the first evaluation. Text of people, models and tools is a value and is never rendered.

pub(crate) mod editors;
mod step_scope;
mod views;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signoff_api::{
    RecordPath, Seq,
    journal::{StepKind, StepRecord},
};
use signoff_expr::{Member, Reference, Scope};

use crate::{
    plan::{Action, PlannedArguments, PlannedStep},
    replay::run::{RenderError, Run},
};

pub(crate) use crate::journal::within;
pub(crate) use step_scope::{RecordNamespace, StepScope, all};
use views::hitl_view;
pub(crate) use views::{decision, has_answer, response, response_text, verdict_text, view};

/// A record that a step sees.
#[derive(Clone)]
pub(crate) struct VisibleRecord<'r> {
    pub(crate) step: &'r PlannedStep,
    pub(crate) record: StepRecord,
}

/// Returns the name and the visit of the last segment of a path.
pub(crate) fn parts(path: &str) -> (&str, i32) {
    let last = RecordPath::new(path).last();
    (last.name(), last.visit())
}

/// The names that a template refers to.
pub(crate) struct RequestedNames<'w>(&'w BTreeSet<Reference>);

/// A part of the path of a value in a scope: its name, or its position in a list and the length of the list.
#[derive(Clone, Copy)]
pub(crate) struct PathPart<'p> {
    name: Option<&'p str>,
    position: Option<(usize, usize)>,
}

impl<'p> PathPart<'p> {
    pub(crate) fn field(name: &'p str) -> Self {
        Self { name: Some(name), position: None }
    }

    /// Returns the part for the entry at a position of a list of `length` entries.
    pub(crate) fn entry(position: usize, length: usize) -> Self {
        Self { name: None, position: Some((position, length)) }
    }

    /// Returns the part with a name in addition to its position.
    pub(crate) fn named(self, name: &'p str) -> Self {
        Self { name: Some(name), ..self }
    }

    fn is(&self, member: &Member) -> bool {
        match member {
            Member::Name(name) => self.name == Some(name),
            Member::Position(index) => self.position.is_some_and(|(position, length)| {
                let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
                if *index < 0 { length.checked_sub(distance) == Some(position) } else { distance == position }
            }),
        }
    }
}

impl RequestedNames<'_> {
    pub(crate) fn root(&self, name: &str) -> bool {
        self.0.iter().any(|reference| reference.root == name)
    }

    /// Whether a template reads, or may read, the value at a path below a root or a part of that value.
    pub(crate) fn reads(&self, root: &str, place: &[PathPart<'_>]) -> bool {
        let mut of_root = self.0.iter().filter(|reference| reference.root == root);
        of_root.any(|reference| reference.members.iter().zip(place).all(|(member, part)| part.is(member)))
    }
}

/// Returns the scope for the input of a step that began at `seq`, or for the prompt and the context of a gate.
pub(crate) fn of_step<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    seq: Seq,
) -> Result<Scope, RenderError> {
    scope_with_vars(run, step_scope, step, &rendered_references(run, step), seq)
}

/// Returns the scope for the conditions of a step that began at `seq`.
pub(crate) fn of_conditions<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    seq: Seq,
) -> Result<Scope, RenderError> {
    let conditions = step.skip_if.iter().chain(&step.only_if);
    let mut wanted: BTreeSet<Reference> = conditions.flat_map(|condition| condition.references()).collect();
    wanted.extend(references_of_vars(step));
    scope_with_vars(run, step_scope, step, &wanted, seq)
}

fn scope_with_vars<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    wanted: &BTreeSet<Reference>,
    seq: Seq,
) -> Result<Scope, RenderError> {
    let mut scope = general(run, step_scope, wanted, seq)?;
    for (name, value) in step
        .vars
        .iter()
        .map(|(name, template)| template.render(&scope).map(|value| (name.clone(), value)))
        .collect::<Result<Vec<_>, _>>()?
    {
        scope.set(name, Value::String(value));
    }
    Ok(scope)
}

/// Returns a scope with the values that the references name, as of `seq`, without the variables of a step. Notes if
/// values that the author did not write are read.
pub(crate) fn general<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    wanted: &BTreeSet<Reference>,
    seq: Seq,
) -> Result<Scope, RenderError> {
    let plan = run.plan;
    let is_of_author = |name: &str| matches!(name, "inputs" | "run") || plan.inputs.contains_key(name);
    if !run.origins.are_only_noted() && wanted.iter().any(|reference| !is_of_author(&reference.root)) {
        run.record_value_read();
    }
    let wanted = RequestedNames(wanted);
    let mut scope = Scope::new();
    for (name, value) in &plan.inputs {
        scope.set(name.clone(), value.clone());
    }
    scope.set("inputs", Value::Object(plan.inputs.clone()));
    scope.set(
        "run",
        json!({"name": plan.name, "namespace": plan.namespace, "uid": plan.uid, "startedAt": plan.created}),
    );
    // Every part is tried, so that all missing values are fetched at once.
    let parts = [
        step_scope.add_records(run, &wanted, seq, &mut scope),
        set_newest(run, step_scope, &wanted, seq, &mut scope),
        step_scope.set_pattern_vars(run, &wanted, seq, &mut scope),
    ];
    parts.into_iter().collect::<Result<(), _>>()?;
    Ok(scope)
}

/// Sets `last_response`, `hitl` and `hitl_response` in a scope: the newest response and the newest decision of the
/// list.
fn set_newest<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    wanted: &RequestedNames<'_>,
    seq: Seq,
    scope: &mut Scope,
) -> Result<(), RenderError> {
    if wanted.root("last_response") {
        let newest = step_scope.newest_where(run, seq, |record| has_answer(run, record, seq));
        let value = match newest {
            Some(newest) => response(run, step_scope, &newest, seq)?.0,
            None => Value::Null,
        };
        scope.set("last_response", value);
    }
    if wanted.root("hitl") || wanted.root("hitl_response") {
        let (decided, text) = match step_scope.newest_where(run, seq, |record| record.kind == StepKind::Hitl) {
            Some(gate) => {
                let decided =
                    hitl_view(run, step_scope, &gate, &|field| wanted.reads("hitl", &[PathPart::field(field)]))?;
                let text = run.origins.note_if(wanted.root("hitl_response"), || response(run, step_scope, &gate, seq));
                (decided, text?.0)
            }
            None => (views::no_decision(), Value::Null),
        };
        scope.set("hitl", decided);
        scope.set("hitl_response", text);
    }
    Ok(())
}

fn references_of_vars(step: &PlannedStep) -> impl Iterator<Item = Reference> {
    step.vars.iter().flat_map(|(_, template)| template.references().iter().cloned())
}

/// Returns all names that the templates of a step refer to.
pub(crate) fn rendered_references(run: &Run<'_>, step: &PlannedStep) -> BTreeSet<Reference> {
    let mut references: BTreeSet<Reference> = references_of_vars(step).collect();
    let mut add = |more: &BTreeSet<Reference>| references.extend(more.iter().cloned());
    match &step.action {
        Action::Agent(agent) => {
            agent.input.iter().for_each(|input| add(input.references()));
            if let Some(system) = run.plan.agents.get(&agent.agent).and_then(|a| a.system.as_ref()) {
                add(system.references());
            }
        }
        Action::Http(http) => {
            add(http.url.references());
            http.headers.values().chain(&http.body).for_each(|template| add(template.references()));
        }
        Action::Mcp(mcp) => match &mcp.arguments {
            // People can have changed the arguments of the call.
            PlannedArguments::OfAgent(_) => {
                add(&BTreeSet::from([Reference { root: "args".to_owned(), members: Vec::new(), optional: false }]))
            }
            PlannedArguments::OfAuthor(arguments) => add(&arguments.references()),
        },
        Action::Pod(pod) => pod.env.values().chain(pod.files.values()).for_each(|template| add(template.references())),
        Action::Set(template) => add(template.references()),
        Action::Gate(gate) => {
            add(gate.prompt.references());
            gate.context.iter().for_each(|template| add(template.references()));
            for (prompt, context) in &gate.merged {
                add(prompt.references());
                context.iter().for_each(|template| add(template.references()));
            }
        }
    }
    references
}
