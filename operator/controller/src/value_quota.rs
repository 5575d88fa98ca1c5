//! The quota for long values: the most bytes of a Workflow and of a namespace, and the most bytes in memory at once.
//!
//! Each Workflow has the sum of its own values in `status.valueBytes`, so that no Blobs are listed or watched. The
//! engine refuses values that do not fit. This module only computes the rest.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signoff_api::Workflow;
use signoff_cluster::{kinds::Name, store::Store};
use signoff_engine::{ValueLimits, journal::values};

use signoff_cluster::fair_budget::{FairBudget, HeldPart};

/// The limits of long values, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSettings {
    /// The most bytes of one Workflow.
    pub per_workflow: u64,
    /// The most bytes of all Workflows of a namespace.
    pub per_namespace: u64,
}

impl Default for ValueSettings {
    fn default() -> Self {
        Self { per_workflow: values::MAX_OF_RUN, per_namespace: 512 * 1024 * 1024 }
    }
}

/// The quota, with the values that are being stored.
pub(crate) struct ValueQuota {
    settings: ValueSettings,
    /// The bytes that each run will have after its commit.
    claims: Mutex<BTreeMap<Name, u64>>,
    /// The memory for long values that transitions read.
    memory: Arc<FairBudget>,
}

/// The bytes that a run claims while it commits.
pub(crate) struct ValueClaim<'q> {
    quota: &'q ValueQuota,
    name: Name,
}

impl Drop for ValueClaim<'_> {
    fn drop(&mut self) {
        self.quota.lock().remove(&self.name);
    }
}

impl ValueQuota {
    /// Returns the quota. `memory`: the most bytes of all long values that transitions read at once.
    pub(crate) fn new(settings: ValueSettings, memory: usize) -> Self {
        Self { settings, claims: Mutex::default(), memory: FairBudget::new(memory) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, u64>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current limits of a run.
    pub(crate) fn limits(&self, workflows: &Store<Workflow>, name: &Name) -> ValueLimits {
        let left_in_namespace = self.left(&self.lock(), workflows, name);
        ValueLimits { of_run: self.settings.per_workflow, left_in_namespace }
    }

    /// Claims the bytes that a run will have. Returns `None` if other runs have taken some of the rest since the
    /// transition was computed, so that it has to be computed again.
    pub(crate) fn claim(
        &self,
        workflows: &Store<Workflow>,
        name: &Name,
        bytes: u64,
        limits: ValueLimits,
    ) -> Option<ValueClaim<'_>> {
        let mut claims = self.lock();
        let left = self.left(&claims, workflows, name);
        // Decisions and the journal itself are stored even if nothing is left.
        if bytes > workflows.value_bytes_of(name) && bytes > left && bytes <= limits.left_in_namespace {
            return None;
        }
        claims.insert(name.clone(), bytes);
        Some(ValueClaim { quota: self, name: name.clone() })
    }

    /// Waits until there is memory for all long values of a run, including those of its journal, and takes it until the
    /// result is dropped. Namespaces get memory in turn. A run takes at most the share of a namespace alone.
    pub(crate) async fn take_memory(&self, workflows: &Store<Workflow>, name: &Name) -> HeldPart {
        let bytes = usize::try_from(workflows.value_bytes_of(name)).unwrap_or(usize::MAX);
        self.memory.take(&name.namespace, bytes).await
    }

    /// Returns the number of bytes of memory that are taken.
    pub(crate) fn memory_taken(&self) -> usize {
        self.memory.taken()
    }

    /// Returns the bytes of the namespace that neither values of other runs nor their claims take.
    fn left(&self, claims: &BTreeMap<Name, u64>, workflows: &Store<Workflow>, name: &Name) -> u64 {
        let all = workflows.value_bytes_in(&name.namespace);
        let others = all.saturating_sub(workflows.value_bytes_of(name));
        let claimed = claims.iter().filter(|(other, _)| *other != name && other.namespace == name.namespace);
        let claimed = claimed.map(|(other, bytes)| bytes.saturating_sub(workflows.value_bytes_of(other)));
        self.settings.per_namespace.saturating_sub(claimed.fold(others, u64::saturating_add))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn workflow(namespace: &str, name: &str, version: u32, bytes: u64) -> Workflow {
        serde_json::from_value::<signoff_cluster::kinds::Decoded<Workflow>>(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": version.to_string()},
            "spec": {"requestedBy": "dana", "steps": [{"name": "a", "set": {"value": "x"}}]},
            "status": {"phase": "Running", "seq": 1, "valueBytes": bytes},
        }))
        .unwrap()
        .0
    }

    fn quota() -> ValueQuota {
        ValueQuota::new(ValueSettings { per_workflow: 60, per_namespace: 100 }, 128 * 1024 * 1024)
    }

    #[test]
    fn values_of_other_workflows_reduce_the_rest() {
        let (store, quota) = (Store::default(), quota());
        for (namespace, name, bytes) in [("n", "a", 30), ("n", "b", 20), ("m", "c", 90)] {
            store.apply(workflow(namespace, name, 1, bytes));
        }
        let left = |name: &str| quota.limits(&store, &Name::new("n", name)).left_in_namespace;
        assert_eq!((left("a"), left("b"), left("new")), (80, 70, 50));
        store.apply(workflow("n", "a", 2, 45));
        store.release(&Name::new("n", "a"));
        assert_eq!(left("b"), 55, "also while it rests");
        store.remove(Name::new("n", "a"), "a");
        assert_eq!(left("b"), 100, "what was deleted is free again");
    }

    #[test]
    fn claims_of_other_runs_reduce_the_rest() {
        let (store, quota) = (Store::default(), quota());
        store.apply(workflow("n", "a", 1, 10));
        let (a, b) = (Name::new("n", "a"), Name::new("n", "b"));
        let of_b = quota.limits(&store, &b);
        let claim = quota.claim(&store, &a, 60, quota.limits(&store, &a)).unwrap();
        assert!(quota.claim(&store, &b, 50, of_b).is_none(), "40 are left");
        assert_eq!(quota.limits(&store, &b).left_in_namespace, 40);
        assert!(quota.claim(&store, &b, 40, of_b).is_some());
        assert!(
            quota.claim(&store, &b, 95, of_b).is_some(),
            "it knew that it has no room, and keeps what must be kept"
        );
        drop(claim);
        assert!(quota.claim(&store, &b, 50, of_b).is_some());
    }

    #[tokio::test]
    async fn transitions_wait_for_memory_and_even_the_largest_run_gets_it() {
        use futures::FutureExt;
        const MIB: u64 = 1024 * 1024;
        let (store, quota) = (Store::default(), quota());
        let runs = [("n", "a", 64), ("m", "b", 32), ("n", "c", 1), ("o", "small", 1), ("o", "huge", 900)];
        for (namespace, name, mib) in runs {
            store.apply(workflow(namespace, name, 1, mib * MIB));
        }
        let take = async |namespace: &str, name: &str| quota.take_memory(&store, &Name::new(namespace, name)).await;
        let (first, second) = (take("n", "a").await, take("m", "b").await);
        assert!(take("n", "c").now_or_never().is_none(), "its namespace has its share");
        assert!(take("o", "small").now_or_never().is_some(), "a namespace without any is not held back");
        let mut huge = Box::pin(take("o", "huge"));
        assert!(huge.as_mut().now_or_never().is_none());
        drop((first, second));
        assert!(huge.as_mut().now_or_never().is_some());
    }
}
