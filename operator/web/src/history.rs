//! `/history` and `/history.csv`: the outcomes of requests, with their deciders and times.
//!
//! **Invariant:** the history has only objects that the caller may list, and says if that is not all of them.

mod export;
mod filter;
mod read;
mod row;

use askama::Template;
use axum::{
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
};
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use kube::Client;
use signoff_api::{Approval, Moment};
use signoff_review::clock;

use self::{filter::Filter, read::Found, row::HistoryRow};
use crate::{
    error::PageError,
    filter_form::FilterForm as _,
    long_reads::{LONG_READS, LongReads},
    page::{self, Instant, Shell},
    scope::scope,
    session::{Caller, Places, TokenId, now},
    state::PageState,
};

/// The most rows on one page.
const ROWS_PER_PAGE: usize = 50;

#[derive(Template)]
#[template(path = "history.html")]
struct History {
    shell: Shell,
    filter: Filter,
    lines: Vec<HistoryLine>,
    all: usize,
    shown_from: usize,
    shown_to: usize,
    next: Option<String>,
    previous: Option<String>,
    /// The address of the same rows as CSV, if there are any.
    export: Option<String>,
    /// The number of Approvals that were read, if there are more.
    incomplete: Option<usize>,
    unreadable: Vec<String>,
    /// The listed namespaces, or `None` for all.
    namespaces: Option<Vec<String>>,
    is_filtered: bool,
}

struct HistoryLine {
    row: HistoryRow,
    at: Option<Instant>,
}

/// Shows the history.
///
/// # Errors
/// As every request.
pub async fn page(
    State(_): State<PageState>,
    caller: Caller,
    Places(places): Places,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let (filter, part) = Filter::read(&query.unwrap_or_default());
    let _place = LONG_READS.wait(&caller.token).await?;
    let (filter, found, namespaces) = select_rows(&caller.client, filter, &places).await?;
    Ok(page::html(&history_page(Shell::of(&caller, "History", "history"), filter, found, namespaces, part)))
}

/// Returns the history as a CSV file.
///
/// # Errors
/// A filter that cannot be read; and as every request.
pub async fn csv(
    State(_): State<PageState>,
    caller: Caller,
    Places(places): Places,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let (filter, _) = Filter::read(&query.unwrap_or_default());
    let _place = LONG_READS.wait(&caller.token).await?;
    let (filter, found, _) = select_rows(&caller.client, filter, &places).await?;
    if filter.is_wrong() {
        return Err(PageError::Bad("the filter cannot be read: see the history, which says what is wrong".to_owned()));
    }
    csv_response(&found, now())
}

/// Reads the rows that a filter selects. Returns the filter, the rows, and the listed namespaces unless the filter
/// names one. A filter with an error selects no rows, and a namespace that the caller must not list is such an error.
async fn select_rows(
    client: &Client,
    mut filter: Filter,
    places: &[String],
) -> Result<(Filter, Found, Option<Vec<String>>), PageError> {
    let named = [filter.namespace.text.clone()];
    let is_named = !filter.namespace.text.is_empty();
    let is_wrong = filter.is_wrong();
    let namespaces = scope::<Approval>(client, if is_named && !is_wrong { &named } else { places }).await?;
    if is_wrong {
        return Ok((filter, Found::default(), namespaces));
    }
    if is_named && namespaces.as_ref().is_some_and(Vec::is_empty) {
        filter.namespace.wrong = Some("you must not list the Approvals of this namespace".to_owned());
        return Ok((filter, Found::default(), None));
    }
    let narrowed = if is_named { Some(named.to_vec()) } else { namespaces.clone() };
    let found =
        read::read(client, narrowed.as_deref(), &filter.selector(), read::MOST, |row| filter.takes(row)).await?;
    Ok((filter, found, narrowed.filter(|_| !is_named)))
}

