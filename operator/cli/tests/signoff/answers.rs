//! Runs without a terminal: pausing, answering in another process, and the exit code of each way to end.
//!
//! The tests read only the output and the files of the program.

use std::{fs, process::Stdio};

use serde_json::Value;

use super::*;

#[test]
fn a_run_pauses_and_every_command_that_it_shows_goes_on() {
    let expected = [("approve", 0), ("reject", 17), ("modify", 0), ("hitl-response", 0), ("abort", 17)];
    for (word, code) in expected {
        let home = Home::new();
        home.file("letter.yaml", LETTER);
        let paused = home.run(&["run", "letter.yaml"]).with(19);
        let command = paused.out.lines().find(|line| line.trim().starts_with("signoff") && line.contains(word));
        let words = shlex::split(command.unwrap_or_else(|| panic!("{word}: {paused:?}")).trim()).unwrap();
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        let ended = home.run(&words).with(code);
        match word {
            "approve" => assert_eq!(ended.out, "Dear customer: approved\n"),
            "modify" => assert_eq!(ended.out, "better: modified\n"),
            "hitl-response" => assert_eq!(ended.out, "Dear customer: your answer\n"),
            _ => assert_eq!(ended.out, ""),
        }
    }
}

#[test]
fn a_response_is_a_verdict_only_as_a_whole_word_that_the_gate_allows() {
    for (said, out) in [(" Yes ", "approved"), ("do not approve", "do not approve"), ("shorter", "shorter")] {
        let home = Home::new();
        home.file("letter.yaml", LETTER);
        home.run(&["run", "letter.yaml", "--var", "customer=Bob"]).with(19);
        let ended = home.run(&["run", "--resume", &home.id(), "--hitl-response", said]).with(0);
        assert_eq!(ended.out, format!("Dear customer: {out}\n"));
    }
}

#[test]
fn a_misspelt_verdict_is_refused_and_the_session_is_unchanged() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    home.run(&["run", "letter.yaml"]).with(19);
    let id = home.id();
    let approval = home.approvals()[0].clone();
    let before = fs::read(&approval).unwrap();
    for (word, hint) in [("aprove", "; did you mean approve?"), ("skip", ""), ("nope", "")] {
        home.file("answers.yaml", &format!("review: {word}"));
        let refused = home.run(&["run", "--resume", &id, "--answers", "answers.yaml"]).with(2);
        let allowed = "it allows Approve, Reject, Modify, Respond, Abort";
        let said = format!(
            "answers.yaml: review: the answer does not count, and the gate stays open: `{word}` is not a verdict of this gate: {allowed}{hint} (`{{response: {word}}}` takes the text as the answer)"
        );
        assert!(refused.err.contains(&said), "{refused:?}");
    }
    for word in ["aprove", "skip"] {
        let refused = home.run(&["run", "--resume", &id, "--hitl-response", word]).with(2);
        assert!(refused.err.contains("is not a verdict of this gate"), "{refused:?}");
    }
    assert_eq!(fs::read(&approval).unwrap(), before);
    home.file("answers.yaml", "review: {response: aprove}");
    let ended = home.run(&["run", "--resume", &id, "--answers", "answers.yaml"]).with(0);
    assert_eq!(ended.out, "Dear customer: aprove\n");
    home.run(&["run", "letter.yaml"]).with(19);
}

#[test]
fn a_gate_of_spec_gates_is_named_by_its_name_and_by_its_path() {
    for gate in ["release", ".final"] {
        let home = Home::new();
        let gates = "  gates: [{name: release, type: finalResponse, hitl: {prompt: Publish?, approvers: [{kind: Group, name: finance}]}}]\n  steps:";
        home.file("letter.yaml", &LETTER.replace("  steps:", gates));
        home.run(&["run", "letter.yaml"]).with(19);
        let id = home.id();
        home.run(&["run", "--resume", &id, "--verdict", "approve"]).with(19);
        let near = home.run(&["run", "--resume", &id, "--verdict", "approve", "--gate", "relaese"]).with(2);
        assert!(near.err.contains("there are .final (release); did you mean release?"), "{near:?}");
        home.run(&["run", "--resume", &id, "--verdict", "approve", "--gate", gate]).with(0);
    }
}

