//! Tests of the flow of every pattern, as text and as pictures.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn flow(spec: Value) -> Flow {
    let mut spec = spec;
    spec["requestedBy"] = json!("dana");
    spec["agents"] = json!([{"name": "a", "system": "{{ tone }}"}]);
    let object =
        json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec});
    Flow::of(&serde_json::from_value(object).unwrap())
}

fn hitl() -> Value {
    json!({"prompt": "Go?", "approvers": [{"kind": "Group", "name": "g"}], "excludeRequester": true,
        "timeout": {"after": "2h", "action": "Abort"}, "allowedVerdicts": ["Approve", "Reject"]})
}

fn turn(name: &str) -> Value {
    json!({"name": name, "agent": {"name": "a", "input": "do it"}})
}

/// Returns a step of a branch or route.
fn in_branch(branch: &str) -> Value {
    let mut step = turn("s");
    step["branch"] = branch.into();
    step
}

/// Renders every edge as `from>to(when)`.
fn edges(flow: &Flow) -> Vec<String> {
    let say =
        |e: &Edge| format!("{}>{}{}", e.from, e.to, e.when.as_ref().map_or_else(String::new, |w| format!("({w})")));
    flow.edges.iter().map(say).collect()
}

#[test]
fn a_chain_is_rendered_with_approvers_and_needs() {
    let flow = flow(json!({
        "inputs": [{"name": "topic", "required": true}, {"name": "tone", "default": "calm"}],
        "steps": [
            {"name": "draft", "agent": {"name": "a", "input": "{{ topic }} {{ mood }}"}, "vars": {"mood": "{{ run.name }}"}},
            {"name": "review", "hitl": hitl(), "skipIf": "steps[0].response == ''"},
            {"name": "send", "http": {"url": "http://x/{{ steps.draft.response }}", "method": "POST"}},
        ],
        "outputs": {"from": "{{ steps.send.response }}", "artifacts": [{"path": "a.md", "from": "x"}]},
    }));
    let expected = "\
Workflow w: chain, 3 steps

Inputs
  topic is required
  tone = \"calm\"

Steps
  1. draft: agent a
     needs run.name, tone, topic
  2. review: asks people
     after draft
     skipped if steps[0].response == ''
     1 of group g, not the requester
     after 2h: Abort
     may decide Approve, Reject
     needs steps[0].response
  3. send: POST http://x/{{ steps.draft.response }}
     after review
     needs steps.draft.response

Result: {{ steps.send.response }}
File: a.md
  needs steps.send.response
";
    assert_eq!(flow.to_text(), expected);
    assert_eq!(edges(&flow), [">draft", "draft>review", "review>send", "send>"]);
}

#[test]
fn the_tasks_of_a_dag_follow_their_dependencies() {
    let mut late = turn("late");
    late["dependsOn"] = json!(["early", "other"]);
    let flow = flow(json!({"pattern": {"dag": {}}, "steps": [late, turn("early"), turn("other")]}));
    let order: Vec<_> = flow.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(order, ["early", "other", "late"]);
    assert_eq!(edges(&flow), [">early", ">other", "early>late", "other>late", "late>"]);
}

#[test]
fn routes_and_branches_have_separate_edges() {
    let routing = flow(json!({
        "gates": [{"name": "review", "hitl": hitl()}],
        "pattern": {"routing": {"router": {"agent": "a", "input": "choose", "review": "review"}}},
        "steps": [in_branch("x"), in_branch("y")],
    }));
    assert_eq!(
        edges(&routing),
        [">.router", ".router>.review", ".review>x/s(route x)", ".review>y/s(route y)", "x/s>", "y/s>"]
    );
    let parallel = flow(json!({
        "pattern": {"parallel": {"reduce": "reduce"}}, "steps": [in_branch("x"), in_branch("y"), turn("reduce")],
    }));
    assert_eq!(edges(&parallel), [">x/s(branch x)", ">y/s(branch y)", "x/s>reduce", "y/s>reduce", "reduce>"]);
}

