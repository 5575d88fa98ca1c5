//! What the page says of a run.
//!
//! It must not fetch anything, and has no clock: what it is given is all that it knows.

use signoff_api::{Approval, Moment, Workflow, journal::StepRecord};
use signoff_review::{
    clock, coming,
    run::{self, Tone},
    text::one_line,
};

use super::{
    address::Address,
    decided::{self, Gate},
    outline::{self, Item},
    shapes::{class, tone},
    texts::{Fenced, Link},
    timeline::Timeline,
};
use crate::page::Instant;

/// The longest value of an input.
const INPUT: usize = 300;

/// A run as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The word for its phase.
    pub phase: &'static str,
    /// The tone of its phase.
    pub tone: &'static str,
    /// The inputs with their values.
    pub inputs: Vec<(String, String)>,
    /// Why it is so.
    pub why: Option<String>,
    /// The conditions that people should know of: a type, and a sentence.
    pub troubles: Vec<(String, String)>,
    /// Who requested it.
    pub requester: String,
    /// The run that it repeats.
    pub repeats: Option<String>,
    /// When it was accepted.
    pub started: Option<Instant>,
    /// When it ended.
    pub finished: Option<Instant>,
    /// How long it took so far.
    pub took: Option<String>,
    /// How long it worked.
    pub worked: String,
    /// How long it waited, and for how many gates.
    pub waited: Option<String>,
    /// The tokens of its models.
    pub tokens: Option<String>,
    /// The earlier records that could not be read, or were too many to be read.
    pub missing: i64,
    /// The steps.
    pub outline: Vec<Item>,
    /// The rows that the outline leaves out.
    pub outline_hidden: usize,
    /// The time line.
    pub timeline: Timeline,
    /// The gates that were asked.
    pub gates: Vec<Gate>,
    /// The earlier gates that are left out.
    pub gates_hidden: usize,
    /// The short result.
    pub result: Option<Fenced>,
    /// The long result, and the files.
    pub links: Vec<Link>,
}

impl Run {
    /// Returns what the page says. Records of segments that were read are in `status.steps`.
    pub fn of(workflow: &Workflow, approvals: &[Approval], address: &Address, now: Moment) -> Self {
        let spec = &workflow.spec;
        let status = workflow.status.clone().unwrap_or_default();
        let is_read = workflow.status.is_some();
        let records: &[StepRecord] = &status.steps;
        let nodes = run::tree(workflow, approvals, now);
        let (outline, outline_hidden) = outline::outline(&nodes, records, approvals, address, now);
        let (gates, gates_hidden) = decided::gates(records, approvals, address, now);
        let timeline = Timeline::of(records, now);
        let troubles = run::troubles(&status).map(|one| {
            (one_line(&one.type_, 63), format!("{}: {}", one_line(&one.reason, 63), one_line(&one.message, 1024)))
        });
        let person = spec.requested_for.as_ref().map(|person| format!(" for {}", one_line(person, 253)));
        let why = if is_read {
            status.message.as_ref().map(|why| one_line(why, 1024))
        } else {
            Some("no operator has read it yet".to_owned())
        };
        let mut links: Vec<Link> =
            status.outputs_ref.iter().map(|value| Link::new(address, "the whole result", value)).collect();
        let file = |path: &str| format!("file {}", one_line(path, 512));
        links.extend(status.artifacts.iter().map(|one| Link::new(address, &file(&one.path), &one.content)));
        Self {
            name: address.name.clone(),
            namespace: address.namespace.clone(),
            phase: status.phase.name(),
            tone: class(if is_read { tone(status.phase) } else { Tone::Attention }),
            why: why.filter(|why| !why.is_empty()),
            troubles: troubles.collect(),
            inputs: coming::inputs(workflow, INPUT),
            requester: one_line(&spec.requested_by, 512) + &person.unwrap_or_default(),
            repeats: spec.rerun_of.as_ref().map(|rerun| one_line(&rerun.name, 253)),
            started: status.started_at.map(Instant::from),
            finished: status.finished_at.map(Instant::from),
            took: status.started_at.map(|from| clock::length(status.finished_at.unwrap_or(now).since(from))),
            worked: clock::length(timeline.worked),
            waited: waited(&timeline),
            tokens: status.usage.map(|usage| usage.to_string()),
            missing: status.segments.iter().map(|segment| i64::from(segment.records)).sum(),
            outline,
            outline_hidden,
            timeline,
            gates,
            gates_hidden,
            result: status.outputs.as_ref().map(|text| {
                let part = if status.outputs_ref.is_some() { "The beginning of the result" } else { "The result" };
                Fenced::new(&format!("{part}, in the run's own words (of models, tools and people; not checked)"), text)
            }),
            links,
        }
    }
}

/// Gates that wait at the same time are waited for once; the sum of their waits is said where it differs.
fn waited(timeline: &Timeline) -> Option<String> {
    let (together, sum) = (clock::length(timeline.waited), clock::length(timeline.waits));
    let all = if together == sum { String::new() } else { format!(", {sum} if each wait is counted") };
    match timeline.gates {
        0 => None,
        1 => Some(format!("{together} at 1 gate")),
        gates => Some(format!("{together} at {gates} gates{all}")),
    }
}
