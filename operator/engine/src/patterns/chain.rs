//! `chain`: one step after the other.

use crate::{
    activity::Run,
    plan::PlannedStep,
    steps::{self, Next, Stop},
};

/// Runs every step in order; a decision may send it back to an earlier one, whose next visit then begins.
pub(crate) async fn chain(run: &Run<'_>) -> Result<(), Stop> {
    let mut visits = vec![1; run.plan.steps.len()];
    let mut at = 0;
    while let Some(visit) = visits.get(at).copied() {
        match steps::step(run, at, visit).await? {
            Next::On => at += 1,
            Next::Again(from) => {
                let from = guarded_from(&run.plan.steps, from);
                visits.iter_mut().take(at + 1).skip(from).for_each(|visit| *visit += 1);
                at = from;
            }
        }
    }
    Ok(())
}

/// Where a step begins again: with the gates that were added before it, which let it through once only.
fn guarded_from(steps: &[PlannedStep], at: usize) -> usize {
    if steps.get(at).is_none_or(|step| step.guards) {
        return at;
    }
    let guards = steps.iter().take(at).rev().take_while(|step| step.guards).count();
    at - guards
}
