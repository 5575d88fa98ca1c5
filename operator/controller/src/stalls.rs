//! Objects whose reconcile keeps failing at the same operation, such as a write that a quota or a webhook refuses.
//! After a minute the object says so: an Event, and the condition `Stalled` where its status can be written.
//!
//! Nothing here decides when to try again: the queue does. [`Stalls::due`] only makes it try once more when the minute
//! is over.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{Moment, Workflow, conditions};
use signoff_engine::status::say;

use crate::{
    commit::commit,
    context::Context,
    error::Error,
    events::Report,
    kinds::{Kind, Name},
    store::{Found, Store},
    workflow::open_records,
    workqueue::Key,
};

/// How long an operation fails until the object says so.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(60);

/// The objects whose last reconcile failed.
#[derive(Default)]
pub(crate) struct Stalls {
    inner: Mutex<BTreeMap<Key, Stall>>,
}

struct Stall {
    /// What fails, naming the object it is about.
    operation: String,
    since: Moment,
    /// Whether an Event was reported.
    told: bool,
}

/// A failure to be written to its object now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overdue {
    since: Moment,
    /// Whether no Event was reported yet.
    is_new: bool,
}

impl Stalls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Stall>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure. Returns since when the same operation fails, once that is a minute.
    fn failed(&self, key: &Key, error: &Error, now: Moment) -> Option<Overdue> {
        // A contender that wins is no refusal, and what cannot be read is told at once elsewhere.
        if matches!(error, Error::Conflict(_) | Error::Unreadable { .. }) {
            return None;
        }
        let operation = error.operation();
        let mut inner = self.lock();
        let stall = inner.entry(key.clone()).and_modify(|stall| {
            if stall.operation != operation {
                *stall = Stall { operation: operation.to_owned(), since: now, told: false };
            }
        });
        let stall = stall.or_insert_with(|| Stall { operation: operation.to_owned(), since: now, told: false });
        if stall.since.after(TOLD_AFTER) > now {
            return None;
        }
        let is_new = !std::mem::replace(&mut stall.told, true);
        Some(Overdue { since: stall.since, is_new })
    }

    /// A reconcile succeeded.
    pub(crate) fn succeeded(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Returns when an object that fails is to be tried again at the latest, so that the minute is kept.
    pub(crate) fn due(&self, key: &Key) -> Option<Moment> {
        self.lock().get(key).filter(|stall| !stall.told).map(|stall| stall.since.after(TOLD_AFTER))
    }

    /// Returns how many objects have failed for a minute.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().filter(|stall| stall.told).count()
    }
}

/// Records that a reconcile failed, and says so on the object once that is due.
pub(crate) async fn failed(context: &Context, key: &Key, error: &Error) {
    let Some(overdue) = context.stalls.failed(key, error, context.now()) else { return };
    let since = overdue.since;
    let message = format!("{error}; this fails since {since}, and is tried again until it succeeds");
    match key {
        Key::Approval(name) => report(context, &context.approvals, name, &overdue, &message).await,
        Key::Workflow(name) => {
            report(context, &context.workflows, name, &overdue, &message).await;
            if let Some(reason) = error.reason()
                && let Err(why) = condition(context, name, reason, &message).await
            {
                tracing::debug!(workflow = %name, "the condition Stalled could not be written: {why}");
            }
        }
    }
}

/// Reports an Event, once a stall.
async fn report<K: Kind>(context: &Context, store: &Store<K>, name: &Name, overdue: &Overdue, message: &str) {
    if !overdue.is_new {
        return;
    }
    let of_uid = |uid: Option<String>| ObjectMeta {
        name: Some(name.name.to_string()),
        namespace: Some(name.namespace.to_string()),
        uid,
        ..ObjectMeta::default()
    };
    let meta = match store.find(name) {
        Found::Here(object) => object.meta().clone(),
        Found::Over { uid, .. } => of_uid(Some(uid)),
        // Without its uid, `kubectl describe` would not show the Event.
        Found::Doubtful | Found::Nowhere => match context.fresh(store, name).await {
            Ok(Some(object)) => object.meta().clone(),
            _ => of_uid(None),
        },
    };
    let key = overdue.since.to_string();
    let report = Report::of_meta::<K>(&meta, "Stalled", message, &key, context.clock.now());
    context.reporter.report(report.warning(true));
}

