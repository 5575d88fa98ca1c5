//! What templates read of one record: its response as people left it, its status, its decision.
//!
//! It may not change what a person or a model said; a replaced response is shown beside the original.

use serde_json::{Value, json};
use signoff_api::{
    Outcome, Verdict,
    journal::{StepKind, StepPhase, StepRecord},
};

use super::{Frame, Seen};
use crate::{
    activity::{Run, Trouble},
    language::json as extract,
    plan::{Action, PlannedGate, PlannedStep},
};

/// The response of a record as later steps see it, and the original where it was replaced.
///
/// A person may have replaced it, at a gate that reviews the step or at one about its output; an agent may have
/// answered once more because its answer was not as it should be. The newest counts.
pub(crate) fn response<'a>(
    run: &Run<'a>,
    frame: &Frame<'a>,
    one: &Seen<'a>,
    seq: i64,
) -> Result<(Value, Option<Value>), Trouble> {
    let own = text(run, &one.record)?;
    let read = |text: Option<String>| match (text, &one.step.output) {
        (Some(text), Some(output)) if output.schema.is_some() => extract::extract(&text).unwrap_or(Value::String(text)),
        (Some(text), _) => Value::String(text),
        (None, _) => Value::Null,
    };
    let mut newest: (Option<i64>, Value) = (one.record.done, read(own.clone()));
    let mut replaced = false;
    if one.step.output.is_some() {
        for record in run.beneath(&one.record.path, seq) {
            if record.done <= newest.0 {
                continue;
            }
            let value = match record.kind {
                StepKind::Agent if record.phase == StepPhase::Succeeded => read(text(run, &record)?),
                StepKind::Hitl if verdict(&record) == Some(Verdict::Modify) => {
                    replaced = true;
                    replacement(run, &record)?
                }
                _ => continue,
            };
            newest = (record.done, value);
        }
    }
    for gate in frame.reviewers(run, one, seq) {
        if gate.done > newest.0 {
            replaced = true;
            newest = (gate.done, replacement(run, &gate)?);
        }
    }
    Ok((newest.1, replaced.then(|| read(own))))
}

impl<'a> Frame<'a> {
    /// The gates of the list that replaced the response of this record.
    fn reviewers(&self, run: &Run<'a>, one: &Seen<'a>, seq: i64) -> Vec<StepRecord> {
        let seen = |record: &StepRecord| record.done.is_some_and(|done| done < seq);
        let books = run.books.borrow();
        let modified = books.journal.under(&self.prefix).filter(|r| {
            r.kind == StepKind::Hitl && verdict(r) == Some(Verdict::Modify) && seen(r) && r.done > one.record.done
        });
        let reviews = |record: &&StepRecord| {
            let Some(rest) = record.path.strip_prefix(&self.prefix).filter(|rest| !rest.contains('/')) else {
                return false;
            };
            let gate = self.named(super::parts(rest).0).and_then(PlannedStep::gate);
            let reviewed = gate.and_then(PlannedGate::reviews).and_then(|at| self.step(at));
            reviewed.is_some_and(|reviewed| reviewed.path == one.step.path)
        };
        modified.filter(reviews).cloned().collect()
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
pub(crate) fn view<'a>(run: &Run<'a>, frame: &Frame<'a>, one: &Seen<'a>, seq: i64) -> Result<Value, Trouble> {
    let record = &one.record;
    let (response, original) = response(run, frame, one, seq)?;
    let mut view = json!({
        "name": one.step.name,
        "type": record.kind.name(),
        "status": if left_out(run, one, seq) { "skipped" } else { status(record.phase) },
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

/// Whether people left out a step that had failed.
fn left_out(run: &Run<'_>, one: &Seen<'_>, seq: i64) -> bool {
    one.step.escalation.is_some()
        && one.record.phase != StepPhase::Succeeded
        && run.beneath(&one.record.path, seq).last().and_then(verdict) == Some(Verdict::Skip)
}

/// What `hitl` holds.
pub(crate) fn hitl(run: &Run<'_>, gate: &Seen<'_>) -> Result<Value, Trouble> {
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

pub(super) fn no_decision() -> Value {
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

fn verdict(record: &StepRecord) -> Option<Verdict> {
    record.decision.as_ref().and_then(|decision| decision.verdict)
}

/// What a person put in the place of a response.
fn replacement(run: &Run<'_>, gate: &StepRecord) -> Result<Value, Trouble> {
    let decision = decision(run, gate)?;
    Ok(decision.parameters.and_then(|p| p.0.get("response").cloned()).unwrap_or(Value::Null))
}

fn text(run: &Run<'_>, record: &StepRecord) -> Result<Option<String>, Trouble> {
    run.text_of(record.response.as_ref(), record.response_ref.as_ref())
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
