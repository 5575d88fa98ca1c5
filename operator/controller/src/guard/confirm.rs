//! The question right before a decision is honoured: does the guard still rest on what it rested on, after that
//! decision was stored?
//!
//! A watch may lag behind another, and a process may have been stopped for minutes between two of its steps: only a
//! question that is asked after the decision was seen tells. It may not honour anything by itself.

use std::sync::Arc;

use kube::Client;
use tokio::{
    sync::{Mutex, Notify, watch},
    time::Instant,
};

use super::{Ground, Standing, tell};

/// Asks whether the guard still holds. Those who ask at once share an answer.
pub(crate) struct Confirm {
    client: Client,
    standing: watch::Sender<Standing>,
    /// Wakes the keeper where the answer is no, before its watches do.
    doubt: Arc<Notify>,
    /// When the newest question that was answered with yes was asked, and about what.
    last: Mutex<Option<(Instant, Arc<Ground>)>>,
}

impl Confirm {
    pub(crate) fn new(client: Client, standing: watch::Sender<Standing>, doubt: Arc<Notify>) -> Self {
        Self { client, standing, doubt, last: Mutex::new(None) }
    }

    /// Whether the rules were in force, in this epoch, all the time until now.
    ///
    /// # Errors
    /// As the API server answers.
    pub(crate) async fn holds(&self, epoch: &str) -> Result<bool, kube::Error> {
        let asked = Instant::now();
        let standing = self.standing.borrow().clone();
        let Standing::InForce(guarded) = standing else { return Ok(false) };
        if *guarded.epoch != *epoch {
            return Ok(false);
        }
        let Some(ground) = guarded.ground else { return Ok(true) };
        let mut last = self.last.lock().await;
        // An answer to a question that was asked after ours was is an answer to ours.
        if last.as_ref().is_some_and(|(at, about)| *at > asked && Arc::ptr_eq(about, &ground)) {
            return Ok(true);
        }
        let now = Instant::now();
        let holds = ground.marks.still_hold(&self.client, ground.mutating).await?;
        if holds {
            *last = Some((now, ground));
        } else {
            *last = None;
            tell(&self.standing, Standing::looking("the admission policies were changed"));
            self.doubt.notify_one();
        }
        Ok(holds)
    }
}
