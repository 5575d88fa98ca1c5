//! The consequence of a failed or unknown step: fail the run, continue, or escalate.
//!
//! Automatic repetitions come before, in `attempts.rs`. Here only people or a timeout repeat a step.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::json;
use signoff_api::{
    FailureClass, Outcome, RecordPath, Seq, Verdict,
    gate::TimeoutAction,
    journal::{StepError, StepKind, StepPhase},
    step::OnError,
    tool::Effects,
};

use super::{
    attempts::{is_repeated_by_people_only, may_have_effect},
    flow::EarlyEnd,
    gate::{self, verdict_or_end},
};
use crate::{
    plan::{Action, PlannedStep},
    replay::{
        run::Run,
        step_invocation::{Override, StepInvocation},
    },
    steps::{excerpt::Fields, request::ReviewSubject, sent},
};

/// The verdicts that repeat the step unchanged. A gate accepts only a limited number of such verdicts. Modify changes
/// the step, so the limit does not apply.
const ASKS_AGAIN: [Verdict; 3] = [Verdict::Retry, Verdict::Defer, Verdict::Respond];

/// A step that failed.
pub(super) struct StepFailure {
    pub(super) error: StepError,
    /// Whether a person rejected the answer of the step. A run that fails because of that ends its parallel branches.
    pub(super) by_a_person: bool,
}

impl StepFailure {
    pub(super) fn of(error: StepError) -> Self {
        Self { error, by_a_person: false }
    }
}

/// The consequence of a failure after which the run goes on.
pub(super) enum FailureAction {
    /// Repeat the step with changes of people, or unchanged if there are none.
    Again(Override),
    /// The step counts as skipped.
    Skip,
    /// The run continues, and its templates can read the failure.
    Continue,
    /// People gave the answer of a tool.
    Answer(String),
}

/// Returns the consequence of a failed or unknown step, after people decided if a gate asks about failures.
///
/// # Errors
/// The run ends: the step has no gate for failures and does not continue, or people gave the step up.
pub(super) async fn decide<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    path: &str,
    attempt: i32,
    failure: &StepFailure,
) -> Result<FailureAction, EarlyEnd> {
    let (step, step_scope) = (invocation.step, &invocation.step_scope);
    // A tool can be called often, so the path identifies the call.
    let name = if step.is_tool() { path } else { step.name.trim_start_matches('.') };
    let error = &failure.error;
    let record = run.state.borrow().journal.get(path, attempt).cloned();
    let failed = record.as_ref().and_then(|record| record.done).unwrap_or(Seq::END);
    let message = describe_error(run, invocation, error, failed);
    let by_itself = || match step.on_error {
        OnError::Continue => Ok(FailureAction::Continue),
        OnError::Fail | OnError::Escalate => {
            let why = format!("step {name}: {message}");
            Err(if failure.by_a_person { EarlyEnd::GivenUp(why) } else { EarlyEnd::Failed(why) })
        }
    };
    let is_unknown = record.as_ref().is_some_and(|record| record.phase == StepPhase::Unknown);
    let is_never_told = step.is_tool() && is_unknown;
    let unknown = || {
        EarlyEnd::Failed(format!(
            "step {name}: {}; the call must not be repeated, and no gate asks people about its outcome: add a gate of the type errorEscalation",
            error.message
        ))
    };
    let Some((_, asked)) = step.escalation.as_ref().filter(|_| is_unknown || !step.escalates_unknown_only) else {
        return if is_never_told { Err(unknown()) } else { by_itself() };
    };
    let code = record.as_ref().and_then(|r| r.facts.get("exitCode")).and_then(|code| code.parse::<i64>().ok());
    let log = record.as_ref().and_then(|r| r.log.as_ref()).map(|log| &log.tail);
    let shown = json!({
        "class": error.class, "message": error.message, "attempt": attempt, "exitCode": code, "log": log,
    });
    let value = shown.clone();
    let step_scope = step_scope.with_vars(move |_, _, _, scope| {
        scope.set("error", value.clone());
        Ok(())
    });
    let shown = ReviewSubject::of(path, &message);
    let shown = record.as_ref().map_or(shown.clone(), |record| shown.with_facts_of(record));
    let (sends, origins) = sent::of_attempt(run, invocation, path, attempt).await.unzip();
    let replaced = sends.as_ref().map_or_else(|| message.clone(), Fields::to_yaml);
    let shown = shown.sending(sends).made_of(origins.unwrap_or_default());
    let base = RecordPath::new(path).error();
    let by_people: &[Verdict] = match step.is_tool() {
        true => &[Verdict::Retry],
        false if record.as_ref().is_some_and(|record| is_repeated_by_people_only(step, record)) => &ASKS_AGAIN,
        false => &[],
    };
    let is_undecided = error.is(FailureClass::Condition);
    let asked = if is_undecided { Cow::Owned(without_running(asked)) } else { Cow::Borrowed(&**asked) };
    let decided = gate::decide_after(run, &step_scope, &asked, &base, &shown, (by_people, &ASKS_AGAIN)).await?;
    // The gate's condition did not hold, so it was not asked.
    if decided.was_not_asked() {
        return if is_never_told { Err(unknown()) } else { by_itself() };
    }
    if decided.verdict == Verdict::Reject {
        return Err(EarlyEnd::GivenUp(format!("step {name}: {message}; given up at {}", decided.describe(""))));
    }
    match verdict_or_end(run, &decided, &ASKS_AGAIN)? {
        Verdict::Skip => Ok(FailureAction::Skip),
        Verdict::Modify => {
            let parameters = decided.full_outcome(run).await?.parameters.unwrap_or_default();
            let edit = decided.edit_of(run, &replaced).await?;
            Ok(FailureAction::Again(Override::from_parameters(parameters, edit)))
        }
        // The agent that made the call receives the response, and decides what it calls next.
        Verdict::Respond if step.is_tool() => {
            Ok(FailureAction::Answer(decided.full_outcome(run).await?.response.unwrap_or_default()))
        }
        Verdict::Defer if step.is_tool() => Ok(FailureAction::Answer(not_now(&decided.full_outcome(run).await?))),
        // The text of a person reaches the agent with its next turn.
        _ => Ok(FailureAction::Again(Override::default())),
    }
}

