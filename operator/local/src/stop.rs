//! The request to pause a run. After the first request the run waits for calls that must not be repeated, after the
//! second for nothing.

use std::sync::Arc;

use tokio::sync::watch;

/// Asks a run to pause. Clones ask the same run; whoever asks before it goes on is heard too.
#[derive(Clone, Debug)]
pub struct Stop {
    times: Arc<watch::Sender<u8>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { times: Arc::new(watch::Sender::new(0)) }
    }
}

impl Stop {
    /// Begins nothing new, waits for calls that must not be repeated, and pauses. The second time it waits for nothing:
    /// the outcome of such a call is then unknown.
    pub fn ask(&self) {
        self.times.send_modify(|times| *times = times.saturating_add(1));
    }

    pub(super) fn asked(&self) -> u8 {
        *self.times.borrow()
    }

    /// Once it was asked more than `times` times.
    pub(super) async fn beyond(&self, times: u8) {
        let mut heard = self.times.subscribe();
        // The sender is held by this very object.
        let _ = heard.wait_for(|asked| *asked > times).await;
    }
}
