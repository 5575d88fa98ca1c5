//! Tests of requests that count as changing, at gates, in policies and for repetitions: requests with another method in
//! a header, and a GET with a body.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::Verdict;

use super::{
    calls_tests::{errors, gate_of_every_call, is_of_policy, last_result, policy_about_calls, run_with_calls, spec},
    run_tests::{gate, no_policies},
    tests::cluster,
    *,
};
use crate::{Plan, Settings, tests::test_run::workflow};

/// Returns requests that can change something although their method is GET or HEAD.
fn disguised_requests() -> Vec<Value> {
    let with = |more: Value| {
        let mut http = json!({"url": "https://crm.example/customers"});
        http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        http
    };
    vec![
        with(json!({"headers": {"X-HTTP-Method-Override": "DELETE"}})),
        with(json!({"headers": {"x-method-override": "delete"}})),
        with(json!({"method": "HEAD", "headers": {"X-Http-Method": "{{ args.to | default('get') }}"}})),
        with(json!({"body": "{\"query\": {}}"})),
        with(json!({"method": "HEAD", "body": ""})),
    ]
}

/// Returns a spec whose tool `lookup` sends the request `http` and declares `effects`.
fn spec_with_lookup(http: &Value, effects: Option<&str>, gates: Value) -> Value {
    let mut spec = spec([None, effects, None], gates);
    spec["steps"][2]["http"] = http.clone();
    spec["agents"][0]["tools"] = json!(["lookup"]);
    spec
}

fn plain_request() -> Value {
    json!({"url": "https://crm.example/customers", "headers": {"Accept": "application/json"}})
}

fn tool_policy(rules: Value) -> Policies {
    cluster(&[("prod", json!({"tools": rules}))])
}

#[test]
fn a_disguised_request_is_asked_about_by_gates_of_policies_and_of_authors() {
    let destructive = || json!([{"name": "own", "type": "destructiveActions", "hitl": gate(json!({}))}]);
    let declared =
        || json!([{"name": "own", "type": "custom", "condition": "effects != 'read'", "hitl": gate(json!({}))}]);
    let asks = |policies: &Policies, http: &Value, gates: Value| {
        let run = run_with_calls(policies, spec_with_lookup(http, Some("read"), gates), &["lookup"]);
        !run.asks().is_empty()
    };
    for http in disguised_requests() {
        let changing = policy_about_calls(json!({"changes": true}));
        let run = run_with_calls(&changing, spec_with_lookup(&http, Some("read"), json!([])), &["lookup"]);
        assert!(run.asks().into_iter().any(is_of_policy), "{http}");
        assert!(asks(&no_policies(), &http, destructive()), "{http}");
        assert!(asks(&no_policies(), &http, declared()), "{http}");
    }
    assert!(!asks(&policy_about_calls(json!({"changes": true})), &plain_request(), json!([])));
    assert!(!asks(&no_policies(), &plain_request(), destructive()));
    assert!(!asks(&no_policies(), &plain_request(), declared()));
}

#[test]
fn effects_read_does_not_count_for_methods_that_change_something() {
    for (method, is_asked) in
        [("GET", false), ("HEAD", false), ("POST", false), ("PUT", true), ("PATCH", true), ("DELETE", true)]
    {
        let own = json!([{"name": "own", "type": "destructiveActions", "hitl": gate(json!({}))}]);
        let http = json!({"method": method, "url": "https://crm.example/customers"});
        let run = run_with_calls(&no_policies(), spec_with_lookup(&http, Some("read"), own), &["lookup"]);
        assert_eq!(!run.asks().is_empty(), is_asked, "{method}");
    }
}

