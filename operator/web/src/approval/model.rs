//! What the page of a request says: facts first, then whose agreement it takes, then the words of others.
//!
//! Pure. It must not leave out or soften what the object says.

use askama::Template;
use signoff_api::{
    Approval, ApprovalRequest, Decision, Moment, Verdict, approval::ApprovalPhase, gate::GateType, tool::MAX_TOOL_NAME,
};
use signoff_engine::{
    approval::eligibility::{allowed_verdicts, ineligible, next_attempt},
    gate::parameters,
};
use signoff_expr::text::display;
use signoff_review::{
    action::{self, Fact, SAYS},
    clock::distance,
    coming::{self, PlannedRun},
    decisions,
    edits::CHANGES,
    foreseen::Reached,
    outcome, quorum,
    request::{CONTEXT, consequence, warnings},
    seen::RunNow,
    suggest::CallFlags,
    text::one_line,
    voided, whole,
};

use super::{
    forms::{Decide, boxes, decide},
    read::Read,
    texts::{AskedQuestion, Edited, REVIEWED, SENT, SHOWN, Text, context, edited, questions, sent, subject},
    typed::{Problems, Typed},
};
use crate::{
    page::{Instant, Shell},
    session::Caller,
};

/// The longest text on the page; longer ones are at hand as files.
pub(crate) const LONGEST: usize = 200_000;

/// The longest question that is the title.
const TITLE: usize = 200;
/// The longest value of an input.
const INPUT: usize = 300;
/// The most earlier decisions.
const DECIDED: usize = 20;

/// The label of the questions of an agent.
pub(crate) const ASKS_TITLE: &str = "In the agent's own words (text of a model: no fact, not checked)";

