//! The subjects of gates: the verdicts that each allows, and the payload of each verdict.
//!
//! A table. The effects of verdicts are implemented in `steps/` and `patterns/`.

use serde_json::json;
use signoff_api::{
    JsonObject, Verdict,
    gate::{Form, GateType, Question},
    step::HitlStep,
};

/// The subject of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GateSubject {
    /// The step at this position of its list, or no step.
    Step(Option<usize>),
    /// The chosen route, with the names of all routes.
    Route(Vec<String>),
    /// The subtasks of the divided work, at most this number.
    Subtasks(usize),
    /// A draft with its evaluation.
    Draft,
    /// The results of the workers.
    Workers,
    /// The joined results of the branches or workers.
    Result,
    /// The outputs of the run. The value is true if an agent can revise the outputs.
    Final(bool),
    /// The response of a step.
    Output,
    /// A step that is about to begin, with the fields that Modify can replace.
    Start(&'static [&'static str]),
    /// A failed step, with the fields that Modify can replace.
    Failure(&'static [&'static str]),
    /// A call of a tool, at a gate of this type.
    Call(GateType),
    /// A question of an agent.
    Question,
}

impl GateSubject {
    /// Returns the type of the gate, as in its request.
    pub(crate) fn gate_type(&self) -> GateType {
        match self {
            Self::Step(_) | Self::Draft | Self::Workers | Self::Result => GateType::Step,
            Self::Route(_) | Self::Subtasks(_) => GateType::PlanApproval,
            Self::Final(_) => GateType::FinalResponse,
            Self::Output => GateType::OutputValidation,
            Self::Failure(_) => GateType::ErrorEscalation,
            Self::Start(_) => GateType::StepStart,
            Self::Call(type_) => *type_,
            Self::Question => GateType::Question,
        }
    }

    /// Whether Modify can replace the subject.
    pub(crate) fn is_replaceable(&self) -> bool {
        !matches!(self, Self::Step(None) | Self::Failure([]) | Self::Question)
    }

    /// Whether the subject is the step of a tool. People cannot change that step, because they edit the arguments at
    /// the gates before the tool.
    pub(crate) fn is_of_tool(&self) -> bool {
        matches!(self, Self::Start([]) | Self::Failure([]))
    }

