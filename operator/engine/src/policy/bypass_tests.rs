//! Tests with attempts of an author to run something that the policy's approvers did not approve, each with a valid
//! counterpart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict, approval::ApprovalPhase};

use super::{
    run_tests::{PolicyRun, gate, moment},
    tests::cluster,
    *,
};
use crate::{
    Fact,
    transition::{Call, CallContent, Failure},
};

/// Returns a policy with a gate `release` before steps of the kinds `kinds`, which allows every verdict.
fn release_policy(kinds: Value) -> Policies {
    let hitl = gate(json!({"allowedVerdicts": ["Approve", "Reject", "Modify", "Skip", "Retry"]}));
    cluster(&[("prod", json!({"steps": [{"name": "release", "before": {"kinds": kinds}, "hitl": hitl}]}))])
}

/// Returns a spec with one POST, the step `pay`, and the author's own gates. `step`: further fields of the step.
fn post_chain(step: Value, gates: Value) -> Value {
    let mut pay = json!({"name": "pay", "http": {"method": "POST", "url": "https://a.org/pay", "body": "420"}});
    for (field, value) in step.as_object().unwrap() {
        pay[field] = value.clone();
    }
    json!({"requestedBy": "dana", "steps": [pay], "gates": gates})
}

/// Returns one gate of the author of this type about the step `pay`, in a list.
pub(super) fn own_gates(type_: &str) -> Value {
    let verdicts = match type_ {
        "errorEscalation" => json!(["Retry", "Modify", "Defer", "Respond", "Skip", "Reject"]),
        "outputValidation" => json!(["Approve", "Retry", "Defer", "Reject"]),
        _ => json!(["Approve", "Modify", "Reject"]),
    };
    let hitl = gate(json!({"allowedVerdicts": verdicts}));
    let mut gate = json!({"name": "own", "type": type_, "hitl": hitl});
    if type_ != "finalResponse" {
        gate["steps"] = json!(["pay"]);
    }
    if type_ == "errorEscalation" {
        gate["afterAttempts"] = json!(1);
    }
    json!([gate])
}

/// Returns a spec with one step of an agent, `pay`, and the author's own gates. `step`: further fields of the step.
pub(super) fn agent_chain(step: Value, gates: Value) -> Value {
    let mut write = json!({"name": "pay", "agent": {"name": "writer", "input": "write"}});
    for (field, value) in step.as_object().unwrap() {
        write[field] = value.clone();
    }
    json!({
        "requestedBy": "dana", "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}],
        "agents": [{"name": "writer"}], "steps": [write], "gates": gates,
    })
}

#[test]
fn an_attempt_after_an_unknown_failure_needs_another_approval() {
    let step = json!({"http": {"method": "PUT", "url": "https://a.org/", "expect": {"status": [299]}}, "retry": {"limit": 20}});
    let unknown = ("outcomeUnknown", "true");
    for (status, unknown_fact, is_certain) in [
        ("200", None, false),
        ("302", None, false),
        ("502", None, false),
        ("504", None, false),
        ("503", Some(unknown), false),
        ("524", Some(unknown), false),
        ("503", None, true),
        ("429", None, true),
    ] {
        let policies = release_policy(json!(["http"]));
        let mut run = PolicyRun::of(&policies, post_chain(step.clone(), json!([])));
        run.decide(&policies, "release-pay", Verdict::Approve);
        // The status makes the outcome unknown, and not the flag of the failure, which is false.
        let facts: Vec<_> = [("statusCode", status)].into_iter().chain(unknown_fact).collect();
        run.fail_with(&policies, 1, (true, false), &facts);
        let asked = run.journal.records().iter().any(|record| record.path == "release-pay#2");
        assert_eq!(asked, !is_certain, "after {status}");
    }
}

pub(super) fn modify_outcome(parameters: Value) -> Outcome {
    let parameters = Some(serde_json::from_value(parameters).unwrap());
    let (verdict, phase) = (Some(Verdict::Modify), ApprovalPhase::of(Verdict::Modify));
    Outcome { verdict, phase, parameters, ..Outcome::default() }
}

