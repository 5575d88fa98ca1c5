//! A `hitl` step: the question that is asked, and what each verdict means for the list.
//!
//! It never counts votes and never compares a clock with a deadline: that is the Approval's own business.

use signoff_api::{
    Verdict,
    approval::GateType,
    journal::{StepKind, StepPhase, StepRecord},
};

use super::{Next, Stop};
use crate::{
    activity::{Opening, Place, Run, Trouble},
    language::text,
    plan::{PlannedGate, PlannedStep},
    request::{self, Facts},
    scope,
};

/// How often a gate asks again, whether by Retry, by Defer or by a timeout that retries.
const ASKS_AGAIN: usize = 3;

/// The Approval of a gate, from the values known at `seq`.
pub(super) fn ask(
    run: &Run<'_>,
    step: &PlannedStep,
    gate: &PlannedGate,
    visit: i32,
    seq: i64,
    place: &Place,
) -> Result<Opening, Trouble> {
    if let Some(why) = &gate.held {
        return Ok(Opening::Held(why.clone()));
    }
    let asked = run.books.borrow().journal.get(&place.path, 1).and_then(|r| r.request.clone());
    let facts = Facts {
        gate: GateType::Step,
        name: &step.name,
        path: &place.path,
        visit,
        seq,
        deadline: asked.as_ref().map_or_else(|| run.now.at.after(gate.after).ceil_to_second(), |asked| asked.deadline),
        guard_epoch: asked.map_or_else(|| run.now.guard_epoch.clone(), |asked| asked.guard_epoch),
    };
    request::ask(run, step, gate, &facts).map(|ask| Opening::Gate(Box::new(ask)))
}

/// What became of a gate means for its list.
pub(super) fn judge(
    run: &Run<'_>,
    step: &PlannedStep,
    gate: &PlannedGate,
    at: usize,
    record: &StepRecord,
) -> Result<Next, Stop> {
    if record.phase == StepPhase::Failed {
        let why = record.error.as_ref().map_or("it failed", |e| e.message.as_str());
        return Err(Stop::Failed(format!("gate {}: {why}", step.name)));
    }
    let Some(outcome) = &record.decision else { return Ok(Next::On) };
    // Nobody decided: it was superseded, or cancelled and then not.
    let Some(verdict) = outcome.verdict else { return Ok(Next::Again(at)) };
    let who = match (outcome.source, outcome.decided_by.is_empty()) {
        (signoff_api::approval::Source::Timeout, _) => "nobody decided in time".to_owned(),
        (source, true) => source.name().to_owned(),
        (_, false) => {
            let names: Vec<_> = outcome.decided_by.iter().map(|n| text::display(n, 80)).collect();
            format!("decided by {}", names.join(", "))
        }
    };
    let why = outcome.reason.as_ref().map(|r| format!(": {}", text::display(r, 400))).unwrap_or_default();
    let told = |verdict: Verdict, more: &str| format!("gate {}: {verdict}, {who}{why}{more}", step.name);
    match verdict {
        Verdict::Approve | Verdict::Modify | Verdict::Respond | Verdict::Skip | Verdict::Escalate => Ok(Next::On),
        Verdict::Reject if gate.stops_on_reject => Err(Stop::Rejected(told(verdict, ""))),
        Verdict::Reject => Ok(Next::On),
        Verdict::Abort => Err(Stop::Aborted(told(verdict, ""))),
        Verdict::Defer | Verdict::Retry if asked_again(run, step, record) >= ASKS_AGAIN => {
            Err(Stop::Rejected(told(verdict, &format!(", and it has asked again {ASKS_AGAIN} times already"))))
        }
        Verdict::Defer => Ok(Next::Again(gate.reviews.unwrap_or(at))),
        Verdict::Retry => Ok(Next::Again(at)),
    }
}

/// How often this gate had asked again before this record.
fn asked_again(run: &Run<'_>, step: &PlannedStep, record: &StepRecord) -> usize {
    let again = |r: &&StepRecord| {
        let verdict = r.decision.as_ref().and_then(|d| d.verdict);
        r.kind == StepKind::Hitl
            && r.done < record.done
            && scope::parts(&r.path).0 == step.name
            && matches!(verdict, Some(Verdict::Defer | Verdict::Retry))
    };
    run.books.borrow().journal.records().iter().filter(again).count()
}
