//! Leader election by a Lease, taken by compare-and-swap on its resourceVersion.
//!
//! **Invariant:** trusts only its own monotonic clock. A holder counts as gone if its Lease was not changed for the
//! whole duration of the Lease. Time in which the API server did not answer does not count, because the holder could
//! not renew the Lease either.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::coordination::v1::{Lease as Object, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    error::{plain, status_code},
    server_clock::ServerClock,
};

/// The annotation with the time of the holder's machine at the last renewal. The times in the Lease itself are the API
/// server's.
pub const MACHINE_CLOCK: &str = "signoff.dev/machine-clock";

/// The Lease and its duration.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// The operator's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// The time for which the Lease is valid without a renewal, in whole seconds.
    pub ttl: Duration,
}

impl LeaseSettings {
    /// Returns the settings of the Lease `signoff-operator` of a namespace, valid for 15 seconds.
    #[must_use]
    pub fn in_namespace(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: "signoff-operator".to_owned(), ttl: Duration::from_secs(15) }
    }
}

/// The check whether this operator still holds its Lease.
#[derive(Clone, Debug)]
pub struct LeaseGuard {
    until: Option<Arc<Mutex<Instant>>>,
}

impl LeaseGuard {
    /// Returns the check of an operator without a Lease, which can always act.
    #[must_use]
    pub fn unbounded() -> Self {
        Self { until: None }
    }

    /// Whether this operator may act now. Checked before every write, so that a process that was frozen does not write.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let Some(until) = &self.until else { return true };
        Instant::now() < *until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend(&self, to: Instant) {
        if let Some(until) = &self.until {
            *until.lock().unwrap_or_else(PoisonError::into_inner) = to;
        }
    }
}

/// The client of one Lease.
pub struct Lease {
    api: Api<Object>,
    settings: LeaseSettings,
    holder: String,
    clock: ServerClock,
}

/// A Lease that this process holds.
pub struct HeldLease {
    lease: Lease,
    object: Object,
    lease_guard: LeaseGuard,
}

impl Lease {
    /// Returns the client by which `holder` takes a Lease.
    #[must_use]
    pub fn new(client: Client, settings: LeaseSettings, holder: &str, clock: ServerClock) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self { api, settings, holder: holder.to_owned(), clock }
    }

    /// Waits until this process holds the Lease. `standing_by` gets the name of the current holder, or the problem.
    pub async fn acquire(self, mut standing_by: impl FnMut(String)) -> HeldLease {
        // The version that was read last, and the time since which it is unchanged, by this operator's own clock.
        let mut last_read: Option<(Option<String>, Instant)> = None;
        // The time of the first request without an answer.
        let mut unanswered: Option<Instant> = None;
        loop {
            let sent_at = Instant::now();
            let pause = match self.send(self.api.get_opt(&self.settings.name)).await {
                Ok(Some(object)) => {
                    let version = object.metadata.resource_version.clone();
                    let outage = unanswered.take().map_or(Duration::ZERO, |since| since.elapsed());
                    let since = match &last_read {
                        Some((known, since)) if *known == version => *since + outage,
                        _ => sent_at,
                    };
                    last_read = Some((version, since));
                    match self.time_left(&object, since) {
                        None => match self.take(Some(object), sent_at).await {
                            Ok(held) => return held,
                            Err(error) => self.report_failure(error, &mut standing_by),
                        },
                        Some(left) => {
                            let holder = object.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                            standing_by(format!("the Lease {} is held by {holder}", self.name()));
                            left.min(self.settings.ttl / 3)
                        }
                    }
                }
                Ok(None) => match self.take(None, sent_at).await {
                    Ok(held) => return held,
                    Err(error) => self.report_failure(error, &mut standing_by),
                },
                Err(error) => {
                    unanswered.get_or_insert(sent_at);
                    self.report_failure(error, &mut standing_by)
                }
            };
            sleep(pause).await;
        }
    }

    /// Returns the time until the holder counts as gone, or `None` if the Lease can be taken.
    fn time_left(&self, object: &Object, since: Instant) -> Option<Duration> {
        let spec = object.spec.as_ref()?;
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty() && *holder != self.holder)?;
        let ttl = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let ttl = ttl.map_or(self.settings.ttl, Duration::from_secs);
        let left = ttl.saturating_sub(since.elapsed());
        tracing::trace!(holder, ?left, "the Lease is held");
        (!left.is_zero()).then_some(left)
    }

    /// Reports why the Lease cannot be taken, unless another operator was faster. Returns the pause before the next
    /// attempt.
    fn report_failure(&self, error: kube::Error, standing_by: &mut impl FnMut(String)) -> Duration {
        if status_code(&error) != Some(409) {
            standing_by(format!("the Lease {} cannot be taken: {}", self.name(), plain(&error)));
        }
        self.settings.ttl / 10
    }

    /// Takes the Lease, by creating or replacing the object. Fails if another operator has changed it since `old`.
    async fn take(&self, old: Option<Object>, sent_at: Instant) -> Result<HeldLease, kube::Error> {
        let transitions = old.as_ref().and_then(|old| old.spec.as_ref()?.lease_transitions);
        let now = MicroTime(self.clock.now());
        let spec = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: i32::try_from(self.settings.ttl.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions.map_or(0, |n| n.saturating_add(1))),
            ..LeaseSpec::default()
        };
        let params = PostParams::default();
        let object = match old {
            None => {
                let metadata = ObjectMeta { name: Some(self.settings.name.clone()), ..ObjectMeta::default() };
                let mut object = Object { metadata, spec: Some(spec) };
                self.write_machine_clock(&mut object);
                self.send(self.api.create(&params, &object)).await?
            }
            Some(mut object) => {
                // The version in its metadata makes this a compare-and-swap.
                object.spec = Some(spec);
                self.write_machine_clock(&mut object);
                self.send(self.api.replace(&self.settings.name, &params, &object)).await?
            }
        };
        let lease_guard = LeaseGuard { until: Some(Arc::new(Mutex::new(sent_at + self.margin()))) };
        let lease = Self {
            api: self.api.clone(),
            settings: self.settings.clone(),
            holder: self.holder.clone(),
            clock: self.clock.clone(),
        };
        Ok(HeldLease { lease, object, lease_guard })
    }

    /// Writes the time of this machine into a Lease, so that people can compare it.
    fn write_machine_clock(&self, object: &mut Object) {
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(MACHINE_CLOCK.to_owned(), self.clock.machine_now().to_string());
    }

    /// Returns the time after a renewal for which this operator acts. It is shorter than the duration of the Lease.
    fn margin(&self) -> Duration {
        self.settings.ttl * 2 / 3
    }

    fn name(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    /// Sends a request, and notes on the clock if there is no answer in time.
    async fn send<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
        let answer = timeout(self.settings.ttl / 3, request).await;
        answer.unwrap_or_else(|_| {
            self.clock.note_no_answer();
            Err(kube::Error::Service("no answer in time".into()))
        })
    }
}

