//! A gate: its request, its decision, and the meaning of each verdict for a list of steps.
//!
//! Votes are counted and deadlines are compared with a clock in the reconcile of the Approval, not here.

use std::{borrow::Cow, future::poll_fn, task::Poll, time::Duration};

use signoff_api::{
    Digest, Moment, Outcome, RecordPath, Seq, Verdict,
    approval::{Edit, Source},
    journal::{StepKind, StepPhase, StepRecord},
};
use signoff_expr::text;

use super::{
    flow::{EarlyEnd, StepFlow},
    opening::open_gate,
};

use crate::{
    gate::subject::GateSubject,
    plan::{Action, PlannedGate, PlannedStep},
    replay::{
        activity::{ActivityKey, Start},
        run::{RenderError, Run},
        scope::{self, StepScope, editors},
    },
    steps::{
        exclusions,
        request::{self, RequestContent, RequestIdentity, ReviewSubject},
    },
};

/// The maximum number of times that a gate asks again, by people or by a timeout.
const MOST_AGAIN: usize = 3;
/// The maximum number of requests of gates of calls and questions of a run that are open at once.
const MOST_ASKED: usize = 8;
/// The minimum timeout of a gate that asks again because votes were voided, unless its own timeout is shorter.
const LEAST_AGAIN: Duration = Duration::from_secs(3600);
/// The verdicts by which a gate of a list asks again.
const ASKS_AGAIN: [Verdict; 2] = [Verdict::Defer, Verdict::Retry];

/// A function that returns the subject of a gate, as of a number of the journal.
pub(crate) type SubjectAt<'f> = &'f dyn Fn(Seq) -> Result<Option<ReviewSubject>, RenderError>;

/// A decided gate.
#[derive(Clone, Debug)]
pub(crate) struct DecidedGate {
    /// Approve if the gate was not asked.
    pub(crate) verdict: Verdict,
    /// The gate's name, for people.
    pub(crate) gate: String,
    pub(crate) record: StepRecord,
}

impl DecidedGate {
    /// Whether the gate was not asked, because its condition did not hold.
    pub(crate) fn was_not_asked(&self) -> bool {
        self.record.decision.is_none()
    }

    /// Whether a timeout decided the gate.
    pub(crate) fn is_by_timeout(&self) -> bool {
        self.record.decision.as_ref().is_some_and(|outcome| outcome.source == Source::Timeout)
    }

    /// Renders the decision as one sentence for people, which ends with `more`.
    pub(crate) fn describe(&self, more: &str) -> String {
        let none = Outcome::default();
        let outcome = self.record.decision.as_ref().unwrap_or(&none);
        let who = match (outcome.source, outcome.decided_by.is_empty()) {
            (Source::Timeout, _) => "no decision before the deadline".to_owned(),
            (source, true) => source.name().to_owned(),
            (_, false) => {
                let names: Vec<_> = outcome.decided_by.iter().map(|n| text::display(n, 80)).collect();
                format!("decided by {}", names.join(", "))
            }
        };
        let why = outcome.reason.as_ref().map(|r| format!(": {}", text::display(r, 400))).unwrap_or_default();
        format!("gate {}: {}, {who}{why}{more}", self.gate, self.verdict)
    }

    /// Returns the edit in which this decision replaced a text.
    pub(crate) async fn edit_of(&self, run: &Run<'_>, replaced: &str) -> Result<Edit, EarlyEnd> {
        let outcome = self.full_outcome(run).await?;
        Ok(editors::edit_by_gate(&self.record, &outcome, &self.gate, Digest::of_bytes(replaced.as_bytes())))
    }

    /// Returns the decision with the long texts that are stored as blobs.
    pub(crate) async fn full_outcome(&self, run: &Run<'_>) -> Result<Outcome, EarlyEnd> {
        run.render(|| scope::decision(run, &self.record)).await.map_err(EarlyEnd::Failed)
    }
}

