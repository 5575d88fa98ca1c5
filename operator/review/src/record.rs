//! Records an entry at the API server *(I/O)*.
//!
//! **Invariant:** exactly the entry is sent, and no decision of another user is replaced.

use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::Value;

use crate::{
    entry::{Change, Entry, change},
    seen::Seen,
};

/// The status code of a patch that does not fit the stored object.
const UNPROCESSABLE: u16 = 422;

/// Sends an entry, and returns the Approval as it is stored afterwards. If the first decision was recorded since the
/// Approval was read, the Approval is read and the entry is sent once more.
///
/// # Errors
/// As the API server answers.
pub async fn record(
    approvals: &Api<DynamicObject>,
    seen: &Seen,
    entry: &Entry,
    options: &PatchParams,
) -> kube::Result<DynamicObject> {
    let name = seen.approval.metadata.name.as_deref().unwrap_or_default();
    let sent = approvals.patch(name, options, &patch(entry, seen)?).await;
    match &sent {
        // The patch creates the map of decisions, and fails if another user's decision created it first.
        Err(kube::Error::Api(status)) if status.code == UNPROCESSABLE && seen.decisions().is_none() => {
            match Seen::of(&approvals.get(name).await?) {
                Ok(now) if now.decisions().is_some() => approvals.patch(name, options, &patch(entry, &now)?).await,
                _ => sent,
            }
        }
        _ => sent,
    }
}

fn patch(entry: &Entry, seen: &Seen) -> kube::Result<Patch<Value>> {
    let patch = change(entry, seen.decisions()).and_then(|change| match change {
        Change::Json(operations) => Ok(Patch::Json(serde_json::from_value(operations)?)),
        other => Ok(Patch::Merge(other.parts().1)),
    });
    patch.map_err(kube::Error::SerdeError)
}