impl PolicyRun {
    pub(super) fn decide_with(&mut self, policies: &Policies, path: &str, outcome: Outcome) {
        self.take(policies, vec![Fact::ApprovalDecided { path: path.into(), outcome: Box::new(outcome) }]);
    }

    fn fail(&mut self, policies: &Policies, attempt: i32, retryable: bool, unknown: bool) {
        self.fail_with(policies, attempt, (retryable, unknown), &[("statusCode", "503")]);
    }

    /// Fails an attempt of the call `pay`. `how`: whether a retry is allowed, and whether the outcome is unknown.
    fn fail_with(&mut self, policies: &Policies, attempt: i32, how: (bool, bool), facts: &[(&str, &str)]) {
        let (retryable, unknown) = how;
        let failure = Failure {
            class: "Status".into(),
            message: "503".into(),
            retryable,
            unknown,
            not_before: None,
            facts: facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            log: None,
        };
        let (path, at) = ("pay".to_owned(), moment().after(std::time::Duration::from_secs(600)));
        self.take(policies, vec![Fact::CallFinished { path, attempt, result: Err(failure), at }]);
    }

    /// Checks that the request at `path` shows `words`, and that no call runs.
    #[track_caller]
    pub(super) fn assert_shows(&self, path: &str, words: &str) {
        let review = self.asked(path).reviews.clone().expect("something is shown");
        let unfolded = review.response.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_shown = review.response.contains(words) || unfolded.contains(words);
        assert!(is_shown, "{words} is not in {}", review.response);
        assert!(self.calls().is_empty(), "nothing runs before it is approved");
    }

    /// Checks that people changed the content of the request at `path` at exactly the gates `gates`.
    #[track_caller]
    fn assert_edited_at(&self, path: &str, gates: &[&str]) {
        let by = self.asked(path).reviews.clone().unwrap().by;
        assert_eq!(by.iter().map(|edit| edit.path.as_str()).collect::<Vec<_>>(), gates);
    }

    /// Returns the only call of the transition, which has the input that the gate at `path` approved.
    #[track_caller]
    fn approved_call(&self, path: &str) -> &Call {
        let calls = self.calls();
        let [call] = calls.as_slice() else { panic!("{} calls, asked: {:?}", calls.len(), self.asks()) };
        let record = self.journal.get(&call.path, call.attempt).unwrap();
        assert!(record.input_digest.is_some());
        assert_eq!(record.input_digest, self.record(path).input_digest, "what runs is what was approved at {path}");
        call
    }
}

fn url(call: &Call) -> &str {
    match &call.content {
        CallContent::Http(http) => &http.url,
        _ => panic!("no request"),
    }
}

#[test]
fn a_modify_at_the_authors_start_gate_is_shown_to_the_policys_people() {
    let policies = release_policy(json!(["http"]));
    let mut run = PolicyRun::of(&policies, post_chain(json!({}), own_gates("stepStart")));
    run.asked("pay/.start");
    run.decide_with(&policies, "pay/.start", modify_outcome(json!({"url": "https://evil.org/"})));
    run.assert_shows("release-pay", "https://evil.org/");
    run.assert_edited_at("release-pay", &["pay/.start"]);
    run.decide(&policies, "release-pay", Verdict::Approve);
    assert_eq!(url(run.approved_call("release-pay")), "https://evil.org/");

    let mut honest = PolicyRun::of(&policies, post_chain(json!({}), own_gates("stepStart")));
    honest.decide(&policies, "pay/.start", Verdict::Approve);
    honest.assert_shows("release-pay", "https://a.org/pay");
    honest.assert_edited_at("release-pay", &[]);
    honest.decide(&policies, "release-pay", Verdict::Approve);
    honest.approved_call("release-pay");
    honest.approved_call("pay/.start");
}

