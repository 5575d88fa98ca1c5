//! Tests that every later request names the people who changed its content.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};
use signoff_api::{Digest, Outcome, Verdict, approval::Edit};

use crate::tests::test_run::{TestRun, agent, chain_of, decided, gate, hitl, in_branch, of_pattern, set};

const SQL: &str = "SELECT 1;";

/// Decides the gate at `path` with Modify, by the votes of the people `by`.
fn edit(run: &mut TestRun, path: &str, by: &[&str], parameters: Value) {
    let parameters = Some(serde_json::from_value(parameters).unwrap());
    let decided_by = by.iter().map(|&name| name.to_owned()).collect();
    run.decide(path, Outcome { parameters, decided_by, ..decided(Verdict::Modify) });
}

/// Returns the edits that a request shows.
fn edits(run: &TestRun, path: &str) -> Vec<Edit> {
    run.asked(path).request.reviews.clone().unwrap_or_else(|| panic!("{path} reviews nothing")).by
}

/// Renders each edit as `people at gate (path), verdict`.
fn describe(edits: &[Edit]) -> Vec<String> {
    let describe_one =
        |edit: &Edit| format!("{} at {} ({}), {}", edit.by.join("+"), edit.gate, edit.path, edit.verdict);
    edits.iter().map(describe_one).collect()
}

/// Checks that the original of the newest edit at a gate is what the request of that edit reviewed.
fn assert_original(run: &TestRun, path: &str, before: &str) {
    assert_eq!(edits(run, path)[0].original, Digest::of_bytes(before.as_bytes()));
}

fn editing_verdicts() -> Value {
    json!(["Approve", "Reject", "Modify", "Respond", "Defer", "Abort"])
}

fn run_with_three_gates() -> TestRun {
    let reviews = |name: &str| hitl(name, json!({"reviews": "draft", "allowedVerdicts": editing_verdicts()}));
    let mut run =
        TestRun::new(json!([agent("draft", "writer", "write"), reviews("sql"), reviews("style"), reviews("prod")]));
    run.reply("draft", 1, SQL);
    run
}

#[test]
fn the_third_gate_shows_both_earlier_editors_the_newest_first() {
    let mut run = run_with_three_gates();
    assert_eq!(edits(&run, "sql"), []);
    edit(&mut run, "sql", &["bob"], json!({"response": "SELECT 1; DROP TABLE audit;"}));
    assert_eq!(describe(&edits(&run, "style")), ["bob at sql (sql), Modify"]);
    assert_original(&run, "style", SQL);
    edit(&mut run, "style", &["carol", "dave"], json!({"response": {"sql": "x"}}));
    assert_eq!(describe(&edits(&run, "prod")), ["carol+dave at style (style), Modify", "bob at sql (sql), Modify"]);
    assert_original(&run, "prod", "SELECT 1; DROP TABLE audit;");
    assert_eq!(edits(&run, "prod")[1].original, Digest::of_bytes(SQL.as_bytes()));
}

#[test]
fn an_unchanged_or_regenerated_value_has_no_editors() {
    let mut run = run_with_three_gates();
    run.approve("sql");
    assert_eq!(edits(&run, "style"), []);
    let mut run = run_with_three_gates();
    edit(&mut run, "sql", &["bob"], json!({"response": "x"}));
    run.defer("style", "again");
    run.reply("draft#2", 1, "y");
    assert_eq!(edits(&run, "sql#2"), [], "the edit was of an answer that does not count any more");
}

#[test]
fn an_edit_of_an_answer_is_named_at_the_next_gate() {
    let mut spec = chain_of(json!([agent("draft", "writer", "write"), hitl("prod", json!({}))]));
    spec["gates"] = json!([{"name": "check", "type": "outputValidation", "steps": ["draft"], "hitl": gate(json!({}))}]);
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, SQL);
    edit(&mut run, "draft/.output", &["bob"], json!({"response": "DROP"}));
    assert_eq!(describe(&edits(&run, "prod")), ["bob at check (draft/.output), Modify"]);
    assert_original(&run, "prod", SQL);
}

