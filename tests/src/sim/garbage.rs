//! The garbage collector: an object none of whose owners is left goes.
//! It works on what the store holds now and never on requests, so it is in nobody's log.

use super::store::{Key, Store};

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
/// Finalizers of dependents are not waited for. An owner is known by its uid, so a recreated namesake is none.
pub(crate) fn collect(store: &mut Store) -> usize {
    let mut gone = 0;
    loop {
        let orphans = store.all().filter(|(_, version)| store.is_orphan(version));
        let orphans: Vec<Key> = orphans.map(|(key, _)| key.clone()).collect();
        if orphans.is_empty() {
            return gone;
        }
        gone += orphans.len();
        for key in &orphans {
            store.remove(key);
        }
    }
}
