//! The invocation of a step: everything from which its input is rendered again.

use std::{collections::BTreeMap, future::poll_fn, rc::Rc, task::Poll};

use signoff_api::{Digest, Seq, approval::Edit};
use signoff_expr::Scope;

use super::tool_turn::ToolTurn;
use super::{
    run::{RenderError, Run},
    scope::{self, StepScope},
};
use crate::plan::PlannedStep;

/// The permission to run a call of a tool. The gates in front of tools give it, and only they: `steps/agent/gating.rs`.
pub(crate) trait Permission {
    /// Whether the step may be given an input with this digest.
    fn allows(&self, step: &PlannedStep, input: Result<&Digest, &String>) -> bool;
    /// Whether people were asked. Then another attempt follows only on a known failure.
    fn was_asked(&self) -> bool;

    /// Whether people have to decide before the step runs: an equal call was made before, and no gate in front of the
    /// tool asked.
    fn needs_people(&self) -> bool;

    /// Whether an equal call is in flight.
    fn is_equal_in_flight(&self, run: &Run<'_>) -> bool;

    /// Whether an equal call was made between two numbers of the journal.
    fn was_equal_made(&self, run: &Run<'_>, from: Seq, until: Seq) -> bool;

    /// The people who gave the arguments: they do not approve what is rendered from them.
    fn editors(&self) -> &[String];
}

/// The invocation of a step: enough to render its input again.
#[derive(Clone)]
pub(crate) struct StepInvocation<'a> {
    pub(crate) step_scope: StepScope<'a>,
    pub(crate) step: &'a PlannedStep,
    /// The path of its first attempt: every later one is given what was known then.
    pub(crate) base: String,
    pub(crate) overrides: Override,
    /// The digest of what people approved, where they were asked: nothing else may run.
    pub(crate) approved: Option<Digest>,
    /// The number at which the first gate before the step asked: what it showed is what its templates see.
    pub(crate) first_asked: Option<Seq>,
    /// The number at which the first gate before the present attempts asked: what an agent hears was decided before it.
    pub(crate) last_asked: Option<Seq>,
    /// The permission to run, where it is a call of a tool.
    pub(crate) permission: Option<Rc<dyn Permission>>,
    /// The turns of an agent that called tools, the first one first; the next turn continues them.
    pub(crate) turns: Vec<Rc<ToolTurn>>,
    /// The number before which everything was decided that the first of these turns heard.
    pub(crate) first_heard: Option<Seq>,
    /// Whether the agent is asked for an answer only.
    pub(crate) without_tools: bool,
}

impl<'a> StepInvocation<'a> {
    /// Whether the step is a call of which an equal one was made since a number of the journal: what people or its
    /// author wanted did not count with it. Waits until no equal call is in flight. `followed`: the number of what
    /// followed already, or `None`.
    pub(crate) async fn was_made_since(&self, run: &Run<'a>, from: Seq, followed: Option<Seq>) -> bool {
        let Some(permission) = &self.permission else { return false };
        if followed.is_none() {
            poll_fn(|_| if permission.is_equal_in_flight(run) { Poll::Pending } else { Poll::Ready(()) }).await;
        }
        permission.was_equal_made(run, from, followed.unwrap_or_else(|| run.state.borrow().journal.seq().next()))
    }

    /// A step whose first attempt stands at `base`.
    pub(crate) fn new(step_scope: &StepScope<'a>, step: &'a PlannedStep, base: &str) -> Self {
        Self {
            step_scope: step_scope.clone(),
            step,
            base: base.to_owned(),
            overrides: Override::default(),
            approved: None,
            first_asked: None,
            last_asked: None,
            permission: None,
            turns: Vec::new(),
            first_heard: None,
            without_tools: false,
        }
    }

    /// The number before which everything is known that its templates see. `seq`: where nothing of it has begun.
    pub(crate) fn visible_before(&self, run: &Run<'a>, seq: Seq) -> Seq {
        let first = || run.state.borrow().journal.get(&self.base, 1).map_or(seq, |first| first.seq);
        self.first_asked.unwrap_or_else(first)
    }

    /// The number before which everything was decided that an attempt hears which begins at `seq`.
    pub(crate) fn feedback_before(&self, seq: Seq) -> Seq {
        self.first_heard.or(self.last_asked).unwrap_or(seq)
    }

    /// Returns the values that the templates of an attempt started at `seq` can use.
    pub(crate) fn scope(&self, run: &Run<'a>, seq: Seq) -> Result<Scope, RenderError> {
        scope::at(run, &self.step_scope, self.step, self.visible_before(run, seq))
    }
}

/// Values that replace or extend what the author of a step wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct Override {
    /// Fields that a person put in the place of the author's: `input`, `url`, `body`, `value`, `image`, `memory`.
    pub(crate) parameters: BTreeMap<String, String>,
    /// The decisions that gave them.
    pub(crate) edits: Vec<Edit>,
}

impl Override {
    /// The same with further changes, which count where both speak of a field.
    pub(crate) fn merge(&mut self, more: Self) {
        self.parameters.extend(more.parameters);
        self.edits.extend(more.edits);
    }

    /// The fields that a person gave; those that are no text are left out.
    pub(crate) fn from_parameters(parameters: signoff_api::JsonObject, edit: Edit) -> Self {
        let texts = parameters.0.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
        Self { parameters: texts.collect::<BTreeMap<_, _>>(), edits: vec![edit] }
    }
}
