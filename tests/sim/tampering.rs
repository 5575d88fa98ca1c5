//! Invalid objects: edited past admission, foreign objects under the operator's names, and unreadable objects. None of
//! them is trusted, and none stops another run.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use signoff_tests::sim::Resource;

use crate::{
    ending::list,
    harness::{Harness, NAMESPACE, OPERATOR, approvals, condition, is_status_write, workflows},
    people::{name, verdict},
    scenario_runner::TINY,
    scenarios::{ONE_GATE, RUN, chain, gate, post},
};

fn payment() -> Value {
    chain(json!([gate("review", json!({})), post("pay", "42 EUR", "fail")]))
}

#[tokio::test(start_paused = true)]
async fn a_changed_spec_stops_its_run() {
    for operator_lives in [true, false] {
        let harness = Harness::new();
        harness.apply(RUN, &payment());
        let mut life = harness.begin(OPERATOR);
        let approval = harness.people().wait_for_gate("review").await;
        harness.pass(10).await;
        if !operator_lives {
            life.crash().await;
            life = harness.begin("nobody");
        }
        harness.people().vote("alice", &approval, verdict("Approve"));
        harness.server.edit(&workflows(), NAMESPACE, RUN, |object| {
            object["spec"]["steps"][1]["http"]["body"] = json!("42000 EUR")
        });
        if !operator_lives {
            life.crash().await;
            life = harness.begin(OPERATOR);
        }
        harness.wait_for_end(RUN).await;
        harness.pass(3600).await;
        assert_eq!(harness.condition("Accepted"), ("False".to_owned(), "SpecTampered".to_owned()));
        assert_eq!(harness.condition("Failed").0, "True");
        assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
        assert!(harness.approval()["status"]["outcome"].is_object(), "it may not stay open");
        life.crash().await;
    }
}

