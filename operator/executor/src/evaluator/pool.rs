//! The queue, the threads and the watchdog of an evaluator.
//!
//! **Invariant:** the watchdog sleeps until the earliest time at which an evaluation could exceed its limit, and
//! without a limit while nothing is evaluated. It wakes every second only while a thread is missing, and tries to start
//! it.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use signoff_engine::evaluation;
use signoff_expr::budget;
use tokio::sync::{oneshot, watch};

use super::{
    EvaluatorSettings, Stopped, Subject,
    cpu::ThreadClock,
    marks::{MarkFile, Marks, Suspicion},
    progress::Progress,
    schedule::Schedule,
    shares::SURPRISE,
};

/// The size of the stack of a thread, in bytes. Only the used part takes memory.
const STACK: usize = 8 << 20;
/// The time after which a waiting suspect stops other evaluations from starting before it.
const SUSPECT_WAIT: Duration = Duration::from_secs(30);
/// The quiet time before a suspect begins, because other runs only pause between two evaluations.
const QUIET: Duration = Duration::from_secs(2);
/// The pause between two attempts to start a missing thread.
const RETRY: Duration = Duration::from_secs(1);
/// The minimum sleep of the watchdog.
const SHORTEST: Duration = Duration::from_millis(5);

/// The limit and the grace of an evaluation.
pub(super) type Limits = (Duration, Duration);

type Deliver = Box<dyn FnOnce() + Send>;
type Lose = Box<dyn Fn(Stopped) + Send>;

/// The result of an evaluation, or `None` if it stopped for others and is to be submitted again.
pub(super) type Evaluated<T> = Option<Result<T, Stopped>>;

/// An evaluation that waits or runs.
pub(super) struct Job {
    subject: Subject,
    alone: bool,
    since: Instant,
    flag: Arc<AtomicBool>,
    /// Set when the evaluation stops for others; `None` if the evaluation cannot be repeated.
    gives_way: Option<Arc<AtomicBool>>,
    progress: Arc<Progress>,
    work: Box<dyn FnOnce() -> Deliver + Send>,
    /// Reports a lost evaluation. Moved into [`Running`] when the evaluation begins.
    lose: Option<Lose>,
}

impl Job {
    pub(super) fn new<T: Send + 'static>(
        subject: Subject,
        flag: Arc<AtomicBool>,
        (limit, _): Limits,
        can_give_way: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> (Self, oneshot::Receiver<Evaluated<T>>) {
        let (sender, receiver) = oneshot::channel();
        let sender = Arc::new(Mutex::new(Some(sender)));
        let send = |sender: &Mutex<Option<oneshot::Sender<_>>>, result| {
            if let Some(sender) = sender.lock().unwrap_or_else(PoisonError::into_inner).take() {
                // A result without a waiting caller is dropped.
                let _ = sender.send(result);
            }
        };
        let gives_way = can_give_way.then(Arc::<AtomicBool>::default);
        let gave_way = gives_way.clone().unwrap_or_default();
        let progress = Arc::new(Progress::default());
        let (stop, parts, sender_of_result) = (Arc::clone(&flag), Arc::clone(&progress), Arc::clone(&sender));
        let work = Box::new(move || {
            let observer: Arc<dyn evaluation::Observer> = parts.clone();
            let evaluate = || evaluation::observe(observer, || budget::with_stop(Arc::clone(&stop), work));
            let result = match catch_unwind(AssertUnwindSafe(evaluate)) {
                // After the flag was set, the value can be incomplete.
                Ok(_) if gave_way.load(Ordering::Relaxed) => None,
                Ok(_) if stop.load(Ordering::Relaxed) => {
                    Some(Err(Stopped::TooCostly { part: parts.find_culprit(), limit }))
                }
                Ok(value) => Some(Ok(value)),
                Err(_) => Some(Err(Stopped::Panicked { part: parts.find_culprit() })),
            };
            Box::new(move || send(&sender_of_result, result)) as Deliver
        });
        let lose = Some(Box::new(move |why| send(&sender, Some(Err(why)))) as Lose);
        (Self { subject, alone: false, since: Instant::now(), flag, gives_way, progress, work, lose }, receiver)
    }
}

/// An evaluation on a thread.
struct Running {
    clock: ThreadClock,
    /// The CPU time of the thread when the evaluation began.
    began: Duration,
    /// The CPU time of the evaluation when it was told to stop.
    told_to_stop: Option<Duration>,
    flag: Arc<AtomicBool>,
    /// The flag of an evaluation that was expected to be cheap. It is set when its cost exceeds a limit and others
    /// wait.
    gives_way: Option<Arc<AtomicBool>>,
    progress: Arc<Progress>,
    lose: Option<Lose>,
}

