//! The lines after a verdict, pattern by pattern.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::{Value, json};
use signoff_api::Approval;

use super::{question::has_values, *};
use crate::sample;

/// Returns a run with this spec, and the request of one of its gates.
fn run_at_gate(spec: Value, path: &str) -> (Approval, RunNow) {
    run_with_added_gates(spec, json!([]), path)
}

fn run_with_added_gates(mut spec: Value, added: Value, path: &str) -> (Approval, RunNow) {
    spec["requestedBy"] = json!("dana@example.com");
    spec["inputs"] = json!([{"name": "a", "value": "x"}]);
    spec["providers"] = json!([{"name": "script", "scripted": {"replies": [{"text": "hello"}]}}]);
    let agents = ["writer", "critic", "lead", "clerk"].map(|name| json!({"name": name, "system": "be brief"}));
    spec["agents"] = json!(agents);
    let mut approval = sample::approval();
    let uid = approval.spec.request.workflow.uid.clone();
    let workflow = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "refund-4711", "namespace": "finance", "uid": uid}, "spec": spec,
        "status": {"addedSteps": added}});
    let mut workflow: Workflow = serde_json::from_value(workflow).unwrap();
    let digest = spec_digest(&workflow.spec).unwrap();
    workflow.status.as_mut().unwrap().spec_digest = Some(digest.clone());
    let request = &mut approval.spec.request;
    request.spec_digest = digest;
    request.gate.path = path.to_owned();
    request.gate.name = RecordPath::new(path).last().name().to_owned();
    sample::seal(&mut approval);
    (approval, RunNow { workflow: Some(Arc::new(workflow)), ..sample::run() })
}

fn lines_after((approval, run): &(Approval, RunNow), verdict: Verdict) -> Vec<String> {
    let request = &approval.spec.request;
    let planned = definition(request, run).and_then(PlannedRun::of);
    lines(request, planned.as_ref(), verdict)
}

/// Sets the type of the gate of a request.
fn with_gate_type(type_: GateType, mut run: (Approval, RunNow)) -> (Approval, RunNow) {
    run.0.spec.request.gate.type_ = type_;
    run
}

fn gate(name: &str, fields: &Value) -> Value {
    let approvers = json!([{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "ops"}]);
    let mut step = json!({"name": name, "hitl": {"prompt": "Go on?", "approvers": approvers}});
    fields.as_object().unwrap().iter().for_each(|(field, value)| step[field] = value.clone());
    step
}

fn post(name: &str) -> Value {
    json!({"name": name, "http": {"method": "POST", "url": format!("http://{name}.svc/run"), "body": "{{ steps.draft.response }}"}})
}

/// Returns an http step whose body names no step.
fn plain(name: &str) -> Value {
    json!({"name": name, "http": {"method": "POST", "url": format!("http://{name}.svc/run")}})
}

fn text(name: &str) -> Value {
    json!({"name": name, "set": {"value": "x"}})
}

#[test]
fn a_chain_has_lines_up_to_the_next_gate_or_the_end() {
    let mut apply = post("apply");
    apply["onError"] = json!("escalate");
    let help = json!({"name": "help", "type": "errorEscalation",
        "hitl": {"prompt": "What now?", "approvers": [{"kind": "Group", "name": "ops"}]}});
    let spec = json!({"gates": [help], "steps": [text("draft"), gate("review", &json!({})), apply]});
    let run = run_at_gate(spec, "review#2");
    let call = "step apply: POST http://apply.svc/run; if it fails group ops is asked; its body is the text below";
    assert_eq!(lines_after(&run, Verdict::Approve), [call, ENDS]);
    assert_eq!(lines_after(&run, Verdict::Reject), ["the run ends"]);
    assert_eq!(lines_after(&run, Verdict::Retry), ["this gate asks again"]);

    let skipped = json!({"name": "note", "set": {"value": "x"}, "skipIf": "true"});
    let next = gate("second", &json!({}));
    let spec = json!({"steps": [text("draft"), gate("review", &json!({})), skipped, next, post("apply")]});
    let lines =
        ["step note: a text of the run, unless its condition leaves it out", "gate second asks alice, group ops"];
    assert_eq!(lines_after(&run_at_gate(spec, "review"), Verdict::Approve), lines);
}

