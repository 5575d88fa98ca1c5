//! An APIService that sends requests for our objects to another server: no answer of that server counts, and the
//! operator drops its cache.

use kube::api::{DynamicObject, PostParams};
use serde_json::json;
use signoff_api::workflow::WorkflowPhase;

use super::harness::Harness;

#[tokio::test]
async fn decisions_are_not_honoured_while_another_server_serves_the_objects() {
    let harness = Harness::open().await;
    let operator = harness.start_operator(&[]).await;
    harness.request("run", 1).await;
    let approval = harness.wait_for_gate("run", "review").await;
    let services = harness.rules("APIService");
    let name = "v1alpha1.signoff.dev";
    let before = services.get(name).await.unwrap();
    let mut elsewhere = before.clone();
    // With its own label, the API server would restore the object at once.
    elsewhere.metadata.labels = None;
    elsewhere.data["spec"]["service"] = json!({"namespace": "default", "name": "somebody", "port": 443});
    elsewhere.data["spec"]["insecureSkipTLSVerify"] = json!(true);
    services.replace(name, &PostParams::default(), &elsewhere).await.unwrap();
    harness
        .repeat_until_accepted("that it is said", async || {
            // /readyz is no success then, so its message is in the log.
            let log = std::fs::read_to_string(operator.log()).unwrap();
            if log.contains("is served by another server") { Ok(()) } else { Err(log) }
        })
        .await;
    let metrics = operator.get("/metrics").await.unwrap();
    assert!(metrics.contains("signoff_guard_in_force 0"), "{metrics}");
    assert!(operator.get("/readyz").await.is_err());

    let mut back: DynamicObject = before;
    back.metadata.resource_version = services.get(name).await.unwrap().metadata.resource_version;
    services.replace(name, &PostParams::default(), &back).await.unwrap();
    // The operator ends by itself, because its Deployment would start it again.
    harness
        .repeat_until_accepted("that it ends", async || {
            let log = std::fs::read_to_string(operator.log()).unwrap();
            if log.contains("served by another server for a time") { Ok(()) } else { Err(log) }
        })
        .await;
    drop(operator);
    let operator = harness.start_operator(&[]).await;
    harness.decide("alice", &approval, "Approve").await.unwrap();
    assert_eq!(harness.wait_for_end("run").await.status.unwrap().phase, WorkflowPhase::Succeeded);
    drop(operator);
}
