//! The check right before a decision is accepted: its cost, the decisions that share it, and that no answer about the
//! policy of votes serves a vote that was read after the question was sent. The watches of the guard's objects are held
//! back here, so that only the check can find a change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use signoff_tests::sim::{ApiServer, Entry, Fault, On, Request, Resource, Verb};

use crate::{
    guarded::{guarded, place, shipped},
    harness::{Harness, NAMESPACE, approvals, condition},
    people::{name, verdict},
    scenarios::{RUN, chain, gate, post},
};

/// The name of a run with an honest decision, beside [`RUN`].
const OTHER: &str = "other";
/// The name of a run with an honest decision that comes first.
const FIRST: &str = "first";
const LABEL: &str = "signoff.dev/guard";

/// Holds back the operator's watch events of the guard's objects.
fn hold_guard_events(harness: &Harness, operator: &str) {
    let kinds: BTreeSet<Resource> = shipped().iter().map(|object| place(object).0).collect();
    for kind in kinds.into_iter().chain([Resource::new("apiregistration.k8s.io", "apiservices")]) {
        harness.server.hold_events_of(operator, &kind);
    }
}

/// Returns the name of a run's first Approval.
fn approval_of(harness: &Harness, run: &str) -> Option<String> {
    let approvals = harness.approvals();
    approvals.iter().find(|approval| approval["spec"]["request"]["workflow"]["name"] == run).map(name)
}

async fn wait_for_gate(harness: &Harness, run: &str) -> String {
    harness.server.until_all(|_| approval_of(harness, run).is_some()).await;
    approval_of(harness, run).unwrap()
}

/// Lets the policy of votes only warn, writes a vote of bob, and restores the policy.
fn forge_vote(server: &ApiServer, approval: &str) {
    forge_vote_without(server, approval, "ValidatingAdmissionPolicyBinding", "signoff-approvals");
}

/// Changes an object of the guard so that it enforces nothing, writes a vote of bob, and restores the object.
fn forge_vote_without(server: &ApiServer, approval: &str, kind: &str, name: &str) {
    with_rule_changed(server, kind, name, || {
        let vote = |object: &mut Value| object["spec"]["decisions"]["bob"] = verdict("Approve");
        server.edit(&approvals(), NAMESPACE, approval, vote).unwrap();
    });
}

/// Changes an object of the guard so that it enforces nothing, runs `meanwhile`, and restores the object.
fn with_rule_changed(server: &ApiServer, kind: &str, name: &str, meanwhile: impl FnOnce()) {
    let mut shipped = shipped().into_iter();
    let object = shipped.find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap();
    let (resource, name) = place(&object);
    let set = |spec: Value| server.edit(&resource, "", &name, |object| object["spec"] = spec).unwrap();
    let mut changed = object["spec"].clone();
    if kind.ends_with("Binding") {
        changed["validationActions"] = json!(["Warn"]);
    } else {
        changed["matchConstraints"] = json!({});
    }
    set(changed);
    meanwhile();
    set(object["spec"].clone());
}

/// Returns the operator's reads after the first `from` requests of the log, without watches and without the questions
/// before calls.
fn reads_since(harness: &Harness, operator: &str, from: usize) -> Vec<Entry> {
    let is_read = |entry: &Entry| *entry.actor == *operator && matches!(entry.verb, Verb::Get | Verb::List);
    harness.server.log().into_iter().skip(from).filter(is_read).filter(|entry| !is_about_call(entry)).collect()
}

/// Returns whether a request asks if the run or the namespace still exists, before a call that must not be repeated.
fn is_about_call(entry: &Entry) -> bool {
    matches!(entry.resource.plural.as_str(), "workflows" | "namespaces") && entry.verb == Verb::Get
}

