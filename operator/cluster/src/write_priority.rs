//! Delays Events while writes of state are in flight, because people wait for those. The caller bounds the delay.

use std::sync::Arc;

use tokio::sync::watch;

/// The number of state writes in flight. Clones share it.
#[derive(Clone, Debug)]
pub struct WritePriority {
    writing: Arc<watch::Sender<usize>>,
}

/// A state write in flight, until it is dropped.
#[derive(Debug)]
pub struct WriteInFlight {
    writing: Arc<watch::Sender<usize>>,
}

impl Default for WritePriority {
    fn default() -> Self {
        Self { writing: Arc::new(watch::Sender::new(0)) }
    }
}

impl WritePriority {
    /// Counts a state write until the result is dropped.
    #[must_use]
    pub fn begin_state_write(&self) -> WriteInFlight {
        self.writing.send_modify(|writing| *writing += 1);
        WriteInFlight { writing: Arc::clone(&self.writing) }
    }

    /// Waits until no state is being written.
    pub async fn until_idle(&self) {
        let mut writing = self.writing.subscribe();
        // The sender is in `self`, so this cannot fail.
        let _ = writing.wait_for(|writing| *writing == 0).await;
    }
}

impl Drop for WriteInFlight {
    fn drop(&mut self) {
        self.writing.send_modify(|writing| *writing = writing.saturating_sub(1));
    }
}
