//! The long values of runs *(I/O)*: their store, their limits, and the memory of a reconcile that reads some.

use std::{collections::BTreeMap, sync::Arc};

use signoff_api::{Digest, Workflow};
use signoff_cluster::{fair_budget::HeldPart, kinds::Name, store::Store};
use signoff_engine::JournalLimits;
use signoff_executor::{BlobStore, Owner};
use tokio::sync::OnceCell;

use crate::{blobs::usual_name, error::Error, value_quota::ValueQuota};

/// The long values of all runs.
pub(crate) struct LongValues {
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) quota: ValueQuota,
    /// The limits of the part of a journal that stays in its Workflow; the rest goes to `blobs`.
    pub(crate) journal_limits: JournalLimits,
}

impl LongValues {
    /// Fetches a value that the journal of a run names. `names`: the names of the values whose usual name belongs to
    /// another object.
    pub(crate) async fn fetch(
        &self,
        name: &Name,
        owner: &Owner,
        names: &BTreeMap<Digest, String>,
        digest: &Digest,
    ) -> Result<String, Error> {
        let object = || name.as_a::<Workflow>();
        let recorded = names.get(digest).map(String::as_str);
        let found = self.blobs.get(owner, digest.as_str(), recorded).await;
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
}

/// The memory for the long values and segments that one reconcile reads. It is taken once for all of them.
#[derive(Default)]
pub(crate) struct ReadMemory(OnceCell<HeldPart>);

impl ReadMemory {
    /// Waits until there is memory for all long values of a run, and holds it.
    pub(crate) async fn take(&self, quota: &ValueQuota, workflows: &Store<Workflow>, name: &Name) {
        let wait = || quota.take_memory(workflows, name);
        self.0.get_or_init(wait).await;
    }
}

/// Returns the owner of a Workflow's long values.
pub(crate) fn owner(name: &Name, uid: &str) -> Owner {
    Owner { namespace: name.namespace.to_string(), workflow: name.name.to_string(), uid: uid.to_owned() }
}