struct State {
    schedule: Schedule<Job>,
    /// The evaluations that run alone, when nothing else waits.
    suspects: VecDeque<Job>,
    /// The last time at which another evaluation was submitted or ended.
    last: Option<Instant>,
    /// The running evaluations by number.
    running: BTreeMap<u64, Running>,
    alone: bool,
    /// The number of the next thread.
    threads: usize,
    /// The number of lost threads that are not replaced yet.
    missing: usize,
    watchdog_rests: bool,
    /// The time at which the watchdog wakes, at the latest.
    watchdog_wakes: Instant,
    /// Whether an evaluation stops as soon as another one waits.
    is_overdue: bool,
    closed: bool,
}

struct Pool {
    settings: EvaluatorSettings,
    marks: Option<Marks>,
    state: Mutex<State>,
    work: Condvar,
    watchdog: Condvar,
    lost: watch::Sender<usize>,
}

/// A handle that ends the threads when it is dropped.
pub(super) struct Handle {
    pool: Arc<Pool>,
}

impl Handle {
    pub(super) fn start(settings: EvaluatorSettings) -> io::Result<Self> {
        signoff_engine::prepare();
        let marks = settings.marks.clone().map(Marks::open).transpose()?;
        let pool = Arc::new(Pool {
            marks,
            state: Mutex::new(State::new(settings.limit)),
            work: Condvar::new(),
            watchdog: Condvar::new(),
            lost: watch::Sender::new(0),
            settings,
        });
        let handle = Self { pool: Arc::clone(&pool) };
        for _ in 0..pool.settings.threads.max(1) {
            begin_thread(&pool)?;
        }
        let named = thread::Builder::new().name("evaluations".to_owned());
        named.spawn(move || watch_over(&pool))?;
        Ok(handle)
    }

    pub(super) fn limits(&self) -> Limits {
        (self.pool.settings.limit, self.pool.settings.grace)
    }

    pub(super) fn lost(&self) -> watch::Receiver<usize> {
        self.pool.lost.subscribe()
    }

    pub(super) fn begun(&self) -> u64 {
        self.pool.lock().schedule.begun()
    }

    pub(super) fn charge(&self, namespace: &str, cost: Duration) {
        self.pool.lock().schedule.charge(namespace, cost, Instant::now());
    }

    pub(super) fn waiting(&self) -> usize {
        let state = self.pool.lock();
        let wanted = |suspect: &&Job| !suspect.flag.load(Ordering::Relaxed);
        state.suspects.iter().filter(wanted).count() + state.schedule.waiting()
    }

    pub(super) fn is_suspect(&self, subject: &Subject) -> bool {
        self.pool.marks.as_ref().is_some_and(|marks| marks.is_suspect(subject))
    }

    pub(super) fn clear(&self, subject: &Subject) {
        if let Some(marks) = &self.pool.marks
            && marks.is_suspect(subject)
        {
            marks.clear(subject);
        }
    }

    /// Adds an evaluation to the queue of its namespace, or to the suspects.
    ///
    /// # Errors
    /// `Deadly`, if evaluations of the object ended the process twice.
    pub(super) fn submit(&self, mut job: Job) -> Result<(), Stopped> {
        let marks = self.pool.marks.as_ref();
        job.alone = match marks.map_or(Suspicion::Trusted, |marks| marks.suspicion_of(&job.subject)) {
            Suspicion::Trusted => false,
            Suspicion::Suspect => true,
            Suspicion::Deadly(part) => return Err(Stopped::Deadly { part }),
        };
        let mut state = self.pool.lock();
        if job.alone {
            state.suspects.push_back(job);
        } else {
            let now = Instant::now();
            state.last = Some(now);
            state.schedule.submit(job.subject.clone(), job, now);
        }
        if state.is_overdue {
            self.pool.watchdog.notify_one();
        }
        drop(state);
        self.pool.work.notify_one();
        Ok(())
    }

