//! The decisions of a run: the votes at each gate, and its outcome.
//!
//! **Invariant:** a vote has a channel only if the operator recorded a verified one.

use std::collections::BTreeMap;

use signoff_api::{
    Approval, ApprovalRequest, Moment, Outcome,
    approval::Source,
    journal::{StepKind, StepPhase, StepRecord},
};
use signoff_review::{decisions, edits, request, run::State, text::one_line};

use super::{address::Address, shapes::class, texts::Fenced};
use crate::page::Instant;

/// The most gates; of more, the latest are shown.
const MOST: usize = 200;

/// One gate that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The path of the gate.
    pub path: String,
    /// The page of the Approval, or `None` if the record names none.
    pub href: Option<String>,
    /// The word for the state of the gate.
    pub word: &'static str,
    /// The tone of the state of the gate.
    pub tone: &'static str,
    /// The deciders: `by alice@example.com`, `by its timeout`.
    pub by: Option<String>,
    /// The time of the outcome.
    pub at: Option<Instant>,
    /// The verdict that counts, if the state does not name it.
    pub counts_as: Option<String>,
    /// The reason of the outcome, or `None`.
    pub reason: Option<Fenced>,
    /// The text that a Modify at the gate replaced.
    pub before: Option<Fenced>,
    /// The decisions of people.
    pub votes: Vec<PersonDecision>,
}

/// The decision of one person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonDecision {
    /// The person who is counted, or the key of a decision that is not counted.
    pub who: String,
    /// The name of the verdict.
    pub verdict: &'static str,
    /// The time at which the operator counted the decision, or `None` if it does not count.
    pub at: Option<Instant>,
    /// The verified channel of a decision that counts.
    pub channel: Option<String>,
    /// The state of a decision that does not count.
    pub state: Option<String>,
    /// The reason and the payload of the decision, or `None` if it has none.
    pub words: Option<Fenced>,
}

/// The gates of a run that were asked, in the order in which they were asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions {
    /// The latest gates.
    pub gates: Vec<Gate>,
    /// The number of earlier gates that are left out.
    pub hidden: usize,
}

impl Decisions {
    /// Returns the gates of a run.
    pub fn of(records: &[StepRecord], approvals: &[Approval], address: &Address, now: Moment) -> Self {
        let mut asked: Vec<&StepRecord> = records.iter().filter(|record| record.kind == StepKind::Hitl).collect();
        asked.sort_by_key(|record| record.seq);
        let hidden = asked.len().saturating_sub(MOST);
        let gates = asked.iter().skip(hidden).map(|record| decided_gate(record, approvals, address, now)).collect();
        Self { gates, hidden }
    }
}

/// Returns a gate as the page shows it, with the votes on its Approval.
fn decided_gate(record: &StepRecord, approvals: &[Approval], address: &Address, now: Moment) -> Gate {
    let approval = approvals.iter().find(|approval| record.object.is_some() && approval.metadata.name == record.object);
    let outcome = record.decision.as_ref();
    let state = match (outcome, approval.and_then(|approval| approval.status.as_ref())) {
        (Some(outcome), _) => State::Decided(outcome.phase),
        (None, Some(status)) if record.phase == StepPhase::Waiting => State::Decided(status.phase),
        (None, _) => State::Record(record.phase),
    };
    Gate {
        path: one_line(&record.path, 512),
        href: record.object.as_ref().map(|name| address.approval(name)),
        word: state.word(),
        tone: class(state.tone()),
        by: outcome.map(deciders),
        at: outcome.and_then(|outcome| outcome.decided_at).map(Instant::from),
        counts_as: outcome.and_then(|outcome| counts_as(outcome, approval)),
        reason: outcome.and_then(|outcome| outcome.reason.as_ref()).map(|text| Fenced::new("Reason", text)),
        before: outcome
            .zip(approval)
            .and_then(|(outcome, approval)| text_before_change(outcome, &approval.spec.request)),
        votes: approval.map(|approval| person_decisions(approval, now)).unwrap_or_default(),
    }
}

/// Returns the sentences about changed values by the path of the step: `changed by bob at gate sql, then by erin at
/// gate prod`.
pub fn changes(records: &[StepRecord], approvals: &[Approval]) -> BTreeMap<String, String> {
    let mut decided: Vec<_> = records.iter().filter(|record| record.object.is_some()).collect();
    decided.sort_by_key(|record| record.done);
    let mut changes: BTreeMap<String, String> = BTreeMap::new();
    for record in decided {
        let Some(outcome) = &record.decision else { continue };
        let Some(approval) = approvals.iter().find(|approval| approval.metadata.name == record.object) else {
            continue;
        };
        let request = &approval.spec.request;
        if let Some(reviewed) = request.reviews.as_ref().filter(|_| edits::replaced(outcome, request).is_some()) {
            let change = format!("{} at gate {}", deciders(outcome), one_line(&record.path, 120));
            match changes.get_mut(&reviewed.path) {
                Some(sentence) => *sentence += &format!(", then {change}"),
                None => {
                    changes.insert(reviewed.path.clone(), format!("changed {change}"));
                }
            }
        }
    }
    changes
}

/// Returns the text that a Modify at a gate replaced, or the beginning of a long text. The page of the Approval has the
/// whole text.
fn text_before_change(outcome: &Outcome, request: &ApprovalRequest) -> Option<Fenced> {
    let replaced = edits::replaced(outcome, request)?;
    let part = if replaced.is_cut { ", the beginning" } else { "" };
    Some(Fenced::new(&format!("Before the change{part} ({})", replaced.digest), replaced.text))
}

/// Returns the source of an outcome in words: `by alice@example.com`, `by its timeout`.
fn deciders(outcome: &Outcome) -> String {
    match outcome.source {
        Source::Timeout => "by its timeout".to_owned(),
        Source::Policy => "by the operator".to_owned(),
        Source::Grant => "by an earlier grant".to_owned(),
        Source::Human => format!("by {}", one_line(&outcome.decided_by.join(", "), 2000)),
    }
}

/// Returns the verdict that counts at an expired gate, whose phase does not name it.
fn counts_as(outcome: &Outcome, approval: Option<&Approval>) -> Option<String> {
    let expired = outcome.phase == signoff_api::approval::ApprovalPhase::Expired;
    let request = approval.map(|approval| &approval.spec.request);
    outcome.verdict.filter(|_| expired).map(|verdict| request::counts_as(verdict, request))
}

/// Returns the decisions of people on an Approval, also those that do not count.
fn person_decisions(approval: &Approval, now: Moment) -> Vec<PersonDecision> {
    let status = approval.status.clone().unwrap_or_default();
    let decisions = approval.spec.decisions.iter().map(|(key, decision)| {
        let invalid = status.invalid.get(key).is_some_and(|invalid| invalid.attempt == decision.attempt());
        let vote = status.votes.iter().find(|vote| vote.key == *key).filter(|_| !invalid);
        let words = decisions::said(decision);
        PersonDecision {
            who: one_line(vote.map_or(key, |vote| &vote.user), 512),
            verdict: decision.verdict.name(),
            at: vote.map(|vote| vote.at.into()),
            channel: vote.and_then(|vote| vote.channel.as_ref()).map(|channel| one_line(channel, 32)),
            state: vote.is_none().then(|| decisions::state(key, decision, &status, now)),
            words: (!words.is_empty()).then(|| Fenced::new("In their words", &words)),
        }
    });
    decisions.collect()
}
