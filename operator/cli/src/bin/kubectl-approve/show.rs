//! `show`: one Approval with everything one has to know to decide it: facts first, then the words of others, fenced.
//!
//! It must not leave out or soften what the object says, and no text of others stands outside a fence by more than a line.

mod next;
mod texts;

use serde_json::Value;
use signoff_api::{
    Approval, ApprovalStatus, Decision, Moment, Verdict,
    conditions::{FOREIGN_MUTATION, GUARDED, UNDECIDABLE},
    gate::{Question, Quorum, RejectPolicy, RequiredFrom, Subject},
};

use signoff_cli::status::consequence;
use signoff_engine::approval::eligibility::ineligible;

use crate::{
    args::Show,
    client::{Me, Seen, Session},
    clock::{self, distance},
    error::Failure,
    sanitize::{fenced, one_line},
    suggest::CallFlags,
    table::table,
    whole::{self, Whole},
};

/// The longest text of others on the page.
const LONGEST: usize = 20_000;

/// Fetches one Approval and describes it.
///
/// # Errors
/// As every request; and where the whole is wanted, texts that are not what the request names.
pub async fn show(session: &Session, Show { name, full, output }: &Show) -> Result<String, Failure> {
    let (mut seen, me) = tokio::try_join!(session.approval(name), session.me())?;
    if let Some(text) = output.document(seen.raw.clone())? {
        return Ok(text);
    }
    let whole = if *full { Some(whole::fetch(session, &seen.approval).await?) } else { None };
    // Whether decisions are honoured is said once a run, not once a gate.
    let run = session.run(&seen.approval.spec.request.workflow.name).await;
    let status = seen.approval.status.get_or_insert_default();
    let said = run.conditions.iter().filter(|said| [GUARDED, FOREIGN_MUTATION].contains(&said.type_.as_str()));
    status.conditions.extend(said.cloned());
    let now = clock::now();
    let next = next::next(&seen.approval, &me, &run, now, &session.call);
    Ok(page(&seen, &me, now, whole.as_ref(), &session.call) + &next)
}

/// The page. `whole`: the whole of what the request holds in part, where it was fetched. `call`: the flags that suggested
/// commands repeat.
pub fn page(seen: &Seen, me: &Me, now: Moment, whole: Option<&Whole>, call: &CallFlags) -> String {
    let approval = &seen.approval;
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    let mut page = Page::default();
    facts(&mut page, seen, now);
    warnings(&mut page, &status);
    page.section("Question", &fenced(&request.prompt, LONGEST));
    for (title, body) in texts::texts(request, whole, &call.show_full(approval)) {
        page.section(&title, &body);
    }
    for question in request.form.iter().flat_map(|form| &form.questions) {
        let title = if question.id == Question::PLAIN {
            "Answer".to_owned()
        } else {
            format!("Answer {}", one_line(&question.id, 63))
        };
        page.section(&title, &form(question));
    }
    if !approval.spec.decisions.is_empty() {
        page.section("Decisions", &decisions(approval, &status, now));
    }
    outcome(&mut page, &status, now);
    page.gap();
    page.fact("You", &standing(approval, me, now));
    page.text
}

/// Lines of `Label:   text`, and sections.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn fact(&mut self, label: &str, text: &str) {
        self.text.push_str(&format!("{:<14}{text}\n", format!("{label}:")));
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    fn section(&mut self, title: &str, body: &str) {
        self.text.push_str(&format!("\n{title}:\n{body}"));
    }
}

fn facts(page: &mut Page, seen: &Seen, now: Moment) {
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
    let holds = if seen.digest_holds() { "" } else { "  << NOT the digest of this request: do not decide it" };
    page.fact("Digest", &format!("{}{holds}", request.digest));
    page.fact("Phase", status.phase.name());
    page.fact("Verdicts", &names(&request.allowed_verdicts));
    page.fact("Approvers", &subjects(approval.approvers()));
    if let Some((own, further)) = request.quorums.split_first() {
        page.fact("Quorum", &first(own, &status));
        for quorum in further {
            page.fact("And", &and(quorum));
        }
    } else {
        page.fact("Quorum", "none: it cannot be decided");
    }
    for by in &request.required_by {
        page.fact("Required by", &format!("{}:", one_line(&by.source, 253)));
        for rule in &by.rules {
            page.text.push_str(&format!("{:<14}- {}\n", "", one_line(rule, 512)));
        }
    }
    if !request.excluded.is_empty() {
        page.fact("Excluded", &one_line(&request.excluded.join(", "), 2000));
    }
    if request.require_reason == Some(true) {
        page.fact("Reason", "required");
    }
    if !request.after_reject.is_empty() {
        let targets = one_line(&request.after_reject.join(", "), 2000);
        page.fact("After Reject", &format!("the run goes on with {targets}"));
    }
    if !status.phase.is_end() {
        let deadline = approval.deadline();
        page.fact("Deadline", &format!("{} ({})", deadline.ceil_to_second(), distance(deadline, now)));
        page.fact("After that", &consequence(request, &status));
    }
}

fn names(verdicts: &[Verdict]) -> String {
    verdicts.iter().copied().map(Verdict::name).collect::<Vec<_>>().join(", ")
}

fn subjects(list: &[Subject]) -> String {
    list.iter().map(|subject| one_line(&subject.to_string(), 320)).collect::<Vec<_>>().join(", ")
}

/// Formats a number of people.
pub fn people(count: i32) -> String {
    if count == 1 { "1 person".into() } else { format!("{count} people") }
}

