//! Reads runs from the API server, page by page, as the caller.
//!
//! **Invariant:** bounded: of each Workflow a line is kept, and a page says whether there are more than were read.

use std::time::Duration;

use kube::Client;

use super::row::{self, RunRow};
use crate::{error::PageError, scope, workflows::list};

/// The most Workflows that are read for one page.
pub const MOST: usize = 2_000;
/// The most Workflows of one response: each can have more than a megabyte.
const PAGE: usize = 50;
/// The time that a reader waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// The runs that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundRuns {
    /// The runs that were asked for.
    pub rows: Vec<RunRow>,
    /// The number of Workflows that were read.
    pub read: usize,
    /// Whether there are more than were read.
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
    reader: &str,
    takes: impl Fn(&RunRow) -> bool,
) -> Result<FoundRuns, PageError> {
    let all = read_all(client, namespaces, selector, reader, takes);
    tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| {
        Err(PageError::Away(format!("the API server has not listed the Workflows within {PATIENCE:?}: try again")))
    })
}

async fn read_all(
    client: &Client,
    namespaces: Option<&[String]>,
    selector: &str,
    reader: &str,
    takes: impl Fn(&RunRow) -> bool,
) -> Result<FoundRuns, PageError> {
    let mut found = FoundRuns::default();
    'places: for place in scope::places(namespaces) {
        let mut next: Option<String> = None;
        loop {
            let left = MOST.saturating_sub(found.read).min(PAGE);
            if left == 0 {
                found.has_more = true;
                break 'places;
            }
            let part = list(client, place.as_deref(), selector, left, next.take()).await?;
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
