//! Each verdict about a call and about a question, given by the plugin: the result for the agent, and the end of the
//! run.

use kube::ResourceExt;
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Verdict};
use signoff_tests::control_plane::Finished;

use super::{AgentRun, call, finish_session, refund};

/// Returns the last line of a refusal.
fn refusal_line(finished: &Finished) -> &str {
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{finished:?}");
    finished.stderr.lines().last().unwrap_or_default()
}

#[tokio::test]
async fn an_approved_call_runs_once_with_exactly_the_arguments_that_were_shown() {
    let agent_run = AgentRun::begin("approved", refund(), json!({})).await;
    let approval = agent_run.wait_for_gate("1").await;
    let name = approval.metadata.name.clone().unwrap();
    let shown = agent_run.approve("bob", &["show", &name]).await.ok().unwrap();
    for line in [
        "\nTool:         refund\n",
        "\nTarget:       POST http://127.0.0.1:",
        "  |   \"amount\": 420,\n",
        "  | I look after it.\n",
    ] {
        assert!(shown.contains(line), "{line:?} in {shown}");
    }
    assert_eq!(
        refusal_line(&agent_run.run_verdict("erin", "approve", &approval, &[]).await),
        "refused: erin@example.com is not an approver of this gate, by name or by group (spec.request.quorums); \
         group finance may decide it [SO0002]"
    );
    assert!(agent_run.payments().is_empty());
    agent_run.run_verdict("bob", "approve", &approval, &["--wait"]).await.ok().unwrap();
    agent_run.assert_result("paid").await;
    assert_eq!(agent_run.payments(), [json!({"amount": 420, "customer": "ACME"})]);
}