/// Asks at a gate until it is decided. A superseded request is created again, as the next visit.
pub(crate) async fn decide<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    base: &str,
    shown: SubjectAt<'_>,
) -> Result<DecidedGate, EarlyEnd> {
    loop {
        wait_until_askable(run, base).await;
        let (path, visit) = run.visit(base);
        let key = ActivityKey { path, attempt: 1, kind: StepKind::Hitl };
        let open =
            |seq| open_gate(run, step_scope, step, seq, &key, || ask(run, step_scope, step, visit, seq, &key, shown));
        let record = run.activity(step_scope, key.clone(), open).await;
        if record.phase == StepPhase::Failed {
            let why = record.error.as_ref().map_or("it failed", |e| e.message.as_str());
            return Err(EarlyEnd::Failed(format!("gate {}: {why}", step.name)));
        }
        let verdict = match &record.decision {
            None => Some(Verdict::Approve),
            Some(outcome) => outcome.verdict,
        };
        if let Some(verdict) = verdict {
            return Ok(DecidedGate { verdict, gate: step.name.clone(), record });
        }
    }
}

/// Asks at a gate after a step. `by_people` are the verdicts that only people can give there, because the step would
/// run again; a deadline with one of them asks people again. `again` are the verdicts by which the gate asks again.
pub(super) async fn decide_after<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    gate: &PlannedStep,
    base: &str,
    shown: &ReviewSubject,
    (by_people, again): (&[Verdict], &[Verdict]),
) -> Result<DecidedGate, EarlyEnd> {
    loop {
        let gate = without_spent_verdicts(run, gate, base, again);
        let decided = decide(run, step_scope, &gate, base, &|_| Ok(Some(shown.clone()))).await?;
        if !decided.is_by_timeout() || !by_people.contains(&decided.verdict) {
            return Ok(decided);
        }
        verdict_or_end(run, &decided, again)?;
    }
}

/// Returns the gate. Once people have given the verdicts `again` [`MOST_AGAIN`] times, the gate no longer allows them.
fn without_spent_verdicts<'g>(
    run: &Run<'_>,
    gate: &'g PlannedStep,
    base: &str,
    again: &[Verdict],
) -> Cow<'g, PlannedStep> {
    let asked = run.state.borrow().journal.get(&run.next_visit(base), 1).map(|record| record.seq);
    let times = count_asked_again(run, RecordPath::new(base), Source::Human, asked, again);
    if times < MOST_AGAIN {
        Cow::Borrowed(gate)
    } else {
        Cow::Owned(with_verdicts(gate, |verdict| !again.contains(&verdict)))
    }
}

/// Returns a gate with only the verdicts for which `keep` holds. If only Escalate is left, which ends no gate, Reject
/// and Abort are added.
pub(super) fn with_verdicts(gate: &PlannedStep, keep: impl Fn(Verdict) -> bool) -> PlannedStep {
    let Some(planned) = gate.gate() else { return gate.clone() };
    let mut planned = planned.clone();
    planned.allowed.retain(|verdict| keep(*verdict));
    if planned.allowed.iter().all(|verdict| *verdict == Verdict::Escalate) {
        planned.allowed.extend([Verdict::Reject, Verdict::Abort]);
    }
    if !planned.allowed.contains(&Verdict::Respond) {
        (planned.form, planned.spec.form) = (None, None);
    }
    PlannedStep { action: Action::Gate(Box::new(planned)), ..gate.clone() }
}

