//! Reads Approvals that have ended from the API server, page by page, as the caller.
//!
//! **Invariant:** the number of Approvals is bounded, and the result says if there are more.

use std::time::Duration;

use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
};
use signoff_api::Approval;
use signoff_cluster::error::status_code;

use super::row::{self, HistoryRow};
use crate::{error::PageError, scope};

/// The most Approvals that are read for one page or one file.
pub const MOST: usize = 5_000;
/// The most Approvals of one response.
pub const PAGE: usize = 500;
/// The longest time for which a reader waits for the rows.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// The rows that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The selected rows, the newest first.
    pub rows: Vec<HistoryRow>,
    /// The number of Approvals that were read.
    pub read: usize,
    /// Whether there are further Approvals.
    pub has_more: bool,
    /// The Approvals that this version cannot read, as `namespace/name`.
    pub unreadable: Vec<String>,
}

/// Reads Approvals. The caller holds a place for a long read. `namespaces`: the namespaces, or `None` for the whole
/// cluster. `selector`: a field selector.
///
/// # Errors
/// As every request; and a list that takes longer than a minute.
pub async fn read(
    client: &Client,
    namespaces: Option<&[String]>,
    selector: &str,
    most: usize,
    takes: impl Fn(&HistoryRow) -> bool,
) -> Result<Found, PageError> {
    let rows = read_all(client, namespaces, selector, most, takes);
    tokio::time::timeout(LIST_TIMEOUT, rows).await.unwrap_or_else(|_| {
        Err(PageError::Away(format!("the API server has not listed the Approvals within {LIST_TIMEOUT:?}: try again")))
    })
}

/// Reads the lists of all namespaces, up to `most` Approvals, and sorts the selected rows.
async fn read_all(
    client: &Client,
    namespaces: Option<&[String]>,
    selector: &str,
    most: usize,
    takes: impl Fn(&HistoryRow) -> bool,
) -> Result<Found, PageError> {
    let kind = ApiResource::erase::<Approval>(&());
    let mut found = Found::default();
    'places: for place in scope::places(namespaces) {
        let api: Api<DynamicObject> = match &place {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        let mut next: Option<String> = None;
        loop {
            let left = most.saturating_sub(found.read).min(PAGE);
            if left == 0 {
                found.has_more = true;
                break 'places;
            }
            let mut params = ListParams::default().fields(selector).limit(u32::try_from(left).unwrap_or(1));
            params.continue_token = next.take();
            let list = api.list(&params).await.map_err(list_error)?;
            found.read += list.items.len();
            for object in list.items {
                add_object(&mut found, object, &takes);
            }
            next = list.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                break;
            }
        }
    }
    row::sort(&mut found.rows);
    Ok(found)
}

/// Returns the error of a list. The continuation of a list expires after a few minutes (410), which is no refusal.
fn list_error(error: kube::Error) -> PageError {
    match status_code(&error) {
        Some(410) => PageError::Away("the API server cannot go on with its list of Approvals: try again".to_owned()),
        _ => error.into(),
    }
}

/// Adds the row of an object if it has one and is selected. Keeps the name of an object that cannot be read.
fn add_object(found: &mut Found, object: DynamicObject, takes: impl Fn(&HistoryRow) -> bool) {
    let meta = object.meta();
    let name = [&meta.namespace, &meta.name].map(|part| part.clone().unwrap_or_default()).join("/");
    match object.try_parse::<Approval>() {
        Ok(approval) => found.rows.extend(HistoryRow::of(&approval).filter(takes)),
        Err(error) => {
            tracing::warn!(approval = name, %error, "an Approval cannot be read");
            found.unreadable.push(name);
        }
    }
}
