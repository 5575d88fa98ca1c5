//! The reconciles in flight: their number, their namespaces and the size of their objects.
//!
//! Bounded by memory rather than by number, so that small objects do not wait for large ones. A namespace can have only
//! as much as is free, so that ten greedy namespaces leave room for another one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use signoff_cluster::workqueue::Key;
use tokio::task::Id;

use signoff_cluster::fair_share::FairShare;

/// The reconciles in flight.
pub(crate) struct ReconcileLoad {
    /// The shares in the memory for the objects that are being reconciled. A reconcile takes more than its object.
    share: FairShare,
    tasks: HashMap<Id, (Key, usize)>,
    namespaces: BTreeMap<Arc<str>, Load>,
    bytes: usize,
}

/// The reconciles in flight of one namespace.
#[derive(Clone, Copy, Default)]
struct Load {
    count: usize,
    bytes: usize,
}

impl ReconcileLoad {
    /// Returns the load without any reconcile. `most_bytes`: the most memory of all objects together.
    pub(crate) fn new(most_bytes: usize) -> Self {
        let share = FairShare::new(most_bytes, most_bytes / 2, 0);
        Self { share, tasks: HashMap::new(), namespaces: BTreeMap::new(), bytes: 0 }
    }

    /// Adds a reconcile that starts. `bytes`: the memory of its object.
    pub(crate) fn begin(&mut self, task: Id, key: Key, bytes: usize) {
        let load = self.namespaces.entry(Arc::clone(&key.name().namespace)).or_default();
        load.count += 1;
        load.bytes += bytes;
        self.bytes += bytes;
        self.tasks.insert(task, (key, bytes));
    }

    /// Removes a finished reconcile. Returns the key of its object.
    pub(crate) fn end(&mut self, task: Id) -> Option<Key> {
        let (key, bytes) = self.tasks.remove(&task)?;
        self.bytes -= bytes;
        if let Some(load) = self.namespaces.get_mut(&key.name().namespace) {
            load.count -= 1;
            load.bytes -= bytes;
            if load.count == 0 {
                self.namespaces.remove(&key.name().namespace);
            }
        }
        Some(key)
    }

    /// Returns the number of reconciles in flight.
    pub(crate) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the number of reconciles in flight in a namespace.
    pub(crate) fn count_in(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).map_or(0, |load| load.count)
    }

    /// Whether there is memory for one more object.
    pub(crate) fn has_memory(&self) -> bool {
        self.share.has_room(0, self.bytes, 1)
    }

    /// Whether a namespace may have one more reconcile in flight, if all namespaces together may have `most`. It must
    /// have fewer reconciles and less memory than are free, so that each further namespace finds room.
    pub(crate) fn has_share_for(&self, namespace: &str, most: usize) -> bool {
        let Load { count, bytes } = self.namespaces.get(namespace).copied().unwrap_or_default();
        FairShare::new(most, most / 2, 0).has_room(count, self.count(), 1) && self.share.has_room(bytes, self.bytes, 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use signoff_cluster::kinds::Name;

    /// Returns the ids of `count` tasks.
    fn tasks(count: usize) -> Vec<Id> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tasks: Vec<_> = (0..count).map(|_| runtime.spawn(std::future::pending::<()>())).collect();
        tasks.iter().map(tokio::task::JoinHandle::id).collect()
    }

    fn key(namespace: &str, name: usize) -> Key {
        Key::Workflow(Name::new(namespace, &name.to_string()))
    }

    #[test]
    fn large_objects_of_one_namespace_leave_half_of_the_memory_to_others() {
        const LARGE: usize = 1024 * 1024;
        let (tasks, mut load) = (tasks(100), ReconcileLoad::new(16 * LARGE));
        let mut begun = 0;
        while load.has_memory() && load.has_share_for("greedy", 128) {
            load.begin(tasks[begun], key("greedy", begun), LARGE);
            begun += 1;
        }
        assert_eq!((begun, load.count_in("greedy")), (8, 8));
        assert!(load.has_memory() && load.has_share_for("honest", 128));
        for (n, task) in tasks[begun..].iter().enumerate() {
            load.begin(*task, key("honest", n), 4 * 1024);
        }
        assert!(load.has_memory());
        assert_eq!(load.count(), 100);
        assert_eq!(tasks.iter().filter_map(|task| load.end(*task)).count(), 100);
        assert_eq!((load.count(), load.bytes, load.namespaces.len()), (0, 0, 0));
        assert_eq!(load.end(tasks[0]), None);
    }

    #[test]
    fn ten_greedy_namespaces_leave_reconciles_and_memory_to_others() {
        const MOST: usize = 128;
        for bytes in [1024, 1024 * 1024] {
            let (tasks, mut load) = (tasks(MOST), ReconcileLoad::new(16 * 1024 * 1024));
            let mut tasks = tasks.into_iter();
            let mut begin = |load: &mut ReconcileLoad, namespace: &str, bytes| {
                let may_begin = load.has_memory() && load.has_share_for(namespace, MOST);
                if may_begin {
                    load.begin(tasks.next().unwrap(), key(namespace, 0), bytes);
                }
                may_begin
            };
            let greedy: Vec<String> = (0..10).map(|number| format!("greedy-{number}")).collect();
            while greedy.iter().filter(|namespace| begin(&mut load, namespace, bytes)).count() > 0 {}
            assert!(greedy.iter().all(|namespace| load.count_in(namespace) > 0));
            for number in 0..5 {
                assert!(begin(&mut load, "honest", 4 * 1024), "{number} beside greedy ones of {bytes} bytes each");
            }
        }
    }
}
