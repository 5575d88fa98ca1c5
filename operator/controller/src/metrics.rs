//! The operator's Prometheus metrics, whose names begin with `signoff_`.
//!
//! **Invariant:** the operator itself does not read its metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use signoff_api::journal::Usage;
use signoff_cluster::metrics::{Labels, RequestMetrics};
use signoff_notify::NoticeResult;

use crate::guard::GuardStatus;

/// The metrics of one operator.
pub struct Metrics {
    registry: Mutex<Registry>,
    reconciles: Family<Labels, Histogram>,
    errors: Family<Labels, Counter>,
    requests: RequestMetrics,
    unreadable: Family<Labels, Counter>,
    ends: Family<Labels, Counter>,
    calls: Family<Labels, Histogram>,
    tokens: Family<Labels, Counter>,
    cost: Counter<f64, AtomicU64>,
    pending: Gauge,
    calls_free: Gauge,
    calls_waiting: Gauge,
    depth: Gauge,
    stalled: Gauge,
    rest_bytes: Gauge,
    in_use: Gauge,
    held_bytes: Family<Labels, Gauge>,
    in_force: Gauge,
    foreign: Gauge,
    leading: Gauge,
    quarantined: Gauge,
    stopped: Family<Labels, Counter>,
    notices: Family<Vec<(&'static str, String)>, Counter>,
    notices_waiting: Family<Vec<(&'static str, String)>, Gauge>,
    notices_misconfigured: Gauge,
    incarnation_seconds: Gauge<f64, AtomicU64>,
    machine_ahead_seconds: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = || Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0]);
        let long = || Histogram::new([0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0]);
        let mut all = Self {
            registry: Mutex::new(Registry::with_prefix("signoff")),
            reconciles: Family::new_with_constructor(seconds),
            errors: Family::default(),
            requests: RequestMetrics::default(),
            unreadable: Family::default(),
            ends: Family::default(),
            calls: Family::new_with_constructor(long),
            tokens: Family::default(),
            cost: Counter::default(),
            pending: Gauge::default(),
            calls_free: Gauge::default(),
            calls_waiting: Gauge::default(),
            depth: Gauge::default(),
            stalled: Gauge::default(),
            rest_bytes: Gauge::default(),
            in_use: Gauge::default(),
            held_bytes: Family::default(),
            in_force: Gauge::default(),
            foreign: Gauge::default(),
            leading: Gauge::default(),
            quarantined: Gauge::default(),
            stopped: Family::default(),
            notices: Family::default(),
            notices_waiting: Family::default(),
            notices_misconfigured: Gauge::default(),
            incarnation_seconds: Gauge::default(),
            machine_ahead_seconds: Gauge::default(),
        };
        let mut registry = Registry::with_prefix("signoff");
        registry.register("reconcile_seconds", "Reconciles, by kind and result", all.reconciles.clone());
        registry.register("reconcile_errors", "Failed reconciles, by kind and class", all.errors.clone());
        registry.register("unreadable_objects", "Objects that could not be decoded, by kind", all.unreadable.clone());
        registry.register("ended", "Runs and Approvals that finished, by kind and phase", all.ends.clone());
        registry.register("call_seconds", "Calls of models and addresses, by kind and result", all.calls.clone());
        registry.register(
            "model_tokens",
            "Tokens of models: read (input, of which some were cached) and written (output, of which some were reasoning)",
            all.tokens.clone(),
        );
        registry.register("model_cost", "Cost of turns of agents that have prices", all.cost.clone());
        registry.register("approvals_pending", "Open Approvals", all.pending.clone());
        registry.register("calls_free", "Free call slots", all.calls_free.clone());
        registry.register("calls_waiting", "Calls that wait for a free slot", all.calls_waiting.clone());
        registry.register("queue_depth", "Objects that wait to be reconciled", all.depth.clone());
        registry.register("stalled", "Objects whose reconcile has failed for a minute", all.stalled.clone());
        registry.register(
            "rest_bytes",
            "Bytes of idle Workflows and Approvals, compressed in memory",
            all.rest_bytes.clone(),
        );
        registry.register(
            "held_bytes",
            "Bytes in memory on behalf of runs: of calls beside their own (calls), of values that are read (values)",
            all.held_bytes.clone(),
        );
        registry.register("objects_in_use", "Workflows and Approvals that are not idle", all.in_use.clone());
        registry.register(
            "guard_in_force",
            "1 while the admission policies are in force as shipped",
            all.in_force.clone(),
        );
        registry.register(
            "guard_foreign_mutations",
            "Webhooks and mutating policies that Signoff did not install and that could change a vote before it is stored",
            all.foreign.clone(),
        );
        registry.register(
            "quarantined",
            "Objects that are set aside because the evaluation of their text was stopped",
            all.quarantined.clone(),
        );
        registry.register(
            "evaluations_stopped",
            "Evaluations that were stopped, by kind and reason",
            all.stopped.clone(),
        );
        registry.register(
            "notices",
            "Notices, by channel and result: delivered, later, dead, dropped, lost",
            all.notices.clone(),
        );
        registry.register(
            "notices_waiting",
            "Notices that wait to be delivered, by channel",
            all.notices_waiting.clone(),
        );
        registry.register(
            "notices_misconfigured",
            "1 while the file of notices, or a file that it names, cannot be used",
            all.notices_misconfigured.clone(),
        );
        registry.register("leading", "1 while this operator holds the Lease", all.leading.clone());
        registry.register(
            "start_time_seconds",
            "When this operator started, in Unix time",
            all.incarnation_seconds.clone(),
        );
        registry.register(
            "machine_clock_ahead_seconds",
            "By how much the clock of the operator's machine is ahead of the API server's, to a second",
            all.machine_ahead_seconds.clone(),
        );
        all.requests.register(&mut registry);
        all.registry = Mutex::new(registry);
        all
    }
}

