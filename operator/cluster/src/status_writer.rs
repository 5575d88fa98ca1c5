//! Writes a status, fenced *(I/O)*: it is stored only if nothing except metadata such as labels has changed since it
//! was computed.
//!
//! **Invariant:** never overwrites another write. A failed fence is a conflict, and so is an answer whose metadata does
//! not match the sent object. The caller reconciles again.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::{
    error::{Error, is_ambiguous, is_denied, plain, status_code},
    kinds::{Name, ReconciledKind, WriteAnswer, uid},
    lease::LeaseGuard,
    requests::{AnswerForm, ApiRequests},
    store::Store,
};

/// The writer of the statuses of one kind.
pub struct StatusWriter<'a, K> {
    /// The requests to the API server.
    pub requests: &'a ApiRequests,
    /// The cache that gets the stored object.
    pub store: &'a Store<K>,
    /// The check of the Lease, without which nothing is written.
    pub lease_guard: &'a LeaseGuard,
    /// The requested form of answers.
    pub form: AnswerForm,
}

/// Reads the newest version of an object into the cache, and returns it.
///
/// # Errors
/// No answer, or an object that cannot be decoded.
pub async fn read_newest<K: ReconciledKind>(
    requests: &ApiRequests,
    store: &Store<K>,
    name: &Name,
) -> Result<Option<Arc<K>>, Error> {
    let known = store.version_of(name);
    match requests.get::<K>(name).await? {
        Some(object) => Ok(Some(store.record(object))),
        None => {
            store.mark_absent(name, known.as_deref());
            Ok(None)
        }
    }
}

impl<K: ReconciledKind> StatusWriter<'_, K> {
    /// Replaces the status of `observed` by `next`, and returns the stored object. `tests`: further conditions, as
    /// operations of a JSON Patch.
    ///
    /// # Errors
    /// `Conflict` if the object was changed, `StatusRefused` if the API server refuses the status, and `Transient` if
    /// it did not store the status or did not answer.
    pub async fn write(&self, observed: &K, next: K::Status, tests: Vec<Value>) -> Result<Arc<K>, Error> {
        let Self { requests, store, lease_guard, form } = self;
        let name = Name::of(observed);
        if !lease_guard.is_valid() {
            return Err(Error::Conflict(format!("the Lease for writing {}", name.as_a::<K>())));
        }
        match requests.replace_status(observed, &next, *form).await {
            Ok(WriteAnswer::Whole(stored)) => Ok(store.record(stored)),
            Ok(WriteAnswer::Metadata(metadata)) if is_stored(observed, &next, &metadata) => {
                Ok(store.record_sent(observed.stored_as(*metadata, next)))
            }
            Ok(WriteAnswer::Metadata(_)) => {
                store.mark_stale(&name);
                Err(Error::Conflict(name.as_a::<K>()))
            }
            Err(error) if status_code(&error) == Some(409) => self.write_by_patch(observed, &next, tests).await,
            Err(error) => Err(handle_refusal(store, observed, error)),
        }
    }

    /// Writes the status of an object that has a newer version. If only metadata such as labels changed, a patch with
    /// tests succeeds, so that frequent changes of labels cannot starve the write.
    async fn write_by_patch(&self, observed: &K, next: &K::Status, tests: Vec<Value>) -> Result<Arc<K>, Error> {
        let Self { requests, store, .. } = self;
        let name = Name::of(observed);
        let conflict = || Error::Conflict(name.as_a::<K>());
        let newest = read_newest(requests, store, &name).await?.ok_or_else(conflict)?;
        let is_unchanged = uid(&*newest) == uid(observed)
            && newest.meta().generation == observed.meta().generation
            && newest.status() == observed.status();
        if !is_unchanged {
            return Err(conflict());
        }
        let before = observed.status().cloned().unwrap_or_default();
        let mut operations = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": uid(observed)}),
            json!({"op": "test", "path": "/metadata/generation", "value": observed.meta().generation}),
            json!({"op": "test", "path": "/status/seq", "value": K::seq(&before)}),
        ];
        operations.extend(tests);
        operations.push(json!({"op": "replace", "path": "/status", "value": next}));
        match requests.patch_status::<K>(&name, &operations).await {
            Ok(stored) => Ok(store.record(stored)),
            // A failed test is answered with 422.
            Err(error) if matches!(status_code(&error), Some(409 | 422)) && !is_denied(&error) => {
                store.mark_stale(&name);
                Err(conflict())
            }
            Err(error) => Err(handle_refusal(store, observed, error)),
        }
    }
}

/// Whether `metadata` can belong to the observed object with the next status.
fn is_stored<K: ReconciledKind>(observed: &K, next: &K::Status, metadata: &ObjectMeta) -> bool {
    let before = observed.meta();
    // A write that changes nothing creates no new version.
    let changes_nothing = || json!(observed.status()) == json!(next);
    metadata.uid == before.uid
        && metadata.generation == before.generation
        && metadata.resource_version.is_some()
        && (metadata.resource_version != before.resource_version || changes_nothing())
}

/// Returns the error of a write. Marks the cached object as stale or removes it, if the error implies that.
fn handle_refusal<K: ReconciledKind>(store: &Store<K>, observed: &K, error: kube::Error) -> Error {
    let name = Name::of(observed);
    match status_code(&error) {
        Some(404) => {
            // Another object may have the name now.
            store.remove(name.clone(), uid(observed));
            Error::Conflict(name.as_a::<K>())
        }
        Some(422 | 400 | 413) if !is_denied(&error) => {
            Error::StatusRefused { object: name.as_a::<K>(), why: plain(&error) }
        }
        _ => {
            if is_ambiguous(&error) {
                store.mark_stale(&name);
            }
            Error::of(format!("writing the status of {}", name.as_a::<K>()))(error)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::{Seq, Workflow, WorkflowStatus};

    use super::*;

    #[test]
    fn is_stored_requires_a_new_version_of_the_same_object() {
        let object = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2},
            "spec": {"requestedBy": "dana", "steps": []}, "status": {"seq": 1},
        });
        let observed: Workflow = serde_json::from_value(object).unwrap();
        let next = WorkflowStatus { seq: Seq::from(2), ..WorkflowStatus::default() };
        let same = observed.status.clone().unwrap();
        let answer = |change: &dyn Fn(&mut ObjectMeta)| {
            let mut meta = ObjectMeta { resource_version: Some("8".to_owned()), ..observed.metadata.clone() };
            change(&mut meta);
            meta
        };
        let unchanged = |meta: &mut ObjectMeta| meta.resource_version = Some("7".to_owned());
        assert!(is_stored(&observed, &next, &answer(&|_| ())));
        assert!(is_stored(&observed, &same, &answer(&unchanged)), "a write that changes nothing makes no version");
        assert!(!is_stored(&observed, &next, &answer(&unchanged)), "nothing of it was stored");
        assert!(!is_stored(&observed, &next, &answer(&|meta| meta.uid = Some("other".to_owned()))));
        assert!(!is_stored(&observed, &next, &answer(&|meta| meta.generation = Some(3))));
        assert!(!is_stored(&observed, &next, &answer(&|meta| meta.resource_version = None)));
    }
}