/// Waits before a gate of a call or a question until the run has fewer than [`MOST_ASKED`] open gates of that kind.
async fn wait_until_askable(run: &Run<'_>, base: &str) {
    let is_of_call = |path: &str| RecordPath::new(path).is_in_call();
    if !is_of_call(base) {
        return;
    }
    let next = run.next_visit(base);
    poll_fn(|_| {
        let state = run.state.borrow();
        let waits = |r: &&StepRecord| r.kind == StepKind::Hitl && !r.phase.is_end() && is_of_call(&r.path);
        let is_begun = state.journal.get(&next, 1).is_some();
        if is_begun || state.journal.records().iter().filter(waits).count() < MOST_ASKED {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Returns the start of a gate: its request, or that the gate is blocked or skipped. A recorded request keeps its
/// deadline and its guard epoch.
fn ask<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    visit: i32,
    seq: Seq,
    key: &ActivityKey,
    shown: SubjectAt<'_>,
) -> Result<Start, RenderError> {
    let Some(gate) = step.gate() else { return Err(RenderError::Invalid(format!("{} is not a gate", step.name))) };
    if let Some(why) = &gate.blocked {
        return Ok(Start::Blocked(why.clone()));
    }
    let recorded = run.state.borrow().journal.get(&key.path, 1).map(|record| (record.at, record.request.clone()));
    let (began, request) = recorded.unwrap_or((run.now.at, None));
    let deadline = request.as_ref().map_or_else(|| deadline(run, &key.path, gate.after), |request| request.deadline);
    let facts = RequestIdentity {
        name: &step.name,
        path: &key.path,
        visit,
        left: time_left(run, &key.path, began, deadline),
        deadline,
        guard_epoch: request.map_or_else(|| run.now.guard_epoch.clone(), |request| request.guard_epoch),
    };
    let reviewed = match shown(seq) {
        // The step fails for the same reason when it starts, in a record of its own.
        Err(RenderError::Language(_) | RenderError::Invalid(_)) if matches!(gate.subject, GateSubject::Start(_)) => {
            return Ok(Start::Skipped);
        }
        shown => shown?,
    };
    let (texts, origins) =
        run.origins.collect(|| request::render_texts(run, step_scope, step, gate, seq, reviewed.as_ref()));
    let texts = match texts {
        Err(RenderError::Missing) => return Err(RenderError::Missing),
        texts => texts,
    };
    let origins = reviewed.iter().fold(origins, |origins, subject| origins.and(&subject.origins));
    let (edits, cut) = editors::edits_of_origins(run, origins)?;
    let exclusions = exclusions::find_exclusions(run, step, gate, &edits, (&key.path, seq))?;
    match (exclusions::exclusion_error(step, gate, &exclusions), &gate.subject) {
        // The agent receives the reason.
        (Some(why), GateSubject::Call(_)) => return Err(RenderError::Invalid(why.message)),
        (Some(why), _) => return Ok(Start::Blocked(why)),
        (None, _) => {}
    }
    let content = RequestContent { texts: texts?.with_cut(&cut), reviewed, edits, exclusions };
    request::ask(run, step, gate, &facts, content).map(|ask| Start::Gate(Box::new(ask)))
}

/// Returns the time from the beginning of a request to its deadline in whole seconds, if the request keeps the rest of
/// a timeout after votes were voided.
fn time_left(run: &Run<'_>, path: &str, began: Moment, deadline: Moment) -> Option<Duration> {
    let state = run.state.borrow();
    let earlier = state.journal.superseded_before(path).and_then(|earlier| earlier.decision.as_ref());
    earlier.filter(|earlier| earlier.voids_votes()).map(|_| {
        let left = deadline.since(began);
        Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0))
    })
}

/// Returns the deadline of a gate that asks now. After voided votes the gate keeps the rest of its timeout, within the
/// maximum timeout since its first request. The rest is at least [`LEAST_AGAIN`], so that people can decide in time.
fn deadline(run: &Run<'_>, path: &str, after: Duration) -> Moment {
    let now = run.now.at;
    let state = run.state.borrow();
    let voids = |earlier: &&StepRecord| earlier.decision.as_ref().is_some_and(Outcome::voids_votes);
    let voided_before = |path: &str| state.journal.superseded_before(path).filter(voids);
    let Some(last) = voided_before(path) else { return now.after(after).ceil_to_second() };
    let was_due = last.request.as_ref().map_or(now, |request| request.deadline);
    let ended = last.decision.as_ref().and_then(|outcome| outcome.decided_at).unwrap_or(now);
    let mut first = last;
    while let Some(earlier) = voided_before(&first.path) {
        first = earlier;
    }
    let longest = first.at.after(run.now.max_gate_timeout).since(now);
    let left = was_due.since(ended).min(longest).clamp(LEAST_AGAIN.min(after), after);
    now.after(left).ceil_to_second()
}

/// Returns the step that a gate of a list reviews, as of `seq`.
pub(super) fn reviewed_step<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    gate: &PlannedGate,
    seq: Seq,
) -> Result<Option<ReviewSubject>, RenderError> {
    let Some(step) = gate.reviews().and_then(|position| step_scope.step(position)) else { return Ok(None) };
    let seen = step_scope.newest_records(run, seq);
    let Some(reviewed) = seen.iter().find(|seen| seen.step.name == step.name) else { return Ok(None) };
    let (response, origins) = run.origins.collect(|| scope::response_text(run, step_scope, reviewed, seq));
    let subject = ReviewSubject::of(&reviewed.record.path, &response?);
    Ok(Some(subject.with_facts_of(&reviewed.record).made_of(origins)))
}

