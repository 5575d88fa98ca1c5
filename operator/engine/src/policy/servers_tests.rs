//! Tests of policies for the tools of MCP servers: added gates, forbidden calls, required gates, and authors who try to
//! avoid them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::{Value, json};
use signoff_api::{Digest, FailureClass, Verdict, catalogue::Catalogue, journal::StepPhase};

use super::{
    calls_tests::{GATE, errors, is_of_policy, turn},
    run_tests::{PolicyRun, gate, no_policies},
    tests::cluster,
    *,
};

const RELEASE: &str = "handle/.turn-1/.call-1/crm.refund/release-crm";
const CALL: &str = "handle/.turn-1/.call-1/crm.refund";

/// Returns a Workflow whose agent may call every tool of a server. `more` are further fields of the server.
fn spec(more: Value, gates: Value) -> Value {
    let mut server = json!({"name": "crm", "url": "https://crm.example/mcp"});
    server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "requestedBy": "dana",
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "clerk", "tools": ["crm.*"]}],
        "servers": [server],
        "gates": gates,
        "steps": [{"name": "handle", "agent": {"name": "clerk", "input": "help"}}],
    })
}

fn catalogue() -> Value {
    let schema = json!({"type": "object"});
    json!({"tools": [
        {"name": "get_customer", "inputSchema": schema, "annotations": {"readOnlyHint": true}},
        {"name": "refund", "inputSchema": schema},
    ]})
}

fn definition_digest(tool: &str) -> Digest {
    let catalogue: Catalogue = serde_json::from_value(catalogue()).unwrap();
    catalogue.tool(tool).unwrap().digest()
}

fn pins_of_refund() -> Value {
    json!({"pins": [{"tool": "refund", "definition": definition_digest("refund")}]})
}

/// Returns a run whose agent has called the tools `tools` of the server in one turn.
fn run_with_calls(policies: &Policies, spec: Value, tools: &[&str]) -> PolicyRun {
    let mut run = PolicyRun::of(policies, spec);
    run.reply(policies, ".tools/crm", &catalogue().to_string());
    let names: Vec<_> = tools.iter().map(|tool| format!("crm__{tool}")).collect();
    let calls: Vec<_> = names.iter().map(|name| (name.as_str(), "{}")).collect();
    turn(&mut run, policies, "handle", &calls);
    run
}

fn release_policy(before: Value) -> Policies {
    cluster(&[("prod", json!({"steps": [{"name": "release", "before": before, "hitl": gate(json!({}))}]}))])
}

fn call_paths(run: &PolicyRun) -> Vec<&str> {
    run.calls().into_iter().map(|call| call.path.as_str()).collect()
}

#[test]
fn an_added_gate_is_one_entry_for_a_server_and_asks_at_each_call() {
    for kind in ["mcp", "egress"] {
        let policies = release_policy(json!({"kinds": [kind]}));
        let mut run = PolicyRun::of(&policies, spec(pins_of_refund(), json!([])));
        assert_eq!(run.workflow.status.as_ref().unwrap().added_steps.len(), 1);
        run.reply(&policies, ".tools/crm", &catalogue().to_string());
        if kind == "egress" {
            run.decide(&policies, "release-handle", Verdict::Approve);
        }
        turn(&mut run, &policies, "handle", &[("crm__refund", "{}")]);
        assert_eq!(run.asked(RELEASE).gate.name, "release-crm");
        assert_eq!(call_paths(&run), [""; 0]);
        run.decide(&policies, RELEASE, Verdict::Approve);
        assert_eq!(call_paths(&run), [CALL]);
        assert!(!run.calls()[0].idempotent);
    }
}

#[test]
fn a_gate_is_left_out_only_for_the_reviewed_definition() {
    let except = |host: &str, tool: &str, digest: Digest| {
        release_policy(json!({"kinds": ["mcp"], "except": [{"host": host, "tool": tool, "definition": digest}]}))
    };
    let reviewed = definition_digest("refund");
    for (policies, asks) in [
        (except("crm.example", "refund", reviewed.clone()), false),
        (except("crm.example:443", "refund", reviewed.clone()), false),
        (except("other.example", "refund", reviewed.clone()), true),
        (except("crm.example", "get_customer", reviewed.clone()), true),
        (except("crm.example", "refund", Digest::of_bytes(b"other")), true),
    ] {
        let run = run_with_calls(&policies, spec(pins_of_refund(), json!([])), &["refund"]);
        assert_eq!(!run.asks().is_empty(), asks);
        assert_eq!(call_paths(&run) == [CALL], !asks);
    }
    // The review by a policy does not replace the pin of the author.
    let policies = except("crm.example", "refund", reviewed);
    let run = run_with_calls(&policies, spec(json!({}), json!([])), &["refund"]);
    assert!(run.record(CALL).error.as_ref().unwrap().is(FailureClass::NotAllowed));
}

