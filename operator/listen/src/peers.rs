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

/// The connections that wait for their peers, by peer. [`Limits::connections`] bounds their number.
pub(crate) struct Peers {
    /// The value of [`Limits::waiting_of_peer`], at least 1.
    max_per_peer: usize,
    waiting: Mutex<WaitingConnections>,
    /// Notified when one more connection waits.
    another_waits: Notify,
}

#[derive(Default)]
struct WaitingConnections {
    next_number: u64,
    /// The connections by peer, and then by a number that grows in the order in which they began to wait.
    peers: HashMap<IpAddr, BTreeMap<u64, Entry>>,
}

struct Entry {
    /// Whether the connection counts towards [`Limits::waiting_of_peer`].
    is_shared: bool,
    end: Arc<Notify>,
}

impl WaitingConnections {
    /// Returns the numbers of the peer's connections that count towards [`Limits::waiting_of_peer`], oldest first.
    fn shared_numbers(&self, peer: IpAddr) -> impl Iterator<Item = u64> {
        self.peers.get(&peer).into_iter().flatten().filter(|(_, entry)| entry.is_shared).map(|(number, _)| *number)
    }

    fn insert(&mut self, peer: IpAddr, entry: Entry) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.peers.entry(peer).or_default().insert(number, entry);
        number
    }

    fn remove(&mut self, peer: IpAddr, number: u64) -> Option<Entry> {
        let connections = self.peers.get_mut(&peer)?;
        let entry = connections.remove(&number);
        if connections.is_empty() {
            self.peers.remove(&peer);
        }
        entry
    }

    /// Ends a connection, and no longer counts it.
    fn end(&mut self, peer: IpAddr, number: u64) {
        if let Some(entry) = self.remove(peer, number) {
            entry.end.notify_one();
        }
    }
}

impl Peers {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { max_per_peer: limits.waiting_of_peer.max(1), waiting: Mutex::default(), another_waits: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingConnections> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection of a peer. First ends the peer's oldest connections, so that the peer has at most
    /// [`Limits::waiting_of_peer`] with the new one.
    pub(crate) fn register(self: &Arc<Self>, peer: IpAddr, place: OwnedSemaphorePermit) -> ConnectionProgress {
        let (peer, end) = (network(peer), Arc::new(Notify::new()));
        let mut waiting = self.lock();
        let numbers: Vec<_> = waiting.shared_numbers(peer).collect();
        for oldest in numbers.iter().take((numbers.len() + 1).saturating_sub(self.max_per_peer)) {
            waiting.end(peer, *oldest);
        }
        let number = waiting.insert(peer, Entry { is_shared: true, end: Arc::clone(&end) });
        drop(waiting);
        self.another_waits.notify_one();
        let count = CountGuard { peers: Arc::clone(self), peer, number };
        let state = State { count: Some(count), heads: 1, awaits_head: true, is_body_late: false, place: Some(place) };
        ConnectionProgress { peers: Arc::clone(self), peer, end, state: Mutex::new(state) }
    }

    /// Ends the oldest connection of the peer that has the most connections. Returns whether there was one.
    pub(crate) fn end_oldest(&self) -> bool {
        let mut waiting = self.lock();
        let counts = waiting
            .peers
            .iter()
            .filter_map(|(peer, connections)| Some((connections.len(), Reverse(*connections.keys().next()?), *peer)));
        let Some((_, Reverse(oldest), peer)) = counts.max() else { return false };
        waiting.end(peer, oldest);
        true
    }

