//! The last check before a decision is counted: are the admission policies still those that were inspected?
//!
//! One watch may lag behind another, and a process may be stopped between two steps. Only a question that is sent after
//! the decision was read is proof.
//!
//! There are two questions. The *whole* one lists all objects of the guard. The *short* one reads by name the policy
//! without which a user could write a vote in the name of others, and takes all other objects from the last whole
//! answer. That answer must not be older than [`WHOLE_LASTS`]; otherwise the whole question is asked. kube-apiserver
//! lets lists that follow closely wait for up to 100 ms, and reads by name never.
//!
//! One question serves all decisions that were read before it was sent. At most one that decisions wait for is in
//! flight. Decisions that arrive meanwhile share the next one. Where many arrive, it waits a moment for more of them.

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

/// The time limit of the answers: without it, a lost connection would delay every decision.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long after it was sent the answer to a whole question still serves the short ones.
const WHOLE_LASTS: Duration = Duration::from_millis(500);
/// While decisions follow each other, the whole question is sent again this long after the last one. No decision waits
/// for it.
const WHOLE_REPEATS: Duration = Duration::from_millis(250);
/// The number of decisions for which a question waits where many arrive: so it costs less than one read for each.
const CROWD: usize = 8;
/// The longest wait for a crowd.
const CROWD_WAIT: Duration = Duration::from_millis(50);
/// How long a crowd is expected again after two decisions met.
const CROWD_LASTS: Duration = Duration::from_millis(250);

/// The versions of the labelled objects; `None` where another server serves the API.
type VersionsAnswer = Result<Option<Arc<ObjectVersions>>, Arc<kube::Error>>;
type Question = Shared<BoxFuture<'static, VersionsAnswer>>;

/// Checks right before a decision is counted that the admission policies are still in force.
pub(crate) struct Recheck {
    client: Client,
    status: watch::Sender<GuardStatus>,
    /// Wakes the monitor where the answer is no, before its watches do.
    doubt: Arc<Notify>,
    questions: Arc<Mutex<Questions>>,
}

/// What is to be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfirmScope {
    /// Votes that were counted by the request alone.
    Votes,
    /// What rests on a stored status too: an outcome that this process has not written, or votes that are counted with
    /// a stored deadline, level or list of approvers.
    StoredStatus,
}

#[derive(Default)]
struct Questions {
    /// The question that was sent last, in flight or answered.
    sent: Option<Question>,
    /// The question that is still to be sent.
    next: Option<NextQuestion>,
    /// Until when a question waits for a crowd.
    crowded_until: Option<Instant>,
    /// The last answer to a whole question, and when the question was sent.
    whole: Option<(Instant, Arc<ObjectVersions>)>,
    /// When an answer last was no: a whole question that was sent before is not kept.
    whole_from: Option<Instant>,
    /// The whole question that no decision waits for: at most one. It is aborted when this is dropped.
    repeated: JoinSet<()>,
}

struct NextQuestion {
    question: Question,
    /// The number of decisions that wait for it.
    waiting: usize,
    /// Whether it must be the whole question.
    whole: bool,
    /// Wakes it when they are a crowd.
    crowd: Arc<Notify>,
}

impl Recheck {
    pub(crate) fn new(client: Client, status: watch::Sender<GuardStatus>, doubt: Arc<Notify>) -> Self {
        Self { client, status, doubt, questions: Arc::default() }
    }

    /// Whether the admission policies were in force, in this epoch, until after this was called. For objects that the
    /// short question does not read: until half a second before, and as far as the watches have told since.
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
        let now = self.next_question(what, baseline.mutating).await?;
        let holds = now.is_some_and(|now| baseline.versions.still_hold(&now));
        if !holds {
            lock(&self.questions).whole = None;
            lock(&self.questions).whole_from = Some(Instant::now());
        }
        // A watch may have told of a change while the question was asked.
        let is_still_trusted = match &*self.status.borrow() {
            GuardStatus::InForce(now) => now.epoch == guarded.epoch,
            _ => false,
        };
        // The monitor may have inspected again meanwhile: its newer status stays.
        if !holds && *self.status.borrow() == status {
            publish(&self.status, GuardStatus::inspecting("the admission policies were changed"));
            self.doubt.notify_one();
        }
        Ok(holds && is_still_trusted)
    }

    /// Returns the next question, which is not sent yet.
    fn next_question(&self, what: ConfirmScope, mutating: bool) -> Question {
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
                // Its answer is about decisions that were read earlier.
                drop(in_flight.await);
            }
            if waits_for_crowd {
                tokio::select! {
                    () = full.notified() => {}
                    () = sleep_until(now + CROWD_WAIT) => {}
                }
            }
            // A decision that is read from here on waits for another question.
            let next = shared.upgrade().and_then(|questions| {
                let mut questions = lock(&questions);
                let next = questions.next.take();
                questions.sent = next.as_ref().map(|next| next.question.clone());
                next
            });
            let whole = next.is_none_or(|next| next.whole);
            // A panic would be the answer to every later question too.
            let asked = AssertUnwindSafe(ask(client, &shared, whole, mutating)).catch_unwind().await;
            asked.unwrap_or_else(|_| {
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

/// Asks the short question, or the whole one if it must be or where the last whole answer is too old.
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
            within_patience(whole.with_policy_of_votes(&client)).await
        }
        None => ask_whole(&client, questions, mutating).await,
    }
}

/// Asks the whole question beside the decisions, unless that is being done.
fn repeat_whole(client: &Client, questions: &Weak<Mutex<Questions>>, mutating: bool) {
    let Some(held) = questions.upgrade() else { return };
    let mut held = lock(&held);
    while held.repeated.try_join_next().is_some() {}
    if held.repeated.is_empty() {
        let (client, questions) = (client.clone(), Weak::clone(questions));
        held.repeated.spawn(async move { drop(ask_whole(&client, &questions, mutating).await) });
    }
}

/// Asks the whole question, and keeps its answer for the short ones unless a newer one is known.
async fn ask_whole(client: &Client, questions: &Weak<Mutex<Questions>>, mutating: bool) -> VersionsAnswer {
    let sent = Instant::now();
    let answer = within_patience(ObjectVersions::current(client, mutating)).await;
    if let Some(questions) = questions.upgrade() {
        let mut questions = lock(&questions);
        let newest = questions.whole.as_ref().map(|(sent, _)| *sent).max(questions.whole_from);
        if newest.is_none_or(|newest| newest < sent) {
            questions.whole = answer.as_ref().ok().cloned().flatten().map(|versions| (sent, versions));
        }
    }
    answer
}

async fn within_patience(answer: impl Future<Output = Result<Option<ObjectVersions>, kube::Error>>) -> VersionsAnswer {
    let answer = timeout(PATIENCE, answer).await;
    let answer = answer.map_err(|_| kube::Error::Service(format!("no answer within {PATIENCE:?}").into()));
    Ok(answer??.map(Arc::new))
}
