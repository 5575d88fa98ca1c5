//! Every example, run on this machine without a cluster with the answers beside it: it ends as recorded.
//!
//! `SIGNOFF_UPDATE_SNAPSHOTS=1` records it again. The tests on a control plane compare their runs with the same
//! records.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use signoff_api::{Decision, Workflow};
use signoff_local::{GateQuestion, Handler, Local, RunOutcome, Sessions, from_yaml};

use crate::story::{Example, examples, story};

/// The requester of the runs.
const ASKS: &str = "dana@example.com";
const ANSWERS: &str = "bob@example.com";

struct Answering(Arc<Mutex<Example>>);

#[async_trait]
impl Handler for Answering {
    async fn answer(&self, asked: GateQuestion) -> Option<Decision> {
        assert_eq!(asked.refused, None, "{}", self.0.lock().unwrap().name);
        let gate = &asked.request().gate;
        let answer = self.0.lock().unwrap().answer(&gate.path, &gate.name);
        answer.map(|answer| serde_json::from_value(answer).unwrap())
    }
}

/// Runs an example to its end. Returns the session's Workflow.
async fn run(example: Example) -> (String, Workflow) {
    let folder = tempfile::tempdir().unwrap();
    let name = example.name.clone();
    let workflow = from_yaml(&example.text, ASKS).unwrap_or_else(|why| panic!("{name}: {why}"));
    let example = Arc::new(Mutex::new(example));
    let local = Local::new(Sessions::new(folder.path()), ANSWERS).unwrap().handler(Answering(Arc::clone(&example)));
    let mut run = local.begin(workflow).unwrap_or_else(|why| panic!("{name}: {why}"));
    let ended = run.go().await.unwrap_or_else(|why| panic!("{name}: {why}"));
    let snapshot = run.snapshot();
    assert!(matches!(ended, RunOutcome::Over(_)), "{name} waits: {:#?}", snapshot.workflow.status);
    assert_eq!(example.lock().unwrap().unused(), [""; 0], "{name}: answers that nobody asked for");
    (name, snapshot.workflow)
}

#[tokio::test]
async fn every_example_runs_without_a_cluster_as_recorded() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut examples = examples();
    assert!(examples.len() >= 30, "{} examples: where are they?", examples.len());
    let update = std::env::var_os("SIGNOFF_UPDATE_SNAPSHOTS").is_some();
    signoff_tests::tried(examples.len(), "examples without a cluster");
    for example in examples.drain(..) {
        let record = example.record();
        let (name, workflow) = run(example).await;
        if update {
            std::fs::create_dir_all(record.parent().unwrap()).unwrap();
            let text = serde_json::to_string_pretty(&json!({"workflow": workflow})).unwrap();
            std::fs::write(&record, text + "\n").unwrap();
            continue;
        }
        let text = std::fs::read_to_string(&record).unwrap_or_else(|why| panic!("{}: {why}", record.display()));
        let recorded: Value = serde_json::from_str(&text).unwrap();
        let recorded: Workflow = serde_json::from_value(recorded["workflow"].clone()).unwrap();
        assert_eq!(story(&workflow), story(&recorded), "{name}");
    }
}
