//! A namespace on a cluster with an operator, and one server for the models and all calls of its runs: it records the
//! conversations and the requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use kube::ResourceExt;
use kube::api::{Api, PostParams};
use rexpect::session::PtySession;
use serde_json::{Value, json};
use signoff_api::{Approval, Workflow, WorkflowStatus, journal::StepRecord, workflow::WorkflowPhase};
use signoff_tests::chat_completions::{self, Told, of_message};
use signoff_tests::control_plane::{Cluster, Finished};
use signoff_tests::loopback::{Loopback, Received, json as answer_json, text};

use crate::asked::plugin;
use crate::policies::harness::workflow;
use crate::runs::Runs;

const CHAT: &str = "/v1/chat/completions";

/// The run of a model, and the messages of its turns.
pub(super) type Model<'a> = (&'a str, Vec<Value>);

pub(super) struct Scene {
    pub(super) runs: Runs,
    server: Loopback,
}

/// Returns the last message of a model.
pub(super) fn last_turn() -> Value {
    json!({"role": "assistant", "content": "I am done."})
}

/// Returns a message of a model with calls.
pub(super) fn turn_of(calls: &[Value]) -> Value {
    json!({"role": "assistant", "content": "I look after it.", "tool_calls": calls})
}

/// Returns a call as the model writes it: its id, the tool and the arguments.
pub(super) fn call(id: &str, tool: &str, arguments: &Value) -> Value {
    raw_call(id, tool, &arguments.to_string())
}

/// Returns a call as the model writes it, with any text as arguments.
pub(super) fn raw_call(id: &str, tool: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}})
}

/// Returns a gate of this group, with these further fields.
pub(super) fn gate_of(group: &str, more: Value) -> Value {
    let mut hitl = json!({"prompt": "May this be done?", "approvers": [{"kind": "Group", "name": group}]});
    more.as_object().into_iter().flatten().for_each(|(field, value)| hitl[field] = value.clone());
    hitl
}

impl Scene {
    /// Opens a namespace. Requests to anything but a model are answered with the text for their method and path, or
    /// with `paid`.
    pub(super) async fn open(prefix: &str, models: Vec<Model<'_>>, answers: &[(&str, &str)]) -> Self {
        let models: BTreeMap<_, _> = models.into_iter().map(|(run, all)| (run.to_owned(), all.into())).collect();
        let left: Mutex<BTreeMap<String, VecDeque<Value>>> = Mutex::new(models);
        let answers: BTreeMap<_, _> = answers.iter().map(|(what, text)| (what.to_string(), text.to_string())).collect();
        let answer = move |_: usize, received: &Received| match received.what.strip_suffix(CHAT) {
            Some(run) => {
                let run = run.trim_start_matches("POST /");
                match left.lock().unwrap().get_mut(run).and_then(VecDeque::pop_front) {
                    Some(message) if message.get("tool_calls").is_some() => {
                        answer_json(&of_message(&message, "tool_calls"))
                    }
                    Some(message) => answer_json(&of_message(&message, "stop")),
                    None => text(400, format!("the model of {run} has no further message")),
                }
            }
            None => text(200, answers.get(&received.what).map_or("paid", String::as_str)),
        };
        let server = Loopback::start(answer).await.unwrap();
        Self { runs: Runs::on(Cluster::operated().unwrap(), prefix).await, server }
    }

    /// Returns the address that a run calls.
    pub(super) fn url(&self, run: &str, path: &str) -> String {
        format!("{}/{run}{path}", self.server.url())
    }

    /// Returns the providers of a run: its model.
    pub(super) fn providers(&self, run: &str) -> Value {
        json!([{"name": "models", "openai": {"baseURL": self.url(run, "/v1")}}])
    }

    /// Creates a run as dana.
    pub(super) async fn begin(&self, run: &str, spec: Value) {
        let dana: Api<Workflow> = self.runs.api_as("dana").await;
        dana.create(&PostParams::default(), &serde_json::from_value(workflow(run, spec)).unwrap()).await.unwrap();
    }

    /// Returns the Approval of the gate at a path of a run, once it exists.
    pub(super) async fn wait_for_gate(&self, run: &str, path: &str) -> Approval {
        let object = |run: &Workflow| {
            let steps = &run.status.as_ref()?.steps;
            steps.iter().find(|step| step.path == path).and_then(|step| step.object.clone())
        };
        let asks = |run: Option<&Workflow>| run.is_some_and(|run| object(run).is_some());
        let found = self.runs.until(self.runs.api(), run, &format!("asks at {path}"), asks).await;
        let is_there = |found: Option<&Approval>| found.is_some_and(|found| found.status.is_some());
        self.runs.until(self.runs.api(), &object(&found).unwrap(), "is there", is_there).await
    }

