//! People are asked about a call, or asked a question; and what each verdict gives the agent as the result.
//!
//! Whether a gate asks is decided in `gating.rs`.

use std::{future::poll_fn, task::Poll};

use serde_json::{Value, json};
use signoff_api::{
    Digest, Verdict,
    approval::{SiblingCall, Source},
    journal::{StepKind, StepRecord},
};
use signoff_expr::text;

use super::{
    gating::Gating,
    merge, shown,
    site::{Answered, FACT_TOOL, ToolCallSite, TurnSite, cut},
};
use crate::{
    plan::PlannedStep,
    replay::{
        run::Run,
        scope::{RecordNamespace, StepScope},
    },
    steps::{DecidedGate, EarlyEnd, gate::decide, verdict_or_end},
    tools::{arguments::Arguments, question::Asked},
};

/// The most calls of a run that wait for people at once.
const MOST_ASKED: usize = 8;

/// What people did about a call.
pub(super) enum PeopleSaid {
    Approved,
    Answered(Answered),
    Edited(Arguments, Vec<String>),
}

/// Asks every gate that asks about a call, until all of them have approved it.
pub(super) async fn ask<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    at: usize,
    site: &ToolCallSite<'a>,
    gating: &mut Gating<'a>,
    (arguments, target, action): (&Arguments, &str, &Digest),
    authors: &[String],
) -> Result<PeopleSaid, EarlyEnd> {
    while let Some(group) = gating.next() {
        let step = match merge::merged(group, authors) {
            Ok(step) => step,
            Err(why) => return Ok(PeopleSaid::Answered(Answered::Result(not_asked(&why)))),
        };
        let subject =
            shown::call(run, site, turn.agent, &turn.says, others(turn, at), arguments, target, action, group);
        let base = format!("{}/.gate", site.path);
        room_to_ask(run, &base).await;
        let decided = match decide(run, &site.scope, &step, &base, &|_| Ok(Some(subject.clone()))).await {
            // The request cannot be made from these arguments: people are not asked, so nothing runs.
            Err(EarlyEnd::Failed(why)) => {
                return Ok(PeopleSaid::Answered(Answered::Result(not_asked(&why))));
            }
            decided => decided?,
        };
        let outcome = decided.full_outcome(run).await?;
        let because =
            |none: &str| outcome.reason.clone().filter(|r| !r.trim().is_empty()).unwrap_or_else(|| none.to_owned());
        match decided.verdict {
            Verdict::Approve => {
                gating.approve(decided.record.input_digest.as_ref());
            }
            Verdict::Modify => {
                let edited = outcome.parameters.as_ref().and_then(|p| p.0.get("arguments")).and_then(Value::as_object);
                let edited = edited.ok_or_else(|| "the decision has no arguments".to_owned());
                match edited.and_then(|fields| Arguments::of(fields.clone())) {
                    Ok(edited) => return Ok(PeopleSaid::Edited(edited, outcome.decided_by)),
                    Err(why) => return Err(EarlyEnd::Failed(decided.describe(&format!(": {why}")))),
                }
            }
            Verdict::Reject if !stops(&step) => {
                return Ok(PeopleSaid::Answered(Answered::Rejected(denied(&outcome, &because))));
            }
            Verdict::Respond => {
                return Ok(PeopleSaid::Answered(Answered::Result(cut(&outcome.response.unwrap_or_default()))));
            }
            Verdict::Defer => {
                let guidance = outcome.guidance.unwrap_or_default();
                return Ok(PeopleSaid::Answered(Answered::Result(format!(
                    "Not now. Try another approach: {guidance}"
                ))));
            }
            Verdict::Skip => return Ok(PeopleSaid::Answered(Answered::Result("Skipped by a human".to_owned()))),
            // A timeout asks again; everything else ends the run.
            _ => {
                verdict_or_end(run, &decided, &[Verdict::Retry])?;
            }
        }
    }
    Ok(PeopleSaid::Approved)
}

fn not_asked(why: &str) -> String {
    format!("Error: people cannot be asked about this: {}", text::display(why, 1000))
}

fn denied(outcome: &signoff_api::Outcome, because: &dyn Fn(&str) -> String) -> String {
    match outcome.source {
        Source::Timeout => "Denied: no human decided before the deadline".to_owned(),
        _ => format!("Denied by a human: {}", because("no reason was given")),
    }
}

fn stops(step: &PlannedStep) -> bool {
    step.gate().is_none_or(|gate| gate.stops_on_reject)
}

/// Asks people a question of an agent. The answer approves nothing.
pub(super) async fn ask_people<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    path: &str,
    tool: &str,
    arguments: &Arguments,
) -> Result<Answered, EarlyEnd> {
    let asked = match Asked::read(tool, arguments) {
        Ok(asked) => asked,
        Err(why) => return Ok(Answered::Result(format!("Error: the question cannot be asked: {why}"))),
    };
    let Some(step) = &run.plan.tools.question else {
        return Ok(Answered::Result("Error: no human can be asked in this run".to_owned()));
    };
    let agent = turn.agent.to_owned();
    let scope = StepScope::of("", RecordNamespace::Nothing, []).with_vars(move |_, _, _, scope| {
        scope.set("agent", json!(agent));
        Ok(())
    });
    let subject = shown::question(turn.agent, &turn.says, path, tool, arguments, &asked);
    let base = format!("{path}/.gate");
    loop {
        room_to_ask(run, &base).await;
        let decided: DecidedGate = match decide(run, &scope, step, &base, &|_| Ok(Some(subject.clone()))).await {
            Err(EarlyEnd::Failed(why)) => return Ok(Answered::Result(not_asked(&why))),
            decided => decided?,
        };
        let outcome = decided.full_outcome(run).await?;
        match decided.verdict {
            Verdict::Respond => {
                let answers = outcome.answers.unwrap_or_default();
                return Ok(Answered::Result(cut(&asked.answer(&answers))));
            }
            Verdict::Skip => return Ok(Answered::Result("Skipped by a human".to_owned())),
            Verdict::Reject if !stops(step) => {
                let because = |none: &str| outcome.reason.clone().unwrap_or_else(|| none.to_owned());
                return Ok(Answered::Result(denied(&outcome, &because)));
            }
            _ => {
                verdict_or_end(run, &decided, &[Verdict::Retry])?;
            }
        }
    }
}

/// Waits until fewer calls of the run than may are waiting for people.
async fn room_to_ask(run: &Run<'_>, base: &str) {
    let next = run.next_visit(base);
    poll_fn(|_| {
        let state = run.state.borrow();
        let waits = |r: &&StepRecord| r.kind == StepKind::Hitl && !r.phase.is_end() && r.facts.contains_key(FACT_TOOL);
        let is_begun = state.journal.get(&next, 1).is_some();
        if is_begun || state.journal.records().iter().filter(waits).count() < MOST_ASKED {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn others(turn: &TurnSite<'_, '_>, at: usize) -> Vec<SiblingCall> {
    turn.siblings.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, call)| call.clone()).collect()
}
