//! Tests of tools of MCP servers: the recorded catalogue, calls without a gate, and changed definitions.

mod away;
mod hostile;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use signoff_api::{Digest, FailureClass, Verdict, catalogue::Catalogue, journal::StepPhase, names::ANNOTATION_DEPTH};

use super::{result, turn};
use crate::{
    Fact, Plan, Settings,
    tests::test_run::{TestRun, agent, decided, errors, gate, plan_of, workflow},
    transition::{Call, CallContent, Command, Failure, McpCall, McpRequest, McpToolCall},
};

const TOOLS: &str = ".tools/crm";
const CALL: &str = "handle/.turn-1/.call-1/crm.refund";
const GATE: &str = "handle/.turn-1/.call-1/.gate";

/// Returns the server `crm`. `more` are further fields of the server.
fn server(more: Value) -> Value {
    let mut server = json!({"name": "crm", "url": "https://crm.example/mcp"});
    server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server
}

/// Returns a Workflow whose only agent may call every tool of the server.
fn spec(more: Value, gates: Value) -> Value {
    json!({
        "providers": [{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}],
        "agents": [{"name": "clerk", "system": "be brief", "tools": ["crm.*"]}],
        "servers": [server(more)],
        "gates": gates,
        "steps": [agent("handle", "clerk", "help")],
    })
}

fn gate_of_all_tools(more: Value) -> Value {
    let mut gate_value = json!({"name": "all", "type": "toolExecution", "hitl": gate(json!({}))});
    gate_value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!([gate_value])
}

fn definition(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}}})
}

fn digest_of_refund(description: &str) -> Digest {
    let tools = json!({"tools": [definition("refund", description)]});
    serde_json::from_value::<Catalogue>(tools).unwrap().tools()[0].digest()
}

/// Finishes the request at `path` for the catalogue of a server, which has these tools.
fn finish_listing(run: &mut TestRun, path: &str, tools: &[Value]) {
    run.reply(path, 1, &json!({"tools": tools}).to_string());
}

/// Returns a run whose server has listed its two tools.
fn run_with_tools(more: Value, gates: Value) -> TestRun {
    let mut run = TestRun::of(spec(more, gates));
    finish_listing(&mut run, TOOLS, &[definition("get_customer", "Finds."), definition("refund", "Refunds.")]);
    run
}

fn call_at<'r>(run: &'r TestRun, path: &str) -> &'r Call {
    let call = run.transition.commands.iter().find_map(|command| match command {
        Command::Call(call) if call.path == path => Some(&**call),
        Command::Call(_) | Command::Ask(_) => None,
    });
    call.unwrap_or_else(|| panic!("{path} is not called: {:?}", run.calls()))
}

fn mcp_request_at(run: &TestRun, path: &str) -> McpCall {
    match &call_at(run, path).content {
        CallContent::Mcp(mcp) => (**mcp).clone(),
        other => panic!("no request to a server: {other:?}"),
    }
}

fn sent_call(run: &TestRun, path: &str) -> McpToolCall {
    match mcp_request_at(run, path).request {
        McpRequest::Call(call) => call,
        McpRequest::Catalogue { .. } => panic!("no call"),
    }
}

/// Returns the names of the tools that the model can call at a path.
fn offered_tools(run: &TestRun, path: &str) -> Vec<String> {
    match &call_at(run, path).content {
        CallContent::Agent(agent) => agent.tools.iter().map(|tool| tool.name.clone()).collect(),
        other => panic!("no turn: {other:?}"),
    }
}

/// Fails a call because its tool changed. `now` is the digest of the new definition, or `None` if the tool is missing.
fn fail_because_changed(run: &mut TestRun, path: &str, attempt: i32, tool: &str, now: Option<&Digest>) {
    let facts = BTreeMap::from([("changed".to_owned(), McpCall::changed("crm", tool, now))]);
    fail_call(run, path, attempt, FailureClass::ToolChanged, facts);
}

fn fail_call(run: &mut TestRun, path: &str, attempt: i32, class: FailureClass, facts: BTreeMap<String, String>) {
    let failure = Failure {
        class: class.name().to_owned(),
        message: "it failed".to_owned(),
        retryable: true,
        unknown: false,
        not_before: None,
        facts,
        log: None,
    };
    let at = run.clock;
    run.take(vec![Fact::CallFinished { path: path.to_owned(), attempt, result: Err(failure), at }]);
}

