//! Tests of the errors of a plan: one for each mistake of an author, with the field and the remedy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "new_rules_tests.rs"]
mod new_rules;

use serde_json::{Value, json};
use signoff_api::workflow::Provider;

use super::*;

fn errors(spec: Value) -> Vec<String> {
    let mut spec = spec;
    if spec.get("requestedBy").is_none() {
        spec["requestedBy"] = json!("dana");
    }
    let workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec,
    }))
    .unwrap();
    match Plan::of(&workflow, &Settings::default(), &Arc::default()) {
        Ok(_) => Vec::new(),
        Err(found) => found.iter().map(ToString::to_string).collect(),
    }
}

/// Returns the errors of a spec with an agent `writer`, an input and the steps `steps`.
fn errors_of_steps(steps: Value) -> Vec<String> {
    errors(json!({
        "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}], "agents": [{"name": "writer"}],
        "inputs": [{"name": "customer", "value": "ACME"}], "steps": steps,
    }))
}

/// Returns the errors of a spec with a gate at the end. `more`: further fields of the gate.
fn errors_of_gate(more: Value) -> Vec<String> {
    let mut hitl = json!({"prompt": "go?", "approvers": [{"kind": "User", "name": "alice"}]});
    for (key, value) in more.as_object().unwrap() {
        hitl[key] = value.clone();
    }
    errors_of_steps(json!([
        {"name": "pay", "http": {"method": "POST", "url": "http://x/"}},
        {"name": "draft", "agent": {"name": "writer", "input": "write"}},
        {"name": "gate", "hitl": hitl},
    ]))
}

#[track_caller]
fn assert_refused(found: &[String], field: &str, words: &str) {
    assert!(
        found.iter().any(|error| error.starts_with(field) && error.contains(words)),
        "no error about {field} with `{words}` in {found:#?}"
    );
}

#[test]
fn an_error_of_a_provider_names_the_field_without_the_key() {
    let found =
        |provider: Value| errors(json!({"providers": [provider], "steps": [{"name": "s", "set": {"value": "x"}}]}));
    for kind in Provider::KINDS.into_iter().filter(|kind| *kind != "scripted") {
        for (field, value, words) in [
            ("key", "hunter2", "name one of them (there is none: add one)"),
            ("baseURL", "https://dana:hunter2@models.example.com", "leave them out, and give a key by `key`"),
            ("baseURL", "https://models.example.com/v1?api-key=hunter2", "leave out `?` and the rest"),
            ("baseURL", "https://models.example.com/v1#hunter2", "leave out `#` and the rest"),
            ("baseURL", "https://models.example.com:hunter2", "not a valid URL"),
        ] {
            let found = found(json!({"name": "p", kind: {field: value}}));
            let [only] = found.as_slice() else { panic!("{kind}: {found:?}") };
            assert!(only.starts_with(&format!("spec.providers[0].{kind}.{field}: ")), "{only}");
            assert!(only.contains(words) && !only.contains("hunter2"), "{only}");
        }
        let known = json!({"name": "p", kind: {"baseURL": "https://models.example.com/v1"}});
        assert_eq!(found(known), [""; 0], "{kind}");
    }
    let two = found(json!({"name": "p", "anthropic": {}, "openai": {}}));
    assert_eq!(two, ["spec.providers[0]: it has anthropic and openai: keep one"]);
}

const STEPS: &str = "spec.steps";

#[test]
fn thousands_of_misspelt_names_get_few_hints() {
    let name = |n: usize| format!("{n:04}-{}", "a".repeat(58));
    let step = |n: usize| {
        let wrong: Vec<_> = (0..6).map(|m| format!("{m:02}{n:04}{}", "b".repeat(57))).collect();
        json!({"name": name(n), "set": {"value": "x"}, "dependsOn": wrong})
    };
    let steps: Vec<_> = (0..1024).map(step).collect();
    let object = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w", "namespace": "n", "uid": "u"},
        "spec": {"requestedBy": "dana", "pattern": {"dag": {}}, "steps": steps},
    });
    let workflow: Workflow = serde_json::from_value(object).unwrap();
    let before = signoff_expr::budget::charged();
    let errors = Plan::of(&workflow, &Settings::default(), &std::sync::Arc::default()).unwrap_err();
    let charged = signoff_expr::budget::charged() - before;
    assert!(errors.len() >= 1024, "{} errors", errors.len());
    assert!(charged < 40_000_000, "{charged} units of work");
}

