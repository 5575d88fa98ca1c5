//! Tests of runs under approval policies: added gates, held gates, and policies that change during a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::{
    ApprovalRequest, Moment, Outcome, Verdict, Workflow,
    approval::ApprovalPhase,
    journal::{StepPhase, StepRecord},
};

use super::{
    calls_tests::{GATE, run_with_calls, spec},
    tests::cluster,
    *,
};
use crate::{
    Control, Fact, Journal, Now, Plan, Settings, Transition, advance,
    transition::{Blobs, Call, Command, Reply},
};

/// A run whose plan is rebuilt before every transition, as after a restart.
pub(super) struct PolicyRun {
    pub(super) workflow: Workflow,
    pub(super) journal: Journal,
    pub(super) blobs: Blobs,
    pub(super) transition: Transition,
}

impl PolicyRun {
    pub(super) fn start(policies: &Policies, steps: Value) -> Self {
        Self::of(policies, json!({"requestedBy": "dana", "steps": steps}))
    }

    pub(super) fn of(policies: &Policies, spec: Value) -> Self {
        let mut workflow: Workflow = serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "w", "namespace": "n", "uid": "00000000-0000-0000-0000-000000000001"}, "spec": spec,
        }))
        .unwrap();
        let plan = plan(&workflow, policies);
        workflow.status = Some(signoff_api::WorkflowStatus {
            spec_digest: Some(plan.spec_digest().clone()),
            added_steps: plan.added_steps().to_vec(),
            ..Default::default()
        });
        let transition = transition(&plan, Journal::default(), Vec::new(), &Blobs::new());
        let mut run = Self { workflow, journal: Journal::default(), blobs: Blobs::new(), transition };
        run.commit();
        run
    }

    /// Stores the result of the transition through JSON, as the API server does.
    pub(super) fn commit(&mut self) {
        self.blobs.extend(self.transition.blobs.iter().cloned());
        let records: Vec<StepRecord> =
            serde_json::from_value(serde_json::to_value(self.transition.journal.records()).unwrap()).unwrap();
        self.journal = Journal::new(self.transition.journal.seq(), records);
    }

    pub(super) fn take(&mut self, policies: &Policies, facts: Vec<Fact>) {
        self.transition = transition(&plan(&self.workflow, policies), self.journal.clone(), facts, &self.blobs);
        self.commit();
    }

    pub(super) fn decide(&mut self, policies: &Policies, path: &str, verdict: Verdict) {
        let outcome = Outcome {
            verdict: Some(verdict),
            phase: ApprovalPhase::of(verdict),
            guidance: (verdict == Verdict::Defer).then(|| "again".to_owned()),
            ..Outcome::default()
        };
        self.take(policies, vec![Fact::ApprovalDecided { path: path.into(), outcome: Box::new(outcome) }]);
    }

    pub(super) fn reply(&mut self, policies: &Policies, path: &str, text: &str) {
        let result = Ok(Reply { response: json!(text), ..Reply::default() });
        self.take(policies, vec![Fact::CallFinished { path: path.into(), attempt: 1, result, at: moment() }]);
    }

    /// Returns the requests that the transition asks for.
    pub(super) fn asks(&self) -> Vec<&ApprovalRequest> {
        let asks = self.transition.commands.iter().filter_map(|c| match c {
            Command::Ask(ask) => Some(&ask.request),
            Command::Call(_) => None,
        });
        asks.collect()
    }

    pub(super) fn calls(&self) -> Vec<&Call> {
        let calls = self.transition.commands.iter().filter_map(|c| match c {
            Command::Call(call) => Some(&**call),
            Command::Ask(_) => None,
        });
        calls.collect()
    }

    /// Returns the only request of the transition, which is at `path`.
    #[track_caller]
    pub(super) fn asked(&self, path: &str) -> &ApprovalRequest {
        let asks = self.asks();
        let [ask] = asks.as_slice() else {
            panic!("{path} is not what is asked: {:?}", asks.iter().map(|a| &a.gate.path).collect::<Vec<_>>())
        };
        assert_eq!(ask.gate.path, path);
        ask
    }

    pub(super) fn record(&self, path: &str) -> &StepRecord {
        self.journal.get(path, 1).unwrap_or_else(|| panic!("no record {path}"))
    }
}

pub(super) fn moment() -> Moment {
    Moment::from(jiff::Timestamp::from_second(1_800_000_000).unwrap())
}

