//! The start of an attempt: its conditions, its rendered input, and the comparison of the input with the approved one.

use signoff_api::{Digest, FailureClass, Seq};

use super::kinds::render_input;
use crate::{
    plan::PlannedStep,
    replay::{
        activity::{ActivityKey, Start, error, input_digest},
        run::{RenderError, Run},
        scope::{self, StepScope},
        step_invocation::StepInvocation,
    },
    transition::{Call, CallContent, McpRequest},
};

/// The result of the conditions of a step.
enum Conditions {
    Hold,
    Skip,
    /// A condition cannot be evaluated, for this reason.
    Undecided(String),
}

/// Opens an attempt at a step, unless the step's conditions skip it or cannot be evaluated. The conditions are
/// evaluated when an attempt begins, with the values that the first attempt saw. An attempt with a record is opened
/// without its conditions.
pub(super) fn open_attempt<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    seq: Seq,
    key: &ActivityKey,
    open: impl FnOnce() -> Result<Start, RenderError>,
) -> Result<Start, RenderError> {
    if key.path != invocation.base || has_begun(run, key) {
        return open();
    }
    let seen = invocation.visible_before(run, seq);
    match evaluate_conditions(run, &invocation.step_scope, invocation.step, seen)? {
        Conditions::Hold => open(),
        Conditions::Skip => Ok(Start::Skipped),
        Conditions::Undecided(why) => Ok(Start::Failed(error(FailureClass::Condition, &why))),
    }
}

/// Opens a gate, unless its conditions skip it. A gate whose condition cannot be evaluated asks.
pub(super) fn open_gate<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    gate: &PlannedStep,
    seq: Seq,
    key: &ActivityKey,
    open: impl FnOnce() -> Result<Start, RenderError>,
) -> Result<Start, RenderError> {
    let is_skipped =
        !has_begun(run, key) && matches!(evaluate_conditions(run, step_scope, gate, seq)?, Conditions::Skip);
    if is_skipped { Ok(Start::Skipped) } else { open() }
}

fn has_begun(run: &Run<'_>, key: &ActivityKey) -> bool {
    run.state.borrow().journal.get(&key.path, key.attempt).is_some()
}

/// Renders the input of an attempt, and checks that it is the input that people approved.
///
/// # Errors
/// The input cannot be rendered, or it differs from the approved one.
pub(super) fn open<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    seq: Seq,
    key: &ActivityKey,
) -> Result<Start, RenderError> {
    let opening = render_input(run, invocation, seq, key)?;
    let is_permitted = |input: Result<&Digest, &String>| match &invocation.permission {
        Some(cleared) => cleared.allows(invocation.step, input),
        None => !invocation.step.is_tool(),
    };
    let changed = || {
        let why = "what would run is not what was approved: the Workflow, or the operator, has changed since";
        RenderError::Invalid(why.to_owned())
    };
    let Start::Call(call) = &opening else {
        let is_call = invocation.step.is_tool() && matches!(opening, Start::Immediate(_));
        return if is_call && !is_permitted(Err(&String::new())) { Err(changed()) } else { Ok(opening) };
    };
    let input = input_digest(call);
    let approved = match &invocation.approved {
        Some(approved) => input.as_ref() == Ok(approved),
        None => invocation.step.policy_gates.is_empty(),
    };
    if !(approved && is_permitted(input.as_ref())) {
        return Err(changed());
    }
    match reason_not_sent(invocation, call) {
        Some(why) => Ok(Start::Failed(error(FailureClass::NotAllowed, &why))),
        None => Ok(opening),
    }
}

/// Returns the reason why a call is not sent: no gate asked about it, and it calls a tool of a server that may change
/// something and whose definition is not pinned.
fn reason_not_sent(invocation: &StepInvocation<'_>, call: &Call) -> Option<String> {
    let CallContent::Mcp(mcp) = &call.content else { return None };
    let McpRequest::Call(tool) = &mcp.request else { return None };
    let was_asked = invocation.permission.as_ref().is_some_and(|permission| permission.was_asked());
    let may_run = !tool.needs_people || was_asked || invocation.approved.is_some();
    (!may_run).then(|| {
        format!(
            "{}.{} may change something, its definition is not pinned, and no gate asks about it, so it was not called: add a gate \
             of the type toolExecution, or pin it with `signoff tools --pin`",
            mcp.server, tool.tool
        )
    })
}

/// Evaluates the conditions of a step with the values as of `seq`.
fn evaluate_conditions<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    seq: Seq,
) -> Result<Conditions, RenderError> {
    if step.skip_if.is_none() && step.only_if.is_none() {
        return Ok(Conditions::Hold);
    }
    let scope = match scope::of_conditions(run, step_scope, step, seq) {
        Err(RenderError::Missing) => return Err(RenderError::Missing),
        Err(RenderError::Language(why)) => return Ok(Conditions::Undecided(why.to_string())),
        Err(RenderError::Invalid(why)) => return Ok(Conditions::Undecided(why)),
        Ok(scope) => scope,
    };
    for (condition, skips) in [(&step.skip_if, true), (&step.only_if, false)] {
        match condition.as_ref().map(|condition| condition.evaluate(&scope)) {
            Some(Err(why)) => return Ok(Conditions::Undecided(why.to_string())),
            Some(Ok(holds)) if holds == skips => return Ok(Conditions::Skip),
            Some(Ok(_)) | None => {}
        }
    }
    Ok(Conditions::Hold)
}
