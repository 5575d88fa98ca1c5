//! The slots for calls of models and addresses. They limit the calls in flight in all, of a namespace, of a Workflow
//! and to a host, and queue the calls beyond these limits.
//!
//! **Invariant:** waiting namespaces get free slots in turn, and within a namespace its Workflows do. A call at a limit
//! of its Workflow, namespace or host delays no other call. The slots in all and to a host are shared: each namespace
//! leaves a part of the free slots to namespaces that come later, and the last slots are for namespaces without a call
//! in flight.
//!
//! A free slot is reserved for one waiting call, and its Workflow is enqueued. A reconcile that does not claim the slot
//! returns it by [`CallSlots::retain`] or [`CallSlots::forget`].
//!
//! With its slot a call takes the memory that it needs before it is sent, beyond the bytes that every call has of its
//! own. While its answer is read, it can take more as long as there is room.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signoff_api::Seq;
use signoff_cluster::{
    fair_budget::{FairBudget, HeldPart},
    fair_share::FairShare,
    kinds::Name,
};
use signoff_engine::driver::CallKey;
use signoff_executor::AnswerRoom;
use tokio::sync::Notify;
use url::Url;

/// The limits of calls of models and addresses in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Of all namespaces together.
    pub total: usize,
    /// Of one namespace.
    pub per_namespace: usize,
    /// Of one Workflow.
    pub per_workflow: usize,
    /// To one host: that of a provider's `baseURL`, or of the URL of an http step.
    pub per_host: usize,
}

impl CallLimits {
    /// Returns the shares of namespaces in all slots.
    fn shares(&self) -> FairShare {
        FairShare::new(self.total, self.per_namespace, self.total / 4)
    }

    /// Returns the shares of namespaces in the slots to one host. A namespace alone can have half of these slots.
    fn shares_of_host(&self) -> FairShare {
        FairShare::new(self.per_host, self.per_host.div_ceil(2).min(self.per_namespace), self.per_host / 4)
    }

    /// Returns the default limits for `total` calls: half for a namespace, a quarter for a Workflow, and three quarters
    /// for a host. Each is at least 1.
    #[must_use]
    pub fn of_total(total: usize) -> Self {
        let total = total.max(1);
        let share = |quarters: usize| (total * quarters).div_ceil(4);
        Self { total, per_namespace: share(2), per_workflow: share(1), per_host: share(3) }
    }
}

impl Default for CallLimits {
    fn default() -> Self {
        Self::of_total(64)
    }
}

/// The slots of one operator.
pub(crate) struct CallSlots {
    limits: CallLimits,
    /// The memory for calls beyond `own_bytes`, the bytes that each call has of its own.
    bytes: Arc<FairBudget>,
    own_bytes: usize,
    inner: Mutex<CallSlotsState>,
    granted: Notify,
}

#[derive(Default)]
struct CallSlotsState {
    /// The slots of calls in flight, and the reserved slots.
    taken: SlotCounts,
    waiting: BTreeMap<Arc<str>, NamespaceQueue>,
    /// The namespace that got the last free slot.
    last: Option<Arc<str>>,
    /// The namespace that has less than its share of memory, and whose call did not fit. Its call is next.
    held_back: Option<Arc<str>>,
    /// The calls with a reserved slot, by their Workflow.
    reserved: BTreeMap<Name, BTreeMap<CallTicket, HeldPart>>,
    /// The Workflows that got a slot since the last [`CallSlots::take_granted`].
    wake: BTreeSet<Name>,
}

#[derive(Default)]
struct SlotCounts {
    all: usize,
    namespaces: BTreeMap<Arc<str>, usize>,
    runs: BTreeMap<Arc<str>, usize>,
    hosts: BTreeMap<Arc<str>, HostCounts>,
}

/// The slots to one host.
#[derive(Default)]
struct HostCounts {
    all: usize,
    namespaces: BTreeMap<Arc<str>, usize>,
}

/// The waiting calls of one namespace.
#[derive(Default)]
struct NamespaceQueue {
    workflows: BTreeMap<Name, BTreeSet<CallTicket>>,
    /// The Workflow that got the last free slot.
    last: Option<Name>,
}

/// A call that waits for a slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallTicket {
    /// The `seq` of its record. The calls of a Workflow get slots in this order.
    pub(crate) seq: Seq,
    /// The path and attempt of its record.
    pub(crate) call: CallKey,
    pub(crate) workflow: Name,
    /// The uid of its Workflow. A Workflow of the same name that is created again is another run.
    pub(crate) run: Arc<str>,
    /// The host that it calls, or `None` for a call within this process, such as to a scripted model.
    pub(crate) host: Option<Arc<str>>,
    /// The bytes that it needs in memory.
    pub(crate) bytes: CallBytes,
}

