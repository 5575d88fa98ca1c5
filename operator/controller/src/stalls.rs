//! The objects whose reconcile keeps failing at the same operation, such as a write that a quota or a webhook refuses.
//! `stall_reports` reports such an object after a minute.
//!
//! The workqueue decides when to retry. [`Stalls::due`] only causes a retry at the end of the minute.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signoff_api::Moment;
use signoff_cluster::{Error as Cluster, workqueue::Key};

use crate::error::Error;

/// The time after which a failing operation is reported on its object.
pub(crate) const REPORTED_AFTER: Duration = Duration::from_secs(60);

/// The objects whose last reconcile failed.
#[derive(Default)]
pub(crate) struct Stalls {
    inner: Mutex<BTreeMap<Key, Stall>>,
}

struct Stall {
    /// The operation that fails, with its object.
    operation: String,
    since: Moment,
    /// Whether an Event was reported.
    is_reported: bool,
}

/// A stall that is due to be reported on its object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OverdueStall {
    pub(crate) since: Moment,
    /// Whether no Event was reported yet.
    pub(crate) is_new: bool,
}

impl Stalls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Stall>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure. Returns the stall if the same operation has failed for a minute.
    pub(crate) fn record_failure(&self, key: &Key, error: &Error, now: Moment) -> Option<OverdueStall> {
        // A conflict is not a refusal, and an unreadable object is reported at once elsewhere.
        if matches!(error, Error::Cluster(Cluster::Conflict(_) | Cluster::Unreadable { .. })) {
            return None;
        }
        let operation = error.operation();
        let mut inner = self.lock();
        let stall = inner.entry(key.clone()).and_modify(|stall| {
            if stall.operation != operation {
                *stall = Stall { operation: operation.to_owned(), since: now, is_reported: false };
            }
        });
        let stall = stall.or_insert_with(|| Stall { operation: operation.to_owned(), since: now, is_reported: false });
        if stall.since.after(REPORTED_AFTER) > now {
            return None;
        }
        let is_new = !std::mem::replace(&mut stall.is_reported, true);
        Some(OverdueStall { since: stall.since, is_new })
    }

    /// Records a successful reconcile, which ends the stall.
    pub(crate) fn record_success(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Returns the latest time of the next retry of a failing object, so that it is reported after a minute.
    pub(crate) fn due(&self, key: &Key) -> Option<Moment> {
        self.lock().get(key).filter(|stall| !stall.is_reported).map(|stall| stall.since.after(REPORTED_AFTER))
    }

    /// Returns the number of objects whose reconcile has failed for a minute.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().filter(|stall| stall.is_reported).count()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use signoff_cluster::kinds::Name;

    fn at(second: i64) -> Moment {
        jiff::Timestamp::from_second(second).unwrap().into()
    }

    fn key() -> Key {
        Key::Workflow(Name::new("n", "w"))
    }

    fn refusal_of(what: &str) -> Error {
        Error::of(what)(kube::Error::Service("no".into()))
    }

    #[test]
    fn a_failure_is_reported_once_after_a_minute() {
        let stalls = Stalls::default();
        assert_eq!(stalls.record_failure(&key(), &refusal_of("creating a"), at(0)), None);
        assert_eq!(stalls.due(&key()), Some(at(60)));
        assert_eq!(stalls.record_failure(&key(), &refusal_of("creating a"), at(59)), None);
        let overdue = |is_new| Some(OverdueStall { since: at(0), is_new });
        assert_eq!(stalls.record_failure(&key(), &refusal_of("creating a"), at(60)), overdue(true));
        assert_eq!((stalls.due(&key()), stalls.count()), (None, 1));
        assert_eq!(stalls.record_failure(&key(), &refusal_of("creating a"), at(90)), overdue(false));
        stalls.record_success(&key());
        assert_eq!(stalls.count(), 0);
        assert_eq!(stalls.record_failure(&key(), &refusal_of("creating a"), at(100)), None);
    }

    #[test]
    fn another_operation_begins_another_stall() {
        let stalls = Stalls::default();
        assert_eq!(stalls.record_failure(&key(), &refusal_of("creating a"), at(0)), None);
        assert_eq!(stalls.record_failure(&key(), &refusal_of("creating b"), at(50)), None);
        assert_eq!(stalls.record_failure(&key(), &Error::conflict("it".to_owned()), at(70)), None);
        assert_eq!(stalls.record_failure(&key(), &refusal_of("creating b"), at(100)), None);
        assert_eq!(
            stalls.record_failure(&key(), &refusal_of("creating b"), at(110)),
            Some(OverdueStall { since: at(50), is_new: true })
        );
    }
}
