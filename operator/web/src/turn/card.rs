//! The cards of requests that are decided together: one for each request, with its facts and its texts.
//!
//! Pure.

use std::collections::BTreeSet;

use signoff_api::ApprovalRequest;
use signoff_engine::approval::eligibility::ineligible;
use signoff_expr::text::display;
use signoff_review::{
    action::{self, Fact},
    coming,
    text::one_line,
};

use super::{bond::Bond, read::Together};
use crate::{
    approval::{
        model::{LONGEST, path, target},
        read::Read,
        texts::{AskedQuestion, RequestTexts, questions},
    },
    session::Caller,
};

/// The card of one request.
pub(super) struct RequestCard {
    /// The number of the call in the turn, or of the request on the page.
    pub(super) number: u32,
    pub(super) title: String,
    pub(super) name: String,
    pub(super) path: String,
    pub(super) gate: String,
    pub(super) digest: String,
    pub(super) eligibility: Eligibility,
    pub(super) action: CardAction,
    pub(super) texts: RequestTexts,
    /// The question of the gate's author.
    pub(super) prompt: String,
    /// The label of the question, which tells whether values of the run are filled in.
    pub(super) label: &'static str,
}

/// Whether the reader can decide a request, and has chosen it.
pub(super) struct Eligibility {
    /// The reason why this request cannot or must not be decided: a heading and a sentence.
    pub(super) broken: Option<(&'static str, String)>,
    /// The reason why this reader cannot decide the request, or not together with the others.
    pub(super) cannot: Option<String>,
    pub(super) can_decide: bool,
    pub(super) is_chosen: bool,
}

/// The call of a tool, or the questions of an agent, that a request is about.
pub(super) struct CardAction {
    /// The facts above the reviewed text.
    pub(super) before: Vec<Fact>,
    /// The facts below the reviewed text.
    pub(super) after: Vec<Fact>,
    pub(super) is_question: bool,
    pub(super) questions: Vec<AskedQuestion>,
}

impl RequestCard {
    /// Returns the card of a request for a reader. `position`: its number on the page, from 1. `chosen`: the names of
    /// the chosen requests, or `None` for all.
    pub(super) fn of(
        caller: &Caller,
        together: &Together,
        read: &Read,
        position: u32,
        chosen: Option<&BTreeSet<&str>>,
    ) -> Self {
        let approval = &read.seen.approval;
        let request = &approval.spec.request;
        let name = approval.metadata.name.clone().unwrap_or_default();
        let number = action::turn_of(&request.gate.path).filter(|_| together.bond != Bond::Equal);
        Self {
            number: number.map_or(position, |(_, number)| number),
            title: together.bond.target(request).unwrap_or_else(|| target(request)),
            path: path(&together.namespace, &name),
            gate: one_line(&request.gate.path, 512),
            digest: request.digest.to_string(),
            eligibility: Eligibility::of(caller, together, read, &name, chosen),
            action: CardAction::of(request),
            texts: RequestTexts::of(read),
            prompt: display(action::authors_words(request), LONGEST),
            label: coming::label_of_question(request, coming::definition(request, &read.run)),
            name,
        }
    }
}

impl Eligibility {
    fn of(caller: &Caller, together: &Together, read: &Read, name: &str, chosen: Option<&BTreeSet<&str>>) -> Self {
        let problem = read.verified().err();
        let ineligible = ineligible(&read.seen.approval, &caller.me.voter(), read.at);
        // Readers who cannot decide anyway are told only what is wrong with the request itself.
        let shown = problem.as_ref().filter(|problem| problem.is_of_request() || ineligible.is_none());
        let broken = shown.map(|problem| (problem.heading(), problem.to_string()));
        let stranger = || together.strangers.contains(name).then(|| together.bond.stranger().to_owned());
        let cannot = ineligible.map(|why| one_line(&why.to_string(), 1000)).or_else(stranger);
        let can_decide = broken.is_none() && cannot.is_none();
        let is_chosen = can_decide && chosen.is_none_or(|chosen| chosen.contains(name));
        Self { broken, cannot, can_decide, is_chosen }
    }
}

impl CardAction {
    fn of(request: &ApprovalRequest) -> Self {
        let is_question = action::is_question(request);
        Self {
            before: request.action.as_ref().map(action::facts_before).unwrap_or_default(),
            after: action::facts_of_call(request),
            is_question,
            questions: if is_question { questions(request) } else { Vec::new() },
        }
    }
}