#[test]
fn a_modify_at_the_authors_error_gate_is_approved_again() {
    let policies = release_policy(json!(["http"]));
    let mut run = PolicyRun::of(&policies, post_chain(json!({}), own_gates("errorEscalation")));
    run.decide(&policies, "release-pay", Verdict::Approve);
    run.approved_call("release-pay");
    run.fail(&policies, 1, false, false);
    run.decide_with(&policies, "pay/.error", modify_outcome(json!({"body": "42000"})));
    run.assert_shows("release-pay#2", "42000");
    run.assert_edited_at("release-pay#2", &["pay/.error"]);
    run.decide(&policies, "release-pay#2", Verdict::Reject);
    assert!(matches!(run.transition.end, Some(crate::End::Rejected(_))));
}

#[test]
fn every_attempt_that_another_gate_ordered_is_approved_again() {
    let policies = release_policy(json!(["http"]));
    for verdict in [Verdict::Retry, Verdict::Defer, Verdict::Respond] {
        let mut run = PolicyRun::of(&policies, post_chain(json!({}), own_gates("errorEscalation")));
        run.decide(&policies, "release-pay", Verdict::Approve);
        for attempt in 1..=3 {
            run.fail(&policies, attempt, false, false);
            let visit = if attempt == 1 { String::new() } else { format!("#{attempt}") };
            run.decide(&policies, &format!("pay/.error{visit}"), verdict);
            let again = format!("release-pay#{}", attempt + 1);
            run.assert_shows(&again, "https://a.org/pay");
            run.decide(&policies, &again, Verdict::Approve);
            run.approved_call(&again);
        }
    }
}

#[test]
fn a_retry_by_a_timeout_asks_people_whose_retry_is_approved_again() {
    let policies = release_policy(json!(["http"]));
    let mut run = PolicyRun::of(&policies, post_chain(json!({}), own_gates("errorEscalation")));
    run.decide(&policies, "release-pay", Verdict::Approve);
    run.fail(&policies, 1, false, true);
    let outcome = Outcome {
        verdict: Some(Verdict::Retry),
        phase: ApprovalPhase::Expired,
        source: signoff_api::approval::Source::Timeout,
        ..Outcome::default()
    };
    run.decide_with(&policies, "pay/.error", outcome);
    run.decide(&policies, "pay/.error#2", Verdict::Retry);
    run.assert_shows("release-pay#2", "attempts: 1\n");
}

#[test]
fn shown_attempts_need_no_second_approval_after_a_known_failure() {
    let policies = release_policy(json!(["http"]));
    let step = json!({"http": {"url": "https://a.org/"}, "retry": {"limit": 2, "backoff": {"base": "1ms"}}});
    let mut run = PolicyRun::of(&policies, post_chain(step, json!([])));
    run.assert_shows("release-pay", "attempts: 3 # at most");
    run.decide(&policies, "release-pay", Verdict::Approve);
    run.fail(&policies, 1, true, false);
    let (pause, now) = (run.transition.wake_at.unwrap(), moment());
    assert!(pause > now);
    let later = crate::Now::new(pause, "epoch");
    let plan = run_tests::plan(&run.workflow, &policies);
    run.transition =
        crate::advance(&plan, crate::Control::default(), run.journal.clone(), Vec::new(), &run.blobs, &later);
    run.commit();
    let call = run.approved_call("release-pay");
    assert_eq!(call.attempt, 2);
}

#[test]
fn the_method_decides_about_repetition_after_a_policys_gate() {
    let says = json!({"http": {"method": "POST", "url": "https://a.org/", "idempotent": true}, "retry": {"limit": 5}});
    let (policies, none) = (release_policy(json!(["http"])), Policies::default());
    let mut run = PolicyRun::of(&policies, post_chain(says.clone(), json!([])));
    run.decide(&policies, "release-pay", Verdict::Approve);
    assert!(!run.approved_call("release-pay").idempotent);
    assert!(
        PolicyRun::of(&none, post_chain(says, json!([]))).calls()[0].idempotent,
        "without a policy the author may say so"
    );
    let get = json!({"http": {"url": "https://a.org/"}});
    let mut run = PolicyRun::of(&policies, post_chain(get, json!([])));
    run.decide(&policies, "release-pay", Verdict::Approve);
    assert!(run.approved_call("release-pay").idempotent);
}