#[test]
fn the_tools_of_a_server_are_listed_once_and_read_from_the_journal() {
    let mut run = TestRun::of(spec(json!({"only": ["get_*", "refund"], "read": ["get_*"]}), json!([])));
    assert_eq!(run.calls(), [".tools/crm@1"]);
    let listing = mcp_request_at(&run, TOOLS);
    assert_eq!(listing.request, McpRequest::Catalogue { only: vec!["get_*".into(), "refund".into()] });
    assert_eq!(listing.url.as_deref(), Some("https://crm.example/mcp"));
    finish_listing(&mut run, TOOLS, &[definition("refund", "Refunds."), definition("get_customer", "Finds.")]);
    assert_eq!(run.calls(), ["handle@1"]);
    assert_eq!(offered_tools(&run, "handle"), ["crm__get_customer", "crm__refund"]);
    turn(&mut run, "handle", &[("c1", "crm__get_customer", r#"{"id":"7"}"#)]);
    run.reply("handle/.turn-1/.call-1/crm.get_customer", 1, "ACME");
    assert_eq!(run.calls(), ["handle/.turn-2@1"]);
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "ACME");
    // Another process has only the journal, and plans again.
    run.plan = plan_of(spec(json!({"only": ["get_*", "refund"], "read": ["get_*"]}), json!([])));
    run.wait(1);
    assert_eq!(run.calls(), ["handle/.turn-2@1"]);
    assert_eq!(offered_tools(&run, "handle/.turn-2"), ["crm__get_customer", "crm__refund"]);
}

#[test]
fn a_tool_that_can_change_something_needs_an_approval_or_a_pin() {
    let pin = |description: &str| json!({"pins": [{"tool": "refund", "definition": digest_of_refund(description)}]});
    for (more, gates, is_run) in [
        (json!({}), json!([]), false),
        (json!({"read": ["get_*"]}), json!([]), false),
        (pin("Refunds twice."), json!([]), false),
        (pin("Refunds."), json!([]), true),
        (json!({"read": ["refund"]}), json!([]), true),
        // Neither a false condition nor a list replaces the approval of people.
        (json!({}), gate_of_all_tools(json!({"type": "custom", "condition": "false"})), false),
        (json!({}), gate_of_all_tools(json!({"type": "specificTools", "tools": ["crm.get_*"]})), false),
        (json!({}), gate_of_all_tools(json!({"type": "destructiveActions", "allowedTools": ["mail.*"]})), false),
    ] {
        let mut run = run_with_tools(more.clone(), gates.clone());
        turn(&mut run, "handle", &[("c1", "crm__refund", r#"{"id":"7"}"#)]);
        let is_called = run.calls() == [format!("{CALL}@1")];
        let is_asked = !run.open().is_empty();
        assert_eq!(is_called, is_run, "{more} {gates}");
        if !is_run && !is_asked {
            let record = run.record(CALL);
            assert_eq!((record.phase, record.input_digest.as_ref()), (StepPhase::Failed, None), "{more} {gates}");
            assert!(record.error.as_ref().unwrap().is(FailureClass::NotAllowed));
            assert!(result(&run, "handle/.turn-2", "c1").contains("its definition is not pinned"));
        }
    }
}

#[test]
fn a_call_that_only_reads_is_not_compared_and_has_the_recorded_definition() {
    let mut run = run_with_tools(json!({"read": ["get_*"]}), gate_of_all_tools(json!({"allowedTools": ["crm.get_*"]})));
    let calls = [("c1", "crm__get_customer", r#"{"id":"7"}"#), ("c2", "crm__refund", r#"{"id":"7"}"#)];
    turn(&mut run, "handle", &calls);
    let call = sent_call(&run, "handle/.turn-1/.call-1/crm.get_customer");
    assert_eq!((call.reads, call.is_compared, call.needs_people, call.depth), (true, false, false, 0));
    assert_eq!(Some(&*call.described), definition("get_customer", "Finds.").as_object());
    run.approve("handle/.turn-1/.call-2/.gate");
    let call = sent_call(&run, "handle/.turn-1/.call-2/crm.refund");
    assert_eq!((call.reads, call.is_compared, call.needs_people), (false, true, true));
}

#[test]
fn a_call_carries_the_depth_of_nested_runs() {
    let spec = spec(json!({"read": ["get_*"]}), json!([]));
    for (annotation, depth) in [("0", 0), ("3", 3), ("many", u32::MAX), ("-1", u32::MAX)] {
        let mut workflow = workflow(spec.clone());
        let annotations = BTreeMap::from([(ANNOTATION_DEPTH.to_owned(), annotation.to_owned())]);
        workflow.metadata.annotations = Some(annotations);
        let mut run = run_with_tools(json!({"read": ["get_*"]}), json!([]));
        run.plan = Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap();
        turn(&mut run, "handle", &[("c1", "crm__get_customer", r#"{"id":"7"}"#)]);
        assert_eq!(sent_call(&run, "handle/.turn-1/.call-1/crm.get_customer").depth, depth, "{annotation}");
    }
}

#[test]
fn annotations_count_only_if_the_author_trusts_them() {
    let mut hinted = definition("refund", "Refunds.");
    hinted["annotations"] = json!({"readOnlyHint": true});
    for (more, is_run) in [(json!({}), false), (json!({"trust": "hints"}), true)] {
        let mut run = TestRun::of(spec(more, json!([])));
        finish_listing(&mut run, TOOLS, std::slice::from_ref(&hinted));
        turn(&mut run, "handle", &[("c1", "crm__refund", "{}")]);
        assert_eq!(run.calls() == [format!("{CALL}@1")], is_run);
        // Annotations do not make a call repeatable.
        assert!(!is_run || !call_at(&run, CALL).idempotent);
    }
}

#[test]
fn a_call_is_sent_only_as_it_was_approved() {
    let mut run = run_with_tools(json!({}), gate_of_all_tools(json!({})));
    turn(&mut run, "handle", &[("c1", "crm__refund", r#"{"id":"7"}"#)]);
    let request = run.asked(GATE).request.clone();
    let action = request.action.unwrap();
    assert_eq!((action.tool.as_str(), action.effects), ("crm.refund", None));
    assert_eq!(action.target.as_deref(), Some("tool refund at https://crm.example/mcp"));
    assert_eq!(action.definition, Some(digest_of_refund("Refunds.")));
    let sent_text = request.sends.unwrap().text;
    assert!(
        sent_text.contains(digest_of_refund("Refunds.").as_str()) && sent_text.contains("server: crm"),
        "{sent_text}"
    );
    run.approve(GATE);
    let call = sent_call(&run, CALL);
    assert_eq!(
        (call.tool.as_str(), &call.definition, call.is_compared),
        ("refund", &digest_of_refund("Refunds."), true)
    );
    assert_eq!(Value::Object(call.arguments), json!({"id": "7"}));
    run.reply(CALL, 1, "done");
    assert_eq!(result(&run, "handle/.turn-2", "c1"), "done");
}

#[test]
fn arguments_that_people_edit_are_sent() {
    let mut run = run_with_tools(json!({}), gate_of_all_tools(json!({})));
    turn(&mut run, "handle", &[("c1", "crm__refund", r#"{"id":"7"}"#)]);
    run.modify(GATE, json!({"arguments": {"id": "8"}}));
    let second_gate = "handle/.turn-1/.call-1/.gate#2";
    if run.open() == [second_gate] {
        run.approve(second_gate);
    }
    assert_eq!(Value::Object(sent_call(&run, CALL).arguments), json!({"id": "8"}));
}

#[test]
fn a_changed_definition_is_listed_again_and_needs_a_new_approval() {
    let mut run = run_with_tools(json!({}), gate_of_all_tools(json!({})));
    turn(&mut run, "handle", &[("c1", "crm__refund", r#"{"id":"7"}"#)]);
    run.approve(GATE);
    fail_because_changed(&mut run, CALL, 1, "refund", Some(&digest_of_refund("Refunds twice.")));
    assert_eq!(run.calls(), [".tools/crm#2@1"], "before the next turn");
    finish_listing(&mut run, ".tools/crm#2", &[definition("refund", "Refunds twice.")]);
    assert_eq!(run.calls(), ["handle/.turn-2@1"]);
    assert!(result(&run, "handle/.turn-2", "c1").starts_with("Error: "));
    assert_eq!(offered_tools(&run, "handle/.turn-2"), ["crm__refund"]);
    turn(&mut run, "handle/.turn-2", &[("c2", "crm__refund", r#"{"id":"7"}"#)]);
    let gate = "handle/.turn-2/.call-1/.gate";
    assert_eq!(run.asked(gate).request.action.clone().unwrap().definition, Some(digest_of_refund("Refunds twice.")));
    run.approve(gate);
    let call = "handle/.turn-2/.call-1/crm.refund";
    assert_eq!(sent_call(&run, call).definition, digest_of_refund("Refunds twice."));
    run.reply(call, 1, "done");
    assert_eq!(run.calls(), ["handle/.turn-3@1"], "the catalogue is not read again");
}

#[test]
fn a_server_whose_tools_keep_changing_fails_the_step() {
    let mut run = run_with_tools(
        json!({"pins": [{"tool": "refund", "definition": digest_of_refund("0")}]}),
        gate_of_all_tools(json!({})),
    );
    for visit in 1..=4 {
        let turn_path = if visit == 1 { "handle".to_owned() } else { format!("handle/.turn-{visit}") };
        let arguments = format!(r#"{{"id":"{visit}"}}"#);
        turn(&mut run, &turn_path, &[("c1", "crm__refund", &arguments)]);
        run.approve(&format!("handle/.turn-{visit}/.call-1/.gate"));
        let next = digest_of_refund(&visit.to_string());
        fail_because_changed(&mut run, &format!("handle/.turn-{visit}/.call-1/crm.refund"), 1, "refund", Some(&next));
        if visit < 4 {
            finish_listing(&mut run, &format!(".tools/crm#{}", visit + 1), &[definition("refund", &visit.to_string())]);
        }
    }
    assert!(run.expect_failure().contains("changed 4 times in this run"), "{}", run.expect_failure());
    assert!(run.record("handle/.turn-5").error.as_ref().unwrap().is(FailureClass::ToolChanged));
}

#[test]
fn a_listed_tool_that_the_catalogue_lacks_fails_the_step() {
    for (gates, tools) in [
        (gate_of_all_tools(json!({"type": "specificTools", "tools": ["crm.refund"]})), json!(["crm.*"])),
        (gate_of_all_tools(json!({"allowedTools": ["crm.refund"]})), json!(["crm.*"])),
        (gate_of_all_tools(json!({"allowedTools": ["!crm.refund"]})), json!(["crm.*"])),
        (gate_of_all_tools(json!({})), json!(["crm.get_*", "crm.refund"])),
    ] {
        let mut spec = spec(json!({}), gates);
        spec["agents"][0]["tools"] = tools;
        let mut run = TestRun::of(spec);
        finish_listing(&mut run, TOOLS, &[definition("get_customer", "Finds.")]);
        assert!(run.expect_failure().contains("has no tool crm.refund"), "{}", run.expect_failure());
        assert!(run.record("handle").error.as_ref().unwrap().is(FailureClass::ToolMissing));
    }
}

#[test]
fn a_tool_that_vanished_is_not_offered_any_more() {
    let mut run = run_with_tools(json!({}), gate_of_all_tools(json!({})));
    turn(&mut run, "handle", &[("c1", "crm__refund", "{}")]);
    run.approve(GATE);
    fail_because_changed(&mut run, CALL, 1, "refund", None);
    finish_listing(&mut run, ".tools/crm#2", &[definition("get_customer", "Finds.")]);
    assert_eq!(offered_tools(&run, "handle/.turn-2"), ["crm__get_customer"]);
    turn(&mut run, "handle/.turn-2", &[("c2", "crm__refund", "{}")]);
    assert!(result(&run, "handle/.turn-3", "c2").contains("there is no tool crm__refund"));
}

#[test]
fn a_server_that_is_away_fails_the_turn_and_retry_applies() {
    let mut run = TestRun::of(spec(json!({}), json!([])));
    fail_call(&mut run, TOOLS, 1, FailureClass::Unreachable, BTreeMap::new());
    assert!(run.expect_failure().contains("the tools of the server crm cannot be listed"), "{}", run.expect_failure());
    assert!(run.record("handle").error.as_ref().unwrap().is(FailureClass::Unreachable));
    let mut spec = spec(json!({}), json!([]));
    spec["steps"][0]["retry"] = json!({"limit": 1});
    let mut run = TestRun::of(spec);
    fail_call(&mut run, TOOLS, 1, FailureClass::Unreachable, BTreeMap::new());
    run.wait(10);
    assert_eq!(run.calls(), [".tools/crm@2"]);
    run.reply(TOOLS, 2, r#"{"tools":[]}"#);
    assert_eq!(run.calls(), ["handle@2"]);
    assert_eq!(offered_tools(&run, "handle"), [""; 0]);
}

#[test]
fn a_call_whose_outcome_is_unknown_is_not_repeated() {
    let mut run = run_with_tools(json!({}), gate_of_all_tools(json!({})));
    turn(&mut run, "handle", &[("c1", "crm__refund", "{}")]);
    run.approve(GATE);
    assert!(!call_at(&run, CALL).idempotent);
    run.fail(CALL, 1, false, true);
    assert!(run.expect_failure().contains("the call must not be repeated"), "{}", run.expect_failure());
}

#[test]
fn an_equal_call_of_a_turn_needs_an_approval_unless_it_reads() {
    let mut run = run_with_tools(json!({"read": ["get_*"]}), gate_of_all_tools(json!({"allowedTools": ["crm.get_*"]})));
    let lookups = [("c1", "crm__get_customer", "{}"), ("c2", "crm__get_customer", "{}")];
    turn(&mut run, "handle", &lookups);
    run.reply("handle/.turn-1/.call-1/crm.get_customer", 1, "ACME");
    run.reply("handle/.turn-1/.call-2/crm.get_customer", 1, "ACME");
    turn(&mut run, "handle/.turn-2", &[("c1", "crm__refund", "{}"), ("c2", "crm__refund", "{}")]);
    run.approve("handle/.turn-2/.call-1/.gate");
    run.reply("handle/.turn-2/.call-1/crm.refund", 1, "done");
    let action = run.asked("handle/.turn-2/.call-2/.gate").request.action.clone().unwrap();
    assert!(action.done.iter().any(|line| line.contains("call 2 of 2 equal calls")), "{:?}", action.done);
}

#[test]
fn a_tool_of_the_workflow_can_call_a_tool_of_a_server() {
    let mut spec = spec(json!({}), gate_of_all_tools(json!({})));
    spec["agents"][0]["tools"] = json!(["pay-back"]);
    spec["tools"] = json!([{"name": "pay-back", "step": "pay", "description": "Pays back.", "parameters": {
        "type": "object", "required": ["id", "cents"], "properties": {"id": {"type": "string"}, "cents": {"type": "integer"}}}}]);
    let arguments = json!({"id": "EU-{{ args.id }}", "amount": "{{ args.cents | tojson }}", "currency": "EUR"});
    spec["steps"] = json!([
        agent("handle", "clerk", "help"),
        {"name": "pay", "mcp": {"server": "crm", "tool": "refund", "arguments": arguments}},
    ]);
    let mut run = TestRun::of(spec);
    assert_eq!(run.calls(), [".tools/crm@1"]);
    finish_listing(&mut run, TOOLS, &[definition("refund", "Refunds.")]);
    assert_eq!(offered_tools(&run, "handle"), ["pay-back"]);
    turn(&mut run, "handle", &[("c1", "pay-back", r#"{"id":"7","cents":4200}"#)]);
    run.approve(GATE);
    let call = sent_call(&run, "handle/.turn-1/.call-1/pay");
    assert_eq!(Value::Object(call.arguments), json!({"id": "EU-7", "amount": 4200, "currency": "EUR"}));
    assert_eq!(call.definition, digest_of_refund("Refunds."));
}

/// Returns a Workflow whose only step calls a tool of the server.
fn spec_with_step(more: Value, gates: Value) -> Value {
    let arguments = json!({"id": "{{ inputs.customer }}"});
    json!({
        "inputs": [{"name": "customer", "value": "7"}],
        "servers": [server(more)],
        "gates": gates,
        "steps": [{"name": "pay", "mcp": {"server": "crm", "tool": "refund", "arguments": arguments}}],
    })
}

#[test]
fn a_step_calls_a_tool_without_a_model_and_its_gate_shows_the_definition() {
    let start = json!([{"name": "sure", "type": "stepStart", "hitl": gate(json!({}))}]);
    let mut run = TestRun::of(spec_with_step(json!({}), start));
    assert_eq!(run.calls(), [".tools/crm@1"]);
    finish_listing(&mut run, TOOLS, &[definition("refund", "Refunds.")]);
    let shown = run.asked("pay/.start").request.reviews.clone().unwrap().response;
    assert!(
        shown.contains(digest_of_refund("Refunds.").as_str()) && shown.contains("https://crm.example/mcp"),
        "{shown}"
    );
    run.approve("pay/.start");
    assert_eq!(sent_call(&run, "pay").definition, digest_of_refund("Refunds."));
    fail_because_changed(&mut run, "pay", 1, "refund", Some(&digest_of_refund("Refunds twice.")));
    assert_eq!(run.calls(), [".tools/crm#2@1"]);
    finish_listing(&mut run, ".tools/crm#2", &[definition("refund", "Refunds twice.")]);
    let shown = run.asked("pay/.start#2").request.reviews.clone().unwrap().response;
    assert!(
        shown.contains(digest_of_refund("Refunds twice.").as_str()) && shown.contains("description: Refunds twice."),
        "{shown}"
    );
    run.approve("pay/.start#2");
    assert_eq!(
        (run.calls(), sent_call(&run, "pay").definition),
        (vec!["pay@2".to_owned()], digest_of_refund("Refunds twice."))
    );
    run.reply("pay", 2, "done");
    assert_eq!(run.expect_success(), "done");
}

#[test]
fn a_pinned_step_runs_only_with_the_pinned_definition() {
    let pins = json!({"pins": [{"tool": "refund", "definition": digest_of_refund("Refunds.")}]});
    let mut run = TestRun::of(spec_with_step(pins.clone(), json!([])));
    finish_listing(&mut run, TOOLS, &[definition("refund", "Refunds.")]);
    assert!(sent_call(&run, "pay").is_compared);
    let mut run = TestRun::of(spec_with_step(pins, json!([])));
    finish_listing(&mut run, TOOLS, &[definition("refund", "Refunds twice.")]);
    assert!(run.expect_failure().contains("its definition is not pinned"), "{}", run.expect_failure());
    let mut run = TestRun::of(spec_with_step(json!({"read": ["*"]}), json!([])));
    finish_listing(&mut run, TOOLS, &[definition("get_customer", "Finds.")]);
    assert!(run.expect_failure().contains("has no tool refund"), "{}", run.expect_failure());
}

#[test]
fn a_step_whose_call_would_never_be_sent_is_refused() {
    let found_errors = errors(spec_with_step(json!({}), json!([])));
    assert!(
        found_errors.iter().any(|error| error.contains("spec.steps[0].mcp: crm.refund may change something")),
        "{found_errors:?}"
    );
    assert_eq!(errors(spec_with_step(json!({"read": ["refund"]}), json!([]))), [""; 0]);
    assert_eq!(errors(spec_with_step(json!({"trust": "hints"}), json!([]))), [""; 0]);
}

#[test]
fn a_glob_without_a_server_name_matches_no_tool_of_a_server() {
    let mut spec = spec(json!({}), gate_of_all_tools(json!({})));
    spec["agents"][0]["tools"] = json!(["note*"]);
    spec["tools"] = json!([{"name": "note", "step": "write", "description": "Writes."}]);
    spec["steps"] = json!([agent("handle", "clerk", "help"), {"name": "write", "set": {"value": "noted"}}]);
    let run = TestRun::of(spec);
    assert_eq!(run.calls(), ["handle@1"], "the server is not asked");
    assert_eq!(offered_tools(&run, "handle"), ["note"]);
}

#[test]
fn definitions_that_are_too_long_for_a_model_fail_the_turn() {
    let mut run = TestRun::of(spec(json!({}), gate_of_all_tools(json!({}))));
    let tools: Vec<_> = (0..12).map(|at| definition(&format!("tool_{at}"), &"x".repeat(12_000))).collect();
    finish_listing(&mut run, TOOLS, &tools);
    assert!(run.expect_failure().contains("at most 131072"), "{}", run.expect_failure());
}

#[test]
fn a_rejected_call_is_not_asked_about_again() {
    let mut run = run_with_tools(json!({}), gate_of_all_tools(json!({})));
    turn(&mut run, "handle", &[("c1", "crm__refund", "{}")]);
    run.decide(GATE, decided(Verdict::Reject));
    turn(&mut run, "handle/.turn-2", &[("c2", "crm__refund", "{}")]);
    assert_eq!(run.open(), [""; 0]);
    assert!(result(&run, "handle/.turn-3", "c2").starts_with("Already refused"));
}
