//! One gate of a plan: approvers, prompt and verdicts, checked so that the gate can be decided. `gates.rs` has all
//! gates of `spec.gates`.
//!
//! Identities, thresholds, verdicts and timeouts stay exactly as written.

use std::time::Duration;

use signoff_api::{
    Span, Verdict,
    conditions::reason,
    gate::{Form, Question, Subject, SubjectKind, TimeoutAction},
    names,
    step::{HitlStep, OnReject},
    workflow::WorkflowSpec,
};
use signoff_expr::re2;

use super::{
    Action, PlannedGate, PlannedStep, Validator,
    step::{PlanContext, StepContext},
    tools,
};

use crate::{
    field_error::FieldError,
    gate::{
        payload,
        subject::{GateSubject, form_of_gate, verdicts_of_gate},
    },
    policy::{Contradiction, EVERY_GATE, EffectiveGate, Requester},
    schema::Schema,
    tools::presets,
};

/// Returns the remedy if a Defer repeats an agent without its memory whose tools can change something, else `None`.
fn fresh_agent_remedy(plan: &PlanContext<'_>, step: &PlannedStep) -> Option<&'static str> {
    let Action::Agent(agent) = &step.action else { return None };
    (agent.fresh && tools::agent_can_change(plan, &agent.agent))
        .then_some("leave Defer out, or leave conversation: fresh out, so that it knows the results of its calls")
}

/// The agents of patterns, which can also have gates of policies before them.
const AGENTS: [&str; 6] = ["router", "orchestrator", "worker", "producer", "evaluator", "reviser"];

impl Validator<'_> {
    /// Plans a gate of a list of steps, which reviews an earlier step of the list. Warns if one person can edit the
    /// reviewed text and approve it.
    pub(super) fn plan_gate_step(
        &mut self,
        hitl: &HitlStep,
        field: &str,
        context: &StepContext<'_>,
    ) -> Option<PlannedGate> {
        let subject = match context.before {
            Some((_, fields)) => GateSubject::Start(fields),
            None if context.result => GateSubject::Result,
            None => GateSubject::Step(self.reviewed_position(hitl, field, context)),
        };
        let planned = self.plan_gate(hitl, field, context, subject)?;
        self.advise_four_eyes(&planned, field, context);
        Some(planned)
    }

    /// Warns if one person can edit a text at one gate and approve it at the next.
    fn advise_four_eyes(&mut self, planned: &PlannedGate, field: &str, context: &StepContext<'_>) {
        let Some(reviewed) = planned.reviews() else { return };
        if planned.excludes_editors || planned.spec.threshold.unwrap_or(1) > 1 {
            return;
        }
        let can_edit_at = |step: &&PlannedStep| {
            let Some(gate) = step.gate() else { return false };
            let excluded = &planned.spec.exclude_deciders;
            let is_excluded = excluded.iter().any(|name| name == EVERY_GATE || *name == step.name);
            let is_within = |some: &[Subject], all: &[Subject]| some.iter().all(|subject| all.contains(subject));
            let (earlier, own) = (&gate.spec.approvers, &planned.spec.approvers);
            gate.reviews() == Some(reviewed)
                && gate.allowed.contains(&Verdict::Modify)
                && !is_excluded
                && is_within(earlier, own)
                && is_within(own, earlier)
        };
        let Some(earlier_gate) = context.earlier.iter().map(|(_, step)| *step).find(can_edit_at) else { return };
        let message = format!(
            "a person who changes the text at gate {0} can approve it here, because both gates have the same approvers: add excludeDeciders: [{0}]",
            earlier_gate.name
        );
        self.warn(&format!("{field}.approvers"), &message);
    }

    /// Reports excluded gates that do not exist.
    fn check_excluded_gates(&mut self, hitl: &HitlStep, field: &str, context: &StepContext<'_>) {
        let plan = context.plan;
        let of_steps = plan.spec.steps.iter().filter(|step| step.hitl.is_some()).map(|step| step.name.clone());
        let parts = plan.spec.gates.iter().flat_map(|gate| presets::expand(gate, true));
        let of_policies = plan.added.iter().map(|added| added.step.name.clone());
        let known: Vec<String> = of_steps.chain(parts.map(|gate| gate.name.clone())).chain(of_policies).collect();
        for (at, name) in hitl.exclude_deciders.iter().enumerate() {
            // `release-pay` is the gate that the policy gate `release` becomes before the step `pay`.
            let is_added = || {
                plan.added.iter().filter(|added| added.step.before.is_some()).any(|added| {
                    let step = name.strip_prefix(&added.step.name).and_then(|rest| rest.strip_prefix('-'));
                    step.is_some_and(|name| {
                        AGENTS.contains(&name) || plan.spec.steps.iter().any(|step| step.name == name)
                    })
                })
            };
            if name != EVERY_GATE && !known.contains(name) && !is_added() {
                let hint = self.did_you_mean(name, known.iter().map(String::as_str));
                let message = format!(
                    "there is no gate {name}: name gates of spec.steps and spec.gates, or `*` for every other gate{hint}"
                );
                self.error(format!("{field}.excludeDeciders[{at}]"), message);
            }
        }
    }

    /// Reports invalid and duplicate names of channels. Names of missing channels are valid here, because only the
    /// operator has the list of channels.
    fn check_channels(&mut self, hitl: &HitlStep, field: &str) {
        for (at, name) in hitl.notify.iter().enumerate() {
            let field = format!("{field}.notify[{at}]");
            if !names::is_label(name) {
                let message = format!(
                    "{name} is not the name of a channel: use the administrator's name for it, of lower-case letters, digits and hyphens"
                );
                self.error(field, message);
            } else if hitl.notify.iter().take(at).any(|earlier| earlier == name) {
                self.error(field, format!("duplicate channel {name}: list each channel once"));
            }
        }
    }

    /// Plans a gate about a subject: checks its fields, and merges the policies that apply.
    pub(super) fn plan_gate(
        &mut self,
        hitl: &HitlStep,
        field: &str,
        context: &StepContext<'_>,
        subject: GateSubject,
    ) -> Option<PlannedGate> {
        let prompt = self.parse_known_template(&hitl.prompt, &format!("{field}.prompt"), &context.known);
        let context_display = hitl
            .context_display
            .as_ref()
            .and_then(|source| self.parse_known_template(source, &format!("{field}.contextDisplay"), &context.known));
        if !matches!(subject, GateSubject::Step(_)) && hitl.reviews.is_some() {
            self.error(format!("{field}.reviews"), "the type of the gate defines what it reviews: leave reviews out");
        }
        // An accepted run continues, and a Reject stops it there.
        let is_bound = self.accepted && context.before.is_some();
        if hitl.on_reject == Some(OnReject::Continue) && !subject.can_continue_after_reject() && !is_bound {
            self.error(
                format!("{field}.onReject"),
                "no step could run after a Reject at this gate: leave onReject out, or allow Skip",
            );
        }
        let allowed = verdicts_of_gate(hitl, &subject);
        let form = form_of_gate(hitl, &allowed);
        self.check_approvers(hitl, field, context.plan.spec);
        self.check_verdicts(hitl, field, &allowed, &subject, context, form.as_ref());
        self.check_form(field, form.as_ref());
        let usual = self.default_timeout(&subject);
        self.check_timeout(hitl, field, &allowed, form.as_ref(), usual);
        if matches!(subject, GateSubject::Failure(_))
            && hitl.timeout.as_ref().is_some_and(|t| t.action == Some(TimeoutAction::Approve))
        {
            self.error(
                format!("{field}.timeout.action"),
                "a failure cannot be approved: use Retry, Skip, Reject or Abort",
            );
        }
        let spec = context.plan.spec;
        let requester = Requester::of(spec);
        if !self.accepted {
            self.check_excluded_gates(hitl, field, context);
            self.check_channels(hitl, field);
        }
        let EffectiveGate {
            hitl,
            allowed,
            form,
            policy_quorums,
            persons,
            required_by,
            ends_on_reject,
            excludes_editors,
            max_vote_age,
            contradictions,
        } = self.policies.merge_into(hitl, &subject, requester, usual, context.added_by);
        let blocked = self.report_contradictions(&contradictions, field);
        self.warn_second_review(&subject, &allowed, field, context);
        let known = self.allowed.entry(field.to_owned()).or_default();
        known.extend(allowed.iter().filter(|verdict| !known.contains(verdict)).copied().collect::<Vec<_>>());
        Some(PlannedGate {
            prompt: prompt?,
            context: context_display,
            merged: Vec::new(),
            shows: context.before.map(|(step, _)| step.definition()),
            allowed,
            form,
            after: hitl.timeout.as_ref().and_then(|timeout| timeout.after).map_or(usual, Span::duration),
            stops_on_reject: match subject {
                // The agent receives the decision, and continues.
                GateSubject::Call(_) | GateSubject::Question => {
                    hitl.on_reject == Some(OnReject::Stop) || !ends_on_reject.is_empty()
                }
                _ => hitl.on_reject.unwrap_or_default() == OnReject::Stop,
            },
            subject,
            spec: hitl,
            policy_quorums,
            persons,
            required_by,
            blocked,
            field: field.to_owned(),
            after_reject: Vec::new(),
            ends_on_reject,
            excludes_editors,
            max_vote_age,
            merged_gates: Vec::new(),
            url_begins: None,
        })
    }

    /// Warns if Modify would replace a text that people approved at an earlier gate.
    fn warn_second_review(
        &mut self,
        subject: &GateSubject,
        allowed: &[Verdict],
        field: &str,
        context: &StepContext<'_>,
    ) {
        if !matches!(subject, GateSubject::Step(Some(_))) || !allowed.contains(&Verdict::Modify) {
            return;
        }
        let reviews_the_same =
            |gate: &PlannedGate| gate.subject == *subject && gate.allowed.contains(&Verdict::Approve);
        let earlier = context.earlier.iter().find(|(_, step)| step.gate().is_some_and(reviews_the_same));
        if let Some((_, earlier)) = earlier {
            let why = format!(
                "Modify replaces the text that people approved at gate {}, who do not see the new one: list the verdicts without Modify",
                earlier.name
            );
            self.warn(&format!("{field}.allowedVerdicts"), &why);
        }
    }

    /// Reports conflicts with policies before the run is accepted. Returns the conflicts as the reason why the gate of
    /// an accepted run is blocked.
    fn report_contradictions(&mut self, contradictions: &[Contradiction], field: &str) -> Option<FieldError> {
        if !self.accepted {
            for conflict in contradictions {
                self.error_as(conflict.reason, format!("{field}.{}", conflict.field), &conflict.message);
            }
        }
        let first = contradictions.first()?;
        let messages: Vec<_> = contradictions.iter().map(|conflict| conflict.message.as_str()).collect();
        Some(FieldError { field: field.to_owned(), message: messages.join("; "), reason: first.reason })
    }

    /// Returns the position of the step that a gate of a list reviews: the named step, or the last earlier step that is
    /// not a gate.
    fn reviewed_position(&mut self, hitl: &HitlStep, field: &str, context: &StepContext<'_>) -> Option<usize> {
        let calls = || context.earlier.iter().filter(|(_, step)| !step.is_gate());
        match &hitl.reviews {
            None => calls().next_back().map(|(at, _)| *at),
            Some(name) => {
                let position = calls().find(|(_, step)| step.name == *name).map(|(at, _)| *at);
                if position.is_none() {
                    let message = format!("{name} is not an earlier step of this list: name one that is not a gate");
                    self.error(format!("{field}.reviews"), message);
                }
                position
            }
        }
    }

    /// Reports approvers who could not decide, quorums that the listed approvers cannot meet, and a machine as the
    /// requester to be excluded. Warns of service accounts.
    fn check_approvers(&mut self, hitl: &HitlStep, field: &str, spec: &WorkflowSpec) {
        let (list, threshold) = (format!("{field}.approvers"), hitl.threshold.unwrap_or(1));
        if hitl.approvers.is_empty() {
            self.error(&list, "no approver could decide this gate: name at least one User, Group or ServiceAccount");
        }
        let escalation = hitl.timeout.iter().flat_map(|t| &t.escalation).flat_map(|level| &level.to);
        for subject in hitl.approvers.iter().chain(&hitl.escalate_to).chain(escalation) {
            let is_account = subject.kind == SubjectKind::ServiceAccount;
            if subject.name.is_empty() || is_account != subject.namespace.is_some() {
                self.error(
                    &list,
                    format!("{subject}: a name is required; a namespace is required for a ServiceAccount and not allowed for others"),
                );
            } else if !is_account && subject.name.starts_with("system:") {
                let why = match subject.kind {
                    SubjectKind::Group => "every user is in some system group; name people",
                    _ => {
                        "a user of Kubernetes itself, such as system:admin of k3s, is no person; name a person's own user (administrators can try it with kubectl --as=NAME)"
                    }
                };
                self.error(&list, format!("{subject}: {why}, or a ServiceAccount by kind"));
            } else if is_account {
                self.warn(
                    &list,
                    &format!(
                        "{subject} can be used by every user with the role edit in its namespace, who can get its tokens and so decide: prefer people"
                    ),
                );
            }
        }
        let is_excluded = |subject: &Subject| {
            subject.kind == SubjectKind::User
                && (hitl.excluded.contains(&subject.name)
                    || (hitl.exclude_requester == Some(true) && spec.requesters().any(|name| *name == subject.name)))
        };
        let mut deciders: Vec<&Subject> = Vec::new();
        for subject in hitl.approvers.iter().filter(|s| s.kind != SubjectKind::Group && !is_excluded(s)) {
            if !deciders.contains(&subject) {
                deciders.push(subject);
            }
        }
        let has_group = hitl.approvers.iter().any(|s| s.kind == SubjectKind::Group);
        if !hitl.approvers.is_empty() && !has_group && deciders.len() < usize::try_from(threshold).unwrap_or(1) {
            let message = format!(
                "the threshold is {threshold}, and only {} of the listed approvers can decide: lower it, or list more people or a group",
                deciders.len()
            );
            self.error(format!("{field}.threshold"), message);
        }
        for required in &hitl.required_from {
            if !hitl.approvers.contains(&Subject::group(&required.group)) {
                let message = format!(
                    "group {} is not among the approvers, so no vote could count for it: add it to approvers",
                    required.group
                );
                self.error(format!("{field}.requiredFrom"), message);
            }
        }
        let requester = Requester::of(spec);
        if hitl.exclude_requester == Some(true) && requester.is_machine() {
            self.error_as(
                reason::REQUESTER_IS_MACHINE,
                format!("{field}.excludeRequester"),
                "RequesterIsMachine: a service account created this Workflow, so there is no person to exclude: set spec.requestedFor to the person it acts for",
            );
        }
    }

    /// Reports verdicts that have no effect at the gate, and verdicts that lack a field of the gate or a step.
    fn check_verdicts(
        &mut self,
        hitl: &HitlStep,
        field: &str,
        allowed: &[Verdict],
        subject: &GateSubject,
        context: &StepContext<'_>,
        form: Option<&Form>,
    ) {
        let field = format!("{field}.allowedVerdicts");
        // Before a step, the response to a form is an approval.
        let approves = |verdict: &Verdict| {
            *verdict == Verdict::Respond
                && matches!(subject, GateSubject::Start(_))
                && (hitl.form.is_some() || self.accepted)
        };
        let checked = Verdict::ALL.iter().filter(|verdict| allowed.contains(verdict) && !approves(verdict));
        let remedies: Vec<_> = checked.filter_map(|verdict| Some((verdict, subject.remedy(*verdict)?))).collect();
        for (verdict, remedy) in remedies {
            self.error(&field, format!("{verdict} has no effect at this gate: {remedy}"));
        }
        if hitl.allowed_verdicts.contains(&Verdict::Modify) && subject.is_of_tool() && context.added_by.is_none() {
            self.warn(&field, "Modify is not offered about the step of a tool: people edit the arguments of a call at a gate in front of the tool");
        }
        let reviews_nothing = matches!(subject, GateSubject::Step(None));
        for verdict in [Verdict::Modify, Verdict::Defer] {
            if allowed.contains(&verdict) && reviews_nothing {
                self.error(&field, format!("{verdict} needs an earlier step to review, and there is none: move the gate behind a step, or leave {verdict} out"));
            }
        }
        if let (true, GateSubject::Step(Some(from))) = (allowed.contains(&Verdict::Defer) && !self.accepted, subject) {
            let repeated = context.earlier.iter().skip_while(|(at, _)| at != from);
            for (_, step) in repeated {
                if let Some(remedy) = fresh_agent_remedy(context.plan, step) {
                    let message = format!(
                        "Defer runs step {} again, whose agent forgets what its tools did: {remedy}",
                        step.name
                    );
                    self.error(&field, message);
                }
                if step.is_idempotent() {
                    continue;
                }
                let remedy = match step.policy_gates.is_empty() {
                    true => "leave Defer out, or set idempotent: true if the step can be repeated",
                    false => {
                        "leave Defer out; a policy has a gate before that step, so its kind and method say what may be repeated"
                    }
                };
                let message = format!("Defer runs step {} again, which is not idempotent: {remedy}", step.name);
                self.error(&field, message);
            }
        }
        let takes_text = form.is_some_and(|form| form.questions.iter().any(Question::takes_text));
        if allowed.contains(&Verdict::Respond) && hitl.threshold.unwrap_or(1) > 1 && takes_text {
            self.error(&field, "Respond with free text and a threshold above 1 would let the last responder decide alone: ask with options, or leave Respond out");
        }
        let has_levels = hitl.timeout.as_ref().is_some_and(|t| !t.escalation.is_empty());
        if allowed.contains(&Verdict::Escalate) && hitl.escalate_to.is_empty() && !has_levels {
            self.error(&field, "Escalate needs further approvers: give escalateTo or timeout.escalation");
        }
        if hitl.form.is_some() && !allowed.contains(&Verdict::Respond) {
            self.error(&field, "a form is filled in by Respond: allow it, or leave the form out");
        }
        let is_listed = hitl.allowed_verdicts.contains(&Verdict::Approve) && context.added_by.is_none();
        let mut questions = hitl.form.iter().flat_map(|form| &form.questions);
        if is_listed
            && !self.accepted
            && hitl.allow_unanswered != Some(true)
            && let Some(required) = questions.find(|question| !question.may_be_left_out())
        {
            let message = format!(
                "Approve leaves question {} unanswered, which is required: leave Approve out, set required: false at the question, or set allowUnanswered: true",
                required.id
            );
            self.error(&field, message);
        }
    }

    /// Reports invalid patterns, schemas and defaults of a form.
    fn check_form(&mut self, field: &str, form: Option<&Form>) {
        for (at, question) in form.iter().flat_map(|form| form.questions.iter().enumerate()) {
            let field = format!("{field}.form.questions[{at}]");
            if let Some(pattern) = &question.pattern
                && let Err(why) = re2::whole(pattern)
            {
                self.error(format!("{field}.pattern"), why);
            }
            if let Some(schema) = &question.schema
                && !self.accepted
                && let Err(why) = Schema::compile(schema)
            {
                self.error(format!("{field}.schema"), why);
            }
            if let Some(default) = &question.default
                && let Err(why) = payload::check_text(question, default)
            {
                self.error(format!("{field}.default"), why);
            }
        }
    }

    /// Returns the default timeout of a gate.
    fn default_timeout(&self, subject: &GateSubject) -> Duration {
        match subject {
            GateSubject::Call(_) => self.settings.default_call_gate_timeout,
            _ => self.settings.default_gate_timeout,
        }
    }

    /// Reports times out of bounds, and a timeout action that lacks a field. Warns of the action Approve. `usual` is
    /// the default timeout.
    fn check_timeout(
        &mut self,
        hitl: &HitlStep,
        field: &str,
        allowed: &[Verdict],
        form: Option<&Form>,
        usual: Duration,
    ) {
        let field = format!("{field}.timeout");
        let timeout = hitl.timeout.clone().unwrap_or_default();
        let most = self.settings.max_gate_timeout;
        let after = timeout.after.map_or(usual, Span::duration);
        let levels = timeout.escalation.iter().filter_map(|level| level.after).map(Span::duration);
        for length in levels.chain([after]) {
            if length.is_zero() || length > most {
                let message = format!("{} is not between 1ms and {}", Span::from(length), Span::from(most));
                self.error(format!("{field}.after"), message);
            }
        }
        if timeout.reminder_interval.is_some_and(|every| every.duration() < Duration::from_secs(1)) {
            self.error(format!("{field}.reminderInterval"), "it must be at least 1s");
        }
        match timeout.action.unwrap_or_default() {
            TimeoutAction::Approve => self.warn(&field, "action Approve lets the run continue without a decision"),
            TimeoutAction::Escalate if timeout.escalation.is_empty() => {
                self.error(
                    format!("{field}.action"),
                    "Escalate needs timeout.escalation: list the approvers that it adds",
                );
            }
            TimeoutAction::Default => {
                if !allowed.contains(&Verdict::Respond) {
                    self.error(format!("{field}.action"), "Default answers the form: allow Respond");
                } else if let Err(why) = payload::default_answers(form, timeout.default.as_deref()) {
                    self.error(format!("{field}.default"), why);
                }
            }
            _ => {}
        }
        if timeout.default.is_some() && timeout.action != Some(TimeoutAction::Default) {
            self.error(
                format!("{field}.default"),
                "needs timeout.action Default: set the action or remove the default",
            );
        }
    }
}