#[test]
fn a_reject_that_goes_on_names_the_step_with_its_target() {
    let spec = json!({"steps": [text("draft"), gate("review", &json!({})), post("apply")]});
    let (mut approval, run) = run_at_gate(spec, "review");
    approval.spec.request.after_reject = vec!["apply".to_owned()];
    let call = "step apply: POST http://apply.svc/run; if it fails the run fails";
    assert_eq!(lines_after(&(approval, run), Verdict::Reject), ["the run goes on with apply", call]);
}

#[test]
fn a_long_chain_is_shortened() {
    let steps: Vec<_> =
        std::iter::once(gate("review", &json!({}))).chain((0..9).map(|at| text(&format!("s{at}")))).collect();
    let lines = lines_after(&run_at_gate(json!({"steps": steps}), "review"), Verdict::Approve);
    assert_eq!((lines.len(), lines.last().unwrap().as_str()), (MOST + 1, "and 3 more"));
}

#[test]
fn branches_end_together_and_a_route_alone() {
    let in_branch = |branch: &str, mut step: Value| {
        step["branch"] = json!(branch);
        step
    };
    let steps = json!([
        in_branch("left", gate("review", &json!({}))),
        in_branch("left", text("more")),
        in_branch("right", text("other")),
        plain("merge")
    ]);
    let spec = json!({"pattern": {"parallel": {"reduce": "merge"}}, "steps": steps});
    let lines = [
        "step more: a text of the run",
        "then the run waits until all branches have ended",
        "step merge: POST http://merge.svc/run; if it fails the run fails",
        ENDS,
    ];
    assert_eq!(lines_after(&run_at_gate(spec, "left/review"), Verdict::Approve), lines);

    let steps = json!([
        in_branch("left", gate("review", &json!({}))),
        in_branch("left", text("more")),
        in_branch("right", text("other")),
    ]);
    let router = json!({"agent": "clerk", "input": "which?", "review": "route"});
    let route = gate("route", &json!({}));
    let spec = json!({"pattern": {"routing": {"router": router}}, "steps": steps, "gates": [route]});
    assert_eq!(
        lines_after(&run_at_gate(spec.clone(), "left/review"), Verdict::Approve),
        ["step more: a text of the run", ENDS]
    );
    let mut run = with_gate_type(GateType::PlanApproval, run_at_gate(spec, ".review"));
    assert_eq!(lines_after(&run, Verdict::Approve), ["the steps of the chosen route run"]);
    assert_eq!(lines_after(&run, Verdict::Retry), ["agent clerk chooses again, and this gate asks again"]);
    run.0.spec.request.reviews.as_mut().unwrap().response = "left".to_owned();
    let lines = ["the steps of the chosen route run", "gate review asks alice, group ops"];
    assert_eq!(lines_after(&run, Verdict::Approve), lines);
}

#[test]
fn a_dag_has_a_line_for_each_waiting_step_with_its_other_dependencies() {
    let after_it = |name: &str, on: &[&str]| json!({"name": name, "set": {"value": "x"}, "dependsOn": on});
    let steps = json!([
        text("draft"),
        gate("review", &json!({})),
        after_it("one", &["review"]),
        after_it("two", &["review", "draft"])
    ]);
    let spec = json!({"pattern": {"dag": {}}, "steps": steps});
    let lines = ["step one: a text of the run", "step two: a text of the run; it also waits for draft"];
    assert_eq!(lines_after(&run_at_gate(spec.clone(), "review"), Verdict::Approve), lines);
    let last = json!({"pattern": {"dag": {}}, "steps": [gate("review", &json!({}))]});
    let lines = ["no other step waits for it; the run ends when its other steps have ended"];
    assert_eq!(lines_after(&run_at_gate(last, "review"), Verdict::Approve), lines);
}