#[test]
fn loops_and_reviews_of_the_other_patterns_are_edges() {
    let evaluator = flow(json!({"gates": [{"name": "review", "hitl": hitl()}], "pattern": {"evaluatorOptimizer": {
        "producer": "a", "evaluator": {"agent": "a"}, "accept": {"minScore": 90}, "reviewGate": "review"}}}));
    assert_eq!(
        edges(&evaluator),
        [
            ">.producer",
            ".producer>.evaluator",
            ".evaluator>.review(score below 90)",
            ".review>.reviser",
            ".reviser>.evaluator",
            ".evaluator>(score 90 or more)",
            ".review>(Approve)"
        ]
    );
    let mut modified = hitl();
    modified["allowedVerdicts"] = json!(["Approve", "Modify"]);
    let evaluator = flow(json!({"gates": [{"name": "review", "hitl": modified}], "pattern": {"evaluatorOptimizer": {
        "producer": "a", "evaluator": {"agent": "a"}, "reviewGate": "review", "onExhausted": "acceptBest"}}}));
    let edges_of_it = edges(&evaluator);
    for edge in [".review>.evaluator(Modify)", ".evaluator>(3 drafts judged: the best)"] {
        assert!(edges_of_it.iter().any(|one| one == edge), "{edge}: {edges_of_it:?}");
    }
    let workers = flow(json!({
        "gates": [{"name": "decomposition", "hitl": hitl()}],
        "pattern": {"orchestratorWorkers": {"orchestrator": {"agent": "a"}, "worker": {"agent": "a"},
            "decompositionReview": "decomposition", "reduce": "reduce"}},
        "steps": [turn("reduce")],
    }));
    assert_eq!(
        edges(&workers),
        [">.orchestrator", ".orchestrator>.decomposition", ".decomposition>.worker", ".worker>reduce", "reduce>"]
    );
    let choose = json!([{"when": "last_response == 'again'", "to": "x"}, {"when": "else", "to": "y"}]);
    let graph = flow(json!({
        "pattern": {"graph": {"edges": [{"from": "x", "choose": choose}]}}, "steps": [turn("x"), turn("y")],
    }));
    assert_eq!(edges(&graph), [">x", "x>x(last_response == 'again')", "x>y(else)", "y>"]);
}