#[test]
fn the_gate_about_the_release_names_the_editors_of_its_values() {
    let mut spec = chain_of(json!([agent("draft", "writer", "write"), hitl("sql", json!({}))]));
    spec["gates"] = json!([{"name": "out", "type": "finalResponse", "hitl": gate(json!({}))}]);
    spec["outputs"] = json!({"from": "{{ steps.draft.response }}!"});
    let mut run = TestRun::of(spec.clone());
    run.reply("draft", 1, SQL);
    edit(&mut run, "sql", &["bob"], json!({"response": "DROP"}));
    assert_eq!(describe(&edits(&run, ".final")), ["bob at sql (sql), Modify"]);
    // The result of a list that ends with a gate is the response of the gate.
    spec.as_object_mut().unwrap().remove("outputs");
    let mut run = TestRun::of(spec.clone());
    run.reply("draft", 1, SQL);
    edit(&mut run, "sql", &["bob"], json!({"response": "DROP"}));
    assert_eq!(run.asked(".final").request.reviews.as_ref().unwrap().response, "modified");
    assert_eq!(edits(&run, ".final"), []);
    // If the gate is about the answer, the result is the answer.
    spec["steps"].as_array_mut().unwrap().pop();
    let check = json!({"name": "check", "type": "outputValidation", "steps": ["draft"], "hitl": gate(json!({}))});
    spec["gates"].as_array_mut().unwrap().push(check);
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, SQL);
    edit(&mut run, "draft/.output", &["bob"], json!({"response": "DROP"}));
    assert_eq!(describe(&edits(&run, ".final")), ["bob at check (draft/.output), Modify"]);
}

#[test]
fn an_edited_draft_names_its_editor_until_it_is_revised() {
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"evaluatorOptimizer": {
            "producer": "a", "input": "write", "evaluator": {"agent": "judge", "input": "judge {{ draft }}"},
            "accept": {"minScore": 80, "maxIterations": 9}, "reviewGate": "review",
        }},
        "gates": [
            {"name": "review", "hitl": gate(json!({"allowedVerdicts": editing_verdicts()}))},
            {"name": "out", "type": "finalResponse", "hitl": gate(json!({}))},
        ],
    })));
    let judge = |run: &mut TestRun, path: &str, score: i32| {
        run.reply(path, 1, &format!("{{\"score\": {score}}}"));
    };
    run.reply(".producer", 1, "d1");
    judge(&mut run, ".evaluator", 1);
    assert_eq!(edits(&run, ".review"), []);
    edit(&mut run, ".review", &["bob"], json!({"draft": "d2"}));
    judge(&mut run, ".evaluator#2", 2);
    assert_eq!(describe(&edits(&run, ".review#2")), ["bob at review (.review), Modify"]);
    assert_original(&run, ".review#2", "d1");
    edit(&mut run, ".review#2", &["carol"], json!({"draft": "d3"}));
    judge(&mut run, ".evaluator#3", 3);
    run.defer(".review#3", "shorter");
    run.reply(".reviser", 1, "d4");
    judge(&mut run, ".evaluator#4", 4);
    assert_eq!(edits(&run, ".review#4"), [], "the draft is the agent's again");
    edit(&mut run, ".review#4", &["erin"], json!({"draft": "d5"}));
    judge(&mut run, ".evaluator#5", 99);
    assert_eq!(describe(&edits(&run, ".final")), ["erin at review (.review#4), Modify"]);
}

#[test]
fn edited_results_of_workers_name_their_editors_at_the_release() {
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"orchestratorWorkers": {
            "orchestrator": {"agent": "boss", "input": "divide"}, "worker": {"agent": "a", "input": "do {{ task }}"},
            "reduceReview": "parts",
        }},
        "gates": [
            {"name": "parts", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Modify"]}))},
            {"name": "check", "type": "outputValidation", "steps": ["worker"], "hitl": gate(json!({}))},
            {"name": "out", "type": "finalResponse", "hitl": gate(json!({}))},
        ],
    })));
    run.reply(".orchestrator", 1, r#"[{"task": "boil"}, {"task": "pour"}]"#);
    run.reply(".worker-0", 1, "boiled");
    run.reply(".worker-1", 1, "poured");
    edit(&mut run, ".worker-0/.output", &["bob"], json!({"response": "burnt"}));
    run.approve(".worker-1/.output");
    assert_eq!(describe(&edits(&run, ".reduce-review")), ["bob at check (.worker-0/.output), Modify"]);
    let reviewed_text = run.asked(".reduce-review").request.reviews.clone().unwrap().response;
    edit(&mut run, ".reduce-review", &["carol"], json!({"workers": {"1": "spilt"}}));
    let expected = ["carol at parts (.reduce-review), Modify", "bob at check (.worker-0/.output), Modify"];
    assert_eq!(describe(&edits(&run, ".final")), expected);
    assert_original(&run, ".final", &reviewed_text);
}

