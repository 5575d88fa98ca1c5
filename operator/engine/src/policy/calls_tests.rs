//! Tests of policies for the tools of agents: added gates, forbidden calls, required gates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::{ApprovalRequest, Verdict, journal::StepPhase};

use super::{
    run_tests::{PolicyRun, gate, moment, no_policies},
    tests::cluster,
    *,
};
use crate::{
    Fact, FieldError, Plan, Settings,
    tests::test_run::workflow,
    transition::{CallContent, Command, Reply},
};

const SOURCE: &str = "ClusterApprovalPolicy prod";
pub(super) const GATE: &str = "handle/.turn-1/.call-1/.gate";

/// Returns a spec whose agent has three tools: a text, a GET and a POST, with these `effects` in that order.
pub(super) fn spec(effects: [Option<&str>; 3], gates: Value) -> Value {
    let tool = |name: &str, step: &str, effects: Option<&str>| {
        let mut tool = json!({"name": name, "step": step, "description": "It helps.",
                              "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}});
        if let Some(effects) = effects {
            tool["effects"] = json!(effects);
        }
        tool
    };
    json!({
        "requestedBy": "dana",
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "clerk", "tools": ["*"]}],
        "tools": [tool("note", "write-note", effects[0]), tool("lookup", "find", effects[1]), tool("refund", "pay", effects[2])],
        "gates": gates,
        "inputs": [{"name": "base", "value": "https://bank.example"}],
        "steps": [
            {"name": "handle", "agent": {"name": "clerk", "input": "help"}},
            {"name": "write-note", "set": {"value": "noted {{ args.to | default('') }}"}},
            {"name": "find", "http": {"url": "https://crm.example/customers"}},
            {"name": "pay", "http": {"method": "POST", "url": "{{ inputs.base }}/refunds", "body": "{{ args.to | default('') }}"}},
        ],
    })
}

/// Returns a policy with a gate before the calls of tools that match `calls`.
pub(super) fn policy_about_calls(calls: Value) -> Policies {
    policy_about_calls_with(calls, json!({}))
}

/// Returns a policy with a gate before the calls of tools that match `calls`. `hitl`: further fields of the gate.
pub(super) fn policy_about_calls_with(calls: Value, hitl: Value) -> Policies {
    let before = json!({"kinds": ["tool"], "calls": calls});
    cluster(&[("prod", json!({"steps": [{"name": "guard", "before": before, "hitl": gate(hitl)}]}))])
}

/// Returns a policy with the requirements `rules` for tools.
fn tool_policy(rules: Value) -> Policies {
    cluster(&[("prod", json!({"tools": rules}))])
}

/// Returns a run whose agent has called the tools `names` in one turn.
pub(super) fn run_with_calls(policies: &Policies, spec: Value, names: &[&str]) -> PolicyRun {
    let mut run = PolicyRun::of(policies, spec);
    let calls: Vec<_> = names.iter().map(|name| (*name, "{}")).collect();
    turn(&mut run, policies, "handle", &calls);
    run
}

/// Finishes the turn at `path` with calls. Each has the name of a tool and the arguments as text.
pub(super) fn turn(run: &mut PolicyRun, policies: &Policies, path: &str, calls: &[(&str, &str)]) {
    let call = |(at, (tool, arguments)): (usize, &(&str, &str))| json!({"id": format!("c{at}"), "tool": tool, "arguments": arguments});
    let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
    let facts = std::collections::BTreeMap::from([("calls".to_owned(), calls.len().to_string())]);
    let reply = Reply { response: json!({"text": "", "calls": calls}), facts, ..Reply::default() };
    let path = path.to_owned();
    run.take(policies, vec![Fact::CallFinished { path, attempt: 1, result: Ok(reply), at: moment() }]);
}

/// Whether a gate of the policy is among those that ask in a request.
pub(super) fn is_of_policy(request: &ApprovalRequest) -> bool {
    request.action.iter().flat_map(|action| &action.gates).any(|gate| gate.source.as_deref() == Some(SOURCE))
}

/// Returns the result that the agent receives in its second turn.
pub(super) fn last_result(run: &PolicyRun) -> String {
    let next = run.calls().into_iter().find(|call| call.path == "handle/.turn-2").expect("the next turn begins");
    let CallContent::Agent(agent) = &next.content else { panic!("no turn of an agent") };
    agent.messages.iter().rev().find(|message| message.answers.is_some()).expect("a result").text.clone()
}

