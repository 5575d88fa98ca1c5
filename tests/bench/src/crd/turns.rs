//! The cost of an agent's turn for the API server: the status writes and Blobs of one real run, sent again for copies
//! of its Workflow. The policies must be enforced first, because the run needs its requester.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, pin_mut};
use kube::api::{Api, ApiResource, DynamicObject, WatchEvent, WatchParams};
use serde_json::{Value, json};
use signoff_api::{Workflow, names::LABEL_WORKFLOW_UID};

use super::{Cost, Meter};
use crate::agents;
use crate::crowd;
use crate::harness::Harness;
use crate::sample;
use crate::server::Server;

/// The turns with a call of the recorded run, as in `cargo xtask bench agents`.
const TURNS: usize = 20;
const NAME: &str = "clerk";
const TIMEOUT: Duration = Duration::from_secs(60);

/// The writes of one run of an agent.
#[derive(Debug)]
pub(super) struct AgentRun {
    workflow: Value,
    statuses: Vec<Value>,
    blobs: Vec<Value>,
}

impl AgentRun {
    /// Runs an agent with an operator, and records its writes.
    pub(super) async fn record(harness: &Harness) -> Result<Self> {
        let server = Server::start(TURNS, 1, Duration::ZERO).await?;
        let operator = harness.operator_with_arguments(&["--allow-address", "127.0.0.0/8"]).await?;
        let namespace = harness.namespace().await?;
        let mut workflow = agents::workflow(NAME, &server, TURNS, 1);
        let workflows = sample::path(&namespace, "workflows");
        crowd::post(&harness.requester, &workflows, serde_json::to_vec(&workflow)?).await?;
        let statuses =
            tokio::time::timeout(TIMEOUT, statuses(harness, &namespace)).await.context("the agent's run")??;
        let blobs = crowd::get(&harness.admin, &sample::path(&namespace, "blobs")).await?;
        let blobs: Value = serde_json::from_str(&blobs)?;
        operator.stop().await?;
        // Without policies the API server does not stamp the requester.
        workflow["spec"]["requestedBy"] = json!(signoff_tests::control_plane::named(crate::harness::REQUESTER)?.user);
        Ok(Self { workflow, statuses, blobs: blobs["items"].as_array().cloned().unwrap_or_default() })
    }

    /// Returns the status writes of the run for each turn with a call.
    pub(super) fn writes_a_turn(&self) -> f64 {
        self.statuses.len() as f64 / TURNS as f64
    }

    /// Sends the writes of `copies` copies. Returns the average cost of a turn.
    pub(super) async fn cost(&self, harness: &Harness, copies: usize) -> Result<Cost> {
        let operator = harness.cluster.operator_client().await?;
        let mut created = Vec::with_capacity(copies);
        for _ in 0..copies {
            let workflows = sample::path(&harness.namespace().await?, "workflows");
            let answer = crowd::post(&harness.requester, &workflows, serde_json::to_vec(&self.workflow)?).await?;
            created.push((workflows, answer));
        }
        let meter = Meter::calibrate(harness).await?;
        let (run, _) = meter
            .measure(copies, async |index| {
                let (workflows, answer) = &created[index];
                for blob in &self.blobs {
                    let body = serde_json::to_vec(&copy(blob, answer)?)?;
                    crowd::post(&operator, &workflows.replace("/workflows", "/blobs"), body).await?;
                }
                let mut answer = answer.clone();
                for status in &self.statuses {
                    let (name, body) = sample::with_status(&answer, status)?;
                    answer = crowd::put(&operator, &format!("{workflows}/{name}/status"), body).await?;
                }
                Ok(answer)
            })
            .await?;
        Ok(Cost { kib: run.kib / TURNS as f64, cpu_ms: run.cpu_ms / TURNS as f64 })
    }
}

/// Returns the Blob as a part of another copy of the Workflow.
fn copy(blob: &Value, workflow: &str) -> Result<Value> {
    let workflow: Value = serde_json::from_str(workflow)?;
    let mut copy = blob.clone();
    copy["apiVersion"] = workflow["apiVersion"].clone();
    copy["kind"] = json!("Blob");
    let metadata = &blob["metadata"];
    copy["metadata"] = json!({
        "name": metadata["name"], "labels": metadata["labels"], "ownerReferences": metadata["ownerReferences"],
    });
    let uid = &workflow["metadata"]["uid"];
    copy["metadata"]["labels"][LABEL_WORKFLOW_UID] = uid.clone();
    copy["metadata"]["ownerReferences"][0]["uid"] = uid.clone();
    Ok(copy)
}

/// Returns every status that the run had, in order.
async fn statuses(harness: &Harness, namespace: &str) -> Result<Vec<Value>> {
    let resource = ApiResource::erase::<Workflow>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(harness.admin.clone(), namespace, &resource);
    let watch = api.watch(&WatchParams::default(), "0").await?;
    pin_mut!(watch);
    let mut statuses = Vec::new();
    while let Some(event) = watch.next().await {
        let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event? else { continue };
        let status = &object.data["status"];
        let phase = status["phase"].as_str().unwrap_or_default().to_owned();
        if statuses.last() != Some(status) {
            statuses.push(status.clone());
        }
        if phase == "Succeeded" {
            break;
        }
        ensure!(phase != "Failed", "the agent's run failed: {status}");
    }
    // The API server sets the first status at the creation.
    statuses.remove(0);
    Ok(statuses)
}
