//! The types of a call in progress: its turn, its tool, its proposal and its result.

use std::{collections::BTreeSet, rc::Rc};

use signoff_api::{Digest, Seq, approval::SiblingCall};
use signoff_expr::text;

use super::equal::EqualCalls;
use crate::{
    plan::PlannedTool,
    policy::CallFacts,
    replay::{scope::StepScope, step_invocation::StepInvocation},
    steps::{attempts::Attempts, catalogue::Offered, excerpt::Fields},
    tools::arguments::Arguments,
};

/// The largest number of bytes of a result that the model receives.
const RESULT: usize = 32 * 1024;

/// The fact of a gate with the digest of the arguments that it asks about.
pub(super) const FACT_ARGUMENTS: &str = "arguments";
/// The fact of a gate with the digest of the input of the call's step, by which equal calls are found.
pub(super) const FACT_INPUT: &str = "input";
/// The fact of a gate with the gates of the plan that ask together.
pub(super) const FACT_GATES: &str = "gates";
/// The fact of a gate: whether a Reject ends the run.
pub(super) const FACT_STOPS: &str = "stopsOnReject";

/// A call of a tool.
pub(super) struct ToolCallSite<'a> {
    pub(super) tool: &'a PlannedTool,
    /// The record path of the call, which ends with `.call-N`.
    pub(super) path: String,
    /// The scope for the templates of the tool's step and of the gates, with `args`, `tool`, `effects`, `agent` and
    /// `agents`.
    pub(super) scope: StepScope<'a>,
    pub(super) seen: Seq,
    /// The attempts of the call about which its gates ask.
    pub(super) attempts: Attempts,
    /// The last editors of its arguments and the arguments before the edit, as a line of the request.
    pub(super) edited: Option<String>,
}

/// A rendered call as people review it.
pub(super) struct Proposal {
    pub(super) arguments: Arguments,
    /// Its method and address, its image, or its agent.
    pub(super) target: String,
    /// The facts by which policies match the call.
    pub(super) facts: CallFacts,
    /// The input of the step, as fields.
    pub(super) shows: Option<Fields>,
    /// The digest of the input of the call, if it can be computed before the call.
    pub(super) sends: Option<Digest>,
    /// The reason why the current policies forbid the call.
    pub(super) forbidden: Option<String>,
    /// The digest by which equal calls are found; `None` for an agent.
    pub(super) input: Option<Digest>,
    /// The digest that the approval binds.
    pub(super) digest: Digest,
    /// The key of equal calls; `None` if the call can be made again.
    pub(super) equal: Option<EqualCalls>,
}

/// The turn of a call.
pub(super) struct TurnSite<'t, 'a> {
    pub(super) invocation: &'t StepInvocation<'a>,
    pub(super) agent: &'t str,
    /// The tools that the model could call in this turn.
    pub(super) tools: Vec<Offered<'a>>,
    /// The path of the turn, without `.call-1` and so on.
    pub(super) path: String,
    /// Decisions about the calls use journal events before this number.
    pub(super) seen: Seq,
    /// Whether all its calls have results, because the next turn has begun.
    pub(super) is_answered: bool,
    /// The limit of calls of each agent around the turn, and the number of its calls in earlier turns.
    pub(super) limits: Vec<(i32, usize)>,
    /// The text of the model beside its calls.
    pub(super) says: String,
    pub(super) truncated: bool,
    pub(super) siblings: Vec<SiblingCall>,
    /// The paths of the earlier calls of the conversation that the model received with this turn.
    pub(super) told: Rc<BTreeSet<String>>,
    /// The number of calls of the turn, including calls that were not recorded.
    pub(super) count: usize,
    /// For each call its number among the equal calls of the turn, from 1, and their count.
    pub(super) equal: Vec<(usize, usize)>,
}

/// A call and its position in its turn.
pub(super) struct CallOfTurn {
    pub(super) agent: String,
    pub(super) path: String,
    pub(super) turn: String,
    /// The number of the next attempt, from 1.
    pub(super) attempt: i32,
    /// Its number among the equal calls of the turn, from 1, and their count.
    pub(super) place: (usize, usize),
}

impl CallOfTurn {
    pub(super) fn of(turn: &TurnSite<'_, '_>, at: usize, site: &ToolCallSite<'_>) -> Self {
        // A call with edited arguments is not equal to the other calls.
        let place = turn.equal.get(at).copied().filter(|_| site.edited.is_none()).unwrap_or((1, 1));
        Self {
            agent: turn.agent.to_owned(),
            path: site.path.clone(),
            turn: turn.path.clone(),
            attempt: site.attempts.next,
            place,
        }
    }
}

/// The result of a call.
pub(super) enum Answered {
    /// A result for the agent.
    Result(String),
    /// A result for this call and for the equal calls after it in the turn, which are neither made nor asked about.
    OfAllEqual(String),
}

impl Answered {
    /// Returns the result with a note below it.
    pub(super) fn after(self, note: Option<String>) -> Self {
        let noted = |text: String| note.map_or_else(|| text.clone(), |note| format!("{text}\n{note}"));
        match self {
            Self::Result(text) => Self::Result(noted(text)),
            Self::OfAllEqual(text) => Self::OfAllEqual(noted(text)),
        }
    }
}

/// Cuts a result to the length that the model receives.
pub(super) fn cut(result: &str) -> String {
    cut_at(&text::clean(result), RESULT)
}

/// Cuts a text, and marks the cut.
pub(super) fn cut_at(result: &str, most: usize) -> String {
    let shown = text::first(result, most);
    if shown.len() == result.len() {
        return result.to_owned();
    }
    format!("{shown}\n[cut: the first {} of {} bytes]", shown.len(), result.len())
}
