//! `signoff import`: converts a workflow file of the Strands CLI to a Workflow, with notes on every part without an
//! equivalent.
//!
//! **Invariant:** no file is overwritten without the option that allows it.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::json;
use signoff_cli::{sanitize, terminal};
use signoff_engine::Settings;
use signoff_expr::text::display;
use signoff_manifest::{Severity, check, report};
use signoff_strands as strands;

use crate::{exit::Exit, texts};

/// Convert a workflow file of the Strands CLI to a Workflow.
#[derive(Debug, Args)]
pub struct Import {
    /// The file, or `-` for standard input.
    file: PathBuf,
    /// The file to write. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing output file.
    #[arg(long, requires = "output")]
    force: bool,
    /// The approver of gates for which the file names no approver. Default: the user of this machine.
    #[arg(long, value_name = "USER")]
    approver: Option<String>,
    /// Succeed even if a part of the file has no equivalent, so that the Workflow behaves differently.
    #[arg(long)]
    lenient: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ImportFormat::Yaml)]
    format: ImportFormat,
}

/// The format of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImportFormat {
    /// The Workflow; the notes are printed on standard error.
    Yaml,
    /// The Workflow and the notes in one object.
    Json,
}

/// Converts the file, and writes the Workflow. Prints the notes and the problems of the Workflow. The exit code says
/// whether the Workflow is valid and complete.
pub fn import(options: &Import) -> anyhow::Result<Exit> {
    let source = match texts::read_one(&options.file) {
        Ok(source) => source,
        Err(why) => return Err(Exit::Usage.because(why)),
    };
    let approver = options.approver.clone().map_or_else(current_user, Ok)?;
    let imported = match strands::import(&source.text, &approver) {
        Ok(imported) => imported,
        Err(problems) => {
            for problem in &problems {
                terminal::note(&report::shown(&source.name, &source.text, problem));
            }
            return Ok(Exit::Invalid);
        }
    };
    let yaml = imported.to_yaml();
    let problems: Vec<_> =
        check(&yaml, &Settings::default()).into_iter().flat_map(|checked| checked.problems).collect();
    let name = options.output.as_ref().map_or_else(|| "the Workflow".to_owned(), |file| texts::display_path(file));
    let text = match options.format {
        ImportFormat::Yaml => yaml.clone(),
        ImportFormat::Json => {
            let problems: Vec<_> = problems.iter().map(|problem| report::json(&name, problem)).collect();
            let page = json!({"workflow": imported.object, "notes": imported.notes, "problems": problems});
            sanitize::json(&page)?
        }
    };
    match &options.output {
        Some(file) => write(file, options.force, &text)?,
        None => terminal::print(&text)?,
    }
    if options.format == ImportFormat::Yaml {
        imported.notes.iter().for_each(|note| terminal::note(&note.to_string()));
        problems.iter().for_each(|problem| terminal::note(&report::line(&name, problem)));
    }
    let is_valid = problems.iter().all(|problem| problem.severity != Severity::Error);
    Ok(match (is_valid, imported.is_complete() || options.lenient) {
        (false, _) => Exit::Invalid,
        (true, true) => Exit::Ok,
        (true, false) => Exit::Unsupported,
    })
}

/// Writes a text into a new file. `force`: an existing file is overwritten.
///
/// # Errors
/// The file exists, or it cannot be written.
pub fn write(file: &Path, force: bool, text: &str) -> anyhow::Result<()> {
    let name = display(&file.display().to_string(), 256);
    let mut open = OpenOptions::new();
    open.write(true).truncate(true);
    let opened = if force { open.create(true).open(file) } else { open.create_new(true).open(file) };
    let mut opened = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Exit::Output.because(format!("{name} exists: overwrite it with --force")),
        _ => Exit::Output.because(format!("{name} cannot be written: {error}")),
    })?;
    opened
        .write_all(text.as_bytes())
        .with_context(|| format!("writing {name}"))
        .map_err(|error| Exit::Output.because(format!("{error:#}")))
}

/// Returns the user of this machine.
///
/// # Errors
/// The system does not know the user's name.
pub fn current_user() -> anyhow::Result<String> {
    whoami::username().context("finding out who runs this")
}
