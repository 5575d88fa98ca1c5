//! `kubectl approve`: lists, shows and decides Approvals from a terminal.
//!
//! **Invariant:** the plugin has no rights but its user's, and the API server checks every decision again.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "help texts of clap are not Markdown")]

mod args;
mod cluster;
mod completion;
mod decide;
mod doctor;
mod error;
mod list;
mod output;
mod runs;
mod show;
mod status;
mod web_page;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};
use signoff_cli::terminal;

use crate::{
    args::{Arguments, Command, CommonArgs, Named, Show, StatusArgs},
    cluster::{
        client::Session,
        names::{self, Short},
        version, whoami,
    },
    error::Failure,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Two providers are linked, so one must be chosen before the first connection. Only a second call could fail.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(candidates) = completion::answer(&words) {
        let _ = terminal::print(&candidates);
        return ExitCode::SUCCESS;
    }
    if completion::answer_shell(&words) {
        return ExitCode::SUCCESS;
    }
    match run(parse_arguments(&words)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The text of a `Failure` already has a prefix.
            let prefix = if error.is::<Failure>() { "" } else { "error: " };
            terminal::note(&format!("{prefix}{error:#}"));
            ExitCode::from(error.downcast_ref::<Failure>().map_or(1, Failure::code))
        }
    }
}

/// Parses the command line. An invalid command line ends the process, with a suggestion for a mistyped subcommand.
fn parse_arguments(words: &[OsString]) -> Arguments {
    let matches = args::command().try_get_matches_from(words);
    let typed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    typed.unwrap_or_else(|error| match args::mistyped_message(words, &error) {
        Some(problem) => args::command().error(ErrorKind::InvalidSubcommand, problem).exit(),
        None => error.exit(),
    })
}

async fn run(typed: Arguments) -> anyhow::Result<()> {
    refuse_mixtures(&typed);
    if let Some(Command::Completion(options)) = &typed.command {
        return Ok(terminal::print(&completion::render_script(options.shell)?)?);
    }
    let session = Session::open(&typed.connection).await?;
    if let Some((verb, names, yes)) = typed.command.as_ref().and_then(Command::run_verb) {
        let backup = typed.command.as_ref().and_then(Command::backup);
        return match runs::run(&session, verb, names, yes, backup).await {
            Ok(()) => Ok(()),
            Err(failure) => Err(names::explain_run(&session, names, failure).await.into()),
        };
    }
    let text = match typed.command {
        Some(Command::List(options)) if options.web.web.is_some() => {
            let path = match &options.run {
                Some(run) => web_page::page_path(&session, 'w', run)?,
                None => web_page::inbox_path(&typed.connection.namespace)?,
            };
            web_page::open(&options.web, &path)?
        }
        Some(Command::Status(args)) if args.web.web.is_some() => {
            web_page::open(&args.web, &web_page::page_path(&session, 'w', &args.name)?)?
        }
        Some(Command::List(options)) if options.watch => return Ok(list::watch::watch(&session, &options).await?),
        Some(Command::Status(args)) => return print_status(&session, &args).await,
        Some(Command::List(options)) => list::list(&session, &options).await?,
        Some(Command::Show(options)) => show_approval(&session, options).await?,
        Some(Command::Doctor(mut options)) => {
            if let Some(Named::Approval(name)) = &mut options.name {
                *name = names::expand(&session, name, Short::Everywhere).await?;
            }
            let report = doctor::doctor(&session, &options, !typed.connection.namespace.is_empty()).await;
            terminal::print(&options.output.render(&report.facts())?.unwrap_or_else(|| report.page.clone()))?;
            return report.problem.map_or(Ok(()), |problem| Err(problem.into()));
        }
        Some(Command::Whoami(options)) => whoami::whoami(&session, &options.output).await?,
        Some(Command::Version(output)) => version::version(&session, output).await?,
        Some(command) => return decide::decide_all(&session, command.decisions()).await,
        None => {
            let hint = typed.name.as_deref().map(args::did_you_mean).unwrap_or_default();
            return decide::choose_and_approve(session, typed.name, typed.common)
                .await
                .map_err(|error| with_hint(error, &hint));
        }
    };
    terminal::print(&text)?;
    Ok(())
}

/// Prints the status of a run. The failure that there is no such run suggests a similar name.
async fn print_status(session: &Session, args: &StatusArgs) -> anyhow::Result<()> {
    match status::status(session, args).await {
        Ok(()) => Ok(()),
        Err(failure) => Err(names::explain_run(session, std::slice::from_ref(&args.name), failure).await.into()),
    }
}

/// Returns the page of an Approval. With `--web`, opens its page of the inbox and returns the address.
async fn show_approval(session: &Session, mut options: Show) -> anyhow::Result<String> {
    options.name = names::expand(session, &options.name, Short::Everywhere).await?;
    if options.web.web.is_some() {
        let path = web_page::page_path(session, 'a', &options.name)?;
        return Ok(web_page::open(&options.web, &path)?);
    }
    match show::show(session, &options).await {
        Ok(page) => Ok(page),
        Err(failure) => Err(names::explain(session, &options.name, failure).await.into()),
    }
}

/// Adds a hint to the failure that an object does not exist. Returns any other failure unchanged.
fn with_hint(error: anyhow::Error, hint: &str) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(Failure::NotFound(why)) => Failure::NotFound(why + hint).into(),
        Ok(other) => other.into(),
        Err(error) => error,
    }
}

/// Ends the process with code 2 if the arguments do not go together: a name or an option before a subcommand that would
/// ignore it, no name where no question can be asked, or several namespaces for a command other than `list`.
fn refuse_mixtures(typed: &Arguments) {
    let problem = match (&typed.command, &typed.name) {
        (Some(_), Some(name)) => format!("write the name after the subcommand: {name}"),
        (Some(_), None) if typed.common != CommonArgs::default() => {
            "write --reason, --yes and the like after the subcommand".to_owned()
        }
        (Some(Command::List(_)), None) => return,
        (None, None) if !terminal::can_ask() => "name an Approval, or use a subcommand such as list".to_owned(),
        (None, None) => return,
        _ if typed.connection.namespace.len() > 1 => "only list takes several namespaces: write one -n".to_owned(),
        _ => return,
    };
    Arguments::command().error(ErrorKind::ArgumentConflict, problem).exit();
}