/// The answer to a write has only metadata, so the watch brings a change that another program made of the status in
/// flight.
#[tokio::test(start_paused = true)]
async fn a_run_follows_a_status_that_was_changed_in_flight() {
    let harness = Harness::new();
    let changes = std::sync::atomic::AtomicUsize::new(0);
    harness.server.default_with(move |resource, object| {
        let began = &mut object["status"]["startedAt"];
        if *resource == workflows() && began.is_string() && changes.fetch_add(1, Ordering::Relaxed) == 0 {
            *began = json!("2120-02-20T20:20:20Z");
        }
    });
    harness.apply(RUN, &payment());
    let life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.wait_for_end(RUN).await;
    let run = harness.workflow(RUN);
    assert_eq!(run["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(run["status"]["startedAt"], "2120-02-20T20:20:20Z", "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_of_the_old_shape_does_nothing_and_is_reported() {
    for accepted in [true, false] {
        let harness = Harness::new();
        harness.apply(RUN, &payment());
        let asked = match accepted {
            true => {
                let life = harness.begin(OPERATOR);
                let asked = harness.people().wait_for_gate("review").await;
                harness.pass(10).await;
                life.crash().await;
                Some(asked)
            }
            false => None,
        };
        // The Workflow after an upgrade: the API server has dropped the steps that an older schema had in the pattern.
        harness.server.edit(&workflows(), NAMESPACE, RUN, |object| {
            object["spec"].as_object_mut().unwrap().remove("steps");
            object["spec"]["pattern"] = json!({});
            if accepted {
                object["status"]["specDigest"] = json!(format!("sha256:{}", "0".repeat(64)));
            }
        });
        if let Some(asked) = &asked {
            harness.people().vote("alice", asked, verdict("Approve"));
        }
        let before = harness.workflow(RUN);
        let written = harness.operators_writes().iter().filter(|entry| is_status_write(entry)).count();
        let life = harness.begin(OPERATOR);
        harness.pass(48 * 3600).await;
        let reason = if accepted { "OldShape" } else { "Invalid" };
        assert_eq!(harness.condition("Accepted"), ("False".to_owned(), reason.to_owned()));
        let message = harness.workflow(RUN)["status"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("spec.steps"), "{message}");
        assert_eq!(harness.events(reason).len(), 1, "it is told once");
        if accepted {
            let stands = harness.workflow(RUN);
            for field in ["phase", "steps", "pending", "seq", "specDigest", "finishedAt"] {
                assert_eq!(stands["status"][field], before["status"][field], "{field}");
            }
            assert_eq!(list(&stands["status"]["conditions"]).count(), 1, "{stands:#}");
            let writes = harness.operators_writes().iter().filter(|entry| is_status_write(entry)).count();
            assert_eq!(writes, written + 1, "{}", harness.server.story());
            harness.server.edit(&workflows(), NAMESPACE, RUN, |object| object["spec"]["cancel"] = json!(true));
            assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
        } else {
            assert_eq!(
                harness.workflow(RUN)["status"]["phase"],
                "Failed",
                "a Workflow that was not accepted is refused"
            );
        }
        assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_of_the_old_shape_is_never_skipped() {
    let harness = Harness::new();
    let evaluator = json!({"evaluatorOptimizer": {"producer": "writer", "evaluator": {"agent": "writer"}}});
    harness.apply(RUN, &payment());
    // The API server keeps a gate in a pattern as an object without fields.
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| {
        object["spec"].as_object_mut().unwrap().remove("steps");
        object["spec"]["pattern"] = evaluator.clone();
        object["spec"]["pattern"]["evaluatorOptimizer"]["reviewGate"] = json!({});
    });
    let life = harness.begin(OPERATOR);
    harness.pass(3600).await;
    assert_eq!(harness.condition("Accepted"), ("False".to_owned(), "Unreadable".to_owned()));
    assert_eq!(harness.workflow(RUN)["status"]["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_on_a_changed_request_does_not_count() {
    let harness = Harness::new();
    harness.apply(RUN, &payment());
    let life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    let mallory = json!([{"kind": "User", "name": "mallory"}]);
    harness.server.edit(&approvals(), NAMESPACE, &approval, |object| {
        object["spec"]["request"]["quorums"][0]["approvers"] = mallory
    });
    harness.people().vote("mallory", &approval, verdict("Approve"));
    harness.pass(48 * 3600).await;
    assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
    assert!(harness.approval()["status"]["outcome"].is_null());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_request_was_changed_can_be_cancelled_and_its_approval_ends_undecided() {
    let harness = Harness::new();
    harness.apply(RUN, &payment());
    let life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    harness.server.edit(&approvals(), NAMESPACE, &approval, |object| {
        object["spec"]["request"]["prompt"] = json!("Nothing to see.")
    });
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.pass(600).await;
    assert_eq!(harness.workflow(RUN)["status"]["phase"], "Waiting", "{}", harness.server.story());
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| object["spec"]["cancel"] = json!(true));
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
    harness.pass(600).await;
    let status = &harness.approval()["status"];
    assert_eq!((&status["phase"], &status["outcome"]["verdict"]), (&json!("Cancelled"), &Value::Null));
    assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_approval_of_the_expected_name_is_never_adopted() {
    // The run of the first harness shows the name that the Approval of each later run has.
    let twin = Harness::new();
    twin.apply(RUN, &payment());
    let life = twin.begin(OPERATOR);
    let expected = twin.people().wait_for_gate("review").await;
    let theirs = twin.approval();
    life.crash().await;
    for foreign in [with_another_owner(&theirs), without_an_owner(&theirs), with_another_question(&theirs)] {
        let harness = Harness::new();
        let uid = harness.apply(RUN, &payment())["metadata"]["uid"].clone();
        let planted = harness.server.insert(with_forged_outcome(foreign)).unwrap();
        assert_eq!(planted["metadata"]["name"], json!(expected));
        assert_eq!(planted["spec"]["request"]["workflow"]["uid"], uid, "it even names this very run");
        let life = harness.begin(OPERATOR);
        harness.pass(3600).await;
        assert_eq!(
            harness.workflow(RUN)["status"]["pending"],
            json!([expected]),
            "the name was foreseen:\n{}",
            harness.server.story()
        );
        assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
        assert_eq!(harness.approval()["spec"], planted["spec"], "it is somebody else's");
        // After a user has deleted the foreign Approval, the run creates its own.
        assert!(harness.server.remove(&approvals(), NAMESPACE, &expected));
        harness.people().decide("alice", "review", 60, verdict("Approve")).await;
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
        assert_eq!(harness.world.effects().len(), 1);
        life.crash().await;
    }
}

/// Returns a planted Approval that is already decided in favor of its author.
fn with_forged_outcome(mut approval: Value) -> Value {
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        approval["metadata"].as_object_mut().unwrap().shift_remove(field);
    }
    approval["spec"]["decisions"] = json!({"alice": {"verdict": "Approve"}});
    approval["status"] = json!({"phase": "Approved", "seq": 1, "outcome": {"verdict": "Approve", "phase": "Approved", "source": "Human", "decidedBy": ["alice"]}});
    approval
}

fn with_another_owner(approval: &Value) -> Value {
    let mut approval = approval.clone();
    // An owner that does not exist would let the garbage collector delete the Approval.
    approval["metadata"]["ownerReferences"] = json!([]);
    approval
}

fn without_an_owner(approval: &Value) -> Value {
    let mut approval = approval.clone();
    approval["metadata"].as_object_mut().unwrap().shift_remove("ownerReferences");
    approval
}

fn with_another_question(approval: &Value) -> Value {
    let mut approval = approval.clone();
    approval["spec"]["request"]["prompt"] = json!("Shall the sun rise tomorrow?");
    approval
}

/// Returns objects of both kinds that no schema would accept, and that an older or newer schema may have.
fn garbage() -> Vec<Value> {
    let deep = (0..300).fold(json!(1), |inner, _| json!({"f:a": inner}));
    let workflow = |name: &str, spec: Value, status: Value| json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec, "status": status});
    let approval = |name: &str, spec: Value, status: Value| json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Approval", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec, "status": status});
    let pending = json!({"phase": "Pending", "seq": 0});
    let mut deeply = workflow("deep", json!("no spec"), pending.clone());
    deeply["metadata"]["managedFields"] = json!([{"manager": "mallory", "fieldsV1": deep}]);
    vec![
        workflow("wrong-types", json!({"requestedBy": 5, "pattern": []}), pending.clone()),
        workflow(
            "old-gate",
            json!({"requestedBy": "dana", "pattern": {"routing": {"router": {"agent": "a", "input": "x", "review": {}}}}}),
            pending.clone(),
        ),
        workflow("a-text", json!("garbage"), pending.clone()),
        workflow("no-spec", Value::Null, pending.clone()),
        workflow("wrong-status", (ONE_GATE.spec)(), json!({"phase": "Dancing", "seq": "many", "steps": {}})),
        workflow("wrong-step", (ONE_GATE.spec)(), json!({"phase": "Running", "seq": 1, "steps": [{"path": 7}]})),
        deeply,
        approval("wrong-request", json!({"request": "please"}), pending.clone()),
        approval("no-request", json!({"decisions": {"alice": {"verdict": "Approve"}}}), pending.clone()),
        approval("wrong-decisions", json!({"request": {}, "decisions": [1, 2, 3]}), pending.clone()),
        approval("a-number", json!(42), json!({"phase": 1})),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_stops_no_other_run() {
    for (in_the_list, watched) in [(true, false), (false, true), (true, true)] {
        let harness = Harness::new();
        let plant = || garbage().into_iter().for_each(|object| drop(harness.server.insert(object).unwrap()));
        if in_the_list {
            plant();
        }
        harness.apply(RUN, &(ONE_GATE.spec)());
        let life = harness.begin(OPERATOR);
        let approval = harness.people().wait_for_gate("review").await;
        if watched {
            plant();
            garbage().iter().for_each(|object| {
                drop(harness.server.edit(&Resource::of_object(object), NAMESPACE, &name(object), |o| {
                    o["metadata"]["labels"] = json!({"a": "b"})
                }))
            });
        }
        harness.pass(10).await;
        harness.people().vote("alice", &approval, verdict("Approve"));
        assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
        harness.apply("another", &(ONE_GATE.spec)());
        harness.people().decide("alice", "review", 10, verdict("Approve")).await;
        assert_eq!(harness.wait_for_end("another").await["status"]["phase"], "Succeeded");
        let names: Vec<_> = garbage().iter().map(name).collect();
        let events = harness.events("Unreadable");
        let mut reported: Vec<_> = events.iter().filter_map(|event| event["regarding"]["name"].as_str()).collect();
        reported.sort_by_key(|reported| names.iter().position(|name| name == reported));
        assert_eq!(reported, names, "each is named, and once");
        // A condition is set wherever that is possible without reading the rest.
        for name in names.iter().filter(|name| harness.workflow(name).is_object() && *name != "wrong-status") {
            let accepted = condition(&harness.workflow(name), "Accepted");
            assert_eq!(accepted, ("False".to_owned(), "Unreadable".to_owned()), "{name}");
        }
        let lists = harness.server.count(|entry| entry.verb == signoff_tests::sim::Verb::List);
        assert_eq!(lists, 6, "the watches went on where they were:\n{}", harness.server.story());
        life.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_can_be_read_again_continues() {
    let harness = Harness::new();
    harness.apply(RUN, &payment());
    let life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    let whole = harness.approval();
    harness.server.edit(&approvals(), NAMESPACE, &approval, |object| object["spec"]["decisions"] = json!("garbage"));
    for label in ["one", "two"] {
        harness
            .server
            .edit(&approvals(), NAMESPACE, &approval, |object| object["metadata"]["labels"] = json!({"a": label}));
        harness.pass(3600).await;
    }
    assert_eq!(harness.world.effects().len(), 0);
    let events = harness.events("Unreadable");
    assert_eq!(events.len(), 1, "it is told once:\n{}", harness.server.story());
    assert_eq!((&events[0]["type"], &events[0]["regarding"]["kind"]), (&json!("Warning"), &json!("Approval")));
    assert_eq!(harness.condition("Waiting"), ("True".to_owned(), "ApprovalUnreadable".to_owned()));
    harness.server.edit(&approvals(), NAMESPACE, &approval, |object| object["spec"] = whole["spec"].clone());
    harness.pass(10).await;
    assert_eq!(
        harness.condition("Waiting"),
        ("True".to_owned(), "ApprovalPending".to_owned()),
        "{}",
        harness.server.story()
    );
    harness.people().vote("alice", &approval, verdict("Approve"));
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(harness.world.effects().len(), 1);
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn an_approval_without_a_quorum_is_reported_on_its_run() {
    let absent = (None, "Waiting", "ApprovalUnreadable", "missing field `quorums`");
    let empty = (Some(json!([])), "Stalled", "ForeignObject", "has no quorum, so it cannot be decided");
    for (quorums, kind, reason, says) in [absent, empty] {
        let harness = Harness::new();
        let goes_on = json!({"timeout": {"after": "1h", "action": "Approve"}});
        harness.apply(RUN, &chain(json!([gate("review", goes_on), post("pay", "42 EUR", "fail")])));
        let life = harness.begin(OPERATOR);
        let approval = harness.people().wait_for_gate("review").await;
        harness.pass(10).await;
        let before = harness.workflow(RUN);
        life.crash().await;
        // A request from before quorums existed, and the vote of an approver.
        harness.server.edit(&approvals(), NAMESPACE, &approval, |object| {
            let request = object["spec"]["request"].as_object_mut().unwrap();
            let quorum = request.shift_remove("quorums").unwrap()[0].clone();
            request.insert("approvers".to_owned(), quorum["approvers"].clone());
            request.insert("threshold".to_owned(), json!(1));
            request.extend(quorums.clone().map(|quorums| ("quorums".to_owned(), quorums)));
            object["spec"]["decisions"] = json!({"alice": {"verdict": "Approve"}});
        });
        let planted = harness.approval();
        for operator in [OPERATOR, "the next operator"] {
            let life = harness.begin(operator);
            harness.pass(24 * 3600).await;
            life.crash().await;
        }
        assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
        assert_eq!(harness.approval(), planted, "not a byte of it is written");
        let after = harness.workflow(RUN);
        for field in ["phase", "steps", "seq", "pending"] {
            assert_eq!(after["status"][field], before["status"][field], "only the conditions are written");
        }
        let changed: Vec<_> = list(&after["status"]["conditions"])
            .filter(|now| !list(&before["status"]["conditions"]).any(|was| was == *now))
            .collect();
        let [condition] = changed[..] else { panic!("{changed:#?}") };
        assert_eq!(
            (&condition["type"], &condition["status"], &condition["reason"]),
            (&json!(kind), &json!("True"), &json!(reason))
        );
        assert!(condition["message"].as_str().is_some_and(|message| message.contains(says)), "{condition}");
        let promises =
            condition["message"].as_str().is_some_and(|message| message.contains("retried until it succeeds"));
        assert!(!promises, "nobody is told to wait for what does not pass by itself: {condition}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_spec_is_refused_with_every_error() {
    let harness = Harness::new();
    harness.apply(
        RUN,
        &chain(json!([
            gate("review", json!({"prompt": "{{ steps.nowhere.response }}"})),
            post("pay", "{{ 1 +", "fail")
        ])),
    );
    let life = harness.begin(OPERATOR);
    let workflow = harness.wait_for_end(RUN).await;
    assert_eq!(harness.condition("Accepted"), ("False".to_owned(), "Invalid".to_owned()));
    let message =
        list(&workflow["status"]["conditions"]).find(|c| c["type"] == "Accepted").unwrap()["message"].to_string();
    assert!(message.contains("nowhere") && message.contains("http.body"), "{message}");
    harness.pass(3600).await;
    assert_eq!((harness.approvals().len(), harness.world.effects().len()), (0, 0));
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_newer_journal_is_held_and_reported() {
    let harness = Harness::new();
    harness.apply(RUN, &payment());
    let life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    life.crash().await;
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| {
        object["status"]["journalVersion"] = json!(signoff_api::journal::VERSION + 1)
    });
    let newer = harness.workflow(RUN);
    let life = harness.begin(OPERATOR);
    harness.people().vote("alice", &approval, verdict("Approve"));
    harness.pass(3600).await;
    assert_eq!(harness.workflow(RUN), newer, "not a byte of it is written");
    assert_eq!(harness.approval()["status"]["phase"], "Pending", "nor of its Approval");
    assert_eq!(harness.world.effects().len(), 0, "{}", harness.server.story());
    assert_eq!(harness.events("JournalTooNew").len(), 1);
    // The newer operator comes back.
    life.crash().await;
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| object["status"]["journalVersion"] = json!(1));
    let life = harness.begin(OPERATOR);
    harness.wait_for_end(RUN).await;
    assert_eq!(harness.world.effects().len(), 1, "{}", harness.server.story());
    life.crash().await;
}

/// Starts a run in segments that waits for alice, with its operator dead.
async fn crash_while_waiting_in_segments() -> (Harness, Value) {
    let harness = Harness { room: TINY, ..Harness::new() };
    let pays_twice =
        chain(json!([post("deposit", "7 EUR", "fail"), gate("review", json!({})), post("pay", "42 EUR", "fail")]));
    harness.apply(RUN, &pays_twice);
    let life = harness.begin(OPERATOR);
    let approval = harness.people().wait_for_gate("review").await;
    harness.pass(10).await;
    life.crash().await;
    harness.people().vote("alice", &approval, verdict("Approve"));
    let named = harness.workflow(RUN)["status"]["segments"].clone();
    assert_eq!(list(&named).count(), 1, "{named}");
    (harness, named)
}

#[tokio::test(start_paused = true)]
async fn a_run_without_its_segments_does_nothing_and_is_reported() {
    let (harness, named) = crash_while_waiting_in_segments().await;
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| {
        object["status"].as_object_mut().unwrap().remove("segments");
    });
    let torn = harness.workflow(RUN);
    let life = harness.begin(OPERATOR);
    harness.pass(3600).await;
    assert_eq!(harness.workflow(RUN), torn, "not a byte of it is written");
    assert_eq!(harness.world.effects().len(), 1, "the deposit is not paid again: {}", harness.server.story());
    let [event] = &harness.events("JournalIncomplete")[..] else { panic!("{:?}", harness.events("JournalIncomplete")) };
    assert!(event["note"].as_str().is_some_and(|note| note.contains("status.segments is empty")), "{event}");
    // The Blob is restored.
    life.crash().await;
    harness.server.edit(&workflows(), NAMESPACE, RUN, |object| object["status"]["segments"] = named.clone());
    let life = harness.begin(OPERATOR);
    harness.wait_for_end(RUN).await;
    assert_eq!(harness.world.effects().len(), 2, "{}", harness.server.story());
    life.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_changed_segment_does_nothing_and_is_reported() {
    let blobs = Resource::new("signoff.dev", "blobs");
    for (change, words, reason) in
        [("changed", "holds other bytes", "ValueDamaged"), ("deleted", "any more", "ValueMissing")]
    {
        let (harness, _) = crash_while_waiting_in_segments().await;
        let [blob] = &harness.server.values(&blobs, Some(NAMESPACE))[..] else { panic!("not one Blob") };
        let name = blob["metadata"]["name"].as_str().unwrap();
        let is_changed = match change {
            "changed" => {
                harness.server.edit(&blobs, NAMESPACE, name, |blob| blob["spec"]["data"] = json!("[]")).is_some()
            }
            _ => harness.server.remove(&blobs, NAMESPACE, name),
        };
        assert!(is_changed, "{change}");
        let before = harness.workflow(RUN);
        let life = harness.begin(OPERATOR);
        harness.pass(3600).await;
        let after = harness.workflow(RUN);
        for field in ["phase", "steps", "segments", "seq", "pending"] {
            assert_eq!(after["status"][field], before["status"][field], "{change}: only the conditions are written");
        }
        assert_eq!(after["spec"], before["spec"]);
        assert_eq!(harness.condition("ValueUnavailable"), ("True".to_owned(), reason.to_owned()));
        assert_eq!(harness.events(reason).len(), 1, "{change}: it is told once");
        assert_eq!(harness.world.effects().len(), 1, "{}", harness.server.story());
        let events = harness.events("JournalIncomplete");
        let has_words = |event: &Value| event["note"].as_str().unwrap().contains(words);
        assert!(events.iter().any(has_words), "{change}: {events:?}");
        life.crash().await;
    }
}
