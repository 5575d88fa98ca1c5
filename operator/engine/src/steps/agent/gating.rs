//! The decision whether gates ask about a call of a tool, and the permission to perform the call. Which calls a gate
//! asks about is in `plan/call_gate.rs`.
//!
//! **Invariant:** [`Cleared`] is created only here: for a call about which no gate asks, or for a call that every
//! asking gate has approved. If an error prevents the decision whether a gate asks, it asks.

use signoff_api::{Digest, Seq, gate::GateType};

use super::{
    equal::EqualCalls,
    merge,
    site::{Proposal, ToolCallSite},
};
use crate::{
    plan::{CallGate, PlannedStep},
    replay::{
        run::{RenderError, Run},
        scope,
        step_invocation::Permission,
    },
};

/// The permission to run one call of a tool: people approved exactly this call, or no gate asks about it.
#[derive(Clone, Debug)]
pub(crate) struct Cleared {
    /// The path of the step of the tool in the plan.
    step: String,
    /// The digest of the input of the call, if it can be computed before the call.
    sends: Option<Digest>,
    was_asked: bool,
    needs_people: bool,
    /// The key of the equal calls of the run; `None` if the call can be made again.
    equal: Option<EqualCalls>,
    editors: Vec<String>,
}

impl Permission for Cleared {
    fn allows(&self, step: &PlannedStep, input: Result<&Digest, &String>) -> bool {
        self.step == step.path && self.sends.as_ref().is_none_or(|sends| input == Ok(sends))
    }

    fn was_asked(&self) -> bool {
        self.was_asked
    }

    fn needs_people(&self) -> bool {
        self.needs_people
    }

    fn is_equal_in_flight(&self, run: &Run<'_>) -> bool {
        self.equal.as_ref().is_some_and(|equal| equal.is_in_flight(run))
    }

    fn was_equal_made(&self, run: &Run<'_>, from: Seq, until: Seq) -> bool {
        self.equal.as_ref().is_some_and(|equal| equal.was_made(run, from, until))
    }

    fn editors(&self) -> &[String] {
        &self.editors
    }
}

/// A gate that asks about a call.
#[derive(Clone, Debug)]
pub(super) struct Asking<'a> {
    pub(super) gate: &'a CallGate,
    /// The position of the gate among the gates of the plan, which is the same at every replay.
    place: usize,
    pub(super) because: String,
}

/// Returns the text that identifies the gates of a group in the record of their request.
pub(super) fn group_key(group: &[Asking<'_>]) -> String {
    group.iter().map(|asking| asking.place.to_string()).collect::<Vec<_>>().join(",")
}

/// The gates of a call that still have to approve it.
pub(super) struct Gating<'a> {
    /// All gates that ask about the call, also those that have approved it.
    all: Vec<Asking<'a>>,
    asking: Vec<Asking<'a>>,
    /// The digest of the action that is approved.
    action: Digest,
}

impl<'a> Gating<'a> {
    /// Finds the gates that ask about a call.
    pub(super) fn find(run: &Run<'a>, site: &ToolCallSite<'a>, proposal: &Proposal) -> Result<Self, RenderError> {
        let mut asking = Vec::new();
        for (place, gate) in run.plan.tools.gates.iter().enumerate() {
            let Some(because) = gate.reason(site.tool, &proposal.facts) else { continue };
            let because = match is_condition_met(run, site, gate) {
                Err(RenderError::Missing) => return Err(RenderError::Missing),
                Ok(false) => continue,
                Ok(true) => because,
                Err(RenderError::Language(why)) => undecided_reason(gate, &because, &why.to_string()),
                Err(RenderError::Invalid(why)) => undecided_reason(gate, &because, &why),
            };
            asking.push(Asking { gate, place, because });
        }
        Ok(Self { all: asking.clone(), asking, action: proposal.digest.clone() })
    }

    /// Returns the gates that are asked next in one request, or `None` if all have approved. `recorded` are the gates
    /// of the next recorded request: grouping depends on the current policies, and a recorded request keeps its group.
    pub(super) fn next_group(&self, recorded: Option<&str>) -> Option<Vec<Asking<'a>>> {
        let recorded_group = |recorded: &str| {
            let places: Vec<_> = recorded.split(',').filter_map(|place| place.parse().ok()).collect();
            let group: Vec<_> = self.asking.iter().filter(|asking| places.contains(&asking.place)).cloned().collect();
            (!group.is_empty()).then_some(group)
        };
        let first_group = || merge::divide_into_groups(self.asking.clone()).into_iter().next();
        recorded.and_then(recorded_group).or_else(first_group)
    }

    /// Removes a group of gates that approved the call. `bound` is the digest in the record of the request, and
    /// `recorded` are the gates in the record. If the digest or the gates differ, the group stays and asks again.
    pub(super) fn approve(&mut self, group: &[Asking<'_>], bound: Option<&Digest>, recorded: Option<&str>) {
        let is_of_group = recorded.is_none_or(|recorded| recorded == group_key(group));
        if bound == Some(&self.action) && is_of_group {
            self.asking.retain(|asking| group.iter().all(|approved| approved.place != asking.place));
        }
    }

    /// Drops every approval: all gates ask again.
    pub(super) fn ask_again(&mut self) {
        self.asking.clone_from(&self.all);
    }

    /// Whether a gate asks or has asked about the call.
    pub(super) fn asks(&self) -> bool {
        !self.all.is_empty()
    }

    /// Returns the permission, or `None` while a gate has not approved the call. `editors` are the people who gave the
    /// arguments. `is_repeated` says whether an equal call, or an attempt at this call, was made before.
    pub(super) fn clear(
        &self,
        site: &ToolCallSite<'a>,
        proposal: &Proposal,
        editors: &[String],
        is_repeated: bool,
    ) -> Option<Cleared> {
        let (step, editors, was_asked) = (site.tool.step.path.clone(), editors.to_vec(), self.asks());
        let (sends, equal) = (proposal.sends.clone(), proposal.equal.clone());
        let needs_people = is_repeated && !was_asked;
        self.asking.is_empty().then_some(Cleared { step, sends, was_asked, needs_people, equal, editors })
    }
}

/// Returns the reason of a gate that asks because its condition could not be evaluated. A gate of the type `custom` has
/// no other reason to ask.
fn undecided_reason(gate: &CallGate, because: &str, why: &str) -> String {
    let reason = format!("its condition could not be evaluated, so it asks: {why}");
    if gate.type_ == GateType::Custom { reason } else { format!("{because}; {reason}") }
}

/// Whether the condition of a gate holds; true for a gate without a condition.
fn is_condition_met<'a>(run: &Run<'a>, site: &ToolCallSite<'a>, gate: &CallGate) -> Result<bool, RenderError> {
    let Some(condition) = &gate.condition else { return Ok(true) };
    let scope = scope::general(run, &site.scope, &condition.references(), site.seen)?;
    Ok(condition.evaluate(&scope)?)
}
