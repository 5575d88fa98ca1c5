//! The check right before a decision is honoured: what it costs, who shares it, and that no answer about the policy of votes
//! serves a vote that was read after the question was sent. The watches of the guard's objects stand still here, so that nothing else can tell.

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
    harness::{NAMESPACE, Stage, approvals, condition},
    people::{name, verdict},
    scenarios::{RUN, chain, gate, post},
};

/// A run whose decision is honest, beside [`RUN`].
const OTHER: &str = "other";
/// A run whose decision is honest and comes first.
const FIRST: &str = "first";
const LABEL: &str = "signoff.dev/guard";

/// No watch event of the guard's objects reaches the operator any more.
fn blind(stage: &Stage, operator: &str) {
    let kinds: BTreeSet<Resource> = shipped().iter().map(|object| place(object).0).collect();
    for kind in kinds.into_iter().chain([Resource::new("apiregistration.k8s.io", "apiservices")]) {
        stage.server.hold_events_of(operator, &kind);
    }
}

/// The name of a run's first Approval.
fn approval_of(stage: &Stage, run: &str) -> Option<String> {
    let approvals = stage.approvals();
    approvals.iter().find(|approval| approval["spec"]["request"]["workflow"]["name"] == run).map(name)
}

async fn asked(stage: &Stage, run: &str) -> String {
    stage.server.until_all(|_| approval_of(stage, run).is_some()).await;
    approval_of(stage, run).unwrap()
}

/// Lifts the policy of votes, puts a vote in, and puts the policy back as it was.
fn forges(server: &ApiServer, approval: &str) {
    forges_without(server, approval, "ValidatingAdmissionPolicyBinding", "signoff-approvals");
}

/// Changes an object of the guard, puts a vote in, and puts the object back as it was.
fn forges_without(server: &ApiServer, approval: &str, kind: &str, name: &str) {
    lifted(server, kind, name, || {
        let vote = |object: &mut Value| object["spec"]["decisions"]["bob"] = verdict("Approve");
        server.edit(&approvals(), NAMESPACE, approval, vote).unwrap();
    });
}

