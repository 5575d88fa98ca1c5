//! The request of an Approval: what people are shown and what binds them, made from a gate and a moment.
//!
//! Written once. Everything in it but the rendered texts is what the Workflow's author typed.

use signoff_api::{
    ApprovalRequest, Digest, Moment,
    approval::{GateRef, Review, WorkflowRef},
    gate::{Quorum, Timeout},
    names,
};

use crate::{
    activity::{Run, Trouble},
    advance::MAX_VALUE,
    excerpt::SHOWN,
    language::text,
    plan::{PlannedGate, PlannedStep},
    scope::{self, Frame},
    steps::Reviewed,
    turn::Ask,
};

/// What distinguishes one asking from another.
pub(crate) struct Facts<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a str,
    pub(crate) visit: i32,
    pub(crate) seq: i64,
    pub(crate) deadline: Moment,
    pub(crate) guard_epoch: String,
}

/// The Approval to be created.
///
/// `reviewed`: what is asked about.
pub(crate) fn ask<'a>(
    run: &Run<'a>,
    frame: &Frame<'a>,
    step: &PlannedStep,
    gate: &PlannedGate,
    facts: &Facts<'_>,
    reviewed: Option<Reviewed>,
) -> Result<Ask, Trouble> {
    let (plan, spec) = (run.plan, &gate.spec);
    let scope = scope::at(run, frame, step, facts.seq)?;
    let prompt = gate.prompt.render(&scope)?;
    if prompt.trim().is_empty() || prompt.chars().count() > 16384 {
        return Err(Trouble::Invalid("the rendered prompt is empty or has more than 16384 characters".into()));
    }
    let context = match &gate.context {
        Some(template) => Some(template.render(&scope)?),
        None => gate.shows.as_deref().map(text::clean),
    };
    let context = with_the_rest(context, reviewed.as_ref());
    if let Some(long) = context.as_ref().map(String::len).filter(|length| *length > MAX_VALUE) {
        let why = format!(
            "what people would be shown has {long} bytes and may have {MAX_VALUE}: show a part, or where it is"
        );
        return Err(Trouble::Invalid(why));
    }
    let binds = reviewed.as_ref().and_then(|reviewed| reviewed.binds.clone());
    let context_ref = context.as_ref().filter(|text| text.len() > SHOWN).map(|text| run.books.borrow_mut().store(text));
    let timeout = spec.timeout.clone().unwrap_or_default();
    let action = timeout.action.unwrap_or_default();
    let mut request = ApprovalRequest {
        workflow: WorkflowRef { name: plan.name.clone(), uid: plan.uid.clone() },
        gate: GateRef {
            name: facts.name.to_owned(),
            type_: gate.about.gate_type(),
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
        parameters: gate.about.parameters(reviewed.as_ref().map_or(0, |reviewed| reviewed.parts)),
        reviews: reviewed.map(review),
        form: gate.form.clone(),
        allowed_verdicts: gate.allowed.clone(),
        after_reject: gate.after_reject.clone(),
        require_reason: spec.require_reason,
        quorums: quorums(facts.name, gate),
        requested_by: plan.requested_by.clone(),
        requested_for: plan.requested_for.clone(),
        excluded: spec.excluded.clone(),
        persons: gate.persons.clone(),
        required_by: gate.required_by.clone(),
        timeout: Timeout { after: Some(gate.after.into()), action: Some(action), ..timeout },
        escalate_to: spec.escalate_to.clone(),
        digest: Digest::of_bytes(b""),
    };
    request.digest = request.digest_of_the_rest().map_err(|why| Trouble::Invalid(why.to_string()))?;
    let name = names::approval(&plan.name, facts.name, &request.digest);
    Ok(Ask { path: facts.path.to_owned(), name, request, binds })
}

/// Returns the gate's own quorum, and after it those of policies.
fn quorums(name: &str, gate: &PlannedGate) -> Vec<Quorum> {
    let own = Quorum {
        source: format!("gate {name}"),
        approvers: gate.spec.approvers.clone(),
        threshold: gate.spec.threshold.unwrap_or(1),
        required_from: gate.spec.required_from.clone(),
        reject_policy: gate.spec.reject_policy,
        exclude_requester: gate.spec.exclude_requester,
    };
    std::iter::once(own).chain(gate.policy_quorums.iter().cloned()).collect()
}

/// What the gate's author shows, and after it what must not be out of reach: what is known of a container that ran, and
/// all of what will run, or be released, where the review shows only a part of it.
fn with_the_rest(context: Option<String>, reviewed: Option<&Reviewed>) -> Option<String> {
    let beside = reviewed.and_then(|one| one.beside.clone());
    let whole = reviewed.filter(|one| one.excerpt.is_some()).map(|one| format!("all of it:\n{}", one.text));
    let rest = beside.into_iter().chain(whole).map(|text| text::clean(&text));
    let all: Vec<_> = context.into_iter().chain(rest).collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

/// What is decided about.
fn review(Reviewed { path, text, excerpt, .. }: Reviewed) -> Review {
    let digest = Digest::of_bytes(text.as_bytes());
    let response = excerpt.unwrap_or_else(|| text::first(&text, SHOWN).to_owned());
    Review { path, response, digest }
}
