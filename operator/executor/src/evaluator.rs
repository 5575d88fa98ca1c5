//! Threads on which the text of users is evaluated: transitions, tallies, templates, schemas and patterns.
//!
//! `submit -> queue by namespace -> mark on disk -> evaluate -> unmark -> deliver`. The runtime's threads only wait for
//! the result, so that the Lease, probes and other runs continue during a costly evaluation. CPU time is shared between
//! namespaces over time.
//!
//! The limit of an evaluation is the CPU time of its thread. At the limit the evaluation is told to stop. An evaluation
//! that does not stop within the grace is lost: its thread is abandoned and replaced. If an evaluation ends the whole
//! process, its mark is found when the process starts again.

mod cpu;
mod marks;
mod pool;
mod progress;
mod schedule;
mod shares;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use signoff_engine::evaluation::Part;
use tokio::sync::watch;

use pool::{Evaluated, Handle, Job};

/// The settings of an evaluator.
#[derive(Clone, Debug)]
pub struct EvaluatorSettings {
    /// The number of simultaneous evaluations. A single namespace, and all costly evaluations together, use all threads
    /// but one at most, if there are several.
    pub threads: usize,
    /// The CPU time after which an evaluation is told to stop.
    pub limit: Duration,
    /// The CPU time for an evaluation to stop after it was told to.
    pub grace: Duration,
    /// The folder of the marks that survive this process, or `None` for no marks.
    pub marks: Option<PathBuf>,
}

impl Default for EvaluatorSettings {
    fn default() -> Self {
        Self { threads: 2, limit: Duration::from_secs(5), grace: Duration::from_secs(2), marks: None }
    }
}

/// The object whose text an evaluation reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// `Workflow` or `Approval`.
    pub kind: String,
    /// The namespace of the object. Evaluations are queued, and CPU time is charged, by namespace.
    pub namespace: String,
    /// The name of the object, for logs.
    pub name: String,
    /// The uid of the object. The last cost of an object and its marks are kept by uid.
    pub uid: String,
    /// The generation of the spec of the object; 0 if no spec is evaluated.
    pub generation: i64,
}

/// The reason why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The evaluation used more CPU time than the limit.
    #[error("its evaluation used more than {} s of CPU time", limit.as_secs_f64())]
    TooCostly {
        /// The part that used most of the time, or `None` if no single part did.
        part: Option<Part>,
        /// The limit of the evaluator.
        limit: Duration,
    },
    /// The evaluation used more CPU time than the limit and did not stop when told to.
    #[error("its evaluation used more than {} s of CPU time and did not stop", limit.as_secs_f64())]
    Lost {
        /// The part that used most of the time, or `None` if no single part did.
        part: Option<Part>,
        /// The limit with the grace.
        limit: Duration,
    },
    /// The evaluation panicked.
    #[error("its evaluation panicked: internal error; report this as a bug")]
    Panicked {
        /// The part that was being evaluated.
        part: Option<Part>,
    },
    /// The evaluation ended the whole process twice, the second time while nothing else was evaluated.
    #[error("its evaluation ended the process of the operator twice")]
    Deadly {
        /// The part that was being evaluated.
        part: Option<Part>,
    },
    /// The object was canceled, suspended or deleted before the evaluation began.
    #[error("its object was cancelled, suspended or deleted meanwhile")]
    Withdrawn,
    /// The evaluator has ended.
    #[error("this process is ending")]
    Closed,
}

impl Stopped {
    /// Returns the part that caused the stop, or `None` if no single part did.
    #[must_use]
    pub fn part(&self) -> Option<&Part> {
        match self {
            Self::TooCostly { part, .. }
            | Self::Lost { part, .. }
            | Self::Panicked { part }
            | Self::Deadly { part } => part.as_ref(),
            Self::Withdrawn | Self::Closed => None,
        }
    }
}

/// The evaluator of closures within limits. Clones share the threads, which end with the last clone.
#[derive(Clone)]
pub struct Evaluator {
    handle: Option<Arc<Handle>>,
}

impl Evaluator {
    /// Starts an evaluator with its own threads.
    ///
    /// # Errors
    /// A thread cannot be started, or the folder of the marks cannot be read or written.
    pub fn start(settings: EvaluatorSettings) -> io::Result<Self> {
        Ok(Self { handle: Some(Arc::new(Handle::start(settings)?)) })
    }