pub(super) fn errors(policies: &Policies, spec: Value) -> Vec<FieldError> {
    Plan::of(&workflow(spec), &Settings::default(), &Arc::new(policies.clone())).err().unwrap_or_default()
}

#[track_caller]
fn assert_refused(policies: &Policies, spec: Value, field: &str, words: &str) {
    let found = errors(policies, spec);
    let is_expected =
        |error: &FieldError| error.field == field && error.message.contains(words) && error.reason == "NotAllowed";
    assert!(found.iter().any(is_expected), "no error at {field} with `{words}` in {found:#?}");
}

pub(super) fn gate_of_every_call(allowed: Value) -> Value {
    json!([{"name": "own", "type": "toolExecution", "allowedTools": allowed, "hitl": gate(json!({}))}])
}

#[test]
fn a_gate_of_a_policy_asks_about_each_call_and_names_the_policy() {
    let policies = policy_about_calls(json!({}));
    let mut run = run_with_calls(&policies, spec([None; 3], json!([])), &["refund"]);
    let asked = run.asked(GATE);
    let [asking] = asked.action.as_ref().unwrap().gates.as_slice() else { panic!("one gate asks") };
    assert_eq!((asking.name.as_str(), asking.source.as_deref()), ("guard", Some(SOURCE)));
    assert_eq!(asking.because, "it asks about calls of tools");
    assert!(asked.required_by.iter().any(|by| by.source == SOURCE));
    run.decide(&policies, GATE, Verdict::Approve);
    assert_eq!(run.calls()[0].path, "handle/.turn-1/.call-1/pay");

    let mut rejected = run_with_calls(&policies, spec([None; 3], json!([])), &["refund"]);
    rejected.decide(&policies, GATE, Verdict::Reject);
    assert_eq!(last_result(&rejected), "Denied by a human: no reason was given");
}

#[test]
fn gates_of_a_policy_and_the_author_share_a_request_with_all_quorums() {
    let own = json!([{"name": "own", "type": "toolExecution", "hitl": gate(json!({"threshold": 2}))}]);
    let run = run_with_calls(&policy_about_calls(json!({})), spec([None; 3], own), &["refund"]);
    let asked = run.asked(GATE);
    assert_eq!(asked.action.as_ref().unwrap().gates.len(), 2);
    let thresholds: Vec<_> = asked.quorums.iter().map(|quorum| (quorum.source.as_str(), quorum.threshold)).collect();
    assert_eq!(thresholds, [("gate guard of ClusterApprovalPolicy prod", 1), ("gate own", 2)]);
}

#[test]
fn a_gate_of_the_author_with_the_name_of_a_policys_gate_replaces_nothing() {
    let own = json!([{"name": "guard", "type": "toolExecution", "hitl": gate(json!({"approvers": [{"kind": "User", "name": "dana"}]}))}]);
    let run = run_with_calls(&policy_about_calls(json!({})), spec([None; 3], own), &["refund"]);
    let quorums: Vec<_> = run.asked(GATE).quorums.iter().map(|quorum| quorum.approvers[0].name.clone()).collect();
    assert_eq!(quorums, ["finance", "dana"]);
}

#[test]
fn exceptions_of_the_author_do_not_apply_to_a_policys_gate() {
    for own in [
        gate_of_every_call(json!(["*"])),
        json!([{"name": "own", "type": "custom", "condition": "false", "hitl": gate(json!({}))}]),
        json!([{"name": "own", "preset": "minimal", "allowedTools": ["*"], "hitl": gate(json!({}))}]),
    ] {
        let run = run_with_calls(&policy_about_calls(json!({})), spec([Some("read"); 3], own), &["refund"]);
        assert!(is_of_policy(run.asked(GATE)));
    }
    // Without the policy no gate asks about the same calls.
    let run = run_with_calls(&no_policies(), spec([Some("read"); 3], gate_of_every_call(json!(["*"]))), &["refund"]);
    assert_eq!(run.calls()[0].path, "handle/.turn-1/.call-1/pay");
}