#[test]
fn a_quorum_says_how_many_agree_and_offers_only_commands_that_count() {
    let home = Home::new();
    let approvers = "approvers: [{kind: Group, name: finance}, {kind: User, name: erin}]\n      threshold: 2";
    let text = LETTER
        .replace("approvers: [{kind: Group, name: finance}]", approvers)
        .replace("[Approve, Reject, Modify, Respond, Abort]", "[Approve, Reject]");
    home.file("letter.yaml", &text);
    let paused = home.run(&["run", "letter.yaml"]).with(19);
    assert!(paused.out.contains("Asks group finance, erin; 0 of 2 agree."), "{paused:?}");
    let id = home.id();
    let first = home.run(&["run", "--resume", &id, "--verdict", "approve"]).with(19);
    assert!(first.err.contains("is recorded; 1 of 2 agree"), "{first:?}");
    assert!(first.out.contains("1 of 2 agree (decided: "), "{first:?}");
    let command = first.out.lines().find(|line| line.contains("--verdict approve")).unwrap().trim();
    assert_eq!(command, format!("signoff run --resume {id} --verdict approve --as erin"));
    let words = shlex::split(command).unwrap();
    let ended = home.run(&words.iter().skip(1).map(String::as_str).collect::<Vec<_>>()).with(0);
    assert_eq!(ended.out, "Dear customer: approved\n");
}

#[test]
fn a_requester_who_cannot_decide_is_told_to_decide_as_another_person() {
    let home = Home::new();
    let excluded = "approvers: [{kind: Group, name: finance}]\n      excludeRequester: true";
    home.file("letter.yaml", &LETTER.replace("approvers: [{kind: Group, name: finance}]", excluded));
    let paused = home.run(&["run", "letter.yaml"]).with(19);
    assert!(paused.out.contains("--verdict approve --as NAME"), "{paused:?}");
    let id = home.id();
    let refused = home.run(&["run", "--resume", &id, "--verdict", "approve"]).with(2);
    assert!(refused.err.contains("is the requester") && refused.err.contains("; `--as NAME` decides"), "{refused:?}");
    let shown = home.run(&["sessions", "show", &id]).with(0);
    assert!(shown.out.contains(&format!("Next: signoff run --resume {id} --as NAME goes on")), "{shown:?}");
    let ended = home.run(&["run", "--resume", &id, "--verdict", "approve", "--as", "erin"]).with(0);
    assert_eq!(ended.out, "Dear customer: approved\n");
}

#[test]
fn an_answer_that_does_not_count_leaves_the_gate_open_and_says_why() {
    let home = Home::new();
    home.file("letter.yaml", &LETTER.replace("Respond, ", ""));
    home.run(&["run", "letter.yaml"]).with(19);
    let id = home.id();
    let before = fs::read(&home.approvals()[0]).unwrap();
    let refused = home.run(&["run", "--resume", &id, "--verdict", "skip"]).with(2);
    assert!(refused.err.contains("Skip is not allowed here: use one of Approve, Reject, Modify, Abort"), "{refused:?}");
    let refused = home.run(&["run", "--resume", &id, "--hitl-response", "perhaps"]).with(2);
    assert!(refused.err.contains("takes no free answer"), "{refused:?}");
    let refused = home.run(&["run", "--resume", &id, "--verdict", "modify", "--parameters", "{text: x}"]).with(2);
    assert!(refused.err.contains("response"), "{refused:?}");
    assert_eq!(fs::read(&home.approvals()[0]).unwrap(), before);
    home.run(&["run", "--resume", &id, "--verdict", "approve"]).with(0);
}