/// Returns the page with one part of the rows. `part`: the number of the part, from 0. A number above the last shows
/// the last part.
fn history_page(
    mut shell: Shell,
    filter: Filter,
    found: Found,
    namespaces: Option<Vec<String>>,
    part: usize,
) -> History {
    let all = found.rows.len();
    let last = all.saturating_sub(1) / ROWS_PER_PAGE;
    let part = part.min(last);
    let lines: Vec<_> =
        found.rows.into_iter().skip(part * ROWS_PER_PAGE).take(ROWS_PER_PAGE).map(HistoryLine::of).collect();
    shell.command = Some(match (&namespaces, filter.namespace.text.as_str()) {
        (_, namespace) if !namespace.is_empty() && filter.namespace.wrong.is_none() => {
            format!("kubectl approve list --all --namespace {namespace}")
        }
        (None, _) => "kubectl approve list --all --all-namespaces".to_owned(),
        (Some(_), _) => "kubectl approve list --all".to_owned(),
    });
    let query = filter.query().finish();
    let address_of = |page: usize| match query.as_str() {
        "" => format!("/history?page={page}"),
        query => format!("/history?{query}&page={page}"),
    };
    let export =
        (all > 0).then(|| if query.is_empty() { "/history.csv".to_owned() } else { format!("/history.csv?{query}") });
    History {
        shell,
        shown_from: part * ROWS_PER_PAGE + 1,
        shown_to: part * ROWS_PER_PAGE + lines.len(),
        lines,
        all,
        next: (part < last).then(|| address_of(part + 1)),
        previous: part.checked_sub(1).map(address_of),
        export,
        incomplete: found.has_more.then_some(found.read),
        unreadable: found.unreadable,
        namespaces,
        is_filtered: !filter.is_empty(),
        filter,
    }
}

impl HistoryLine {
    fn of(row: HistoryRow) -> Self {
        Self { at: row.at.map(instant_with_year), row }
    }
}

/// Returns an instant with its year, because histories can be older than a year.
fn instant_with_year(at: Moment) -> Instant {
    let instant = Instant::from(at);
    let shown = at.ceil_to_second().timestamp().strftime("%-d %b %Y, %H:%M UTC").to_string();
    Instant { shown, ..instant }
}

/// Returns the rows as a CSV file. The name of the file says if rows are missing.
fn csv_response(found: &Found, at: Moment) -> Result<Response, PageError> {
    let body = export::csv(&found.rows)
        .map_err(|error| PageError::Internal(format!("the history cannot be written as CSV: {error}")))?;
    let part = if found.has_more || !found.unreadable.is_empty() { "-incomplete" } else { "" };
    let name = format!("signoff-history-{}{part}.csv", at.timestamp().strftime("%Y-%m-%d"));
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8; header=present".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, body).into_response())
}

/// The last decision, for an inbox without requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// The time of the decision.
    pub at: Instant,
    /// The time since then: `12m ago`.
    pub ago: String,
    /// The outcome in a word: `Approved`.
    pub word: String,
    /// The namespace of the Approval.
    pub namespace: String,
    /// The name of the Approval.
    pub name: String,
    /// The name of the run's Workflow.
    pub workflow: String,
    /// The path of the gate in the run.
    pub gate: String,
}

/// Finds the last decision in namespaces that the caller may list. Returns `None` if there are more than 500 Approvals,
/// because lists are not sorted by time; and if they cannot be read now.
pub async fn find_latest(caller: &Caller, namespaces: Option<&[String]>) -> Option<Latest> {
    find_latest_in(&LONG_READS, &caller.token, &caller.client, namespaces).await
}

async fn find_latest_in(
    reads: &LongReads,
    token: &TokenId,
    client: &Client,
    namespaces: Option<&[String]>,
) -> Option<Latest> {
    let _place = reads.now(token)?;
    let selector = Filter::default().selector();
    let found = read::read(client, namespaces, &selector, read::PAGE, |row| row.at.is_some()).await;
    match found {
        Ok(found) if !found.has_more => last_of(&found, now()),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "the last decision is not known");
            None
        }
    }
}

fn last_of(found: &Found, now: Moment) -> Option<Latest> {
    let row = found.rows.first()?;
    let at = row.at?;
    Some(Latest {
        at: instant_with_year(at),
        ago: clock::distance(at.min(now), now),
        word: row.word(),
        namespace: row.namespace.clone(),
        name: row.name.clone(),
        workflow: row.workflow.clone(),
        gate: row.gate.clone(),
    })
}

#[cfg(test)]
pub(crate) mod tests;
