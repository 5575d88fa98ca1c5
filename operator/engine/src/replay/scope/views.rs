//! The view of one record in templates: its response with the edits of people, its status, its decision.
//!
//! **Invariant:** texts of people and models stay unchanged; a replaced response is shown beside the original.

use serde_json::{Value, json};
use signoff_api::{
    Outcome, RecordPath, Seq, Verdict,
    journal::{StepKind, StepPhase, StepRecord},
};
use signoff_expr::{json as extract, number::first_inexact};

use super::{StepScope, VisibleRecord, editors};

use crate::{
    plan::{Action, PlannedGate, PlannedStep},
    replay::run::{RenderError, Run},
};

/// Returns the response of a record as later steps see the response, and the original if a person replaced it. Notes
/// the origins of the response.
///
/// A person can replace the response at a gate that reviews the step or its output, and an agent can answer again after
/// an invalid answer. The newest response counts. A discarded response does not count.
pub(crate) fn response<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    visible: &VisibleRecord<'a>,
    seq: Seq,
) -> Result<(Value, Option<Value>), RenderError> {
    editors::note_response(run, step_scope, visible, seq)?;
    if run.origins.are_only_noted() {
        return Ok((Value::Null, None));
    }
    let read = |record: &StepRecord| -> Result<Value, RenderError> {
        if record.calls_tools() {
            return Ok(Value::Null);
        }
        let has_schema = visible.step.output.as_ref().is_some_and(|output| output.schema.is_some());
        let text = run.text_of(record.response.as_ref(), record.response_ref.as_ref())?;
        let json = text.as_deref().filter(|_| has_schema).and_then(extract::extract);
        Ok(json.or(text.map(Value::String)).unwrap_or(Value::Null))
    };
    let children = ChildRecords::of(run, &visible.record, seq);
    let (mut current, mut original) = (read(children.accepted(&visible.record))?, None);
    if children.replaced_by(visible.step).is_some() {
        original = Some(read(children.answered(&visible.record))?);
    }
    if let Some(gate) = step_scope.reviewers(run, visible, seq).pop() {
        original = original.or(Some(current));
        current = replaced_response(run, &gate)?;
    }
    Ok((current, original))
}

/// Returns the response of a record as people read it: JSON as one line, or the original text if the JSON has a number
/// that no double holds exactly.
pub(crate) fn response_text<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    visible: &VisibleRecord<'a>,
    seq: Seq,
) -> Result<String, RenderError> {
    let (response, _) = response(run, step_scope, visible, seq)?;
    if let Value::String(text) = response {
        return Ok(text);
    }
    let children = ChildRecords::of(run, &visible.record, seq);
    let settled = children.accepted(&visible.record);
    match first_inexact(&response) {
        Some(_) => Ok(run.text_of(settled.response.as_ref(), settled.response_ref.as_ref())?.unwrap_or_default()),
        None => Ok(response.to_string()),
    }
}

/// The records below a step's record that are newer than the step's last attempt.
pub(super) struct ChildRecords(Vec<StepRecord>);

impl ChildRecords {
    pub(super) fn of(run: &Run<'_>, record: &StepRecord, seq: Seq) -> Self {
        let mut children = run.children(&record.path, seq);
        // Deeper records belong to calls and turns of an agent.
        let above = Some(RecordPath::new(&record.path));
        children.retain(|later| later.done > record.done && RecordPath::new(&later.path).parent() == above);
        Self(children)
    }

    /// Returns the record of the accepted answer: `.answer`, or the record of the attempt if there is no `.answer`.
    fn accepted<'r>(&'r self, record: &'r StepRecord) -> &'r StepRecord {
        self.0.iter().rfind(|r| RecordPath::new(&r.path).last().is_answer()).unwrap_or(record)
    }

    /// Returns the record of the agent's accepted answer.
    pub(super) fn answered<'r>(&'r self, record: &'r StepRecord) -> &'r StepRecord {
        let again = |r: &&StepRecord| r.kind == StepKind::Agent && r.phase == StepPhase::Succeeded;
        self.0.iter().rfind(again).unwrap_or(record)
    }

    /// Returns the gate at which people replaced the response. A Respond there is the result of a call of a tool, or
    /// only a note for another step.
    pub(super) fn replaced_by(&self, step: &PlannedStep) -> Option<&StepRecord> {
        let replaces = |record: &StepRecord| match verdict(record) {
            Some(Verdict::Modify) => true,
            Some(Verdict::Respond) => step.is_tool(),
            _ => false,
        };
        self.0.iter().rfind(|r| super::parts(&r.path).0 == ".output" && replaces(r))
    }

    /// Whether people skipped the failed step.
    fn is_skipped(&self) -> bool {
        self.0.iter().rfind(|r| r.kind == StepKind::Hitl).and_then(verdict) == Some(Verdict::Skip)
    }
}

/// Whether the step of a record has an accepted answer, as of `seq`.
pub(crate) fn has_answer(run: &Run<'_>, record: &StepRecord, seq: Seq) -> bool {
    let children = ChildRecords::of(run, record, seq);
    let settled = children.accepted(record);
    (settled.response.is_some() || settled.response_ref.is_some()) && !settled.calls_tools()
}

