//! The gates of a plan: who is asked what, checked so that no gate can be found undecidable at night.
//!
//! Identities, thresholds, verdicts and timeouts are taken as they were typed.

use std::time::Duration;

use signoff_api::{
    Span, Verdict,
    conditions::reason,
    gate::{Form, Question, Subject, SubjectKind, TimeoutAction},
    step::{HitlStep, OnReject},
    workflow::WorkflowSpec,
};
use signoff_expr::re2;

use super::{Check, PlannedGate, step::Place};

use crate::{
    about::{About, allowed, form},
    complaint::Complaint,
    decision,
    policy::{Contradiction, EffectiveGate, Requester},
    schema::Schema,
};

impl Check<'_> {
    /// A gate of a list of steps: it reviews an earlier one of them.
    pub(super) fn gate_step(&mut self, hitl: &HitlStep, field: &str, place: &Place<'_>) -> Option<PlannedGate> {
        let about = match place.before {
            Some((_, fields)) => About::Start(fields),
            None if place.result => About::Result,
            None => About::Step(self.reviewed(hitl, field, place)),
        };
        self.gate(hitl, field, place, about)
    }

    /// A gate that asks about something.
    pub(super) fn gate(
        &mut self,
        hitl: &HitlStep,
        field: &str,
        place: &Place<'_>,
        about: About,
    ) -> Option<PlannedGate> {
        let prompt = self.known_template(&hitl.prompt, &format!("{field}.prompt"), &place.known);
        let context = hitl
            .context_display
            .as_ref()
            .and_then(|source| self.known_template(source, &format!("{field}.contextDisplay"), &place.known));
        if !matches!(about, About::Step(_)) && hitl.reviews.is_some() {
            self.complain(format!("{field}.reviews"), "what this gate asks about is given by its place: leave it out");
        }
        // A run that was accepted goes on: a Reject stops it there.
        let is_bound = self.accepted && place.before.is_some();
        if hitl.on_reject == Some(OnReject::Continue) && !about.goes_on_after_reject() && !is_bound {
            self.complain(
                format!("{field}.onReject"),
                "nothing could go on after a Reject at this gate: leave onReject out, or let people Skip where they may",
            );
        }
        let allowed = allowed(hitl, &about);
        let form = form(hitl, &allowed);
        self.approvers(hitl, field, place.ground.spec);
        self.verdicts(hitl, field, &allowed, &about, place, form.as_ref());
        self.form(field, form.as_ref());
        self.timeout(hitl, field, &allowed, form.as_ref());
        if matches!(about, About::Failure(_))
            && hitl.timeout.as_ref().is_some_and(|t| t.action == Some(TimeoutAction::Approve))
        {
            self.complain(
                format!("{field}.timeout.action"),
                "a failure cannot be approved: use Retry, Skip, Reject or Abort",
            );
        }
        let spec = place.ground.spec;
        let requester = Requester { by: &spec.requested_by, on_behalf_of: spec.requested_for.as_deref() };
        let usual = self.settings.default_gate_timeout;
        let EffectiveGate { hitl, allowed, form, policy_quorums, persons, required_by, ends_on_reject, contradictions } =
            self.policies.merge_into(hitl, &about, requester, usual, place.added_by);
        let held = self.contradicted(&contradictions, field);
        Some(PlannedGate {
            prompt: prompt?,
            context,
            shows: place.before.map(|(step, _)| step.definition()),
            about,
            allowed,
            form,
            after: hitl.timeout.as_ref().and_then(|timeout| timeout.after).map_or(usual, Span::duration),
            stops_on_reject: hitl.on_reject.unwrap_or_default() == OnReject::Stop,
            spec: hitl,
            policy_quorums,
            persons,
            required_by,
            held,
            field: field.to_owned(),
            after_reject: Vec::new(),
            ends_on_reject,
        })
    }

    /// Reports the conflicts with policies before the run is accepted, or returns the one that holds the gate afterwards.
    fn contradicted(&mut self, contradictions: &[Contradiction], field: &str) -> Option<Complaint> {
        if !self.accepted {
            for found in contradictions {
                self.complain_as(found.reason, format!("{field}.{}", found.field), &found.message);
            }
        }
        let first = contradictions.first()?;
        let all: Vec<_> = contradictions.iter().map(|found| found.message.as_str()).collect();
        Some(Complaint { field: field.to_owned(), message: all.join("; "), reason: first.reason })
    }

    fn reviewed(&mut self, hitl: &HitlStep, field: &str, place: &Place<'_>) -> Option<usize> {
        let calls = || place.earlier.iter().filter(|(_, step)| !step.is_gate());
        match &hitl.reviews {
            None => calls().next_back().map(|(at, _)| *at),
            Some(name) => {
                let found = calls().find(|(_, step)| step.name == *name).map(|(at, _)| *at);
                if found.is_none() {
                    let message =
                        format!("{name} is not an earlier step of this list that could be reviewed: gates are not");
                    self.complain(format!("{field}.reviews"), message);
                }
                found
            }
        }
    }

    fn approvers(&mut self, hitl: &HitlStep, field: &str, spec: &WorkflowSpec) {
        let (list, threshold) = (format!("{field}.approvers"), hitl.threshold.unwrap_or(1));
        if hitl.approvers.is_empty() {
            self.complain(&list, "nobody could decide this gate: name at least one User, Group or ServiceAccount");
        }
        let escalation = hitl.timeout.iter().flat_map(|t| &t.escalation).flat_map(|level| &level.to);
        for subject in hitl.approvers.iter().chain(&hitl.escalate_to).chain(escalation) {
            let is_account = subject.kind == SubjectKind::ServiceAccount;
            if subject.name.is_empty() || is_account != subject.namespace.is_some() {
                self.complain(
                    &list,
                    format!("{subject}: a name is needed, and a namespace for a ServiceAccount and nobody else"),
                );
            } else if !is_account && subject.name.starts_with("system:") {
                let message =
                    format!("{subject}: everybody is in some system group; name people, or a ServiceAccount by kind");
                self.complain(&list, message);
            } else if is_account {
                self.warn(
                    &list,
                    &format!(
                        "{subject} is as strong as the role edit in its namespace: whoever may take its tokens decides"
                    ),
                );
            }
        }
        let excluded = |subject: &Subject| {
            subject.kind == SubjectKind::User
                && (hitl.excluded.contains(&subject.name)
                    || (hitl.exclude_requester == Some(true)
                        && (subject.name == spec.requested_by || spec.requested_for.as_ref() == Some(&subject.name))))
        };
        let mut named: Vec<&Subject> = Vec::new();
        for subject in hitl.approvers.iter().filter(|s| s.kind != SubjectKind::Group && !excluded(s)) {
            if !named.contains(&subject) {
                named.push(subject);
            }
        }
        let open_ended = hitl.approvers.iter().any(|s| s.kind == SubjectKind::Group);
        if !hitl.approvers.is_empty() && !open_ended && named.len() < usize::try_from(threshold).unwrap_or(1) {
            let message = format!(
                "it takes {threshold} people and only {} of the named approvers may decide: lower it or name more people or a group",
                named.len()
            );
            self.complain(format!("{field}.threshold"), message);
        }
        for required in &hitl.required_from {
            if !hitl.approvers.contains(&Subject::group(&required.group)) {
                let message = format!("group {} is not among the approvers, so nobody could fill it", required.group);
                self.complain(format!("{field}.requiredFrom"), message);
            }
        }
        let requester = Requester { by: &spec.requested_by, on_behalf_of: spec.requested_for.as_deref() };
        if hitl.exclude_requester == Some(true) && requester.is_machine() {
            self.complain_as(
                reason::REQUESTER_IS_MACHINE,
                format!("{field}.excludeRequester"),
                "RequesterIsMachine: a service account created this Workflow, so there is no person to exclude: set spec.requestedFor to the person it acts for",
            );
        }
    }

    fn verdicts(
        &mut self,
        hitl: &HitlStep,
        field: &str,
        allowed: &[Verdict],
        about: &About,
        place: &Place<'_>,
        form: Option<&Form>,
    ) {
        let field = format!("{field}.allowedVerdicts");
        // Before a step, an answer to a form approves it.
        let approves = |verdict: &Verdict| {
            *verdict == Verdict::Respond && matches!(about, About::Start(_)) && (hitl.form.is_some() || self.accepted)
        };
        let meaningless = about.meaningless().iter().filter(|(verdict, _)| allowed.contains(verdict));
        let meaningless: Vec<_> = meaningless.filter(|(verdict, _)| !approves(verdict)).collect();
        for (verdict, instead) in meaningless {
            self.complain(&field, format!("{verdict} means nothing at this gate: {instead}"));
        }
        let nothing = matches!(about, About::Step(None));
        for verdict in [Verdict::Modify, Verdict::Defer] {
            if allowed.contains(&verdict) && nothing {
                self.complain(&field, format!("{verdict} needs an earlier step to be reviewed, and there is none"));
            }
        }
        if let (true, About::Step(Some(from))) = (allowed.contains(&Verdict::Defer) && !self.accepted, about) {
            let again = place.earlier.iter().skip_while(|(at, _)| at != from);
            for (_, step) in again.filter(|(_, step)| !step.is_idempotent()) {
                let remedy = match step.policy_gates.is_empty() {
                    true => "leave Defer out, or say idempotent: true where that is so",
                    false => {
                        "leave Defer out; a policy has a gate before that step, so its kind and method say what may be repeated"
                    }
                };
                let message = format!("Defer runs step {} again, which is not idempotent: {remedy}", step.name);
                self.complain(&field, message);
            }
        }
        let free_text = form.is_some_and(|form| form.questions.iter().any(Question::takes_text));
        if allowed.contains(&Verdict::Respond) && hitl.threshold.unwrap_or(1) > 1 && free_text {
            self.complain(&field, "Respond with free text and a threshold above 1 would let the last one to write decide alone: ask with options, or leave Respond out");
        }
        let chain = hitl.timeout.as_ref().is_some_and(|t| !t.escalation.is_empty());
        if allowed.contains(&Verdict::Escalate) && hitl.escalate_to.is_empty() && !chain {
            self.complain(&field, "Escalate needs somebody to ask: give escalateTo or timeout.escalation");
        }
        if hitl.form.is_some() && !allowed.contains(&Verdict::Respond) {
            self.complain(&field, "a form is filled in by Respond: allow it, or leave the form out");
        }
    }

    fn form(&mut self, field: &str, form: Option<&Form>) {
        for (at, question) in form.iter().flat_map(|form| form.questions.iter().enumerate()) {
            let field = format!("{field}.form.questions[{at}]");
            if let Some(pattern) = &question.pattern
                && let Err(why) = re2::whole(pattern)
            {
                self.complain(format!("{field}.pattern"), why);
            }
            if let Some(schema) = &question.schema
                && !self.accepted
                && let Err(why) = Schema::compile(schema)
            {
                self.complain(format!("{field}.schema"), why);
            }
            if let Some(default) = &question.default
                && let Err(why) = decision::check_text(question, default)
            {
                self.complain(format!("{field}.default"), why);
            }
        }
    }

    fn timeout(&mut self, hitl: &HitlStep, field: &str, allowed: &[Verdict], form: Option<&Form>) {
        let field = format!("{field}.timeout");
        let timeout = hitl.timeout.clone().unwrap_or_default();
        let (usual, most) = (self.settings.default_gate_timeout, self.settings.max_gate_timeout);
        let after = timeout.after.map_or(usual, Span::duration);
        let levels = timeout.escalation.iter().filter_map(|level| level.after).map(Span::duration);
        for length in levels.chain([after]) {
            if length.is_zero() || length > most {
                let message = format!("{} is not between 1ms and {}", Span::from(length), Span::from(most));
                self.complain(format!("{field}.after"), message);
            }
        }
        if timeout.reminder_interval.is_some_and(|every| every.duration() < Duration::from_secs(1)) {
            self.complain(format!("{field}.reminderInterval"), "remind people at most once a second");
        }
        match timeout.action.unwrap_or_default() {
            TimeoutAction::Approve => self.warn(&field, "action Approve lets the run go on although nobody looked"),
            TimeoutAction::Escalate if timeout.escalation.is_empty() => {
                self.complain(
                    format!("{field}.action"),
                    "Escalate needs timeout.escalation: list the approvers that it adds",
                );
            }
            TimeoutAction::Default => {
                if !allowed.contains(&Verdict::Respond) {
                    self.complain(format!("{field}.action"), "Default answers the form: allow Respond");
                } else if let Err(why) = decision::default_answers(form, timeout.default.as_deref()) {
                    self.complain(format!("{field}.default"), why);
                }
            }
            _ => {}
        }
        if timeout.default.is_some() && timeout.action != Some(TimeoutAction::Default) {
            self.complain(
                format!("{field}.default"),
                "needs timeout.action Default: set the action or remove the default",
            );
        }
    }
}
