//! The page of a request as a model: the facts, then the agreement that it needs, then the words of others.
//!
//! Pure. Each part of the page is a type with a function that builds it from the objects that were read; the template
//! names the parts.

mod agreement;
mod decision;
mod heading;
mod reviewed_action;
mod state;

use askama::Template;
use signoff_api::{Approval, ApprovalRequest, Moment, Verdict, Workflow, gate::GateType};
use signoff_engine::approval::eligibility::ineligible;
use signoff_review::{
    action::{self, NOTICE, SAYS},
    clock::distance,
    coming,
    edits::CHANGES,
    foreseen::Reached,
    outcome,
    request::CONTEXT,
    seen::RunNow,
    suggest::CallFlags,
    text::one_line,
    whole,
};

use super::{
    forms::decide,
    read::Read,
    texts::{Edited, RequestTexts, Text, edits_of_people},
    typed::{Problems, Typed},
};
use crate::{page::Shell, session::Caller};

use agreement::Agreement;
use decision::ReaderDecision;
use heading::{Alerts, AuthorQuestion, Origin, RequestId};
use reviewed_action::ReviewedAction;
use state::RequestState;

/// The longest text on the page, in characters; longer ones can be downloaded as files.
pub(crate) const LONGEST: usize = 200_000;

/// The longest value of an input, in characters.
const LONGEST_INPUT: usize = 300;
/// The most decisions at other gates of the run.
const MOST_DECIDED: usize = 20;

/// The label of the questions of an agent.
pub(crate) const ASKS_TITLE: &str = "In the agent's own words (text of a model: no fact, not checked)";

/// The page of a request.
#[derive(Template)]
#[template(path = "approval.html")]
pub struct ApprovalPage {
    shell: Shell,
    id: RequestId,
    question: AuthorQuestion,
    origin: Origin,
    state: RequestState,
    alerts: Alerts,
    action: ReviewedAction,
    texts: RequestTexts,
    /// The changes of people to the reviewed text, newest first.
    edits: Vec<Edited>,
    agreement: Agreement,
    run: RunSummary,
    decision: ReaderDecision,
    /// The requests before and after this one, which are read after the page was built.
    pub(super) related: RelatedRequests,
}

/// The run beside the request.
struct RunSummary {
    /// The inputs with their values.
    inputs: Vec<(String, String)>,
    /// The decisions at other gates of the run, each in a line.
    decided: Vec<String>,
}

/// The requests before and after this one.
#[derive(Default)]
pub(super) struct RelatedRequests {
    /// The request that waits next for a reader who has decided this one.
    pub(super) next_for_me: Option<RequestLink>,
    /// The decision after which this request was opened.
    pub(super) decided_before: Option<DecidedBefore>,
    /// Whether the opened link is of a message about another request.
    pub(super) is_replaced: bool,
    /// The request that asks again after this one was superseded.
    pub(super) asked_again: Option<RequestLink>,
}

/// A link to another request: one that waits for the reader, one that they have decided, or one that asks again.
pub(super) struct RequestLink {
    pub(super) path: String,
    /// The question of the other request.
    pub(super) question: String,
}

/// The request that the reader decided before this one.
pub(super) struct DecidedBefore {
    /// The request; `None` while it cannot be read.
    pub(super) request: Option<RequestLink>,
    /// The effect of the decision so far, in sentences.
    pub(super) says: String,
    /// The name of the drafts of the request, which are dropped.
    pub(super) draft: Option<String>,
}

impl ApprovalPage {
    /// Returns the page for a reader. `typed`: the form that they sent before. `problems`: the problems of that form.
    pub fn of(caller: &Caller, read: &Read, typed: &Typed, problems: &Problems) -> Self {
        let approval = &read.seen.approval;
        let request = &approval.spec.request;
        let definition = coming::definition(request, &read.run);
        let id = RequestId::of(approval);
        let mut shell = Shell::of(caller, &format!("{} · {}", request.gate.path, request.workflow.name), "inbox");
        shell.command = Some(CallFlags::default().show(Some(&id.namespace), &id.name));
        let can_decide = ineligible(approval, &caller.me.voter(), read.at).is_none();
        let verified = read.verified();
        // Readers who cannot decide anyway are told only what is wrong with the request itself.
        let broken = verified.as_ref().err().filter(|problem| problem.is_of_request() || can_decide);
        let alerts = Alerts::of(caller, read, broken, problems);
        let verified = verified.ok().filter(|_| can_decide);
        let forms = verified.map(|verified| decide(verified, read, typed, problems));
        let asks_questions = forms.as_ref().is_some_and(|forms| !forms.respond.is_empty());
        let state = RequestState::of(read, &id);
        Self {
            shell,
            question: AuthorQuestion::of(request, definition),
            origin: Origin::of(read, definition),
            alerts,
            action: ReviewedAction::of(request, &id.namespace, asks_questions),
            texts: texts(read, &id),
            edits: edits_of_people(read),
            agreement: Agreement::of(caller, read),
            run: RunSummary::of(definition, &id.name, read.at),
            decision: ReaderDecision::of(caller, read, forms, state.is_closed),
            related: RelatedRequests::default(),
            state,
            id,
        }
    }
}

