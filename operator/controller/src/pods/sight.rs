//! What is read of a Pod, and where its step's container stands.
//!
//! It may not keep more of a Pod than that: no spec of it, none of its files, nothing that others wrote on it.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Resource, core::NamespaceResourceScope};
use serde::{Deserialize, Deserializer};
use signoff_api::{Moment, Workflow, names, pod::CONTAINER};

use crate::kinds::{Meta, Readable};

/// A Pod of a step, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepPod {
    metadata: ObjectMeta,
    /// Its node, once it has one.
    pub(crate) node: Option<String>,
    phase: String,
    /// Why it is in its phase: `Evicted`, `DeadlineExceeded`.
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<Condition>,
    /// The first container that keeps the step's from beginning, or the step's own.
    waiting: Option<Waiting>,
    running: bool,
    terminated: Option<Terminated>,
    /// Whether another container of it runs.
    others_run: bool,
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

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) finished_at: Option<Time>,
}

/// Why a container does not run yet, in the words of the scheduler or the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Trouble {
    /// Whether another trouble is the same one in other words: a kubelet alternates between two about an image.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let about_image = |one: &Self| matches!(one.reason.as_str(), "ErrImagePull" | "ImagePullBackOff");
        self.reason == other.reason || (about_image(self) && about_image(other))
    }
}

/// Where a Pod stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Its container does not run yet.
    Pending(Option<Trouble>),
    /// Its container runs.
    Running,
    /// Its container ended.
    Ended(Terminated),
    /// It ended without its container ever running.
    Failed(Trouble),
    /// The cluster gave it up while its container ran: nobody knows how that ended, or whether it did.
    Lost(Trouble),
}

impl Stand {
    /// Whether its container will never run again.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::Failed(_) | Self::Lost(_))
    }
}

impl StepPod {
    pub(crate) fn stand(&self) -> Stand {
        if let Some(end) = &self.terminated {
            return Stand::Ended(end.clone());
        }
        if matches!(self.phase.as_str(), "Failed" | "Succeeded") {
            let reason = "PodFailed".to_owned();
            let why = self.ended_by_cluster().unwrap_or(Trouble { reason, message: String::new() });
            // A kubelet says how a container ended before it says that the Pod did.
            return if self.running { Stand::Lost(why) } else { Stand::Failed(why) };
        }
        if self.running {
            return Stand::Running;
        }
        let unscheduled = self.conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
        let unscheduled = unscheduled.map(|c| Trouble { reason: c.reason.clone(), message: c.message.clone() });
        let usual = ["", "ContainerCreating", "PodInitializing"];
        let waiting = self.waiting.as_ref().filter(|waiting| !usual.contains(&waiting.reason.as_str()));
        let waiting = waiting.map(|w| Trouble { reason: w.reason.clone(), message: w.message.clone() });
        Stand::Pending(unscheduled.or(waiting))
    }

    /// Whether nothing of it runs any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Failed" | "Succeeded")
    }

    /// Whether its step's container has ended, and nothing else of it runs on: its phase follows a moment later.
    pub(crate) fn is_ending(&self) -> bool {
        self.terminated.is_some() && !self.others_run
    }

    /// Whether it ended well.
    pub(crate) fn is_good(&self) -> bool {
        self.terminated.as_ref().is_some_and(|end| end.exit_code == 0)
    }

    /// Why the cluster ended it: `Evicted`, `DeadlineExceeded`, `Preempted`, …
    pub(crate) fn ended_by_cluster(&self) -> Option<Trouble> {
        let told =
            self.reason.clone().map(|reason| Trouble { reason, message: self.message.clone().unwrap_or_default() });
        told.or_else(|| {
            let target = self.conditions.iter().find(|c| c.type_ == "DisruptionTarget" && c.status == "True")?;
            Some(Trouble { reason: "Evicted".to_owned(), message: format!("{}: {}", target.reason, target.message) })
        })
    }

    /// Whether somebody asked for its deletion and left its container time to end.
    pub(crate) fn is_going(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// When it was made.
    pub(crate) fn created(&self) -> Option<Moment> {
        self.metadata.creation_timestamp.as_ref().map(|time| Moment::from(time.0))
    }

    /// The name and uid of the Workflow that owns it.
    pub(crate) fn owner(&self) -> Option<(&str, &str)> {
        let owners = self.metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|o| o.kind == Workflow::KIND && o.controller == Some(true));
        owners.next().map(|owner| (owner.name.as_str(), owner.uid.as_str()))
    }

    /// The digest of what it was made from.
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

impl Readable for StepPod {
    const KIND: &'static str = "Pod";
    const SELECTOR: Option<&'static str> = Some(names::LABEL_WORKFLOW_UID);

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
            running: Option<serde::de::IgnoredAny>,
            terminated: Option<Terminated>,
        }
        let Whole { metadata, spec, status } = Whole::deserialize(from)?;
        let mut metadata = ObjectMeta::from(metadata);
        let ours: BTreeMap<_, _> = metadata.annotations.take().unwrap_or_default().into_iter().collect();
        let kept = |name: &String| [names::ANNOTATION_INPUT_DIGEST, names::ANNOTATION_PATH].contains(&name.as_str());
        metadata.annotations = Some(ours.into_iter().filter(|(name, _)| kept(name)).collect());
        let (mut running, mut terminated, mut own, mut others_run) = (false, None, None, false);
        for container in status.container_statuses {
            let runs = container.state.running.is_some();
            if container.name == CONTAINER {
                (running, terminated, own) = (runs, container.state.terminated, container.state.waiting);
            } else {
                others_run |= runs;
            }
        }
        let before = status.init_container_statuses.into_iter().find_map(|container| container.state.waiting);
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
            others_run,
        })
    }
}
