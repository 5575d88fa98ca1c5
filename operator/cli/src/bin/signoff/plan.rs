//! `signoff plan`: the steps of a run in their order, and the people of each gate.
//!
//! It makes the same checks as `signoff validate`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use signoff_api::WorkflowSpec;
use signoff_cli::{
    sanitize::{self, one_line},
    terminal,
};
use signoff_engine::Settings;
use signoff_manifest::{
    flow::Flow,
    report,
    server_tools::{self, Catalogues},
};
use signoff_strands::read_any;

use crate::{exit::Exit, import, texts};

/// Show the steps of a Workflow in their order, and whom each gate asks.
#[derive(Debug, Args)]
pub struct Plan {
    /// The file of a Workflow or of the Strands CLI, or `-` for standard input.
    file: PathBuf,
    /// Catalogues that `signoff tools --catalogue` has saved: each tool of their servers is shown. No server is asked.
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = PlanFormat::Text)]
    format: PlanFormat,
}

/// The output format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlanFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// A diagram for Markdown.
    Mermaid,
    /// A diagram for Graphviz.
    Dot,
}

/// Prints the flow of the Workflow, with notes, warnings and the differences from the catalogues. Prints the problems
/// of an invalid file instead.
pub fn plan(options: &Plan) -> anyhow::Result<Exit> {
    let source = texts::read_one(&options.file).map_err(|why| Exit::Usage.because(why))?;
    let catalogues = options.catalogue.as_deref().map(read_catalogues).transpose()?;
    // The plan shows commands without starting them.
    let settings = Settings { allow_commands: true, ..Settings::default() };
    let read = match read_any(&source.text, &import::current_user()?, &settings) {
        Ok(read) => read,
        Err(problems) => {
            for problem in &problems {
                terminal::note(&report::shown(&source.name, &source.text, problem));
            }
            return Ok(Exit::Invalid);
        }
    };
    let flow = Flow::with_catalogues(&read.workflow, catalogues.as_ref().unwrap_or(&Catalogues::new()));
    terminal::print(&match options.format {
        PlanFormat::Text => flow.to_text(),
        PlanFormat::Json => sanitize::json(&flow)?,
        PlanFormat::Mermaid => flow.to_mermaid(),
        PlanFormat::Dot => flow.to_dot(),
    })?;
    read.notes.iter().for_each(|note| terminal::note(&note.to_string()));
    read.warnings.iter().for_each(|warning| terminal::note(&report::line(&source.name, warning)));
    for note in catalogues.iter().flat_map(|catalogues| find_differences(&read.workflow.spec, catalogues)) {
        terminal::note(&format!("warning: {}", one_line(&note, 600)));
    }
    Ok(Exit::Ok)
}

/// Returns the differences between the Workflow and the catalogues: tools that are missing or not offered, and pins of
/// other definitions.
fn find_differences(spec: &WorkflowSpec, catalogues: &Catalogues) -> Vec<String> {
    let mut notes = server_tools::misfits(spec, catalogues);
    for server in &spec.servers {
        let Some(catalogue) = catalogues.get(&server.name) else { continue };
        notes.extend(server_tools::changed_pins(server, catalogue));
        notes.extend(server_tools::left_out(&server.name, catalogue));
    }
    notes
}

/// Reads the catalogues of a file that `signoff tools --catalogue` has saved.
fn read_catalogues(file: &Path) -> anyhow::Result<Catalogues> {
    let name = texts::display_path(file);
    let text = texts::read_file(file).map_err(|why| Exit::Usage.because(format!("{name}: {why}")))?;
    serde_json::from_str(&text).map_err(|why| {
        let why = one_line(&why.to_string(), 600);
        Exit::Invalid.because(format!("{name} has no catalogues as `signoff tools --catalogue` saves them: {why}"))
    })
}