#[tokio::test]
async fn edited_arguments_fit_the_schema_and_another_approver_is_asked_about_them() {
    let agent_run = AgentRun::begin("modified", refund(), json!({})).await;
    let approval = agent_run.wait_for_gate("1").await;
    let edit = async |arguments: &str| {
        let set = format!("arguments={arguments}");
        agent_run.run_verdict("bob", "modify", &approval, &["--set", &set]).await
    };
    for (arguments, why) in [
        (r#"{"amount": "42", "customer": "ACME"}"#, "amount"),
        (r#"{"amount": 4200, "customer": "ACME"}"#, "amount"),
        (r#"{"amount": null, "customer": "ACME"}"#, "amount"),
    ] {
        let finished = edit(arguments).await;
        assert!(refusal_line(&finished).contains(why), "{arguments}: {finished:?}");
    }
    let modified = edit(r#"{"amount": 42, "customer": "ACME", "note": null}"#).await.ok().unwrap();
    assert!(modified.contains(" modified"), "{modified}");
    let again = agent_run.wait_for_gate("1/.gate#2").await;
    let arguments = &again.spec.request.reviews.as_ref().unwrap().response;
    assert_eq!(arguments, r#"{"amount":42,"customer":"ACME","note":null}"#);
    assert_eq!(again.spec.request.excluded, ["bob@example.com"]);
    assert_eq!(again.metadata.labels, approval.metadata.labels, "it is of the same turn");
    let own = agent_run.run_verdict("bob", "approve", &again, &[]).await;
    assert!(refusal_line(&own).contains("excluded"), "{own:?}");
    agent_run.run_verdict("carol", "approve", &again, &[]).await.ok().unwrap();
    agent_run
        .assert_result(
            r#"A human changed the arguments. This ran: {"amount":42,"customer":"ACME","note":null}
paid"#,
        )
        .await;
    assert_eq!(agent_run.payments(), [json!({"amount": 42, "customer": "ACME", "note": null})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_edited_until_they_fit_the_schema() {
    let agent_run = AgentRun::begin("edited", refund(), json!({})).await;
    let name = agent_run.wait_for_gate("1").await.name_any();
    let folder = tempfile::tempdir().unwrap();
    // The first amount is above the maximum of the schema; the editor opens again with the problem above the text.
    let editor = folder.path().join("editor");
    let script = "if grep -q 4200 \"$1\"; then cp \"$1\" \"$0.again\"; sed -i 's/4200/42/' \"$1\"; else sed -i 's/420/4200/' \"$1\"; fi\n";
    std::fs::write(&editor, script).unwrap();
    let variables = [("KUBE_EDITOR", format!("sh {}", editor.display()))];
    let mut session = agent_run.terminal_with("bob", &["modify", &name, "--edit"], &variables);
    let (said, rest) = tokio::task::block_in_place(|| {
        let said = session.exp_string("Send Modify with this change as bob@example.com? [y/N] ").unwrap();
        session.send_line("y").unwrap();
        (said, finish_session(session))
    });
    assert!(said.contains("-    \"amount\": 420,") && said.contains("+    \"amount\": 42,"), "{said}");
    assert!(rest.1 == 0 && rest.0.contains(&format!("approval.signoff.dev/{name} modified")), "{rest:?}");
    let again = std::fs::read_to_string(folder.path().join("editor.again")).unwrap();
    assert!(again.contains("# refused: ") && again.contains("amount") && again.contains("1000"), "{again}");
    let again = agent_run.wait_for_gate("1/.gate#2").await;
    assert_eq!(again.spec.request.reviews.as_ref().unwrap().response, r#"{"amount":42,"customer":"ACME"}"#);
    agent_run.run_verdict("alice", "approve", &again, &[]).await.ok().unwrap();
    agent_run
        .assert_result("A human changed the arguments. This ran: {\"amount\":42,\"customer\":\"ACME\"}\npaid")
        .await;
    assert_eq!(agent_run.payments(), [json!({"amount": 42, "customer": "ACME"})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_with_null_replaces_no_vote_that_came_while_its_author_was_asked() {
    let two = json!({"threshold": 2, "allowedVerdicts": ["Approve", "Modify"]});
    let agent_run = AgentRun::begin("null", refund(), two).await;
    let approval = agent_run.wait_for_gate("1").await;
    let set = r#"arguments={"amount": 42, "customer": "ACME", "note": null}"#;
    let dry = agent_run.run_verdict("bob", "modify", &approval, &["--set", set, "--dry-run=client"]).await;
    assert!(dry.stderr.contains("the patch of kubectl patch --type=json:"), "{dry:?}");
    assert!(dry.ok().unwrap().contains(r#""op": "test""#));
    let name = approval.name_any();
    let mut session = agent_run.terminal("bob", &["modify", &name, "--set", set, "--wait=0s"]);
    let question = format!("Modify {name} as bob@example.com? [y/N]");
    let mut session =
        tokio::task::spawn_blocking(move || session.exp_string(&question).map(|_| session)).await.unwrap().unwrap();
    agent_run.run_verdict("carol", "approve", &approval, &["--wait=0s"]).await.ok().unwrap();
    let (said, code) = tokio::task::block_in_place(|| {
        session.send_line("y").unwrap();
        finish_session(session)
    });
    assert!(code == 0 && said.contains("Modify recorded"), "{said}");
    let stored = agent_run.scene.runs.api::<Approval>().get(&name).await.unwrap().spec.decisions;
    assert_eq!(stored["carol@example.com"].verdict, Verdict::Approve);
    let parameters = stored["bob@example.com"].parameters.clone().unwrap().0;
    assert_eq!(Value::Object(parameters), json!({"arguments": {"amount": 42, "customer": "ACME", "note": null}}));
}

#[tokio::test]
async fn a_rejected_call_does_not_run_and_the_agent_is_told_the_reason() {
    let agent_run = AgentRun::begin("rejected", refund(), json!({"requireReason": true})).await;
    let approval = agent_run.wait_for_gate("1").await;
    let bare = agent_run.run_verdict("bob", "reject", &approval, &[]).await;
    assert!(refusal_line(&bare).ends_with("add --reason TEXT [SO0014]"), "{bare:?}");
    agent_run.run_verdict("bob", "reject", &approval, &["--reason", "not this customer"]).await.ok().unwrap();
    agent_run.assert_result("Denied by a human: not this customer").await;
    assert!(agent_run.payments().is_empty());
}

#[tokio::test]
async fn an_answer_in_the_place_of_a_call_is_its_result() {
    let agent_run = AgentRun::begin("responded", refund(), json!({"allowedVerdicts": ["Approve", "Respond"]})).await;
    let approval = agent_run.wait_for_gate("1").await;
    agent_run.run_verdict("alice", "respond", &approval, &["--response", "It was paid last week."]).await.ok().unwrap();
    agent_run.assert_result("It was paid last week.").await;
    assert!(agent_run.payments().is_empty());
}

#[tokio::test]
async fn a_deferred_call_gives_the_agent_guidance() {
    let agent_run = AgentRun::begin("deferred", refund(), json!({})).await;
    let approval = agent_run.wait_for_gate("1").await;
    agent_run.run_verdict("carol", "defer", &approval, &["--guidance", "look up the order first"]).await.ok().unwrap();
    agent_run.assert_result("Not now. Try another approach: look up the order first").await;
    assert!(agent_run.payments().is_empty());
}

#[tokio::test]
async fn a_skipped_call_does_not_run_and_the_agent_goes_on() {
    let agent_run = AgentRun::begin("skipped", refund(), json!({})).await;
    agent_run.run_verdict("bob", "skip", &agent_run.wait_for_gate("1").await, &[]).await.ok().unwrap();
    agent_run.assert_result("Skipped by a human").await;
    assert!(agent_run.payments().is_empty());
}

#[tokio::test]
async fn an_aborted_call_ends_the_run_and_the_agent_is_told_nothing() {
    let agent_run = AgentRun::begin("aborted", refund(), json!({})).await;
    agent_run.run_verdict("bob", "abort", &agent_run.wait_for_gate("1").await, &[]).await.ok().unwrap();
    assert_eq!(agent_run.wait_for_end().await, WorkflowPhase::Aborted);
    assert!(agent_run.payments().is_empty() && agent_run.results_of_last_turn().is_empty());
}

#[tokio::test]
async fn an_escalated_call_is_decided_by_the_next_level() {
    let escalation = json!([{"to": [{"kind": "Group", "name": "sre"}], "after": "1h"}]);
    let timeout = json!({"after": "1h", "action": "Escalate", "escalation": escalation});
    let verdicts = json!(["Approve", "Reject", "Escalate"]);
    let agent_run =
        AgentRun::begin("escalated", refund(), json!({"timeout": timeout, "allowedVerdicts": verdicts})).await;
    let approval = agent_run.wait_for_gate("1").await;
    assert!(refusal_line(&agent_run.run_verdict("erin", "approve", &approval, &[]).await).contains("not an approver"));
    let escalated = agent_run.run_verdict("bob", "escalate", &approval, &[]).await.ok().unwrap();
    assert!(escalated.contains("escalated; approvers now: group finance, group sre"), "{escalated}");
    agent_run.run_verdict("erin", "approve", &approval, &[]).await.ok().unwrap();
    agent_run.assert_result("paid").await;
    assert_eq!(agent_run.payments().len(), 1);
}

fn question() -> Vec<Value> {
    let options = json!([{"id": "mail", "label": "By mail"}, {"id": "phone", "label": "By phone"}]);
    let arguments = json!({"questions": [{"id": "channel", "question": "How shall I tell ACME?", "options": options}]});
    vec![call("call_a", "ask-human", &arguments)]
}

#[tokio::test]
async fn an_answer_to_a_question_is_told_to_the_agent_and_approves_nothing() {
    let agent_run = AgentRun::begin("answered", question(), json!({})).await;
    let approval = agent_run.wait_for_gate("1").await;
    let name = approval.metadata.name.clone().unwrap();
    let shown = agent_run.approve("bob", &["show", &name]).await.ok().unwrap();
    let first = "An agent asks:\n  | This answers the agent; it approves nothing. Do not enter secrets.\n";
    assert!(shown.starts_with(first) && shown.contains("--choose 'q1=o1'"), "{shown}");
    let approved = agent_run.run_verdict("bob", "approve", &approval, &[]).await;
    assert!(
        approved.stderr.contains("refused: this gate does not take Approve, only Respond, Skip, Abort [SO0013]:"),
        "{approved:?}"
    );
    let turn = agent_run.run_verdict("bob", "skip", &approval, &["--turn"]).await;
    assert!(turn.code == 2 && turn.stderr.contains("is a question and no call; leave --turn out"), "{turn:?}");
    agent_run.run_verdict("bob", "respond", &approval, &["--choose", "q1=o2"]).await.ok().unwrap();
    agent_run.assert_result("By phone").await;
}

#[tokio::test]
async fn a_skipped_question_has_no_answer_and_an_aborted_one_ends_the_run() {
    let agent_run = AgentRun::begin("unanswered", question(), json!({})).await;
    agent_run.run_verdict("carol", "skip", &agent_run.wait_for_gate("1").await, &[]).await.ok().unwrap();
    agent_run.assert_result("Skipped by a human").await;
    let agent_run = AgentRun::begin("aborted", question(), json!({})).await;
    agent_run.run_verdict("carol", "abort", &agent_run.wait_for_gate("1").await, &[]).await.ok().unwrap();
    assert_eq!(agent_run.wait_for_end().await, WorkflowPhase::Aborted);
    assert!(agent_run.results_of_last_turn().is_empty());
}

#[tokio::test]
async fn an_escalated_question_is_answered_by_the_next_level() {
    let gate = json!({"allowedVerdicts": ["Respond", "Escalate"], "escalateTo": [{"kind": "Group", "name": "sre"}]});
    let agent_run = AgentRun::begin_with("asked-on", question(), json!({}), gate).await;
    let approval = agent_run.wait_for_gate("1").await;
    let answer = ["--choose", "q1=o2"];
    assert!(
        refusal_line(&agent_run.run_verdict("erin", "respond", &approval, &answer).await).contains("not an approver")
    );
    let escalated = agent_run.run_verdict("bob", "escalate", &approval, &[]).await.ok().unwrap();
    assert!(escalated.contains("escalated; approvers now: group finance, group sre"), "{escalated}");
    agent_run.run_verdict("erin", "respond", &approval, &answer).await.ok().unwrap();
    agent_run.assert_result("By phone").await;
}

#[tokio::test]
async fn a_rejected_question_is_told_to_the_agent_with_the_reason_or_ends_the_run() {
    let gate = json!({"allowedVerdicts": ["Respond", "Reject"]});
    let agent_run = AgentRun::begin_with("not-asked", question(), json!({}), gate).await;
    let rejected = agent_run
        .run_verdict("bob", "reject", &agent_run.wait_for_gate("1").await, &["--reason", "decide it yourself"])
        .await
        .ok()
        .unwrap();
    assert!(rejected.contains(" rejected"), "{rejected}");
    agent_run.assert_result("Denied by a human: decide it yourself").await;
    let gate = json!({"allowedVerdicts": ["Respond", "Reject"], "onReject": "stop"});
    let agent_run = AgentRun::begin_with("stopped", question(), json!({}), gate).await;
    agent_run
        .run_verdict("bob", "reject", &agent_run.wait_for_gate("1").await, &["--reason", "decide it yourself"])
        .await
        .ok()
        .unwrap();
    assert_eq!(agent_run.wait_for_end().await, WorkflowPhase::Rejected);
    assert!(agent_run.results_of_last_turn().is_empty());
}
