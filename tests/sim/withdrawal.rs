//! Withdrawn runs: in a Workflow or a namespace that is being deleted, and cancelled ones. Nothing new starts for them
//! and no timeout ends their gates, whichever write of the operator meets the deletion and however late its watches
//! are.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use signoff_tests::sim::{Answer, ApiServer, Crash, Entry, Fault, On, Request, Resource, Verb, World};

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, OPERATOR, approvals, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, pod, post},
};

#[derive(Clone, Copy, Debug)]
enum Way {
    /// `kubectl delete namespace`: nothing in the namespace is deleted yet.
    Namespace,
    /// The Workflow is being deleted, and a finalizer holds it.
    Held,
    Removed,
    Cancelled,
}

const WAYS: [Way; 4] = [Way::Namespace, Way::Held, Way::Removed, Way::Cancelled];

impl Way {
    fn withdraw(self, server: &ApiServer) {
        let now = server.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        match self {
            Self::Namespace => delete_namespace(server),
            Self::Held => {
                server.edit(&workflows(), NAMESPACE, RUN, |workflow| {
                    workflow["metadata"]["finalizers"] = json!(["other.example/hold"]);
                    workflow["metadata"]["deletionTimestamp"] = json!(now);
                });
            }
            Self::Removed => drop(server.remove(&workflows(), NAMESPACE, RUN)),
            Self::Cancelled => {
                server.edit(&workflows(), NAMESPACE, RUN, |workflow| workflow["spec"]["cancel"] = json!(true));
            }
        }
    }
}

/// Deletes the namespace of all these runs: nothing in it is deleted yet.
pub fn delete_namespace(server: &ApiServer) {
    let now = server.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let metadata = json!({"name": NAMESPACE, "deletionTimestamp": now});
    server.insert(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).unwrap();
}

/// Returns two gates that a timeout approves, each before a payment.
fn payments() -> Value {
    let approved = json!({"timeout": {"after": "5m", "action": "Approve"}});
    chain(json!([
        gate("first", approved.clone()),
        post("pay", "42 EUR", "fail"),
        gate("second", approved),
        post("pay-again", "43 EUR", "fail"),
    ]))
}

/// The counts at the withdrawal of a run.
struct Before {
    effects: usize,
    asked: usize,
    expired: usize,
    /// The write in flight.
    write: Entry,
}

fn is_creation(entry: &Entry) -> bool {
    entry.verb == Verb::Create && entry.resource == approvals()
}

fn count_asked(server: &ApiServer) -> usize {
    server.count(|entry| is_creation(entry) && entry.took_effect())
}

