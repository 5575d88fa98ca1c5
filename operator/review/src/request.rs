//! Words about a request: what it is about, how it can be answered, and what follows without a decision.
//!
//! It must not leave out or soften what the request says.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;
use signoff_api::{
    ApprovalRequest, ApprovalStatus, Digest,
    approval::Review,
    conditions::{FOREIGN_MUTATION, GUARDED, UNDECIDABLE},
    gate::{GateType, Question, TimeoutAction},
};

use crate::{quorum::subjects, text::one_line};

/// The heading of the context.
pub const CONTEXT: &str = "Context, in the run's own words (of models, tools and people; not checked)";

/// Whether the whole context has the digest of the whole reviewed text.
pub fn repeats(request: &ApprovalRequest, context: &str) -> bool {
    let digest = match &request.context_ref {
        Some(whole) => whole.digest.clone(),
        None => Digest::of_bytes(context.as_bytes()),
    };
    request.reviews.as_ref().is_some_and(|review| review.digest == digest)
}

/// Returns the heading of what a gate of this type is about.
pub fn heading(type_: GateType, review: &Review) -> String {
    let path = one_line(&review.path, 512);
    // The parts of patterns are recorded under a name that begins with a dot.
    let is_part = review.path.rsplit('/').next().is_some_and(|name| name.starts_with('.'));
    match type_ {
        GateType::StepStart => format!("What will run (step {path})"),
        GateType::ToolExecution | GateType::SpecificTools | GateType::DestructiveActions | GateType::Custom => {
            "The arguments of the call".to_owned()
        }
        GateType::Question => "What the agent asks".to_owned(),
        GateType::FinalResponse => "What will be published".to_owned(),
        GateType::PlanApproval => "The plan".to_owned(),
        GateType::ErrorEscalation => format!("How step {path} failed"),
        GateType::OutputValidation => format!("What step {path} answered"),
        GateType::Step if is_part => "What is reviewed".to_owned(),
        GateType::Step => format!("What step {path} made"),
    }
}

/// Returns the rules of an answer to a question.
pub fn answer_rules(question: &Question) -> Vec<String> {
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
    rules
}

/// Returns the consequence of the next timeout. Completes the sentence "then …".
pub fn consequence(request: &ApprovalRequest, status: &ApprovalStatus) -> String {
    let level = usize::try_from(status.level.unwrap_or(0)).unwrap_or(0);
    match request.timeout.action.unwrap_or_default() {
        TimeoutAction::Reject => "it counts as rejected".into(),
        TimeoutAction::Approve => "it counts as APPROVED".into(),
        TimeoutAction::Retry => "it ends and is asked again, a few times at most".into(),
        TimeoutAction::Escalate => match request.timeout.escalation.get(level) {
            Some(next) => format!("{} will be asked too", subjects(&next.to)),
            None => "it counts as rejected: there are no further approvers".into(),
        },
        TimeoutAction::Abort => "the whole run is aborted".into(),
        TimeoutAction::Skip => "the run goes on without an answer".into(),
        TimeoutAction::Default => match &request.timeout.default {
            Some(answer) => format!("the answer is: {}", one_line(answer, 200)),
            None => "every question's default is the answer".into(),
        },
        TimeoutAction::Expire => "it stays open for Retry, Reject and Abort only".into(),
    }
}

/// Returns what the conditions of a status warn of: a label, and a text.
pub fn warnings(status: &ApprovalStatus) -> Vec<(&'static str, String)> {
    let warning = |condition: &Condition| {
        let label = match (condition.type_.as_str(), condition.status.as_str()) {
            (GUARDED, "False") => "NOT GUARDED",
            (FOREIGN_MUTATION, "True") => "Beware",
            (UNDECIDABLE, "True") => "Undecidable",
            _ => return None,
        };
        Some((label, one_line(&condition.message, 1024)))
    };
    status.conditions.iter().filter_map(warning).collect()
}
