//! A bounded number of calls at once, and a word when one has ended.
//!
//! It may not queue or start anything: who comes next is the caller's decision.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Permits for calls that are running. Clones share them.
#[derive(Clone, Debug)]
pub struct Pool {
    permits: Arc<Semaphore>,
    freed: Arc<watch::Sender<u64>>,
}

/// The right to run one call; given back when dropped, also by a task that panicked or was
/// cancelled.
#[derive(Debug)]
pub struct Permit {
    permit: Option<OwnedSemaphorePermit>,
    freed: Arc<watch::Sender<u64>>,
}

impl Pool {
    /// A pool of `size` permits; zero counts as one, because a pool of none would hold every run
    /// for ever.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let size = size.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(size)), freed: Arc::new(watch::Sender::new(0)) }
    }

    /// A permit, or `None` while all are taken.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(Permit { permit: Some(permit), freed: Arc::clone(&self.freed) })
    }

    /// How many permits are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.permits.available_permits()
    }

    /// Counts permits given back. Subscribe *before* `try_acquire`: then `changed()` misses none.
    #[must_use]
    pub fn freed(&self) -> watch::Receiver<u64> {
        self.freed.subscribe()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // The permit first, the word second: whoever hears it finds the permit free.
        drop(self.permit.take());
        self.freed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_full_pool_gives_no_permit_until_one_comes_back() {
        let pool = Pool::new(2);
        let first = pool.try_acquire().unwrap();
        let second = pool.try_acquire().unwrap();
        assert!(pool.try_acquire().is_none());
        drop(first);
        assert_eq!(pool.available(), 1);
        assert!(pool.try_acquire().is_some());
        drop(second);
        assert_eq!(pool.available(), 2);
    }

    #[tokio::test]
    async fn every_listener_hears_of_a_permit_given_back_before_it_listened_closely() {
        let pool = Pool::new(1);
        let (mut one, mut two) = (pool.freed(), pool.freed());
        let permit = pool.try_acquire().unwrap();
        assert!(pool.try_acquire().is_none());
        drop(permit);
        one.changed().await.unwrap();
        two.changed().await.unwrap();
        assert!(pool.try_acquire().is_some());
    }

    #[tokio::test]
    async fn a_task_that_dies_gives_its_permit_back() {
        let pool = Pool::new(1);
        let mut freed = pool.freed();
        let permit = pool.try_acquire().unwrap();
        let task = tokio::spawn(async move {
            let _permit = permit;
            std::future::pending::<()>().await;
        });
        task.abort();
        freed.changed().await.unwrap();
        assert_eq!(pool.available(), 1);
    }
}
