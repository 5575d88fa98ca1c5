//! Pods whose operator dies, and the limit of Pods at once. The nodes are the tests' own, because these operators are
//! killed or have other limits than the suite's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{WatchEvent, WatchParams};
use serde_json::json;
use signoff_api::Workflow;
use signoff_api::journal::StepPhase;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::control_plane::Signal;

use crate::harness::{operator, own, phase};
use crate::witness::{Pods, condition, error_class, record, step};

/// The moment at which an operator dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BegunByRecord,
    PodMade,
    ContainerRuns,
    ContainerEnded,
    EndRecorded,
}

const PLACES: [Place; 5] =
    [Place::BegunByRecord, Place::PodMade, Place::ContainerRuns, Place::ContainerEnded, Place::EndRecorded];

#[tokio::test]
async fn an_operator_killed_at_five_places_never_makes_a_container_run_twice() {
    let node = own().await;
    node.cluster().install(&[]).await.unwrap();
    let mut alive = operator(node.cluster(), &[]).await;
    for place in PLACES {
        signoff_tests::tried(1, "crash points on a real node");
        let pods = Pods::on(node.cluster(), "killed").await;
        let work = pods.with_witness(step("work", "sleep 2; printf done >/dev/termination-log", json!({})));
        let end = json!({"name": "end", "set": {"value": "{{ steps.work.response }}"}});
        pods.request("run", json!({"steps": [work, end]})).await;
        let reaches = async |wanted: StepPhase| {
            let begun = |run: Option<&Workflow>| {
                let steps = run.and_then(|run| run.status.as_ref()).map(|status| &status.steps);
                steps.is_some_and(|steps| steps.iter().any(|record| record.path == "work" && record.phase == wanted))
            };
            pods.until::<Workflow>("run", "gets that far", begun).await
        };
        let pod = async || record(&reaches(StepPhase::Started).await, "work").object.clone().unwrap();
        match place {
            Place::BegunByRecord => drop(pod().await),
            Place::PodMade => drop(pods.until::<Pod>(&pod().await, "is made", |pod| pod.is_some()).await),
            Place::ContainerRuns => drop(pods.wait_until_running("run").await),
            Place::ContainerEnded => {
                let name = pods.wait_until_running("run").await.name_any();
                alive.signal(Signal::Stop).unwrap();
                let ended = |pod: Option<&Pod>| matches!(phase(pod), Some("Succeeded"));
                pods.until::<Pod>(&name, "ends", ended).await;
            }
            Place::EndRecorded => drop(reaches(StepPhase::Succeeded).await),
        }
        alive.kill();
        alive = operator(node.cluster(), &[]).await;
        let run = pods.ended("run").await;
        let status = run.status.as_ref().unwrap();
        if place == Place::BegunByRecord && status.phase == WorkflowPhase::Failed {
            // It died before it had created the Pod, or before it knew: the outcome is unknown, so nothing is repeated.
            assert_eq!(error_class(record(&run, "work")), "OutcomeUnknown");
            assert!(pods.starts() <= 1);
            continue;
        }
        assert_eq!(status.outputs.as_deref(), Some("done"), "{place:?}: {:?}", record(&run, "work").error);
        assert_eq!(pods.starts(), 1, "{place:?}");
        pods.wait_until_no_pod("run").await;
    }
}

#[tokio::test]
async fn fifty_pods_respect_a_limit_of_five_and_show_their_positions() {
    let node = own().await;
    node.cluster().install(&[]).await.unwrap();
    let pods = Pods::on(node.cluster(), "many").await;
    let elsewhere = Pods::on(node.cluster(), "elsewhere").await;
    let here = pods.namespace.name.clone();
    // In this namespace the operator can create Pods, and in no other.
    node.cluster().install(&[("pods.namespaces[0]", &here)]).await.unwrap();
    let limits = ["--max-pods-per-namespace", "5", "--max-pods-per-workflow", "20", "--pod-namespace", &here];
    let _operator = operator(node.cluster(), &limits).await;

    let task = |number| pods.with_witness(step(&format!("t{number}"), "true", json!({})));
    let tasks: Vec<_> = (0..50).map(task).collect();
    pods.request("run", json!({"pattern": {"dag": {}}, "steps": tasks})).await;
    let chain = json!({"steps": [step("work", "true", json!({}))]});
    elsewhere.request("run", chain).await;
    let waits = |run: Option<&Workflow>| {
        condition(run, "PodsPending").is_some_and(|(status, reason, message)| {
            status == "True" && reason == "Queued" && message.contains("position ")
        })
    };
    pods.until::<Workflow>("run", "says that it waits", waits).await;

    let api = pods.see::<Pod>();
    let ended = pods.ended("run");
    let seen = AtomicUsize::new(0);
    let counting = async {
        let (mut live, mut most) = (BTreeMap::new(), 0);
        let mut events = api.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    live.insert(pod.name_any(), !matches!(phase(Some(&pod)), Some("Succeeded" | "Failed")));
                }
                WatchEvent::Deleted(pod) => drop(live.remove(&pod.name_any())),
                _ => {}
            }
            most = most.max(live.values().filter(|live| **live).count());
            seen.store(most, Ordering::Relaxed);
        }
    };
    let run = tokio::select! { run = ended => run, () = counting => panic!("the watch of Pods ended") };
    assert_eq!(run.status.as_ref().unwrap().phase, WorkflowPhase::Succeeded);
    assert_eq!(pods.starts(), 50);
    let most = seen.load(Ordering::Relaxed);
    assert!((2..=5).contains(&most), "{most} at once");
    assert_eq!(condition(Some(&run), "PodsPending"), None);

    // In a namespace that an administrator has not listed, no Pod is created, and the run says why.
    let told =
        |run: Option<&Workflow>| condition(run, "PodsPending").is_some_and(|(_, reason, _)| reason == "PodsNotAllowed");
    elsewhere.until::<Workflow>("run", "says why it waits", told).await;
    assert!(elsewhere.list("run").await.is_empty());
}
