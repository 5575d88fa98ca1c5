//! The order of evaluations: the queue of each namespace, the running evaluations, and the choice of the next one.
//!
//! Reads no clock: the caller passes the time, so that a simulation can try any costs.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{
    Subject,
    shares::{Expected, Shares},
};

/// The wait after which an evaluation has priority over shorter ones of its namespace.
const PRIORITY_WAIT: Duration = Duration::from_secs(10);

/// The waiting and running evaluations. `J` is the type of a job.
pub(super) struct Schedule<J> {
    /// The queues by namespace; none is empty.
    queued: BTreeMap<String, VecDeque<WaitingJob<J>>>,
    /// The namespaces with a queue, in the order in which they begin if they used the same time.
    turns: VecDeque<String>,
    shares: Shares,
    running: BTreeMap<u64, RunningJob>,
    /// The number of evaluations that have begun.
    begun: u64,
}

struct WaitingJob<J> {
    subject: Subject,
    since: Instant,
    job: J,
}

struct RunningJob {
    subject: Subject,
    expected: Expected,
}

impl<J> Schedule<J> {
    /// `limit` is the limit of one evaluation.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            queued: BTreeMap::new(),
            turns: VecDeque::new(),
            shares: Shares::new(limit),
            running: BTreeMap::new(),
            begun: 0,
        }
    }

    /// Adds a waiting evaluation.
    pub(super) fn submit(&mut self, subject: Subject, job: J, now: Instant) {
        let namespace = subject.namespace.clone();
        let queue = self.queued.entry(namespace.clone()).or_default();
        queue.push_back(WaitingJob { subject, since: now, job });
        if queue.len() == 1 {
            self.turns.push_back(namespace);
        }
    }

    /// Removes and returns the unwanted evaluations that wait in a namespace. The caller drops the evaluations without
    /// holding a lock.
    pub(super) fn remove(&mut self, namespace: &str, is_unwanted: impl Fn(&J) -> bool) -> Vec<J> {
        let Some(queue) = self.queued.get_mut(namespace) else { return Vec::new() };
        let (unwanted, left): (VecDeque<_>, _) = queue.drain(..).partition(|waiting| is_unwanted(&waiting.job));
        *queue = left;
        if queue.is_empty() {
            self.queued.remove(namespace);
            self.turns.retain(|other| other != namespace);
        }
        unwanted.into_iter().map(|waiting| waiting.job).collect()
    }

    /// Begins the first evaluation of the namespace with the least used time, short ones first, and returns it with its
    /// number. A single namespace, and all costly evaluations together, leave one thread free.
    pub(super) fn begin_next(&mut self, threads: usize, now: Instant) -> Option<(u64, J)> {
        let max_threads = threads.saturating_sub(1).max(1);
        let costly = self.running.values().filter(|running| running.expected.is_costly).count();
        let can_be_costly = costly < max_threads;
        let running = self.running_by_namespace();
        let running_of = |name: &str| running.get(name).copied().unwrap_or_default();
        let mut turns: Vec<&String> = self.turns.iter().filter(|name| running_of(name).0 < max_threads).collect();
        turns.sort_by_cached_key(|name| self.shares.used(name, now) + running_of(name).1);
        let first = |name: &String| Some((name.clone(), self.first_job(name, can_be_costly, now)?));
        let (name, (position, expected)) = turns.into_iter().find_map(first)?;
        let queue = self.queued.get_mut(&name)?;
        let WaitingJob { subject, job, .. } = queue.remove(position)?;
        self.turns.retain(|other| *other != name);
        if queue.is_empty() {
            self.queued.remove(&name);
        } else {
            self.turns.push_back(name);
        }
        Some((self.begin(subject, expected), job))
    }

    /// Returns the number of running evaluations by namespace, and their expected cost, which is charged when they end.
    fn running_by_namespace(&self) -> BTreeMap<&str, (usize, Duration)> {
        let mut running: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
        for RunningJob { subject, expected } in self.running.values() {
            let (count, cost) = running.entry(&subject.namespace).or_default();
            (*count, *cost) = (*count + 1, *cost + expected.cost);
        }
        running
    }

    /// Returns the position in its queue, and the expected cost, of the first evaluation of a namespace that can begin.
    fn first_job(&self, namespace: &str, can_be_costly: bool, now: Instant) -> Option<(usize, Expected)> {
        let is_recent = |job: &WaitingJob<J>| now.saturating_duration_since(job.since) < PRIORITY_WAIT;
        let jobs = self.queued.get(namespace)?.iter().enumerate();
        let ranked =
            jobs.map(|(position, job)| (is_recent(job), self.shares.estimate_cost(&job.subject, now), position));
        let (_, expected, position) = ranked.filter(|(_, expected, _)| can_be_costly || !expected.is_costly).min()?;
        Some((position, expected))
    }

    /// Begins an evaluation that was not queued here, and returns its number.
    pub(super) fn begin_alone(&mut self, subject: Subject, now: Instant) -> u64 {
        let expected = self.shares.estimate_cost(&subject, now);
        self.begin(subject, expected)
    }

    fn begin(&mut self, subject: Subject, expected: Expected) -> u64 {
        let number = self.begun;
        self.begun += 1;
        self.running.insert(number, RunningJob { subject, expected });
        number
    }

    /// Ends an evaluation, and charges its cost to its object and namespace.
    pub(super) fn end(&mut self, number: u64, cost: Duration, now: Instant) {
        if let Some(RunningJob { subject, expected }) = self.running.remove(&number) {
            self.shares.charge(&subject, expected, cost, now);
        }
    }

    /// Charges other work to a namespace.
    pub(super) fn charge(&mut self, namespace: &str, cost: Duration, now: Instant) {
        self.shares.charge_namespace(namespace, cost, now);
    }

    /// Whether a running evaluation was expected to be costly.
    pub(super) fn is_costly(&self, number: u64) -> bool {
        self.running.get(&number).is_some_and(|running| running.expected.is_costly)
    }

    /// Returns the number of evaluations that have begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns the number of waiting evaluations.
    pub(super) fn waiting(&self) -> usize {
        self.queued.values().map(VecDeque::len).sum()
    }

    /// Whether no evaluation runs.
    pub(super) fn runs_nothing(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether no evaluation waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.queued.is_empty()
    }

    /// Drops the waiting evaluations.
    pub(super) fn clear(&mut self) {
        self.queued.clear();
        self.turns.clear();
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