#[test]
fn a_graph_has_a_line_for_each_edge_with_its_condition() {
    let edge = json!({"from": "review", "choose": [{"when": "inputs.a == 'x'", "to": "apply"},
            {"when": "else", "to": "draft"}]});
    let steps = json!([text("draft"), gate("review", &json!({})), post("apply")]);
    let begin = json!({"from": "draft", "to": "review"});
    let spec = json!({"pattern": {"graph": {"edges": [begin, edge]}}, "steps": steps});
    let lines = [
        "if inputs.a == 'x': step apply: POST http://apply.svc/run; if it fails the run fails",
        "otherwise step draft: a text of the run",
        "after that the edges of its graph decide",
    ];
    assert_eq!(lines_after(&run_at_gate(spec, "review"), Verdict::Approve), lines);
    let steps = json!([gate("review", &json!({}))]);
    let spec = json!({"pattern": {"graph": {"edges": []}}, "steps": steps});
    assert_eq!(lines_after(&run_at_gate(spec, "review"), Verdict::Approve), [ENDS]);
}

#[test]
fn gates_of_a_loop_and_an_orchestrator_have_lines_about_their_agents() {
    let drafts = json!({"producer": "writer", "evaluator": {"agent": "critic"}, "reviewGate": "look"});
    let gates = json!([gate("look", &json!({}))]);
    let run = run_at_gate(json!({"pattern": {"evaluatorOptimizer": drafts}, "gates": gates}), ".review");
    assert_eq!(lines_after(&run, Verdict::Approve), ["this draft is the result", ENDS]);
    assert_eq!(lines_after(&run, Verdict::Modify), ["your draft is scored next"]);
    assert_eq!(lines_after(&run, Verdict::Retry), ["agent writer revises the draft, and it is scored again"]);
    let parts = json!({"orchestrator": {"agent": "lead"}, "worker": {"agent": "clerk"}, "decompositionReview": "parts",
        "reduceReview": "look", "reduce": "merge"});
    let gates = json!([gate("parts", &json!({})), gate("look", &json!({}))]);
    let spec = json!({"pattern": {"orchestratorWorkers": parts}, "steps": [text("merge")], "gates": gates});
    let lines = ["agent clerk does each part of the work", "then gate look asks alice, group ops about the parts"];
    assert_eq!(lines_after(&run_at_gate(spec.clone(), ".decomposition"), Verdict::Approve), lines);
    let again = ["agent lead divides the work again, and this gate asks again"];
    assert_eq!(lines_after(&run_at_gate(spec.clone(), ".decomposition"), Verdict::Retry), again);
    assert_eq!(
        lines_after(&run_at_gate(spec, ".reduce-review"), Verdict::Approve),
        ["step merge: a text of the run", ENDS]
    );
}

#[test]
fn a_call_has_its_target_and_the_agent_chooses_the_next_action() {
    let (mut approval, run) = run_at_gate(json!({"steps": [text("draft")]}), "review");
    let digest = approval.spec.request.spec_digest.clone();
    let chooses = "the agent chooses what it does next; its further calls meet the gates of this run";
    approval.spec.request = sample::call().spec.request;
    approval.spec.request.spec_digest = digest.clone();
    let call = "the call goes on with exactly these arguments: refund: POST https://bank.example/refunds";
    assert_eq!(lines_after(&(approval.clone(), run.clone()), Verdict::Approve), [call, chooses]);
    approval.spec.request = sample::question().spec.request;
    approval.spec.request.spec_digest = digest;
    assert_eq!(lines_after(&(approval, run), Verdict::Respond), ["the agent is told your answer", chooses]);
}

