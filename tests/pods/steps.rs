//! Steps as Pods on a real kubelet: their inputs, their ends, and people's decisions about them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, EvictParams, ListParams, PostParams};
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Workflow};

use crate::harness::shared;
use crate::witness::{Pods, condition, error_class, record, step, with};

const ALICE: &str = "alice@example.com";

fn gate(verdicts: &[&str]) -> Value {
    json!({"prompt": "Go on?", "approvers": [{"kind": "User", "name": ALICE}], "allowedVerdicts": verdicts})
}

fn chain(steps: Value) -> Value {
    json!({"steps": steps})
}

fn with_gate(type_: &str, verdicts: &[&str], steps: Value) -> Value {
    with(chain(steps), json!({"gates": [{"name": "human", "type": type_, "steps": ["work"], "hitl": gate(verdicts)}]}))
}

#[tokio::test]
async fn a_container_between_two_gates_runs_once() {
    let pods = Pods::open("between").await;
    let script = "echo reading the plan; cat /in/plan.txt >/dev/termination-log; echo done";
    let work =
        step("work", script, json!({"files": [{"path": "/in/plan.txt", "content": "plan of {{ inputs.who }}"}]}));
    let steps = json!([
        {"name": "before", "hitl": gate(&["Approve", "Reject"])}, pods.with_witness(work),
        {"name": "after", "hitl": gate(&["Approve", "Reject"])}, {"name": "end", "set": {"value": "{{ steps.work.response }}"}},
    ]);
    let spec = with(chain(steps), json!({"inputs": [{"name": "who", "value": "ACME $(HOME) $$"}], "podGC": "Never"}));
    pods.request("run", spec).await;
    let before = pods.asked("run", "before").await;
    assert!(pods.list("run").await.is_empty(), "nothing runs before people said so");
    pods.approve(&before).await;
    let after = pods.asked("run", "after").await;
    let request = &after.spec.request;
    assert_eq!(request.reviews.as_ref().unwrap().response, "plan of ACME $(HOME) $$");
    let context = request.context.clone().unwrap();
    assert!(context.contains("exitCode: 0") && context.contains("reading the plan\ndone"), "{context}");
    let [pod] = &pods.list("run").await[..] else { panic!("one Pod") };
    assert!(pod.name_any().starts_with("signoff-step-run-"), "{}", pod.name_any());
    pods.approve(&after).await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.as_ref().unwrap().outputs.as_deref(), Some("plan of ACME $(HOME) $$"));
    assert_eq!(record(&run, "work").object.as_deref(), Some(pod.name_any().as_str()));
    assert_eq!(pods.starts(), 1);
    let described = pods.kubectl(&["describe", "workflow", "run"]).await;
    assert!(described.contains(&pod.name_any()), "kubectl describe names each Pod:\n{described}");
}

