//! The request of an Approval: the texts for people and the bound digest, made from a gate at a point of the journal.
//!
//! Written once. All parts but the rendered texts are exactly as the Workflow's author wrote them.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;
use signoff_api::{
    ApprovalRequest, Digest, JsonObject, Moment, Seq, Verdict,
    approval::{self, ActionKind, Edit, Exclusion, GateRef, Review, Sent, WorkflowRef},
    gate::{Form, Quorum, Timeout},
    journal::{BlobRef, StepKind, StepRecord},
    names,
};
use signoff_expr::{Scope, Template, pattern::MAX_PATTERN, text};

use crate::{
    approval::persons::Persons,
    journal::values::MAX_VALUE,
    plan::{PlannedGate, PlannedStep},
    replay::{
        origins::Origins,
        run::{RenderError, Run},
        scope::{self, StepScope},
    },
    steps::{
        excerpt::{Fields, SHOWN},
        exclusions,
    },
    tools::QUESTION_NOTICE,
    transition::Ask,
};

/// The fact of a gate with the tool that it asks about.
pub(super) const FACT_TOOL: &str = "tool";
/// The first line above the excerpts of the sent fields.
const SENT: &str = "# what is sent, as YAML";
/// The maximum length of a rendered prompt, in characters.
const MAX_PROMPT: usize = 16384;
/// The maximum number of cut answers that a request names.
const MOST_CUT: usize = 8;

/// The text that people review at a gate, with the facts that the request shows beside it.
#[derive(Clone, Debug)]
pub(crate) struct ReviewSubject {
    /// The path of the record whose text is reviewed.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The beginning of each field of the subject, if the fields are too long for the request. If it is `None`, the
    /// request has the beginning of `text`.
    pub(crate) excerpt: Option<String>,
    /// The number of parts to which people can refer by number, such as the branches of a fan-out; 0 without parts.
    pub(crate) parts: usize,
    /// Facts about a container that ran, shown after the context of the gate's author.
    pub(crate) beside: Option<String>,
    /// The fields that are sent or were sent, if they differ from `text`.
    pub(crate) sends: Option<Fields>,
    /// The edits and cut answers that the text was rendered from.
    pub(crate) origins: Origins,
    /// The digest of the call or the release that the approval permits.
    pub(crate) binds: Option<Digest>,
    /// The schema of the text with which Respond replaces the subject.
    pub(crate) respond: Option<JsonObject>,
    /// The call or question of an agent; `None` at a gate of a step.
    pub(crate) call: Option<Box<CallReview>>,
}

/// A call or question of an agent, as a request shows it.
#[derive(Clone, Debug)]
pub(crate) struct CallReview {
    pub(crate) action: approval::Action,
    /// The text of the agent beside the call.
    pub(crate) says: Option<String>,
    /// The JSON Schema of the parameters of each verdict.
    pub(crate) parameters: Option<JsonObject>,
    /// The agent's questions.
    pub(crate) form: Option<Form>,
    /// The verdicts that are not offered because their parameters do not fit into a request.
    pub(crate) withheld: Vec<Verdict>,
    /// The facts that the record of the gate stores: the name of each, and its value.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl ReviewSubject {
    pub(crate) fn of(path: &str, text: &str) -> Self {
        let (path, text) = (path.to_owned(), text.to_owned());
        Self {
            path,
            text,
            excerpt: None,
            parts: 0,
            beside: None,
            sends: None,
            origins: Origins::default(),
            binds: None,
            respond: None,
            call: None,
        }
    }

    /// Returns a subject with fields, bound by a digest. `head` is the text above the fields.
    pub(crate) fn bound(path: &str, head: &str, fields: &Fields, binds: Digest) -> Self {
        let text = format!("{head}\n{}", fields.to_yaml());
        let excerpt = (text.len() > SHOWN).then(|| fields.excerpt(head));
        Self { excerpt, binds: Some(binds), ..Self::of(path, &text) }
    }

    /// Sets the edits and cut answers that the text was rendered from.
    pub(crate) fn made_of(self, origins: Origins) -> Self {
        Self { origins, ..self }
    }

    /// Sets the fields that are sent or were sent.
    pub(crate) fn sending(self, sends: Option<Fields>) -> Self {
        Self { sends, ..self }
    }

