//! Expressions that never end, in runs on a user's machine.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use super::*;

fn workflow(value: &str) -> String {
    format!(
        "{{apiVersion: signoff.dev/v1alpha1, kind: Workflow, metadata: {{name: endless}}, spec: {{steps: [\
         {{name: one, set: {{value: \"{value}\"}}}}]}}}}"
    )
}

/// Returns the CPU time of a process, in ticks.
fn cpu_ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_signal_during_rendering_pauses_the_run_at_once() {
    for (mark, signal) in [("endless", "-TERM"), ("endless", "-INT"), ("deaf", "-TERM"), ("deaf", "-INT")] {
        let home = Home::new();
        home.file("endless.yaml", &workflow(&format!("[[{mark}:render]]")));
        let mut run =
            home.signoff(&["run", "endless.yaml"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut session = String::new();
        BufReader::new(run.stderr.take().unwrap()).read_line(&mut session).unwrap();
        assert!(session.starts_with("session "), "{session}");
        let before = cpu_ticks(run.id());
        while cpu_ticks(run.id()) < before + 20 {
            std::thread::yield_now();
        }
        assert!(Command::new("kill").args([signal, &run.id().to_string()]).status().unwrap().success());
        // If the evaluation reached its limit, the run would fail with code 10.
        assert_eq!(run.wait().unwrap().code(), Some(19), "{mark} {signal}");
    }
}

#[test]
fn a_step_that_never_ends_fails_with_its_limit() {
    let home = Home::new();
    home.file("endless.yaml", &workflow("[[endless:render]]"));
    let ended = home.run(&["run", "endless.yaml"]).with(10);
    assert!(ended.err.contains("CPU time") || ended.out.contains("CPU time"), "{ended:?}");
    let home = Home::new();
    home.file("honest.yaml", &workflow("endless:render"));
    home.run(&["run", "honest.yaml"]).with(0);
}
