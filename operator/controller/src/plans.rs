//! Plans of the Workflows that were looked at last, so that a turn need not parse what the one before it parsed.
//!
//! It may not hold more than a fixed number: a run that waits is cheap to parse again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use signoff_api::Workflow;
use signoff_engine::{Complaint, Floors, Plan, Settings};

use crate::kinds::uid;

const MOST: usize = 128;

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
    uses: u64,
}

struct Entry {
    used: u64,
    floors: Arc<Floors>,
    planned: Planned,
}

impl Plans {
    /// The plan of this very spec under these floors.
    pub(crate) fn of(&self, workflow: &Workflow, settings: &Settings, floors: &Arc<Floors>) -> Planned {
        let accepted = workflow.status.as_ref().is_some_and(|status| status.spec_digest.is_some());
        let key = (uid(workflow).to_owned(), workflow.metadata.generation, accepted);
        if let Some(planned) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).find(&key, floors) {
            return planned;
        }
        // Parsed outside of the lock: two at once cost time, not truth.
        let planned = Plan::of(workflow, settings, floors).map(Arc::new).map_err(Arc::new);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(key, Arc::clone(floors), planned.clone());
        planned
    }
}

impl Kept {
    fn find(&mut self, key: &Key, floors: &Arc<Floors>) -> Option<Planned> {
        self.uses += 1;
        let same = |entry: &&mut Entry| Arc::ptr_eq(&entry.floors, floors) || entry.floors == *floors;
        let entry = self.by_spec.get_mut(key).filter(same)?;
        entry.used = self.uses;
        Some(entry.planned.clone())
    }

    fn keep(&mut self, key: Key, floors: Arc<Floors>, planned: Planned) {
        if self.by_spec.len() >= MOST
            && let Some(oldest) = self.by_spec.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())
        {
            self.by_spec.remove(&oldest);
        }
        self.uses += 1;
        self.by_spec.insert(key, Entry { used: self.uses, floors, planned });
    }
}
