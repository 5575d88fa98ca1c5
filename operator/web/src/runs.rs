//! `/runs`: the runs that the reader may list, the reader's own first, each with the questions that it waits for.
//!
//! feed of the caller *(I/O)*, list as the caller *(I/O)* -> rows -> page of rows with the requests of the feed
//! *(pure)* -> template
//!
//! **Invariant:** the page has only runs and requests that the caller may list, and says if that is not all of them.

mod filter;
mod read;
mod row;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use signoff_api::{Moment, Workflow};
use signoff_review::clock;

use self::{
    filter::RunFilter,
    read::FoundRuns,
    row::{Reader, RunRow},
};
use crate::{
    error::PageError,
    filter_form::FilterForm as _,
    inbox,
    live::Row,
    long_reads::LONG_READS,
    page::{self, Instant, Shell},
    run::shapes,
    scope::scope,
    session::{Caller, Places, now},
    state::PageState,
};

/// The most rows on one page.
const ROWS_PER_PAGE: usize = 50;
/// The most requests in one row.
const MOST_REQUESTS: usize = 3;

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    shell: Shell,
    filter: RunFilter,
    lines: Vec<RunLine>,
    all: usize,
    shown_from: usize,
    shown_to: usize,
    next: Option<String>,
    previous: Option<String>,
    /// The number of Workflows that were read, if there are more.
    incomplete: Option<usize>,
    /// The listed namespaces, or `None` for all.
    namespaces: Option<Vec<String>>,
    is_filtered: bool,
}

struct RunLine {
    row: RunRow,
    tone: &'static str,
    created: Option<(Instant, String)>,
    asked: Vec<Question>,
    /// The number of requests that are left out.
    more: usize,
}

/// An open request of a run.
struct Question {
    row: Arc<Row>,
    since: Instant,
    ago: String,
}

/// Shows the runs.
///
/// # Errors
/// As every request.
pub async fn page(
    State(state): State<PageState>,
    caller: Caller,
    Places(places): Places,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let (filter, part) = RunFilter::read(&query.unwrap_or_default());
    let mut reader = Reader { user: caller.me.user.clone(), ..Reader::default() };
    // Without the requests the list still has the state of each run.
    let asked: Vec<_> = match state.feeds.complete_feed(&caller, &places).await {
        Ok(feed) => {
            let own = inbox::waiting_requests(&feed).into_iter();
            reader.asked = own.map(|one| (one.row.namespace.clone(), one.row.name.clone())).collect();
            feed.rows().into_iter().map(|one| one.row).collect()
        }
        Err(PageError::SignIn) => return Err(PageError::SignIn),
        Err(error) => {
            tracing::debug!(%error, "the requests of runs are not known");
            Vec::new()
        }
    };
    let (found, namespaces) = select_runs(&caller, &reader, &filter, &places).await?;
    Ok(page::html(&runs_page(Shell::of(&caller, "Runs", "runs"), filter, found, namespaces, &asked, part, now())))
}

/// Reads the runs that a filter selects. A filter with an error selects none.
async fn select_runs(
    caller: &Caller,
    reader: &Reader,
    filter: &RunFilter,
    places: &[String],
) -> Result<(FoundRuns, Option<Vec<String>>), PageError> {
    if filter.is_wrong() {
        return Ok((FoundRuns::default(), None));
    }
    let _place = LONG_READS.wait(&caller.token).await?;
    let named = [filter.namespace.text.clone()];
    let is_named = !filter.namespace.text.is_empty();
    let namespaces = scope::<Workflow>(&caller.client, if is_named { &named } else { places }).await?;
    if is_named && namespaces.as_ref().is_some_and(Vec::is_empty) {
        return Err(PageError::Refused("you may not list the Workflows of this namespace".to_owned()));
    }
    let narrowed = if is_named { Some(named.to_vec()) } else { namespaces };
    let takes = |row: &RunRow| filter.takes(row);
    let found = read::read(&caller.client, narrowed.as_deref(), &filter.selector(), reader, takes).await?;
    Ok((found, narrowed.filter(|_| !is_named)))
}

/// Returns the page with one part of the rows. `part`: its number, from 0; a greater one than the last shows the last.
fn runs_page(
    mut shell: Shell,
    filter: RunFilter,
    found: FoundRuns,
    namespaces: Option<Vec<String>>,
    asked: &[Arc<Row>],
    part: usize,
    at: Moment,
) -> RunsPage {
    let all = found.rows.len();
    let last = all.saturating_sub(1) / ROWS_PER_PAGE;
    let part = part.min(last);
    let shown = found.rows.into_iter().skip(part * ROWS_PER_PAGE).take(ROWS_PER_PAGE);
    let asked: ByName<'_> = asked.iter().map(|one| ((one.namespace.as_str(), one.name.as_str()), one)).collect();
    let lines: Vec<_> = shown.map(|row| RunLine::new(row, &asked, at)).collect();
    let everywhere = if namespaces.is_none() && filter.namespace.text.is_empty() { " --all-namespaces" } else { "" };
    shell.command = Some(format!("kubectl get workflows{everywhere}"));
    let query = filter.query().finish();
    let address_of = |page: usize| match query.as_str() {
        "" => format!("/runs?page={page}"),
        query => format!("/runs?{query}&page={page}"),
    };
    RunsPage {
        shell,
        shown_from: part * ROWS_PER_PAGE + 1,
        shown_to: part * ROWS_PER_PAGE + lines.len(),
        lines,
        all,
        next: (part < last).then(|| address_of(part + 1)),
        previous: part.checked_sub(1).map(address_of),
        incomplete: found.has_more.then_some(found.read),
        namespaces,
        is_filtered: !filter.is_empty(),
        filter,
    }
}

/// Open requests by namespace and name.
type ByName<'r> = BTreeMap<(&'r str, &'r str), &'r Arc<Row>>;

impl RunLine {
    fn new(row: RunRow, asked: &ByName<'_>, at: Moment) -> Self {
        let request = |name: &String| asked.get(&(row.namespace.as_str(), name.as_str())).copied().cloned();
        let mut own: Vec<Arc<Row>> = row.pending.iter().filter_map(request).collect();
        own.sort_by_key(|one| (one.deadline, one.name.clone()));
        own.dedup_by_key(|one| one.name.clone());
        let question = |one: &Arc<Row>| Question {
            since: Instant::from(one.since),
            ago: clock::distance(one.since.min(at), at),
            row: Arc::clone(one),
        };
        Self {
            tone: shapes::class(shapes::tone(row.phase)),
            created: row.created.map(|created| (Instant::from(created), clock::distance(created.min(at), at))),
            more: own.len().saturating_sub(MOST_REQUESTS),
            asked: own.iter().take(MOST_REQUESTS).map(question).collect(),
            row,
        }
    }
}
