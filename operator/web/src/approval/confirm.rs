//! The page that shows a decision before it is sent: its content, its effect, and the difference that it makes.
//! `decide.rs` returns this page until the decision is confirmed.
//!
//! Pure.
//!
//! **Invariant:** the shown decision and the sent decision have the same name.

use askama::Template;
use serde_json::Value;
use signoff_api::{ApprovalRequest, Decision, Verdict, gate::GateType};
use signoff_engine::gate::parameters;
use signoff_expr::text::display;
use signoff_review::{
    action::{self, Fact},
    coming,
    entry::Entry,
    flow::Rehearsed,
    meaning::run_again,
    text::one_line,
};
use similar::{ChangeTag, TextDiff};

use super::{
    forms::decide,
    model,
    read::Read,
    texts::{REVIEWED, Text, subject},
    typed::{self, Problems, Typed},
};
use crate::{page::Shell, session::Caller};

/// The longest line of a difference, in characters.
const LONGEST_LINE: usize = 200_000;
/// The most lines of the reviewed text on this page.
const MOST_LINES: usize = 20;
/// The longest label of an answer, in characters.
const LONGEST_LABEL: usize = 200;
/// The longest question of a gate, in characters.
const LONGEST_QUESTION: usize = 2000;

#[derive(Template)]
#[template(path = "confirm.html")]
pub(super) struct ConfirmPage {
    shell: Shell,
    namespace: String,
    name: String,
    verdict: &'static str,
    target: String,
    workflow: String,
    digest: String,
    /// The question of the gate, and its label.
    question: String,
    label: &'static str,
    /// The facts of a call, which stand above its arguments.
    before: Vec<Fact>,
    /// The beginning of the reviewed text, if the decision does not change it.
    subject: Option<Text>,
    /// Whether nothing on the page is cut: neither the reviewed text nor the question.
    is_whole: bool,
    /// The effect of the verdict, if its name alone would mislead.
    meaning: Option<String>,
    comes_to: String,
    /// The sentence about parts of the form that were filled in and are not sent.
    left_out: Option<String>,
    changes: Vec<ParameterDifference>,
    reason: Option<String>,
    /// The guidance, the answers and the further approvers of the decision, each with its label.
    payload: Vec<(String, String)>,
    /// The CSS class of the button.
    class: &'static str,
    fields: Vec<(String, String)>,
    /// The name of the decision that is confirmed.
    confirmed: String,
    /// Whether the reader confirmed another decision than the one that would be sent now.
    differs: bool,
    /// The notice above an answer to an agent.
    notice: Option<&'static str>,
}

/// The difference of one parameter by lines.
struct ParameterDifference {
    name: String,
    lines: Vec<(&'static str, &'static str, String)>,
}

/// Returns the guidance, the answers and the further approvers of a decision, each with its label.
fn payload(request: &ApprovalRequest, decision: &Decision) -> Vec<(String, String)> {
    let mut payload = Vec::new();
    payload.extend(decision.guidance.clone().map(|text| ("Guidance".to_owned(), text)));
    for question in request.form.iter().flat_map(|form| &form.questions) {
        let Some(answer) = decision.answers.as_ref().and_then(|answers| answers.get(&question.id)) else { continue };
        let label = |id: &String| match question.options.iter().find(|option| option.id == *id) {
            Some(option) if option.label() != option.id => format!("{} ({id})", option.label()),
            _ => id.clone(),
        };
        let text = answer.options.iter().map(label).chain(answer.text.clone()).collect::<Vec<_>>().join("\n");
        let title = question.question.clone().unwrap_or_else(|| format!("Answer {}", question.id));
        payload.push((one_line(&title, LONGEST_LABEL), text));
    }
    if !decision.escalate_to.is_empty() {
        payload.push(("To".to_owned(), signoff_review::quorum::subjects(&decision.escalate_to)));
    }
    payload
}