#[test]
fn a_step_has_the_gate_unless_its_pin_is_the_reviewed_definition() {
    let except = |digest: Digest| {
        release_policy(
            json!({"kinds": ["mcp"], "except": [{"host": "crm.example", "tool": "refund", "definition": digest}]}),
        )
    };
    let of_step = |more: Value| {
        let mut spec = spec(more, json!([]));
        spec["steps"] = json!([{"name": "pay", "mcp": {"server": "crm", "tool": "refund"}}]);
        spec
    };
    for (policies, more, asks) in [
        (release_policy(json!({"kinds": ["mcp"]})), pins_of_refund(), true),
        (except(Digest::of_bytes(b"other")), pins_of_refund(), true),
        (except(definition_digest("refund")), json!({"read": ["*"]}), true),
        (except(definition_digest("refund")), pins_of_refund(), false),
    ] {
        let mut run = PolicyRun::of(&policies, of_step(more.clone()));
        run.reply(&policies, ".tools/crm", &catalogue().to_string());
        assert_eq!(run.asks().into_iter().any(|ask| ask.gate.path == "release-pay"), asks, "{more}");
        assert_eq!(call_paths(&run) == ["pay"], !asks, "{more}");
    }
    // Its server has another definition now, which no gate has reviewed.
    let policies = except(definition_digest("refund"));
    let mut run = PolicyRun::of(&policies, of_step(pins_of_refund()));
    run.reply(
        &policies,
        ".tools/crm",
        r#"{"tools":[{"name":"refund","description":"other","inputSchema":{"type":"object"}}]}"#,
    );
    assert!(run.record("pay").error.as_ref().unwrap().is(FailureClass::ToolChanged));
}

#[test]
fn a_policys_gate_before_calls_selects_tools_by_the_servers_own_names() {
    let asks = |calls: Value, tool: &str| {
        let before = json!({"kinds": ["tool"], "calls": calls});
        let policies =
            cluster(&[("prod", json!({"steps": [{"name": "guard", "before": before, "hitl": gate(json!({}))}]}))]);
        let run = run_with_calls(&policies, spec(json!({"read": ["*"]}), json!([])), &[tool]);
        run.asks().into_iter().any(is_of_policy)
    };
    for (calls, refund, lookup) in [
        (json!({}), true, true),
        (json!({"kinds": ["mcp"]}), true, true),
        (json!({"kinds": ["http"]}), false, false),
        (json!({"serverTools": ["refund"]}), true, false),
        (json!({"serverTools": ["get_*"]}), false, true),
        (json!({"hosts": ["crm.example"]}), true, true),
        (json!({"hosts": ["other.example"]}), false, false),
        (json!({"methods": ["POST"]}), false, false),
        // Independent of `read` and annotations.
        (json!({"changes": true}), true, true),
    ] {
        assert_eq!((asks(calls.clone(), "refund"), asks(calls.clone(), "get_customer")), (refund, lookup), "{calls}");
    }
}

#[test]
fn a_forbidden_tool_of_a_server_is_refused_at_the_call_or_in_the_plan() {
    let never = |rule: Value| cluster(&[("prod", json!({"tools": {"never": [rule]}}))]);
    for rule in
        [json!({"serverTools": ["ref*"]}), json!({"kinds": ["mcp"], "serverTools": ["refund"], "changes": true})]
    {
        let run = run_with_calls(&never(rule), spec(pins_of_refund(), json!([])), &["refund"]);
        let check = run.record("handle/.turn-1/.call-1/.check");
        assert!(check.error.as_ref().unwrap().is(FailureClass::NotAllowed), "{check:?}");
    }
    for rule in [json!({"kinds": ["mcp"]}), json!({"hosts": ["crm.example"]}), json!({"changes": true})] {
        let found = errors(&never(rule.clone()), spec(json!({}), json!([])));
        assert!(found.iter().any(|error| error.field == "spec.servers[0]"), "{rule}: {found:?}");
    }
}

