//! The state of a transition while it is computed: the journal, the commands, and the values to be stored.
//!
//! Short values are stored in the journal, long ones in the blob store.
//!
//! **Invariant:** no value is stored that exceeds a limit of the run, except the decisions of people.

use std::collections::{BTreeMap, BTreeSet};

use signoff_api::{
    Digest, Json, Moment, Outcome,
    journal::{BlobRef, StepLog},
};
use signoff_expr::text;

use crate::{
    field_error::FieldError,
    journal::{
        Journal,
        values::{References, ValueLimits},
    },
    transition::Command,
};

/// The maximum size of a value in the journal, in bytes. Longer values go to the blob store.
const INLINE: usize = 1024;
/// The maximum size of all inline values of a run together, in bytes.
const INLINE_A_RUN: usize = 256 * 1024;

/// The state of a transition while it is computed.
pub(crate) struct TransitionState {
    pub(crate) journal: Journal,
    pub(crate) commands: Vec<Command>,
    pub(crate) stored: Vec<(Digest, String)>,
    pub(crate) missing: BTreeSet<Digest>,
    pub(crate) wake_at: Option<Moment>,
    /// The gates whose Approval is missing.
    pub(crate) gone: BTreeSet<String>,
    /// The reasons why gates do not ask.
    pub(crate) blocked: Vec<FieldError>,
    /// The activities that must not be evaluated, each with the reason.
    pub(crate) costly: BTreeMap<(String, i32), String>,
    pub(super) requested: BTreeSet<(String, i32)>,
    inline: usize,
    values: References,
}

impl TransitionState {
    pub(crate) fn new(journal: Journal, limits: ValueLimits) -> Self {
        let values = References::of(&journal, limits);
        let inline = journal.records().iter().filter_map(|r| r.response.as_ref()).map(length).sum();
        Self {
            journal,
            commands: Vec::new(),
            stored: Vec::new(),
            missing: BTreeSet::new(),
            wake_at: None,
            gone: BTreeSet::new(),
            blocked: Vec::new(),
            costly: BTreeMap::new(),
            requested: BTreeSet::new(),
            inline,
            values,
        }
    }

    /// Sets the time of the next evaluation, unless an earlier time is set.
    pub(super) fn wake(&mut self, at: Moment) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

impl TransitionState {
    /// Checks that a text can be stored, inline or as a blob.
    pub(crate) fn check_fits(&self, value: &str) -> Result<(), String> {
        if self.is_inline(value) { Ok(()) } else { self.values.check_fit([value]) }
    }

    /// Checks that a response can be stored with the parts that only its provider can read.
    pub(crate) fn check_turn_fits(&self, response: &str, opaque: Option<&str>) -> Result<(), String> {
        let long = Some(response).filter(|response| !self.is_inline(response));
        self.values.check_fit(long.into_iter().chain(opaque))
    }

    /// Checks that all given texts together can be stored as blobs.
    pub(crate) fn check_blobs_fit<'v>(&self, values: impl IntoIterator<Item = &'v str>) -> Result<(), String> {
        self.values.check_fit(values)
    }

    fn is_inline(&self, value: &str) -> bool {
        value.len() <= INLINE && self.inline + value.len() <= INLINE_A_RUN
    }

    /// Stores a short text inline, and a long one as a blob.
    pub(crate) fn store_value(&mut self, value: &str) -> (Option<Json>, Option<BlobRef>) {
        if self.is_inline(value) {
            self.inline += value.len();
            (Some(Json(value.into())), None)
        } else {
            (None, Some(self.store_blob(value)))
        }
    }

    /// Stores the end of a container's output inline. Stores the whole of a longer output also as a blob, if the limits
    /// of the run allow a further value. Returns `None` for an empty output.
    pub(crate) fn store_log(&mut self, whole: &str) -> Option<StepLog> {
        let whole = text::clean(whole);
        let tail = text::last(&whole, INLINE);
        let ref_ =
            (tail.len() < whole.len() && self.check_blobs_fit([&*whole]).is_ok()).then(|| self.store_blob(&whole));
        (!whole.is_empty()).then(|| StepLog { tail: tail.to_owned(), ref_ })
    }

    /// Stores a text as a blob.
    pub(crate) fn store_blob(&mut self, value: &str) -> BlobRef {
        let digest = Digest::of_bytes(value.as_bytes());
        if !self.stored.iter().any(|(known, _)| *known == digest) {
            self.stored.push((digest.clone(), value.to_owned()));
        }
        let size = i64::try_from(value.len()).unwrap_or(i64::MAX);
        self.values.add(&digest, size);
        BlobRef { digest, size }
    }

    /// Stores a short decision inline. A long decision is stored as a blob, with a short form inline.
    pub(crate) fn store_decision(&mut self, outcome: Outcome) -> (Outcome, Option<BlobRef>) {
        let whole = serde_json::to_string(&outcome).unwrap_or_default();
        if whole.len() <= INLINE {
            return (outcome, None);
        }
        let reference = self.store_blob(&whole);
        let short = Outcome {
            verdict: outcome.verdict,
            phase: outcome.phase,
            reason: outcome.reason.map(|reason| reason.chars().take(200).collect()),
            decided_by: outcome.decided_by.into_iter().take(8).collect(),
            decided_at: outcome.decided_at,
            source: outcome.source,
            ..Outcome::default()
        };
        (short, Some(reference))
    }
}

fn length(value: &Json) -> usize {
    value.0.as_str().map_or_else(|| value.0.to_string().len(), str::len)
}
