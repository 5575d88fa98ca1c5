//! A run that a test drives: a small driver plays the executor and the people.
//!
//! Each transition starts from the last commit, as after a crash of the operator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use signoff_api::{Moment, Outcome, Verdict, Workflow, approval::ApprovalPhase, journal::StepRecord};

use crate::{
    Blobs, Control, End, Fact, Journal, Now, Plan, Settings, Transition, advance,
    transition::{Ask, CallContent, Command, Failure, Reply},
};

/// A run that a test drives step by step.
pub(crate) struct TestRun {
    pub(crate) plan: Plan,
    pub(crate) journal: Journal,
    pub(crate) blobs: Blobs,
    pub(crate) control: Control,
    pub(crate) clock: Moment,
    pub(crate) transition: Transition,
}

pub(crate) fn start() -> Moment {
    Moment::from(jiff::Timestamp::from_second(1_800_000_000).unwrap())
}

pub(crate) fn workflow(spec: Value) -> Workflow {
    let mut spec = spec;
    spec["requestedBy"] = json!("dana");
    serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "n", "uid": "00000000-0000-0000-0000-000000000001"},
        "spec": spec,
    }))
    .expect("a Workflow")
}

pub(crate) fn chain_of(steps: Value) -> Value {
    json!({
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "writer", "system": "be brief"}],
        "inputs": [{"name": "customer", "value": "ACME"}],
        "steps": steps,
    })
}

pub(crate) fn gate(more: Value) -> Value {
    let mut hitl = json!({"prompt": "go on?", "approvers": [{"kind": "User", "name": "alice"}]});
    for (key, value) in more.as_object().unwrap() {
        hitl[key] = value.clone();
    }
    hitl
}

pub(crate) fn decided(verdict: Verdict) -> Outcome {
    Outcome {
        verdict: Some(verdict),
        phase: ApprovalPhase::of(verdict),
        decided_by: vec!["alice".into()],
        decided_at: Some(start()),
        ..Outcome::default()
    }
}

impl TestRun {
    pub(crate) fn new(steps: Value) -> Self {
        Self::of(chain_of(steps))
    }

    pub(crate) fn of(spec: Value) -> Self {
        Self::with_control(spec, Control::default())
    }

    /// Begins a run with these switches and limits.
    pub(crate) fn with_control(spec: Value, control: Control) -> Self {
        let plan = Plan::of(&workflow(spec), &Settings::default(), &std::sync::Arc::default())
            .unwrap_or_else(|why| panic!("{why:?}"));
        let now = Now::new(start(), "epoch");
        let transition = advance(&plan, control, Journal::default(), Vec::new(), &Blobs::new(), &now);
        let mut run =
            Self { plan, journal: Journal::default(), blobs: Blobs::new(), control, clock: start(), transition };
        run.commit();
        run
    }

    /// Stores the result of the transition through JSON, as the API server does.
    pub(crate) fn commit(&mut self) {
        self.blobs.extend(self.transition.blobs.iter().cloned());
        let records: Vec<StepRecord> =
            serde_json::from_value(serde_json::to_value(self.transition.journal.records()).unwrap()).unwrap();
        self.journal = Journal::new(self.transition.journal.seq(), records);
    }

    pub(crate) fn take(&mut self, facts: Vec<Fact>) -> &Transition {
        let now = Now::new(self.clock, "epoch");
        self.transition = advance(&self.plan, self.control, self.journal.clone(), facts, &self.blobs, &now);
        assert!(self.transition.missing.is_empty(), "everything is stored here: {:?}", self.transition.missing);
        self.commit();
        // The same transition without new facts adds nothing.
        if self.transition.end.is_none() {
            let again = advance(&self.plan, self.control, self.journal.clone(), Vec::new(), &self.blobs, &now);
            assert_eq!(again.journal.records(), self.journal.records(), "a replay adds nothing");
        }
        &self.transition
    }

    pub(crate) fn wait(&mut self, seconds: u64) -> &Transition {
        self.clock = self.clock.after(Duration::from_secs(seconds));
        self.take(Vec::new())
    }

    pub(crate) fn decide(&mut self, path: &str, outcome: Outcome) -> &Transition {
        self.take(vec![Fact::ApprovalDecided { path: path.into(), outcome: Box::new(outcome) }])
    }

