//! People's decisions about calls of tools and questions of agents, by `kubectl approve` on a cluster with an operator.
//!
//! The model and the bank are HTTP servers here: their requests show the conversation and the payments. The unit tests
//! of the engine test its decisions.

mod once;
mod refused;
mod scene;
mod servers;
mod shown;
mod turn;
mod verdicts;

use rexpect::process::WaitStatus;
use rexpect::session::PtySession;
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_api::workflow::WorkflowPhase;
use signoff_tests::control_plane::Finished;

use scene::{Scene, call, gate_of, last_turn, turn_of};

/// Returns the rest of the output of a terminal, and the exit code.
fn finish_session(mut session: PtySession) -> (String, i32) {
    let rest = session.exp_eof().unwrap();
    match session.process().wait().unwrap() {
        WaitStatus::Exited(_, code) => (rest, code),
        other => panic!("{other:?}: {rest}"),
    }
}

/// Returns one refund, as the model requests it.
fn refund() -> Vec<Value> {
    vec![call("call_a", "refund", &json!({"amount": 420, "customer": "ACME"}))]
}

/// One run of an agent whose first turn has calls, and whose second ends it.
struct AgentRun {
    scene: Scene,
}

const RUN: &str = "refund";

/// Returns the spec of a run of an agent that refunds, writes letters and asks questions.
fn clerk(scene: &Scene, run: &str, gate: Value, questions: Value) -> Value {
    let parameters = json!({
        "type": "object", "required": ["amount", "customer"], "additionalProperties": false,
        "properties": {"amount": {"type": "integer", "maximum": 1000}, "customer": {"type": "string"},
            "note": {"type": ["string", "null"]}},
    });
    json!({
        "providers": scene.providers(run),
        "agents": [{"name": "clerk", "model": "small", "provider": "models", "system": "You help customers.",
            "tools": ["refund", "letter", "ask-human"]}],
        "tools": [
            {"name": "refund", "step": "pay", "description": "Refund an amount.", "effects": "irreversible",
                "parameters": parameters},
            {"name": "letter", "step": "send", "description": "Send a letter.", "effects": "write",
                "parameters": {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}},
        ],
        "gates": [
            {"name": "money", "type": "specificTools", "tools": ["refund"], "hitl": gate_of("finance", gate)},
            {"name": "post", "type": "specificTools", "tools": ["letter"], "hitl": gate_of("sre", json!({}))},
            {"name": "questions", "type": "question", "hitl": gate_of("finance", questions)},
        ],
        "steps": [
            {"name": "handle", "agent": {"name": "clerk", "input": "ACME wants its money back."}},
            {"name": "pay", "http": {"method": "POST", "url": scene.url(run, "/refunds"), "body": "{{ args | tojson }}"}},
            {"name": "send", "set": {"value": "sent to {{ args.to }}"}},
        ],
    })
}

impl AgentRun {
    /// Begins the run. `gate` has the fields of the gate of refunds, except for its approvers, the group finance.
    async fn begin(prefix: &str, calls: Vec<Value>, gate: Value) -> Self {
        Self::begin_with(prefix, calls, gate, json!({})).await
    }

    /// Begins the run as [`Self::begin`] does. `questions` has the fields of the gate of questions, except for its
    /// approvers, the group finance.
    async fn begin_with(prefix: &str, calls: Vec<Value>, gate: Value, questions: Value) -> Self {
        let scene = Scene::open(prefix, vec![(RUN, vec![turn_of(&calls), last_turn()])], &[]).await;
        scene.begin(RUN, clerk(&scene, RUN, gate, questions)).await;
        Self { scene }
    }

    /// Returns the Approval of a call of the first turn, `1`, or of a later visit of its gate, `1/.gate#2`, once it
    /// exists.
    async fn wait_for_gate(&self, call: &str) -> Approval {
        let path = match call.split_once('/') {
            Some(_) => format!("handle/.turn-1/.call-{call}"),
            None => format!("handle/.turn-1/.call-{call}/.gate"),
        };
        self.scene.wait_for_gate(RUN, &path).await
    }

    /// Runs `kubectl approve VERDICT NAME …` as a person of the cast.
    async fn run_verdict(&self, person: &str, verdict: &str, approval: &Approval, more: &[&str]) -> Finished {
        self.scene.run_verdict(person, verdict, approval, more).await
    }

    async fn approve(&self, person: &str, words: &[&str]) -> Finished {
        self.scene.approve(person, words).await
    }

    /// Runs `kubectl approve …` as a person of the cast, on a terminal.
    fn terminal(&self, person: &str, words: &[&str]) -> PtySession {
        self.scene.terminal(person, words, &[])
    }

    /// Runs `kubectl approve …` on a terminal with further environment variables.
    fn terminal_with(&self, person: &str, words: &[&str], variables: &[(&str, String)]) -> PtySession {
        self.scene.terminal(person, words, variables)
    }

    /// Waits until the run ends, and returns its phase.
    async fn wait_for_end(&self) -> WorkflowPhase {
        self.scene.wait_for_end(RUN).await.phase
    }

    /// Returns the results in the agent's last turn, by the ids of its calls.
    fn results_of_last_turn(&self) -> Vec<(String, String)> {
        self.scene.results_of_last_turn(RUN).into_iter().map(|told| (told.id, told.result)).collect()
    }

    /// Checks that the run succeeds, and that the agent got exactly this result for its only call.
    async fn assert_result(&self, result: &str) {
        assert_eq!(self.wait_for_end().await, WorkflowPhase::Succeeded);
        assert_eq!(self.results_of_last_turn(), [("call_a".to_owned(), result.to_owned())]);
        assert_eq!(self.scene.model_requests(RUN).len(), 2, "one request a turn");
    }

    /// Returns the bodies that reached the bank.
    fn payments(&self) -> Vec<Value> {
        payments(&self.scene, RUN)
    }
}

/// Returns the bodies of a run that reached the bank.
fn payments(scene: &Scene, run: &str) -> Vec<Value> {
    scene.sent_requests(run).iter().map(|(_, body)| serde_json::from_str(body).unwrap()).collect()
}
