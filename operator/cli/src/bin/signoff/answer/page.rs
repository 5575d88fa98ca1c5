//! The page of an open gate on a terminal: the question first, then the words of others in fences.
//!
//! **Invariant:** text that binds is never shortened, and at most one line of others' text is outside a fence.

use signoff_api::{Approval, ApprovalRequest, Digest, Moment, Verdict, approval::Review, gate::Question};
use signoff_cli::{
    changes, facts,
    sanitize::{fence, one_line},
};
use signoff_local::GateQuestion;
use signoff_review::{
    action::{self, is_question},
    clock::distance,
    edits,
    outcome::sequel,
    quorum,
    request::{consequence, heading, heading_of_sent, respond_rule},
};

/// The longest text of others on the page, in characters.
const LONGEST: usize = 20_000;

/// Renders the page of an open gate.
pub fn render_page(asked: &GateQuestion, now: Moment) -> String {
    let (approval, request) = (&asked.approval, asked.request());
    let mut page = format!("\n{}\n", title(request));
    let prompt = fence(&request.prompt, LONGEST);
    match &request.action {
        // The first line of the prompt says that an answer approves nothing, so the prompt comes first.
        Some(action) if is_question(request) => {
            page += &(format!("{}:\n{prompt}\n", action::ASKS) + &facts::lines(&action::facts_before(action)));
            page += &render_reviewed(asked);
            page += &facts::lines(&action::facts_after(request));
        }
        Some(action) => {
            page += &facts::lines(&action::facts_before(action));
            page += &render_reviewed(asked);
            page += &format!("\n{}", facts::lines(&action::facts_after(request)));
            page += &format!("\nQuestion:\n{prompt}");
        }
        None => page += &(prompt + &render_reviewed(asked)),
    }
    if let Some(shown) = asked.context.as_deref().or(request.context.as_deref()) {
        page += &section("Context, in the run's own words (not checked)", shown);
    }
    if let Some(words) = action::says(request) {
        page += &section(action::SAYS, words);
    }
    page += &render_questions(request);
    page += &format!("\n{}\n", terms_line(approval, now));
    page
}

/// Renders the texts of the questions. The options of a question are shown when it is answered.
fn render_questions(request: &ApprovalRequest) -> String {
    let from = if is_question(request) { " (text of a model: no fact, not checked)" } else { "" };
    let render_question = |question: &Question| {
        let id =
            if question.id == Question::PLAIN { String::new() } else { format!(" {}", one_line(&question.id, 63)) };
        question.question.as_ref().map(|text| section(&format!("Question{id}{from}"), text))
    };
    let questions: String = request.form.iter().flat_map(|form| &form.questions).filter_map(render_question).collect();
    questions + &respond_rule(request).map(|rule| format!("\nAn answer must be {rule}\n")).unwrap_or_default()
}

/// Renders the reviewed text, the changes of people to it, and the text that is sent. Arguments of a call are indented.
fn render_reviewed(asked: &GateQuestion) -> String {
    let (request, reviewed) = (asked.request(), asked.reviewed.as_deref());
    let Some(review) = &request.reviews else { return render_sent(asked) };
    let title = heading(request, review);
    let is_cut = Digest::of_bytes(review.response.as_bytes()) != review.digest;
    let mut page = match reviewed {
        Some(whole) if action::call(request).is_some() => arguments_section(request, &title, whole),
        Some(whole) if whole.starts_with(&review.response) => section(&title, whole),
        // The beginnings of all fields come first, so that no long field hides another.
        Some(whole) => section(&title, &review.response) + &section("All of it", whole),
        None if !is_cut && action::call(request).is_some() => arguments_section(request, &title, &review.response),
        None => section(&title, &review.response),
    };
    if is_cut && reviewed.is_none() {
        page += "  not all of it is here\n";
    }
    page += &render_changes(asked, review);
    page + &render_sent(asked)
}

/// Renders the changes of people to the reviewed text.
fn render_changes(asked: &GateQuestion, review: &Review) -> String {
    if review.by.is_empty() {
        return String::new();
    }
    let reviewed = asked.reviewed.as_deref().unwrap_or(&review.response);
    format!("\n{}:\n{}", edits::CHANGES, changes::body(asked.request(), Some(reviewed), &asked.originals))
}

/// Renders the text that is sent.
fn render_sent(asked: &GateQuestion) -> String {
    let request = asked.request();
    let Some(sent) = &request.sends else { return String::new() };
    let title = heading_of_sent(request);
    match &asked.sent {
        Some(whole) => section(title, &sent.text) + &format!("\nAll of it:\n{}", fence(whole, whole.len())),
        None => section(title, &sent.text),
    }
}

/// Renders the whole arguments of a call.
fn arguments_section(request: &ApprovalRequest, title: &str, whole: &str) -> String {
    let shown = action::arguments(request, whole);
    format!("\n{title}:\n{}  the whole: {} bytes\n", fence(&shown, shown.len().max(LONGEST)), whole.len())
}

fn section(title: &str, text: &str) -> String {
    format!("\n{title}:\n{}", fence(text, LONGEST))
}

/// Returns the title of the page, such as `Gate review, asked 2 times by now:`.
fn title(request: &ApprovalRequest) -> String {
    let visit = match request.gate.visit {
        1 => String::new(),
        again => format!(", asked {again} times by now"),
    };
    format!("Gate {}{visit}:", one_line(&request.gate.path, 512))
}

/// Returns how many approvers agree so far, such as `1 of 2 agree`. `None` if the only quorum needs one approver, or if
/// there are several quorums, which have lines of their own.
pub fn vote_progress(approval: &Approval) -> Option<String> {
    let request = &approval.spec.request;
    let have = approval.status.as_ref().and_then(|status| status.tally).unwrap_or_default().have;
    let is_counted = request.quorums.len() < 2 && request.threshold() > 1;
    is_counted.then(|| format!("{have} of {} agree", request.threshold()))
}

/// Returns the approvers of an Approval as one line. Several quorums are joined.
pub fn approver_list(approval: &Approval) -> String {
    match approval.spec.request.quorums.len() {
        ..=1 => quorum::subjects(approval.approvers()),
        _ => quorum::lines(approval).join("; and "),
    }
}

/// Returns the line with the approvers, the votes so far, the effect of Reject and the deadline.
fn terms_line(approval: &Approval, now: Moment) -> String {
    let request = &approval.spec.request;
    let mut terms = format!("Asks {}", approver_list(approval));
    terms += &vote_progress(approval).map(|progress| format!(" ({progress})")).unwrap_or_default();
    if request.allowed_verdicts.contains(&Verdict::Reject) {
        terms += &format!(". After Reject: {}", sequel(request, Verdict::Reject));
    }
    terms + &format!(". {}.", deadline_line(approval, now))
}

/// Returns the deadline, such as `Until 2026-01-01T10:00:00Z (in 24h); then it counts as rejected`.
pub fn deadline_line(approval: &Approval, now: Moment) -> String {
    let status = approval.status.clone().unwrap_or_default();
    let until = status.deadline.unwrap_or(approval.spec.request.deadline).ceil_to_second();
    format!("Until {until} ({}); then {}", distance(until, now), consequence(&approval.spec.request, &status))
}
