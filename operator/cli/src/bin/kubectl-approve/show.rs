//! `show`: one Approval with all that a person needs to decide it: the facts first, then the words of others in fences.
//!
//! **Invariant:** the page leaves out nothing that the object says, and shows at most one line of others' text outside
//! a fence.

mod colour;
mod next;
mod texts;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;
use signoff_api::{
    Approval, ApprovalRequest, ApprovalStatus, Moment, Verdict,
    conditions::{FOREIGN_MUTATION, GUARDED},
    gate::Question,
};
use signoff_cli::{
    facts::lines as fact_lines,
    sanitize::{fence, one_line},
    table::render_table,
    terminal,
};
use signoff_engine::{approval::eligibility::allowed_verdicts, gate::parameters};
use signoff_review::{
    action,
    clock::{self, distance},
    decisions, edits, outcome, quorum,
    request::{self, answer_rules},
    seen::Seen,
    suggest::CallFlags,
    voided,
    voter::Me,
    whole::Whole,
};

use crate::{
    args::Show,
    cluster::{client::Session, operator_status::fetch_operator_silence},
    error::Failure,
};

use colour::paint;

/// The longest text of others on the page.
const LONGEST: usize = 20_000;

/// Fetches one Approval and returns its page, or the object in the chosen format.
///
/// # Errors
/// A request fails. With `--full`, also a text that does not have the digest that the request names.
pub async fn show(session: &Session, Show { name, full, output, .. }: &Show) -> Result<String, Failure> {
    let (mut seen, me) = tokio::try_join!(session.approval(name), session.me())?;
    if let Some(text) = output.render(seen.raw.clone())? {
        return Ok(text);
    }
    let whole = if *full { Some(session.fetch_whole_texts(&seen.approval).await?) } else { None };
    // The conditions of the run, and not of its gates, tell whether decisions are honoured.
    let run = session.run(&seen.approval.spec.request.workflow.name).await;
    let status = seen.approval.status.get_or_insert_default();
    let is_about_decisions = |condition: &&Condition| [GUARDED, FOREIGN_MUTATION].contains(&condition.type_.as_str());
    status.conditions.extend(run.conditions.iter().filter(is_about_decisions).cloned());
    let now = clock::now();
    let is_uncounted = decisions::is_uncounted(&seen.approval, &me);
    let silence = if is_uncounted { fetch_operator_silence(session).await } else { None };
    let next = match silence {
        Some(silence) => format!("{:<14}the run waits until an operator counts your decision: {silence}\n", "Next:"),
        None if is_uncounted => format!("{:<14}the run waits until the operator counts your decision\n", "Next:"),
        None => next::next_lines(&seen.approval, &me, &run, now, &session.call),
    };
    let originals = fetch_originals(session, &seen.approval).await;
    let void = render_void_votes(session, &seen.approval, &me).await;
    let page = render_page(&seen, &me, now, (whole.as_ref(), &originals), &session.call) + &void + &next;
    Ok(paint(&page, terminal::style()))
}

/// Fetches the earlier Approvals of the gate, and renders the lines about votes that are void because the gate asks
/// again.
async fn render_void_votes(session: &Session, approval: &Approval, me: &Me) -> String {
    let mut page = Page::default();
    let all = voided::earlier(session.raw(), &session.namespace, approval).await;
    voided::lost(&all, approval, me).into_iter().for_each(|lost| page.fact("NOT COUNTED", &lost));
    all.iter().filter_map(voided::Earlier::line).for_each(|line| page.fact(voided::LABEL, &line));
    page.text
}

/// Renders the page with the texts that the request itself holds, in the colours of standard error. Fetches the changes
/// of people and the void votes for it.
pub async fn fetch_page(session: &Session, seen: &Seen, me: &Me) -> String {
    let originals = fetch_originals(session, &seen.approval).await;
    let void = render_void_votes(session, &seen.approval, me).await;
    paint(&(render_page(seen, me, clock::now(), (None, &originals), &session.call) + &void), terminal::note_style())
}

