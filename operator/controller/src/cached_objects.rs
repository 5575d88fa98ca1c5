//! The objects that watches have delivered, as every reconcile reads them.

use signoff_api::{Approval, Workflow};
use signoff_cluster::{store::Store, workqueue::Key};

use crate::{deleted_namespaces::DeletedNamespaces, policy_index::PolicyIndex, unreadable::UnreadableObjects};

/// The cached Workflows and Approvals, and what the watches of policies and Namespaces say about them.
#[derive(Default)]
pub(crate) struct CachedObjects {
    pub(crate) workflows: Store<Workflow>,
    pub(crate) approvals: Store<Approval>,
    pub(crate) policies: PolicyIndex,
    pub(crate) deleted_namespaces: DeletedNamespaces,
    pub(crate) unreadable: UnreadableObjects,
}

impl CachedObjects {
    /// Returns how many bytes an object takes in memory while it is reconciled, or 0 where it is not cached.
    pub(crate) fn memory_of(&self, key: &Key) -> usize {
        match key {
            Key::Workflow(name) => self.workflows.memory_of(name),
            Key::Approval(name) => self.approvals.memory_of(name),
        }
    }

    /// Whether this version of an object is the newest one in the cache, and came from a request of this process.
    pub(crate) fn is_own(&self, key: &Key, version: &str) -> bool {
        match key {
            Key::Workflow(name) => self.workflows.is_own(name, version),
            Key::Approval(name) => self.approvals.is_own(name, version),
        }
    }
}