#[tokio::test]
async fn a_container_gets_only_its_declared_inputs() {
    let pods = Pods::open("given").await;
    let object = |kind: &str, data: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "given"}, "stringData": data, "data": data});
    let mut secret = object("Secret", json!({"key": "s3cret"}));
    secret.as_object_mut().unwrap().remove("data");
    let mut config = object("ConfigMap", json!({"key": "config"}));
    config.as_object_mut().unwrap().remove("stringData");
    pods.see::<Secret>().create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    pods.see::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(config).unwrap()).await.unwrap();
    let script = r#"
        set -e
        test "$SECRET" = s3cret; test "$CONFIG" = config; test "$(cat /secret/key)" = s3cret; test "$(cat /config/key)" = config
        test "$EVIL" = '$(SECRET); $(touch /tmp/evil) `id`' && test ! -e /tmp/evil
        test "$(id -u)" = 65534
        test ! -e /var/run/secrets/kubernetes.io/serviceaccount/token
        grep -q 'NoNewPrivs:.1' /proc/self/status; grep -q 'CapEff:.0000000000000000' /proc/self/status
        echo scratch >/scratch/file
        test "$TEAM" = pay
        printf good >/result
    "#;
    let more = json!({
        "env": [
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "given", "key": "key"}}},
            {"name": "CONFIG", "valueFrom": {"configMapKeyRef": {"name": "given", "key": "key"}}},
            {"name": "EVIL", "value": "{{ inputs.evil }}"},
            {"name": "TEAM", "value": "pay"},
        ],
        "volumes": [
            {"name": "secret", "mountPath": "/secret", "secret": {"secretName": "given"}},
            {"name": "config", "mountPath": "/config", "configMap": {"name": "given"}},
            {"name": "scratch", "mountPath": "/scratch", "emptyDir": {}},
        ],
        "terminationMessagePath": "/result",
        "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "10m"}},
        "podTemplate": {"metadata": {"labels": {"team": "pay"}}, "spec": {"terminationGracePeriodSeconds": 1}},
    });
    let spec = with(
        chain(json!([step("work", script, more)])),
        json!({
            "inputs": [{"name": "evil", "value": "$(SECRET); $(touch /tmp/evil) `id`"}], "podGC": "Never",
        }),
    );
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    pods.cluster.kubectl(["label", "namespace", &pods.namespace.name, restricted]).run().await.unwrap().ok().unwrap();
    pods.request("run", spec).await;
    let privileged = json!({"securityContext": {"runAsUser": 65534, "privileged": true}});
    pods.request("refused", chain(json!([step("work", "true", privileged)]))).await;
    let refused = pods.ended("refused").await;
    let refused = record(&refused, "work").error.as_ref().unwrap();
    assert!(refused.class == "Refused" && refused.message.contains("PodSecurity"), "{refused:?}");
    let run = pods.ended("run").await;
    let work = record(&run, "work");
    assert_eq!(run.status.as_ref().unwrap().phase, WorkflowPhase::Succeeded, "{:?} {:?}", work.error, work.log);
    assert_eq!(run.status.unwrap().outputs.as_deref(), Some("good"));
    let labelled =
        pods.see::<Pod>().list(&ListParams::default().labels("team=pay,signoff.dev/step=work")).await.unwrap();
    assert_eq!(labelled.items.len(), 1);
}

#[tokio::test]
async fn an_exit_code_fails_the_step_or_is_retried() {
    let pods = Pods::open("codes").await;
    let retry = json!({"retry": {"limit": 2, "backoff": {"base": "1s", "jitter": 0}, "onExitCodes": [75]}});
    pods.request("ill", chain(json!([with(step("work", "echo the trouble; exit 3", json!({})), retry.clone())]))).await;
    pods.request("again", chain(json!([with(pods.with_witness(step("work", "exit 75", json!({}))), retry)]))).await;
    let ill = pods.ended("ill").await;
    assert_eq!(ill.status.as_ref().unwrap().phase, WorkflowPhase::Failed);
    let work = record(&ill, "work");
    assert_eq!((work.attempt, work.facts["exitCode"].as_str(), error_class(work)), (1, "3", "ExitCode"));
    assert_eq!(work.log.as_ref().unwrap().tail, "the trouble\n");
    let again = pods.ended("again").await;
    let attempts: Vec<_> = again.status.as_ref().unwrap().steps.iter().collect();
    assert_eq!(attempts.len(), 3);
    let names: BTreeSet<_> = attempts.iter().filter_map(|record| record.object.clone()).collect();
    assert_eq!((names.len(), pods.starts()), (3, 3), "each attempt is a Pod of its own, started once");
    assert!(attempts[1].at.since(attempts[0].finished_at.unwrap()).as_millis() >= 900, "a pause before the second");
}

