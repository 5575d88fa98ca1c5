//! Containers that fail: each failure has the reason that the cluster gave, and an end that was not observed is
//! unknown.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Answer, Refusal, Resource, Turn};

use super::{record, starts};
use crate::{
    ending::list,
    harness::{Harness, Life, NAMESPACE, OPERATOR},
    people::verdict,
    scenarios::{RUN, chain, gate, pod, set},
};

fn with(mut step: Value, more: Value) -> Value {
    for (field, value) in more.as_object().into_iter().flatten() {
        step[field] = value.clone();
    }
    step
}

/// Starts a run of one container, `build`, that takes a minute.
fn building(step: Value, course: Value) -> (Harness, Life) {
    let harness = Harness::new();
    harness.world.answers("refund/build", Answer::value(course).after(Duration::from_secs(60)));
    harness.apply(RUN, &chain(json!([step, set("note", "{{ steps.build.response }}")])));
    let life = harness.begin(OPERATOR);
    (harness, life)
}

fn build(more: Value) -> Value {
    with(pod("build", json!({})), more)
}

/// Returns the name of the only Pod.
fn only_pod(harness: &Harness) -> String {
    let [pod] = &harness.all_pods()[..] else { panic!("there is not one Pod:\n{}", harness.server.story()) };
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn pods() -> Resource {
    Resource::new("", "pods")
}

/// Returns the phase, class of error and message of the step.
fn outcome(harness: &Harness) -> (String, String, String) {
    let step = record(harness, "build", 1);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&step["phase"]), text(&step["error"]["class"]), text(&step["error"]["message"]))
}

async fn fails_with(harness: &Harness, class: &str, words: &str) {
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Failed", "{}", harness.server.story());
    let (phase, found, message) = outcome(harness);
    assert_eq!((phase.as_str(), found.as_str()), ("Failed", class), "{message}\n{}", harness.server.story());
    assert!(message.contains(words), "{message}");
}

async fn is_unknown(harness: &Harness) {
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Failed", "{}", harness.server.story());
    let (phase, found, message) = outcome(harness);
    assert_eq!(
        (phase.as_str(), found.as_str()),
        ("Unknown", "OutcomeUnknown"),
        "{message}\n{}",
        harness.server.story()
    );
    assert!(starts(harness, "build", 1) <= 1, "{}", harness.server.story());
    assert!(starts(harness, "build", 2) == 0, "nothing that is not known is tried again:\n{}", harness.server.story());
}

async fn running(harness: &Harness) -> String {
    harness.server.until_all(|_| list(&harness.all_pods().into()).any(|pod| pod["status"]["phase"] == "Running")).await;
    only_pod(harness)
}

#[tokio::test(start_paused = true)]
async fn an_exit_code_is_reported_with_its_message() {
    let (harness, _life) =
        building(build(json!({})), json!({"exitCode": 3, "message": "no such table", "log": "a\nb\n"}));
    fails_with(&harness, "ExitCode", "exit code 3: no such table").await;
    let step = record(&harness, "build", 1);
    assert_eq!(
        (&step["facts"]["exitCode"], &step["facts"]["node"], &step["log"]["tail"]),
        (&json!("3"), &json!("node-1"), &json!("a\nb\n"))
    );
    harness.pass(600).await;
    assert_eq!(harness.all_pods().len(), 1, "one that failed stays to be looked at");
}

