//! The list of decisions for auditors: each with its person, its time and its duration.

use serde::Serialize;
use serde_json::Value;
use signoff_api::{
    Approval, Moment, Verdict,
    approval::Source,
    journal::{StepKind, StepRecord},
};

use super::session::Snapshot;

/// A decided gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// The position of the gate among the activities of the run, from 0.
    pub step_index: usize,
    /// The prompt of the request.
    pub prompt: String,
    /// The context shown with the prompt, at most the first 4 KiB.
    pub context_snapshot: Option<String>,
    /// The deciders, joined by `, `; `None` if the deadline passed.
    pub user: Option<String>,
    /// The outcome that the run continued with: `approved`, the answer, …
    pub response: Option<String>,
    /// The time of the decision.
    pub timestamp: Option<Moment>,
    /// The time for which the gate was open, in seconds.
    pub duration_seconds: u64,
    /// The name of the gate, as in the Workflow.
    pub gate: String,
    /// The path of the gate's record, which distinguishes visits.
    pub path: String,
    /// The verdict of the outcome, or `None` for an outcome without a verdict.
    pub verdict: Option<Verdict>,
    /// The reason, in the decider's words.
    pub reason: Option<String>,
    /// The source of the outcome: people, a timeout, or the run itself.
    pub source: Source,
}

/// Returns every decided gate of a session, in the order in which they asked.
#[must_use]
pub fn history(session: &Snapshot) -> Vec<Decided> {
    let records = session.workflow.status.iter().flat_map(|status| &status.steps);
    let first_attempts = records.filter(|record| record.attempt == 1).enumerate();
    let gates = first_attempts.filter(|(_, record)| record.kind == StepKind::Hitl);
    gates.filter_map(|(index, record)| decided_gate(index, record, approval_of(session, record)?)).collect()
}

fn approval_of<'s>(session: &'s Snapshot, record: &StepRecord) -> Option<&'s Approval> {
    session.approvals.iter().find(|approval| approval.metadata.name == record.object)
}

fn decided_gate(index: usize, record: &StepRecord, approval: &Approval) -> Option<Decided> {
    let request = &approval.spec.request;
    let outcome = approval.status.as_ref()?.outcome.as_ref()?;
    let record_response = record.response.as_ref().map(|value| match &value.0 {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let until = outcome.decided_at.or(record.finished_at).unwrap_or(record.at);
    Some(Decided {
        step_index: index,
        prompt: request.prompt.clone(),
        context_snapshot: request.context.clone().or_else(|| request.reviews.as_ref().map(|r| r.response.clone())),
        user: (!outcome.decided_by.is_empty()).then(|| outcome.decided_by.join(", ")),
        response: outcome.response.clone().or(record_response),
        timestamp: outcome.decided_at,
        duration_seconds: until.since(record.at).as_secs(),
        gate: request.gate.name.clone(),
        path: record.path.clone(),
        verdict: outcome.verdict,
        reason: outcome.reason.clone(),
        source: outcome.source,
    })
}
