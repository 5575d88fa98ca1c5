//! Approval policies on a real API server, with the real operator and several users: no user can do less than a policy
//! demands, and a policy does not change earlier requests.

mod bypass;
mod harness;
mod kinds;
mod tools;

use serde_json::{Value, json};
use signoff_api::{approval::ApprovalPhase, conditions, workflow::WorkflowPhase};

use harness::{Harness, approve, gate, message, reason};

/// Returns a policy that makes the group sre approve at every gate.
fn policy_that_requires_sre() -> Value {
    json!({"gates": {"deciders": {"approvers": [{"kind": "Group", "name": "sre"}]}}})
}

fn phase(run: &signoff_api::Workflow) -> WorkflowPhase {
    run.status.as_ref().unwrap().phase
}

#[tokio::test]
async fn a_policy_requires_a_group_and_show_names_the_policy() {
    let harness = Harness::open("policies").await;
    harness.create_cluster_policy("alpha", policy_that_requires_sre()).await;
    harness.create_run("refund", json!([gate("review", json!({}))])).await;
    let (approval, request) = harness.wait_for_gate("refund", "review").await;
    let source = format!("ClusterApprovalPolicy {}", harness.policy_name("alpha"));
    assert_eq!((&request.quorums[1].source, &request.required_by[0].source), (&source, &source));
    let page = harness.plugin("bob", &["show", &approval]).await.ok().unwrap();
    assert!(page.contains(&format!("Required by:  {source}:\n")), "{page}");
    assert!(page.contains("- 1 person out of group sre must agree too\n"), "{page}");

    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    let counted = harness.wait_until_counted(&approval, "bob@example.com").await;
    assert_eq!(counted.status.unwrap().phase, ApprovalPhase::Pending, "finance alone does not suffice");
    let refused = harness.decide("mallory", &approval, approve(&["sre"])).await.unwrap_err();
    assert!(refused.contains("mallory"), "{refused}");
    harness.decide("erin", &approval, approve(&["sre"])).await.unwrap();
    assert_eq!(phase(&harness.wait_for_end("refund").await), WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn a_policy_can_exclude_the_requester_from_a_gate() {
    let harness = Harness::open("policies").await;
    let dana = "dana@example.com";
    harness.namespace.bind("signoff-approver", dana).await.unwrap();
    let both = json!({"approvers": [{"kind": "User", "name": dana}, {"kind": "Group", "name": "finance"}]});
    harness.create_namespace_policy("alpha", json!({"gates": {"excludeRequester": true}})).await;
    harness.create_run("refund", json!([gate("review", both)])).await;
    let (approval, request) = harness.wait_for_gate("refund", "review").await;
    assert_eq!(request.quorums[0].exclude_requester, Some(true));
    let refused = harness.decide("dana", &approval, json!({"verdict": "Approve"})).await.unwrap_err();
    assert!(refused.contains("requester"), "{refused}");
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    assert_eq!(phase(&harness.wait_for_end("refund").await), WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn two_user_names_of_one_person_count_once() {
    let harness = Harness::open("policies").await;
    let identities = json!([
        {"pattern": "oidc:a/b~c@x", "person": "pat"},
        {"pattern": "a~1b", "person": "pat"},
        {"pattern": r"(bob|erin)@example\.com", "person": "$1"},
    ]);
    harness.create_cluster_policy("alpha", json!({"identities": identities})).await;
    harness.create_run("refund", json!([gate("review", json!({"threshold": 2}))])).await;
    let (approval, request) = harness.wait_for_gate("refund", "review").await;
    assert_eq!(request.persons.len(), 3);
    harness.decide("slash", &approval, approve(&["finance"])).await.unwrap();
    // Either the API server refuses the vote under the second name, or the operator does not count that vote.
    let second = harness.decide("tilde", &approval, approve(&["finance"])).await;
    let unknown = harness.decide("alice", &approval, approve(&["finance"])).await.unwrap_err();
    assert!(unknown.contains("every one of these user names must match a rule"), "{unknown}");
    let key = if second.is_ok() { "a~1b" } else { "oidc:a/b~c@x" };
    let status = harness.wait_until_counted(&approval, key).await.status.unwrap();
    assert_eq!((status.phase, status.tally.unwrap().have), (ApprovalPhase::Pending, 1));
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    assert_eq!(phase(&harness.wait_for_end("refund").await), WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn a_deleted_policy_still_applies_to_pending_gates_only() {
    let harness = Harness::open("policies").await;
    harness.create_cluster_policy("alpha", policy_that_requires_sre()).await;
    harness.create_run("refund", json!([gate("one", json!({})), gate("two", json!({}))])).await;
    let (approval, before) = harness.wait_for_gate("refund", "one").await;
    harness.delete_cluster_policy("alpha").await;
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    let pending = harness.wait_until_counted(&approval, "bob@example.com").await;
    assert_eq!(pending.spec.request, before);
    assert_eq!(pending.status.unwrap().phase, ApprovalPhase::Pending);
    harness.decide("erin", &approval, approve(&["sre"])).await.unwrap();
    let (approval, after) = harness.wait_for_gate("refund", "two").await;
    assert!(after.quorums.len() == 1 && after.required_by.is_empty());
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    assert_eq!(phase(&harness.wait_for_end("refund").await), WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn a_policy_of_the_namespace_tightens_and_never_loosens() {
    let harness = Harness::open("policies").await;
    let strict = json!({"gates": {"minThreshold": 2, "maxTimeout": "1h", "timeoutActions": ["Reject", "Abort"],
        "allowedVerdicts": ["Approve", "Reject"]}});
    harness.create_cluster_policy("alpha", strict).await;
    let lax = json!({"gates": {"minThreshold": 1, "maxTimeout": "100h", "excludeRequester": false,
        "timeoutActions": ["Reject", "Approve"], "allowedVerdicts": ["Approve", "Reject", "Modify", "Respond", "Skip"]}});
    harness.create_namespace_policy("beta", lax).await;
    let gate_of = |action: &str| gate("review", json!({"timeout": {"action": action}}));
    harness.create_run("refund", json!([{"name": "draft", "set": {"value": "x"}}, gate_of("Approve")])).await;
    let (_, request) = harness.wait_for_gate("refund", "review").await;
    assert_eq!(request.quorums[0].threshold, 2);
    assert_eq!(request.timeout.action, Some(signoff_api::gate::TimeoutAction::Reject));
    assert_eq!(request.timeout.after.unwrap().to_string(), "1h");
    let verdicts: Vec<_> = request.allowed_verdicts.iter().map(ToString::to_string).collect();
    assert_eq!(verdicts, ["Approve", "Reject", "Abort"]);
    let sources: Vec<_> = request.required_by.iter().map(|by| by.source.as_str()).collect();
    assert_eq!(sources, [&format!("ClusterApprovalPolicy {}", harness.policy_name("alpha")), "ApprovalPolicy beta"]);

    // A policy that allows only Approve at a timeout conflicts with a gate that rejects at its timeout.
    harness.create_namespace_policy("gamma", json!({"gates": {"timeoutActions": ["Approve"]}})).await;
    harness.create_run("lax", json!([gate_of("Reject")])).await;
    let refused = harness.wait_for_end("lax").await;
    assert_eq!(reason(&refused, conditions::ACCEPTED).as_deref(), Some("PolicyConflict"));
    assert!(
        message(&refused).contains("allows no timeout action that is as cautious as Reject"),
        "{}",
        message(&refused)
    );
}

#[tokio::test]
async fn an_added_gate_cannot_be_avoided() {
    let harness = Harness::open("policies").await;
    let step = json!({"name": "check", "before": {"kinds": ["http"]}, "hitl": gate("x", json!({}))["hitl"]});
    harness.create_cluster_policy("alpha", json!({"steps": [step], "allowedHosts": ["pay.example.com"]})).await;
    let pay = |more: Value| {
        let mut step =
            json!({"name": "pay", "http": {"method": "POST", "url": "https://pay.example.com/", "body": "42"}});
        for (field, value) in more.as_object().into_iter().flatten() {
            step[field] = value.clone();
        }
        step
    };
    harness.create_run("refund", json!([pay(json!({"onError": "continue", "skipIf": "false"}))])).await;
    let (approval, request) = harness.wait_for_gate("refund", "check-pay").await;
    assert!(request.context.as_ref().unwrap().contains("https://pay.example.com/"), "{request:?}");
    assert_eq!(request.required_by[0].rules[0], "this gate is added to every run");
    let run = harness.workflows().get("refund").await.unwrap().status.unwrap();
    assert_eq!(run.added_steps[0].step.name, "check");
    assert!(run.steps.iter().all(|record| record.path != "pay"), "nothing is sent before the yes");
    harness.decide("bob", &approval, json!({"verdict": "Reject", "groups": ["finance"]})).await.unwrap();
    let run = harness.wait_for_end("refund").await.status.unwrap();
    assert_eq!(run.phase, WorkflowPhase::Rejected);
    assert!(run.steps.iter().all(|record| record.path != "pay"));

    // Neither a step with the name of the policy's gate nor a second visit avoids that gate.
    harness.create_run("named", json!([gate("check-pay", json!({})), pay(json!({}))])).await;
    let refused = harness.wait_for_end("named").await;
    assert_eq!(reason(&refused, conditions::ACCEPTED).as_deref(), Some("PolicyConflict"));
    assert!(message(&refused).contains(&harness.policy_name("alpha")), "{}", message(&refused));
    assert_eq!(harness.count_of_approvals("named").await, 0);
}

#[tokio::test]
async fn hosts_and_secrets_that_a_policy_does_not_allow_are_refused() {
    let harness = Harness::open("policies").await;
    harness
        .create_cluster_policy("alpha", json!({"allowedHosts": ["*.example.com"], "allowedSecrets": ["models-*"]}))
        .await;
    for (name, url) in [
        ("plain", "https://evil.test/x"),
        ("userinfo", "https://api.example.com@evil.test/"),
        ("suffix", "https://api.example.com.evil.test/"),
        ("path", "https://evil.test/{{ run.name }}"),
        ("itself", "https://example.com/"),
    ] {
        harness.create_run(name, json!([{"name": "call", "http": {"url": url}}])).await;
        let refused = harness.wait_for_end(name).await;
        assert_eq!(
            reason(&refused, conditions::ACCEPTED).as_deref(),
            Some("NotAllowed"),
            "{url}: {}",
            message(&refused)
        );
        assert!(message(&refused).contains(&format!("ClusterApprovalPolicy {}", harness.policy_name("alpha"))));
    }
    let model = |secret: &str| {
        json!({"secrets": [{"name": "s", "secret": secret, "key": "k"}],
            "providers": [{"name": "p", "openai": {"baseURL": "https://models.example.com/v1", "key": "s"}}],
            "steps": [{"name": "none", "set": {"value": "x"}}]})
    };
    harness.create_run_as("admin", "root", model("root-key")).await;
    let refused = harness.wait_for_end("root").await;
    assert!(message(&refused).contains("Secret root-key is not allowed by"), "{}", message(&refused));
    harness.create_run_as("admin", "listed", model("models-eu")).await;
    assert_eq!(phase(&harness.wait_for_end("listed").await), WorkflowPhase::Succeeded);

    let rendered = json!([
        {"name": "host", "set": {"value": "evil.test"}},
        {"name": "call", "http": {"url": "https://{{ last_response }}/"}, "retry": {"limit": 5}},
    ]);
    harness.create_run("rendered", rendered).await;
    let failed = harness.wait_for_end("rendered").await;
    let record = failed.status.as_ref().unwrap().steps.iter().find(|record| record.path == "call").unwrap();
    assert_eq!(record.error.as_ref().unwrap().class, "NotAllowed", "{}", message(&failed));
}

#[tokio::test]
async fn an_accepted_run_is_held_while_it_conflicts_with_a_policy() {
    let harness = Harness::open("policies").await;
    harness.create_run("refund", json!([gate("one", json!({})), gate("two", json!({}))])).await;
    let (approval, _) = harness.wait_for_gate("refund", "one").await;
    let legal = json!({"gates": {"requiredFrom": [{"group": "legal", "min": 1}]}});
    harness.create_cluster_policy("alpha", legal).await;
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    let held = harness.wait_for_workflow("refund", |run| reason(run, conditions::HELD).is_some()).await;
    assert_eq!(reason(&held, conditions::HELD).as_deref(), Some("PolicyConflict"));
    assert!(message(&held).contains("which is not among the approvers: add it to them"), "{}", message(&held));
    assert!(!phase(&held).is_end());
    harness.delete_cluster_policy("alpha").await;
    let (approval, _) = harness.wait_for_gate("refund", "two").await;
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    let run = harness.wait_for_end("refund").await;
    assert_eq!((phase(&run), reason(&run, conditions::HELD)), (WorkflowPhase::Succeeded, None));
}

#[tokio::test]
async fn the_example_policy_for_trials_allows_no_approval_by_timeout() {
    let harness = Harness::open("policies").await;
    harness.create_example_policy("alpha", "dev.yaml").await;
    harness.create_run("refund", json!([gate("review", json!({"timeout": {"action": "Approve"}}))])).await;
    let (approval, request) = harness.wait_for_gate("refund", "review").await;
    assert_eq!(request.timeout.action, Some(signoff_api::gate::TimeoutAction::Retry));
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    assert_eq!(phase(&harness.wait_for_end("refund").await), WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn the_example_policy_for_production_requires_two_and_a_lead() {
    let harness = Harness::open("policies").await;
    harness.create_example_policy("alpha", "prod.yaml").await;
    harness.create_run("refund", json!([gate("review", json!({}))])).await;
    let (approval, _) = harness.wait_for_gate("refund", "review").await;
    for (who, key) in [("bob", "bob@example.com"), ("carol", "carol@example.com")] {
        harness.decide(who, &approval, approve(&["finance"])).await.unwrap();
        let status = harness.wait_until_counted(&approval, key).await.status.unwrap();
        assert_eq!(status.phase, ApprovalPhase::Pending, "{who} is no lead");
    }
    harness.decide("alice", &approval, approve(&["finance", "finance-leads"])).await.unwrap();
    assert_eq!(phase(&harness.wait_for_end("refund").await), WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn the_regulated_example_policy_gates_or_forbids_every_call() {
    let harness = Harness::open("policies").await;
    harness.create_example_policy("alpha", "regulated.yaml").await;
    let call = json!({"name": "pay", "http": {"method": "POST", "url": "https://pay.example.com/"}});
    harness.create_run("refund", json!([gate("review", json!({})), call])).await;
    let (approval, request) = harness.wait_for_gate("refund", "review").await;
    assert_eq!(request.persons.len(), 2);
    let modify = json!({"verdict": "Modify", "groups": ["finance"], "parameters": {"response": "x"}});
    let refused = harness.decide("bob", &approval, modify).await.unwrap_err();
    assert!(refused.contains("verdict must be one of Approve, Reject, Abort"), "{refused}");
    let unknown = harness.decide("tilde", &approval, approve(&["finance"])).await.unwrap_err();
    assert!(unknown.contains("must match a rule of spec.request.persons"), "{unknown}");
    harness.decide("bob", &approval, approve(&["finance"])).await.unwrap();
    let (approval, _) = harness.wait_for_gate("refund", "release-pay").await;
    harness.decide("erin", &approval, json!({"verdict": "Reject", "groups": ["sre"]})).await.unwrap();
    let run = harness.wait_for_end("refund").await.status.unwrap();
    assert_eq!(run.phase, WorkflowPhase::Rejected);
    assert!(run.steps.iter().all(|record| record.path != "pay"));
}