#[test]
fn a_call_only_reads_if_its_method_and_its_author_both_say_so() {
    for (tool, effects, is_asked) in [
        ("lookup", Some("read"), false),
        ("lookup", Some("write"), true),
        ("lookup", None, true),
        ("refund", Some("read"), true),
        ("refund", Some("write"), true),
        ("note", Some("read"), true),
    ] {
        let run = run_with_calls(&policy_about_calls(json!({"changes": true})), spec([effects; 3], json!([])), &[tool]);
        assert_eq!(run.asks().into_iter().any(is_of_policy), is_asked, "{tool} with effects {effects:?}");
    }
}

#[test]
fn a_policy_distinguishes_calls_by_kind_method_and_rendered_host() {
    for (calls, tool, is_asked) in [
        (json!({"kinds": ["http"]}), "refund", true),
        (json!({"kinds": ["http"]}), "note", false),
        (json!({"kinds": ["pod"]}), "refund", false),
        (json!({"kinds": ["set", "agent"]}), "note", true),
        (json!({"methods": ["POST", "PUT"]}), "refund", true),
        (json!({"methods": ["POST"]}), "lookup", false),
        (json!({"methods": ["POST"]}), "note", false),
        (json!({"hosts": ["bank.example"]}), "refund", true),
        (json!({"hosts": ["*.example"]}), "refund", true),
        (json!({"hosts": ["bank.example:8443"]}), "refund", false),
        (json!({"hosts": ["bank.example"]}), "lookup", false),
        (json!({"hosts": ["bank.example"]}), "note", false),
        // An unreadable entry could mean any host.
        (json!({"hosts": ["[not-a-host"]}), "lookup", true),
        (json!({"images": ["*"]}), "refund", false),
        (json!({"kinds": ["http"], "methods": ["POST"], "hosts": ["crm.example"]}), "refund", false),
    ] {
        let run = run_with_calls(&policy_about_calls(calls.clone()), spec([None; 3], json!([])), &[tool]);
        assert_eq!(run.asks().into_iter().any(is_of_policy), is_asked, "{calls} and {tool}");
    }
}

#[test]
fn an_unknown_image_could_match_every_rule_of_images() {
    let rule = |images: Value| serde_json::from_value(json!({"images": images})).unwrap();
    let image = |image: Option<&str>| CallFacts {
        images: image.map(|image| std::collections::BTreeSet::from([image.to_owned()])),
        ..CallFacts::of_kind(signoff_api::tool_rules::CallKind::Pod, None)
    };
    assert_eq!(matches(&rule(json!(["*:latest"])), &image(Some("tools:latest"))), Some(true));
    assert_eq!(matches(&rule(json!(["tools"])), &image(Some("tools:latest"))), Some(false));
    assert_eq!(matches(&rule(json!(["*:latest"])), &image(None)), None);
}

#[test]
fn the_images_of_a_pod_template_are_compared_too() {
    let policies = tool_policy(json!({"never": [{"images": ["*kubectl*"]}]}));
    let with = |template: Value| {
        let mut spec = spec([None; 3], gate_of_every_call(json!([])));
        spec["steps"][3] = json!({"name": "pay", "pod": {"image": "alpine:3", "podTemplate": {"spec": template}}});
        spec
    };
    for template in [
        json!({"initContainers": [{"name": "x", "image": "bitnami/kubectl"}]}),
        json!({"containers": [{"name": "x", "image": "bitnami/kubectl:1"}]}),
        json!({"volumes": [{"name": "x", "image": {"reference": "bitnami/kubectl"}}]}),
    ] {
        assert_refused(&policies, with(template), "spec.tools[2]", "of image *kubectl*");
    }
    let honest = errors(&policies, with(json!({"initContainers": [{"name": "x", "image": "busybox"}]})));
    assert!(honest.iter().all(|why| !why.message.contains("forbids")), "{honest:?}");
}

#[test]
fn a_host_from_an_argument_is_not_certain_in_any_form_of_url() {
    let policies = cluster(&[(
        "prod",
        json!({"tools": {"requireGate": true}, "steps": [{"name": "guard", "hitl": gate(json!({})),
            "before": {"kinds": ["tool"], "calls": {"hosts": ["bank.example"]}}}]}),
    )]);
    for url in ["https:///{{ args.to }}/x", "https://{{ inputs.base }}/x", "https:\\\\{{ args.to }}/x"] {
        let mut spec = spec([Some("read"), Some("read"), None], json!([]));
        spec["steps"][3]["http"]["url"] = json!(url);
        let found = errors(&policies, spec);
        assert!(
            found.iter().any(|why| why.field == "spec.tools[2]" || why.message.contains("url")),
            "{url}: {found:?}"
        );
    }
}