#[tokio::test]
async fn a_person_can_give_a_container_more_memory() {
    let pods = Pods::open("memory").await;
    // The container runtime learns of the kernel's kill and of the exit from two sources, so the shell delays the exit
    // until the kill is known.
    let script = "printf sorted >/dev/termination-log; seq 1 1000000 >/tmp/numbers; sort -o /tmp/sorted /tmp/numbers || { code=$?; sleep 1; exit $code; }";
    let greedy = step("work", script, json!({"resources": {"limits": {"memory": "12Mi"}}}));
    pods.request("run", with_gate("errorEscalation", &["Retry", "Modify", "Skip", "Reject"], json!([greedy]))).await;
    let asked = pods.asked("run", "work/.error").await;
    let request = &asked.spec.request;
    assert!(request.reviews.as_ref().unwrap().response.contains("memory"), "{:?}", request.reviews);
    assert_eq!(error_class(record(&pods.run("run").await, "work")), "OOMKilled");
    pods.decides("alice", &asked, json!({"verdict": "Modify", "parameters": {"memory": "512Mi"}})).await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.unwrap().outputs.as_deref(), Some("sorted"));
}

#[tokio::test]
async fn a_container_is_stopped_by_the_timeouts_of_step_and_kubelet() {
    let pods = Pods::open("time").await;
    let short = json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}}});
    // It handles the signal to end, which its exit code shows.
    let slow = |more| step("work", "trap 'exit 0' TERM; echo half of it; sleep 600 & wait", with(short.clone(), more));
    pods.request("timeout", chain(json!([with(slow(json!({})), json!({"timeout": "8s"}))]))).await;
    pods.request("deadline", chain(json!([slow(json!({"activeDeadline": "8s"}))]))).await;
    for (run, class) in [("timeout", "Timeout"), ("deadline", "DeadlineExceeded")] {
        let ended = pods.ended(run).await;
        let work = record(&ended, "work");
        assert_eq!((error_class(work), work.facts["exitCode"].as_str()), (class, "0"), "{work:?}");
        assert_eq!(work.log.as_ref().unwrap().tail, "half of it\n");
    }
    pods.wait_until_none_runs("timeout").await;
}

#[tokio::test]
async fn a_step_with_a_missing_image_is_reported_and_can_be_corrected() {
    let pods = Pods::open("image").await;
    let work = step(
        "work",
        "printf mended >/dev/termination-log",
        json!({"image": "example.com/nothing:1", "startDeadline": "8s"}),
    );
    pods.request("run", with_gate("errorEscalation", &["Modify", "Reject"], json!([work]))).await;
    let told = pods.until::<Workflow>("run", "says what it waits for", |run| {
        condition(run, "PodsPending")
            .is_some_and(|(status, _, message)| status == "True" && message.contains("example.com/nothing:1"))
    });
    let told = told.await;
    let (_, reason, _) = condition(Some(&told), "PodsPending").unwrap();
    assert!(["ErrImagePull", "ImagePullBackOff"].contains(&reason.as_str()), "{reason}");
    let asked = pods.asked("run", "work/.error").await;
    pods.decides("alice", &asked, json!({"verdict": "Modify", "parameters": {"image": "busybox:1.36"}})).await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.as_ref().unwrap().outputs.as_deref(), Some("mended"));
    assert_eq!(condition(Some(&run), "PodsPending"), None);
    assert!(["ErrImagePull", "ImagePullBackOff"].contains(&error_class(&run.status.unwrap().steps[0])));
}

#[tokio::test]
async fn a_pod_that_fits_on_no_node_is_reported_and_begins_later() {
    let pods = Pods::open("nowhere").await;
    let fast = json!({"nodeSelector": {"disk": "fast"}});
    pods.request("run", chain(json!([step("work", "printf there >/dev/termination-log", fast.clone())]))).await;
    pods.request("never", chain(json!([step("work", "true", with(fast, json!({"startDeadline": "8s"})))]))).await;
    let told = pods.until::<Workflow>("run", "says what it waits for", |run| {
        condition(run, "PodsPending").is_some_and(|(status, reason, _)| status == "True" && reason == "Unschedulable")
    });
    let (_, _, message) = condition(Some(&told.await), "PodsPending").unwrap();
    assert!(message.contains("0/1 nodes are available") && message.contains("selector"), "{message}");
    let never = pods.ended("never").await;
    assert_eq!(error_class(record(&never, "work")), "Unschedulable");
    pods.wait_until_no_pod("never").await;
    pods.cluster.kubectl(["label", "node", "--all", "disk=fast"]).run().await.unwrap().ok().unwrap();
    assert_eq!(pods.ended("run").await.status.unwrap().outputs.as_deref(), Some("there"));
}