    /// Adds facts to the record of the gate about a call.
    pub(crate) fn with_facts(mut self, facts: Vec<(&'static str, String)>) -> Self {
        if let Some(call) = &mut self.call {
            call.facts.extend(facts);
        }
        self
    }

    /// Adds the facts about the container of a record.
    pub(crate) fn with_facts_of(mut self, record: &StepRecord) -> Self {
        if record.kind != StepKind::Pod {
            return self;
        }
        let mut lines = vec![format!("pod: {}", record.object.as_deref().unwrap_or_default())];
        lines.extend(record.facts.iter().map(|(name, value)| format!("{name}: {value}")));
        if let Some(log) = &record.log {
            lines.push(format!("the end of its log:\n{}", log.tail));
        }
        self.beside = Some(lines.join("\n"));
        self
    }
}

/// The identity of a request: the values that distinguish it from every other request.
pub(crate) struct RequestIdentity<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a str,
    pub(crate) visit: i32,
    pub(crate) deadline: Moment,
    /// The time until the deadline, if it is not the gate's own timeout.
    pub(crate) left: Option<Duration>,
    pub(crate) guard_epoch: String,
}

/// The texts of a request beside the reviewed subject.
pub(crate) struct RequestTexts {
    prompt: String,
    /// The facts about the call of a tool.
    of_call: Option<String>,
    context: Option<String>,
}

/// Renders the prompt and the context of a gate, as of `seq`.
pub(crate) fn render_texts<'a>(
    run: &Run<'a>,
    step_scope: &StepScope<'a>,
    step: &PlannedStep,
    gate: &PlannedGate,
    seq: Seq,
    reviewed: Option<&ReviewSubject>,
) -> Result<RequestTexts, RenderError> {
    let scope = scope::of_step(run, step_scope, step, seq)?;
    let call = reviewed.and_then(|reviewed| reviewed.call.as_deref());
    let mut prompt =
        render_joined(&scope, [&gate.prompt].into_iter().chain(gate.merged.iter().map(|(prompt, _)| prompt)))?;
    let is_question = call.is_some_and(|call| call.action.kind == ActionKind::Question);
    if is_question {
        prompt = format!("{QUESTION_NOTICE}\n\n{prompt}");
    }
    if prompt.trim().is_empty() || prompt.chars().count() > MAX_PROMPT {
        return Err(RenderError::Invalid(format!(
            "the rendered prompt is empty or has more than {MAX_PROMPT} characters: change hitl.prompt"
        )));
    }
    let contexts: Vec<_> =
        gate.context.iter().chain(gate.merged.iter().filter_map(|(_, context)| context.as_ref())).collect();
    let context = match contexts.is_empty() {
        true => gate.shows.as_deref().map(text::clean),
        false => Some(render_joined(&scope, contexts.into_iter())?),
    };
    let of_call = step_scope.call.as_ref().filter(|_| call.is_none());
    let of_call = of_call.map(|describe| describe(run, seq)).transpose()?;
    let beside = reviewed.filter(|_| !is_question).and_then(|reviewed| reviewed.beside.as_deref());
    let context = paragraphs([context, beside.map(text::clean)]);
    Ok(RequestTexts { prompt, of_call: of_call.as_deref().map(text::clean), context })
}

impl RequestTexts {
    /// Adds a note about the steps whose answers were cut in the shown text. `cut` are their paths.
    pub(crate) fn with_cut(mut self, cut: &BTreeSet<String>) -> Self {
        let names: Vec<_> = cut.iter().take(MOST_CUT).map(|path| path.trim_start_matches('.')).collect();
        if !names.is_empty() {
            let more = if cut.len() > names.len() { ", …" } else { "" };
            let note = format!("{}: the answer of {}{more}", StepRecord::CUT, names.join(", "));
            // A long context is cut, so the note comes first.
            self.context = paragraphs([Some(note), self.context]);
        }
        self
    }
}

/// The content of a request that does not follow from its gate.
pub(crate) struct RequestContent {
    pub(crate) texts: RequestTexts,
    /// The text, call or question that people decide about; `None` for a gate that shows only its prompt.
    pub(crate) reviewed: Option<ReviewSubject>,
    /// The changes of people to what is shown, newest first.
    pub(crate) edits: Vec<Edit>,
    /// The persons that earlier decisions exclude.
    pub(crate) exclusions: Vec<Exclusion>,
}

