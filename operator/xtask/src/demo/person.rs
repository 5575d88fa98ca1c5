//! The person at the terminal, who plays the approver. Their choices go through the plugin, whose refusals are shown.

use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use signoff_tests::say;

use super::harness::Harness;
use super::show;

/// The outcome of the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GateOutcome {
    /// Approved, as it was shown.
    Approved,
    /// Approved with this text instead.
    Modified(String),
    /// Answered with this text.
    Answered(String),
    Rejected,
    /// No decision: the person left.
    Nothing,
}

/// Asks how to decide on a drafted letter, and decides so, until the plugin accepts a decision or the person leaves.
pub(super) async fn ask_decision(harness: &Harness, approval: &str, draft: &str) -> Result<GateOutcome> {
    loop {
        let line = ask(
            "You are alice. [a]pprove, [r]eject, [e]dit the letter, ans[w]er with a postscript, [s]how again, [q]uit: ",
        )
        .await?;
        let Some(line) = line else { return Ok(GateOutcome::Nothing) };
        let (outcome, finished) = match line.trim().to_lowercase().as_str() {
            "a" | "approve" => (GateOutcome::Approved, harness.approve("alice", &["approve", approval]).await?),
            "r" | "reject" => {
                let reason = ask("Why? ").await?.unwrap_or_default();
                let reason = ["--reason", reason.trim()];
                let reason = if reason[1].is_empty() { &[][..] } else { &reason[..] };
                let words = [&["reject", approval], reason].concat();
                (GateOutcome::Rejected, harness.approve("alice", &words).await?)
            }
            "e" | "edit" => {
                let Some(text) = edit_letter(harness.cluster.folder(), draft).await? else { continue };
                let file = harness.cluster.folder().join("edited.json");
                std::fs::write(&file, json!({"response": text}).to_string())?;
                let file = file.display().to_string();
                let finished = harness.approve("alice", &["modify", approval, "--from-file", &file]).await?;
                (GateOutcome::Modified(text), finished)
            }
            "w" | "answer" => {
                let Some(text) = ask("The postscript: ").await?.filter(|text| !text.trim().is_empty()) else {
                    continue;
                };
                let text = text.trim().to_owned();
                let finished = harness.approve("alice", &["respond", approval, "--response", &text]).await?;
                (GateOutcome::Answered(text), finished)
            }
            "s" | "show" => {
                harness.approve("alice", &["show", approval]).await?;
                continue;
            }
            "q" | "quit" => return Ok(GateOutcome::Nothing),
            _ => continue,
        };
        if finished.code == 0 {
            return Ok(outcome);
        }
    }
}

/// Asks whether to approve or reject, and decides so, until the plugin accepts a decision or the person leaves.
pub(super) async fn ask_permission(harness: &Harness, approval: &str) -> Result<GateOutcome> {
    loop {
        let line = ask("You are alice. [a]pprove, [r]eject, [s]how again, [q]uit: ").await?;
        let Some(line) = line else { return Ok(GateOutcome::Nothing) };
        let (outcome, verb) = match line.trim().to_lowercase().as_str() {
            "a" | "approve" => (GateOutcome::Approved, "approve"),
            "r" | "reject" => (GateOutcome::Rejected, "reject"),
            "s" | "show" => {
                harness.approve("alice", &["show", approval]).await?;
                continue;
            }
            "q" | "quit" => return Ok(GateOutcome::Nothing),
            _ => continue,
        };
        if harness.approve("alice", &[verb, approval]).await?.code == 0 {
            return Ok(outcome);
        }
    }
}

/// Waits until the person presses Enter.
pub(super) async fn wait_for_enter() -> Result<()> {
    let line = ask("Press Enter for the decision: ").await?;
    line.map(|_| ()).context("nobody is at the terminal any more")
}

/// Returns the letter after the person's changes, or `None` without changes.
async fn edit_letter(folder: &Path, draft: &str) -> Result<Option<String>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let text = match variable("VISUAL").or_else(|| variable("EDITOR")) {
        Some(editor) => run_editor(&editor, &folder.join("letter.txt"), draft).await?,
        None => read_lines().await?,
    };
    let text = text.trim_end().to_owned();
    if text.is_empty() || text == draft.trim_end() {
        show::words("The letter is as it was: nothing to send.");
        return Ok(None);
    }
    Ok(Some(text))
}

/// Lets the person edit the draft. `$EDITOR` may hold arguments, which only a shell splits.
async fn run_editor(editor: &str, file: &Path, draft: &str) -> Result<String> {
    std::fs::write(file, draft)?;
    let status = tokio::process::Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "editor"])
        .arg(file)
        .status()
        .await
        .with_context(|| format!("starting the editor {editor}"))?;
    ensure!(status.success(), "the editor {editor} ended with {status}");
    Ok(std::fs::read_to_string(file)?)
}

async fn read_lines() -> Result<String> {
    show::words("(EDITOR is not set.) Type the new letter; a line with nothing but a full stop ends it.");
    let mut text = String::new();
    while let Some(line) = ask("> ").await? {
        if line.trim_end() == "." {
            break;
        }
        text.push_str(&line);
    }
    Ok(text)
}

/// Returns one line of standard input with its line end, or `None` at the end of input.
async fn ask(prompt: &str) -> Result<Option<String>> {
    say::prompt(prompt)?;
    let (answer, asked) = tokio::sync::oneshot::channel();
    // The runtime would wait for one of its threads when Ctrl-C ends the demo, so another thread reads the line.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line).map(|length| (length > 0).then_some(line));
        // After Ctrl-C the answer has no receiver.
        let _ = answer.send(read);
    });
    let line = asked.await??;
    if line.is_none() {
        std::io::stdout().flush()?;
    }
    Ok(line)
}