/// The bytes that a call needs in memory before it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallBytes {
    /// The bytes of its request, with copies.
    pub(crate) request: usize,
    /// The bytes that are reserved for its answer.
    pub(crate) answer: usize,
}

/// The limit that delays a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallWait {
    /// The limit of its Workflow.
    Workflow(usize),
    /// The limit of its namespace.
    Namespace(usize),
    /// Its namespace has this number of slots, which is its share beside other namespaces.
    Share(usize),
    /// The limit of the host that it calls.
    Host(Arc<str>, usize),
    /// Its namespace has this number of slots to the host, which is its share beside other namespaces.
    HostShare(Arc<str>, usize),
    /// The limit of the operator.
    Total(usize),
    /// There is no memory for this number of bytes.
    Memory(usize),
}

/// The slot of a call in flight. Dropping it frees the slot.
pub(crate) struct CallSlot {
    slots: Arc<CallSlots>,
    ticket: CallTicket,
    held: Mutex<HeldPart>,
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.slots.apply_change(|inner| inner.taken.remove(&self.ticket));
    }
}

impl AnswerRoom for CallSlot {
    fn has_room_for(&self, bytes: usize) -> bool {
        // The bytes for the answer were reserved before the call was sent. They suffice even if the reservation was
        // limited to the share of a namespace: otherwise the call would fail and be repeated for ever.
        if bytes <= self.ticket.bytes.answer {
            return true;
        }
        let all = self.ticket.bytes.request.saturating_add(bytes);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.grow_to(all.saturating_sub(self.slots.own_bytes))
    }
}

/// Returns the host of a URL by which its calls are limited.
pub(crate) fn host_of_url(url: &str) -> Option<Arc<str>> {
    let url: Url = url.parse().ok()?;
    let host = url.host_str()?;
    Some(host.strip_suffix('.').unwrap_or(host).into())
}

