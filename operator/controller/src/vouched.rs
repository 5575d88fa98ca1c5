//! Outcomes that this process has confirmed and written itself: the run that takes one need not ask again.
//!
//! It may not hold what nobody takes: a run that has ended takes nothing, so the oldest make room.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use kube::ResourceExt;
use signoff_api::Approval;

/// More than this are being taken at once only where runs end faster than they look.
const MOST: usize = 1024;

/// By uid and version.
#[derive(Default)]
pub(crate) struct Vouched(Mutex<VecDeque<(String, String)>>);

impl Vouched {
    pub(crate) fn add(&self, approval: &Approval) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() == MOST {
            held.pop_front();
        }
        held.push_back(key(approval));
    }

    pub(crate) fn knows(&self, approval: &Approval) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&key(approval))
    }
}

fn key(approval: &Approval) -> (String, String) {
    (approval.uid().unwrap_or_default(), approval.resource_version().unwrap_or_default())
}
