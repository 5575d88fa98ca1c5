//! `/`: the open requests in three tabs: requests that wait for the reader, requests of runs that the reader requested,
//! and requests that wait for others.
//!
//! feed of the reader *(I/O)* -> selected (`filter`) -> sorted, folded and split into pages (`list`) -> lines *(pure)*
//! -> template.
//!
//! **Invariant:** the page names the listed namespaces and the objects that cannot be read.

mod events;
mod filter;
mod fingerprint;
mod list;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use askama::Template;
use axum::{
    Form,
    extract::{RawQuery, State},
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::PrivateCookieJar;
use serde::Deserialize;
use signoff_api::{Moment, gate::GateType};
use signoff_review::clock;

use self::{
    filter::{InboxFilter, Sort, Tab},
    list::{Fold, MOST_FOLDED},
};
use crate::{
    approval::model::{path, turn_page},
    error::PageError,
    filter_form::FilterForm as _,
    history::{self, Latest},
    live::{Feed, Row, Standing, UNREADABLE, Unreadable, Waiting},
    page::{self, Instant, Shell},
    scope::is_namespace,
    session::{
        Caller, Places, cookie, now,
        places::{TYPED, TYPED_MOST, typed},
    },
    state::PageState,
};

pub use events::events;

/// The most requests in the list of requests that the reader has decided.
const MOST_DECIDED: usize = 40;

#[derive(Template)]
#[template(path = "inbox.html")]
struct Inbox {
    shell: Shell,
    filter: InboxFilter,
    tabs: Vec<TabLink>,
    groups: Vec<Group>,
    decided: Vec<InboxLine>,
    /// The number of requests that wait for others, and the address of their tab.
    others: usize,
    others_tab: String,
    /// The number of runs of the reader that wait for other people.
    own_runs: usize,
    asked: usize,
    /// The number of requests of this tab that the filter selects.
    found: usize,
    /// The fingerprint of this tab, which the browser compares with events, and its name in an event.
    version: String,
    version_name: &'static str,
    /// The Approvals that this version cannot read.
    unreadable: Vec<Unreadable>,
    shown_from: usize,
    shown_to: usize,
    next: Option<String>,
    previous: Option<String>,
    /// Whether no namespace is listed, so that the reader must name some first.
    looks_nowhere: bool,
    /// The listed namespaces, or `None` for all.
    namespaces: Option<Vec<String>>,
    typed: String,
    /// The last decision, if no request waits for the reader.
    latest: Option<Latest>,
}

/// A tab with the number of its requests.
struct TabLink {
    words: &'static str,
    count: usize,
    address: String,
    is_here: bool,
}

/// Requests that are listed together: one, or several of equal gates.
struct Group {
    first: InboxLine,
    folded: Vec<InboxLine>,
    /// The number of requests behind the first one.
    more: usize,
    /// The name of the gate.
    name: String,
    /// The address that lists all requests of the group, if the page has only some.
    all: Option<String>,
    /// The page that decides several requests of the group together.
    together: Option<TogetherLink>,
}

/// The requests of a group that the reader can decide together.
struct TogetherLink {
    /// The number of requests that the reader can decide, and the number that the page takes at once.
    all: usize,
    at_once: usize,
    address: String,
}

/// The line of one request.
struct InboxLine {
    row: Arc<Row>,
    path: String,
    /// The tool of a call, or the agent that asks.
    subject: Option<String>,
    asks: String,
    /// The deadline, as RFC 3339 and in words; and the time until then.
    deadline: String,
    due: String,
    left: String,
    urgency: &'static str,
    vote: String,
    own: Option<&'static str>,
    /// Whether the request can be decided together with others.
    can_join: bool,
    /// The page of the turn and the number of its calls, on the first line of several calls of one turn.
    turn: Option<(String, usize)>,
}

/// Shows the open requests.
///
/// # Errors
/// As every request.
pub async fn page(
    State(state): State<PageState>,
    caller: Caller,
    Places(places): Places,
    jar: PrivateCookieJar,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let (filter, part) = InboxFilter::read(&query.unwrap_or_default());
    let feed = state.feeds.complete_feed(&caller, &places).await?;
    let mut inbox = build_inbox(&caller, &feed, &typed(&jar).join(", "), filter, part);
    if inbox.is_done() {
        inbox.latest = history::find_latest(&caller, feed.namespaces.as_deref()).await;
    }
    Ok(page::html(&inbox))
}

/// Returns one page of the list of a tab, with the requests that the filter selects. `part`: the number of the page,
/// from 0.
fn build_inbox(caller: &Caller, feed: &Feed, typed: &str, filter: InboxFilter, part: usize) -> Inbox {
    let at = now();
    let asked = waiting_requests(feed);
    let all = feed.rows();
    let unreadable = feed.unreadable();
    let count = |tab: Tab| all.iter().filter(|waiting| tab.has(waiting, at)).count();
    let tab_link = |(tab, words, address)| TabLink { words, count: count(tab), address, is_here: tab == filter.tab };
    let tabs = filter.tabs().into_iter().map(tab_link).collect();
    let is_asked = filter.tab == Tab::Asked;
    let decided = if is_asked { decided_lines(&all, at) } else { Vec::new() };
    let others = count(Tab::Others);
    let own_runs = count_own_runs(&all, at);
    let (version, version_name) = if is_asked {
        (fingerprint::fingerprint(&asked, &unreadable), "version")
    } else {
        (fingerprint::fingerprint(&all, &unreadable), "all")
    };
    let mut found: Vec<_> = all.into_iter().filter(|waiting| !filter.is_wrong() && filter.takes(waiting, at)).collect();
    list::sort(&mut found, filter.order());
    let count_found = found.len();
    let is_of_one_gate = !filter.alike.is_empty();
    let folds =
        if is_of_one_gate { found.into_iter().map(|waiting| vec![waiting]).collect() } else { list::fold(found) };
    let pages = list::split_into_pages(folds);
    let last = pages.len().saturating_sub(1);
    let part = part.min(last);
    let requests = |page: &Vec<Fold>| page.iter().map(Vec::len).sum::<usize>();
    let before: usize = pages.iter().take(part).map(requests).sum();
    let shown_to = before + pages.get(part).map_or(0, requests);
    let shown = pages.into_iter().nth(part).unwrap_or_default();
    let mut shell = Shell::of(caller, "Inbox", "inbox");
    shell.waiting = Some(asked.len());
    shell.command = Some(if feed.namespaces.is_none() {
        "kubectl approve list --all-namespaces".to_owned()
    } else {
        "kubectl approve list".to_owned()
    });
    Inbox {
        shell,
        tabs,
        groups: build_groups(&shown, &filter, &asked, at),
        decided,
        others,
        others_tab: InboxFilter::whole(Tab::Others).address(0),
        own_runs,
        asked: asked.len(),
        found: count_found,
        version,
        version_name,
        unreadable,
        shown_from: before + 1,
        shown_to,
        next: (part < last).then(|| filter.address(part + 1)),
        previous: part.checked_sub(1).map(|part| filter.address(part)),
        looks_nowhere: feed.namespaces.as_ref().is_some_and(Vec::is_empty),
        namespaces: feed.namespaces.clone(),
        typed: typed.to_owned(),
        latest: None,
        filter,
    }
}

/// Returns the lines of the open requests that the reader has decided, by deadline.
fn decided_lines(all: &[Waiting], at: Moment) -> Vec<InboxLine> {
    let decided = all.iter().filter(|waiting| matches!(waiting.standing, Standing::Decided(_)));
    let mut lines: Vec<_> = decided.map(|waiting| inbox_line(waiting, at)).collect();
    lines.sort_by_key(|line| line.row.deadline);
    lines.truncate(MOST_DECIDED);
    lines
}

/// Returns the number of runs of the reader that wait for other people.
fn count_own_runs(all: &[Waiting], at: Moment) -> usize {
    let own = all.iter().filter(|waiting| waiting.is_mine && !Tab::Asked.has(waiting, at));
    own.map(|waiting| (&waiting.row.namespace, &waiting.row.workflow)).collect::<BTreeSet<_>>().len()
}

impl Inbox {
    /// Whether no request waits for the reader, the filter is empty, and every Approval could be read.
    fn is_done(&self) -> bool {
        let is_plain = self.filter.tab == Tab::Asked && self.filter.is_empty();
        is_plain && self.asked == 0 && self.unreadable.is_empty() && !self.looks_nowhere
    }
}

/// Returns the requests that wait for the reader of a feed: grouped by run, the run with the nearest deadline first.
#[must_use]
pub fn waiting_requests(feed: &Feed) -> Vec<Waiting> {
    let at = now();
    let mut asked: Vec<_> = feed.rows().into_iter().filter(|waiting| Tab::Asked.has(waiting, at)).collect();
    list::sort(&mut asked, Sort::Due);
    asked
}

/// Returns the requests that wait for the reader of a feed and whose gate equals the gate of a named request, as
/// namespaces and names: the most urgent first, and at most as many as can be decided together. If the named request
/// does not wait for the reader, returns it alone.
#[must_use]
pub fn requests_with_equal_gate(feed: &Feed, namespace: &str, name: &str) -> Vec<(String, String)> {
    let waiting = waiting_requests(feed);
    let is_named = |row: &Row| row.namespace == namespace && row.name == name;
    let Some(named) = waiting.iter().map(|other| &other.row).find(|row| is_named(row)) else {
        return vec![(namespace.to_owned(), name.to_owned())];
    };
    let equal = waiting.iter().map(|other| &other.row).filter(|row| row.alike == named.alike);
    equal.take(MOST_FOLDED).map(|row| (row.namespace.clone(), row.name.clone())).collect()
}

/// Returns the listed groups of requests. A line has the link to its turn if it is the first line of several calls of
/// the turn.
fn build_groups(folds: &[Fold], filter: &InboxFilter, asked: &[Waiting], at: Moment) -> Vec<Group> {
    let mut turns = count_calls_by_turn(folds);
    let mut groups = Vec::new();
    for fold in folds {
        let mut lines = fold.iter().take(MOST_FOLDED).map(|waiting| {
            let turn = waiting.row.turn.as_ref().and_then(|turn| turns.remove(turn)).filter(|(_, count)| *count > 1);
            InboxLine { turn, ..inbox_line(waiting, at) }
        });
        let Some(first) = lines.next() else { continue };
        let folded: Vec<_> = lines.collect();
        let is_cut = fold.len() > MOST_FOLDED;
        groups.push(Group {
            more: fold.len() - 1,
            name: list::gate_name(fold),
            all: is_cut.then(|| filter.address_of_gate(&first.row.alike)),
            together: together_link(fold, asked, at),
            first,
            folded,
        });
    }
    groups
}

/// Returns the link to the requests of a fold that the reader can decide together, or `None` for fewer than two. The
/// address names the first request if the fold has all waiting requests of the gate, and otherwise each request.
fn together_link(fold: &[Waiting], asked: &[Waiting], at: Moment) -> Option<TogetherLink> {
    let rows: Vec<_> = fold.iter().filter(|waiting| can_join(waiting, at)).map(|waiting| &waiting.row).collect();
    let first = rows.first().filter(|_| rows.len() > 1)?;
    let of_gate = asked.iter().filter(|waiting| waiting.row.alike == first.alike).count();
    let address = if of_gate == rows.len() {
        format!("/together?like={}/{}", first.namespace, first.name)
    } else {
        let names = rows.iter().take(MOST_FOLDED).map(|row| format!("a={}/{}", row.namespace, row.name));
        format!("/together?{}", names.collect::<Vec<_>>().join("&"))
    };
    Some(TogetherLink { all: rows.len(), at_once: rows.len().min(MOST_FOLDED), address })
}

/// Whether the reader can decide a request together with others. A question is answered on its own page.
fn can_join(waiting: &Waiting, at: Moment) -> bool {
    Tab::Asked.has(waiting, at) && waiting.row.type_ != GateType::Question
}

/// Returns the turns of the listed calls, each with its page and the number of its calls.
fn count_calls_by_turn(folds: &[Fold]) -> BTreeMap<String, (String, usize)> {
    let mut turns: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let shown = folds.iter().flat_map(|fold| fold.iter().take(MOST_FOLDED));
    for row in shown.filter(|waiting| waiting.standing == Standing::Asked).map(|waiting| &waiting.row) {
        if let Some(turn) = &row.turn {
            turns.entry(turn.clone()).or_insert_with(|| (turn_page(&row.namespace, turn), 0)).1 += 1;
        }
    }
    turns
}

/// Returns the words about the votes on a request, and about the vote of the reader.
fn describe_votes(waiting: &Waiting) -> String {
    let row = &waiting.row;
    let is_last = waiting.standing == Standing::Asked && row.is_last();
    let votes = match row.needed {
        1 if is_last => "your decision is enough".to_owned(),
        needed if is_last => format!("{} of {needed}: yours is the last", row.have),
        needed => format!("{} of {needed} so far", row.have),
    };
    if row.asks_again { format!("{votes}; asked again") } else { votes }
}

/// Returns the line of one request.
fn inbox_line(waiting: &Waiting, at: Moment) -> InboxLine {
    let row = &waiting.row;
    let left = row.deadline.since(at);
    let is_late = row.is_late(at);
    let urgency = match left.as_secs() {
        _ if is_late => "late",
        0..3600 => "soon",
        _ => "calm",
    };
    let own = match waiting.standing {
        Standing::Decided(verdict) => Some(verdict.name()),
        Standing::Asked | Standing::Other => None,
    };
    let subject = row.tool.clone().or_else(|| row.call.clone());
    let asks = row.arguments.as_ref().or(row.asks.as_ref()).unwrap_or(&row.prompt).clone();
    let (exact, distance) = (Instant::from(row.deadline), clock::distance(row.deadline, at));
    let due = if row.is_overdue {
        format!("{distance}; now only Retry, Reject and Abort are accepted")
    } else {
        format!("{distance}, {}; then {}", exact.shown, row.then)
    };
    InboxLine {
        path: path(&row.namespace, &row.name),
        subject,
        asks,
        deadline: exact.exact,
        due,
        left: if is_late { "late".to_owned() } else { clock::rounded(left) },
        urgency,
        vote: describe_votes(waiting),
        own,
        can_join: can_join(waiting, at),
        turn: None,
        row: Arc::clone(row),
    }
}

/// Namespaces that a reader typed.
#[derive(Deserialize)]
pub struct TypedPlaces {
    namespaces: String,
}

/// Stores the namespaces that a reader typed in a cookie of this browser.
///
/// # Errors
/// A text that is not a list of namespaces, or a list that is too long.
pub async fn store_namespaces(
    _caller: Caller,
    jar: PrivateCookieJar,
    Form(typed): Form<TypedPlaces>,
) -> Result<Response, PageError> {
    let names: Vec<&str> =
        typed.namespaces.split([',', ' ', '\n']).map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(wrong) = names.iter().find(|name| !is_namespace(name)) {
        return Err(PageError::Bad(format!(
            "{} is no namespace: names have lower-case letters, digits and hyphens, separated by commas",
            signoff_expr::text::display(wrong, 63)
        )));
    }
    if names.len() > TYPED_MOST {
        return Err(PageError::Bad(format!("{} namespaces are too many: name {TYPED_MOST} at most", names.len())));
    }
    Ok((jar.add(cookie::cookie(TYPED.to_owned(), names.join(","))), Redirect::to("/")).into_response())
}

#[cfg(test)]
mod tests;
