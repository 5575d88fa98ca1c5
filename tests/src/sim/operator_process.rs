//! Keeps operators running: each life until it ends, then the next, until the work is done. The faults decide when a
//! life ends.

use std::time::Duration;

use tokio::task::JoinSet;

use super::{ApiServer, Incarnation};

/// The error of work that was not done within the limit.
#[derive(Debug, thiserror::Error)]
#[error("not done after {limit:?} of virtual time; every request so far:\n{story}")]
pub struct Stuck {
    /// The limit, in virtual time.
    pub limit: Duration,
    /// The log, a line for each request.
    pub story: String,
}

impl ApiServer {
    /// Runs one operator for each actor, and starts the next incarnation when one dies or returns, until `done` holds.
    ///
    /// `start` returns the future that is an operator's whole life. It is dropped at the operator's death, before the
    /// next one starts. `done` is checked at every change of the server. Returns the number of lives. An operator that
    /// panics ends the test.
    ///
    /// # Errors
    /// [`Stuck`] when `limit` of virtual time has passed.
    pub async fn keep_alive<F, L>(
        &self,
        actors: &[&str],
        limit: Duration,
        start: F,
        done: impl Fn(&Self) -> bool,
    ) -> Result<u64, Stuck>
    where
        F: Fn(Incarnation) -> L,
        L: Future<Output = ()> + Send + 'static,
    {
        let deaths = std::cell::Cell::new(0);
        let actors = actors.iter().map(|actor| async {
            loop {
                self.run_one_life(actor, &start).await;
                deaths.set(deaths.get() + 1);
                // A process takes a moment to restart. Without that pause, an operator that returns at once would stop
                // time.
                self.clock().settle().await;
            }
        });
        let actors: Vec<_> = actors.collect();
        let alive = actors.len() as u64;
        tokio::select! {
            biased;
            () = self.until_all(done) => Ok(deaths.get() + alive),
            _ = futures::future::join_all(actors) => Ok(deaths.get()),
            () = tokio::time::sleep(limit) => Err(Stuck { limit, story: self.story() }),
        }
    }

    async fn run_one_life<L>(&self, actor: &str, start: impl Fn(Incarnation) -> L)
    where
        L: Future<Output = ()> + Send + 'static,
    {
        let life = KilledOnDrop(self.incarnation(actor));
        let mut process = JoinSet::new();
        process.spawn(start(life.0.clone()));
        tokio::select! {
            biased;
            () = life.0.died() => {}
            Some(Err(error)) = process.join_next() => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
            else => {}
        }
        process.shutdown().await;
    }
}

/// A life that ends when this value is dropped, also for the tasks that the operator left behind.
struct KilledOnDrop(Incarnation);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}
