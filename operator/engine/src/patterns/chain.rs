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
    list(run, &step_scope, steps).await?;
    Ok(PatternResult::newest(step_scope))
}

/// Runs every step in order. A decision can send the run back to an earlier step, whose next visit then begins.
pub(super) async fn list<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    steps: &'a [PlannedStep],
) -> Result<(), EarlyEnd> {
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        match steps::step(run, step_scope, step).await? {
            StepFlow::Continue => at += 1,
            StepFlow::Repeat(from) => at = from.unwrap_or(at),
            StepFlow::Refused(why) => return Err(EarlyEnd::Rejected(why)),
        }
    }
    Ok(())
}