    /// Returns the remedy for a verdict that has no meaning at a gate with this subject, or `None`.
    pub(crate) fn remedy(&self, verdict: Verdict) -> Option<&'static str> {
        const WRITTEN_BY_NO_AGENT: &str = "no agent could write it again: allow Modify or Respond";
        const WAITS_FOR_AN_ANSWER: &str = "the agent waits for an answer: allow Respond or Skip";
        Some(match (verdict, self) {
            (Verdict::Approve, Self::Question) => "an answer approves nothing: allow Respond",
            (Verdict::Approve, Self::Failure(_)) => {
                "a failure cannot be approved: allow Retry, Skip, Modify, Defer or Respond"
            }
            (Verdict::Modify, Self::Question) => "there is nothing to change: allow Respond",
            (Verdict::Respond, Self::Workers) => "no step would read the answer: allow Modify, or Defer with guidance",
            (Verdict::Respond, Self::Start(_)) => "no step would read the answer: allow Modify",
            (Verdict::Defer, Self::Final(false)) => WRITTEN_BY_NO_AGENT,
            (Verdict::Defer, Self::Result) => "there is no single step to run again: allow Modify or Respond",
            (Verdict::Defer, Self::Start(_)) => "no earlier step could run again: allow Modify or Reject",
            (Verdict::Defer, Self::Question) => WAITS_FOR_AN_ANSWER,
            (Verdict::Skip, Self::Route(_) | Self::Subtasks(_) | Self::Draft) => {
                "there is nothing to continue with: allow Reject or Abort"
            }
            (Verdict::Skip, Self::Workers) => "there is nothing to continue with: allow Approve or Abort",
            (Verdict::Retry, Self::Final(false)) => WRITTEN_BY_NO_AGENT,
            (Verdict::Retry, Self::Call(_)) => "the agent decides what it calls next: allow Defer",
            (Verdict::Retry, Self::Question) => WAITS_FOR_AN_ANSWER,
            (Verdict::Approve | Verdict::Modify | Verdict::Respond | Verdict::Defer, _) => return None,
            (Verdict::Reject | Verdict::Escalate | Verdict::Abort | Verdict::Skip | Verdict::Retry, _) => return None,
        })
    }

    /// Whether the run can continue after a Reject here. At other gates there is no value to continue with.
    pub(crate) fn can_continue_after_reject(&self) -> bool {
        matches!(self, Self::Step(_) | Self::Result | Self::Call(_) | Self::Question)
    }

    /// Returns the verdicts that a gate without `allowedVerdicts` allows.
    pub(crate) fn default_verdicts(&self, hitl: &HitlStep) -> Vec<Verdict> {
        match self {
            Self::Call(_) => {
                use Verdict::{Abort, Approve, Defer, Modify, Reject, Skip};
                return vec![Approve, Modify, Reject, Defer, Skip, Abort];
            }
            Self::Question => return vec![Verdict::Respond, Verdict::Skip, Verdict::Abort],
            _ => {}
        }
        let questions = || hitl.form.iter().flat_map(|form| &form.questions);
        let has_only_options = questions().next().is_some() && questions().all(|q| !q.takes_text());
        let can_respond = hitl.threshold.unwrap_or(1) == 1 || has_only_options;
        let mut verdicts = match self {
            Self::Failure(_) => vec![Verdict::Retry, Verdict::Skip, Verdict::Reject],
            Self::Workers => vec![Verdict::Approve, Verdict::Retry, Verdict::Reject],
            _ => vec![Verdict::Approve, Verdict::Reject],
        };
        // A Modify of the input of a step that begins, or of the image of a container, is not allowed by default.
        let needs_explicit_modify = match self {
            Self::Start(_) => true,
            Self::Failure(fields) => fields.contains(&"image"),
            _ => false,
        };
        if self.is_replaceable() && !needs_explicit_modify {
            verdicts.push(Verdict::Modify);
        }
        // The replacement of a final answer is not allowed by default.
        if can_respond && !matches!(self, Self::Workers | Self::Final(_) | Self::Start(_) | Self::Failure(_)) {
            verdicts.push(Verdict::Respond);
        }
        // A response to a form approves the step.
        if matches!(self, Self::Start(_)) && hitl.form.is_some() && can_respond {
            verdicts.push(Verdict::Respond);
        }
        verdicts.push(Verdict::Abort);
        verdicts
    }

    /// Returns a JSON Schema of `parameters` for each verdict, or `None` if Modify replaces the response of a step.
    /// `parts` is the number of parts of the shown text.
    pub(crate) fn parameters(&self, parts: usize) -> Option<JsonObject> {
        let modify_of = |field: &str, schema: serde_json::Value| {
            json!({"Modify": {"type": "object", "required": [field], "additionalProperties": false,
                "properties": {field: schema}}})
        };
        let text = || json!({"type": "string", "minLength": 1});
        let schemas = match self {
            // The tool of a call defines its parameters.
            Self::Step(_) | Self::Result | Self::Final(_) | Self::Output | Self::Call(_) | Self::Question => {
                return None;
            }
            Self::Route(names) => modify_of("route", json!({"enum": names})),
            Self::Subtasks(most) => {
                let task = json!({"type": "object", "required": ["task"], "properties": {"task": text()}});
                modify_of("subtasks", json!({"type": "array", "maxItems": most, "items": task}))
            }
            Self::Draft => modify_of("draft", text()),
            Self::Workers => {
                let numbers: Vec<_> = (0..parts).map(|at| at.to_string()).collect();
                let mut schemas = modify_of(
                    "workers",
                    json!({"type": "object", "minProperties": 1, "propertyNames": {"enum": numbers}}),
                );
                let last = parts.saturating_sub(1);
                schemas["Retry"] = json!({"type": "object", "required": ["workers"], "additionalProperties": false,
                    "properties": {"workers": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": last}}}});
                schemas
            }
            Self::Start(fields) | Self::Failure(fields) => {
                let properties: serde_json::Map<_, _> = fields.iter().map(|f| ((*f).to_owned(), text())).collect();
                json!({"Modify": {"type": "object", "minProperties": 1, "additionalProperties": false,
                    "properties": properties}})
            }
        };
        schemas.as_object().cloned().map(JsonObject)
    }
}

/// Returns the form of a gate: the author's form, or one plain question if the gate allows Respond, else `None`.
pub(crate) fn form_of_gate(hitl: &HitlStep, allowed: &[Verdict]) -> Option<Form> {
    let own = hitl.form.clone().filter(|form| !form.questions.is_empty());
    let plain = || Form { questions: vec![Question { id: Question::PLAIN.to_owned(), ..Question::default() }] };
    own.or_else(|| allowed.contains(&Verdict::Respond).then(plain))
}

/// Returns the verdicts that the author allows, or the default verdicts of the subject. Modify is removed for the step
/// of a tool.
pub(crate) fn verdicts_of_gate(hitl: &HitlStep, subject: &GateSubject) -> Vec<Verdict> {
    let mut allowed =
        if hitl.allowed_verdicts.is_empty() { subject.default_verdicts(hitl) } else { hitl.allowed_verdicts.clone() };
    allowed.retain(|verdict| *verdict != Verdict::Modify || !subject.is_of_tool());
    allowed
}