    /// Runs `kubectl approve VERDICT NAME …` as a person of the cast.
    pub(super) async fn run_verdict(
        &self,
        person: &str,
        verdict: &str,
        approval: &Approval,
        more: &[&str],
    ) -> Finished {
        let name = approval.name_any();
        self.approve(person, &[&[verdict, name.as_str()], more].concat()).await
    }

    /// Runs `kubectl approve …` as a person of the cast.
    pub(super) async fn approve(&self, person: &str, words: &[&str]) -> Finished {
        let program = plugin();
        let words = [&["approve"], words, &["--namespace", &self.runs.namespace.name]].concat();
        let kubectl = self.runs.cluster.kubectl(words).search(program.parent().unwrap()).person(person);
        kubectl.env("SIGNOFF_DEFAULT_WAIT", "1m").run().await.unwrap()
    }

    /// Returns the output of `kubectl approve show` for a request.
    pub(super) async fn show(&self, person: &str, approval: &Approval) -> String {
        self.run_verdict(person, "show", approval, &[]).await.ok().unwrap()
    }

    /// Runs `kubectl approve …` as a person of the cast, on a terminal.
    pub(super) fn terminal(&self, person: &str, words: &[&str], variables: &[(&str, String)]) -> PtySession {
        let mut command = std::process::Command::new(plugin());
        command.arg("--kubeconfig").arg(self.runs.cluster.kubeconfig_of(person).unwrap());
        command.args(words).args(["--namespace", &self.runs.namespace.name]).env("SIGNOFF_DEFAULT_WAIT", "1m");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        rexpect::session::spawn_command(command, Some(120_000)).unwrap()
    }

    /// Waits until a run has ended, and returns its status.
    pub(super) async fn wait_for_end(&self, run: &str) -> WorkflowStatus {
        self.runs.wait_for_end(run).await.status.unwrap()
    }

    /// Waits until a run has succeeded, and returns its status.
    pub(super) async fn wait_for_success(&self, run: &str) -> WorkflowStatus {
        let status = self.wait_for_end(run).await;
        assert_eq!(status.phase, WorkflowPhase::Succeeded, "{:?}", status.message);
        status
    }

    /// Returns the requests to the model of a run.
    pub(super) fn model_requests(&self, run: &str) -> Vec<Value> {
        let own = format!("POST /{run}{CHAT}");
        let all = self.server.received().into_iter().filter(|received| received.what == own);
        all.map(|received| serde_json::from_str(&received.body).unwrap()).collect()
    }

    /// Returns the calls in the last turn's conversation of a run's model, each with its result.
    pub(super) fn results_of_last_turn(&self, run: &str) -> Vec<Told> {
        let heard = self.model_requests(run);
        heard.last().map(|last| chat_completions::told(last).unwrap().concat()).unwrap_or_default()
    }

    /// Returns every other request of a run, such as `POST /pay`, with its body.
    pub(super) fn sent_requests(&self, run: &str) -> Vec<(String, String)> {
        let own = format!(" /{run}");
        let others = self.server.received().into_iter().filter(|received| !received.what.ends_with(CHAT));
        let of_run = others.filter_map(|Received { what, body, .. }| {
            let (method, path) = what.split_once(&own)?;
            path.starts_with('/').then(|| (format!("{method} {path}"), body))
        });
        of_run.collect()
    }
}

/// Returns the record at a path of a run.
pub(super) fn record<'s>(status: &'s WorkflowStatus, path: &str) -> &'s StepRecord {
    let found = status.steps.iter().find(|record| record.path == path);
    found.unwrap_or_else(|| {
        panic!("no record {path}: {:?}", status.steps.iter().map(|one| &one.path).collect::<Vec<_>>())
    })
}

/// Returns the class and the message of the error at a path of a run.
pub(super) fn error<'s>(status: &'s WorkflowStatus, path: &str) -> (&'s str, &'s str) {
    let error = record(status, path).error.as_ref().unwrap_or_else(|| panic!("{path} did not fail"));
    (&error.class, &error.message)
}
