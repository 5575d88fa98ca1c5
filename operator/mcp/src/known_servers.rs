//! The version that each server speaks, as far as it was found out. In memory only; what is forgotten is asked again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use signoff_executor::{ServerAddress, ToolServer};

use crate::protocol::Protocol;

/// The most servers that are remembered.
const MOST: usize = 1024;

/// The servers of which the version is known, by namespace and address.
#[derive(Debug, Default)]
pub(crate) struct KnownServers(Mutex<BTreeMap<(String, ServerAddress), Protocol>>);

impl KnownServers {
    /// Returns the version that a server speaks, if it is known.
    pub(crate) fn protocol_of(&self, server: &ToolServer) -> Option<Protocol> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key(server)).copied()
    }

    /// Remembers the version that a server speaks.
    pub(crate) fn learn(&self, server: &ToolServer, protocol: Protocol) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(server);
        if known.len() >= MOST && !known.contains_key(&key) {
            known.pop_first();
        }
        known.insert(key, protocol);
    }

    /// Forgets a server that no longer speaks the version that was found out.
    pub(crate) fn forget(&self, server: &ToolServer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(server));
    }
}

/// The namespace is a part of it because a server of one tenant must not change what others send.
fn key(server: &ToolServer) -> (String, ServerAddress) {
    (server.namespace.clone(), server.address.clone())
}
