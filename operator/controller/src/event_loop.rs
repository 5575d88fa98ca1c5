//! The event loop: watch events, finished calls, due timers and finished reconciles.
//!
//! **Invariant:** never blocks on anything else, and owns every task that it spawns. Each iteration handles a bounded
//! number of events of each kind, so that many events of one kind do not delay the others.

mod start;

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use signoff_api::{Approval, Workflow};
use signoff_cluster::{
    fair_budget::HeldPart,
    fair_share::FairShare,
    kinds::{DecodedKind, Name},
    watch::WatchEvent,
    workqueue::Key,
};
use signoff_engine::{
    Fact,
    driver::CallKey,
    transition::{self, CallContent, Failure, Reply},
};
use signoff_executor::{Caller, calls::make, clock::wake_up};
use tokio::{
    sync::mpsc,
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    approval,
    charged::Charged,
    context::{CallStart, Context, StartSlot},
    error::Error,
    exit_reason::ExitReason,
    guard::GuardStatus,
    health::OperatorPhase,
    operator::Operator,
    pods::{PodRunner, PodWatchEvent},
    policy_index::{ChangedNamespaces, PolicyWatches},
    reconcile_load::ReconcileLoad,
    stall_reports, watch_handlers,
    withdrawal::RunVersion,
    workflow,
};

/// The number of lost threads that ends the process.
const MOST_LOST: usize = 2;
/// The most events of one kind in an iteration.
const BATCH: usize = 64;
/// The time for writing the quarantines of the objects that lost threads evaluated, before the process ends.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// The number of copies of an uncommitted result in memory: the reply, the fact, the journal, and the encoded status.
const RESULT_COPIES: usize = 4;
/// The factor by which reconciles in flight may exceed `max_reconciles` while most of them wait for an evaluation.
const MOST_WAITING: usize = 8;

type ReconcileResult = (Result<Option<signoff_api::Moment>, Error>, Duration);
/// A call with its result and the memory for it, or `None` if the call did not begin.
type CallResult = (Name, String, CallKey, Option<(Fact, HeldPart)>);

/// The event loop of an operator that holds its Lease.
pub(crate) struct EventLoop {
    context: Arc<Context>,
    caller: Arc<dyn Caller>,
    max_reconciles: usize,
    grace: Duration,
    /// The watches and the guard, which never end by themselves.
    background: JoinSet<ExitReason>,
    reconciles: JoinSet<ReconcileResult>,
    load: ReconcileLoad,
    calls: JoinSet<CallResult>,
    starts: mpsc::UnboundedReceiver<CallStart>,
    watches: WatchReceivers,
    pod_runner: Arc<PodRunner>,
    /// Whether every first list is complete, so that reconciles may start.
    working: bool,
}

/// The receivers of watch events.
struct WatchReceivers {
    workflows: mpsc::Receiver<WatchEvent<Workflow>>,
    approvals: mpsc::Receiver<WatchEvent<Approval>>,
    policies: PolicyWatches,
    pods: mpsc::Receiver<PodWatchEvent>,
    synced: SyncedLists,
}

/// The kinds whose first list is complete.
#[derive(Clone, Copy, Default)]
struct SyncedLists {
    workflows: bool,
    approvals: bool,
}

