//! Runs on a terminal: the questions, and the decisions that the typed answers become.
//!
//! The tests wait for texts, and never for a time.

use std::os::unix::fs::PermissionsExt as _;

use rexpect::{
    ReadUntil,
    process::WaitStatus,
    session::{PtySession, spawn_command},
};

use super::*;

/// The longest wait for a text, in milliseconds. It is long enough for a busy machine.
const TIMEOUT_MS: u64 = 60_000;

fn run_at_terminal(home: &Home, arguments: &[&str], editor: Option<&Path>) -> PtySession {
    let mut command = home.signoff(arguments);
    if let Some(editor) = editor {
        command.env("EDITOR", editor);
    }
    spawn_command(command, Some(TIMEOUT_MS)).unwrap()
}

/// A Workflow with an agent whose refunds people approve.
const REFUND: &str = include_str!("../../../../examples/tools/refund.yaml");

/// A Workflow with an agent that asks a person how to answer a customer.
const ASK: &str = include_str!("../../../../examples/tools/ask-human.yaml");

/// Confirms the answers to a form.
fn confirm_answers(person: &mut PtySession) {
    person.exp_string("Send Respond with these answers? [y/N] ").unwrap();
    person.send_line("y").unwrap();
}

/// Returns the rest of the output, and the exit code.
fn wait_for_end(mut session: PtySession) -> (String, i32) {
    let rest = session.exp_eof().unwrap();
    match session.process().wait().unwrap() {
        WaitStatus::Exited(_, code) => (rest, code),
        other => panic!("{other:?} after {rest}"),
    }
}

fn write_letter(home: &Home) {
    home.file("letter.yaml", LETTER);
}