/// Fetches the text before each change of people.
async fn fetch_originals(session: &Session, approval: &Approval) -> Vec<Result<String, String>> {
    edits::originals(session.raw(), &session.namespace, approval).await
}

/// Renders the page. `whole`: the fetched whole texts, if any. `originals`: the text before each change of people.
/// `call`: the flags that suggested commands repeat.
pub fn render_page(
    seen: &Seen,
    me: &Me,
    now: Moment,
    (whole, originals): (Option<&Whole>, &[Result<String, String>]),
    call: &CallFlags,
) -> String {
    let approval = &seen.approval;
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    let mut page = Page::default();
    let is_question = action::is_question(request);
    if is_question {
        // The first line of the prompt says that an answer approves nothing, so the prompt comes first.
        page.text = format!("{}:\n{}\n", action::ASKS, fence(&request.prompt, LONGEST));
    }
    add_facts(&mut page, seen, now);
    add_warnings(&mut page, &status);
    let (mut texts, command) = (Vec::new(), call.show_full(approval));
    texts.extend(texts::reviewed_section(request, whole, &command));
    texts.extend(texts::changes_section(request, whole, originals));
    texts.extend(texts::sent_section(request, whole, &command));
    if let Some(action) = &request.action {
        page.gap();
        page.text.push_str(&fact_lines(&action::facts_before(action)));
        texts.drain(..).for_each(|(title, body): (String, String)| page.section(&title, &body));
        let after = action::facts_after(request);
        if !after.is_empty() {
            page.gap();
            page.text.push_str(&fact_lines(&after));
        }
    }
    if !is_question {
        page.section("Question", &fence(&request.prompt, LONGEST));
    }
    for (title, body) in texts.into_iter().chain(texts::context_section(request, whole, &command)) {
        page.section(&title, &body);
    }
    for question in request.form.iter().flat_map(|form| &form.questions) {
        let title = if question.id == Question::PLAIN {
            "Answer".to_owned()
        } else {
            format!("Answer {}", one_line(&question.id, 63))
        };
        page.section(&title, &render_form(request, question));
    }
    let effects = outcome::effects(request, &status);
    if !effects.is_empty() && !status.phase.is_end() {
        let lines = effects.iter().map(|(verdict, effect)| format!("  {:<10}{effect}\n", verdict.name()));
        page.section("Each verdict", &lines.collect::<String>());
    }
    if !approval.spec.decisions.is_empty() {
        page.section("Decisions", &render_decisions(approval, &status, now));
    }
    add_outcome(&mut page, &status, now);
    if let Some(words) = action::says(request) {
        page.section(action::SAYS, &fence(words, LONGEST));
    }
    page.gap();
    page.fact("You", &decisions::standing(approval, me, now));
    page.text
}

/// A page of lines `Label: text` and of sections.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn fact(&mut self, label: &str, text: &str) {
        self.text.push_str(&format!("{:<14}{}\n", format!("{label}:"), one_line(text, LONGEST)));
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    fn section(&mut self, title: &str, body: &str) {
        self.text.push_str(&format!("\n{title}:\n{body}"));
    }
}

