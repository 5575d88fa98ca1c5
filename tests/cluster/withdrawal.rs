//! A namespace that is being deleted, on a real control plane: no timeout ends a gate in it, and no call begins.

use std::time::Duration;

use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use signoff_api::Workflow;
use signoff_tests::control_plane::Cluster;
use signoff_tests::loopback::{Loopback, text};
use tokio::time::{sleep, timeout};

use crate::policies::harness::workflow;
use crate::runs::Runs;

/// The deadline of every wait.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn create_run(runs: &Runs, steps: Value) {
    let dana: Api<Workflow> = runs.api_as("dana").await;
    let object = workflow("refund", json!({"steps": steps}));
    dana.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

fn count_sent(server: &Loopback, path: &str) -> usize {
    server.received().iter().filter(|request| request.what == format!("POST /{path}")).count()
}

async fn wait_until_sent(server: &Loopback, path: &str, count: usize) {
    let arrives = async {
        while count_sent(server, path) < count {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, arrives).await.unwrap_or_else(|_| panic!("{path} was sent {} times", count_sent(server, path)));
}

#[tokio::test]
async fn no_call_is_made_in_a_namespace_deleted_before_the_deadline() {
    let server = Loopback::start(|_, _| text(200, "paid")).await.unwrap();
    let cluster = Cluster::operated().unwrap();
    let (deleted, twin) = tokio::join!(Runs::on(cluster.clone(), "deleted"), Runs::on(cluster, "kept"));
    let steps = |path: &str| {
        json!([
            {"name": "review", "hitl": {"prompt": "Go on?", "timeout": {"after": "12s", "action": "Approve"},
                "approvers": [{"kind": "User", "name": "alice@example.com"}]}},
            {"name": "pay", "http": {"method": "POST", "url": format!("{}/{path}", server.url()), "body": "42 EUR"}},
        ])
    };
    tokio::join!(create_run(&deleted, steps("deleted")), create_run(&twin, steps("kept")));
    let (asked, _) = tokio::join!(deleted.wait_for_gate("refund"), twin.wait_for_gate("refund"));
    let deadline = asked.spec.request.deadline.timestamp();
    let left = deadline.duration_since(jiff::Timestamp::now()) - jiff::SignedDuration::from_secs(1);
    sleep(Duration::try_from(left).unwrap_or_default()).await;
    deleted.namespace.delete().await.unwrap();
    // The honest twin has the same deadline.
    wait_until_sent(&server, "kept", 1).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(count_sent(&server, "deleted"), 0);
}

#[tokio::test]
async fn a_retry_is_not_made_after_its_namespace_was_deleted() {
    // The first attempt fails, and the second attempt follows five seconds later.
    let server = Loopback::start(|_, _| text(429, "try again")).await.unwrap();
    let cluster = Cluster::operated().unwrap();
    let (deleted, twin) = tokio::join!(Runs::on(cluster.clone(), "deleted"), Runs::on(cluster, "kept"));
    let steps = |path: &str| {
        json!([{"name": "pay", "http": {"method": "POST", "url": format!("{}/{path}", server.url()), "body": "42 EUR"},
            "retry": {"limit": 1, "backoff": {"base": "5s", "factor": 1, "jitter": 0}}}])
    };
    tokio::join!(create_run(&deleted, steps("deleted")), create_run(&twin, steps("kept")));
    tokio::join!(wait_until_sent(&server, "deleted", 1), wait_until_sent(&server, "kept", 1));
    deleted.namespace.delete().await.unwrap();
    wait_until_sent(&server, "kept", 2).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(count_sent(&server, "deleted"), 1);
}
