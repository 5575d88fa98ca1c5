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
    plan::{Action, PlannedStep},
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
    of_record_once(run, step_scope, one, seq, &mut BTreeSet::new())
}

/// The same, of each record once: texts can be made of each other. `read`: the paths of the records that were read.
fn of_record_once<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    one: &VisibleRecord<'a>,
    seq: i64,
    read: &mut BTreeSet<String>,
) -> Result<Vec<Edit>, RenderError> {
    if !read.insert(one.record.path.clone()) {
        return Ok(Vec::new());
    }
    let children = ChildRecords::of(run, &one.record, seq);
    let mut edits = Vec::new();
    if one.record.kind == StepKind::Hitl {
        edits.extend(of_gate(run, &one.record, &[Verdict::Respond])?);
    }
    if matches!(one.step.action, Action::Set(_)) {
        // A text is made of what it reads, and people can give it themselves after a failure.
        edits.extend(of_values_once(run, step_scope, &references(run, one.step), one.record.seq, read)?);
        for gate in direct_children(run, &one.record.path, ".error", seq) {
            if views::verdict(&gate) == Some(Verdict::Modify) {
                edits.push(edit(&gate, &views::decision(run, &gate)?, ".error", Digest::of_bytes(b"")));
            }
        }
    }
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
    of_values_once(run, step_scope, wanted, seq, &mut BTreeSet::new())
}

/// Returns the edit that the decision at a gate is, if it has one of these verdicts: the response of a Respond and the parameters of a
/// Modify are texts of people.
fn of_gate(run: &Run<'_>, record: &StepRecord, verdicts: &[Verdict]) -> Result<Option<Edit>, RenderError> {
    if !views::verdict(record).is_some_and(|verdict| verdicts.contains(&verdict)) {
        return Ok(None);
    }
    let (name, _) = super::parts(&record.path);
    Ok(Some(edit(record, &views::decision(run, record)?, name, Digest::of_bytes(b""))))
}

/// Returns the records of this name directly beneath a path that were done before a number of the journal.
fn direct_children(run: &Run<'_>, path: &str, name: &str, seq: i64) -> Vec<StepRecord> {
    let is_direct = |record: &StepRecord| {
        let rest = record.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('/'));
        rest.is_some_and(|rest| !rest.contains('/') && super::parts(rest).0 == name)
    };
    run.children(path, seq).into_iter().filter(is_direct).collect()
}

fn of_values_once<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    wanted: &BTreeSet<Reference>,
    seq: i64,
    read: &mut BTreeSet<String>,
) -> Result<Vec<Edit>, RenderError> {
    let names = RequestedNames(wanted);
    let mut found = Vec::new();
    if names.root("steps") {
        let seen = step_scope.seen(run, seq);
        for (at, one) in seen.iter().filter(|one| one.step.added_by.is_none()).enumerate() {
            if names.member("steps", &one.step.name, at) {
                found.push(of_record_once(run, step_scope, one, seq, read));
                if one.record.kind == StepKind::Hitl && names.field("steps", &one.step.name, "parameters") {
                    found.push(of_gate(run, &one.record, &[Verdict::Modify]).map(|edit| edit.into_iter().collect()));
                }
            }
        }
    }
    let of_var = |root: &str| step_scope.edits.iter().rfind(|(roots, _)| roots.contains(&root)).map(|(_, edits)| edits);
    if names.root("last_response") && of_var("last_response").is_none() {
        let newest = step_scope.newest(run, seq, |record| views::answers(run, record, seq));
        found.extend(newest.map(|newest| of_record_once(run, step_scope, &newest, seq, read)));
    }
    if names.root("hitl") || names.root("hitl_response") {
        let newest = step_scope.newest(run, seq, |record| record.kind == StepKind::Hitl);
        // The twin of a Modify is a word of ours.
        let verdicts =
            if names.root("hitl") { &[Verdict::Respond, Verdict::Modify][..] } else { &[Verdict::Respond][..] };
        found.extend(newest.map(|gate| Ok(of_gate(run, &gate.record, verdicts)?.into_iter().collect())));
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
    let is_edit = |record: &&StepRecord| views::verdict(record) == Some(Verdict::Modify);
    let gates = direct_children(run, path, ".gate", seq);
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
