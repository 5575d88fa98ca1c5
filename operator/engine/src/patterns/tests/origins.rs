//! Tests that a request names the editors of all values from which its content was rendered.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};
use signoff_api::{Outcome, Verdict};

use crate::{
    Fact,
    tests::test_run::{TestRun, agent, chain_of, decided, gate, hitl, in_branch, of_pattern, set},
};

fn edit(run: &mut TestRun, path: &str, by: &str, parameters: Value) {
    let parameters = Some(serde_json::from_value(parameters).unwrap());
    run.decide(path, Outcome { parameters, decided_by: vec![by.to_owned()], ..decided(Verdict::Modify) });
}

fn editors(run: &TestRun, path: &str) -> Vec<String> {
    let reviews = run.asked(path).request.reviews.clone().unwrap_or_else(|| panic!("{path} reviews nothing"));
    reviews.by.into_iter().flat_map(|edit| edit.by).collect()
}

fn final_gate() -> Value {
    json!({"name": "out", "type": "finalResponse", "hitl": gate(json!({}))})
}

#[test]
fn the_release_of_a_dag_names_the_editors_of_the_values_it_reads() {
    let mut draft = agent("draft", "a", "write");
    draft["dependsOn"] = json!([]);
    let mut sql = hitl("sql", json!({"reviews": "draft"}));
    sql["dependsOn"] = json!(["draft"]);
    let mut last = set("last", "{{ steps.draft.response }}");
    last["dependsOn"] = json!(["sql", "draft"]);
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"dag": {}}, "steps": [draft, sql, last], "gates": [final_gate()],
    })));
    run.reply("draft", 1, "SELECT 1;");
    edit(&mut run, "sql", "bob", json!({"response": "DROP TABLE audit;"}));
    assert_eq!(run.asked(".final").request.reviews.as_ref().unwrap().response, "DROP TABLE audit;");
    assert_eq!(editors(&run, ".final"), ["bob"]);
}

#[test]
fn a_reduce_names_only_the_editors_of_the_steps_that_it_reads() {
    for (value, expected_text, expected_editors) in [
        ("{{ branches.left.steps.l.response }}", "DROP TABLE audit;", &["bob"][..]),
        ("{{ branches.left.steps.sql.parameters.response }}", "DROP TABLE audit;", &["bob"]),
        ("{{ branches['left'].steps.l.original }}", "SELECT 1;", &["bob"]),
        ("{{ branches.left.response }}", "noted", &[]),
        ("{{ branches.left.steps.l.status }}", "succeeded", &[]),
        ("{{ branches.right.steps.r.response }}", "R", &[]),
    ] {
        let mut run = TestRun::of(of_pattern(json!({
            "pattern": {"parallel": {"reduce": "whole"}},
            "steps": [
                in_branch("left", agent("l", "a", "x")),
                in_branch("left", hitl("sql", json!({}))),
                in_branch("left", set("note", "noted")),
                in_branch("right", agent("r", "b", "y")),
                set("whole", value),
            ],
            "gates": [final_gate()],
        })));
        run.reply("left/l", 1, "SELECT 1;");
        run.reply("right/r", 1, "R");
        edit(&mut run, "left/sql", "bob", json!({"response": "DROP TABLE audit;"}));
        assert_eq!(run.asked(".final").request.reviews.as_ref().unwrap().response, expected_text, "{value}");
        assert_eq!(editors(&run, ".final"), expected_editors, "{value}");
    }
}

#[test]
fn a_text_that_reads_an_earlier_visit_names_its_editors() {
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"graph": {"entry": "draft", "edges": [
            {"from": "draft", "to": "sql"},
            {"from": "sql", "choose": [
                {"when": "steps.sql.decision == 'modified'", "to": "draft"}, {"when": "else", "to": "copy"},
            ]},
            {"from": "copy", "to": "prod"},
        ]}},
        "steps": [
            agent("draft", "a", "write"),
            hitl("sql", json!({"reviews": "draft"})),
            set("copy", "{{ steps.draft.visits[0].response }}"),
            hitl("prod", json!({"reviews": "copy"})),
        ],
    })));
    run.reply("draft", 1, "SELECT 1;");
    edit(&mut run, "sql", "bob", json!({"response": "DROP TABLE audit;"}));
    run.reply("draft#2", 1, "SELECT 2;");
    run.approve("sql#2");
    let reviewed_text = run.asked("prod").request.reviews.clone().unwrap().response;
    assert_eq!(reviewed_text, "DROP TABLE audit;", "the premise");
    assert_eq!(editors(&run, "prod"), ["bob"]);
}