/// Returns an editor that runs this script on the file.
fn write_editor(home: &Home, script: &str) -> PathBuf {
    let file = home.file("editor.sh", &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

#[test]
fn a_person_sees_the_gate_and_answers_with_a_word() {
    let home = Home::new();
    write_letter(&home);
    let mut person = run_at_terminal(&home, &["run", "letter.yaml"], None);
    person.exp_string("Send this to ACME?").unwrap();
    person.exp_string("  | Dear customer").unwrap();
    person.exp_string("it counts as rejected").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("yes").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("Dear customer: approved"), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn a_misspelt_word_is_asked_again_and_never_an_answer() {
    let home = Home::new();
    write_letter(&home);
    let mut person = run_at_terminal(&home, &["run", "letter.yaml"], None);
    for (word, why) in [("aprove", "did you mean approve?"), ("nope", "not a verdict of this gate")] {
        person.exp_string("> ").unwrap();
        person.send_line(word).unwrap();
        person.exp_string(why).unwrap();
    }
    person.exp_string("> ").unwrap();
    person.send_line("approve").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("Dear customer: approved"), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn a_person_whose_decision_would_not_count_is_not_asked() {
    let home = Home::new();
    let approvers = "approvers: [{kind: User, name: erin}]\n      excludeRequester: true";
    home.file("letter.yaml", &LETTER.replace("approvers: [{kind: Group, name: finance}]", approvers));
    let (rest, code) = wait_for_end(run_at_terminal(&home, &["run", "letter.yaml"], None));
    assert!(rest.contains("is the requester") && rest.contains("`--as NAME`"), "{rest}");
    assert!(rest.contains("--verdict approve --as erin"), "{rest}");
    assert_eq!(code, 19);
    let mut person = run_at_terminal(&home, &["run", "--resume", &home.id(), "--as", "erin"], None);
    person.exp_string("> ").unwrap();
    person.send_line("approve").unwrap();
    assert_eq!(wait_for_end(person).1, 0);
}

#[test]
fn an_answer_may_have_several_lines() {
    let home = Home::new();
    write_letter(&home);
    let mut person = run_at_terminal(&home, &["run", "letter.yaml"], None);
    person.exp_string("> ").unwrap();
    person.send_line("respond").unwrap();
    person.exp_string("ends it:").unwrap();
    person.send_line("one").unwrap();
    person.send_line("two").unwrap();
    person.send_line(".").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("Dear customer: one\r\ntwo"), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn options_are_chosen_by_number_and_an_answer_that_does_not_fit_is_asked_again() {
    let home = Home::new();
    let form = "form: {questions: [{id: answer, options: [{id: lis, label: Lisbon}, {id: opo, label: Porto}]}]}\n      allowedVerdicts: [Respond, Reject]";
    home.file("city.yaml", &LETTER.replace("allowedVerdicts: [Approve, Reject, Modify, Respond, Abort]", form));
    let mut person = run_at_terminal(&home, &["run", "city.yaml"], None);
    person.exp_string("Lisbon").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("7").unwrap();
    person.exp_string("a number from 1 to 3").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("1").unwrap();
    person.exp_string("answer: Lisbon\r\n").unwrap();
    person.exp_string("Send Respond with these answers? [y/N] ").unwrap();
    person.send_line("").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("2").unwrap();
    confirm_answers(&mut person);
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("Dear customer: Porto"), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn a_question_of_an_agent_is_shown_with_its_options_and_the_answer_goes_to_the_agent() {
    let home = Home::new();
    home.file("ask.yaml", ASK);
    let mut person = run_at_terminal(&home, &["run", "ask.yaml"], None);
    let shown = person.exp_string("A number or a word").unwrap();
    let page = shown.split("\r\nAn agent asks:\r\n").nth(1).unwrap_or_else(|| panic!("{shown}"));
    let expected = [
        "  | This answers the agent; it approves nothing. Do not enter secrets.\r\n",
        "  | The clerk asks\r\n",
        "Agent:        clerk\r\n",
        "Tool:         ask-human\r\n",
        "Question q1 (text of a model: no fact, not checked):\r\n  | How shall I tell ACME?\r\n",
        "Asks group finance. ",
        "   1  o1          By mail\r\n   2  o2          By phone\r\n   3  skip        go on without an answer\r\n",
    ];
    let mut rest = page;
    for part in expected {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("{part:?} is not where it belongs in {page}")).1;
    }
    person.exp_string("> ").unwrap();
    person.send_line("approve").unwrap();
    person.exp_string("enter a number from 1 to 4").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("1").unwrap();
    confirm_answers(&mut person);
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("I write a mail."), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn an_agents_questions_are_all_shown_before_anything_is_typed_and_a_skip_answers_none() {
    let home = Home::new();
    let two = ASK.replace(
        r#"question: "How shall I tell ACME?"}]"#,
        r#"question: "How shall I tell ACME?"}, {question: "When?"}]"#,
    );
    assert_ne!(two, ASK);
    home.file(
        "ask.yaml",
        &two.replace("{contains: By mail, text: I write a mail.}", "{contains: Skipped by a human, text: I wait.}"),
    );
    let mut person = run_at_terminal(&home, &["run", "ask.yaml"], None);
    let shown = person.exp_string("(ctrl-D leaves it for later)").unwrap();
    let (first, second) = (shown.find("  | How shall I tell ACME?"), shown.find("  | When?"));
    assert!(first.is_some() && second > first, "{shown}");
    // The form opens without a command; its first question shows its options.
    let form = person.exp_string("> ").unwrap();
    assert!(form.contains("By mail") && form.contains("By phone"), "{form}");
    person.send_line("skip").unwrap();
    person.exp_string("Skip instead of an answer: go on without an answer? [y/N] ").unwrap();
    person.send_line("y").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("I wait."), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn an_answer_that_does_not_count_is_asked_again_at_once() {
    let home = Home::new();
    let form = "form: {questions: [{id: answer, pattern: '[0-9]+', errorMessage: digits please}]}\n      allowedVerdicts: [Respond, Reject]";
    home.file("number.yaml", &LETTER.replace("allowedVerdicts: [Approve, Reject, Modify, Respond, Abort]", form));
    let mut person = run_at_terminal(&home, &["run", "number.yaml"], None);
    person.exp_string("> ").unwrap();
    person.send_line("many").unwrap();
    confirm_answers(&mut person);
    person.exp_string("digits please").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("42").unwrap();
    confirm_answers(&mut person);
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("Dear customer: 42"), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn the_reviewed_text_is_edited_in_the_persons_own_editor() {
    let home = Home::new();
    write_letter(&home);
    let editor = write_editor(&home, "sed -i 's/Dear customer/Dear ACME/' \"$1\"");
    let mut person = run_at_terminal(&home, &["run", "letter.yaml"], Some(&editor));
    person.exp_string("> ").unwrap();
    person.send_line("modify").unwrap();
    person.exp_string("Dear customer").unwrap();
    person.exp_string("Dear ACME").unwrap();
    person.exp_string("Send Modify with this change? [y/N]").unwrap();
    person.send_line("y").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("Dear ACME: modified"), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn a_change_that_is_not_confirmed_decides_nothing() {
    let home = Home::new();
    home.file("refund.yaml", REFUND);
    let editor = write_editor(&home, "sed -i 's/420/42/' \"$1\"");
    let mut person = run_at_terminal(&home, &["run", "refund.yaml"], Some(&editor));
    person.exp_string("> ").unwrap();
    person.send_line("modify").unwrap();
    person.exp_string("-    \"amount\": 420").unwrap();
    person.exp_string("+    \"amount\": 42\r").unwrap();
    person.exp_string("Send Modify with this change? [y/N]").unwrap();
    person.send_line("").unwrap();
    person.exp_string("Edit them again?").unwrap();
    person.send_line("n").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("skip").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("Nothing was paid."), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn invalid_arguments_are_reported_and_edited_again() {
    let home = Home::new();
    home.file("refund.yaml", REFUND);
    let editor = write_editor(&home, "sed -i -e 's/\"half\"/210/' -e 's/420/\"half\"/' \"$1\"");
    let mut person = run_at_terminal(&home, &["run", "refund.yaml"], Some(&editor));
    for why in ["is not of type", "handle/.turn-1/.call-1/.gate#2"] {
        person.exp_string("> ").unwrap();
        person.send_line("modify").unwrap();
        person.exp_string("Send Modify with this change? [y/N]").unwrap();
        person.send_line("y").unwrap();
        person.exp_string(why).unwrap();
    }
    // The user who edited the call cannot approve it.
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("--as NAME"), "{rest}");
    assert_eq!(code, 19);
}

#[test]
fn an_editor_that_changes_nothing_decides_nothing() {
    let home = Home::new();
    write_letter(&home);
    let editor = write_editor(&home, "true");
    let mut person = run_at_terminal(&home, &["run", "letter.yaml"], Some(&editor));
    person.exp_string("> ").unwrap();
    person.send_line("modify").unwrap();
    person.exp_string("Nothing was changed").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("reject").unwrap();
    person.exp_string("Why?").unwrap();
    person.send_line("too short").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("too short"), "{rest}");
    assert_eq!(code, 17);
}

#[test]
fn ctrl_c_pauses_and_nothing_is_lost() {
    let home = Home::new();
    write_letter(&home);
    let mut person = run_at_terminal(&home, &["run", "letter.yaml"], None);
    person.exp_string("> ").unwrap();
    person.send("half an ans").unwrap();
    person.flush().unwrap();
    person.send_control('c').unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("waits for people") && rest.contains("--resume"), "{rest}");
    assert_eq!(code, 19);
    let ended = home.run(&["run", "--resume", &home.id(), "--verdict", "approve"]).with(0);
    assert_eq!(ended.out, "Dear customer: approved\n");
}

#[test]
fn ctrl_d_leaves_a_gate_for_later() {
    let home = Home::new();
    write_letter(&home);
    let mut person = run_at_terminal(&home, &["run", "letter.yaml"], None);
    person.exp_string("> ").unwrap();
    person.send_control('d').unwrap();
    assert_eq!(wait_for_end(person).1, 19);
    let mut person = run_at_terminal(&home, &["run", "--resume", &home.id()], None);
    person.exp_string("Send this to ACME?").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("approve").unwrap();
    assert_eq!(wait_for_end(person).1, 0);
}

#[test]
fn no_interactive_asks_nothing() {
    let home = Home::new();
    write_letter(&home);
    let person = run_at_terminal(&home, &["run", "letter.yaml", "--no-interactive"], None);
    let (rest, code) = wait_for_end(person);
    assert!(!rest.contains("> ") && code == 19, "{rest}");
}

/// Writes [`LETTER`] with a gate that expires after this many seconds, and a second gate for dana.
fn write_two_gates(home: &Home, seconds: u32) {
    let timeout = format!("timeout: {{after: {seconds}s, action: Skip}}\n      allowedVerdicts:");
    let two = LETTER.replace("allowedVerdicts:", &timeout).replace(
        "  - {name: done",
        "  - {name: again, hitl: {prompt: 'And now?', approvers: [{kind: User, name: dana}]}}\n  - {name: done",
    );
    home.file("two.yaml", &two);
}

#[test]
fn a_deadline_passes_during_typing_and_the_typed_text_is_discarded() {
    let home = Home::new();
    write_two_gates(&home, 3);
    let mut person = run_at_terminal(&home, &["run", "two.yaml"], None);
    person.exp_string("> ").unwrap();
    person.send("rej").unwrap();
    person.flush().unwrap();
    // Ctrl-D passes the half line to the program.
    person.send_control('d').unwrap();
    person.send("ect").unwrap();
    person.flush().unwrap();
    person.exp_string("expired by the deadline").unwrap();
    person.exp_string("And now?").unwrap();
    person.exp_string("> ").unwrap();
    person.send_line("approve").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("Dear customer: approved"), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn ctrl_d_at_any_question_leaves_a_gate_for_later() {
    // The typed word, the question that follows, and the text typed there before ctrl-D.
    let asked = [("reject", "Why?", ""), ("abort", "Why?", "half a reas"), ("respond", "ends it:", "one\n")];
    for (word, question, typed) in asked {
        let home = Home::new();
        write_letter(&home);
        let mut person = run_at_terminal(&home, &["run", "letter.yaml"], None);
        person.exp_string("> ").unwrap();
        person.send_line(word).unwrap();
        person.exp_string(question).unwrap();
        person.send(typed).unwrap();
        person.flush().unwrap();
        person.send_control('d').unwrap();
        if !typed.is_empty() && !typed.ends_with('\n') {
            // The first ctrl-D only passes the half line to the program.
            person.send_control('d').unwrap();
        }
        let (rest, code) = wait_for_end(person);
        assert!(rest.contains("waits for people") && code == 19, "{word}: {code}: {rest}");
        let ended = home.run(&["run", "--resume", &home.id(), "--verdict", "approve"]).with(0);
        assert_eq!(ended.out, "Dear customer: approved\n");
    }
}

#[test]
fn ctrl_d_in_a_form_sends_no_answer() {
    let home = Home::new();
    let form = "form: {questions: [{id: one, required: false}, {id: two, required: false}]}\n      allowedVerdicts: [Respond, Approve]";
    home.file("form.yaml", &LETTER.replace("allowedVerdicts: [Approve, Reject, Modify, Respond, Abort]", form));
    let mut person = run_at_terminal(&home, &["run", "form.yaml"], None);
    person.exp_string("(empty leaves it out) > ").unwrap();
    person.send_line("first").unwrap();
    person.exp_string("(empty leaves it out) > ").unwrap();
    person.send_control('d').unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("waits for people") && code == 19, "{code}: {rest}");
    home.run(&["run", "--resume", &home.id(), "--verdict", "approve"]).with(0);
}

/// Writes a Workflow with a form of two questions for texts.
fn write_two_questions(home: &Home) {
    let questions = "form: {questions: [{id: one, question: 'Is it urgent?'}, {id: two, required: false}]}";
    let form = &format!("{questions}\n      allowUnanswered: true\n      allowedVerdicts: [Respond, Approve, Reject]");
    home.file("form.yaml", &LETTER.replace("allowedVerdicts: [Approve, Reject, Modify, Respond, Abort]", form));
}

#[test]
fn a_word_for_a_verdict_in_a_form_is_asked_about_and_never_an_answer() {
    let home = Home::new();
    write_two_questions(&home);
    let mut person = run_at_terminal(&home, &["run", "form.yaml"], None);
    for (word, verdict) in [("yes", "Approve"), ("REJECT", "Reject")] {
        person.exp_string("(it is required) > ").unwrap();
        person.send_line(word).unwrap();
        person.exp_string(&format!("{verdict} instead of an answer: ")).unwrap();
        person.exp_string("[y/N] ").unwrap();
        person.send_line("").unwrap();
        person.exp_string("Nothing was decided.").unwrap();
    }
    person.exp_string("(it is required) > ").unwrap();
    person.send_line("very").unwrap();
    person.exp_string("(empty leaves it out) > ").unwrap();
    person.send_line("reject").unwrap();
    person.exp_string("reject it, and end the run? [y/N] ").unwrap();
    person.send_line("y").unwrap();
    person.exp_string("Why?").unwrap();
    person.send_line("too late").unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("too late"), "{rest}");
    assert_eq!(code, 17);
}

#[test]
fn answers_to_a_form_are_shown_and_sent_when_they_are_confirmed() {
    let home = Home::new();
    write_two_questions(&home);
    let mut person = run_at_terminal(&home, &["run", "form.yaml"], None);
    for (confirmed, first) in [("n", "no hurry"), ("y", "reject")] {
        person.exp_string("(it is required) > ").unwrap();
        if first == "reject" {
            // After `respond`, a word for a verdict is an answer.
            person.send_line("respond").unwrap();
            person.exp_string("Every line is an answer now").unwrap();
            person.exp_string("(it is required) > ").unwrap();
        }
        person.send_line(first).unwrap();
        person.exp_string("(empty leaves it out) > ").unwrap();
        person.send_line("").unwrap();
        person.exp_string(&format!("one:\r\n  | {first}\r\ntwo: left out")).unwrap();
        person.exp_string("Send Respond with these answers? [y/N] ").unwrap();
        person.send_line(confirmed).unwrap();
    }
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("reject"), "{rest}");
    assert_eq!(code, 0);
}

#[test]
fn an_editor_open_after_the_deadline_keeps_the_terminal() {
    // A busy machine can open the editor too late for the gate's deadline. Then the next attempt has a longer deadline.
    let (_home, mut person) = [1, 8, 30]
        .into_iter()
        .find_map(|seconds| {
            let home = Home::new();
            write_two_gates(&home, seconds);
            let script = "echo the editor is open >&2\nread line\necho \"the editor read $line\" >&2";
            let editor = write_editor(&home, script);
            let mut person = run_at_terminal(&home, &["run", "two.yaml"], Some(&editor));
            person.exp_string("> ").unwrap();
            person.send_line("modify").unwrap();
            let either = ["the editor is open", "expired by the deadline"].map(|word| ReadUntil::String(word.into()));
            let (_, found) = person.exp_any(either.into()).unwrap();
            (found == "the editor is open").then_some((home, person))
        })
        .expect("an editor that opens within 30 s");
    person.exp_string("again: asks And now?").unwrap();
    person.send_line("keystrokes").unwrap();
    let before = person.exp_string("the editor read keystrokes").unwrap();
    assert!(!before.contains("Gate again"), "it was asked while the editor was open: {before}");
    person.exp_string("Gate again").unwrap();
    person.exp_string("> ").unwrap();
    // The editor is closed, so ctrl-C pauses the run.
    person.send_control('c').unwrap();
    let (rest, code) = wait_for_end(person);
    assert!(rest.contains("waits for people") && code == 19, "{code}: {rest}");
}
