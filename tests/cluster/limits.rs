//! Limits on a real API server: slots for calls, the size of a Workflow, and a quota that refuses the operator's
//! objects.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use signoff_api::Workflow;
use signoff_tests::control_plane::{Cluster, Namespace, OperatorOptions, OperatorProcess};
use tokio::sync::watch;

use crate::policies::harness::workflow;

const TIMEOUT: Duration = Duration::from_secs(120);

/// A service that answers `/slow` when the test releases it, and every other path at once.
struct Service {
    port: u16,
    in_flight: watch::Receiver<usize>,
    released: watch::Sender<bool>,
}

#[derive(Clone)]
struct Shared {
    in_flight: Arc<watch::Sender<usize>>,
    released: watch::Receiver<bool>,
}

/// Answers once the test releases the service.
async fn slow(State(mut shared): State<Shared>) -> &'static str {
    shared.in_flight.send_modify(|count| *count += 1);
    let _ = shared.released.wait_for(|released| *released).await;
    shared.in_flight.send_modify(|count| *count -= 1);
    "late"
}

impl Service {
    async fn start() -> Self {
        let (count, in_flight) = watch::channel(0);
        let (released, is_released) = watch::channel(false);
        let shared = Shared { in_flight: Arc::new(count), released: is_released };
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().route("/slow", get(slow)).fallback(|| async { "at once" }).with_state(shared);
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { port, in_flight, released }
    }

    fn url(&self, path: &str) -> String {
        // The API server is at 127.0.0.1, which runs must not call.
        format!("http://127.0.0.6:{}/{path}", self.port)
    }
}

async fn workflows_as_dana(cluster: &Cluster, namespace: &Namespace) -> Api<Workflow> {
    Api::namespaced(cluster.token_client("dana").await.unwrap(), &namespace.name)
}

