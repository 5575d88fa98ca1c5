//! Tests that an import notes every loss.

#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;

/// Returns a file with a chain of `steps` and the fields `top`.
fn chain(top: &str, steps: &str) -> String {
    format!(
        "agents: {{writer: {{prompt: x, model_id: m}}}}\n{top}\npattern:\n  type: chain\n  config: {{steps: {steps}}}\n"
    )
}

/// Returns the field and the message of each error of an import. All errors are values of a wrong kind.
#[track_caller]
fn wrong_values(text: &str) -> Vec<(String, String)> {
    let problems = import(text, "alice").err().unwrap_or_default();
    problems
        .into_iter()
        .inspect(|problem| assert_eq!(problem.reason, "WrongType"))
        .map(|problem| (problem.field, problem.message))
        .collect()
}

#[test]
fn approvers_and_deadlines_of_a_wrong_kind_are_refused() {
    let text = "agents: {w: {prompt: x}}\npattern:\n  type: workflow\n  config:\n    tasks:\n    - {id: w, agent: w, input: a}\n    - id: ask\n      type: hitl\n      prompt: Go?\n      deps: w\n      required_approvers: ceo@example.com\n      approval_threshold: \"2\"\n      timeout_seconds: \"60\"\n";
    let error = |field: &str, message: &str| (format!("pattern.config.tasks[1].{field}"), message.to_owned());
    assert_eq!(
        wrong_values(text),
        [
            error("deps", "this is a text: write a list of texts"),
            error("required_approvers", "this is a text: write a list of texts"),
            error("approval_threshold", "this is a text: write a whole number from 0"),
            error("timeout_seconds", "this is a text: write a whole number from 0"),
        ]
    );
    let problems = import(text, "alice").unwrap_err();
    assert_eq!((problems[0].line, problems[0].column), (10, 13));
}

#[test]
fn a_value_of_a_wrong_kind_is_refused_in_every_place() {
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
        let fields: Vec<_> = wrong_values(&text).into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, [field], "{text}");
    }
}

#[test]
fn a_threshold_of_zero_is_a_problem() {
    let imported = import(&chain("", "[{type: hitl, prompt: a, approval_threshold: 0}]"), "alice").unwrap();
    let problems = crate::check::check_import("", &imported, &signoff_engine::Settings::default());
    assert!(problems.iter().any(|problem| problem.field.ends_with("hitl.threshold")), "{problems:?}");
}

#[test]
fn words_without_quotes_are_texts() {
    let text = chain(
        "inputs: {values: {mode: off}}",
        "[{type: hitl, prompt: a, default: yes, timeout_seconds: 60, validation: {pattern: ^(yes|no)$}}]",
    );
    let imported = import(&text, "alice").unwrap();
    let hitl = &imported.object["spec"]["steps"][0]["hitl"];
    assert_eq!((&hitl["approveText"], &hitl["form"]["questions"][0]["default"]), (&json!("yes"), &json!("yes")));
    assert_eq!(imported.object["spec"]["inputs"][0]["value"], "off");
}

/// Returns the value at a path such as `a.b[0].c`.
#[track_caller]
fn value_at<'d>(document: &'d mut Value, path: &str) -> &'d mut Value {
    let parts = path.replace('[', ".").replace(']', "");
    let pointer: String = parts.split('.').filter(|part| !part.is_empty()).map(|part| format!("/{part}")).collect();
    document.pointer_mut(&pointer).unwrap_or_else(|| panic!("{path}"))
}

/// Returns a document with another value in a field of the object at a path, or without the field.
fn with_field(document: &Value, path: &str, field: &str, value: Option<Value>) -> Value {
    let mut changed = document.clone();
    let object = value_at(&mut changed, path).as_object_mut().unwrap();
    match value {
        Some(value) => drop(object.insert(field.to_owned(), value)),
        None => drop(object.remove(field)),
    }
    changed
}

