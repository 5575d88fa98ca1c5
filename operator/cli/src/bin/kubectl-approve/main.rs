//! `kubectl approve`: lists, shows and decides Approvals from a terminal.
//!
//! It must not be trusted by anybody: the API server checks every decision again, and the plugin has no rights but
//! its user's.

mod args;
mod backup;
mod client;
mod completion;
mod decide;
mod deciders;
mod decision_report;
mod dialog;
mod doctor;
mod edit;
mod error;
mod exit;
mod impersonators;
mod jsonpath;
mod list;
mod list_watch;
mod names;
mod notify;
mod operator_status;
mod output;
mod payload;
mod picker;
mod rbac;
mod refusals;
mod run_verbs;
mod show;
mod status;
mod successor;
mod turn;
mod upgrade;
mod version;
mod wait;
mod waiting;
mod watch_problem;
mod web_page;
mod whoami;
mod whole;
mod wrap;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};
use futures::{FutureExt, StreamExt, stream::FuturesOrdered};
use signoff_api::Verdict;
use signoff_cli::{encoding, sanitize, table, terminal};
#[cfg(test)]
use signoff_review::sample;
use signoff_review::{clock, suggest};

use crate::{
    args::{Arguments, Command, CommonArgs, DecisionArgs, Named, Payload},
    client::Session,
    decide::Sent,
    decision_report::Report,
    error::Failure,
    names::Short,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The first thing of all, or the first connection would not know which of two providers to take. Only a second call
    // could fail.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(candidates) = completion::answer(&words) {
        let _ = terminal::print(&candidates);
        return ExitCode::SUCCESS;
    }
    if completion::answer_shell(&words) {
        return ExitCode::SUCCESS;
    }
    match run(parsed(&words)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A failure has its prefix already.
            let prefix = if error.is::<Failure>() { "" } else { "error: " };
            terminal::note(&format!("{prefix}{error:#}"));
            ExitCode::from(error.downcast_ref::<Failure>().map_or(1, Failure::code))
        }
    }
}

/// Parses the command line. One that is invalid ends the process, with the subcommand that was perhaps meant.
fn parsed(words: &[OsString]) -> Arguments {
    let matches = args::command().try_get_matches_from(words);
    let typed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    typed.unwrap_or_else(|error| match args::mistyped(words, &error) {
        Some(problem) => args::command().error(ErrorKind::InvalidSubcommand, problem).exit(),
        None => error.exit(),
    })
}

async fn run(typed: Arguments) -> anyhow::Result<()> {
    refuse_mixtures(&typed);
    if let Some(Command::Completion(options)) = &typed.command {
        return Ok(terminal::print(&completion::script(options.shell)?)?);
    }
    let session = Session::open(&typed.connection).await?;
    if let Some((verb, names, yes)) = typed.command.as_ref().and_then(Command::run_verb) {
        let backup = typed.command.as_ref().and_then(Command::backup);
        return match run_verbs::run(&session, verb, names, yes, backup).await {
            Ok(()) => Ok(()),
            Err(failure) => Err(names::explained_run(&session, names, failure).await.into()),
        };
    }
    let text = match typed.command {
        Some(Command::List(options)) if options.web.web.is_some() => {
            let path = match &options.run {
                Some(run) => web_page::path(&session, 'w', run)?,
                None => web_page::inbox(&typed.connection.namespace)?,
            };
            web_page::open(&options.web, &path)?
        }
        Some(Command::Status(args)) if args.web.web.is_some() => {
            web_page::open(&args.web, &web_page::path(&session, 'w', &args.name)?)?
        }
        Some(Command::List(options)) if options.watch => return Ok(list_watch::watch(&session, &options).await?),
        Some(Command::Status(args)) => {
            return match status::status(&session, &args).await {
                Ok(()) => Ok(()),
                Err(failure) => {
                    Err(names::explained_run(&session, std::slice::from_ref(&args.name), failure).await.into())
                }
            };
        }
        Some(Command::List(options)) => list::list(&session, &options).await?,
        Some(Command::Show(mut options)) => {
            options.name = names::full(&session, &options.name, Short::Everywhere).await?;
            if options.web.web.is_some() {
                let path = web_page::path(&session, 'a', &options.name)?;
                terminal::print(&web_page::open(&options.web, &path)?)?;
                return Ok(());
            }
            match show::show(&session, &options).await {
                Ok(page) => page,
                Err(failure) => return Err(names::explained(&session, &options.name, failure).await.into()),
            }
        }
        Some(Command::Doctor(mut options)) => {
            if let Some(Named::Approval(name)) = &mut options.name {
                *name = names::full(&session, name, Short::Everywhere).await?;
            }
            let found = doctor::doctor(&session, &options, !typed.connection.namespace.is_empty()).await;
            terminal::print(&options.output.document(&found.facts())?.unwrap_or_else(|| found.page.clone()))?;
            return found.problem.map_or(Ok(()), |problem| Err(problem.into()));
        }
        Some(Command::Whoami(options)) => whoami::whoami(&session, &options.output).await?,
        Some(Command::Version(output)) => version::version(&session, output).await?,
        Some(command) => return decide_all(&session, command.decisions()).await,
        None => {
            let hint = typed.name.as_deref().map(args::did_you_mean).unwrap_or_default();
            return bare(session, typed.name, typed.common).await.map_err(|error| with_hint(error, &hint));
        }
    };
    terminal::print(&text)?;
    Ok(())
}