#[test]
fn a_joined_result_names_the_editors_of_branches_and_of_the_result() {
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"parallel": {"reduce": "whole"}},
        "steps": [
            in_branch("left", agent("l", "a", "x")),
            in_branch("right", agent("r", "b", "y")),
            hitl("whole", json!({"allowedVerdicts": ["Approve", "Modify", "Respond"]})),
        ],
        "gates": [
            {"name": "check", "type": "outputValidation", "steps": ["l"], "hitl": gate(json!({}))},
            {"name": "out", "type": "finalResponse", "hitl": gate(json!({}))},
        ],
    })));
    run.reply("left/l", 1, "L");
    run.reply("right/r", 1, "R");
    edit(&mut run, "left/l/.output", &["bob"], json!({"response": "LL"}));
    assert_eq!(describe(&edits(&run, "whole")), ["bob at check (left/l/.output), Modify"]);
    let decided_by = vec!["carol".to_owned()];
    run.decide("whole", Outcome { response: Some("mine".into()), decided_by, ..decided(Verdict::Respond) });
    let expected = ["carol at whole (whole), Respond", "bob at check (left/l/.output), Modify"];
    assert_eq!(describe(&edits(&run, ".final")), expected);
}

#[test]
fn a_call_made_of_edited_values_names_their_editors() {
    let pay = json!({"name": "pay", "http": {"method": "POST", "url": "https://a.org", "body": "{{ steps.draft.response }}"}});
    let mut spec = chain_of(json!([agent("draft", "writer", "write"), hitl("sql", json!({})), set("other", "x"), pay]));
    spec["gates"] = json!([{"name": "start", "type": "stepStart", "steps": ["pay"], "hitl": gate(json!({}))}]);
    let mut run = TestRun::of(spec.clone());
    run.reply("draft", 1, SQL);
    edit(&mut run, "sql", &["bob"], json!({"response": "DROP"}));
    assert_eq!(describe(&edits(&run, "pay/.start")), ["bob at sql (sql), Modify"]);
    spec["steps"][3]["http"]["body"] = json!("{{ steps.other.response }}");
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, SQL);
    edit(&mut run, "sql", &["bob"], json!({"response": "DROP"}));
    assert_eq!(edits(&run, "pay/.start"), [], "nothing that bob changed is sent");
}

#[test]
fn an_edited_route_names_its_editor_at_a_gate_about_its_use() {
    let send = |value: &str| json!({"name": "send", "http": {"method": "POST", "url": "https://a.org", "body": value}});
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"routing": {"router": {"agent": "router", "input": "where?", "review": "way"}}},
        "steps": [
            in_branch("billing", send("{{ router.chosen_route }}")),
            in_branch("support", set("end", "x")),
        ],
        "gates": [
            {"name": "way", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Modify"]}))},
            {"name": "start", "type": "stepStart", "steps": ["send"], "hitl": gate(json!({}))},
        ],
    })));
    run.reply(".router", 1, r#"{"route": "support"}"#);
    edit(&mut run, ".review", &["bob"], json!({"route": "billing"}));
    assert_eq!(describe(&edits(&run, "billing/send/.start")), ["bob at way (.review), Modify"]);
    assert_original(&run, "billing/send/.start", "support");
}

#[test]
fn a_text_made_of_an_edited_text_names_its_editors() {
    for value in [
        "{{ steps.draft.response }}",
        "{{ hitl.parameters.response }}",
        "{{ steps.sql.parameters.response }}",
        "{{ last_response }} {{ steps.again.response }}",
    ] {
        let again = json!({"name": "again", "set": {"value": "{{ steps.draft.response }}"}});
        let copy = json!({"name": "copy", "set": {"value": value}});
        let steps =
            json!([agent("draft", "writer", "write"), hitl("sql", json!({})), again, copy, hitl("prod", json!({}))]);
        let mut run = TestRun::of(chain_of(steps));
        run.reply("draft", 1, SQL);
        edit(&mut run, "sql", &["bob"], json!({"response": "DROP"}));
        assert_eq!(describe(&edits(&run, "prod")), ["bob at sql (sql), Modify"], "{value}");
    }
    let plain = json!([agent("draft", "writer", "write"), hitl("sql", json!({})),
        {"name": "copy", "set": {"value": "{{ inputs.customer }}"}}, hitl("prod", json!({}))]);
    let mut run = TestRun::of(chain_of(plain));
    run.reply("draft", 1, SQL);
    edit(&mut run, "sql", &["bob"], json!({"response": "DROP"}));
    assert_eq!(edits(&run, "prod"), [], "the honest twin reads nothing of it");
}

#[test]
fn a_response_to_a_gate_names_the_person_who_gave_it() {
    let steps = json!([hitl("ask", json!({})), set("copy", "{{ hitl_response }}"), hitl("prod", json!({}))]);
    let mut run = TestRun::of(chain_of(steps));
    run.respond("ask", "DROP TABLE audit;");
    assert_eq!(describe(&edits(&run, "prod")), ["alice at ask (ask), Respond"]);
}
