//! The tree of a run: branches, steps, visits and attempts from the journal, and the steps of the spec that have not
//! begun.
//!
//! records -> nodes -> parents *(pure)*.

use std::collections::BTreeSet;

use signoff_api::{
    Approval, Moment, RecordPath, Seq, Workflow, WorkflowStatus,
    approval::ApprovalPhase,
    journal::{StepKind, StepPhase, StepRecord, Usage},
};

use super::{detail::Detail, gate, planned::plan_steps, state::State, turn};
use crate::text::one_line;

/// The kind of a row that has steps below it and no record of its own.
const BRANCH: &str = "branch";
/// The kind of a row of a call: the step of the tool and its gates are below it.
const CALL: &str = "call";

/// One row of the tree and the rows below it.
#[derive(Clone, Debug)]
pub struct Node {
    /// The path of the latest attempt in the journal. For a step that has not begun, the path of its first attempt.
    pub path: String,
    /// The number of the attempt, or `None` without a record.
    pub attempt: Option<i32>,
    /// The last part of the path, as in the journal.
    pub label: String,
    /// The word for the kind of the row, such as `gate`.
    pub kind: &'static str,
    /// The state of the step, gate, branch or call.
    pub state: State,
    /// The start of the latest attempt.
    pub started: Option<Moment>,
    /// The end of the latest attempt.
    pub finished: Option<Moment>,
    /// The tokens of the latest attempt.
    pub usage: Option<Usage>,
    /// Sentences on a gate, a cut answer or a failure, each one line.
    pub details: Vec<Detail>,
    /// Whether the row is an attempt that was followed by another attempt.
    pub is_earlier_attempt: bool,
    /// The rows below this row, in the order in which they began.
    pub children: Vec<Node>,
}

/// A node with its parent and its order among its siblings.
struct PlacedNode {
    /// The path without the number of the visit.
    base: String,
    seq: Seq,
    parent: Option<usize>,
    node: Node,
}

/// Returns the steps, gates, branches and calls of a run as a tree.
pub fn tree(workflow: &Workflow, approvals: &[Approval], now: Moment) -> Vec<Node> {
    let empty = WorkflowStatus::default();
    let status = workflow.status.as_ref().unwrap_or(&empty);
    let unbegun_state = if status.phase.is_end() { State::NotRun } else { State::Pending };
    let mut rows: Vec<PlacedNode> = Vec::new();
    for records in activities(status) {
        let Some((latest, earlier)) = records.split_last() else { continue };
        let index = add_row(&mut rows, &latest.path, records[0].seq, attempt_node(latest, approvals, now));
        if !earlier.is_empty() {
            rows[index].node.label += &format!(" (attempt {})", latest.attempt);
        }
        for record in earlier {
            let attempt = Node {
                label: format!("attempt {}", record.attempt),
                is_earlier_attempt: true,
                ..attempt_node(record, approvals, now)
            };
            rows.push(PlacedNode { base: String::new(), seq: record.seq, parent: Some(index), node: attempt });
        }
        add_calls(&mut rows, &status.steps, latest, unbegun_state);
    }
    let begun: BTreeSet<String> = rows.iter().map(|row| row.base.clone()).collect();
    for step in plan_steps(workflow, &begun).into_iter().filter(|step| !begun.contains(&step.path)) {
        let details = step.details.into_iter().map(Detail::from).collect();
        let node = Node { kind: step.kind, details, ..unbegun_node(&step.path, unbegun_state) };
        add_row(&mut rows, &step.path, Seq::END, node);
    }
    let mut roots = child_nodes(&rows, None);
    roots.iter_mut().for_each(|node| summarize(node, status));
    roots
}

/// Adds the rows of the calls that a turn has requested. Neighboring refused calls of one tool share a row.
fn add_calls(rows: &mut Vec<PlacedNode>, records: &[StepRecord], record: &StepRecord, unbegun_state: State) {
    let calls = turn::calls(records, record);

    for group in calls.chunk_by(|call, next| call.is_refused && next.is_refused && call.tool == next.tool) {
        let Some((call, more)) = group.split_first() else { continue };
        let seq = record.done.unwrap_or(record.seq);
        let mut details = vec![Detail::from(format!("calls {}", one_line(&call.tool, 64)))];
        let refused = call.is_refused.then(|| "refused before it began; the agent was told why".to_owned());
        let others = (!more.is_empty()).then(|| format!("and {} more calls after it, refused alike", more.len()));
        details.extend(refused.into_iter().chain(others).map(Detail::from));
        let state = if call.is_refused { State::NotRun } else { unbegun_state };
        add_row(rows, &call.path, seq, Node { kind: CALL, details, ..unbegun_node(&call.path, state) });
    }
}