pub(super) fn plan(workflow: &Workflow, policies: &Policies) -> Plan {
    Plan::of(workflow, &Settings::default(), &Arc::new(policies.clone())).unwrap_or_else(|why| panic!("{why:?}"))
}

pub(super) fn transition(plan: &Plan, journal: Journal, facts: Vec<Fact>, blobs: &Blobs) -> Transition {
    let now = Now::new(moment(), "epoch");
    advance(plan, Control::default(), journal, facts, blobs, &now)
}

pub(super) fn gate(more: Value) -> Value {
    let mut hitl = json!({"prompt": "go?", "approvers": [{"kind": "Group", "name": "finance"}]});
    for (key, value) in more.as_object().unwrap() {
        hitl[key] = value.clone();
    }
    hitl
}

/// Returns a policy that adds the gate `check` at `place`.
pub(super) fn policy_adding_gate(place: Value) -> Policies {
    let mut step = json!({"name": "check", "hitl": gate(json!({}))});
    for (key, value) in place.as_object().unwrap() {
        step[key] = value.clone();
    }
    cluster(&[("prod", json!({"steps": [step]}))])
}

pub(super) fn no_policies() -> Policies {
    Policies::default()
}

#[test]
fn gates_at_start_and_end_are_invisible_to_templates_of_the_author() {
    let hitl = gate(json!({}));
    let policies = cluster(&[(
        "prod",
        json!({"steps": [
        {"name": "last", "at": "End", "hitl": hitl}, {"name": "first", "at": "Start", "hitl": hitl}]}),
    )]);
    let mut run = PolicyRun::start(
        &policies,
        json!([
            {"name": "own", "hitl": gate(json!({}))},
            {"name": "say", "set": {"value": "{{ hitl_response }} {{ steps[0].name }} {{ steps | length }}"}},
        ]),
    );
    let rules = &run.asked("first").required_by;
    assert_eq!(rules[0].source, "ClusterApprovalPolicy prod");
    assert_eq!(rules[0].rules, ["this gate is added to every run"]);
    run.decide(&policies, "first", Verdict::Skip);
    run.asked("own");
    run.decide(&policies, "own", Verdict::Approve);
    assert_eq!(run.record("say").response.as_ref().unwrap().0, json!("approved own 1"));
    run.asked("last");
    run.decide(&policies, "last", Verdict::Approve);
    assert_eq!(run.transition.end, Some(crate::End::Succeeded("approved own 1".into())), "the output is the author's");
}

#[test]
fn a_gate_before_a_call_shows_the_call_and_holds_it_until_approved() {
    let policies = policy_adding_gate(json!({"before": {"kinds": ["http"]}}));
    let mut run = PolicyRun::start(
        &policies,
        json!([{"name": "pay", "http": {"method": "POST", "url": "https://a.org/{{ run.name }}"}}]),
    );
    let context = run.asked("check-pay").context.clone().unwrap();
    assert!(context.contains("https://a.org/{{ run.name }}") && context.contains("POST"), "{context}");
    assert!(run.calls().is_empty());
    run.decide(&policies, "check-pay", Verdict::Approve);
    assert_eq!(run.calls()[0].path, "pay");
}