    /// Waits until one more connection waits for its peer.
    pub(crate) async fn wait_for_another(&self) {
        self.another_waits.notified().await;
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

/// The state of one connection: its place, and whether it waits for its peer.
pub(crate) struct ConnectionProgress {
    peers: Arc<Peers>,
    peer: IpAddr,
    end: Arc<Notify>,
    state: Mutex<State>,
}

struct State {
    /// Present while the connection waits for its peer, except for the rest of a body: [`crate::request::WholeBody`]
    /// holds the guard then.
    count: Option<CountGuard>,
    /// The number of heads that the connection has waited for, the current one included.
    heads: u64,
    awaits_head: bool,
    /// Whether the body of the current request was not whole in time.
    is_body_late: bool,
    /// `None` once the answer is a stream of events.
    place: Option<OwnedSemaphorePermit>,
}

impl ConnectionProgress {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this connection must end because another one needs its place.
    pub(crate) async fn wait_for_end(&self) {
        self.end.notified().await;
    }

    /// Returns the number of the head that the connection waits for, from 1, or `None`.
    pub(crate) fn awaited_head(&self) -> Option<u64> {
        let state = self.lock();
        state.awaits_head.then_some(state.heads)
    }

    /// Takes the count of the connection, because the head of its request has arrived.
    pub(crate) fn take_count(&self) -> Option<CountGuard> {
        let mut state = self.lock();
        state.awaits_head = false;
        state.count.take()
    }

    /// Notes that the body of a request was not whole in time.
    pub(crate) fn set_body_late(&self) {
        self.lock().is_body_late = true;
    }

    /// Returns whether the body of the current request was not whole in time, and clears the flag.
    pub(crate) fn take_body_late(&self) -> bool {
        std::mem::take(&mut self.lock().is_body_late)
    }

    /// Counts the connection again while its peer reads the answer: it can end if another connection needs its place.
    pub(crate) fn count_until_read(&self) {
        self.count(false);
    }

    /// Counts the connection again after an answer. Returns whether it can wait for another request: at most half of
    /// [`Limits::waiting_of_peer`] connections are kept for one.
    pub(crate) fn count_for_next_request(&self) -> bool {
        let has_room = self.peers.lock().shared_numbers(self.peer).count() < self.peers.max_per_peer.div_ceil(2);
        self.count(has_room);
        has_room
    }

    /// Counts the connection as waiting for its peer. `is_shared`: also for the head of another request.
    fn count(&self, is_shared: bool) {
        let entry = Entry { is_shared, end: Arc::clone(&self.end) };
        let number = self.peers.lock().insert(self.peer, entry);
        let count = CountGuard { peers: Arc::clone(&self.peers), peer: self.peer, number };
        self.peers.another_waits.notify_one();
        let mut state = self.lock();
        state.awaits_head = is_shared;
        state.heads += u64::from(is_shared);
        let previous = state.count.replace(count);
        // The drop of a guard locks the peers.
        drop(state);
        drop(previous);
    }

    /// Frees the place of the connection, because its answer is a stream of events. The handler of the stream bounds
    /// the number of streams.
    pub(crate) fn free_place(&self) {
        drop(self.lock().place.take());
    }
}

/// Counts one waiting connection in [`Peers`] until it is dropped.
pub(crate) struct CountGuard {
    peers: Arc<Peers>,
    peer: IpAddr,
    number: u64,
}

impl Drop for CountGuard {
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

        fn register(&self, address: &str) -> ConnectionProgress {
            let place = Arc::clone(&self.places).try_acquire_owned().unwrap();
            self.peers.register(address.parse().unwrap(), place)
        }
    }

    fn is_ended(progress: &ConnectionProgress) -> bool {
        progress.wait_for_end().now_or_never().is_some()
    }

    #[test]
    fn oldest_connection_of_a_network_ends_first() {
        let world = World::new(2);
        let first = world.register("2001:db8::1");
        let (second, other) = (world.register("2001:db8::ffff"), world.register("2001:db8:0:1::1"));
        assert!(!is_ended(&first));
        let third = world.register("2001:db8::2");
        assert!(is_ended(&first) && !is_ended(&second) && !is_ended(&third) && !is_ended(&other));
        let mapped = [world.register("192.0.2.1"), world.register("::ffff:192.0.2.1"), world.register("192.0.2.1")];
        assert!(is_ended(&mapped[0]) && !is_ended(&mapped[1]) && !is_ended(&mapped[2]));
        drop((first, second, third, other, mapped));
        assert!(world.peers.lock().peers.is_empty(), "nothing is kept");
    }

    #[test]
    fn complete_request_does_not_count_and_idle_ones_are_half_a_share() {
        let world = World::new(2);
        let complete = world.register("192.0.2.1");
        drop(complete.take_count());
        assert_eq!(complete.awaited_head(), None);
        let two = [world.register("192.0.2.1"), world.register("192.0.2.1")];
        assert!(!is_ended(&complete) && !is_ended(&two[0]));
        assert!(!complete.count_for_next_request(), "two wait already");
        assert_eq!(complete.awaited_head(), None);
        drop(two);
        assert!(complete.count_for_next_request());
        assert_eq!(complete.awaited_head(), Some(2));
    }

    #[test]
    fn oldest_connection_of_the_largest_peer_ends_if_all_are_taken() {
        let world = World::new(9);
        let (served, reading) = (world.register("192.0.2.3"), world.register("192.0.2.2"));
        let (old, many) = (world.register("192.0.2.1"), [world.register("192.0.2.9"), world.register("192.0.2.9")]);
        drop(served.take_count());
        drop(reading.take_count());
        reading.count_until_read();
        let connections = [&served, &reading, &old, &many[0], &many[1]];
        for ended in [3, 2, 4, 1] {
            assert!(world.peers.end_oldest());
            assert_eq!(connections.iter().position(|connection| is_ended(connection)), Some(ended));
        }
        assert!(!world.peers.end_oldest());
    }

    #[test]
    fn stream_frees_its_place() {
        let world = World::new(2);
        let stream = world.register("192.0.2.1");
        assert_eq!(world.places.available_permits(), 99);
        stream.free_place();
        assert_eq!(world.places.available_permits(), 100);
    }
}
