//! Equal calls of a run: a call that was made before is made again only if people approve it.
//!
//! Calls are equal if they run the same step with the same input, whatever tool and arguments the model named. In a
//! later turn of the same conversation the model has the earlier result, so an equal call is treated like any other,
//! except for tools that are declared irreversible.
//!
//! **Invariant:** the search reads only the journal before a given number, so that every replay finds the same calls.

use std::{collections::BTreeSet, future::poll_fn, rc::Rc, task::Poll};

use signoff_api::{Digest, RecordPath, Seq, approval::Action as ReviewedAction, journal::StepRecord, tool::Effects};
use signoff_expr::text;

use super::site::{Proposal, TurnSite, cut};
use crate::{
    plan::{Action, PlannedTool},
    replay::run::{RenderError, Run},
    steps::attempts::may_have_effect,
};

/// The maximum length of an earlier result in a request, in characters.
const SHOWN: usize = 100;

/// The key by which equal calls of a run are found.
#[derive(Clone, Debug)]
pub(super) struct EqualCalls {
    /// The name of the step that runs.
    step: String,
    /// The digest of its input.
    input: Digest,
    /// The path of the call itself.
    own: String,
    /// The paths of the calls whose results the model already received. Such calls do not count as made before.
    told: Rc<BTreeSet<String>>,
}

impl EqualCalls {
    /// Returns `None` for a call that can be made again: it only reads, its step is declared `repeatable` and no policy
    /// asks about it, or it runs an agent, whose own calls are compared one by one.
    pub(super) fn of(
        run: &Run<'_>,
        turn: &TurnSite<'_, '_>,
        tool: &PlannedTool,
        path: &str,
        proposal: &Proposal,
    ) -> Option<Self> {
        // Several tools can run one step: the step is repeatable only if all tools declare it.
        let mut tools = run.plan.tools.tools.values().filter(|other| other.step.name == tool.step.name);
        if tool.is_repeatable() && tools.all(PlannedTool::is_repeatable) {
            return None;
        }
        Self::of_any_declaration(run, turn, tool, path, proposal)
    }

    /// Returns the key also for a tool that is declared `repeatable`. Returns `None` for a call that only reads or that
    /// runs an agent.
    pub(super) fn of_any_declaration(
        run: &Run<'_>,
        turn: &TurnSite<'_, '_>,
        tool: &PlannedTool,
        path: &str,
        proposal: &Proposal,
    ) -> Option<Self> {
        let changes = match &tool.step.action {
            Action::Agent(_) => false,
            Action::Set(_) => tool.effects() != Effects::Read,
            Action::Mcp(_) => {
                let is_for_policies = tool.step.has_policy_call_gate || !tool.step.policy_gates.is_empty();
                tool.effects() != Effects::Read || is_for_policies
            }
            _ => proposal.facts.changes(),
        };
        let input = proposal.input.clone().filter(|_| changes)?;
        // Several tools can run one step: the strictest declaration applies.
        let tools = run.plan.tools.tools.values().filter(|other| other.step.name == tool.step.name);
        let is_irreversible = std::iter::once(tool).chain(tools).any(|one| one.effects == Some(Effects::Irreversible));
        let told = if is_irreversible { Rc::default() } else { Rc::clone(&turn.told) };
        Some(Self { step: tool.step.name.clone(), input, own: format!("{path}/"), told })
    }

    /// Whether an equal call is in flight.
    pub(super) fn is_in_flight(&self, run: &Run<'_>) -> bool {
        let state = run.state.borrow();
        let keys = run.call_history().equal_calls(&self.step, &self.input);
        let mut records = keys.iter().filter_map(|(path, attempt)| state.journal.get(path, *attempt));
        records.any(|record| self.counts(record) && !record.phase.is_end())
    }