#[test]
fn each_agent_and_worker_of_a_pattern_has_its_own_gate() {
    let policies = policy_adding_gate(json!({"before": {"kinds": ["agent"]}}));
    let mut run = PolicyRun::of(
        &policies,
        json!({
            "requestedBy": "dana",
            "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}], "agents": [{"name": "writer"}],
            "pattern": {"orchestratorWorkers":
                {"orchestrator": {"agent": "writer", "input": "x"}, "worker": {"agent": "writer"}}},
        }),
    );
    run.asked("check-orchestrator");
    assert!(run.calls().is_empty());
    run.decide(&policies, "check-orchestrator", Verdict::Approve);
    run.reply(&policies, ".orchestrator", r#"[{"task": "a"}, {"task": "b"}]"#);
    assert!(run.calls().is_empty());
    assert_eq!(run.asks().len(), 2);
    run.decide(&policies, ".worker-1/check-worker", Verdict::Approve);
    assert_eq!(run.calls().iter().map(|call| call.path.as_str()).collect::<Vec<_>>(), [".worker-1"]);
}

#[test]
fn an_added_gate_that_is_refused_ends_the_run() {
    let policies = policy_adding_gate(json!({"before": {"kinds": ["http"]}}));
    let mut run = PolicyRun::start(&policies, json!([{"name": "pay", "http": {"url": "https://a.org/"}}]));
    run.decide(&policies, "check-pay", Verdict::Reject);
    assert!(matches!(run.transition.end, Some(crate::End::Rejected(_))));
}

#[test]
fn a_repeated_call_asks_its_gate_again() {
    let policies = policy_adding_gate(json!({"before": {"kinds": ["http"]}}));
    let author = gate(json!({"allowedVerdicts": ["Approve", "Defer", "Reject"]}));
    let mut run = PolicyRun::start(
        &policies,
        json!([{"name": "pay", "http": {"method": "PUT", "url": "https://a.org/"}}, {"name": "own", "hitl": author}]),
    );
    run.decide(&policies, "check-pay", Verdict::Approve);
    run.reply(&policies, "pay", "paid");
    run.decide(&policies, "own", Verdict::Defer);
    run.asked("check-pay#2");
    assert!(run.calls().is_empty(), "a decision of the author's own people lets no second call through");
    run.decide(&policies, "check-pay#2", Verdict::Approve);
    assert_eq!(run.calls()[0].path, "pay#2");
}

#[test]
fn added_gates_do_not_change_during_a_run() {
    let policies = policy_adding_gate(json!({"at": "End"}));
    let steps = json!([{"name": "own", "hitl": gate(json!({}))}]);
    let mut with = PolicyRun::start(&policies, steps.clone());
    with.decide(&no_policies(), "own", Verdict::Approve);
    with.asked("check");
    let mut without = PolicyRun::start(&no_policies(), steps);
    without.decide(&policies, "own", Verdict::Approve);
    assert!(matches!(without.transition.end, Some(crate::End::Succeeded(_))), "{:?}", without.transition.end);
}

#[test]
fn a_changed_policy_applies_only_to_later_requests() {
    let strict = cluster(&[("prod", json!({"gates": {"minThreshold": 2}}))]);
    let steps = json!([{"name": "one", "hitl": gate(json!({}))}, {"name": "two", "hitl": gate(json!({}))}]);
    let mut run = PolicyRun::start(&no_policies(), steps);
    let digest = run.asked("one").digest.clone();
    run.take(&strict, Vec::new());
    assert!(run.asks().is_empty(), "what is pending is not asked again");
    assert_eq!(run.record("one").request.as_ref().unwrap().digest, digest);
    run.decide(&strict, "one", Verdict::Approve);
    let two = run.asked("two");
    assert_eq!((two.threshold(), two.required_by.len()), (2, 1));
    assert_eq!(two.digest_of_the_rest().unwrap(), two.digest);
}

#[test]
fn a_missing_approval_is_created_again_or_superseded() {
    let strict = cluster(&[("prod", json!({"gates": {"minThreshold": 2}}))]);
    let steps = json!([{"name": "one", "hitl": gate(json!({}))}]);
    let gone = || vec![Fact::ApprovalMissing { path: "one".into() }];
    let mut run = PolicyRun::start(&strict, steps);
    let digest = run.asked("one").digest.clone();
    run.take(&strict, gone());
    assert_eq!(run.asked("one").digest, digest, "nothing has changed");
    run.take(&no_policies(), gone());
    assert_eq!(run.asked("one#2").threshold(), 1);
    let before = run.record("one");
    assert_eq!(before.phase, StepPhase::Skipped);
    assert_eq!(before.decision.as_ref().unwrap().phase, ApprovalPhase::Superseded);
}

#[test]
fn a_gate_in_conflict_with_policies_is_held_until_they_are_corrected() {
    let impossible = cluster(&[("prod", json!({"gates": {"requiredFrom": [{"group": "legal", "min": 1}]}}))]);
    let steps = json!([{"name": "one", "hitl": gate(json!({}))}, {"name": "two", "hitl": gate(json!({}))}]);
    let mut run = PolicyRun::start(&no_policies(), steps);
    run.take(&impossible, Vec::new());
    assert!(run.transition.blocked.is_empty(), "what is pending is decided as it was asked");
    run.decide(&impossible, "one", Verdict::Approve);
    assert!(run.asks().is_empty() && run.transition.end.is_none());
    let [why] = run.transition.blocked.as_slice() else { panic!("{:?}", run.transition.blocked) };
    assert_eq!(why.reason, "PolicyConflict");
    assert!(why.message.contains("ClusterApprovalPolicy prod requires 1 person of group legal"), "{why}");
    assert!(run.journal.get("two", 1).is_none(), "nothing has begun");
    run.take(&no_policies(), Vec::new());
    run.asked("two");
    assert!(run.transition.blocked.is_empty());
}

#[test]
fn a_call_to_a_forbidden_host_fails_without_retries() {
    let policies = cluster(&[("prod", json!({"allowedHosts": ["a.org"]}))]);
    let steps = json!([
        {"name": "where", "set": {"value": "https://a.org@evil.org"}},
        {"name": "pay", "http": {"url": "{{ last_response }}/"}, "retry": {"limit": 3}},
    ]);
    let run = PolicyRun::start(&policies, steps);
    let error = run.record("pay").error.clone().unwrap();
    assert_eq!((error.class.as_str(), error.retryable), ("NotAllowed", false));
    assert!(error.message.contains("evil.org is not allowed by ClusterApprovalPolicy prod"), "{}", error.message);
    assert!(matches!(run.transition.end, Some(crate::End::Failed(_))));
}

#[test]
fn a_container_with_a_forbidden_secret_is_refused_in_plan_and_run() {
    let policies = cluster(&[("prod", json!({"allowedSecrets": ["models-*"]}))]);
    let env = json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "root", "key": "k"}}}]);
    let steps = json!([{"name": "own", "hitl": gate(json!({}))}, {"name": "work", "pod": {"image": "x", "env": env}}]);
    let mut run = PolicyRun::start(&no_policies(), steps);
    let mut fresh = run.workflow.clone();
    fresh.status = None;
    let errors = Plan::of(&fresh, &Settings::default(), &Arc::new(policies.clone())).unwrap_err();
    assert_eq!((errors[0].reason, errors[0].field.as_str()), ("NotAllowed", "spec.steps[1].pod"));
    run.decide(&policies, "own", Verdict::Approve);
    assert_eq!(run.record("work").error.as_ref().unwrap().class, "NotAllowed");
}

