//! The cache of plans, so that a spec is not parsed again for each transition. Bounded in number, and in the bytes of
//! specs and of catalogues of tools.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use signoff_api::Workflow;
use signoff_cluster::kinds::uid;
use signoff_engine::{FieldError, Plan, Policies, plan::spec_bytes};

use super::by_bytes::LruByBytes;

const MAX_PLANS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(511);
/// The most bytes of the specs of all plans and of the catalogues that they keep. In memory, a plan takes several times
/// as many.
const MAX_SPEC_BYTES: usize = 8 * 1024 * 1024;

/// A plan, or every error of the Workflow.
pub(crate) type CachedPlan = Result<Arc<Plan>, Arc<Vec<FieldError>>>;

/// The uid and generation of a Workflow, which identify its spec.
type PlanKey = (String, Option<i64>);

/// The plans of the Workflows that were planned last, by uid and generation.
pub(crate) struct PlanCache(Mutex<LruByBytes<PlanKey, PlanEntry>>);

struct PlanEntry {
    policies: Arc<Policies>,
    /// Whether the Workflow had been accepted.
    accepted: bool,
    plan: CachedPlan,
    spec_bytes: usize,
}

impl Default for PlanCache {
    fn default() -> Self {
        Self(Mutex::new(LruByBytes::new(MAX_SPEC_BYTES, Some(MAX_PLANS))))
    }
}

impl PlanCache {
    /// Returns the cached plan of exactly this spec under these approval policies.
    pub(crate) fn get(&self, workflow: &Workflow, policies: &Arc<Policies>) -> Option<CachedPlan> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(workflow);
        let entry = cached.get(&key).filter(|entry| entry.is_valid_for(workflow, policies))?;
        let plan = entry.plan.clone();
        // The plan may have read catalogues since it was cached.
        let bytes = entry.spec_bytes + kept_bytes(&plan);
        cached.resize(&key, bytes);
        Some(plan)
    }

    /// Caches the plan of exactly this spec under these approval policies.
    pub(crate) fn put(&self, workflow: &Workflow, policies: &Arc<Policies>, plan: CachedPlan) {
        let (spec_bytes, accepted) = (spec_bytes(&workflow.spec), is_accepted(workflow));
        let bytes = spec_bytes + kept_bytes(&plan);
        let entry = PlanEntry { policies: Arc::clone(policies), accepted, plan, spec_bytes };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key(workflow), entry, bytes);
    }
}

fn kept_bytes(plan: &CachedPlan) -> usize {
    plan.as_ref().map_or(0, |plan| plan.kept_bytes())
}

fn key(workflow: &Workflow) -> PlanKey {
    (uid(workflow).to_owned(), workflow.metadata.generation)
}

fn is_accepted(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.spec_digest.is_some())
}

impl PlanEntry {
    /// Whether planning again would give the same plan. After a run is accepted, the gates that policies added are
    /// those in its status. An earlier plan stays valid if it has the same added gates.
    fn is_valid_for(&self, workflow: &Workflow, policies: &Arc<Policies>) -> bool {
        if !Arc::ptr_eq(&self.policies, policies) && self.policies != *policies {
            return false;
        }
        match (&self.plan, workflow.status.as_ref().filter(|_| is_accepted(workflow))) {
            (Ok(plan), Some(status)) if !self.accepted => plan.added_steps() == status.added_steps,
            (_, status) => self.accepted == status.is_some(),
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

    /// Returns a Workflow with `steps` steps of ten thousand bytes each.
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
    fn plans_of_large_workflows_stay_within_the_bytes() {
        let (plans, settings, policies) = (PlanCache::default(), Settings::default(), Arc::default());
        for uid in 0..40 {
            let workflow = workflow(uid, 40);
            let planned = Plan::of(&workflow, &settings, &policies).map(Arc::new).map_err(Arc::new);
            assert!(planned.is_ok(), "{planned:?}");
            plans.put(&workflow, &policies, planned);
        }
        let cached = plans.0.lock().unwrap();
        let (number, bytes) = (cached.len(), cached.bytes());
        assert!(bytes <= MAX_SPEC_BYTES && number > 10, "{number} of {bytes} bytes");
    }

    #[test]
    fn a_plan_from_before_acceptance_is_used_if_the_added_gates_are_its_own() {
        let (plans, settings, policies) = (PlanCache::default(), Settings::default(), Arc::default());
        let mut workflow = workflow(1, 2);
        let planned = Plan::of(&workflow, &settings, &policies).map(Arc::new).map_err(Arc::new);
        plans.put(&workflow, &policies, planned);
        assert!(plans.get(&workflow, &policies).is_some());
        let digest = signoff_engine::plan::spec_digest(&workflow.spec).unwrap();
        workflow.status = Some(WorkflowStatus { spec_digest: Some(digest), ..WorkflowStatus::default() });
        assert!(plans.get(&workflow, &policies).is_some(), "nothing was added");
        let added = json!([{"source": "ApprovalPolicy n/p", "step": {"name": "look", "at": "End",
            "hitl": {"prompt": "ok", "approvers": [{"kind": "User", "name": "bob"}]}}}]);
        let status = workflow.status.as_mut().unwrap();
        status.added_steps = serde_json::from_value(added).unwrap();
        assert!(plans.get(&workflow, &policies).is_none(), "another operator accepted it under other policies");
        let planned = Plan::of(&workflow, &settings, &policies).map(Arc::new).map_err(Arc::new);
        plans.put(&workflow, &policies, planned);
        assert!(plans.get(&workflow, &policies).is_some());
        workflow.status = None;
        assert!(plans.get(&workflow, &policies).is_none(), "errors that do not end an accepted run refuse a new one");
    }
}
