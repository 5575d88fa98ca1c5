//! Unclean ends of the process: the object that it evaluated is found by a mark and tried alone, and can be cancelled,
//! suspended and deleted before that. A test of the evaluator checks that it is tried last.

use std::{env, fs, os::unix::process::ExitStatusExt as _, path::Path, process::Command, sync::mpsc, time::Duration};

use serde_json::{Value, json};
use signoff_executor::{Evaluator, EvaluatorSettings, Subject};
use tempfile::TempDir;

use crate::{
    endless::is_quarantined,
    harness::{Harness, NAMESPACE, OPERATOR, approvals, condition, workflows},
    people::verdict,
    scenarios::{RUN, chain, gate, set},
};

/// The environment variable with the folder, for a process that is about to die.
const FOLDER: &str = "SIGNOFF_TEST_ABORT";
const SIGABRT: i32 = 6;
const HONEST: usize = 3;

fn with_marks(plain: Harness, folder: &Path) -> Harness {
    let settings = EvaluatorSettings { marks: Some(folder.to_owned()), ..EvaluatorSettings::default() };
    Harness { evaluator: Evaluator::start(settings).unwrap(), ..plain }
}

/// Applies the same objects in every process, so that they have the same uids.
fn apply_objects(folder: &Path) -> Harness {
    let harness = with_marks(Harness::new(), folder);
    harness.apply_in("other", "deadly", &chain(json!([set("one", "[[abort:render]]")])));
    for number in 0..HONEST {
        harness.apply(&format!("honest-{number}"), &chain(json!([set("one", "1"), set("two", "2")])));
    }
    harness
}

