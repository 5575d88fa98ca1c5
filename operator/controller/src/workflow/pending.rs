//! The steps of a run that wait for their Pods or for a slot, and why.

use signoff_api::conditions::reason;
use signoff_engine::Transition;

use super::{claim_slots::SlotClaims, observe::ObservedRun};
use crate::context::Context;

/// The reason and message of the conditions about waiting steps; `None` where none waits.
pub(super) struct Pending {
    /// For the condition `PodsPending`.
    pub(super) pods: Option<(String, String)>,
    /// For the condition `CallsPending`.
    pub(super) calls: Option<(String, String)>,
}

/// Returns which steps of a run wait.
pub(super) fn pending_steps(
    context: &Context,
    seen: &ObservedRun,
    transition: &Transition,
    claims: &SlotClaims,
) -> Pending {
    if transition.end.is_some() {
        return Pending { pods: None, calls: None };
    }
    Pending { pods: pods(context, seen, transition, claims), calls: calls(seen, claims) }
}

fn calls(seen: &ObservedRun, claims: &SlotClaims) -> Option<(String, String)> {
    let (path, wait) = claims.calls_wait.first()?;
    let why = wait.message(&seen.name.namespace);
    Some((reason::QUEUED.to_owned(), format!("step {path}: {why}{}", behind_text(claims.calls_wait.len() - 1))))
}

fn behind_text(more: usize) -> String {
    if more > 0 { format!("; {more} more of its steps wait behind it") } else { String::new() }
}

fn pods(
    context: &Context,
    seen: &ObservedRun,
    transition: &Transition,
    claims: &SlotClaims,
) -> Option<(String, String)> {
    let step = |pod: &str| {
        let record =
            transition.journal.records().iter().find(|r| !r.phase.is_end() && r.object.as_deref() == Some(pod));
        record.map(|record| record.path.clone())
    };
    let troubles = context.pods.problems_of(&seen.uid);
    let mut troubled = troubles.iter().filter_map(|(pod, trouble)| Some((step(&pod.name)?, pod, trouble)));
    if let Some((path, pod, trouble)) = troubled.next() {
        let more = troubled.count() + claims.wait.len();
        let more = if more > 0 { format!(" ({more} more wait)") } else { String::new() };
        return Some((trouble.reason.clone(), format!("step {path}, Pod {}: {}{more}", pod.name, trouble.message)));
    }
    let (path, wait) = claims.wait.first()?;
    let (reason, why) = wait.message(&seen.name.namespace);
    Some((reason.to_owned(), format!("step {path}: {why}{}", behind_text(claims.wait.len() - 1))))
}
