//! Calls that are refused without asking people: their results, and the records with the reasons.

use signoff_api::{
    FailureClass, RecordPath, Seq,
    journal::{StepError, StepKind, StepRecord},
};

use super::{
    ask::gate_of,
    equal::{EqualCalls, earlier_result},
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

/// Refuses a call if an equal call was made before and no gate asks. Returns the result for the model, or `None` if the
/// call is not refused. Waits until no equal call is in flight. The refusal is recorded, so that later calls do not
/// change it.
pub(super) async fn refuse_repeated<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    site: &ToolCallSite<'a>,
    check: &str,
    proposal: &Proposal,
    is_asked: bool,
) -> Result<Option<String>, EarlyEnd> {
    let Some(any) = EqualCalls::of_any_declaration(run, turn, site.tool, &site.path, proposal) else {
        return Ok(None);
    };
    let is_repeated =
        |record: &&StepRecord| record.error.as_ref().is_some_and(|error| error.is(FailureClass::Repeated));
    let recorded = run.state.borrow().journal.get(check, 1).filter(is_repeated).cloned();
    if let Some(recorded) = recorded {
        // The model already received this result, so the current policies do not matter.
        let why = recorded.error.map(|error| error.message).unwrap_or_default();
        return match any.last_made_before(run, recorded.seq) {
            Some(earlier) => earlier_result(run, &earlier).await.map(Some).map_err(EarlyEnd::Failed),
            None => Ok(Some(refusal_text(&why, site.attempts, site.edited.is_some()))),
        };
    }
    let Some(equal) = &proposal.equal else { return Ok(None) };
    if has_passed_check(run, site.tool, &site.path, site.attempts.next) {
        return Ok(None);
    }
    equal.wait_until_settled(run).await;
    if is_asked {
        return Ok(None);
    }
    let Some(earlier) = equal.last_made_before(run, next_seq(run)) else { return Ok(None) };
    let why = format!("an equal call was made before, at {}, and no gate asks whether it is made again", earlier.path);
    refuse(run, turn, check, FailureClass::Repeated, &why).await;
    earlier_result(run, &earlier).await.map(Some).map_err(EarlyEnd::Failed)
}

/// Returns the number of the next event of the journal.
pub(super) fn next_seq(run: &Run<'_>) -> Seq {
    run.state.borrow().journal.seq().next()
}

/// Returns the path of the record with the reason for the refusal of a call.
pub(super) fn check_of(path: &str) -> String {
    RecordPath::new(path).check().into()
}

/// Records the reason why the call at a position of a turn is refused, and returns the recorded reason.
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
pub(super) fn refusal_text(why: &str, attempts: Attempts, is_edited: bool) -> String {
    let edited = if is_edited { "A human changed the arguments, and the changed call was refused. " } else { "" };
    let before = match attempts.next {
        ..=1 => "",
        _ => "; an earlier attempt at this call was made, and whether it had an effect is not certain",
    };
    format!("{edited}Error: {why}{before}")
}

/// Whether a call has passed the check of its arguments: one of its gates, or this attempt of its step, has a record.
pub(super) fn has_passed_check(run: &Run<'_>, tool: &PlannedTool, path: &str, attempt: i32) -> bool {
    let (step, place) = (&tool.step, step_path(path, tool));
    let of_step = gate_before::own_gate(step, &place).into_iter().chain(gate_before::policy_gates(step, &place));
    let mut gates = [gate_of(path), escalation_of(path)].into_iter().chain(of_step.map(|(_, gate)| gate));
    let state = run.state.borrow();
    gates.any(|gate| state.journal.get(&run.next_visit(&gate), 1).is_some())
        || state.journal.get(&place, attempt).is_some()
}

/// Returns the recorded reason why a call was refused at its check, or `None`. If the evaluation of its arguments was
/// stopped, the stop is recorded first, so that every replay agrees. A call that continued after its check is not
/// stopped later.
pub(super) async fn recorded_refusal<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    check: &str,
    has_passed_check: impl Fn() -> bool,
) -> Option<String> {
    let (is_recorded, is_stopped) = {
        let state = run.state.borrow();
        // Every replay derives errors of the classes Repeated and Refused again from earlier calls and decisions.
        let is_derived = |error: &StepError| error.is(FailureClass::Repeated) || error.is(FailureClass::Refused);
        let recorded = state.journal.get(check, 1).filter(|record| !record.error.as_ref().is_some_and(is_derived));
        (recorded.is_some(), state.costly.contains_key(&(check.to_owned(), 1)))
    };
    if is_recorded || (is_stopped && !has_passed_check()) {
        return Some(refuse(run, turn, check, FailureClass::TooCostly, "they were stopped").await);
    }
    None
}

/// Records the reason why a call is refused before people are asked, and returns the recorded reason, because policies
/// can change later.
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