impl EventLoop {
    /// Runs the loop. Each iteration is short, because only events are awaited.
    pub(crate) async fn run(
        &mut self,
        operator: &Operator,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ExitReason> {
        let mut shutdown = std::pin::pin!(shutdown);
        let context = Arc::clone(&self.context);
        let Context { objects, metrics, .. } = &*context;
        let mut guard = context.api.guard.clone();
        let mut freed = context.calls.pod_quota.freed();
        let mut lost = context.evaluations.evaluator.lost();
        let (mut last_call, mut last_writes): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            if last_writes.is_some() && self.reconciles.is_empty() {
                return Err(ExitReason::LostThreads(*lost.borrow()));
            }
            self.handle_ready();
            if self.begin_working_if_synced(operator) && last_writes.is_none() {
                self.start_reconciles();
            }
            if last_call.is_some() && self.is_finished() {
                return Ok(());
            }
            let now = context.api.now();
            let due = context.queue.next_due().map(|due| wake_up(due, now));
            tokio::select! {
                biased;
                () = &mut shutdown, if last_call.is_none() => {
                    operator.enter(OperatorPhase::Stopping);
                    context.calls.drain();
                    // Results that wait for the next commit of their run are committed now.
                    context.calls.runs.busy_runs().into_iter().for_each(|name| context.enqueue_workflow(name));
                    last_call = Some(Instant::now() + self.grace);
                }
                () = wait_until(last_call) => return Ok(()),
                () = wait_until(last_writes) => return Err(ExitReason::LostThreads(*lost.borrow())),
                Ok(()) = lost.changed(), if last_writes.is_none() => {
                    if *lost.borrow() >= MOST_LOST {
                        operator.enter(OperatorPhase::Stopping);
                        last_writes = Some(Instant::now() + LAST_WRITES);
                    }
                }
                // While the guard inspects, nothing is enqueued. Its result is another change.
                Ok(()) = guard.changed() => if guard.borrow().is_settled() { self.enqueue_all() },
                Ok(()) = freed.changed() => {
                    for name in context.calls.pod_quota.workflows_to_wake() {
                        context.enqueue_workflow(name);
                    }
                }
                () = context.listeners.notices_changed() => context.enqueue_notified(),
                () = context.calls.bytes.freed() => context.calls.slots.on_bytes_freed(),
                () = context.calls.slots.granted() => {
                    for name in context.calls.slots.take_granted() {
                        context.enqueue_workflow(name);
                    }
                }
                () = wait_until(due) => context.queue.fire_timers(context.api.now()),
                () = wait_until(context.listeners.unrouted_until()) => context.queue_unrouted(),
                Some(done) = self.reconciles.join_next_with_id() => self.on_reconciled(done),
                Some(done) = self.calls.join_next() => self.on_call_finished(done),
                Some(start) = self.starts.recv() => self.start_call(start),
                Some(event) = self.watches.approvals.recv() => self.on_approvals(event),
                Some(event) = self.watches.workflows.recv() => self.on_workflows(event),
                changed = self.watches.policies.apply_next_event(&objects.policies, &objects.deleted_namespaces, metrics) => {
                    self.on_namespaces_changed(changed);
                }
                Some(event) = self.watches.pods.recv() => self.on_pods(event),
                Some(done) = self.background.join_next() => return Err(done.unwrap_or(ExitReason::Task("watch"))),
                () = context.queue.triggered() => {}
            }
        }
    }

    /// Handles the events that have arrived. Of each kind at most [`BATCH`] events are handled.
    fn handle_ready(&mut self) {
        for _ in 0..BATCH {
            let Some(done) = self.reconciles.try_join_next_with_id() else { break };
            self.on_reconciled(done);
        }
        for _ in 0..BATCH {
            let Some(done) = self.calls.try_join_next() else { break };
            self.on_call_finished(done);
        }
        for _ in 0..BATCH {
            let Ok(start) = self.starts.try_recv() else { break };
            self.start_call(start);
        }
        if let Ok(event) = self.watches.approvals.try_recv() {
            self.on_approvals(event);
        }
        if let Ok(event) = self.watches.workflows.try_recv() {
            self.on_workflows(event);
        }
        let context = Arc::clone(&self.context);
        let Context { objects, metrics, .. } = &*context;
        for _ in 0..BATCH {
            let next = self.watches.policies.apply_next_event(&objects.policies, &objects.deleted_namespaces, metrics);
            let Some(changed) = next.now_or_never() else { break };
            self.on_namespaces_changed(changed);
        }
        for _ in 0..BATCH {
            let Ok(event) = self.watches.pods.try_recv() else { break };
            self.on_pods(event);
        }
    }

    fn on_approvals(&mut self, event: WatchEvent<Approval>) {
        let (context, WatchReceivers { approvals, synced, .. }) = (&*self.context, &mut self.watches);
        synced.approvals |= watch_handlers::apply_all(context, &context.objects.approvals, event, approvals);
    }

    fn on_workflows(&mut self, event: WatchEvent<Workflow>) {
        let (context, WatchReceivers { workflows, synced, .. }) = (&*self.context, &mut self.watches);
        synced.workflows |= watch_handlers::apply_all(context, &context.objects.workflows, event, workflows);
    }

    fn on_pods(&self, event: PodWatchEvent) {
        for name in self.context.calls.pods.apply(event) {
            self.context.enqueue_workflow(name);
        }
        self.context.calls.pod_quota.announce_free();
    }

    /// Enters the phase `Working`, and ends the recovery of notices, once every first list is complete and the guard
    /// has inspected. Returns whether reconciles may start.
    fn begin_working_if_synced(&mut self, operator: &Operator) -> bool {
        let SyncedLists { workflows, approvals } = self.watches.synced;
        if !self.working
            && workflows
            && approvals
            && self.context.objects.policies.is_complete()
            && *self.context.api.guard.borrow() != GuardStatus::Unknown
        {
            self.working = true;
            if let Some(notices) = self.context.notices() {
                notices.end_recovery();
            }
            if !self.context.calls.is_draining() {
                operator.enter(OperatorPhase::Working);
            }
        }
        self.working
    }

