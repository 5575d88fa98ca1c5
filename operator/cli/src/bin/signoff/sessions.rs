//! `signoff sessions`: lists, shows and removes the runs that are stored on this machine.
//!
//! **Invariant:** only sessions that the command names are removed.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signoff_api::{Moment, Span, workflow::WorkflowPhase};
use signoff_cli::{
    sanitize::{self, one_line},
    status,
    style::Style,
    table::fit,
    terminal,
};
use signoff_local::{Error, Sessions, Snapshot};
use signoff_review::clock;

use crate::{
    exit::Exit,
    run::{Format, Place, failure, output, read_session},
};

/// The seconds of a day.
const SECONDS_PER_DAY: u64 = 86_400;

/// List, show and delete sessions, the runs on this machine.
#[derive(Args, Debug)]
pub struct SessionsArguments {
    /// The command.
    #[command(subcommand)]
    command: SessionsCommand,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List all sessions
    List(List),
    /// Show the state of a session, its pending gates and the commands that answer them
    Show(Show),
    /// Delete sessions
    Delete(Delete),
    /// Delete the sessions whose run has ended, without confirmation
    Cleanup(Cleanup),
}

/// The arguments of `list`.
#[derive(Args, Debug)]
struct List {
    /// List only sessions in this phase, such as waiting; can be given more than once
    #[arg(long, value_name = "PHASE", value_parser = parse_phase)]
    status: Vec<WorkflowPhase>,
    /// The output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    place: Place,
}

/// The arguments of `show`.
#[derive(Args, Debug)]
struct Show {
    /// The ID of the session
    id: String,
    /// Print every row of a long run
    #[arg(long)]
    all: bool,
    /// The output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write all decisions to this file, as JSON
    #[arg(long, value_name = "FILE")]
    export_hitl_history: Option<PathBuf>,
    /// Write the artifacts of the run below this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace existing files below --out
    #[arg(long, requires = "out")]
    force: bool,
    #[command(flatten)]
    place: Place,
}

/// The arguments of `delete`.
#[derive(Args, Debug)]
struct Delete {
    /// The IDs of the sessions
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    place: Place,
}

/// The arguments of `cleanup`.
#[derive(Args, Debug)]
struct Cleanup {
    /// Delete only sessions that did not change for this time, such as 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = parse_age)]
    older_than: Option<Duration>,
    /// Delete the sessions in this phase instead of those that have ended; can be given more than once
    #[arg(long, value_name = "PHASE", value_parser = parse_phase)]
    status: Vec<WorkflowPhase>,
    #[command(flatten)]
    place: Place,
}

/// Runs the chosen subcommand.
pub async fn sessions(options: SessionsArguments) -> anyhow::Result<Exit> {
    match options.command {
        SessionsCommand::List(options) => list(&options),
        SessionsCommand::Show(options) => show(&options).await,
        SessionsCommand::Delete(options) => delete(&options),
        SessionsCommand::Cleanup(options) => cleanup(&options),
    }
}

fn list(options: &List) -> anyhow::Result<Exit> {
    let sessions = Sessions::new(options.place.folder()?);
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    let mut exit = Exit::Ok;
    for id in sessions.ids().map_err(failure)? {
        match sessions.read(&id) {
            Ok(session) if options.status.is_empty() || options.status.contains(&phase_of(&session)) => {
                objects.push(session_facts(&session));
                rows.push(session_row(&session));
            }
            // The session has another phase, the folder is no session, or the session was just deleted.
            Ok(_) | Err(Error::Missing { .. }) => {}
            Err(why) => {
                // A damaged session does not hide the others.
                terminal::note(&format!("{id}: {}", one_line(&why.to_string(), 1000)));
                exit = Exit::Session;
            }
        }
    }
    let page = match options.format {
        Format::Json => sanitize::json(&objects)?,
        Format::Text if rows.is_empty() => "no sessions\n".to_owned(),
        Format::Text => {
            let headers = ["SESSION", "PHASE", "PENDING", "BEGAN", "REASON"];
            fit(&headers, rows, terminal::width(), &["BEGAN"])
        }
    };
    terminal::print(&page)?;
    Ok(exit)
}

fn session_row(session: &Snapshot) -> Vec<String> {
    let status = session.workflow.status.clone().unwrap_or_default();
    let pending: Vec<_> = output::open_gates(session).iter().map(|a| one_line(&a.spec.request.gate.path, 63)).collect();
    let began = status.started_at.map(|at| clock::distance(at, clock::now())).unwrap_or_default();
    // The column PENDING already shows why a run waits.
    let is_explained =
        matches!(status.phase, WorkflowPhase::Succeeded | WorkflowPhase::Running | WorkflowPhase::Waiting);
    let why = status.message.filter(|_| !is_explained).unwrap_or_default();
    vec![session.id.clone(), status.phase.name().to_owned(), pending.join(", "), began, one_line(&why, 80)]
}

fn session_facts(session: &Snapshot) -> Value {
    let status = session.workflow.status.clone().unwrap_or_default();
    json!({
        "session": session.id, "workflow": session.workflow.metadata.name, "phase": status.phase,
        "pending": output::open_gates(session).iter().map(|a| &a.spec.request.gate.path).collect::<Vec<_>>(),
        "startedAt": status.started_at, "finishedAt": status.finished_at, "message": status.message,
    })
}