/// Returns two different values of a kind that the field can have.
fn samples(kind: kind::Kind, field: &str) -> [Value; 2] {
    use kind::Kind;
    match (field, kind) {
        ("skip_if", _) => [json!("hitl_response == 'x'"), json!("last_response == 'y'")],
        ("condition" | "when", _) => [json!("hitl_response == 'x'"), json!("else")],
        ("backoff", _) => [json!("constant"), json!("jittered")],
        ("output_schema", _) => [json!({"type": "object"}), json!({"type": "array"})],
        ("type", _) => [json!("integer"), json!("hitl")],
        (_, Kind::Text | Kind::Any | Kind::Either(Kind::Text, _)) => [json!("other"), json!("another")],
        (_, Kind::Number | Kind::Whole) => [json!(2), json!(7)],
        (_, Kind::List(Kind::Object) | Kind::Either(..)) => [json!([{}]), json!([{}, {}])],
        (_, Kind::List(_)) => [json!(["other"]), json!(["other", "another"])],
        (_, Kind::Map(Kind::Object)) => [json!({"other": {}}), json!({"other": {}, "another": {}})],
        (_, Kind::Map(_)) => [json!({"other": "x"}), json!({"other": "y"})],
        (_, Kind::Object) => [json!({}), json!({"no such": "field"})],
    }
}

/// Returns the imported object and its notes, or null and the errors; all without positions.
fn import_document(document: &Value) -> (Value, Vec<String>) {
    match import(&document.to_string(), "alice") {
        Ok(imported) => {
            let notes = imported.notes.iter().map(|note| format!("{} {:?} {}", note.field, note.weight, note.message));
            (imported.object, notes.collect())
        }
        Err(problems) => (Value::Null, problems.into_iter().map(|problem| problem.message).collect()),
    }
}