    /// Starts as many reconciles as may be in flight. While the operator stops, only runs with results to commit are
    /// reconciled.
    fn start_reconciles(&mut self) {
        if self.context.calls.is_draining() {
            // Only runs with results to commit are still reconciled.
            let busy = self.context.calls.runs.busy_runs();
            self.context.queue.retain(|key| matches!(key, Key::Workflow(name) if busy.contains(name)));
        }
        while self.has_room()
            && let Some(key) = self.context.queue.pop_where(|namespace| self.may_begin(namespace))
        {
            let (context, what) = (Arc::clone(&self.context), key.clone());
            let (evaluator, namespace) = (&self.context.evaluations.evaluator, &key.name().namespace);
            let task = self.reconciles.spawn(Charged::new(evaluator, namespace, async move {
                let began = Instant::now();
                let result = match &what {
                    Key::Workflow(name) => workflow::reconcile(&context, name).await,
                    Key::Approval(name) => approval::reconcile(&context, name).await,
                };
                match &result {
                    Ok(_) => context.stalls.record_success(&what),
                    Err(error) => stall_reports::record_failure(&context, &what, error).await,
                }
                (result, began.elapsed())
            }));
            let bytes = self.context.objects.memory_of(&key);
            self.load.begin(task.id(), key, bytes);
        }
    }

    /// Whether one more reconcile may start. Reconciles that wait for an evaluation do not count.
    fn has_room(&self) -> bool {
        self.count_working() < self.max_reconciles
            && self.load.count() < self.most_in_flight()
            && self.load.has_memory()
    }

    /// Returns the number of reconciles in flight that do not wait for an evaluation.
    fn count_working(&self) -> usize {
        self.load.count().saturating_sub(self.context.evaluations.waiting.count())
    }

    /// Returns the most reconciles in flight, including those that wait for an evaluation.
    fn most_in_flight(&self) -> usize {
        self.max_reconciles.saturating_mul(MOST_WAITING)
    }

    /// Whether one more reconcile of the namespace may start.
    fn may_begin(&self, namespace: &str) -> bool {
        let is_slow = self.context.evaluations.quarantines.is_slow(namespace, self.context.api.now());
        let most = if is_slow { 1 } else { self.max_reconciles };
        let (all, in_flight) = (self.max_reconciles, self.load.count_in(namespace));
        let at_work = in_flight.saturating_sub(self.context.evaluations.waiting.count_in(namespace));
        in_flight < most
            && FairShare::new(all, all.div_ceil(2), all / 4).has_room(at_work, self.count_working(), 1)
            && self.load.has_share_for(namespace, self.most_in_flight())
    }

    /// Counts a finished reconcile, and tells the queue when the object is due again.
    fn on_reconciled(&mut self, done: Result<(Id, ReconcileResult), JoinError>) {
        let (id, result, took) = match done {
            Ok((id, (result, took))) => (id, Ok(result), took),
            Err(panic) => (panic.id(), Err(panic), Duration::ZERO),
        };
        let Some(key) = self.load.end(id) else { return };
        let Context { queue, objects, metrics, .. } = &*self.context;
        let (kind, name) = match &key {
            Key::Workflow(name) => (Workflow::KIND, name),
            Key::Approval(name) => (Approval::KIND, name),
        };
        let result = result.unwrap_or_else(|panic| {
            Err(Error::Bug { object: format!("{kind} {name}"), what: format!("its reconcile panicked: {panic}") })
        });
        metrics.count_reconcile(kind, if result.is_ok() { "ok" } else { "error" }, took);
        match result {
            Ok(due) => queue.finish(&key, due, |version| objects.is_own(&key, version)),
            Err(error) => {
                metrics.count_failure(kind, error.class());
                let now = self.context.api.now();
                let latest = self.context.stalls.due(&key);
                let due = |failures| {
                    let usual = now.after(error.pause(failures));
                    latest.map_or(usual, |latest| usual.min(latest.max(now)))
                };
                let failures = queue.fail(&key, due);
                if error.is_conflict() {
                    tracing::debug!(kind, %name, failures, "{error}");
                } else {
                    tracing::warn!(kind, %name, failures, "{error}");
                }
            }
        }
    }

