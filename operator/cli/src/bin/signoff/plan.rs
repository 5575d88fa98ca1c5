//! `signoff plan`: what would run, in which order, and who would be asked what.
//!
//! It must not run or check anything that `signoff validate` does not.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use signoff_cli::{sanitize, terminal};
use signoff_engine::Settings;
use signoff_manifest::{flow::Flow, report};
use signoff_strands::read_any;

use crate::{exit::Exit, import, texts};

/// Show the steps of a Workflow in their order, and whom each gate asks.
#[derive(Debug, Args)]
pub struct Plan {
    /// The file of a Workflow or of the Strands CLI, or `-` for standard input.
    file: PathBuf,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The output format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// A diagram for Markdown.
    Mermaid,
    /// A diagram for Graphviz.
    Dot,
}

/// Prints the flow, or what is wrong with the file.
pub fn plan(options: &Plan) -> anyhow::Result<Exit> {
    let source = texts::one(&options.file).map_err(|why| Exit::Usage.because(why))?;
    let read = match read_any(&source.text, &import::user()?, &Settings::default()) {
        Ok(read) => read,
        Err(problems) => {
            for problem in &problems {
                terminal::note(&report::shown(&source.name, &source.text, problem));
            }
            return Ok(Exit::Invalid);
        }
    };
    let flow = Flow::of(&read.workflow);
    terminal::print(&match options.format {
        Format::Text => flow.to_text(),
        Format::Json => sanitize::json(&flow)?,
        Format::Mermaid => flow.to_mermaid(),
        Format::Dot => flow.to_dot(),
    })?;
    read.notes.iter().for_each(|note| terminal::note(&note.to_string()));
    read.warnings.iter().for_each(|warning| terminal::note(&report::line(&source.name, warning)));
    Ok(Exit::Ok)
}
