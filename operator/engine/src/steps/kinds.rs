//! The kinds of steps: the kind of the record, and the input of an attempt, for each kind. The calls are made by
//! `DefaultCaller` of the executor (`executor/src/calls.rs`).

use signoff_api::{Seq, journal::StepKind};

use super::{conversation, http, mcp, pod};
use crate::{
    plan::{Action, PlannedStep},
    replay::{
        activity::{ActivityKey, Start},
        run::{RenderError, Run},
        step_invocation::StepInvocation,
    },
};

/// Returns the kind of the records of a step.
pub(super) fn kind(step: &PlannedStep) -> StepKind {
    match step.action {
        Action::Agent(_) => StepKind::Agent,
        Action::Pod(_) => StepKind::Pod,
        Action::Http(_) => StepKind::Http,
        Action::Mcp(_) => StepKind::Mcp,
        Action::Set(_) => StepKind::Set,
        Action::Gate(_) => StepKind::Hitl,
    }
}

/// Returns the input of an attempt, rendered from the values as of `seq`.
pub(super) fn render_input<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    seq: Seq,
    key: &ActivityKey,
) -> Result<Start, RenderError> {
    run.origins.note_edits(&invocation.overrides.edits);
    match &invocation.step.action {
        Action::Agent(agent) => conversation::render_call(run, invocation, agent, seq, key),
        Action::Pod(pod) => pod::render_call(run, invocation, pod, seq, key),
        Action::Http(http) => http::render_call(run, invocation, http, seq, key),
        Action::Mcp(mcp) => mcp::render_call(run, invocation, mcp, seq, key),
        Action::Set(template) => match invocation.overrides.parameters.get("value") {
            Some(value) => Ok(Start::Immediate(value.clone())),
            None => Ok(Start::Immediate(template.render(&invocation.scope(run, seq)?)?)),
        },
        Action::Gate(_) => {
            Err(RenderError::Invalid("internal error; report this as a bug: a gate was started as a call".to_owned()))
        }
    }
}
