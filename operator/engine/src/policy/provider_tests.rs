//! Tests of the providers and requests of a Workflow under policies: each is refused with a forbidden host or Secret.
#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use serde_json::json;
use signoff_api::workflow::{Provider, SecretEntry};

use super::tests::{cluster, errors};
use crate::{
    Plan, Settings,
    tests::test_run::{TestRun, workflow},
    transition::{AgentCall, Call, CallContent, Command},
};

fn call(provider: &Provider, key: &SecretEntry) -> Call {
    let turn = AgentCall {
        agent: "a".into(),
        provider: provider.clone(),
        key: Some(key.clone()),
        model: None,
        system: None,
        messages: Vec::new(),
        temperature: None,
        max_tokens: None,
        tools: Vec::new(),
        price: None,
    };
    let timeout = Duration::from_secs(1);
    Call { path: "ask".into(), attempt: 1, idempotent: true, timeout, content: CallContent::Agent(Box::new(turn)) }
}

#[test]
fn each_kind_with_a_server_needs_the_host_and_the_secret_that_policies_list() {
    let entry = SecretEntry { name: "k".into(), secret: "root".into(), key: "token".into() };
    let mut asked = 0;
    for kind in Provider::KINDS.into_iter().filter(|kind| *kind != "scripted") {
        for address in [json!({"baseURL": "https://models.example.com/v1", "key": "k"}), json!({"key": "k"})] {
            let provider: Provider = serde_json::from_value(json!({"name": "p", kind: address})).unwrap();
            let spec = json!({
                "requestedBy": "dana", "secrets": [entry], "providers": [provider], "agents": [{"name": "a", "model": "m"}],
                "steps": [{"name": "ask", "agent": {"name": "a", "input": "x"}}],
            });
            for (rules, part) in [
                (json!({"allowedHosts": ["a.org"]}), "(allowedHosts: a.org)"),
                (json!({"allowedSecrets": ["models"]}), "Secret root is not allowed by"),
            ] {
                let policies = cluster(&[("prod", rules)]);
                let found = errors(policies.clone(), spec.clone());
                assert!(found.iter().any(|error| error.message.contains(part)), "{kind}: {found:?}");
                // The call of a run that was accepted before the policy.
                let mut plan = Plan::of(&workflow(spec.clone()), &Settings::default(), &Arc::default()).unwrap();
                assert_eq!(plan.refuses(&call(&provider, &entry)), None);
                plan.policies = Arc::new(policies);
                assert!(plan.refuses(&call(&provider, &entry)).is_some_and(|why| why.contains(part)), "{kind}");
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 4 * (Provider::KINDS.len() - 1));
}

#[test]
fn a_request_with_a_secret_needs_the_host_and_the_secret_that_policies_list() {
    let spec = json!({
        "requestedBy": "dana", "secrets": [{"name": "k", "secret": "root", "key": "token"}],
        "steps": [{"name": "ask", "http": {
            "url": "https://crm.example.com/orders", "secretHeaders": [{"name": "Authorization", "from": "k"}]}}],
    });
    let run = TestRun::of(spec.clone());
    let sent = run.transition.commands.iter().find_map(|command| match command {
        Command::Call(call) => Some(&**call),
        Command::Ask(_) => None,
    });
    for (rules, part) in [
        (json!({"allowedHosts": ["a.org"]}), "(allowedHosts: a.org)"),
        (json!({"allowedSecrets": ["crm-*"]}), "Secret root is not allowed by"),
    ] {
        let policies = cluster(&[("prod", rules)]);
        let found = errors(policies.clone(), spec.clone());
        assert!(found.iter().any(|error| error.message.contains(part)), "{found:?}");
        // The call of a run that was accepted before the policy.
        let mut plan = Plan::of(&workflow(spec.clone()), &Settings::default(), &Arc::default()).unwrap();
        plan.policies = Arc::new(policies);
        assert!(plan.refuses(sent.unwrap()).is_some_and(|why| why.contains(part)));
    }
    let listed = cluster(&[("prod", json!({"allowedHosts": ["crm.example.com"], "allowedSecrets": ["ro*"]}))]);
    assert!(errors(listed, spec).is_empty());
}

#[test]
fn a_server_needs_the_host_and_the_secret_that_policies_list() {
    let spec = json!({
        "requestedBy": "dana", "secrets": [{"name": "k", "secret": "root", "key": "token"}],
        "servers": [{"name": "crm", "url": "https://crm.example.com/mcp", "key": "k", "read": ["*"]}],
        "steps": [{"name": "look", "mcp": {"server": "crm", "tool": "look"}}],
    });
    let mut run = TestRun::of(spec.clone());
    let sent = |run: &TestRun| {
        let call = run.transition.commands.iter().find_map(|command| match command {
            Command::Call(call) => Some((**call).clone()),
            Command::Ask(_) => None,
        });
        call.unwrap()
    };
    let listing = sent(&run);
    run.reply(".tools/crm", 1, r#"{"tools":[{"name":"look","inputSchema":{"type":"object"}}]}"#);
    let call = sent(&run);
    assert_eq!((listing.path.as_str(), call.path.as_str()), (".tools/crm", "look"));
    for (rules, part) in [
        (json!({"allowedHosts": ["a.org"]}), "(allowedHosts: a.org)"),
        (json!({"allowedSecrets": ["crm-*"]}), "Secret root is not allowed by"),
    ] {
        let policies = cluster(&[("prod", rules)]);
        let found = errors(policies.clone(), spec.clone());
        assert!(found.iter().any(|error| error.message.contains(part)), "{found:?}");
        // For a run that was accepted before the policy neither the list nor the call is sent.
        let mut plan = Plan::of(&workflow(spec.clone()), &Settings::default(), &Arc::default()).unwrap();
        plan.policies = Arc::new(policies);
        for request in [&listing, &call] {
            assert!(plan.refuses(request).is_some_and(|why| why.contains(part)), "{}", request.path);
        }
    }
    let listed = cluster(&[("prod", json!({"allowedHosts": ["crm.example.com"], "allowedSecrets": ["ro*"]}))]);
    assert!(errors(listed, spec).is_empty());
}