#[tokio::test(start_paused = true)]
async fn a_container_out_of_memory_fails_with_its_reason() {
    let (harness, _life) = building(build(json!({})), json!({"exitCode": 137, "reason": "OOMKilled"}));
    fails_with(&harness, "OOMKilled", "more memory").await;
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_fails_with_the_message_of_the_kubelet() {
    let (harness, _life) = building(build(json!({})), json!("done"));
    let pod = running(&harness).await;
    harness.kubelet.evict(&pod);
    fails_with(&harness, "Evicted", "low on resource").await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_too_long_is_stopped_with_grace_and_times_out() {
    let (harness, _life) = building(build(json!({"timeout": "20s"})), json!("done"));
    let began = harness.server.clock().now();
    fails_with(&harness, "Timeout", "20s").await;
    let took = harness.server.clock().now().duration_since(began).as_secs();
    assert!((20..=23).contains(&took), "{took}");
    harness.pass(1).await;
    assert_eq!((starts(&harness, "build", 1), harness.all_pods().len()), (1, 0), "{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_kubelet_has_its_own_reason() {
    let step = with(pod("build", json!({"activeDeadline": "10s"})), json!({}));
    let (harness, _life) = building(step, json!("done"));
    fails_with(&harness, "DeadlineExceeded", "longer than the specified deadline").await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_container_has_failed_whatever_its_exit_code() {
    let polite = json!({"message": "half of it", "exitCodeWhenAsked": 0});
    let steps = [
        (build(json!({"timeout": "20s"})), "Timeout"),
        (pod("build", json!({"activeDeadline": "10s"})), "DeadlineExceeded"),
        (build(json!({})), "Deleted"),
    ];
    for (step, class) in steps {
        let (harness, _life) = building(step, polite.clone());
        if class == "Deleted" {
            harness.delete_pod("mallory", &running(&harness).await, None).await;
        }
        fails_with(&harness, class, "exit code 0").await;
        assert_eq!(record(&harness, "build", 1)["facts"]["exitCode"], "0");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_is_given_up_only_after_its_grace() {
    let slow = json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 600}}});
    let (harness, _life) = building(with(pod("build", slow), json!({"timeout": "20s"})), json!("done"));
    let pod = running(&harness).await;
    // The container takes half of its grace of 600 s to stop.
    harness.kubelet.slow_to_stop(Duration::from_secs(300));
    fails_with(&harness, "Timeout", "20s").await;
    assert!(
        !harness.all_pods().iter().any(|one| one["metadata"]["name"] == *pod && one["status"]["phase"] == "Running")
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_answer_is_invalid_is_kept() {
    let (harness, _life) = building(build(json!({})), json!({"message": "x".repeat(4096)}));
    fails_with(&harness, "TooLarge", "4096 bytes").await;
    harness.pass(600).await;
    assert_eq!(harness.all_pods().len(), 1, "its step failed, though its container did not");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_is_reported_within_seconds() {
    let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "tool@sha256:1: not found"}});
    let (harness, _life) = building(pod("build", json!({"startDeadline": "2m"})), waiting);
    harness.pass(2).await;
    let workflow = harness.workflow(RUN);
    assert_eq!(harness.condition("PodsPending"), ("True".to_owned(), "ErrImagePull".to_owned()));
    let said =
        list(&workflow["status"]["conditions"]).find(|c| c["type"] == "PodsPending").unwrap()["message"].to_string();
    assert!(said.contains("build") && said.contains("tool@sha256:1: not found"), "{said}");
    // A kubelet switches between the two reasons.
    let writes = harness.server.count(crate::harness::is_status_write);
    for reason in ["ImagePullBackOff", "ErrImagePull", "ImagePullBackOff", "ErrImagePull"] {
        harness.server.edit(&pods(), NAMESPACE, &only_pod(&harness), |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"] =
                json!({"reason": reason, "message": format!("{reason} again")});
        });
        harness.pass(5).await;
    }
    assert_eq!(harness.server.count(crate::harness::is_status_write), writes, "told once:\n{}", harness.server.story());
    fails_with(&harness, "ErrImagePull", "ErrImagePull again").await;
    assert_eq!(starts(&harness, "build", 1), 0);
    harness.pass(300).await;
    assert_eq!(harness.all_pods().len(), 0);
    assert_ne!(harness.condition("PodsPending").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_is_reported_with_the_message_of_the_scheduler() {
    let (harness, _life) =
        building(build(json!({})), json!({"unschedulable": "0/1 nodes are available: 1 Insufficient cpu."}));
    harness.pass(2).await;
    assert_eq!(harness.condition("PodsPending"), ("True".to_owned(), "Unschedulable".to_owned()));
    fails_with(&harness, "Unschedulable", "Insufficient cpu").await;
    assert_eq!(harness.all_pods().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_scheduler_is_reported_after_ten_seconds() {
    let (harness, _life) = building(build(json!({})), json!({"unseen": true}));
    harness.pass(5).await;
    assert_ne!(harness.condition("PodsPending").0, "True");
    harness.pass(7).await;
    assert_eq!(harness.condition("PodsPending"), ("True".to_owned(), "NotScheduled".to_owned()));
    fails_with(&harness, "NotStarted", "did not start").await;
    assert_eq!(harness.all_pods().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_user_deletes_with_grace_ends_as_deleted() {
    let (harness, _life) = building(build(json!({})), json!("done"));
    let pod = running(&harness).await;
    harness.delete_pod("mallory", &pod, None).await;
    fails_with(&harness, "Deleted", "137").await;
    assert_eq!(starts(&harness, "build", 1), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_user_deletes_before_it_has_a_node_never_ran() {
    let (harness, _life) = building(build(json!({})), json!({"unschedulable": "none"}));
    harness.pass(2).await;
    harness.delete_pod("mallory", &only_pod(&harness), None).await;
    fails_with(&harness, "Deleted", "before it ran").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_user_deletes_by_force_has_an_unknown_outcome() {
    let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
    let (harness, _life) = building(build(retry), json!("done"));
    let pod = running(&harness).await;
    harness.delete_pod("mallory", &pod, Some(0)).await;
    is_unknown(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_end_was_not_observed_has_an_unknown_outcome() {
    for crash in [false, true] {
        let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
        let (harness, life) = building(build(retry), json!("done"));
        let pod = running(&harness).await;
        harness.server.hold_events(OPERATOR);
        if crash {
            life.crash().await;
        }
        harness.pass(120).await;
        assert_eq!(harness.all_pods()[0]["status"]["phase"], "Succeeded", "it ended, and nobody saw it");
        harness.server.remove(&pods(), NAMESPACE, &pod);
        harness.server.expire_resource_versions();
        harness.server.release_events(OPERATOR);
        let _next = crash.then(|| harness.begin(OPERATOR));
        is_unknown(&harness).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_given_up_when_its_event_was_lost() {
    let waits = json!({"unschedulable": "0/1 nodes are available: 1 Insufficient cpu."});
    let (harness, _life) = building(pod("build", json!({"startDeadline": "2m"})), waits);
    harness.pass(2).await;
    harness.server.hold_events(OPERATOR);
    harness.server.remove(&pods(), NAMESPACE, &only_pod(&harness));
    is_unknown(&harness).await;
    let looks =
        harness.server.count(|entry| entry.resource.plural == "pods" && entry.verb == signoff_tests::sim::Verb::Get);
    assert!(looks <= 2, "{looks}\n{}", harness.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_kubelet_rejects_after_it_ran_is_not_run_again() {
    let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
    let (harness, life) = building(build(retry), json!("done"));
    let pod = running(&harness).await;
    life.crash().await;
    // The status of a returning kubelet that has no place for the Pod any more: it names no container.
    harness.server.edit(&pods(), NAMESPACE, &pod, |pod| {
        pod["status"] = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected"});
    });
    let _life = harness.begin(OPERATOR);
    is_unknown(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_name_another_has_taken_has_an_unknown_outcome() {
    let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
    let (harness, life) = building(build(retry), json!("done"));
    let pod = running(&harness).await;
    life.crash().await;
    harness.server.remove(&pods(), NAMESPACE, &pod);
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": NAMESPACE}, "spec": {"containers": []}});
    harness.server.insert(other).unwrap();
    let _life = harness.begin(OPERATOR);
    is_unknown(&harness).await;
    assert_eq!(only_pod(&harness), pod, "it is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_last_event_was_lost_is_not_run_again() {
    let (harness, _life) = building(build(json!({"timeout": "5m"})), json!("done"));
    running(&harness).await;
    // The watch goes on as if nothing were missing.
    harness.server.lose_events(OPERATOR, 1);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded", "{}", harness.server.story());
    assert_eq!(starts(&harness, "build", 1), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_node_that_is_lost_while_it_runs_has_an_unknown_outcome() {
    let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
    let (harness, _life) = building(build(retry), json!("done"));
    let pod = running(&harness).await;
    // The status that the control plane writes when a node is gone, without asking the container.
    harness.server.edit(&pods(), NAMESPACE, &pod, |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}]);
    });
    harness.server.remove(&pods(), NAMESPACE, &pod);
    is_unknown(&harness).await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_retried_by_exit_code_has_another_pod() {
    let retry =
        json!({"retry": {"limit": 3, "onExitCodes": [75], "backoff": {"base": "10s", "factor": 1.0, "jitter": 0.0}}});
    let (harness, _life) = building(build(retry), json!({"exitCode": 75}));
    harness.world.answers_attempt("refund/build", 3, Answer::value("third time lucky").after(Duration::from_secs(5)));
    let ended = harness.wait_for_end(RUN).await;
    assert_eq!(ended["status"]["outputs"], "third time lucky", "{}", harness.server.story());
    assert_eq!([1, 2, 3, 4].map(|attempt| starts(&harness, "build", attempt)), [1, 1, 1, 0]);
    let times: Vec<_> = harness.world.effects().iter().map(|effect| effect.at).collect();
    for pair in times.windows(2) {
        let apart = pair[1].duration_since(pair[0]).as_secs();
        assert!((70..=72).contains(&apart), "a minute of work and ten seconds of pause: {apart}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_start_asks_people_at_an_error_gate() {
    let harness = Harness::new();
    let mut spec = chain(json!([pod("build", json!({})), set("note", "{{ steps.build.response }}")]));
    let hitl = gate("x", json!({"allowedVerdicts": ["Retry", "Skip", "Reject", "Abort"]}))["hitl"].take();
    spec["gates"] = json!([{"name": "broken", "type": "errorEscalation", "steps": ["build"], "hitl": hitl}]);
    harness.apply(RUN, &spec);
    let creation = |request: &signoff_tests::sim::Request| request.resource.plural == "pods";
    harness.server.fault(
        signoff_tests::sim::On::writes_of(OPERATOR).only(creation).nth(1),
        signoff_tests::sim::Fault::Crash(signoff_tests::sim::Crash::NotApplied),
    );
    let story = async {
        let approval = harness.people().wait_for_gate("build/.error").await;
        assert_eq!(record(&harness, "build", 1)["phase"], "Unknown");
        assert_eq!(harness.world.effects().len(), 0);
        harness.people().vote("alice", &approval, verdict("Retry"));
        harness.wait_for_end(RUN).await
    };
    let (ended, deaths) = harness.keep_alive(&[OPERATOR], story).await;
    assert_eq!((deaths, &ended["status"]["phase"]), (1, &json!("Succeeded")));
    assert_eq!((starts(&harness, "build", 1), starts(&harness, "build", 2)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_created_late_is_stopped_while_people_are_asked() {
    let harness = Harness::new();
    harness.world.answers("refund/build", Answer::value("done").after(Duration::from_secs(3600)));
    let mut spec = chain(json!([pod("build", json!({}))]));
    let hitl = gate("x", json!({"allowedVerdicts": ["Retry", "Reject"]}))["hitl"].take();
    spec["gates"] = json!([{"name": "broken", "type": "errorEscalation", "steps": ["build"], "hitl": hitl}]);
    harness.apply(RUN, &spec);
    let creation = |request: &signoff_tests::sim::Request| request.resource.plural == "pods";
    // The operator that sent the creation is dead, and the request is still in flight.
    let late = signoff_tests::sim::Crash::AppliedAfter(Duration::from_secs(10));
    harness.server.fault(
        signoff_tests::sim::On::writes_of(OPERATOR).only(creation).nth(1),
        signoff_tests::sim::Fault::Crash(late),
    );
    let story = async {
        let approval = harness.people().wait_for_gate("build/.error").await;
        harness.pass(60).await;
        assert_eq!(harness.all_pods().len(), 0, "its outcome is not known, so it must not go on unseen");
        assert!(starts(&harness, "build", 1) <= 1);
        harness.people().vote("alice", &approval, verdict("Reject"));
        harness.wait_for_end(RUN).await
    };
    harness.keep_alive(&[OPERATOR], story).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_pod_is_neither_adopted_nor_deleted() {
    let name = |harness: &Harness| record(harness, "build", 1)["object"].as_str().unwrap_or_default().to_owned();
    // Its name and digest are predictable: one run shows them, and the next finds a foreign Pod of that name.
    let (shown, _life) = building(build(json!({})), json!("done"));
    running(&shown).await;
    let digest = record(&shown, "build", 1)["inputDigest"].clone();
    for disguise in ["nothing of it", "no label", "another label", "another owner", "another digest"] {
        let harness = Harness::new();
        harness.apply(RUN, &chain(json!([pod("build", json!({})), set("note", "x")])));
        let uid = harness.workflow(RUN)["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let foreign = signoff_api::names::pod(RUN, &uid, "build", 1);
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": foreign, "namespace": NAMESPACE}, "spec": {"containers": []}});
        if disguise != "nothing of it" {
            let owner = if disguise == "another owner" { "00000000-0000-4000-8000-00000000ffff" } else { &uid };
            let digest = if disguise == "another digest" { json!("sha256:0") } else { digest.clone() };
            object["metadata"]["labels"] = match disguise {
                // A user who can create Pods can write all fields but the guarded label.
                "no label" => json!({"signoff.dev/workflow-uid": uid}),
                "another label" => json!({"signoff.dev/workflow-uid": uid, "signoff.dev/workflow": "another"}),
                _ => json!({"signoff.dev/workflow-uid": uid, "signoff.dev/workflow": RUN}),
            };
            object["metadata"]["annotations"] =
                json!({"signoff.dev/input-digest": digest, "signoff.dev/path": "build"});
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": RUN, "uid": owner, "controller": true}]);
        }
        harness.server.garbage(signoff_tests::sim::Garbage::WhenTold);
        harness.server.insert(object).unwrap();
        let _life = harness.begin(OPERATOR);
        fails_with(&harness, "ForeignPod", "this run did not create it").await;
        assert_eq!(name(&harness), foreign);
        harness.pass(600).await;
        assert_eq!(harness.all_pods().len(), 1, "{disguise}: it is left alone:\n{}", harness.server.story());
        assert_eq!(harness.server.count(|entry| entry.verb == signoff_tests::sim::Verb::Delete), 0, "{disguise}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_fails_with_the_message_of_the_api_server() {
    let (harness, _life) = building(build(json!({})), json!("done"));
    let creation = |request: &signoff_tests::sim::Request| request.resource.plural == "pods" && request.verb.writes();
    let why = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true";
    harness.server.fault(
        signoff_tests::sim::On::writes_of(OPERATOR).only(creation),
        signoff_tests::sim::Fault::Refuse(Refusal::new(403, "Forbidden", why)),
    );
    fails_with(&harness, "Refused", "violates PodSecurity").await;
}

#[tokio::test(start_paused = true)]
async fn the_next_operator_finds_a_running_container_and_keeps_its_deadline() {
    let (harness, life) = building(build(json!({"timeout": "30s"})), json!("done"));
    harness.kubelet.when(Turn::Started, 1, |server| server.kill(OPERATOR));
    harness.pass(10).await;
    life.crash().await;
    let began = harness.world.effects()[0].at;
    let _life = harness.begin(OPERATOR);
    fails_with(&harness, "Timeout", "30s").await;
    let took = harness.server.clock().now().duration_since(began).as_secs();
    assert!((29..=33).contains(&took), "its time counts from its creation: {took}");
}
