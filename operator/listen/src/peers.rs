//! The connections that wait for their peer: for a request, for the rest of a request, or until an answer is read.
//!
//! **Invariant:** if there is no place for a new connection, one that waits ends, never the new one. A request that
//! arrives whole is therefore served, however many incomplete requests there are.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::Limits;

/// All connections that wait for their peers. Their number is bounded by that of all connections.
pub(crate) struct Peers {
    most: usize,
    waiting: Mutex<All>,
    /// Notified when one more connection waits.
    begun: Notify,
}

#[derive(Default)]
struct All {
    next: u64,
    /// The connections by peer, and then by a number that grows in the order in which they began to wait.
    peers: HashMap<IpAddr, BTreeMap<u64, Entry>>,
}

struct Entry {
    /// Whether the connection counts towards [`Limits::waiting_of_peer`].
    is_shared: bool,
    end: Arc<Notify>,
}

impl All {
    fn shared(&self, peer: IpAddr) -> impl Iterator<Item = u64> {
        self.peers.get(&peer).into_iter().flatten().filter(|(_, entry)| entry.is_shared).map(|(number, _)| *number)
    }

    fn insert(&mut self, peer: IpAddr, entry: Entry) -> u64 {
        let number = self.next;
        self.next += 1;
        self.peers.entry(peer).or_default().insert(number, entry);
        number
    }

    fn remove(&mut self, peer: IpAddr, number: u64) -> Option<Entry> {
        let own = self.peers.get_mut(&peer)?;
        let entry = own.remove(&number);
        if own.is_empty() {
            self.peers.remove(&peer);
        }
        entry
    }

    fn end(&mut self, peer: IpAddr, number: u64) {
        if let Some(entry) = self.remove(peer, number) {
            entry.end.notify_one();
        }
    }
}

impl Peers {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { most: limits.waiting_of_peer.max(1), waiting: Mutex::default(), begun: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection of a peer. If the peer then has too many, its oldest connection ends.
    pub(crate) fn begin(self: &Arc<Self>, peer: IpAddr, place: OwnedSemaphorePermit) -> Waiting {
        let (peer, end) = (network(peer), Arc::new(Notify::new()));
        let mut all = self.lock();
        let own: Vec<_> = all.shared(peer).collect();
        for oldest in own.iter().take((own.len() + 1).saturating_sub(self.most)) {
            all.end(peer, *oldest);
        }
        let number = all.insert(peer, Entry { is_shared: true, end: Arc::clone(&end) });
        drop(all);
        self.begun.notify_one();
        let counted = Counted { peers: Arc::clone(self), peer, number };
        let state = State { counted: Some(counted), heads: 1, awaits_head: true, is_late: false, place: Some(place) };
        Waiting { peers: Arc::clone(self), peer, end, state: Mutex::new(state) }
    }

    /// Ends the oldest connection of the peer that has the most connections. Returns whether there was one.
    pub(crate) fn end_oldest(&self) -> bool {
        let mut all = self.lock();
        let each = all.peers.iter().filter_map(|(peer, own)| Some((own.len(), Reverse(*own.keys().next()?), *peer)));
        let Some((_, Reverse(number), peer)) = each.max() else { return false };
        all.end(peer, number);
        true
    }

    /// Waits until one more connection waits for its peer.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }
}

/// Returns the address by which a peer is counted: for IPv6 its network of 64 bits, because a peer can use all
/// addresses of that network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// The progress of a connection.
pub(crate) struct Waiting {
    peers: Arc<Peers>,
    peer: IpAddr,
    end: Arc<Notify>,
    state: Mutex<State>,
}

struct State {
    counted: Option<Counted>,
    /// The number of heads that it has waited for, the current one included.
    heads: u64,
    awaits_head: bool,
    is_late: bool,
    place: Option<OwnedSemaphorePermit>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this connection must end because another one needs its place.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
    }

    /// Returns the number of the head that the connection waits for, from 1, or `None`.
    pub(crate) fn head(&self) -> Option<u64> {
        let state = self.lock();
        state.awaits_head.then_some(state.heads)
    }

    /// Takes the count of the connection, because the head of its request has arrived.
    pub(crate) fn take(&self) -> Option<Counted> {
        let mut state = self.lock();
        state.awaits_head = false;
        state.counted.take()
    }

    /// Notes that the body of a request was not whole in time.
    pub(crate) fn set_late(&self) {
        self.lock().is_late = true;
    }

    /// Returns whether the body of a request was not whole in time, and forgets it.
    pub(crate) fn take_late(&self) -> bool {
        std::mem::take(&mut self.lock().is_late)
    }

