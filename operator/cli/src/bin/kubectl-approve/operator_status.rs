//! Whether an operator acts: the holder and the age of its Lease.
//!
//! ```text
//! namespace (I/O) -> Lease and time of the API server (I/O) -> judge (pure)
//! ```
//!
//! The age is counted by the clock of the API server, because that of this machine may be wrong.

use std::{fmt, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    client::Body,
    core::{Request, Status, params::GetParams},
};
use signoff_admission::{installed_for, policies::Identity};
use signoff_api::Moment;
use signoff_cluster::lease::LeaseSettings;

use crate::{
    client::Session,
    clock,
    error::{Failure, sentence},
    sanitize::one_line,
};

/// What the operator's Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorState {
    /// An operator renews its Lease.
    Alive {
        /// The name of its Pod.
        holder: String,
        /// The time of the last renewal, by the holder's clock.
        renewed_at: Moment,
        /// The time since then, by the API server's clock.
        age: Duration,
    },
    /// No operator renews the Lease: nothing moves until one does.
    Stale {
        /// The Pod that held it last; empty where it released the Lease when it stopped.
        holder: String,
        /// The time of the last renewal, by the holder's clock.
        renewed_at: Moment,
        /// The time since then, by the API server's clock.
        age: Duration,
    },
    /// There is no Lease: no operator has run since the installation, or it runs with `--no-lease`.
    Absent {
        /// The operator's namespace.
        namespace: String,
    },
    /// The Lease cannot be read, and why.
    Unknown(String),
}

impl OperatorState {
    /// Whether it is certain that no operator acts.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Stale { .. } | Self::Absent { .. })
    }
}

impl fmt::Display for OperatorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alive { holder, age, .. } => {
                write!(f, "the operator {} renewed its Lease {} ago", pod(holder), seconds(*age))
            }
            Self::Stale { holder, age, .. } if holder.is_empty() => {
                write!(f, "no operator holds the Lease for {} (the last one released it)", seconds(*age))
            }
            Self::Stale { holder, age, .. } => {
                write!(f, "no operator has renewed its Lease for {} (the last was {})", seconds(*age), pod(holder))
            }
            Self::Absent { namespace } => {
                write!(f, "no operator has taken the Lease {}", lease_name(namespace))
            }
            Self::Unknown(why) => write!(f, "whether an operator is alive is unknown: {why}"),
        }
    }
}

/// Reads the Lease of the operator in this namespace. Default: the one that the installed policies trust, or
/// `signoff-system` where they cannot be read.
pub async fn operator_state(session: &Session, namespace: Option<&str>) -> OperatorState {
    let client = session.raw();
    let installed = match namespace {
        Some(namespace) => Some(namespace.to_owned()),
        None => installed_for(client).await.ok().flatten().map(|operator| operator.namespace),
    };
    let is_guess = installed.is_none();
    let namespace = installed.unwrap_or_else(|| Identity::default().namespace);
    match read(client, &namespace).await {
        Ok((lease, now)) => judge(&lease, &namespace, now),
        Err(kube::Error::Api(status)) if status.code == 404 && !is_guess => OperatorState::Absent { namespace },
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => OperatorState::Unknown(format!(
            "{}; {}",
            one_line(&sentence(&status), 300),
            if is_guess {
                "the operator may run in another namespace: kubectl approve doctor --operator-namespace NAME"
            } else {
                "the chart's value roles.readLease lets every user read it"
            }
        )),
        Err(error) => OperatorState::Unknown(match session.explain(error) {
            Failure::Other(why) => one_line(&why, 300),
            other => one_line(&other.to_string(), 300),
        }),
    }
}

