//! `status`: a run as a tree, once or at every change. Workflow, Approvals, segments *(I/O)* -> page *(pure)*.
//!
//! It must not change anything, and asks the API server again only for parts of a journal that it has not read.

pub mod fetch;
mod next;
mod watch;

use signoff_cli::{status::render, style::Style, terminal};

use crate::{args::StatusArgs, client::Session, clock, error::Failure, suggest::CallFlags};

use fetch::{RunState, Segments};

/// Prints the status of a run: once, or with `--watch` at every change until the run ends.
///
/// # Errors
/// As every request; and a run that is deleted while it is watched.
pub async fn status(session: &Session, args: &StatusArgs) -> Result<(), Failure> {
    let mut segments = Segments::default();
    let state = fetch::fetch(session, &args.name, &mut segments).await?;
    if args.watch {
        return watch::watch(session, args, state, segments).await;
    }
    let page = page(&state, &session.call, style(args));
    terminal::print(&page).map_err(|error| Failure::Other(error.to_string()))
}

fn style(args: &StatusArgs) -> Style {
    let style = terminal::style();
    if args.all { Style { fold_above: None, ..style } } else { style }
}

fn page(state: &RunState, call: &CallFlags, style: Style) -> String {
    let now = clock::now();
    render(&state.workflow, &state.approvals, now, style) + &next::next(state, call)
}
