//! The look of a session on a terminal: signs and colours, the environment that turns them off, and the width.
//!
//! The unit tests of the page compare whole pages.

use rexpect::session::spawn_command;
use unicode_width::UnicodeWidthStr;

use super::*;

/// The longest wait for the page, in milliseconds. It is long enough for a busy machine.
const TIMEOUT_MS: u64 = 60_000;

/// Returns the output of `signoff sessions show` on a terminal of 80 columns with these variables.
fn show_session(home: &Home, variables: &[(&str, &str)]) -> String {
    let id = home.id();
    let folder = home.path().join("sessions").display().to_string();
    let line = format!("stty cols 80 rows 40 && exec {SIGNOFF} sessions show {id} --sessions-dir {folder}");
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("TERM", "xterm");
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let text = spawn_command(command, Some(TIMEOUT_MS)).unwrap().exp_eof().unwrap();
    // rexpect turns each byte into a character.
    String::from_utf8(text.chars().map(|c| u8::try_from(c).unwrap()).collect()).unwrap()
}

#[test]
fn a_session_on_a_terminal_has_signs_and_colours_unless_the_environment_forbids_them() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    home.run(&["run", "letter.yaml"]).with(19);
    let coloured = show_session(&home, &[]);
    assert!(coloured.contains("\u{1b}[32m✔ \u{1b}[0mdraft"), "{coloured}");
    let plain = show_session(&home, &[("NO_COLOR", "1")]);
    assert!(plain.contains("✔ draft") && !plain.contains('\u{1b}'), "{plain}");
    let dumb = show_session(&home, &[("TERM", "dumb")]);
    assert!(dumb.contains("\ndraft ") && !dumb.contains('\u{1b}') && !dumb.contains('✔'), "{dumb}");
    let (_, tree) = plain.split_once("Workflow:").unwrap();
    let (tree, _) = tree.split_once("Session ").unwrap();
    assert!(tree.lines().all(|line| line.trim_end().width() <= 80), "{tree}");
}

#[test]
fn an_error_begins_with_its_prefix() {
    let missing = Home::new().run(&["sessions", "show", "letter-x69h9q"]).with(20);
    assert!(missing.err.starts_with("error: "), "{missing:?}");
    let invalid = Home::new().run(&["run"]).with(2);
    assert!(invalid.err.starts_with("error: "), "{invalid:?}");
}
