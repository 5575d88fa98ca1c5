//! The evaluations of users' text: their threads, the withdrawals that end them early, and the objects in quarantine.

use signoff_api::Moment;
use signoff_cluster::{
    kinds::{Name, ReconciledKind},
    workqueue::Key,
};
use signoff_executor::{Evaluator, Subject};

use crate::{
    evaluating::EvaluatingReconciles,
    metrics::SharedMetrics,
    quarantine::{QuarantineEntry, Quarantines},
    withdrawal::Withdrawals,
};

/// The evaluations of users' text.
pub(crate) struct Evaluations {
    /// The threads on which evaluations run.
    pub(crate) evaluator: Evaluator,
    /// The reconciles that wait for an evaluation.
    pub(crate) waiting: EvaluatingReconciles,
    /// The wakers of evaluations that may have become useless.
    pub(crate) withdrawals: Withdrawals,
    /// The objects, votes and steps whose evaluations were stopped.
    pub(crate) quarantines: Quarantines,
    metrics: SharedMetrics,
}

impl Evaluations {
    /// Returns the evaluations of an operator that starts.
    pub(crate) fn new(evaluator: Evaluator, metrics: SharedMetrics) -> Self {
        Self {
            evaluator,
            waiting: EvaluatingReconciles::default(),
            withdrawals: Withdrawals::default(),
            quarantines: Quarantines::default(),
            metrics,
        }
    }

    /// Whether the previous process ended while it evaluated the object.
    pub(crate) fn is_suspect<K: ReconciledKind>(&self, object: &K) -> bool {
        self.evaluator.is_suspect(&subject(object))
    }

    /// Removes an object from the suspects: every evaluation that its reconcile needs has finished, or no evaluation is
    /// needed.
    pub(crate) fn clear_suspect<K: ReconciledKind>(&self, name: &Name, uid: &str) {
        let text = |text: &str| text.to_owned();
        let (namespace, name) = (text(&name.namespace), text(&name.name));
        self.evaluator.clear(&Subject { kind: text(K::KIND), namespace, name, uid: text(uid), generation: 0 });
    }

    /// Puts an object into quarantine after a stopped evaluation and `before` earlier failures. Returns its entry.
    pub(crate) fn begin_quarantine(&self, key: &Key, generation: i64, before: i32, now: Moment) -> QuarantineEntry {
        let entry = self.quarantines.record_stop(key, generation, before, now);
        self.count_quarantined();
        entry
    }

    /// Adds an object whose status says that it is in quarantine, unless it has an entry.
    pub(crate) fn restore_quarantine(&self, key: &Key, entry: QuarantineEntry) {
        self.quarantines.insert(key, entry);
        self.count_quarantined();
    }

    /// Ends the quarantine of an object.
    pub(crate) fn end_quarantine(&self, key: &Key) {
        if self.quarantines.remove(key) {
            self.count_quarantined();
        }
    }

    fn count_quarantined(&self) {
        self.metrics.set_quarantined(self.quarantines.count());
    }
}

/// Returns the subject under which the evaluations of an object run.
pub(super) fn subject<K: ReconciledKind>(object: &K) -> Subject {
    let meta = object.meta();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Subject {
        kind: K::KIND.to_owned(),
        namespace: text(&meta.namespace),
        name: text(&meta.name),
        uid: text(&meta.uid),
        generation: meta.generation.unwrap_or_default(),
    }
}
