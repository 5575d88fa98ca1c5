//! What people decide about calls of tools and questions of agents, by `kubectl approve` on a cluster with an operator.
//!
//! The model and the bank are HTTP servers here: what the model was told, and what was paid, is what reached them. It must not test how
//! the engine decides: the unit tests of the engine do.

mod turn;
mod verdicts;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::{Json, Router, routing::post};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use rexpect::process::WaitStatus;
use rexpect::session::PtySession;
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Workflow};
use signoff_tests::control_plane::{Cluster, Finished};

use crate::asked::plugin;
use crate::policies::harness::workflow;
use crate::runs::Runs;

/// A model that plays the OpenAI protocol, and a bank that pays.
struct Servers {
    address: String,
    /// The requests to the model, the newest last.
    heard: Arc<Mutex<Vec<Value>>>,
    /// The bodies that were sent to the bank.
    paid: Arc<Mutex<Vec<String>>>,
}

impl Servers {
    /// Starts both. The model answers with these messages, one a turn.
    async fn start(messages: Vec<Value>) -> Self {
        let (heard, paid) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (hears, left) = (Arc::clone(&heard), Arc::new(Mutex::new(VecDeque::from(messages))));
        let answer = move |Json(request): Json<Value>| {
            hears.lock().unwrap().push(request);
            let message = left.lock().unwrap().pop_front().expect("the model is asked once a turn");
            let finish = if message.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
            std::future::ready(Json(json!({"choices": [{"message": message, "finish_reason": finish}]})))
        };
        let pays = Arc::clone(&paid);
        let bank = move |body: String| {
            pays.lock().unwrap().push(body);
            std::future::ready("paid")
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = Router::new().route("/v1/chat/completions", post(answer)).route("/refunds", post(bank));
        tokio::spawn(async { axum::serve(listener, routes).await });
        Self { address, heard, paid }
    }
}

/// Returns the rest of what is printed on a terminal, and the exit code.
fn ended(mut session: PtySession) -> (String, i32) {
    let rest = session.exp_eof().unwrap();
    match session.process().wait().unwrap() {
        WaitStatus::Exited(_, code) => (rest, code),
        other => panic!("{other:?}: {rest}"),
    }
}

/// A call as the model writes it: its id, the tool and the arguments.
fn call(id: &str, tool: &str, arguments: &Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": tool, "arguments": arguments.to_string()}})
}

/// One refund, as the model asks for it.
fn refund() -> Vec<Value> {
    vec![call("call_a", "refund", &json!({"amount": 420, "customer": "ACME"}))]
}

/// One run of an agent whose first turn has calls, and whose second ends it.
struct Story {
    runs: Runs,
    servers: Servers,
}

const RUN: &str = "refund";

impl Story {
    /// Begins the run. `gate`: the fields of the gate in front of refunds besides its approvers, the group finance.
    async fn begin(prefix: &str, calls: Vec<Value>, gate: Value) -> Self {
        Self::begin_with(prefix, calls, gate, json!({})).await
    }

    /// The same. `questions`: the fields of the gate for questions besides its approvers, the group finance.
    async fn begin_with(prefix: &str, calls: Vec<Value>, gate: Value, questions: Value) -> Self {
        let last = json!({"role": "assistant", "content": "I am done."});
        let first = json!({"role": "assistant", "content": "I look after it.", "tool_calls": calls});
        let servers = Servers::start(vec![first, last]).await;
        let runs = Runs::on(Cluster::operated().unwrap(), prefix).await;
        let finance = |prompt: &str, fields: Value| {
            let mut hitl = json!({"prompt": prompt, "approvers": [{"kind": "Group", "name": "finance"}]});
            fields.as_object().unwrap().iter().for_each(|(field, value)| hitl[field] = value.clone());
            hitl
        };
        let sre = json!({"prompt": "May this be sent?", "approvers": [{"kind": "Group", "name": "sre"}]});
        let parameters = json!({
            "type": "object", "required": ["amount", "customer"], "additionalProperties": false,
            "properties": {"amount": {"type": "integer", "maximum": 1000}, "customer": {"type": "string"},
                "note": {"type": ["string", "null"]}},
        });
        let object = workflow(
            RUN,
            json!({
                "providers": [{"name": "models", "openai": {"baseURL": format!("http://{}/v1", servers.address)}}],
                "agents": [{"name": "clerk", "model": "small", "provider": "models", "system": "You help customers.",
                    "tools": ["refund", "letter", "ask-human"]}],
                "tools": [
                    {"name": "refund", "step": "pay", "description": "Refund an amount.", "effects": "irreversible",
                        "parameters": parameters},
                    {"name": "letter", "step": "send", "description": "Send a letter.", "effects": "write",
                        "parameters": {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}},
                ],
                "gates": [
                    {"name": "money", "type": "specificTools", "tools": ["refund"],
                        "hitl": finance("May this be paid?", gate)},
                    {"name": "post", "type": "specificTools", "tools": ["letter"], "hitl": sre},
                    {"name": "questions", "type": "question", "hitl": finance("The clerk asks.", questions)},
                ],
                "steps": [
                    {"name": "handle", "agent": {"name": "clerk", "input": "ACME wants its money back."}},
                    {"name": "pay", "http": {"method": "POST", "url": format!("http://{}/refunds", servers.address),
                        "body": "{{ args | tojson }}"}},
                    {"name": "send", "set": {"value": "sent to {{ args.to }}"}},
                ],
            }),
        );
        let dana: Api<Workflow> = runs.as_a("dana").await;
        dana.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        Self { runs, servers }
    }

