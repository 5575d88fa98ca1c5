//! Plans of the Workflows that were looked at last, so that a turn need not parse what the one before it parsed.
//!
//! Bounded in number and in the bytes of the specs: a run that waits is cheap to parse again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use signoff_api::Workflow;
use signoff_engine::{Complaint, Floors, Plan, plan::spec_bytes};

use crate::kinds::uid;

const MOST: usize = 128;
/// The bytes of the specs of all plans; a plan takes several times as many.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// A plan, or everything that is wrong with the Workflow.
pub(crate) type Planned = Result<Arc<Plan>, Arc<Vec<Complaint>>>;

/// Another generation is another spec, and once it was accepted a run's shape is its own.
type Key = (String, Option<i64>, bool);

#[derive(Default)]
pub(crate) struct Plans {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_spec: BTreeMap<Key, Entry>,
    /// The bytes of all specs.
    bytes: usize,
    uses: u64,
}

struct Entry {
    used: u64,
    /// The bytes of the spec.
    bytes: usize,
    floors: Arc<Floors>,
    planned: Planned,
}

impl Plans {
    /// The plan of this very spec under these floors, if it is kept.
    pub(crate) fn find(&self, workflow: &Workflow, floors: &Arc<Floors>) -> Option<Planned> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).find(&key(workflow), floors)
    }

    /// Keeps the plan of this very spec under these floors.
    pub(crate) fn keep(&self, workflow: &Workflow, floors: &Arc<Floors>, planned: Planned) {
        let entry = Entry { used: 0, bytes: spec_bytes(&workflow.spec), floors: Arc::clone(floors), planned };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(key(workflow), entry);
    }
}

fn key(workflow: &Workflow) -> Key {
    let accepted = workflow.status.as_ref().is_some_and(|status| status.spec_digest.is_some());
    (uid(workflow).to_owned(), workflow.metadata.generation, accepted)
}

impl Kept {
    fn find(&mut self, key: &Key, floors: &Arc<Floors>) -> Option<Planned> {
        self.uses += 1;
        let same = |entry: &&mut Entry| Arc::ptr_eq(&entry.floors, floors) || entry.floors == *floors;
        let entry = self.by_spec.get_mut(key).filter(same)?;
        entry.used = self.uses;
        Some(entry.planned.clone())
    }

    fn keep(&mut self, key: Key, entry: Entry) {
        self.remove(&key);
        while (self.by_spec.len() >= MOST || self.bytes + entry.bytes > MOST_BYTES)
            && let Some(oldest) = self.by_spec.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())
        {
            self.remove(&oldest);
        }
        self.uses += 1;
        self.bytes += entry.bytes;
        self.by_spec.insert(key, Entry { used: self.uses, ..entry });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.by_spec.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use signoff_engine::Settings;

    use super::*;

    /// A Workflow with so many steps of ten thousand bytes each.
    fn workflow(uid: usize, steps: usize) -> Workflow {
        let step = |n| json!({"name": format!("s{n}"), "set": {"value": "x".repeat(10_000)}});
        let steps: Vec<_> = (0..steps).map(step).collect();
        let object = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "w", "namespace": "n", "uid": uid.to_string()},
            "spec": {"requestedBy": "dana", "steps": steps},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn plans_of_large_workflows_make_room_for_each_other() {
        let (plans, settings, floors) = (Plans::default(), Settings::default(), Arc::default());
        for uid in 0..40 {
            let workflow = workflow(uid, 40);
            let planned = Plan::of(&workflow, &settings, &floors).map(Arc::new).map_err(Arc::new);
            assert!(planned.is_ok(), "{planned:?}");
            plans.keep(&workflow, &floors, planned);
        }
        let kept = plans.kept.lock().unwrap();
        assert!(kept.bytes <= MOST_BYTES && kept.by_spec.len() > 10, "{} of {} bytes", kept.by_spec.len(), kept.bytes);
        assert_eq!(kept.bytes, kept.by_spec.values().map(|entry| entry.bytes).sum::<usize>());
    }
}