#[test]
fn outputs_that_read_an_earlier_draft_name_its_editors() {
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"evaluatorOptimizer": {
            "producer": "a", "input": "write", "evaluator": {"agent": "judge", "input": "judge {{ draft }}"},
            "accept": {"minScore": 80, "maxIterations": 9}, "reviewGate": "review",
        }},
        "outputs": {"from": "{{ iterations[1].draft }}"},
        "gates": [{"name": "review", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Modify", "Respond"]}))}, final_gate()],
    })));
    run.reply(".producer", 1, "d1");
    run.reply(".evaluator", 1, r#"{"score": 1}"#);
    edit(&mut run, ".review", "bob", json!({"draft": "DROP TABLE audit;"}));
    run.reply(".evaluator#2", 1, r#"{"score": 2}"#);
    run.respond(".review#2", "shorter");
    run.reply(".reviser", 1, "d3");
    run.reply(".evaluator#3", 1, r#"{"score": 99}"#);
    assert_eq!(run.asked(".final").request.reviews.as_ref().unwrap().response, "DROP TABLE audit;");
    assert_eq!(editors(&run, ".final"), ["bob"]);
}

#[test]
fn a_text_that_reads_the_part_of_a_worker_names_its_editors() {
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"orchestratorWorkers": {
            "orchestrator": {"agent": "boss", "input": "divide"}, "worker": {"agent": "a", "input": "do {{ task }}"},
            "decompositionReview": "parts", "reduce": "whole",
        }},
        "steps": [set("whole", "{{ workers[0].task }}")],
        "gates": [{"name": "parts", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Modify"]}))}, final_gate()],
    })));
    run.reply(".orchestrator", 1, r#"[{"task": "boil"}]"#);
    edit(&mut run, ".decomposition", "bob", json!({"subtasks": [{"task": "DROP TABLE audit;"}]}));
    run.reply(".worker-0", 1, "done");
    assert_eq!(run.asked(".final").request.reviews.as_ref().unwrap().response, "DROP TABLE audit;");
    assert_eq!(editors(&run, ".final"), ["bob"]);
}

#[test]
fn an_output_gate_of_a_text_names_the_editors_of_its_values() {
    let mut spec = chain_of(json!([
        agent("draft", "writer", "write"),
        hitl("sql", json!({})),
        set("copy", "{{ steps.draft.response }}"),
    ]));
    spec["gates"] = json!([{"name": "check", "type": "outputValidation", "steps": ["copy"], "hitl": gate(json!({}))}]);
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, "SELECT 1;");
    edit(&mut run, "sql", "bob", json!({"response": "DROP TABLE audit;"}));
    assert_eq!(run.asked("copy/.output").request.reviews.as_ref().unwrap().response, "DROP TABLE audit;");
    assert_eq!(editors(&run, "copy/.output"), ["bob"]);
}

fn post(body: &str) -> Value {
    json!({"name": "apply", "http": {"method": "POST", "url": "https://db.example", "body": body}})
}

fn error_gates() -> Value {
    json!([{"name": "errors", "type": "errorEscalation", "steps": ["apply"], "afterAttempts": 1,
        "hitl": gate(json!({"allowedVerdicts": ["Retry", "Modify", "Skip", "Reject"]}))}])
}