/// Builds the Approval to be created, and stores the long texts of its request as blobs.
pub(crate) fn ask(
    run: &Run<'_>,
    step: &PlannedStep,
    gate: &PlannedGate,
    facts: &RequestIdentity<'_>,
    content: RequestContent,
) -> Result<Ask, RenderError> {
    let (plan, spec) = (run.plan, &gate.spec);
    let RequestContent { texts: RequestTexts { prompt, of_call, context }, mut reviewed, edits, exclusions } = content;
    // The identification of the call comes first, because the context of an author can be long.
    let context = paragraphs([of_call, context]);
    let binds = reviewed.as_ref().and_then(|reviewed| reviewed.binds.clone());
    let call = reviewed.as_ref().and_then(|reviewed| reviewed.call.as_deref()).cloned();
    let sends = reviewed.as_mut().and_then(|reviewed| reviewed.sends.take()).map(|fields| (fields.to_yaml(), fields));
    // A question has a form and no review.
    let reviewed = reviewed.filter(|_| call.as_ref().is_none_or(|call| call.action.kind == ActionKind::ToolCall));
    let long = |text: &&str| text.len() > SHOWN;
    let (whole_context, whole_review) =
        (context.as_deref().filter(long), reviewed.as_ref().map(|reviewed| reviewed.text.as_str()).filter(long));
    let whole_sent = sends.as_ref().map(|(text, _)| text.as_str()).filter(long);
    let wholes = || [whole_context, whole_review, whole_sent].into_iter().flatten();
    if let Some(text) = wholes().find(|text| text.len() > MAX_VALUE) {
        let why = format!(
            "what is shown for review has {} bytes; the maximum is {MAX_VALUE}: show a part of it, or a reference",
            text.len()
        );
        return Err(RenderError::Invalid(why));
    }
    let mut state = run.state.borrow_mut();
    state.check_blobs_fit(wholes()).map_err(RenderError::Invalid)?;
    let context_ref = whole_context.map(|text| state.store_blob(text));
    let review_ref = whole_review.map(|text| state.store_blob(text));
    let sent_ref = whole_sent.map(|text| state.store_blob(text));
    drop(state);
    let timeout = effective_timeout(gate, facts.left);
    let action = timeout.action.unwrap_or_default();
    let mut request = ApprovalRequest {
        workflow: WorkflowRef { name: plan.name.clone(), uid: plan.uid.clone() },
        gate: GateRef {
            name: facts.name.to_owned(),
            type_: gate.subject.gate_type(),
            path: facts.path.to_owned(),
            visit: facts.visit,
        },
        spec_digest: plan.spec_digest().clone(),
        guard_epoch: facts.guard_epoch.clone(),
        deadline: facts.deadline,
        closes_at: action.ends().then_some(facts.deadline),
        prompt,
        context: context.map(|text| text::first(&text, SHOWN).to_owned()),
        context_ref,
        parameters: match &call {
            Some(call) => call.parameters.clone(),
            None => parameter_schemas(gate, reviewed.as_ref()),
        },
        reviews: reviewed.map(|reviewed| build_review(reviewed, review_ref, edits)),
        sends: sends.map(|(text, fields)| Sent {
            text: if sent_ref.is_some() { fields.excerpt(SENT) } else { text },
            ref_: sent_ref,
        }),
        action: call.as_ref().map(|call| call.action.clone()),
        says: call.as_ref().and_then(|call| call.says.clone()),
        form: call.as_ref().and_then(|call| call.form.clone()).or_else(|| gate.form.clone()),
        allowed_verdicts: {
            let withheld = |verdict: &Verdict| call.as_ref().is_some_and(|call| call.withheld.contains(verdict));
            gate.allowed.iter().filter(|verdict| !withheld(verdict)).copied().collect()
        },
        after_reject: gate.after_reject.clone(),
        require_reason: spec.require_reason,
        quorums: quorums(step, gate),
        requested_by: plan.requested_by.clone(),
        requested_for: plan.requested_for.clone(),
        earlier_requesters: Persons::new(&gate.persons).persons_of(&plan.earlier_requesters),
        excluded: exclusions::excluded_users(gate, &exclusions),
        excluded_because: exclusions,
        persons: gate.persons.clone(),
        max_vote_age: gate.max_vote_age,
        required_by: gate.required_by.clone(),
        timeout: Timeout { action: Some(action), ..timeout },
        escalate_to: spec.escalate_to.clone(),
        digest: Digest::of_bytes(b""),
    };
    request.digest = request.digest_of_the_rest().map_err(|why| RenderError::Invalid(why.to_string()))?;
    let name = names::approval(&plan.name, facts.name, &request.digest);
    let of_record = call.into_iter().flat_map(|call| call.facts);
    let of_record = of_record.chain([(exclusions::FACT_GATE, exclusions::gate_names(step, gate))]);
    let of_record = of_record.map(|(name, value)| (name.to_owned(), value)).collect();
    let channels = spec.notify.clone();
    Ok(Ask { path: facts.path.to_owned(), name, request, binds, facts: of_record, channels })
}

