//! The examples whose steps are containers, each run to its end with the answers beside it and people of the cast.

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use serde_json::{Value, json};
use signoff_api::Workflow;
use signoff_api::journal::{StepKind, StepRecord};
use signoff_api::workflow::WorkflowStatus;
use signoff_tests::control_plane::named;

use crate::harness::Harness;
use crate::story::{Example, among};

/// The output of each example in the end, and the class of the failure that it shows.
const COME_TO: [(&str, &str, &str); 13] = [
    ("pods/agent", "done: archive the reports of October\ndone: tell nobody\n", ""),
    ("pods/build-approve-deploy", "deployed DIGEST", ""),
    ("pods/clean-until-done", "clean after 3 rounds", ""),
    ("pods/exact-command", "deleted acme-4711", ""),
    ("pods/failed", "the check was skipped", "ExitCode"),
    ("pods/fan-out", "seven words", ""),
    ("pods/log-output", "it measured result 42", ""),
    ("pods/migration", "2\n", ""),
    ("pods/out-of-memory", "sorted\n", "OOMKilled"),
    ("pods/pods-in-a-dag", "walls, roof, garden", ""),
    ("pods/retry-by-exit-code", "failed with 75", "ExitCode"),
    ("pods/settings", "Hello from ACME: Dear ACME", ""),
    ("pods/too-slow", "it failed", "DeadlineExceeded"),
];

/// Returns a waiting gate that has not been answered yet.
fn open<'w>(workflow: &'w Workflow, answered: &[String]) -> Option<&'w StepRecord> {
    let waits = |record: &&StepRecord| record.kind == StepKind::Hitl && !record.phase.is_end();
    let new = |record: &&StepRecord| record.object.as_ref().is_some_and(|name| !answered.contains(name));
    workflow.status.as_ref()?.steps.iter().filter(waits).find(new)
}

/// Creates what the example needs in its namespace.
async fn prepare(harness: &Harness, example: &Example) {
    // A requester of containers must be allowed to create Pods.
    harness.namespace.bind("edit", named("dana").unwrap().user).await.unwrap();
    if example.name == "pods/settings" {
        let params = PostParams::default();
        let secret = json!({"metadata": {"name": "letters"}, "stringData": {"token": "sesame"}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        harness.see::<Secret>().create(&params, &secret).await.unwrap();
        let settings = json!({"metadata": {"name": "letters"}, "data": {"greeting": "Hello"}});
        let settings: ConfigMap = serde_json::from_value(settings).unwrap();
        harness.see::<ConfigMap>().create(&params, &settings).await.unwrap();
    }
}

/// Runs an example with its answers to its end: dana requests it, bob decides.
async fn run_example(mut example: Example) -> (String, WorkflowStatus) {
    let value: Value = serde_saphyr::from_str(&example.text).unwrap();
    let run = value["metadata"]["name"].as_str().unwrap();
    let harness = Harness::open(run).await;
    prepare(&harness, &example).await;
    harness.request(run, value["spec"].clone()).await;
    let mut answered = Vec::new();
    loop {
        let moves = |workflow: Option<&Workflow>| {
            let status = workflow.and_then(|workflow| workflow.status.as_ref());
            status.is_some_and(|status| status.phase.is_end())
                || workflow.is_some_and(|workflow| open(workflow, &answered).is_some())
        };
        let found: Workflow = harness.until(run, "asks or ends", moves).await;
        let Some(gate) = open(&found, &answered) else {
            assert_eq!(example.unused(), [""; 0], "{}: answers that nobody asked for", example.name);
            return (example.name, found.status.unwrap());
        };
        let (name, path) = (gate.object.clone().unwrap(), gate.path.clone());
        let approval = harness.until(&name, "is there", |found: Option<&signoff_api::Approval>| found.is_some()).await;
        let answer = example.answer(&path, &approval.spec.request.gate.name);
        let answer = answer.unwrap_or_else(|| panic!("{}: nobody answers at {path}", example.name));
        harness.decides("bob", &approval, answer).await;
        answered.push(name);
    }
}

#[tokio::test]
async fn every_example_with_containers_has_its_recorded_output() {
    let all = among(|name| name.starts_with("pods/"));
    let names: Vec<_> = all.iter().map(|example| example.name.clone()).collect();
    assert_eq!(names, COME_TO.map(|(name, ..)| name), "each example is run, and each that is run is there");
    let ended: Vec<_> = futures::stream::iter(all.into_iter().map(run_example)).buffer_unordered(4).collect().await;
    let digest = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(b"release 1.4.2"));
    for (name, status) in ended {
        let (_, output, class) = COME_TO.into_iter().find(|(one, ..)| *one == name).unwrap();
        let failed = status.steps.iter().find_map(|step| step.error.as_ref()).map(|error| &*error.class);
        let story = (status.phase.name(), status.outputs.as_deref().unwrap_or_default(), failed.unwrap_or_default());
        assert_eq!(
            story,
            ("Succeeded", &*output.replace("DIGEST", &digest[..12]), class),
            "{name}: {:#?}",
            status.steps
        );
    }
}