#[test]
fn a_modify_of_the_policys_people_is_shown_at_every_gate_of_a_policy() {
    let hitl = || gate(json!({"allowedVerdicts": ["Approve", "Reject", "Modify"]}));
    let step = |name: &str| json!({"steps": [{"name": name, "before": {"kinds": ["http"]}, "hitl": hitl()}]});
    let policies = cluster(&[("one", step("first")), ("two", step("second"))]);
    let mut run = PolicyRun::of(&policies, post_chain(json!({}), json!([])));
    run.decide(&policies, "first-pay", Verdict::Approve);
    run.decide_with(&policies, "second-pay", modify_outcome(json!({"url": "https://b.org/"})));
    run.assert_shows("first-pay#2", "https://b.org/");
    run.decide(&policies, "first-pay#2", Verdict::Approve);
    run.assert_shows("second-pay#2", "https://b.org/");
    run.decide(&policies, "second-pay#2", Verdict::Approve);
    run.approved_call("first-pay#2");
    assert_eq!(url(run.approved_call("second-pay#2")), "https://b.org/");
}

#[test]
fn skip_at_a_policys_gate_skips_the_step() {
    let policies = release_policy(json!(["http"]));
    let mut run = PolicyRun::of(&policies, post_chain(json!({}), json!([])));
    run.decide(&policies, "release-pay", Verdict::Skip);
    assert_eq!(run.record("pay").phase, signoff_api::journal::StepPhase::Skipped);
}

#[test]
fn a_skipped_or_unrenderable_step_asks_no_gate_and_does_not_run() {
    let policies = release_policy(json!(["http"]));
    let mut run = PolicyRun::of(&policies, post_chain(json!({"skipIf": "true"}), json!([])));
    assert!(run.asks().is_empty() && run.calls().is_empty());
    assert_eq!(run.record("pay").phase, signoff_api::journal::StepPhase::Skipped);
    let broken = json!({"http": {"url": "https://a.org/{{ inputs.none.none }}"}, "onError": "continue"});
    let mut spec = post_chain(broken, json!([]));
    spec["inputs"] = json!([{"name": "none", "type": "object", "value": {}}]);
    run = PolicyRun::of(&policies, spec);
    assert!(run.asks().is_empty() && run.calls().is_empty());
    assert_eq!(run.record("pay").error.as_ref().unwrap().class, "Template");
    assert!(matches!(run.transition.end, Some(crate::End::Succeeded(_))), "onError holds: {:?}", run.transition.end);
}

