//! A budget that namespaces share: of bytes in memory, or of requests at once.
//!
//! **Invariant:** waiting requests are served by turns of their namespaces, and small requests do not overtake a large
//! one for ever. A caller that waits should hold no part of the same budget.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, oneshot};

use crate::fair_share::FairShare;

/// A budget that namespaces share.
pub struct FairBudget {
    share: FairShare,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    taken: usize,
    namespaces: BTreeMap<Arc<str>, usize>,
    waiting: BTreeMap<Arc<str>, VecDeque<Waiting>>,
    /// The namespace that got a part last.
    last: Option<Arc<str>>,
    /// The namespace that has less than its share, and whose request did not fit. Its request is next.
    next_large: Option<Arc<str>>,
    /// Whether a [`FairBudget::try_take`] was refused since a part became free.
    has_refused: bool,
    /// The namespace that gets parts that become free before others, set by [`FairBudget::reserve_for`].
    reserved_for: Option<Arc<str>>,
}

/// A request that waits for a part.
struct Waiting {
    amount: usize,
    grant: oneshot::Sender<HeldPart>,
}

/// The guard of a waiting request. When it is dropped, the requests behind it are checked again.
struct QueueGuard<'b>(&'b Arc<FairBudget>);

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.grant(self.0.lock());
    }
}

/// A part of a budget, which is free again when the value is dropped.
pub struct HeldPart {
    budget: Arc<FairBudget>,
    namespace: Arc<str>,
    amount: usize,
}

