//! Outcomes that this process has confirmed and written itself: the run that takes one need not ask again.
//!
//! It may not hold what nobody takes: a run that has ended takes nothing, so the oldest make room.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
};

use kube::ResourceExt;
use lru::LruCache;
use signoff_api::Approval;

/// More than this are being taken at once only where runs end faster than they look.
const MOST: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// By uid and version.
pub(crate) struct Vouched(Mutex<LruCache<(String, String), ()>>);

impl Default for Vouched {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST)))
    }
}

impl Vouched {
    pub(crate) fn add(&self, approval: &Approval) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.put(key(approval), ());
    }

    pub(crate) fn knows(&self, approval: &Approval) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&key(approval))
    }
}

fn key(approval: &Approval) -> (String, String) {
    (approval.uid().unwrap_or_default(), approval.resource_version().unwrap_or_default())
}
