//! The number of stopped evaluations of a run.

use signoff_api::{FailureClass, journal::StepRecord, workflow::Quarantine};
use signoff_executor::Stopped;

use super::observe::ObservedRun;
use crate::quarantine::{Quarantines, VERSION};

/// Records a stopped evaluation of a run and its reason. Returns the number of stopped evaluations so far, from this
/// process, the status and the journal.
pub(super) fn record_stop(quarantines: &Quarantines, seen: &ObservedRun, why: &Stopped) -> i32 {
    let is_costly = |record: &&StepRecord| record.error.as_ref().is_some_and(|error| error.is(FailureClass::TooCostly));
    let steps = i32::try_from(seen.journal.records().iter().filter(is_costly).count()).unwrap_or(i32::MAX);
    let known = same_version(seen).map_or(steps, |quarantine| quarantine.failures.max(steps));
    quarantines.record_stop_of_run(&seen.name, &seen.uid, known, why, seen.now)
}

/// Returns the quarantine of a run by this version of the operator.
pub(super) fn same_version(seen: &ObservedRun) -> Option<&Quarantine> {
    seen.status.quarantine.as_ref().filter(|known| known.operator_version == VERSION)
}
