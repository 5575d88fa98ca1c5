//! Tests of requests with headers from Secrets: calls and requests of gates contain names only, and the value goes to
//! one server.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use signoff_api::{Decision, Digest, JsonObject, Verdict, journal::StepPhase};

use super::tools::{gates, spec, turn};
use crate::{
    gate::{parameters, payload},
    replay::activity::input_digest,
    tests::test_run::{TestRun, chain_of, gate},
    transition::{Call, CallContent, Command, HttpCall},
};

const GATE: &str = "handle/.turn-1/.call-1/.gate";

fn secrets() -> Value {
    json!([{"name": "crm", "secret": "vault", "key": "token"}])
}

fn headers() -> Value {
    json!([{"name": "Authorization", "prefix": "Bearer ", "from": "crm"}, {"name": "X-Key", "from": "crm"}])
}

/// Returns a run of one request with an input in its path, and a gate before it.
fn run_at_gate() -> TestRun {
    let url = "https://crm.example.com/orders/{{ inputs.customer }}";
    let step = json!({"name": "look", "http": {"method": "POST", "url": url, "secretHeaders": headers()}});
    let mut spec = chain_of(json!([step]));
    spec["secrets"] = secrets();
    let hitl = gate(json!({"allowedVerdicts": ["Approve", "Modify", "Reject"]}));
    spec["gates"] = json!([{"name": "human", "type": "stepStart", "steps": ["look"], "hitl": hitl}]);
    TestRun::of(spec)
}

/// Returns the only call of a transition.
fn http_call(run: &TestRun) -> Option<(&Call, &HttpCall)> {
    run.transition.commands.iter().find_map(|command| match command {
        Command::Call(call) => match &call.content {
            CallContent::Http(http) => Some((&**call, http)),
            CallContent::Agent(_) | CallContent::Pod(_) | CallContent::Mcp(_) => None,
        },
        Command::Ask(_) => None,
    })
}

#[test]
fn a_request_shows_the_names_of_secret_headers_and_not_the_values() {
    let mut run = run_at_gate();
    let reviewed_text = run.asked("look/.start").request.reviews.as_ref().unwrap().response.clone();
    for line in [
        "url: https://crm.example.com/orders/ACME\n",
        "Authorization: Bearer ‹Secret vault/token› (its value is not covered by the approval)\n",
        "X-Key: ‹Secret vault/token› (its value is not covered by the approval)\n",
    ] {
        assert!(reviewed_text.contains(line), "{line}: {reviewed_text}");
    }
    run.approve("look/.start");
    let (sent, http) = http_call(&run).unwrap();
    let names = http.secret_headers.iter().map(|secret| (secret.header.as_str(), secret.prefix.as_str()));
    assert_eq!(names.collect::<Vec<_>>(), [("Authorization", "Bearer "), ("X-Key", "")]);
    assert!(http.secret_headers.iter().all(|secret| (&*secret.entry.secret, &*secret.entry.key) == ("vault", "token")));
    // The approval covers the names of the headers too.
    let mut call_with_one_header = sent.clone();
    if let CallContent::Http(http) = &mut call_with_one_header.content {
        http.secret_headers.pop();
    }
    assert_ne!(input_digest(sent), input_digest(&call_with_one_header));
    assert_eq!(run.record("look").input_digest.clone(), input_digest(sent).ok());
}

#[test]
fn a_request_without_secret_headers_has_an_unchanged_digest() {
    let run = TestRun::new(json!([{"name": "look", "http": {"url": "https://crm.example.com/"}}]));
    let (sent, _) = http_call(&run).unwrap();
    let input_without_secrets = json!({
        "method": "GET", "url": "https://crm.example.com/", "headers": {}, "body": null, "expect_status": [],
    });
    assert_eq!(input_digest(sent).ok(), Digest::of(&input_without_secrets).ok());
}

