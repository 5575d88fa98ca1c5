//! The Pods of steps: quota *(pure)* -> build *(pure)* -> create *(I/O)* -> follow -> read the log *(I/O)* -> delete
//! *(I/O)*.
//!
//! **Invariant:** touches only a Pod that equals the one that it would have created. The engine decides the effect of
//! its end on the run.
//!
//! * `state`: the decoded fields of a Pod, and the state of its container
//! * `index`: every Pod that the watch has delivered, and the tasks that follow it
//! * `quota`: the limits of running Pods, and the queue
//! * `build`: the object from the call
//! * `runner`: one Pod from its creation to its end
//! * `log`: the end of a container's log

mod build;
#[cfg(test)]
mod build_tests;
mod index;
mod log;
mod quota;
#[cfg(test)]
mod quota_tests;
mod runner;
mod state;
#[cfg(test)]
mod state_tests;

use futures::FutureExt;
use kube::Client;
use tokio::{sync::mpsc, task::JoinSet};

pub(crate) use index::PodIndex;
pub(crate) use quota::{PodQuota, PodSlot, PodWait, QueuedPod};
pub(crate) use runner::PodRunner;
use signoff_cluster::watch::{WatchEvent, follow_in};
pub(crate) use state::{PodState, StepPod};

use crate::{exit_reason::ExitReason, metrics::SharedMetrics};

/// The administrator's settings for Pods.
#[derive(Clone, Debug)]
pub struct PodSettings {
    /// Whether steps may be Pods.
    pub enabled: bool,
    /// The namespaces in which steps may be Pods. Empty for all namespaces.
    pub namespaces: Vec<String>,
    /// The most Pods that run at once in a namespace.
    pub most_in_namespace: usize,
    /// The most Pods that run at once for one Workflow.
    pub most_of_workflow: usize,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self { enabled: true, namespaces: Vec::new(), most_in_namespace: 50, most_of_workflow: 20 }
    }
}

impl PodSettings {
    /// Whether steps may be Pods in this namespace.
    pub(crate) fn allows(&self, namespace: &str) -> bool {
        self.enabled && (self.namespaces.is_empty() || self.namespaces.iter().any(|allowed| allowed == namespace))
    }
}

/// A watch event of Pods with the namespace of its watch, or `None` for all namespaces.
pub(crate) type PodWatchEvent = (Option<String>, WatchEvent<StepPod>);

/// Starts one watch of the Pods of steps, or one watch for each namespace that the administrator names. Returns the
/// receiver of all events.
pub(crate) fn start_watches(
    client: &Client,
    settings: &PodSettings,
    metrics: &SharedMetrics,
    background: &mut JoinSet<ExitReason>,
) -> mpsc::Receiver<PodWatchEvent> {
    let (to, events) = mpsc::channel(256);
    let everywhere = settings.namespaces.is_empty().then_some(None);
    let scopes = everywhere.into_iter().chain(settings.namespaces.iter().cloned().map(Some));
    for namespace in scopes.filter(|_| settings.enabled) {
        let (to_namespace, mut from) = mpsc::channel(64);
        let to = to.clone();
        background.spawn(
            follow_in(client.clone(), namespace.clone(), to_namespace, metrics.requests())
                .map(|()| ExitReason::Task("watch of Pods")),
        );
        background.spawn(async move {
            while let Some(event) = from.recv().await {
                if to.send((namespace.clone(), event)).await.is_err() {
                    break;
                }
            }
            ExitReason::Task("watch of Pods")
        });
    }
    events
}
