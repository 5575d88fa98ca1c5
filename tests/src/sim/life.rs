//! One life of a process: the operator from its start to its crash, shared by the API server and the world of effects.
//! A dead process is not stopped here, it only gets no more answers; dropping its tasks is the test's part.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// A process that can die once. Clones are the same process.
///
/// While it lives its requests and effects are answered; once dead, each of them waits for ever, as for a process that
/// is not there.
#[derive(Clone)]
pub struct Incarnation {
    actor: Arc<str>,
    number: u64,
    alive: Arc<watch::Sender<bool>>,
}

impl Incarnation {
    pub(crate) fn new(actor: &str, number: u64) -> Self {
        Self { actor: actor.into(), number, alive: Arc::new(watch::Sender::new(true)) }
    }

    /// Who this is over all its lives, for example `operator-a`.
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Which of the actor's lives this is, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it still gets answers.
    pub fn is_alive(&self) -> bool {
        *self.alive.borrow()
    }

    /// Ends this life now.
    pub fn kill(&self) {
        self.alive.send_replace(false);
    }

    /// Returns when this life has ended: the moment to drop the operator that lived it.
    pub async fn died(&self) {
        let mut alive = self.alive.subscribe();
        // The sender lives as long as `self`, so the only way out is the value itself.
        let _ = alive.wait_for(|alive| !alive).await;
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.actor, self.number)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}{}", if self.is_alive() { "" } else { " (dead)" })
    }
}

/// Waits for ever: what a dead process gets for an answer.
pub(crate) async fn never<T>() -> T {
    std::future::pending().await
}
