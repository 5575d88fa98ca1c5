//! Tests of processes that use one session at the same time, die, or find the disk full. No test sleeps: each waits for
//! an action of the program.

use std::{
    fs,
    process::{Command, Stdio},
};

use super::{server::Server, *};

#[test]
fn a_second_process_cannot_use_a_session_in_use() {
    let (home, server) = (Home::new(), Server::new());
    home.file("post.yaml", &server.workflow());
    let first = home.signoff(&["run", "post.yaml"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let request = server.request();
    let second = home.run(&["run", "--resume", &home.id()]).with(20);
    assert!(second.err.contains(&format!("in use by process {}", first.id())), "{second:?}");
    home.run(&["sessions", "delete", &home.id()]).with(20);
    Server::answer(request);
    assert_eq!(Ended::of(&first.wait_with_output().unwrap()).with(0).out, "sent\n");
}

#[test]
fn a_call_that_must_not_be_repeated_is_not_repeated_after_a_kill() {
    let (home, server) = (Home::new(), Server::new());
    home.file("post.yaml", &server.workflow());
    let mut first = home.signoff(&["run", "post.yaml"]).stderr(Stdio::null()).spawn().unwrap();
    let request = server.request();
    first.kill().unwrap();
    first.wait().unwrap();
    drop(request);
    let ended = home.run(&["run", "--resume", &home.id()]).with(10);
    assert!(ended.err.contains("may or may not have happened"), "{ended:?}");
    assert!(!server.is_waited_for(), "it was sent twice");
    home.run(&["run", "--resume", &home.id()]).with(20);
}

#[test]
fn a_process_that_is_asked_to_end_keeps_the_result_of_its_call() {
    for signal in ["-TERM", "-HUP"] {
        assert_result_is_kept(signal);
    }
}

fn assert_result_is_kept(signal: &str) {
    let (home, server) = (Home::new(), Server::new());
    home.file("post.yaml", &server.workflow());
    let first = home.signoff(&["run", "post.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let request = server.request();
    let killed = Command::new("kill").args([signal, &first.id().to_string()]).status().unwrap();
    assert!(killed.success());
    Server::answer(request);
    // The program can see the end of the call or the request to pause first. Both keep the result.
    let first = Ended::of(&first.wait_with_output().unwrap());
    match first.code {
        Some(19) => assert_eq!(home.run(&["run", "--resume", &home.id()]).with(0).out, "sent\n"),
        _ => assert_eq!(first.with(0).out, "sent\n"),
    }
    assert!(!server.is_waited_for(), "it was sent twice");
}

#[test]
fn a_torn_or_edited_session_file_is_refused() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    home.run(&["run", "letter.yaml"]).with(19);
    let (id, file) = (home.id(), home.session().join("workflow.yaml"));
    let whole = fs::read_to_string(&file).unwrap();
    for damaged in [whole[..whole.len() / 2].to_owned(), whole.replace("ACME", "EMCA")] {
        fs::write(&file, damaged).unwrap();
        let refused = home.run(&["run", "--resume", &id, "--verdict", "approve"]).with(20);
        assert!(refused.err.contains("torn or edited"), "{refused:?}");
        home.run(&["sessions", "show", &id]).with(20);
        home.run(&["sessions", "list"]).with(20);
    }
    fs::write(&file, whole).unwrap();
    home.run(&["run", "--resume", &id, "--verdict", "approve"]).with(0);
}

#[test]
fn a_full_disk_ends_the_process_and_loses_nothing() {
    let home = Home::new();
    // Files can grow by only 1 KiB, and the signal at the limit is ignored, as a full disk sends none.
    let long = "x".repeat(1000);
    let steps: String = (0..6).map(|at| format!("  - {{name: s{at}, set: {{value: {long}}}}}\n")).collect();
    home.file("letter.yaml", &LETTER.replace("  - {name: done", &format!("{steps}  - {{name: done")));
    home.run(&["run", "letter.yaml"]).with(19);
    let id = home.id();
    let size = fs::metadata(home.session().join("workflow.yaml")).unwrap().len();
    let before = fs::read(home.session().join("workflow.yaml")).unwrap();
    let mut command = Command::new("bash");
    let blocks = (size / 1024 + 1).to_string();
    command.args(["-c", "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"", "bash", &blocks, SIGNOFF]);
    command.args(["run", "--resume", &id, "--verdict", "approve"]);
    home.set_environment(&mut command);
    let full = Ended::of(&command.output().unwrap()).with(20);
    assert!(full.err.contains("cannot write") && full.err.contains("workflow.yaml"), "{full:?}");
    assert_eq!(fs::read(home.session().join("workflow.yaml")).unwrap(), before);
    // The decision was written before, and is kept.
    let ended = home.run(&["run", "--resume", &id]).with(0);
    assert_eq!(ended.out, "Dear customer: approved\n");
}
