//! Tests that any order of completions, decisions, repetitions and crashes gives a run the same semantics.
//!
//! Each transition starts from the JSON of the last commit, so every transition is also a restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::{
    Moment, Outcome, Seq, Verdict, Workflow,
    approval::ApprovalPhase,
    journal::{StepKind, StepRecord},
};

use crate::{
    Control, Fact, Journal, Now, Plan, Settings, advance,
    transition::{Blobs, Failure, Reply},
};

/// An event of a run.
#[derive(Clone, Debug)]
enum Event {
    /// A call in flight succeeds with a text of this length.
    Reply(usize),
    /// A call in flight fails.
    Fail { retryable: bool, unknown: bool },
    /// An open gate is decided.
    Decide(Verdict),
    /// The Approval of an open gate is superseded.
    Supersede,
    /// The Approval of an open gate is missing.
    ApprovalMissing,
    /// A fact about a finished record, or about none.
    Stale(usize),
    /// Time passes.
    Wait(u64),
    /// A user suspends or resumes.
    Suspend(bool),
}

/// Generates a list of events.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let verdicts =
        prop::sample::select(Verdict::ALL.iter().copied().filter(|v| *v != Verdict::Escalate).collect::<Vec<_>>());
    let event = prop_oneof![
        4 => (0usize..3000).prop_map(Event::Reply),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(retryable, unknown)| Event::Fail { retryable, unknown }),
        5 => verdicts.prop_map(Event::Decide),
        1 => Just(Event::Supersede),
        1 => Just(Event::ApprovalMissing),
        1 => (0usize..20).prop_map(Event::Stale),
        2 => (0u64..600).prop_map(Event::Wait),
        1 => any::<bool>().prop_map(Event::Suspend),
    ];
    prop::collection::vec(event, 1..60)
}

fn plan() -> Plan {
    let gate = json!({"prompt": "{{ last_response[:20] }}?", "approvers": [{"kind": "User", "name": "alice"}],
        "contextDisplay": "{{ steps.draft.response }}", "allowedVerdicts": Verdict::ALL, "onReject": "continue",
        "escalateTo": [{"kind": "User", "name": "olga"}]});
    let workflow: Workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "uid": "u"},
        "spec": {
            "requestedBy": "dana",
            "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}], "agents": [{"name": "writer"}],
            "steps": [
                {"name": "draft", "agent": {"name": "writer", "input": "write {{ hitl.guidance }}"}, "retry": {"limit": 2}},
                {"name": "note", "set": {"value": "{{ steps.draft.response | length }}"}},
                {"name": "first", "hitl": gate},
                {"name": "fetch", "http": {"url": "http://x/{{ hitl_response[:9] }}"}, "onError": "continue",
                    "skipIf": "steps.first.decision == 'rejected'", "retry": {"limit": 1}},
                {"name": "second", "hitl": gate},
                {"name": "pay", "http": {"method": "POST", "url": "http://x/", "body": "{{ steps.draft.response }}"}},
            ],
        },
    }))
    .unwrap();
    Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap_or_else(|why| panic!("{why:?}"))
}

