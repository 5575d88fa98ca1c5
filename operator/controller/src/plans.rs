//! The cache of plans, so that a transition need not parse what the one before it parsed.
//!
//! Bounded in number and in the bytes of the specs: a run that waits is cheap to parse again.

use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use signoff_api::Workflow;
use signoff_cluster::kinds::uid;
use signoff_engine::{FieldError, Plan, Policies, plan::spec_bytes};

const MOST: usize = 512;
/// The bytes of the specs of all plans; a plan takes several times as many.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// A plan, or every error of the Workflow.
pub(crate) type Planned = Result<Arc<Plan>, Arc<Vec<FieldError>>>;

/// The uid of a Workflow and its generation: another generation is another spec.
type Key = (String, Option<i64>);

/// The plans of Workflows that were planned last, by uid and generation.
#[derive(Default)]
pub(crate) struct Plans {
    kept: Mutex<Kept>,
}

struct Kept {
    by_spec: LruCache<Key, Entry>,
    /// The bytes of all specs.
    bytes: usize,
}

struct Entry {
    /// The bytes of the spec.
    bytes: usize,
    policies: Arc<Policies>,
    /// Whether the Workflow had been accepted.
    accepted: bool,
    planned: Planned,
}

impl Plans {
    /// The plan of this very spec under these approval policies, if it is kept.
    pub(crate) fn find(&self, workflow: &Workflow, policies: &Arc<Policies>) -> Option<Planned> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = kept.by_spec.get(&key(workflow)).filter(|entry| entry.is_of(workflow, policies))?;
        Some(entry.planned.clone())
    }

    /// Keeps the plan of this very spec under these approval policies.
    pub(crate) fn keep(&self, workflow: &Workflow, policies: &Arc<Policies>, planned: Planned) {
        let (bytes, accepted) = (spec_bytes(&workflow.spec), is_accepted(workflow));
        let entry = Entry { bytes, policies: Arc::clone(policies), accepted, planned };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(key(workflow), entry);
    }
}

fn key(workflow: &Workflow) -> Key {
    (uid(workflow).to_owned(), workflow.metadata.generation)
}

fn is_accepted(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.spec_digest.is_some())
}

impl Entry {
    /// Whether the plan would be the same. Once a run was accepted, the gates that policies added are those of its status;
    /// a plan from before that goes on where they are its own.
    fn is_of(&self, workflow: &Workflow, policies: &Arc<Policies>) -> bool {
        if !Arc::ptr_eq(&self.policies, policies) && self.policies != *policies {
            return false;
        }
        match (&self.planned, workflow.status.as_ref().filter(|_| is_accepted(workflow))) {
            (Ok(plan), Some(status)) if !self.accepted => plan.added_steps() == status.added_steps,
            (_, status) => self.accepted == status.is_some(),
        }
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self { by_spec: LruCache::unbounded(), bytes: 0 }
    }
}

impl Kept {
    fn keep(&mut self, key: Key, entry: Entry) {
        self.bytes += entry.bytes;
        let replaced = self.by_spec.put(key, entry);
        self.bytes -= replaced.map_or(0, |entry| entry.bytes);
        while (self.by_spec.len() > MOST || self.bytes > MOST_BYTES)
            && self.by_spec.len() > 1
            && let Some((_, oldest)) = self.by_spec.pop_lru()
        {
            self.bytes -= oldest.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use signoff_api::WorkflowStatus;
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
        let (plans, settings, policies) = (Plans::default(), Settings::default(), Arc::default());
        for uid in 0..40 {
            let workflow = workflow(uid, 40);
            let planned = Plan::of(&workflow, &settings, &policies).map(Arc::new).map_err(Arc::new);
            assert!(planned.is_ok(), "{planned:?}");
            plans.keep(&workflow, &policies, planned);
        }
        let kept = plans.kept.lock().unwrap();
        assert!(kept.bytes <= MOST_BYTES && kept.by_spec.len() > 10, "{} of {} bytes", kept.by_spec.len(), kept.bytes);
        assert_eq!(kept.bytes, kept.by_spec.iter().map(|(_, entry)| entry.bytes).sum::<usize>());
    }

    #[test]
    fn a_plan_from_before_its_acceptance_goes_on_where_the_added_gates_are_its_own() {
        let (plans, settings, policies) = (Plans::default(), Settings::default(), Arc::default());
        let mut workflow = workflow(1, 2);
        let planned = Plan::of(&workflow, &settings, &policies).map(Arc::new).map_err(Arc::new);
        plans.keep(&workflow, &policies, planned);
        assert!(plans.find(&workflow, &policies).is_some());
        let digest = signoff_engine::plan::spec_digest(&workflow.spec).unwrap();
        workflow.status = Some(WorkflowStatus { spec_digest: Some(digest), ..WorkflowStatus::default() });
        assert!(plans.find(&workflow, &policies).is_some(), "nothing was added");
        let added = json!([{"source": "ApprovalPolicy n/p", "step": {"name": "look", "at": "End",
            "hitl": {"prompt": "ok", "approvers": [{"kind": "User", "name": "bob"}]}}}]);
        let status = workflow.status.as_mut().unwrap();
        status.added_steps = serde_json::from_value(added).unwrap();
        assert!(plans.find(&workflow, &policies).is_none(), "another operator accepted it under other policies");
        let planned = Plan::of(&workflow, &settings, &policies).map(Arc::new).map_err(Arc::new);
        plans.keep(&workflow, &policies, planned);
        assert!(plans.find(&workflow, &policies).is_some());
        workflow.status = None;
        assert!(
            plans.find(&workflow, &policies).is_none(),
            "complaints that do not end an accepted run refuse a new one"
        );
    }
}
