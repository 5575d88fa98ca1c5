//! The garbage collector removes objects all of whose owners are gone. It works on the store and never by requests, so
//! it is not in the log.

use super::clock::Clock;
use super::kubelet::grace_seconds;
use super::objects::mark_for_deletion;
use super::store::{Key, Store, Version};

/// The time at which dependents follow their owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Garbage {
    /// Within the request that removed the last owner.
    #[default]
    AtOnce,
    /// When the test calls [`super::ApiServer::collect_garbage`], because a real collector is late.
    WhenTold,
}

/// Removes every object whose owners are all gone, and its dependents in turn. Returns the number of removed objects.
///
/// Finalizers of dependents are ignored; Pods that run get time to end. An owner is identified by its uid, so a
/// recreated object of the same name is no owner.
pub(crate) fn collect(store: &mut Store, clock: Clock) -> usize {
    let mut gone = 0;
    loop {
        let is_stopping = |key: &Key, version: &Version| {
            version.object["metadata"]["deletionTimestamp"].is_string()
                && grace_seconds(key, &version.object, None).is_some()
        };
        let orphans = store.all().filter(|(key, version)| store.is_orphan(version) && !is_stopping(key, version));
        let orphans: Vec<Key> = orphans.map(|(key, _)| key.clone()).collect();
        if orphans.is_empty() {
            return gone;
        }
        gone += orphans.len();
        for key in &orphans {
            let pod = store
                .get(key)
                .and_then(|version| Some((version.object.clone(), grace_seconds(key, &version.object, None)?)));
            match pod {
                Some((mut pod, seconds)) => {
                    mark_for_deletion(&mut pod, seconds, clock);
                    store.put(key, pod);
                }
                None => {
                    store.remove(key);
                }
            }
        }
    }
}