    /// Counts the connection again while its peer reads the answer: it can end if another connection needs its place.
    pub(crate) fn answered(&self) {
        self.count(false);
    }

    /// Counts the connection again, as [`Self::answered`]. Returns whether it can wait for another request: connections
    /// that are kept for one are at most half of [`Limits::waiting_of_peer`].
    pub(crate) fn again(&self) -> bool {
        let has_room = self.peers.lock().shared(self.peer).count() < self.peers.most.div_ceil(2);
        self.count(has_room);
        has_room
    }

    fn count(&self, is_shared: bool) {
        let entry = Entry { is_shared, end: Arc::clone(&self.end) };
        let number = self.peers.lock().insert(self.peer, entry);
        let counted = Counted { peers: Arc::clone(&self.peers), peer: self.peer, number };
        self.peers.begun.notify_one();
        let mut state = self.lock();
        state.awaits_head = is_shared;
        state.heads += u64::from(is_shared);
        let before = state.counted.replace(counted);
        drop(state);
        drop(before);
    }

    /// Gives back the place of the connection, because its answer is a stream of events, and the handler of the stream
    /// bounds those.
    pub(crate) fn leave(&self) {
        drop(self.lock().place.take());
    }
}

/// The count of one connection that waits. Dropping it removes the connection from [`Peers`].
pub(crate) struct Counted {
    peers: Arc<Peers>,
    peer: IpAddr,
    number: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.peers.lock().remove(self.peer, self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    struct World {
        peers: Arc<Peers>,
        places: Arc<Semaphore>,
    }

    impl World {
        fn new(waiting_of_peer: usize) -> Self {
            let peers = Arc::new(Peers::new(Limits { waiting_of_peer, ..Limits::default() }));
            Self { peers, places: Arc::new(Semaphore::new(100)) }
        }

        fn begin(&self, address: &str) -> Waiting {
            let place = Arc::clone(&self.places).try_acquire_owned().unwrap();
            self.peers.begin(address.parse().unwrap(), place)
        }
    }

    fn is_ended(waiting: &Waiting) -> bool {
        waiting.ended().now_or_never().is_some()
    }

    #[test]
    fn oldest_connection_of_a_network_ends_first() {
        let world = World::new(2);
        let first = world.begin("2001:db8::1");
        let (second, other) = (world.begin("2001:db8::ffff"), world.begin("2001:db8:0:1::1"));
        assert!(!is_ended(&first));
        let third = world.begin("2001:db8::2");
        assert!(is_ended(&first) && !is_ended(&second) && !is_ended(&third) && !is_ended(&other));
        let mapped = [world.begin("192.0.2.1"), world.begin("::ffff:192.0.2.1"), world.begin("192.0.2.1")];
        assert!(is_ended(&mapped[0]) && !is_ended(&mapped[1]) && !is_ended(&mapped[2]));
        drop((first, second, third, other, mapped));
        assert!(world.peers.lock().peers.is_empty(), "nothing is kept");
    }

    #[test]
    fn complete_request_does_not_count_and_idle_ones_are_half_a_share() {
        let world = World::new(2);
        let whole = world.begin("192.0.2.1");
        drop(whole.take());
        assert_eq!(whole.head(), None);
        let two = [world.begin("192.0.2.1"), world.begin("192.0.2.1")];
        assert!(!is_ended(&whole) && !is_ended(&two[0]));
        assert!(!whole.again(), "two wait already");
        assert_eq!(whole.head(), None);
        drop(two);
        assert!(whole.again());
        assert_eq!(whole.head(), Some(2));
    }

    #[test]
    fn oldest_connection_of_the_largest_peer_ends_if_all_are_taken() {
        let world = World::new(9);
        let (served, reads) = (world.begin("192.0.2.3"), world.begin("192.0.2.2"));
        let (old, many) = (world.begin("192.0.2.1"), [world.begin("192.0.2.9"), world.begin("192.0.2.9")]);
        drop(served.take());
        drop(reads.take());
        reads.answered();
        let each = [&served, &reads, &old, &many[0], &many[1]];
        for ended in [3, 2, 4, 1] {
            assert!(world.peers.end_oldest());
            assert_eq!(each.iter().position(|one| is_ended(one)), Some(ended));
        }
        assert!(!world.peers.end_oldest());
    }

    #[test]
    fn stream_frees_its_place() {
        let world = World::new(2);
        let stream = world.begin("192.0.2.1");
        assert_eq!(world.places.available_permits(), 99);
        stream.leave();
        assert_eq!(world.places.available_permits(), 100);
    }
}