impl RunSummary {
    /// Returns the summary of the run that asks, if it was read. `approval`: the name of the request.
    fn of(definition: Option<&Workflow>, approval: &str, now: Moment) -> Self {
        Self {
            inputs: definition.map(|run| coming::inputs(run, LONGEST_INPUT)).unwrap_or_default(),
            decided: definition.map(|run| coming::decided(run, approval, now, MOST_DECIDED)).unwrap_or_default(),
        }
    }
}

/// Returns the texts of a request with links to their own pages.
fn texts(read: &Read, id: &RequestId) -> RequestTexts {
    let texts = RequestTexts::of(read).with_pages(|part| format!("{}/text/{part}", id.path()));
    RequestTexts { subject: texts.subject.map(|text| with_newest_change(text, read)), ..texts }
}

/// Returns a text whose title also has the time of the newest change.
fn with_newest_change(text: Text, read: &Read) -> Text {
    let newest = read.seen.approval.spec.request.reviews.as_ref().and_then(|review| review.by.first());
    let Some(edit) = newest else { return text };
    Text { title: format!("{}, {}", text.title, distance(edit.at, read.at)), ..text }
}

/// Returns the path of the page of an Approval. Names of objects are DNS names, so they need no escapes.
pub fn path(namespace: &str, name: &str) -> String {
    format!("/n/{namespace}/a/{name}")
}

/// Returns the path of the page of a turn.
pub fn turn_page(namespace: &str, turn: &str) -> String {
    format!("/n/{namespace}/t/{turn}")
}

/// Returns the whole text with which an edit begins, or `None` if it could not be read.
pub fn reviewed(read: &Read) -> Option<String> {
    whole::to_edit(&read.seen.approval.spec.request, read.whole.as_ref().ok()).map(str::to_owned)
}

/// Returns the key under which the browser stores the draft of a request. With another digest a request has another
/// draft.
pub fn draft(approval: &Approval) -> String {
    format!("{}|{}", approval.metadata.uid.as_deref().unwrap_or_default(), approval.spec.request.digest)
}

/// Returns the subject of a decision as one line: the tool and the target of a call, the agent that asks, the method
/// and the address of a step, the image of a container, otherwise the gate.
pub fn target(request: &ApprovalRequest) -> String {
    if let Some(line) = action::line(request) {
        return one_line(&line, 300);
    }
    if let Some(action) = request.action.as_ref().filter(|_| action::is_question(request)) {
        return format!("the question of {}", one_line(&action.agent, 63));
    }
    let call = request.reviews.as_ref().filter(|_| request.gate.type_ == GateType::StepStart);
    let field = |name: &str| {
        let mut lines = call?.response.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    match (field("method").zip(field("url")), field("image")) {
        (Some((method, url)), _) => one_line(&format!("{method} {url}"), 300),
        (None, Some(image)) => one_line(image, 300),
        (None, None) => one_line(&request.gate.path, 300),
    }
}

/// Returns the sentence about the effect of a decision, with a note if the run is suspended.
pub fn comes_to(request: &ApprovalRequest, verdict: Verdict, reached: &Reached, run: &RunNow) -> String {
    match reached {
        Reached::Decided => {
            let held = outcome::suspended(request, verdict, run);
            format!("your decision is enough: {}", held.unwrap_or_else(|| outcome::sequel(request, verdict)))
        }
        Reached::Behind { verdict, by } => {
            let other = verdict.map_or("another decision", Verdict::name);
            format!("{other} by {} takes precedence", one_line(&by.join(", "), 300))
        }
        Reached::Escalated => "further approvers are asked".to_owned(),
        Reached::Open(count) => format!("{count}; others must still decide"),
        Reached::Unknown => "the effect cannot be computed now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_review::sample;

    use super::*;

    #[test]
    fn target_is_the_call_of_a_step_that_starts_and_the_gate_otherwise() {
        let target = |type_, response: &str| {
            let mut request = sample::approval().spec.request;
            request.gate.type_ = type_;
            request.gate.path = "pay/.start".to_owned();
            request.reviews.as_mut().unwrap().response = response.to_owned();
            target(&request)
        };
        let call = "attempts: 1\nurl: https://bank.example/refunds\nmethod: POST\nbody: x\n";
        assert_eq!(target(GateType::StepStart, call), "POST https://bank.example/refunds");
        let container = "attempts: 1\nimage: busybox@sha256:0\ncommand:\n- sh\n";
        assert_eq!(target(GateType::StepStart, container), "busybox@sha256:0");
        assert_eq!(target(GateType::StepStart, "attempts: 1\n"), "pay/.start");
        assert_eq!(target(GateType::Step, call), "pay/.start");
    }
}
