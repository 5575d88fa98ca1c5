//! The guard: checks whether the admission policies that verify decisions are in force, without a gap, and since when.
//! While they are not, no decision is counted.
//!
//! **Invariant:** installs and repairs nothing. A policy that cannot be read counts as not in force.
//!
//! watches -> inspect *(I/O)* -> probe *(I/O)* -> status -> recheck, once more before each decision *(I/O)*
//!
//! * `monitor`: the task that watches, inspects, waits and sends forged requests
//! * `recheck`: the last check before a decision is counted
//! * `persisted_state`: the state that outlives this process

mod monitor;
mod persisted_state;
mod recheck;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use signoff_admission::ObjectVersions;
use tokio::sync::watch;

pub(crate) use monitor::{ForeignApiServer, GuardMonitor};
pub(crate) use recheck::{ConfirmScope, Recheck};

/// The way in which an operator checks whether the admission policies are in force.
#[derive(Clone, Debug)]
pub enum GuardMode {
    /// Reads the policies from the API server.
    Checked(Box<GuardSettings>),
    /// Assumes that they are in force, in this epoch. For tests without admission.
    Assumed(String),
}

/// The administrator's settings for the guard.
#[derive(Clone, Debug, Default)]
pub struct GuardSettings {
    /// Whether no decision is counted while a mutating webhook or policy of others could change a vote.
    pub strict: bool,
    /// The configuration to reach each API server separately, or `None` to test only the server that answers.
    pub each_server: Option<kube::Config>,
}

/// Whether the admission policies are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardStatus {
    /// The policies have not been read yet.
    Unknown,
    /// The policies were changed or cannot be reached, and are being inspected. No decision is counted meanwhile, and
    /// no problem is reported.
    Inspecting(Arc<str>),
    /// The policies are in force as shipped.
    InForce(GuardEpoch),
    /// The policies are not in force. Each entry is a problem with its remedy.
    Broken(Arc<[String]>),
}

/// The epoch in which the admission policies are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardEpoch {
    /// The name of the epoch, which changes if one of the guard's objects is changed or created again.
    pub epoch: Arc<str>,
    /// The beginning of the epoch, by the API server's clock. The requester of an object that was created earlier is
    /// not verified.
    pub since: Timestamp,
    /// Mutating webhooks and policies of others that could change a vote, by kind and name.
    pub external_mutators: Arc<[String]>,
    /// The baseline of a recheck, or `None` if the policies are assumed to be in force.
    baseline: Option<Arc<Baseline>>,
}

/// The inspected versions of the guard's objects.
#[derive(Debug, PartialEq, Eq)]
struct Baseline {
    versions: ObjectVersions,
    /// Whether the API server serves mutating policies.
    mutating: bool,
}

/// Displays the status as a sentence for people.
impl fmt::Display for GuardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the admission policies have not been read yet"),
            Self::Inspecting(why) => write!(f, "no decision is counted for the moment: {why}"),
            Self::InForce(GuardEpoch { epoch, external_mutators, .. }) => {
                write!(f, "the admission policies are in force (epoch {epoch})")?;
                if external_mutators.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; {}", external_mutators_message(external_mutators))
                }
            }
            Self::Broken(why) => write!(f, "no decision is counted: {}", why.join("; ")),
        }
    }
}

/// Returns one sentence about mutating webhooks and policies of others.
pub(crate) fn external_mutators_message(foreign: &[String]) -> String {
    format!(
        "{} can change a vote before it is stored: exclude the API group signoff.dev in their rules, or decide with kubectl approve, which checks what was stored",
        foreign.join(", ")
    )
}

impl GuardStatus {
    fn broken(why: impl Into<String>) -> Self {
        Self::Broken([why.into()].into())
    }

    fn inspecting(why: impl Into<Arc<str>>) -> Self {
        Self::Inspecting(why.into())
    }

    /// Whether the inspection has finished.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Self::InForce(_) | Self::Broken(_))
    }

    /// Whether decisions are verified.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        matches!(self, Self::InForce(_))
    }
}

/// Publishes and logs a status if it differs from the last one.
fn publish(status: &watch::Sender<GuardStatus>, now: GuardStatus) {
    status.send_if_modified(|old| {
        let news = *old != now;
        if news {
            match &now {
                GuardStatus::InForce(_) => tracing::info!("{now}"),
                GuardStatus::Unknown | GuardStatus::Inspecting(_) => tracing::debug!("{now}"),
                GuardStatus::Broken(_) => tracing::warn!("{now}"),
            }
            *old = now;
        }
        news
    });
}