impl<'a> StepScope<'a> {
    /// Returns the gates of the list that replaced the response of a record, in the order of their ends.
    pub(super) fn reviewers(&self, run: &Run<'a>, visible: &VisibleRecord<'a>, seq: Seq) -> Vec<StepRecord> {
        let reviews = |step: &&&'a PlannedStep| {
            let reviewed = step.gate().and_then(PlannedGate::reviews).and_then(|at| self.step(at));
            reviewed.is_some_and(|reviewed| reviewed.path == visible.step.path)
        };
        let modified = self.list.iter().filter(reviews).flat_map(|gate| {
            let place = format!("{}{}", self.prefix, gate.name);
            run.call_history().modified_at(&place)
        });
        // A decision after the next visit of the step is about that visit.
        let until = next_visit_of(run, &visible.record.path).map_or(seq, |next| next.min(seq));
        let is_later = |r: &&StepRecord| r.done.is_some_and(|done| done < until) && r.done > visible.record.done;
        let mut gates: Vec<_> = modified.filter(is_later).cloned().collect();
        gates.sort_by_key(|record| record.done);
        gates
    }
}

/// Returns the number at which the next visit of a record's step began.
fn next_visit_of(run: &Run<'_>, path: &str) -> Option<Seq> {
    let path = RecordPath::new(path);
    let next = path.without_last_visit().at_visit(path.last().visit() + 1);
    run.state.borrow().journal.get(&next, 1).map(|record| record.seq)
}

/// Returns the whole decision of a gate.
pub(crate) fn decision(run: &Run<'_>, record: &StepRecord) -> Result<Outcome, RenderError> {
    match run.text_of(None, record.decision_ref.as_ref())? {
        None => Ok(record.decision.clone().unwrap_or_default()),
        Some(whole) => serde_json::from_str(&whole).map_err(|why| {
            RenderError::Invalid(format!("the stored decision of {} cannot be read: {why}", record.path))
        }),
    }
}

/// Returns the value of `steps.<name>`, and notes the origins of the fields that a template reads. `is_read` says
/// whether a template reads a field.
pub(crate) fn view<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    visible: &VisibleRecord<'a>,
    seq: Seq,
    is_read: &dyn Fn(&str) -> bool,
) -> Result<Value, RenderError> {
    let record = &visible.record;
    let is_response_read = is_read("response") || is_read("original");
    let (response, original) = run.origins.note_if(is_response_read, || response(run, step_scope, visible, seq))?;
    let of_gate =
        if record.kind == StepKind::Hitl { hitl_view(run, step_scope, visible, is_read)? } else { no_decision() };
    if run.origins.are_only_noted() {
        return Ok(Value::Null);
    }
    let children = ChildRecords::of(run, record, seq);
    let settled = children.accepted(record);
    let number = |fact: &str| record.facts.get(fact).and_then(|number| number.parse::<i64>().ok());
    let was_skipped = settled.phase != StepPhase::Succeeded && children.is_skipped();
    let mut view = json!({
        "name": visible.step.name,
        "type": record.kind.name(),
        "status": if was_skipped { "skipped" } else { status(settled.phase) },
        "response": response,
        "original": original,
        "error": settled.error.as_ref().map(|e| e.message.clone()),
        "statusCode": number("statusCode"),
        "exitCode": number("exitCode"),
        "log": record.log.as_ref().map(|log| log.tail.clone()),
    });
    if let (Some(view), Some(of_gate)) = (view.as_object_mut(), of_gate.as_object()) {
        for key in ["decision", "answers", "parameters", "guidance", "reason", "decidedBy", "decidedAt"] {
            view.insert(key.to_owned(), of_gate.get(key).cloned().unwrap_or(Value::Null));
        }
    }
    Ok(view)
}

/// Returns the value of `hitl`, and notes the edits in the fields that a template reads. `is_read` says whether a
/// template reads a field.
pub(super) fn hitl_view<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    gate: &VisibleRecord<'a>,
    is_read: &dyn Fn(&str) -> bool,
) -> Result<Value, RenderError> {
    // The parameters are texts of people after a Modify, the response and the answers after a Respond.
    for (verdict, fields) in [(Verdict::Modify, &["parameters"][..]), (Verdict::Respond, &["response", "answers"])] {
        if fields.iter().any(|field| is_read(field)) {
            editors::note_gate(run, step_scope, &gate.record, verdict)?;
        }
    }
    if run.origins.are_only_noted() {
        return Ok(no_decision());
    }
    let outcome = decision(run, &gate.record)?;
    let Action::Gate(planned) = &gate.step.action else { return Ok(no_decision()) };
    Ok(json!({
        "decision": outcome.verdict.map(|v| verdict_text(planned, v)),
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

/// Returns the value of a verdict in templates.
pub(crate) fn verdict_text(gate: &PlannedGate, verdict: Verdict) -> String {
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

pub(super) fn verdict(record: &StepRecord) -> Option<Verdict> {
    record.decision.as_ref().and_then(|decision| decision.verdict)
}

/// Returns the response by which a person replaced a value.
fn replaced_response(run: &Run<'_>, gate: &StepRecord) -> Result<Value, RenderError> {
    let decision = decision(run, gate)?;
    Ok(decision.parameters.and_then(|p| p.0.get("response").cloned()).unwrap_or(Value::Null))
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
