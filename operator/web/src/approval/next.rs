//! The next request of a reader who has decided: another request that waits for the same reader. The browser is
//! redirected to its page, which shows the effect of the decision.
//!
//! The live rows of the reader are searched first. If there are none, the pending requests of the run are read, then
//! one list of open requests of the namespace. After an error there is no next request.
//!
//! **Invariant:** the address has only the name of the decided request. The verdict, and whether it counts, are read
//! from its Approval.

use std::time::Duration;

use http::HeaderMap;
use kube::api::ListParams;
use signoff_api::{Approval, Moment, names};
use signoff_engine::approval::eligibility::ineligible;
use signoff_review::{
    action::authors_words,
    alike, decisions,
    seen::{Seen, still_open},
    state::{DecisionState, Waited},
    text::one_line,
};
use tokio::time::timeout;
use url::form_urlencoded;

use super::{
    model::{DecidedBefore, RequestLink, draft, path},
    read::{Read, approvals, fetch_approval},
};
use crate::{
    error::PageError,
    live::{Standing, Waiting},
    scope::is_namespace,
    session::Caller,
    state::PageState,
};

/// The most requests of the run that are read.
const MOST_OF_RUN: usize = 4;
/// The most requests in the list of the namespace.
const MOST_LISTED: u32 = 50;
/// The time in which the next request must be found. After it the page goes on without one.
const NEXT_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest question of a link, in characters.
const LONGEST: usize = 120;

/// Whether htmx requests only the part `#state` of the page, which has no next request.
pub(super) fn is_for_state(headers: &HeaderMap) -> bool {
    // htmx names its target as `section#state`.
    let target = headers.get("hx-target").and_then(|value| value.to_str().ok());
    target.is_some_and(|target| target.ends_with("#state"))
}

/// Returns the address that follows a recorded decision: the next request, or the decided one if no other waits or if
/// the decision does not count.
pub(super) async fn after(state: &PageState, caller: &Caller, read: &Read, waited: &Waited) -> String {
    let decided = &waited.approval;
    let does_count = match &waited.state {
        DecisionState::Recorded | DecisionState::Counted | DecisionState::Escalated => true,
        DecisionState::Closed { is_counted, .. } => *is_counted,
        DecisionState::NotEscalated | DecisionState::Invalid(_) | DecisionState::Deleted => false,
    };
    let next = async { if does_count { find_next(state, caller, decided, read).await } else { None } };
    match timeout(NEXT_REQUEST_TIMEOUT, next).await.ok().flatten() {
        Some(next) => {
            let (namespace, name) = namespace_and_name(decided);
            format!("{}?after={namespace}/{name}", next.path)
        }
        None => path_of(decided),
    }
}

/// Returns the decision after which a request was opened, by `after=NAMESPACE/NAME` of the query; or `None` if the
/// query names no request that the caller has decided.
pub(super) async fn decided_before(caller: &Caller, query: &str, at: Moment) -> Option<DecidedBefore> {
    let (_, after) = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "after")?;
    let (namespace, name) =
        after.split_once('/').filter(|(place, name)| is_namespace(place) && names::is_object(name))?;
    let seen = match fetch_approval(&caller.client, namespace, name).await {
        Ok(seen) => seen,
        Err(PageError::NotFound(_) | PageError::Refused(_)) => return None,
        Err(_) => {
            let says = "The request that you decided cannot be read now.".to_owned();
            return Some(DecidedBefore { request: None, says, draft: None });
        }
    };
    let decided = &seen.approval;
    decided.spec.decisions.get(&caller.me.user)?;
    let effect = decisions::instead(decided, &caller.me, at);
    Some(DecidedBefore {
        request: Some(link_to(decided)),
        draft: effect.is_some().then(|| draft(decided)),
        says: effect.unwrap_or_else(|| "Your decision did not count: open it again.".to_owned()),
    })
}

/// Returns the namespace and the name of an Approval.
fn namespace_and_name(approval: &Approval) -> (&str, &str) {
    let metadata = &approval.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn path_of(approval: &Approval) -> String {
    let (namespace, name) = namespace_and_name(approval);
    path(namespace, name)
}

/// Returns the link to a request.
pub(super) fn link_to(approval: &Approval) -> RequestLink {
    RequestLink { path: path_of(approval), question: one_line(authors_words(&approval.spec.request), LONGEST) }
}

/// Finds the next request for a reader who has decided one: in the live rows of the reader, or else among the pending
/// requests of the run and then of the namespace. `read`: the decided request as it was read, with its run.
pub(super) async fn find_next(
    state: &PageState,
    caller: &Caller,
    decided: &Approval,
    read: &Read,
) -> Option<RequestLink> {
    let (namespace, name) = (decided.metadata.namespace.as_deref()?, decided.metadata.name.as_deref()?);
    if let Some(feed) = state.feeds.find_complete(caller) {
        return next_in_rows(feed.rows(), decided, read.at);
    }
    let is_next = |seen: &Seen| {
        let other = &seen.approval;
        other.metadata.name.as_deref() != Some(name) && ineligible(other, &caller.me.voter(), read.at).is_none()
    };
    let pending = read.run.pending.iter().filter(|other| *other != name && names::is_object(other));
    for other in pending.take(MOST_OF_RUN) {
        if let Ok(seen) = fetch_approval(&caller.client, namespace, other).await
            && is_next(&seen)
        {
            return Some(link_to(&seen.approval));
        }
    }
    let open = ListParams::default().fields(&still_open()).limit(MOST_LISTED);
    let listed = approvals(&caller.client, namespace).list(&open).await.ok()?;
    let mut readable = listed.items.iter().filter_map(|object| Seen::of(object).ok());
    readable.find(is_next).map(|seen| link_to(&seen.approval))
}

/// Returns the live row that waits next for a reader who has decided a request: first one of an equal gate, because
/// the reader has just decided the same matter, then the one with the earliest deadline.
fn next_in_rows(rows: Vec<Waiting>, decided: &Approval, now: Moment) -> Option<RequestLink> {
    let uid = decided.metadata.uid.as_deref();
    let is_candidate = |waiting: &Waiting| {
        waiting.standing == Standing::Asked && waiting.row.is_open(now) && Some(waiting.row.uid.as_str()) != uid
    };
    let gate = alike::key(decided);
    let rank = |waiting: &Waiting| (waiting.row.alike != gate, waiting.row.deadline, waiting.row.name.clone());
    let row = rows.into_iter().filter(is_candidate).min_by_key(rank)?.row;
    let question = one_line(&row.prompt, LONGEST);
    Some(RequestLink { path: path(&row.namespace, &row.name), question })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn request_for_the_state_is_recognized_by_its_target() {
        let for_target = |target| {
            let mut headers = HeaderMap::new();
            headers.insert("hx-target", HeaderValue::from_static(target));
            is_for_state(&headers)
        };
        assert!(for_target("section#state"));
        assert!(!for_target("section#instead"));
        assert!(!for_target("section#pane"));
        assert!(!is_for_state(&HeaderMap::new()), "a page without scripts");
    }
}
