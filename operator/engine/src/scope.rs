//! What the templates of a step see: inputs, the run, earlier records, the newest decision, its own variables.
//!
//! Only results whose `done` is smaller than the step's own `seq`, so that every replay sees what the first
//! evaluation saw. Text of people, models and tools is a value here and is never rendered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use signoff_api::{
    Outcome, Verdict,
    journal::{StepKind, StepPhase, StepRecord},
};

use crate::{
    activity::{Run, Trouble},
    language::{Reference, Scope},
    plan::{Action, PlannedGate, PlannedStep},
};

/// Names that no input and no variable may take.
pub(crate) const RESERVED: [&str; 10] =
    ["inputs", "run", "steps", "last_response", "hitl", "hitl_response", "null", "true", "false", "loop"];

/// A record that a step can see, with what a later Modify made of it.
pub(crate) struct Seen<'r> {
    pub(crate) step: &'r PlannedStep,
    pub(crate) record: StepRecord,
}

/// The newest visit of each step of the list, as far as its result was known at `seq`; in declared order.
pub(crate) fn seen<'r>(run: &Run<'r>, seq: i64) -> Vec<Seen<'r>> {
    let books = run.books.borrow();
    let mut newest: BTreeMap<&str, (i32, &StepRecord)> = BTreeMap::new();
    for record in books.journal.records().iter().filter(|r| r.done.is_some_and(|done| done < seq)) {
        let (name, visit) = parts(&record.path);
        let found = newest.entry(name).or_insert((visit, record));
        if (visit, record.attempt) >= (found.0, found.1.attempt) {
            *found = (visit, record);
        }
    }
    run.plan
        .steps
        .iter()
        .filter_map(|step| newest.get(step.name.as_str()).map(|(_, r)| Seen { step, record: (*r).clone() }))
        .collect()
}

/// The name and visit of a path's last segment.
pub(crate) fn parts(path: &str) -> (&str, i32) {
    match path.rsplit_once('#') {
        Some((name, visit)) => (name, visit.parse().unwrap_or(1)),
        None => (path, 1),
    }
}