/// Returns the fact that an event leads to, or `None` if no record fits or only the time or a switch changes.
fn fact_of_event(event: &Event, records: &[StepRecord], at: Moment) -> Option<Fact> {
    let open = |gate: bool| records.iter().find(|r| !r.phase.is_end() && (r.kind == StepKind::Hitl) == gate);
    let ended = |r: &StepRecord, result| Fact::CallFinished { path: r.path.clone(), attempt: r.attempt, result, at };
    let gate = |outcome: Outcome| {
        open(true).map(|r| Fact::ApprovalDecided { path: r.path.clone(), outcome: Box::new(outcome) })
    };
    match event {
        Event::Reply(length) => open(false)
            .map(|r| ended(r, Ok(Reply { response: Value::String("ä{{ x }}".repeat(*length)), ..Reply::default() }))),
        Event::Fail { retryable, unknown } => open(false).map(|r| {
            let failure = Failure {
                class: "Status".into(),
                message: "no".into(),
                retryable: *retryable,
                unknown: *unknown,
                not_before: None,
                facts: BTreeMap::new(),
                log: None,
            };
            ended(r, Err(failure))
        }),
        Event::Decide(verdict) => gate(Outcome {
            verdict: Some(*verdict),
            phase: ApprovalPhase::of(*verdict),
            response: (*verdict == Verdict::Respond).then(|| "answer".repeat(300)),
            guidance: (*verdict == Verdict::Defer).then(|| "again".into()),
            parameters: (*verdict == Verdict::Modify)
                .then(|| serde_json::from_value(json!({"response": "better"})).unwrap()),
            ..Outcome::default()
        }),
        Event::Supersede => gate(Outcome { phase: ApprovalPhase::Superseded, ..Outcome::default() }),
        Event::ApprovalMissing => open(true).map(|r| Fact::ApprovalMissing { path: r.path.clone() }),
        Event::Stale(n) => {
            let path = records.get(*n).filter(|r| r.phase.is_end()).map_or("never", |r| r.path.as_str());
            Some(Fact::ApprovalDecided { path: path.into(), outcome: Box::default() })
        }
        Event::Wait(_) | Event::Suspend(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_keeps_the_journal_whole(events in events()) {
        println!("tried: 1 property cases");
        let plan = plan();
        let mut control = Control::default();
        let mut now = Now::new(Moment::from(jiff::Timestamp::from_second(1_800_000_000).unwrap()), "e");
        let (mut seq, mut records, mut blobs) = (Seq::NONE, Vec::<StepRecord>::new(), Blobs::new());
        for event in std::iter::once(&Event::Wait(0)).chain(&events) {
            match event {
                Event::Wait(seconds) => now.at = now.at.after(Duration::from_secs(*seconds)),
                Event::Suspend(suspend) => control.suspend = *suspend,
                _ => {}
            }
            let facts: Vec<_> = fact_of_event(event, &records, now.at).into_iter().collect();
            let transition = advance(&plan, control, Journal::new(seq, records.clone()), facts.clone(), &blobs, &now);
            prop_assert!(transition.missing.is_empty());
            let same = advance(&plan, control, Journal::new(seq, records.clone()), facts, &blobs, &now);
            prop_assert_eq!(&transition.commands, &same.commands, "the same input gives the same turn");
            blobs.extend(transition.blobs.clone());
            for old in records.iter().filter(|r| r.phase.is_end()) {
                prop_assert_eq!(transition.journal.get(&old.path, old.attempt), Some(old), "a finished record is never edited");
            }
            let mut numbers: Vec<Seq> = transition.journal.records().iter().flat_map(|r| [Some(r.seq), r.done]).flatten().collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            prop_assert_eq!(numbers.len(), count, "each event has a number of its own");
            prop_assert!(numbers.last().is_none_or(|last| *last <= transition.journal.seq()));
            let open: Vec<_> = transition.journal.records().iter().filter(|r| !r.phase.is_end()).collect();
            prop_assert!(open.len() <= 1, "a chain does one thing at a time: {:?}", open);
            let pays = transition.journal.records().iter().filter(|r| r.path.starts_with("pay")).count();
            prop_assert!(pays <= 1, "what is not idempotent begins once");
            if transition.end.is_some() {
                prop_assert!(open.is_empty() && transition.commands.is_empty());
                return Ok(());
            }
            seq = transition.journal.seq();
            records = serde_json::from_value(serde_json::to_value(transition.journal.records()).unwrap()).unwrap();
            let replay = advance(&plan, control, Journal::new(seq, records.clone()), Vec::new(), &blobs, &now);
            prop_assert_eq!(replay.journal.records(), records.as_slice(), "a replay adds nothing");
        }
    }
}
