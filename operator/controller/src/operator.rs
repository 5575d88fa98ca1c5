//! An operator: wait for the Lease *(I/O)* -> event loop -> stop.
//!
//! **Invariant:** owns every task that it starts. Dropping the future of [`Operator::run`] ends everything at once,
//! like a crash.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures::FutureExt;
use kube::Client;
use signoff_api::announce::Listener;
use signoff_cluster::{
    ServerClock,
    lease::{HeldLease, Lease, LeaseGuard, LeaseSettings},
};
use signoff_engine::{JournalLimits, Settings};
use signoff_executor::{BlobStore, Caller, Evaluator};
use signoff_notify::Notices;
use tokio::{
    sync::{oneshot, watch},
    task::{JoinError, JoinSet},
    time::timeout,
};

use crate::{
    call_slots::CallLimits,
    context::Context,
    event_loop::EventLoop,
    exit_reason::ExitReason,
    guard::{GuardMode, GuardStatus},
    health::{OperatorPhase, Probe},
    memory::MemoryLimits,
    metrics::SharedMetrics,
    pods::PodSettings,
    protected_addresses::ProtectedAddresses,
    value_quota::ValueSettings,
};

/// The time in which queued Events must be written while the operator stops.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

/// The configuration of an operator.
pub struct Config {
    /// The client of the API server, created by `signoff_cluster::connect` so that no object can block it.
    pub client: Client,
    /// The API server's clock, which the client sets.
    pub clock: ServerClock,
    /// The caller of models and addresses.
    pub caller: Arc<dyn Caller>,
    /// The store of long values, or `None` for Blobs.
    pub blobs: Option<Arc<dyn BlobStore>>,
    /// The administrator's settings for all runs.
    pub settings: Settings,
    /// The limits of the part of a journal that stays in its Workflow; the rest goes to `blobs`.
    pub journal_limits: JournalLimits,
    /// The unique identity of this process, at most 128 characters.
    pub incarnation: String,
    /// The Lease under which the operator acts, or `None` if no other operator runs.
    pub lease: Option<LeaseSettings>,
    /// The way in which the admission policies are checked.
    pub guard: GuardMode,
    /// The watches of addresses that calls cannot reach, or `None` for no watches.
    pub targets: Option<ProtectedAddresses>,
    /// The limits of calls in flight.
    pub call_limits: CallLimits,
    /// The bytes of memory that calls, values, caches and reconciles can take.
    pub memory: MemoryLimits,
    /// The bytes of long values that a Workflow and a namespace can store.
    pub values: ValueSettings,
    /// The namespaces in which steps can be Pods, and the limits of running Pods.
    pub pods: PodSettings,
    /// The threads on which text of users is evaluated.
    pub evaluator: Evaluator,
    /// The most concurrent reconciles. Their memory has a bound of its own.
    pub max_reconciles: usize,
    /// The time in which calls in flight must finish while the operator stops.
    pub grace: Duration,
    /// Further listeners, in addition to Kubernetes Events, metrics and notices.
    pub listeners: Vec<Arc<dyn Listener>>,
    /// The notices, or `None` if the administrator has configured none.
    pub notices: Option<Arc<Notices>>,
    /// The metrics of the operator and of the other parts of its process.
    pub metrics: SharedMetrics,
}

impl Config {
    /// Returns the default configuration: a checked guard, no Lease, 64 calls and 128 reconciles at once, and 10
    /// seconds of grace. Text of users is evaluated inline, so without limits.
    #[must_use]
    pub fn new(client: Client, clock: ServerClock, caller: Arc<dyn Caller>, incarnation: &str) -> Self {
        Self {
            client,
            clock,
            caller,
            blobs: None,
            settings: Settings::default(),
            journal_limits: JournalLimits::default(),
            incarnation: incarnation.to_owned(),
            lease: None,
            guard: GuardMode::Checked(Box::default()),
            targets: None,
            call_limits: CallLimits::default(),
            memory: MemoryLimits::default(),
            values: ValueSettings::default(),
            pods: PodSettings::default(),
            evaluator: Evaluator::inline(),
            max_reconciles: 128,
            grace: Duration::from_secs(10),
            listeners: Vec::new(),
            notices: None,
            metrics: Arc::default(),
        }
    }
}

