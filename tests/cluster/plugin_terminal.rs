//! `kubectl approve` on a terminal: its output, its questions, and that nothing is sent before the answer. No operator
//! runs. `plugin.rs` tests calls without a terminal.

use signoff_api::Verdict;
use signoff_api::gate::Subject;

use crate::asked::{Place, plugin};
use crate::plugin::ask_about_long_texts;

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_an_approval_of_a_shortened_text_needs_a_yes() {
    let place = Place::shared("plugin").await;
    let name = ask_about_long_texts(&place, ["", ""]).await;
    let show = format!("kubectl approve show --full {name}");
    let dialog = |answer| {
        [
            ("What step draft made:", ""),
            (&*show, ""),
            ("without the whole of the reviewed response (18014 bytes)", ""),
            ("and of the context (18022 bytes)? [y/N]", answer),
        ]
    };
    let said = tokio::task::block_in_place(|| at_terminal(&place, &["approve", &name], &dialog("n")));
    assert!(said.contains("nothing was decided"), "{said}");
    assert!(place.stored(&name).await.spec.decisions.is_empty());
    let said = tokio::task::block_in_place(|| at_terminal(&place, &["approve", &name], &dialog("y")));
    assert!(said.contains("Approve recorded; not counted yet: "), "{said}");
    assert!(place.stored(&name).await.spec.decisions.contains_key("alice@example.com"));
}

/// Runs the plugin on a terminal as alice: expects texts, each followed by the input, and returns the rest.
fn at_terminal(place: &Place, words: &[&str], dialog: &[(&str, &str)]) -> String {
    at_terminal_of(place, "alice", words, dialog)
}

/// Runs the plugin on a terminal as a person of the cast, whose editor writes another amount.
fn at_terminal_of(place: &Place, person: &str, words: &[&str], dialog: &[(&str, &str)]) -> String {
    let mut command = std::process::Command::new(plugin());
    command.env("EDITOR", "sed -i s/420/42/").env_remove("KUBE_EDITOR");
    command.arg("--kubeconfig").arg(place.cluster.kubeconfig_of(person).unwrap());
    command.args(words).args(["--namespace", &place.namespace.name]);
    let mut session = rexpect::session::spawn_command(command, Some(60_000)).unwrap();
    for (expected, typed) in dialog {
        session.exp_string(expected).unwrap();
        if !typed.is_empty() {
            session.send_line(typed).unwrap();
        }
    }
    session.exp_eof().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_every_verdict_shows_what_it_is_about_and_asks() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    let question = format!("Reject {name} as alice@example.com? [y/N]");
    let dialog = |answer| [("we refund 420 EUR.", ""), (&*question, answer)];
    let said = tokio::task::block_in_place(|| at_terminal(&place, &["reject", &name], &dialog("n")));
    assert!(said.contains("nothing was decided"), "{said}");
    assert!(place.stored(&name).await.spec.decisions.is_empty());
    let said = tokio::task::block_in_place(|| at_terminal(&place, &["reject", &name], &dialog("y")));
    assert!(said.contains("Reject recorded"), "{said}");
    let name = place.ask(|request| request.prompt = "With --yes?".into()).await;
    let said = tokio::task::block_in_place(|| at_terminal(&place, &["reject", &name, "-y", "--wait=0s"], &[]));
    assert!(said.contains("Reject recorded") && !said.contains("[y/N]"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_by_the_api_server_is_told_before_the_question() {
    let place = Place::shared("plugin").await;
    // The request names viktor as an approver, and only the API server knows that he has no right to decide.
    let name = place.ask(|request| request.quorums[0].approvers.push(Subject::user("viktor@example.com"))).await;
    for words in [&["reject", &*name][..], &["modify", &name, "--edit"]] {
        let said = tokio::task::block_in_place(|| at_terminal_of(&place, "viktor", words, &[]));
        assert!(said.contains("refused:") && !said.contains("[y/N]"), "{words:?}: {said}");
        assert!(place.stored(&name).await.spec.decisions.is_empty());
    }
    let question = "Send Modify with this change as alice@example.com? [y/N]";
    let words = ["modify", &name, "--edit", "--wait=0s"];
    let said = tokio::task::block_in_place(|| at_terminal_of(&place, "alice", &words, &[(question, "y")]));
    assert!(said.contains("Modify recorded"), "{said}");
    assert_eq!(place.stored(&name).await.spec.decisions["alice@example.com"].verdict, Verdict::Modify);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_question_is_asked_when_standard_error_is_hidden() {
    let place = Place::shared("plugin").await;
    let name = place.ask(|_| {}).await;
    for words in [vec![name.as_str()], vec!["reject", name.as_str()]] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec \"$@\" 2>/dev/null", "sh"]).arg(plugin());
        command.arg("--kubeconfig").arg(place.cluster.kubeconfig_of("alice").unwrap());
        command.args(words).args(["--namespace", &place.namespace.name]);
        let said = tokio::task::block_in_place(|| {
            let mut session = rexpect::session::spawn_command(command, Some(60_000)).unwrap();
            session.exp_eof().unwrap()
        });
        assert!(said.is_empty(), "{said}");
        assert!(place.stored(&name).await.spec.decisions.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_name_at_a_gate_without_approve_asks_which_verdict() {
    let place = Place::shared("plugin").await;
    let name = place
        .ask(|request| {
            request.allowed_verdicts = vec![Verdict::Retry, Verdict::Reject];
            request.require_reason = Some(true);
        })
        .await;
    let unmanned = place.approve("alice", &[&name]).await;
    let flags = format!("{name} --reason '…' -n {}", place.namespace.name);
    let commands = format!("  kubectl approve retry {flags}\n  kubectl approve reject {flags}\n");
    let refused = format!("refused: this gate does not take Approve, only Retry, Reject [SO0013]:\n{commands}");
    assert!(unmanned.code == 1 && unmanned.stderr.ends_with(&refused), "{unmanned:?}");
    let dialog = [
        ("Which verdict? [retry/reject]", "retry"),
        ("Reason:", "the server was down"),
        (&*format!("Retry {name} as alice@example.com? [y/N]"), "y"),
    ];
    let said = tokio::task::block_in_place(|| at_terminal(&place, &[&name, "--wait=0s"], &dialog));
    assert!(said.contains("Retry recorded"), "{said}");
    let decision = place.stored(&name).await.spec.decisions["alice@example.com"].clone();
    assert_eq!((decision.verdict, decision.reason.as_deref()), (Verdict::Retry, Some("the server was down")));
}
