//! Holds of the watermark. Between the write of an object and [`Notices::tell`] for its event, no watermark passes the
//! time of the write.

use std::sync::Arc;

use signoff_api::Moment;

use super::Notices;

/// A guard: while it exists, the watermarks of all channels stay before its start.
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
    /// Holds the watermarks at the current time. Call this before a write whose event is reported with [`Self::tell`]
    /// afterwards.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Hold {
        let since = self.now();
        *self.lock().held.entry(since).or_default() += 1;
        Hold { notices: Arc::clone(self), since }
    }
}