    /// Starts the task of a call whose start is committed. The task begins the call only if its run still may, and
    /// charges its time to the namespace.
    fn start_call(&mut self, start: CallStart) {
        let CallStart { name, run, call, generation, hold } = start;
        let key = call.key();
        let uid = run.uid.clone();
        let (caller, context) = (Arc::clone(&self.caller), Arc::clone(&self.context));
        let call_id = (name.clone(), uid.clone(), key.clone());
        let pod_runner = Arc::clone(&self.pod_runner);
        let (evaluator, namespace) = (&self.context.evaluations.evaluator, &name.namespace);
        let task = self.calls.spawn(Charged::new(evaluator, namespace, async move {
            let (name, uid, key) = call_id;
            let is_followed = matches!(hold, StartSlot::Pod { begins: false, .. });
            if !context.may_begin(&RunVersion { name: &name, uid: &uid, generation }, &call, is_followed).await {
                return (name, uid, key, None);
            }
            let began = Instant::now();
            let kind = kind_of(&call.content);
            let result = match (&hold, &call.content) {
                (StartSlot::Pod { begins, .. }, _) => match &call.content {
                    CallContent::Pod(pod) => pod_runner.run_pod(&run, &call, pod, *begins).await,
                    CallContent::Agent(_) | CallContent::Http(_) | CallContent::Mcp(_) => {
                        return (name, uid, key, None);
                    }
                },
                (StartSlot::Call(slot), _) => make(&*caller, &run, call, slot).await,
            };
            context.metrics.count_call(kind, if result.is_ok() { "ok" } else { "failed" }, began.elapsed());
            if let Ok(Reply { usage: Some(usage), .. }) = &result {
                context.metrics.count_usage(usage);
            }
            let memory = context.calls.bytes.note(&name.namespace, RESULT_COPIES * bytes_of(&result));
            drop(hold);
            let (path, attempt) = key.clone();
            let fact = Fact::CallFinished { path, attempt, result, at: context.api.now() };
            (name, uid, key, Some((fact, memory)))
        }));
        if !self.context.calls.runs.attach_task(&name, &uid, &key, task.clone()) {
            task.abort();
        }
    }

    /// Records the result of a call, and enqueues its run.
    fn on_call_finished(&mut self, done: Result<CallResult, JoinError>) {
        // The result of an aborted call is not needed.
        let Ok((name, uid, key, fact)) = done else { return };
        let Some((fact, memory)) = fact else {
            self.context.calls.runs.remove_call(&name, &uid, &key);
            return self.context.enqueue_workflow(name);
        };
        if self.context.calls.runs.finish_call(&name, &uid, key, fact, memory) {
            self.context.enqueue_workflow(name);
        }
    }

    /// Enqueues every open object.
    fn enqueue_all(&self) {
        for name in self.context.objects.workflows.open() {
            self.context.enqueue_workflow(name);
        }
        for name in self.context.objects.approvals.open() {
            self.context.enqueue_approval(name);
        }
    }

    /// Enqueues the runs of namespaces whose policies have changed, or whose deletion has begun or is over.
    fn on_namespaces_changed(&self, changed: ChangedNamespaces) {
        let ChangedNamespaces { policies, deletions } = changed;
        self.context.queue_unrouted();
        self.context.enqueue_runs_of(&policies);
        self.context.on_news_of_deletions(deletions.as_slice());
    }

    fn is_finished(&self) -> bool {
        self.reconciles.is_empty() && self.starts.is_empty() && self.context.calls.runs.busy_runs().is_empty()
    }

    /// Ends all tasks, and drops the reporter so that its last Events can be written.
    pub(crate) async fn stop(self) {
        let Self { mut background, mut reconciles, mut calls, .. } = self;
        background.shutdown().await;
        reconciles.shutdown().await;
        calls.shutdown().await;
    }
}

/// Waits until an instant, or forever without one.
async fn wait_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Returns the kind of a call in metrics.
fn kind_of(content: &CallContent) -> &'static str {
    match content {
        CallContent::Agent(_) => "agent",
        CallContent::Pod(_) => "pod",
        CallContent::Http(_) => "http",
        CallContent::Mcp(_) => "mcp",
    }
}

/// Returns the number of bytes of a result's texts.
fn bytes_of(result: &Result<Reply, Failure>) -> usize {
    let log = |log: &Option<String>| log.as_ref().map_or(0, String::len);
    match result {
        Ok(reply) => transition::bytes_of(&reply.response) + log(&reply.log),
        Err(failure) => failure.message.len() + log(&failure.log),
    }
}
