//! The state of the operator, by the holder and the age of its Lease.
//!
//! ```text
//! Lease and time of the API server (I/O) -> judge (pure)
//!     -> if it seems stale: a second reading after a renewal period (I/O) -> judge_again (pure)
//! ```
//!
//! The age is measured by the clock of the API server, because the clock of this machine may be wrong. The clocks of
//! two API servers can differ, so only a Lease that is not renewed between two readings is stale.

use std::{fmt, time::Duration};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client,
    client::Body,
    core::{Request, Status, params::GetParams},
};
use signoff_api::Moment;
use signoff_cluster::{
    lease::{LeaseSettings, MACHINE_CLOCK},
    server_clock::LARGEST_SKEW,
};

use crate::{clock, text::one_line};

/// The sentence about the consequence of a stopped operator.
pub const GONE: &str = "No run continues and no vote is counted until it starts again.";
/// The longest pause between two readings of a Lease, whatever its duration.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The time that a renewal may take beyond the renewal period.
const SLACK: Duration = Duration::from_secs(1);

/// The operator's process that holds or held the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The identity in the Lease: the UID of the Pod (outside of Pods the value of `--identity`), `_`, and the start
    /// time of the process in microseconds. Empty if the Lease was released.
    pub identity: String,
    /// The name of the Pod with this UID, if the caller can list it.
    pub pod: Option<String>,
}

/// The state of the operator, as its Lease tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorState {
    /// An operator renews its Lease.
    Alive {
        /// The process that holds the Lease.
        holder: Holder,
        /// The time since the last renewal, by the API server's clock.
        age: Duration,
        /// The difference of the clock of the holder's machine, if it is more than [`LARGEST_SKEW`].
        skew: Option<Skew>,
    },
    /// No operator renews the Lease, so no run continues.
    Stale {
        /// The process that held the Lease last.
        holder: Holder,
        /// The time since the last renewal, by the API server's clock.
        age: Duration,
    },
    /// There is no Lease: no operator has run since the installation, or it runs with `--no-lease`.
    Absent {
        /// The operator's namespace.
        namespace: String,
    },
    /// The Lease cannot be read; with the reason.
    Unknown(String),
}

/// The difference of the clock of a machine from that of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    by: Duration,
    is_ahead: bool,
}

impl Skew {
    /// Returns the difference of two clocks at the same moment, if it is more than [`LARGEST_SKEW`].
    fn between(machine: Moment, server: Moment) -> Option<Self> {
        let by = machine.since(server).max(server.since(machine));
        (by > LARGEST_SKEW).then_some(Self { by, is_ahead: machine > server })
    }
}

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    holder: String,
    /// The time of the last renewal, which the holder wrote by the API server's clock.
    renewed_at: Moment,
    /// The time of the last renewal, by the clock of the holder's machine.
    machine_at: Option<Moment>,
    /// The time for which the Lease is valid without a renewal.
    duration: Duration,
    /// The time of the reading, by the API server's clock.
    read_at: Moment,
}

impl Reading {
    /// Returns the reading of a Lease, or `None` if no operator has taken it.
    fn new(lease: &Lease, read_at: Moment, default: Duration) -> Option<Self> {
        let spec = lease.spec.as_ref()?;
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let machine_at =
            lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(MACHINE_CLOCK)?.parse().ok());
        Some(Self {
            machine_at: machine_at.map(|at: jiff::Timestamp| at.into()),
            holder: spec.holder_identity.clone().unwrap_or_default(),
            renewed_at: Moment::from(spec.renew_time.as_ref()?.0),
            duration: duration.map_or(default, Duration::from_secs),
            read_at,
        })
    }

    /// Returns the time since the last renewal, by the API server's clock.
    pub fn age(&self) -> Duration {
        self.read_at.since(self.renewed_at)
    }

    /// Whether the last holder released the Lease.
    pub fn is_released(&self) -> bool {
        self.holder.is_empty()
    }

    /// Returns the state of the operator by one reading.
    pub fn judge(&self) -> OperatorState {
        let (holder, age) = (Holder::from(self.holder.as_str()), self.age());
        if self.is_released() || age > self.duration {
            OperatorState::Stale { holder, age }
        } else {
            let skew = self.machine_at.and_then(|machine| Skew::between(machine, self.renewed_at));
            OperatorState::Alive { holder, age, skew }
        }
    }

    /// Returns the state of the operator by this reading and a later one. A Lease that was renewed in between is not
    /// stale, whatever its age: the clocks of two API servers can differ, and older operators wrote the time of their
    /// machine.
    pub fn judge_again(&self, later: &Self) -> OperatorState {
        match later.judge() {
            OperatorState::Stale { holder, age } if !later.is_released() && later.renewed_at != self.renewed_at => {
                // The Lease was renewed after this reading, so its age is a difference of clocks.
                let skew = Skew { by: self.read_at.since(later.renewed_at), is_ahead: false };
                OperatorState::Alive { holder, age, skew: Some(skew) }
            }
            state => state,
        }
    }

    /// Returns the pause until the next reading. A running operator renews its Lease at least once during the pause.
    pub fn pause(&self) -> Duration {
        (self.duration / 3 + SLACK).min(LONGEST_PAUSE)
    }
}