impl Drop for HeldPart {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl FairBudget {
    /// Returns a budget of `most`. A namespace alone can have half of the budget, and a quarter is kept for namespaces
    /// without a part.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        let share = FairShare::new(most, most / 2, most / 4);
        Arc::new(Self { share, state: Mutex::default(), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `amount` if there is room for it now. At most the share of a namespace alone is taken.
    #[must_use]
    pub fn try_take(self: &Arc<Self>, namespace: &Arc<str>, amount: usize) -> Option<HeldPart> {
        let amount = amount.min(self.share.alone());
        let mut state = self.lock();
        if !self.has_room(&state, namespace, amount) {
            state.has_refused = true;
            return None;
        }
        Some(self.hold(&mut state, namespace, amount))
    }

    /// Waits until there is room for `amount`, and takes it. At most the share of a namespace alone is taken.
    pub async fn take(self: &Arc<Self>, namespace: &Arc<str>, amount: usize) -> HeldPart {
        let amount = amount.min(self.share.alone());
        // Declared first, so that it is dropped after the receiver. The dropped receiver takes the request out of the
        // queue.
        let _queue_guard = QueueGuard(self);
        let (grant, granted) = oneshot::channel();
        {
            let mut state = self.lock();
            state.waiting.entry(Arc::clone(namespace)).or_default().push_back(Waiting { amount, grant });
            self.grant(state);
        }
        match granted.await {
            Ok(held) => held,
            // Only the budget itself drops a grant, and it never does.
            Err(_) => HeldPart { budget: Arc::clone(self), namespace: Arc::clone(namespace), amount: 0 },
        }
    }

    /// Holds an amount that is in use already, even without room for it.
    #[must_use]
    pub fn note(self: &Arc<Self>, namespace: &Arc<str>, amount: usize) -> HeldPart {
        self.hold(&mut self.lock(), namespace, amount)
    }

    /// Waits until a part becomes free after a [`FairBudget::try_take`] was refused.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Refuses the other namespaces, except those that have little, until the next call. A caller of
    /// [`FairBudget::try_take`] passes the namespace that has less than its share and was refused, so that small parts
    /// do not starve a large one. `None` ends the reservation.
    pub fn reserve_for(&self, namespace: Option<Arc<str>>) {
        self.lock().reserved_for = namespace;
    }

    /// Whether a namespace has less than its share.
    #[must_use]
    pub fn is_below_share(&self, namespace: &str) -> bool {
        let state = self.lock();
        self.share.is_below_share(state.amount_of(namespace), state.taken)
    }

    /// Returns the amount that is taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Whether there is room for `amount`. A request for 0 is always granted to a namespace that has little, so that
    /// its next call begins before its last result is committed.
    fn has_room(&self, state: &State, namespace: &str, amount: usize) -> bool {
        let own = state.amount_of(namespace);
        if amount == 0 && self.share.is_little(own) {
            return true;
        }
        let is_for_another = state.reserved_for.as_ref().is_some_and(|first| **first != *namespace);
        (!is_for_another || self.share.is_little(own.saturating_add(amount)))
            && self.share.has_room(own, state.taken, amount)
    }

    /// Adds an amount to a namespace, and returns it as a part.
    fn hold(self: &Arc<Self>, state: &mut State, namespace: &Arc<str>, amount: usize) -> HeldPart {
        state.replace_amount(namespace, 0, amount);
        HeldPart { budget: Arc::clone(self), namespace: Arc::clone(namespace), amount }
    }

    /// Grants waiting requests as long as there is room, and wakes [`FairBudget::freed`] after a refusal.
    fn grant(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut granted = Vec::new();
        while let Some((waiting, namespace)) = self.take_next(&mut state) {
            granted.push((waiting.grant, self.hold(&mut state, &namespace, waiting.amount)));
            state.last = Some(namespace);
        }
        if std::mem::take(&mut state.has_refused) {
            self.freed.notify_one();
        }
        drop(state);
        // A request that was dropped meanwhile gives its part back here.
        for (grant, held) in granted {
            let _ = grant.send(held);
        }
    }

    /// Removes the next request from the queue. While the request of a namespace below its share does not fit, only
    /// namespaces that have none are served, from the part that is kept for them.
    fn take_next(&self, state: &mut State) -> Option<(Waiting, Arc<str>)> {
        for queue in state.waiting.values_mut() {
            queue.retain(|waiting| !waiting.grant.is_closed());
        }
        state.waiting.retain(|_, queue| !queue.is_empty());
        let last = state.last.clone();
        let (after, until): (Vec<_>, Vec<_>) =
            state.waiting.keys().cloned().partition(|name| Some(name) > last.as_ref());
        let first = state.next_large.take().filter(|name| state.waiting.contains_key(name));
        for namespace in first.into_iter().chain(after).chain(until) {
            let amount = state.waiting.get(&namespace)?.front()?.amount;
            let own = state.amount_of(&namespace);
            let is_allowed = state.next_large.is_none() || amount == 0 || self.share.is_for_newcomers(own, amount);
            if is_allowed && self.has_room(state, &namespace, amount) {
                let waiting = state.waiting.get_mut(&namespace)?.pop_front()?;
                return Some((waiting, namespace));
            }
            if state.next_large.is_none() && self.share.is_below_share(own, state.taken) {
                state.next_large = Some(namespace);
            }
        }
        None
    }
}

impl State {
    fn amount_of(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }

    /// Replaces `before` by `after` in the amount of a namespace.
    fn replace_amount(&mut self, namespace: &Arc<str>, before: usize, after: usize) {
        self.taken = self.taken - before + after;
        let own = self.amount_of(namespace) - before + after;
        if own == 0 {
            self.namespaces.remove(namespace);
        } else {
            self.namespaces.insert(Arc::clone(namespace), own);
        }
    }
}

impl HeldPart {
    /// Grows the part to `amount` if there is room. Returns whether the part has at least `amount`.
    #[must_use]
    pub fn grow_to(&mut self, amount: usize) -> bool {
        let mut state = self.budget.lock();
        let more = amount.saturating_sub(self.amount);
        if more > 0 && !self.budget.has_room(&state, &self.namespace, more) {
            return false;
        }
        state.replace_amount(&self.namespace, self.amount, self.amount + more);
        self.amount += more;
        true
    }

    /// Sets the part to `amount`, which is in use already, even without room for it.
    pub fn set(&mut self, amount: usize) {
        let mut state = self.budget.lock();
        state.replace_amount(&self.namespace, self.amount, amount);
        let is_less = amount < self.amount;
        self.amount = amount;
        if is_less {
            self.budget.grant(state);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt;

    use super::*;

    fn name(namespace: &str) -> Arc<str> {
        namespace.into()
    }

    #[test]
    fn a_dropped_part_is_free_again() {
        let budget = FairBudget::new(1000);
        let mut held = budget.try_take(&name("a"), 300).unwrap();
        assert!(held.grow_to(500) && held.grow_to(100), "it has them already");
        assert!(!held.grow_to(900), "half of it is for others");
        assert_eq!(budget.taken(), 500);
        held.set(900);
        assert_eq!(budget.taken(), 900, "what is in memory already counts");
        drop(held);
        assert_eq!((budget.taken(), budget.lock().namespaces.len()), (0, 0));
    }

    #[tokio::test]
    async fn waiting_requests_are_served_by_turns_of_their_namespaces() {
        let budget = FairBudget::new(1000);
        let (a, b) = (name("a"), name("b"));
        let first = budget.take(&a, 500).await;
        let mut waiting: Vec<_> = [&a, &a, &b].into_iter().map(|name| Box::pin(budget.take(name, 400))).collect();
        assert!(waiting.iter_mut().all(|request| request.as_mut().now_or_never().is_none()));
        drop(first);
        assert!(waiting[2].as_mut().now_or_never().is_some(), "b is next");
        assert!(waiting[1].as_mut().now_or_never().is_none());
        let _ = waiting.pop();
        assert!(waiting[0].as_mut().now_or_never().is_some());
    }

    #[tokio::test]
    async fn only_small_requests_of_newcomers_overtake_a_large_request() {
        let budget = FairBudget::new(1000);
        let (a, b, c) = (name("a"), name("b"), name("c"));
        let first = budget.take(&a, 300).await;
        let mut large = Box::pin(budget.take(&b, 500));
        assert!(large.as_mut().now_or_never().is_none(), "750 are shared");
        assert!(Box::pin(budget.take(&a, 1)).as_mut().now_or_never().is_none(), "it is not overtaken");
        let little = budget.take(&c, 30).now_or_never().unwrap();
        assert!(Box::pin(budget.take(&name("d"), 300)).as_mut().now_or_never().is_none());
        drop((first, little));
        assert!(large.as_mut().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_dropped_request_does_not_block_others() {
        let budget = FairBudget::new(1000);
        let (a, b) = (name("a"), name("b"));
        let first = budget.take(&a, 300).await;
        let mut gone = Box::pin(budget.take(&b, 500));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut next = Box::pin(budget.take(&a, 10));
        assert!(next.as_mut().now_or_never().is_none());
        drop(gone);
        drop(first);
        assert!(next.as_mut().now_or_never().is_some());
        drop(next);
        assert_eq!(budget.taken(), 0);
    }

    #[tokio::test]
    async fn dropping_a_request_grants_the_next_at_once() {
        let budget = FairBudget::new(1000);
        let (a, b) = (name("a"), name("b"));
        let _first = budget.take(&a, 300).await;
        let mut gone = Box::pin(budget.take(&b, 500));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut next = Box::pin(budget.take(&a, 100));
        assert!(next.as_mut().now_or_never().is_none(), "it is not overtaken");
        drop(gone);
        assert!(next.as_mut().now_or_never().is_some(), "nothing else may happen for long");
    }

    #[tokio::test]
    async fn freed_is_notified_only_after_a_refusal() {
        let budget = FairBudget::new(1000);
        let held = budget.try_take(&name("a"), 500).unwrap();
        assert!(budget.try_take(&name("a"), 1).is_none());
        assert!(budget.freed().now_or_never().is_none());
        drop(held);
        assert!(budget.freed().now_or_never().is_some());
        drop(budget.try_take(&name("a"), 1).unwrap());
        assert!(budget.freed().now_or_never().is_none(), "nobody was refused");
    }

    #[test]
    fn a_reservation_refuses_other_namespaces_that_have_more_than_little() {
        let budget = FairBudget::new(1000);
        let mut held = budget.try_take(&name("a"), 300).unwrap();
        budget.reserve_for(Some(name("b")));
        assert!(
            budget.try_take(&name("a"), 1).is_none()
                && !held.grow_to(301)
                && budget.try_take(&name("c"), 100).is_none()
        );
        let little = [20, 11].map(|amount| budget.try_take(&name("c"), amount));
        assert!(little.iter().all(Option::is_some), "31 are little");
        assert!(budget.try_take(&name("b"), 200).is_some());
        budget.reserve_for(None);
        assert!(held.grow_to(301));
    }

    #[test]
    fn ten_namespaces_that_take_all_they_can_leave_room_for_another() {
        let budget = FairBudget::new(64 << 20);
        let mut held = Vec::new();
        for turn in 0..2000 {
            let namespace = name(&format!("hostile-{}", turn % 10));
            held.extend(budget.try_take(&namespace, [1 << 20, 8 << 20, 1 << 16][turn % 3]));
        }
        assert!(budget.taken() <= 48 << 20, "{}", budget.taken());
        assert!(budget.try_take(&name("victim"), 1 << 20).is_some());
        assert!(budget.try_take(&name("another"), 2 << 20).is_some());
    }

    #[test]
    fn a_request_for_zero_is_granted_to_a_namespace_that_has_little() {
        let budget = FairBudget::new(1000);
        let (_little, _much) = (budget.note(&name("little"), 31), budget.note(&name("much"), 32));
        let _others = budget.note(&name("others"), 1700);
        assert!(budget.try_take(&name("little"), 0).is_some());
        assert!(budget.try_take(&name("little"), 1).is_none());
        assert!(budget.try_take(&name("much"), 0).is_none(), "its results have to be committed first");
    }
}
