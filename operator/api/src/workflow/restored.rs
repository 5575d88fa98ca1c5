//! The recognition of copies from a backup: of a run by its spec or its status, of an Approval by its times.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Workflow;
use crate::{Approval, values::Moment};

/// The maximum time by which a status can begin before its object, because the clocks of API servers differ.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);

impl Workflow {
    /// Returns the creation time of the object, by the clock of the API server.
    #[must_use]
    pub fn created_at(&self) -> Option<Moment> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0.into())
    }

    /// Whether the run is a copy from a backup, which never continues: by its spec, or because it came with the status
    /// of an older object.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.spec.restored == Some(true) || self.has_older_status()
    }

    /// Whether the status began before the object was created.
    fn has_older_status(&self) -> bool {
        self.status.as_ref().and_then(|status| status.started_at).is_some_and(|began| self.is_created_after(began))
    }

    /// Whether the object was created after `time`, by more than clocks differ. An event at `time` then belongs to
    /// another object.
    pub(crate) fn is_created_after(&self, time: Moment) -> bool {
        is_created_after(&self.metadata, time)
    }
}

impl Approval {
    /// Whether the object was created after `time`, by more than clocks differ. An event at `time` then belongs to
    /// another object.
    #[must_use]
    pub fn is_created_after(&self, time: Moment) -> bool {
        is_created_after(&self.metadata, time)
    }
}

fn is_created_after(metadata: &ObjectMeta, time: Moment) -> bool {
    let created: Option<Moment> = metadata.creation_timestamp.as_ref().map(|created| created.0.into());
    created.is_some_and(|created| time.after(MAX_CLOCK_DIFFERENCE) < created)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_run_is_restored_by_its_spec_or_by_a_status_that_began_before_it() {
        let created = "2026-11-27T10:00:00Z";
        for (restored, began, expected) in [
            (json!(true), Value::Null, true),
            (json!(false), Value::Null, false),
            (Value::Null, json!("2026-11-27T09:59:54.999Z"), true),
            (Value::Null, json!("2026-11-27T09:59:55Z"), false),
            (Value::Null, json!("2026-11-27T10:00:07.123Z"), false),
        ] {
            let workflow: Workflow = serde_json::from_value(json!({
                "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
                "metadata": {"name": "w", "creationTimestamp": created}, "spec": {"requestedBy": "dana", "restored": restored},
                "status": {"phase": "Running", "seq": 1, "startedAt": began},
            }))
            .unwrap();
            assert_eq!(workflow.is_restored(), expected, "{restored} {began}");
        }
    }
}
