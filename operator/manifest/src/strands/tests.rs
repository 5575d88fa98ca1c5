//! What an import must not take in silence.

#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;

/// A file with one chain and these steps, and whatever else is on its top.
fn chain(top: &str, steps: &str) -> String {
    format!(
        "agents: {{writer: {{prompt: x, model_id: m}}}}\n{top}\npattern:\n  type: chain\n  config: {{steps: {steps}}}\n"
    )
}

/// The fields that are of the wrong kind, with what is said about them.
#[track_caller]
fn wrong(text: &str) -> Vec<(String, String)> {
    let problems = import(text, "alice").err().unwrap_or_default();
    problems
        .into_iter()
        .inspect(|problem| assert_eq!(problem.reason, "WrongType"))
        .map(|problem| (problem.field, problem.message))
        .collect()
}

#[test]
fn who_decides_and_until_when_is_never_read_from_a_value_of_the_wrong_kind() {
    let text = "agents: {w: {prompt: x}}\npattern:\n  type: workflow\n  config:\n    tasks:\n    - {id: w, agent: w, input: a}\n    - id: ask\n      type: hitl\n      prompt: Go?\n      deps: w\n      required_approvers: ceo@example.com\n      approval_threshold: \"2\"\n      timeout_seconds: \"60\"\n";
    let said = |field: &str, message: &str| (format!("pattern.config.tasks[1].{field}"), message.to_owned());
    assert_eq!(
        wrong(text),
        [
            said("deps", "this is a text: write a list of texts"),
            said("required_approvers", "this is a text: write a list of texts"),
            said("approval_threshold", "this is a text: write a whole number from 0"),
            said("timeout_seconds", "this is a text: write a whole number from 0"),
        ]
    );
    let problems = import(text, "alice").unwrap_err();
    assert_eq!((problems[0].line, problems[0].column), (10, 13));
}

#[test]
fn a_value_of_the_wrong_kind_is_told_wherever_it_stands() {
    let step = "[{agent: writer, input: a}]";
    for (text, field) in [
        (chain("runtime: openai", step), "runtime"),
        (chain("inputs: [topic]", step), "inputs"),
        (chain("outputs: {artifacts: {path: x}}", step), "outputs.artifacts"),
        (chain("runtime: {failure_policy: {retries: -1}}", step), "runtime.failure_policy.retries"),
        (chain("", "[write]"), "pattern.config.steps[0]"),
        (chain("", "[{agent: writer, vars: [a, b]}]"), "pattern.config.steps[0].vars"),
        (chain("", "[{type: hitl, prompt: [a, b]}]"), "pattern.config.steps[0].prompt"),
        (chain("", "[{type: hitl, prompt: a, validation: ^x$}]"), "pattern.config.steps[0].validation"),
        (chain("", "[{type: hitl, prompt: a, timeout_seconds: 0.5}]"), "pattern.config.steps[0].timeout_seconds"),
        (
            chain("", "[{type: hitl, prompt: a, required_approvers: [a, ~]}]"),
            "pattern.config.steps[0].required_approvers[1]",
        ),
        ("agents: [a]\npattern: {type: chain, config: {steps: []}}\n".to_owned(), "agents"),
        ("agents: {a: b}\npattern: {type: chain, config: {steps: []}}\n".to_owned(), "agents.a"),
    ] {
        let fields: Vec<_> = wrong(&text).into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, [field], "{text}");
    }
}

#[test]
fn a_threshold_that_nobody_can_mean_is_not_taken_for_one() {
    let imported = import(&chain("", "[{type: hitl, prompt: a, approval_threshold: 0}]"), "alice").unwrap();
    let problems = crate::check::of_import("", &imported, &signoff_engine::Settings::default());
    assert!(problems.iter().any(|problem| problem.field.ends_with("hitl.threshold")), "{problems:?}");
}

#[test]
fn words_without_quotes_are_words() {
    let text = chain(
        "inputs: {values: {mode: off}}",
        "[{type: hitl, prompt: a, default: yes, timeout_seconds: 60, validation: {pattern: ^(yes|no)$}}]",
    );
    let imported = import(&text, "alice").unwrap();
    let hitl = &imported.object["spec"]["pattern"]["chain"]["steps"][0]["hitl"];
    assert_eq!((&hitl["approveText"], &hitl["form"]["questions"][0]["default"]), (&json!("yes"), &json!("yes")));
    assert_eq!(imported.object["spec"]["inputs"][0]["value"], "off");
}