/// Returns a gate that cannot run its step, neither by people nor by a deadline, because the step's condition cannot be
/// evaluated.
fn without_running(gate: &PlannedStep) -> PlannedStep {
    let runs_nothing = |v| matches!(v, Verdict::Skip | Verdict::Reject | Verdict::Abort | Verdict::Escalate);
    let gate = gate::with_verdicts(gate, runs_nothing);
    let Some(planned) = gate.gate() else { return gate };
    let mut planned = planned.clone();
    if let Some(timeout) = &mut planned.spec.timeout {
        timeout.action = timeout.action.map(|action| match action {
            TimeoutAction::Skip | TimeoutAction::Abort | TimeoutAction::Escalate | TimeoutAction::Reject => action,
            TimeoutAction::Approve | TimeoutAction::Retry | TimeoutAction::Default | TimeoutAction::Expire => {
                TimeoutAction::Reject
            }
        });
        timeout.default = None;
    }
    PlannedStep { action: Action::Gate(Box::new(planned)), ..gate }
}

/// Returns the error of a step for people. For an agent it names the calls with effects that the step made before it
/// failed. `failed` is the number of the event of the failure.
fn describe_error(run: &Run<'_>, invocation: &StepInvocation<'_>, error: &StepError, failed: Seq) -> String {
    let mut made: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let state = run.state.borrow();
    let is_idempotent = |path: &str| run.plan.step_of(path).is_none_or(PlannedStep::is_idempotent);
    for record in state.journal.under(&format!("{}/", invocation.base)) {
        let step = RecordPath::new(&record.path).last().name();
        let mut tools = run.plan.tools.tools.values();
        let tool = tools.find(|tool| tool.step.name == step && tool.effects() != Effects::Read);
        // The step of a tool of a server has the name of the tool.
        let of_server = || (record.kind == StepKind::Mcp && !is_idempotent(&record.path)).then_some(step);
        if let Some(tool) = tool.map(|tool| tool.name.as_str()).or_else(of_server)
            && record.seq < failed
            && matches!(record.kind, StepKind::Http | StepKind::Mcp | StepKind::Pod)
            && may_have_effect(record)
        {
            made.entry(tool).or_default().insert(&record.path);
        }
    }
    if made.is_empty() {
        return error.message.clone();
    }
    let calls = made.into_iter().map(|(tool, calls)| match calls.len() {
        1 => tool.to_owned(),
        times => format!("{tool} ({times} times)"),
    });
    format!("{}; before that, its agent called {}", error.message, calls.collect::<Vec<_>>().join(", "))
}

/// Returns the result of a call after a Defer.
pub(super) fn not_now(outcome: &Outcome) -> String {
    format!("Not now. Try another approach: {}", outcome.guidance.as_deref().unwrap_or_default())
}
