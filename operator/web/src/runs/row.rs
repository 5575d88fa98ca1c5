//! One run in the list: a few facts of a Workflow, as its reader sees them.

use std::cmp::Reverse;

use signoff_api::{Moment, workflow::WorkflowPhase};
use signoff_review::text::one_line;

use crate::workflows::WorkflowPart;

/// The longest sentence of a run in the list, in characters.
const SENTENCE: usize = 300;
/// The most Approvals of a run that are kept.
const PENDING: usize = 256;

/// One run. Texts are already shown as in [`one_line`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The phase.
    pub phase: WorkflowPhase,
    /// The reason of the phase, in the operator's words; empty if there is none.
    pub message: String,
    /// The names of its open Approvals.
    pub pending: Vec<String>,
    /// The person who requested it, or for whom it was requested.
    pub requester: String,
    /// Whether that person is the reader.
    pub is_mine: bool,
    /// When it was created.
    pub created: Option<Moment>,
    /// The tokens of its models, and what they cost.
    pub usage: Option<String>,
}

impl RunRow {
    /// Returns the line of a run for a reader, or `None` for an object without a name.
    #[must_use]
    pub fn new(run: WorkflowPart, reader: &str) -> Option<Self> {
        let WorkflowPart { metadata, spec, status } = run;
        let status = status.unwrap_or_default();
        if metadata.name.is_empty() {
            return None;
        }
        let requester = spec.requested_for.unwrap_or(spec.requested_by);
        let mut pending = status.pending.unwrap_or_default();
        pending.truncate(PENDING);
        Some(Self {
            namespace: metadata.namespace,
            name: metadata.name,
            phase: status.phase.unwrap_or_default(),
            message: one_line(&status.message.unwrap_or_default(), SENTENCE),
            pending,
            is_mine: requester == reader,
            requester: one_line(&requester, 253),
            created: metadata.creation_timestamp,
            usage: status.usage.map(|usage| usage.to_string()),
        })
    }
}

/// Sorts rows: those of the reader first, of these the open ones first, and of these the newest first.
pub fn sort(rows: &mut [RunRow]) {
    rows.sort_by_cached_key(|row| {
        (!row.is_mine, row.phase.is_end(), Reverse(row.created), row.namespace.clone(), row.name.clone())
    });
}
