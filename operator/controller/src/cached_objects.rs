//! The caches of the objects that the watches have delivered.

use signoff_api::{Approval, Workflow};
use signoff_cluster::{store::Store, workqueue::Key};

use crate::{deleted_namespaces::DeletedNamespaces, policy_index::PolicyIndex, unreadable::UnreadableObjects};

/// The cached Workflows, Approvals, policies and Namespaces.
#[derive(Default)]
pub(crate) struct CachedObjects {
    pub(crate) workflows: Store<Workflow>,
    pub(crate) approvals: Store<Approval>,
    pub(crate) policies: PolicyIndex,
    pub(crate) deleted_namespaces: DeletedNamespaces,
    pub(crate) unreadable: UnreadableObjects,
}

impl CachedObjects {
    /// Returns how many bytes an object takes in memory while it is reconciled, or 0 if it is not cached.
    pub(crate) fn memory_of(&self, key: &Key) -> usize {
        match key {
            Key::Workflow(name) => self.workflows.memory_of(name),
            Key::Approval(name) => self.approvals.memory_of(name),
        }
    }

    /// Whether `version` is the cached version of an object, and a read or write of this process returned that version.
    pub(crate) fn is_own(&self, key: &Key, version: &str) -> bool {
        match key {
            Key::Workflow(name) => self.workflows.is_own(name, version),
            Key::Approval(name) => self.approvals.is_own(name, version),
        }
    }
}
