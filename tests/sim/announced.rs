//! Typed events: each is announced once its object is stored, and the same event can be derived from the stored
//! objects, whenever the operator was killed.

use std::collections::BTreeMap;

use futures::{FutureExt, future::BoxFuture};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signoff_api::{
    Approval, Workflow,
    announce::TypedEvent,
    approval::ApprovalPhase,
    occurrence::{GateEvent, Occurrence, RunEvent},
    workflow::WorkflowPhase,
};
use signoff_tests::sim::{Crash, Fault, On};

use crate::{
    harness::{Harness, OPERATOR},
    people::{People, name, verdict},
    scenarios::{RUN, chain, gate, set},
};

/// Returns a gate with a reminder after 20 s, which olga can also decide after a minute.
fn escalating() -> Value {
    let timeout = json!({
        "after": "60s", "action": "Escalate", "reminderInterval": "20s", "maxReminders": 1,
        "escalation": [{"after": "60s", "to": [{"kind": "User", "name": "olga"}]}],
    });
    chain(json!([gate("review", json!({"timeout": timeout})), set("send", "sent")]))
}

/// Returns a gate with a deadline of a minute.
fn expiring() -> Value {
    chain(json!([gate("review", json!({"timeout": {"after": "60s", "action": "Skip"}})), set("send", "sent")]))
}

fn approve_as_olga(people: People) -> BoxFuture<'static, ()> {
    async move { people.decide("olga", "review", 90, verdict("Approve")).await }.boxed()
}

fn no_decision(_: People) -> BoxFuture<'static, ()> {
    std::future::ready(()).boxed()
}

fn typed<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// Returns the events that can be derived from the stored objects.
fn derive_events(harness: &Harness) -> Vec<TypedEvent> {
    let workflow: Workflow = typed(harness.workflow(RUN));
    let approvals: Vec<Approval> = harness.approvals().into_iter().map(typed).collect();
    let uid_of = |name: &str| {
        let found = approvals.iter().find(|approval| approval.metadata.name.as_deref() == Some(name));
        found.and_then(|approval| approval.metadata.uid.clone()).unwrap()
    };
    let runs = [Occurrence::accepted(&workflow), Occurrence::ended(&workflow)].into_iter().flatten();
    let gates = approvals.iter().flat_map(Occurrence::all_of);
    let records = workflow.status.iter().flat_map(|status| &status.steps);
    let ended = records.filter(|record| record.phase.is_end() && record.object.is_some());
    let taken = ended.filter_map(|record| Occurrence::taken(record, &uid_of(record.object.as_ref().unwrap())));
    let gates: Vec<_> = gates.chain(taken).map(TypedEvent::Gate).collect();
    runs.map(TypedEvent::Run).chain(gates).collect()
}

/// Returns the object and the transition of an event, which identify it.
fn identity(event: &TypedEvent) -> (String, String) {
    match event {
        TypedEvent::Gate(Occurrence { uid, key, .. }) => (uid.clone(), format!("gate {key}")),
        TypedEvent::Run(Occurrence { uid, key, .. }) => (uid.clone(), format!("run {key}")),
    }
}

fn kinds(events: &[TypedEvent]) -> Vec<String> {
    let kind = |event: &TypedEvent| match event {
        TypedEvent::Gate(Occurrence { event, .. }) => format!("{event:?}"),
        TypedEvent::Run(Occurrence { event, .. }) => format!("{event:?}"),
    };
    events.iter().map(kind).collect()
}

