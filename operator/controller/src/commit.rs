//! Writes a status, fenced: it is stored only where nothing but labels and the like changed since it was decided.
//!
//! It may not decide what to write, and never writes the same decision over somebody else's: a lost fence is a
//! conflict, and whoever asked looks again.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    context::Context,
    error::{Error, is_ambiguous, is_denied, plain, status_code},
    kinds::{Kind, Name, uid},
    store::Store,
};

/// Puts `next` in the place of the status that `observed` has, and returns the object as it is stored then.
/// `tests` are further conditions, as operations of a JSON Patch.
///
/// # Errors
/// `Conflict` where the object changed, `Transient` where the API server did not do it (or did not say so), `Bug`
/// where it refuses the status.
pub(crate) async fn commit<K: Kind>(
    context: &Context,
    store: &Store<K>,
    observed: &K,
    next: K::Status,
    tests: Vec<Value>,
) -> Result<Arc<K>, Error> {
    let name = Name::of(observed);
    if !context.tenure.holds() {
        return Err(Error::Conflict(format!("the Lease under which {}", name.as_a::<K>())));
    }
    match context.wire.replace_status(&observed.with_status(next.clone())).await {
        Ok(stored) => Ok(store.record(stored)),
        Err(error) if status_code(&error) == Some(409) => patch(context, store, observed, &next, tests).await,
        Err(error) => Err(judge(store, &name, error)),
    }
}

/// The object has another version. Where only its labels and the like changed, a patch with tests is a fence
/// that such changes cannot starve.
async fn patch<K: Kind>(
    context: &Context,
    store: &Store<K>,
    observed: &K,
    next: &K::Status,
    tests: Vec<Value>,
) -> Result<Arc<K>, Error> {
    let name = Name::of(observed);
    let conflict = || Error::Conflict(name.as_a::<K>());
    let newest = context.fresh(store, &name).await?.ok_or_else(conflict)?;
    let same = uid(&*newest) == uid(observed)
        && newest.meta().generation == observed.meta().generation
        && newest.status() == observed.status();
    if !same {
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
    match context.wire.patch_status::<K>(&name, &operations).await {
        Ok(stored) => Ok(store.record(stored)),
        // A test that does not hold is answered by 422.
        Err(error) if matches!(status_code(&error), Some(409 | 422)) && !is_denied(&error) => {
            store.doubt(&name);
            Err(conflict())
        }
        Err(error) => Err(judge(store, &name, error)),
    }
}

fn judge<K: Kind>(store: &Store<K>, name: &Name, error: kube::Error) -> Error {
    match status_code(&error) {
        Some(404) => {
            store.nowhere(name);
            Error::Conflict(name.as_a::<K>())
        }
        Some(422 | 400 | 413) if !is_denied(&error) => Error::Bug {
            object: name.as_a::<K>(),
            what: format!("the API server refuses its status: {}", plain(&error)),
        },
        _ => {
            if is_ambiguous(&error) {
                store.doubt(name);
            }
            Error::of(format!("writing the status of {}", name.as_a::<K>()))(error)
        }
    }
}
