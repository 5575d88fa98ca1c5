//! The outline of a run: the tree of `kubectl approve status` as a nested list, for screen readers and small screens.
//!
//! **Invariant:** steps that are open or have failed are never left out.

use std::collections::BTreeMap;

use signoff_api::{
    Approval, Moment,
    journal::{FACT_GIVEN, StepKind, StepRecord},
};
use signoff_review::{
    clock,
    run::{Detail, Node},
    text::one_line,
};

use super::{
    address::Address,
    decided,
    shapes::class,
    texts::{self, Fenced, Link, StepSentence},
};
use crate::page::Instant;

/// The most rows. Beyond them, rows of steps that succeeded are left out, earliest first.
const MOST: usize = 500;
/// The longest arguments in a sentence, in characters.
const LONGEST: usize = 400;

/// An item of the list, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A step. If it has steps below it, the items up to [`Item::Up`] are these steps.
    Line(Box<OutlineLine>),
    /// The end of the steps below a step.
    Up,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineLine {
    /// The name of the step.
    pub label: String,
    /// The word for the kind of the step.
    pub kind: &'static str,
    /// The word for the state of the step.
    pub word: &'static str,
    /// The tone of the state of the step.
    pub tone: &'static str,
    /// The start of the latest attempt.
    pub started: Option<Instant>,
    /// The time that the latest attempt took, until now if it has not ended.
    pub took: Option<String>,
    /// The page of the Approval of a gate.
    pub href: Option<String>,
    /// The sentences about the step.
    pub details: Vec<StepSentence>,
    /// The short texts of the step.
    pub texts: Vec<Fenced>,
    /// The links to the long texts of the step.
    pub links: Vec<Link>,
    /// Whether there are steps below this one.
    pub has_below: bool,
}

/// The outline of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The steps in their order, with a mark at the end of each nested list.
    pub items: Vec<Item>,
    /// The number of rows that are left out.
    pub hidden: usize,
}

impl Outline {
    /// Returns the outline of a tree.
    pub fn of(nodes: &[Node], records: &[StepRecord], approvals: &[Approval], address: &Address, now: Moment) -> Self {
        let known = records.iter().map(|record| ((record.path.as_str(), record.attempt), record)).collect();
        let spare = count_nodes(nodes).saturating_sub(MOST);
        let changes = decided::changes(records, approvals);
        let outline = Self { items: Vec::new(), hidden: 0 };
        let mut rows = Rows { known, changes, address, now, spare, outline };
        rows.add(nodes);
        rows.outline
    }
}

/// Returns the number of nodes of trees.
fn count_nodes(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| 1 + count_nodes(&node.children)).sum()
}

/// The rows of an outline while it is built.
struct Rows<'r> {
    known: BTreeMap<(&'r str, i32), &'r StepRecord>,
    /// The sentence about the people who changed the value of a step, by its path.
    changes: BTreeMap<String, String>,
    address: &'r Address,
    now: Moment,
    /// The number of rows beyond the most that are shown.
    spare: usize,
    outline: Outline,
}

impl Rows<'_> {
    /// Adds the items of nodes and of the nodes below them. Leaves out uneventful rows while there are too many rows.
    fn add(&mut self, nodes: &[Node]) {
        for node in nodes {
            let is_quiet = node.state.is_uneventful() || node.is_earlier_attempt;
            if self.outline.hidden < self.spare && is_quiet && node.children.is_empty() {
                self.outline.hidden += 1;
                continue;
            }
            let line = self.line(node);
            self.outline.items.push(Item::Line(Box::new(line)));
            if !node.children.is_empty() {
                self.add(&node.children);
                self.outline.items.push(Item::Up);
            }
        }
    }

    fn line(&self, node: &Node) -> OutlineLine {
        let record = node.attempt.and_then(|attempt| self.known.get(&(node.path.as_str(), attempt)));
        let end = node.finished.unwrap_or(self.now);
        let gate = record.filter(|record| record.kind == StepKind::Hitl);
        let mut details = node.details.clone();
        let arguments = record.and_then(|record| record.facts.get(FACT_GIVEN));
        let arguments = arguments.map(|arguments| format!("arguments: {}", one_line(arguments, LONGEST)));
        let changed = self.changes.get(&node.path).filter(|_| !node.is_earlier_attempt).cloned();
        details.extend(arguments.into_iter().chain(changed).map(Detail::from));
        OutlineLine {
            label: node.label.clone(),
            kind: node.kind,
            word: node.state.word(),
            tone: class(node.state.tone()),
            started: node.started.map(Instant::from),
            took: node.started.map(|from| clock::length(end.since(from))),
            href: gate.and_then(|record| record.object.as_ref()).map(|name| self.address.approval(name)),
            details: details.into_iter().map(StepSentence::from).collect(),
            texts: record.map(|record| texts::short_texts(record)).unwrap_or_default(),
            links: record.map(|record| self.links(record)).unwrap_or_default(),
            has_below: !node.children.is_empty(),
        }
    }

    fn links(&self, record: &StepRecord) -> Vec<Link> {
        texts::values(record).into_iter().map(|(what, value)| Link::new(self.address, what, value)).collect()
    }
}
