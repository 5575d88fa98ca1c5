//! The page of a run as a model.
//!
//! Pure.

use signoff_api::{Approval, Code, Moment, Workflow, WorkflowStatus, journal::StepRecord};
use signoff_review::{
    clock, coming,
    run::{self, Tone},
    text::one_line,
};

use super::{
    address::Address,
    decided::Decisions,
    outline::Outline,
    shapes::{class, tone},
    texts::{Fenced, Link},
    timeline::Timeline,
};
use crate::page::Instant;

/// The longest value of an input, in characters.
const LONGEST_INPUT: usize = 300;

/// A run as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The name of the Workflow.
    pub name: String,
    /// The namespace of the Workflow.
    pub namespace: String,
    /// The phase of the run and its problems.
    pub state: RunState,
    /// The inputs with their values.
    pub inputs: Vec<(String, String)>,
    /// The requester, and the person for whom they requested it.
    pub requester: String,
    /// The name of the run that this one repeats.
    pub repeats: Option<String>,
    /// The instants and lengths of time.
    pub times: RunTimes,
    /// The tokens that the models of the run used, in words.
    pub tokens: Option<String>,
    /// The number of earlier records that were not read.
    pub missing: i64,
    /// The steps as a nested list.
    pub outline: Outline,
    /// The begin and the end of each record as bars.
    pub timeline: Timeline,
    /// The gates that were asked.
    pub decisions: Decisions,
    /// The short result.
    pub result: Option<Fenced>,
    /// The long result, and the files.
    pub links: Vec<Link>,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The word for the phase of the run.
    pub phase: &'static str,
    /// The tone of the phase of the run.
    pub tone: &'static str,
    /// The message of the status, or a note that no operator has read the run yet.
    pub why: Option<String>,
    /// The conditions that are problems: a type, and a sentence.
    pub troubles: Vec<(String, String)>,
}

/// The instants of a run, and its lengths of time until now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTimes {
    /// The instant at which the run was accepted.
    pub started: Option<Instant>,
    /// The instant at which the run ended.
    pub finished: Option<Instant>,
    /// The time from the start to the end of the run, or until now.
    pub took: Option<String>,
    /// The time in which at least one step worked.
    pub worked: String,
    /// The time in which at least one gate waited, and the number of gates.
    pub waited: Option<String>,
}

impl Run {
    /// Returns the run for its page. The records of segments that were read are in `status.steps`.
    pub fn of(workflow: &Workflow, approvals: &[Approval], address: &Address, now: Moment) -> Self {
        let spec = &workflow.spec;
        let status = workflow.status.clone().unwrap_or_default();
        let records: &[StepRecord] = &status.steps;
        let nodes = run::tree(workflow, approvals, now);
        let timeline = Timeline::of(records, now);
        let person = spec.requested_for.as_ref().map(|person| format!(" for {}", one_line(person, 253)));
        let mut links: Vec<Link> =
            status.outputs_ref.iter().map(|value| Link::new(address, "the whole result", value)).collect();
        let file = |path: &str| format!("file {}", one_line(path, 512));
        links.extend(status.artifacts.iter().map(|one| Link::new(address, &file(&one.path), &one.content)));
        Self {
            name: address.name.clone(),
            namespace: address.namespace.clone(),
            state: RunState::of(workflow),
            inputs: coming::inputs(workflow, LONGEST_INPUT),
            requester: one_line(&spec.requested_by, 512) + &person.unwrap_or_default(),
            repeats: spec.rerun_of.as_ref().map(|rerun| one_line(&rerun.name, 253)),
            times: RunTimes::of(&status, &timeline, now),
            tokens: status.usage.map(|usage| usage.to_string()),
            missing: status.segments.iter().map(|segment| i64::from(segment.records)).sum(),
            outline: Outline::of(&nodes, records, approvals, address, now),
            timeline,
            decisions: Decisions::of(records, approvals, address, now),
            result: status.outputs.as_ref().map(|text| {
                let part = if status.outputs_ref.is_some() { "The beginning of the result" } else { "The result" };
                Fenced::new(&format!("{part}, in the run's own words (of models, tools and people; not checked)"), text)
            }),
            links,
        }
    }
}

impl RunState {
    fn of(workflow: &Workflow) -> Self {
        let is_read = workflow.status.is_some();
        let status = workflow.status.clone().unwrap_or_default();
        let why = if is_read {
            status.message.as_ref().map(|why| one_line(why, 1024))
        } else {
            Some("no operator has read it yet".to_owned())
        };
        let troubles = run::troubles(&status).map(|one| {
            let code = Code::bracketed(Code::of_reason(&one.reason));
            (one_line(&one.type_, 63), format!("{}{code}: {}", one_line(&one.reason, 63), one_line(&one.message, 1024)))
        });
        Self {
            phase: status.phase.name(),
            tone: class(if is_read { tone(status.phase) } else { Tone::Attention }),
            why: why.filter(|why| !why.is_empty()),
            troubles: troubles.collect(),
        }
    }
}

impl RunTimes {
    fn of(status: &WorkflowStatus, timeline: &Timeline, now: Moment) -> Self {
        Self {
            started: status.started_at.map(Instant::from),
            finished: status.finished_at.map(Instant::from),
            took: status.started_at.map(|from| clock::length(status.finished_at.unwrap_or(now).since(from))),
            worked: clock::length(timeline.worked),
            waited: waited_text(timeline),
        }
    }
}

/// Returns the time in which at least one gate waited. The sum of all waits follows if it differs.
fn waited_text(timeline: &Timeline) -> Option<String> {
    let (together, sum) = (clock::length(timeline.waited), clock::length(timeline.waits));
    let all = if together == sum { String::new() } else { format!(", {sum} if each wait is counted") };
    match timeline.gates {
        0 => None,
        1 => Some(format!("{together} at 1 gate")),
        gates => Some(format!("{together} at {gates} gates{all}")),
    }
}
