//! Random walks over all patterns with gates of a policy. In any order of Modify, Retry, Defer, Respond, failures,
//! edges and restarts, only calls run whose digest the policy's approvers approved for that attempt, and only what they
//! approved last is released.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::{
    ApprovalRequest, Moment, Outcome, Verdict,
    approval::ApprovalPhase,
    journal::{StepKind, StepPhase, StepRecord},
};

use super::{
    run_tests::{PolicyRun, gate},
    tests::cluster,
    *,
};
use crate::{
    Control, Fact, Now, advance,
    tests::any_pattern::spec,
    transition::{Command, Failure, Reply},
};

/// The maximum number of transitions of a walk.
const STEPS: usize = 80;

/// Adds gates to a spec of any pattern at which the author lets people change and repeat everything, and outputs with a
/// file.
fn add_hostile_gates(mut spec: Value) -> Value {
    spec["requestedBy"] = json!("dana");
    let author_gate = |type_: &str, verdicts: Value| json!({"name": type_.to_lowercase(), "type": type_, "hitl": gate(json!({"allowedVerdicts": verdicts}))});
    let gates = spec["gates"].as_array_mut().unwrap();
    for gate in gates.iter_mut().filter(|gate| gate["type"] == "errorEscalation") {
        gate["afterAttempts"] = json!(1);
        gate["hitl"]["allowedVerdicts"] = json!(["Retry", "Skip", "Modify", "Defer", "Respond"]);
    }
    let text = format!("{}{}", spec["pattern"], spec["steps"]);
    let gates = spec["gates"].as_array_mut().unwrap();
    if text.contains(r#""http":"#) {
        gates.push(author_gate("stepStart", json!(["Approve", "Modify", "Retry", "Skip"])));
    }
    if text.contains(r#""outputSchema":"#) {
        gates.push(author_gate("outputValidation", json!(["Approve", "Defer", "Retry", "Respond"])));
    }
    gates.retain(|gate| gate["type"] != "finalResponse");
    let final_verdicts = match text.contains(r#""agent":"#) {
        true => json!(["Approve", "Modify", "Respond", "Skip", "Retry", "Defer"]),
        false => json!(["Approve", "Modify", "Respond", "Skip"]),
    };
    gates.push(author_gate("finalResponse", final_verdicts));
    spec["outputs"] = json!({
        "from": "outputs: {{ last_response }}",
        "artifacts": [{"path": "a.txt", "from": "{{ last_response }}, {{ run.name }}"}],
    });
    spec
}

fn policies() -> Policies {
    let hitl = gate(json!({"allowedVerdicts": ["Approve", "Modify", "Retry", "Skip"]}));
    let end = gate(json!({"allowedVerdicts": ["Approve", "Retry"]}));
    cluster(&[(
        "prod",
        json!({"steps": [
            {"name": "release", "before": {"kinds": ["egress"]}, "hitl": hitl}, {"name": "end", "at": "End", "hitl": end},
        ]}),
    )])
}

/// A deterministic source of random numbers for one case.
struct Dice(u64);

