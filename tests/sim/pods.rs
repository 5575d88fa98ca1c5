//! Steps that are Pods, on a node in memory: each container runs once whatever fails around it, and its end is reported
//! as it was, or as unknown. A real kubelet runs the containers of `tests/pods`.

mod crashes;
mod endings;
mod failures;
mod queue;
mod tool;

use serde_json::Value;
use signoff_tests::sim::EffectKey;

use crate::{ending::list, harness::Harness, scenarios::RUN};

/// Returns the record of an attempt at a step.
pub fn record(harness: &Harness, path: &str, attempt: i64) -> Value {
    let workflow = harness.workflow(RUN);
    let found = list(&workflow["status"]["steps"]).find(|step| step["path"] == path && step["attempt"] == attempt);
    found.cloned().unwrap_or_default()
}

/// Returns how often the container of an attempt began.
pub fn starts(harness: &Harness, path: &str, attempt: u32) -> usize {
    let key = EffectKey::new(format!("{RUN}/{path}"), attempt);
    harness.world.effects().iter().filter(|effect| effect.key == key).count()
}