#[tokio::test]
async fn a_deleted_pod_differs_from_one_with_an_unknown_end() {
    let pods = Pods::open("away").await;
    let short = json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}}});
    for name in ["deleted", "evicted", "forced"] {
        pods.request(name, chain(json!([pods.with_witness(step("work", "sleep 600", short.clone()))]))).await;
    }
    let api = pods.see::<Pod>();
    let name = pods.wait_until_running("deleted").await.name_any();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let name = pods.wait_until_running("evicted").await.name_any();
    api.evict(&name, &EvictParams::default()).await.unwrap();
    let name = pods.wait_until_running("forced").await.name_any();
    api.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
    for (run, class) in [("deleted", "Deleted"), ("evicted", "Evicted"), ("forced", "OutcomeUnknown")] {
        let ended = pods.ended(run).await;
        assert_eq!(error_class(record(&ended, "work")), class, "{run}: {:?}", record(&ended, "work"));
    }
    assert_eq!(pods.starts(), 3, "nothing ran twice");
}

#[tokio::test]
async fn a_run_that_is_cancelled_leaves_no_pod_and_a_late_approval_starts_none() {
    let pods = Pods::open("cancel").await;
    let slow = pods.with_witness(step(
        "slow",
        "sleep 600",
        json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}}}),
    ));
    let late = pods.with_witness(step("late", "true", json!({})));
    let ask = json!({"name": "ask", "branch": "two", "hitl": gate(&["Approve", "Reject"])});
    let steps = json!([with(slow, json!({"branch": "one"})), ask, with(late, json!({"branch": "two"}))]);
    let spec = json!({"pattern": {"parallel": {}}, "steps": steps});
    pods.request("run", spec).await;
    let asked = pods.asked("run", "two/ask").await;
    pods.wait_until_running("run").await;
    pods.patch("run", json!({"spec": {"cancel": true}})).await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.unwrap().phase, WorkflowPhase::Cancelled);
    let refused = pods.try_decide("alice", &asked, json!({"verdict": "Approve"})).await;
    let name = asked.name_any();
    let late = pods.until::<Approval>(&name, "ends", |approval| {
        approval.and_then(|a| a.status.as_ref()).is_some_and(|status| status.phase.is_end())
    });
    assert_eq!(late.await.status.unwrap().phase.name(), "Cancelled", "{refused:?}");
    pods.wait_until_no_pod("run").await;
    assert_eq!(pods.starts(), 1);
}

#[tokio::test]
async fn pods_are_deleted_as_declared_and_with_their_workflow() {
    let pods = Pods::open("clearing").await;
    for (name, keep) in [("usual", None), ("each", Some("OnCompletion")), ("none", Some("Never"))] {
        let steps = json!([step("good", "true", json!({})), with(step("bad", "false", json!({})), json!({"onError": "continue"})), {"name": "end", "set": {"value": "x"}}]);
        let mut spec = chain(steps);
        if let Some(keep) = keep {
            spec["podGC"] = json!(keep);
        }
        pods.request(name, spec).await;
    }
    let steps = json!([step("good", "true", json!({})), {"name": "ask", "hitl": gate(&["Approve", "Reject"])}]);
    pods.request("rejected", with(chain(steps), json!({"podGC": "Never"}))).await;
    for (run, left) in [("usual", vec!["bad"]), ("each", vec![]), ("none", vec!["bad", "good"])] {
        pods.ended(run).await;
        pods.wait_for_remaining(run, &left).await;
    }
    let asked = pods.asked("rejected", "ask").await;
    pods.decides("alice", &asked, json!({"verdict": "Reject"})).await;
    pods.ended("rejected").await;
    pods.wait_until_no_pod("rejected").await;
    pods.see::<Workflow>().delete("none", &DeleteParams::default()).await.unwrap();
    pods.wait_until_no_pod("none").await;
}