#[test]
fn all_errors_of_a_spec_are_reported() {
    let found = errors_of_steps(json!([
        {"name": "Bad_Name", "set": {"value": "{{ inputs.custmer }}"}},
        {"name": "b", "agent": {"name": "wirter", "input": "{% if %}"}},
        {"name": "b", "set": {"value": "x"}, "http": {"url": "http://x"}},
    ]));
    assert_refused(&found, &format!("{STEPS}[0].name"), "lower-case");
    assert_refused(&found, &format!("{STEPS}[0].set.value"), "customer");
    assert_refused(&found, &format!("{STEPS}[1].agent.name"), "writer");
    assert_refused(&found, &format!("{STEPS}[1].agent.input"), "");
    assert_refused(&found, &format!("{STEPS}[2].name"), "duplicate name b");
    assert_refused(&found, &format!("{STEPS}[2]"), "exactly one");
}

#[test]
fn a_reference_to_a_later_step_is_refused_before_the_run() {
    let found = errors_of_steps(json!([
        {"name": "a", "set": {"value": "{{ steps.b.response }}"}},
        {"name": "b", "set": {"value": "{{ hitl_response }}"}, "skipIf": "steps.a.respons == 'x'"},
    ]));
    assert_refused(&found, &format!("{STEPS}[0].set.value"), "steps.b");
    assert_refused(&found, &format!("{STEPS}[1].set.value"), "hitl_response");
    assert_refused(&found, &format!("{STEPS}[1].skipIf"), "response");
}

#[test]
fn an_input_of_another_type_or_without_a_required_value_is_refused() {
    let found = errors(json!({
        "inputs": [
            {"name": "n", "type": "integer", "value": "7"},
            {"name": "e", "enum": ["a", "b"], "value": "c"},
            {"name": "r", "required": true},
            {"name": "run"},
            {"name": "big", "type": "integer", "value": 9_007_199_254_740_993_u64},
        ],
        "steps": [{"name": "a", "set": {"value": "x"}}],
    }));
    assert_refused(&found, "spec.inputs[0].value", "an integer");
    assert_refused(&found, "spec.inputs[1].value", "one of");
    assert_refused(&found, "spec.inputs[2].value", "required");
    assert_refused(&found, "spec.inputs[3].name", "is a reserved name");
    assert_refused(&found, "spec.inputs[4].value", "input big: the number is beyond ±2^53");
}

#[test]
fn a_gate_that_too_few_people_can_decide_is_refused() {
    assert_refused(
        &errors_of_gate(json!({"approvers": []})),
        &format!("{STEPS}[2].hitl.approvers"),
        "no approver could decide",
    );
    assert_refused(
        &errors_of_gate(json!({"threshold": 2})),
        &format!("{STEPS}[2].hitl.threshold"),
        "only 1 of the listed",
    );
    let alone = json!({"approvers": [{"kind": "User", "name": "dana"}], "excludeRequester": true});
    assert_refused(&errors_of_gate(alone), &format!("{STEPS}[2].hitl.threshold"), "only 0");
    let twice = json!({"approvers": [{"kind": "User", "name": "alice"}, {"kind": "User", "name": "bob"},
        {"kind": "User", "name": "alice"}], "threshold": 3});
    assert_refused(&errors_of_gate(twice), &format!("{STEPS}[2].hitl.threshold"), "only 2");
}

#[test]
fn a_service_account_can_be_excluded_only_with_requested_for() {
    let spec = |requested_for: Option<&str>| {
        let mut spec = json!({
            "requestedBy": "system:serviceaccount:ci:bot",
            "steps": [{"name": "g", "hitl": {"prompt": "?", "excludeRequester": true,
                "approvers": [{"kind": "Group", "name": "g"}]}}],
        });
        if let Some(person) = requested_for {
            spec["requestedFor"] = json!(person);
        }
        errors(spec)
    };
    assert_refused(&spec(None), &format!("{STEPS}[0].hitl.excludeRequester"), "RequesterIsMachine");
    assert_eq!(spec(Some("dana")), Vec::<String>::new());
}

#[test]
fn verdicts_that_cannot_work_at_a_gate_are_refused() {
    let hitl = format!("{STEPS}[2].hitl");
    let verdicts = format!("{hitl}.allowedVerdicts");
    assert_refused(
        &errors_of_gate(json!({"allowedVerdicts": ["Defer"], "reviews": "pay"})),
        &verdicts,
        "not idempotent",
    );
    assert_eq!(errors_of_gate(json!({"allowedVerdicts": ["Approve", "Defer"]})), Vec::<String>::new());
    let group = json!([{"kind": "Group", "name": "g"}]);
    assert_refused(
        &errors_of_gate(json!({"approvers": group, "threshold": 2, "allowedVerdicts": ["Respond"]})),
        &verdicts,
        "last responder",
    );
    assert_refused(&errors_of_gate(json!({"allowedVerdicts": ["Escalate"]})), &verdicts, "further approvers");
    assert_refused(
        &errors_of_gate(json!({"allowedVerdicts": ["Approve"], "form": {"questions": [{"id": "a"}]}})),
        &verdicts,
        "Respond",
    );
    assert_refused(&errors_of_gate(json!({"reviews": "nobody"})), &format!("{hitl}.reviews"), "nobody");
    assert_refused(
        &errors_of_gate(json!({"requiredFrom": [{"group": "g", "min": 1}]})),
        &format!("{hitl}.requiredFrom"),
        "g",
    );
    let lonely = errors(json!({"steps": [{"name": "g", "hitl": {"prompt": "?",
        "approvers": [{"kind": "User", "name": "a"}], "allowedVerdicts": ["Modify"]}}]}));
    assert_refused(&lonely, &format!("{STEPS}[0].hitl.allowedVerdicts"), "Modify needs an earlier step");
}

