//! An open gate as it is shown on a terminal: what is asked first, then the words of others, fenced.
//!
//! It must not shorten what binds, and no text of others stands outside a fence by more than a line.

use signoff_api::{
    Approval, ApprovalRequest, Digest, Moment,
    gate::{Subject, TimeoutAction},
};
use signoff_cli::sanitize::{fenced, one_line};
use signoff_review::clock::distance;

/// The longest text of others on the page, in characters.
const LONGEST: usize = 20_000;

/// The page. `context` and `reviewed` are the whole ones where the request has only a part.
pub fn page(approval: &Approval, context: Option<&str>, reviewed: Option<&str>, now: Moment) -> String {
    let request = &approval.spec.request;
    let mut page = format!("\n{}\n{}", title(request), fenced(&request.prompt, LONGEST));
    if let Some(review) = &request.reviews {
        let title = format!("What step {} made", one_line(&review.path, 512));
        let is_cut = Digest::of_bytes(review.response.as_bytes()) != review.digest;
        match reviewed {
            Some(whole) if whole.starts_with(&review.response) => page += &section(&title, whole),
            // The beginning of each field first: no long field hides another.
            Some(whole) => page += &(section(&title, &review.response) + &section("All of it", whole)),
            None => page += &section(&title, &review.response),
        }
        if is_cut && reviewed.is_none() {
            page += "  not all of it is here\n";
        }
    }
    if let Some(shown) = context.or(request.context.as_deref()) {
        page += &section("Context, in the run's own words (not checked)", shown);
    }
    page += &format!("\n{}\n", terms(approval, now));
    page
}

fn section(title: &str, text: &str) -> String {
    format!("\n{title}:\n{}", fenced(text, LONGEST))
}

/// `Gate review, asked 2 times by now:`
fn title(request: &ApprovalRequest) -> String {
    let visit = match request.gate.visit {
        1 => String::new(),
        again => format!(", asked {again} times by now"),
    };
    format!("Gate {}{visit}:", one_line(&request.gate.path, 512))
}

/// Returns the count of approvers who agree, and the threshold: `1 of 2 agree`.
pub fn progress(approval: &Approval) -> String {
    let have = approval.status.as_ref().and_then(|status| status.tally).unwrap_or_default().have;
    format!("{have} of {} agree", approval.spec.request.threshold())
}

/// Returns the approvers of an Approval, as one line.
pub fn asks(approval: &Approval) -> String {
    let whom = approval.approvers();
    whom.iter().map(|subject: &Subject| one_line(&subject.to_string(), 253)).collect::<Vec<_>>().join(", ")
}

/// Returns the approvers, the number needed and the deadline.
fn terms(approval: &Approval, now: Moment) -> String {
    let request = &approval.spec.request;
    let mut terms = format!("Asks {}", asks(approval));
    if request.threshold() > 1 {
        terms += &format!(" ({})", progress(approval));
    }
    if !request.after_reject.is_empty() {
        terms += &format!(". After Reject the run goes on with {}", one_line(&request.after_reject.join(", "), 2000));
    }
    terms + &format!(". {}.", deadline(approval, now))
}

/// `Until 2026-01-01T10:00:00Z (in 24h); then it counts as rejected`
pub fn deadline(approval: &Approval, now: Moment) -> String {
    let request = &approval.spec.request;
    let moved = approval.status.as_ref().and_then(|status| status.deadline);
    let until = moved.unwrap_or(request.deadline).ceil_to_second();
    let then = match request.timeout.action.unwrap_or_default() {
        TimeoutAction::Reject => "it counts as rejected",
        TimeoutAction::Approve => "it counts as APPROVED",
        TimeoutAction::Retry => "it is asked again",
        TimeoutAction::Escalate => "more people are asked",
        TimeoutAction::Abort => "the whole run is aborted",
        TimeoutAction::Skip => "the run goes on without an answer",
        TimeoutAction::Default => "the default is the answer",
        TimeoutAction::Expire => "it stays open for retry, reject and abort only",
    };
    format!("Until {until} ({}); then {then}", distance(until, now))
}
