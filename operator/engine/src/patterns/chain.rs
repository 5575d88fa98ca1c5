//! `chain`: one step after the other.

use crate::{
    activity::Run,
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
                visits.iter_mut().take(at + 1).skip(from).for_each(|visit| *visit += 1);
                at = from;
            }
        }
    }
    Ok(())
}