/// Does something while a policy is lifted that is put back as it was.
fn lifted(server: &ApiServer, kind: &str, name: &str, meanwhile: impl FnOnce()) {
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

/// What the operator read since then, watches left out.
fn reads(stage: &Stage, operator: &str, from: usize) -> Vec<Entry> {
    let is_read = |entry: &Entry| *entry.actor == *operator && matches!(entry.verb, Verb::Get | Verb::List);
    stage.server.log().into_iter().skip(from).filter(is_read).collect()
}

#[tokio::test(start_paused = true)]
async fn one_decision_costs_six_reads_and_the_run_that_takes_it_none() {
    let (stage, operator) = guarded().await;
    let life = stage.begin(&operator);
    let approval = stage.people().asked("review").await;
    stage.pass(10).await;
    let before = stage.server.log().len();
    stage.people().votes("alice", &approval, verdict("Approve"));
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded");
    stage.pass(600).await;
    let reads = reads(&stage, &operator, before);
    let (lists, gets): (Vec<_>, Vec<_>) = reads.iter().partition(|entry| entry.verb == Verb::List);
    let kinds: BTreeSet<_> = lists.iter().map(|entry| entry.resource.plural.as_str()).collect();
    assert_eq!((lists.len(), kinds.len()), (5, 5), "{}", stage.server.story());
    for list in lists {
        assert_eq!(list.parameter("labelSelector"), "signoff.dev/guard=true", "{}", list.line());
        // Any version, `0` above all, would allow an answer that is older than the question.
        assert_eq!(list.parameter("resourceVersion"), "", "{}", list.line());
        assert!(list.accept.contains("as=PartialObjectMetadataList"), "{} takes {}", list.line(), list.accept);
    }
    let gets: Vec<_> = gets.iter().map(|entry| entry.resource.plural.as_str()).collect();
    assert_eq!(gets, ["apiservices"], "nothing is read whole but the APIService:\n{}", stage.server.story());
    life.crash().await;
}

/// Decides the gate of a run, and waits for its end: the whole question was answered just now.
async fn decided(stage: &Stage, run: &str, approval: &str) {
    stage.people().votes("alice", approval, verdict("Approve"));
    assert_eq!(stage.ended(run).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_decision_right_after_another_costs_three_reads_by_name() {
    let (stage, operator) = guarded().await;
    stage.apply(OTHER, &chain(json!([gate("review", json!({}))])));
    let life = stage.begin(&operator);
    let (first, second) = (asked(&stage, OTHER).await, asked(&stage, RUN).await);
    stage.pass(10).await;
    decided(&stage, OTHER, &first).await;
    let before = stage.server.log().len();
    decided(&stage, RUN, &second).await;
    let reads = reads(&stage, &operator, before);
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
    assert_eq!(named, expected, "{}", stage.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_vote_forged_right_after_a_decision_is_not_honoured() {
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        let (stage, operator) = guarded().await;
        stage.apply(OTHER, &chain(json!([gate("review", json!({}))])));
        let life = stage.begin(&operator);
        let (first, second) = (asked(&stage, OTHER).await, asked(&stage, RUN).await);
        stage.pass(10).await;
        blind(&stage, &operator);
        decided(&stage, OTHER, &first).await;
        forges_without(&stage.server, &second, kind, "signoff-approvals");
        stage.pass(60).await;
        let forged = stage.server.value(&approvals(), NAMESPACE, &second).unwrap();
        assert_eq!(forged["status"]["phase"], "Superseded", "{kind}:\n{}", stage.server.story());
        assert_eq!(stage.world.effects().len(), 0, "{kind}");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_forged_right_after_a_decision_is_not_honoured() {
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        let (stage, operator) = guarded().await;
        stage.apply(OTHER, &chain(json!([gate("review", json!({}))])));
        let life = stage.begin(&operator);
        let (first, second) = (asked(&stage, OTHER).await, asked(&stage, RUN).await);
        stage.pass(10).await;
        blind(&stage, &operator);
        decided(&stage, OTHER, &first).await;
        let honest = stage.server.value(&approvals(), NAMESPACE, &first).unwrap();
        lifted(&stage.server, kind, "signoff-status", || {
            let outcome = |object: &mut Value| object["status"] = honest["status"].clone();
            stage.server.edit(&approvals(), NAMESPACE, &second, outcome).unwrap();
        });
        stage.pass(60).await;
        assert_ne!(stage.workflow(RUN)["status"]["phase"], "Succeeded", "{kind}:\n{}", stage.server.story());
        assert_eq!(stage.world.effects().len(), 0, "{kind}:\n{}", stage.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_forged_right_after_a_decision_changes_nothing_that_is_counted() {
    let past = json!({"phase": "Pending", "deadline": "2020-01-01T00:00:00Z"});
    let mallory = json!({"phase": "Pending", "approvers": [{"kind": "User", "name": "mallory"}]});
    for (forged, votes) in [(past, false), (mallory, true)] {
        let (stage, operator) = guarded().await;
        stage.apply(FIRST, &chain(json!([gate("review", json!({}))])));
        let timeout = json!({"after": "1h", "action": "Approve"});
        stage.apply(OTHER, &chain(json!([gate("review", json!({"timeout": timeout}))])));
        let life = stage.begin(&operator);
        let (first, target) = (asked(&stage, FIRST).await, asked(&stage, OTHER).await);
        stage.pass(10).await;
        blind(&stage, &operator);
        decided(&stage, FIRST, &first).await;
        lifted(&stage.server, "ValidatingAdmissionPolicyBinding", "signoff-status", || {
            let status = |object: &mut Value| object["status"] = forged.clone();
            stage.server.edit(&approvals(), NAMESPACE, &target, status).unwrap();
            if votes {
                let vote = |object: &mut Value| object["spec"]["decisions"]["mallory"] = verdict("Approve");
                stage.server.edit(&approvals(), NAMESPACE, &target, vote).unwrap();
            }
        });
        stage.pass(60).await;
        let object = stage.server.value(&approvals(), NAMESPACE, &target).unwrap();
        assert_eq!(object["status"]["phase"], "Superseded", "{forged}:\n{}", stage.server.story());
        assert_ne!(stage.workflow(OTHER)["status"]["phase"], "Succeeded", "{forged}:\n{}", stage.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_watch_tells_during_a_short_question_ends_its_answer() {
    let (stage, operator) = guarded().await;
    stage.apply(OTHER, &chain(json!([gate("review", json!({}))])));
    let life = stage.begin(&operator);
    let (first, second) = (asked(&stage, OTHER).await, asked(&stage, RUN).await);
    stage.pass(10).await;
    decided(&stage, OTHER, &first).await;
    let is_short =
        |request: &Request| request.verb == Verb::Get && request.resource.plural == "validatingadmissionpolicies";
    stage.server.fault(On::requests_of(&operator).only(is_short), Fault::SlowResponse(Duration::from_secs(5)));
    let before = stage.server.log().len();
    stage.people().votes("alice", &second, verdict("Approve"));
    stage.server.until_all(|_| reads(&stage, &operator, before).iter().any(|entry| is_short(entry))).await;
    lifted(&stage.server, "ValidatingAdmissionPolicyBinding", "signoff-blobs", || {});
    stage.pass(60).await;
    let object = stage.server.value(&approvals(), NAMESPACE, &second).unwrap();
    assert_eq!(object["status"]["phase"], "Superseded", "{}", stage.server.story());
    assert_eq!(stage.world.effects().len(), 0, "{}", stage.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn no_answer_about_the_other_objects_serves_a_decision_half_a_second_later() {
    let others: Vec<Value> =
        shipped().into_iter().filter(|object| object["metadata"]["name"] != "signoff-approvals").collect();
    assert!(others.len() >= 30, "{}", others.len());
    for object in others {
        let (stage, operator) = guarded().await;
        stage.apply(OTHER, &chain(json!([gate("review", json!({}))])));
        let life = stage.begin(&operator);
        let (first, second) = (asked(&stage, OTHER).await, asked(&stage, RUN).await);
        stage.pass(10).await;
        blind(&stage, &operator);
        decided(&stage, OTHER, &first).await;
        stage.pass(1).await;
        let (resource, name) = place(&object);
        let changes = |object: &mut Value| object["spec"]["changed"] = json!(true);
        stage.server.edit(&resource, "", &name, changes).unwrap();
        let vote = |object: &mut Value| object["spec"]["decisions"]["bob"] = verdict("Approve");
        stage.server.edit(&approvals(), NAMESPACE, &second, vote).unwrap();
        stage.pass(60).await;
        let forged = stage.server.value(&approvals(), NAMESPACE, &second).unwrap();
        assert!(forged["status"]["outcome"]["verdict"].is_null(), "{resource:?} {name}:\n{}", stage.server.story());
        assert_eq!(stage.world.effects().len(), 0, "{name}");
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sixteen_decisions_at_once_share_two_questions() {
    let (stage, operator) = guarded().await;
    let runs: Vec<String> = (0..16).map(|number| format!("run-{number}")).collect();
    for run in &runs {
        stage.apply(run, &chain(json!([gate("review", json!({}))])));
    }
    let life = stage.begin(&operator);
    let mut gates = Vec::new();
    for run in &runs {
        gates.push(asked(&stage, run).await);
    }
    stage.pass(10).await;
    let before = stage.server.log().len();
    for gate in &gates {
        stage.people().votes("alice", gate, verdict("Approve"));
    }
    for run in &runs {
        assert_eq!(stage.ended(run).await["status"]["phase"], "Succeeded");
    }
    stage.pass(60).await;
    let reads = reads(&stage, &operator, before);
    assert!(reads.len() <= 12, "{} reads for 16 decisions:\n{}", reads.len(), stage.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn at_most_one_question_is_in_flight_and_its_answer_serves_no_later_decision() {
    let (stage, operator) = guarded().await;
    stage.apply(OTHER, &chain(json!([gate("review", json!({}))])));
    let life = stage.begin(&operator);
    let (first, second) = (asked(&stage, OTHER).await, asked(&stage, RUN).await);
    stage.pass(10).await;
    blind(&stage, &operator);
    let bindings = |request: &Request| request.resource.plural == "validatingadmissionpolicybindings";
    let slow = On::requests_of(&operator).only(move |request| request.verb == Verb::List && bindings(request));
    stage.server.fault(slow, Fault::SlowResponse(Duration::from_secs(5)));
    let before = stage.server.log().len();
    let questions = |stage: &Stage| reads(stage, &operator, before).iter().filter(|entry| bindings(entry)).count();
    stage.people().votes("alice", &first, verdict("Approve"));
    stage.server.until_all(|_| questions(&stage) == 1).await;
    // The question is answered by now, and its answer is on its way: all is as it was.
    stage.pass(1).await;
    forges(&stage.server, &second);
    stage.pass(2).await;
    assert_eq!(questions(&stage), 1, "a second question was sent beside the first");
    // The honest decision has its answer; the forged one has a question of its own, and that says no.
    stage.pass(30).await;
    assert_eq!(stage.workflow(OTHER)["status"]["phase"], "Succeeded", "{}", stage.server.story());
    assert!(questions(&stage) >= 2, "{}", stage.server.story());
    let forged = stage.server.value(&approvals(), NAMESPACE, &second).unwrap();
    assert_eq!(forged["status"]["outcome"]["verdict"], Value::Null, "{}", stage.server.story());
    assert_eq!(forged["status"]["phase"], "Superseded", "{}", stage.server.story());
    assert_eq!(stage.world.effects().len(), 0);
    life.crash().await;
}

/// Every status that the operator wants to write of one run and its Approvals.
fn statuses(stage: &Stage, operator: &str) -> Arc<Mutex<Vec<Value>>> {
    let written = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&written);
    let on = On::writes_of(operator).only(move |request| {
        let is_its = request.name.as_deref().is_some_and(|name| name.starts_with(RUN));
        if is_its && request.subresource.is_some() {
            into.lock().unwrap().push(request.json());
        }
        false
    });
    stage.server.fault(on, Fault::Reset);
    written
}

#[tokio::test(start_paused = true)]
async fn a_vote_forged_at_any_point_of_another_decision_is_never_honoured() {
    let points = forges_at_every_point(false).await;
    // Six requests of the whole question, the two state writes and the Events at least.
    assert!(points >= 9, "only {points} points");
    signoff_tests::tried(points, "points of a decision");
}

#[tokio::test(start_paused = true)]
async fn a_vote_forged_at_any_point_of_a_decision_that_follows_another_is_never_honoured() {
    let points = forges_at_every_point(true).await;
    // Three requests of the short question instead.
    assert!(points >= 6, "only {points} points");
    signoff_tests::tried(points, "points of a decision that follows another");
}

/// Forges a vote before each request of an honest decision. Returns the number of points. `follows`: whether another decision was
/// made right before the honest one, so that the short question is asked.
async fn forges_at_every_point(follows: bool) -> usize {
    let mut point = 0;
    loop {
        let (stage, operator) = guarded().await;
        for run in [OTHER, FIRST] {
            stage.apply(run, &chain(json!([gate("review", json!({}))])));
        }
        let life = stage.begin(&operator);
        let (honest, target) = (asked(&stage, OTHER).await, asked(&stage, RUN).await);
        let first = asked(&stage, FIRST).await;
        stage.pass(10).await;
        blind(&stage, &operator);
        if follows {
            decided(&stage, FIRST, &first).await;
        }
        let written = statuses(&stage, &operator);
        // Answers take their time, so that every point lies within the question.
        let is_read = |request: &Request| matches!(request.verb, Verb::Get | Verb::List);
        let reads = On::requests_of(&operator).only(is_read);
        stage.server.fault(reads, Fault::SlowResponse(Duration::from_secs(1)));
        let struck = Arc::new(AtomicBool::new(false));
        if point == 0 {
            forges(&stage.server, &target);
            struck.store(true, Ordering::Relaxed);
        } else {
            let (target, struck) = (target.clone(), Arc::clone(&struck));
            let on = On::requests_of(&operator).only(|request| request.verb != Verb::Watch).nth(point);
            let hook = move |server: &ApiServer| {
                forges(server, &target);
                struck.store(true, Ordering::Relaxed);
            };
            stage.server.fault(on, Fault::before(hook));
        }
        stage.people().votes("alice", &honest, verdict("Approve"));
        stage.pass(60).await;
        if !struck.load(Ordering::Relaxed) {
            life.crash().await;
            return usize::try_from(point).unwrap();
        }
        stage.server.release_events(&operator);
        stage.pass(60).await;
        let first = stage.server.value(&approvals(), NAMESPACE, &target).unwrap();
        assert_eq!(first["status"]["phase"], "Superseded", "point {point}:\n{}", stage.server.story());
        stage.people().decides("alice", "review#2", 10, verdict("Reject")).await;
        assert_eq!(stage.ended(RUN).await["status"]["phase"], "Rejected", "{point}:\n{}", stage.server.story());
        stage.pass(60).await;
        let written = written.lock().unwrap().clone();
        assert!(written.len() >= 2, "point {point}: its end and that of its run are written: {written:?}");
        for object in written {
            let text = object["status"].to_string();
            assert!(!text.contains("Approve"), "point {point}: {text}");
        }
        assert_eq!(stage.world.effects().len(), 0, "point {point}");
        let told = |event: &Value| event["regarding"]["name"] == json!(target);
        assert!(!stage.events("Approved").iter().any(told), "point {point}");
        life.crash().await;
        point += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_flipped_between_question_and_write_is_not_honoured() {
    // What is forged after the decision was read changes its version, and the write is fenced.
    for point in 1..=8 {
        let (stage, operator) = guarded().await;
        let life = stage.begin(&operator);
        let approval = stage.people().asked("review").await;
        stage.pass(10).await;
        blind(&stage, &operator);
        let target = approval.clone();
        let on = On::requests_of(&operator).only(|request| request.verb != Verb::Watch).nth(point);
        let rejects_become_approvals = move |server: &ApiServer| {
            forges(server, &target);
            let flip = |object: &mut Value| object["spec"]["decisions"]["alice"] = verdict("Approve");
            server.edit(&approvals(), NAMESPACE, &target, flip).unwrap();
        };
        stage.server.fault(on, Fault::before(rejects_become_approvals));
        stage.people().votes("alice", &approval, verdict("Reject"));
        stage.pass(60).await;
        stage.server.release_events(&operator);
        stage.pass(600).await;
        let object = stage.server.value(&approvals(), NAMESPACE, &approval).unwrap();
        assert_ne!(object["status"]["outcome"]["verdict"], "Approve", "point {point}:\n{}", stage.server.story());
        assert_eq!(stage.world.effects().len(), 0, "point {point}:\n{}", stage.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_without_the_label_of_the_guard_is_not_in_force() {
    let one_a_kind: BTreeMap<String, Value> =
        shipped().into_iter().map(|object| (object["kind"].to_string(), object)).collect();
    assert_eq!(one_a_kind.len(), 5);
    for object in one_a_kind.into_values() {
        for change in [Value::Null, json!({LABEL: "false"})] {
            let (stage, operator) = guarded().await;
            let life = stage.begin(&operator);
            let approval = stage.people().asked("review").await;
            stage.pass(10).await;
            blind(&stage, &operator);
            let (resource, name) = place(&object);
            let set =
                |labels: Value| stage.server.edit(&resource, "", &name, |object| object["metadata"]["labels"] = labels);
            set(change.clone()).unwrap();
            stage.people().votes("alice", &approval, verdict("Approve"));
            // No watch tells: it is the question that finds it missing, and what is read then says why.
            stage.pass(60).await;
            let undecided = stage.server.value(&approvals(), NAMESPACE, &approval).unwrap();
            assert!(undecided["status"]["outcome"].is_null(), "{name} {change}:\n{}", stage.server.story());
            let run = stage.workflow(RUN);
            assert_eq!(condition(&run, "Guarded"), ("False".to_owned(), "PoliciesDiffer".to_owned()), "{name}");
            let said = run["status"]["conditions"].to_string();
            assert!(said.contains(LABEL) && said.contains(&name), "{said}");
            set(object["metadata"]["labels"].clone()).unwrap();
            stage.server.release_events(&operator);
            stage.people().decides("bob", "review#2", 30, verdict("Approve")).await;
            assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{name}");
            life.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_without_an_answer_is_asked_again_and_decides_nothing_meanwhile() {
    let (stage, operator) = guarded().await;
    stage.apply(OTHER, &chain(json!([gate("review", json!({})), post("pay", "1 EUR", "fail")])));
    let life = stage.begin(&operator);
    let (one, other) = (asked(&stage, RUN).await, asked(&stage, OTHER).await);
    stage.pass(10).await;
    let is_crds =
        |request: &Request| request.resource.plural == "customresourcedefinitions" && request.verb == Verb::List;
    stage.server.fault(On::requests_of(&operator).only(is_crds).first(5), Fault::Reset);
    for approval in [&one, &other] {
        stage.people().votes("alice", approval, verdict("Approve"));
    }
    for run in [RUN, OTHER] {
        assert_eq!(stage.ended(run).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    }
    let log = stage.server.log();
    let first_write = log.iter().position(|e| e.resource == approvals() && e.subresource.is_some() && e.verb.writes());
    let lost = log.iter().take(first_write.unwrap()).filter(|e| is_crds(e) && !e.took_effect()).count();
    assert_eq!(lost, 5, "nothing is written before an answer");
    life.crash().await;
}