/// Returns the timeout as the request states it, independent of later defaults of the operator. `left` is the time
/// until the deadline, if it is not the gate's own timeout. The levels of an escalation keep their times.
fn effective_timeout(gate: &PlannedGate, left: Option<Duration>) -> Timeout {
    let mut timeout = gate.spec.timeout.clone().unwrap_or_default();
    if left.is_some() {
        for level in &mut timeout.escalation {
            level.after.get_or_insert(gate.after.into());
        }
    }
    Timeout { after: Some(left.unwrap_or(gate.after).into()), ..timeout }
}

/// The maximum size of the schema of a response in a request, in bytes. A response is checked against a longer schema
/// when it is used.
const MOST_RESPOND_SCHEMA: usize = 16 * 1024;

/// Returns the schema of the parameters of each verdict.
fn parameter_schemas(gate: &PlannedGate, reviewed: Option<&ReviewSubject>) -> Option<JsonObject> {
    let mut own = gate.subject.parameters(reviewed.map_or(0, |reviewed| reviewed.parts));
    if let Some(begins) = &gate.url_begins {
        limit_url(own.as_mut(), begins);
    }
    let respond = reviewed.and_then(|reviewed| reviewed.respond.clone()).map(|schema| Value::Object(schema.0));
    let respond = respond
        .filter(|schema| gate.allowed.contains(&Verdict::Respond) && schema.to_string().len() <= MOST_RESPOND_SCHEMA);
    match respond {
        Some(schema) => {
            let mut schemas = own.unwrap_or_default();
            schemas.0.insert(Verdict::Respond.name().to_owned(), schema);
            Some(schemas)
        }
        None => own,
    }
}

/// Adds to the schema of Modify the required beginning of a URL. A beginning that is too long for a pattern is compared
/// only when the URL is rendered.
fn limit_url(schemas: Option<&mut JsonObject>, begins: &str) {
    let modify = schemas.and_then(|schemas| schemas.0.get_mut(Verdict::Modify.name()));
    let url = modify.and_then(|schema| schema.pointer_mut("/properties/url")).and_then(Value::as_object_mut);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | ':' | '-' | '_');
    let escaped = begins.chars().map(|c| if is_plain(c) { c.to_string() } else { format!("\\{c}") });
    let pattern = format!("^{}", escaped.collect::<String>());
    if let Some(url) = url.filter(|_| pattern.len() <= MAX_PATTERN) {
        url.insert("pattern".to_owned(), pattern.into());
        url.insert("examples".to_owned(), vec![begins].into());
    }
}

/// Renders templates, and joins their texts without duplicates.
fn render_joined<'t>(scope: &Scope, templates: impl Iterator<Item = &'t Template>) -> Result<String, RenderError> {
    let mut texts: Vec<String> = Vec::new();
    for template in templates {
        let text = template.render(scope)?;
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Ok(texts.join("\n\n"))
}

/// Returns the gate's own quorum, followed by the quorums of policies. The source of the own quorum names the policy
/// that added the gate, because an author can give a gate the same name.
pub(super) fn quorums(step: &PlannedStep, gate: &PlannedGate) -> Vec<Quorum> {
    let name = format!("gate {}", step.name);
    let own = Quorum {
        source: step.added_by.iter().fold(name, |name, policy| format!("{name} of {policy}")),
        approvers: gate.spec.approvers.clone(),
        threshold: gate.spec.threshold.unwrap_or(1),
        required_from: gate.spec.required_from.clone(),
        reject_policy: gate.spec.reject_policy,
        exclude_requester: gate.spec.exclude_requester,
    };
    std::iter::once(own).chain(gate.policy_quorums.iter().cloned()).collect()
}

/// Joins texts as paragraphs.
fn paragraphs(texts: [Option<String>; 2]) -> Option<String> {
    let all: Vec<_> = texts.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

/// Returns the subject of the review with the newest changes of people.
fn build_review(
    ReviewSubject { path, text, excerpt, .. }: ReviewSubject,
    ref_: Option<BlobRef>,
    mut by: Vec<Edit>,
) -> Review {
    let digest = Digest::of_bytes(text.as_bytes());
    let response = excerpt.unwrap_or_else(|| text::first(&text, SHOWN).to_owned());
    by.truncate(Review::MAX_EDITS);
    Review { path, response, ref_, digest, by }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
