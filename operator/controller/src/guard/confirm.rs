//! The question right before a decision is honoured: does the guard still rest on what it rested on, after that
//! decision was stored?
//!
//! A watch may lag behind another, and a process may have been stopped for minutes between two of its steps: only a
//! question that is asked after the decision was read tells. It must not honour anything by itself.
//!
//! One question serves all decisions that were read before it was sent. At most one is in flight; decisions that arrive
//! meanwhile share the next one, which is sent as soon as the one in flight is answered.

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
use signoff_guard::Marks;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use super::{Standing, tell};

/// The longest time for the answers: without it, a lost connection would hold up every decision.
const PATIENCE: Duration = Duration::from_secs(30);

/// The marks of the labelled objects, `None` where another server serves the API.
type Answer = Result<Option<Arc<Marks>>, Arc<kube::Error>>;
type Question = Shared<BoxFuture<'static, Answer>>;

/// Asks whether the guard still holds.
pub(crate) struct Confirm {
    client: Client,
    standing: watch::Sender<Standing>,
    /// Wakes the keeper where the answer is no, before its watches do.
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

impl Confirm {
    pub(crate) fn new(client: Client, standing: watch::Sender<Standing>, doubt: Arc<Notify>) -> Self {
        Self { client, standing, doubt, questions: Arc::default() }
    }

    /// Whether the rules were in force, in this epoch, all the time until now.
    ///
    /// # Errors
    /// As the API server answers.
    pub(crate) async fn holds(&self, epoch: &str) -> Result<bool, Arc<kube::Error>> {
        let standing = self.standing.borrow().clone();
        let Standing::InForce(guarded) = &standing else { return Ok(false) };
        if *guarded.epoch != *epoch {
            return Ok(false);
        }
        let Some(ground) = &guarded.ground else { return Ok(true) };
        let now = self.next_question(ground.mutating).await?;
        let holds = now.is_some_and(|now| ground.marks.still_hold(&now));
        // The keeper may have looked again meanwhile: its newer word stands.
        if !holds && *self.standing.borrow() == standing {
            tell(&self.standing, Standing::looking("the admission policies were changed"));
            self.doubt.notify_one();
        }
        Ok(holds)
    }

    /// Returns the question that is sent next, which is not sent yet.
    fn next_question(&self, mutating: bool) -> Question {
        let mut questions = lock(&self.questions);
        if let Some(next) = &questions.next {
            return next.clone();
        }
        let (client, in_flight, shared) =
            (self.client.clone(), questions.sent.clone(), Arc::downgrade(&self.questions));
        let question = async move {
            if let Some(in_flight) = in_flight {
                // Its answer, good or bad, is about decisions that were read earlier.
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
    let answer = timeout(PATIENCE, Marks::current(client, mutating)).await;
    let answer = answer.map_err(|_| kube::Error::Service(format!("no answer within {PATIENCE:?}").into()));
    Ok(answer??.map(Arc::new))
}
