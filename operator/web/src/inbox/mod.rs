//! `/`: what waits for the reader, grouped by run, most urgent first.
//!
//! It must not hide what it cannot list: it says which namespaces are looked at, and what cannot be read.

mod events;
mod fingerprint;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::PrivateCookieJar;
use serde::Deserialize;
use signoff_api::Moment;

use signoff_review::clock::distance;

use crate::{
    approval::model::turn_page,
    error::PageError,
    history::{self, Latest},
    live::{Feed, Row, Standing, UNREADABLE, Unreadable, Waiting, shown_name},
    page::{self, Instant, Shell},
    scope::is_namespace,
    session::{
        Caller, Places, cookie, now,
        places::{TYPED, TYPED_MOST, typed},
    },
    state::PageState,
};

pub use events::events;

/// The most requests on one page.
const PAGE: usize = 40;

/// Which part of a long list is shown.
#[derive(Deserialize)]
pub struct Part {
    #[serde(default)]
    page: usize,
}

#[derive(Template)]
#[template(path = "inbox.html")]
struct Inbox {
    shell: Shell,
    groups: Vec<Group>,
    decided: Vec<Line>,
    others: usize,
    /// The runs of the reader that wait for other people.
    own_runs: usize,
    asked: usize,
    /// What the list is compared with when something changes.
    version: String,
    /// What this version cannot read.
    unreadable: Vec<Unreadable>,
    shown_from: usize,
    shown_to: usize,
    next: Option<usize>,
    previous: Option<usize>,
    /// Whether the reader must name namespaces first.
    looks_nowhere: bool,
    /// The namespaces that are looked at, or `None` for all.
    namespaces: Option<Vec<String>>,
    typed: String,
    /// The last decision, where nothing waits.
    latest: Option<Latest>,
}

/// The requests of one run.
struct Group {
    namespace: String,
    workflow: String,
    requested_by: String,
    /// The turns of agents of which several calls are listed: the page of each, and the number of calls.
    turns: Vec<(String, usize)>,
    lines: Vec<Line>,
}

/// One request.
struct Line {
    row: Arc<Row>,
    deadline: Instant,
    left: String,
    urgency: &'static str,
    then: String,
    vote: String,
    own: Option<&'static str>,
}

/// Shows what waits.
///
/// # Errors
/// As every request.
pub async fn page(
    State(state): State<PageState>,
    caller: Caller,
    Places(places): Places,
    jar: PrivateCookieJar,
    Query(part): Query<Part>,
) -> Result<Response, PageError> {
    let feed = state.feeds.of(&caller, &places).await?;
    let mut inbox = inbox(&caller, &feed, &typed(&jar).join(", "), part.page);
    if inbox.asked == 0 && inbox.unreadable.is_empty() && !inbox.looks_nowhere {
        inbox.latest = history::latest(&caller, feed.namespaces.as_deref()).await;
    }
    Ok(page::html(&inbox))
}

fn inbox(caller: &Caller, feed: &Feed, typed: &str, part: usize) -> Inbox {
    let at = now();
    let asked = asked(feed);
    let all = feed.rows();
    let unreadable = feed.unreadable();
    let mut decided: Vec<_> =
        all.iter().filter(|one| matches!(one.standing, Standing::Decided(_))).map(|one| line(one, at)).collect();
    decided.sort_by_key(|line| line.row.deadline);
    decided.truncate(PAGE);
    let waits_for_others: Vec<_> = all.iter().filter(|one| one.standing == Standing::Other).collect();
    let (own, others): (Vec<_>, Vec<_>) =
        waits_for_others.into_iter().partition(|one| one.row.requested_by == shown_name(&caller.me.user));
    let own_runs = own.iter().map(|one| run(&one.row)).collect::<BTreeSet<_>>().len();
    let last = asked.len().saturating_sub(1) / PAGE;
    let part = part.min(last);
    let shown: Vec<_> = asked.iter().skip(part * PAGE).take(PAGE).collect();
    let (shown_from, shown_to) = (part * PAGE + 1, part * PAGE + shown.len());
    let mut shell = Shell::of(caller, "Inbox", "inbox");
    shell.waiting = Some(asked.len());
    shell.command = Some(if feed.namespaces.is_none() {
        "kubectl approve list --all-namespaces".to_owned()
    } else {
        "kubectl approve list".to_owned()
    });
    Inbox {
        shell,
        groups: groups(&shown, at),
        decided,
        others: others.len(),
        own_runs,
        asked: asked.len(),
        version: fingerprint::fingerprint(&asked, &unreadable),
        unreadable,
        shown_from,
        shown_to,
        next: (part < last).then_some(part + 1),
        previous: part.checked_sub(1),
        looks_nowhere: feed.namespaces.as_ref().is_some_and(Vec::is_empty),
        namespaces: feed.namespaces.clone(),
        typed: typed.to_owned(),
        latest: None,
    }
}