fn add_facts(page: &mut Page, seen: &Seen, now: Moment) {
    let approval = &seen.approval;
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    page.fact("Name", approval.metadata.name.as_deref().unwrap_or_default());
    page.fact("Namespace", approval.metadata.namespace.as_deref().unwrap_or_default());
    page.fact("Workflow", &one_line(&request.workflow.name, 63));
    let visit =
        if request.gate.visit > 1 { format!(", asked {} times by now", request.gate.visit) } else { String::new() };
    page.fact("Gate", &format!("{}{visit}", one_line(&request.gate.path, 512)));
    let on_behalf = request.requested_for.as_ref().map(|person| format!(" for {}", one_line(person, 253)));
    page.fact("Requested by", &format!("{}{}", one_line(&request.requested_by, 512), on_behalf.unwrap_or_default()));
    if !request.earlier_requesters.is_empty() {
        let earlier: Vec<_> = request.earlier_requesters.iter().map(|name| one_line(name, 253)).collect();
        page.fact("Repeats", &format!("a run of {}", earlier.join(", ")));
    }
    let warning = if seen.digest_holds() { "" } else { "  << NOT the digest of this request: do not decide it" };
    page.fact("Digest", &format!("{}{warning}", request.digest));
    page.fact("Phase", status.phase.name());
    page.fact("Verdicts", &names(allowed_verdicts(request, &status)));
    let whom = if action::is_question(request) { "Can answer" } else { "Approvers" };
    page.fact(whom, &quorum::subjects(approval.approvers()));
    if request.quorums.is_empty() {
        page.fact("Quorum", "none: it cannot be decided");
    }
    for (index, line) in quorum::lines(approval).iter().enumerate() {
        page.fact(if index == 0 { "Quorum" } else { "And" }, line);
    }
    for policy in &request.required_by {
        page.fact("Required by", &format!("{}:", one_line(&policy.source, 253)));
        for rule in &policy.rules {
            page.text.push_str(&format!("{:<14}- {}\n", "", one_line(rule, 512)));
        }
    }
    if !request.excluded.is_empty() {
        page.fact("Excluded", &one_line(&request.excluded.join(", "), 2000));
    }
    if request.require_reason == Some(true) {
        page.fact("Reason", "required");
    }
    if allowed_verdicts(request, &status).contains(&Verdict::Reject) {
        page.fact("After Reject", &outcome::sequel(request, Verdict::Reject));
    }
    if !status.phase.is_end() {
        let deadline = approval.deadline();
        page.fact("Deadline", &format!("{} ({})", deadline.ceil_to_second(), distance(deadline, now)));
        page.fact("After that", &request::consequence(request, &status));
    }
    if let Some(channels) = request::channels(approval) {
        page.fact("Notices", &channels);
    }
}

fn names(verdicts: &[Verdict]) -> String {
    verdicts.iter().copied().map(Verdict::name).collect::<Vec<_>>().join(", ")
}

fn add_warnings(page: &mut Page, status: &ApprovalStatus) {
    for (label, text) in request::warnings(status) {
        page.fact(label, &text);
    }
}

fn render_form(request: &ApprovalRequest, question: &Question) -> String {
    let mut body = question.question.as_ref().map(|text| fence(text, LONGEST)).unwrap_or_default();
    let rows: Vec<_> = question
        .options
        .iter()
        .map(|choice| {
            vec![
                format!("  {}", one_line(&choice.id, 63)),
                one_line(choice.label(), 253),
                one_line(choice.description.as_deref().unwrap_or(""), 200),
            ]
        })
        .collect();
    if !rows.is_empty() {
        body.push_str(&render_table(&["  OPTION", "LABEL", "DESCRIPTION"], rows));
    }
    body.push_str(&format!("  {}\n", answer_rules(request, question).join("; ")));
    body
}

fn render_decisions(approval: &Approval, status: &ApprovalStatus, now: Moment) -> String {
    let rows = approval
        .spec
        .decisions
        .iter()
        .map(|(key, decision)| {
            vec![
                format!("  {}", one_line(key, 320)),
                decision.verdict.to_string(),
                decisions::state(key, decision, status, now),
                one_line(&decisions::said(decision), 160),
            ]
        })
        .collect();
    render_table(&["  BY", "VERDICT", "STATE", "WORDS"], rows)
}

fn add_outcome(page: &mut Page, status: &ApprovalStatus, now: Moment) {
    let Some(outcome) = &status.outcome else { return };
    page.gap();
    page.fact("Outcome", &decisions::outcome(outcome, now));
    if let Some(reason) = &outcome.reason {
        page.fact("Reason", &one_line(reason, 2048));
    }
    let parameters =
        outcome.parameters.as_ref().map(|parameters| Value::Object(parameters::as_object(parameters).0).to_string());
    for (title, text) in [("Response", &outcome.response), ("Parameters", &parameters), ("Guidance", &outcome.guidance)]
    {
        if let Some(text) = text {
            page.section(title, &fence(text, LONGEST));
        }
    }
}

#[cfg(test)]
mod tests;