#[test]
fn a_call_is_checked_by_the_policies_in_force_when_it_is_sent() {
    let narrow = cluster(&[("prod", json!({"allowedHosts": []}))]);
    let steps = json!([{"name": "own", "hitl": gate(json!({}))}, {"name": "pay", "http": {"url": "https://a.org/"}}]);
    let mut run = PolicyRun::start(&no_policies(), steps);
    run.decide(&narrow, "own", Verdict::Approve);
    assert_eq!(run.record("pay").error.as_ref().unwrap().class, "NotAllowed");
}

#[test]
fn a_new_policy_does_not_affect_a_call_in_flight() {
    let narrow = cluster(&[("prod", json!({"allowedHosts": []}))]);
    let mut run =
        PolicyRun::start(&no_policies(), json!([{"name": "pay", "http": {"method": "POST", "url": "https://a.org/"}}]));
    run.take(&narrow, Vec::new());
    assert_eq!(run.calls().len(), 1, "whether it may be sent again is asked when it is sent");
    assert!(plan(&run.workflow, &narrow).refuses(run.calls()[0]).is_some());
    run.reply(&narrow, "pay", "paid");
    assert_eq!(run.transition.end, Some(crate::End::Succeeded("paid".into())));
}

#[test]
fn a_policy_with_the_longest_name_has_requests_that_the_api_server_stores() {
    let name = "p".repeat(253);
    let steps = json!([{"name": "g".repeat(63), "before": {"kinds": ["tool"]}, "hitl": gate(json!({}))}]);
    let deciders = json!({"deciders": {"approvers": [{"kind": "Group", "name": "finance"}]}});
    let policies = cluster(&[(&name, json!({"steps": steps, "gates": deciders}))]);
    let run = run_with_calls(&policies, spec([None; 3], json!([])), &["refund"]);
    let request = serde_json::to_value(run.asked(GATE)).unwrap();
    assert!(request["action"]["gates"][0]["source"].as_str().unwrap().ends_with(&name));
    let schema = signoff_api::crds::declared_schema("Approval")["properties"]["spec"]["properties"]["request"].clone();
    let problems: Vec<_> =
        jsonschema::validator_for(&schema).unwrap().iter_errors(&request).map(|one| one.to_string()).collect();
    assert_eq!(problems, [""; 0]);
    let added = serde_json::to_value(policies.added_steps()).unwrap();
    let schema =
        signoff_api::crds::declared_schema("Workflow")["properties"]["status"]["properties"]["addedSteps"].clone();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&added), "{added}");
}
