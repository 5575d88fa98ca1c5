//! The last check before a decision is counted: are the admission policies still those that were inspected?
//!
//! One watch may lag behind another, and a process may be stopped between two steps. Only a question that is sent after the
//! decision was read is proof.
//!
//! One question serves all decisions that were read before it was sent. At most one is in flight. Decisions that arrive
//! meanwhile share the next one, which is sent when the one in flight is answered.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
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
    time::timeout,
};

use super::{GuardStatus, publish};

/// The time limit of the answers: without it, a lost connection would delay every decision.
const PATIENCE: Duration = Duration::from_secs(30);

/// The versions of the labelled objects; `None` where another server serves the API.
type Answer = Result<Option<Arc<ObjectVersions>>, Arc<kube::Error>>;
type Question = Shared<BoxFuture<'static, Answer>>;

/// Checks right before a decision is counted that the admission policies are still in force.
pub(crate) struct Recheck {
    client: Client,
    status: watch::Sender<GuardStatus>,
    /// Wakes the monitor where the answer is no, before its watches do.
    doubt: Arc<Notify>,
    questions: Arc<Mutex<Questions>>,
}

#[derive(Default)]
struct Questions {
    /// The question that was sent last, in flight or answered.
    sent: Option<Question>,
    /// The question that is still to be sent.
    next: Option<Question>,
}

impl Recheck {
    pub(crate) fn new(client: Client, status: watch::Sender<GuardStatus>, doubt: Arc<Notify>) -> Self {
        Self { client, status, doubt, questions: Arc::default() }
    }

    /// Whether the admission policies were in force, in this epoch, all the time until now.
    ///
    /// # Errors
    /// As the API server answers.
    pub(crate) async fn is_in_force(&self, epoch: &str) -> Result<bool, Arc<kube::Error>> {
        let status = self.status.borrow().clone();
        let GuardStatus::InForce(guarded) = &status else { return Ok(false) };
        if *guarded.epoch != *epoch {
            return Ok(false);
        }
        let Some(baseline) = &guarded.baseline else { return Ok(true) };
        let now = self.next_question(baseline.mutating).await?;
        let holds = now.is_some_and(|now| baseline.versions.still_hold(&now));
        // The monitor may have inspected again meanwhile: its newer status stays.
        if !holds && *self.status.borrow() == status {
            publish(&self.status, GuardStatus::looking("the admission policies were changed"));
            self.doubt.notify_one();
        }
        Ok(holds)
    }

    /// Returns the next question, which is not sent yet.
    fn next_question(&self, mutating: bool) -> Question {
        let mut questions = lock(&self.questions);
        if let Some(next) = &questions.next {
            return next.clone();
        }
        let (client, in_flight, shared) =
            (self.client.clone(), questions.sent.clone(), Arc::downgrade(&self.questions));
        let question = async move {
            if let Some(in_flight) = in_flight {
                // Its answer is about decisions that were read earlier.
                drop(in_flight.await);
            }
            // A decision that is read from here on waits for another question.
            if let Some(questions) = shared.upgrade() {
                let mut questions = lock(&questions);
                questions.sent = questions.next.take();
            }
            // A panic would be the answer to every later question too.
            let asked = AssertUnwindSafe(ask(&client, mutating)).catch_unwind().await;
            asked
                .unwrap_or_else(|_| Err(Arc::new(kube::Error::Service("the question was not asked to its end".into()))))
        };
        let question = question.boxed().shared();
        questions.next = Some(question.clone());
        question
    }
}

fn lock(questions: &Mutex<Questions>) -> std::sync::MutexGuard<'_, Questions> {
    questions.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn ask(client: &Client, mutating: bool) -> Answer {
    let answer = timeout(PATIENCE, ObjectVersions::current(client, mutating)).await;
    let answer = answer.map_err(|_| kube::Error::Service(format!("no answer within {PATIENCE:?}").into()));
    Ok(answer??.map(Arc::new))
}