#[test]
fn a_gate_that_approves_at_its_deadline_does_not_count_as_asking() {
    let policies = tool_policy(json!({"requireGate": true}));
    let own = |action: &str| json!([{"name": "own", "type": "toolExecution", "hitl": gate(json!({"timeout": {"after": "1s", "action": action}}))}]);
    assert_refused(&policies, spec([None; 3], own("Approve")), "spec.tools[2]", "nor the timeout action Approve");
    assert_eq!(errors(&policies, spec([None; 3], own("Reject"))), []);
    let start = |action: &str| {
        let form = json!({"questions": [{"id": "a", "options": [{"id": "ok"}]}]});
        let mut timeout = json!({"after": "1s", "action": action});
        if action == "Default" {
            timeout["default"] = json!("ok");
        }
        let hitl = gate(json!({"form": form, "allowedVerdicts": ["Respond", "Reject"], "timeout": timeout}));
        let notes = json!({"name": "notes", "type": "specificTools", "tools": ["note"], "hitl": gate(json!({}))});
        json!([notes, {"name": "own", "type": "stepStart", "steps": ["find", "pay"], "hitl": hitl}])
    };
    assert_refused(&policies, spec([None; 3], start("Default")), "spec.tools[2]", "tools.requireGate");
    assert_eq!(errors(&policies, spec([None; 3], start("Reject"))), []);
}

#[test]
fn a_call_that_is_certainly_forbidden_is_refused_before_the_run() {
    let never = |rule: Value| tool_policy(json!({"never": [rule]}));
    let gated_spec = || spec([None; 3], gate_of_every_call(json!([])));
    assert_refused(
        &never(json!({"methods": ["POST"]})),
        gated_spec(),
        "spec.tools[2]",
        "forbids calls of tools, with POST (tools.never[0])",
    );
    assert_refused(&never(json!({"hosts": ["crm.example"]})), gated_spec(), "spec.tools[1]", "to crm.example");
    assert_refused(&never(json!({"kinds": ["set"]})), gated_spec(), "spec.tools[0]", "that are set steps");
    assert_refused(&never(json!({"changes": true})), gated_spec(), "spec.tools[2]", "that can change something");
    assert_eq!(errors(&never(json!({"methods": ["DELETE"]})), gated_spec()), []);
}

#[test]
fn a_call_that_is_forbidden_when_rendered_is_refused_without_asking() {
    let policies = tool_policy(json!({"never": [{"hosts": ["bank.example"]}]}));
    assert_eq!(errors(&policies, spec([None; 3], json!([]))), [], "the host is an input");
    for gates in [json!([]), gate_of_every_call(json!([]))] {
        let mut run = run_with_calls(&policies, spec([None; 3], gates), &["refund"]);
        assert_eq!((run.asks().len(), run.calls().len()), (0, 1), "the agent alone goes on");
        assert_eq!(run.record("handle/.turn-1/.call-1/.check").error.as_ref().unwrap().class, "NotAllowed");
        run.take(&no_policies(), Vec::new()); // the refusal stays
        assert!(last_result(&run).contains("forbids calls of tools, to bank.example"), "{}", last_result(&run));
    }
}

#[test]
fn an_approved_call_that_a_policy_forbids_later_does_not_run() {
    for (tool, rule) in [("refund", json!({"methods": ["POST"]})), ("note", json!({"kinds": ["set"]}))] {
        let mut run = run_with_calls(&no_policies(), spec([None; 3], gate_of_every_call(json!([]))), &[tool]);
        run.asked(GATE);
        run.decide(&tool_policy(json!({"never": [rule]})), GATE, Verdict::Approve);
        assert!(last_result(&run).contains("forbids calls of tools"), "{}", last_result(&run));
        let sent = |command: &&Command| matches!(command, Command::Call(call) if call.path.contains("/.call-"));
        assert!(!run.transition.commands.iter().any(|command| sent(&command)));
        let mut honest = run_with_calls(&no_policies(), spec([None; 3], gate_of_every_call(json!([]))), &[tool]);
        honest.decide(&tool_policy(json!({"never": [{"methods": ["DELETE"]}]})), GATE, Verdict::Approve);
        let is_of_call = |path: &str| path.starts_with("handle/.turn-1/.call-1/") && path != GATE;
        assert!(honest.journal.records().iter().any(|record| is_of_call(&record.path)));
    }
}

