//! Holds of the watermark: while something may be stored that is told only later, no watermark passes that time.

use std::sync::Arc;

use signoff_api::Moment;

use super::Notices;

/// Holds the watermark of all channels back while it exists.
pub struct Hold {
    notices: Arc<Notices>,
    since: Moment,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut inner = self.notices.lock();
        if let Some(number) = inner.held.get_mut(&self.since) {
            *number = number.saturating_sub(1);
            if *number == 0 {
                inner.held.remove(&self.since);
            }
        }
    }
}

impl Notices {
    /// Holds the watermark back, because something may be stored from now on and told only later.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Hold {
        let since = self.now();
        *self.lock().held.entry(since).or_default() += 1;
        Hold { notices: Arc::clone(self), since }
    }
}