/// Returns the Lease, and the time at which the API server answered.
async fn read(client: &Client, namespace: &str) -> Result<(Lease, Moment), kube::Error> {
    let name = LeaseSettings::in_namespace(namespace).name;
    let url = Api::<Lease>::namespaced(client.clone(), namespace).resource_url().to_owned();
    let request = Request::new(url).get(&name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
    let bytes = body.collect_bytes().await?;
    if !head.status.is_success() {
        let status = serde_json::from_slice::<Status>(&bytes).map_err(kube::Error::SerdeError)?;
        return Err(kube::Error::Api(Box::new(status)));
    }
    let now = head.headers.get("date").and_then(|date| server_time(date.to_str().ok()?)).unwrap_or_else(clock::now);
    Ok((serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?, now))
}

/// Parses the header `Date`.
fn server_time(date: &str) -> Option<Moment> {
    jiff::fmt::rfc2822::parse(date).ok().map(|at| Moment::from(at.timestamp()))
}

fn judge(lease: &Lease, namespace: &str, now: Moment) -> OperatorState {
    let Some(spec) = &lease.spec else { return OperatorState::Absent { namespace: namespace.to_owned() } };
    let Some(renewed_at) = spec.renew_time.as_ref().map(|time| Moment::from(time.0)) else {
        return OperatorState::Absent { namespace: namespace.to_owned() };
    };
    let holder = spec.holder_identity.clone().unwrap_or_default();
    let age = now.since(renewed_at);
    let valid = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let valid = valid.map_or(LeaseSettings::in_namespace(namespace).ttl, Duration::from_secs);
    if holder.is_empty() || age > valid {
        OperatorState::Stale { holder, renewed_at, age }
    } else {
        OperatorState::Alive { holder, renewed_at, age }
    }
}

/// Returns the Lease's namespace and name.
pub fn lease_name(namespace: &str) -> String {
    format!("{}/{}", one_line(namespace, 63), LeaseSettings::in_namespace(namespace).name)
}

fn pod(holder: &str) -> String {
    one_line(holder, 253)
}

/// `42 s`, and minutes or more as `kubectl` writes them.
fn seconds(age: Duration) -> String {
    if age < Duration::from_secs(120) { format!("{} s", age.as_secs()) } else { clock::length(age) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn judged(spec: Value) -> OperatorState {
        let now = server_time("Sun, 22 Nov 2026 10:00:42 GMT").unwrap();
        let lease = json!({"metadata": {"name": "signoff-operator"}, "spec": spec});
        judge(&serde_json::from_value(lease).unwrap(), "signoff-system", now)
    }

    #[test]
    fn a_lease_is_stale_when_it_was_not_renewed_for_its_duration() {
        let spec = |renewed: &str| json!({"holderIdentity": "signoff-operator-1", "leaseDurationSeconds": 15, "renewTime": renewed});
        let alive = judged(spec("2026-11-22T10:00:39.000000Z"));
        assert!(!alive.is_gone());
        assert_eq!(alive.to_string(), "the operator signoff-operator-1 renewed its Lease 3 s ago");
        let stale = judged(spec("2026-11-22T10:00:00.000000Z"));
        assert!(stale.is_gone());
        assert_eq!(stale.to_string(), "no operator has renewed its Lease for 42 s (the last was signoff-operator-1)");
        // A holder whose clock is ahead.
        assert!(!judged(spec("2026-11-22T10:00:50.000000Z")).is_gone());
    }

    #[test]
    fn a_lease_that_was_released_is_stale_at_once() {
        let released = judged(json!({"leaseDurationSeconds": 1, "renewTime": "2026-11-22T10:00:42.000000Z"}));
        assert!(released.is_gone());
        assert_eq!(released.to_string(), "no operator holds the Lease for 0 s (the last one released it)");
    }

    #[test]
    fn a_lease_that_was_never_taken_is_absent() {
        let absent = judged(json!({}));
        assert!(absent.is_gone());
        assert_eq!(absent.to_string(), "no operator has taken the Lease signoff-system/signoff-operator");
    }

    #[test]
    fn the_name_of_a_holder_cannot_move_the_cursor() {
        let alive = judged(json!({"holderIdentity": "\u{1b}[2Jx", "renewTime": "2026-11-22T10:00:42.000000Z"}));
        assert!(!alive.to_string().contains('\u{1b}'));
    }
}