/// An operator before its start.
pub struct Operator {
    pub(crate) config: Config,
    pub(crate) metrics: SharedMetrics,
    pub(crate) phase: watch::Sender<OperatorPhase>,
    pub(crate) guard: watch::Sender<GuardStatus>,
    pub(crate) context: watch::Sender<Weak<Context>>,
}

impl Operator {
    /// Returns an operator that is not started.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let metrics = Arc::clone(&config.metrics);
        metrics.set_started(config.clock.now());
        Self {
            config,
            metrics,
            phase: watch::Sender::new(OperatorPhase::Starting("not started".to_owned())),
            guard: watch::Sender::new(GuardStatus::Unknown),
            context: watch::Sender::new(Weak::new()),
        }
    }

    /// Returns a probe of the health and the metrics of the operator.
    #[must_use]
    pub fn probe(&self) -> Probe {
        Probe {
            phase: self.phase.subscribe(),
            guard: self.guard.subscribe(),
            metrics: Arc::clone(&self.metrics),
            context: self.context.subscribe(),
        }
    }

    /// Runs until `shutdown` is ready: waits for the Lease, then works. At the end it finishes the calls in flight and
    /// releases the Lease.
    ///
    /// # Errors
    /// The operator had to stop. The process should end, because only another incarnation can continue.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ExitReason> {
        let mut shutdown = std::pin::pin!(shutdown.fuse());
        let Config { client, clock, incarnation, .. } = &self.config;
        let held = match &self.config.lease {
            None => None,
            Some(settings) => {
                let lease = Lease::new(client.clone(), settings.clone(), incarnation, clock.clone());
                let acquired = lease.acquire(|why| self.enter(OperatorPhase::StandingBy(why)));
                tokio::select! {
                    biased;
                    () = &mut shutdown => return Ok(()),
                    held = acquired => Some(held),
                }
            }
        };
        self.metrics.set_leading(true);
        self.enter(OperatorPhase::Starting("reading Workflows, Approvals and policies".to_owned()));
        let lease_guard = held.as_ref().map_or_else(LeaseGuard::unbounded, HeldLease::lease_guard);
        let mut renewal = JoinSet::new();
        let (stop, stopped) = oneshot::channel::<()>();
        // The Lease is renewed in a task of its own, so that no other work delays it.
        if let Some(held) = held {
            renewal.spawn(held.renew_until(stopped));
        }
        // Only the holder of the Lease reads the last state of its predecessor.
        if let Some(notices) = &self.config.notices {
            notices.load().await;
        }
        let (mut event_loop, delivery) = EventLoop::start(&self, lease_guard.clone());
        let mut events = JoinSet::new();
        events.spawn(delivery.run());
        let ended = tokio::select! {
            biased;
            Some(result) = renewal.join_next() => Err(ExitReason::LeaseLost(loss_reason(result))),
            ended = event_loop.run(&self, shutdown) => ended,
        };
        self.metrics.set_leading(false);
        event_loop.stop().await;
        let is_alone = matches!(ended, Ok(()) | Err(ExitReason::LostThreads(_)));
        // If another operator may act, the watermarks belong to it. `flush` ends within seconds.
        if let Some(notices) = self.config.notices.as_ref().filter(|_| is_alone && lease_guard.is_valid()) {
            notices.flush().await;
        }
        let _ = timeout(EVENTS_TIMEOUT, events.join_next()).await;
        drop(stop);
        if let (true, Some(Ok(Ok(held)))) = (is_alone, renewal.join_next().await) {
            held.release().await;
        }
        ended
    }

    pub(crate) fn enter(&self, phase: OperatorPhase) {
        self.phase.send_if_modified(|old| {
            let news = *old != phase;
            if news {
                tracing::info!("{phase}");
                *old = phase;
            }
            news
        });
    }
}

/// Returns why the Lease was lost.
fn loss_reason(renewal: Result<Result<HeldLease, String>, JoinError>) -> String {
    match renewal {
        Ok(Err(why)) => why,
        Ok(Ok(_)) => "the Lease was not renewed".to_owned(),
        Err(error) => format!("the task that renews the Lease stopped: {error}"),
    }
}
