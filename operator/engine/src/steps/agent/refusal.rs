//! Calls that are not made without people being asked: what they are told, and the record that says why.

use signoff_api::{
    FailureClass, RecordPath, Seq,
    journal::{StepError, StepKind, StepRecord},
};

use super::{
    ask::gate_of,
    equal::{EqualCalls, not_again},
    proposal::step_path,
    rejected::escalation_of,
    site::{Proposal, ToolCallSite, TurnSite},
};
use crate::{
    plan::PlannedTool,
    replay::{
        activity::{ActivityKey, Start, error},
        run::Run,
    },
    steps::{attempts::Attempts, flow::EarlyEnd, gate_before},
};

/// Returns the result of a call that is not made, because an equal one was made before and no gate asks; else `None`.
/// It waits until no equal call is in flight. What it comes to is recorded, so that later calls change nothing of it.
pub(super) async fn not_made_again<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    site: &ToolCallSite<'a>,
    check: &str,
    proposal: &Proposal,
    is_asked: bool,
) -> Result<Option<String>, EarlyEnd> {
    let Some(any) = EqualCalls::whatever_is_declared(run, turn, site.tool, &site.path, proposal) else {
        return Ok(None);
    };
    let is_repeated =
        |record: &&StepRecord| record.error.as_ref().is_some_and(|error| error.is(FailureClass::Repeated));
    let recorded = run.state.borrow().journal.get(check, 1).filter(is_repeated).cloned();
    if let Some(recorded) = recorded {
        // The model was told so, whatever policies say now.
        let why = recorded.error.map(|error| error.message).unwrap_or_default();
        return match any.made_before(run, recorded.seq) {
            Some(earlier) => not_again(run, &earlier).await.map(Some).map_err(EarlyEnd::Failed),
            None => Ok(Some(refused(&why, site.attempts, site.edited.is_some()))),
        };
    }
    let Some(equal) = &proposal.equal else { return Ok(None) };
    if was_checked(run, site.tool, &site.path, site.attempts.next) {
        return Ok(None);
    }
    equal.settled(run).await;
    if is_asked {
        return Ok(None);
    }
    let Some(earlier) = equal.made_before(run, next_seq(run)) else { return Ok(None) };
    let why = format!("an equal call was made before, at {}, and no gate asks whether it is made again", earlier.path);
    refuse(run, turn, check, FailureClass::Repeated, &why).await;
    not_again(run, &earlier).await.map(Some).map_err(EarlyEnd::Failed)
}

/// The number of the next event of the journal.
pub(super) fn next_seq(run: &Run<'_>) -> Seq {
    run.state.borrow().journal.seq().next()
}

/// Returns the path of the record with the reason for the refusal of a call.
pub(super) fn check_of(path: &str) -> String {
    RecordPath::new(path).check().into()
}

/// Records why the call at a place of a turn is refused, and returns what is recorded.
pub(super) async fn refuse_call<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    at: usize,
    class: FailureClass,
    why: &str,
) -> String {
    let (check, _) = run.visit(&check_of(&RecordPath::new(&turn.path).call_at(at)));
    refuse(run, turn, &check, class, why).await
}

/// Returns the result of a call that is refused before people are asked about it.
pub(super) fn refused(why: &str, attempts: Attempts, is_edited: bool) -> String {
    let edited = if is_edited { "A human changed the arguments, and the changed call was refused. " } else { "" };
    let before = match attempts.next {
        ..=1 => "",
        _ => "; an earlier attempt at this call was made, and whether it had an effect is not certain",
    };
    format!("{edited}Error: {why}{before}")
}

/// Whether a call has gone on after this check of its arguments: a gate in front of it or its step has a record
/// already.
pub(super) fn was_checked(run: &Run<'_>, tool: &PlannedTool, path: &str, attempt: i32) -> bool {
    let (step, place) = (&tool.step, step_path(path, tool));
    let of_step = gate_before::own_gate(step, &place).into_iter().chain(gate_before::policy_gates(step, &place));
    let mut gates = [gate_of(path), escalation_of(path)].into_iter().chain(of_step.map(|(_, gate)| gate));
    let state = run.state.borrow();
    gates.any(|gate| state.journal.get(&run.next_visit(&gate), 1).is_some())
        || state.journal.get(&place, attempt).is_some()
}

/// Returns why a call was refused when it was checked, or why its arguments are not evaluated, if an earlier evaluation
/// of them was stopped. The stop is recorded, so that every replay agrees. A call that went on after this check is not
/// stopped later.
pub(super) async fn refused_at_check<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    check: &str,
    was_checked: impl Fn() -> bool,
) -> Option<String> {
    let (is_recorded, is_stopped) = {
        let state = run.state.borrow();
        // What these two classes say is found again from what people decided and what was made before.
        let is_found_again = |error: &StepError| error.is(FailureClass::Repeated) || error.is(FailureClass::Refused);
        let recorded = state.journal.get(check, 1).filter(|record| !record.error.as_ref().is_some_and(is_found_again));
        (recorded.is_some(), state.costly.contains_key(&(check.to_owned(), 1)))
    };
    if is_recorded || (is_stopped && !was_checked()) {
        return Some(refuse(run, turn, check, FailureClass::TooCostly, "they were stopped").await);
    }
    None
}

/// Records why a call is refused before people are asked about it, and returns what is recorded: policies can change
/// later.
pub(super) async fn refuse<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    check: &str,
    class: FailureClass,
    why: &str,
) -> String {
    let key = ActivityKey { path: check.to_owned(), attempt: 1, kind: StepKind::Condition };
    let opened = |_| Ok(Start::Failed(error(class, why)));
    let record = run.activity(&turn.invocation.step_scope, key, opened).await;
    match record.error {
        Some(error) if error.is(FailureClass::TooCostly) => {
            format!("the arguments cost too much to check: {}", error.message)
        }
        Some(error) => error.message,
        None => "the arguments cost too much to check: they were stopped".to_owned(),
    }
}