#[test]
fn every_field_has_an_effect_or_a_note() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract/strands");
    let (mut silent, mut tried) = (Vec::new(), std::collections::BTreeSet::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let read = source::documents(&text).remove(0).unwrap();
        let node = source::in_yaml_1_2(&text, &read).unwrap();
        let document = node.to_json();
        let kind = document["pattern"]["type"].as_str().unwrap();
        let mut import = Import::of(&text, "alice");
        import.build_object(
            &node,
            node.get("agents").unwrap(),
            kind,
            node.get("pattern").unwrap().get("config").unwrap(),
        );
        for (section, path) in import.notes.read {
            let shape: String = path.chars().filter(|c| !c.is_ascii_digit()).collect();
            let is_object = value_at(&mut document.clone(), &path).is_object();
            if !is_object || !tried.insert((kind.to_owned(), section, shape)) {
                continue;
            }
            for (field, kind_of_value, _) in fields::section(section) {
                let import_with = |value| import_document(&with_field(&document, &path, field, value));
                let without = import_with(None);
                let with_samples = samples(*kind_of_value, field).map(|value| import_with(Some(value)));
                if !without.0.is_null() && with_samples.iter().all(|imported| *imported == without) {
                    silent.push(format!("{section}: {field} ({kind} at {path})"));
                }
            }
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}

/// Returns the notes above the lowest severity.
#[track_caller]
fn notes_above_info(text: &str) -> Vec<(String, NoteLevel)> {
    let notes = import(text, "alice").unwrap().notes;
    notes.into_iter().filter(|note| note.weight != NoteLevel::Info).map(|note| (note.field, note.weight)).collect()
}

#[test]
fn missing_limits_and_notices_are_noted_as_changes() {
    let top = "runtime: {top_p: 0.1, budgets: {max_tokens: 5, max_steps: 9}, webhooks: {hitl_pause: x}}\nsecurity: {guardrails: {deny_network: true}}";
    let fields: Vec<_> = notes_above_info(&chain(top, "[{agent: writer, input: a}]"));
    let changed = |field: &str| (field.to_owned(), NoteLevel::Changed);
    assert_eq!(
        fields,
        [
            changed("runtime.top_p"),
            changed("runtime.budgets.max_tokens"),
            changed("runtime.budgets.max_steps"),
            changed("runtime.webhooks"),
            changed("security"),
        ]
    );
}

#[test]
fn an_edge_that_is_never_tried_is_left_out_with_a_note() {
    let text = "agents: {w: {prompt: x, model_id: m}}\npattern:\n  type: graph\n  config:\n    nodes: [{id: a, agent: w, input: x}, {id: b, agent: w}, {id: c, agent: w}]\n    edges:\n    - {from: a, to: b, condition: \"last_response == 'x'\"}\n    - {from: a, to: c}\n    - {from: a, to: b}\n    - {from: b, condition: \"last_response == 'x'\"}\n";
    let imported = import(text, "alice").unwrap();
    let edges = &imported.object["spec"]["pattern"]["graph"]["edges"];
    assert_eq!(
        *edges,
        json!([{"from": "a", "choose": [{"when": "last_response == 'x'", "to": "b"}, {"when": "else", "to": "c"}]}])
    );
    let field = |end: &str, weight| (format!("pattern.config.edges{end}"), weight);
    assert_eq!(
        notes_above_info(text),
        [
            field("[2]", NoteLevel::Changed),
            field("[3]", NoteLevel::Unsupported),
            field("[3].condition", NoteLevel::Unsupported),
        ]
    );
}

#[test]
fn a_task_depends_on_each_other_task_once() {
    let text = "agents: {w: {prompt: x, model_id: m}}\npattern:\n  type: workflow\n  config:\n    tasks: [{id: a, agent: w, input: x}, {id: b, agent: w}, {id: c, agent: w, deps: [a, b], dependencies: [a]}]\n";
    let imported = import(text, "alice").unwrap();
    assert_eq!(imported.object["spec"]["steps"][2]["dependsOn"], json!(["a", "b"]));
}

#[test]
fn the_prompts_of_a_router_have_the_new_names_of_routes() {
    let text = "agents: {w: {prompt: \"Say billing_support\", model_id: m}}\ninputs: {required: {billing_support: string}}\npattern:\n  type: routing\n  config:\n    router: {agent: w, input: \"billing_support, or what {{ billing_support }} says\"}\n    routes: {billing_support: {then: [{agent: w, input: x}]}}\n";
    let spec = import(text, "alice").unwrap().object["spec"].clone();
    assert_eq!(spec["pattern"]["routing"]["router"]["input"], "billing-support, or what {{ billing_support }} says");
    assert_eq!(spec["agents"][0]["system"], "Say billing-support");
}

/// Imports a contract file, and renders its first artifact in a scope of `names`.
#[track_caller]
fn render_artifact(file: &str, names: Value) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract/strands");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let spec = import(&text, "alice").unwrap().object["spec"].clone();
    let source = spec["outputs"]["artifacts"][0]["from"].as_str().unwrap();
    let mut scope = signoff_expr::Scope::default();
    for (name, value) in names.as_object().unwrap() {
        scope.set(name.as_str(), value.clone());
    }
    let text = signoff_expr::Template::parse(source, "").unwrap().render(&scope).unwrap();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_artifact_about_the_run_renders_with_the_names_of_its_pattern() {
    let node = |name: &str, response: Value, visits: usize| json!({"name": name, "response": response, "visits": vec![json!({}); visits]});
    let nodes = json!({"steps": {
        "ask-them": node("ask-them", json!("yes"), 1), "drive-it": node("drive-it", Value::Null, 0),
        "pack-it": node("pack-it", json!("packed"), 2),
    }});
    assert_eq!(
        render_artifact("graph-context.yaml", nodes),
        "parcel: 3 steps, by\nask-them of , 1 times: yes\npack-it of packer, 2 times: packed\npacker for  tokens"
    );
    let judged = |score: i32, issues: Value| json!({"score": score, "issues": issues, "fixes": ["shorter"]});
    let names = json!({
        "last_response": "Buy!", "evaluation": judged(95, json!([])),
        "iterations": [{"draft": "a", "evaluation": judged(40, json!(["long", "dull"]))}, {"draft": "b", "evaluation": judged(95, json!([]))}],
    });
    assert_eq!(
        render_artifact("evaluator-context.yaml", names),
        "Buy!\n95 of 70 points after 2 of 3 drafts\nvery good\nDraft 1: 40, long, dull\nDraft 2: 95\nshorter 95"
    );
    assert_eq!(
        render_artifact("chain-file-values.yaml", json!({"steps": [{"response": "Hello"}]})),
        "Hello\nSMALL-1 at 0.5, 60 seconds\nabove 4000 tokens"
    );
}