#[test]
fn a_server_counts_as_one_tool_when_a_gate_is_required() {
    let policies = cluster(&[("prod", json!({"tools": {"requireGate": true}}))]);
    let own = |more: Value| {
        let mut one = json!({"name": "own", "type": "toolExecution", "hitl": gate(json!({}))});
        one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([one])
    };
    for (server, gates, is_refused) in [
        (json!({}), json!([]), true),
        (json!({"read": ["*"], "trust": "hints"}), json!([]), true),
        (pins_of_refund(), own(json!({"allowedTools": ["crm.refund"]})), true),
        (json!({}), own(json!({"allowedTools": ["crm.get_*"]})), true),
        (json!({}), own(json!({"allowedTools": ["*"]})), true),
        (json!({}), own(json!({"type": "destructiveActions"})), true),
        (json!({}), own(json!({"type": "specificTools", "tools": ["crm.refund"]})), true),
        (json!({}), own(json!({"condition": "args.id == 1"})), true),
        (json!({}), own(json!({"type": "specificTools", "tools": ["crm.*"]})), false),
        (json!({}), own(json!({})), false),
        (json!({}), own(json!({"allowedTools": ["other-*"]})), false),
    ] {
        let found = errors(&policies, spec(server.clone(), gates.clone()));
        let is_meant = |error: &crate::FieldError| error.message.contains("requireGate");
        assert_eq!(found.iter().any(is_meant), is_refused, "{server} {gates}: {found:?}");
    }
}

#[test]
fn the_host_of_a_server_is_checked_in_the_plan_and_before_the_call() {
    let hosts = |hosts: Value| cluster(&[("prod", json!({"allowedHosts": hosts}))]);
    assert!(errors(&hosts(json!(["crm.example"])), spec(json!({}), json!([]))).is_empty());
    let found = errors(&hosts(json!(["other.example"])), spec(json!({}), json!([])));
    assert!(found.iter().any(|error| error.field == "spec.servers[0].url"), "{found:?}");
    // The policy changes after the run was accepted.
    let mut run = PolicyRun::of(&no_policies(), spec(pins_of_refund(), json!([])));
    run.reply(&no_policies(), ".tools/crm", &catalogue().to_string());
    turn(&mut run, &hosts(json!(["other.example"])), "handle", &[("crm__refund", "{}")]);
    let check = run.record("handle/.turn-1/.call-1/.check");
    assert!(check.error.as_ref().unwrap().is(FailureClass::NotAllowed));
}

/// Generates an attempt of an author or a server to have a tool called without the policy's approvers.
fn addition() -> impl Strategy<Value = (usize, bool)> {
    (0_usize..8, any::<bool>())
}

/// Applies an addition to the spec of a Workflow. `number` is unique among the additions.
fn apply_addition(spec: &mut Value, (what, flag): (usize, bool), number: usize) {
    let hitl = gate(json!({"approvers": [{"kind": "User", "name": "olga"}]}));
    let allowed = if flag { json!(["crm.*"]) } else { json!(["crm.refund", "crm.get_customer"]) };
    let own = |type_: &str| json!({"name": format!("own-{number}"), "type": type_, "hitl": hitl.clone()});
    match what {
        0 => spec["servers"][0]["read"] = json!(["*"]),
        1 => spec["servers"][0]["trust"] = json!("hints"),
        2 => spec["servers"][0]["pins"] = pins_of_refund()["pins"].clone(),
        3 => {
            let mut gate = own("toolExecution");
            gate["allowedTools"] = allowed;
            spec["gates"].as_array_mut().unwrap().push(gate);
        }
        4 => {
            let mut gate = own("custom");
            gate["condition"] = json!("false");
            spec["gates"].as_array_mut().unwrap().push(gate);
        }
        5 => {
            let mut gate = own("destructiveActions");
            gate["allowedTools"] = allowed;
            spec["gates"].as_array_mut().unwrap().push(gate);
        }
        6 => spec["steps"][0]["retry"] = json!({"limit": 2}),
        _ => spec["servers"][0]["only"] = if flag { json!(["*"]) } else { json!(["get_customer", "refund"]) },
    }
}