#[test]
fn a_timeout_of_a_gate_is_checked_with_its_action_and_default() {
    let timeout = format!("{STEPS}[2].hitl.timeout");
    assert_refused(&errors_of_gate(json!({"timeout": {"after": "0s"}})), &format!("{timeout}.after"), "between");
    assert_refused(&errors_of_gate(json!({"timeout": {"after": "169h"}})), &format!("{timeout}.after"), "168h");
    assert_refused(
        &errors_of_gate(json!({"timeout": {"action": "Escalate"}})),
        &format!("{timeout}.action"),
        "list the approvers",
    );
    assert_refused(
        &errors_of_gate(json!({"timeout": {"action": "Default"}})),
        &format!("{timeout}.default"),
        "no default",
    );
    let form = json!({"questions": [{"id": "c", "options": [{"id": "x"}]}]});
    let wrong = json!({"form": form, "timeout": {"action": "Default", "default": "y"}});
    assert_refused(&errors_of_gate(wrong), &format!("{timeout}.default"), "choose one of x");
    assert_refused(
        &errors_of_gate(json!({"timeout": {"default": "x"}})),
        &format!("{timeout}.default"),
        "action Default",
    );
}

#[test]
fn a_form_with_an_invalid_pattern_or_schema_is_refused() {
    let question = format!("{STEPS}[2].hitl.form.questions[0]");
    let form = |question: Value| errors_of_gate(json!({"form": {"questions": [question]}}));
    assert_refused(&form(json!({"id": "a", "pattern": "("})), &format!("{question}.pattern"), "regular expression");
    assert_refused(
        &form(json!({"id": "a", "schema": {"type": "nonsense"}})),
        &format!("{question}.schema"),
        "JSON Schema",
    );
    assert_refused(&form(json!({"id": "a", "pattern": "x", "default": "y"})), &format!("{question}.default"), "match");
}

#[test]
fn an_agent_needs_a_provider_and_a_provider_a_model() {
    let found = errors(json!({
        "providers": [{"name": "a", "openai": {"baseURL": "https://x/v1"}}, {"name": "b", "scripted": {"replies": []}}],
        "agents": [{"name": "one"}, {"name": "two", "provider": "a"}],
        "steps": [{"name": "s", "set": {"value": "x"}}],
    }));
    assert_refused(&found, "spec.agents[0].provider", "a, b");
    assert_refused(&found, "spec.agents[1].model", "needs a model");
}

#[test]
fn a_gate_that_only_earlier_requesters_could_decide_is_refused() {
    let spec = |requesters: Value| {
        json!({
            "requestedBy": "dana",
            "rerunOf": {"name": "w", "uid": "00000000-0000-0000-0000-000000000009", "requesters": requesters},
            "steps": [{"name": "g", "hitl": {"prompt": "?", "excludeRequester": true, "approvers": [{"kind": "User", "name": "bob"}]}}],
        })
    };
    assert_refused(
        &errors(spec(json!(["bob"]))),
        "spec.steps[0].hitl.threshold",
        "only 0 of the listed approvers can decide",
    );
    assert!(errors(spec(json!(["erin"]))).is_empty());
}

#[test]
fn approval_by_timeout_and_service_account_approvers_are_warnings() {
    let workflow: Workflow = serde_json::from_value(json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
        "spec": {"requestedBy": "dana", "steps": [{"name": "g", "hitl": {"prompt": "?",
            "approvers": [{"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}],
            "timeout": {"action": "Approve"}}}]},
    }))
    .unwrap();
    let plan = Plan::of(&workflow, &Settings::default(), &Arc::default()).unwrap();
    assert_eq!(plan.warnings().len(), 2, "{:?}", plan.warnings());
}