impl OperatorState {
    /// Whether the clocks of the operator's machine and of the API server differ, so that one of them is wrong.
    pub fn has_wrong_clock(&self) -> bool {
        matches!(self, Self::Alive { skew: Some(_), .. })
    }

    /// Whether it is certain that no operator runs.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Stale { .. } | Self::Absent { .. })
    }

    /// Sets the name of the holder's Pod, or removes it if the Pod is not one of `pods`.
    pub fn with_pod(mut self, pods: &[Pod]) -> Self {
        if let Self::Alive { holder, .. } | Self::Stale { holder, .. } = &mut self {
            let pod = pods.iter().find(|pod| pod.metadata.uid.as_deref() == Some(holder.process()));
            holder.pod = pod.and_then(|pod| pod.metadata.name.clone());
        }
        self
    }
}

impl Holder {
    /// Returns the identity without the start time.
    fn process(&self) -> &str {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let split = self.identity.rsplit_once('_').filter(|(_, started)| is_number(started));
        split.map_or(self.identity.as_str(), |(process, _)| process)
    }
}

impl From<&str> for Holder {
    fn from(identity: &str) -> Self {
        Self { identity: identity.to_owned(), pod: None }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.pod, self.process()) {
            (Some(pod), _) => f.write_str(&one_line(pod, 253)),
            (None, process) if is_uid(process) => write!(f, "in the Pod with the UID {process}"),
            (None, process) => f.write_str(&one_line(process, 253)),
        }
    }
}

/// The positions of the hyphens in a UID.
const UID_HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Whether a text has the form of a UID, which is the form of the UIDs of Pods.
fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text
            .char_indices()
            .all(|(index, c)| if UID_HYPHENS.contains(&index) { c == '-' } else { c.is_ascii_hexdigit() })
}

impl fmt::Display for OperatorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alive { holder, age, skew: None } => {
                write!(f, "the operator {holder} renewed its Lease {} ago", age_text(*age))
            }
            Self::Alive { holder, skew: Some(Skew { by, is_ahead }), .. } => write!(
                f,
                "the operator {holder} renews its Lease; the clock of its machine is {} {} that of the API server: correct it. \
                 Deadlines go by the API server's clock",
                age_text(*by),
                if *is_ahead { "ahead of" } else { "behind" }
            ),
            Self::Stale { holder, age } if holder.identity.is_empty() => {
                write!(f, "no operator holds the Lease for {} (the last one released it)", age_text(*age))
            }
            Self::Stale { holder, age } => {
                write!(f, "no operator has renewed its Lease for {} (the last was {holder})", age_text(*age))
            }
            Self::Absent { namespace } => {
                write!(f, "no operator has taken the Lease {}", lease_name(namespace))
            }
            Self::Unknown(why) => write!(f, "whether an operator is alive is unknown: {why}"),
        }
    }
}

/// Reads the Lease of the operator in a namespace, with the time at which the API server answered (this machine's time
/// if the answer has no date). Returns `None` if no operator has taken the Lease.
///
/// # Errors
/// The Lease cannot be read.
pub async fn read(client: &Client, namespace: &str) -> Result<Option<Reading>, kube::Error> {
    let LeaseSettings { name, ttl, .. } = LeaseSettings::in_namespace(namespace);
    let url = Api::<Lease>::namespaced(client.clone(), namespace).resource_url().to_owned();
    let request = Request::new(url).get(&name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
    let bytes = body.collect_bytes().await?;
    if !head.status.is_success() {
        let status = serde_json::from_slice::<Status>(&bytes).map_err(kube::Error::SerdeError)?;
        return Err(kube::Error::Api(Box::new(status)));
    }
    let now =
        head.headers.get("date").and_then(|date| parse_date_header(date.to_str().ok()?)).unwrap_or_else(clock::now);
    let lease = serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?;
    Ok(Reading::new(&lease, now, ttl))
}

/// Parses the header `Date`.
fn parse_date_header(date: &str) -> Option<Moment> {
    jiff::fmt::rfc2822::parse(date).ok().map(|at| Moment::from(at.timestamp()))
}

/// Returns the namespace and the name of the Lease as `namespace/name`.
pub fn lease_name(namespace: &str) -> String {
    format!("{}/{}", one_line(namespace, 63), LeaseSettings::in_namespace(namespace).name)
}

/// Returns an age: `42 s`, and from minutes on as `kubectl` writes it.
fn age_text(age: Duration) -> String {
    if age < Duration::from_secs(120) { format!("{} s", age.as_secs()) } else { clock::length(age) }
}

#[cfg(test)]
#[path = "operator_lease/tests.rs"]
mod tests;
