//! The steps and gates of a run as a graph. Its edges come from the spec, its states from the journal.
//!
//! No order is guessed: a node that only the journal has is connected to its step.

use std::collections::{BTreeMap, BTreeSet};

use signoff_api::{
    RecordPath, Workflow,
    journal::{StepKind, StepPhase, StepRecord},
    policy::{AddedStep, GuardedKind, Position},
    record_path::SegmentKind,
};
use signoff_manifest::flow::Flow;
use signoff_review::{run::State, text::one_line};

use super::address::Address;

/// The most nodes and edges that are drawn.
pub const MOST: (usize, usize) = (60, 100);

/// The graph that is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The steps and gates. The first two are the beginning and the end.
    pub nodes: Vec<Node>,
    /// The edges from each node to the nodes that follow.
    pub edges: Vec<Edge>,
}

/// A step or a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The path of the records of the node, without visits; empty for the beginning and the end.
    pub id: String,
    /// The word for the kind of the node.
    pub kind: &'static str,
    /// The state of the node; `None` for the beginning and the end.
    pub state: Option<State>,
    /// The states of the records of the node, in their order, without the later turns of an agent.
    pub states: Vec<State>,
    /// The paths of the records in `states`. Attempts of one record have the same path.
    pub paths: BTreeSet<String>,
    /// The paths of the turns of an agent after the first.
    pub further_turns: BTreeSet<String>,
    /// The page of the latest Approval of the node.
    pub href: Option<String>,
}

/// An edge between two nodes, by their positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The position of its first node.
    pub from: usize,
    /// The position of its second node.
    pub to: usize,
    /// The condition, if the edge has one.
    pub when: Option<String>,
}

/// The positions of the beginning and the end.
pub const ENDS: (usize, usize) = (0, 1);

impl Graph {
    /// Returns the graph of a run.
    pub fn of(workflow: &Workflow, address: &Address) -> Self {
        let flow = Flow::of(workflow);
        let mut graph = Self::default();
        graph.add("", "begin");
        graph.add("", "end");
        for step in &flow.steps {
            let kind = if step.gate.is_some() { "gate" } else { step.kind };
            graph.add(&step.id, kind);
        }
        let positions: BTreeMap<&str, usize> =
            flow.steps.iter().enumerate().map(|(index, step)| (step.id.as_str(), index + 2)).collect();
        for edge in &flow.edges {
            let from = if edge.from.is_empty() { Some(ENDS.0) } else { positions.get(edge.from.as_str()).copied() };
            let to = if edge.to.is_empty() { Some(ENDS.1) } else { positions.get(edge.to.as_str()).copied() };
            if let (Some(from), Some(to)) = (from, to) {
                graph.connect(from, to, edge.when.clone());
            }
        }
        let status = workflow.status.clone().unwrap_or_default();
        graph.add_policy_gates(&status.added_steps);
        graph.add_records(&status.steps, status.phase.is_end(), address);
        graph
    }

    /// Whether the graph is small enough to be drawn.
    pub fn is_drawn(&self) -> bool {
        self.nodes.len() > 2 && self.nodes.len() - 2 <= MOST.0 && self.edges.len() <= MOST.1
    }

    fn add(&mut self, id: &str, kind: &'static str) -> usize {
        self.nodes.push(Node {
            id: id.to_owned(),
            kind,
            state: None,
            states: Vec::new(),
            paths: BTreeSet::new(),
            further_turns: BTreeSet::new(),
            href: None,
        });
        self.nodes.len() - 1
    }

    fn connect(&mut self, from: usize, to: usize, when: Option<String>) {
        let edge = Edge { from, to, when: when.map(|when| one_line(&when, 512)) };
        if !self.edges.contains(&edge) {
            self.edges.push(edge);
        }
    }

    /// Adds the gates of policies: in a row at the beginning or the end of the run, or before steps of a kind.
    fn add_policy_gates(&mut self, added_steps: &[AddedStep]) {
        let is_at = |position| move |added: &&AddedStep| added.step.at == Some(position);
        let mut last = ENDS.0;
        for added in added_steps.iter().filter(is_at(Position::Start)) {
            let gate = self.add(&added.step.name, "gate");
            self.edges.iter_mut().filter(|edge| edge.from == last).for_each(|edge| edge.from = gate);
            self.connect(last, gate, None);
            last = gate;
        }
        for added in added_steps.iter().filter(is_at(Position::End)) {
            let gate = self.add(&added.step.name, "gate");
            self.edges.iter_mut().filter(|edge| edge.to == ENDS.1).for_each(|edge| edge.to = gate);
            self.connect(gate, ENDS.1, None);
        }
        for added in added_steps {
            if let Some(before) = &added.step.before {
                self.add_gates_before(&added.step.name, &before.kinds);
            }
        }
    }

    /// Adds a gate of a policy before each step of some kinds.
    fn add_gates_before(&mut self, name: &str, kinds: &[GuardedKind]) {
        for step in 2..self.nodes.len() {
            if !kinds.iter().any(|kind| covers(*kind, self.nodes[step].kind)) {
                continue;
            }
            let id = &self.nodes[step].id;
            let path = RecordPath::new(id);
            let name = format!("{name}-{}", path.last().as_str().trim_start_matches('.'));
            let id = path.sibling(&name);
            let gate = self.add(&id, "gate");
            self.edges.iter_mut().filter(|edge| edge.to == step).for_each(|edge| edge.to = gate);
            self.connect(gate, step, None);
        }
    }