#[tokio::test(start_paused = true)]
async fn each_event_of_a_gate_and_its_run_is_announced_once_and_in_order() {
    let harness = Harness::new();
    harness.apply(RUN, &escalating());
    let _life = harness.begin(OPERATOR);
    tokio::spawn(approve_as_olga(harness.people()));
    harness.wait_for_end(RUN).await;
    harness.pass(10).await;
    let announced = harness.announced.all();
    let expected = [
        "Accepted",
        "Asked",
        "Reminded",
        "Escalated",
        "Reminded",
        "Decided(Approved)",
        "Taken(Approved)",
        "Ended(Succeeded)",
    ];
    assert_eq!(kinds(&announced), expected);
    for event in derive_events(&harness) {
        assert!(announced.contains(&event), "{event:?}: {announced:#?}");
    }
    assert!(announced.iter().all(|event| match event {
        TypedEvent::Gate(gate) => !gate.uid.is_empty() && gate.digest.is_some(),
        TypedEvent::Run(run) => !run.uid.is_empty() && run.digest.is_some(),
    }));
    let ended =
        |kind: &str, phase: &str| harness.metric(&format!("signoff_ended_total{{kind=\"{kind}\",phase=\"{phase}\"}}"));
    assert_eq!((ended("Approval", "Approved"), ended("Workflow", "Succeeded")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_announced_as_expired_and_a_refused_run_has_no_digest() {
    let harness = Harness::new();
    harness.apply(RUN, &expiring());
    harness.apply("refused", &chain(json!([set("send", "{{ nothing }}")])));
    let _life = harness.begin(OPERATOR);
    harness.wait_for_end(RUN).await;
    harness.wait_for_end("refused").await;
    harness.pass(10).await;
    let gates = harness.announced.all().into_iter().filter_map(|event| match event {
        TypedEvent::Gate(gate) => Some(gate.event),
        TypedEvent::Run(_) => None,
    });
    let expected = [GateEvent::Asked, GateEvent::Expired, GateEvent::Taken(ApprovalPhase::Expired)];
    assert_eq!(gates.collect::<Vec<_>>(), expected);
    let refused: Workflow = typed(harness.workflow("refused"));
    let end = Occurrence::ended(&refused).unwrap();
    assert_eq!((end.event, &end.digest), (RunEvent::Ended(WorkflowPhase::Failed), &None));
    assert!(harness.announced.all().contains(&TypedEvent::Run(end)));
    assert_eq!(Occurrence::accepted(&refused), None);
}

/// Runs one Workflow, in which `act` plays the people after `after` seconds. Returns the kinds of the announced events,
/// and checks that each derived event was announced once.
async fn announced_kinds(spec: &Value, after: u64, act: impl AsyncFnOnce(&Harness)) -> Vec<String> {
    let harness = Harness::new();
    harness.apply(RUN, spec);
    let _life = harness.begin(OPERATOR);
    harness.pass(after).await;
    act(&harness).await;
    harness.wait_for_end(RUN).await;
    harness.pass(10).await;
    let announced = harness.announced.all();
    for event in derive_events(&harness) {
        let count = announced.iter().filter(|other| identity(other) == identity(&event)).count();
        assert!(announced.contains(&event) && count == 1, "{event:?}: {announced:#?}");
    }
    kinds(&announced)
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_ends_with_its_run_is_announced() {
    let waits = chain(json!([gate("review", json!({})), set("send", "sent")]));
    let cancelled = announced_kinds(&waits, 5, async |harness| harness.people().set_field(RUN, "cancel", true)).await;
    let mut sorted = cancelled.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["Accepted", "Asked", "Decided(Cancelled)", "Ended(Cancelled)", "Taken(Cancelled)"]);

    // A branch fails while the gate of the other one waits.
    let mut branches = chain(json!([
        gate("review", json!({})),
        gate("late", json!({"timeout": {"after": "30s", "action": "Abort"}})),
    ]));
    branches["pattern"] = json!({"parallel": {}});
    for (at, step) in branches["steps"].as_array_mut().unwrap().iter_mut().enumerate() {
        step["branch"] = json!(format!("b{at}"));
    }
    let mut failed = announced_kinds(&branches, 60, async |_| {}).await;
    failed.sort_unstable();
    let expected = [
        "Accepted",
        "Asked",
        "Asked",
        "Decided(Cancelled)",
        "Ended(Aborted)",
        "Expired",
        "Taken(Cancelled)",
        "Taken(Expired)",
    ];
    assert_eq!(failed, expected);
}

/// Runs one Workflow whose operator dies at its `nth` write, and checks that equal events have equal content. Returns
/// whether there was such a write.
async fn kill_at_write(
    spec: fn() -> Value,
    people: fn(People) -> BoxFuture<'static, ()>,
    nth: u64,
    crash: Crash,
) -> bool {
    let harness = Harness::new();
    harness.apply(RUN, &spec());
    harness.server.fault(On::writes_of(OPERATOR).nth(nth), Fault::Crash(crash));
    tokio::spawn(people(harness.people()));
    let ((), deaths) = harness
        .keep_alive(&[OPERATOR], async {
            harness.wait_for_end(RUN).await;
            harness.pass(10).await;
        })
        .await;
    let mut known = BTreeMap::new();
    for event in harness.announced.all().into_iter().chain(derive_events(&harness)) {
        let first = known.entry(identity(&event)).or_insert_with(|| event.clone());
        assert_eq!(*first, event, "write {nth}, {crash:?}: {}", harness.server.story());
    }
    deaths > 0
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_derived_again_after_a_crash_is_equal() {
    let mut points = 0_u64;
    for crash in [Crash::Applied, Crash::NotApplied] {
        let mut nth = 1;
        while kill_at_write(escalating, approve_as_olga, nth, crash).await {
            nth += 1;
        }
        let mut of_expiring = 1;
        while kill_at_write(expiring, no_decision, of_expiring, crash).await {
            of_expiring += 1;
        }
        assert!(nth.min(of_expiring) > 5, "the runs have more writes than {nth} and {of_expiring}");
        points += nth - 1 + of_expiring - 1;
    }
    signoff_tests::tried(points.try_into().unwrap(), "crash points of announcements");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_level_is_stored_at_its_escalation_and_kept_over_restarts() {
    let harness = Harness::new();
    harness.apply(RUN, &escalating());
    let life = harness.begin(OPERATOR);
    harness.pass(50).await;
    assert!(harness.approval()["status"]["levelAt"].is_null(), "level 0 is the request itself");
    harness.pass(13).await;
    let status = harness.approval()["status"].clone();
    assert_eq!((&status["level"], &status["levelAt"]), (&json!(1), &harness.approval()["spec"]["request"]["deadline"]));
    life.crash().await;
    let life = harness.begin(OPERATOR);
    harness.pass(30).await;
    life.crash().await;
    let _life = harness.begin(OPERATOR);
    harness.people().vote("alice", &name(&harness.approval()), verdict("Approve"));
    harness.wait_for_end(RUN).await;
    assert_eq!(harness.approval()["status"]["levelAt"], status["levelAt"]);
    let reminded = harness.events("Reminder");
    assert_eq!(reminded.len(), 2, "one in each level");
}