#[test]
fn a_gate_about_a_failure_names_the_editors_of_the_sent_values() {
    let mut spec = chain_of(json!([
        agent("draft", "writer", "write"),
        hitl("sql", json!({})),
        post("{{ steps.draft.response }}")
    ]));
    spec["gates"] = error_gates();
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, "SELECT 1;");
    edit(&mut run, "sql", "bob", json!({"response": "DROP TABLE audit;"}));
    run.fail("apply", 1, false, false);
    let request = &run.asked("apply/.error").request;
    assert!(request.sends.as_ref().unwrap().text.contains("DROP TABLE audit;"), "the premise");
    assert_eq!(editors(&run, "apply/.error"), ["bob"]);
}

#[test]
fn a_gate_about_a_failure_names_the_editors_at_its_last_visit() {
    let mut spec = chain_of(json!([post("SELECT 1;")]));
    spec["gates"] = error_gates();
    let mut run = TestRun::of(spec);
    run.fail("apply", 1, false, false);
    edit(&mut run, "apply/.error", "bob", json!({"body": "DROP TABLE audit;"}));
    run.fail("apply", 2, false, false);
    let request = &run.asked("apply/.error#2").request;
    assert!(request.sends.as_ref().unwrap().text.contains("DROP TABLE audit;"), "the premise");
    assert_eq!(editors(&run, "apply/.error#2"), ["bob"]);
}

#[test]
fn parameters_read_by_name_or_position_name_their_editors() {
    for value in ["{{ steps.sql.parameters.response }}", "{{ steps[1].parameters.response }}"] {
        let steps = json!([
            agent("draft", "writer", "write"),
            hitl("sql", json!({})),
            set("copy", value),
            hitl("prod", json!({})),
        ]);
        let mut run = TestRun::of(chain_of(steps));
        run.reply("draft", 1, "SELECT 1;");
        edit(&mut run, "sql", "bob", json!({"response": "DROP TABLE audit;"}));
        assert_eq!(run.asked("prod").request.reviews.as_ref().unwrap().response, "DROP TABLE audit;", "the premise");
        assert_eq!(editors(&run, "prod"), ["bob"], "{value}");
    }
}

/// Returns a run of a chain in which bob has edited the draft at the gate `sql`. `more` are the later steps.
fn run_with_edited_draft(more: Value) -> TestRun {
    let mut steps = json!([agent("draft", "writer", "write"), hitl("sql", json!({}))]);
    steps.as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
    let mut run = TestRun::of(chain_of(steps));
    run.reply("draft", 1, "SELECT 1;");
    edit(&mut run, "sql", "bob", json!({"response": "DROP TABLE audit;"}));
    run
}

#[test]
fn a_step_read_by_position_names_its_editors() {
    for (value, expected_editors) in [
        ("{{ steps[0].response }}", &["bob"][..]),
        ("{{ steps[-3].response }}", &["bob"]),
        ("{{ steps[-1].response }}", &[]),
        ("{{ steps[1].response }}", &[]),
        ("{% for step in steps %}{{ step.response }} {% endfor %}", &["bob"]),
    ] {
        let run = run_with_edited_draft(json!([set("own", "x"), set("copy", value), hitl("prod", json!({}))]));
        assert_eq!(editors(&run, "prod"), expected_editors, "{value}");
    }
}

#[test]
fn a_text_made_of_other_texts_names_the_editors_of_all_of_them() {
    let steps = json!([
        set("first", "{{ steps.draft.response }}"),
        hitl("style", json!({"reviews": "first"})),
        set("second", "{{ last_response }} {{ steps.first.response }}"),
        json!({"name": "third", "vars": {"v": "{{ steps.second.response }}"}, "set": {"value": "{{ v }}"}}),
        hitl("prod", json!({})),
    ]);
    let mut run = run_with_edited_draft(steps);
    assert_eq!(editors(&run, "style"), ["bob"]);
    edit(&mut run, "style", "carol", json!({"response": "DROP TABLE users;"}));
    assert_eq!(editors(&run, "prod"), ["carol", "bob"], "the newest first");
}