/// Returns the page that shows a decision before it is sent.
pub(super) fn confirm(caller: &Caller, read: &Read, rehearsed: &Rehearsed, typed: &Typed) -> ConfirmPage {
    let entry = rehearsed.entry();
    let request = &rehearsed.seen().approval.spec.request;
    let metadata = &rehearsed.seen().approval.metadata;
    let verdict = entry.decision.verdict;
    let (namespace, name) = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
    let own_page = format!("{}/text/{REVIEWED}", model::path(&namespace, &name));
    let payload = payload(request, &entry.decision);
    let changes = parameter_differences(request, entry, model::reviewed(read).as_deref());
    let subject = subject(request, &read.whole).filter(|_| changes.is_empty());
    let subject = subject.map(|text| Text { page: Some(own_page), ..text.first(MOST_LINES) });
    ConfirmPage {
        question: display(action::authors_words(request), LONGEST_QUESTION),
        label: coming::label_of_question(request, coming::definition(request, &read.run)),
        before: request.action.as_ref().map(action::facts_before).unwrap_or_default(),
        is_whole: subject.as_ref().is_none_or(|text| text.more == 0 && text.cut.is_none())
            && action::authors_words(request).chars().count() <= LONGEST_QUESTION,
        subject,
        shell: Shell::of(caller, &format!("Confirm {verdict}"), "inbox"),
        target: model::target(request),
        workflow: request.workflow.name.clone(),
        digest: request.digest.to_string(),
        verdict: verdict.name(),
        meaning: meaning(request, verdict),
        comes_to: model::comes_to(request, verdict, rehearsed.reached(), rehearsed.run()),
        left_out: left_out(read, typed, verdict),
        changes,
        reason: entry.decision.reason.as_ref().map(|reason| display(reason, LONGEST_LINE)),
        payload: payload.into_iter().map(|(label, text)| (label, display(&text, LONGEST_LINE))).collect(),
        class: if verdict.stops() { "danger" } else { "main" },
        fields: typed.own_fields(),
        confirmed: rehearsed.name(),
        differs: typed.get("confirmed").is_some(),
        notice: action::is_question(request).then_some(action::NOTICE),
        namespace,
        name,
    }
}

/// Returns the effect of a verdict whose name can be misread: a Retry can run a step again, and an answer does not stop
/// the run.
fn meaning(request: &ApprovalRequest, verdict: Verdict) -> Option<String> {
    let is_step = request.gate.type_ == GateType::Step && request.action.is_none();
    let goes_on = is_step && request.allowed_verdicts.contains(&Verdict::Approve);
    match verdict {
        Verdict::Retry => run_again(request),
        Verdict::Respond => goes_on.then(|| "the run goes on with your answer, as it does after Approve".to_owned()),
        Verdict::Approve
        | Verdict::Reject
        | Verdict::Modify
        | Verdict::Skip
        | Verdict::Abort
        | Verdict::Defer
        | Verdict::Escalate => None,
    }
}

/// Returns the sentence about parts of the form that were filled in and are not sent with this verdict, or `None`.
fn left_out(read: &Read, typed: &Typed, verdict: Verdict) -> Option<String> {
    let forms = decide(read.verified().ok()?, read, typed, &Problems::default());
    let parts = forms.left_out();
    let (last, others) = parts.split_last()?;
    let parts = if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) };
    Some(format!("What you changed under {parts} is not sent with {verdict}."))
}

/// Returns a difference for each parameter of the decision. A Retry has no earlier values, so all its lines are new.
fn parameter_differences(request: &ApprovalRequest, entry: &Entry, reviewed: Option<&str>) -> Vec<ParameterDifference> {
    let Some(parameters) = &entry.decision.parameters else { return Vec::new() };
    let shown = typed::parameters_of(request, entry.decision.verdict, reviewed);
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => typed::pretty(other),
    };
    let is_retry = entry.decision.verdict == Verdict::Retry;
    let compare = |(name, after): (&String, &Value)| {
        let parameter = shown.iter().find(|parameter| parameter.name == *name && !is_retry);
        let before = parameter.map(typed::Parameter::text).unwrap_or_default();
        ParameterDifference { name: name.clone(), lines: difference(&before, &text(after)) }
    };
    parameters::as_object(parameters).0.iter().map(compare).collect()
}

/// Returns the lines of a difference: a CSS class, a sign, and the line. Long parts without a change are left out.
fn difference(before: &str, after: &str) -> Vec<(&'static str, &'static str, String)> {
    let shown = |line: &str| display(line.trim_end_matches('\n'), LONGEST_LINE);
    let difference = TextDiff::from_lines(before, after);
    let mut lines = Vec::new();
    for (index, group) in difference.grouped_ops(3).iter().enumerate() {
        if index > 0 {
            lines.push(("gap", "", "⋯".to_owned()));
        }
        for change in group.iter().flat_map(|op| difference.iter_changes(op)) {
            let (class, sign) = match change.tag() {
                ChangeTag::Equal => ("same", " "),
                ChangeTag::Delete => ("gone", "−"),
                ChangeTag::Insert => ("new", "+"),
            };
            lines.push((class, sign, shown(change.value())));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_has_removed_and_added_lines() {
        let lines = difference("a\nb\nc\n", "a\nx\nc\n");
        let shown: Vec<_> = lines.iter().map(|(class, _, line)| (*class, line.as_str())).collect();
        assert_eq!(shown, [("same", "a"), ("gone", "b"), ("new", "x"), ("same", "c")]);
    }

    #[test]
    fn difference_shows_hidden_characters() {
        let lines = difference("a\n", "a\u{202e}\n");
        assert!(lines.iter().any(|(_, _, line)| line.contains("U+202E")), "{lines:?}");
    }
}
