//! The cache of the detected version of each server. It is in memory only, and a missing version is detected again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use signoff_executor::{ServerAddress, ToolServer};

use crate::protocol::Protocol;

/// The maximum number of cached servers.
const MAX_SERVERS: usize = 1024;

/// The servers with a known version, by namespace and address.
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
        if known.len() >= MAX_SERVERS && !known.contains_key(&key) {
            known.pop_first();
        }
        known.insert(key, protocol);
    }

    /// Forgets the version of a server that no longer speaks it.
    pub(crate) fn forget(&self, server: &ToolServer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(server));
    }
}

/// Returns the key of a server, with the namespace: a server of one tenant cannot change the requests of others.
fn key(server: &ToolServer) -> (String, ServerAddress) {
    (server.namespace.clone(), server.address.clone())
}
