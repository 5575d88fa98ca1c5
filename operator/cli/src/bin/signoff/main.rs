//! `signoff`: Workflows without a cluster.
//!
//! A command is a file of its own with its `Args` and one function; here stands only which there are.

mod answer;
mod exit;
mod explain;
mod import;
mod models;
mod plan;
mod run;
mod sessions;
mod texts;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use signoff_cli::terminal;

use crate::exit::Exit;

/// Run Workflows on this machine, with the same engine as on a cluster.
#[derive(Debug, Parser)]
#[command(name = "signoff", version, arg_required_else_help = true, after_help = exit::table())]
struct Arguments {
    /// The command.
    #[command(subcommand)]
    command: Command,
}

/// The command.
#[derive(Debug, Subcommand)]
enum Command {
    Explain(explain::Explain),
    Import(import::Import),
    Models(models::Models),
    Plan(plan::Plan),
    Run(Box<run::Arguments>),
    Sessions(sessions::Arguments),
    Validate(validate::Validate),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The first thing of all, or the first connection would not know which of two providers to take. Only a second call
    // could fail.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match obey(Arguments::parse().command).await {
        Ok(exit) => exit.into(),
        Err(error) => {
            terminal::note(&format!("error: {error:#}"));
            Exit::of(&error).into()
        }
    }
}

/// Each command returns how the process ends; an error says it in one sentence (`Exit::because`).
async fn obey(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Explain(options) => explain::explain(&options),
        Command::Import(options) => import::import(&options),
        Command::Models(options) => models::models(options).await,
        Command::Plan(options) => plan::plan(&options),
        Command::Run(options) => run::run(*options).await,
        Command::Sessions(options) => sessions::sessions(options).await,
        Command::Validate(options) => validate::validate(&options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
