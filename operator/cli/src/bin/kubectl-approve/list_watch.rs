//! `list --watch`: the list again at every change of an Approval.
//!
//! It must not poll: the list is fetched again only after a watch event.

use futures::{FutureExt, StreamExt, stream::select_all};
use kube::{
    Api,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use signoff_api::Approval;
use signoff_cli::terminal::Screen;

use crate::{args::List, client::Session, error::Failure, list, terminal, watch_problem};

/// Prints the list at every change, in place on a terminal, until the process is ended.
///
/// # Errors
/// As every request of the list.
pub async fn watch(session: &Session, options: &List) -> Result<(), Failure> {
    // The list decides what is shown; which objects changed does not matter to it, so that metadata suffices.
    let client = session.raw().clone();
    let apis: Vec<Api<PartialObjectMeta<Approval>>> = if options.all_namespaces {
        vec![Api::all(client)]
    } else {
        session.namespaces.iter().map(|namespace| Api::namespaced(client.clone(), namespace)).collect()
    };
    let watches = apis.into_iter().map(|api| watcher(api, watcher::Config::default()).default_backoff().boxed());
    let mut events = select_all(watches);
    let mut screen = Screen::default();
    let mut shown = None;
    while let Some(event) = events.next().await {
        let mut is_changed = has_changed(event);
        // A list for many events that have arrived together.
        while let Some(Some(event)) = events.next().now_or_never() {
            is_changed |= has_changed(event);
        }
        if !is_changed {
            continue;
        }
        let page = list::page(session, options).await?;
        if shown.as_ref() == Some(&page) {
            continue;
        }
        match &page.note {
            // Pages of a terminal replace one another; a program that reads the output gets no words for an empty list.
            Some(note) if Screen::is_in_place() => screen.redraw(&format!("{note}\n")),
            Some(note) => {
                terminal::note(note);
                Ok(())
            }
            None => screen.redraw(&page.text),
        }
        .map_err(|error| Failure::Other(error.to_string()))?;
        shown = Some(page);
    }
    Ok(())
}

/// Whether a list differs after an event. Reports a watch that broke; it starts again by itself.
fn has_changed(event: Result<Event<PartialObjectMeta<Approval>>, watcher::Error>) -> bool {
    match event {
        Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => true,
        Ok(Event::Init | Event::InitApply(_)) => false,
        Err(error) => {
            watch_problem::report(&error);
            false
        }
    }
}
