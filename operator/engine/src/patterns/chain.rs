//! `chain`: one step after the other.

use super::Done;
use crate::{
    activity::Run,
    plan::PlannedStep,
    scope::{Frame, Listed},
    steps::{self, Next, Stop},
};

pub(super) async fn run<'a>(run: &Run<'a>, steps: &'a [PlannedStep]) -> Result<Done<'a>, Stop> {
    let frame = Frame::of("", Listed::Steps, steps);
    list(run, &frame, steps).await?;
    Ok(Done::newest(frame))
}

/// Runs every step in order; a decision may send it back to an earlier one, whose next visit then begins.
pub(super) async fn list<'a>(run: &Run<'a>, frame: &Frame<'a>, steps: &'a [PlannedStep]) -> Result<(), Stop> {
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        match steps::step(run, frame, step).await? {
            Next::On => at += 1,
            Next::Again(from) => at = from.unwrap_or(at),
            Next::Refused(why) => return Err(Stop::Rejected(why)),
        }
    }
    Ok(())
}
