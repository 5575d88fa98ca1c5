//! Outcomes that this process has confirmed and written itself: the run that takes one need not ask again.
//!
//! It may not hold what nobody takes: a run that has ended takes nothing, so the oldest make room.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
};

use kube::ResourceExt;
use lru::LruCache;
use signoff_api::{Approval, approval::Outcome};

/// More than this are being taken at once only where runs end faster than they look.
const MOST: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// By uid and version, the outcomes as they were confirmed. What another program made of one on its way is another outcome.
pub(crate) struct Vouched(Mutex<LruCache<(String, String), Outcome>>);

impl Default for Vouched {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST)))
    }
}

impl Vouched {
    pub(crate) fn add(&self, approval: &Approval, confirmed: Outcome) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.put(key(approval), confirmed);
    }

    /// Whether the outcome of this Approval is the one that was confirmed.
    pub(crate) fn knows(&self, approval: &Approval) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = approval.status.as_ref().and_then(|status| status.outcome.as_ref());
        outcome.is_some() && held.peek(&key(approval)) == outcome
    }
}

fn key(approval: &Approval) -> (String, String) {
    (approval.uid().unwrap_or_default(), approval.resource_version().unwrap_or_default())
}