    /// Gives nodes the states of their records, and adds nodes for records without a step in the spec.
    fn add_records(&mut self, records: &[StepRecord], has_ended: bool, address: &Address) {
        let mut sorted: Vec<&StepRecord> = records.iter().filter(|record| record.kind != StepKind::Condition).collect();
        sorted.sort_by_key(|record| record.seq);
        let mut positions: BTreeMap<String, usize> =
            self.nodes.iter().enumerate().skip(2).map(|(position, node)| (node.id.clone(), position)).collect();
        for record in sorted {
            let position = self.position_of_record(record, &mut positions);
            self.nodes[position].add_record(record, address);
        }
        let initial = if has_ended { State::NotRun } else { State::Pending };
        self.nodes.iter_mut().skip(2).for_each(|node| node.state = node.state.or(Some(initial)));
    }

    /// Returns the position of the node of a record. A record without a node gets a new node, connected to the node of
    /// its parent.
    fn position_of_record(&mut self, record: &StepRecord, positions: &mut BTreeMap<String, usize>) -> usize {
        let id = node_id(&record.path);
        if let Some(position) = positions.get(&id) {
            return *position;
        }
        let kind = if record.kind == StepKind::Hitl { "gate" } else { record.kind.name() };
        let position = self.add(&id, kind);
        let parent = RecordPath::new(&id).ancestors().skip(1).find(|above| !above.last().is_planned_call());
        if let Some(parent) = parent.and_then(|parent| positions.get(parent.as_str())) {
            self.connect(*parent, position, None);
        }
        positions.insert(id, position);
        position
    }
}

impl Node {
    /// Adds the state of a record. An open record is more important than a later one that has ended.
    fn add_record(&mut self, record: &StepRecord, address: &Address) {
        let state =
            record.decision.as_ref().map_or(State::Record(record.phase), |outcome| State::Decided(outcome.phase));
        if RecordPath::new(&record.path).without_visits().path().is_turn() {
            self.further_turns.insert(record.path.clone());
        } else {
            self.paths.insert(record.path.clone());
            self.states.push(state);
        }
        if !self.state.is_some_and(is_open) || is_open(state) {
            self.state = Some(state);
            let gate = record.object.as_ref().filter(|_| record.kind == StepKind::Hitl);
            self.href = gate.map(|name| address.approval(name));
        }
    }

    /// Returns the words below the label: the state, or the number of records in each state: `1 waits, 2 decided`.
    pub fn words(&self) -> String {
        let word = self.state.map_or("", State::word);
        if !self.further_turns.is_empty() {
            return format!("{word}, {} turns", self.paths.len() + self.further_turns.len());
        }
        let Some((first, others)) = self.states.split_first() else { return word.to_owned() };
        if others.iter().all(|state| state == first) {
            let times = self.states.len();
            return if times > 1 { format!("{word}, {times} times") } else { word.to_owned() };
        }
        let counted = COUNTED.iter().filter_map(|(group, one, several)| {
            let count = self.states.iter().filter(|state| StateGroup::of(**state) == *group).count();
            let word = if count == 1 { one } else { several };
            (count > 0).then(|| format!("{count} {word}"))
        });
        counted.collect::<Vec<_>>().join(", ")
    }
}

/// A group of states that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateGroup {
    Waiting,
    Running,
    Failed,
    Decided,
    Done,
    Skipped,
    Unbegun,
}

/// The groups in the order of their words, with the word for one record and for several.
const COUNTED: [(StateGroup, &str, &str); 7] = [
    (StateGroup::Waiting, "waits", "wait"),
    (StateGroup::Running, "running", "running"),
    (StateGroup::Failed, "failed", "failed"),
    (StateGroup::Decided, "decided", "decided"),
    (StateGroup::Done, "done", "done"),
    (StateGroup::Skipped, "skipped", "skipped"),
    (StateGroup::Unbegun, "not begun", "not begun"),
];

impl StateGroup {
    fn of(state: State) -> Self {
        match state {
            State::Pending | State::NotRun => Self::Unbegun,
            State::Decided(phase) if !phase.is_end() => Self::Waiting,
            State::Decided(_) => Self::Decided,
            State::Record(StepPhase::Waiting) => Self::Waiting,
            State::Record(StepPhase::Pending | StepPhase::Started) => Self::Running,
            State::Record(StepPhase::Failed | StepPhase::Unknown) => Self::Failed,
            State::Record(StepPhase::Succeeded) => Self::Done,
            State::Record(StepPhase::Skipped) => Self::Skipped,
        }
    }
}

fn is_open(state: State) -> bool {
    matches!(state, State::Record(StepPhase::Pending | StepPhase::Started | StepPhase::Waiting))
}

/// Returns the id of the node of a record: its path without visits. All workers, all turns of an agent, and all calls
/// of a tool share a node each.
fn node_id(path: &str) -> String {
    let segments = RecordPath::new(path).segments().enumerate().filter(|(_, segment)| !segment.is_turn());
    let names = segments.map(|(at, segment)| match segment.kind() {
        SegmentKind::Call(_) => segment.unnumbered(),
        SegmentKind::Worker(_) if at == 0 => segment.unnumbered(),
        _ => segment.name(),
    });
    names.collect::<Vec<_>>().join("/")
}

/// Whether gates before steps of a guarded kind are before steps of the kind `step`.
fn covers(kind: GuardedKind, step: &str) -> bool {
    match kind {
        GuardedKind::Agent => step == "agent",
        GuardedKind::Pod => step == "pod",
        GuardedKind::Http => step == "http",
        GuardedKind::Mcp => step == "mcp",
        GuardedKind::Egress => step == "agent" || step == "http" || step == "mcp",
        // These gates are before a call of an agent, which has no node of its own.
        GuardedKind::Tool => false,
    }
}