/// Returns the number of Approvals that a timeout has ended, whether they still exist or not.
fn count_expired(server: &ApiServer) -> usize {
    let by_timeout = |entry: &Entry| entry.json()["status"]["outcome"]["source"] == "Timeout";
    server.count(|entry| entry.resource == approvals() && entry.took_effect() && by_timeout(entry))
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_and_no_timeout_ends_after_a_withdrawal_at_any_write() {
    // With late watches, and with fast ones.
    let late = WAYS.into_iter().map(|way| (way, 2));
    for (way, lag) in late.chain([(Way::Namespace, 0), (Way::Removed, 0)]) {
        for n in 1.. {
            let harness = Harness::new();
            harness.server.delay_events(OPERATOR, Duration::from_secs(lag));
            harness.apply(RUN, &payments());
            let before = Arc::new(Mutex::new(None));
            let (world, noted): (World, _) = (harness.world.clone(), Arc::clone(&before));
            let hook = move |server: &ApiServer| {
                way.withdraw(server);
                let write = server.writes().last().unwrap().clone();
                let (effects, asked, expired) = (world.effects().len(), count_asked(server), count_expired(server));
                *noted.lock().unwrap() = Some(Before { effects, asked, expired, write });
            };
            harness.server.fault(On::writes_of(OPERATOR).nth(n), Fault::before(hook));
            let _life = harness.begin(OPERATOR);
            harness.pass(700).await;
            let Some(before) = before.lock().unwrap().take() else {
                // The honest twin: nothing was withdrawn.
                assert_eq!((harness.world.effects().len(), n > 8), (2, true), "{way:?}");
                assert_eq!(harness.workflow(RUN)["status"]["phase"], "Succeeded", "{way:?}");
                break;
            };
            let what = format!("{way:?}, {lag} s, write {n}:\n{}", harness.server.story());
            assert_eq!(harness.world.effects().len(), before.effects, "{what}");
            // The write that meets the deletion may still be applied, but the API server creates nothing in such a
            // namespace.
            let on_its_way = usize::from(is_creation(&before.write) && !matches!(way, Way::Namespace));
            assert!(count_asked(&harness.server) <= before.asked + on_its_way, "{what}");
            let on_its_way = usize::from(before.write.resource == approvals() && before.write.subresource.is_some());
            assert!(count_expired(&harness.server) <= before.expired + on_its_way, "{what}");
            assert!(harness.approvals().iter().all(|approval| approval["status"]["outcome"].is_object()), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_deleted_a_second_before_the_deadline_pays_nothing() {
    // The watch of namespaces brings the deletion, or the operator has to ask the API server.
    for is_told in [true, false] {
        let harness = Harness::new();
        harness.apply(RUN, &payments());
        let _life = harness.begin_and_settle(OPERATOR).await;
        if !is_told {
            harness.server.hold_events_of(OPERATOR, &Resource::new("", "namespaces"));
        }
        harness.pass(297).await;
        delete_namespace(&harness.server);
        harness.pass(600).await;
        let outcome = &harness.approval()["status"]["outcome"];
        assert_eq!((&outcome["phase"], &outcome["verdict"]), (&json!("Cancelled"), &Value::Null), "{is_told}");
        assert_eq!(harness.world.effects().len(), 0, "{is_told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_slot_never_begins_in_a_deleted_namespace() {
    for is_deleted in [true, false] {
        let harness = Harness::new();
        // As many as one Workflow may call at once, and one more.
        let step = |n: usize| {
            let http = json!({"method": "POST", "url": format!("http://pay.test/{n}"), "body": "1"});
            json!({"name": "pay", "branch": format!("b{n}"), "timeout": "1h", "http": http})
        };
        for n in 0..17 {
            harness.world.answers(format!("{RUN}/b{n}/pay"), Answer::value("paid").after(Duration::from_secs(60)));
        }
        let steps: Vec<Value> = (0..17).map(step).collect();
        let pattern = json!({"parallel": {"maxParallel": 128}});
        harness.apply(RUN, &json!({"requestedBy": "dana", "pattern": pattern, "steps": steps}));
        let _life = harness.begin_and_settle(OPERATOR).await;
        assert_eq!(harness.world.effects().len(), 16);
        if is_deleted {
            delete_namespace(&harness.server);
        }
        harness.pass(600).await;
        assert_eq!(harness.world.effects().len(), if is_deleted { 16 } else { 17 }, "{is_deleted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_begin_before_its_run_is_verified() {
    let harness = Harness::new();
    harness.apply(RUN, &chain(json!([post("pay", "42 EUR", "fail")])));
    harness.server.fault(On::requests_of(OPERATOR).only(asks_for_namespace).first(20), Fault::Reset);
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.pass(30).await;
    assert_eq!((harness.world.effects().len(), harness.events("Stalled").len()), (0, 0));
    harness.pass(60).await;
    let events = harness.events("Stalled");
    assert!(
        events.len() == 1 && events[0]["note"].as_str().unwrap().contains("step pay: its call begins when"),
        "{events:?}"
    );
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(harness.world.effects().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_does_not_create_the_approval_that_a_crash_prevented() {
    let harness = Harness::new();
    harness.apply(RUN, &chain(json!([gate("review", json!({}))])));
    harness.server.fault(
        On::writes_of(OPERATOR).only(|request| request.resource == approvals()).first(1),
        Fault::Crash(Crash::NotApplied),
    );
    let life = harness.begin_and_settle(OPERATOR).await;
    life.crash().await;
    assert_eq!(list(&harness.workflow(RUN)["status"]["steps"]).count(), 1, "its gate is recorded");
    harness.people().set_field(RUN, "suspend", true);
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.pass(3600).await;
    assert_eq!(harness.approvals().len(), 0);
    harness.people().set_field(RUN, "suspend", false);
    harness.people().decide("alice", "review", 1, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_does_not_repeat_a_call_whose_operator_died() {
    let harness = Harness::new();
    let get = json!({"name": "get", "http": {"url": "http://slow.test/"}});
    harness.apply(RUN, &chain(json!([get, gate("review", json!({}))])));
    harness.world.answers(format!("{RUN}/get"), Answer::value("ok").after(Duration::from_secs(20)));
    let life = harness.begin_and_settle(OPERATOR).await;
    life.crash().await;
    harness.people().set_field(RUN, "suspend", true);
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.pass(3600).await;
    assert_eq!(harness.world.times(&format!("{RUN}/get")), 1);
    harness.people().set_field(RUN, "suspend", false);
    harness.people().decide("alice", "review", 1, verdict("Approve")).await;
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
    assert_eq!(harness.world.times(&format!("{RUN}/get")), 2, "it is made again when the run goes on");
}

/// Returns whether a request asks whether the namespace of a call still exists.
fn asks_for_namespace(request: &Request) -> bool {
    request.resource.plural == "namespaces" && request.name.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_created_for_a_run_that_was_cancelled_unobserved() {
    for is_cancelled in [true, false] {
        let harness = Harness::new();
        harness.apply(RUN, &chain(json!([pod("build", json!({}))])));
        harness.server.hold_events_of(OPERATOR, &workflows());
        let cancel = move |server: &ApiServer| {
            if is_cancelled {
                Way::Cancelled.withdraw(server);
            }
        };
        let asks = |request: &Request| request.resource == workflows() && request.verb == Verb::Get;
        harness.server.fault(On::requests_of(OPERATOR).only(asks).nth(1), Fault::before(cancel));
        let _life = harness.begin_and_settle(OPERATOR).await;
        harness.pass(30).await;
        let created = harness.server.count(|entry| entry.verb == Verb::Create && entry.resource.plural == "pods");
        assert_eq!(created, usize::from(!is_cancelled), "{}", harness.server.story());
        harness.server.release_events(OPERATOR);
        let phase = if is_cancelled { "Cancelled" } else { "Succeeded" };
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], phase);
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_does_not_create_the_pod_that_a_crash_prevented() {
    let harness = Harness::new();
    harness.apply(RUN, &chain(json!([pod("build", json!({"idempotent": true}))])));
    let creates = |request: &Request| request.resource.plural == "pods" && request.verb == Verb::Create;
    harness.server.fault(On::writes_of(OPERATOR).only(creates).first(1), Fault::Crash(Crash::NotApplied));
    let life = harness.begin_and_settle(OPERATOR).await;
    life.crash().await;
    assert_eq!(harness.workflow(RUN)["status"]["steps"][0]["phase"], "Started");
    harness.people().set_field(RUN, "suspend", true);
    let _life = harness.begin_and_settle(OPERATOR).await;
    harness.pass(3600).await;
    assert_eq!((harness.all_pods().len(), harness.world.effects().len()), (0, 0), "{}", harness.server.story());
    harness.people().set_field(RUN, "suspend", false);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_run_in_a_recreated_namespace_continues() {
    for seconds in [0, 5] {
        let harness = Harness::new();
        harness.apply("before", &chain(json!([gate("review", json!({}))])));
        let _life = harness.begin_and_settle(OPERATOR).await;
        delete_namespace(&harness.server);
        harness.pass(0).await;
        harness.server.remove(&workflows(), NAMESPACE, "before");
        harness.server.hold_events_of(OPERATOR, &Resource::new("", "namespaces"));
        harness.server.remove(&Resource::new("", "namespaces"), "", NAMESPACE);
        harness.pass(seconds).await;
        harness
            .server
            .insert(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
            .unwrap();
        harness.apply(RUN, &chain(json!([post("pay", "42 EUR", "fail")])));
        harness.pass(10).await;
        // Within the same second only the event of the namespace shows it.
        harness.server.release_events(OPERATOR);
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
        assert_eq!(harness.world.effects().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_begin_after_another_operator_took_the_lease() {
    let harness = Harness { lease: true, ..Harness::new() };
    let (first, second) = ("operator-a", "operator-b");
    harness.apply(RUN, &chain(json!([post("pay", "42 EUR", "fail")])));
    // The first operator is cut off while it asks whether the run still exists, and that answer comes late.
    let is_cut = Arc::new(AtomicBool::new(false));
    let (cuts, cut) = (Arc::clone(&is_cut), is_cut);
    harness
        .server
        .fault(On::requests_of(first).only(asks_for_namespace).nth(1), Fault::SlowResponse(Duration::from_secs(60)));
    let sever = move |server: &ApiServer| {
        cuts.store(true, Ordering::Relaxed);
        server.drop_watches(first);
    };
    harness.server.fault(On::requests_of(first).only(asks_for_namespace).nth(1), Fault::before(sever));
    let is_lost = move |request: &Request| {
        cut.load(Ordering::Relaxed) && !asks_for_namespace(request) && request.resource != workflows()
    };
    harness.server.fault(On::requests_of(first).only(is_lost), Fault::Reset);
    let _first = harness.begin_and_settle(first).await;
    let _second = harness.begin_and_settle(second).await;
    let ended = harness.wait_for_end(RUN).await;
    assert_eq!(ended["status"]["steps"][0]["phase"], "Unknown", "{}", harness.server.story());
    harness.pass(600).await;
    assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
}
