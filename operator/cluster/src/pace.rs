//! Delays Events while state writes are in flight, because people wait for those. The caller bounds the delay.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts the state writes in flight. Clones share the count.
#[derive(Clone, Debug)]
pub struct Pace {
    writing: Arc<watch::Sender<usize>>,
}

/// A state write in flight, until it is dropped.
#[derive(Debug)]
pub struct Writing {
    writing: Arc<watch::Sender<usize>>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { writing: Arc::new(watch::Sender::new(0)) }
    }
}

impl Pace {
    /// A state write begins.
    #[must_use]
    pub fn state_write(&self) -> Writing {
        self.writing.send_modify(|writing| *writing += 1);
        Writing { writing: Arc::clone(&self.writing) }
    }

    /// Waits until no state is being written.
    pub async fn quiet(&self) {
        let mut writing = self.writing.subscribe();
        // The sender lives in `self`: this cannot fail.
        let _ = writing.wait_for(|writing| *writing == 0).await;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.writing.send_modify(|writing| *writing = writing.saturating_sub(1));
    }
}
