//! `--turn`: the calls of one turn are shown together and decided after one question, each by a decision of its own.

use kube::ResourceExt;
use serde_json::{Value, json};
use signoff_api::workflow::WorkflowPhase;
use signoff_api::{Approval, Verdict, names::LABEL_TURN};

use super::{AgentRun, RUN, call, finish_session};

/// Returns two refunds that finance decides, a letter that the group sre decides, and a question.
fn calls() -> Vec<Value> {
    vec![
        call("call_a", "refund", &json!({"amount": 420, "customer": "ACME"})),
        call("call_b", "letter", &json!({"to": "ACME"})),
        call("call_c", "refund", &json!({"amount": 10, "customer": "Umbrella"})),
        call("call_d", "ask-human", &json!({"questions": [{"question": "Which account?"}]})),
    ]
}

/// Runs the plugin on a terminal as bob: expects texts, each followed by the input. Returns the rest and the exit code.
fn at_terminal(agent_run: &AgentRun, words: &[&str], dialog: &[(&str, &str)]) -> (String, i32) {
    let mut session = agent_run.terminal("bob", words);
    for (expected, typed) in dialog {
        session.exp_string(expected).unwrap();
        if !typed.is_empty() {
            session.send_line(typed).unwrap();
        }
    }
    finish_session(session)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_decided_after_one_question_and_each_call_has_its_own_outcome() {
    let agent_run = AgentRun::begin("turn", calls(), json!({})).await;
    let (first, letter, last, question) = tokio::join!(
        agent_run.wait_for_gate("1"),
        agent_run.wait_for_gate("2"),
        agent_run.wait_for_gate("3"),
        agent_run.wait_for_gate("4")
    );
    let names = [&first, &letter, &last].map(Approval::name_any);
    let turns = [&first, &letter, &last, &question].map(|one| one.labels()[LABEL_TURN].clone());
    assert!(turns.iter().all(|turn| *turn == turns[0]), "{turns:?}");

    let listed = agent_run.approve("bob", &["list", "--run", RUN]).await.ok().unwrap();
    let rows: Vec<_> = listed
        .lines()
        .skip(1)
        .map(|line| line.split("   ").map(str::trim).filter(|c| !c.is_empty()).collect::<Vec<_>>())
        .collect();
    let cells = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<_>>();
    assert_eq!(cells(2), ["1", "2", "3", "4"], "{listed}");
    assert_eq!(cells(3), ["money", "post", "money", "questions"], "{listed}");
    assert_eq!(cells(7), ["yes", "no", "yes", "yes"], "{listed}");
    assert!(
        listed.contains(r#"{"amount":420,"customer":"ACME"}"#) && listed.contains("asks: Which account?"),
        "{listed}"
    );

    // Without a terminal nothing is decided: a script names each request.
    for more in [&["--turn"][..], &["--turn", "--yes"]] {
        let unseen = agent_run.run_verdict("bob", "approve", &first, more).await;
        let commands = unseen.stderr.matches("\n  kubectl approve approve ").count();
        assert!(unseen.code == 2 && commands == 3, "{unseen:?}");
    }
    let modify = agent_run.run_verdict("bob", "modify", &first, &["--turn", "--set", "arguments={}"]).await;
    assert!(
        modify.code == 2 && modify.stderr.contains("--turn: modify is a decision about one call; leave --turn out")
    );

    let asked = format!("Approve 2 calls ({}, {}) as bob@example.com? [y/N]", names[0], names[2]);
    let refusal = format!(" approval.signoff.dev/{}: bob@example.com is not an approver of this gate", names[1]);
    let dialog = |answer| {
        [
            ("is a question of the same turn", ""),
            ("Call 1 of 3", ""),
            ("420", ""),
            ("Call 2 of 3", ""),
            ("Call 3 of 3", ""),
            ("Umbrella", ""),
            (&*refusal, ""),
            (&*asked, answer),
        ]
    };
    let words = ["approve", &*names[0], "--turn", "--reason", "checked"];
    let (said, code) = tokio::task::block_in_place(|| at_terminal(&agent_run, &words, &dialog("n")));
    assert!(code == 1 && said.contains("nothing was decided"), "{said}");
    for approval in [&first, &letter, &last] {
        let stored = agent_run.scene.runs.api::<Approval>().get(&approval.name_any()).await.unwrap();
        assert!(stored.spec.decisions.is_empty());
    }
    let (said, code) = tokio::task::block_in_place(|| at_terminal(&agent_run, &words, &dialog("y")));
    assert_eq!(code, 1, "{said}");
    for name in [&names[0], &names[2]] {
        assert!(said.contains(&format!("approval.signoff.dev/{name} approved")), "{said}");
    }
    assert!(said.contains("1 of 3 could not be decided"), "{said}");
    for approval in [&first, &last] {
        let stored = agent_run.scene.runs.api::<Approval>().get(&approval.name_any()).await.unwrap();
        let decision = &stored.spec.decisions["bob@example.com"];
        assert_eq!((decision.verdict, decision.reason.as_deref()), (Verdict::Approve, Some("checked")));
        assert_eq!(decision.request_digest.as_deref(), Some(approval.spec.request.digest.as_str()));
    }

    agent_run.run_verdict("erin", "reject", &letter, &["--reason", "no letters"]).await.ok().unwrap();
    agent_run.run_verdict("bob", "respond", &question, &["--response", "The main one."]).await.ok().unwrap();
    assert_eq!(agent_run.wait_for_end().await, WorkflowPhase::Succeeded);
    let told = [
        ("call_a", "paid"),
        ("call_b", "Denied by a human: no letters"),
        ("call_c", "paid"),
        ("call_d", "The main one."),
    ];
    assert_eq!(agent_run.results_of_last_turn(), told.map(|(id, text)| (id.to_owned(), text.to_owned())));
    assert_eq!(agent_run.payments().len(), 2);
}