/// The scope of a step that began at `seq`.
pub(crate) fn at(run: &Run<'_>, step: &PlannedStep, seq: i64) -> Result<Scope, Trouble> {
    let mut scope = general(run, &references(run, step), seq)?;
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
pub(crate) fn general(run: &Run<'_>, wanted: &BTreeSet<Reference>, seq: i64) -> Result<Scope, Trouble> {
    let mut scope = Scope::new();
    let plan = run.plan;
    for (name, value) in &plan.inputs {
        scope.set(name.clone(), value.clone());
    }
    scope.set("inputs", Value::Object(plan.inputs.clone()));
    scope.set(
        "run",
        json!({"name": plan.name, "namespace": plan.namespace, "uid": plan.uid, "startedAt": plan.created}),
    );
    let seen = seen(run, seq);
    // A gate that a floor added must not change what the author's templates say.
    let visible = |one: &&Seen<'_>| !one.step.added;
    let uses = |root: &str| wanted.iter().any(|r| r.root == root);
    if uses("steps") {
        let mut records = Vec::new();
        for one in seen.iter().filter(visible) {
            records.push((one.step.name.clone(), view(run, one, &seen)?));
        }
        scope.set_records("steps", records);
    }
    if uses("last_response") {
        let newest = seen.iter().filter(visible).filter(|s| has_response(&s.record)).max_by_key(|s| s.record.done);
        let value = match newest {
            Some(newest) => response(run, newest, &seen)?.0,
            None => Value::Null,
        };
        scope.set("last_response", value);
    }
    if uses("hitl") || uses("hitl_response") {
        let newest =
            seen.iter().filter(visible).filter(|s| s.record.kind == StepKind::Hitl).max_by_key(|s| s.record.done);
        let (hitl, twin) = match newest {
            Some(gate) => (hitl(run, gate)?, response(run, gate, &seen)?.0),
            None => (no_decision(), Value::Null),
        };
        scope.set("hitl", hitl);
        scope.set("hitl_response", twin);
    }
    Ok(scope)
}

/// Every name that anything of a step asks for.
fn references(run: &Run<'_>, step: &PlannedStep) -> BTreeSet<Reference> {
    let mut all = BTreeSet::new();
    let mut add = |more: &BTreeSet<Reference>| all.extend(more.iter().cloned());
    step.vars.iter().for_each(|(_, template)| add(template.references()));
    if let Some(condition) = &step.skip_if {
        add(&condition.references());
    }
    match &step.action {
        Action::Agent(agent) => {
            add(agent.input.references());
            if let Some(system) = run.plan.agents.get(&agent.agent).and_then(|a| a.system.as_ref()) {
                add(system.references());
            }
        }
        Action::Http(http) => {
            add(http.url.references());
            http.headers.values().chain(&http.body).for_each(|template| add(template.references()));
        }
        Action::Set(template) => add(template.references()),
        Action::Gate(gate) => {
            add(gate.prompt.references());
            gate.context.iter().for_each(|template| add(template.references()));
        }
    }
    all
}

fn has_response(record: &StepRecord) -> bool {
    record.response.is_some() || record.response_ref.is_some()
}

/// The response of a record as later steps see it, and the original where a person replaced it.
pub(crate) fn response(run: &Run<'_>, one: &Seen<'_>, seen: &[Seen<'_>]) -> Result<(Value, Option<Value>), Trouble> {
    let own = run.text_of(one.record.response.as_ref(), one.record.response_ref.as_ref())?;
    let own = own.map_or(Value::Null, Value::String);
    let reviewed = |gate: &PlannedGate| {
        gate.reviews.and_then(|at| run.plan.steps.get(at)).is_some_and(|s| s.name == one.step.name)
    };
    let newest = seen
        .iter()
        .filter(|other| match &other.step.action {
            Action::Gate(gate) => {
                let verdict = other.record.decision.as_ref().and_then(|d| d.verdict);
                verdict == Some(Verdict::Modify) && reviewed(gate) && other.record.done > one.record.done
            }
            _ => false,
        })
        .max_by_key(|other| other.record.done);
    match newest {
        None => Ok((own, None)),
        Some(gate) => {
            let decision = decision(run, &gate.record)?;
            let replaced = decision.parameters.and_then(|p| p.0.get("response").cloned()).unwrap_or(Value::Null);
            Ok((replaced, Some(own)))
        }
    }
}

/// The whole decision of a gate.
pub(crate) fn decision(run: &Run<'_>, record: &StepRecord) -> Result<Outcome, Trouble> {
    match run.text_of(None, record.decision_ref.as_ref())? {
        None => Ok(record.decision.clone().unwrap_or_default()),
        Some(whole) => serde_json::from_str(&whole)
            .map_err(|why| Trouble::Invalid(format!("the stored decision of {} cannot be read: {why}", record.path))),
    }
}

/// What `steps.<name>` holds.
fn view(run: &Run<'_>, one: &Seen<'_>, seen: &[Seen<'_>]) -> Result<Value, Trouble> {
    let record = &one.record;
    let (response, original) = response(run, one, seen)?;
    let mut view = json!({
        "name": one.step.name,
        "type": record.kind.name(),
        "status": status(record.phase),
        "response": response,
        "original": original,
        "error": record.error.as_ref().map(|e| e.message.clone()),
        "statusCode": record.facts.get("statusCode").and_then(|code| code.parse::<i64>().ok()),
    });
    let of_gate = if record.kind == StepKind::Hitl { hitl(run, one)? } else { no_decision() };
    if let (Some(view), Some(of_gate)) = (view.as_object_mut(), of_gate.as_object()) {
        for key in ["decision", "answers", "parameters", "guidance", "reason", "decidedBy", "decidedAt"] {
            view.insert(key.to_owned(), of_gate.get(key).cloned().unwrap_or(Value::Null));
        }
    }
    Ok(view)
}

/// What `hitl` holds.
fn hitl(run: &Run<'_>, gate: &Seen<'_>) -> Result<Value, Trouble> {
    let outcome = decision(run, &gate.record)?;
    let Action::Gate(planned) = &gate.step.action else { return Ok(no_decision()) };
    Ok(json!({
        "decision": outcome.verdict.map(|v| word(planned, v)),
        "response": outcome.response,
        "answers": outcome.answers,
        "parameters": outcome.parameters,
        "guidance": outcome.guidance,
        "reason": outcome.reason,
        "decidedBy": outcome.decided_by,
        "decidedAt": outcome.decided_at,
        "approval": gate.record.object,
    }))
}

fn no_decision() -> Value {
    json!({
        "decision": null, "response": null, "answers": null, "parameters": null, "guidance": null, "reason": null,
        "decidedBy": [], "decidedAt": null, "approval": null,
    })
}

/// What templates read of a verdict.
pub(crate) fn word(gate: &PlannedGate, verdict: Verdict) -> String {
    match verdict {
        Verdict::Approve => gate.spec.approve_text.clone().unwrap_or_else(|| "approved".into()),
        Verdict::Reject => gate.spec.reject_text.clone().unwrap_or_else(|| "rejected".into()),
        Verdict::Modify => "modified".into(),
        Verdict::Respond => "responded".into(),
        Verdict::Defer => "deferred".into(),
        Verdict::Escalate => "escalated".into(),
        Verdict::Abort => "aborted".into(),
        Verdict::Skip => "skipped".into(),
        Verdict::Retry => "retried".into(),
    }
}

fn status(phase: StepPhase) -> &'static str {
    match phase {
        StepPhase::Succeeded => "succeeded",
        StepPhase::Failed => "failed",
        StepPhase::Skipped => "skipped",
        StepPhase::Unknown => "unknown",
        StepPhase::Pending | StepPhase::Started | StepPhase::Waiting => "running",
    }
}