/// Returns the step at which the list continues after a gate.
pub(super) fn next_step(
    run: &Run<'_>,
    step: &PlannedStep,
    gate: &PlannedGate,
    decided: &DecidedGate,
) -> Result<StepFlow, EarlyEnd> {
    match decided.verdict {
        Verdict::Reject if gate.stops_on_reject => Ok(StepFlow::Refused(decided.describe(""))),
        Verdict::Reject => Ok(StepFlow::Continue),
        _ => Ok(match verdict_or_end(run, decided, &ASKS_AGAIN)? {
            Verdict::Defer => StepFlow::Repeat(gate.reviews().filter(|_| step.added_by.is_none())),
            Verdict::Retry => StepFlow::Repeat(None),
            Verdict::Approve | Verdict::Modify | Verdict::Respond | Verdict::Skip => StepFlow::Continue,
            verdict @ (Verdict::Reject | Verdict::Abort | Verdict::Escalate) => {
                return Err(EarlyEnd::Failed(format!(
                    "internal error; report this as a bug: a gate was decided with {verdict}"
                )));
            }
        }),
    }
}

/// Returns how often the gate at a path asked again, optionally before a number of the journal. People and deadlines
/// are counted separately, so that deadlines do not use up the number for people.
fn count_asked_again(
    run: &Run<'_>,
    own: RecordPath<'_>,
    source: Source,
    before: Option<Seq>,
    asks_again: &[Verdict],
) -> usize {
    let again = |r: &&StepRecord| {
        let verdict = r.decision.as_ref().filter(|decision| decision.source == source).and_then(|d| d.verdict);
        r.kind == StepKind::Hitl
            && before.is_none_or(|before| r.done.is_some_and(|done| done < before))
            && verdict.is_some_and(|verdict| asks_again.contains(&verdict))
            && RecordPath::new(&r.path).without_last_visit() == own
    };
    run.state.borrow().journal.records().iter().filter(again).count()
}

/// Returns how often a gate asked again before a decision, counting only the decision's source: people or deadlines.
fn times_asked_again(run: &Run<'_>, decided: &DecidedGate, again: &[Verdict]) -> usize {
    let own = RecordPath::new(&decided.record.path).without_last_visit();
    let source = decided.record.decision.as_ref().map_or(Source::Human, |outcome| outcome.source);
    count_asked_again(run, own, source, decided.record.done, again)
}

/// Asks at a gate before or after a step until the gate lets the run continue, and returns the decision. Returns `None`
/// for a step that is not a gate.
pub(crate) async fn pass<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &'a PlannedStep,
    base: &str,
    shown: SubjectAt<'_>,
) -> Result<Option<DecidedGate>, EarlyEnd> {
    let Some(gate) = step.gate() else { return Ok(None) };
    loop {
        let decided = decide(run, step_scope, step, base, shown).await?;
        match next_step(run, step, gate, &decided)? {
            StepFlow::Continue => return Ok(Some(decided)),
            StepFlow::Repeat(_) => {}
            StepFlow::Refused(why) => return Err(EarlyEnd::Rejected(why)),
        }
    }
}

/// Handles the verdicts that end a run, and enforces the limit of asking again. `again` are the verdicts after which
/// this gate asks again.
pub(crate) fn verdict_or_end(run: &Run<'_>, decided: &DecidedGate, again: &[Verdict]) -> Result<Verdict, EarlyEnd> {
    match decided.verdict {
        Verdict::Abort => Err(EarlyEnd::Aborted(decided.describe(""))),
        Verdict::Reject => Err(EarlyEnd::Rejected(decided.describe(""))),
        verdict if again.contains(&verdict) && times_asked_again(run, decided, again) >= MOST_AGAIN => {
            Err(EarlyEnd::Rejected(decided.describe(&format!(", and it has asked again {MOST_AGAIN} times already"))))
        }
        verdict => Ok(verdict),
    }
}
