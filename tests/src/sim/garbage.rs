//! The garbage collector: an object none of whose owners is left goes.
//! It works on what the store holds now and never on requests, so it is in nobody's log.

use super::clock::Clock;
use super::kubelet::grace;
use super::objects::mark;
use super::store::{Key, Store, Version};

/// When dependents follow their owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Garbage {
    /// Within the request that took the last owner.
    #[default]
    AtOnce,
    /// When the test says so, as a real collector comes late.
    WhenTold,
}

/// Removes every object that has owners of which none exists, and what they leave behind; returns how many went.
///
/// Finalizers of dependents are not waited for; Pods that run are left time to end. An owner is known by its uid, so a
/// recreated namesake is none.
pub(crate) fn collect(store: &mut Store, clock: Clock) -> usize {
    let mut gone = 0;
    loop {
        let waits = |key: &Key, version: &Version| {
            version.object["metadata"]["deletionTimestamp"].is_string() && grace(key, &version.object, None).is_some()
        };
        let orphans = store.all().filter(|(key, version)| store.is_orphan(version) && !waits(key, version));
        let orphans: Vec<Key> = orphans.map(|(key, _)| key.clone()).collect();
        if orphans.is_empty() {
            return gone;
        }
        gone += orphans.len();
        for key in &orphans {
            let pod =
                store.get(key).and_then(|version| Some((version.object.clone(), grace(key, &version.object, None)?)));
            match pod {
                Some((mut pod, seconds)) => {
                    mark(&mut pod, seconds, clock);
                    store.put(key, pod);
                }
                None => {
                    store.remove(key);
                }
            }
        }
    }
}