#[test]
fn several_gates_are_distinguished_and_answered_in_any_order() {
    let home = Home::new();
    home.file("branches.yaml", BRANCHES);
    let paused = home.run(&["run", "branches.yaml", "--format", "json"]).with(19);
    let report: Value = serde_json::from_str(&paused.out).unwrap();
    let paths: Vec<_> = report["pending"].as_array().unwrap().iter().map(|gate| gate["path"].clone()).collect();
    assert_eq!(paths.len(), 2, "{report}");
    let id = home.id();
    let vague = home.run(&["run", "--resume", &id, "--verdict", "approve"]).with(2);
    assert!(vague.err.contains("--gate"), "{vague:?}");
    home.run(&["run", "--resume", &id, "--verdict", "approve", "--gate", "nobody"]).with(2);
    let near = home.run(&["run", "--resume", &id, "--verdict", "approve", "--gate", "left/aks"]).with(2);
    assert!(near.err.contains("; did you mean left/ask?"), "{near:?}");
    let second = paths[1].as_str().unwrap();
    home.run(&["run", "--resume", &id, "--hitl-response", "two", "--gate", second]).with(19);
    let ended = home.run(&["run", "--resume", &id, "--hitl-response", "one"]).with(0);
    assert!(ended.out.contains("one") && ended.out.contains("two"), "{ended:?}");
}

#[test]
fn a_file_answers_gates_in_turn_and_unused_answers_are_reported() {
    let home = Home::new();
    home.file("branches.yaml", BRANCHES);
    home.file("answers.yaml", "ask: [{response: one}, {response: two}]\nother: approve\n");
    let ended = home.run(&["run", "branches.yaml", "--answers", "answers.yaml"]).with(0);
    assert!(ended.out.contains("one") && ended.out.contains("two"), "{ended:?}");
    assert!(ended.err.contains("an answer for other was not used"), "{ended:?}");
    home.file("answers.yaml", "ask: {verdict: perhaps}\n");
    home.run(&["run", "branches.yaml", "--answers", "answers.yaml"]).with(2);
}

#[test]
fn every_end_of_a_run_has_its_exit_code() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    home.file("wrong.yaml", &LETTER.replace("steps.draft.response", "steps.drfat.response"));
    home.file("failing.yaml", &LETTER.replace("text: Dear customer", "error: out of words"));
    home.run(&["run", "letter.yaml", "--nonsense"]).with(2);
    home.run(&["run", "missing.yaml"]).with(2);
    home.run(&["run"]).with(2);
    let wrong = home.run(&["run", "wrong.yaml"]).with(3);
    assert!(wrong.err.contains("drfat") && wrong.err.contains("wrong.yaml"), "{wrong:?}");
    home.run(&["run", "letter.yaml", "--var", "custmer=Bob"]).with(3);
    let failed = home.run(&["run", "failing.yaml"]).with(10);
    assert!(failed.err.contains("out of words"), "{failed:?}");
    home.run(&["run", "--resume", "nobody"]).with(20);
    home.file("vars.yaml", "[]");
    home.run(&["run", "letter.yaml", "--vars-file", "vars.yaml"]).with(3);
    for file in ["--vars-file", "--answers"] {
        let unread = home.run(&["run", "letter.yaml", file, "missing.yaml"]).with(2);
        assert!(unread.err.contains("missing.yaml"), "{unread:?}");
    }
    home.run(&["--version"]).with(0);
}

#[test]
fn a_failed_export_is_reported_and_is_the_exit_code_of_an_ended_run() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    let history = ["--export-hitl-history", "no/such/folder/h.json"];
    let paused = home.run(&[&["run", "letter.yaml"], &history[..]].concat()).with(19);
    assert!(paused.err.contains("cannot write no/such/folder/h.json"), "{paused:?}");
    let id = home.id();
    let refused = home.run(&[&["run", "--resume", &id, "--verdict", "skip"], &history[..]].concat()).with(2);
    assert!(refused.err.contains("cannot write") && refused.err.contains("not allowed"), "{refused:?}");
    home.run(&[&["run", "--resume", &id, "--verdict", "approve"], &history[..]].concat()).with(12);
    assert!(home.run(&["sessions", "show", &id]).with(0).out.contains("\nDear customer: approved\n"));
}