impl HeldLease {
    /// Returns the check whether the Lease is held, which [`HeldLease::renew_forever`] updates.
    #[must_use]
    pub fn lease_guard(&self) -> LeaseGuard {
        self.lease_guard.clone()
    }

    /// Renews the Lease until `stop` is ready. Returns the Lease, to be released.
    ///
    /// # Errors
    /// The reason why the Lease is lost.
    pub async fn renew_until(mut self, stop: impl Future) -> Result<Self, String> {
        tokio::select! {
            biased;
            why = self.renew_forever() => Err(why),
            _ = stop => Ok(self),
        }
    }

    /// Renews the Lease until another operator has taken it, and returns the reason. While the API server does not
    /// answer, [`LeaseGuard`] becomes invalid and the renewal is tried again. Compare-and-swap proves that no other
    /// operator held the Lease meanwhile.
    pub async fn renew_forever(&mut self) -> String {
        let third = self.lease.settings.ttl / 3;
        let mut pause = third;
        let mut failures = 0_u32;
        loop {
            sleep(pause).await;
            let sent_at = Instant::now();
            pause = match self.renew().await {
                Ok(object) => {
                    failures = 0;
                    self.object = object;
                    self.lease_guard.extend(sent_at + self.lease.margin());
                    third
                }
                Err(error) if matches!(status_code(&error), Some(404 | 409)) => match self.read_holder().await {
                    Ok(Some(why)) => return why,
                    Ok(None) => Duration::ZERO,
                    Err(_) => third / 5,
                },
                Err(error) => {
                    failures = failures.saturating_add(1);
                    // The attempts are a second apart: the log has the first, the second, the fourth, the eighth.
                    if failures.is_power_of_two() {
                        tracing::warn!("the Lease {} was not renewed: {}", self.lease.name(), plain(&error));
                    }
                    third / 5
                }
            };
        }
    }

    /// Releases the Lease, so that the next operator can act at once.
    pub async fn release(mut self) {
        if let Some(spec) = &mut self.object.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        let Lease { api, settings, .. } = &self.lease;
        if let Err(error) = self.lease.send(api.replace(&settings.name, &PostParams::default(), &self.object)).await {
            tracing::warn!(
                "the Lease {} could not be given up, so the next operator waits until it expires: {}",
                self.lease.name(),
                plain(&error)
            );
        }
    }