impl Metrics {
    /// Returns the counters of requests, watches and Events.
    #[must_use]
    pub fn requests(&self) -> RequestMetrics {
        self.requests.clone()
    }

    /// Returns all metrics as OpenMetrics text.
    ///
    /// # Errors
    /// Never in practice: a `String` takes any text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }

    pub(crate) fn count_reconcile(&self, kind: &'static str, result: &'static str, took: Duration) {
        self.reconciles.get_or_create(&vec![("kind", kind), ("result", result)]).observe(took.as_secs_f64());
    }

    pub(crate) fn count_failure(&self, kind: &'static str, class: &'static str) {
        self.errors.get_or_create(&vec![("kind", kind), ("class", class)]).inc();
    }

    pub(crate) fn count_stop(&self, kind: &'static str, reason: &'static str) {
        self.stopped.get_or_create(&vec![("kind", kind), ("reason", reason)]).inc();
    }

    /// Counts the result of a notice.
    pub fn count_notice(&self, channel: &str, result: NoticeResult) {
        let labels = vec![("channel", channel.to_owned()), ("result", result.name().to_owned())];
        self.notices.get_or_create(&labels).inc();
    }

    pub(crate) fn set_notices_waiting(&self, waiting: &BTreeMap<String, usize>) {
        // A channel that is no longer configured has no gauge.
        self.notices_waiting.clear();
        for (channel, number) in waiting {
            let gauge = self.notices_waiting.get_or_create(&vec![("channel", channel.clone())]);
            gauge.set(i64::try_from(*number).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn set_notices_misconfigured(&self, is_bad: bool) {
        self.notices_misconfigured.set(is_bad.into());
    }

    pub(crate) fn set_quarantined(&self, objects: usize) {
        self.quarantined.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_unreadable(&self, kind: &'static str) {
        self.unreadable.get_or_create(&vec![("kind", kind)]).inc();
    }

    pub(crate) fn count_finished(&self, kind: &'static str, phase: &'static str) {
        self.ends.get_or_create(&vec![("kind", kind), ("phase", phase)]).inc();
    }

    pub(crate) fn count_call(&self, kind: &'static str, result: &'static str, took: Duration) {
        self.calls.get_or_create(&vec![("kind", kind), ("result", result)]).observe(took.as_secs_f64());
    }

    pub(crate) fn count_usage(&self, usage: &Usage) {
        let Usage { input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost } = usage;
        for (of, tokens) in [
            ("input", input_tokens),
            ("cached", cached_tokens),
            ("output", output_tokens),
            ("reasoning", reasoning_tokens),
        ] {
            self.tokens.get_or_create(&vec![("of", of)]).inc_by(u64::try_from(*tokens).unwrap_or_default());
        }
        if let Some(cost) = cost {
            self.cost.inc_by(cost.units());
        }
    }

    pub(crate) fn set_queue_levels(&self, pending: usize, calls_free: usize, calls_waiting: usize, depth: usize) {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.pending.set(number(pending));
        self.calls_free.set(number(calls_free));
        self.calls_waiting.set(number(calls_waiting));
        self.depth.set(number(depth));
    }

    pub(crate) fn set_stalled(&self, objects: usize) {
        self.stalled.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_store_bytes(&self, bytes: usize, in_use: usize) {
        self.rest_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.in_use.set(i64::try_from(in_use).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_held_bytes(&self, calls: usize, values: usize) {
        for (of, bytes) in [("calls", calls), ("values", values)] {
            self.held_bytes.get_or_create(&vec![("of", of)]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn set_guard_status(&self, status: &GuardStatus) {
        self.in_force.set(status.is_in_force().into());
        if let GuardStatus::InForce(guarded) = status {
            self.foreign.set(i64::try_from(guarded.external_mutators.len()).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn set_leading(&self, leading: bool) {
        self.leading.set(leading.into());
    }

    pub(crate) fn set_machine_ahead(&self, by: jiff::SignedDuration) {
        self.machine_ahead_seconds.set(by.as_secs_f64());
    }

    pub(crate) fn set_started(&self, at: jiff::Timestamp) {
        self.incarnation_seconds.set(at.as_duration().as_secs_f64());
    }
}

/// The metrics, shared by all tasks.
pub type SharedMetrics = Arc<Metrics>;