/// Sets the condition `Stalled` of a Workflow that goes on. The first sentence for a reason stays: one that changes with
/// every attempt would cost a write each time.
async fn condition(context: &Context, name: &Name, reason: &'static str, message: &str) -> Result<(), Error> {
    let workflow = match context.workflows.find(name) {
        Found::Here(workflow) => workflow,
        Found::Doubtful => match context.fresh(&context.workflows, name).await? {
            Some(workflow) => workflow,
            None => return Ok(()),
        },
        Found::Over { .. } | Found::Nowhere => return Ok(()),
    };
    let mut status = workflow.status.clone().unwrap_or_default();
    let is_said =
        status.conditions.iter().any(|c| c.type_ == conditions::STALLED && c.status == "True" && c.reason == reason);
    if is_said || status.phase.is_end() {
        return Ok(());
    }
    let tests = open_records(&status);
    say(&mut status, &workflow, context.now(), conditions::STALLED, true, reason, message);
    commit(context, &context.workflows, &*workflow, status, tests).await.map(|_| ())
}

/// Removes the condition `Stalled` after everything of a reconcile has succeeded. Returns the Workflow as it is stored.
pub(crate) async fn clear(context: &Context, workflow: Arc<Workflow>) -> Result<Arc<Workflow>, Error> {
    let mut status = workflow.status.clone().unwrap_or_default();
    if !conditions::holds(&status.conditions, conditions::STALLED) {
        return Ok(workflow);
    }
    let tests = open_records(&status);
    conditions::remove(&mut status.conditions, conditions::STALLED);
    commit(context, &context.workflows, &*workflow, status, tests).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> Moment {
        jiff::Timestamp::from_second(second).unwrap().into()
    }

    fn key() -> Key {
        Key::Workflow(Name::new("n", "w"))
    }

    fn refused(what: &str) -> Error {
        Error::of(what)(kube::Error::Service("no".into()))
    }

    #[test]
    fn a_failure_is_told_after_a_minute_and_reported_once() {
        let stalls = Stalls::default();
        assert_eq!(stalls.failed(&key(), &refused("creating a"), at(0)), None);
        assert_eq!(stalls.due(&key()), Some(at(60)));
        assert_eq!(stalls.failed(&key(), &refused("creating a"), at(59)), None);
        let overdue = |is_new| Some(Overdue { since: at(0), is_new });
        assert_eq!(stalls.failed(&key(), &refused("creating a"), at(60)), overdue(true));
        assert_eq!((stalls.due(&key()), stalls.count()), (None, 1));
        assert_eq!(stalls.failed(&key(), &refused("creating a"), at(90)), overdue(false));
        stalls.succeeded(&key());
        assert_eq!(stalls.count(), 0);
        assert_eq!(stalls.failed(&key(), &refused("creating a"), at(100)), None);
    }

    #[test]
    fn another_operation_is_another_failure_and_a_conflict_is_none() {
        let stalls = Stalls::default();
        assert_eq!(stalls.failed(&key(), &refused("creating a"), at(0)), None);
        assert_eq!(stalls.failed(&key(), &refused("creating b"), at(50)), None);
        assert_eq!(stalls.failed(&key(), &Error::Conflict("it".to_owned()), at(70)), None);
        assert_eq!(stalls.failed(&key(), &refused("creating b"), at(100)), None);
        assert_eq!(
            stalls.failed(&key(), &refused("creating b"), at(110)),
            Some(Overdue { since: at(50), is_new: true })
        );
    }
}
