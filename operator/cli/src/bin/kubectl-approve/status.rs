//! `status`: a run as a tree, once or at every change. Workflow, Approvals, segments *(I/O)* -> page *(pure)*.
//!
//! It must not change anything, and asks the API server again only for parts of a journal that it has not read.

pub mod fetch;
mod next;
mod watch;

use serde_json::{Value, json};
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
    let facts = facts(&state)?;
    let page = args.output.document(&facts)?.unwrap_or_else(|| page(&state, &session.call, style(args)));
    terminal::print(&page).map_err(|error| Failure::Other(error.to_string()))
}

/// Returns `{workflow, approvals}`: the run with its whole journal in `status.steps`, and the Approvals of its gates,
/// as they are stored.
fn facts(state: &RunState) -> Result<Value, Failure> {
    let mut state = state.clone();
    let metas = state.approvals.iter_mut().map(|approval| &mut approval.metadata);
    metas.chain([&mut state.workflow.metadata]).for_each(|meta| meta.managed_fields = None);
    let broken = |error: serde_json::Error| Failure::Other(error.to_string());
    let workflow = serde_json::to_value(&state.workflow).map_err(broken)?;
    let approvals = serde_json::to_value(&state.approvals).map_err(broken)?;
    Ok(json!({"workflow": workflow, "approvals": approvals}))
}

fn style(args: &StatusArgs) -> Style {
    let style = terminal::style();
    if args.all { Style { fold_above: None, ..style } } else { style }
}

fn page(state: &RunState, call: &CallFlags, style: Style) -> String {
    let now = clock::now();
    render(&state.workflow, &state.approvals, now, style) + &next::next(state, call)
}