#[test]
fn gates_of_the_spec_are_at_the_steps_they_ask_about() {
    let gate = |name: &str, type_: &str| json!({"name": name, "type": type_, "hitl": hitl()});
    let mut answers = gate("answers", "outputValidation");
    answers["steps"] = json!(["draft"]);
    answers["condition"] = json!("size(output) > 10");
    let mut rate = turn("rate");
    rate["outputSchema"] = json!({"type": "object"});
    let mut skipped = gate("failed", "errorEscalation");
    skipped["steps"] = json!(["rate"]);
    skipped["hitl"]["allowedVerdicts"] = json!(["Retry", "Skip"]);
    let flow_of_chain = flow(json!({
        "steps": [turn("draft"), rate, turn("send")],
        "gates": [gate("release", "finalResponse"), answers, gate("shapes", "outputValidation"), skipped],
        "outputs": {"from": "{{ steps.send.response }}"},
    }));
    let mut found = edges(&flow_of_chain);
    found.sort();
    assert_eq!(
        found,
        [
            ".final>",
            ">draft",
            "draft/.output>rate",
            "draft>draft/.output",
            "draft>rate",
            "rate/.error>send(Skip)",
            "rate/.output>send",
            "rate>rate/.error(it failed)",
            "rate>rate/.output(its answer does not fit)",
            "rate>send",
            "send>.final"
        ]
    );
    let text = flow_of_chain.to_text();
    for words in [
        "draft/.output: asks people (outputValidation, gate answers)\n       after draft\n       only if size(output) > 10",
        ".final: asks people (finalResponse, gate release)",
        "Result: {{ steps.send.response }}\n  needs steps.send.response",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let routing = flow(json!({
        "gates": [gate("plan", "planApproval")],
        "pattern": {"routing": {"router": {"agent": "a", "input": "choose"}}}, "steps": [in_branch("x")],
    }));
    assert_eq!(edges(&routing), [">.router", ".router>.review", ".review>x/s(route x)", "x/s>"]);
}

#[test]
fn a_start_gate_is_before_its_step() {
    let pod = json!({"name": "build", "skipIf": "inputs.dry", "pod": {"image": "tool@sha256:1",
        "env": [{"name": "PLAN", "value": "{{ steps.draft.response }}"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "models", "key": "k"}}}],
        "volumes": [{"name": "v", "mountPath": "/v", "configMap": {"name": "settings"}}], "files": [{"path": "/in", "content": "{{ run.name }}"}]}});
    let gate = |more: Value| {
        let mut gate = json!({"name": "human", "type": "stepStart", "hitl": hitl()});
        for (field, value) in more.as_object().unwrap() {
            gate[field] = value.clone();
        }
        flow(json!({"steps": [turn("draft"), pod, turn("send")], "gates": [gate]}))
    };
    let always = gate(json!({}));
    let mut found = edges(&always);
    found.sort();
    assert_eq!(found, [">draft", "build/.start>build", "build>send", "draft>build/.start", "send>"]);
    let text = always.to_text();
    for words in [
        "2. build/.start: asks people (stepStart, gate human)\n     after draft\n     skipped if inputs.dry\n",
        "3. build: pod tool@sha256:1\n     after build/.start\n     skipped if inputs.dry\n     needs inputs.dry, run.name, steps.draft.response\n     uses ConfigMap settings, Secret models of the cluster (not checked here)",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let mut skip = hitl();
    skip["allowedVerdicts"] = json!(["Approve", "Skip"]);
    let mut found = edges(&gate(json!({"condition": "inputs.big", "hitl": skip, "steps": ["build"]})));
    found.sort();
    let expected = [
        ">draft",
        "build/.start>build",
        "build/.start>send(Skip)",
        "build>send",
        "draft>build",
        "draft>build/.start",
        "send>",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_plan_shows_escalations_commands_and_questions() {
    let mut asked = hitl();
    asked["allowedVerdicts"] = json!(["Respond", "Escalate"]);
    asked["timeout"] = json!({"after": "24h", "action": "Escalate", "escalation": [
        {"after": "4h", "to": [{"kind": "Group", "name": "directors"}]}, {"to": [{"kind": "User", "name": "eve"}]}]});
    asked["escalateTo"] = json!([{"kind": "User", "name": "olga"}]);
    asked["form"] = json!({"questions": [
        {"id": "channel", "question": "By which channel?", "options": [{"id": "mail", "label": "E-mail"}, {"id": "post", "label": "Post"}]},
        {"id": "copy", "required": false}]});
    let flow = flow(json!({"steps": [
        {"name": "how", "hitl": asked},
        {"name": "build", "pod": {"image": "tool@sha256:1", "command": ["sh", "-c"], "args": ["make \"$PLAN\"\u{1b}"]}},
    ]}));
    let text = flow.to_text();
    for words in [
        "     after 24h: Escalate
     escalation 1: group directors can decide too for 4h
     escalation 2: eve can decide too
     Escalate can add olga
     asks channel: By which channel? (mail or post)
     asks copy, can be left out
     may decide Respond, Escalate\n",
        "2. build: pod tool@sha256:1\n     after how\n     runs [\"sh\",\"-c\",\"make \\\"$PLAN\\\"\\u001b\"]\n",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let json = serde_json::to_value(&flow).unwrap();
    assert_eq!(json["steps"][0]["gate"]["escalation"][0], json!({"to": ["group directors"], "after": "4h"}));
    assert_eq!(json["steps"][0]["gate"]["questions"][1], json!({"id": "copy", "required": false}));
    assert_eq!(json["steps"][1]["command"][1], "-c");
}

#[test]
fn no_text_of_a_file_can_leave_its_label() {
    let evil = "x\"]; click n0 \"javascript:alert(1)\" <b>\u{1b}[31m\n%% ";
    let flow = flow(json!({"steps": [{"name": "a", "http": {"url": evil}}]}));
    for picture in [flow.to_mermaid(), flow.to_dot()] {
        assert!(!picture.contains(['\u{1b}', '\u{7}']), "{picture}");
        let line = picture.lines().find(|line| line.contains("n0") && line.contains("a: GET")).unwrap();
        assert!(line.ends_with("\"]") || line.ends_with("\"];"), "{line}");
    }
    assert!(flow.to_mermaid().contains("#34;#93;#59; click n0 #34;"), "{}", flow.to_mermaid());
    assert!(flow.to_dot().contains("x\\\"]; click"), "{}", flow.to_dot());
}

#[test]
fn a_gate_without_a_list_of_verdicts_has_the_defaults() {
    let asks =
        |name: &str| json!({"name": name, "hitl": {"prompt": "Go?", "approvers": [{"kind": "User", "name": "alice"}]}});
    let object = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": {
        "requestedBy": "dana", "inputs": [{"name": "topic", "required": true}],
        "steps": [asks("first"), {"name": "text", "set": {"value": "{{ topic }}"}}, asks("second")],
        "gates": [{"name": "final", "type": "finalResponse", "hitl": asks("x")["hitl"]}],
    }});
    let flow = Flow::of(&serde_json::from_value(object).unwrap());
    let verdicts: Vec<_> = flow.steps.iter().filter_map(|step| Some(step.gate.as_ref()?.verdicts.join(" "))).collect();
    assert_eq!(
        verdicts,
        ["Approve Reject Respond Abort", "Approve Reject Modify Respond Abort", "Approve Reject Modify Abort"]
    );
}
