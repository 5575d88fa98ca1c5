//! Plans of the Workflows that were looked at last, so that a turn need not parse what the one before it parsed.
//!
//! It may not hold more than a fixed number: a run that waits is cheap to parse again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use signoff_api::Workflow;
use signoff_engine::{Complaint, Plan, Settings};

use crate::kinds::uid;

const MOST: usize = 128;

/// A plan, or everything that is wrong with the Workflow.
pub(crate) type Planned = Result<Arc<Plan>, Arc<Vec<Complaint>>>;

#[derive(Default)]
pub(crate) struct Plans {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_spec: BTreeMap<(String, Option<i64>), (u64, Planned)>,
    uses: u64,
}

impl Plans {
    /// The plan of this very spec: another generation is another spec.
    pub(crate) fn of(&self, workflow: &Workflow, settings: &Settings) -> Planned {
        let key = (uid(workflow).to_owned(), workflow.metadata.generation);
        if let Some(planned) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).find(&key) {
            return planned;
        }
        // Parsed outside of the lock: two at once cost time, not truth.
        let planned = Plan::of(workflow, settings, &Arc::default()).map(Arc::new).map_err(Arc::new);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(key, planned.clone());
        planned
    }
}

impl Kept {
    fn find(&mut self, key: &(String, Option<i64>)) -> Option<Planned> {
        self.uses += 1;
        let uses = self.uses;
        let (used, planned) = self.by_spec.get_mut(key)?;
        *used = uses;
        Some(planned.clone())
    }

    fn keep(&mut self, key: (String, Option<i64>), planned: Planned) {
        if self.by_spec.len() >= MOST
            && let Some(oldest) = self.by_spec.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone())
        {
            self.by_spec.remove(&oldest);
        }
        self.uses += 1;
        self.by_spec.insert(key, (self.uses, planned));
    }
}
