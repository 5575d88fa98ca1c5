//! The Pods of steps: what is known of them, how one is made, followed to its end and let go of.
//!
//! It may not decide what an end means for a run, nor touch a Pod that is not exactly the one it would have made.
//!
//! * `state`: what is read of a Pod, and the state of its container
//! * `index`: every Pod that was received by the watch, and who follows it
//! * `quota`: how many may run, and which is next
//! * `build`: the object, from the call
//! * `runner`: one Pod from its creation to its end
//! * `log`: the end of what a container wrote

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
pub(crate) use quota::{PodQuota, PodSlot, QueuedPod, Wait};
pub(crate) use runner::PodRunner;
pub(crate) use state::{PodState, StepPod};

use crate::{
    metrics::Shared,
    operator::ExitReason,
    watch::{WatchEvent, follow_in},
};

/// What an administrator says about Pods.
#[derive(Clone, Debug)]
pub struct PodSettings {
    /// Whether steps may be Pods at all.
    pub enabled: bool,
    /// The namespaces in which steps may be Pods; everywhere where there are none.
    pub namespaces: Vec<String>,
    /// How many may run at once in a namespace.
    pub most_in_namespace: usize,
    /// How many may run at once for one Workflow.
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
        self.enabled && (self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace))
    }
}

/// What a watch of Pods shows, and of which namespace it is; all of them where there is none.
pub(crate) type PodSight = (Option<String>, WatchEvent<StepPod>);

/// Follows the Pods of steps: with one watch, or one a namespace where an administrator bounds it.
pub(crate) fn watch(
    client: &Client,
    settings: &PodSettings,
    metrics: &Shared,
    background: &mut JoinSet<ExitReason>,
) -> mpsc::Receiver<PodSight> {
    let (to, sights) = mpsc::channel(256);
    let everywhere = settings.namespaces.is_empty().then_some(None);
    let scopes = everywhere.into_iter().chain(settings.namespaces.iter().cloned().map(Some));
    for namespace in scopes.filter(|_| settings.enabled) {
        let (seen, mut from) = mpsc::channel(64);
        let to = to.clone();
        background.spawn(
            follow_in(client.clone(), namespace.clone(), seen, metrics.clone())
                .map(|()| ExitReason::Task("watch of Pods")),
        );
        background.spawn(async move {
            while let Some(sight) = from.recv().await {
                if to.send((namespace.clone(), sight)).await.is_err() {
                    break;
                }
            }
            ExitReason::Task("watch of Pods")
        });
    }
    sights
}