#[test]
fn gates_at_the_end_of_the_run_are_named_before_it_ends() {
    let last = json!({"name": "release", "type": "finalResponse",
        "hitl": {"prompt": "Publish?", "approvers": [{"kind": "User", "name": "carol"}]}});
    let spec = json!({"gates": [last], "steps": [gate("review", &json!({}))]});
    let lines = ["gate release asks carol before the result is published", ENDS];
    assert_eq!(lines_after(&run_at_gate(spec, "review"), Verdict::Approve), lines);
}

#[test]
fn a_run_with_another_spec_digest_is_not_used() {
    let spec = json!({"steps": [gate("review", &json!({})), post("apply")]});
    let (mut approval, run) = run_at_gate(spec, "review");
    approval.spec.request.spec_digest = sample::approval().spec.request.spec_digest;
    assert_eq!(lines_after(&(approval, run), Verdict::Approve), ["the run goes on"]);
}

#[test]
fn a_question_has_values_only_if_its_template_has_them() {
    let mut review = gate("review", &json!({}));
    let shown = |review: &Value| {
        let (approval, run) = run_at_gate(json!({"steps": [review]}), "review");
        has_values(&approval.spec.request, definition(&approval.spec.request, &run).unwrap())
    };
    assert_eq!(shown(&review), Some(false));
    review["hitl"]["prompt"] = json!("Pay {{ inputs.amount }}?");
    assert_eq!(shown(&review), Some(true));
}

#[test]
fn words_of_others_stay_in_their_line() {
    let mut apply = plain("apply");
    apply["http"]["url"] = json!(format!("http://x/{}", sample::HOSTILE));
    let lines =
        lines_after(&run_at_gate(json!({"steps": [gate("review", &json!({})), apply]}), "review"), Verdict::Approve);
    assert!(lines[0].starts_with("step apply: POST http://x/ok"), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains(['\n', '\u{1b}', '\u{202e}'])), "{lines:?}");
}

/// Returns a gate of a policy with its place.
fn policy_gate(name: &str, place: (&str, Value)) -> Value {
    let mut step = gate(name, &json!({}));
    step[place.0] = place.1;
    json!({"source": "ClusterApprovalPolicy prod", "step": step})
}

/// Returns a run with gates of each kind around one call. `condition`: the condition of the gate before the call.
fn guarded(condition: Option<&str>, path: &str) -> (Approval, RunNow) {
    let mut look = gate("look", &json!({"type": "stepStart", "steps": ["apply"]}));
    if let Some(condition) = condition {
        look["condition"] = json!(condition);
    }
    let spec = json!({"gates": [look], "steps": [text("draft"), gate("review", &json!({})), post("apply")]});
    let http = json!({"kinds": ["http"]});
    let added = [
        policy_gate("intake", ("at", json!("Start"))),
        policy_gate("guard", ("before", http)),
        policy_gate("exit", ("at", json!("End"))),
    ];
    run_with_added_gates(spec, json!(added), path)
}

const GUARD: &str = "gate guard-apply of ClusterApprovalPolicy prod asks alice, group ops";
const EXIT: &str = "gate exit of ClusterApprovalPolicy prod asks alice, group ops before the result is published";
const CALL: &str = "step apply: POST http://apply.svc/run";
const FAILS: &str = "; if it fails the run fails";

#[test]
fn gates_of_types_and_policies_are_listed_at_their_steps() {
    let body = "; its body is the text below";
    let before = format!("{CALL}; before it gate look asks alice, group ops; before it {GUARD}{FAILS}{body}");
    assert_eq!(lines_after(&guarded(None, "review"), Verdict::Approve), [before.as_str()]);
    let before = format!("{CALL}; before it gate look may ask alice, group ops; before it {GUARD}{FAILS}{body}");
    assert_eq!(lines_after(&guarded(Some("inputs.a == 'x'"), "review"), Verdict::Approve), [before.as_str()]);
    let first = ["step draft: a text of the run", "gate review asks alice, group ops"];
    assert_eq!(lines_after(&guarded(None, "intake"), Verdict::Approve), first);
    assert_eq!(lines_after(&guarded(None, "exit"), Verdict::Approve), ["the result is published", ENDS]);
}

