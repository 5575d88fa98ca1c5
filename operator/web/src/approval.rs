//! `/n/{namespace}/a/{name}`: the page of one request, and the decision on it.
//!
//! The page: read as the user *(I/O)* -> model (`model`, *pure*) -> template. A decision: form (`typed`, *pure*) ->
//! counted -> tried at the API server *(I/O)* -> confirmed (`decide`) -> sent and compared (`send`, *I/O*).
//!
//! **Invariant:** a decision is sent only after a POST that repeats the digest of the shown request.

pub(crate) mod confirm;
mod decide;
mod events;
mod forms;
pub(crate) mod model;
mod next;
pub(crate) mod read;
mod replaced;
pub(crate) mod send;
mod text_page;
pub(crate) mod texts;
pub(crate) mod typed;

use axum::{
    extract::{Path, RawQuery, State},
    response::Response,
};
use http::HeaderMap;

use crate::{error::PageError, page, session::Caller, state::PageState};

pub use decide::decide;
pub use events::events;
use model::ApprovalPage;
use read::Read;
pub use text_page::text;
use typed::{Problems, Typed};

/// Shows a request.
///
/// # Errors
/// As every request.
pub async fn page(
    State(state): State<PageState>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let read = Read::fetch(&state, &caller, &namespace, &name).await?;
    let query = query.unwrap_or_default();
    let mut shown = ApprovalPage::of(&caller, &read, &Typed::default(), &Problems::default());
    if !next::is_for_state(&headers) {
        let decided = &read.seen.approval;
        shown.related.is_replaced = replaced::is_replaced(&query, &decided.spec.request);
        shown.related.asked_again = replaced::latest_successor(&caller, &read).await;
        if decided.spec.decisions.contains_key(&caller.me.user) {
            shown.related.next_for_me = next::find_next(&state, &caller, decided, &read).await;
        }
        shown.related.decided_before = next::decided_before(&caller, &query, read.at).await;
    }
    Ok(page::html(&shown))
}

#[cfg(test)]
mod form_tests;
#[cfg(test)]
pub(crate) mod tests;
