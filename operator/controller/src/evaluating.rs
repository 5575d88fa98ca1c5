//! The reconciles that wait for an evaluation. Each of them lets another reconcile start.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The reconciles that wait for an evaluation, by namespace.
#[derive(Default)]
pub(crate) struct EvaluatingReconciles {
    waiting: Mutex<BTreeMap<Arc<str>, usize>>,
}

/// The guard of a waiting reconcile, until it is dropped.
pub(crate) struct WaitingReconcile<'a> {
    all: &'a EvaluatingReconciles,
    namespace: Arc<str>,
}

impl EvaluatingReconciles {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a reconcile of a namespace as waiting until the result is dropped.
    pub(crate) fn begin(&self, namespace: &Arc<str>) -> WaitingReconcile<'_> {
        *self.lock().entry(Arc::clone(namespace)).or_default() += 1;
        WaitingReconcile { all: self, namespace: Arc::clone(namespace) }
    }

    /// Returns the number of waiting reconciles.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().sum()
    }

    /// Returns the number of waiting reconciles of a namespace.
    pub(crate) fn count_in(&self, namespace: &str) -> usize {
        self.lock().get(namespace).copied().unwrap_or_default()
    }
}

impl Drop for WaitingReconcile<'_> {
    fn drop(&mut self) {
        let mut waiting = self.all.lock();
        if let Some(count) = waiting.get_mut(&self.namespace) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconcile_waits_until_it_is_dropped() {
        let (all, a, b) = (EvaluatingReconciles::default(), Arc::from("a"), Arc::from("b"));
        let first = all.begin(&a);
        let (second, third) = (all.begin(&a), all.begin(&b));
        assert_eq!((all.count(), all.count_in("a"), all.count_in("b")), (3, 2, 1));
        drop((first, third));
        assert_eq!((all.count(), all.count_in("a"), all.count_in("b")), (1, 1, 0));
        drop(second);
        assert!(all.lock().is_empty());
    }
}