    /// Replaces the Lease with a new time of renewal.
    async fn renew(&self) -> Result<Object, kube::Error> {
        let mut object = self.object.clone();
        if let Some(spec) = &mut object.spec {
            spec.renew_time = Some(MicroTime(self.lease.clock.now()));
        }
        self.lease.write_machine_clock(&mut object);
        let Lease { api, settings, .. } = &self.lease;
        self.lease.send(api.replace(&settings.name, &PostParams::default(), &object)).await
    }

    /// Reads a Lease that another client changed. Returns `None` if this process still holds it, else a sentence about
    /// the loss.
    async fn read_holder(&mut self) -> Result<Option<String>, kube::Error> {
        let Some(object) = self.lease.send(self.lease.api.get_opt(&self.lease.settings.name)).await? else {
            return Ok(Some(format!("the Lease {} was deleted", self.lease.name())));
        };
        let holder = object.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        if holder.as_ref() == Some(&self.lease.holder) {
            self.object = object;
            return Ok(None);
        }
        Ok(Some(format!("the Lease {} was taken by {}", self.lease.name(), holder.unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt;
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::time::advance;

    use super::*;

    type Stored = Arc<Mutex<Option<Value>>>;

    tokio::task_local! {
        /// While `OUTAGE` is set, the API server does not answer.
        static OUTAGE: ();
    }

    /// Returns the stored Lease of a simulated API server, and the Lease as an operator holds it.
    async fn hold_lease() -> (Stored, HeldLease) {
        let stored = Stored::default();
        let theirs = Arc::clone(&stored);
        let service = tower::service_fn(move |request: Request<Body>| {
            let stored = Arc::clone(&theirs);
            async move {
                if OUTAGE.try_with(|()| ()).is_ok() {
                    return Err("connection refused".into());
                }
                let (parts, body) = request.into_parts();
                let sent: Option<Value> = serde_json::from_slice(&body.collect_bytes().await?).ok();
                let mut stored = stored.lock().unwrap();
                let version =
                    |lease: &Option<Value>| lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
                let (code, answer) = match (parts.method, sent) {
                    (Method::GET, _) => stored.clone().map_or((404, refusal(404)), |lease| (200, lease)),
                    (Method::PUT, sent) if version(&sent) != version(&stored) => (409, refusal(409)),
                    (_, sent) => {
                        let mut lease = sent.unwrap_or_default();
                        lease["metadata"]["resourceVersion"] = json!(format!("{:?}", Instant::now()));
                        *stored = Some(lease.clone());
                        (200, lease)
                    }
                };
                let answer = Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer?)
            }
        });
        let settings = LeaseSettings::in_namespace("signoff-system");
        let lease = Lease::new(
            crate::connect_service(service, "n"),
            settings,
            "me",
            ServerClock::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH)),
        );
        let held = lease.acquire(|_| {}).await;
        (stored, held)
    }

    fn refusal(code: u16) -> Value {
        let reason = if code == 404 { "NotFound" } else { "Conflict" };
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": "", "code": code})
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_slept_keeps_a_lease_that_nobody_took_meanwhile() {
        let (_, mut held) = hold_lease().await;
        let lease_guard = held.lease_guard();
        {
            let mut renewal = std::pin::pin!(held.renew_forever());
            assert!(renewal.as_mut().now_or_never().is_none());
            advance(Duration::from_secs(12)).await;
            assert!(!lease_guard.is_valid(), "the operator must not act before it has renewed the Lease");
            assert!(timeout(Duration::from_secs(60), renewal).await.is_err());
        }
        assert!(lease_guard.is_valid());
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_slept_loses_a_lease_that_another_took_meanwhile() {
        let (stored, mut held) = hold_lease().await;
        let mut renewal = std::pin::pin!(held.renew_forever());
        assert!(renewal.as_mut().now_or_never().is_none());
        advance(Duration::from_secs(16)).await;
        if let Some(lease) = stored.lock().unwrap().as_mut() {
            lease["spec"]["holderIdentity"] = json!("another");
            lease["metadata"]["resourceVersion"] = json!("theirs");
        }
        assert_eq!(renewal.await, "the Lease signoff-system/signoff-operator was taken by another");
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_keeps_its_lease_through_every_outage_in_which_nobody_takes_it() {
        for seconds in [9, 17, 120, 3600] {
            let (_, mut held) = hold_lease().await;
            let lease_guard = held.lease_guard();
            let mut renewal = std::pin::pin!(held.renew_forever());
            let outage = OUTAGE.scope((), timeout(Duration::from_secs(seconds), renewal.as_mut()));
            assert!(outage.await.is_err(), "{seconds} s: the process must not end");
            assert_eq!(lease_guard.is_valid(), seconds < 10, "{seconds} s: nothing may act");
            assert!(timeout(Duration::from_secs(10), renewal).await.is_err());
            assert!(lease_guard.is_valid(), "{seconds} s: renewed late");
        }
    }
}