#[test]
fn a_value_in_the_path_cannot_change_the_server() {
    let run = |path: &str| {
        let url = "https://crm.example.com/orders/{{ inputs.customer }}";
        let mut spec = chain_of(json!([{"name": "look", "http": {"url": url, "secretHeaders": headers()}}]));
        spec["inputs"][0]["value"] = json!(path);
        spec["secrets"] = secrets();
        TestRun::of(spec)
    };
    for path in ["@evil.example", "x/@evil.example/", ".evil.example", ":8080", "?x#y"] {
        let run = run(path);
        let (_, http) = http_call(&run).unwrap();
        assert!(http.url.starts_with("https://crm.example.com/orders/"), "{}", http.url);
    }
    for path in ["..", "%2e%2e", "../@evil.example"] {
        let run = run(path);
        assert!(http_call(&run).is_none(), "{path}");
        assert_eq!(run.record("look").phase, StepPhase::Failed, "{path}");
    }
}

#[test]
fn an_edit_of_the_url_keeps_the_server_and_can_change_the_rest() {
    let urls_of_other_servers = [
        "https://evil.example/orders/ACME",
        "http://crm.example.com/orders/ACME",
        "https://crm.example.com:8443/orders/ACME",
        "https://crm.example.com.evil.example/",
        "https://crm.example.com@evil.example/",
        "https://dana@crm.example.com/",
        "https://crm.example.com",
        "{{ inputs.customer }}",
    ];
    let run = run_at_gate();
    let request = &run.asked("look/.start").request;
    let modify = |url: &str| {
        let parameters = json!({"url": url}).as_object().cloned().map(JsonObject);
        payload::parse(request, &Decision { parameters, ..Decision::new(Verdict::Modify) }).map(drop)
    };
    for url in urls_of_other_servers {
        let problem = modify(url).unwrap_err();
        assert!(problem.starts_with("parameters.url: "), "{problem}");
    }
    assert_eq!(modify("https://crm.example.com/refunds?all=1"), Ok(()));
    let schema = parameters::schema(request, Verdict::Modify).unwrap();
    assert_eq!(parameters::example(&schema)["url"], "https://crm.example.com/");
    // A stored decision that this rule forbids sends nothing. An operator without the rule could have accepted it.
    for url in urls_of_other_servers.iter().filter(|url| **url != "https://crm.example.com") {
        let mut run = run_at_gate();
        run.modify("look/.start", json!({"url": url}));
        assert!(http_call(&run).is_none(), "{url}");
        let error = run.record("look").error.clone().unwrap();
        assert!(error.message.contains("begins with https://crm.example.com/"), "{}", error.message);
    }
    let mut run = run_at_gate();
    run.modify("look/.start", json!({"url": "https://crm.example.com/refunds?all=1"}));
    assert_eq!(http_call(&run).unwrap().1.url, "https://crm.example.com/refunds?all=1");
}

#[test]
fn a_tool_with_a_secret_header_shows_its_name_and_keeps_the_server() {
    let mut spec = spec(gates(json!([{"name": "money", "type": "toolExecution", "hitl": gate(json!({}))}])));
    spec["secrets"] = secrets();
    spec["tools"][0]["parameters"] = json!({"type": "object"});
    let url = "https://crm.example.com/orders/{{ args.x }}";
    spec["steps"][1] = json!({"name": "find", "http": {"method": "POST", "url": url, "secretHeaders": headers()}});
    let mut run = TestRun::of(spec);
    turn(&mut run, "handle", &[("c1", "lookup", r#"{"x": "@evil.example/?"}"#)]);
    let request = &run.asked(GATE).request;
    let sent_text = request.sends.clone().unwrap().text;
    assert!(sent_text.contains("Authorization: Bearer ‹Secret vault/token› (its value"), "{sent_text}");
    assert!(sent_text.contains("url: https://crm.example.com/orders/%40evil.example%2F%3F\n"), "{sent_text}");
    run.approve(GATE);
    let (_, http) = http_call(&run).unwrap();
    assert_eq!(http.url, "https://crm.example.com/orders/%40evil.example%2F%3F");
    assert_eq!(http.secret_headers.len(), 2);
}