impl Dice {
    /// Returns a random number below `below`.
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (below.max(1) as u64)).unwrap()
    }

    /// Returns a random decision that the request allows.
    fn choose_outcome(&mut self, request: &ApprovalRequest) -> Outcome {
        let verdict = request.allowed_verdicts[self.roll(request.allowed_verdicts.len())];
        let field = request.parameters.as_ref().and_then(|schemas| {
            let fields = schemas.0.get("Modify")?.get("properties")?.as_object()?;
            Some(fields.keys().nth(self.roll(fields.len()))?.clone())
        });
        let text = format!("https://other.org/{}", self.roll(3));
        let parameters = (verdict == Verdict::Modify)
            .then(|| serde_json::from_value(json!({field.unwrap_or_else(|| "response".into()): text})).unwrap());
        let text_if = |is_given: bool| is_given.then(|| format!("word {}", self.0 % 3));
        Outcome {
            verdict: Some(verdict),
            phase: ApprovalPhase::of(verdict),
            reason: text_if(self.0.is_multiple_of(2)),
            response: text_if(verdict == Verdict::Respond),
            guidance: text_if(verdict == Verdict::Defer),
            parameters,
            ..Outcome::default()
        }
    }

    /// Returns a random result of the call at `path`: a failure or an answer.
    fn end_call(&mut self, path: &str) -> Result<Reply, Box<Failure>> {
        if self.roll(3) == 0 {
            let (retryable, unknown) = (self.roll(2) == 0, self.roll(3) == 0);
            let (class, message) = ("Status".to_owned(), "no".to_owned());
            let status = [None, Some("200"), Some("502"), Some("503"), Some("504"), Some("503")][self.roll(6)];
            let facts = status.map(|status| ("statusCode".to_owned(), status.to_owned())).into_iter().collect();
            return Err(Box::new(Failure { class, message, retryable, unknown, not_before: None, facts, log: None }));
        }
        let text = match path.trim_start_matches('.').split(['#', '/', '-']).next().unwrap() {
            _ if self.roll(5) == 0 => "nonsense".to_owned(),
            "router" => r#"{"route": "b1"}"#.to_owned(),
            "evaluator" => format!("{{\"score\": {}}}", 60 + 10 * self.roll(4)),
            "orchestrator" => r#"[{"task": "one"}, {"task": "two"}]"#.to_owned(),
            _ => r#"{"ok": true}"#.to_owned(),
        };
        Ok(Reply { response: json!(text), ..Reply::default() })
    }

    /// Returns random ends of about half of the open records.
    fn end_records(
        &mut self,
        open: &[StepRecord],
        requests: &BTreeMap<String, ApprovalRequest>,
        at: Moment,
    ) -> Vec<Fact> {
        let mut facts = Vec::new();
        for record in open {
            if self.roll(2) == 0 {
                continue;
            }
            let (path, attempt) = (record.path.clone(), record.attempt);
            facts.push(match (record.kind, self.roll(12)) {
                (StepKind::Hitl, 0) => Fact::ApprovalMissing { path },
                (StepKind::Hitl, _) => {
                    let outcome = Box::new(self.choose_outcome(&requests[&path]));
                    Fact::ApprovalDecided { path, outcome }
                }
                (_, 0) => Fact::CallLost { path, attempt },
                _ => {
                    let result = self.end_call(&path).map_err(|failure| *failure);
                    Fact::CallFinished { path, attempt, result, at }
                }
            });
        }
        facts
    }
}

/// Returns a path without the number of its last visit.
fn without_visit(path: &str) -> &str {
    match path.rsplit_once('#') {
        Some((first_path, visit)) if !visit.contains('/') => first_path,
        _ => path,
    }
}

/// Returns the path of the step of a call. A repeated request for an answer belongs to the step that it repeats.
fn step_of_call(path: &str) -> &str {
    without_visit(path.split_once("/.ask").map_or(path, |(owner, _)| owner))
}

/// Returns the path of the policy's gate before the call at `path`.
fn gate_path_of(path: &str) -> String {
    let owner = step_of_call(path);
    if owner.starts_with(".worker-") {
        return format!("{owner}/release-worker");
    }
    match owner.rsplit_once('/') {
        Some((list, name)) => format!("{list}/release-{name}"),
        None => format!("release-{}", owner.trim_start_matches('.')),
    }
}

/// Returns the reason why a call runs without the approval of the policy's people, or `None`.
fn find_violation(records: &[StepRecord], call: &StepRecord) -> Option<String> {
    let gate = gate_path_of(&call.path);
    let approvals = records.iter().filter(|r| r.kind == StepKind::Hitl && without_visit(&r.path) == gate);
    let decided = approvals.filter(|r| r.done.is_some_and(|done| done < call.seq) && r.decision.is_some());
    let Some(newest) = decided.max_by_key(|r| r.done) else { return Some(format!("{gate} was never decided")) };
    if newest.decision.as_ref().and_then(|d| d.verdict) != Some(Verdict::Approve) {
        return Some(format!("{} is {:?}", newest.path, newest.decision));
    }
    if newest.input_digest != call.input_digest || call.input_digest.is_none() {
        return Some(format!("{} approved {:?}, and {:?} runs", newest.path, newest.input_digest, call.input_digest));
    }
    let is_since_approval = |r: &&StepRecord| r.seq > newest.seq && r.seq < call.seq;
    let is_call = |r: &&StepRecord| matches!(r.kind, StepKind::Agent | StepKind::Http);
    for other in records.iter().filter(is_since_approval).filter(is_call).filter(|r| gate_path_of(&r.path) == gate) {
        let is_known_failure = other.phase == StepPhase::Failed
            && other.facts.get("statusCode").is_some_and(|status| status == "503")
            && other.error.as_ref().is_some_and(|e| e.retryable);
        if other.path != call.path || !is_known_failure {
            return Some(format!("the approval {} was used by {}@{}", newest.path, other.path, other.attempt));
        }
    }
    let order_paths = [format!("{}/.error", step_of_call(&call.path)), format!("{}/.output", step_of_call(&call.path))];
    let is_order = |r: &StepRecord| order_paths.iter().any(|order| without_visit(&r.path).ends_with(order.as_str()));
    let order = records.iter().filter(is_since_approval).find(|r| is_order(r));
    order.map(|order| format!("{} ordered it after {}", order.path, newest.path))
}

