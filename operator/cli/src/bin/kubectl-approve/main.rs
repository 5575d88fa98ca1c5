//! `kubectl approve`: lists, shows and decides Approvals from a terminal.
//!
//! It must not be trusted by anybody: the API server checks every decision again, and the plugin has no rights but
//! its user's.

mod args;
mod client;
mod decide;
mod decision_report;
mod dialog;
mod doctor;
mod error;
mod impersonators;
mod list;
mod operator_status;
mod payload;
mod refusals;
#[cfg(test)]
mod sample;
mod show;
mod successor;
mod suggest;
mod wait;
mod whoami;
mod whole;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, error::ErrorKind};
use signoff_api::Verdict;
use signoff_cli::{clock, sanitize, table, terminal};

use crate::{
    args::{Arguments, Command, CommonArgs, DecisionArgs, Payload},
    client::Session,
    decision_report::Report,
    error::Failure,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The first thing of all, or the first connection would not know which of two providers to take. Only a second call
    // could fail.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::note(&format!("{error:#}"));
            ExitCode::from(error.downcast_ref::<Failure>().map_or(1, Failure::code))
        }
    }
}

async fn run(typed: Arguments) -> anyhow::Result<()> {
    refuse_mixtures(&typed);
    let session = Session::open(&typed.connection).await?;
    let text = match typed.command {
        Some(Command::List(options)) => list::list(&session, &options).await?,
        Some(Command::Show(options)) => show::show(&session, &options).await?,
        Some(Command::Doctor(options)) => {
            let found = doctor::doctor(&session, &options).await?;
            terminal::print(&found.page)?;
            return found.problem.map_or(Ok(()), |problem| Err(problem.into()));
        }
        Some(Command::Whoami) => whoami::whoami(&session).await?,
        Some(command) => match command.decision_args() {
            Some(args) => return finish(decide::decide(&session, &args).await?),
            None => String::new(),
        },
        None => {
            let name = typed.name.context("name an Approval")?;
            let args =
                DecisionArgs { name, verdict: Verdict::Approve, payload: Payload::Nothing, common: typed.common };
            return finish(decide::show_and_approve(&session, &args).await?);
        }
    };
    terminal::print(&text)?;
    Ok(())
}

/// Prints the line about a decision, and returns the failure that `--wait` makes of its outcome.
fn finish(report: Report) -> anyhow::Result<()> {
    terminal::print(&(report.line + "\n"))?;
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// A name or a flag of the bare form before a subcommand would be dropped in silence; ends the process with code 2.
fn refuse_mixtures(typed: &Arguments) {
    let problem = match (&typed.command, &typed.name) {
        (Some(_), Some(name)) => format!("write the name after the subcommand: {name}"),
        (Some(_), None) if typed.common != CommonArgs::default() => {
            "write --reason, --yes and the like after the subcommand".to_owned()
        }
        (None, None) => "name an Approval, or use a subcommand such as list".to_owned(),
        _ => return,
    };
    Arguments::command().error(ErrorKind::ArgumentConflict, problem).exit();
}
