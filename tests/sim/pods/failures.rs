//! Containers that do not end well: each failure has the reason that the cluster gave, and what nobody saw is not known.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_tests::sim::{Answer, Refusal, Resource, Turn};

use super::{record, starts};
use crate::{
    ending::list,
    harness::{Life, NAMESPACE, OPERATOR, Stage},
    people::verdict,
    scenarios::{RUN, chain, gate, pod, set},
};

fn with(mut step: Value, more: Value) -> Value {
    for (field, value) in more.as_object().into_iter().flatten() {
        step[field] = value.clone();
    }
    step
}

/// A run of one container, `build`, that takes a minute.
fn building(step: Value, course: Value) -> (Stage, Life) {
    let stage = Stage::new();
    stage.world.answers("refund/build", Answer::value(course).after(Duration::from_secs(60)));
    stage.apply(RUN, &chain(json!([step, set("note", "{{ steps.build.response }}")])));
    let life = stage.begin(OPERATOR);
    (stage, life)
}

fn build(more: Value) -> Value {
    with(pod("build", json!({})), more)
}

/// The name of the only Pod.
fn only_pod(stage: &Stage) -> String {
    let [pod] = &stage.all_pods()[..] else { panic!("there is not one Pod:\n{}", stage.server.story()) };
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn pods() -> Resource {
    Resource::new("", "pods")
}

/// The phase, class of error and message of the step.
fn outcome(stage: &Stage) -> (String, String, String) {
    let step = record(stage, "build", 1);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&step["phase"]), text(&step["error"]["class"]), text(&step["error"]["message"]))
}

async fn fails_with(stage: &Stage, class: &str, words: &str) {
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Failed", "{}", stage.server.story());
    let (phase, found, message) = outcome(stage);
    assert_eq!((phase.as_str(), found.as_str()), ("Failed", class), "{message}\n{}", stage.server.story());
    assert!(message.contains(words), "{message}");
}

async fn is_unknown(stage: &Stage) {
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Failed", "{}", stage.server.story());
    let (phase, found, message) = outcome(stage);
    assert_eq!((phase.as_str(), found.as_str()), ("Unknown", "OutcomeUnknown"), "{message}\n{}", stage.server.story());
    assert!(starts(stage, "build", 1) <= 1, "{}", stage.server.story());
    assert!(starts(stage, "build", 2) == 0, "nothing that is not known is tried again:\n{}", stage.server.story());
}

async fn running(stage: &Stage) -> String {
    stage.server.until_all(|_| list(&stage.all_pods().into()).any(|pod| pod["status"]["phase"] == "Running")).await;
    only_pod(stage)
}

#[tokio::test(start_paused = true)]
async fn an_exit_code_and_what_was_said_with_it_are_told() {
    let (stage, _life) =
        building(build(json!({})), json!({"exitCode": 3, "message": "no such table", "log": "a\nb\n"}));
    fails_with(&stage, "ExitCode", "exit code 3: no such table").await;
    let step = record(&stage, "build", 1);
    assert_eq!(
        (&step["facts"]["exitCode"], &step["facts"]["node"], &step["log"]["tail"]),
        (&json!("3"), &json!("node-1"), &json!("a\nb\n"))
    );
    stage.pass(600).await;
    assert_eq!(stage.all_pods().len(), 1, "one that failed stays to be looked at");
}