#[test]
fn a_policy_that_forbids_agents_as_tools_stops_a_running_agent() {
    let mut spec = spec([None; 3], json!([]));
    spec["agents"][0]["tools"] = json!(["sub", "note"]);
    spec["agents"].as_array_mut().unwrap().push(json!({"name": "helper", "tools": ["note"]}));
    spec["tools"].as_array_mut().unwrap().push(json!({"name": "sub", "step": "help", "description": "It helps.",
        "parameters": {"type": "object"}}));
    spec["steps"].as_array_mut().unwrap().push(json!({"name": "help", "agent": {"name": "helper", "input": "help"}}));
    let mut run = run_with_calls(&no_policies(), spec, &["sub"]);
    let sub = "handle/.turn-1/.call-1/help";
    let policies = tool_policy(json!({"never": [{"kinds": ["agent"]}]}));
    turn(&mut run, &policies, sub, &[("note", "{}")]);
    let next = format!("{sub}/.turn-2");
    assert!(!run.calls().iter().any(|call| call.path == next), "{:?}", run.calls());
    assert!(last_result(&run).contains("forbids calls of tools"), "{}", last_result(&run));
}

#[test]
fn a_step_that_no_tool_runs_is_not_forbidden() {
    let steps = json!({"requestedBy": "dana", "steps": [{"name": "pay", "http": {"method": "POST", "url": "https://bank.example/"}}]});
    assert_eq!(PolicyRun::of(&tool_policy(json!({"never": [{"methods": ["POST"]}]})), steps).calls().len(), 1);
}

#[test]
fn a_tool_that_can_change_something_needs_a_gate_that_always_asks() {
    let policies = tool_policy(json!({"requireGate": true}));
    let words = "requires that people are asked about every call of refund";
    let hitl = || gate(json!({}));
    let spec_of = |gates: Value| spec([Some("read"), Some("read"), Some("write")], gates);
    let with_note =
        |gate: Value| json!([{"name": "notes", "type": "specificTools", "tools": ["note"], "hitl": hitl()}, gate]);
    for gate in [
        json!({"name": "own", "type": "specificTools", "tools": ["lookup"], "hitl": hitl()}),
        json!({"name": "own", "type": "toolExecution", "allowedTools": ["refund"], "hitl": hitl()}),
        json!({"name": "own", "type": "toolExecution", "condition": "false", "hitl": hitl()}),
        json!({"name": "own", "type": "custom", "condition": "args.to == 'me'", "hitl": hitl()}),
        json!({"name": "own", "type": "stepStart", "steps": ["pay"], "condition": "false", "hitl": hitl()}),
    ] {
        assert_refused(&policies, spec_of(with_note(gate.clone())), "spec.tools[2]", words);
    }
    for gate in [
        json!({"name": "own", "type": "specificTools", "tools": ["refund"], "hitl": hitl()}),
        json!({"name": "own", "type": "toolExecution", "hitl": hitl()}),
        json!({"name": "own", "type": "destructiveActions", "hitl": hitl()}),
        json!({"name": "own", "preset": "strict", "hitl": hitl()}),
        json!({"name": "own", "type": "stepStart", "steps": ["pay"], "hitl": hitl()}),
    ] {
        assert_eq!(errors(&policies, spec_of(with_note(gate.clone()))), [], "{gate}");
    }
    // A POST is not read-only, whatever its author declares, so the gate does not treat it so.
    let destructive = json!({"name": "own", "type": "destructiveActions", "hitl": hitl()});
    assert_refused(&policies, spec([Some("read"); 3], with_note(destructive)), "spec.tools[2]", words);
    assert_eq!(errors(&tool_policy(json!({"requireGate": false})), spec([None; 3], json!([]))), []);
}

