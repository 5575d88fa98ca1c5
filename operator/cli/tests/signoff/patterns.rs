//! One run of each pattern, with gates at the positions that the pattern has for them.
//!
//! The tests of the engine cover the meaning of the patterns.

use super::*;

/// Returns a Workflow whose agents give the replies of a script in turn. `rest`: the rest of its spec.
fn workflow(replies: &str, rest: &str) -> String {
    format!(
        "apiVersion: signoff.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: p}}\nspec:\n  \
         providers: [{{name: m, scripted: {{replies: [{replies}]}}}}]\n  agents: [{{name: a}}, {{name: b}}]\n  {rest}\n"
    )
}

const APPROVERS: &str = "approvers: [{kind: Group, name: finance}]";

/// Runs a Workflow with a file of answers in one process, then gate by gate in several processes. Both must have the
/// same result.
#[track_caller]
fn assert_outputs(text: &str, answers: &str, out: &str) {
    let home = Home::new();
    home.file("w.yaml", text);
    home.file("answers.yaml", answers);
    let ended = home.run(&["run", "w.yaml", "--answers", "answers.yaml"]).with(0);
    assert_eq!(ended.out, format!("{out}\n"), "{ended:#?}");
    assert!(!ended.err.contains("was not used"), "{ended:#?}");

    let home = Home::new();
    home.file("w.yaml", text);
    let mut ended = home.run(&["run", "w.yaml", "--format", "json"]);
    for _ in 0..9 {
        if ended.code != Some(19) {
            break;
        }
        let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        let gate = report["pending"][0]["path"].as_str().unwrap();
        let known: serde_json::Value = serde_saphyr::from_str(answers).unwrap();
        let name = report["pending"][0]["gate"].as_str().unwrap();
        let answer = known.get(gate).or_else(|| known.get(name)).unwrap_or_else(|| panic!("{gate}: {report}")).clone();
        let answers = serde_json::json!({ gate: answer });
        home.file("one.yaml", &answers.to_string());
        ended = home.run(&["run", "--resume", &home.id(), "--answers", "one.yaml", "--format", "json"]);
    }
    let report: serde_json::Value = serde_json::from_str(&ended.with(0).out).unwrap();
    assert_eq!(report["outputs"], out);
}

#[test]
fn a_dag_runs_here() {
    let spec = format!(
        "pattern: {{dag: {{}}}}\n  \
         steps: [{{name: one, set: {{value: A}}}}, {{name: ask, dependsOn: [one], hitl: {{prompt: '{{{{ steps.one.response }}}}?', {APPROVERS}}}}}, \
         {{name: end, dependsOn: [ask], set: {{value: '{{{{ steps.one.response }}}} {{{{ steps.ask.response }}}}'}}}}]"
    );
    assert_outputs(&workflow("{text: x}", &spec), "ask: yes", "A approved");
}

#[test]
fn a_routing_runs_here() {
    let spec = format!(
        "gates: [{{name: review, hitl: {{prompt: This route?, {APPROVERS}, allowedVerdicts: [Approve, Modify, Reject]}}}}]\n  \
         pattern: {{routing: {{router: {{agent: a, input: Which?, review: review}}}}}}\n  \
         steps: [{{name: l, branch: left, set: {{value: went left}}}}, {{name: r, branch: right, set: {{value: went right}}}}]"
    );
    let home = Home::new();
    home.file("w.yaml", &workflow(r#"{text: '{"route": "left"}'}"#, &spec));
    home.run(&["run", "w.yaml"]).with(19);
    let id = home.id();
    let wrong = home.run(&["run", "--resume", &id, "--verdict", "modify", "--parameters", "{route: up}"]).with(2);
    assert!(wrong.err.contains("up") || wrong.err.contains("left"), "{wrong:?}");
    let ended = home.run(&["run", "--resume", &id, "--verdict", "modify", "--parameters", "{route: right}"]).with(0);
    assert_eq!(ended.out, "went right\n");
}

#[test]
fn branches_run_here() {
    let spec = format!(
        "pattern: {{parallel: {{reduce: sum}}}}\n  \
         steps: [{{name: ask-x, branch: left, hitl: {{prompt: X?, {APPROVERS}}}}}, \
         {{name: ask-y, branch: right, hitl: {{prompt: Y?, {APPROVERS}}}}}, \
         {{name: sum, set: {{value: '{{{{ branches.left.response }}}}+{{{{ branches.right.response }}}}'}}}}]"
    );
    assert_outputs(&workflow("{text: x}", &spec), "{ask-x: {response: one}, ask-y: {response: two}}", "one+two");
}

#[test]
fn an_evaluator_runs_here() {
    let spec = "pattern: {evaluatorOptimizer: {producer: a, input: write, evaluator: {agent: b, input: 'judge {{ draft }}'}, accept: {minScore: 90}}}";
    let replies = r#"{contains: judge, text: '{"score": 95, "issues": [], "fixes": []}'}, {text: a fine draft}"#;
    assert_outputs(&workflow(replies, spec), "{}", "a fine draft");
}

#[test]
fn workers_run_here() {
    let spec = format!(
        "gates: [{{name: decomposition, hitl: {{prompt: These?, {APPROVERS}}}}}]\n  \
         pattern: {{orchestratorWorkers: {{orchestrator: {{agent: a, input: divide}}, worker: {{agent: b, input: 'do {{{{ task }}}}'}}, \
         decompositionReview: decomposition, reduce: sum}}}}\n  \
         steps: [{{name: sum, set: {{value: '{{{{ num_workers }}}} of {{{{ workers[0].response }}}}'}}}}]"
    );
    let home = Home::new();
    home.file(
        "w.yaml",
        &workflow(r#"{contains: divide, text: '[{"task": "one"}, {"task": "two"}]'}, {text: done}"#, &spec),
    );
    home.run(&["run", "w.yaml"]).with(19);
    let ended = home.run(&["run", "--resume", &home.id(), "--verdict", "approve"]).with(0);
    assert_eq!(ended.out, "2 of done\n");
}

#[test]
fn a_graph_runs_here_and_asks_again_in_a_loop() {
    let spec = format!(
        "pattern: {{graph: {{edges: [{{from: draft, to: ask}}, {{from: ask, choose: [{{when: \"hitl_response == 'again'\", to: draft}}, {{when: else, to: end}}]}}]}}}}\n  \
         steps: [{{name: draft, set: {{value: D}}}}, {{name: ask, hitl: {{prompt: Good?, {APPROVERS}}}}}, {{name: end, set: {{value: 'E {{{{ steps.ask.response }}}}'}}}}]"
    );
    assert_outputs(&workflow("{text: x}", &spec), "{ask: {response: again}, 'ask#2': {response: fine}}", "E fine");
}