#[test]
fn an_unescaped_value_in_a_json_body_is_a_warning_with_the_remedy() {
    let warnings = |body: &str| {
        let workflow: Workflow = serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {"requestedBy": "dana",
                "inputs": [{"name": "to", "value": "ada"}, {"name": "amount", "type": "number", "value": 1}],
                "steps": [{"name": "send", "http": {"method": "POST", "url": "http://x.svc/", "body": body}}]},
        }))
        .unwrap();
        Plan::of(&workflow, &Settings::default(), &Arc::default()).unwrap().warnings().to_vec()
    };
    assert_eq!(
        warnings(r#"{"to": "{{ inputs.to }}", "amount": {{ inputs.amount }}}"#),
        ["spec.steps[0].http.body: `\"{{ inputs.to }}\"` does not escape its value, which could end the text and \
          add fields; write `{{ inputs.to | tojson }}`"]
    );
    assert_eq!(warnings(r#"{"to": {{ inputs.to | tojson }}, "amount": {{ inputs.amount }}}"#), Vec::<String>::new());
}

#[test]
fn the_digest_of_a_spec_ignores_only_the_mutable_fields() {
    let digest = |spec: Value| {
        let spec: WorkflowSpec = serde_json::from_value(spec).unwrap();
        spec_digest(&spec).unwrap()
    };
    let steps = |text: &str| json!([{"name": "s", "set": {"value": text}}]);
    let one = digest(json!({"requestedBy": "dana", "steps": steps("x")}));
    let switched =
        json!({"requestedBy": "dana", "steps": steps("x"), "suspend": true, "cancel": false, "ttlAfterFinished": "1h"});
    assert_eq!(one, digest(switched));
    assert_ne!(one, digest(json!({"requestedBy": "dana", "steps": steps("y")})));
    assert_ne!(one, digest(json!({"requestedBy": "mallory", "steps": steps("x")})));
}

/// Returns the errors of a spec of `bytes` bytes as JSON. Most bytes are in the inputs.
fn errors_of_size(bytes: usize) -> Vec<String> {
    let spec = |fill: usize| {
        json!({
            "requestedBy": "dana", "inputs": [{"name": "report", "value": "x".repeat(fill)}],
            "steps": [{"name": "a", "set": {"value": "{{ inputs.report }}"}}],
        })
    };
    let rest = spec_bytes(&serde_json::from_value(spec(0)).unwrap());
    errors(spec(bytes - rest))
}

#[test]
fn a_spec_larger_than_the_maximum_is_refused() {
    assert_eq!(errors_of_size(512 * 1024), Vec::<String>::new());
    let found = errors_of_size(512 * 1024 + 1);
    assert_refused(&found, "spec", "it has 524289 bytes, ");
    assert_refused(&found, "spec", "the maximum is 524288; let a step fetch what is large");
}

#[test]
fn an_accepted_run_is_not_checked_against_new_limits() {
    let of = |status: Value, settings: &Settings| {
        let step = json!({"name": "a", "timeout": "2h", "http": {"url": "http://x/"}});
        let workflow = serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "status": status,
            "spec": {"requestedBy": "dana", "steps": [step]},
        }));
        Plan::of(&workflow.unwrap(), settings, &Arc::default()).err().unwrap_or_default()
    };
    let small = Settings { max_spec_bytes: 10, ..Settings::default() };
    assert_eq!(of(json!({}), &small).iter().map(|why| why.reason).collect::<Vec<_>>(), ["TooLarge"]);
    assert_eq!(of(json!({}), &Settings::default()).iter().map(|why| why.reason).collect::<Vec<_>>(), ["Invalid"]);
    assert!(of(json!({"specDigest": Digest::of_bytes(b"")}), &small).is_empty());
}

#[test]
fn a_timeout_above_the_maximum_of_the_operator_is_refused() {
    let step = |timeout: &str, what: Value| {
        let mut step = json!({"name": "a", "timeout": timeout});
        step.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
        errors_of_steps(json!([step]))
    };
    for what in [json!({"http": {"url": "http://x/"}}), json!({"agent": {"name": "writer", "input": "x"}})] {
        assert_refused(
            &step("1h1s", what.clone()),
            &format!("{STEPS}[0].timeout"),
            "at most 1h, or ask an administrator",
        );
        assert_eq!(step("1h", what), Vec::<String>::new());
    }
    let pod = json!({"pod": {"image": "tool", "command": ["tool"]}});
    assert_eq!(step("5h", pod), Vec::<String>::new(), "containers run elsewhere");
    let workers = |timeout: &str| {
        errors(json!({
            "providers": [{"name": "p", "scripted": {"replies": [{"text": "x"}]}}], "agents": [{"name": "writer"}],
            "pattern": {"orchestratorWorkers": {
                "orchestrator": {"agent": "writer", "input": "plan"}, "worker": {"agent": "writer", "timeout": timeout},
            }},
        }))
    };
    assert_refused(&workers("2h"), "spec.pattern.orchestratorWorkers.worker.timeout", "at most 1h");
    assert_eq!(workers("1h"), Vec::<String>::new());
}