#[test]
fn a_policys_own_gate_is_a_gate_that_always_asks() {
    let before = |before: Value| {
        cluster(&[(
            "prod",
            json!({"tools": {"requireGate": true}, "steps": [{"name": "guard", "before": before, "hitl": gate(json!({}))}]}),
        )])
    };
    let bare = || spec([Some("read"), Some("read"), Some("write")], json!([]));
    assert_eq!(errors(&before(json!({"kinds": ["tool"], "calls": {"changes": true}})), bare()), []);
    // The host is known only at the call, so it is not certain that the gate asks.
    let by_host = before(json!({"kinds": ["tool"], "calls": {"hosts": ["bank.example"]}}));
    assert_refused(&by_host, bare(), "spec.tools[2]", "requires that people are asked");
    assert_refused(&before(json!({"kinds": ["http"]})), bare(), "spec.tools[0]", "every call of note");
}

/// Returns a policy with a quorum for every gate.
pub(super) fn policy_with_deciders() -> Policies {
    cluster(&[(
        "prod",
        json!({"gates": {"deciders": {"approvers": [{"kind": "Group", "name": "risk"}]}, "allowContinueAfterReject": true}}),
    )])
}

/// Returns nine gates before every call, each with its own approvers.
pub(super) fn nine_gates() -> Value {
    let team_gate = |number: i32| {
        let hitl = gate(json!({"approvers": [{"kind": "Group", "name": format!("team-{number}")}]}));
        json!({"name": format!("g{number}"), "type": "toolExecution", "hitl": hitl})
    };
    (1..=9).map(team_gate).collect()
}

#[test]
fn an_approval_counts_only_for_the_gates_that_asked() {
    // With the quorum of the policy nine gates are too many for one request.
    let mut run = run_with_calls(&policy_with_deciders(), spec([None; 3], nine_gates()), &["refund"]);
    assert_eq!(run.asked(GATE).quorums.len(), 9);
    run.decide(&policy_with_deciders(), GATE, Verdict::Approve);
    let second = format!("{GATE}#2");
    assert_eq!(run.asked(&second).quorums.len(), 2);
    // Without the policy all nine would share one request; the ninth has not approved.
    run.take(&no_policies(), Vec::new());
    assert!(run.calls().is_empty(), "{:?}", run.calls());
    run.decide(&no_policies(), &second, Verdict::Approve);
    assert_eq!(run.calls()[0].path, "handle/.turn-1/.call-1/pay");
}

#[test]
fn a_running_call_is_not_asked_about_when_a_policy_is_added() {
    let mut run = run_with_calls(&no_policies(), spec([None; 3], nine_gates()), &["refund"]);
    run.decide(&no_policies(), GATE, Verdict::Approve);
    run.take(&policy_with_deciders(), Vec::new());
    assert!(run.asks().is_empty());
    run.reply(&policy_with_deciders(), "handle/.turn-1/.call-1/pay", "paid");
    assert_eq!(last_result(&run), "paid");
}

#[test]
fn a_reject_that_the_agent_received_does_not_end_the_run_later() {
    let mut run = run_with_calls(&no_policies(), spec([None; 3], gate_of_every_call(json!([]))), &["refund"]);
    run.decide(&no_policies(), GATE, Verdict::Reject);
    let strict =
        cluster(&[("prod", json!({"gates": {"deciders": {"approvers": [{"kind": "Group", "name": "risk"}]}}}))]);
    run.take(&strict, Vec::new());
    assert_eq!(run.transition.end, None);
    let mut early = run_with_calls(&strict, spec([None; 3], gate_of_every_call(json!([]))), &["refund"]);
    early.decide(&strict, GATE, Verdict::Reject);
    assert!(matches!(early.transition.end, Some(crate::End::Rejected(_))), "{:?}", early.transition.end);
}

