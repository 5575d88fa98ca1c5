//! A row of the list of runs: a few facts of a Workflow as its reader sees them.

use std::{cmp::Reverse, collections::BTreeSet};

use signoff_api::{Moment, workflow::WorkflowPhase};
use signoff_review::text::one_line;

use crate::workflows::WorkflowPart;

/// The longest sentence of a run in the list, in characters.
const SENTENCE: usize = 300;
/// The most Approvals of a run that are kept.
const PENDING: usize = 256;

/// The user who reads the list.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// The user name.
    pub user: String,
    /// The requests that wait for this user, by namespace and name.
    pub asked: BTreeSet<(String, String)>,
}

/// A row of the list. Texts are already shown as in [`one_line`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// The namespace of the Workflow.
    pub namespace: String,
    /// The name of the Workflow.
    pub name: String,
    /// The phase of the run.
    pub phase: WorkflowPhase,
    /// The reason of the phase, in the operator's words; empty if there is none.
    pub message: String,
    /// The names of the open Approvals of the run, at most 256.
    pub pending: Vec<String>,
    /// Whether an open Approval is not among the requests that wait for the reader.
    pub waits_for_others: bool,
    /// The person for whom the run was requested, otherwise the requester.
    pub requester: String,
    /// The requester in words: `you`, `you for` another person, or the name.
    pub requested_by: String,
    /// Whether the reader requested the run, or the run was requested for the reader.
    pub is_mine: bool,
    /// The time at which the Workflow was created.
    pub created: Option<Moment>,
    /// The tokens that the models of the run used, and their cost, in words.
    pub usage: Option<String>,
}

impl RunRow {
    /// Returns the row of a run for a reader, or `None` for an object without a name.
    #[must_use]
    pub fn new(run: WorkflowPart, reader: &Reader) -> Option<Self> {
        let WorkflowPart { metadata, spec, status } = run;
        let status = status.unwrap_or_default();
        if metadata.name.is_empty() {
            return None;
        }
        let is_by_reader = spec.requested_by == reader.user;
        let requester = spec.requested_for.unwrap_or(spec.requested_by);
        let is_for_reader = requester == reader.user;
        let requester = one_line(&requester, 253);
        let mut pending = status.pending.unwrap_or_default();
        pending.truncate(PENDING);
        let is_of_others = |name: &String| !reader.asked.contains(&(metadata.namespace.clone(), name.clone()));
        Some(Self {
            waits_for_others: pending.iter().any(is_of_others),
            namespace: metadata.namespace,
            name: metadata.name,
            phase: status.phase.unwrap_or_default(),
            message: one_line(&status.message.unwrap_or_default(), SENTENCE),
            pending,
            is_mine: is_by_reader || is_for_reader,
            requested_by: match (is_for_reader, is_by_reader) {
                (true, _) => "you".to_owned(),
                (false, true) => format!("you for {requester}"),
                (false, false) => requester.clone(),
            },
            requester,
            created: metadata.creation_timestamp,
            usage: status.usage.map(|usage| usage.to_string()),
        })
    }
}

/// Sorts rows by three keys: the reader's own runs first, then open ones, then the newest.
pub fn sort(rows: &mut [RunRow]) {
    rows.sort_by_cached_key(|row| {
        (!row.is_mine, row.phase.is_end(), Reverse(row.created), row.namespace.clone(), row.name.clone())
    });
}