    pub(crate) fn reply(&mut self, path: &str, attempt: i32, text: &str) -> &Transition {
        let reply = Reply { response: json!(text), ..Reply::default() };
        let at = self.clock;
        self.take(vec![Fact::CallFinished { path: path.into(), attempt, result: Ok(reply), at }])
    }

    pub(crate) fn fail(&mut self, path: &str, attempt: i32, retryable: bool, unknown: bool) -> &Transition {
        let failure = Failure {
            class: "Status".into(),
            message: "503".into(),
            retryable,
            unknown,
            not_before: None,
            facts: BTreeMap::from([("statusCode".into(), "503".into())]),
            log: None,
        };
        let at = self.clock;
        self.take(vec![Fact::CallFinished { path: path.into(), attempt, result: Err(failure), at }])
    }

    pub(crate) fn record(&self, path: &str) -> &StepRecord {
        self.journal.records().iter().rev().find(|r| r.path == path).unwrap_or_else(|| panic!("no record {path}"))
    }

    pub(crate) fn response(&self, path: &str) -> String {
        self.record(path).response.as_ref().and_then(|r| r.0.as_str()).unwrap_or_default().to_owned()
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.transition
            .commands
            .iter()
            .filter_map(|c| match c {
                Command::Call(call) => Some(format!("{}@{}", call.path, call.attempt)),
                Command::Ask(_) => None,
            })
            .collect()
    }

    pub(crate) fn prompt(&self) -> String {
        self.transition
            .commands
            .iter()
            .find_map(|c| match c {
                Command::Call(call) => match &call.content {
                    CallContent::Agent(agent) => agent.messages.last().map(|m| m.text.clone()),
                    CallContent::Http(http) => http.body.clone(),
                    CallContent::Pod(pod) => Some(pod.spec.image.clone()),
                    CallContent::Mcp(_) => None,
                },
                Command::Ask(_) => None,
            })
            .expect("a call")
    }

    /// Returns the paths of the open gates.
    pub(crate) fn open(&self) -> Vec<String> {
        let gates = |r: &&StepRecord| r.kind == signoff_api::journal::StepKind::Hitl && !r.phase.is_end();
        let open = self.journal.records().iter().filter(gates);
        open.map(|record| record.path.clone()).collect()
    }

    /// Returns the container that is to run at a path.
    pub(crate) fn container(&self, path: &str) -> &crate::transition::PodCall {
        let mut calls = self.transition.commands.iter().filter_map(|command| match command {
            Command::Call(call) if call.path == path => Some(&call.content),
            _ => None,
        });
        match calls.next_back() {
            Some(CallContent::Pod(pod)) => pod,
            other => panic!("no container at {path}: {other:?}"),
        }
    }

    /// Finishes a container with an exit code. A code other than 0 is a failure that can be retried.
    pub(crate) fn finish_container(
        &mut self,
        path: &str,
        attempt: i32,
        code: i32,
        message: &str,
        log: &str,
    ) -> &Transition {
        let facts = BTreeMap::from([("exitCode".to_owned(), code.to_string())]);
        let log = Some(log.to_owned());
        let result = if code == 0 {
            Ok(Reply { response: json!(message), facts, log, ..Reply::default() })
        } else {
            let (class, message) = ("ExitCode".to_owned(), format!("it ended with exit code {code}"));
            Err(Failure { class, message, retryable: true, unknown: false, not_before: None, facts, log })
        };
        let at = self.clock;
        self.take(vec![Fact::CallFinished { path: path.into(), attempt, result, at }])
    }

    /// Returns the Approval that this transition asks for at a path.
    pub(crate) fn asked(&self, path: &str) -> &Ask {
        let mut asks = self.transition.commands.iter().filter_map(|command| match command {
            Command::Ask(ask) => Some(&**ask),
            Command::Call(_) => None,
        });
        asks.rfind(|ask| ask.path == path).unwrap_or_else(|| panic!("nothing is asked at {path}"))
    }

