//! The people who changed a value before a gate shows it: each Modify or Respond of the journal that replaced the
//! value.
//!
//! A scope notes the edits of each record that it reads, and the record of each rendered text (`set`). The origins of
//! such a text are computed when a gate asks, by building the scope of the text without values.
//!
//! Pure: reads only records that were done before a number of the journal, so that every replay finds the same edits.

use std::{cmp::Reverse, collections::BTreeSet, rc::Rc};

use signoff_api::{
    Digest, Outcome, RecordPath, Seq, Verdict,
    approval::Edit,
    journal::{StepKind, StepPhase, StepRecord},
};

use signoff_expr::budget;

use super::{
    StepScope, VisibleRecord, general, parts, rendered_references,
    views::{self, ChildRecords},
};

use crate::{
    plan::PlannedGate,
    replay::{
        call_history::RecordKey,
        origins::{Origins, no_original},
        run::{RenderError, Run},
    },
};

/// The work that is charged for each record of the journal, in units of one byte read.
const RECORD_COST: usize = 64;
/// The maximum length of the name of a gate in an edit, in characters.
const NAME: usize = 95;

/// Returns the edit by which a gate replaced a value. `original` is the digest of the text that the gate reviewed.
pub(crate) fn edit_by_gate(record: &StepRecord, outcome: &Outcome, gate: &str, original: Digest) -> Edit {
    Edit {
        by: outcome.decided_by.clone(),
        gate: gate.chars().take(NAME).collect(),
        path: record.path.clone(),
        at: outcome.decided_at.or(record.finished_at).unwrap_or(record.at),
        verdict: outcome.verdict.unwrap_or(Verdict::Modify),
        original,
    }
}

/// Notes the origins of the response of a record: the edits at the gates that review the record, the Respond of a
/// gate's own record, and the rendered text or the cut answer.
pub(super) fn note_response<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    visible: &VisibleRecord<'a>,
    seq: Seq,
) -> Result<(), RenderError> {
    if !run.origins.are_noted() {
        return Ok(());
    }
    let record = &visible.record;
    match record.kind {
        StepKind::Hitl => note_gate(run, step_scope, record, Verdict::Respond)?,
        StepKind::Set if record.phase == StepPhase::Succeeded => {
            run.origins.note_text((record.path.clone(), record.attempt))
        }
        _ => {}
    }
    let children = ChildRecords::of(run, record, seq);
    if let Some(gate) = children.replaced_by(visible.step) {
        let answered = children.answered(record);
        let before = run.text_of(answered.response.as_ref(), answered.response_ref.as_ref())?.unwrap_or_default();
        let planned = visible.step.output.as_ref().and_then(|output| output.gate.as_deref());
        let name = planned.map_or(".output", |gate| gate.name.as_str());
        let original = Digest::of_bytes(before.as_bytes());
        run.origins.note_edits(&[edit_by_gate(gate, &views::decision(run, gate)?, name, original)]);
    }
    let reviewers = step_scope.reviewers(run, visible, seq);
    if children.answered(record).is_cut() && children.replaced_by(visible.step).is_none() && reviewers.is_empty() {
        run.origins.note_cut(&record.path);
    }
    for gate in reviewers {
        note_gate(run, step_scope, &gate, Verdict::Modify)?;
    }
    Ok(())
}

/// Notes the edit of a gate if it was decided with `verdict`: the response of a Respond and the parameters of a Modify
/// are texts of people.
pub(super) fn note_gate<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    record: &StepRecord,
    verdict: Verdict,
) -> Result<(), RenderError> {
    if !run.origins.are_noted() || views::verdict(record) != Some(verdict) {
        return Ok(());
    }
    let original = match verdict {
        Verdict::Modify => run.origins.ignore(|| reviewed_digest(run, step_scope, record))?,
        _ => None,
    };
    let original = original.unwrap_or_else(no_original);
    run.origins.note_edits(&[edit_by_gate(record, &views::decision(run, record)?, parts(&record.path).0, original)]);
    Ok(())
}