#[test]
fn a_text_that_reads_its_own_visits_names_their_editors() {
    let mut run = TestRun::of(of_pattern(json!({
        "pattern": {"graph": {"entry": "draft", "edges": [
            {"from": "draft", "to": "log"},
            {"from": "log", "to": "sql"},
            {"from": "sql", "choose": [
                {"when": "steps.sql.decision == 'modified'", "to": "log"}, {"when": "else", "to": "prod"},
            ]},
        ]}},
        "steps": [
            agent("draft", "a", "write"),
            set("log", "{{ steps.log.response | default('') }} {{ steps.draft.response }}"),
            hitl("sql", json!({"reviews": "draft"})),
            hitl("prod", json!({"reviews": "log"})),
        ],
    })));
    run.reply("draft", 1, "a");
    edit(&mut run, "sql", "bob", json!({"response": "b"}));
    edit(&mut run, "sql#2", "carol", json!({"response": "c"}));
    run.approve("sql#3");
    assert_eq!(editors(&run, "prod"), ["carol", "bob"]);
}

#[test]
fn a_gate_names_the_editors_of_values_in_its_prompt_or_context() {
    for (gate, expected_editors) in [
        (json!({"prompt": "Run {{ steps.draft.response }}?"}), &["bob"][..]),
        (json!({"contextDisplay": "{{ steps.sql.parameters.response }}"}), &["bob"]),
        (json!({"contextDisplay": "{{ steps.draft.status }}"}), &[]),
    ] {
        let run = run_with_edited_draft(json!([set("own", "x"), hitl("prod", gate.clone())]));
        assert_eq!(editors(&run, "prod"), expected_editors, "{gate}");
    }
}

#[test]
fn a_condition_that_reads_an_edited_value_names_no_editors() {
    let mut text_step = set("own", "x");
    text_step["onlyIf"] = json!("steps.draft.response != ''");
    let mut gate_step = hitl("prod", json!({}));
    gate_step["onlyIf"] = json!("hitl.parameters.response != ''");
    let run = run_with_edited_draft(json!([text_step, gate_step]));
    assert_eq!(run.asked("prod").request.reviews.as_ref().unwrap().response, "x");
    assert_eq!(editors(&run, "prod"), [""; 0]);
}

#[test]
fn a_failed_request_without_edited_values_has_no_editors() {
    let mut spec = chain_of(json!([agent("draft", "writer", "write"), hitl("sql", json!({})), post("SELECT 1;")]));
    spec["gates"] = error_gates();
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, "SELECT 1;");
    edit(&mut run, "sql", "bob", json!({"response": "DROP TABLE audit;"}));
    run.fail("apply", 1, false, false);
    assert_eq!(editors(&run, "apply/.error"), [""; 0]);
}

#[test]
fn a_text_that_a_person_wrote_after_a_failure_names_the_person() {
    let mut spec = chain_of(json!([
        agent("draft", "writer", "write"),
        set("copy", "{{ steps.draft.response.no.such }}"),
        set("more", "{{ steps.copy.response }}"),
        hitl("prod", json!({})),
    ]));
    spec["gates"] = json!([{"name": "errors", "type": "errorEscalation", "steps": ["copy"], "afterAttempts": 1,
        "hitl": gate(json!({"allowedVerdicts": ["Modify", "Reject"]}))}]);
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, "x");
    edit(&mut run, "copy/.error", "bob", json!({"value": "DROP TABLE audit;"}));
    assert_eq!(run.asked("prod").request.reviews.as_ref().unwrap().response, "DROP TABLE audit;");
    assert_eq!(editors(&run, "prod"), ["bob"]);
}

#[test]
fn an_answer_of_an_agent_with_an_edited_input_has_no_editors() {
    let mut spec = chain_of(json!([
        agent("draft", "writer", "write"),
        hitl("sql", json!({})),
        agent("run", "writer", "{{ steps.draft.response }}"),
    ]));
    spec["gates"] = json!([{"name": "check", "type": "outputValidation", "steps": ["run"], "hitl": gate(json!({}))}]);
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, "SELECT 1;");
    edit(&mut run, "sql", "bob", json!({"response": "DROP TABLE audit;"}));
    run.reply("run", 1, "done");
    assert_eq!(editors(&run, "run/.output"), [""; 0]);
}