/// Returns what waits for the reader of a feed: the run with the nearest deadline first, and its requests together.
#[must_use]
pub fn asked(feed: &Feed) -> Vec<Waiting> {
    let at = now();
    let mut asked: Vec<_> =
        feed.rows().into_iter().filter(|one| one.standing == Standing::Asked && one.row.is_open(at)).collect();
    let mut nearest: BTreeMap<(String, String), Moment> = BTreeMap::new();
    for one in &asked {
        let nearest = nearest.entry(run(&one.row)).or_insert(one.row.deadline);
        *nearest = one.row.deadline.min(*nearest);
    }
    asked.sort_by_cached_key(|one| {
        (nearest.get(&run(&one.row)).copied(), run(&one.row), one.row.deadline, one.row.name.clone())
    });
    asked
}

fn run(row: &Row) -> (String, String) {
    (row.namespace.clone(), row.workflow.clone())
}

fn groups(asked: &[&Waiting], at: Moment) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for one in asked {
        let row = &one.row;
        match groups.last_mut().filter(|last| last.namespace == row.namespace && last.workflow == row.workflow) {
            Some(last) => last.lines.push(line(one, at)),
            None => groups.push(Group {
                namespace: row.namespace.clone(),
                workflow: row.workflow.clone(),
                requested_by: row.requested_by.clone(),
                turns: Vec::new(),
                lines: vec![line(one, at)],
            }),
        }
    }
    for group in &mut groups {
        group.turns = turns(group);
    }
    groups
}

fn turns(group: &Group) -> Vec<(String, usize)> {
    let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
    for turn in group.lines.iter().filter_map(|line| line.row.turn.as_deref()) {
        *calls.entry(turn).or_default() += 1;
    }
    let several = calls.into_iter().filter(|(_, count)| *count > 1);
    several.map(|(turn, count)| (turn_page(&group.namespace, turn), count)).collect()
}

fn line(one: &Waiting, at: Moment) -> Line {
    let row = &one.row;
    let left = row.deadline.since(at);
    let urgency = match left.as_secs() {
        _ if row.is_overdue || row.deadline <= at => "late",
        0..3600 => "soon",
        _ => "calm",
    };
    let own = match one.standing {
        Standing::Decided(verdict) => Some(verdict.name()),
        Standing::Asked | Standing::Other => None,
    };
    let vote = match (row.needed, own) {
        (_, Some(_)) => format!("{} of {} so far", row.have, row.needed),
        (1, _) if row.is_last() => "your decision is enough".to_owned(),
        (needed, _) if row.is_last() => format!("{} of {needed}: yours is the last", row.have),
        (needed, _) => format!("{} of {needed} so far", row.have),
    };
    let vote = if row.asks_again { format!("{vote}; asked again") } else { vote };
    Line {
        deadline: Instant::from(row.deadline),
        left: distance(row.deadline, at),
        urgency,
        then: if row.is_overdue {
            "now only Retry, Reject and Abort are accepted".to_owned()
        } else {
            format!("then {}", row.then)
        },
        vote,
        own,
        row: Arc::clone(row),
    }
}

/// Namespaces that a reader typed.
#[derive(Deserialize)]
pub struct TypedPlaces {
    namespaces: String,
}

/// Remembers the namespaces that a reader typed, in this browser.
///
/// # Errors
/// A text that is no list of namespaces.
pub async fn places(
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