/// Describes the rules of a quorum besides its number, beginning with a comma.
pub fn rules(quorum: &Quorum) -> String {
    let group = |from: &RequiredFrom| format!(", {} of group {}", from.min, one_line(&from.group, 253));
    let mut text: String = quorum.required_from.iter().map(group).collect();
    if quorum.reject_policy == Some(RejectPolicy::Threshold) {
        text.push_str(", as many for Reject");
    }
    if quorum.excludes_requester() {
        text.push_str(", not the requester");
    }
    text
}

/// Describes the gate's own quorum, whose approvers stand on a line of their own.
fn first(own: &Quorum, status: &ApprovalStatus) -> String {
    let so_far = status.tally.map(|tally| format!(" ({} of {} so far)", tally.have, tally.needed)).unwrap_or_default();
    format!("{}{}{so_far}", people(own.threshold), rules(own))
}

/// Describes a further quorum.
fn and(quorum: &Quorum) -> String {
    let (count, rules) = (people(quorum.threshold), rules(quorum));
    format!("{count}{rules} out of {} (required by {})", subjects(&quorum.approvers), one_line(&quorum.source, 253))
}

fn warnings(page: &mut Page, status: &ApprovalStatus) {
    for condition in &status.conditions {
        let label = match (condition.type_.as_str(), condition.status.as_str()) {
            (GUARDED, "False") => "NOT GUARDED",
            (FOREIGN_MUTATION, "True") => "Beware",
            (UNDECIDABLE, "True") => "Undecidable",
            _ => continue,
        };
        page.fact(label, &one_line(&condition.message, 1024));
    }
}

fn form(question: &Question) -> String {
    let mut body = question.question.as_ref().map(|text| fenced(text, LONGEST)).unwrap_or_default();
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
        body.push_str(&table(&["  OPTION", "LABEL", "DESCRIPTION"], rows));
    }
    let mut rules = Vec::new();
    if question.options.is_empty() {
        rules.push("free text".to_owned());
    } else {
        let text = if question.takes_text() { ", or free text" } else { "" };
        rules.push(format!("{} of them{text}", if question.multiple == Some(true) { "one or more" } else { "one" }));
    }
    rules.extend(question.pattern.as_ref().map(|pattern| format!("must match {}", one_line(pattern, 512))));
    rules.extend(question.max_length.map(|most| format!("at most {most} characters")));
    rules.extend(question.schema.as_ref().map(|schema| {
        format!("JSON of this schema: {}", one_line(&Value::Object(schema.0.clone()).to_string(), 1000))
    }));
    rules.extend(question.default.as_ref().map(|answer| format!("default: {}", one_line(answer, 200))));
    rules.push(if question.may_be_left_out() { "may be left out".into() } else { "required".into() });
    body.push_str(&format!("  {}\n", rules.join("; ")));
    body
}

fn decisions(approval: &Approval, status: &ApprovalStatus, now: Moment) -> String {
    let rows = approval
        .spec
        .decisions
        .iter()
        .map(|(key, decision)| {
            let state = if let Some(invalid) =
                status.invalid.get(key).filter(|invalid| invalid.attempt == decision.attempt())
            {
                format!("invalid: {}", one_line(&invalid.why, 120))
            } else if let Some(vote) = status.votes.iter().find(|vote| vote.key == *key) {
                format!("counted {}", distance(vote.at, now))
            } else {
                "recorded".to_owned()
            };
            vec![
                format!("  {}", one_line(key, 320)),
                decision.verdict.to_string(),
                state,
                one_line(&said(decision), 160),
            ]
        })
        .collect();
    table(&["  BY", "VERDICT", "STATE", "WORDS"], rows)
}

fn said(decision: &Decision) -> String {
    let mut words = Vec::new();
    words.extend(decision.reason.clone());
    words.extend(decision.response.as_ref().map(|text| format!("response: {text}")));
    words.extend(
        decision
            .answers
            .as_ref()
            .map(|answers| format!("answers: {}", serde_json::to_string(answers).unwrap_or_default())),
    );
    words.extend(
        decision.parameters.as_ref().map(|parameters| format!("parameters: {}", Value::Object(parameters.0.clone()))),
    );
    words.extend(decision.guidance.as_ref().map(|text| format!("guidance: {text}")));
    words.join("; ")
}

fn outcome(page: &mut Page, status: &ApprovalStatus, now: Moment) {
    let Some(outcome) = &status.outcome else { return };
    page.gap();
    let verdict = outcome.verdict.map_or("no verdict", Verdict::name);
    let by = if outcome.decided_by.is_empty() {
        format!("by {}", outcome.source.name())
    } else {
        format!("by {}", one_line(&outcome.decided_by.join(", "), 2000))
    };
    let when =
        outcome.decided_at.map(|at| format!(", {} ({})", at.ceil_to_second(), distance(at, now))).unwrap_or_default();
    page.fact("Outcome", &format!("{} ({verdict}) {by}{when}", outcome.phase.name()));
    if let Some(reason) = &outcome.reason {
        page.fact("Reason", &one_line(reason, 2048));
    }
    let parameters = outcome.parameters.as_ref().map(|parameters| Value::Object(parameters.0.clone()).to_string());
    for (title, text) in [("Response", &outcome.response), ("Parameters", &parameters), ("Guidance", &outcome.guidance)]
    {
        if let Some(text) = text {
            page.section(title, &fenced(text, LONGEST));
        }
    }
}

fn standing(approval: &Approval, me: &Me, now: Moment) -> String {
    let user = one_line(&me.user, 253);
    match ineligible(approval, &me.voter(), now) {
        None => format!("{user}, one of the approvers"),
        Some(why) => format!("{user}: cannot decide, {}", one_line(&why.to_string(), 1000)),
    }
}

#[cfg(test)]
#[path = "show/tests.rs"]
mod tests;
