//! `status`: a run as a tree, once or at every change: Workflow, Approvals, segments *(I/O)* -> page *(pure)*.
//!
//! A watch asks the API server only for the parts of a journal that it has not read.

mod facts;
pub mod fetch;
mod next;
mod watch;

use signoff_cli::{status::render, style::Style, terminal};
use signoff_review::{clock, suggest::CallFlags};

use crate::{args::StatusArgs, cluster::client::Session, error::Failure};

use fetch::{RunState, Segments};

/// Prints the status of a run: once, or with `--watch` at every change until the run ends.
///
/// # Errors
/// A request fails, or the run is deleted while it is watched. For programs, also a part of the journal that cannot be
/// read.
pub async fn status(session: &Session, args: &StatusArgs) -> Result<(), Failure> {
    if args.output.facts.is_some() {
        let document = args.output.render(&facts::fetch_facts(session, &args.name).await?)?;
        return terminal::print(&document.unwrap_or_default()).map_err(|error| Failure::Other(error.to_string()));
    }
    let mut segments = Segments::default();
    let state = fetch::fetch_run(session, &args.name, &mut segments).await?;
    if args.watch {
        return watch::watch(session, args, state, segments).await;
    }
    terminal::print(&render_page(&state, &session.call, page_style(args)))
        .map_err(|error| Failure::Other(error.to_string()))
}

fn page_style(args: &StatusArgs) -> Style {
    let style = terminal::style();
    if args.all { Style { fold_above: None, ..style } } else { style }
}

fn render_page(state: &RunState, call: &CallFlags, style: Style) -> String {
    let now = clock::now();
    render(&state.workflow, &state.approvals, now, style) + &next::next_commands(state, call)
}