#[test]
fn a_part_of_an_answer_without_a_verdict_is_refused() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    home.run(&["run", "letter.yaml"]).with(19);
    let id = home.id();
    for part in [["--reason", "because"], ["--gate", "review"], ["--guidance", "shorter"], ["--parameters", "{a: b}"]] {
        let alone = home.run(&["run", "--resume", &id, part[0], part[1]]).with(2);
        assert!(alone.err.contains("--verdict"), "{alone:?}");
        home.run(&["run", "letter.yaml", part[0], part[1]]).with(2);
        home.run(&["run", "letter.yaml", "--verdict", "approve", part[0], part[1]]).with(2);
    }
    for part in [["--verdict", "approve"], ["--hitl-response", "approve"]] {
        home.run(&["run", "letter.yaml", part[0], part[1]]).with(2);
    }
    let whole = ["--hitl-response", "approve", "--reason", "because", "--gate", "review"];
    home.run(&[&["run", "--resume", &id], &whole[..]].concat()).with(0);
}

#[test]
fn artifacts_are_written_below_the_folder_and_replaced_only_on_demand() {
    let home = Home::new();
    let files = "  outputs: {artifacts: [{path: 'letters/{{ inputs.customer }}.txt', from: '{{ steps.draft.response }}'}, \
                 {path: never.txt, from: x, skipIf: 'true'}]}\n";
    home.file("letter.yaml", &(LETTER.to_owned() + files));
    home.file("answers.yaml", "review: approve");
    let run = ["run", "letter.yaml", "--answers", "answers.yaml", "--out", "out"];
    home.run(&run).with(0);
    assert_eq!(fs::read_to_string(home.path().join("out/letters/ACME.txt")).unwrap(), "Dear customer");
    assert!(!home.path().join("out/never.txt").exists());
    let id = home.id();
    let refused = home.run(&["sessions", "show", &id, "--out", "out"]).with(12);
    assert!(refused.err.contains("--force"), "{refused:?}");
    fs::write(home.path().join("out/letters/ACME.txt"), "old").unwrap();
    home.run(&["sessions", "show", &id, "--out", "out", "--force"]).with(0);
    assert_eq!(fs::read_to_string(home.path().join("out/letters/ACME.txt")).unwrap(), "Dear customer");
}

#[test]
fn notes_about_artifacts_are_true_and_their_commands_work() {
    let home = Home::new();
    let one = "  outputs: {artifacts: [{path: one.txt, from: x}]}\n";
    let two = "  outputs: {artifacts: [{path: one.txt, from: x}, {path: two.txt, from: x}]}\n";
    home.file("answers.yaml", "review: approve");
    let kept = [("", ""), (one, "one artifact is kept"), (two, "2 artifacts are kept")];
    for (at, (files, said)) in kept.into_iter().enumerate() {
        home.file("letter.yaml", &(LETTER.to_owned() + files));
        let place = home.path().join(format!("place {at}")).display().to_string();
        let ended = home.run(&["run", "letter.yaml", "--answers", "answers.yaml", "--sessions-dir", &place]).with(0);
        assert!(ended.err.contains(said), "{ended:?}");
        let Some(line) = ended.err.lines().find(|line| line.contains("--out DIR")) else {
            assert_eq!(said, "", "{ended:?}");
            continue;
        };
        let command = &line[line.find("signoff ").unwrap()..line.find(" writes ").unwrap()];
        let words = shlex::split(command).unwrap();
        home.run(&words.iter().skip(1).map(String::as_str).collect::<Vec<_>>()).with(0);
        assert!(home.path().join("DIR/one.txt").exists(), "{command}");
        fs::remove_dir_all(home.path().join("DIR")).unwrap();
    }
    home.file("letter.yaml", LETTER);
    let paused = home.run(&["run", "letter.yaml", "--out", "out"]).with(19);
    assert!(paused.err.contains("there are no artifacts yet: nothing was written below out"), "{paused:?}");
    let ended = home.run(&["run", "--resume", &home.id(), "--verdict", "approve", "--out", "out"]).with(0);
    assert!(ended.err.contains("there are no artifacts: nothing"), "{ended:?}");
    let shown = home.run(&["sessions", "show", &home.id(), "--out", "out"]).with(0);
    assert!(shown.err.contains("there are no artifacts: nothing"), "{shown:?}");
}

