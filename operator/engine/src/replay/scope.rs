//! The values that the templates of a step see: inputs, the run, earlier records, the newest decision, its variables, and
//! the names that its pattern gives.
//!
//! Only results whose `done` is smaller than the step's own `seq`, so that every replay sees what the first
//! evaluation saw. Text of people, models and tools is a value here and is never rendered.

pub(crate) mod editors;
mod step_scope;
mod views;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signoff_api::journal::{StepKind, StepRecord};
use signoff_expr::{Reference, Scope};

use crate::{
    plan::{Action, PlannedStep},
    replay::run::{RenderError, Run},
};

pub(crate) use crate::journal::within;
pub(crate) use step_scope::{RecordNamespace, StepScope, all};
pub(crate) use views::{ANSWER, answers, decision, hitl, response, response_text, verdict_text, view};

/// A record that a step can see.
#[derive(Clone)]
pub(crate) struct VisibleRecord<'r> {
    pub(crate) step: &'r PlannedStep,
    pub(crate) record: StepRecord,
}

/// The last segment of a path, without and with its visit.
pub(crate) fn parts(path: &str) -> (&str, i32) {
    let last = path.rsplit_once('/').map_or(path, |(_, last)| last);
    match last.rsplit_once('#') {
        Some((name, visit)) => (name, visit.parse().unwrap_or(1)),
        None => (last, 1),
    }
}

/// The names of a path without the numbers of its visits: the place in the Workflow.
pub(crate) fn place(path: &str) -> Vec<&str> {
    path.split('/').map(|name| name.split_once('#').map_or(name, |(name, _)| name)).collect()
}

/// The names that a template refers to.
pub(crate) struct RequestedNames<'w>(&'w BTreeSet<Reference>);

impl RequestedNames<'_> {
    pub(crate) fn root(&self, name: &str) -> bool {
        self.0.iter().any(|reference| reference.root == name)
    }

    /// Whether this member of a root is asked for, or may be.
    pub(crate) fn member(&self, root: &str, name: &str, at: usize) -> bool {
        use signoff_expr::Member;
        self.0.iter().filter(|reference| reference.root == root).any(|reference| match reference.members.first() {
            Some(Member::Name(member)) => member == name,
            Some(Member::Position(position)) => *position < 0 || usize::try_from(*position) == Ok(at),
            None => true,
        })
    }

    /// Whether this field of a member of a root is asked for, or may be.
    pub(crate) fn field(&self, root: &str, name: &str, field: &str) -> bool {
        use signoff_expr::Member;
        let may_be = |member: Option<&Member>, name: &str| match member {
            Some(Member::Name(member)) => member == name,
            Some(Member::Position(_)) => false,
            None => true,
        };
        self.0.iter().filter(|reference| reference.root == root).any(|reference| {
            let mut members = reference.members.iter();
            may_be(members.next(), name) && may_be(members.next(), field)
        })
    }
}

/// The scope of a step that began at `seq`.
pub(crate) fn at<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    seq: i64,
) -> Result<Scope, RenderError> {
    let mut scope = general(run, step_scope, &references(run, step), seq)?;
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

/// The scope of whatever has these references, at `seq`.
pub(crate) fn general<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    wanted: &BTreeSet<Reference>,
    seq: i64,
) -> Result<Scope, RenderError> {
    let plan = run.plan;
    let is_of_author = |name: &str| matches!(name, "inputs" | "run") || plan.inputs.contains_key(name);
    if wanted.iter().any(|reference| !is_of_author(&reference.root)) {
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
    // What is missing is fetched in one go: each part is tried, whatever the others lack.
    let parts = [
        step_scope.records(run, &wanted, seq, &mut scope),
        newest(run, step_scope, &wanted, seq, &mut scope),
        step_scope.set_pattern_vars(run, &wanted, seq, &mut scope),
    ];
    parts.into_iter().collect::<Result<(), _>>()?;
    Ok(scope)
}

/// The newest response and the newest decision that the frame sees.
fn newest<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    wanted: &RequestedNames<'_>,
    seq: i64,
    scope: &mut Scope,
) -> Result<(), RenderError> {
    if wanted.root("last_response") {
        let newest = step_scope.newest(run, seq, |record| answers(run, record, seq));
        let value = match newest {
            Some(newest) => response(run, step_scope, &newest, seq)?.0,
            None => Value::Null,
        };
        scope.set("last_response", value);
    }
    if wanted.root("hitl") || wanted.root("hitl_response") {
        let (decided, twin) = match step_scope.newest(run, seq, |record| record.kind == StepKind::Hitl) {
            Some(gate) => (hitl(run, &gate)?, response(run, step_scope, &gate, seq)?.0),
            None => (views::no_decision(), Value::Null),
        };
        scope.set("hitl", decided);
        scope.set("hitl_response", twin);
    }
    Ok(())
}

/// Every name that anything of a step asks for.
fn references(run: &Run<'_>, step: &PlannedStep) -> BTreeSet<Reference> {
    let mut all = BTreeSet::new();
    let mut add = |more: &BTreeSet<Reference>| all.extend(more.iter().cloned());
    step.vars.iter().for_each(|(_, template)| add(template.references()));
    step.skip_if.iter().chain(&step.only_if).for_each(|condition| add(&condition.references()));
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
    all
}