/// Returns the records of each activity in the order of their attempts. The activities are in the order in which they
/// began, without conditions that were evaluated without an error.
fn activities(status: &WorkflowStatus) -> Vec<Vec<&StepRecord>> {
    let is_shown = |record: &&StepRecord| {
        record.kind != StepKind::Condition || !matches!(record.phase, StepPhase::Succeeded | StepPhase::Skipped)
    };
    let mut records: Vec<&StepRecord> = status.steps.iter().filter(is_shown).collect();
    records.sort_by(|a, b| (&a.path, a.attempt).cmp(&(&b.path, b.attempt)));
    let mut activities: Vec<Vec<&StepRecord>> =
        records.chunk_by(|a, b| a.path == b.path).map(<[&StepRecord]>::to_vec).collect();
    activities.sort_by_key(|records| records.first().map(|first| first.seq));
    activities
}

/// Adds a row, and a row for each branch and call above it that has none. Returns the index of the row.
fn add_row(rows: &mut Vec<PlacedNode>, path: &str, seq: Seq, node: Node) -> usize {
    let base = base(path);
    // The gate before a step begins first and adds a branch for it. The step takes over the row of this branch.
    let is_branch_row = |row: &&mut PlacedNode| row.base == base && row.node.kind == BRANCH && node.kind != BRANCH;
    if let Some(row) = rows.iter_mut().find(is_branch_row) {
        row.node = node;
        return rows.iter().position(|row| row.base == base).unwrap_or_default();
    }
    let parent = RecordPath::new(&base).parent();
    let parent = parent.map(|parent| match rows.iter().rposition(|row| row.base == parent.as_str()) {
        Some(index) => index,
        None => row_of_first_turn(rows, parent).unwrap_or_else(|| {
            let kind = if parent.is_call() { CALL } else { BRANCH };
            add_row(rows, parent.as_str(), seq, Node { kind, ..unbegun_node(parent.as_str(), State::Pending) })
        }),
    });
    rows.push(PlacedNode { base, seq, parent, node });
    rows.len() - 1
}

/// Returns the row of the agent whose first turn a path names. The record of the first turn is the record of the agent.
fn row_of_first_turn(rows: &[PlacedNode], path: RecordPath<'_>) -> Option<usize> {
    let (agent, _) = path.agent_of_turn().filter(|(_, number)| *number == 1)?;
    rows.iter().rposition(|row| row.base == agent.as_str())
}

fn is_turn(node: &Node) -> bool {
    RecordPath::new(&node.path).is_turn()
}

/// Returns a path without the numbers of visits.
pub(super) fn base(path: &str) -> String {
    RecordPath::new(path).without_visits().into_string()
}

/// Returns the rows below `parent` as nodes with their own rows below them, in the order in which they began.
fn child_nodes(rows: &[PlacedNode], parent: Option<usize>) -> Vec<Node> {
    let mut below: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].parent == parent).collect();
    below.sort_by_key(|row| rows[*row].seq);
    below.iter().map(|row| Node { children: child_nodes(rows, Some(*row)), ..rows[*row].node.clone() }).collect()
}

fn unbegun_node(path: &str, state: State) -> Node {
    Node {
        path: path.to_owned(),
        attempt: None,
        label: last_part(path),
        kind: "",
        state,
        started: None,
        finished: None,
        usage: None,
        details: Vec::new(),
        is_earlier_attempt: false,
        children: Vec::new(),
    }
}

fn last_part(path: &str) -> String {
    one_line(RecordPath::new(path).last().as_str(), 128)
}

fn attempt_node(record: &StepRecord, approvals: &[Approval], now: Moment) -> Node {
    let state = match &record.decision {
        Some(outcome) => State::Decided(outcome.phase),
        None => State::Record(record.phase),
    };
    Node {
        attempt: Some(record.attempt),
        kind: if record.kind == StepKind::Hitl { "gate" } else { record.kind.name() },
        started: Some(record.at),
        finished: record.finished_at,
        usage: record.usage,
        details: attempt_details(record, approvals, now),
        ..unbegun_node(&record.path, state)
    }
}

fn attempt_details(record: &StepRecord, approvals: &[Approval], now: Moment) -> Vec<Detail> {
    let mut details: Vec<Detail> = Vec::new();
    let approval = approvals.iter().find(|approval| record.object.is_some() && approval.metadata.name == record.object);
    if record.phase == StepPhase::Waiting {
        details.extend(gate::open_details(record, approval, now));
    }
    if record.phase == StepPhase::Started && record.kind == StepKind::Pod {
        details.extend(record.object.as_ref().map(|pod| Detail::from(format!("Pod {}", one_line(pod, 253)))));
    }
    let decided = record.decision.iter().flat_map(|outcome| gate::decided_details(outcome, approval));
    let originals =
        record.decision.iter().zip(approval).filter_map(|(outcome, approval)| gate::original_detail(outcome, approval));
    let cut = record.is_cut().then(|| StepRecord::CUT.to_owned());
    details.extend(decided.chain(originals).chain(cut).map(Detail::from));
    if let Some(error) = &record.error {
        details.push(format!("{}: {}", one_line(&error.class, 63), last_line(&error.message)).into());
        let log = record.log.as_ref().map(|log| last_line(&log.tail)).filter(|line| !line.is_empty());
        details.extend(log.map(|line| Detail::from(format!("last line of its log: {line}"))));
    }
    details
}

