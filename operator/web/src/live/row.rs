//! A row of the inbox: the facts of one Approval, which all its readers share, and the standing of one reader.
//!
//! A row has only what a line of the inbox needs, because a page keeps thousands of rows.

use std::sync::Arc;

use signoff_api::{Approval, ApprovalRequest, Moment, Verdict, gate::GateType, tool::MAX_TOOL_NAME};
use signoff_engine::approval::eligibility::{IneligibleReason, Voter, voter_problem};
use signoff_expr::text::display;
use signoff_review::{action, alike, brief, quorum::subjects, request::consequence, text::one_line};

use crate::session::Me;

/// The longest prompt in a line of the inbox, in characters.
const LONGEST_PROMPT: usize = 240;
/// The longest tool and target in a line of the inbox, in characters.
const LONGEST_CALL: usize = 200;
/// The longest list of approvers, in characters.
const LONGEST_APPROVERS: usize = 200;
/// The longest arguments in a line of the inbox, in characters.
const LONGEST_ARGUMENTS: usize = 160;

/// The facts of an Approval, which are the same for all readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The uid of the Approval.
    pub uid: String,
    /// The resource version of the Approval.
    pub version: String,
    /// The namespace of the Approval.
    pub namespace: String,
    /// The name of the Approval.
    pub name: String,
    /// The name of the run's Workflow.
    pub workflow: String,
    /// The path of the gate.
    pub gate: String,
    /// The tool and the target of a call, or the agent that asks.
    pub call: Option<String>,
    /// The tool of a call.
    pub tool: Option<String>,
    /// The arguments of a call in a few words.
    pub arguments: Option<String>,
    /// The first question of an agent, in its own words.
    pub asks: Option<String>,
    /// The turn of the agent that calls or asks.
    pub turn: Option<String>,
    /// The type of the gate.
    pub type_: GateType,
    /// The beginning of the author's prompt.
    pub prompt: String,
    /// The approval policies that apply.
    pub policies: Vec<String>,
    /// The key of the gate, by which equal gates are found.
    pub alike: String,
    /// The requester, or the person for whom they requested it.
    pub requested_by: String,
    /// The approvers in words.
    pub asked: String,
    /// The time of the request.
    pub since: Moment,
    /// The deadline in force.
    pub deadline: Moment,
    /// The time from which decisions are not accepted, or `None`.
    pub closes_at: Option<Moment>,
    /// The effect of the next timeout. Completes the sentence “then …”.
    pub then: String,
    /// The number of counted approvals.
    pub have: i32,
    /// The number of approvals that the gate needs.
    pub needed: i32,
    /// Whether the gate needs more than this number of approvals: further quorums, or people of certain groups.
    pub needs_more: bool,
    /// Whether the phase of the Approval says that the deadline has passed.
    pub is_overdue: bool,
    /// Whether the request asks again after an earlier one was superseded.
    pub asks_again: bool,
}

/// The part of a reader in an Approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The Approval waits for the reader.
    Asked,
    /// The reader has decided, and others are still needed.
    Decided(Verdict),
    /// Only other people can decide the Approval.
    Other,
}

/// A row as one reader sees it.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The facts of the Approval, which all readers share.
    pub row: Arc<Row>,
    /// The part of the reader, such as that the Approval waits for the reader.
    pub standing: Standing,
    /// Whether the reader requested the run.
    pub is_mine: bool,
}

/// Returns a text as a part of a line: without line ends and tabs, at most `most` characters.
fn line_text(text: &str, most: usize) -> String {
    display(text, most).replace(['\n', '\t'], " ").trim().to_owned()
}

/// Returns the name of a person as text for a row, at most 253 characters.
#[must_use]
pub fn name_text(user: &str) -> String {
    line_text(user, 253)
}

impl Row {
    /// Returns the facts of an Approval.
    #[must_use]
    pub fn of(approval: &Approval) -> Self {
        let request = &approval.spec.request;
        let meta = &approval.metadata;
        let status = approval.status.clone().unwrap_or_default();
        let first = request.quorums.first();
        let deadline = approval.deadline();
        let since = meta.creation_timestamp.as_ref().map_or(deadline, |at| Moment::from(at.0));
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            workflow: request.workflow.name.clone(),
            gate: line_text(&request.gate.path, 512),
            call: request.action.as_ref().map(|action| match action::line(request) {
                Some(line) => line_text(&line, LONGEST_CALL),
                None => format!("Question of {}", line_text(&action.agent, 63)),
            }),
            tool: action::call(request).map(|call| one_line(&call.tool, MAX_TOOL_NAME)),
            arguments: brief::arguments(request, LONGEST_ARGUMENTS),
            asks: first_question(request),
            turn: request.turn(),
            type_: request.gate.type_,
            prompt: line_text(action::authors_words(request), LONGEST_PROMPT),
            policies: request.required_by.iter().map(|by| one_line(&by.source, 320)).collect(),
            alike: alike::key(approval),
            requested_by: name_text(request.requested_for.as_ref().unwrap_or(&request.requested_by)),
            asked: line_text(&subjects(approval.approvers()), LONGEST_APPROVERS),
            since,
            deadline,
            closes_at: approval.closes_at(),
            then: consequence(request, &status),
            have: status.tally.map_or(0, |tally| tally.have),
            needed: status.tally.map_or(request.threshold(), |tally| tally.needed),
            needs_more: request.quorums.len() > 1 || first.is_some_and(|own| !own.required_from.is_empty()),
            asks_again: approval.asks_again().is_some(),
            is_overdue: status.phase == signoff_api::approval::ApprovalPhase::Overdue,
        }
    }

    /// Whether decisions are still accepted.
    #[must_use]
    pub fn is_open(&self, now: Moment) -> bool {
        self.closes_at.is_none_or(|closes| closes >= now)
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn is_late(&self, now: Moment) -> bool {
        self.is_overdue || self.deadline <= now
    }

    /// Whether one more Approve reaches the needed number, and nothing else is needed.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !self.needs_more && self.have + 1 >= self.needed
    }
}

/// Returns the first question of an agent.
fn first_question(request: &ApprovalRequest) -> Option<String> {
    let first = request.form.as_ref().filter(|_| action::is_question(request))?.questions.first()?;
    first.question.as_ref().map(|text| one_line(text, LONGEST_PROMPT))
}

impl Waiting {
    /// Returns an Approval as a user sees it; `row` has its facts.
    #[must_use]
    pub fn of(approval: &Approval, row: Arc<Row>, me: &Me) -> Self {
        let request = &approval.spec.request;
        let is_mine = request.requested_for.iter().chain([&request.requested_by]).any(|name| *name == me.user);
        Self { row, standing: Standing::of(approval, me), is_mine }
    }
}

impl Standing {
    /// Returns the part of a user in an Approval. The deadline does not count, because it passes without a watch event.
    #[must_use]
    pub fn of(approval: &Approval, me: &Me) -> Self {
        let status = approval.status.as_ref();
        let is_closed = status.is_some_and(|status| status.phase.is_end() || status.outcome.is_some());
        if is_closed || approval.metadata.deletion_timestamp.is_some() || approval.spec.request.quorums.is_empty() {
            return Self::Other;
        }
        match voter_problem(approval, &Voter::new(&me.user, &me.groups)) {
            None => Self::Asked,
            Some(IneligibleReason::Decided(_, verdict)) => Self::Decided(verdict),
            Some(_) => Self::Other,
        }
    }
}