#[tokio::test(start_paused = true)]
async fn a_container_out_of_memory_is_told_as_that() {
    let (stage, _life) = building(build(json!({})), json!({"exitCode": 137, "reason": "OOMKilled"}));
    fails_with(&stage, "OOMKilled", "more memory").await;
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_is_told_in_the_kubelets_words() {
    let (stage, _life) = building(build(json!({})), json!("done"));
    let pod = running(&stage).await;
    stage.kubelet.evict(&pod);
    fails_with(&stage, "Evicted", "low on resource").await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_too_long_is_ended_with_grace_and_said_to_have_timed_out() {
    let (stage, _life) = building(build(json!({"timeout": "20s"})), json!("done"));
    let began = stage.server.clock().now();
    fails_with(&stage, "Timeout", "20s").await;
    let took = stage.server.clock().now().duration_since(began).as_secs();
    assert!((20..=23).contains(&took), "{took}");
    stage.pass(1).await;
    assert_eq!((starts(&stage, "build", 1), stage.all_pods().len()), (1, 0), "{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn the_kubelets_own_deadline_is_told_as_its_own() {
    let step = with(pod("build", json!({"activeDeadline": "10s"})), json!({}));
    let (stage, _life) = building(step, json!("done"));
    fails_with(&stage, "DeadlineExceeded", "longer than the specified deadline").await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_was_told_to_end_did_not_do_its_work_whatever_its_exit_code() {
    let polite = json!({"message": "half of it", "exitCodeWhenAsked": 0});
    let steps = [
        (build(json!({"timeout": "20s"})), "Timeout"),
        (pod("build", json!({"activeDeadline": "10s"})), "DeadlineExceeded"),
        (build(json!({})), "Deleted"),
    ];
    for (step, class) in steps {
        let (stage, _life) = building(step, polite.clone());
        if class == "Deleted" {
            stage.deletes_pod("mallory", &running(&stage).await, None).await;
        }
        fails_with(&stage, class, "exit code 0").await;
        assert_eq!(record(&stage, "build", 1)["facts"]["exitCode"], "0");
    }
}

#[tokio::test(start_paused = true)]
async fn one_whose_grace_is_long_is_not_given_up_before_it_is_over() {
    let slow = json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 600}}});
    let (stage, _life) = building(with(pod("build", slow), json!({"timeout": "20s"})), json!("done"));
    let pod = running(&stage).await;
    // It uses what it was left.
    stage.kubelet.slow_to_stop(Duration::from_secs(300));
    fails_with(&stage, "Timeout", "20s").await;
    assert!(!stage.all_pods().iter().any(|one| one["metadata"]["name"] == *pod && one["status"]["phase"] == "Running"));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_an_answer_stays_to_be_looked_at() {
    let (stage, _life) = building(build(json!({})), json!({"message": "x".repeat(4096)}));
    fails_with(&stage, "TooLarge", "4096 bytes").await;
    stage.pass(600).await;
    assert_eq!(stage.all_pods().len(), 1, "its step failed, though its container did not");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_is_told_within_seconds_and_given_up_in_time() {
    let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "tool@sha256:1: not found"}});
    let (stage, _life) = building(pod("build", json!({"startDeadline": "2m"})), waiting);
    stage.pass(2).await;
    let workflow = stage.workflow(RUN);
    assert_eq!(stage.condition("PodsPending"), ("True".to_owned(), "ErrImagePull".to_owned()));
    let said =
        list(&workflow["status"]["conditions"]).find(|c| c["type"] == "PodsPending").unwrap()["message"].to_string();
    assert!(said.contains("build") && said.contains("tool@sha256:1: not found"), "{said}");
    // A kubelet goes back and forth between the two.
    let writes = stage.server.count(crate::harness::is_status_write);
    for reason in ["ImagePullBackOff", "ErrImagePull", "ImagePullBackOff", "ErrImagePull"] {
        stage.server.edit(&pods(), NAMESPACE, &only_pod(&stage), |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"] =
                json!({"reason": reason, "message": format!("{reason} again")});
        });
        stage.pass(5).await;
    }
    assert_eq!(stage.server.count(crate::harness::is_status_write), writes, "told once:\n{}", stage.server.story());
    fails_with(&stage, "ErrImagePull", "ErrImagePull again").await;
    assert_eq!(starts(&stage, "build", 1), 0);
    stage.pass(300).await;
    assert_eq!(stage.all_pods().len(), 0);
    assert_ne!(stage.condition("PodsPending").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_is_told_in_the_schedulers_words_and_given_up_in_time() {
    let (stage, _life) =
        building(build(json!({})), json!({"unschedulable": "0/1 nodes are available: 1 Insufficient cpu."}));
    stage.pass(2).await;
    assert_eq!(stage.condition("PodsPending"), ("True".to_owned(), "Unschedulable".to_owned()));
    fails_with(&stage, "Unschedulable", "Insufficient cpu").await;
    assert_eq!(stage.all_pods().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_deletes_with_grace_ended_as_deleted() {
    let (stage, _life) = building(build(json!({})), json!("done"));
    let pod = running(&stage).await;
    stage.deletes_pod("mallory", &pod, None).await;
    fails_with(&stage, "Deleted", "137").await;
    assert_eq!(starts(&stage, "build", 1), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_deletes_before_it_has_a_node_never_ran() {
    let (stage, _life) = building(build(json!({})), json!({"unschedulable": "none"}));
    stage.pass(2).await;
    stage.deletes_pod("mallory", &only_pod(&stage), None).await;
    fails_with(&stage, "Deleted", "before it ran").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_deletes_by_force_has_an_unknown_outcome() {
    let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
    let (stage, _life) = building(build(retry), json!("done"));
    let pod = running(&stage).await;
    stage.deletes_pod("mallory", &pod, Some(0)).await;
    is_unknown(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_end_and_removal_nobody_watched_has_an_unknown_outcome() {
    for crash in [false, true] {
        let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
        let (stage, life) = building(build(retry), json!("done"));
        let pod = running(&stage).await;
        stage.server.hold_events(OPERATOR);
        if crash {
            life.crash().await;
        }
        stage.pass(120).await;
        assert_eq!(stage.all_pods()[0]["status"]["phase"], "Succeeded", "it ended, and nobody saw it");
        stage.server.remove(&pods(), NAMESPACE, &pod);
        stage.server.expire_resource_versions();
        stage.server.release_events(OPERATOR);
        let _next = crash.then(|| stage.begin(OPERATOR));
        is_unknown(&stage).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_went_unseen_is_not_looked_for_without_end() {
    let waits = json!({"unschedulable": "0/1 nodes are available: 1 Insufficient cpu."});
    let (stage, _life) = building(pod("build", json!({"startDeadline": "2m"})), waits);
    stage.pass(2).await;
    stage.server.hold_events(OPERATOR);
    stage.server.remove(&pods(), NAMESPACE, &only_pod(&stage));
    is_unknown(&stage).await;
    let looks =
        stage.server.count(|entry| entry.resource.plural == "pods" && entry.verb == signoff_tests::sim::Verb::Get);
    assert!(looks <= 2, "{looks}\n{}", stage.server.story());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_kubelet_turned_away_after_it_ran_is_not_run_again() {
    let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
    let (stage, life) = building(build(retry), json!("done"));
    let pod = running(&stage).await;
    life.crash().await;
    // What a kubelet writes that comes back and has no place for it any more: nothing of what ran.
    stage.server.edit(&pods(), NAMESPACE, &pod, |pod| {
        pod["status"] = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected"});
    });
    let _life = stage.begin(OPERATOR);
    is_unknown(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_name_another_has_taken_has_an_unknown_outcome() {
    let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
    let (stage, life) = building(build(retry), json!("done"));
    let pod = running(&stage).await;
    life.crash().await;
    stage.server.remove(&pods(), NAMESPACE, &pod);
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": NAMESPACE}, "spec": {"containers": []}});
    stage.server.insert(other).unwrap();
    let _life = stage.begin(OPERATOR);
    is_unknown(&stage).await;
    assert_eq!(only_pod(&stage), pod, "it is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_last_words_were_lost_on_the_way_is_not_run_again() {
    let (stage, _life) = building(build(json!({"timeout": "5m"})), json!("done"));
    running(&stage).await;
    // The watch goes on as if nothing were missing.
    stage.server.lose_events(OPERATOR, 1);
    assert_eq!(stage.ended(RUN).await["status"]["phase"], "Succeeded", "{}", stage.server.story());
    assert_eq!(starts(&stage, "build", 1), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_node_that_is_lost_while_it_runs_has_an_unknown_outcome() {
    let retry = json!({"retry": {"limit": 3, "backoff": {"base": "1s"}}});
    let (stage, _life) = building(build(retry), json!("done"));
    let pod = running(&stage).await;
    // What the control plane writes when a node is gone: nobody has asked the container.
    stage.server.edit(&pods(), NAMESPACE, &pod, |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}]);
    });
    stage.server.remove(&pods(), NAMESPACE, &pod);
    is_unknown(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_made_again_by_exit_code_as_another_pod() {
    let retry =
        json!({"retry": {"limit": 3, "onExitCodes": [75], "backoff": {"base": "10s", "factor": 1.0, "jitter": 0.0}}});
    let (stage, _life) = building(build(retry), json!({"exitCode": 75}));
    stage.world.answers_attempt("refund/build", 3, Answer::value("third time lucky").after(Duration::from_secs(5)));
    let ended = stage.ended(RUN).await;
    assert_eq!(ended["status"]["outputs"], "third time lucky", "{}", stage.server.story());
    assert_eq!([1, 2, 3, 4].map(|attempt| starts(&stage, "build", attempt)), [1, 1, 1, 0]);
    let times: Vec<_> = stage.world.effects().iter().map(|effect| effect.at).collect();
    for pair in times.windows(2) {
        let apart = pair[1].duration_since(pair[0]).as_secs();
        assert!((70..=72).contains(&apart), "a minute of work and ten seconds of pause: {apart}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_start_asks_people_where_they_are_to_be_asked() {
    let stage = Stage::new();
    let mut spec = chain(json!([pod("build", json!({})), set("note", "{{ steps.build.response }}")]));
    let hitl = gate("x", json!({"allowedVerdicts": ["Retry", "Skip", "Reject", "Abort"]}))["hitl"].take();
    spec["gates"] = json!([{"name": "broken", "type": "errorEscalation", "steps": ["build"], "hitl": hitl}]);
    stage.apply(RUN, &spec);
    let creation = |request: &signoff_tests::sim::Request| request.resource.plural == "pods";
    stage.server.fault(
        signoff_tests::sim::On::writes_of(OPERATOR).only(creation).nth(1),
        signoff_tests::sim::Fault::Crash(signoff_tests::sim::Crash::NotApplied),
    );
    let story = async {
        let approval = stage.people().asked("build/.error").await;
        assert_eq!(record(&stage, "build", 1)["phase"], "Unknown");
        assert_eq!(stage.world.effects().len(), 0);
        stage.people().votes("alice", &approval, verdict("Retry"));
        stage.ended(RUN).await
    };
    let (ended, deaths) = stage.keep_alive(&[OPERATOR], story).await;
    assert_eq!((deaths, &ended["status"]["phase"]), (1, &json!("Succeeded")));
    assert_eq!((starts(&stage, "build", 1), starts(&stage, "build", 2)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_to_be_after_it_was_given_up_is_ended_while_people_are_asked() {
    let stage = Stage::new();
    stage.world.answers("refund/build", Answer::value("done").after(Duration::from_secs(3600)));
    let mut spec = chain(json!([pod("build", json!({}))]));
    let hitl = gate("x", json!({"allowedVerdicts": ["Retry", "Reject"]}))["hitl"].take();
    spec["gates"] = json!([{"name": "broken", "type": "errorEscalation", "steps": ["build"], "hitl": hitl}]);
    stage.apply(RUN, &spec);
    let creation = |request: &signoff_tests::sim::Request| request.resource.plural == "pods";
    // Whoever asked for it is gone, and the request is still on its way.
    let late = signoff_tests::sim::Crash::AppliedAfter(Duration::from_secs(10));
    stage.server.fault(
        signoff_tests::sim::On::writes_of(OPERATOR).only(creation).nth(1),
        signoff_tests::sim::Fault::Crash(late),
    );
    let story = async {
        let approval = stage.people().asked("build/.error").await;
        stage.pass(60).await;
        assert_eq!(stage.all_pods().len(), 0, "its outcome is not known, so it must not go on unseen");
        assert!(starts(&stage, "build", 1) <= 1);
        stage.people().votes("alice", &approval, verdict("Reject"));
        stage.ended(RUN).await
    };
    stage.keep_alive(&[OPERATOR], story).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_ours_is_neither_adopted_nor_deleted() {
    let name = |stage: &Stage| record(stage, "build", 1)["object"].as_str().unwrap_or_default().to_owned();
    // Its name and what it is made from are known before it is: one run shows them, the next finds somebody else's there.
    let (shown, _life) = building(build(json!({})), json!("done"));
    running(&shown).await;
    let digest = record(&shown, "build", 1)["inputDigest"].clone();
    for disguise in ["nothing of it", "no label", "another label", "another owner", "another digest"] {
        let stage = Stage::new();
        stage.apply(RUN, &chain(json!([pod("build", json!({})), set("note", "x")])));
        let uid = stage.workflow(RUN)["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let foreign = signoff_api::names::pod(RUN, &uid, "build", 1);
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": foreign, "namespace": NAMESPACE}, "spec": {"containers": []}});
        if disguise != "nothing of it" {
            let owner = if disguise == "another owner" { "00000000-0000-4000-8000-00000000ffff" } else { &uid };
            let digest = if disguise == "another digest" { json!("sha256:0") } else { digest.clone() };
            object["metadata"]["labels"] = match disguise {
                // Whoever may create Pods may write all of it but the guarded label.
                "no label" => json!({"signoff.dev/workflow-uid": uid}),
                "another label" => json!({"signoff.dev/workflow-uid": uid, "signoff.dev/workflow": "another"}),
                _ => json!({"signoff.dev/workflow-uid": uid, "signoff.dev/workflow": RUN}),
            };
            object["metadata"]["annotations"] =
                json!({"signoff.dev/input-digest": digest, "signoff.dev/path": "build"});
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "name": RUN, "uid": owner, "controller": true}]);
        }
        stage.server.garbage(signoff_tests::sim::Garbage::WhenTold);
        stage.server.insert(object).unwrap();
        let _life = stage.begin(OPERATOR);
        fails_with(&stage, "ForeignPod", "not this step's").await;
        assert_eq!(name(&stage), foreign);
        stage.pass(600).await;
        assert_eq!(stage.all_pods().len(), 1, "{disguise}: it is left alone:\n{}", stage.server.story());
        assert_eq!(stage.server.count(|entry| entry.verb == signoff_tests::sim::Verb::Delete), 0, "{disguise}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_fails_in_the_api_servers_words() {
    let (stage, _life) = building(build(json!({})), json!("done"));
    let creation = |request: &signoff_tests::sim::Request| request.resource.plural == "pods" && request.verb.writes();
    let why = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true";
    stage.server.fault(
        signoff_tests::sim::On::writes_of(OPERATOR).only(creation),
        signoff_tests::sim::Fault::Refuse(Refusal::new(403, "Forbidden", why)),
    );
    fails_with(&stage, "Refused", "violates PodSecurity").await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_while_a_container_runs_finds_it_again_and_waits_no_longer_than_it_may() {
    let (stage, life) = building(build(json!({"timeout": "30s"})), json!("done"));
    stage.kubelet.when(Turn::Started, 1, |server| server.kill(OPERATOR));
    stage.pass(10).await;
    life.crash().await;
    let began = stage.world.effects()[0].at;
    let _life = stage.begin(OPERATOR);
    fails_with(&stage, "Timeout", "30s").await;
    let took = stage.server.clock().now().duration_since(began).as_secs();
    assert!((29..=33).contains(&took), "its time counts from its creation: {took}");
}