async fn apply(api: &Api<Workflow>, name: &str, spec: Value) {
    let object = serde_json::from_value(workflow(name, spec)).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn wait_until(api: &Api<Workflow>, name: &str, what: &str, holds: impl Fn(&Workflow) -> bool) -> Workflow {
    let waiting = await_condition(api.clone(), name, |found: Option<&Workflow>| found.is_some_and(&holds));
    match tokio::time::timeout(TIMEOUT, waiting).await {
        Ok(found) => found.unwrap().unwrap(),
        Err(_) => panic!("{name} never {what}: {:#?}", api.get_opt(name).await),
    }
}

fn condition(workflow: &Workflow, kind: &str) -> Option<(String, String, String)> {
    let found = workflow.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

fn phase(workflow: &Workflow) -> &'static str {
    workflow.status.as_ref().map_or("", |status| status.phase.name())
}

async fn wait_for_end(api: &Api<Workflow>, name: &str) -> Workflow {
    wait_until(api, name, "ends", |w| w.status.as_ref().is_some_and(|status| status.phase.is_end())).await
}

fn step_with_get(name: &str, url: &str, timeout: &str) -> Value {
    json!({"name": name, "timeout": timeout, "http": {"method": "GET", "url": url}})
}

#[tokio::test]
async fn no_namespace_takes_all_call_slots_or_all_memory() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let service = Service::start().await;
    let arguments = ["--no-lease", "--allow-address", "127.0.0.0/8", "--max-calls", "8", "--max-call-timeout", "10m"];
    let arguments = arguments.map(str::to_owned).to_vec();
    let operator = OperatorProcess::start(&cluster, OperatorOptions { arguments, ..OperatorOptions::default() });
    let operator = operator.await.unwrap();
    let (crowd, other) = (cluster.namespace("crowd").await.unwrap(), cluster.namespace("other").await.unwrap());
    let (crowd, beside) =
        (workflows_as_dana(&cluster, &crowd).await, (workflows_as_dana(&cluster, &other).await, other));
    let (alone, other) = beside;

    // One Workflow with more calls at once than the operator makes.
    let of_branch = |n| {
        let mut step = step_with_get("get", &service.url("slow"), "10m");
        step["branch"] = json!(format!("b{n}"));
        step
    };
    let steps: Vec<Value> = (0..12).map(of_branch).collect();
    apply(&crowd, "big", json!({"pattern": {"parallel": {}}, "steps": steps})).await;
    let waits =
        wait_until(&crowd, "big", "waits", |w| condition(w, "CallsPending").is_some_and(|c| c.0 == "True")).await;
    let (_, reason, message) = condition(&waits, "CallsPending").unwrap();
    assert_eq!(reason, "Queued");
    assert!(message.contains("its Workflow has 2 calls in flight"), "{message}");
    let mut in_flight = service.in_flight.clone();
    in_flight.wait_for(|count| *count == 2).await.unwrap();
    // The honest twin gets a slot at once.
    apply(&alone, "one", json!({"steps": [step_with_get("get", &service.url("fast"), "10m")]})).await;
    assert_eq!(phase(&wait_for_end(&alone, "one").await), "Succeeded");
    assert_eq!(*service.in_flight.borrow(), 2, "the crowd still waits");
    service.released.send_replace(true);
    let done = wait_for_end(&crowd, "big").await;
    assert_eq!((phase(&done), condition(&done, "CallsPending")), ("Succeeded", None));

    // The timeout of this call is longer than a call may hold its slot.
    apply(&alone, "long", json!({"steps": [step_with_get("get", &service.url("fast"), "11m")]})).await;
    let (status, reason, message) = condition(&wait_for_end(&alone, "long").await, "Accepted").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Invalid"));
    assert!(message.contains("steps[0].timeout: 11m is longer") && message.contains("--max-call-timeout"), "{message}");

    // Workflows that are too large, and one of the largest size.
    let gate = json!({"name": "review", "hitl": {"prompt": "Go on?", "approvers": [{"kind": "User", "name": "alice@example.com"}]}});
    let of = |bytes: usize| {
        let step = |n| json!({"name": format!("s{n}"), "set": {"value": "x".repeat(10_000)}});
        let steps: Vec<Value> = [gate.clone()].into_iter().chain((0..bytes / 10_000).map(step)).collect();
        json!({"steps": steps})
    };
    apply(&alone, "above", of(600_000)).await;
    let (status, reason, message) = condition(&wait_for_end(&alone, "above").await, "Accepted").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "TooLarge"));
    assert!(message.contains("the maximum is 524288") && message.contains("--max-workflow-bytes"), "{message}");
    apply(&alone, "below", of(500_000)).await;
    wait_until(&alone, "below", "waits", |w| phase(w) == "Waiting").await;

    // A quota that forbids Approvals.
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "people"},
        "spec": {"hard": {"count/approvals.signoff.dev": "0"}},
    });
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.admin().await.unwrap(), &other.name);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    // Once the controller of quotas has written the status, the admission of the API server applies the quota too.
    let is_applied = |quota: Option<&ResourceQuota>| {
        quota.and_then(|quota| quota.status.as_ref()?.hard.as_ref()).is_some_and(|hard| !hard.is_empty())
    };
    tokio::time::timeout(TIMEOUT, await_condition(quotas.clone(), "people", is_applied)).await.unwrap().unwrap();
    apply(&alone, "asks", json!({"steps": [gate]})).await;
    apply(&crowd, "asks", json!({"steps": [gate]})).await;
    let stalled =
        wait_until(&alone, "asks", "stalls", |w| condition(w, "Stalled").is_some_and(|c| c.0 == "True")).await;
    let (_, reason, message) = condition(&stalled, "Stalled").unwrap();
    assert_eq!(reason, "Forbidden");
    assert!(message.starts_with("creating Approval ") && message.contains("quota: people"), "{message}");
    let twin = crowd.get("asks").await.unwrap();
    assert_eq!((phase(&twin), condition(&twin, "Stalled")), ("Waiting", None));
    quotas.delete("people", &kube::api::DeleteParams::default()).await.unwrap();
    wait_until(&alone, "asks", "goes on", |w| phase(w) == "Waiting" && condition(w, "Stalled").is_none()).await;
    operator.stop().await.unwrap();
}
