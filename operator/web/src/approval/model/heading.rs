//! The parts at the top of the page of a request: its object, its question, its origin and its alerts.
//!
//! Pure.

use signoff_api::{Approval, ApprovalRequest, ApprovalStatus, Moment, Workflow, gate::GateType};
use signoff_expr::text::display;
use signoff_review::{action, clock::distance, coming, problem::Problem, request, text::one_line, voided};

use super::{LONGEST, draft, path};
use crate::{
    approval::{read::Read, typed::Problems},
    page::Instant,
    session::Caller,
};

/// The longest question that is the title, in characters.
const LONGEST_TITLE: usize = 200;

/// The identity of a request: the page names the request, follows its changes and sends decisions on it.
pub(super) struct RequestId {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The resource version of the object.
    pub(super) version: String,
    /// The digest of the request, which a decision repeats.
    pub(super) digest: String,
    /// The key under which the browser stores the draft of this request.
    pub(super) draft: String,
}

impl RequestId {
    /// Returns the identity of the request of an Approval.
    pub(super) fn of(approval: &Approval) -> Self {
        let metadata = &approval.metadata;
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            digest: approval.spec.request.digest.to_string(),
            draft: draft(approval),
        }
    }

    /// Returns the path of the page of the request.
    pub(super) fn path(&self) -> String {
        path(&self.namespace, &self.name)
    }
}

/// The question of the gate's author.
pub(super) struct AuthorQuestion {
    /// The question, or its first line.
    pub(super) title: String,
    /// Whether the question has more than its title.
    pub(super) has_more: bool,
    /// The label, which tells whether values of the run are filled in.
    pub(super) label: &'static str,
    /// The whole question.
    pub(super) prompt: String,
}

impl AuthorQuestion {
    /// Returns the question of a request. `definition`: the run that asks, if it was read.
    pub(super) fn of(request: &ApprovalRequest, definition: Option<&Workflow>) -> Self {
        let prompt = display(action::authors_words(request), LONGEST);
        let title = one_line(prompt.trim_start().lines().next().unwrap_or_default(), LONGEST_TITLE);
        Self { has_more: prompt.trim() != title, label: coming::label_of_question(request, definition), title, prompt }
    }
}

/// The run and the gate that ask, their requesters, and the time of the request.
pub(super) struct Origin {
    pub(super) workflow: String,
    /// The path of the gate.
    pub(super) gate: String,
    pub(super) kind: &'static str,
    /// The number of visits of the gate in words, if there are several.
    pub(super) visit: Option<String>,
    pub(super) requested_by: String,
    pub(super) requested_for: Option<String>,
    pub(super) earlier_requesters: Vec<String>,
    /// The run that this one repeats.
    pub(super) repeats: Option<String>,
    pub(super) since: Option<Instant>,
    pub(super) ago: Option<String>,
}

impl Origin {
    /// Returns the origin of a request. `definition`: the run that asks, if it was read.
    pub(super) fn of(read: &Read, definition: Option<&Workflow>) -> Self {
        let approval = &read.seen.approval;
        let request = &approval.spec.request;
        let since = approval.metadata.creation_timestamp.as_ref().map(|at| Moment::from(at.0));
        Self {
            workflow: request.workflow.name.clone(),
            gate: one_line(&request.gate.path, 512),
            kind: kind(request.gate.type_),
            visit: (request.gate.visit > 1).then(|| format!("asked {} times by now", request.gate.visit)),
            requested_by: one_line(&request.requested_by, 512),
            requested_for: request.requested_for.as_ref().map(|person| one_line(person, 253)),
            earlier_requesters: request.earlier_requesters.iter().map(|name| one_line(name, 253)).collect(),
            repeats: definition.and_then(|run| run.spec.rerun_of.as_ref()).map(|rerun| one_line(&rerun.name, 253)),
            since: since.map(Instant::from),
            ago: since.map(|at| distance(at, read.at)),
        }
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

/// The refusals and warnings above the facts.
pub(super) struct Alerts {
    /// The reason why this request cannot or must not be decided: a heading and a sentence.
    pub(super) broken: Option<(&'static str, String)>,
    /// The warnings, each with its label.
    pub(super) warnings: Vec<(&'static str, String)>,
    /// The problem of the decision that was sent before.
    pub(super) problem: Option<String>,
}

impl Alerts {
    /// Returns the alerts for a reader. `broken`: the problem of the request that concerns the reader. `problems`: the
    /// problems of the decision that the reader sent before.
    pub(super) fn of(caller: &Caller, read: &Read, broken: Option<&Problem>, problems: &Problems) -> Self {
        let approval = &read.seen.approval;
        let of_run = ApprovalStatus { conditions: read.run.conditions.clone(), ..ApprovalStatus::default() };
        let mut warnings = request::warnings(&approval.status.clone().unwrap_or_default());
        warnings.extend(request::warnings(&of_run));
        warnings.extend(voided::lost(&read.earlier, approval, &caller.me).map(|lost| ("NOT COUNTED", lost)));
        warnings.extend(read.earlier.iter().filter_map(|earlier| Some((voided::LABEL, earlier.line()?))));
        Self {
            broken: broken.map(|problem| (problem.heading(), problem.to_string())),
            warnings,
            problem: problems.of_page(),
        }
    }
}