    /// The Approval of a call of the first turn, `1`, or of a later visit of its gate, `1/.gate#2`; once it is there.
    async fn asked(&self, call: &str) -> Approval {
        let path = match call.split_once('/') {
            Some(_) => format!("handle/.turn-1/.call-{call}"),
            None => format!("handle/.turn-1/.call-{call}/.gate"),
        };
        let object = |run: &Workflow| {
            let steps = &run.status.as_ref()?.steps;
            steps.iter().find(|step| step.path == path).and_then(|step| step.object.clone())
        };
        let asks = |run: Option<&Workflow>| run.is_some_and(|run| object(run).is_some());
        let run = self.runs.until(self.runs.see(), RUN, &format!("asks at {path}"), asks).await;
        let is_there = |found: Option<&Approval>| found.is_some_and(|found| found.status.is_some());
        self.runs.until(self.runs.see(), &object(&run).unwrap(), "is there", is_there).await
    }

    /// Runs `kubectl approve VERDICT NAME …` as one of the cast.
    async fn says(&self, person: &str, verdict: &str, approval: &Approval, more: &[&str]) -> Finished {
        let name = approval.name_any();
        self.approve(person, &[&[verdict, name.as_str()], more].concat()).await
    }

    async fn approve(&self, person: &str, words: &[&str]) -> Finished {
        let program = plugin();
        let words = [&["approve"], words, &["--namespace", &self.runs.namespace.name]].concat();
        let kubectl = self.runs.cluster.kubectl(words).search(program.parent().unwrap()).person(person);
        kubectl.env("SIGNOFF_DEFAULT_WAIT", "1m").run().await.unwrap()
    }

    /// Runs `kubectl approve …` as one of the cast, on a terminal.
    fn terminal(&self, person: &str, words: &[&str]) -> PtySession {
        self.terminal_with(person, words, &[])
    }

    /// The same, with environment variables.
    fn terminal_with(&self, person: &str, words: &[&str], variables: &[(&str, String)]) -> PtySession {
        let mut command = std::process::Command::new(plugin());
        command.arg("--kubeconfig").arg(self.runs.cluster.kubeconfig_of(person).unwrap());
        command.args(words).args(["--namespace", &self.runs.namespace.name]).env("SIGNOFF_DEFAULT_WAIT", "1m");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        rexpect::session::spawn_command(command, Some(120_000)).unwrap()
    }

    /// Waits until the run ends, and returns its phase.
    async fn ends(&self) -> WorkflowPhase {
        self.runs.ended(RUN).await.status.unwrap().phase
    }

    /// What the agent was told in its last turn, by the ids of its calls.
    fn told(&self) -> Vec<(String, String)> {
        let heard = self.servers.heard.lock().unwrap();
        let messages = heard.last().unwrap()["messages"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        results.map(|message| (text(&message["tool_call_id"]), text(&message["content"]))).collect()
    }

    /// The run succeeds, and the agent was told exactly this about its only call.
    async fn ends_told(&self, result: &str) {
        assert_eq!(self.ends().await, WorkflowPhase::Succeeded);
        assert_eq!(self.told(), [("call_a".to_owned(), result.to_owned())]);
        assert_eq!(self.servers.heard.lock().unwrap().len(), 2, "one request a turn");
    }

    /// The bodies that reached the bank.
    fn paid(&self) -> Vec<Value> {
        let paid = self.servers.paid.lock().unwrap();
        paid.iter().map(|body| serde_json::from_str(body).unwrap()).collect()
    }
}
