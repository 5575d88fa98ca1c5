//! Decides whether a run can continue, and by which plan *(I/O)*: from the object, the policies of its namespace and,
//! once, the run that it repeats.

use std::sync::Arc;

use signoff_api::{Workflow, conditions, conditions::reason};
use signoff_engine::{Plan, Policies, plan::spec_digest};
use signoff_executor::Stopped;
use signoff_expr::text;

use super::{observe::ObservedRun, rerun, stops};
use crate::{caches::CachedPlan, context::Context, error::Error, withdrawal::Orders};

pub(super) enum PlanDecision {
    /// The run continues by this plan.
    Runs(Arc<Plan>),
    /// The run is held until the policies allow it.
    Held(Refusal),
    /// The run has the old shape, which this version does not read. It waits until it is cancelled or deleted.
    OldShape(Refusal),
    /// The run ends.
    Refused(Refusal),
}

/// The reason why a run does not continue to its next step.
pub(super) struct Refusal {
    /// A reason of the condition `Accepted` or `Held`.
    pub(super) reason: &'static str,
    /// The message of the condition.
    pub(super) message: String,
}

/// Plans a run, and decides whether it continues. A run that was accepted before ends only if its spec was changed.
pub(super) async fn plan(context: &Context, seen: &ObservedRun) -> Result<PlanDecision, Error> {
    let policies = match context.objects.policies.known_policies(&seen.name.namespace) {
        Ok(policies) => policies,
        // Nothing starts any more in a run that is being cancelled, so it needs no policies.
        Err(_) if seen.workflow.spec.cancel == Some(true) => Arc::default(),
        Err(why) => return Ok(PlanDecision::Held(Refusal { reason: reason::POLICY_UNKNOWN, message: why })),
    };
    let planned = plan_or_errors(context, seen, &policies).await?;
    let Some(pinned) = &seen.status.spec_digest else {
        if let Some(why) = unverified_requester(seen) {
            return Ok(PlanDecision::Refused(why));
        }
        return Ok(match planned {
            Ok(plan) => match rerun::find_refusal(&context.api.requests, seen).await? {
                Some(why) => PlanDecision::Refused(why),
                None => PlanDecision::Runs(plan),
            },
            Err(errors) => PlanDecision::Refused(Refusal {
                reason: errors.first().map_or(reason::INVALID, |error| error.reason),
                message: with_remedy(&errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
            }),
        });
    };
    let digest = match &planned {
        Ok(plan) => Some(plan.spec_digest().clone()),
        Err(_) => spec_digest(&seen.workflow.spec).ok(),
    };
    if digest.as_ref() != Some(pinned) && planned.is_err() && seen.workflow.spec.steps.is_empty() {
        return Ok(PlanDecision::OldShape(Refusal {
            reason: reason::OLD_SHAPE,
            message: format!(
                "{}: the run was accepted with its steps within spec.pattern, and this version reads steps only from spec.steps, so the run is blocked: cancel or delete the Workflow, move the steps to spec.steps and apply it again",
                conditions::ACCEPTED
            ),
        }));
    }
    if digest.as_ref() != Some(pinned) {
        return Ok(PlanDecision::Refused(Refusal {
            reason: reason::SPEC_TAMPERED,
            message: format!(
                "{}: the spec differs from the one that was accepted, although it is immutable: find out who changed it, and create the Workflow again",
                conditions::ACCEPTED
            ),
        }));
    }
    match planned {
        Ok(plan) => Ok(PlanDecision::Runs(plan)),
        // The run was accepted before, so an operator that cannot plan it does not end it.
        Err(errors) => Err(Error::Bug {
            object: seen.name.as_a::<Workflow>(),
            what: format!(
                "its spec was accepted, and this version of the operator finds errors in it: {}",
                errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            ),
        }),
    }
}

/// Returns the errors of a Workflow with the way to run its corrected file. `kubectl apply` is refused because the spec
/// is immutable. The errors are cut so that the remedy fits into a condition.
fn with_remedy(errors: &str) -> String {
    format!(
        "{}; correct the file, check it with `signoff validate FILE`, and run it with `kubectl replace --force -f FILE`",
        text::display(errors, 900)
    )
}

/// Returns the plan of a run, or every error of its Workflow.
async fn plan_or_errors(context: &Context, seen: &ObservedRun, policies: &Arc<Policies>) -> Result<CachedPlan, Error> {
    if let Some(planned) = context.caches.plans.get(&seen.workflow, policies) {
        return Ok(planned);
    }
    let (object, settings, under) = (Arc::clone(&seen.workflow), context.settings.clone(), Arc::clone(policies));
    let plan = move || Plan::of(&object, &settings, &under).map(Arc::new).map_err(Arc::new);
    let planned = context.evaluate(&*seen.workflow, Orders::of(&seen.workflow), plan).await;
    let planned = planned.map_err(|why| {
        if !matches!(why, Stopped::Withdrawn | Stopped::Closed) {
            stops::record_stop(&context.evaluations.quarantines, seen, &why);
        }
        Error::Stopped { object: seen.name.as_a::<Workflow>(), why }
    })?;
    context.caches.plans.put(&seen.workflow, policies, planned.clone());
    Ok(planned)
}

/// Returns the refusal of a run whose requester is not verified, or `None`. Admission writes the requester into the
/// spec, so a run that was created before the policies were in force could name any user.
fn unverified_requester(seen: &ObservedRun) -> Option<Refusal> {
    let created = seen.workflow.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let since = seen.guarded.since;
    (created.is_none_or(|created| created < since)).then(|| Refusal {
        reason: reason::REQUESTER_UNVERIFIED,
        message: format!(
            "spec.requestedBy is not verified: this Workflow was created before {since}, when the admission policies were changed or not yet in force; apply it again (`kubectl replace --force -f FILE`), or check what it does and run `kubectl approve rerun {} -n {}`, which makes you the requester of the new run",
            seen.name.name, seen.name.namespace
        ),
    })
}