#[test]
fn a_repeated_answer_of_an_agent_needs_another_approval() {
    let policies = release_policy(json!(["agent"]));
    let schema = json!({"type": "object", "required": ["ok"]});
    let mut run = PolicyRun::of(&policies, agent_chain(json!({"outputSchema": schema}), own_gates("outputValidation")));
    run.assert_shows("release-pay", "role: User");
    run.decide(&policies, "release-pay", Verdict::Approve);
    run.approved_call("release-pay");
    run.reply(&policies, "pay", "not json");
    run.assert_shows("release-pay#2", "cannot be used");
    run.decide(&policies, "release-pay#2", Verdict::Approve);
    assert_eq!(run.approved_call("release-pay#2").path, "pay/.ask-2");
    run.reply(&policies, "pay/.ask-2", r#"{"ok": true}"#);
    run.decide(&policies, "pay/.output", Verdict::Defer);
    run.assert_shows("release-pay#3", "again");
    run.decide(&policies, "release-pay#3", Verdict::Approve);
    assert_eq!(run.approved_call("release-pay#3").attempt, 2);
}

#[test]
fn a_reason_at_the_gate_does_not_change_the_approved_call() {
    let policies = release_policy(json!(["agent"]));
    let mut run = PolicyRun::of(&policies, agent_chain(json!({}), json!([])));
    let (verdict, phase) = (Some(Verdict::Approve), ApprovalPhase::of(Verdict::Approve));
    run.decide_with(
        &policies,
        "release-pay",
        Outcome { verdict, phase, reason: Some("looks right".into()), ..Outcome::default() },
    );
    run.approved_call("release-pay");
}

#[test]
fn a_revision_of_the_final_response_needs_an_approval() {
    let policies = release_policy(json!(["egress"]));
    let mut gates = own_gates("finalResponse");
    gates[0]["hitl"]["allowedVerdicts"] = json!(["Approve", "Retry", "Reject"]);
    let mut run = PolicyRun::of(&policies, agent_chain(json!({}), gates));
    run.decide(&policies, "release-pay", Verdict::Approve);
    run.reply(&policies, "pay", "first");
    run.decide(&policies, ".final", Verdict::Retry);
    run.assert_shows("release-revision", "Make your final response");
    run.decide(&policies, "release-revision", Verdict::Approve);
    assert_eq!(run.approved_call("release-revision").path, ".revision");
}

#[test]
fn a_value_that_people_replaced_is_shown_at_a_policys_gate() {
    let policies = release_policy(json!(["http"]));
    let review = gate(json!({"allowedVerdicts": ["Approve", "Modify"]}));
    let mut run = PolicyRun::start(
        &policies,
        json!([
            {"name": "where", "set": {"value": "good"}}, {"name": "review", "hitl": review},
            {"name": "pay", "http": {"method": "POST", "url": "https://a.org/{{ steps.where.response }}"}},
        ]),
    );
    run.decide_with(&policies, "review", modify_outcome(json!({"response": "evil"})));
    run.assert_shows("release-pay", "https://a.org/evil");
}

#[test]
fn egress_covers_requests_and_agents_and_no_containers() {
    let policies = release_policy(json!(["egress"]));
    let run = PolicyRun::of(&policies, agent_chain(json!({}), json!([])));
    run.assert_shows("release-pay", "provider:");
    PolicyRun::of(&policies, post_chain(json!({}), json!([]))).assert_shows("release-pay", "https://a.org/pay");
    let pod = json!([{"name": "work", "pod": {"image": "tool@sha256:1"}}]);
    assert_eq!(PolicyRun::start(&policies, pod).calls().len(), 1, "a NetworkPolicy bounds containers");
    let only_http = PolicyRun::of(&release_policy(json!(["http"])), agent_chain(json!({}), json!([])));
    assert_eq!(only_http.calls().len(), 1, "http means http steps");
}

#[test]
fn an_added_or_removed_policy_keeps_the_decisions_of_a_run() {
    let (none, other) = (Policies::default(), cluster(&[("prod", json!({"gates": {"maxTimeout": "1h"}}))]));
    let mut spec = post_chain(json!({}), own_gates("stepStart"));
    spec["steps"].as_array_mut().unwrap().push(json!({"name": "wait", "hitl": gate(json!({}))}));
    for (before, after) in [(&none, &other), (&other, &none)] {
        let mut run = PolicyRun::of(before, spec.clone());
        run.decide_with(before, "pay/.start", modify_outcome(json!({"url": "https://b.org/"})));
        assert_eq!(url(run.calls()[0]), "https://b.org/");
        run.take(after, Vec::new());
        assert!(run.asks().is_empty(), "what was decided is not asked again");
        run.reply(after, "pay", "paid");
        run.asked("wait");
        run.take(before, Vec::new());
        assert!(run.asks().is_empty() && run.transition.end.is_none());
    }
}

#[test]
fn a_policys_gate_with_a_form_is_approved_by_an_answer() {
    let form = json!({"questions": [{"id": "ticket"}]});
    let step = json!({"name": "release", "before": {"kinds": ["http"]}, "hitl": gate(json!({"form": form}))});
    let policies = cluster(&[("prod", json!({"steps": [step]}))]);
    let mut run = PolicyRun::of(&policies, post_chain(json!({}), json!([])));
    assert!(run.asked("release-pay").allowed_verdicts.contains(&Verdict::Respond));
    let (verdict, phase) = (Some(Verdict::Respond), ApprovalPhase::of(Verdict::Respond));
    run.decide_with(
        &policies,
        "release-pay",
        Outcome { verdict, phase, response: Some("OPS-1".into()), ..Outcome::default() },
    );
    run.approved_call("release-pay");
}

#[test]
fn a_retry_after_an_unknown_outcome_needs_another_approval() {
    let policies = release_policy(json!(["http"]));
    let step =
        json!({"http": {"method": "PUT", "url": "https://a.org/"}, "retry": {"limit": 2, "backoff": {"base": "1ms"}}});
    let mut run = PolicyRun::of(&policies, post_chain(step, json!([])));
    run.assert_shows("release-pay", "attempts: 3 # at most");
    run.decide(&policies, "release-pay", Verdict::Approve);
    run.fail_with(&policies, 1, (true, false), &[]);
    run.assert_shows("release-pay#2", "attempts: 2 # at most");
    run.decide(&policies, "release-pay#2", Verdict::Approve);
    assert_eq!(run.approved_call("release-pay#2").attempt, 2);
    run.fail_with(&policies, 2, (true, false), &[]);
    run.assert_shows("release-pay#3", "attempts: 1\n");
    run.decide(&policies, "release-pay#3", Verdict::Approve);
    run.approved_call("release-pay#3");
    run.fail_with(&policies, 3, (true, false), &[]);
    assert!(matches!(run.transition.end, Some(crate::End::Failed(_))), "no more than were allowed");
}

#[test]
fn a_long_header_does_not_hide_the_body() {
    let policies = release_policy(json!(["egress"]));
    let pad = "p".repeat(5400);
    let step = |pad: &str| {
        json!({"http": {"method": "POST", "url": "https://a.org/pay", "headers": {"A-Note": pad, "B-To": "evil"},
            "body": "amount: 42000"}})
    };
    let mut run = PolicyRun::of(&policies, post_chain(step(&pad), json!([])));
    for words in ["url: https://a.org/pay", "POST", "42000", "A-Note:", "pppp", "B-To: evil", "more bytes, sha256:"] {
        run.assert_shows("release-pay", words);
    }
    let request = run.asked("release-pay");
    assert!(request.reviews.as_ref().unwrap().response.len() <= 4096);
    let whole = &run.blobs[&request.reviews.as_ref().unwrap().ref_.as_ref().unwrap().digest];
    assert!(whole.contains(&pad) && whole.contains("42000"), "{whole}");
    run.decide(&policies, "release-pay", Verdict::Approve);
    run.approved_call("release-pay");

    let honest = PolicyRun::of(&policies, post_chain(step("short"), json!([])));
    honest.assert_shows("release-pay", "A-Note: short");
    let review = honest.asked("release-pay").reviews.as_ref().unwrap();
    assert!(!review.response.contains("more bytes") && review.ref_.is_none(), "{}", review.response);
}

#[test]
fn a_long_system_prompt_does_not_hide_the_input() {
    let policies = release_policy(json!(["egress"]));
    let spec = |system: &str| {
        let mut spec = agent_chain(json!({"agent": {"name": "writer", "input": "send 42000 to evil"}}), json!([]));
        spec["agents"] = json!([{"name": "writer", "system": system}]);
        spec
    };
    let mut run = PolicyRun::of(&policies, spec(&"be kind. ".repeat(600)));
    for words in ["send 42000 to evil", "role: User", "agent: writer", "be kind. be kind.", "more bytes, sha256:"] {
        run.assert_shows("release-pay", words);
    }
    run.decide(&policies, "release-pay", Verdict::Approve);
    run.approved_call("release-pay");

    let honest = PolicyRun::of(&policies, spec("be kind"));
    honest.assert_shows("release-pay", "send 42000 to evil");
    let shown = &honest.asked("release-pay").reviews.as_ref().unwrap().response;
    assert!(!shown.contains("more bytes") && shown.contains("system: be kind"), "{shown}");
}
