//! The events of namespaces whose labels the watch has not received yet *(pure)*. They are routed when the labels
//! arrive, or after a while without labels.
//!
//! **Invariant:** bounded. Events beyond the bound are routed without labels, the oldest first.

use std::{collections::VecDeque, mem::take, time::Duration};

use signoff_notify::{
    Occasion,
    delivery::{Hold, Origin},
};
use tokio::time::Instant;

use super::occasion::bytes_of;

/// The longest time for which an event waits for the labels of its namespace.
pub(super) const LABEL_WAIT: Duration = Duration::from_secs(30);
/// The most waiting events.
const MAX_EVENTS: usize = 1000;
/// The most bytes of waiting events.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The waiting events, in their order.
#[derive(Default)]
pub(super) struct UnroutedEvents {
    events: VecDeque<UnroutedEvent>,
    bytes: usize,
}

/// A waiting event.
pub(super) struct UnroutedEvent {
    pub(super) occasion: Occasion,
    pub(super) origin: Origin,
    until: Instant,
    /// The hold keeps the event from being lost in a crash.
    _hold: Hold,
}

impl UnroutedEvent {
    /// Returns an event that waits for [`LABEL_WAIT`] from now on.
    pub(super) fn new(occasion: Occasion, origin: Origin, hold: Hold) -> Self {
        Self { occasion, origin, until: Instant::now() + LABEL_WAIT, _hold: hold }
    }
}

impl UnroutedEvents {
    /// Adds an event. Returns the oldest events, for which there is no room any more.
    pub(super) fn add(&mut self, event: UnroutedEvent) -> Vec<UnroutedEvent> {
        self.bytes += bytes_of(&event.occasion);
        self.events.push_back(event);
        let mut oldest = Vec::new();
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(bytes_of(&event.occasion));
            oldest.push(event);
        }
        oldest
    }

    /// Removes and returns the events that need not wait longer. `is_known`: whether the labels of a namespace are
    /// cached.
    pub(super) fn take_ready(&mut self, now: Instant, is_known: impl Fn(&str) -> bool) -> Vec<UnroutedEvent> {
        if self.events.is_empty() {
            return Vec::new();
        }
        let is_ready = |event: &UnroutedEvent| event.until <= now || is_known(&event.occasion.namespace);
        let (ready, waiting): (Vec<_>, Vec<_>) = take(&mut self.events).into_iter().partition(is_ready);
        self.events = waiting.into();
        self.bytes = self.events.iter().map(|event| bytes_of(&event.occasion)).sum();
        ready
    }

    /// Returns the time at which the first event is routed in any case.
    pub(super) fn until(&self) -> Option<Instant> {
        self.events.front().map(|event| event.until)
    }

    /// Whether an event of a run waits.
    pub(super) fn has_run(&self, namespace: &str, run: &str) -> bool {
        self.events.iter().any(|event| event.occasion.namespace == namespace && event.occasion.run == run)
    }
}
