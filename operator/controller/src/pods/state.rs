//! The decoded fields of a Pod, and the state of its step's container *(pure)*.
//!
//! **Invariant:** drops the spec, and all labels and annotations that Signoff does not set.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Resource, core::NamespaceResourceScope};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use signoff_api::{Moment, Workflow, names, pod::CONTAINER};
use signoff_cluster::kinds::{DecodedKind, Meta};

/// The bytes of a container's termination message that a kubelet keeps.
const MAX_MESSAGE: usize = 4096;
/// The bytes for the termination messages of all containers of a Pod, which share them.
const MAX_MESSAGES: usize = 12 * 1024;
/// The longest grace period that is waited for.
const LONGEST_GRACE: Duration = Duration::from_secs(24 * 3600);

/// A Pod of a step, with the fields that the operator reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepPod {
    metadata: ObjectMeta,
    /// The name of its node, or `None` before the Pod is scheduled.
    pub(crate) node: Option<String>,
    phase: String,
    /// The reason of its phase: `Evicted`, `DeadlineExceeded`.
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<Condition>,
    /// The state of the first waiting init container, or of the step's own container.
    waiting: Option<Waiting>,
    running: bool,
    terminated: Option<Terminated>,
    /// Whether its kubelet has written a status of the step's container.
    has_container_status: bool,
    /// The name and the termination of a failed init container.
    failed_before: Option<(String, Terminated)>,
    /// Whether another container of the Pod runs.
    others_run: bool,
    /// The number of its containers of every kind, including init and ephemeral containers.
    containers: usize,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
    message: String,
}

/// The termination of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) finished_at: Option<Time>,
}

/// The reason why a container does not run yet, from the scheduler or the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodProblem {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl PodProblem {
    /// Whether another problem counts as the same. A kubelet alternates between two reasons about an image.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let is_about_image = |problem: &Self| matches!(problem.reason.as_str(), "ErrImagePull" | "ImagePullBackOff");
        self.reason == other.reason || (is_about_image(self) && is_about_image(other))
    }
}

/// The state of a step's Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// The container does not run yet.
    Pending(Option<PodProblem>),
    /// The container runs.
    Running,
    /// The container has terminated.
    Ended(Terminated),
    /// The Pod ended without its container ever running.
    Failed(PodProblem),
    /// The cluster gave the Pod up while its container ran, so the container's end is unknown.
    Lost(PodProblem),
}

impl PodState {
    /// Whether its container will never run again.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::Failed(_) | Self::Lost(_))
    }
}

impl StepPod {
    /// Returns the state of the step's container.
    pub(crate) fn state(&self) -> PodState {
        if let Some(end) = &self.terminated {
            return PodState::Ended(end.clone());
        }
        if matches!(self.phase.as_str(), "Failed" | "Succeeded") {
            let why = self.end_by_cluster().or_else(|| self.disruption()).unwrap_or_else(|| self.init_failure());
            // A kubelet reports the end of a container before the end of the Pod.
            return if self.running { PodState::Lost(why) } else { PodState::Failed(why) };
        }
        if self.running {
            return PodState::Running;
        }
        let unscheduled = self.conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
        let unscheduled = unscheduled.map(|c| PodProblem { reason: c.reason.clone(), message: c.message.clone() });
        let usual = ["", "ContainerCreating", "PodInitializing"];
        let waiting = self.waiting.as_ref().filter(|waiting| !usual.contains(&waiting.reason.as_str()));
        let waiting = waiting.map(|w| PodProblem { reason: w.reason.clone(), message: w.message.clone() });
        PodState::Pending(unscheduled.or(waiting))
    }

    /// Whether its container may have run although no status says so. A kubelet that rejects a Pod after its node was
    /// lost does not report containers that ran before.
    pub(crate) fn may_have_run(&self) -> bool {
        self.node.is_some() && !self.has_container_status
    }

