//! Reads long values of a run *(I/O)*, when there is memory for all that a reconcile reads.

use std::collections::BTreeMap;

use signoff_api::{Digest, Workflow};
use signoff_cluster::{fair_budget::HeldPart, kinds::Name};
use signoff_executor::Owner;
use tokio::sync::OnceCell;

use crate::{blobs::usual_name, context::Context, error::Error};

/// The memory for the long values and segments that a reconcile reads. It is taken once for all of them.
#[derive(Default)]
pub(super) struct ReadMemory(OnceCell<HeldPart>);

impl ReadMemory {
    /// Waits until there is memory for all long values of a run, and holds it.
    pub(super) async fn take(&self, context: &Context, name: &Name) {
        let wait = || context.value_quota.memory_for(&context.workflows, name);
        self.0.get_or_init(wait).await;
    }
}

/// Fetches a long value that the journal names. `names` are those of values whose usual name is another object's.
pub(super) async fn fetch(
    context: &Context,
    name: &Name,
    owner: &Owner,
    names: &BTreeMap<Digest, String>,
    digest: &Digest,
) -> Result<String, Error> {
    let object = || name.as_a::<Workflow>();
    let recorded = names.get(digest).map(String::as_str);
    let found = context.blobs.get(owner, digest.as_str(), recorded).await;
    let found = found.map_err(|source| Error::Blob { object: object(), source })?;
    match found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Some(text) => Ok(text),
        None => Err(Error::ValueGone {
            object: object(),
            digest: digest.to_string(),
            blob: recorded.map_or_else(|| usual_name(owner, digest.as_str()).unwrap_or_default(), str::to_owned),
        }),
    }
}
