//! Recorded histories: runs of every example, as journals of runs that ended. A later engine must still read them.
//!
//! A run in flight is any beginning of such a journal. From each beginning, the engine begins nothing that the history
//! did not begin, with the same input, and goes on with everything that is open. From the whole it does nothing at all.
//! The tests of the examples record the histories.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use signoff_api::journal::{FACT_GIVEN, StepKind, StepPhase, StepRecord};
use signoff_api::{Seq, Workflow};
use signoff_engine::{Blobs, Command, Control, Journal, Now, Plan, Settings, advance};

/// Returns the name and the ended Workflow of each history. All have the rules of this version: runs with other rules
/// are held and never replayed.
fn histories() -> Vec<(String, Workflow)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sim/histories");
    let mut found: Vec<(String, Workflow)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let value: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            (path.display().to_string(), serde_json::from_value(value["workflow"].clone()).unwrap())
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 30, "{} histories: where are they?", found.len());
    for (name, workflow) in &found {
        let other = workflow.status.as_ref().unwrap().other_rules();
        assert_eq!(
            other, None,
            "{name}: recorded under other rules; CONTRIBUTING.md, \"A change of what Workflows mean\""
        );
    }
    found
}

/// Returns the journal after the event of this number; its calls had the phase `calls`.
fn as_of(records: &[StepRecord], number: Seq, calls: StepPhase) -> Journal {
    // A text or a condition begins and ends in one event.
    let at_once = |record: &StepRecord| matches!(record.kind, StepKind::Set | StepKind::Condition);
    let begun = records
        .iter()
        .filter(|record| record.seq <= number && (!at_once(record) || record.done.is_some_and(|done| done <= number)));
    let begun = begun.cloned();
    let then = begun.map(|mut record| {
        if record.done.is_some_and(|done| done > number) {
            record.phase = if record.kind == StepKind::Hitl { StepPhase::Waiting } else { calls };
            (record.done, record.finished_at, record.response, record.response_ref) = (None, None, None, None);
            record.opaque_ref = None;
            (record.decision, record.decision_ref, record.error, record.usage) = (None, None, None, None);
            if record.kind != StepKind::Hitl {
                record.facts.retain(|name, _| name == FACT_GIVEN);
            }
        }
        record
    });
    Journal::new(number, then.collect())
}

fn plan(name: &str, workflow: &Workflow) -> Plan {
    Plan::of(workflow, &Settings::default(), &Arc::default()).unwrap_or_else(|why| panic!("{name}: {why:?}"))
}

#[test]
fn a_finished_history_is_replayed_to_its_end_and_issues_no_command() {
    for (name, workflow) in histories() {
        let status = workflow.status.clone().unwrap();
        let now = Now::new(status.finished_at.unwrap(), "local");
        let journal = Journal::new(status.seq, status.steps.clone());
        let turn = advance(&plan(&name, &workflow), Control::default(), journal, Vec::new(), &Blobs::new(), &now);
        assert!(turn.missing.is_empty(), "{name}: the examples' values are short");
        assert!(turn.commands.is_empty(), "{name}: {:?}", turn.commands);
        let end = turn.end.unwrap_or_else(|| panic!("{name}: it did not end"));
        assert_eq!((end.phase(), turn.journal.seq()), (status.phase, status.seq), "{name}: {end:?}");
    }
}

#[test]
fn a_run_in_flight_continues_as_its_history_did() {
    for (name, workflow) in histories() {
        let status = workflow.status.clone().unwrap();
        let plan = plan(&name, &workflow);
        let digests: BTreeMap<_, _> =
            status.steps.iter().map(|r| ((r.path.clone(), r.attempt), r.input_digest.clone())).collect();
        for (number, calls) in
            (0..=status.seq.number()).map(Seq::from).flat_map(|n| [(n, StepPhase::Pending), (n, StepPhase::Started)])
        {
            let at = status.steps.iter().filter(|r| r.seq <= number.next()).map(|r| r.at).max();
            let now = Now::new(at.unwrap_or(status.started_at.unwrap()), "local");
            let journal = as_of(&status.steps, number, calls);
            let turn = advance(&plan, Control::default(), journal, Vec::new(), &Blobs::new(), &now);
            assert!(turn.missing.is_empty(), "{name} as of {number}: the examples' values are short");
            let wanted: BTreeMap<_, _> = turn
                .commands
                .iter()
                .map(|command| match command {
                    Command::Call(call) => (call.path.as_str(), call.attempt),
                    Command::Ask(ask) => (ask.path.as_str(), 1),
                })
                .zip(&turn.commands)
                .collect();
            for record in turn.journal.records() {
                let key = (record.path.clone(), record.attempt);
                let known = digests.get(&key).unwrap_or_else(|| panic!("{name} as of {number}: {key:?} never began"));
                assert_eq!(&record.input_digest, known, "{name} as of {number}: {key:?} was given other input");
                let is_call = !record.phase.is_end() && record.kind != StepKind::Hitl;
                let is_wanted = wanted.contains_key(&(record.path.as_str(), record.attempt));
                assert!(!is_call || is_wanted, "{name} as of {number}: nobody is told to go on with {key:?}");
                let was_asked = record.kind == StepKind::Hitl && record.seq <= number;
                assert!(!was_asked || !is_wanted, "{name} as of {number}: {key:?} is asked twice");
            }
        }
    }
}
