//! The confirmation of the commands that start servers of a Workflow: by a person at the terminal, or by a digest.

use signoff_api::WorkflowSpec;
use signoff_cli::{
    sanitize::{one_line, quoted},
    terminal,
};
use signoff_local::{Sessions, WorkflowCommand};

use super::failure;
use crate::exit::Exit;

/// Returns the commands of a Workflow after each of them is confirmed. Starts no command. `digests`: the commands that
/// the command line confirms. `can_ask`: whether a person may be asked.
///
/// # Errors
/// A command is not confirmed, or its program is missing.
pub fn confirm_commands(
    spec: &WorkflowSpec,
    sessions: &Sessions,
    digests: &[String],
    can_ask: bool,
) -> anyhow::Result<Vec<WorkflowCommand>> {
    let commands = WorkflowCommand::of_spec(spec).map_err(failure)?;
    for command in &commands {
        let digest = command.digest();
        if sessions.has_confirmed(digest).map_err(failure)? {
            continue;
        }
        if digests.iter().any(|given| given == digest.as_str()) {
            sessions.confirm(digest).map_err(failure)?;
            continue;
        }
        terminal::note(&render_command(command));
        let server = one_line(command.server(), 63);
        if !(can_ask && terminal::can_ask()) {
            let remedy = quoted(&["--allow-commands", "--confirm-command", digest.as_str()]);
            return Err(Exit::Unsupported.because(format!(
                "the command of the server {server} is not confirmed, and there is no terminal to ask on, so nothing was started: \
                 run it once on a terminal, or add {remedy}"
            )));
        }
        let question =
            "Start this command, now and in later runs in this folder, as long as neither it nor its program changes?";
        if !terminal::ask(question)? {
            let why = format!("the command of the server {server} was not confirmed, so nothing was started");
            return Err(Exit::Unsupported.because(why));
        }
        sessions.confirm(digest).map_err(failure)?;
    }
    Ok(commands)
}

/// Renders a command for its confirmation: each argument on a line of its own, whole, and with hidden characters
/// escaped.
fn render_command(command: &WorkflowCommand) -> String {
    let mut text = format!(
        "The server {} is a command. It runs on this machine with your rights:\n",
        one_line(command.server(), 63)
    );
    for line in command.lines() {
        text += &format!("  {}\n", one_line(&line, usize::MAX));
    }
    text += "It has PATH and HOME, and no other variable of this process. The digest covers this program and these words, and not \
             the files that they name.\n";
    if let Some(package) = command.unpinned_package() {
        text += &format!(
            "Its program fetches {} in whatever version is the newest, which no digest covers: name a version, such as {}@1.2.3\n",
            one_line(package, 200),
            one_line(package.trim_end_matches("@latest"), 200)
        );
    }
    text + &format!("Digest: {}", command.digest())
}
