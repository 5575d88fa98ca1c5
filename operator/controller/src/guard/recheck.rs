//! The last check before a decision is counted *(I/O)*: the admission policies are still those that were inspected.
//!
//! One watch may lag behind another, and a process may be stopped between two steps. Only a question that is sent after
//! the decision was read proves that the policies are in force.
//!
//! There are two questions. The *whole* question lists all objects of the guard. The *short* question reads by name the
//! policy without which a user could write a vote in the name of others, and takes all other objects from the last
//! whole answer. If that answer is older than [`WHOLE_LASTS`], the whole question is asked instead. kube-apiserver
//! delays lists in quick succession by up to 100 ms, but not reads by name.
//!
//! One question serves all decisions that were read before it was sent. At most one question that decisions wait for is
//! in flight. Decisions that arrive meanwhile share the next question. If many arrive, the next question waits a moment
//! for more of them.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use kube::Client;
use signoff_admission::ObjectVersions;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use super::{GuardStatus, publish};

/// The time limit of an answer, so that a lost connection does not delay every decision.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after its question for which a whole answer can be used by short questions.
const WHOLE_LASTS: Duration = Duration::from_millis(500);
/// The time after which, while decisions follow each other, the whole question is sent again. No decision waits for it.
const WHOLE_REPEATS: Duration = Duration::from_millis(250);
/// The number of decisions for which a question waits if many arrive, so that it costs less than one read for each.
const CROWD: usize = 8;
/// The longest wait for a crowd.
const CROWD_WAIT: Duration = Duration::from_millis(50);
/// The time for which many decisions are expected after two have shared a question.
const CROWD_LASTS: Duration = Duration::from_millis(250);

/// The versions of the labelled objects, or `None` if another server serves the API.
type VersionsAnswer = Result<Option<Arc<ObjectVersions>>, Arc<kube::Error>>;
type Question = Shared<BoxFuture<'static, VersionsAnswer>>;

/// The check, right before a decision is counted, that the admission policies are still in force.
pub(crate) struct Recheck {
    client: Client,
    status: watch::Sender<GuardStatus>,
    /// Wakes the monitor if the answer is no, before its watches do.
    doubt: Arc<Notify>,
    questions: Arc<Mutex<Questions>>,
}

/// The scope of a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfirmScope {
    /// Votes that were counted only by the request.
    Votes,
    /// Results that also depend on a stored status: an outcome that this process has not written, or votes that are
    /// counted with a stored deadline, level or list of approvers.
    StoredStatus,
}

#[derive(Default)]
struct Questions {
    /// The question that was sent last, in flight or answered.
    sent: Option<Question>,
    /// The question that is still to be sent.
    next: Option<NextQuestion>,
    /// The time until which questions wait for more decisions.
    crowded_until: Option<Instant>,
    /// The last whole answer, with the time of its question.
    whole: Option<(Instant, Arc<ObjectVersions>)>,
    /// The time of the last negative answer. The answer to a whole question that was sent before it is not kept.
    whole_from: Option<Instant>,
    /// The whole question that no decision waits for. There is at most one, and it is aborted when this is dropped.
    repeated: JoinSet<()>,
}

struct NextQuestion {
    question: Question,
    /// The number of decisions that wait for it.
    waiting: usize,
    /// Whether the whole question is required.
    whole: bool,
    /// Wakes the question when enough decisions wait.
    crowd: Arc<Notify>,
}

impl Recheck {
    pub(crate) fn new(client: Client, status: watch::Sender<GuardStatus>, doubt: Arc<Notify>) -> Self {
        Self { client, status, doubt, questions: Arc::default() }
    }

    /// Whether the admission policies were in force in the epoch `epoch` until after the call of this function. For
    /// objects that the short question does not read: until half a second before, and since then according to the
    /// watches.
    ///
    /// # Errors
    /// The API server refuses, or does not answer.
    pub(crate) async fn is_in_force(&self, epoch: &str, what: ConfirmScope) -> Result<bool, Arc<kube::Error>> {
        let status = self.status.borrow().clone();
        let GuardStatus::InForce(guarded) = &status else { return Ok(false) };
        if *guarded.epoch != *epoch {
            return Ok(false);
        }
        let Some(baseline) = &guarded.baseline else { return Ok(true) };
        let now = self.join_next_question(what, baseline.mutating).await?;
        let holds = now.is_some_and(|now| baseline.versions.still_hold(&now));
        if !holds {
            lock(&self.questions).whole = None;
            lock(&self.questions).whole_from = Some(Instant::now());
        }
        // A watch may have reported a change while the question was in flight.
        let is_still_trusted = match &*self.status.borrow() {
            GuardStatus::InForce(now) => now.epoch == guarded.epoch,
            _ => false,
        };
        // The monitor may have published a newer status meanwhile, which stays.
        if !holds && *self.status.borrow() == status {
            publish(&self.status, GuardStatus::inspecting("the admission policies were changed"));
            self.doubt.notify_one();
        }
        Ok(holds && is_still_trusted)
    }

