//! Reads runs from the API server, page by page, as the caller.
//!
//! **Invariant:** reading is bounded. A response has at most two MiB, or one Workflow; of each Workflow only a row is
//! kept; the number of Workflows is bounded, and the page says if there are more.

use std::time::Duration;

use kube::Client;

use super::row::{self, Reader, RunRow};
use crate::{error::PageError, scope, workflows::list};

/// The most Workflows that are read for one page.
pub const MOST: usize = 2_000;
/// The most Workflows of one response.
const PAGE: usize = 50;
/// The longest time for which a reader waits for the rows.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// The runs that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundRuns {
    /// The selected runs.
    pub rows: Vec<RunRow>,
    /// The number of Workflows that were read.
    pub read: usize,
    /// Whether there are further Workflows.
    pub has_more: bool,
}

/// Reads the runs of some namespaces, or of the whole cluster.
///
/// # Errors
/// As every request; and a list that takes longer than a minute.
pub async fn read(
    client: &Client,
    namespaces: Option<&[String]>,
    selector: &str,
    reader: &Reader,
    takes: impl Fn(&RunRow) -> bool,
) -> Result<FoundRuns, PageError> {
    let all = read_all(client, namespaces, selector, reader, takes);
    tokio::time::timeout(LIST_TIMEOUT, all).await.unwrap_or_else(|_| {
        Err(PageError::Away(format!("the API server has not listed the Workflows within {LIST_TIMEOUT:?}: try again")))
    })
}

async fn read_all(
    client: &Client,
    namespaces: Option<&[String]>,
    selector: &str,
    reader: &Reader,
    takes: impl Fn(&RunRow) -> bool,
) -> Result<FoundRuns, PageError> {
    let mut found = FoundRuns::default();
    let mut at_once = PAGE;
    'places: for place in scope::places(namespaces) {
        let mut next: Option<String> = None;
        loop {
            let left = MOST.saturating_sub(found.read).min(at_once);
            if left == 0 {
                found.has_more = true;
                break 'places;
            }
            let Some(part) = list(client, place.as_deref(), selector, left, next.clone()).await? else {
                at_once = (left / 2).max(1);
                continue;
            };
            at_once = at_once.saturating_mul(2).min(PAGE);
            found.read += part.items.len();
            found.rows.extend(part.items.into_iter().filter_map(|one| RunRow::new(one, reader)).filter(&takes));
            next = part.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                break;
            }
        }
    }
    row::sort(&mut found.rows);
    Ok(found)
}
