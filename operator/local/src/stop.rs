//! The request to pause a run. After the first request the run waits for calls that must not be repeated, after the
//! second for nothing.

use std::sync::Arc;

use tokio::sync::watch;

/// The handle to pause runs. Clones pause the same runs. A request before a run continues counts too.
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
    /// Asks the run to begin nothing new, to wait for calls that must not be repeated, and to pause. After the second
    /// request it waits for nothing: the outcome of such calls is then unknown.
    pub fn ask(&self) {
        self.times.send_modify(|times| *times = times.saturating_add(1));
    }

    pub(super) fn requests(&self) -> u8 {
        *self.times.borrow()
    }

    /// Waits until there were more than `times` requests to pause.
    pub(super) async fn wait_beyond(&self, times: u8) {
        let mut receiver = self.times.subscribe();
        // `self` holds the sender, so it is not dropped during the wait.
        let _ = receiver.wait_for(|requests| *requests > times).await;
    }
}
