//! The computation of one transition of a run: the plan, the state, and the fetched values.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    rc::Rc,
    task::Poll,
};

use signoff_api::{
    Json, RecordPath, Seq,
    journal::{BlobRef, StepKind, StepRecord},
};
use signoff_expr::LanguageError;

use super::{
    call_history::{CallHistory, RecordKey},
    origins::{OriginNotes, Origins},
    step_invocation::StepInvocation,
    transition_state::TransitionState,
};
use crate::{
    evaluation,
    journal::{Journal, values::ValueLimits},
    plan::Plan,
    transition::{Blobs, Now},
};

/// The switches of a running Workflow (cancel, suspend), and its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Whether `spec.suspend` is set: the run starts nothing new.
    pub suspend: bool,
    /// Whether a suspended run asks a recorded gate again whose Approval is missing.
    pub asks_missing: bool,
    /// Whether `spec.cancel` is set: the run ends with this transition.
    pub cancel: bool,
    /// The limits of the long values of the run.
    pub values: ValueLimits,
}

/// The computation of one transition of a run.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) control: Control,
    pub(crate) blobs: &'a Blobs,
    pub(crate) now: &'a Now,
    /// The number of the last event that was stored before this transition.
    pub(crate) stored: Seq,
    pub(crate) state: RefCell<TransitionState>,
    /// Whether the journal has a value that the author of the Workflow did not write.
    is_answered: OnceCell<bool>,
    call_history: OnceCell<CallHistory>,
    /// The number of visits of each path so far in this replay.
    visits: RefCell<BTreeMap<String, i32>>,
    /// The path and attempt of the last settled answer.
    pub(crate) settled: RefCell<(String, i32)>,
    /// The replayed attempts at agents and texts.
    pub(crate) invocations: RefCell<BTreeMap<RecordKey, Rc<StepInvocation<'a>>>>,
    /// The origins of the current rendering.
    pub(crate) origins: OriginNotes,
    /// The origins of the texts that were followed in this transition.
    pub(crate) origins_of_texts: RefCell<BTreeMap<RecordKey, Rc<Origins>>>,
}

/// The reason why a template could not be rendered.
pub(crate) enum RenderError {
    /// A large value has to be fetched first.
    Missing,
    /// The template or condition cannot be evaluated.
    Language(LanguageError),
    /// The rendered value is invalid.
    Invalid(String),
}

impl From<LanguageError> for RenderError {
    fn from(why: LanguageError) -> Self {
        Self::Language(why)
    }
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan, control: Control, blobs: &'a Blobs, now: &'a Now, journal: Journal) -> Self {
        let stored = journal.seq();
        let state = RefCell::new(TransitionState::new(journal, control.values));
        Self {
            stored,
            plan,
            control,
            blobs,
            now,
            state,
            is_answered: OnceCell::new(),
            call_history: OnceCell::new(),
            visits: RefCell::default(),
            settled: RefCell::default(),
            invocations: RefCell::default(),
            origins: OriginNotes::default(),
            origins_of_texts: RefCell::default(),
        }
    }

    /// Returns the turns with calls of the run, and its decisions.
    pub(crate) fn call_history(&self) -> &CallHistory {
        self.call_history.get_or_init(|| CallHistory::of(&self.state.borrow().journal))
    }

    /// Adds a record that begins now to the calls of the run.
    pub(crate) fn record_call(&self, record: &StepRecord) {
        if let Some(history) = self.call_history.get() {
            history.add_call(record);
        }
    }

    /// Records that a value of the journal is read. If a model, a tool or a person has answered, the value can be text
    /// that the author of the Workflow did not write. A scripted answer is text of the author.
    pub(crate) fn record_value_read(&self) {
        let is_scripted = |r: &StepRecord| r.kind == StepKind::Agent && self.plan.has_scripted_response(&r.path);
        let is_answer =
            |r: &StepRecord| r.done.is_some() && (is_call(r.kind) || r.kind == StepKind::Hitl) && !is_scripted(r);
        if *self.is_answered.get_or_init(|| self.state.borrow().journal.records().iter().any(is_answer)) {
            evaluation::record_foreign_text();
        }
    }

    /// Returns the path and the number of the next visit of a path, and counts the visit. A replay counts like the
    /// first evaluation.
    pub(crate) fn visit(&self, path: &str) -> (String, i32) {
        let mut visits = self.visits.borrow_mut();
        let visit = visits.entry(path.to_owned()).and_modify(|visit| *visit += 1).or_insert(1);
        (RecordPath::new(path).at_visit(*visit).into(), *visit)
    }

    /// Returns the path of the last counted visit of a path.
    pub(crate) fn last_visit(&self, path: &str) -> String {
        RecordPath::new(path).at_visit(self.visits.borrow().get(path).copied().unwrap_or(1)).into()
    }

    /// Returns the path of the next visit of a path, without counting the visit.
    pub(crate) fn next_visit(&self, path: &str) -> String {
        RecordPath::new(path).at_visit(self.visits.borrow().get(path).copied().unwrap_or(0) + 1).into()
    }

    /// Waits until all values that `make` reads are fetched, and returns its result.
    pub(crate) async fn render<T>(&self, make: impl Fn() -> Result<T, RenderError>) -> Result<T, String> {
        poll_fn(|_| match make() {
            Ok(rendered) => Poll::Ready(Ok(rendered)),
            Err(RenderError::Missing) => Poll::Pending,
            Err(RenderError::Language(why)) => Poll::Ready(Err(why.to_string())),
            Err(RenderError::Invalid(why)) => Poll::Ready(Err(why)),
        })
        .await
    }

    /// Returns the records at any depth below a path that were done before `seq`, the oldest first.
    pub(crate) fn children(&self, path: &str, seq: Seq) -> Vec<StepRecord> {
        let state = self.state.borrow();
        let is_done = |record: &&StepRecord| record.done.is_some_and(|done| done < seq);
        let mut children: Vec<_> = state.journal.under(&format!("{path}/")).filter(is_done).cloned().collect();
        children.sort_by_key(|record| record.done);
        children
    }

    /// Returns a stored text: inline, or from the blob store. Notes that a value was read, and requests a missing blob.
    ///
    /// # Errors
    /// [`RenderError::Missing`] if the blob has to be fetched first.
    pub(crate) fn text_of(
        &self,
        inline: Option<&Json>,
        reference: Option<&BlobRef>,
    ) -> Result<Option<String>, RenderError> {
        self.record_value_read();
        match (inline, reference) {
            (Some(value), _) => Ok(Some(to_text(value))),
            (None, None) => Ok(None),
            (None, Some(reference)) => {
                let mut state = self.state.borrow_mut();
                let fresh = state.stored.iter().find(|(digest, _)| *digest == reference.digest).map(|(_, v)| v.clone());
                if let Some(value) = fresh.or_else(|| self.blobs.get(&reference.digest).cloned()) {
                    return Ok(Some(value));
                }
                state.missing.insert(reference.digest.clone());
                Err(RenderError::Missing)
            }
        }
    }
}

/// Whether an activity of this kind calls a model, a container or an address.
pub(super) fn is_call(kind: StepKind) -> bool {
    matches!(kind, StepKind::Agent | StepKind::Pod | StepKind::Http | StepKind::Mcp)
}

fn to_text(value: &Json) -> String {
    value.0.as_str().map_or_else(|| value.0.to_string(), str::to_owned)
}
