//! Calls that people rejected or edited before: an equal call of a rejected one is refused without asking. A tool with
//! too many rejected calls, or a call with too many edits, is escalated.

use signoff_api::{
    Digest, FailureClass, RecordPath, Seq, Verdict,
    approval::{AskingGate, Source},
    gate::GateType,
    journal::StepRecord,
    turn::turn_of,
};
use signoff_expr::text;

use super::{
    ask::{decide_once, defer_result, gate_of, reason, response_result, skip_result},
    merge,
    proposal::step_path,
    refusal::refuse,
    shown,
    site::{Answered, FACT_ARGUMENTS, FACT_INPUT, Proposal, ToolCallSite, TurnSite},
};
use crate::{
    plan::{CallGate, PlannedTool},
    replay::{
        run::{RenderError, Run},
        scope,
    },
    steps::{flow::EarlyEnd, gate::verdict_or_end, request::FACT_TOOL},
    tools::arguments::Arguments,
};

/// The number of rejected calls of a tool in a run after which the next call is escalated.
const MOST_REJECTED: usize = 3;
/// The number of edits of equal calls after which the next equal call is escalated.
const MOST_EDITED: usize = 2;
/// The path of the escalation below a call.
const ESCALATION: &str = ".error";

/// Returns the result of a call that people rejected before with the same arguments.
pub(super) fn earlier_rejection(run: &Run<'_>, seen: Seq, tool: &str, arguments: &Arguments) -> Option<String> {
    let digest = arguments.digest().to_string();
    let mut rejections = decisions_about(run, seen, tool, Verdict::Reject);
    let rejection = rejections.find(|record| record.facts.get(FACT_ARGUMENTS) == Some(&digest))?;
    let outcome = rejection.decision.clone().unwrap_or_default();
    if outcome.source == Source::Timeout {
        return Some("Already refused: no human decided about this call before the deadline".to_owned());
    }
    Some(format!("Already refused by a human: {}", text::display(reason(&outcome), 1000)))
}

/// Returns the decisions with a verdict about calls of a tool, as of a number of the journal.
fn decisions_about<'r>(
    run: &'r Run<'_>,
    seen: Seq,
    tool: &'r str,
    verdict: Verdict,
) -> impl Iterator<Item = &'r StepRecord> {
    let decided = run.call_history().decided_before(seen, verdict);
    decided.filter(move |record| record.facts.get(FACT_TOOL).is_some_and(|name| name == tool))
}

/// Returns the reason why a call is escalated: calls of the tool were rejected too often, or equal calls were edited
/// too often. The counts begin after the last Retry by people at the gate about failures. `at` is the position of the
/// call in its turn.
fn escalation_reason(
    run: &Run<'_>,
    turn: &TurnSite<'_, '_>,
    at: usize,
    tool: &PlannedTool,
    proposal: &Proposal,
) -> Option<String> {
    let last = last_retry(run, turn.seen, tool);
    let rejected =
        decisions_about(run, turn.seen, &tool.name, Verdict::Reject).filter(|record| record.done > last).count();
    if rejected >= MOST_REJECTED {
        return Some(format!("calls of {} were rejected {rejected} times in this run", tool.name));
    }
    let (arguments, input) = (proposal.arguments.digest().to_string(), proposal.input.as_ref().map(Digest::to_string));
    let edits = run.call_history().decided_before(Seq::END, Verdict::Modify).filter(|record| {
        let fact = |name: &str| record.facts.get(name);
        let has_same_arguments = fact(FACT_TOOL) == Some(&tool.name) && fact(FACT_ARGUMENTS) == Some(&arguments);
        // Calls with the same arguments are performed one after the other in a turn, so the decisions about the earlier
        // ones are recorded.
        let number = turn_of(&record.path).filter(|(path, _)| *path == turn.path).map(|(_, number)| number);
        let is_earlier = number.is_some_and(|number| usize::try_from(number).is_ok_and(|number| number <= at));
        let runs_same_step = || {
            fact(FACT_TOOL).is_some_and(|name| {
                // The step of a tool of a server has the name of the tool.
                let other = run.plan.tools.tools.get(name);
                other.map_or(*name == tool.step.name, |other| other.step.name == tool.step.name)
            })
        };
        let is_equal = || input.is_some() && fact(FACT_INPUT) == input.as_ref() && runs_same_step();
        let is_known = match record.done.is_some_and(|done| done < turn.seen) {
            true => has_same_arguments || is_equal(),
            false => has_same_arguments && is_earlier,
        };
        is_known && record.done > last
    });
    let edited = edits.count();
    let why = || format!("people changed the arguments of this call of {} {edited} times in this run", tool.name);
    (edited >= MOST_EDITED).then(why)
}