/// Calls both tools and approves everything. Returns the path of a call that ran without the policy's approvers, or
/// `None`.
fn find_unasked_call(policies: &Policies, spec: Value, is_asked: impl Fn(&str) -> bool) -> Option<String> {
    let mut run = run_with_calls(policies, spec, &["get_customer", "refund"]);
    let mut approved = std::collections::BTreeSet::new();
    for _ in 0..20 {
        for record in run.journal.records().iter().filter(|record| record.path.contains("/.call-")) {
            let has_run = record.kind == signoff_api::journal::StepKind::Mcp
                && record.input_digest.is_some()
                && !matches!(record.phase, StepPhase::Skipped | StepPhase::Waiting);
            let call = record.path.rsplit_once('/').unwrap().0.to_owned();
            if has_run && is_asked(&record.path) && !approved.contains(&call) {
                return Some(record.path.clone());
            }
        }
        let asks: Vec<_> = run.asks().into_iter().map(|ask| (ask.gate.path.clone(), is_of_policy(ask))).collect();
        let (path, is_of_policy) = asks.into_iter().next()?;
        let is_release = path.ends_with("/release-crm");
        if is_of_policy || is_release {
            let end = if is_release { path.rfind("/crm.") } else { path.rfind("/.gate") };
            approved.insert(path.split_at(end.unwrap()).0.to_owned());
        }
        run.decide(policies, &path, Verdict::Approve);
    }
    None
}

