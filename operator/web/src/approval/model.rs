//! What the page of a request says: facts first, then whose agreement it takes, then the words of others.
//!
//! Pure. It must not leave out or soften what the object says.

use askama::Template;
use signoff_api::{
    Approval, ApprovalRequest, Decision, Moment, Verdict,
    approval::ApprovalPhase,
    gate::{GateType, Question, Subject},
};
use signoff_engine::approval::eligibility::{allowed_verdicts, ineligible};
use signoff_expr::text::display;
use signoff_review::{
    clock::distance,
    decisions,
    foreseen::Reached,
    outcome, quorum,
    request::{CONTEXT, answer_rules, consequence, heading, repeats, warnings},
    suggest::CallFlags,
    text::{hides, one_line},
    whole::{self, Whole},
};

use super::{
    read::Read,
    typed::{self, Parameter, Problems, Typed},
};
use crate::{
    page::{Instant, Shell},
    session::Caller,
};

/// The longest text on the page; longer ones are at hand as files.
const LONGEST: usize = 200_000;

/// The page of a request.
#[derive(Template)]
#[template(path = "approval.html")]
pub struct ApprovalPage {
    shell: Shell,
    namespace: String,
    name: String,
    workflow: String,
    gate: String,
    kind: &'static str,
    visit: Option<String>,
    requested_by: String,
    requested_for: Option<String>,
    since: Option<Instant>,
    phase: &'static str,
    mark: &'static str,
    is_closed: bool,
    digest: String,
    /// The version of the object.
    version: String,
    /// Why nobody must decide this request.
    broken: Option<String>,
    warnings: Vec<(String, String)>,
    subject: Option<Text>,
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
    after_reject: String,
    outcome: Option<Ending>,
    standing: String,
    prompt: String,
    context: Option<Text>,
    context_title: &'static str,
    decide: Option<Decide>,
    /// Names the drafts of this request.
    draft: String,
    /// Whether the reader has decided, so that drafts are dropped.
    has_decided: bool,
    problem: Option<String>,
    next: Option<String>,
}

