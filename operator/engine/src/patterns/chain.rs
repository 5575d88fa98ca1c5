//! `chain`: one step after the other.

use super::PatternResult;
use crate::{
    plan::PlannedStep,
    replay::{
        run::Run,
        scope::{RecordNamespace, StepScope},
    },
    steps::{self, EarlyEnd, StepFlow},
};

pub(super) async fn run<'a>(run: &Run<'a>, steps: &'a [PlannedStep]) -> Result<PatternResult<'a>, EarlyEnd> {
    let step_scope = StepScope::of("", RecordNamespace::Steps, steps);
    run_steps(run, &step_scope, steps).await?;
    Ok(PatternResult::from_newest_response(step_scope))
}

/// Runs every step in order. A decision can send the run back to an earlier step, whose next visit then begins.
pub(super) async fn run_steps<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    steps: &'a [PlannedStep],
) -> Result<(), EarlyEnd> {
    let mut position = 0;
    while let Some(step) = steps.get(position) {
        match steps::run_step(run, step_scope, step).await? {
            StepFlow::Continue => position += 1,
            StepFlow::Repeat(from) => position = from.unwrap_or(position),
            StepFlow::Refused(why) => return Err(EarlyEnd::Rejected(why)),
        }
    }
    Ok(())
}