async fn show(options: &Show) -> anyhow::Result<Exit> {
    let sessions = Sessions::new(options.place.folder()?);
    let session = read_session(&sessions, &options.id)?;
    if let Some(file) = &options.export_hitl_history {
        output::export_history(file, &session)?;
    }
    let place = options.place.named_folder();
    let artifacts = match &options.out {
        Some(out) => output::write_artifacts(&sessions, &session, place, Some(out), options.force).await?,
        None => Vec::new(),
    };
    let decider = whoami::username().context("finding out who asks")?;
    let report = output::RunReport {
        snapshot: &session,
        sessions: place,
        secrets: None,
        decider: &decider,
        artifacts: &artifacts,
    };
    let result = output::render_result(&sessions, &report, options.format).await?;
    let style = terminal::style();
    let style = if options.all { Style { fold_above: None, ..style } } else { style };
    let page = match options.format {
        Format::Json => result,
        Format::Text => {
            // Without a cluster the namespace has no meaning.
            let mut workflow = session.workflow.clone();
            workflow.metadata.namespace = None;
            let run = status::render(&workflow, &session.approvals, clock::now(), style);
            format!("{:<14}{}\n{run}\n{result}\n{}", "Session:", session.id, output::next_line(&report))
        }
    };
    terminal::print(&page)?;
    Ok(Exit::Ok)
}

fn delete(options: &Delete) -> anyhow::Result<Exit> {
    let sessions = Sessions::new(options.place.folder()?);
    for id in &options.ids {
        sessions.delete(id).map_err(failure)?;
        terminal::print(&format!("{id} removed\n"))?;
    }
    Ok(Exit::Ok)
}

fn cleanup(options: &Cleanup) -> anyhow::Result<Exit> {
    let sessions = Sessions::new(options.place.folder()?);
    let now = clock::now();
    let mut exit = Exit::Ok;
    for id in sessions.ids().map_err(failure)? {
        let removed = match sessions.read(&id) {
            Ok(session) if is_selected(&session, options, now) => sessions.delete(&id),
            Ok(_) | Err(Error::Missing { .. }) => continue,
            // An unreadable session might still be needed. `delete` deletes it by its ID.
            Err(why) => Err(why),
        };
        match removed {
            Ok(()) => terminal::print(&format!("{id} removed\n"))?,
            Err(why) => {
                terminal::note(&format!("{id} stays: {}", one_line(&why.to_string(), 1000)));
                exit = Exit::Session;
            }
        }
    }
    sessions.sweep().map_err(failure)?;
    Ok(exit)
}

fn is_selected(session: &Snapshot, options: &Cleanup, now: Moment) -> bool {
    let phase = phase_of(session);
    let has_phase = if options.status.is_empty() { phase.is_end() } else { options.status.contains(&phase) };
    let records = session.workflow.status.iter().flat_map(|status| &status.steps);
    let newest = records.map(|record| record.finished_at.unwrap_or(record.at)).max();
    let began = session.workflow.metadata.creation_timestamp.as_ref().map(|at| Moment::from(at.0));
    let last = newest.max(session.workflow.status.as_ref().and_then(|status| status.finished_at)).max(began);
    has_phase && options.older_than.is_none_or(|age| last.is_some_and(|last| now.since(last) >= age))
}

fn phase_of(session: &Snapshot) -> WorkflowPhase {
    session.workflow.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

fn parse_phase(typed: &str) -> Result<WorkflowPhase, String> {
    const ALL: [WorkflowPhase; 9] = [
        WorkflowPhase::Pending,
        WorkflowPhase::Running,
        WorkflowPhase::Waiting,
        WorkflowPhase::Suspended,
        WorkflowPhase::Succeeded,
        WorkflowPhase::Failed,
        WorkflowPhase::Rejected,
        WorkflowPhase::Aborted,
        WorkflowPhase::Cancelled,
    ];
    let found = ALL.into_iter().find(|phase| phase.name().eq_ignore_ascii_case(typed));
    found.ok_or_else(|| format!("no phase: use one of {}", ALL.map(WorkflowPhase::name).join(", ").to_lowercase()))
}

/// Parses a duration such as `90s` or `12h`, or a number of days, which durations of a Workflow do not have.
fn parse_age(typed: &str) -> Result<Duration, String> {
    if let Some(days) = typed.strip_suffix('d') {
        let days: u64 = days.parse().map_err(|_| "write a whole number of days, such as 7d".to_owned())?;
        return days.checked_mul(SECONDS_PER_DAY).map(Duration::from_secs).ok_or_else(|| "that is too long".to_owned());
    }
    typed.parse::<Span>().map(Span::duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_in_days_too() {
        assert_eq!(parse_age("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(parse_age("90s"), Ok(Duration::from_secs(90)));
        assert!(parse_age("soon").is_err() && parse_age("d").is_err());
    }

    #[test]
    fn a_phase_is_named_in_any_case() {
        assert_eq!(parse_phase("waiting"), Ok(WorkflowPhase::Waiting));
        assert!(parse_phase("paused").is_err_and(|why| why.contains("waiting")));
    }
}
