//! Words about a request: its subject, the rules of an answer, and the effect of its timeout.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;
use signoff_api::{
    Approval, ApprovalRequest, ApprovalStatus, Digest, RecordPath, Verdict,
    approval::Review,
    conditions::{FOREIGN_MUTATION, GUARDED, NOTIFIED, UNDECIDABLE},
    gate::{GateType, Question, TimeoutAction},
};
use signoff_engine::gate::parameters::shape;

use crate::{
    action::{call, is_question, is_repeated},
    edits,
    quorum::subjects,
    text::one_line,
};

/// The heading of the context.
pub const CONTEXT: &str = "Context, in the run's own words (of models, tools and people; not checked)";

/// Whether the context is equal to the reviewed text, by the digests of both.
pub fn repeats(request: &ApprovalRequest, context: &str) -> bool {
    let digest = match &request.context_ref {
        Some(whole) => whole.digest.clone(),
        None => Digest::of_bytes(context.as_bytes()),
    };
    request.reviews.as_ref().is_some_and(|review| review.digest == digest)
}

/// Returns the heading of the reviewed text, with the people who changed it.
pub fn heading(request: &ApprovalRequest, review: &Review) -> String {
    let changed = edits::heading(review);
    // People changed the request that was sent, and not its result.
    let changed = match request.gate.type_ {
        GateType::ErrorEscalation => changed.replacen(", changed by", ", after a request changed by", 1),
        _ => changed,
    };
    review_subject(request, review) + &changed
}

/// Returns the heading of the text that is sent, or was sent.
pub fn heading_of_sent(request: &ApprovalRequest) -> &'static str {
    if call(request).is_some() { "What the call sends" } else { "What was sent" }
}

fn review_subject(request: &ApprovalRequest, review: &Review) -> String {
    let type_ = request.gate.type_;
    // An escalation after rejections is about a call that did not run.
    if call(request).is_some() {
        return "The arguments of the call".to_owned();
    }
    let path = one_line(&review.path, 512);
    // The name of a part of a pattern begins with a dot.
    let is_part = RecordPath::new(&review.path).last().is_part();
    match type_ {
        GateType::StepStart => format!("What will run (step {path})"),
        GateType::ToolExecution | GateType::SpecificTools | GateType::DestructiveActions | GateType::Custom => {
            "What the gate asks about".to_owned()
        }
        GateType::Question => "What the agent asks".to_owned(),
        GateType::FinalResponse => "What will be published".to_owned(),
        GateType::PlanApproval => "The plan".to_owned(),
        // A step with an unknown outcome may not have failed.
        GateType::ErrorEscalation => format!("How step {path} ended"),
        GateType::OutputValidation => format!("What step {path} answered"),
        GateType::Step if is_part => "What is reviewed".to_owned(),
        GateType::Step => format!("What step {path} made"),
    }
}

/// Returns the rule for the text of a Respond at a gate about a step that has a schema, or `None` at any other gate.
pub fn respond_rule(request: &ApprovalRequest) -> Option<String> {
    let schema = request.parameters.as_ref()?.0.get(Verdict::Respond.name())?;
    let (shape, schema) = (one_line(&shape(schema), 1000), one_line(&schema.to_string(), 4000));
    Some(format!("JSON that fits the schema of the step: {shape}; the whole schema: {schema}"))
}