#[test]
fn a_gate_before_a_step_lists_the_step_and_its_other_gates() {
    let start = with_gate_type(GateType::StepStart, guarded(None, "apply/.start"));
    let then = [format!("{GUARD} about the same call"), format!("then this runs: {CALL}{FAILS}")];
    assert_eq!(lines_after(&start, Verdict::Approve), then);
    let changed = [format!("{GUARD} about the changed call"), format!("then this runs: {CALL}{FAILS}")];
    assert_eq!(lines_after(&start, Verdict::Modify), changed);
    assert_eq!(lines_after(&start, Verdict::Retry), [ASKS_AGAIN]);
    assert_eq!(lines_after(&start, Verdict::Skip), [EXIT, ENDS]);
    let policy = with_gate_type(GateType::StepStart, guarded(None, "guard-apply"));
    let now = [format!("this runs now: {CALL}{FAILS}"), EXIT.to_owned(), ENDS.to_owned()];
    assert_eq!(lines_after(&policy, Verdict::Approve), now);
    assert_eq!(lines_after(&policy, Verdict::Modify), changed);
}

#[test]
fn a_repeated_step_has_gates_of_policies_and_after_a_change_of_its_author() {
    let failed = with_gate_type(GateType::ErrorEscalation, guarded(None, "apply/.error"));
    let policy = [format!("the step runs again: {CALL}; before it {GUARD}{FAILS}")];
    assert_eq!(lines_after(&failed, Verdict::Retry), policy);
    assert_eq!(lines_after(&failed, Verdict::Respond), policy);
    let look = "gate look asks alice, group ops";
    let both = [format!("the step runs again: {CALL}; before it {look}; before it {GUARD}{FAILS}")];
    assert_eq!(lines_after(&failed, Verdict::Modify), both);
}

#[test]
fn a_run_that_cannot_be_planned_has_only_the_sequel() {
    let unknown = json!({"name": "act", "agent": {"name": "nobody", "input": "x"}});
    let run = run_at_gate(json!({"steps": [gate("review", &json!({})), unknown]}), "review");
    assert_eq!(lines_after(&run, Verdict::Approve), ["the run goes on"]);
}

/// Returns the label of a question about a call. `gates`, `added`: the gates of the spec and of policies. `names`: the
/// gates that ask.
fn label_at_call(gates: &Value, added: &Value, names: &[&str]) -> &'static str {
    let (mut approval, run) =
        run_with_added_gates(json!({"gates": gates, "steps": [text("draft")]}), added.clone(), "draft");
    let request = &mut approval.spec.request;
    let digest = request.spec_digest.clone();
    *request = sample::call().spec.request;
    (request.gate.name, request.spec_digest) = (names[0].to_owned(), digest);
    let asking_gate = |name: &&str| json!({"name": name, "type": "toolExecution", "because": "it is listed"});
    let asking = names.iter().map(asking_gate).collect::<Vec<_>>();
    request.action.as_mut().unwrap().gates = serde_json::from_value(json!(asking)).unwrap();
    label_of_question(request, definition(request, &run))
}