/// Returns the digest of the text that a gate of a list reviewed, or `None` for another gate.
fn reviewed_digest<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    gate: &StepRecord,
) -> Result<Option<Digest>, RenderError> {
    let name = gate.path.strip_prefix(&step_scope.prefix).map(|_| parts(&gate.path).0);
    let planned = name.and_then(|name| step_scope.step_named(name)).and_then(|step| step.gate());
    let Some(step) = planned.and_then(PlannedGate::reviews).and_then(|at| step_scope.step(at)) else { return Ok(None) };
    let Some(visible) = step_scope.newest_record(run, step, gate.seq) else { return Ok(None) };
    let text = views::response_text(run, step_scope, &visible, gate.seq)?;
    Ok(Some(Digest::of_bytes(text.as_bytes())))
}

/// Returns the edits among the origins of a value, newest first, and the paths of the steps whose answers were cut.
/// The origins of rendered texts are included; each text is followed once.
pub(crate) fn edits_of_origins(
    run: &Run<'_>,
    mut origins: Origins,
) -> Result<(Vec<Edit>, BTreeSet<String>), RenderError> {
    let mut followed = BTreeSet::new();
    let mut texts: Vec<RecordKey> = origins.take_texts().into_iter().collect();
    while let Some(text) = texts.pop() {
        if followed.contains(&text) {
            continue;
        }
        // The work for a text that reads every record is charged before the text is followed, so that the evaluation
        // can be stopped.
        let records = run.state.borrow().journal.records().len();
        budget::charge(records.saturating_mul(RECORD_COST))
            .map_err(|stopped| RenderError::Invalid(stopped.to_string()))?;
        origins.extend(&*origins_of_text(run, &text)?);
        texts.extend(origins.take_texts());
        followed.insert(text);
    }
    let state = run.state.borrow();
    let (mut edits, cut) = origins.into_edits_and_cut();
    edits.sort_by_key(|edit| Reverse(state.journal.get(&edit.path, 1).and_then(|record| record.done)));
    Ok((edits, cut))
}

/// Returns the origins of a rendered text: the edit of its template by people, or the values that the template read.
fn origins_of_text(run: &Run<'_>, text: &RecordKey) -> Result<Rc<Origins>, RenderError> {
    if let Some(known) = run.origins_of_texts.borrow().get(text) {
        return Ok(Rc::clone(known));
    }
    let invocation = run.invocations.borrow().get(text).cloned();
    let began = run.state.borrow().journal.get(&text.0, text.1).map(|record| record.seq);
    let origins = match invocation.zip(began) {
        Some((invocation, began)) => {
            let visible_before = invocation.visible_before(run, began);
            run.origins.collect_only(|| {
                run.origins.note_edits(&invocation.overrides.edits);
                if invocation.overrides.parameters.contains_key("value") {
                    return Ok(());
                }
                let wanted = rendered_references(run, invocation.step);
                general(run, &invocation.step_scope, &wanted, visible_before).map(drop)
            })?
        }
        None => Origins::default(),
    };
    let origins = Rc::new(origins);
    run.origins_of_texts.borrow_mut().insert(text.clone(), Rc::clone(&origins));
    Ok(origins)
}

/// Returns the edits of the arguments of the call at a path, newest first.
pub(crate) fn edits_of_call(run: &Run<'_>, path: &str, seq: Seq) -> Result<Vec<Edit>, RenderError> {
    let gates = run.call_history().modified_at(&RecordPath::new(path).gate());
    let decided = gates.iter().filter(|gate| gate.done.is_some_and(|done| done < seq));
    let edits = decided.map(|gate| {
        // The gates of a call record the digest of the reviewed arguments.
        let arguments =
            gate.facts.get("arguments").and_then(|digest| serde_json::from_value(digest.as_str().into()).ok());
        let original = arguments.unwrap_or_else(no_original);
        Ok(edit_by_gate(gate, &views::decision(run, gate)?, &gate_names(run, gate), original))
    });
    super::all(edits.collect())
}

/// Returns the names of the gates of a request about a call, from the record of the request.
fn gate_names(run: &Run<'_>, record: &StepRecord) -> String {
    let places = record.facts.get("gates").map(String::as_str).unwrap_or_default();
    let places = places.split(',').filter_map(|place| place.parse::<usize>().ok());
    let names: Vec<_> =
        places.filter_map(|at| run.plan.tools.gates.get(at)).map(|gate| gate.gate.name.as_str()).collect();
    if names.is_empty() { ".gate".to_owned() } else { names.join(", ") }
}