/// A text that the run made.
struct Text {
    title: String,
    shown: String,
    digest: String,
    /// Why only a part is shown, or `None` where it is the whole.
    cut: Option<String>,
    hides: bool,
    bytes: usize,
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

/// The forms of a decision.
struct Decide {
    /// The form that was sent before, if any.
    form: &'static str,
    /// Verdicts that need nothing but a reason.
    plain: Vec<Plain>,
    reason: Field,
    /// What the other forms begin with.
    no_reason: Field,
    reason_required: bool,
    respond: Vec<Asked>,
    modify: Vec<Editor>,
    retry: Vec<Editor>,
    defer: Option<Field>,
    escalate: Option<Escalate>,
}

/// A verdict with its own button.
struct Plain {
    verdict: &'static str,
    label: &'static str,
    class: &'static str,
    comes_to: String,
}

/// What a field holds, and what is wrong with it.
struct Field {
    value: String,
    problem: Option<String>,
}

impl Field {
    fn of(value: String) -> Self {
        Self { value, problem: None }
    }
}

impl Decide {
    /// The reason in a form: what was typed there, and not in another one.
    fn reason_in(&self, form: &str) -> &Field {
        if self.form == form { &self.reason } else { &self.no_reason }
    }
}

/// One question of the form.
struct Asked {
    id: String,
    question: Option<String>,
    options: Vec<Choice>,
    option_field: String,
    text_field: String,
    takes_text: bool,
    is_multiple: bool,
    rules: String,
    is_required: bool,
    field: Field,
}

/// An option of a question.
struct Choice {
    id: String,
    label: String,
    description: String,
    is_chosen: bool,
}

/// One parameter in the editor.
struct Editor {
    parameter: Parameter,
    field: Field,
    rows: usize,
}

/// Who can be asked further.
struct Escalate {
    /// The number of each, their name, and whether they were chosen before.
    targets: Vec<(usize, String, bool)>,
    comes_to: String,
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
        let broken = read.seen.digest_problem().or_else(|| mismatch(&read.whole));
        let cannot = ineligible(approval, &caller.me.voter(), read.at);
        let is_closed = status.phase.is_end() || status.outcome.is_some();
        let mut shell = Shell::of(caller, &format!("{} · {}", request.gate.path, request.workflow.name), "inbox");
        shell.command = Some(CallFlags::default().show(Some(&namespace), &name));
        let mut all_warnings = warnings(&status);
        all_warnings.extend(warnings(&signoff_api::ApprovalStatus {
            conditions: read.run.conditions.clone(),
            ..signoff_api::ApprovalStatus::default()
        }));
        let first = request.quorums.first();
        let next = read.run.pending.iter().find(|other| is_closed && **other != name).cloned();
        Self {
            shell,
            workflow: request.workflow.name.clone(),
            gate: one_line(&request.gate.path, 512),
            kind: kind(request.gate.type_),
            visit: (request.gate.visit > 1).then(|| format!("asked {} times by now", request.gate.visit)),
            requested_by: one_line(&request.requested_by, 512),
            requested_for: request.requested_for.as_ref().map(|person| one_line(person, 253)),
            since: metadata.creation_timestamp.as_ref().map(|at| Instant::from(Moment::from(at.0))),
            phase: status.phase.name(),
            mark: mark(status.phase),
            digest: request.digest.to_string(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            warnings: all_warnings.into_iter().map(|(label, text)| (label.to_owned(), text)).collect(),
            subject: subject(request, &read.whole),
            own: first.map_or_else(|| "none: it cannot be decided".to_owned(), |own| quorum::own(own, &status)),
            approvers: quorum::subjects(approval.approvers()),
            further: request.quorums.iter().skip(1).map(quorum::further).collect(),
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
            after_reject: if request.allowed_verdicts.contains(&Verdict::Reject) {
                outcome::sequel(request, Verdict::Reject)
            } else {
                String::new()
            },
            outcome: status.outcome.as_ref().map(|outcome| ending(outcome, read.at)),
            standing: decisions::standing(approval, &caller.me, read.at),
            prompt: display(&request.prompt, LONGEST),
            context: context(request, &read.whole),
            context_title: CONTEXT,
            decide: (cannot.is_none() && broken.is_none()).then(|| decide(read, typed, problems)),
            draft: draft(approval),
            has_decided: approval.spec.decisions.contains_key(&caller.me.user),
            problem: problems.of_page(),
            is_closed,
            broken,
            next: next.map(|other| path(&namespace, &other)),
            namespace,
            name,
        }
    }
}

/// Returns the path of the page of an Approval. Names of objects are DNS names: nothing is to be escaped.
pub fn path(namespace: &str, name: &str) -> String {
    format!("/n/{namespace}/a/{name}")
}

/// Returns why the whole of the request contradicts its digest, or `None`.
pub fn mismatch(whole: &Result<Whole, String>) -> Option<String> {
    whole.as_ref().err().filter(|why| why.contains("DIGEST MISMATCH")).cloned()
}

/// Returns the whole of what is reviewed, where it could be read.
pub fn reviewed(read: &Read) -> Option<String> {
    let request = &read.seen.approval.spec.request;
    match &request.reviews {
        Some(_) if whole::is_review_cut(request) => read.whole.as_ref().ok()?.review.clone(),
        Some(review) => Some(review.response.clone()),
        None => None,
    }
}

/// Returns the name of the drafts of a request: another version of it has other ones.
pub fn draft(approval: &Approval) -> String {
    format!("{}|{}", approval.metadata.uid.as_deref().unwrap_or_default(), approval.spec.request.digest)
}

/// Returns what a decision is about, in a line: of a call its method and address, of a container its image, else the gate.
pub fn target(request: &ApprovalRequest) -> String {
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

/// Says what a decision would come to.
pub fn comes_to(request: &ApprovalRequest, verdict: Verdict, reached: &Reached) -> String {
    match reached {
        Reached::Decided => format!("decides it: {}", outcome::sequel(request, verdict)),
        Reached::Behind { verdict, by } => {
            let other = verdict.map_or("another decision", Verdict::name);
            format!("{other} by {} goes before it", one_line(&by.join(", "), 300))
        }
        Reached::Escalated => "further approvers are asked".to_owned(),
        Reached::Open(count) => format!("{count}; others must still decide"),
        Reached::Unknown => "what it comes to cannot be counted now".to_owned(),
    }
}

fn kind(type_: GateType) -> &'static str {
    match type_ {
        GateType::StepStart => "before a step runs",
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

fn subject(request: &ApprovalRequest, whole: &Result<Whole, String>) -> Option<Text> {
    let review = request.reviews.as_ref()?;
    let found = whole.as_ref().ok().and_then(|whole| whole.review.as_deref());
    let is_cut = whole::is_review_cut(request);
    Some(text(heading(request.gate.type_, review), &review.response, found, is_cut, &review.digest.to_string(), whole))
}

fn context(request: &ApprovalRequest, whole: &Result<Whole, String>) -> Option<Text> {
    let context = request.context.as_deref().filter(|context| !repeats(request, context))?;
    let found = whole.as_ref().ok().and_then(|whole| whole.context.as_deref());
    let digest = request.context_ref.as_ref().map(|whole| whole.digest.to_string()).unwrap_or_default();
    Some(text(String::new(), context, found, request.context_ref.is_some(), &digest, whole))
}

fn text(
    title: String,
    beginning: &str,
    found: Option<&str>,
    is_cut: bool,
    digest: &str,
    whole: &Result<Whole, String>,
) -> Text {
    let all = found.unwrap_or(beginning);
    let cut = match (is_cut, found, whole) {
        (true, None, Err(why)) => Some(why.clone()),
        (true, None, Ok(_)) => Some("the whole could not be read".to_owned()),
        _ if all.chars().count() > LONGEST => {
            Some(format!("it has {} bytes: the file at the page of the run has all of them", all.len()))
        }
        _ => None,
    };
    Text { title, shown: display(all, LONGEST), digest: digest.to_owned(), cut, hides: hides(all), bytes: all.len() }
}

fn votes(approval: &Approval, me: &str, now: Moment) -> Vec<Vote> {
    let status = approval.status.clone().unwrap_or_default();
    let one = |(key, decision): (&String, &Decision)| Vote {
        key: one_line(key, 320),
        verdict: decision.verdict.name(),
        state: decisions::state(key, decision, &status, now),
        channel: decision.channel.as_ref().map(|channel| one_line(channel, 32)),
        said: one_line(&decisions::said(decision), 2000),
        is_mine: key == me,
    };
    approval.spec.decisions.iter().map(one).collect()
}

fn ending(outcome: &signoff_api::Outcome, now: Moment) -> Ending {
    let parameters =
        outcome.parameters.as_ref().map(|given| serde_json::to_string_pretty(&given.0).unwrap_or_default());
    let texts =
        [("Response", outcome.response.clone()), ("Parameters", parameters), ("Guidance", outcome.guidance.clone())];
    Ending {
        line: decisions::outcome(outcome, now),
        at: outcome.decided_at.map(Instant::from),
        reason: outcome.reason.as_ref().map(|reason| one_line(reason, 2048)),
        texts: texts.into_iter().filter_map(|(title, text)| Some((title, display(&text?, LONGEST)))).collect(),
    }
}

fn decide(read: &Read, typed: &Typed, problems: &Problems) -> Decide {
    let approval = &read.seen.approval;
    let request = &approval.spec.request;
    let status = approval.status.clone().unwrap_or_default();
    let allowed = allowed_verdicts(request, &status);
    let takes = |verdict| allowed.contains(&verdict);
    let foreseen = |verdict| {
        let found = read.foreseen.iter().find(|(other, _)| *other == verdict);
        found.map(|(_, reached)| comes_to(request, verdict, reached)).unwrap_or_default()
    };
    let field = |name: &str, default: String| Field {
        value: typed.text(name).unwrap_or(default),
        problem: problems.at(name).cloned(),
    };
    let whole = reviewed(read);
    let form = typed.form();
    let editors = |verdict, name: &str| -> Vec<Editor> {
        let fields = typed::parameters_of(request, verdict, whole.as_deref());
        let one = |parameter: Parameter| {
            let begin = parameter.text();
            let field = if form == name { field(&parameter.field, begin) } else { Field::of(begin) };
            Editor { rows: field.value.lines().count().clamp(2, 16), field, parameter }
        };
        fields.into_iter().map(one).collect()
    };
    let level = usize::try_from(status.level.unwrap_or(0)).unwrap_or(usize::MAX);
    let can_escalate = !request.escalate_to.is_empty() || level < request.timeout.escalation.len();
    let button =
        |verdict: Verdict, label, class| Plain { verdict: verdict.name(), comes_to: foreseen(verdict), label, class };
    let buttons = [
        button(Verdict::Approve, "Approve", "main"),
        button(Verdict::Reject, "Reject", "danger"),
        button(Verdict::Skip, "Skip", ""),
        button(Verdict::Retry, "Retry", ""),
        button(Verdict::Abort, "Abort the run", "danger"),
    ];
    let is_chosen = |at: usize| form == "escalate" && typed.all("to").any(|chosen| chosen == at.to_string());
    let shown = |(at, one): (usize, &Subject)| (at, one_line(&one.to_string(), 320), is_chosen(at));
    Decide {
        form,
        plain: buttons.into_iter().filter(|one| allowed.iter().any(|verdict| verdict.name() == one.verdict)).collect(),
        reason: field("reason", String::new()),
        no_reason: Field::of(String::new()),
        reason_required: request.require_reason == Some(true),
        respond: if takes(Verdict::Respond) { asked(request, typed, problems) } else { Vec::new() },
        modify: if takes(Verdict::Modify) { editors(Verdict::Modify, "modify") } else { Vec::new() },
        retry: if takes(Verdict::Retry) { editors(Verdict::Retry, "retry") } else { Vec::new() },
        defer: takes(Verdict::Defer).then(|| field("guidance", String::new())),
        escalate: (takes(Verdict::Escalate) && can_escalate).then(|| Escalate {
            targets: request.escalate_to.iter().enumerate().map(shown).collect(),
            comes_to: foreseen(Verdict::Escalate),
        }),
    }
}

fn asked(request: &ApprovalRequest, typed: &Typed, problems: &Problems) -> Vec<Asked> {
    let one = |question: &Question| {
        let (option_field, text_field) = (typed::option_field(question), typed::text_field(question));
        let was_sent = typed.get("verdict") == Some("Respond");
        let default = question.default.clone().unwrap_or_default();
        let by_default = question.option_named(&default).map(|option| option.id.clone());
        let is_chosen = |id: &str| match was_sent {
            true => typed.all(&option_field).any(|chosen| chosen == id),
            false => by_default.as_deref() == Some(id),
        };
        let options = question.options.iter().map(|option| Choice {
            label: one_line(option.label(), 253),
            description: one_line(option.description.as_deref().unwrap_or(""), 400),
            is_chosen: is_chosen(&option.id),
            id: option.id.clone(),
        });
        let text = if by_default.is_some() { String::new() } else { default.clone() };
        Asked {
            id: if question.id == Question::PLAIN { "Answer".to_owned() } else { one_line(&question.id, 63) },
            question: question.question.as_ref().map(|text| display(text, 4096)),
            options: options.collect(),
            takes_text: question.takes_text(),
            is_multiple: question.multiple == Some(true),
            rules: answer_rules(question).join("; "),
            is_required: !question.may_be_left_out(),
            field: Field { value: typed.text(&text_field).unwrap_or(text), problem: problems.at(&text_field).cloned() },
            option_field,
            text_field,
        }
    };
    request.form.iter().flat_map(|form| &form.questions).map(one).collect()
}