/// Returns the reason why the run released something that the policy's people did not approve, or `None`.
fn find_violation_at_end(transition: &crate::Transition) -> Option<String> {
    let Some(crate::End::Succeeded(outputs)) = &transition.end else { return None };
    let records = transition.journal.records();
    let gates = records.iter().filter(|r| without_visit(&r.path) == "end" && r.decision.is_some());
    let Some(newest) = gates.max_by_key(|r| r.done) else { return Some("nobody was asked at the end".to_owned()) };
    if newest.decision.as_ref().and_then(|d| d.verdict) != Some(Verdict::Approve) {
        return Some(format!("{} is {:?}", newest.path, newest.decision));
    }
    let released = signoff_api::Digest::of(&json!({"outputs": outputs, "artifacts": transition.artifacts})).unwrap();
    if newest.input_digest.as_ref() != Some(&released) {
        return Some(format!("{} approved {:?}, and {released} is released", newest.path, newest.input_digest));
    }
    let later = records.iter().find(|r| r.seq > newest.seq);
    later.map(|later| format!("{} follows {}", later.path, newest.path))
}

/// Runs a spec with random decisions, answers and failures. Returns the number of calls, or the first violation.
fn walk(spec: Value, seed: u64) -> Result<usize, String> {
    let policies = policies();
    let mut run = PolicyRun::of(&policies, add_hostile_gates(spec));
    let mut dice = Dice(seed);
    let mut requests: BTreeMap<String, ApprovalRequest> = BTreeMap::new();
    let (mut at, mut calls) = (run_tests::moment(), 0);
    for _ in 0..STEPS {
        for command in &run.transition.commands {
            match command {
                Command::Ask(ask) => drop(requests.insert(ask.path.clone(), ask.request.clone())),
                Command::Call(call) => {
                    calls += 1;
                    let records: Vec<StepRecord> = run.transition.journal.records().iter().cloned().collect();
                    let record = run.transition.journal.get(&call.path, call.attempt).unwrap();
                    if let Some(why) = find_violation(&records, record) {
                        return Err(format!("{}@{}: {why}\n{records:#?}", call.path, call.attempt));
                    }
                }
            }
        }
        if run.transition.end.is_some() {
            let records = run.transition.journal.records();
            return find_violation_at_end(&run.transition).map_or(Ok(calls), |why| Err(format!("{why}\n{records:#?}")));
        }
        let open: Vec<_> = run.journal.records().iter().filter(|r| !r.phase.is_end()).cloned().collect();
        let facts = dice.end_records(&open, &requests, at);
        at = at.after(std::time::Duration::from_secs(600));
        let now = Now::new(at, "epoch");
        let plan = run_tests::plan(&run.workflow, &policies);
        run.transition = advance(&plan, Control::default(), run.journal.clone(), facts, &run.blobs, &now);
        // A crash between the transition and its commit: nothing is stored.
        if dice.roll(6) > 0 {
            run.commit();
        } else {
            run.transition = advance(&plan, Control::default(), run.journal.clone(), Vec::new(), &run.blobs, &now);
            run.commit();
        }
    }
    Ok(calls)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn only_calls_that_the_policys_approvers_approved_run_in_any_order(spec in spec(), seed in 1_u64..) {
        println!("tried: 1 property cases");
        let walked = walk(spec, seed);
        prop_assert!(walked.is_ok(), "{}", walked.unwrap_err());
    }
}

#[test]
fn a_walk_makes_calls() {
    let step = json!({"name": "s0", "http": {"method": "POST", "url": "http://x/"}, "onError": "escalate"});
    let spec = || {
        let mut spec = crate::tests::test_run::of_pattern(json!({"steps": [step, agent_step("s1")]}));
        let escalation = gate(json!({"allowedVerdicts": ["Retry"]}));
        spec["gates"] = json!([{"name": "help", "type": "errorEscalation", "hitl": escalation}]);
        spec
    };
    let calls: usize = (1..40).map(|seed| walk(spec(), seed * 7919).unwrap()).sum();
    assert!(calls > 60, "{calls} calls in all walks");
}

fn agent_step(name: &str) -> Value {
    json!({"name": name, "agent": {"name": "a", "input": "x"}, "retry": {"limit": 2, "backoff": {"base": "1ms", "jitter": 0}}})
}
