//! `list --watch`: prints the list again after every change.
//!
//! **Invariant:** the list is fetched again only after a watch event, at most once a second, and after a fetch that
//! failed.

use std::time::Duration;

use futures::{StreamExt, stream::select_all};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{
    Api,
    api::PostParams,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use signoff_api::Approval;
use signoff_cli::terminal::{self, Screen};
use tokio::time::{Instant, sleep_until};

use super::{ListPage, fetch_page};
use crate::{
    args::List,
    cluster::{client::Session, watch_problem},
    error::Failure,
};

/// The least time between two fetches of the list.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest pause after failed fetches.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);

/// The times at which the list is fetched.
#[derive(Debug)]
struct Pace {
    /// Whether the list might have changed since the last fetch.
    is_due: bool,
    /// The earliest time of the next fetch.
    not_before: Instant,
    /// The pause after the next failed fetch.
    pause: Duration,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { is_due: false, not_before: now, pause: INTERVAL }
    }

    fn on_change(&mut self) {
        self.is_due = true;
    }

    fn on_fetched(&mut self, now: Instant) {
        *self = Self { not_before: now + INTERVAL, ..Self::new(now) };
    }

    /// Postpones the next fetch, each time by a longer pause. The fetch stays due without another change.
    fn on_failed(&mut self, now: Instant) {
        self.not_before = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Prints the list at every change, in place on a terminal, until the process is ended.
///
/// # Errors
/// The API server refuses the list or a watch.
pub async fn watch(session: &Session, options: &List) -> Result<(), Failure> {
    // Events only trigger a fetch of the list, so their metadata suffices.
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
    let mut pace = Pace::new(Instant::now());
    loop {
        tokio::select! {
            event = events.next() => match event.map(|event| has_changed(session, event)) {
                Some(Ok(true)) => pace.on_change(),
                Some(Ok(false)) => {}
                Some(Err(refusal)) => {
                    // The refusal of the list is better, because it says how to name namespaces.
                    fetch_page(session, options).await?;
                    return Err(refusal);
                }
                None => return Ok(()),
            },
            () = sleep_until(pace.not_before), if pace.is_due => match fetch_page(session, options).await {
                Ok(page) => {
                    pace.on_fetched(Instant::now());
                    if shown.as_ref() != Some(&page) {
                        print_page(&mut screen, &page)?;
                        shown = Some(page);
                    }
                }
                Err(failure) if is_transient(&failure) && !is_logged_out(session).await => {
                    pace.on_failed(Instant::now());
                    terminal::note(&failure.to_string());
                }
                Err(failure) => return Err(failure),
            },
        }
    }
}

/// Prints a page of the list, or the note of an empty list.
fn print_page(screen: &mut Screen, page: &ListPage) -> Result<(), Failure> {
    match &page.note {
        // On a terminal the page is replaced by the note. A program that reads standard output gets no line for an
        // empty list.
        Some(note) if Screen::is_in_place() => screen.redraw(&format!("{note}\n")),
        Some(note) => {
            terminal::note(note);
            Ok(())
        }
        None if Screen::is_in_place() => {
            let notices: String = page.notices.iter().map(|notice| format!("{notice}\n")).collect();
            screen.redraw(&(notices + &page.text))
        }
        None => {
            page.notices.iter().for_each(|notice| terminal::note(notice));
            screen.redraw(&page.text)
        }
    }
    .map_err(|error| Failure::Other(error.to_string()))
}

/// Whether a failed fetch can succeed later: there was no connection, or the API server had an error.
fn is_transient(failure: &Failure) -> bool {
    matches!(failure, Failure::Other(_))
}

/// Whether the API server no longer knows the user. The failure of a fetch does not distinguish that from a temporary
/// error.
async fn is_logged_out(session: &Session) -> bool {
    let reviews = Api::<SelfSubjectReview>::all(session.raw().clone());
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 401)
}

/// Whether the list might have changed after an event. Prints a note about an error of the watch, which starts again.
///
/// # Errors
/// The API server refuses the watch.
fn has_changed(
    session: &Session,
    event: Result<Event<PartialObjectMeta<Approval>>, watcher::Error>,
) -> Result<bool, Failure> {
    match event {
        Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => Ok(true),
        Ok(Event::Init | Event::InitApply(_)) => Ok(false),
        Err(error) => watch_problem::report(session, &error).map(|()| false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_fetched_at_most_once_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert!(!pace.is_due, "nothing has changed");
        pace.on_change();
        assert!(pace.is_due && pace.not_before == start, "the first fetch is at once");
        pace.on_fetched(start);
        pace.on_change();
        pace.on_change();
        assert!(pace.is_due && pace.not_before == start + INTERVAL);
        pace.on_fetched(start + INTERVAL);
        assert!(!pace.is_due, "one fetch for both changes");
    }

    #[test]
    fn a_fetch_that_failed_is_repeated_after_longer_and_longer_pauses() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.on_change();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pace.on_failed(start);
            assert!(pace.is_due);
            pauses.push((pace.not_before - start).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 32]);
        pace.on_fetched(start);
        assert_eq!((pace.is_due, pace.pause), (false, INTERVAL));
    }

    #[test]
    fn a_refusal_ends_the_watch_and_a_server_that_cannot_answer_does_not() {
        assert!(is_transient(&Failure::Other("cannot reach the API server".into())));
        for failure in
            [Failure::Refused(String::new()), Failure::NotFound(String::new()), Failure::Usage(String::new())]
        {
            assert!(!is_transient(&failure), "{failure:?}");
        }
    }
}
