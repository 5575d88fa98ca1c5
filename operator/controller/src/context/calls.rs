//! The calls of runs: those in flight, those that wait for a slot, and the Pods among them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use signoff_cluster::{fair_budget::FairBudget, kinds::Name};
use signoff_engine::transition::Call;
use signoff_executor::RunRef;
use tokio::sync::mpsc;

use crate::{
    call_slots::{CallSlot, CallSlots},
    in_flight::Runs,
    pods::{PodIndex, PodQuota, PodSlot},
};

/// The calls of all runs, with the slots and the memory that they need.
pub(crate) struct Calls {
    /// The name of this process, which marks the records of the calls that it starts.
    pub(crate) incarnation: String,
    /// The calls in flight, and the results that are not committed.
    pub(crate) runs: Runs,
    /// The sender of calls to the event loop, which starts them.
    pub(crate) starts: mpsc::UnboundedSender<CallStart>,
    pub(crate) slots: Arc<CallSlots>,
    /// The memory for calls beyond the bytes that each has of its own, for logs, and for results that are not
    /// committed.
    pub(crate) bytes: Arc<FairBudget>,
    pub(crate) pods: Arc<PodIndex>,
    pub(crate) pod_quota: Arc<PodQuota>,
    /// Whether the operator is stopping: no new call starts.
    pub(crate) draining: AtomicBool,
}

impl Calls {
    /// Whether the operator is stopping.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Records that the operator is stopping, so that no new call starts.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Removes a Workflow from the queues for Pods and for slots.
    pub(crate) fn forget_queued(&self, workflow: &Name) {
        self.pod_quota.forget(workflow);
        self.slots.forget(workflow);
    }
}

/// A call to be started, with its slot.
pub(crate) struct CallStart {
    pub(crate) name: Name,
    pub(crate) run: RunRef,
    pub(crate) call: Call,
    /// The generation of the Workflow's spec by which it starts.
    pub(crate) generation: Option<i64>,
    pub(crate) hold: StartSlot,
}

/// The slot of a call that starts. Dropping it frees the slot.
pub(crate) enum StartSlot {
    /// The slot of a call that this process makes.
    Call(CallSlot),
    /// The slot of a Pod. `begins`: whether the Pod was certainly never created before.
    Pod { _slot: PodSlot, begins: bool },
}
