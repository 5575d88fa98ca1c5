//! The action that a request is about: the call of a tool, the question of an agent, otherwise the gate.
//!
//! Pure.

use signoff_api::{ApprovalRequest, tool::MAX_TOOL_NAME};
use signoff_expr::text::display;
use signoff_review::{
    action::{self, Fact},
    text::one_line,
};

use super::{LONGEST, turn_page};
use crate::approval::texts::{AskedQuestion, questions};

/// The facts of the action, and the words of its agent.
pub(super) struct ReviewedAction {
    pub(super) headline: String,
    /// Whether the request is about the call of a tool.
    pub(super) is_call: bool,
    /// Whether an agent asks.
    pub(super) is_question: bool,
    /// The questions of an agent, if there is no form that asks them.
    pub(super) questions: Vec<AskedQuestion>,
    /// The page of the turn, if the agent made other calls in it.
    pub(super) turn: Option<String>,
    /// The facts above the reviewed text.
    pub(super) before: Vec<Fact>,
    /// The facts below the reviewed text.
    pub(super) after: Vec<Fact>,
    /// The agent's own words.
    pub(super) says: Option<String>,
}

impl ReviewedAction {
    /// Returns the action of a request. `has_form`: whether a form asks the questions.
    pub(super) fn of(request: &ApprovalRequest, namespace: &str, has_form: bool) -> Self {
        let is_question = action::is_question(request);
        Self {
            headline: headline(request),
            is_call: action::call(request).is_some(),
            is_question,
            questions: if is_question && !has_form { questions(request) } else { Vec::new() },
            turn: turn_path(namespace, request),
            before: request.action.as_ref().map(action::facts_before).unwrap_or_default(),
            after: action::facts_after(request),
            says: action::says(request).map(|words| display(words, LONGEST)),
        }
    }
}

/// Returns the heading of the facts: the tool of a call, the agent that asks, otherwise the gate.
fn headline(request: &ApprovalRequest) -> String {
    match &request.action {
        Some(action) if action::is_question(request) => format!("Question of {}", one_line(&action.agent, 63)),
        Some(action) => format!("Call of {}", one_line(&action.tool, MAX_TOOL_NAME)),
        None => one_line(&request.gate.path, 512),
    }
}

fn turn_path(namespace: &str, request: &ApprovalRequest) -> Option<String> {
    // A question does not name the other calls.
    let can_have_others =
        action::is_question(request) || request.action.as_ref().is_some_and(|action| !action.siblings.is_empty());
    request.turn().filter(|_| can_have_others).map(|turn| turn_page(namespace, &turn))
}