#[test]
fn the_editor_of_arguments_cannot_approve_the_edited_call() {
    let policies = cluster(&[(
        "prod",
        json!({"steps": [{"name": "release", "before": {"kinds": ["http"]}, "hitl": gate(json!({}))}]}),
    )]);
    let own = json!([{"name": "own", "type": "custom", "condition": "args.to == 'me'", "hitl": gate(json!({}))}]);
    let mut run = PolicyRun::of(&policies, spec([None; 3], own));
    turn(&mut run, &policies, "handle", &[("refund", r#"{"to":"me"}"#)]);
    let mut edited = super::bypass_tests::modify_outcome(json!({"arguments": {"to": "you"}}));
    edited.decided_by = vec!["alice".to_owned()];
    run.decide_with(&policies, GATE, edited);
    assert_eq!(run.asked("handle/.turn-1/.call-1/pay/release-pay").excluded, ["alice"]);
}

#[test]
fn a_reject_of_the_answer_of_a_tool_ends_the_run_where_a_policy_says_so() {
    let strict =
        cluster(&[("prod", json!({"gates": {"deciders": {"approvers": [{"kind": "Group", "name": "risk"}]}}}))]);
    let own = json!([
        {"name": "every", "type": "toolExecution", "hitl": gate(json!({}))},
        {"name": "answers", "type": "outputValidation", "steps": ["pay"], "hitl": gate(json!({}))},
    ]);
    let found = errors(&strict, spec([None; 3], own.clone()));
    assert!(
        found.iter().any(|why| why.reason == "PolicyConflict" && why.message.contains("the agent, which is told")),
        "{found:?}"
    );
    let mut stops = spec([None; 3], own);
    stops["steps"][3]["onError"] = json!("fail");
    assert_eq!(errors(&strict, stops), []);
}

#[test]
fn an_accepted_run_continues_when_a_policy_requires_more() {
    let mut run = run_with_calls(&no_policies(), spec([None; 3], gate_of_every_call(json!(["refund"]))), &["note"]);
    run.decide(&tool_policy(json!({"requireGate": true})), GATE, Verdict::Approve);
    assert_eq!(last_result(&run), "noted ");
}

/// Returns eight gates before every call and one about failures. Together they have the maximum number of quorums.
fn gates_with_escalation() -> Value {
    let mut gates = nine_gates();
    gates.as_array_mut().unwrap().truncate(8);
    let verdicts = json!(["Retry", "Skip", "Reject", "Abort"]);
    let help = gate(json!({"allowedVerdicts": verdicts, "approvers": [{"kind": "User", "name": "olga"}]}));
    gates.as_array_mut().unwrap().push(json!({"name": "help", "type": "errorEscalation", "hitl": help}));
    gates
}

/// Returns a run whose fourth call of a tool was made under `policies`, after people rejected three.
fn run_with_escalation(policies: &Policies) -> PolicyRun {
    let mut run = PolicyRun::of(&no_policies(), spec([None; 3], gates_with_escalation()));
    for number in 1..=4 {
        let place = if number == 1 { "handle".to_owned() } else { format!("handle/.turn-{number}") };
        let current_policies = if number < 4 { no_policies() } else { policies.clone() };
        let arguments = format!(r#"{{"to":"{number}"}}"#);
        turn(&mut run, &current_policies, &place, &[("refund", &arguments)]);
        if number < 4 {
            run.decide(&no_policies(), &format!("handle/.turn-{number}/.call-1/.gate"), Verdict::Reject);
        }
    }
    run
}

const ESCALATION: &str = "handle/.turn-4/.call-1/.error";

#[test]
fn a_refused_escalation_is_not_asked_when_a_policy_is_removed() {
    let mut run = run_with_escalation(&policy_with_deciders());
    assert_eq!((run.asks().len(), run.calls()[0].path.as_str()), (0, "handle/.turn-5"));
    assert_eq!(run.record(ESCALATION).phase, StepPhase::Failed, "with the quorum of the policy they are ten");
    let turn_with_error = run.calls()[0].content.clone();
    run.take(&no_policies(), Vec::new());
    assert_eq!((run.asks().len(), &run.calls()[0].content), (0, &turn_with_error), "the error is sent again");
}

#[test]
fn an_open_escalation_stays_open_when_a_policy_is_added() {
    let mut run = run_with_escalation(&no_policies());
    assert_eq!(run.asked(ESCALATION).quorums.len(), ApprovalRequest::MAX_QUORUMS);
    run.take(&policy_with_deciders(), Vec::new());
    assert_eq!((run.record(ESCALATION).phase, run.calls().len()), (StepPhase::Waiting, 0));
    run.decide(&policy_with_deciders(), ESCALATION, Verdict::Retry);
    run.asked("handle/.turn-4/.call-1/.gate");
}

#[test]
fn an_escalation_with_a_missing_request_keeps_all_quorums() {
    let mut run = run_with_escalation(&no_policies());
    run.take(&policy_with_deciders(), vec![Fact::ApprovalMissing { path: ESCALATION.to_owned() }]);
    assert_eq!((run.asks().len(), run.calls()[0].path.as_str()), (0, "handle/.turn-5"));
}

#[test]
fn a_refused_request_is_not_made_when_a_policy_is_added() {
    let mut gates = nine_gates();
    let names = |from: usize, to: usize| (from..to).map(|n| format!("user-{n}")).collect::<Vec<_>>();
    (gates[0]["hitl"]["excluded"], gates[8]["hitl"]["excluded"]) = (json!(names(0, 20)), json!(names(20, 32)));
    let mut run = run_with_calls(&no_policies(), spec([None; 3], gates), &["refund"]);
    let mut edited = super::bypass_tests::modify_outcome(json!({"arguments": {"to": "you"}}));
    edited.decided_by = vec!["alice".to_owned()];
    run.decide_with(&no_policies(), GATE, edited);
    assert!(
        last_result(&run).starts_with("Error: people cannot be asked about this: a request can exclude"),
        "{}",
        last_result(&run)
    );
    // With the quorum of the policy the last gate asks separately, and its exclusions fit into the request.
    run.take(&policy_with_deciders(), Vec::new());
    assert_eq!(run.asks().len(), 0);
    assert!(
        last_result(&run).starts_with("Error: people cannot be asked about this: a request can exclude"),
        "{}",
        last_result(&run)
    );
}

#[test]
fn a_call_edited_into_a_forbidden_call_is_refused() {
    for host in ["bank.example", "other.example"] {
        let policies = tool_policy(json!({"never": [{"hosts": ["bank.example"]}]}));
        let mut spec = spec([None; 3], gate_of_every_call(json!([])));
        spec["steps"][3]["http"]["url"] = json!("https://{{ args.to }}/refunds");
        let mut run = PolicyRun::of(&policies, spec);
        turn(&mut run, &policies, "handle", &[("refund", r#"{"to":"crm.example"}"#)]);
        let edited = super::bypass_tests::modify_outcome(json!({"arguments": {"to": host}}));
        run.decide_with(&policies, GATE, signoff_api::Outcome { decided_by: vec!["alice".to_owned()], ..edited });
        if host == "bank.example" {
            assert_eq!((run.asks().len(), run.calls().len()), (0, 1), "the agent alone goes on");
            assert!(last_result(&run).contains("forbids calls of tools"), "{}", last_result(&run));
        } else {
            run.decide(&policies, &format!("{GATE}#2"), Verdict::Approve);
            assert!(run.calls().iter().any(|call| call.path.ends_with("/pay")));
        }
    }
}

#[test]
fn gates_with_different_rules_for_persons_ask_one_after_the_other() {
    let policy = |types: Value, pattern: &str| json!({"match": {"gateTypes": types}, "identities": [{"pattern": pattern, "person": "$1"}]});
    let one = policy(json!(["toolExecution"]), "([a-z]+)@one.example");
    let own = |type_: &str| json!({"name": type_.to_lowercase(), "type": type_, "tools": if type_ == "specificTools" { json!(["refund"]) } else { json!([]) }, "hitl": gate(json!({}))});
    let gates = json!([own("toolExecution"), own("specificTools")]);
    // One gate has rules for persons, which apply to the whole request.
    let run = run_with_calls(&cluster(&[("one", one.clone())]), spec([None; 3], gates.clone()), &["refund"]);
    assert_eq!((run.asked(GATE).quorums.len(), run.asked(GATE).persons.len()), (2, 1));
    // Both gates have rules for persons, which differ.
    let two = policy(json!(["specificTools"]), "([a-z]+)@two.example");
    let policies = cluster(&[("one", one), ("two", two)]);
    let mut run = run_with_calls(&policies, spec([None; 3], gates), &["refund"]);
    let first = run.asked(GATE).persons.clone();
    assert_eq!((run.asked(GATE).quorums.len(), first.len()), (1, 1));
    run.decide(&policies, GATE, Verdict::Approve);
    let second = run.asked(&format!("{GATE}#2"));
    assert!(second.persons.len() == 1 && second.persons != first, "{:?}", second.persons);
}
