//! A gate of a flow: its question, its approvers, its timeout, and the consequence of no decision *(pure)*.

use serde::Serialize;
use signoff_api::{
    gate::{Level, Question, Subject},
    step::HitlStep,
};

/// The approvers of a gate, the verdicts that it allows, its deadlines and its questions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The approvers: `alice`, `group finance`.
    pub approvers: Vec<String>,
    /// The number of approvers that must agree.
    pub threshold: i32,
    /// The required numbers of approvers by group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_from: Vec<String>,
    /// The users who cannot decide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// The time until the deadline: `24h`; missing for the operator's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The action at the deadline.
    pub action: String,
    /// The approvers that deadlines add, level by level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub escalation: Vec<Escalation>,
    /// The approvers that the verdict Escalate can add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub escalate_to: Vec<String>,
    /// The allowed verdicts, including defaults of the gate.
    pub verdicts: Vec<String>,
    /// The questions of the form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Asked>,
    /// The reviewed step, if the gate names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviews: Option<String>,
}

/// One level of an escalation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Escalation {
    /// The approvers that are added.
    pub to: Vec<String>,
    /// The time until the next deadline; missing for that of the gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// One question of a form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// The key of the answer.
    pub id: String,
    /// The text of the question; missing for the prompt of the gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The ids of the options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Whether it must be answered.
    pub required: bool,
}

impl Gate {
    /// Returns the gate of a `hitl` step.
    pub(super) fn of(hitl: &HitlStep) -> Self {
        let timeout = hitl.timeout.clone().unwrap_or_default();
        let mut excluded = hitl.excluded.clone();
        if hitl.exclude_requester == Some(true) {
            excluded.insert(0, "the requester".to_owned());
        }
        Self {
            approvers: names(&hitl.approvers),
            threshold: hitl.threshold.unwrap_or(1),
            required_from: hitl
                .required_from
                .iter()
                .map(|rule| format!("{} from Group {}", rule.min, rule.group))
                .collect(),
            excluded,
            after: timeout.after.map(|after| after.to_string()),
            action: format!("{:?}", timeout.action.unwrap_or_default()),
            escalation: timeout.escalation.iter().map(escalation).collect(),
            escalate_to: names(&hitl.escalate_to),
            verdicts: hitl.allowed_verdicts.iter().map(ToString::to_string).collect(),
            questions: hitl.form.iter().flat_map(|form| &form.questions).map(flow_question).collect(),
            reviews: hitl.reviews.clone(),
        }
    }
}

fn names(subjects: &[Subject]) -> Vec<String> {
    subjects.iter().map(Subject::to_string).collect()
}

fn escalation(level: &Level) -> Escalation {
    Escalation { to: names(&level.to), after: level.after.map(|after| after.to_string()) }
}

fn flow_question(question: &Question) -> Asked {
    Asked {
        id: question.id.clone(),
        question: question.question.clone(),
        options: question.options.iter().map(|option| option.id.clone()).collect(),
        required: !question.may_be_left_out(),
    }
}