/// Adds a hint to the failure that an object does not exist; any other failure stays.
fn with_hint(error: anyhow::Error, hint: &str) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(Failure::NotFound(why)) => Failure::NotFound(why + hint).into(),
        Ok(other) => other.into(),
        Err(error) => error,
    }
}

/// `kubectl approve [NAME]`: shows the Approval that was named or chosen, asks, and approves it.
async fn bare(mut session: Session, name: Option<String>, common: CommonArgs) -> anyhow::Result<()> {
    let name = match name {
        Some(name) => names::full(&session, &name, Short::ToDecide { yes: common.yes }).await?,
        None => {
            let Some(chosen) = picker::pick(&session).await? else { return Ok(()) };
            let metadata = chosen.approval.metadata;
            session.namespace = metadata.namespace.unwrap_or_default();
            metadata.name.unwrap_or_default()
        }
    };
    let args = DecisionArgs { name, verdict: Verdict::Approve, payload: Payload::Nothing, common };
    if args.common.turn {
        return decide_turn(&session, args).await;
    }
    match decide::show_and_approve(&session, &args).await {
        Ok(sent) => finish(sent.report(&session).await),
        Err(failure) => Err(names::explained(&session, &args.name, failure).await.into()),
    }
}

/// Records each decision on its own: one that fails does not keep the others from being recorded. With `--wait` all are
/// recorded before the first wait, and the waits run at the same time.
async fn decide_all(session: &Session, all: Vec<DecisionArgs>) -> anyhow::Result<()> {
    let (of, mut failures) = (all.len(), Vec::new());
    let mut waits = FuturesOrdered::new();
    if let Some(args) = all.iter().find(|args| args.common.turn) {
        let [_] = all[..] else {
            return Err(Failure::Usage("--turn takes one NAME: it decides the calls of its turn".to_owned()).into());
        };
        return decide_turn(session, args.clone()).await;
    }
    for (at, args) in all.into_iter().enumerate() {
        let waits_for_outcome = args.common.wait.is_some();
        match decide_one(session, args).await {
            Ok(sent) if of == 1 => return finish(sent.report(session).await),
            Ok(sent) if waits_for_outcome => {
                // A user who interrupts the command knows what is recorded.
                if let Some(line) = sent.recorded() {
                    terminal::note(&line);
                }
                waits.push_back(sent.report(session).map(move |report| (at, report)));
            }
            Ok(sent) => failures.extend(print_report(sent.report(session).await)?.map(|failure| (at, failure))),
            Err(failure) if of == 1 => return Err(failure.into()),
            Err(failure) => {
                terminal::note(&failure.to_string());
                failures.push((at, failure));
            }
        }
    }
    conclude(waits, failures, of).await
}

/// Records the decisions about the calls of a turn, and waits for their effects at the same time.
async fn decide_turn(session: &Session, mut args: DecisionArgs) -> anyhow::Result<()> {
    args.name = names::full(session, &args.name, Short::ToDecide { yes: args.common.yes }).await?;
    let outcomes = match turn::decide(session, &args).await {
        Ok(outcomes) => outcomes,
        Err(failure) => return Err(names::explained(session, &args.name, failure).await.into()),
    };
    let (of, mut failures) = (outcomes.len(), Vec::new());
    let mut waits = FuturesOrdered::new();
    for (at, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(sent) => {
                let line = sent.recorded().filter(|_| args.common.wait.is_some());
                line.iter().for_each(|line| terminal::note(line));
                waits.push_back(sent.report(session).map(move |report| (at, report)));
            }
            Err(failure) => failures.push((at, failure)),
        }
    }
    conclude(waits, failures, of).await
}

/// Prints the reports of decisions as they end, and returns the failure of all of them.
async fn conclude(
    mut waits: FuturesOrdered<impl Future<Output = (usize, Report)>>,
    mut failures: Vec<(usize, Failure)>,
    of: usize,
) -> anyhow::Result<()> {
    while let Some((at, report)) = waits.next().await {
        failures.extend(print_report(report)?.map(|failure| (at, failure)));
    }
    // The code is that of the first name that failed, whenever it did.
    match failures.iter().min_by_key(|(at, _)| *at) {
        None => Ok(()),
        Some((_, first)) => Err(Failure::Several { failed: failures.len(), of, code: first.code() }.into()),
    }
}

async fn decide_one(session: &Session, mut args: DecisionArgs) -> Result<Sent, Failure> {
    args.name = names::full(session, &args.name, Short::ToDecide { yes: args.common.yes }).await?;
    let sent = if args.payload == Payload::Edited {
        edit::edit_and_decide(session, args.clone()).await
    } else {
        decide::decide(session, &args).await
    };
    match sent {
        Err(failure) => Err(names::explained(session, &args.name, failure).await),
        sent => sent,
    }
}

/// Prints the line about one of several decisions, and its failure, which it returns.
fn print_report(report: Report) -> anyhow::Result<Option<Failure>> {
    terminal::print(&report.text())?;
    if let Some(failure) = &report.failure {
        terminal::note(&failure.to_string());
    }
    Ok(report.failure)
}

/// Prints the line about a decision, and returns the failure that `--wait` makes of its outcome.
fn finish(report: Report) -> anyhow::Result<()> {
    terminal::print(&report.text())?;
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// A name or a flag of the bare form before a subcommand would be dropped in silence; ends the process with code 2.
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