#[test]
fn an_artifact_with_a_rendered_path_stays_in_the_folder() {
    let home = Home::new();
    let files = "  outputs: {artifacts: [{path: '{{ inputs.customer }}', from: x}]}\n";
    home.file("letter.yaml", &(LETTER.to_owned() + files));
    home.file("answers.yaml", "review: approve");
    let run = ["run", "letter.yaml", "--answers", "answers.yaml", "--out", "out", "--var", "customer=../escaped"];
    let ended = home.run(&run);
    assert!(matches!(ended.code, Some(10 | 12)), "{ended:#?}");
    assert!(!home.path().join("escaped").exists());
}

#[test]
fn the_history_has_the_user_the_verdict_and_the_time() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    home.run(&["run", "letter.yaml"]).with(19);
    let id = home.id();
    home.run(&["run", "--resume", &id, "--as", "erin", "--verdict", "approve", "--reason", "fine"]).with(0);
    home.run(&["sessions", "show", &id, "--export-hitl-history", "history.json"]).with(0);
    let history: Value = serde_json::from_slice(&fs::read(home.path().join("history.json")).unwrap()).unwrap();
    let only = &history[0];
    assert_eq!(
        (&only["step_index"], &only["prompt"], &only["user"]),
        (&1.into(), &"Send this to ACME?".into(), &"erin".into())
    );
    assert_eq!(
        (&only["response"], &only["verdict"], &only["reason"]),
        (&"approved".into(), &"Approve".into(), &"fine".into())
    );
    assert_eq!(only["context_snapshot"], "Dear customer");
    assert!(only["timestamp"].is_string() && only["duration_seconds"].is_u64(), "{only}");
}

#[test]
fn a_workflow_with_a_container_is_valid_and_needs_a_cluster() {
    let home = Home::new();
    let text = LETTER.replace(
        "{name: done, set: {value: \"{{ steps.draft.response }}: {{ hitl_response }}\"}}",
        "{name: build, pod: {image: \"tool:1\"}}",
    );
    home.file("build.yaml", &text);
    home.run(&["validate", "build.yaml"]).with(0);
    let refused = home.run(&["run", "build.yaml"]).with(18);
    for words in ["step build is a container", "kubectl apply -f", "cargo xtask demo --pods"] {
        assert!(refused.err.contains(words), "{words}: {refused:#?}");
    }
    assert_eq!(home.run(&["sessions", "list"]).with(0).out, "no sessions\n");
}

#[test]
fn sessions_are_listed_shown_and_removed() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    assert_eq!(home.run(&["sessions", "list"]).with(0).out, "no sessions\n");
    home.run(&["run", "letter.yaml"]).with(19);
    let id = home.id();
    assert!(home.run(&["sessions", "list"]).with(0).out.contains("Waiting"));
    assert_eq!(home.run(&["sessions", "list", "--status", "failed"]).with(0).out, "no sessions\n");
    let shown = home.run(&["sessions", "show", &id]).with(0);
    assert!(shown.out.contains("--verdict approve") && shown.out.contains("draft"), "{shown:?}");
    let row = |name: &str, state: &str| shown.out.lines().any(|line| line.starts_with(name) && line.contains(state));
    assert!(row("draft ", " Succeeded ") && row("review ", " Waiting ") && row("done ", " Pending"), "{shown:?}");
    assert!(shown.out.contains("\n    can decide: group finance; 0 of 1 agree\n"), "{shown:?}");
    let last = |shown: &str| shown.lines().last().unwrap().to_owned();
    assert_eq!(last(&shown.out), format!("Next: signoff run --resume {id} goes on, and asks on a terminal"));
    assert_eq!(home.run(&["sessions", "cleanup"]).with(0).out, "", "what waits is not over");
    home.run(&["run", "--resume", &id, "--verdict", "reject"]).with(17);
    let shown = home.run(&["sessions", "show", &id]).with(0).out;
    assert_eq!(last(&shown), format!("Next: the run is over; signoff sessions delete {id} removes the session"));
    assert_eq!(home.run(&["sessions", "cleanup", "--older-than", "1h"]).with(0).out, "");
    // A folder that is no session is ignored. A half-deleted session is deleted too.
    fs::create_dir(home.path().join("sessions/empty")).unwrap();
    fs::create_dir(home.path().join("sessions/.letter-aaaaaa.deleted")).unwrap();
    assert!(!home.run(&["sessions", "list"]).with(0).out.contains("empty"));
    assert_eq!(home.run(&["sessions", "cleanup"]).with(0).out, format!("{id} removed\n"));
    assert!(!home.path().join("sessions/.letter-aaaaaa.deleted").exists());
    home.run(&["sessions", "delete", &id]).with(20);
}

