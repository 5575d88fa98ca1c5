//! The people whom a request excludes because of earlier actions in the run: editors of the reviewed text, and people
//! who decided at other gates.
//!
//! Pure: reads only records that were done before a number of the journal.
//! **Invariant:** a list that is too long is an error, and never cut.

use std::collections::BTreeSet;

use signoff_api::{
    ApprovalRequest, RecordPath, Seq,
    approval::{Edit, Exclusion, Source},
    conditions::reason,
    journal::{StepKind, StepRecord},
};

use crate::{
    field_error::FieldError,
    plan::{PlannedGate, PlannedStep, without_visits},
    policy::EVERY_GATE,
    replay::{
        run::{RenderError, Run},
        scope,
    },
};

/// The fact of the record of a gate with its name, or the names of all gates that asked.
pub(super) const FACT_GATE: &str = "gate";
/// The longest user name that a request can exclude, in characters.
const LONGEST_NAME: usize = 253;
/// The longest name of a gate, in characters.
const LONGEST_GATE: usize = 95;

/// Returns the names of a gate and of the gates merged into it, separated by commas, for the record of the gate.
pub(super) fn gate_names(step: &PlannedStep, gate: &PlannedGate) -> String {
    let merged = gate.merged_gates.iter().map(|(name, _)| name.as_str());
    std::iter::once(step.name.as_str()).chain(merged).collect::<Vec<_>>().join(",")
}

/// Returns the people whom a gate excludes because of earlier decisions, each once. `edits` are the changes to the
/// reviewed text, and `path` is that of the gate's record.
pub(super) fn find_exclusions(
    run: &Run<'_>,
    step: &PlannedStep,
    gate: &PlannedGate,
    edits: &[Edit],
    (path, seq): (&str, Seq),
) -> Result<Vec<Exclusion>, RenderError> {
    let mut exclusions = BTreeSet::new();
    if gate.excludes_editors {
        for edit in edits {
            let record = run.state.borrow().journal.get(&edit.path, 1).cloned();
            let Some(record) = record else { continue };
            let outcome = scope::decision(run, &record)?;
            let of_edit = |user: &String| Exclusion { user: user.clone(), gate: edit.gate.clone(), edited: Some(true) };
            exclusions.extend(outcome.actors().map(of_edit));
        }
    }
    let own = (step.name.as_str(), gate.spec.exclude_deciders.as_slice());
    let merged = gate.merged_gates.iter().map(|(name, excluded)| (name.as_str(), excluded.as_slice()));
    let excluding: Vec<_> = std::iter::once(own).chain(merged).filter(|(_, excluded)| !excluded.is_empty()).collect();
    // A gate that asks again is the same gate, and the gates of one request count as one, but a gate can name itself.
    let group: BTreeSet<&str> =
        std::iter::once(step.name.as_str()).chain(gate.merged_gates.iter().map(|(name, _)| name.as_str())).collect();
    let is_excluded = |name: &str, path: &str, is_other: bool| {
        let by = |(_, excluded): &(&str, &[String])| {
            excluded
                .iter()
                .any(|entry| entry == name || is_added_as(run, entry, name, path) || (entry == EVERY_GATE && is_other))
        };
        excluding.iter().any(by)
    };
    let decided = |record: &&StepRecord| {
        let by_people = record
            .decision
            .as_ref()
            .is_some_and(|outcome| outcome.verdict.is_some() && outcome.source == Source::Human);
        record.kind == StepKind::Hitl && by_people && record.done.is_some_and(|done| done < seq)
    };
    let records: Vec<StepRecord> = match excluding.is_empty() {
        true => Vec::new(),
        false => run.state.borrow().journal.records().iter().filter(decided).cloned().collect(),
    };
    for record in records {
        let names = record.facts.get(FACT_GATE).map_or_else(|| scope::parts(&record.path).0, String::as_str);
        let is_other = match (position_of_gate(path), position_of_gate(&record.path)) {
            (None, None) => names.split(',').all(|name| !group.contains(name)),
            (own, other) => own != other,
        };
        let Some(name) = names.split(',').find(|name| is_excluded(name, &record.path, is_other)) else { continue };
        let name: String = name.chars().take(LONGEST_GATE).collect();
        let outcome = scope::decision(run, &record)?;
        exclusions.extend(outcome.decided_by.into_iter().map(|user| Exclusion {
            user,
            gate: name.clone(),
            edited: None,
        }));
    }
    // Each name has one reason: an edit is more specific than a decision.
    let mut one_each: Vec<Exclusion> = Vec::new();
    for exclusion in exclusions {
        match one_each.iter_mut().find(|known| known.user == exclusion.user) {
            Some(known) if known.edited.is_none() && exclusion.edited.is_some() => *known = exclusion,
            Some(_) => {}
            None => one_each.push(exclusion),
        }
    }
    Ok(one_each)
}

/// Whether a gate was added by a policy under the name `added`: the gate `release-pay` is added before the step `pay`
/// by the policy gate `release`. `path` is the path of the gate's record.
fn is_added_as(run: &Run<'_>, added: &str, gate: &str, path: &str) -> bool {
    let is_added = || run.plan.step_of(path).is_some_and(|step| step.added_by.is_some());
    gate.strip_prefix(added).is_some_and(|rest| rest.starts_with('-')) && is_added()
}

/// Returns the path of a gate without the numbers of visits, turns, calls and workers, or `None` for a gate of a list,
/// which is the same gate everywhere.
fn position_of_gate(path: &str) -> Option<String> {
    (!RecordPath::new(path).last().is_part()).then(|| without_visits(path))
}

/// Returns all user names that a request excludes.
pub(super) fn excluded_users(gate: &PlannedGate, exclusions: &[Exclusion]) -> Vec<String> {
    if exclusions.is_empty() {
        return gate.spec.excluded.clone();
    }
    let all = gate.spec.excluded.iter().chain(exclusions.iter().map(|exclusion| &exclusion.user));
    all.collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

/// Returns an error if a request cannot name all excluded people, or `None`.
pub(super) fn exclusion_error(step: &PlannedStep, gate: &PlannedGate, exclusions: &[Exclusion]) -> Option<FieldError> {
    let all = excluded_users(gate, exclusions);
    let is_long = all.iter().any(|name| name.chars().count() > LONGEST_NAME);
    (is_long || all.len() > ApprovalRequest::MAX_EXCLUDED).then(|| FieldError {
        field: gate.field.clone(),
        message: format!(
            "gate {}: a request can exclude at most {} people, each with at most {LONGEST_NAME} characters, and those who decided or edited before are more: exclude the deciders of fewer gates",
            step.name,
            ApprovalRequest::MAX_EXCLUDED
        ),
        reason: reason::TOO_MANY_EXCLUDED,
    })
}