impl CallSlots {
    pub(crate) fn new(limits: CallLimits, bytes: Arc<FairBudget>, own_bytes: usize) -> Self {
        Self { limits, bytes, own_bytes, inner: Mutex::default(), granted: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, CallSlotsState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change that may free slots, and reserves free slots for the next calls.
    fn apply_change(&self, change: impl FnOnce(&mut CallSlotsState)) {
        let mut inner = self.lock();
        change(&mut inner);
        self.reserve(&mut inner);
        if !inner.wake.is_empty() {
            self.granted.notify_one();
        }
    }

    /// Acquires a slot for a call, or queues the call.
    pub(crate) fn acquire(self: &Arc<Self>, ticket: CallTicket) -> Result<CallSlot, CallWait> {
        let mut inner = self.lock();
        let mut held = inner.claim(&ticket);
        if held.is_none() {
            let queue = inner.waiting.entry(Arc::clone(&ticket.workflow.namespace)).or_default();
            queue.workflows.entry(ticket.workflow.clone()).or_default().insert(ticket.clone());
            self.reserve(&mut inner);
            held = inner.claim(&ticket);
        }
        let Some(held) = held else {
            let limit = inner.taken.reached_limit(&ticket, &self.limits);
            return Err(limit.unwrap_or(CallWait::Memory(self.bytes_of(&ticket))));
        };
        drop(inner);
        Ok(CallSlot { slots: Arc::clone(self), ticket, held: Mutex::new(held) })
    }

    /// Returns the bytes that a call needs before it is sent, beyond its own bytes.
    fn bytes_of(&self, ticket: &CallTicket) -> usize {
        let CallBytes { request, answer } = ticket.bytes;
        request.saturating_add(answer).saturating_sub(self.own_bytes)
    }

    /// Reserves slots for calls that waited for memory that has become free.
    pub(crate) fn on_bytes_freed(&self) {
        self.apply_change(|_| {});
    }

    /// Reserves free slots for the next calls.
    fn reserve(&self, inner: &mut CallSlotsState) {
        while inner.taken.all < self.limits.total
            && let Some((ticket, held)) = self.take_next(inner)
        {
            inner.taken.add(&ticket);
            inner.wake.insert(ticket.workflow.clone());
            inner.reserved.entry(ticket.workflow.clone()).or_default().insert(ticket, held);
        }
    }

    /// Reserves free memory for the namespace whose call did not fit, or ends the reservation if `None`.
    fn hold_back(&self, inner: &mut CallSlotsState, namespace: Option<Arc<str>>) {
        self.bytes.reserve_for(namespace.clone());
        inner.held_back = namespace;
    }

    /// Takes the memory of the next call that may start, removes the call from the queue, and returns both. The
    /// namespaces are tried in turn. If the memory for a namespace below its share does not suffice, free memory is
    /// held back for it.
    fn take_next(&self, inner: &mut CallSlotsState) -> Option<(CallTicket, HeldPart)> {
        let first = inner.held_back.clone().filter(|name| inner.waiting.contains_key(name));
        self.hold_back(inner, None);
        let after = in_turn(&inner.waiting, inner.last.as_ref()).map(|(name, _)| Arc::clone(name));
        let order: Vec<Arc<str>> = first.into_iter().chain(after).collect();
        for namespace in order {
            // A namespace can have many thousands of calls, which are skipped while none of them may start.
            let own = count(&inner.taken.namespaces, &namespace);
            if own >= self.limits.per_namespace || !self.limits.shares().has_room(own, inner.taken.all, 1) {
                continue;
            }
            let Some(queue) = inner.waiting.get_mut(&namespace) else { continue };
            let mut lacks_bytes = false;
            let next = in_turn(&queue.workflows, queue.last.as_ref()).find_map(|(_, tickets)| {
                let ticket = tickets.iter().find(|ticket| inner.taken.reached_limit(ticket, &self.limits).is_none())?;
                let held = self.bytes.try_take(&namespace, self.bytes_of(ticket));
                lacks_bytes |= held.is_none();
                Some((ticket.clone(), held?))
            });
            let Some((ticket, held)) = next else {
                if lacks_bytes && inner.held_back.is_none() && self.bytes.is_below_share(&namespace) {
                    self.hold_back(inner, Some(namespace));
                }
                continue;
            };
            queue.last = Some(ticket.workflow.clone());
            inner.drop_waiting(&ticket.workflow, |other| *other != ticket);
            inner.last = Some(namespace);
            return Some((ticket, held));
        }
        None
    }

    /// Keeps only the `wanted` calls of a Workflow in the queue, and frees the reserved slots of its other calls.
    pub(crate) fn retain(&self, workflow: &Name, wanted: impl Fn(&CallTicket) -> bool) {
        let mut inner = self.lock();
        let before = inner.taken.all;
        inner.retain(workflow, wanted);
        let is_gone = inner.held_back.as_ref().is_some_and(|name| !inner.waiting.contains_key(name));
        // Without a freed slot there is nothing to reserve. Every reconcile comes here, so this is skipped.
        if inner.taken.all < before || is_gone {
            self.reserve(&mut inner);
        }
        if !inner.wake.is_empty() {
            self.granted.notify_one();
        }
    }

    /// Removes every call of a Workflow from the queue.
    pub(crate) fn forget(&self, workflow: &Name) {
        self.retain(workflow, |_| false);
    }

    /// Waits until slots have been reserved since this function returned last.
    pub(crate) async fn granted(&self) {
        self.granted.notified().await;
    }

    /// Returns the Workflows for which slots were reserved since the last call of this function.
    pub(crate) fn take_granted(&self) -> BTreeSet<Name> {
        std::mem::take(&mut self.lock().wake)
    }

    /// Returns the number of free slots and of waiting calls.
    pub(crate) fn levels(&self) -> (usize, usize) {
        let inner = self.lock();
        let waiting = inner.waiting.values().flat_map(|queue| queue.workflows.values()).map(BTreeSet::len).sum();
        (self.limits.total.saturating_sub(inner.taken.all), waiting)
    }
}

impl CallSlotsState {
    /// Takes the reserved slot of a call, and returns its memory, or `None` if it has no reserved slot.
    fn claim(&mut self, ticket: &CallTicket) -> Option<HeldPart> {
        let reserved = self.reserved.get_mut(&ticket.workflow)?;
        let claimed = reserved.remove(ticket);
        if reserved.is_empty() {
            self.reserved.remove(&ticket.workflow);
            self.wake.remove(&ticket.workflow);
        }
        claimed
    }

    /// Removes the calls of a Workflow that are not `wanted` from the queue, and frees their reserved slots.
    fn retain(&mut self, workflow: &Name, wanted: impl Fn(&CallTicket) -> bool) {
        self.drop_waiting(workflow, &wanted);
        if let Some(mut reserved) = self.reserved.remove(workflow) {
            for (ticket, _) in reserved.extract_if(.., |ticket, _| !wanted(ticket)) {
                self.taken.remove(&ticket);
            }
            if reserved.is_empty() {
                self.wake.remove(workflow);
            } else {
                self.reserved.insert(workflow.clone(), reserved);
            }
        }
    }

    /// Removes the calls of a Workflow that are not `wanted` from the queue.
    fn drop_waiting(&mut self, workflow: &Name, wanted: impl Fn(&CallTicket) -> bool) {
        let Some(queue) = self.waiting.get_mut(&workflow.namespace) else { return };
        if let Some(tickets) = queue.workflows.get_mut(workflow) {
            tickets.retain(wanted);
            if tickets.is_empty() {
                queue.workflows.remove(workflow);
            }
        }
        if queue.workflows.is_empty() {
            self.waiting.remove(&workflow.namespace);
        }
    }
}

impl SlotCounts {
    /// Returns the limit that delays a call, or `None`.
    fn reached_limit(&self, ticket: &CallTicket, limits: &CallLimits) -> Option<CallWait> {
        let namespace = &ticket.workflow.namespace;
        let (of_run, own) = (count(&self.runs, &ticket.run), count(&self.namespaces, namespace));
        if of_run >= limits.per_workflow {
            return Some(CallWait::Workflow(limits.per_workflow));
        }
        if own >= limits.per_namespace {
            return Some(CallWait::Namespace(limits.per_namespace));
        }
        if let Some(host) = &ticket.host {
            let (all, own) = self.hosts.get(host).map_or((0, 0), |host| (host.all, count(&host.namespaces, namespace)));
            if all >= limits.per_host {
                return Some(CallWait::Host(Arc::clone(host), limits.per_host));
            }
            if !limits.shares_of_host().has_room(own, all, 1) {
                return Some(CallWait::HostShare(Arc::clone(host), own));
            }
        }
        if self.all >= limits.total {
            return Some(CallWait::Total(limits.total));
        }
        (!limits.shares().has_room(own, self.all, 1)).then_some(CallWait::Share(own))
    }

    fn add(&mut self, ticket: &CallTicket) {
        let namespace = &ticket.workflow.namespace;
        self.all += 1;
        increment(&mut self.namespaces, namespace);
        increment(&mut self.runs, &ticket.run);
        if let Some(host) = &ticket.host {
            let host = self.hosts.entry(Arc::clone(host)).or_default();
            host.all += 1;
            increment(&mut host.namespaces, namespace);
        }
    }

    fn remove(&mut self, ticket: &CallTicket) {
        let namespace = &ticket.workflow.namespace;
        self.all = self.all.saturating_sub(1);
        decrement(&mut self.namespaces, namespace);
        decrement(&mut self.runs, &ticket.run);
        if let Some(host) = &ticket.host
            && let Some(counts) = self.hosts.get_mut(host)
        {
            counts.all = counts.all.saturating_sub(1);
            decrement(&mut counts.namespaces, namespace);
            if counts.all == 0 {
                self.hosts.remove(host);
            }
        }
    }
}

fn count(counts: &BTreeMap<Arc<str>, usize>, key: &str) -> usize {
    counts.get(key).copied().unwrap_or_default()
}

fn increment(counts: &mut BTreeMap<Arc<str>, usize>, key: &Arc<str>) {
    *counts.entry(Arc::clone(key)).or_default() += 1;
}

/// Decrements a count, and removes it at 0.
fn decrement(counts: &mut BTreeMap<Arc<str>, usize>, key: &Arc<str>) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Returns the entries of a map, beginning after `last` and ending with it.
fn in_turn<'m, K: Ord, V>(map: &'m BTreeMap<K, V>, last: Option<&K>) -> impl Iterator<Item = (&'m K, &'m V)> {
    let after = last.map_or(Bound::Unbounded, Bound::Excluded);
    let until = last.map(|last| map.range((Bound::Unbounded, Bound::Included(last))));
    map.range((after, Bound::Unbounded)).chain(until.into_iter().flatten())
}

impl CallWait {
    /// Returns a sentence for the condition `CallsPending`. The sentence contains no position in the queue, because
    /// each change of it would cost a write.
    pub(crate) fn message(&self, namespace: &str) -> String {
        let at_limit = |owner: String, limit: usize, flag: &str| {
            format!(
                "{owner} has {limit} calls in flight, which is its limit ({flag}); the call starts when a slot is free"
            )
        };
        match self {
            Self::Workflow(limit) => at_limit("its Workflow".to_owned(), *limit, "--max-calls-per-workflow"),
            Self::Namespace(limit) => {
                at_limit(format!("the namespace {namespace}"), *limit, "--max-calls-per-namespace")
            }
            Self::Host(host, limit) => {
                format!(
                    "{limit} calls to {host} are in flight, which is the limit (--max-calls-per-provider); the call starts when a slot is free"
                )
            }
            Self::Share(own) => format!(
                "the namespace {namespace} has {own} calls in flight, which is its share beside those of other namespaces (--max-calls-per-namespace is what it has alone); the call starts when a slot is free for it"
            ),
            Self::HostShare(host, own) => format!(
                "the namespace {namespace} has {own} calls to {host} in flight, which is its share beside those of other namespaces (half of --max-calls-per-provider is what it has alone); the call starts when a slot is free for it"
            ),
            Self::Total(limit) => at_limit("the operator".to_owned(), *limit, "--max-calls"),
            Self::Memory(bytes) => format!(
                "there is no memory for {bytes} bytes that the call needs beside those of its own (the operator's limit of memory bounds them, and namespaces share them); the call starts when there is"
            ),
        }
    }
}

#[cfg(test)]
#[path = "call_slots_tests.rs"]
mod tests;
