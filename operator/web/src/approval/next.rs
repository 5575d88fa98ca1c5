//! The next request of a reader who has decided: another one that waits for them.
//!
//! The live rows of the reader are searched first. Without them the pending requests of the run are read, then one list
//! of open requests of the namespace. After an error the page names no next request.

use http::HeaderMap;
use kube::api::ListParams;
use signoff_api::{Approval, names};
use signoff_engine::approval::eligibility::ineligible;
use signoff_review::{
    action::authors_words,
    alike,
    seen::{Seen, still_open},
    text::one_line,
};

use super::{
    model::{NextRequest, path},
    read::{Read, approval, approvals},
};
use crate::{
    live::{Standing, Waiting},
    session::Caller,
    state::PageState,
};

/// The most requests of the run that are read.
const OF_RUN: usize = 4;
/// The most requests in the list of the namespace.
const LISTED: u32 = 50;
/// The longest question.
const LONGEST: usize = 120;

/// Whether a request of htmx takes the part `#state` out of the page, which has no next request in it.
pub(super) fn is_for_state(headers: &HeaderMap) -> bool {
    // htmx names its target as `section#state`.
    let target = headers.get("hx-target").and_then(|value| value.to_str().ok());
    target.is_some_and(|target| target.ends_with("#state"))
}

fn of(approval: &Approval) -> NextRequest {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    NextRequest {
        path: path(&text(&approval.metadata.namespace), &text(&approval.metadata.name)),
        question: one_line(authors_words(&approval.spec.request), LONGEST),
    }
}

/// Returns the next request for a reader whose decision on this one is recorded.
pub(super) async fn next(state: &PageState, caller: &Caller, read: &Read) -> Option<NextRequest> {
    let decided = &read.seen.approval;
    decided.spec.decisions.get(&caller.me.user)?;
    let (namespace, name) = (decided.metadata.namespace.as_deref()?, decided.metadata.name.as_deref()?);
    if let Some(feed) = state.feeds.known(caller) {
        let uid = decided.metadata.uid.as_deref();
        let waits = |one: &Waiting| {
            one.standing == Standing::Asked && one.row.is_open(read.at) && Some(one.row.uid.as_str()) != uid
        };
        // One of an equal gate comes first: its reader has the matter in mind.
        let gate = alike::key(decided);
        let rank = |one: &Waiting| (one.row.alike != gate, one.row.deadline, one.row.name.clone());
        let first = feed.rows().into_iter().filter(waits).min_by_key(rank)?;
        let question = one_line(&first.row.prompt, LONGEST);
        return Some(NextRequest { path: path(&first.row.namespace, &first.row.name), question });
    }
    let waits = |seen: &Seen| {
        let other = &seen.approval;
        other.metadata.name.as_deref() != Some(name) && ineligible(other, &caller.me.voter(), read.at).is_none()
    };
    let of_run = read.run.pending.iter().filter(|other| *other != name && names::is_object(other));
    for other in of_run.take(OF_RUN) {
        if let Ok(seen) = approval(&caller.client, namespace, other).await
            && waits(&seen)
        {
            return Some(of(&seen.approval));
        }
    }
    let open = ListParams::default().fields(&still_open()).limit(LISTED);
    let listed = approvals(&caller.client, namespace).list(&open).await.ok()?;
    let mut found = listed.items.iter().filter_map(|object| Seen::of(object).ok());
    found.find(waits).map(|seen| of(&seen.approval))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_renewal_of_the_state_needs_no_next_request() {
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