#[tokio::test(start_paused = true)]
async fn a_decision_costs_six_reads() {
    let (harness, operator) = guarded().await;
    let life = harness.begin(&operator);
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    let before = harness.server.log().len();
    harness.people().vote("alice", &approval, verdict("Approve"));
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
    harness.pass(600).await;
    let reads = reads_since(&harness, &operator, before);
    let (lists, gets): (Vec<_>, Vec<_>) = reads.iter().partition(|entry| entry.verb == Verb::List);
    let kinds: BTreeSet<_> = lists.iter().map(|entry| entry.resource.plural.as_str()).collect();
    assert_eq!((lists.len(), kinds.len()), (5, 5), "{}", harness.server.story());
    for list in lists {
        assert_eq!(list.parameter("labelSelector"), "signoff.dev/guard=true", "{}", list.line());
        // Any version, `0` above all, would allow an answer that is older than the question.
        assert_eq!(list.parameter("resourceVersion"), "", "{}", list.line());
        assert!(list.accept.contains("as=PartialObjectMetadataList"), "{} takes {}", list.line(), list.accept);
    }
    let gets: Vec<_> = gets.iter().map(|entry| entry.resource.plural.as_str()).collect();
    assert_eq!(gets, ["apiservices"], "nothing is read whole but the APIService:\n{}", harness.server.story());
    let about_payment = harness.server.log().into_iter().skip(before).filter(is_about_call);
    let mut about_payment: Vec<_> = about_payment.map(|entry| entry.resource.plural.clone()).collect();
    about_payment.sort_unstable();
    assert_eq!(about_payment, ["namespaces", "workflows"], "the payment after the gate costs two reads of metadata");
    life.crash().await;
}

