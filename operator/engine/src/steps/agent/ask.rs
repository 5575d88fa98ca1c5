//! Asks people about a call, or asks them a question of an agent, and maps each verdict to the result for the agent.
//!
//! `gating.rs` decides whether a gate asks.

use serde_json::json;
use signoff_api::{
    Outcome, RecordPath, Seq, Verdict,
    approval::{ARGUMENTS, Source},
};
use signoff_expr::text;

use super::{
    equal::earlier_result,
    gating::{Gating, group_key},
    merge,
    proposal::step_path,
    rejected::earlier_rejection,
    shown,
    site::{Answered, FACT_GATES, FACT_STOPS, Proposal, ToolCallSite, TurnSite, cut},
};
use crate::{
    plan::PlannedStep,
    replay::{
        origins::Origins,
        run::{RenderError, Run},
        scope::{RecordNamespace, StepScope, editors},
    },
    steps::{
        failure::not_now,
        flow::EarlyEnd,
        gate::{DecidedGate, SubjectAt, decide, verdict_or_end},
    },
    tools::{arguments::Arguments, question::AgentQuestions},
};

/// The result of a call of which people did not approve another attempt before the deadline.
pub(super) const NOT_APPROVED_AGAIN: &str = "Error: no human approved another attempt at this call before the deadline; whether the last one had an effect is not certain";

/// The decision of people about a call.
pub(super) enum CallDecision {
    Approved,
    Answered(Answered),
    /// People gave other arguments, with this decision.
    Edited(Arguments, Box<Outcome>),
}

/// Asks every gate that asks about a call, until all gates have approved the call. `editors` are the people who changed
/// its arguments.
pub(super) async fn ask<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    at: usize,
    site: &ToolCallSite<'a>,
    proposal: &Proposal,
    gating: &mut Gating<'a>,
    editors: &[String],
) -> Result<CallDecision, EarlyEnd> {
    let base = gate_of(&site.path);
    while let Some(group) = gating.next_group(recorded_gates(run, &base).as_deref()) {
        let step = merge::merge_gates(&group, editors).map_err(EarlyEnd::Failed)?;
        let subject = |seq| {
            merge::check_excluded(&step).map_err(RenderError::Invalid)?;
            let facts = vec![(FACT_GATES, group_key(&group)), (FACT_STOPS, stops_on_reject(&step).to_string())];
            let subject = shown::call_review(run, turn, at, site, proposal, &group, seq)?.with_facts(facts);
            let mut origins = Origins::default();
            editors::edits_of_call(run, &site.path, seq)?.into_iter().for_each(|edit| origins.add_edit(edit));
            Ok(Some(subject.made_of(origins)))
        };
        let (decided, outcome) = match decide_once(run, &site.scope, &step, &base, &subject).await? {
            Ok(decided) => decided,
            Err(not_asked) => return Ok(CallDecision::Answered(not_asked)),
        };
        let equal_made_before =
            |decided: &DecidedGate| proposal.equal.as_ref()?.last_made_before(run, decided.record.seq);
        match decided.verdict {
            Verdict::Approve if site.attempts.next > 1 && outcome.source == Source::Timeout => {
                return Ok(CallDecision::Answered(Answered::Result(NOT_APPROVED_AGAIN.to_owned())));
            }
            Verdict::Approve
                if outcome.source == Source::Timeout
                    && let Some(earlier) = equal_made_before(&decided) =>
            {
                // The approval of a deadline does not cover a repetition.
                let result = earlier_result(run, &earlier).await.map_err(EarlyEnd::Failed)?;
                return Ok(CallDecision::Answered(Answered::Result(result)));
            }
            Verdict::Approve
                if let Some(equal) = &proposal.equal
                    && equal.is_outdated(run, decided.record.seq, next_event(run, site, &base)).await =>
            {
                gating.ask_again();
            }
            Verdict::Approve => {
                let recorded = decided.record.facts.get(FACT_GATES).map(String::as_str);
                gating.approve(&group, decided.record.input_digest.as_ref(), recorded);
            }
            Verdict::Modify => {
                let edited = outcome.parameters.as_ref().and_then(|p| p.0.get(ARGUMENTS));
                let edited = edited.ok_or_else(|| "the decision has no arguments".to_owned());
                match edited.and_then(Arguments::edited) {
                    Ok(edited) => return Ok(CallDecision::Edited(edited, Box::new(outcome))),
                    // Such a vote does not count, so only an earlier version of the operator can have counted it.
                    Err(why) => return Ok(CallDecision::Answered(unusable_result(&why))),
                }
            }
            Verdict::Respond => return Ok(CallDecision::Answered(response_result(outcome.response.as_deref()))),
            _ => {
                if let Some(answered) = result_of_verdict(run, &step, &decided, &outcome)? {
                    return Ok(CallDecision::Answered(answered));
                }
            }
        }
    }
    Ok(CallDecision::Approved)
}

/// Returns the number of the event that followed a decision about a call: the start of the next request or of the
/// tool's step. Returns `None` if no event followed.
fn next_event(run: &Run<'_>, site: &ToolCallSite<'_>, base: &str) -> Option<Seq> {
    let state = run.state.borrow();
    let next = state.journal.get(&run.next_visit(base), 1);
    let step = state.journal.get(&step_path(&site.path, site.tool), site.attempts.next);
    next.into_iter().chain(step).map(|record| record.seq).min()
}