    /// Waits until no equal call is in flight.
    pub(super) async fn wait_until_settled(&self, run: &Run<'_>) {
        poll_fn(|_| if self.is_in_flight(run) { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    /// Whether an equal call was made between two numbers of the journal.
    pub(super) fn was_made(&self, run: &Run<'_>, from: Seq, until: Seq) -> bool {
        let made = |seq| self.last_made_before(run, seq).and_then(|record| record.done);
        made(until) != made(from)
    }

    /// Returns the newest equal call that had or may have had its effect before a number of the journal.
    pub(super) fn last_made_before(&self, run: &Run<'_>, seq: Seq) -> Option<StepRecord> {
        self.search_made(run, seq, |made| made.max_by_key(|record| record.done).cloned())
    }

    /// Whether a decision of people is outdated, because an equal call was made after they were asked at `asked`. Waits
    /// until no equal call is in flight. `followed` is the number of the event that already followed the decision.
    pub(super) async fn is_outdated(&self, run: &Run<'_>, asked: Seq, followed: Option<Seq>) -> bool {
        if followed.is_none() {
            self.wait_until_settled(run).await;
        }
        self.was_made(run, asked, followed.unwrap_or_else(|| run.state.borrow().journal.seq().next()))
    }

    /// Returns the number of equal calls of a turn that had or may have had their effect before a number of the
    /// journal.
    pub(super) fn made_in_turn(&self, run: &Run<'_>, turn: &str, seq: Seq) -> usize {
        self.search_made(run, seq, |made| {
            let of_turn =
                made.filter(|record| RecordPath::new(&record.path).turn_above() == Some(RecordPath::new(turn)));
            of_turn.map(|record| record.path.as_str()).collect::<BTreeSet<_>>().len()
        })
    }

    /// Applies a search to the equal calls that had or may have had their effect before a number of the journal.
    fn search_made<T>(
        &self,
        run: &Run<'_>,
        seq: Seq,
        search: impl FnOnce(&mut dyn Iterator<Item = &StepRecord>) -> T,
    ) -> T {
        let state = run.state.borrow();
        let keys = run.call_history().equal_calls(&self.step, &self.input);
        let records = keys.iter().filter_map(|(path, attempt)| state.journal.get(path, *attempt));
        let mut made = records.filter(|record| {
            self.counts(record) && may_have_effect(record) && record.done.is_some_and(|done| done < seq)
        });
        search(&mut made)
    }

    fn counts(&self, record: &StepRecord) -> bool {
        let is_told = || RecordPath::new(&record.path).parent().is_some_and(|call| self.told.contains(call.as_str()));
        !record.path.starts_with(&self.own) && !is_told()
    }
}

/// Returns the outcome of an earlier call: its result or its error.
fn outcome(run: &Run<'_>, earlier: &StepRecord) -> Result<String, RenderError> {
    if let Some(error) = &earlier.error {
        return Ok(format!("{}: {}", error.class, error.message));
    }
    Ok(run.text_of(earlier.response.as_ref(), earlier.response_ref.as_ref())?.unwrap_or_default())
}

/// Returns the line of a request about an equal call that was made before.
pub(super) fn repetition_line(run: &Run<'_>, earlier: &StepRecord) -> Result<String, RenderError> {
    let at = earlier.finished_at.unwrap_or(earlier.at);
    let result = text::display(&outcome(run, earlier)?, SHOWN).replace('\n', " ");
    Ok(format!("{}{at}: {}, with this result: {result}", ReviewedAction::MADE_BEFORE, earlier.phase.name()))
}

/// Returns the result of a call that is not made again: the result of the earlier call, marked as such.
pub(super) async fn earlier_result(run: &Run<'_>, earlier: &StepRecord) -> Result<String, String> {
    let at = earlier.finished_at.unwrap_or(earlier.at);
    let result = run.render(|| outcome(run, earlier)).await?;
    let phase = earlier.phase.name();
    Ok(cut(&format!("Not made again: an equal call was made at {at} ({phase}). Its result was:\n{result}")))
}
