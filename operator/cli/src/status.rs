//! The status of a run as a page: a header, and the tree of its steps. Both programs print it.

mod layout;
#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use signoff_api::{
    Approval, Code, Moment, Workflow, WorkflowStatus,
    journal::{StepPhase, StepRecord},
    workflow::WorkflowPhase,
};
use signoff_review::{
    clock::{self, distance},
    quorum::subjects,
    run,
};

use crate::{
    sanitize::{one_line, wrap},
    style::{Style, Tone},
};

/// The columns of the labels of the header.
const LABELS: usize = 14;

/// Renders the page of a run: facts, and the tree. `approvals`: the Approvals of the open gates; others are ignored.
/// Records of segments must already be in `status.steps`; the header says how many are missing.
#[must_use]
pub fn render(workflow: &Workflow, approvals: &[Approval], now: Moment, style: Style) -> String {
    let nodes = run::tree(workflow, approvals, now);
    let mut page = render_header(workflow, approvals, now, style);
    if !nodes.is_empty() {
        page.push('\n');
        page += &layout::lines(&nodes, now, style);
    }
    page
}

fn render_header(workflow: &Workflow, approvals: &[Approval], now: Moment, style: Style) -> String {
    let mut page = Header { text: String::new(), style };
    let meta = &workflow.metadata;
    let namespace = meta.namespace.as_ref().map(|name| format!(" in namespace {}", one_line(name, 63)));
    let name = one_line(meta.name.as_deref().unwrap_or_default(), 253);
    page.add_fact("Workflow", Tone::Strong, &(name + &namespace.unwrap_or_default()));
    if let Some(deletion) = deletion(meta) {
        page.add_fact("Deletion", Tone::Attention, &deletion);
    }
    let Some(status) = &workflow.status else {
        let created = meta.creation_timestamp.as_ref().map(|at| distance(Moment::from(at.0), now));
        let created = created.map(|ago| format!(", created {ago}")).unwrap_or_default();
        page.add_fact("Phase", Tone::Attention, &format!("Pending: no operator has read it yet{created}"));
        page.add_fact("Requester", Tone::Quiet, &requester(workflow));
        return page.text;
    };
    page.add_fact("Phase", phase_tone(status.phase), status.phase.name());
    let has_reason = status.phase != WorkflowPhase::Succeeded && status.phase != WorkflowPhase::Waiting;
    if let Some(why) = status.message.as_ref().filter(|why| has_reason && !why.trim().is_empty()) {
        page.add_fact("Reason", Tone::Quiet, &one_line(why, 1024));
    }
    for condition in run::troubles(status) {
        let code = Code::bracketed(Code::of_reason(&condition.reason));
        let text = format!("{}{code}: {}", one_line(&condition.reason, 63), one_line(&condition.message, 1024));
        page.add_fact(&one_line(&condition.type_, 40), Tone::Quiet, &text);
    }
    page.add_fact("Requester", Tone::Quiet, &requester(workflow));
    if let Some(started) = status.started_at {
        page.add_fact("Started", Tone::Quiet, &format!("{} ({})", started.ceil_to_second(), distance(started, now)));
    }
    if let Some(finished) = status.finished_at {
        let took = status.started_at.map(|from| format!(", after {}", clock::length(finished.since(from))));
        let ago = distance(finished, now);
        page.add_fact(
            "Finished",
            Tone::Quiet,
            &format!("{} ({ago}{})", finished.ceil_to_second(), took.unwrap_or_default()),
        );
    }
    for (label, list) in [("Waiting for", open_gates(status, approvals)), ("Running", running_steps(status))] {
        if !list.is_empty() && !status.phase.is_end() {
            page.add_fact(label, Tone::Quiet, &list.join("; "));
        }
    }
    if let Some(usage) = status.usage {
        page.add_fact("Tokens", Tone::Quiet, &usage.to_string());
    }
    let missing: i64 = status.segments.iter().map(|segment| i64::from(segment.records)).sum();
    if missing > 0 {
        page.add_fact("Not shown", Tone::Quiet, &format!("{missing} earlier records, which could not be read"));
    }
    page.text
}

/// The lines `Label: text` of the header.
struct Header {
    text: String,
    style: Style,
}

impl Header {
    /// Adds a fact, wrapped to the width of the style. `Tone::Quiet` means no colour.
    fn add_fact(&mut self, label: &str, tone: Tone, text: &str) {
        let label = format!("{:<LABELS$}", format!("{label}:"));
        // The label of a condition can be longer than the column.
        let label = if label.ends_with(' ') { label } else { label + " " };
        let room = self.style.width.saturating_sub(LABELS).max(1);
        let first = self.style.width.saturating_sub(label.chars().count()).max(1).min(room);
        for (index, line) in wrap(text, first).into_iter().enumerate() {
            let line = line.trim_start();
            let line = if tone == Tone::Quiet { line.to_owned() } else { self.style.paint(tone, line) };
            let lead = if index == 0 { label.clone() } else { " ".repeat(LABELS) };
            self.text += format!("{lead}{line}").trim_end();
            self.text.push('\n');
        }
    }
}

/// Returns the note that an object is being deleted, with the finalizers that hold it. `None` for any other object.
#[must_use]
pub fn deletion(meta: &ObjectMeta) -> Option<String> {
    meta.deletion_timestamp.as_ref()?;
    let holders: Vec<String> = meta.finalizers.iter().flatten().map(|name| one_line(name, 253)).collect();
    let held = if holders.is_empty() { String::new() } else { format!(", held by {}", holders.join(", ")) };
    Some(format!("being deleted{held}"))
}

fn requester(workflow: &Workflow) -> String {
    let spec = &workflow.spec;
    let person = spec.requested_for.as_ref().map(|person| format!(" for {}", one_line(person, 253)));
    one_line(&spec.requested_by, 512) + &person.unwrap_or_default()
}

fn phase_tone(phase: WorkflowPhase) -> Tone {
    match phase {
        WorkflowPhase::Succeeded => Tone::Good,
        WorkflowPhase::Failed | WorkflowPhase::Rejected | WorkflowPhase::Aborted => Tone::Bad,
        WorkflowPhase::Running => Tone::Busy,
        WorkflowPhase::Waiting | WorkflowPhase::Suspended => Tone::Attention,
        WorkflowPhase::Pending | WorkflowPhase::Cancelled => Tone::Strong,
    }
}

/// Returns the open gates, with their approvers if `approvals` has the Approval.
fn open_gates(status: &WorkflowStatus, approvals: &[Approval]) -> Vec<String> {
    let waiting = status.steps.iter().filter(|record| record.phase == StepPhase::Waiting);
    waiting
        .map(|record| {
            let approval = approvals.iter().find(|approval| approval.metadata.name == record.object);
            let approvers = approval.map(|approval| format!(" ({})", subjects(approval.approvers())));
            one_line(&record.path, 512) + &approvers.unwrap_or_default()
        })
        .collect()
}

fn running_steps(status: &WorkflowStatus) -> Vec<String> {
    let is_open = |record: &&StepRecord| matches!(record.phase, StepPhase::Started | StepPhase::Pending);
    status.steps.iter().filter(is_open).map(|record| one_line(&record.path, 512)).collect()
}