/// Asks people a question of an agent. The answer approves nothing.
pub(super) async fn ask_people<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    path: &str,
    tool: &str,
    arguments: &Arguments,
) -> Result<Answered, EarlyEnd> {
    let questions = match AgentQuestions::read(tool, arguments) {
        Ok(questions) => questions,
        Err(why) => return Ok(Answered::Result(format!("Error: the question cannot be asked: {why}"))),
    };
    let Some(step) = &run.plan.tools.question else {
        return Ok(Answered::Result("Error: no human can be asked in this run".to_owned()));
    };
    if let Some(why) = earlier_rejection(run, turn.seen, tool, arguments) {
        return Ok(Answered::Result(why));
    }
    let agent = turn.agent.to_owned();
    let scope = StepScope::of("", RecordNamespace::Nothing, []).with_vars(move |_, _, _, scope| {
        scope.set("agent", json!(agent));
        Ok(())
    });
    let subject = |_| {
        let facts = vec![(FACT_STOPS, stops_on_reject(step).to_string())];
        Ok(Some(shown::question_review(turn, path, tool, arguments, &questions).with_facts(facts)))
    };
    loop {
        let (decided, outcome) = match decide_once(run, &scope, step, &gate_of(path), &subject).await? {
            Ok(decided) => decided,
            Err(not_asked) => return Ok(not_asked),
        };
        if decided.verdict == Verdict::Respond {
            return Ok(response_result(Some(&questions.answer(&outcome.answers.unwrap_or_default()))));
        }
        if let Some(answered) = result_of_verdict(run, step, &decided, &outcome)? {
            return Ok(answered);
        }
    }
}

fn stops_on_reject(step: &PlannedStep) -> bool {
    step.gate().is_none_or(|gate| gate.stops_on_reject)
}

/// Returns the recorded gates of the next request at `base`, or `None`.
fn recorded_gates(run: &Run<'_>, base: &str) -> Option<String> {
    run.state.borrow().journal.get(&run.next_visit(base), 1)?.facts.get(FACT_GATES).cloned()
}

/// Returns the path of the records of the gates before a call.
pub(super) fn gate_of(path: &str) -> String {
    RecordPath::new(path).gate().into()
}

/// Asks at a gate of a call once. `base` is the path of the gate's records. The inner error is the result of a call for
/// which no request can be created; the call does not run.
pub(super) async fn decide_once<'a>(
    run: &Run<'a>,
    scope: &StepScope<'a>,
    step: &PlannedStep,
    base: &str,
    subject: SubjectAt<'_>,
) -> Result<Result<(DecidedGate, Outcome), Answered>, EarlyEnd> {
    let decided = match decide(run, scope, step, base, subject).await {
        Err(EarlyEnd::Failed(why)) => {
            // Without the name of the gate: the gate that asks for a group depends on the current policies.
            let named = format!("gate {}: ", step.name);
            return Ok(Err(not_asked_result(why.strip_prefix(&named).unwrap_or(&why))));
        }
        decided => decided?,
    };
    let outcome = decided.full_outcome(run).await?;
    Ok(Ok((decided, outcome)))
}

/// Returns the result of a call that does not run because of a verdict, or `None` if a timeout asks the gate again.
fn result_of_verdict(
    run: &Run<'_>,
    step: &PlannedStep,
    decided: &DecidedGate,
    outcome: &Outcome,
) -> Result<Option<Answered>, EarlyEnd> {
    // The rule that was shown to people applies, even if policies changed later.
    let recorded = decided.record.facts.get(FACT_STOPS).map(|stops| stops == "true");
    let stops = recorded.unwrap_or_else(|| stops_on_reject(step));
    Ok(match decided.verdict {
        Verdict::Reject if !stops => Some(Answered::OfAllEqual(reject_result(outcome))),
        Verdict::Skip => Some(skip_result(outcome)),
        Verdict::Defer => Some(defer_result(outcome)),
        _ => match verdict_or_end(run, decided, &[Verdict::Retry])? {
            Verdict::Retry => None,
            _ => return Err(EarlyEnd::Failed(decided.describe(": it has no meaning at this gate"))),
        },
    })
}

pub(super) fn defer_result(outcome: &Outcome) -> Answered {
    Answered::Result(not_now(outcome))
}

pub(super) fn skip_result(outcome: &Outcome) -> Answered {
    let by = match outcome.source {
        Source::Timeout => "Skipped: no human decided before the deadline",
        _ => "Skipped by a human",
    };
    Answered::Result(by.to_owned())
}

pub(super) fn response_result(text: Option<&str>) -> Answered {
    Answered::Result(cut(text.unwrap_or_default()))
}

pub(super) fn not_asked_result(why: &str) -> Answered {
    Answered::Result(format!("Error: people cannot be asked about this: {}", text::display(why, 1000)))
}

fn unusable_result(why: &str) -> Answered {
    Answered::Result(format!("Error: a human gave other arguments, which cannot be used: {}", text::display(why, 1000)))
}

fn reject_result(outcome: &Outcome) -> String {
    match outcome.source {
        Source::Timeout => "Denied: no human decided before the deadline".to_owned(),
        _ => format!("Denied by a human: {}", reason(outcome)),
    }
}

/// Returns the reason that the agent is told after a Reject.
pub(super) fn reason(outcome: &Outcome) -> &str {
    let reason = outcome.reason.as_deref().filter(|reason| !reason.trim().is_empty());
    reason.unwrap_or("no reason was given")
}
