//! The people who changed a value before a gate shows it: each Modify or Respond that replaced it, as the journal has it.
//!
//! Pure: reads only records that were done before a number of the journal, so that every replay finds the same edits.

use std::{cmp::Reverse, collections::BTreeSet, rc::Rc};

use serde_json::Value;
use signoff_api::{
    Digest, Outcome, Verdict,
    approval::Edit,
    journal::{StepKind, StepRecord},
};
use signoff_expr::Reference;

use super::{
    RequestedNames, StepScope, VisibleRecord, references,
    views::{self, ChildRecords},
};

use crate::{
    plan::PlannedStep,
    replay::run::{RenderError, Run},
};

/// The edits of a value that a pattern gives, as of a number of the journal.
pub(crate) type EditsAt<'a> = Rc<dyn Fn(&Run<'a>, i64) -> Result<Vec<Edit>, RenderError> + 'a>;

/// The names of variables, and the edits of their values.
pub(crate) type EditsOfVars<'a> = (&'static [&'static str], EditsAt<'a>);

/// The longest name of a gate in an edit, in characters.
const NAME: usize = 95;

/// Returns the edit by which a gate replaced a value. `original`: the digest of the text that the gate reviewed.
pub(crate) fn edit(record: &StepRecord, outcome: &Outcome, gate: &str, original: Digest) -> Edit {
    Edit {
        by: outcome.decided_by.clone(),
        gate: gate.chars().take(NAME).collect(),
        path: record.path.clone(),
        at: outcome.decided_at.or(record.finished_at).unwrap_or(record.at),
        verdict: outcome.verdict.unwrap_or(Verdict::Modify),
        original,
    }
}

/// Returns the edits of the response of a record, newest first: at the gate about its answer, and at the gates of its list that review
/// it.
pub(crate) fn of_record<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    one: &VisibleRecord<'a>,
    seq: i64,
) -> Result<Vec<Edit>, RenderError> {
    let children = ChildRecords::of(run, &one.record, seq);
    let mut edits = Vec::new();
    if let Some(gate) = children.replaced_by(one.step) {
        let answered = children.answered(&one.record);
        let before = run.text_of(answered.response.as_ref(), answered.response_ref.as_ref())?.unwrap_or_default();
        let planned = one.step.output.as_ref().and_then(|output| output.gate.as_deref());
        let name = planned.map_or(".output", |gate| gate.name.as_str());
        edits.push(edit(gate, &views::decision(run, gate)?, name, Digest::of_bytes(before.as_bytes())));
    }
    for gate in step_scope.reviewers(run, one, seq) {
        let (before, _) = views::response(run, step_scope, one, gate.seq)?;
        let (name, _) = super::parts(&gate.path);
        edits.push(edit(&gate, &views::decision(run, &gate)?, name, digest_of(&before)));
    }
    Ok(newest_first(run, edits))
}

/// Returns the edits of the newest response that a scope sees.
pub(crate) fn of_newest<'a>(run: &Run<'a>, step_scope: &StepScope<'a>, seq: i64) -> Result<Vec<Edit>, RenderError> {
    match step_scope.newest(run, seq, |record| views::answers(run, record, seq)) {
        Some(newest) => of_record(run, step_scope, &newest, seq),
        None => Ok(Vec::new()),
    }
}

/// Returns the edits of all values that these references can read, newest first: of steps, of the newest response, and of the
/// variables of a pattern.
pub(crate) fn of_values<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    wanted: &BTreeSet<Reference>,
    seq: i64,
) -> Result<Vec<Edit>, RenderError> {
    let names = RequestedNames(wanted);
    let mut found = Vec::new();
    if names.root("steps") {
        let seen = step_scope.seen(run, seq);
        for (at, one) in seen.iter().filter(|one| one.step.added_by.is_none()).enumerate() {
            if names.member("steps", &one.step.name, at) {
                found.push(of_record(run, step_scope, one, seq));
            }
        }
    }
    let of_var = |root: &str| step_scope.edits.iter().rfind(|(roots, _)| roots.contains(&root)).map(|(_, edits)| edits);
    if names.root("last_response") && of_var("last_response").is_none() {
        found.push(of_newest(run, step_scope, seq));
    }
    let roots: BTreeSet<&str> = wanted.iter().map(|reference| reference.root.as_str()).collect();
    found.extend(roots.into_iter().filter_map(of_var).map(|edits| edits(run, seq)));
    Ok(newest_first(run, super::all(found)?.into_iter().flatten().collect()))
}

/// Returns the edits of all values that the templates of a step can read.
pub(crate) fn of_step<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    seq: i64,
) -> Result<Vec<Edit>, RenderError> {
    of_values(run, step_scope, &references(run, step), seq)
}

/// Returns the edits of the arguments of the call at a path, newest first.
pub(crate) fn of_call(run: &Run<'_>, path: &str, seq: i64) -> Result<Vec<Edit>, RenderError> {
    let is_edit = |record: &&StepRecord| {
        let (name, _) = super::parts(&record.path);
        name == ".gate" && record.kind == StepKind::Hitl && views::verdict(record) == Some(Verdict::Modify)
    };
    let gates = run.children(path, seq);
    let edits = gates.iter().filter(is_edit).map(|gate| {
        // The gates of a call record the digest of the arguments that they asked about.
        let arguments =
            gate.facts.get("arguments").and_then(|digest| serde_json::from_value(digest.as_str().into()).ok());
        let original = arguments.unwrap_or_else(|| Digest::of_bytes(b""));
        Ok(edit(gate, &views::decision(run, gate)?, &asking(run, gate), original))
    });
    Ok(newest_first(run, super::all(edits.collect())?))
}

/// Returns the names of the gates for which a record asked about a call.
fn asking(run: &Run<'_>, record: &StepRecord) -> String {
    let places = record.facts.get("gates").map(String::as_str).unwrap_or_default();
    let places = places.split(',').filter_map(|place| place.parse::<usize>().ok());
    let names: Vec<_> =
        places.filter_map(|at| run.plan.tools.gates.get(at)).map(|gate| gate.gate.name.as_str()).collect();
    if names.is_empty() { ".gate".to_owned() } else { names.join(", ") }
}

/// Sorts edits by the end of their gates, and drops repeated ones.
pub(crate) fn newest_first(run: &Run<'_>, mut edits: Vec<Edit>) -> Vec<Edit> {
    let state = run.state.borrow();
    let done = |edit: &Edit| state.journal.get(&edit.path, 1).and_then(|record| record.done);
    edits.sort_by_key(|edit| Reverse(done(edit)));
    edits.dedup_by(|a, b| a.path == b.path);
    edits
}

/// Returns the digest of a value as people are shown it.
pub(crate) fn digest_of(value: &Value) -> Digest {
    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Digest::of_bytes(shown.as_bytes())
}
