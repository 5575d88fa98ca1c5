//! One life of a process: the operator from its start to its crash, shared by the API server and the world of effects.
//! A dead process only gets no more answers; the test drops its tasks.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// A process that can die once. Clones are the same process.
///
/// Its requests and effects are answered while it lives. Once it is dead, each of them waits forever, as for a process
/// that does not exist.
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

    /// Returns the actor's name, which all its lives share, for example `operator-a`.
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Returns the number of this life of the actor, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether this life still gets answers.
    pub fn is_alive(&self) -> bool {
        *self.alive.borrow()
    }

    /// Ends this life now.
    pub fn kill(&self) {
        self.alive.send_replace(false);
    }

    /// Waits until this life has ended. The caller then drops the tasks of the operator.
    pub async fn died(&self) {
        let mut alive = self.alive.subscribe();
        // The sender lives as long as `self`, so the only end is the value itself.
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

/// Waits forever, as a dead process does for an answer.
pub(crate) async fn never<T>() -> T {
    std::future::pending().await
}
