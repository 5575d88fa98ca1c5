//! Tools of agents that are Pods on a real kubelet: the request to people, the creation of the Pod, and the result for
//! the agent.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use signoff_api::Approval;
use signoff_api::workflow::WorkflowPhase;

use crate::harness::shared;
use crate::witness::{Pods, error_class, record, step, with};

/// The gate in front of the only call of the first turn.
const GATE: &str = "handle/.turn-1/.call-1/.gate";
/// The Pod of that call.
const CALL: &str = "handle/.turn-1/.call-1/scan";
/// A text that a shell and a kubelet would expand.
const VOLUME: &str = "data-7 $(HOME) $$ `id`";

/// Returns a step for the tool that writes the name of the volume into its log.
fn scan(more: Value) -> Value {
    let env = json!([{"name": "VOLUME", "value": "{{ args.volume }}"}]);
    step("scan", "echo \"scanned $VOLUME\"", with(json!({"env": env, "outputFrom": "log"}), more))
}

/// Returns an agent that calls the tool once. People are asked before, and a person who edits a call does not approve
/// it. `told`: the answers of the model to its results.
fn agent(scan: Value, told: &[(&str, &str)]) -> Value {
    let mut replies =
        vec![json!({"contains": "healthy?", "calls": [{"tool": "scan-volume", "arguments": {"volume": VOLUME}}]})];
    replies.extend(told.iter().map(|(part, text)| json!({"contains": part, "text": text})));
    let people = ["alice@example.com", "bob@example.com"].map(|name| json!({"kind": "User", "name": name}));
    let hitl = |verdicts: &[&str]| json!({"prompt": "Go on?", "approvers": people, "allowedVerdicts": verdicts});
    let parameters = json!({"type": "object", "required": ["volume"], "properties": {"volume": {"type": "string"}}});
    json!({
        "providers": [{"name": "models", "scripted": {"replies": replies}}],
        "agents": [{"name": "keeper", "tools": ["scan-volume"]}],
        "tools": [{"name": "scan-volume", "step": "scan", "description": "Scan a volume.", "effects": "write",
            "parameters": parameters}],
        "gates": [
            {"name": "scans", "type": "specificTools", "tools": ["scan-volume"], "hitl": hitl(&["Approve", "Modify", "Reject"])},
            {"name": "errors", "type": "errorEscalation", "hitl": hitl(&["Retry", "Skip", "Reject"])},
        ],
        "steps": [{"name": "handle", "agent": {"name": "keeper", "input": "Is the volume healthy?"}}, scan],
        // A Pod exists until the end of the test.
        "podGC": "Never",
    })
}

/// Waits until the container of the call has written this line, and lets it end.
async fn let_go_after(pods: &Pods, line: &str) {
    pods.wait_for_line("run", line).await;
    pods.let_go();
}

fn target(asked: &Approval) -> &str {
    asked.spec.request.action.as_ref().unwrap().target.as_deref().unwrap()
}

#[tokio::test]
async fn an_approved_call_runs_in_one_pod_of_the_shown_image() {
    let pods = Pods::open("approved").await;
    let image = shared().await.busybox().by_digest();
    let written = format!("scanned {VOLUME}");
    let work = pods.hold_open(scan(json!({"image": image})));
    pods.request("run", agent(work, &[(&format!("{written}\n"), "It is healthy.")])).await;
    let asked = pods.asked("run", GATE).await;
    let request = &asked.spec.request;
    assert_eq!(target(&asked), format!("image {image}"));
    assert_eq!(request.action.as_ref().unwrap().tool, "scan-volume");
    assert_eq!(request.reviews.as_ref().unwrap().response, json!({"volume": VOLUME}).to_string());
    assert!(pods.list("run").await.is_empty(), "nothing runs before people said so");
    pods.approve(&asked).await;
    let_go_after(&pods, &written).await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.as_ref().unwrap().outputs.as_deref(), Some("It is healthy."), "{run:#?}");
    let [pod] = &pods.list("run").await[..] else { panic!("one Pod") };
    assert_eq!(pod.spec.as_ref().unwrap().containers[0].image.as_deref(), Some(image.as_str()));
    let call = record(&run, CALL);
    assert_eq!(call.object.as_deref(), Some(pod.name_any().as_str()));
    assert_eq!(call.response.as_ref().unwrap().0, json!(format!("{written}\n")));
    assert_eq!(pods.starts(), 1);
}