/// Returns the rules of an answer to a question.
pub fn answer_rules(request: &ApprovalRequest, question: &Question) -> Vec<String> {
    let mut rules = Vec::new();
    if let Some(rule) = respond_rule(request) {
        rules.push(rule);
    } else if question.options.is_empty() {
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
    rules
}

/// Returns the effect of the next timeout. Completes the sentence "then …".
pub fn consequence(request: &ApprovalRequest, status: &ApprovalStatus) -> String {
    let level = usize::try_from(status.level.unwrap_or(0)).unwrap_or(0);
    match request.timeout.action.unwrap_or_default() {
        // A request about a call or a question of an agent, at which a Reject does not end the run.
        TimeoutAction::Reject if request.action.is_some() && !request.after_reject.is_empty() => {
            "it counts as rejected, and the agent is told".into()
        }
        TimeoutAction::Reject => "it counts as rejected".into(),
        TimeoutAction::Approve if is_repeated(request) => format!("it counts as APPROVED{ONLY_PEOPLE}"),
        TimeoutAction::Approve => "it counts as APPROVED".into(),
        TimeoutAction::Retry => retry_effect(request).into(),
        TimeoutAction::Escalate => match request.timeout.escalation.get(level) {
            Some(next) => format!("{} will be asked too", subjects(&next.to)),
            None => "it counts as rejected: there are no further approvers".into(),
        },
        TimeoutAction::Abort => "the whole run is aborted".into(),
        TimeoutAction::Skip if call(request).is_some() => "the call does not run, and the agent is told".into(),
        TimeoutAction::Skip if is_question(request) => "the agent gets no answer and continues".into(),
        TimeoutAction::Skip => "the run goes on without an answer".into(),
        TimeoutAction::Default => match &request.timeout.default {
            Some(answer) => format!("the answer is: {}", one_line(answer, 200)),
            None => "every question's default is the answer".into(),
        },
        TimeoutAction::Expire => "it stays open for Retry, Reject and Abort only".into(),
    }
}

/// The end of a sentence about a timeout that would approve a call which was made before.
const ONLY_PEOPLE: &str = ", but only people can let the call be made again";

/// Returns the verdict of a passed deadline. An Approve about a call that was made before has a note: only people can
/// let the call be made again. `request`: the request, if it was read.
pub fn counts_as(verdict: Verdict, request: Option<&ApprovalRequest>) -> String {
    let is_idle = verdict == Verdict::Approve && request.is_some_and(is_repeated);
    format!("{verdict}{}", if is_idle { ONLY_PEOPLE } else { "" })
}

/// Returns the effect of a Retry by the deadline. The engine asks again at most three times. The number of visits is
/// not the number of repetitions, because gates are visited for other reasons too.
fn retry_effect(request: &ApprovalRequest) -> &'static str {
    match request.gate.visit {
        ..=1 => "it ends and is asked again, at most three times",
        2 | 3 => "it ends and is asked again, at most three times in all",
        _ => "it counts as rejected and the run ends, if Retry or Defer asked again three times already",
    }
}

/// Returns the channels of notices that the gate adds, or `None`. The channels of administrators are not in the objects
/// of the run.
pub fn channels(approval: &Approval) -> Option<String> {
    let added: Vec<_> = approval.channels().collect();
    (!added.is_empty()).then(|| format!("{}, beside the channels of administrators", added.join(", ")))
}

