//! Whether people are asked about a call of a tool, and the only way to a call that may run.
//!
//! **Invariant:** [`Cleared`] is made here and nowhere else: by a call about which no gate asks, or by the approval of exactly this
//! call at every gate that does. An error while it is decided whether a gate asks means that it asks.

use signoff_api::Digest;
use signoff_expr::LanguageError;

use super::{
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
}

impl Permission for Cleared {
    fn allows(&self, step: &PlannedStep, input: Result<&Digest, &String>) -> bool {
        self.step == step.path && self.sends.as_ref().is_none_or(|sends| input == Ok(sends))
    }

    fn was_asked(&self) -> bool {
        self.was_asked
    }
}

/// A gate that asks about a call.
#[derive(Clone, Debug)]
pub(super) struct Asking<'a> {
    pub(super) gate: &'a CallGate,
    pub(super) because: String,
}

/// The gates of a call that still have to approve it.
pub(super) struct Gating<'a> {
    /// Each group is one Approval.
    groups: Vec<Vec<Asking<'a>>>,
    approved: usize,
    /// The digest of the action that is approved.
    action: Digest,
}

impl<'a> Gating<'a> {
    /// Finds the gates that ask about a call.
    pub(super) fn of(run: &Run<'a>, site: &ToolCallSite<'a>, proposal: &Proposal) -> Result<Self, RenderError> {
        let mut asking = Vec::new();
        for gate in &run.plan.tools.gates {
            let Some(because) = gate.reason(site.tool, &proposal.facts) else { continue };
            match condition(run, site, gate) {
                Err(RenderError::Missing) => return Err(RenderError::Missing),
                Ok(false) => {}
                Ok(true) => asking.push(Asking { gate, because }),
                Err(RenderError::Language(why)) => asking.push(undecided(gate, &because, &why)),
                Err(RenderError::Invalid(why)) => {
                    asking.push(Asking { gate, because: format!("{because}; its condition has no value: {why}") });
                }
            }
        }
        Ok(Self { groups: merge::groups(asking), approved: 0, action: proposal.digest.clone() })
    }

    /// The gates that are asked next, together; `None` where none is left.
    pub(super) fn next(&self) -> Option<&[Asking<'a>]> {
        self.groups.get(self.approved).map(Vec::as_slice)
    }

    /// Records that the gates that were asked approved. `bound`: the digest that their record has; an approval of anything else
    /// counts for nothing, and they are asked again.
    pub(super) fn approve(&mut self, bound: Option<&Digest>) {
        if bound == Some(&self.action) {
            self.approved += 1;
        }
    }

    /// The permission, once every gate that asks has approved the call.
    pub(super) fn clear(&self, site: &ToolCallSite<'a>, sends: Option<Digest>) -> Option<Cleared> {
        let was_asked = !self.groups.is_empty();
        let step = site.tool.step.path.clone();
        (self.approved == self.groups.len()).then_some(Cleared { step, sends, was_asked })
    }
}

fn undecided<'a>(gate: &'a CallGate, because: &str, why: &LanguageError) -> Asking<'a> {
    Asking { gate, because: format!("{because}; its condition has no value: {why}") }
}

fn condition<'a>(run: &Run<'a>, site: &ToolCallSite<'a>, gate: &CallGate) -> Result<bool, RenderError> {
    let Some(condition) = &gate.condition else { return Ok(true) };
    let scope = scope::general(run, &site.scope, &condition.references(), site.seen)?;
    Ok(condition.evaluate(&scope)?)
}