    /// Joins the next question, which is not sent yet, or prepares it. The question is sent after the question in
    /// flight, and waits a moment for more decisions if many arrive.
    fn join_next_question(&self, what: ConfirmScope, mutating: bool) -> Question {
        let whole = what == ConfirmScope::StoredStatus;
        let now = Instant::now();
        let mut questions = lock(&self.questions);
        if let Some(next) = &mut questions.next {
            next.waiting += 1;
            next.whole |= whole;
            if next.waiting >= CROWD {
                next.crowd.notify_one();
            }
            let question = next.question.clone();
            questions.crowded_until = Some(now + CROWD_LASTS);
            return question;
        }
        let in_flight = questions.sent.clone().filter(|sent| sent.peek().is_none());
        if in_flight.is_some() {
            questions.crowded_until = Some(now + CROWD_LASTS);
        }
        let waits_for_crowd = questions.crowded_until.is_some_and(|until| now < until);
        let crowd = Arc::new(Notify::new());
        let (client, shared, full) = (self.client.clone(), Arc::downgrade(&self.questions), Arc::clone(&crowd));
        let question = async move {
            if let Some(in_flight) = in_flight {
                // The answer to that question is no proof for this decision, which was read later.
                drop(in_flight.await);
            }
            if waits_for_crowd {
                tokio::select! {
                    () = full.notified() => {}
                    () = sleep_until(now + CROWD_WAIT) => {}
                }
            }
            // A decision that is read from now on waits for another question.
            let next = shared.upgrade().and_then(|questions| {
                let mut questions = lock(&questions);
                let next = questions.next.take();
                questions.sent = next.as_ref().map(|next| next.question.clone());
                next
            });
            let whole = next.is_none_or(|next| next.whole);
            // An uncaught panic would poison the shared future.
            let answer = AssertUnwindSafe(ask(client, &shared, whole, mutating)).catch_unwind().await;
            answer.unwrap_or_else(|_| {
                Err(Arc::new(kube::Error::Service("the check of the admission policies panicked".into())))
            })
        };
        let question = question.boxed().shared();
        questions.next = Some(NextQuestion { question: question.clone(), waiting: 1, whole, crowd });
        question
    }
}

fn lock(questions: &Mutex<Questions>) -> std::sync::MutexGuard<'_, Questions> {
    questions.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the short question. Asks the whole question instead if it is required, or if the last whole answer is too old.
async fn ask(
    client: Client,
    questions: &Weak<Mutex<Questions>>,
    must_be_whole: bool,
    mutating: bool,
) -> VersionsAnswer {
    let whole = questions.upgrade().and_then(|questions| lock(&questions).whole.clone());
    match whole.filter(|(sent, _)| !must_be_whole && sent.elapsed() < WHOLE_LASTS) {
        Some((sent, whole)) => {
            if sent.elapsed() >= WHOLE_REPEATS {
                repeat_whole(&client, questions, mutating);
            }
            await_versions(whole.with_policy_of_votes(&client)).await
        }
        None => ask_whole(&client, questions, mutating).await,
    }
}

/// Asks the whole question in the background, unless such a question is in flight already.
fn repeat_whole(client: &Client, questions: &Weak<Mutex<Questions>>, mutating: bool) {
    let Some(held) = questions.upgrade() else { return };
    let mut held = lock(&held);
    while held.repeated.try_join_next().is_some() {}
    if held.repeated.is_empty() {
        let (client, questions) = (client.clone(), Weak::clone(questions));
        held.repeated.spawn(async move { drop(ask_whole(&client, &questions, mutating).await) });
    }
}

/// Asks the whole question, and keeps its answer for short questions unless a newer answer is kept.
async fn ask_whole(client: &Client, questions: &Weak<Mutex<Questions>>, mutating: bool) -> VersionsAnswer {
    let sent = Instant::now();
    let answer = await_versions(ObjectVersions::current(client, mutating)).await;
    if let Some(questions) = questions.upgrade() {
        let mut questions = lock(&questions);
        let newest = questions.whole.as_ref().map(|(sent, _)| *sent).max(questions.whole_from);
        if newest.is_none_or(|newest| newest < sent) {
            questions.whole = answer.as_ref().ok().cloned().flatten().map(|versions| (sent, versions));
        }
    }
    answer
}

/// Awaits an answer, up to the time limit.
async fn await_versions(answer: impl Future<Output = Result<Option<ObjectVersions>, kube::Error>>) -> VersionsAnswer {
    let answer = timeout(ANSWER_TIMEOUT, answer).await;
    let answer = answer.map_err(|_| kube::Error::Service(format!("no answer within {ANSWER_TIMEOUT:?}").into()));
    Ok(answer??.map(Arc::new))
}