    /// Returns an evaluator that evaluates on the calling thread, without limits.
    #[must_use]
    pub fn inline() -> Self {
        Self { handle: None }
    }

    /// Whether evaluations run on the calling thread.
    #[must_use]
    pub fn is_inline(&self) -> bool {
        self.handle.is_none()
    }

    /// Evaluates `work`. An evaluation whose future is dropped is told to stop.
    ///
    /// # Errors
    /// The reason why there is no result.
    pub async fn run<T: Send + 'static>(
        &self,
        subject: Subject,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let Some(handle) = &self.handle else { return Ok(work()) };
        submit(handle, subject, false, work).await.unwrap_or(Err(Stopped::Closed))
    }

    /// Evaluates `work` that can be repeated. An evaluation that is unexpectedly costly stops while others wait, and is
    /// repeated as a costly evaluation.
    ///
    /// # Errors
    /// The reason why there is no result.
    pub async fn run_repeatable<T: Send + 'static>(
        &self,
        subject: Subject,
        work: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<T, Stopped> {
        let Some(handle) = &self.handle else { return Ok(work()) };
        let work = Arc::new(work);
        let first = Arc::clone(&work);
        match submit(handle, subject.clone(), true, move || first()).await {
            Some(result) => result,
            None => self.run(subject, move || work()).await,
        }
    }

    /// Evaluates `work`, and blocks the calling thread until it has ended.
    ///
    /// # Errors
    /// As [`Evaluator::run`].
    pub fn wait<T: Send + 'static>(
        &self,
        subject: Subject,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        futures::executor::block_on(self.run(subject, work))
    }

    /// Charges the time of other work for a namespace to its share.
    pub fn charge(&self, namespace: &str, took: Duration) {
        if let Some(handle) = &self.handle {
            handle.charge(namespace, took);
        }
    }

    /// Whether the previous process ended while it evaluated this object. Such a suspect is evaluated alone, after a
    /// time without other evaluations.
    #[must_use]
    pub fn is_suspect(&self, subject: &Subject) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.is_suspect(subject))
    }

    /// Removes `subject` from the suspects: every evaluation of its reconcile has finished, or none is needed. A single
    /// finished evaluation is not enough, because another evaluation can follow.
    pub fn clear(&self, subject: &Subject) {
        if let Some(handle) = &self.handle {
            handle.clear(subject);
        }
    }

    /// Returns the number of lost threads, as a channel.
    #[must_use]
    pub fn lost(&self) -> watch::Receiver<usize> {
        self.handle.as_ref().map_or_else(|| watch::Sender::new(0).subscribe(), |handle| handle.lost())
    }

    /// Returns the number of evaluations that have begun.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.handle.as_ref().map_or(0, |handle| handle.begun())
    }

    /// Returns the number of evaluations that wait for a thread.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.handle.as_ref().map_or(0, |handle| handle.waiting())
    }
}

/// Evaluates `work` on a thread of a pool.
async fn submit<T: Send + 'static>(
    handle: &Handle,
    subject: Subject,
    can_give_way: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Evaluated<T> {
    let flag = Arc::new(AtomicBool::new(false));
    let namespace = subject.namespace.clone();
    let (job, result) = Job::new(subject, Arc::clone(&flag), handle.limits(), can_give_way, work);
    if let Err(why) = handle.submit(job) {
        return Some(Err(why));
    }
    let mut pending = PendingEvaluation { flag, handle, namespace, has_ended: false };
    let result = result.await;
    pending.has_ended = true;
    result.unwrap_or(Some(Err(Stopped::Closed)))
}

/// An evaluation with a waiting caller. If the value is dropped before the evaluation has ended, the evaluation is told
/// to stop or leaves the queue, so that its input is freed.
struct PendingEvaluation<'h> {
    flag: Arc<AtomicBool>,
    handle: &'h Handle,
    namespace: String,
    has_ended: bool,
}

impl Drop for PendingEvaluation<'_> {
    fn drop(&mut self) {
        self.flag.store(true, Ordering::Relaxed);
        if !self.has_ended {
            self.handle.drop_unwanted(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests;