/// Runs until the process dies.
async fn run_until_death(folder: &Path) {
    let harness = apply_objects(&folder.join("marks"));
    let _life = harness.begin(OPERATOR);
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_run_that_aborts_the_process_is_tried_alone_and_quarantined() {
    const NAME: &str = "unclean::a_run_that_aborts_the_process_is_tried_alone_and_quarantined";
    if let Ok(folder) = env::var(FOLDER) {
        return run_until_death(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    for life in 1..=2 {
        let mut process = Command::new(env::current_exe().unwrap());
        process.args(["--exact", NAME, "--nocapture"]).env(FOLDER, folder.path()).current_dir(folder.path());
        let output = tokio::task::spawn_blocking(move || process.output()).await.unwrap().unwrap();
        assert_eq!(output.status.signal(), Some(SIGABRT), "life {life}: {output:?}");
        let marks: Vec<_> =
            fs::read_dir(folder.path().join("marks")).unwrap().map(|file| file.unwrap().path()).collect();
        let mark = |alone: bool| format!("\"alone\":{alone}");
        let deadly = |text: &String| text.contains("deadly") && text.contains(&mark(life == 2));
        assert!(marks.iter().filter_map(|file| fs::read_to_string(file).ok()).any(|text| deadly(&text)), "life {life}");
    }
    // The third process does not evaluate the run.
    let harness = apply_objects(&folder.path().join("marks"));
    let _life = harness.begin(OPERATOR);
    let deadly = harness.server.until(&workflows(), "other", "deadly", is_quarantined).await;
    assert_eq!(condition(&deadly, "Quarantined").1, "EndedOperator");
    for number in 0..HONEST {
        assert_eq!(harness.wait_for_end(&format!("honest-{number}")).await["status"]["phase"], "Succeeded");
    }
}

/// A harness on which another evaluation runs as long as this value lives, so that suspects have to wait.
struct Busy {
    harness: Harness,
    _folder: TempDir,
    /// The sender whose drop ends the other evaluation.
    other: Option<mpsc::Sender<()>>,
}

impl Busy {
    /// Starts the other evaluation. `suspect`: the object whose mark is found.
    async fn with(plain: Harness, kind: &str, suspect: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = |field: &str| suspect["metadata"][field].as_str().unwrap().to_owned();
        let [namespace, name, uid] = ["namespace", "name", "uid"].map(text);
        let subject = Subject { kind: kind.to_owned(), namespace, name, uid, generation: 1 };
        let mark = json!({"subject": subject, "alone": false, "part": null});
        fs::write(folder.path().join("evaluating-0"), mark.to_string()).unwrap();
        let harness = with_marks(plain, folder.path());
        let (sender, receiver) = mpsc::channel();
        let (evaluator, other) = (harness.evaluator.clone(), Subject { namespace: "other".to_owned(), ..subject });
        let other = Subject { uid: "other".to_owned(), ..other };
        tokio::spawn(async move { evaluator.run(other, move || receiver.recv().is_ok()).await });
        let busy = Self { harness, _folder: folder, other: Some(sender) };
        busy.until(|evaluator| evaluator.begun() == 1).await;
        busy
    }

    async fn until(&self, holds: impl Fn(&Evaluator) -> bool) {
        while !holds(&self.harness.evaluator) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn with_run() -> Self {
        let plain = Harness::new();
        let stored = plain.apply(RUN, &chain(json!([set("one", "1")])));
        Self::with(plain, "Workflow", &stored).await
    }
}

#[tokio::test]
async fn a_waiting_suspect_is_ended_without_an_evaluation() {
    let busy = Busy::with_run().await;
    let (harness, _life) = (&busy.harness, busy.harness.begin(OPERATOR));
    busy.until(|evaluator| evaluator.waiting() == 1).await;
    harness.people().set_field(RUN, "suspend", true);
    harness.wait_for_phase(RUN, "Suspended").await;
    busy.until(|evaluator| evaluator.waiting() == 0).await;
    harness.people().set_field(RUN, "suspend", false);
    busy.until(|evaluator| evaluator.waiting() == 1).await;
    harness.people().set_field(RUN, "cancel", true);
    let workflow = harness.wait_for_end(RUN).await;
    assert_eq!(workflow["status"]["phase"], "Cancelled");
    assert_eq!(condition(&workflow, "Quarantined"), (String::new(), String::new()), "it was never set aside");
    assert_eq!(harness.evaluator.begun(), 1, "nothing of it was evaluated");

    let busy = Busy::with_run().await;
    let (harness, _life) = (&busy.harness, busy.harness.begin(OPERATOR));
    busy.until(|evaluator| evaluator.waiting() == 1).await;
    assert!(harness.server.remove(&workflows(), NAMESPACE, RUN));
    busy.until(|evaluator| evaluator.waiting() == 0).await;
    assert_eq!(harness.evaluator.begun(), 1);
}

#[tokio::test]
async fn a_suspended_suspect_is_tried_when_it_is_resumed() {
    let mut busy = Busy::with_run().await;
    let _life = busy.harness.begin(OPERATOR);
    busy.until(|evaluator| evaluator.waiting() == 1).await;
    busy.harness.people().set_field(RUN, "suspend", true);
    busy.harness.wait_for_phase(RUN, "Suspended").await;
    busy.harness.people().set_field(RUN, "suspend", false);
    busy.other.take();
    assert_eq!(busy.harness.wait_for_end(RUN).await["status"]["phase"], "Succeeded");
}

#[tokio::test]
async fn a_suspect_approval_ends_with_its_run_without_an_evaluation() {
    let plain = Harness::new();
    plain.apply(RUN, &chain(json!([gate("ask", json!({}))])));
    let life = plain.begin(OPERATOR);
    let name = plain.people().wait_for_gate("ask").await;
    life.crash().await;
    plain.people().vote("alice", &name, verdict("Approve"));
    let busy = Busy::with(plain.clone(), "Approval", &plain.approval()).await;
    let (harness, _life) = (&busy.harness, busy.harness.begin(OPERATOR));
    busy.until(|evaluator| evaluator.waiting() == 1).await;
    harness.people().set_field(RUN, "cancel", true);
    assert_eq!(harness.wait_for_end(RUN).await["status"]["phase"], "Cancelled");
    let ended = |approval: &Value| approval["status"]["phase"] == "Cancelled";
    harness.server.until(&approvals(), NAMESPACE, &name, ended).await;
}
