//! Counts, by peer, the connections that wait for a request or for the rest of one.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::Limits;

/// The peers with such connections: no more than there are connections.
pub(crate) struct Peers {
    most: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

impl Peers {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { most: limits.waiting_of_peer, counts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection of a peer; `None` if it has too many.
    pub(crate) fn begin(self: &Arc<Self>, peer: IpAddr) -> Option<Waiting> {
        let peer = network(peer);
        let counted = self.count(peer, self.most)?;
        Some(Waiting { peers: Arc::clone(self), peer, counted: Mutex::new(Some(counted)) })
    }

    fn count(self: &Arc<Self>, peer: IpAddr, most: usize) -> Option<Counted> {
        let mut counts = self.lock();
        let count = counts.get(&peer).copied().unwrap_or_default();
        if count >= most {
            return None;
        }
        counts.insert(peer, count + 1);
        Some(Counted { peers: Arc::clone(self), peer })
    }
}

/// The addresses that one peer can have: of IPv6, a network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// A connection that waits for a request, or for the rest of one.
pub(crate) struct Waiting {
    peers: Arc<Peers>,
    peer: IpAddr,
    counted: Mutex<Option<Counted>>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Option<Counted>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the count of the connection: the head of its request is there.
    pub(crate) fn take(&self) -> Option<Counted> {
        self.lock().take()
    }

    /// Counts the connection again, because its answer is sent. Returns whether it can wait for another request: connections that only
    /// wait are at most half of what a peer can have, so that it can open new ones.
    pub(crate) fn again(&self) -> bool {
        let counted = self.peers.count(self.peer, self.peers.most.div_ceil(2));
        let can_wait = counted.is_some();
        *self.lock() = counted;
        can_wait
    }
}

/// One connection in the count of its peer, until it is dropped.
pub(crate) struct Counted {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.peers.lock();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_peer_has_its_share_whatever_its_address_in_its_network_and_nothing_is_kept_of_what_is_over() {
        let peers = Arc::new(Peers::new(Limits { waiting_of_peer: 2, ..Limits::default() }));
        let begin = |address: &str| peers.begin(address.parse().unwrap());
        let (first, second) = (begin("2001:db8::1").unwrap(), begin("2001:db8::ffff").unwrap());
        assert!(begin("2001:db8::2").is_none());
        let other = begin("2001:db8:0:1::1").unwrap();
        let mapped = [begin("192.0.2.1").unwrap(), begin("::ffff:192.0.2.1").unwrap()];
        assert!(begin("192.0.2.1").is_none());
        drop(first.take());
        assert!(first.take().is_none() && begin("2001:db8::2").is_some());
        assert!(!first.again(), "the second one waits");
        drop(second.take());
        assert!(first.again() && first.take().is_some());
        drop((first, second, other, mapped));
        assert!(peers.lock().is_empty());
    }
}
