//! `signoff`: Workflows without a cluster.
//!
//! Each command has a file of its own with its arguments and one function. This file only lists the commands.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "help texts of clap are not Markdown")]

mod answer;
mod exit;
mod explain;
mod import;
mod models;
mod plan;
mod run;
mod sessions;
mod texts;
mod tools;
mod validate;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use signoff_cli::{
    help::{Group, group_subcommands},
    terminal,
};

use crate::exit::Exit;

/// The groups of the subcommands, in the order of the help.
static GROUPS: [Group; 3] = [
    ("Write", &["validate", "plan", "explain", "import"]),
    ("Run", &["run", "sessions"]),
    ("Tools", &["models", "tools"]),
];

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
    Run(Box<run::RunArguments>),
    Sessions(sessions::SessionsArguments),
    Tools(tools::Tools),
    Validate(validate::Validate),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Two providers are linked, so one must be chosen before the first connection. Only a second call could fail.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let typed = Arguments::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    match run_command(typed.command).await {
        Ok(exit) => exit.into(),
        Err(error) => {
            terminal::note(&format!("error: {error:#}"));
            Exit::of(&error).into()
        }
    }
}

/// Returns the command line as users call it: its help lists the subcommands in groups.
fn command() -> clap::Command {
    group_subcommands(Arguments::command(), &GROUPS, "signoff COMMAND [OPTIONS]")
}

/// Runs the command, and returns the exit code. An error has its own exit code, by `Exit::because`.
async fn run_command(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Explain(options) => explain::explain(&options),
        Command::Import(options) => import::import(&options),
        Command::Models(options) => models::models(options).await,
        Command::Plan(options) => plan::plan(&options),
        Command::Run(options) => run::run(*options).await,
        Command::Sessions(options) => sessions::sessions(options).await,
        Command::Tools(options) => tools::tools(options).await,
        Command::Validate(options) => validate::validate(&options),
    }
}

#[cfg(test)]
#[path = "../../../../../tests/command_reference.rs"]
mod command_reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_matches_the_command_line() {
        let head = "`signoff`\n\nValidates, plans and runs Workflows on one machine.";
        command_reference::matches_page("signoff.md", head, Arguments::command());
    }

    #[test]
    fn the_command_line_is_valid_for_clap() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_help_lists_every_subcommand_once_in_its_group() {
        let mut known: Vec<_> =
            Arguments::command().get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        known.sort();
        listed.sort_unstable();
        assert_eq!(listed, known);
        let help = command().render_help().to_string();
        let parts = [
            "Usage: signoff COMMAND [OPTIONS]\n",
            "Write:\n  validate ",
            "Run:\n  run ",
            "Tools:\n  models ",
            "Options:\n",
            "Exit codes:\n",
        ];
        let starts: Vec<_> = parts.iter().map(|part| help.find(*part)).collect();
        assert!(starts.iter().all(Option::is_some) && starts.is_sorted(), "{starts:?}: {help}");
        assert_eq!((help.matches("\n  run ").count(), help.contains("Commands:")), (1, false), "{help}");
    }
}