#[test]
fn a_closed_pipe_does_not_change_the_exit_code() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    let mut child = home.signoff(&["run", "letter.yaml"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(19));
    let resume = ["run", "--resume", &home.id(), "--verdict", "reject"];
    let mut child = home.signoff(&resume).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(17));
}

#[test]
fn text_of_others_cannot_move_the_cursor() {
    let home = Home::new();
    let tricks = "\\e[2J\\u202eDear\\x9b2J\\x7f";
    let letter = LETTER
        .replace("text: Dear customer", &format!("text: \"{tricks}\""))
        .replace("Send this to", &format!("{tricks} this to"));
    home.file("letter.yaml", &letter);
    // The name of a file can be hostile too.
    home.file("wrong\u{202e}\u{9b}.yaml", "[");
    home.file(
        "strands.yaml",
        &format!(
            "{{version: 0, name: s, runtime: {{provider: ollama, host: \"http://127.0.0.1:11434\", model_id: m}}, agents: \
             {{a: {{prompt: x}}}}, pattern: {{type: chain, config: {{steps: [{{agent: a, input: \"{tricks}\"}}]}}}}}}"
        ),
    );
    let plain = |arguments: &[&str], code: i32| {
        let ended = home.run(arguments).with(code);
        for text in [&ended.out, &ended.err] {
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{9b}', '\u{7f}']), "{arguments:?}: {ended:?}");
        }
        ended.out
    };
    plain(&["run", "letter.yaml"], 19);
    let id = home.id();
    let report: Value = serde_json::from_str(&plain(&["sessions", "show", &id, "--format", "json"], 0)).unwrap();
    assert_eq!(report["pending"][0]["prompt"], "[2J\u{202e}Dear2J this to ACME?", "what it means stays");
    plain(&["sessions", "list", "--format", "json"], 0);
    plain(&["plan", "letter.yaml", "--format", "json"], 0);
    plain(&["validate", ".", "--format", "json"], 3);
    plain(&["import", "strands.yaml", "--format", "json"], 0);
    home.file("answers.yaml", "review: approve");
    plain(&["run", "letter.yaml", "--answers", "answers.yaml", "--format", "json"], 0);
}

/// Returns the letter with an entry of `spec.secrets`.
fn with_secret(entry: &str) -> String {
    LETTER.replace("  providers:", &format!("  secrets: [{entry}]\n  providers:"))
}

#[test]
fn a_secret_is_sent_and_never_written_down() {
    let home = Home::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let provider = format!("openai: {{baseURL: 'http://{}/v1', key: models}}", server.local_addr().unwrap());
    let text = with_secret("{name: models, secret: models, key: token}")
        .replace("scripted: {replies: [{text: Dear customer}]}", &provider)
        .replace("{name: writer}", "{name: writer, model: m}");
    home.file("letter.yaml", &text);
    let asked = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = server.accept().unwrap();
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        let body =
            r#"{"choices": [{"message": {"role": "assistant", "content": "Dear customer"}, "finish_reason": "stop"}]}"#;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
        String::from_utf8_lossy(&bytes[..length]).to_lowercase()
    });
    let output = home
        .signoff(&["run", "letter.yaml"])
        .env("SIGNOFF_SECRET_MODELS_TOKEN", "hunter22")
        .env("SIGNOFF_SECRET_MODELS_ALLOWED_HOSTS", "127.0.0.1")
        .output()
        .unwrap();
    let paused = Ended::of(&output).with(19);
    assert!(asked.join().unwrap().contains("authorization: bearer hunter22"));
    let mut all = paused.out + &paused.err + &fs::read_to_string(home.session().join("workflow.yaml")).unwrap();
    for file in home.approvals() {
        all += &fs::read_to_string(file).unwrap();
    }
    assert!(!all.contains("hunter22"));
}

