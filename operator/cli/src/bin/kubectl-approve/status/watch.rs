//! `status --watch`: watch events *(I/O)* -> run -> page *(pure)*, until the run ends.
//!
//! **Invariant:** only watch events lead to requests, and only for segments that are new.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watch_object, watcher},
    },
};
use signoff_api::{Approval, Workflow};
use signoff_cli::{sanitize::one_line, status::render, terminal::Screen};
use signoff_review::{clock, run, suggest::CallFlags};

use super::{
    fetch::{self, RunState, Segments},
    page_style, render_page,
};
use crate::{
    args::StatusArgs,
    cluster::{client::Session, watch_problem},
    error::Failure,
};

/// The interval at which a page in place is drawn again, without a request, because its times are relative.
const REDRAW: Duration = Duration::from_secs(1);

/// Prints the status at every change, in place on a terminal, until the run ends.
///
/// # Errors
/// The run is deleted, or the API server refuses a watch.
pub async fn watch(
    session: &Session,
    args: &StatusArgs,
    mut state: RunState,
    mut segments: Segments,
) -> Result<(), Failure> {
    let workflows = Api::<Workflow>::namespaced(session.raw().clone(), &session.namespace);
    let approvals = Api::<Approval>::namespaced(session.raw().clone(), &session.namespace);
    let of_run = watcher::Config::default().labels(&run::approvals(&state.workflow));
    let mut workflows = pin!(watch_object(workflows, &args.name).default_backoff());
    let mut approvals = pin!(watcher(approvals, of_run).default_backoff());
    let mut listed: BTreeMap<String, Approval> = BTreeMap::new();
    let mut redraw = tokio::time::interval(REDRAW);
    let mut screen = Screen::default();
    let uid = state.workflow.uid();
    draw(&mut screen, &state, &session.call, args)?;
    while !has_ended(&state) {
        let before = state.clone();
        tokio::select! {
            Some(event) = workflows.next() => match event {
                Ok(Some(mut workflow)) if workflow.uid() == uid => {
                    fetch::restore_segments(session, &mut workflow, &mut segments).await;
                    state.workflow = workflow;
                }
                Ok(_) => return Err(Failure::NotFound(format!("workflow {} was deleted", one_line(&args.name, 253)))),
                Err(error) => watch_problem::report(session, &error)?,
            },
            Some(event) = approvals.next() => match event {
                Ok(event) => {
                    if apply_event(&mut listed, event) {
                        state.approvals = listed.values().cloned().collect();
                    }
                }
                Err(error) => watch_problem::report(session, &error)?,
            },
            _ = redraw.tick(), if Screen::is_in_place() => {
                draw(&mut screen, &state, &session.call, args)?;
                continue;
            }
        }
        if is_changed(&before, &state, args) {
            draw(&mut screen, &state, &session.call, args)?;
        }
    }
    Ok(())
}

fn draw(screen: &mut Screen, state: &RunState, call: &CallFlags, args: &StatusArgs) -> Result<(), Failure> {
    let page = render_page(state, call, page_style(args));
    screen.redraw(&page).map_err(|error| Failure::Other(error.to_string()))
}

fn has_ended(state: &RunState) -> bool {
    state.workflow.status.as_ref().is_some_and(|status| status.phase.is_end())
}

/// Whether two states have different pages at the same time. Some writes change nothing on the page.
fn is_changed(before: &RunState, after: &RunState, args: &StatusArgs) -> bool {
    let now = clock::now();
    let page = |state: &RunState| render(&state.workflow, &state.approvals, now, page_style(args));
    before != after && page(before) != page(after)
}

/// Applies a watch event to the Approvals of the run. Returns whether they are complete and might have changed.
fn apply_event(listed: &mut BTreeMap<String, Approval>, event: Event<Approval>) -> bool {
    match event {
        Event::Init => {
            listed.clear();
            false
        }
        Event::InitApply(approval) => {
            listed.insert(approval.name_any(), approval);
            false
        }
        Event::InitDone => true,
        Event::Apply(approval) => {
            listed.insert(approval.name_any(), approval);
            true
        }
        Event::Delete(approval) => listed.remove(&approval.name_any()).is_some(),
    }
}
