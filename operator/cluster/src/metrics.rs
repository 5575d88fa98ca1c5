//! The counters of requests, watches and Events. Their names get the prefix of the registry.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The labels of a counter, with values known at compile time.
pub type Labels = Vec<(&'static str, &'static str)>;

/// The counters of requests, watches and Events. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics {
    writes: Family<Labels, Counter>,
    reads: Family<Vec<(&'static str, String)>, Counter>,
    events: Family<Labels, Counter>,
    watch_failures: Family<Labels, Counter>,
}

impl RequestMetrics {
    /// Registers all counters.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("writes", "Writes of state to the API server, by kind, verb and result", self.writes.clone());
        registry.register("reads", "Requests that read, by resource and verb", self.reads.clone());
        registry.register("events", "Events, by result: written, repeated, dropped, failed", self.events.clone());
        registry.register("watch_failures", "Watches that failed, by kind", self.watch_failures.clone());
    }

    /// Counts a request that reads, by any part of the operator.
    pub fn count_read(&self, verb: &str, resource: String) {
        self.reads.get_or_create(&vec![("resource", resource), ("verb", verb.to_owned())]).inc();
    }

    /// Counts a write.
    pub fn count_write(&self, kind: &'static str, verb: &'static str, result: &'static str) {
        self.writes.get_or_create(&vec![("kind", kind), ("verb", verb), ("result", result)]).inc();
    }

    /// Counts an Event.
    pub(crate) fn count_event(&self, result: &'static str) {
        self.events.get_or_create(&vec![("result", result)]).inc();
    }

    /// Counts a watch that failed.
    pub fn count_failed_watch(&self, kind: &'static str) {
        self.watch_failures.get_or_create(&vec![("kind", kind)]).inc();
    }
}