#[tokio::test]
async fn a_rejected_call_creates_no_pod_and_its_result_has_the_reason() {
    let pods = Pods::open("rejected").await;
    let first = json!({"podTemplate": {"spec": {"initContainers": [{"name": "first", "image": "busybox:1.35"}]}}});
    let spec = agent(pods.with_witness(scan(first)), &[("Denied by a human: it is in use", "Then not.")]);
    pods.request("run", spec).await;
    let asked = pods.asked("run", GATE).await;
    assert_eq!(target(&asked), "image busybox:1.36, busybox:1.35", "every image of the Pod");
    pods.decides("bob", &asked, json!({"verdict": "Reject", "reason": "it is in use"})).await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.as_ref().unwrap().outputs.as_deref(), Some("Then not."), "{run:#?}");
    assert!(run.status.unwrap().steps.iter().all(|record| record.path != CALL));
    assert!(pods.list("run").await.is_empty() && pods.starts() == 0);
}

#[tokio::test]
async fn a_pod_gets_edited_arguments_after_another_person_approved_them() {
    let pods = Pods::open("edited").await;
    let told = "A human changed the arguments. This ran: {\"volume\":\"data-8\"}\nscanned data-8\n";
    pods.request("run", agent(pods.hold_open(scan(json!({}))), &[(told, "The other one is healthy.")])).await;
    let asked = pods.asked("run", GATE).await;
    let edit = json!({"verdict": "Modify", "parameters": {"arguments": {"volume": "data-8"}}});
    pods.decides("alice", &asked, edit).await;
    let again = pods.asked("run", &format!("{GATE}#2")).await;
    let own = pods.try_decide("alice", &again, json!({"verdict": "Approve"})).await;
    assert!(own.unwrap_err().to_string().contains("excluded"), "whoever edited a call does not approve it");
    assert!(pods.list("run").await.is_empty());
    pods.decides("bob", &again, json!({"verdict": "Approve"})).await;
    let_go_after(&pods, "scanned data-8").await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.unwrap().outputs.as_deref(), Some("The other one is healthy."));
    assert_eq!(pods.starts(), 1);
}

#[tokio::test]
async fn an_approval_holds_for_retries_after_known_failures() {
    let pods = Pods::open("again").await;
    let retry = json!({"retry": {"limit": 1, "backoff": {"base": "1s"}, "onExitCodes": [75]}, "onError": "continue"});
    let fails = pods.with_witness(with(step("scan", "exit 75", json!({})), retry));
    let mut spec = agent(fails, &[("exit code 75", "It cannot be scanned.")]);
    spec["gates"].as_array_mut().unwrap().truncate(1);
    pods.request("run", spec).await;
    pods.approve(&pods.asked("run", GATE).await).await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.as_ref().unwrap().outputs.as_deref(), Some("It cannot be scanned."), "{run:#?}");
    let call = record(&run, CALL);
    assert_eq!((call.attempt, error_class(call), call.facts["exitCode"].as_str()), (2, "ExitCode", "75"));
    let gates = run.status.unwrap().steps.iter().filter(|record| record.path.starts_with(GATE)).count();
    assert_eq!((gates, pods.starts(), pods.list("run").await.len()), (1, 2, 2));
}

#[tokio::test]
async fn a_pod_with_an_unknown_end_is_repeated_after_two_decisions() {
    let pods = Pods::open("unknown").await;
    let short = json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}}});
    pods.request("run", agent(pods.hold_open(scan(short)), &[("scanned", "It is healthy after all.")])).await;
    pods.approve(&pods.asked("run", GATE).await).await;
    let name = pods.wait_until_running("run").await.name_any();
    pods.see::<Pod>().delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
    let failed = pods.asked("run", &format!("{CALL}/.error")).await;
    assert_eq!(error_class(record(&pods.run("run").await, CALL)), "OutcomeUnknown");
    pods.decides("alice", &failed, json!({"verdict": "Retry"})).await;
    let again = pods.asked("run", &format!("{GATE}#2")).await;
    assert_eq!((target(&again), pods.starts()), ("image busybox:1.36", 1), "Retry alone makes no Pod");
    pods.decides("bob", &again, json!({"verdict": "Approve"})).await;
    let_go_after(&pods, &format!("scanned {VOLUME}")).await;
    let run = pods.ended("run").await;
    assert_eq!(run.status.unwrap().outputs.as_deref(), Some("It is healthy after all."));
    assert_eq!(pods.starts(), 2);
}

#[tokio::test]
async fn a_requester_without_rights_on_pods_gets_no_tool_in_a_pod() {
    let pods = Pods::without_rights("no-tool").await;
    let refused = pods.try_request("run", agent(scan(json!({})), &[("scanned", "Healthy.")])).await.unwrap_err();
    assert!(refused.to_string().contains("lacks the RBAC verb create on pods"), "{refused}");
    let mut fine = agent(scan(json!({})), &[("scanned", "Healthy.")]);
    fine["steps"][1] = json!({"name": "scan", "set": {"value": "scanned {{ args.volume }}"}});
    pods.request("run", fine).await;
    pods.approve(&pods.asked("run", GATE).await).await;
    assert_eq!(pods.ended("run").await.status.unwrap().phase, WorkflowPhase::Succeeded);
}