/// The page of a request.
#[derive(Template)]
#[template(path = "approval.html")]
pub struct ApprovalPage {
    shell: Shell,
    namespace: String,
    name: String,
    workflow: String,
    /// The question, or its first line.
    title: String,
    /// Whether the question has more than its title.
    has_more: bool,
    /// The label of the question.
    label: &'static str,
    headline: String,
    gate: String,
    kind: &'static str,
    visit: Option<String>,
    requested_by: String,
    requested_for: Option<String>,
    earlier_requesters: Vec<String>,
    /// The run that this one repeats.
    repeats: Option<String>,
    since: Option<Instant>,
    ago: Option<String>,
    phase: &'static str,
    /// The note beside the phase while the operator has not counted.
    uncounted: &'static str,
    mark: &'static str,
    is_closed: bool,
    digest: String,
    /// The digests of its texts, each with its heading.
    digests: Vec<(String, String)>,
    /// Whether the request and its whole texts have the digests that it names.
    is_unchanged: bool,
    /// The version of the object.
    version: String,
    /// The reason why this request cannot or must not be decided: a heading and a sentence.
    broken: Option<(&'static str, String)>,
    warnings: Vec<(String, String)>,
    boxes: Vec<VerdictBox>,
    subject: Option<Text>,
    /// What is sent, or was sent.
    sent: Option<Text>,
    /// The changes of people to the reviewed text, newest first.
    edits: Vec<Edited>,
    edits_title: &'static str,
    /// Whether the call of a tool is asked about.
    is_call: bool,
    /// The notice above the questions of an agent.
    notice: Option<&'static str>,
    asks_title: &'static str,
    /// The questions of an agent, where there is no form that asks them.
    questions: Vec<AskedQuestion>,
    /// The page of the turn, where the agent made other calls in it.
    turn: Option<String>,
    /// The facts of the action that stand before the reviewed text, and those after it.
    before: Vec<Fact>,
    after: Vec<Fact>,
    /// The agent's own words.
    says: Option<String>,
    says_title: &'static str,
    own: String,
    approvers: String,
    further: Vec<String>,
    required_by: Vec<(String, Vec<String>)>,
    excluded: String,
    votes: Vec<Vote>,
    deadline: Instant,
    left: String,
    is_late: bool,
    consequence: String,
    outcome: Option<Ending>,
    /// The inputs of the run, and the decisions at its other gates.
    inputs: Vec<(String, String)>,
    decided: Vec<String>,
    standing: String,
    prompt: String,
    context: Option<Text>,
    context_title: &'static str,
    decide: Option<Decide>,
    /// The sentences in the place of the form.
    instead: Option<String>,
    /// The request that waits next for a reader who has decided this one.
    pub(super) next_for_me: Option<RequestLink>,
    /// The decision after which this request was opened.
    pub(super) decided_before: Option<DecidedBefore>,
    /// Whether the message whose link was opened told of another request.
    pub(super) is_replaced: bool,
    /// The request that asks again what this superseded one asked.
    pub(super) asked_again: Option<RequestLink>,
    /// Names the drafts of this request.
    draft: String,
    /// Whether the reader has decided, so that drafts are dropped.
    has_decided: bool,
    problem: Option<String>,
    next: Option<String>,
}

/// The effect of a verdict that decides the gate.
struct VerdictBox {
    title: String,
    verdict: &'static str,
    /// The effect of the reader's own decision; empty where it is not known.
    comes_to: String,
    lines: Vec<String>,
}

/// A link to another request: one that waits for the reader, the one that they have decided, or one that asks again.
pub(super) struct RequestLink {
    pub(super) path: String,
    /// Its question.
    pub(super) question: String,
}

/// The request that the reader decided before this one.
pub(super) struct DecidedBefore {
    /// The request; `None` while it cannot be read.
    pub(super) request: Option<RequestLink>,
    /// The effect of the decision so far, in sentences.
    pub(super) says: String,
    /// Names the drafts of the request, which are dropped.
    pub(super) draft: Option<String>,
}

/// A recorded decision.
struct Vote {
    key: String,
    verdict: &'static str,
    state: String,
    channel: Option<String>,
    said: String,
    is_mine: bool,
}

/// How the gate was decided.
struct Ending {
    line: String,
    at: Option<Instant>,
    reason: Option<String>,
    texts: Vec<(&'static str, String)>,
}

impl ApprovalPage {
    /// Returns the page for a reader. `typed` and `problems`: what they sent before, and what was wrong with it.
    pub fn of(caller: &Caller, read: &Read, typed: &Typed, problems: &Problems) -> Self {
        let approval = &read.seen.approval;
        let request = &approval.spec.request;
        let status = approval.status.clone().unwrap_or_default();
        let metadata = &approval.metadata;
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.clone().unwrap_or_default();
        let verified = read.verified();
        let cannot = ineligible(approval, &caller.me.voter(), read.at);
        // Readers who cannot decide anyway are told only what is wrong with the request itself.
        let problem = verified.as_ref().err().filter(|problem| problem.is_of_request() || cannot.is_none());
        let broken = problem.map(|problem| (problem.heading(), problem.to_string()));
        let is_closed = status.phase.is_end() || status.outcome.is_some();
        let mut shell = Shell::of(caller, &format!("{} · {}", request.gate.path, request.workflow.name), "inbox");
        shell.command = Some(CallFlags::default().show(Some(&namespace), &name));
        let mut all_warnings = warnings(&status);
        all_warnings.extend(warnings(&signoff_api::ApprovalStatus {
            conditions: read.run.conditions.clone(),
            ..signoff_api::ApprovalStatus::default()
        }));
        all_warnings.extend(voided::lost(&read.earlier, approval, &caller.me).map(|lost| ("NOT COUNTED", lost)));
        all_warnings.extend(read.earlier.iter().filter_map(|one| Some((voided::LABEL, one.line()?))));
        let mut quorums = quorum::lines(approval).into_iter();
        let verified = verified.ok().filter(|_| cannot.is_none());
        let decide = verified.map(|verified| decide(verified, read, typed, problems));
        let is_question = action::is_question(request);
        let has_form = decide.as_ref().is_some_and(|forms| !forms.respond.is_empty());
        let next = read.run.pending.iter().find(|other| is_closed && **other != name).cloned();
        let definition = coming::definition(request, &read.run);
        let prompt = display(action::authors_words(request), LONGEST);
        let title = one_line(prompt.trim_start().lines().next().unwrap_or_default(), TITLE);
        let (subject, sent) = (subject(request, &read.whole), sent(request, &read.whole));
        let digests = subject.iter().chain(&sent).map(|text| (text.title.clone(), text.digest.clone())).collect();
        let own_page = |part: &str| format!("{}/text/{part}", path(&namespace, &name));
        let since = metadata.creation_timestamp.as_ref().map(|at| Moment::from(at.0));
        Self {
            shell,
            has_more: prompt.trim() != title,
            title,
            label: coming::label_of_question(request, definition),
            boxes: if is_closed { Vec::new() } else { verdict_boxes(read, decide.is_some()) },
            ago: since.map(|at| distance(at, read.at)),
            uncounted: if decisions::has_uncounted(approval) { "recorded, not counted yet" } else { "" },
            is_unchanged: read.seen.digest_holds() && read.whole.is_ok(),
            inputs: definition.map(|run| coming::inputs(run, INPUT)).unwrap_or_default(),
            decided: definition.map(|run| coming::decided(run, &name, read.at, DECIDED)).unwrap_or_default(),
            instead: decisions::instead(approval, &caller.me, read.at).filter(|_| decide.is_none()),
            next_for_me: None,
            decided_before: None,
            is_replaced: false,
            asked_again: None,
            workflow: request.workflow.name.clone(),
            headline: headline(request),
            gate: one_line(&request.gate.path, 512),
            kind: kind(request.gate.type_),
            visit: (request.gate.visit > 1).then(|| format!("asked {} times by now", request.gate.visit)),
            requested_by: one_line(&request.requested_by, 512),
            requested_for: request.requested_for.as_ref().map(|person| one_line(person, 253)),
            earlier_requesters: request.earlier_requesters.iter().map(|name| one_line(name, 253)).collect(),
            repeats: definition.and_then(|run| run.spec.rerun_of.as_ref()).map(|rerun| one_line(&rerun.name, 253)),
            since: since.map(Instant::from),
            phase: status.phase.name(),
            mark: mark(status.phase),
            digest: request.digest.to_string(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            warnings: all_warnings.into_iter().map(|(label, text)| (label.to_owned(), text)).collect(),
            subject: subject.map(|text| changed(text, read).with_page(own_page(REVIEWED))),
            sent: sent.map(|text| text.with_page(own_page(SENT))),
            digests,
            edits: edited(read),
            edits_title: CHANGES,
            is_call: action::call(request).is_some(),
            notice: is_question.then_some(action::NOTICE),
            asks_title: ASKS_TITLE,
            questions: if is_question && !has_form { questions(request) } else { Vec::new() },
            turn: turn_path(&namespace, request),
            before: request.action.as_ref().map(action::facts_before).unwrap_or_default(),
            after: action::facts_after(request),
            says: action::says(request).map(|words| display(words, LONGEST)),
            says_title: SAYS,
            own: quorums.next().unwrap_or_else(|| "none: it cannot be decided".to_owned()),
            approvers: quorum::subjects(approval.approvers()),
            further: quorums.collect(),
            required_by: request
                .required_by
                .iter()
                .map(|by| (one_line(&by.source, 253), by.rules.iter().map(|rule| one_line(rule, 512)).collect()))
                .collect(),
            excluded: one_line(&request.excluded.join(", "), 2000),
            votes: votes(approval, &caller.me.user, read.at),
            deadline: Instant::from(approval.deadline()),
            left: distance(approval.deadline(), read.at),
            is_late: approval.deadline() <= read.at,
            consequence: consequence(request, &status),
            outcome: status.outcome.as_ref().map(|outcome| ending(outcome, read.at)),
            standing: decisions::standing(approval, &caller.me, read.at),
            prompt,
            context: context(request, &read.whole).map(|text| text.with_page(own_page(SHOWN))),
            context_title: CONTEXT,
            decide,
            draft: draft(approval),
            has_decided: approval.spec.decisions.contains_key(&caller.me.user)
                && next_attempt(approval, &caller.me.user).is_none(),
            problem: problems.of_page(),
            is_closed,
            broken,
            next: next.map(|other| path(&namespace, &other)),
            namespace,
            name,
        }
    }
}

/// Returns a text with the time of its newest change beside who changed it.
fn changed(text: Text, read: &Read) -> Text {
    let newest = read.seen.approval.spec.request.reviews.as_ref().and_then(|review| review.by.first());
    let Some(edit) = newest else { return text };
    Text { title: format!("{}, {}", text.title, distance(edit.at, read.at)), ..text }
}

/// Returns what follows the two verdicts between which the gate decides. `is_mine`: whether the reader can give them.
fn verdict_boxes(read: &Read, is_mine: bool) -> Vec<VerdictBox> {
    let approval = &read.seen.approval;
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    let planned = coming::definition(request, &read.run).and_then(PlannedRun::of);
    let one = |verdict: Verdict| {
        let foreseen = read.foreseen.iter().find(|(other, _)| is_mine && *other == verdict);
        let comes_to = foreseen.map(|(_, reached)| comes_to(request, verdict, reached, &read.run)).unwrap_or_default();
        let is_new = |line: &String| comes_to.is_empty() || planned.is_some() && !comes_to.ends_with(line.as_str());
        // Where others must still decide, or the run is suspended, nothing follows from this decision alone.
        let follows = foreseen.is_none_or(|(_, reached)| *reached == Reached::Decided && !read.run.is_suspended);
        let lines = coming::lines(request, planned.as_ref(), verdict).into_iter();
        let lines = lines.filter(|line| follows && is_new(line)).collect();
        let title = match is_mine {
            true => format!("If you {}", outcome::does(verdict)),
            false => format!("If it is {}", outcome::done(verdict)),
        };
        VerdictBox { title, verdict: verdict.name(), lines, comes_to }
    };
    boxes(allowed_verdicts(request, &status)).into_iter().map(one).collect()
}

/// Returns the path of the page of an Approval. Names of objects are DNS names: nothing is to be escaped.
pub fn path(namespace: &str, name: &str) -> String {
    format!("/n/{namespace}/a/{name}")
}

/// Returns the path of the page of a turn.
pub fn turn_page(namespace: &str, turn: &str) -> String {
    format!("/n/{namespace}/t/{turn}")
}

fn turn_path(namespace: &str, request: &ApprovalRequest) -> Option<String> {
    // A question does not name the other calls.
    let can_have_others =
        action::is_question(request) || request.action.as_ref().is_some_and(|action| !action.siblings.is_empty());
    request.turn().filter(|_| can_have_others).map(|turn| turn_page(namespace, &turn))
}

/// Returns the whole text with which an edit begins, where it could be read.
pub fn reviewed(read: &Read) -> Option<String> {
    whole::to_edit(&read.seen.approval.spec.request, read.whole.as_ref().ok()).map(str::to_owned)
}

/// Returns the name of the drafts of a request: another version of it has other ones.
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

/// Says what a decision would come to, and when where the run is suspended.
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

/// The heading of the page: the tool of a call, the agent that asks, otherwise the gate.
fn headline(request: &ApprovalRequest) -> String {
    match &request.action {
        Some(action) if action::is_question(request) => format!("Question of {}", one_line(&action.agent, 63)),
        Some(action) => format!("Call of {}", one_line(&action.tool, MAX_TOOL_NAME)),
        None => one_line(&request.gate.path, 512),
    }
}

fn kind(type_: GateType) -> &'static str {
    match type_ {
        GateType::StepStart => "before a step runs",
        GateType::ToolExecution | GateType::SpecificTools | GateType::DestructiveActions | GateType::Custom => {
            "before an agent calls a tool"
        }
        GateType::Question => "an agent asks",
        GateType::FinalResponse => "before the result is published",
        GateType::PlanApproval => "before a plan is carried out",
        GateType::ErrorEscalation => "after a step failed",
        GateType::OutputValidation => "after a step answered",
        GateType::Step => "a step of the run",
    }
}

/// A shape for each kind of phase, beside its word.
fn mark(phase: ApprovalPhase) -> &'static str {
    match phase {
        ApprovalPhase::Pending => "○",
        ApprovalPhase::Overdue => "◔",
        ApprovalPhase::Approved | ApprovalPhase::Modified | ApprovalPhase::Responded => "✓",
        ApprovalPhase::Rejected | ApprovalPhase::Aborted | ApprovalPhase::Expired => "✕",
        ApprovalPhase::Deferred | ApprovalPhase::Retried => "↻",
        ApprovalPhase::Skipped | ApprovalPhase::Cancelled | ApprovalPhase::Superseded => "–",
    }
}

fn votes(approval: &Approval, me: &str, now: Moment) -> Vec<Vote> {
    let status = approval.status.clone().unwrap_or_default();
    let counted = |key: &String| status.votes.iter().find(|vote| vote.key == *key);
    let one = |(key, decision): (&String, &Decision)| Vote {
        key: one_line(key, 320),
        verdict: decision.verdict.name(),
        state: decisions::state(key, decision, &status, now),
        // The API server vouches for the channel of a vote that was counted.
        channel: counted(key).and_then(|vote| vote.channel.as_ref()).map(|channel| one_line(channel, 32)),
        said: one_line(&decisions::said(decision), 2000),
        is_mine: key == me,
    };
    approval.spec.decisions.iter().map(one).collect()
}

fn ending(outcome: &signoff_api::Outcome, now: Moment) -> Ending {
    let parameters = outcome
        .parameters
        .as_ref()
        .map(|given| serde_json::to_string_pretty(&parameters::as_object(given).0).unwrap_or_default());
    let texts =
        [("Response", outcome.response.clone()), ("Parameters", parameters), ("Guidance", outcome.guidance.clone())];
    Ending {
        line: decisions::outcome(&signoff_api::Outcome { decided_at: None, ..outcome.clone() }, now),
        at: outcome.decided_at.map(Instant::from),
        reason: outcome.reason.as_ref().map(|reason| one_line(reason, 2048)),
        texts: texts.into_iter().filter_map(|(title, text)| Some((title, display(&text?, LONGEST)))).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_review::sample;

    use super::*;

    #[test]
    fn a_decision_on_a_call_names_what_is_called_and_any_other_the_gate() {
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