    /// Whether no container runs any more.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Failed" | "Succeeded")
    }

    /// Whether its step's container has ended and no other container runs, so that its phase ends a moment later.
    pub(crate) fn is_ending(&self) -> bool {
        self.terminated.is_some() && !self.others_run
    }

    /// Whether the Pod runs or may run soon. A Pod whose step has ended holds no slot, even if an injected sidecar runs
    /// on.
    pub(crate) fn holds_slot(&self) -> bool {
        let sidecar_runs_on = self.terminated.is_some() && self.others_run;
        !(self.is_finished() || sidecar_runs_on)
    }

    /// Returns the reason why the kubelet ended the Pod: `Evicted`, `DeadlineExceeded`, `Preempting`, …
    pub(crate) fn end_by_cluster(&self) -> Option<PodProblem> {
        // A deadline that passes after the end sets its reason also on a Pod that has succeeded.
        let reason = self.reason.clone().filter(|_| self.phase != "Succeeded")?;
        Some(PodProblem { reason, message: self.message.clone().unwrap_or_default() })
    }

    /// Returns the reason of a disruption: the node was drained, or another Pod preempted this Pod.
    pub(crate) fn disruption(&self) -> Option<PodProblem> {
        let target = self.conditions.iter().find(|c| c.type_ == "DisruptionTarget" && c.status == "True")?;
        Some(PodProblem { reason: "Evicted".to_owned(), message: format!("{}: {}", target.reason, target.message) })
    }

    /// Returns the failed init container as the reason why the Pod ended before the step's container started, or a
    /// placeholder.
    fn init_failure(&self) -> PodProblem {
        let Some((name, end)) = &self.failed_before else {
            return PodProblem { reason: "PodFailed".to_owned(), message: "the cluster gave no reason".to_owned() };
        };
        let words: Vec<_> = [&end.reason, &end.message].into_iter().filter(|text| !text.is_empty()).cloned().collect();
        let details = if words.is_empty() { String::new() } else { format!(": {}", words.join(": ")) };
        let message = format!("its container {name} ended with exit code {}{details}", end.exit_code);
        PodProblem { reason: "InitFailed".to_owned(), message }
    }

    /// Returns the bytes of a termination message that a kubelet keeps. It truncates longer messages.
    pub(crate) fn max_message_bytes(&self) -> usize {
        MAX_MESSAGE.min(MAX_MESSAGES / self.containers.max(1))
    }

    /// Whether its deletion was requested with a grace period.
    pub(crate) fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the grace period of the request to delete the Pod; zero without a request.
    pub(crate) fn grace(&self) -> Duration {
        let seconds = self.metadata.deletion_grace_period_seconds.unwrap_or_default();
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).min(LONGEST_GRACE)
    }

    /// Whether its deletion was requested before its container ended. Assumed if the end has no time.
    pub(crate) fn deletion_requested_before_exit(&self, end: &Terminated) -> bool {
        // `deletionTimestamp` is the end of the grace period.
        let grace = self.metadata.deletion_grace_period_seconds.unwrap_or_default();
        let requested = self.metadata.deletion_timestamp.as_ref().map(|end| end.0.as_second().saturating_sub(grace));
        requested.is_some_and(|at| end.finished_at.as_ref().is_none_or(|ended| ended.0.as_second() >= at))
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the time at which the API server created the Pod.
    pub(crate) fn created(&self) -> Option<Moment> {
        self.metadata.creation_timestamp.as_ref().map(|time| Moment::from(time.0))
    }

    /// Returns the name and uid of the Workflow that owns the Pod, or `None`. Every user who can create Pods can write
    /// an owner reference. The label proves the owner, because admission lets only the operator write that label.
    pub(crate) fn owner(&self) -> Option<(&str, &str)> {
        let label = self.metadata.labels.as_ref()?.get(names::LABEL_WORKFLOW)?;
        let owners = self.metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|o| o.kind == Workflow::KIND && o.controller == Some(true) && o.name == *label);
        owners.next().map(|owner| (owner.name.as_str(), owner.uid.as_str()))
    }

    /// Returns the digest of the call that the Pod was built from.
    pub(crate) fn input_digest(&self) -> Option<&str> {
        self.annotation(names::ANNOTATION_INPUT_DIGEST)
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

impl Resource for StepPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl DecodedKind for StepPod {
    const KIND: &'static str = "Pod";
    const SELECTOR: Option<&'static str> = Some(names::LABEL_WORKFLOW);

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Whole {
            metadata: Meta,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            node_name: Option<String>,
            containers: Vec<IgnoredAny>,
            init_containers: Vec<IgnoredAny>,
            ephemeral_containers: Vec<IgnoredAny>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            phase: String,
            reason: Option<String>,
            message: Option<String>,
            conditions: Vec<Condition>,
            init_container_statuses: Vec<Container>,
            container_statuses: Vec<Container>,
        }
        #[derive(Deserialize)]
        struct Container {
            name: String,
            #[serde(default)]
            state: State,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct State {
            waiting: Option<Waiting>,
            running: Option<IgnoredAny>,
            terminated: Option<Terminated>,
        }
        let Whole { metadata, spec, status } = Whole::deserialize(from)?;
        let mut metadata = ObjectMeta::from(metadata);
        let ours: BTreeMap<_, _> = metadata.annotations.take().unwrap_or_default().into_iter().collect();
        let kept = |name: &String| [names::ANNOTATION_INPUT_DIGEST, names::ANNOTATION_PATH].contains(&name.as_str());
        metadata.annotations = Some(ours.into_iter().filter(|(name, _)| kept(name)).collect());
        metadata.labels = metadata
            .labels
            .take()
            .and_then(|mut labels| labels.remove_entry(names::LABEL_WORKFLOW))
            .map(|label| BTreeMap::from([label]));
        metadata.finalizers = None;
        let (mut running, mut terminated, mut own, mut others_run) = (false, None, None, false);
        let containers = spec.containers.len() + spec.init_containers.len() + spec.ephemeral_containers.len();
        let mut has_container_status = false;
        for container in status.container_statuses {
            let runs = container.state.running.is_some();
            if container.name == CONTAINER {
                has_container_status = true;
                (running, terminated, own) = (runs, container.state.terminated, container.state.waiting);
            } else {
                others_run |= runs;
            }
        }
        let (mut before, mut failed_before) = (None, None);
        for Container { name, state } in status.init_container_statuses {
            before = before.or(state.waiting);
            let failed = state.terminated.filter(|end| end.exit_code != 0).map(|end| (name, end));
            failed_before = failed_before.or(failed);
        }
        Ok(Self {
            metadata,
            node: spec.node_name,
            phase: status.phase,
            reason: status.reason,
            message: status.message,
            conditions: status.conditions,
            waiting: before.or(own),
            running,
            terminated,
            has_container_status,
            failed_before,
            others_run,
            containers,
        })
    }
}
