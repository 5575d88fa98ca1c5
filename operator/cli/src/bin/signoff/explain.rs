//! `signoff explain`: what a field, a word or an exit code means.
//!
//! It must not look at any object or session.

use clap::Args;
use signoff_cli::terminal;
use signoff_expr::text::display;

use crate::exit::Exit;

/// Explain a field, a verdict, a phase, a condition, a reason, a problem or an exit code.
#[derive(Debug, Args)]
pub struct Explain {
    /// The name, such as workflow.spec.steps.hitl.timeout, hitl.timeout, Superseded or 19.
    name: String,
}

/// Prints what the name means, or what was perhaps meant.
pub fn explain(options: &Explain) -> anyhow::Result<Exit> {
    let code = options.name.parse::<u8>().ok();
    let text = match Exit::ALL.iter().find(|exit| Some(exit.code()) == code) {
        Some(exit) => format!("{} (exit code)\n  {}\n", exit.code(), exit.meaning()),
        None => {
            signoff_manifest::explain::explain(&options.name).map_err(|why| Exit::Usage.because(display(&why, 1024)))?
        }
    };
    terminal::print(&text)?;
    Ok(Exit::Ok)
}