#[tokio::test]
async fn a_namespace_with_a_running_pod_can_be_deleted() {
    let pods = Pods::open("going").await;
    pods.request(
        "run",
        chain(json!([step(
            "work",
            "sleep 600",
            json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}}})
        )])),
    )
    .await;
    pods.wait_until_running("run").await;
    pods.harness.namespace.delete().await.unwrap();
    pods.wait_until_namespace_is_gone().await;
}

#[tokio::test]
async fn an_approval_is_for_one_image_command_and_environment() {
    let pods = Pods::open("exactly").await;
    let image = shared().await.busybox().by_digest();
    let work = pods.with_witness(step(
        "work",
        "printf \"$WHO\" >/dev/termination-log",
        json!({"image": image, "env": [{"name": "WHO", "value": "{{ inputs.who }}"}]}),
    ));
    let spec = with(
        with_gate("stepStart", &["Approve", "Reject"], json!([work])),
        json!({"inputs": [{"name": "who", "value": "ACME"}], "podGC": "Never"}),
    );
    pods.request("run", spec).await;
    let asked = pods.asked("run", "work/.start").await;
    let shown = asked.spec.request.reviews.clone().unwrap().response;
    for part in [image.as_str(), "ACME", "printf"] {
        assert!(shown.contains(part), "{part} is not in what people see:\n{shown}");
    }
    assert_eq!(pods.starts(), 0);
    pods.approve(&asked).await;
    assert_eq!(pods.ended("run").await.status.unwrap().outputs.as_deref(), Some("ACME"));
    let [pod] = &pods.list("run").await[..] else { panic!("one Pod") };
    assert_eq!(pod.spec.as_ref().unwrap().containers[0].image.as_deref(), Some(image.as_str()));
}

#[tokio::test]
async fn a_log_can_be_the_bounded_response_of_a_step() {
    let pods = Pods::open("log").await;
    let log = json!({"outputFrom": "log"});
    pods.request("short", chain(json!([step("work", "seq 1 3", with(log.clone(), json!({"tailLines": 2})))]))).await;
    pods.request("long", chain(json!([pods.hold_open(step("work", "seq 1 20000", log.clone()))]))).await;
    pods.request("endless", chain(json!([step("work", "seq 1 200000", log)]))).await;
    assert_eq!(pods.ended("short").await.status.unwrap().outputs.as_deref(), Some("2\n3\n"));
    pods.wait_for_line("long", "20000").await;
    pods.let_go();
    let long = pods.ended("long").await;
    let work = record(&long, "work");
    assert!(work.response_ref.is_some(), "what is long is kept by reference");
    let tail = &work.log.as_ref().unwrap().tail;
    assert!(tail.ends_with("19999\n20000\n"), "{tail}");
    let kept = work.log.as_ref().unwrap().ref_.clone().unwrap();
    pods.wait_until_no_pod("long").await;
    let text = pods.value(&long, kept.digest.as_str()).await;
    assert!(text.starts_with("1\n2\n") && text.ends_with("\n20000\n"));
    assert_eq!(error_class(record(&pods.ended("endless").await, "work")), "TooLarge");
}

#[tokio::test]
async fn a_requester_without_rights_on_pods_gets_no_pod() {
    let pods = Pods::without_rights("rights").await;
    let refused = pods.try_request("run", chain(json!([step("work", "true", json!({}))]))).await.unwrap_err();
    assert!(refused.to_string().contains("lacks the RBAC verb create on pods"), "{refused}");
    let work = with(step("work", "true", json!({})), json!({"branch": "b"}));
    let steps = json!([{"name": "x", "branch": "a", "set": {"value": "x"}}, work]);
    let within = json!({"pattern": {"parallel": {}}, "steps": steps});
    assert!(
        pods.try_request("within", within)
            .await
            .unwrap_err()
            .to_string()
            .contains("lacks the RBAC verb create on pods")
    );
    pods.request("fine", chain(json!([{"name": "x", "set": {"value": "x"}}]))).await;
}