#[test]
fn an_edited_evaluation_names_its_editor_in_each_iteration() {
    for (value, expected_editors) in [
        ("{{ evaluation.score }}", &["bob"][..]),
        ("{{ iterations[0].evaluation.score }}", &["bob"]),
        ("{{ iterations[-1].evaluation.score }}", &["bob"]),
        ("{{ iterations[0].draft }}", &[]),
    ] {
        let mut run = TestRun::of(of_pattern(json!({
            "pattern": {"evaluatorOptimizer": {
                "producer": "a", "input": "write", "evaluator": {"agent": "judge", "input": "judge {{ draft }}"},
                "accept": {"minScore": 80, "maxIterations": 9},
            }},
            "outputs": {"from": value},
            "gates": [
                {"name": "check", "type": "outputValidation", "steps": ["evaluator"], "hitl": gate(json!({}))},
                final_gate(),
            ],
        })));
        run.reply(".producer", 1, "d1");
        run.reply(".evaluator", 1, r#"{"score": 1}"#);
        edit(&mut run, ".evaluator/.output", "bob", json!({"response": r#"{"score": 99}"#}));
        assert_eq!(editors(&run, ".final"), expected_editors, "{value}");
    }
}

#[test]
fn subtasks_and_results_of_workers_name_only_their_own_editors() {
    for (value, expected_editors) in [
        ("{{ workers[0].response }}", &["carol"][..]),
        ("{{ workers[1].response }}", &[]),
        ("{{ workers[1].task }}", &["bob"]),
        ("{{ subtasks[0].task }}", &["bob"]),
        ("{{ last_response }}", &["carol"]),
    ] {
        let mut run = TestRun::of(of_pattern(json!({
            "pattern": {"orchestratorWorkers": {
                "orchestrator": {"agent": "boss", "input": "divide"}, "worker": {"agent": "a", "input": "do {{ task }}"},
                "decompositionReview": "parts", "reduce": "whole",
            }},
            "steps": [set("whole", value)],
            "gates": [
                {"name": "parts", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Modify"]}))},
                {"name": "check", "type": "outputValidation", "steps": ["worker"], "hitl": gate(json!({}))},
                final_gate(),
            ],
        })));
        run.reply(".orchestrator", 1, r#"[{"task": "boil"}]"#);
        edit(&mut run, ".decomposition", "bob", json!({"subtasks": [{"task": "burn"}, {"task": "pour"}]}));
        run.reply(".worker-0", 1, "done");
        edit(&mut run, ".worker-0/.output", "carol", json!({"response": "burnt"}));
        run.reply(".worker-1", 1, "poured");
        run.approve(".worker-1/.output");
        assert_eq!(editors(&run, ".final"), expected_editors, "{value}");
    }
}

#[test]
fn a_result_that_was_written_again_has_no_editors() {
    let mut spec = chain_of(json!([agent("draft", "writer", "write")]));
    spec["gates"] = json!([
        {"name": "check", "type": "outputValidation", "steps": ["draft"], "hitl": gate(json!({}))},
        {"name": "out", "type": "finalResponse", "hitl": gate(json!({"allowedVerdicts": ["Approve", "Defer"]}))},
    ]);
    let mut run = TestRun::of(spec);
    run.reply("draft", 1, "SELECT 1;");
    edit(&mut run, "draft/.output", "bob", json!({"response": "DROP TABLE audit;"}));
    assert_eq!(editors(&run, ".final"), ["bob"]);
    run.defer(".final", "shorter");
    run.reply(".revision", 1, "SELECT 2;");
    assert_eq!(editors(&run, ".final#2"), [""; 0]);
}

#[test]
fn a_lost_request_is_created_again_with_the_same_digest() {
    let mut run = run_with_edited_draft(json!([set("copy", "{{ steps[0].response }}"), hitl("prod", json!({}))]));
    let digest = run.asked("prod").request.digest.clone();
    run.take(vec![Fact::ApprovalMissing { path: "prod".into() }]);
    assert_eq!(run.asked("prod").request.digest, digest);
}