/// Returns a policy with a gate before calls, and a function that says whether the gate covers the call at a path.
/// `what` is below 5.
fn policy_with_calls(what: usize) -> (Value, fn(&str) -> bool) {
    let hitl = gate(json!({}));
    let tool = |calls: Value| json!({"steps": [{"name": "guard", "before": {"kinds": ["tool"], "calls": calls}, "hitl": hitl}]});
    match what {
        0 => (tool(json!({})), |_| true),
        1 => (tool(json!({"changes": true})), |_| true),
        2 => (tool(json!({"serverTools": ["refund"]})), |path| path.ends_with("crm.refund")),
        3 => (tool(json!({"hosts": ["crm.example"]})), |_| true),
        _ => (json!({"steps": [{"name": "release", "before": {"kinds": ["mcp"]}, "hitl": hitl}]}), |_| true),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_addition_of_an_author_or_server_removes_the_gate_of_a_policy(
        additions in proptest::collection::vec(addition(), 0..6), first in 0_usize..5, second in 0_usize..5,
    ) {
        println!("tried: 1 property cases");
        let mut spec = spec(json!({}), json!([]));
        for (number, addition) in additions.into_iter().enumerate() {
            apply_addition(&mut spec, addition, number);
        }
        prop_assume!(errors(&no_policies(), spec.clone()).is_empty());
        let ((one, is_asked), (two, _)) = (policy_with_calls(first), policy_with_calls(second));
        prop_assert_eq!(find_unasked_call(&cluster(&[("prod", one.clone())]), spec.clone(), is_asked), None);
        // A further policy does not loosen the others.
        prop_assert_eq!(find_unasked_call(&cluster(&[("prod", one), ("also", two)]), spec, is_asked), None);
    }
}

#[test]
fn calls_run_without_an_approval_if_there_is_no_policy() {
    let mut spec = spec(json!({}), json!([]));
    apply_addition(&mut spec, (0, true), 0);
    assert!(find_unasked_call(&no_policies(), spec, |_| true).is_some());
}

#[test]
fn a_reviewed_definition_is_compared_for_every_declared_effect() {
    let reviewed = json!([{"host": "crm.example", "tool": "refund", "definition": definition_digest("refund")}]);
    let policies = release_policy(json!({"kinds": ["mcp"], "except": reviewed}));
    let mut more = pins_of_refund();
    more["read"] = json!(["refund"]);
    let check = |run: &PolicyRun, path: &str| {
        let call = run.calls().into_iter().find(|call| call.path == path).unwrap();
        let crate::transition::CallContent::Mcp(mcp) = &call.content else { panic!("{call:?}") };
        let crate::transition::McpRequest::Call(tool) = &mcp.request else { panic!("{mcp:?}") };
        assert_eq!((tool.is_compared, tool.reads, call.idempotent), (true, false, false), "{path}");
    };
    check(&run_with_calls(&policies, spec(more.clone(), json!([])), &["refund"]), CALL);
    let mut without_a_model = spec(more, json!([]));
    without_a_model["steps"] = json!([{"name": "pay", "mcp": {"server": "crm", "tool": "refund", "arguments": {}}}]);
    without_a_model["agents"] = json!([]);
    let mut run = PolicyRun::of(&policies, without_a_model);
    run.reply(&policies, ".tools/crm", &catalogue().to_string());
    check(&run, "pay");
}

#[test]
fn gates_of_the_author_and_a_policy_about_a_server_tool_share_a_request() {
    let before = json!({"kinds": ["tool"]});
    let policies =
        cluster(&[("prod", json!({"steps": [{"name": "guard", "before": before, "hitl": gate(json!({}))}]}))]);
    let own = json!([{"name": "own", "type": "toolExecution", "hitl": gate(json!({}))}]);
    let run = run_with_calls(&policies, spec(json!({}), own), &["refund"]);
    assert!(is_of_policy(run.asked(GATE)));
}

#[test]
fn a_policys_gate_asks_about_a_changed_definition() {
    let reviewed = json!([{"host": "crm.example", "tool": "refund", "definition": definition_digest("refund")}]);
    let other = json!({"tools": [{"name": "refund", "description": "other", "inputSchema": {"type": "object"}}]});
    let now = serde_json::from_value::<Catalogue>(other.clone()).unwrap().tool("refund").unwrap().digest();
    for (before, is_reviewed) in
        [(json!({"kinds": ["mcp"]}), false), (json!({"kinds": ["mcp"], "except": reviewed}), true)]
    {
        let policies = release_policy(before);
        let mut run = run_with_calls(&policies, spec(pins_of_refund(), json!([])), &["refund"]);
        if !is_reviewed {
            run.decide(&policies, RELEASE, Verdict::Approve);
        }
        assert_eq!(call_paths(&run), [CALL]);
        let changed = crate::transition::McpCall::changed("crm", "refund", Some(&now));
        let failure = crate::transition::Failure {
            class: FailureClass::ToolChanged.name().to_owned(),
            message: "it changed".to_owned(),
            retryable: false,
            unknown: false,
            not_before: None,
            facts: std::collections::BTreeMap::from([("changed".to_owned(), changed)]),
            log: None,
        };
        let at = super::run_tests::moment();
        run.take(
            &policies,
            vec![crate::Fact::CallFinished { path: CALL.into(), attempt: 1, result: Err(failure), at }],
        );
        assert_eq!(call_paths(&run), [".tools/crm#2"]);
        run.reply(&policies, ".tools/crm#2", &other.to_string());
        turn(&mut run, &policies, "handle/.turn-2", &[("crm__refund", "{}")]);
        let call = "handle/.turn-2/.call-1/crm.refund";
        assert_eq!(run.asked(&format!("{call}/release-crm")).gate.name, "release-crm");
        assert_eq!(call_paths(&run), [""; 0]);
        run.decide(&policies, &format!("{call}/release-crm"), Verdict::Approve);
        assert_eq!(call_paths(&run), [call]);
    }
}

#[test]
fn an_approved_call_that_a_policy_forbids_later_is_not_sent() {
    let own = || json!([{"name": "own", "type": "toolExecution", "hitl": gate(json!({}))}]);
    for (rule, is_forbidden) in [
        (json!({"serverTools": ["refund"]}), true),
        (json!({"serverTools": ["ref*"], "kinds": ["mcp"]}), true),
        (json!({"serverTools": ["Refund"]}), false),
        (json!({"serverTools": ["crm.refund"]}), false),
    ] {
        let never = cluster(&[("prod", json!({"tools": {"never": [rule]}}))]);
        let mut run = run_with_calls(&no_policies(), spec(json!({}), own()), &["refund"]);
        run.decide(&never, GATE, Verdict::Approve);
        assert_eq!(call_paths(&run).contains(&CALL), !is_forbidden, "{rule}: {:?}", call_paths(&run));
        let error = run.record(CALL).error.as_ref();
        assert_eq!(error.is_some_and(|error| error.is(FailureClass::NotAllowed)), is_forbidden, "{rule}: {error:?}");
    }
}