#[test]
fn the_question_of_a_preset_or_a_policy_is_found_by_name() {
    const PLAIN: &str = "the Workflow's question";
    const FILLED: &str = "the Workflow's question, with values of the run filled in";
    const UNKNOWN: &str = "the Workflow's question; values of the run may be filled in";
    let hitl = |prompt: &str| json!({"prompt": prompt, "approvers": [{"kind": "User", "name": "alice"}]});
    let preset = |prompt: &str| json!([{"name": "guard", "preset": "strict", "hitl": hitl(prompt)}]);
    let none = json!([]);
    assert_eq!(label_at_call(&preset("Go on?"), &none, &["guard.tools"]), PLAIN);
    assert_eq!(label_at_call(&preset("Run {{ tool }}?"), &none, &["guard.tools"]), FILLED);
    assert_eq!(label_at_call(&none, &none, &["guard.tools"]), UNKNOWN);
    let two = json!([{"name": "a", "type": "toolExecution", "hitl": hitl("Go on?")},
        {"name": "b", "type": "toolExecution", "hitl": hitl("Run {{ tool }}?")}]);
    assert_eq!(label_at_call(&two, &none, &["a"]), PLAIN);
    assert_eq!(label_at_call(&two, &none, &["a", "b"]), UNKNOWN, "the prompts of both gates are in the question");
    let policy = json!([{"source": "ClusterApprovalPolicy prod",
        "step": {"name": "release", "before": {"kinds": ["http"]}, "hitl": hitl("Release?")}}]);
    assert_eq!(label_at_call(&none, &policy, &["release-pay"]), PLAIN);
    assert_eq!(label_at_call(&none, &policy, &["released"]), UNKNOWN);
    let request = sample::approval().spec.request;
    assert_eq!(label_of_question(&request, None), UNKNOWN, "the run was not read");
}

#[test]
fn the_steps_of_a_run_are_listed_in_order_with_their_targets() {
    let steps_of = |spec: Value, most: usize| {
        let run = run_at_gate(spec, "review").1;
        steps(run.workflow.as_deref().unwrap(), most)
    };
    let spec = json!({"steps": [text("draft"), gate("review", &json!({})), post("apply")]});
    let apply = "step apply: POST http://apply.svc/run; if it fails the run fails";
    assert_eq!(
        steps_of(spec.clone(), 9),
        ["step draft: a text of the run", "gate review asks alice, group ops", apply]
    );
    assert_eq!(steps_of(spec, 1), ["step draft: a text of the run", "and 2 more"]);
    let (mut left, mut right) = (plain("apply"), text("draft"));
    (left["branch"], right["branch"]) = (json!("left"), json!("right"));
    let branches = json!({"pattern": {"parallel": {}}, "steps": [left, right]});
    let shown = [format!("branch left: {apply}"), "branch right: step draft: a text of the run".to_owned()];
    assert_eq!(steps_of(branches, 9), shown);
    assert_eq!(steps_of(json!({"steps": [post("apply")]}), 9), ["the steps cannot be told here: read the spec"]);
}

#[test]
fn a_step_with_on_error_continue_hides_no_later_step() {
    let look = gate("look", &json!({"type": "outputValidation", "steps": ["rate"]}));
    let shown = |on_error: Value| {
        let mut rate = json!({"name": "rate", "agent": {"name": "writer", "input": "x"}});
        rate["onError"] = on_error;
        let spec = json!({"gates": [look], "steps": [text("draft"), gate("review", &json!({})), rate, plain("pay")]});
        lines_after(&run_at_gate(spec, "review"), Verdict::Approve).join("\n")
    };
    assert!(!shown(json!("fail")).contains("step pay"), "{}", shown(json!("fail")));
    assert!(shown(json!("continue")).contains("step pay: POST http://pay.svc/run"), "{}", shown(json!("continue")));
}

#[test]
fn a_dag_mentions_steps_that_do_not_follow_directly() {
    let after_step = |name: &str, before: &str| {
        let mut step = plain(name);
        step["dependsOn"] = json!([before]);
        step
    };
    let spec = |steps: Vec<Value>| json!({"pattern": {"dag": {}}, "steps": steps});
    let (note, pay) = (after_step("note", "review"), after_step("pay", "note"));
    let deep = run_at_gate(spec(vec![gate("review", &json!({})), note.clone(), pay]), "review");
    assert!(lines_after(&deep, Verdict::Approve).contains(&LATER.to_owned()));
    let flat = run_at_gate(spec(vec![gate("review", &json!({})), note]), "review");
    let shown = lines_after(&flat, Verdict::Approve);
    assert!(shown[0].contains("step note") && !shown.contains(&LATER.to_owned()), "{shown:?}");
}
