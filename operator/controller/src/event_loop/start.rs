//! Starts the event loop: builds the shared context, and spawns the watches and the guard.

use std::sync::{Arc, atomic::AtomicBool};

use futures::FutureExt;
use signoff_cluster::{
    events::{self, Delivery},
    fair_budget::FairBudget,
    lease::LeaseGuard,
    requests::{ApiRequests, write_turns},
    watch::follow,
    workqueue::Queue,
    write_priority::WritePriority,
};
use signoff_executor::BlobStore;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};

use super::{EventLoop, SyncedLists, WatchReceivers};
use crate::{
    blobs::ClusterBlobs,
    cached_objects::CachedObjects,
    caches::Caches,
    call_slots::CallSlots,
    context::{ApiServer, Calls, Context, Evaluations, Listeners, LongValues},
    exit_reason::ExitReason,
    guard::{ForeignApiServer, GuardMonitor, Recheck},
    in_flight::Runs,
    notices::{NoticeDesk, only_while},
    operator::Operator,
    pods::{self, PodIndex, PodQuota, PodRunner},
    policy_index::PolicyWatches,
    protected_addresses,
    reconcile_load::ReconcileLoad,
    stalls::Stalls,
    value_quota::ValueQuota,
};

/// The most objects of a watch that wait to be applied. Each can have 1.5 MiB, and take 36 times as much in memory.
const WATCHED: usize = 4;

impl EventLoop {
    /// Builds the shared context of an operator that holds its Lease, and starts the watches and the guard. Returns the
    /// event loop, and the delivery of Kubernetes Events, which the caller runs.
    pub(crate) fn start(operator: &Operator, lease_guard: LeaseGuard) -> (Self, Delivery) {
        let Operator { config, metrics, .. } = operator;
        let client = &config.client;
        let priority = WritePriority::default();
        let (reporter, delivery) =
            events::reporter(client.clone(), &config.incarnation, priority.clone(), metrics.requests());
        let (to_starts, starts) = mpsc::unbounded_channel();
        let (to_workflows, workflows) = mpsc::channel(WATCHED);
        let (to_approvals, approvals) = mpsc::channel(WATCHED);
        let turns = write_turns();
        let blobs = ClusterBlobs::new(client.clone(), Arc::clone(metrics), Arc::clone(&turns));
        let default_blobs = || Arc::new(blobs) as Arc<dyn BlobStore>;
        let doubt = Arc::new(Notify::new());
        let pods = Arc::new(PodIndex::default());
        let memory = config.memory;
        let call_bytes = FairBudget::new(memory.calls);
        let slots = CallSlots::new(config.call_limits, Arc::clone(&call_bytes), memory.own_of_call);
        let context = Arc::new(Context {
            api: ApiServer {
                requests: ApiRequests::new(client.clone(), metrics.requests(), priority, turns),
                clock: config.clock.clone(),
                lease_guard,
                guard: operator.guard.subscribe(),
                recheck: Recheck::new(client.clone(), operator.guard.clone(), Arc::clone(&doubt)),
            },
            objects: CachedObjects::default(),
            queue: Queue::default(),
            stalls: Stalls::default(),
            calls: Calls {
                incarnation: config.incarnation.clone(),
                runs: Runs::new(memory.kept_values),
                starts: to_starts,
                slots: Arc::new(slots),
                bytes: call_bytes,
                pod_quota: Arc::new(PodQuota::new(config.pods.clone(), Arc::clone(&pods))),
                pods,
                draining: AtomicBool::new(false),
            },
            values: LongValues {
                blobs: config.blobs.clone().unwrap_or_else(default_blobs),
                quota: ValueQuota::new(config.values, memory.values),
                journal_limits: config.journal_limits,
            },
            evaluations: Evaluations::new(config.evaluator.clone(), Arc::clone(metrics)),
            caches: Caches::new(memory.segments),
            listeners: Listeners {
                reporter,
                notices: config.notices.clone().map(NoticeDesk::new),
                further: config.listeners.clone(),
            },
            metrics: Arc::clone(metrics),
            settings: config.settings.clone(),
        });
        operator.context.send_replace(Arc::downgrade(&context));
        let mut background = JoinSet::new();
        let (counts, watched) = (metrics.requests(), client.clone());
        background.spawn(follow(watched, to_workflows, counts).map(|()| ExitReason::Task("watch of Workflows")));
        let (counts, watched) = (metrics.requests(), client.clone());
        background.spawn(follow(watched, to_approvals, counts).map(|()| ExitReason::Task("watch of Approvals")));
        let monitor = GuardMonitor {
            client: client.clone(),
            mode: config.guard.clone(),
            status: operator.guard.clone(),
            doubt,
            clock: config.clock.clone(),
            metrics: Arc::clone(metrics),
        };
        background.spawn(monitor.run().map(|ForeignApiServer| ExitReason::ForeignApiServer));
        if let Some(notices) = &config.notices {
            let lease_guard = context.api.lease_guard.clone();
            let fenced = only_while(move || lease_guard.is_valid(), Arc::clone(notices).run());
            background.spawn(fenced.map(|()| ExitReason::Task("delivery of notices")));
        }
        if let Some(around) = &config.targets {
            background.spawn(
                protected_addresses::watch(client, around, metrics).map(|()| ExitReason::Task("watch of addresses")),
            );
        }
        let watches = WatchReceivers {
            workflows,
            approvals,
            policies: PolicyWatches::start(client, metrics, &mut background),
            pods: pods::start_watches(client, &config.pods, metrics, &mut background),
            synced: SyncedLists::default(),
        };
        let pod_runner = PodRunner {
            context: Arc::clone(&context),
            requests: context.api.requests.clone(),
            index: Arc::clone(&context.calls.pods),
            clock: config.clock.clone(),
        };
        let event_loop = Self {
            context,
            caller: Arc::clone(&config.caller),
            max_reconciles: config.max_reconciles.max(1),
            grace: config.grace,
            background,
            reconciles: JoinSet::new(),
            load: ReconcileLoad::new(memory.reconciles),
            calls: JoinSet::new(),
            starts,
            watches,
            pod_runner: Arc::new(pod_runner),
            working: false,
        };
        (event_loop, delivery)
    }
}
