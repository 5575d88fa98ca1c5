//! The gates before a step: the author's gate and the gates of policies. Each shows exactly the call that runs.
//!
//! All gates show the same rendering of the call. It is rendered as of the first request, and only a Modify by a person
//! changes it. After a change every gate of a policy asks again.

use std::{borrow::Cow, collections::VecDeque};

use signoff_api::{RecordPath, Seq, Verdict};

use super::{
    flow::EarlyEnd,
    gate::{self, verdict_or_end},
    kinds::render_input,
    opening::open_attempt,
};
use crate::{
    plan::{Action, PlannedStep},
    replay::{
        activity::{ActivityKey, Start, input_digest},
        origins::Origins,
        run::{RenderError, Run},
        step_invocation::{Override, StepInvocation},
    },
    steps::{request::ReviewSubject, sent},
};

/// A gate before a step, and the path of its records.
pub(super) type GateBefore<'a> = (&'a PlannedStep, String);

/// Returns the gates that policies put before a step that runs at `base`.
pub(super) fn policy_gates<'a>(step: &'a PlannedStep, base: &str) -> Vec<GateBefore<'a>> {
    let path = |gate: &PlannedStep| {
        // The gates of a step with several simultaneous runs are below each run.
        let own = RecordPath::new(&gate.path).beneath(&step.path);
        own.map(|own| RecordPath::new(base).child(own.as_str()).into()).unwrap_or_else(|| gate.path.clone())
    };
    step.policy_gates.iter().map(|gate| (gate, path(gate))).collect()
}

/// Returns the gate that the author of the Workflow put before a step that runs at `path`.
pub(super) fn own_gate<'a>(step: &'a PlannedStep, path: &str) -> Option<GateBefore<'a>> {
    step.start.as_deref().map(|gate| (gate, RecordPath::new(path).start().into()))
}

/// Asks at `gates`, one after the other, until all of them have approved the same call. Adds the changes of people and
/// the approved digest to `invocation`.
///
/// `retries` is the number of further attempts that the approval covers. Returns whether the step may run: not if
/// people skipped it, or if no person decided about a call that was made before.
pub(super) async fn ask<'a>(
    run: &Run<'a>,
    invocation: &mut StepInvocation<'a>,
    key: &ActivityKey,
    gates: Vec<GateBefore<'a>>,
    retries: i32,
) -> Result<bool, EarlyEnd> {
    if gates.is_empty() {
        return Ok(true);
    }
    (invocation.approved, invocation.last_asked) = (None, None);
    let of_policies = || gates.iter().filter(|(gate, _)| gate.added_by.is_some()).cloned();
    let (mut was_skipped, mut was_decided) = (false, false);
    let mut queue: VecDeque<GateBefore<'a>> = gates.iter().cloned().collect();
    while let Some((gate, path)) = queue.pop_front() {
        let decided = {
            let subject = |seq| render_subject(run, invocation, seq, key, retries);
            let editors = invocation.permission.as_ref().map_or(&[][..], |permission| permission.editors());
            let asked = excluding_editors(gate, editors);
            gate::decide(run, &invocation.step_scope, &asked, &path, &subject).await?
        };
        invocation.first_asked.get_or_insert(decided.record.seq);
        invocation.last_asked.get_or_insert(decided.record.seq);
        let by_people = !decided.was_not_asked() && !decided.is_by_timeout();
        match verdict_or_end(run, &decided, &[Verdict::Retry])? {
            Verdict::Retry => queue.push_front((gate, path)),
            Verdict::Skip => return Ok(false),
            Verdict::Modify => {
                let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
                let seq = decided.record.seq;
                let replaced = run
                    .render(|| render_subject(run, invocation, seq, key, retries))
                    .await
                    .map_err(EarlyEnd::Failed)?;
                let edit = decided.edit_of(run, &replaced.map(|subject| subject.text).unwrap_or_default()).await?;
                invocation.overrides.merge(Override::from_parameters(parameters, edit));
                (invocation.approved, was_decided) = (None, false);
                queue = of_policies().collect();
            }
            _ => match decided.record.input_digest {
                Some(_) if was_made_since_asked(run, invocation, &gates, key, &decided).await => {
                    (invocation.approved, was_decided) = (None, false);
                    queue = gates.iter().cloned().collect();
                }
                // Another version of the operator renders the call in another way, so the gates would approve different
                // calls.
                digest @ Some(_) if invocation.approved.is_some() && invocation.approved != digest => {
                    (invocation.approved, was_decided) = (None, false);
                    queue = gates.iter().cloned().collect();
                }
                digest @ Some(_) => {
                    was_decided |= by_people;
                    invocation.approved = digest;
                }
                // There is nothing to show: the step is skipped, or fails.
                None => was_skipped = true,
            },
        }
    }
    if was_skipped {
        invocation.approved = None;
    }
    let needs_people = invocation.permission.as_ref().is_some_and(|permission| permission.needs_people());
    Ok(was_decided || !needs_people)
}

/// Whether a call equal to the step was made since a gate asked. `key` is the attempt that follows all gates.
async fn was_made_since_asked<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    gates: &[GateBefore<'a>],
    key: &ActivityKey,
    decided: &gate::DecidedGate,
) -> bool {
    let followed = {
        let state = run.state.borrow();
        let next = gates.iter().filter_map(|(_, path)| state.journal.get(&run.next_visit(path), 1));
        let all = next.chain(state.journal.get(&key.path, key.attempt)).map(|record| record.seq);
        all.filter(|seq| Some(*seq) > decided.record.done).min()
    };
    invocation.was_made_since(run, decided.record.seq, followed).await
}

/// Returns a gate that excludes the people who gave the arguments of a call.
fn excluding_editors<'g>(gate: &'g PlannedStep, editors: &[String]) -> Cow<'g, PlannedStep> {
    let (false, Some(asked)) = (editors.is_empty(), gate.gate()) else { return Cow::Borrowed(gate) };
    let mut asked = asked.clone();
    asked.spec.excluded.extend(editors.iter().cloned());
    asked.spec.excluded.sort();
    asked.spec.excluded.dedup();
    Cow::Owned(PlannedStep { action: Action::Gate(Box::new(asked)), ..gate.clone() })
}

/// Returns the call as people review it, with the digest that an approval binds. Returns `None` for a step that sends
/// no call.
fn render_subject<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    seq: Seq,
    key: &ActivityKey,
    retries: i32,
) -> Result<Option<ReviewSubject>, RenderError> {
    let mut origins = Origins::default();
    let render = || {
        let (start, read) = run.origins.collect(|| render_input(run, invocation, seq, key));
        origins = read;
        start
    };
    let call = match open_attempt(run, invocation, seq, key, render)? {
        Start::Call(call) => call,
        Start::Skipped => return Err(RenderError::Invalid("the step is skipped".to_owned())),
        Start::Failed(error) => return Err(RenderError::Invalid(error.message)),
        _ => return Ok(None),
    };
    let digest = input_digest(&call).map_err(RenderError::Invalid)?;
    let subject = ReviewSubject::bound(&key.path, &attempts_covered(retries), &sent::of_call(&call)?, digest);
    Ok(Some(subject.made_of(origins)))
}

/// Returns the first line of the request: the number of attempts that the approval covers.
fn attempts_covered(retries: i32) -> String {
    match retries {
        0 => "attempts: 1".to_owned(),
        more => format!("attempts: {} # at most, all the same; another one only after a known failure", more + 1),
    }
}
