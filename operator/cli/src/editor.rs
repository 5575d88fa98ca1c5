//! A text in the person's own editor.
//!
//! It must not keep the text longer than the editor is open.

use std::{
    env, fs,
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// The editor where nobody says which.
const DEFAULT: &str = "vi";

/// Returns the edited text, or `None` where the editor ended with a failure, as `:cq` does. `variables`: the environment
/// variables that may name the editor, the first that is set before the others.
///
/// # Errors
/// The editor cannot be run, or the text is no text any more.
pub fn edit(name: &str, text: &str, variables: &[&str]) -> io::Result<Option<String>> {
    // A folder of its own, which nobody else may enter: the text may be confidential.
    let folder = TempDir::with_prefix("signoff-")?;
    let file = folder.path().join(name);
    fs::File::create_new(&file)?.write_all(text.as_bytes())?;
    if !run(&file, variables)? {
        return Ok(None);
    }
    fs::read_to_string(&file).map(Some)
}

/// Runs the editor, which may have arguments.
fn run(file: &Path, variables: &[&str]) -> io::Result<bool> {
    let mut chosen = variables.iter().filter_map(|name| env::var(name).ok());
    let editor = chosen.find(|editor| !editor.trim().is_empty()).unwrap_or_else(|| DEFAULT.to_owned());
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(file);
    // Standard output is for the result of the run.
    command.stdout(Stdio::from(io::stderr()));
    Ok(command.status()?.success())
}