/// Returns the last non-empty line of a text, cut to 1024 characters. Returns an empty text if all lines are empty.
pub fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    one_line(line, 1024)
}

/// Sets the state and the times of all rows below and including `node`: of a branch or a call by its steps, of an agent
/// by its turns and calls.
fn summarize(node: &mut Node, status: &WorkflowStatus) {
    node.children.iter_mut().for_each(|child| summarize(child, status));
    if node.kind != BRANCH && node.kind != CALL {
        return summarize_agent(node, status);
    }
    let last_begun = node.children.iter().rev().find(|child| !child.state.is_unbegun());
    let first_unbegun = node.children.iter().find(|child| child.state.is_unbegun());
    node.state = match (open_state(node), last_begun, first_unbegun) {
        (Some(open), ..) => open,
        (None, Some(last), Some(next)) if last.state.is_uneventful() && next.state == State::Pending => {
            State::Record(StepPhase::Started)
        }
        // The state of a call without a step is its verdict.
        (None, Some(last), _) if node.kind == CALL && last.state != State::Decided(ApprovalPhase::Approved) => {
            last.state
        }
        (None, Some(last), _) if last.state.is_uneventful() => State::Record(StepPhase::Succeeded),
        (None, Some(last), _) => last.state,
        (None, None, Some(next)) => next.state,
        (None, None, None) => node.state,
    };
    node.started = node.children.iter().filter_map(|child| child.started).min();
    let ends = matches!(node.state, State::Record(phase) if phase.is_end()) || matches!(node.state, State::Decided(_));
    node.finished = node.children.iter().filter_map(|child| child.finished).max().filter(|_| ends);
}

/// Sets the state and the end of an agent that called tools. The state is that of an open record below it, otherwise
/// that of its latest turn. The record of an agent is the record of its first turn.
fn summarize_agent(node: &mut Node, status: &WorkflowStatus) {
    let agent = StepKind::Agent.name();
    if node.kind != agent || !node.children.iter().any(|child| child.kind == CALL || is_turn(child)) {
        return;
    }
    let latest = node.children.iter().rev().find(|child| is_turn(child));
    node.state = match (open_state(node), latest) {
        (Some(open), _) => open,
        (None, Some(latest)) => latest.state,
        (None, None) if is_answered(node, status) => node.state,
        // The calls have ended, and the turn that reads their results has not begun.
        (None, None) if !status.phase.is_end() && node.state.is_uneventful() => State::Record(StepPhase::Started),
        (None, None) => unanswered_state(node),
    };
    let ends = matches!(node.state, State::Record(phase) if phase.is_end()) || matches!(node.state, State::Decided(_));
    let last = node.children.iter().filter_map(|child| child.finished).chain(node.finished).max();
    node.finished = last.filter(|_| ends);
}

fn is_answered(node: &Node, status: &WorkflowStatus) -> bool {
    let own = status.steps.iter().find(|record| record.path == node.path && Some(record.attempt) == node.attempt);
    own.is_some_and(|own| turn::is_answered(&status.steps, turn::of_path(&base(&node.path)).path(), own.seq))
}

/// Returns the state of a turn that was not answered before the run ended: the state of the call that ended the run, or
/// cancelled if the run was ended elsewhere.
fn unanswered_state(node: &Node) -> State {
    let is_eventful = |state: &State| !state.is_unbegun() && *state != State::Record(StepPhase::Succeeded);
    let called = node.children.iter().map(|call| call.state).find(is_eventful);
    called.unwrap_or(State::Decided(ApprovalPhase::Cancelled))
}

/// Returns the state of an open record below a row, such as a gate about a failed step.
fn open_state(node: &Node) -> Option<State> {
    let open = [StepPhase::Waiting, StepPhase::Started, StepPhase::Pending].map(State::Record);
    open.into_iter().find(|open| is_below(node, *open))
}

fn is_below(node: &Node, state: State) -> bool {
    node.children.iter().any(|child| child.state == state || is_below(child, state))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_cut_answer_is_marked_in_its_row() {
        let record = |path: &str, kind: &str, facts: &Value| json!({"path": path, "attempt": 1, "kind": kind, "phase": "Succeeded", "seq": 1, "at": "2026-11-22T10:00:00Z", "facts": facts});
        let records = json!([
            record("cut", "agent", &json!({"truncated": "true"})),
            record("whole", "agent", &json!({})),
            record("other", "http", &json!({"truncated": "true"})),
        ]);
        let workflow: Workflow = serde_json::from_value(json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {"requestedBy": "dana", "steps": []}, "status": {"steps": records},
        }))
        .unwrap();
        let now = Moment::from(jiff::Timestamp::UNIX_EPOCH);
        let rows = tree(&workflow, &[], now);
        let details = |path: &str| rows.iter().find(|row| row.path == path).map(|row| row.details.clone());
        assert_eq!(details("cut"), Some(vec![Detail::from("cut at maxTokens".to_owned())]));
        assert_eq!((details("whole"), details("other")), (Some(vec![]), Some(vec![])));
    }
}
