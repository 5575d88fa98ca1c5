//! The invocation of a step: the data from which its input is rendered again.

use std::{collections::BTreeMap, future::poll_fn, rc::Rc, task::Poll};

use signoff_api::{Digest, Seq, approval::Edit};
use signoff_expr::Scope;

use super::tool_turn::ToolTurn;
use super::{
    run::{RenderError, Run},
    scope::{self, StepScope},
};
use crate::plan::PlannedStep;

/// The permission to run a call of a tool. Only the gates before tools give it: `steps/agent/gating.rs`.
pub(crate) trait Permission {
    /// Whether the step may run with this input.
    fn allows(&self, step: &PlannedStep, input: Result<&Digest, &String>) -> bool;
    /// Whether people were asked about the call. Then only a certain failure is followed by another attempt.
    fn was_asked(&self) -> bool;

    /// Whether people have to decide before the step runs, because an equal call was made before and no gate before the
    /// tool asked.
    fn needs_people(&self) -> bool;

    /// Whether an equal call is in flight.
    fn is_equal_in_flight(&self, run: &Run<'_>) -> bool;

    /// Whether an equal call was made between two numbers of the journal.
    fn was_equal_made(&self, run: &Run<'_>, from: Seq, until: Seq) -> bool;

    /// Returns the people who changed the arguments, and therefore cannot approve the call.
    fn editors(&self) -> &[String];
}

/// The invocation of a step: enough to render its input again.
#[derive(Clone)]
pub(crate) struct StepInvocation<'a> {
    pub(crate) step_scope: StepScope<'a>,
    pub(crate) step: &'a PlannedStep,
    /// The path of the step's first attempt. Later attempts see the same values as the first one.
    pub(crate) base: String,
    pub(crate) overrides: Override,
    /// The digest of the input that people approved, if they were asked. Another input does not run.
    pub(crate) approved: Option<Digest>,
    /// The number at which the first gate before the step asked. The templates of the step see the values as of then.
    pub(crate) first_asked: Option<Seq>,
    /// The number at which the first gate before the current attempts asked. An agent receives the feedback before it.
    pub(crate) last_asked: Option<Seq>,
    /// The permission to run, if the step is a call of a tool.
    pub(crate) permission: Option<Rc<dyn Permission>>,
    /// The turns of an agent that called tools, the oldest first. The next turn continues them.
    pub(crate) turns: Vec<Rc<ToolTurn>>,
    /// The number of the journal before which the feedback for the first of `turns` was decided.
    pub(crate) first_heard: Option<Seq>,
    /// Whether the agent is asked for an answer without tools.
    pub(crate) without_tools: bool,
}

impl<'a> StepInvocation<'a> {
    /// Whether the step is a call and an equal call was made since a number of the journal, so that an earlier decision
    /// is outdated. Waits until no equal call is in flight. `followed` is the number of the event that already followed
    /// the decision, or `None`.
    pub(crate) async fn was_made_since(&self, run: &Run<'a>, from: Seq, followed: Option<Seq>) -> bool {
        let Some(permission) = &self.permission else { return false };
        if followed.is_none() {
            poll_fn(|_| if permission.is_equal_in_flight(run) { Poll::Pending } else { Poll::Ready(()) }).await;
        }
        permission.was_equal_made(run, from, followed.unwrap_or_else(|| run.state.borrow().journal.seq().next()))
    }

    /// Returns a step whose first attempt is at `base`.
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

    /// Returns the number as of which its templates see values. `seq` is used if no attempt has begun.
    pub(crate) fn visible_before(&self, run: &Run<'a>, seq: Seq) -> Seq {
        let first = || run.state.borrow().journal.get(&self.base, 1).map_or(seq, |first| first.seq);
        self.first_asked.unwrap_or_else(first)
    }

    /// Returns the number before which the feedback for an attempt that begins at `seq` was decided.
    pub(crate) fn feedback_before(&self, seq: Seq) -> Seq {
        self.first_heard.or(self.last_asked).unwrap_or(seq)
    }

    /// Returns the values that the templates of an attempt started at `seq` can use.
    pub(crate) fn scope(&self, run: &Run<'a>, seq: Seq) -> Result<Scope, RenderError> {
        scope::of_step(run, &self.step_scope, self.step, self.visible_before(run, seq))
    }
}

/// Changes of people to the fields that the author of a step wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct Override {
    /// The changed fields: `input`, `url`, `body`, `value`, `image`, `memory`.
    pub(crate) parameters: BTreeMap<String, String>,
    /// The decisions that changed the fields, the oldest first.
    pub(crate) edits: Vec<Edit>,
}

impl Override {
    /// Adds further changes, which replace earlier ones of the same field.
    pub(crate) fn merge(&mut self, more: Self) {
        self.parameters.extend(more.parameters);
        self.edits.extend(more.edits);
    }

    /// Returns the changed fields of a decision. Values that are not texts are ignored.
    pub(crate) fn from_parameters(parameters: signoff_api::JsonObject, edit: Edit) -> Self {
        let texts = parameters.0.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
        Self { parameters: texts.collect::<BTreeMap<_, _>>(), edits: vec![edit] }
    }
}