#[test]
fn a_disguised_request_needs_the_gate_that_a_policy_requires() {
    let policies = tool_policy(json!({"requireGate": true}));
    let others =
        json!([{"name": "own", "type": "specificTools", "tools": ["note", "refund"], "hitl": gate(json!({}))}]);
    let found = |http: &Value, gates: Value| {
        let errors = errors(&policies, spec_with_lookup(http, Some("read"), gates));
        errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    for http in disguised_requests() {
        assert_eq!(found(&http, others.clone()), ["spec.tools[1]"], "{http}");
        assert!(found(&http, gate_of_every_call(json!([]))).is_empty(), "{http}");
    }
    assert!(found(&plain_request(), others).is_empty());
}

#[test]
fn a_forbidden_method_is_refused_also_in_a_header() {
    let policies = tool_policy(json!({"never": [{"methods": ["DELETE"]}]}));
    let with = |method: &str, header: &str, value: &str| json!({"method": method, "url": "https://crm.example/x", "headers": {header: value}});
    let is_refused = |http: &Value| {
        let found = errors(&policies, spec_with_lookup(http, None, gate_of_every_call(json!([]))));
        found.iter().any(|error| error.field == "spec.tools[1]" && error.message.contains("with DELETE"))
    };
    for method in ["GET", "POST", "PUT"] {
        assert!(is_refused(&with(method, "X-HTTP-Method-Override", "DELETE")), "{method}");
        assert!(is_refused(&with(method, "x-http-method", " delete")), "{method}");
        assert!(!is_refused(&with(method, "X-Method-Override", "PUT")), "{method}");
        assert!(!is_refused(&with(method, "X-Other", "DELETE")), "{method}");
    }
}

#[test]
fn a_forbidden_method_in_a_rendered_header_is_not_sent() {
    let http = json!({"url": "https://crm.example/x", "headers": {"X-HTTP-Method-Override": "{{ inputs.base }}"}});
    let made = |base: &str, rules: Value| {
        let mut spec = spec_with_lookup(&http, Some("read"), gate_of_every_call(json!(["*"])));
        spec["inputs"][0]["value"] = json!(base);
        run_with_calls(&tool_policy(rules), spec, &["lookup"])
    };
    let never = || json!({"never": [{"methods": ["DELETE"]}]});
    assert!(last_result(&made("delete", never())).contains("forbids calls of tools, with DELETE"));
    assert_eq!(made("PATCH", never()).calls()[0].path, "handle/.turn-1/.call-1/find");
    // For a gate, a method that is known only at the call can be any method.
    let asks = policy_about_calls(json!({"methods": ["DELETE"]}));
    let open = json!({"url": "https://crm.example/x", "headers": {"X-HTTP-Method-Override": "{{ args.to }}"}});
    let plan = |http: &Value| {
        Plan::of(&workflow(spec_with_lookup(http, None, json!([]))), &Settings::default(), &Arc::new(asks.clone()))
    };
    let can_be_asked = |http: &Value| plan(http).unwrap().tools.tools["lookup"].step.has_policy_call_gate;
    assert!(can_be_asked(&open));
    assert!(!can_be_asked(&plain_request()));
}

#[test]
fn a_disguised_request_is_not_repeated_automatically() {
    let idempotent = |policies: &Policies, http: &Value| {
        let mut spec = spec_with_lookup(http, None, json!([]));
        spec["steps"].as_array_mut().unwrap().push(json!({"name": "own", "http": http}));
        let plan = Plan::of(&workflow(spec), &Settings::default(), &Arc::new(policies.clone())).unwrap();
        (plan.step_of("own").unwrap().is_idempotent(), plan.tools.tools["lookup"].step.is_idempotent())
    };
    let says = |http: &Value| {
        let mut http = http.clone();
        http["idempotent"] = json!(true);
        http
    };
    for http in disguised_requests().into_iter().filter(|http| !http.to_string().contains("args")) {
        assert_eq!(idempotent(&no_policies(), &http), (false, false), "{http}");
        // The author's declaration counts, except behind a gate of a policy.
        assert_eq!(idempotent(&no_policies(), &says(&http)), (true, true), "{http}");
        assert_eq!(idempotent(&policy_about_calls(json!({})), &says(&http)), (true, false), "{http}");
    }
    assert_eq!(idempotent(&policy_about_calls(json!({})), &plain_request()), (true, true));
}

#[test]
fn an_approved_disguised_call_is_not_idempotent() {
    for http in [&disguised_requests()[0], &disguised_requests()[3], &plain_request()] {
        let mut run = run_with_calls(
            &no_policies(),
            spec_with_lookup(http, Some("read"), gate_of_every_call(json!([]))),
            &["lookup"],
        );
        run.decide(&no_policies(), super::calls_tests::GATE, Verdict::Approve);
        assert_eq!(run.calls()[0].idempotent, *http == plain_request(), "{http}");
    }
}

#[test]
fn a_request_that_only_reads_has_no_editable_body() {
    let fields = |http: Value| {
        let start = json!([{"name": "start", "type": "stepStart", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Modify", "Reject"]}))}]);
        let spec = json!({"requestedBy": "dana", "gates": start, "steps": [{"name": "own", "http": http}]});
        let plan = Plan::of(&workflow(spec), &Settings::default(), &Arc::new(no_policies())).unwrap();
        let gate = plan.step_of("own").unwrap().start.clone().unwrap();
        format!("{:?}", gate.gate().unwrap().subject)
    };
    assert_eq!(fields(plain_request()), r#"Start(["url"])"#);
    assert_eq!(fields(json!({"url": "https://a.example", "body": "x"})), r#"Start(["url", "body"])"#);
    assert_eq!(fields(json!({"method": "POST", "url": "https://a.example"})), r#"Start(["url", "body"])"#);
}

#[test]
fn a_plan_warns_of_a_tool_whose_request_cannot_only_read() {
    let warnings = |http: &Value, effects: &str| {
        let plan = Plan::of(
            &workflow(spec_with_lookup(http, Some(effects), gate_of_every_call(json!([])))),
            &Settings::default(),
            &Arc::new(no_policies()),
        );
        plan.unwrap().warnings().join("\n")
    };
    let said = warnings(&disguised_requests()[0], "read");
    assert!(
        said.contains("its step sends GET (a header names the method DELETE), so its effects count as unknown"),
        "{said}"
    );
    assert!(warnings(&disguised_requests()[3], "read").contains("its step sends GET (with a body)"));
    assert!(warnings(&json!({"method": "PUT", "url": "https://a.example"}), "read").contains("its step sends PUT"));
    for (http, effects) in [(&plain_request(), "read"), (&disguised_requests()[0], "write")] {
        assert!(!warnings(http, effects).contains("its step sends"), "{http}");
    }
}