#[test]
fn the_hosts_of_a_secret_apply_to_every_split_of_its_name() {
    let home = Home::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let provider = format!("openai: {{baseURL: 'http://{address}/v1', key: k}}");
    for entry in ["{name: k, secret: acme-models, key: token}", "{name: k, secret: acme, key: models-token}"] {
        let text = with_secret(entry)
            .replace("scripted: {replies: [{text: Dear customer}]}", &provider)
            .replace("{name: writer}", "{name: writer, model: m}");
        home.file("letter.yaml", &text);
        let output = home
            .signoff(&["run", "letter.yaml"])
            .env("SIGNOFF_SECRET_ACME_MODELS_TOKEN", "hunter22")
            .env("SIGNOFF_SECRET_ACME_MODELS_ALLOWED_HOSTS", "models.example.com")
            .env("SIGNOFF_SECRET_ACME_ALLOWED_HOSTS", "127.0.0.1")
            .output()
            .unwrap();
        let ended = Ended::of(&output).with(10);
        assert!(ended.err.contains("SIGNOFF_SECRET_ACME_MODELS_ALLOWED_HOSTS lists other hosts"), "{ended:?}");
    }
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "nobody was called");
}

#[test]
fn a_secret_without_a_list_of_hosts_is_sent_nowhere_and_the_line_to_add_is_named() {
    let home = Home::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let provider = format!("openai: {{baseURL: 'http://{address}/v1', key: models}}");
    let text = with_secret("{name: models, secret: models, key: token}")
        .replace("scripted: {replies: [{text: Dear customer}]}", &provider)
        .replace("{name: writer}", "{name: writer, model: m}");
    home.file("letter.yaml", &text);
    let output = home.signoff(&["run", "letter.yaml"]).env("SIGNOFF_SECRET_MODELS_TOKEN", "hunter22").output().unwrap();
    let ended = Ended::of(&output).with(10);
    assert!(ended.err.contains("Secret models must not be sent to 127.0.0.1"), "{ended:?}");
    assert!(ended.err.contains("export SIGNOFF_SECRET_MODELS_ALLOWED_HOSTS=127.0.0.1"), "{ended:?}");
    assert!(!ended.err.contains("hunter22"), "{ended:?}");
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "nothing was called");
}

#[test]
fn the_question_of_a_paused_run_is_above_its_commands() {
    let home = Home::new();
    home.file("ask.yaml", include_str!("../../../../examples/tools/ask-human.yaml"));
    let paused = home.run(&["run", "ask.yaml"]).with(19);
    let asked = "  Question q1: How shall I tell ACME?\n    o1: By mail\n    o2: By phone\n";
    assert!(paused.out.contains(asked), "{paused:?}");
    let gates = "  gates: [{name: begin, type: stepStart, steps: [pay], hitl: {prompt: Pay?, approvers: [{kind: Group, name: finance}]}}]\n";
    let pay = "  steps: [{name: pay, http: {method: POST, url: 'http://127.0.0.1:9/refunds'}}]\n";
    let head = "apiVersion: signoff.dev/v1alpha1\nkind: Workflow\nmetadata: {name: pays}\nspec:\n";
    home.file("pays.yaml", &format!("{head}{gates}{pay}"));
    let paused = home.run(&["run", "pays.yaml"]).with(19);
    assert!(paused.out.contains("  What would run: attempts: 1 "), "{paused:?}");
    assert!(paused.out.contains("http://127.0.0.1:9/refunds"), "{paused:?}");
}

#[test]
fn a_policy_beside_a_workflow_is_not_applied_with_a_warning() {
    let home = Home::new();
    let policy = include_str!("../../../../examples/policies/agents.yaml");
    home.file("both.yaml", &format!("{policy}\n---\n{LETTER}"));
    let said = "warning: ClusterApprovalPolicy agents is not applied: a local run has no approval policies";
    let both = home.run(&["run", "both.yaml"]).with(19);
    assert!(both.err.contains(said), "{both:?}");
    home.file("letter.yaml", LETTER);
    let alone = home.run(&["run", "letter.yaml"]).with(19);
    assert!(!alone.err.contains("is not applied"), "{alone:?}");
}