    /// Drops the evaluations that wait in a namespace and have no waiting caller.
    pub(super) fn drop_unwanted(&self, namespace: &str) {
        let unwanted = self.pool.lock().schedule.remove(namespace, |job| job.flag.load(Ordering::Relaxed));
        if !unwanted.is_empty() {
            // A suspect may have waited for the removed evaluations.
            self.pool.work.notify_all();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.closed = true;
        state.schedule.clear();
        state.suspects.clear();
        for running in state.running.values() {
            running.flag.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.pool.work.notify_all();
        self.pool.watchdog.notify_all();
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next evaluation, registers it as running on the thread of `clock`, and returns it with its number.
    /// Returns `None` once the evaluator is closed.
    fn begin_next(&self, clock: &ThreadClock) -> Option<(u64, Job)> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some((id, mut job)) = state.take(self.settings.threads) {
                state.register(id, &mut job, clock);
                // The watchdog limits the new evaluation, and stops an overdue evaluation if others still wait.
                let would_wake_late = state.watchdog_wakes > Instant::now() + self.settings.limit / SURPRISE;
                let needs_watchdog = std::mem::take(&mut state.watchdog_rests) || state.is_overdue || would_wake_late;
                if needs_watchdog {
                    self.watchdog.notify_one();
                }
                return Some((id, job));
            }
            state = match state.quiet_left() {
                Some(left) => self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Records the end and the cost of an evaluation, and wakes the threads that wait for an evaluation. Returns
    /// `false` if the watchdog has already given up the thread of the evaluation.
    fn record_end(&self, id: u64) -> bool {
        let mut state = self.lock();
        let Some(running) = state.running.remove(&id) else { return false };
        let cost = running.clock.used().saturating_sub(running.began);
        state.schedule.end(id, cost, Instant::now());
        if !std::mem::take(&mut state.alone) {
            state.last = Some(Instant::now());
        }
        drop(state);
        // Several evaluations may have waited for the end: because of the namespace's share, or to run alone.
        self.work.notify_all();
        true
    }
}

impl State {
    fn new(limit: Duration) -> Self {
        Self {
            schedule: Schedule::new(limit),
            suspects: VecDeque::new(),
            last: None,
            running: BTreeMap::new(),
            alone: false,
            threads: 0,
            missing: 0,
            watchdog_rests: false,
            watchdog_wakes: Instant::now(),
            is_overdue: false,
            closed: false,
        }
    }

    /// Begins the next possible evaluation, and returns it with its number; `None` if none can begin now. Drops
    /// suspects without a waiting caller.
    fn take(&mut self, threads: usize) -> Option<(u64, Job)> {
        if self.alone {
            return None;
        }
        // Suspects without a waiting caller were not evaluated, and stay suspects.
        self.suspects.retain(|suspect| !suspect.flag.load(Ordering::Relaxed));
        if self.suspects.front().is_some_and(|suspect| suspect.since.elapsed() >= SUSPECT_WAIT) {
            return if self.schedule.runs_nothing() { self.take_suspect() } else { None };
        }
        if let Some(taken) = self.schedule.begin_next(threads, Instant::now()) {
            return Some(taken);
        }
        if self.quiet_left()? == Duration::ZERO { self.take_suspect() } else { None }
    }

    /// Registers an evaluation that begins on the thread of `clock`, for the watchdog.
    fn register(&mut self, id: u64, job: &mut Job, clock: &ThreadClock) {
        self.alone = job.alone;
        let running = Running {
            clock: clock.clone(),
            began: clock.used(),
            told_to_stop: None,
            flag: Arc::clone(&job.flag),
            gives_way: job.gives_way.take().filter(|_| !self.schedule.is_costly(id)),
            progress: Arc::clone(&job.progress),
            lose: job.lose.take(),
        };
        self.running.insert(id, running);
    }

    fn take_suspect(&mut self) -> Option<(u64, Job)> {
        let suspect = self.suspects.pop_front()?;
        Some((self.schedule.begin_alone(suspect.subject.clone(), Instant::now()), suspect))
    }

    /// Returns the quiet time until the next suspect begins, or `None` if the suspect waits for something else.
    fn quiet_left(&self) -> Option<Duration> {
        let suspect = self.suspects.front().filter(|_| self.schedule.is_idle())?;
        let since = self.last.map_or(suspect.since, |last| last.max(suspect.since));
        Some(QUIET.saturating_sub(since.elapsed()))
    }
}

/// Starts a thread for evaluations, with its mark.
fn begin_thread(pool: &Arc<Pool>) -> io::Result<()> {
    let mut state = pool.lock();
    let number = state.threads;
    state.threads += 1;
    drop(state);
    let mark = pool.marks.as_ref().map(|marks| marks.create_file(number)).transpose()?;
    let pool = Arc::clone(pool);
    let named = thread::Builder::new().name(format!("evaluation-{number}")).stack_size(STACK);
    named.spawn(move || evaluate(&pool, mark.as_ref()))?;
    Ok(())
}

/// Starts the missing threads. A thread that cannot be started stays missing.
fn begin_missing_threads(pool: &Arc<Pool>) {
    while pool.lock().missing > 0 {
        if let Err(error) = begin_thread(pool) {
            tracing::error!("no thread could be started in the place of one that is lost: {error}; tried again");
            return;
        }
        pool.lock().missing -= 1;
    }
}

/// Runs the loop of one thread: marks, evaluates, unmarks and delivers one evaluation after the other. Ends with the
/// evaluator, or if the watchdog has given up the thread.
fn evaluate(pool: &Pool, mark: Option<&MarkFile>) {
    let clock = ThreadClock::current();
    if !clock.is_cpu() {
        tracing::warn!("the CPU time of a thread cannot be read here: evaluations are limited by the wall clock");
    }
    while let Some((id, job)) = pool.begin_next(&clock) {
        let Job { subject, alone, progress, work, flag, .. } = job;
        if let Some(mark) = mark {
            mark.set(&subject, alone, None);
        }
        progress.begin(mark.filter(|_| alone).map(|mark| mark.part_callback(subject.clone())));
        // An evaluation without a waiting caller was told to stop before it began.
        let deliver = (!flag.load(Ordering::Relaxed)).then(work);
        if let Some(mark) = mark {
            mark.unset();
        }
        let is_thread_kept = pool.record_end(id);
        if let Some(deliver) = deliver {
            deliver();
        }
        if !is_thread_kept {
            return;
        }
    }
}

/// Runs the loop of the watchdog.
fn watch_over(pool: &Arc<Pool>) {
    let (limit, grace) = (pool.settings.limit, pool.settings.grace);
    let mut state = pool.lock();
    while !state.closed {
        if state.missing > 0 {
            drop(state);
            begin_missing_threads(pool);
            state = pool.lock();
        }
        let mut next: Option<Duration> = None;
        let mut lost = Vec::new();
        // Evaluations that were told to stop free their threads soon.
        let staying = state.running.values().filter(|running| !running.flag.load(Ordering::Relaxed)).count();
        let mut is_full = staying >= pool.settings.threads && state.schedule.waiting() > 0;
        let mut is_overdue = false;
        for (id, running) in &mut state.running {
            let used = running.clock.used().saturating_sub(running.began);
            if let Some(gives_way) = &running.gives_way {
                let left = (limit / SURPRISE).saturating_sub(used);
                if left > Duration::ZERO {
                    next = Some(next.map_or(left, |known| known.min(left)));
                } else if is_full {
                    gives_way.store(true, Ordering::Relaxed);
                    running.flag.store(true, Ordering::Relaxed);
                    running.gives_way = None;
                    is_full = false;
                } else {
                    is_overdue = true;
                }
            }
            let mut bound = running.told_to_stop.map_or(limit, |used| used.saturating_add(grace));
            if used >= bound {
                if running.told_to_stop.is_some() {
                    lost.push(*id);
                    continue;
                }
                running.told_to_stop = Some(used);
                running.flag.store(true, Ordering::Relaxed);
                bound = used.saturating_add(grace);
            }
            // At least this wall time passes before the limit is reached.
            let left = bound.saturating_sub(used);
            next = Some(next.map_or(left, |known| known.min(left)));
        }
        state.is_overdue = is_overdue;
        if !lost.is_empty() {
            for id in &lost {
                state.schedule.end(*id, limit + grace, Instant::now());
            }
            let lost: Vec<Running> = lost.into_iter().filter_map(|id| state.running.remove(&id)).collect();
            state.alone = false;
            state.missing += lost.len();
            drop(state);
            for running in lost {
                if let Some(lose) = running.lose {
                    lose(Stopped::Lost { part: running.progress.find_culprit(), limit: limit + grace });
                }
                pool.lost.send_modify(|lost| *lost += 1);
            }
            pool.work.notify_all();
            state = pool.lock();
            continue;
        }
        if state.closed {
            return;
        }
        if state.missing > 0 {
            next = Some(next.map_or(RETRY, |known| known.min(RETRY)));
        }
        state = match next {
            Some(left) => {
                state.watchdog_wakes = Instant::now() + left;
                let waited = pool.watchdog.wait_timeout(state, left.max(SHORTEST));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                state.watchdog_rests = true;
                pool.watchdog.wait(state).unwrap_or_else(PoisonError::into_inner)
            }
        };
    }
}