    /// Returns the last prompt of the agent of a call.
    pub(crate) fn prompt_at(&self, path: &str) -> String {
        let mut calls = self.transition.commands.iter().filter_map(|command| match command {
            Command::Call(call) if call.path == path => Some(&call.content),
            _ => None,
        });
        match calls.next_back().unwrap_or_else(|| panic!("nothing is called at {path}: {:?}", self.calls())) {
            CallContent::Agent(agent) => agent.messages.last().unwrap().text.clone(),
            CallContent::Http(http) => http.body.clone().unwrap_or_default(),
            CallContent::Pod(pod) => pod.spec.image.clone(),
            CallContent::Mcp(_) => String::new(),
        }
    }

    /// Returns the conversation of the agent of a call: its input and its answers.
    pub(crate) fn conversation(&self, path: &str) -> Vec<String> {
        let mut calls = self.transition.commands.iter().filter_map(|command| match command {
            Command::Call(call) if call.path == path => Some(&call.content),
            _ => None,
        });
        match calls.next_back().unwrap_or_else(|| panic!("nothing is called at {path}: {:?}", self.calls())) {
            CallContent::Agent(agent) => agent.messages.iter().map(|message| message.text.clone()).collect(),
            CallContent::Http(_) | CallContent::Pod(_) | CallContent::Mcp(_) => Vec::new(),
        }
    }

    pub(crate) fn approve(&mut self, path: &str) -> &Transition {
        self.decide(path, decided(Verdict::Approve))
    }

    /// Decides a gate with Modify and parameters.
    pub(crate) fn modify(&mut self, path: &str, parameters: Value) -> &Transition {
        let parameters = Some(serde_json::from_value(parameters).unwrap());
        self.decide(path, Outcome { parameters, ..decided(Verdict::Modify) })
    }

    pub(crate) fn respond(&mut self, path: &str, text: &str) -> &Transition {
        self.decide(path, Outcome { response: Some(text.into()), ..decided(Verdict::Respond) })
    }

    pub(crate) fn defer(&mut self, path: &str, guidance: &str) -> &Transition {
        self.decide(path, Outcome { guidance: Some(guidance.into()), ..decided(Verdict::Defer) })
    }

    /// Returns the result of the run. Panics if the run has not succeeded.
    #[track_caller]
    pub(crate) fn expect_success(&self) -> &str {
        match &self.transition.end {
            Some(End::Succeeded(text)) => text,
            other => panic!("{other:?}, {:?} open, {:?} called", self.open(), self.calls()),
        }
    }

    #[track_caller]
    pub(crate) fn expect_failure(&self) -> &str {
        match &self.transition.end {
            Some(End::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn expect_rejection(&self) -> &str {
        match &self.transition.end {
            Some(End::Rejected(why)) => why,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a spec with these fields (`pattern`, `steps`, `gates`) and the scripted agents `a`, `b`, `router`, `judge`
/// and `boss`.
pub(crate) fn of_pattern(fields: Value) -> Value {
    let agents: Vec<_> = ["a", "b", "router", "judge", "boss"]
        .into_iter()
        .map(|name| json!({"name": name, "system": format!("you are {name}")}))
        .collect();
    let mut spec = json!({
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": agents, "inputs": [{"name": "topic", "value": "tea"}],
    });
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

/// Returns the step as one of a branch or route.
pub(crate) fn in_branch(branch: &str, mut step: Value) -> Value {
    step["branch"] = branch.into();
    step
}

/// Returns the plan of a spec.
pub(crate) fn plan_of(spec: Value) -> Plan {
    let plan = Plan::of(&workflow(spec.clone()), &Settings::default(), &std::sync::Arc::default());
    plan.unwrap_or_else(|why| panic!("{why:?}\n{spec:#}"))
}

/// Returns the errors of a spec.
pub(crate) fn errors(spec: Value) -> Vec<String> {
    match Plan::of(&workflow(spec), &Settings::default(), &std::sync::Arc::default()) {
        Ok(_) => Vec::new(),
        Err(found) => found.iter().map(ToString::to_string).collect(),
    }
}

/// Returns a step of an agent.
pub(crate) fn agent(name: &str, agent: &str, input: &str) -> Value {
    json!({"name": name, "agent": {"name": agent, "input": input}})
}

/// Returns a gate of a list.
pub(crate) fn hitl(name: &str, more: Value) -> Value {
    json!({"name": name, "hitl": gate(more)})
}

/// Returns a `set` step with this template.
pub(crate) fn set(name: &str, value: &str) -> Value {
    json!({"name": name, "set": {"value": value}})
}