/// Returns the number of the last Retry by people at the gate about failures of a tool.
fn last_retry(run: &Run<'_>, seen: Seq, tool: &PlannedTool) -> Option<Seq> {
    let by_people = |r: &&StepRecord| {
        let (name, _) = scope::parts(&r.path);
        name == ESCALATION && r.decision.as_ref().is_some_and(|outcome| outcome.source != Source::Timeout)
    };
    let retried = decisions_about(run, seen, &tool.name, Verdict::Retry).filter(by_people);
    retried.filter_map(|record| record.done).max()
}

/// Returns the path of the records of the escalation of a call.
pub(super) fn escalation_of(path: &str) -> String {
    RecordPath::new(path).error().into()
}

/// Asks people at the gate about failures of a tool whether its gates ask again, after too many rejections or edits.
/// The request needs the quorums of every gate that may have rejected a call. Returns the result of the call, or `None`
/// if its gates ask.
pub(super) async fn escalate<'a>(
    run: &Run<'a>,
    turn: &TurnSite<'_, 'a>,
    at: usize,
    (site, check): (&ToolCallSite<'a>, &str),
    proposal: &Proposal,
) -> Result<Option<Answered>, EarlyEnd> {
    let tool = site.tool;
    let Some(refused) = escalation_reason(run, turn, at, tool, proposal) else { return Ok(None) };
    let has_record = |path: &str| run.state.borrow().journal.get(path, 1).is_some();
    // The call has already continued, so later decisions about other calls do not matter.
    let is_asked = has_record(&gate_of(&site.path)) || has_record(&step_path(&site.path, tool));
    if is_asked && !has_record(&escalation_of(&site.path)) {
        return Ok(None);
    }
    let result = |text: String| Ok(Some(Answered::Result(text)));
    let Some((_, gate)) = &tool.step.escalation else {
        let refused = refuse(run, turn, check, FailureClass::Refused, &refused).await;
        return result(format!("Refused: {refused}; do not call it again"));
    };
    let facts = tool.facts();
    let base = escalation_of(&site.path);
    let may_have_rejected: Vec<&CallGate> =
        run.plan.tools.gates.iter().filter(|gate| gate.reason(tool, &facts).is_some()).collect();
    // Whether the quorums fit into one request depends on the current policies. A request that cannot be created is
    // recorded as failed, and a created request stays.
    let (step, fits) = match merge::build_escalation_gate(gate, &may_have_rejected) {
        Ok(step) => (step, Ok(())),
        Err(why) => ((**gate).clone(), Err(why)),
    };
    let asking = AskingGate {
        name: step.name.clone(),
        type_: GateType::ErrorEscalation,
        source: None,
        because: refused.clone(),
    };
    let subject = |seq| {
        fits.clone().map_err(RenderError::Invalid)?;
        Ok(Some(shown::escalation_review(run, turn, at, site, proposal, asking.clone(), seq)?))
    };
    let error = serde_json::json!({"class": FailureClass::Rejected.name(), "message": refused, "attempt": 1, "exitCode": null, "log": null});
    let scope = site.scope.with_vars(move |_, _, _, scope| {
        scope.set("error", error.clone());
        Ok(())
    });
    loop {
        let (decided, outcome) = match decide_once(run, &scope, &step, &base, &subject).await? {
            Ok(decided) => decided,
            Err(not_asked) => return Ok(Some(not_asked)),
        };
        if decided.was_not_asked() {
            return result(format!("Refused: {refused}; do not call it again"));
        }
        match decided.verdict {
            Verdict::Reject => {
                return Err(EarlyEnd::GivenUp(format!("{refused}; given up at {}", decided.describe(""))));
            }
            Verdict::Respond => return Ok(Some(response_result(outcome.response.as_deref()))),
            Verdict::Defer => return Ok(Some(defer_result(&outcome))),
            Verdict::Skip => return Ok(Some(skip_result(&outcome))),
            // A Retry by a timeout does not let the gates ask again.
            Verdict::Retry if outcome.source != Source::Timeout => return Ok(None),
            _ => drop(verdict_or_end(run, &decided, &[Verdict::Retry])?),
        }
    }
}