/// Decides the gate of a run, and waits for its end, so that the whole question has just been answered.
async fn decide_and_wait(harness: &Harness, run: &str, approval: &str) {
    harness.people().vote("alice", approval, verdict("Approve"));
    assert_eq!(harness.wait_for_end(run).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_decision_right_after_another_costs_three_reads_by_name() {
    let (harness, operator) = guarded().await;
    harness.apply(OTHER, &chain(json!([gate("review", json!({}))])));
    let life = harness.begin(&operator);
    let (first, second) = (wait_for_gate(&harness, OTHER).await, wait_for_gate(&harness, RUN).await);
    harness.pass(10).await;
    decide_and_wait(&harness, OTHER, &first).await;
    let before = harness.server.log().len();
    decide_and_wait(&harness, RUN, &second).await;
    let reads = reads_since(&harness, &operator, before);
    let mut named: Vec<_> = reads
        .iter()
        .map(|entry| {
            assert_eq!(entry.verb, Verb::Get, "{}", entry.line());
            assert_eq!(entry.parameter("resourceVersion"), "", "{}", entry.line());
            let is_metadata = entry.accept.contains("as=PartialObjectMetadata");
            assert_eq!(is_metadata, entry.resource.plural != "apiservices", "{} takes {}", entry.line(), entry.accept);
            (entry.resource.plural.as_str(), entry.name.as_deref().unwrap_or_default())
        })
        .collect();
    named.sort_unstable();
    let expected = [
        ("apiservices", "v1alpha1.signoff.dev"),
        ("validatingadmissionpolicies", "signoff-approvals"),
        ("validatingadmissionpolicybindings", "signoff-approvals"),
    ];
    assert_eq!(named, expected, "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_is_forged_right_after_a_decision_does_not_count() {
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        let (harness, operator) = guarded().await;
        harness.apply(OTHER, &chain(json!([gate("review", json!({}))])));
        let life = harness.begin(&operator);
        let (first, second) = (wait_for_gate(&harness, OTHER).await, wait_for_gate(&harness, RUN).await);
        harness.pass(10).await;
        hold_guard_events(&harness, &operator);
        decide_and_wait(&harness, OTHER, &first).await;
        forge_vote_without(&harness.server, &second, kind, "signoff-approvals");
        harness.pass(60).await;
        let forged = harness.server.value(&approvals(), NAMESPACE, &second).unwrap();
        assert_eq!(forged["status"]["phase"], "Superseded", "{kind}:\n{}", harness.server.story());
        assert_eq!(harness.world.effects().len(), 0, "{kind}");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_forged_right_after_a_decision_does_not_count() {
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        let (harness, operator) = guarded().await;
        harness.apply(OTHER, &chain(json!([gate("review", json!({}))])));
        let life = harness.begin(&operator);
        let (first, second) = (wait_for_gate(&harness, OTHER).await, wait_for_gate(&harness, RUN).await);
        harness.pass(10).await;
        hold_guard_events(&harness, &operator);
        decide_and_wait(&harness, OTHER, &first).await;
        let honest = harness.server.value(&approvals(), NAMESPACE, &first).unwrap();
        with_rule_changed(&harness.server, kind, "signoff-status", || {
            let outcome = |object: &mut Value| object["status"] = honest["status"].clone();
            harness.server.edit(&approvals(), NAMESPACE, &second, outcome).unwrap();
        });
        harness.pass(60).await;
        assert_ne!(harness.workflow(RUN)["status"]["phase"], "Succeeded", "{kind}:\n{}", harness.server.story());
        assert_eq!(harness.world.effects().len(), 0, "{kind}:\n{}", harness.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_forged_right_after_a_decision_changes_no_count() {
    let past = json!({"phase": "Pending", "deadline": "2020-01-01T00:00:00Z"});
    let mallory = json!({"phase": "Pending", "approvers": [{"kind": "User", "name": "mallory"}]});
    for (forged, votes) in [(past, false), (mallory, true)] {
        let (harness, operator) = guarded().await;
        harness.apply(FIRST, &chain(json!([gate("review", json!({}))])));
        let timeout = json!({"after": "1h", "action": "Approve"});
        harness.apply(OTHER, &chain(json!([gate("review", json!({"timeout": timeout}))])));
        let life = harness.begin(&operator);
        let (first, target) = (wait_for_gate(&harness, FIRST).await, wait_for_gate(&harness, OTHER).await);
        harness.pass(10).await;
        hold_guard_events(&harness, &operator);
        decide_and_wait(&harness, FIRST, &first).await;
        with_rule_changed(&harness.server, "ValidatingAdmissionPolicyBinding", "signoff-status", || {
            let status = |object: &mut Value| object["status"] = forged.clone();
            harness.server.edit(&approvals(), NAMESPACE, &target, status).unwrap();
            if votes {
                let vote = |object: &mut Value| object["spec"]["decisions"]["mallory"] = verdict("Approve");
                harness.server.edit(&approvals(), NAMESPACE, &target, vote).unwrap();
            }
        });
        harness.pass(60).await;
        let object = harness.server.value(&approvals(), NAMESPACE, &target).unwrap();
        assert_eq!(object["status"]["phase"], "Superseded", "{forged}:\n{}", harness.server.story());
        assert_ne!(harness.workflow(OTHER)["status"]["phase"], "Succeeded", "{forged}:\n{}", harness.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_event_during_a_short_question_voids_its_answer() {
    let (harness, operator) = guarded().await;
    harness.apply(OTHER, &chain(json!([gate("review", json!({}))])));
    let life = harness.begin(&operator);
    let (first, second) = (wait_for_gate(&harness, OTHER).await, wait_for_gate(&harness, RUN).await);
    harness.pass(10).await;
    decide_and_wait(&harness, OTHER, &first).await;
    let is_short =
        |request: &Request| request.verb == Verb::Get && request.resource.plural == "validatingadmissionpolicies";
    harness.server.fault(On::requests_of(&operator).only(is_short), Fault::SlowResponse(Duration::from_secs(5)));
    let before = harness.server.log().len();
    harness.people().vote("alice", &second, verdict("Approve"));
    harness.server.until_all(|_| reads_since(&harness, &operator, before).iter().any(|entry| is_short(entry))).await;
    with_rule_changed(&harness.server, "ValidatingAdmissionPolicyBinding", "signoff-blobs", || {});
    harness.pass(60).await;
    let object = harness.server.value(&approvals(), NAMESPACE, &second).unwrap();
    assert_eq!(object["status"]["phase"], "Superseded", "{}", harness.server.story());
    assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_later_decision_finds_a_change_of_any_guard_object() {
    let others: Vec<Value> =
        shipped().into_iter().filter(|object| object["metadata"]["name"] != "signoff-approvals").collect();
    assert!(others.len() >= 30, "{}", others.len());
    for object in others {
        let (harness, operator) = guarded().await;
        harness.apply(OTHER, &chain(json!([gate("review", json!({}))])));
        let life = harness.begin(&operator);
        let (first, second) = (wait_for_gate(&harness, OTHER).await, wait_for_gate(&harness, RUN).await);
        harness.pass(10).await;
        hold_guard_events(&harness, &operator);
        decide_and_wait(&harness, OTHER, &first).await;
        harness.pass(1).await;
        let (resource, name) = place(&object);
        let changes = |object: &mut Value| object["spec"]["changed"] = json!(true);
        harness.server.edit(&resource, "", &name, changes).unwrap();
        let vote = |object: &mut Value| object["spec"]["decisions"]["bob"] = verdict("Approve");
        harness.server.edit(&approvals(), NAMESPACE, &second, vote).unwrap();
        harness.pass(60).await;
        let forged = harness.server.value(&approvals(), NAMESPACE, &second).unwrap();
        assert!(forged["status"]["outcome"]["verdict"].is_null(), "{resource:?} {name}:\n{}", harness.server.story());
        assert_eq!(harness.world.effects().len(), 0, "{name}");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sixteen_decisions_at_once_share_two_questions() {
    let (harness, operator) = guarded().await;
    let runs: Vec<String> = (0..16).map(|number| format!("run-{number}")).collect();
    for run in &runs {
        harness.apply(run, &chain(json!([gate("review", json!({}))])));
    }
    let life = harness.begin(&operator);
    let mut gates = Vec::new();
    for run in &runs {
        gates.push(wait_for_gate(&harness, run).await);
    }
    harness.pass(10).await;
    let before = harness.server.log().len();
    for gate in &gates {
        harness.people().vote("alice", gate, verdict("Approve"));
    }
    for run in &runs {
        assert_eq!(harness.wait_for_end(run).await["status"]["phase"], "Succeeded");
    }
    harness.pass(60).await;
    let reads = reads_since(&harness, &operator, before);
    assert!(reads.len() <= 12, "{} reads for 16 decisions:\n{}", reads.len(), harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn at_most_one_question_is_in_flight_and_its_answer_serves_no_later_decision() {
    let (harness, operator) = guarded().await;
    harness.apply(OTHER, &chain(json!([gate("review", json!({}))])));
    let life = harness.begin(&operator);
    let (first, second) = (wait_for_gate(&harness, OTHER).await, wait_for_gate(&harness, RUN).await);
    harness.pass(10).await;
    hold_guard_events(&harness, &operator);
    let bindings = |request: &Request| request.resource.plural == "validatingadmissionpolicybindings";
    let slow = On::requests_of(&operator).only(move |request| request.verb == Verb::List && bindings(request));
    harness.server.fault(slow, Fault::SlowResponse(Duration::from_secs(5)));
    let before = harness.server.log().len();
    let questions =
        |harness: &Harness| reads_since(harness, &operator, before).iter().filter(|entry| bindings(entry)).count();
    harness.people().vote("alice", &first, verdict("Approve"));
    harness.server.until_all(|_| questions(&harness) == 1).await;
    // The answer to the question is in flight: all policies are as shipped.
    harness.pass(1).await;
    forge_vote(&harness.server, &second);
    harness.pass(2).await;
    assert_eq!(questions(&harness), 1, "a second question was sent beside the first");
    // The honest decision has its answer; the question for the forged one is answered with no.
    harness.pass(30).await;
    assert_eq!(harness.workflow(OTHER)["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert!(questions(&harness) >= 2, "{}", harness.server.story());
    let forged = harness.server.value(&approvals(), NAMESPACE, &second).unwrap();
    assert_eq!(forged["status"]["outcome"]["verdict"], Value::Null, "{}", harness.server.story());
    assert_eq!(forged["status"]["phase"], "Superseded", "{}", harness.server.story());
    assert_eq!(harness.world.effects().len(), 0);
    life.crash().await;
}

/// Returns a record of every status that the operator tries to write of one run and its Approvals.
fn statuses(harness: &Harness, operator: &str) -> Arc<Mutex<Vec<Value>>> {
    let written = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&written);
    let on = On::writes_of(operator).only(move |request| {
        let is_its = request.name.as_deref().is_some_and(|name| name.starts_with(RUN));
        if is_its && request.subresource.is_some() {
            into.lock().unwrap().push(request.json());
        }
        false
    });
    harness.server.fault(on, Fault::Reset);
    written
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_is_forged_during_another_decision_does_not_count() {
    let points = forge_at_every_point(false).await;
    // Six requests of the whole question, the two state writes and the Events at least.
    assert!(points >= 9, "only {points} points");
    signoff_tests::tried(points, "points of a decision");
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_is_forged_during_a_following_decision_does_not_count() {
    let points = forge_at_every_point(true).await;
    // Three requests of the short question instead.
    assert!(points >= 6, "only {points} points");
    signoff_tests::tried(points, "points of a decision that follows another");
}

/// Forges a vote before each request of an honest decision, in a new simulation for each, and checks that no forged
/// vote counts. Returns the number of requests. `follows`: whether another decision was made right before the honest
/// one, so that the short question is asked.
async fn forge_at_every_point(follows: bool) -> usize {
    let mut point = 0;
    loop {
        let (harness, operator) = guarded().await;
        for run in [OTHER, FIRST] {
            harness.apply(run, &chain(json!([gate("review", json!({}))])));
        }
        let life = harness.begin(&operator);
        let (honest, target) = (wait_for_gate(&harness, OTHER).await, wait_for_gate(&harness, RUN).await);
        let first = wait_for_gate(&harness, FIRST).await;
        harness.pass(10).await;
        hold_guard_events(&harness, &operator);
        if follows {
            decide_and_wait(&harness, FIRST, &first).await;
        }
        let written = statuses(&harness, &operator);
        // Answers take some time, so that every point is within the question.
        let is_read = |request: &Request| matches!(request.verb, Verb::Get | Verb::List);
        let reads = On::requests_of(&operator).only(is_read);
        harness.server.fault(reads, Fault::SlowResponse(Duration::from_secs(1)));
        let is_forged = Arc::new(AtomicBool::new(false));
        if point == 0 {
            forge_vote(&harness.server, &target);
            is_forged.store(true, Ordering::Relaxed);
        } else {
            let (target, is_forged) = (target.clone(), Arc::clone(&is_forged));
            let on = On::requests_of(&operator).only(|request| request.verb != Verb::Watch).nth(point);
            let hook = move |server: &ApiServer| {
                forge_vote(server, &target);
                is_forged.store(true, Ordering::Relaxed);
            };
            harness.server.fault(on, Fault::before(hook));
        }
        harness.people().vote("alice", &honest, verdict("Approve"));
        harness.pass(60).await;
        if !is_forged.load(Ordering::Relaxed) {
            life.crash().await;
            return usize::try_from(point).unwrap();
        }
        harness.server.release_events(&operator);
        harness.pass(60).await;
        let first = harness.server.value(&approvals(), NAMESPACE, &target).unwrap();
        assert_eq!(first["status"]["phase"], "Superseded", "point {point}:\n{}", harness.server.story());
        harness.people().decide("alice", "review#2", 10, verdict("Reject")).await;
        assert_eq!(
            harness.wait_for_end(RUN).await["status"]["phase"],
            "Rejected",
            "{point}:\n{}",
            harness.server.story()
        );
        harness.pass(60).await;
        let written = written.lock().unwrap().clone();
        assert!(written.len() >= 2, "point {point}: its end and that of its run are written: {written:?}");
        for object in written {
            let text = object["status"].to_string();
            assert!(!text.contains("Approve"), "point {point}: {text}");
        }
        assert_eq!(harness.world.effects().len(), 0, "point {point}");
        let is_of_target = |event: &Value| event["regarding"]["name"] == json!(target);
        assert!(!harness.events("Approved").iter().any(is_of_target), "point {point}");
        life.crash().await;
        point += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_changes_between_question_and_write_does_not_count() {
    // A vote that is forged after the decision was read changes the version, and the write is fenced.
    for point in 1..=8 {
        let (harness, operator) = guarded().await;
        let life = harness.begin(&operator);
        let approval = harness.people().wait_for_gate("review").await;
        harness.pass(10).await;
        hold_guard_events(&harness, &operator);
        let target = approval.clone();
        let on = On::requests_of(&operator).only(|request| request.verb != Verb::Watch).nth(point);
        let rejects_become_approvals = move |server: &ApiServer| {
            forge_vote(server, &target);
            let flip = |object: &mut Value| object["spec"]["decisions"]["alice"] = verdict("Approve");
            server.edit(&approvals(), NAMESPACE, &target, flip).unwrap();
        };
        harness.server.fault(on, Fault::before(rejects_become_approvals));
        harness.people().vote("alice", &approval, verdict("Reject"));
        harness.pass(60).await;
        harness.server.release_events(&operator);
        harness.pass(600).await;
        let object = harness.server.value(&approvals(), NAMESPACE, &approval).unwrap();
        assert_ne!(object["status"]["outcome"]["verdict"], "Approve", "point {point}:\n{}", harness.server.story());
        assert_eq!(harness.world.effects().len(), 0, "point {point}:\n{}", harness.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_without_the_label_of_the_guard_is_not_enforced() {
    let one_a_kind: BTreeMap<String, Value> =
        shipped().into_iter().map(|object| (object["kind"].to_string(), object)).collect();
    assert_eq!(one_a_kind.len(), 5);
    for object in one_a_kind.into_values() {
        for change in [Value::Null, json!({LABEL: "false"})] {
            let (harness, operator) = guarded().await;
            let life = harness.begin(&operator);
            let approval = harness.people().wait_for_gate("review").await;
            harness.pass(10).await;
            hold_guard_events(&harness, &operator);
            let (resource, name) = place(&object);
            let set = |labels: Value| {
                harness.server.edit(&resource, "", &name, |object| object["metadata"]["labels"] = labels)
            };
            set(change.clone()).unwrap();
            harness.people().vote("alice", &approval, verdict("Approve"));
            // No watch event comes: the question finds the policy missing, and a read then says why.
            harness.pass(60).await;
            let undecided = harness.server.value(&approvals(), NAMESPACE, &approval).unwrap();
            assert!(undecided["status"]["outcome"].is_null(), "{name} {change}:\n{}", harness.server.story());
            let run = harness.workflow(RUN);
            assert_eq!(condition(&run, "Guarded"), ("False".to_owned(), "PoliciesDiffer".to_owned()), "{name}");
            let said = run["status"]["conditions"].to_string();
            assert!(said.contains(LABEL) && said.contains(&name), "{said}");
            set(object["metadata"]["labels"].clone()).unwrap();
            harness.server.release_events(&operator);
            harness.people().decide("bob", "review#2", 30, verdict("Approve")).await;
            assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{name}");
            life.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_without_an_answer_is_asked_again() {
    let (harness, operator) = guarded().await;
    harness.apply(OTHER, &chain(json!([gate("review", json!({})), post("pay", "1 EUR", "fail")])));
    let life = harness.begin(&operator);
    let (one, other) = (wait_for_gate(&harness, RUN).await, wait_for_gate(&harness, OTHER).await);
    harness.pass(10).await;
    let is_crds =
        |request: &Request| request.resource.plural == "customresourcedefinitions" && request.verb == Verb::List;
    harness.server.fault(On::requests_of(&operator).only(is_crds).first(5), Fault::Reset);
    for approval in [&one, &other] {
        harness.people().vote("alice", approval, verdict("Approve"));
    }
    for run in [RUN, OTHER] {
        assert_eq!(harness.wait_for_end(run).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    }
    let log = harness.server.log();
    let first_write = log.iter().position(|e| e.resource == approvals() && e.subresource.is_some() && e.verb.writes());
    let lost = log.iter().take(first_write.unwrap()).filter(|e| is_crds(e) && !e.took_effect()).count();
    assert_eq!(lost, 5, "nothing is written before an answer");
    life.crash().await;
}