/// Returns the warnings of the conditions of a status: a label and a text for each.
pub fn warnings(status: &ApprovalStatus) -> Vec<(&'static str, String)> {
    let warning = |condition: &Condition| {
        let label = match (condition.type_.as_str(), condition.status.as_str()) {
            (GUARDED, "False") => "NOT GUARDED",
            (FOREIGN_MUTATION, "True") => "Warning",
            (UNDECIDABLE, "True") => "Undecidable",
            (NOTIFIED, "False") => "Not notified",
            _ => return None,
        };
        Some((label, one_line(&condition.message, 1024)))
    };
    status.conditions.iter().filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::conditions::{self, ConditionUpdate};

    use super::*;
    use crate::sample;

    fn timeout_effect(request: &ApprovalRequest, action: TimeoutAction, after_reject: &[&str]) -> String {
        let mut request = request.clone();
        request.timeout.action = Some(action);
        request.after_reject = after_reject.iter().map(ToString::to_string).collect();
        consequence(&request, &ApprovalStatus::default())
    }

    #[test]
    fn a_deadline_at_a_call_says_whether_the_call_runs_and_the_run_continues() {
        let (call, question) = (sample::call().spec.request, sample::question().spec.request);
        let after_reject = ["the agent, which is told the reason"];
        assert_eq!(
            timeout_effect(&call, TimeoutAction::Reject, &after_reject),
            "it counts as rejected, and the agent is told"
        );
        assert_eq!(timeout_effect(&call, TimeoutAction::Reject, &[]), "it counts as rejected", "the run ends");
        assert_eq!(
            timeout_effect(&call, TimeoutAction::Skip, &after_reject),
            "the call does not run, and the agent is told"
        );
        assert_eq!(
            timeout_effect(&question, TimeoutAction::Reject, &after_reject),
            "it counts as rejected, and the agent is told"
        );
        assert_eq!(
            timeout_effect(&question, TimeoutAction::Skip, &after_reject),
            "the agent gets no answer and continues"
        );
    }

    #[test]
    fn a_passed_deadline_never_repeats_a_call() {
        let mut call = sample::call().spec.request;
        assert_eq!(timeout_effect(&call, TimeoutAction::Approve, &[]), "it counts as APPROVED");
        assert_eq!(counts_as(Verdict::Approve, Some(&call)), "Approve");
        for line in ["this call was made at 2026-11-22T10:00:00Z: Succeeded", "this call, attempt 1: Unknown"] {
            call.action.as_mut().unwrap().done = vec!["lookup {}: Succeeded".to_owned(), line.to_owned()];
            let words = "it counts as APPROVED, but only people can let the call be made again";
            assert_eq!(timeout_effect(&call, TimeoutAction::Approve, &[]), words, "{line}");
            let counts = "Approve, but only people can let the call be made again";
            assert_eq!(counts_as(Verdict::Approve, Some(&call)), counts);
            assert_eq!(counts_as(Verdict::Reject, Some(&call)), "Reject");
        }
        let mut step = sample::approval().spec.request;
        step.gate.type_ = GateType::StepStart;
        step.gate.path = "handle/.turn-1/.call-1/pay/.start".to_owned();
        let facts = "A call of the tool refund by the agent clerk\ntarget: POST http://x/\neffects, as the author declares: write";
        let by_people = format!("\n{}\nthis call, attempt 1: Unknown", signoff_api::approval::Action::BY_PEOPLE);
        for (made, is_repeated) in
            [(by_people.as_str(), true), ("\nthis call was made at noon: Succeeded", false), ("", false)]
        {
            // Texts of others follow the facts.
            let words = format!("\narguments (2 bytes): {{}}\n\n{}", signoff_api::approval::Action::BY_PEOPLE);
            step.context = Some(format!("{facts}{made}{words}"));
            let ends = timeout_effect(&step, TimeoutAction::Approve, &[]).ends_with(ONLY_PEOPLE);
            assert_eq!(ends, is_repeated, "{made}");
        }
    }

    #[test]
    fn an_answer_in_place_of_a_step_has_the_rule_of_its_schema() {
        let mut request = sample::approval().spec.request;
        let question = Question { id: Question::PLAIN.to_owned(), ..Question::default() };
        assert_eq!(answer_rules(&request, &question), ["free text", "required"]);
        let schema = serde_json::json!({"type": "object", "required": ["state"]});
        let all = serde_json::json!({"Respond": schema});
        request.parameters = serde_json::from_value(all).ok();
        let rule = format!("JSON that fits the schema of the step: {{state: <any>}}; the whole schema: {schema}");
        assert_eq!(answer_rules(&request, &question), [rule.as_str(), "required"]);
    }

    #[test]
    fn a_deadline_that_asks_again_says_how_often() {
        let mut request = sample::approval().spec.request;
        for (visit, words) in [
            (1, "it ends and is asked again, at most three times"),
            (2, "it ends and is asked again, at most three times in all"),
            (4, "it counts as rejected and the run ends, if Retry or Defer asked again three times already"),
        ] {
            request.gate.visit = visit;
            assert_eq!(timeout_effect(&request, TimeoutAction::Retry, &[]), words);
        }
    }

    #[test]
    fn the_channels_of_a_gate_and_their_failure_are_shown() {
        let mut approval = sample::approval();
        assert_eq!(channels(&approval), None);
        let listed = "finance,<!channel>,mail".to_owned();
        approval.metadata.annotations = Some([(signoff_api::names::ANNOTATION_NOTIFY.to_owned(), listed)].into());
        assert_eq!(channels(&approval).as_deref(), Some("finance, mail, beside the channels of administrators"));
        let mut status = ApprovalStatus::default();
        let why = "channel finance: not delivered, and tried again: Slack: no connection";
        let failed = ConditionUpdate { kind: NOTIFIED, holds: false, reason: "NotDelivered", message: why };
        conditions::set(&mut status.conditions, &failed, None, sample::now());
        assert_eq!(warnings(&status), [("Not notified", why.to_owned())]);
    }

    #[test]
    fn a_deadline_at_any_other_gate_says_that_the_run_goes_on() {
        let step = sample::approval().spec.request;
        assert_eq!(timeout_effect(&step, TimeoutAction::Reject, &["send"]), "it counts as rejected");
        assert_eq!(timeout_effect(&step, TimeoutAction::Skip, &[]), "the run goes on without an answer");
        assert_eq!(timeout_effect(&step, TimeoutAction::Retry, &[]), "it ends and is asked again, at most three times");
    }
}
