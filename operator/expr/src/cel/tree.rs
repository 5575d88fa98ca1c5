//! The syntax tree of a condition, and the names that it uses.
//!
//! The parser limits the size of a tree when it is built.

use std::collections::BTreeSet;

use super::signature::Function;
use crate::pattern::Pattern;
use crate::reference::{Member, Reference};

/// A node and the column at which it starts.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: usize,
    /// The length of the longest path below this node, in nodes.
    pub(super) depth: usize,
    pub(super) kind: NodeKind,
}

#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Name(String),
    /// `holder.field`
    Select {
        holder: Box<Node>,
        field: String,
    },
    /// `has(holder.field)`
    Has {
        holder: Box<Node>,
        field: String,
    },
    /// `holder[key]`
    Index {
        holder: Box<Node>,
        key: Box<Node>,
    },
    Not(Box<Node>),
    Negate(Box<Node>),
    /// All terms of a chain of `&&` in one node, so that long chains are not deep.
    And(Vec<Node>),
    Or(Vec<Node>),
    Conditional {
        test: Box<Node>,
        yes: Box<Node>,
        no: Box<Node>,
    },
    Binary {
        operator: Operator,
        left: Box<Node>,
        right: Box<Node>,
    },
    Call {
        function: Function,
        arguments: Vec<Node>,
    },
    /// `text.matches('…')`. The pattern is compiled once, by the parser.
    Matches {
        text: Box<Node>,
        pattern: Pattern,
    },
    Comprehension(Box<Comprehension>),
}

/// `range.map(variable, body)` and the other macros.
#[derive(Debug, Clone)]
pub(super) struct Comprehension {
    pub(super) macro_: Macro,
    pub(super) range: Node,
    pub(super) variable: String,
    /// The second argument of a `map` with three.
    pub(super) filter: Option<Node>,
    pub(super) body: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::In => "in",
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Remainder => "%",
        }
    }
}

impl Node {
    /// Returns the nodes directly below this one, in the order of the text.
    pub(super) fn children(&self) -> Vec<&Node> {
        match &self.kind {
            NodeKind::Null
            | NodeKind::Bool(_)
            | NodeKind::Int(_)
            | NodeKind::Double(_)
            | NodeKind::Text(_)
            | NodeKind::Name(_) => Vec::new(),
            NodeKind::List(nodes) | NodeKind::And(nodes) | NodeKind::Or(nodes) => nodes.iter().collect(),
            NodeKind::Call { arguments, .. } => arguments.iter().collect(),
            NodeKind::Map(entries) => entries.iter().flat_map(|(k, v)| [k, v]).collect(),
            NodeKind::Select { holder, .. } | NodeKind::Has { holder, .. } => vec![holder],
            NodeKind::Not(operand) | NodeKind::Negate(operand) => vec![operand],
            NodeKind::Matches { text, .. } => vec![text],
            NodeKind::Index { holder, key } => vec![holder, key],
            NodeKind::Binary { left, right, .. } => vec![left, right],
            NodeKind::Conditional { test, yes, no } => vec![test, yes, no],
            NodeKind::Comprehension(c) => {
                [Some(&c.range), c.filter.as_ref(), Some(&c.body)].into_iter().flatten().collect()
            }
        }
    }

    /// Adds the names that this node uses. `local` is the variable of the comprehension around it.
    pub(super) fn collect(&self, local: Option<&str>, into: &mut BTreeSet<Reference>) {
        if let Some(reference) = self.reference() {
            if local != Some(reference.root.as_str()) {
                into.insert(reference);
            }
            return;
        }
        if let NodeKind::Comprehension(c) = &self.kind {
            c.range.collect(local, into);
            let local = Some(c.variable.as_str());
            c.filter.iter().for_each(|filter| filter.collect(local, into));
            c.body.collect(local, into);
            return;
        }
        for child in self.children() {
            child.collect(local, into);
        }
    }

    /// Returns this node as a reference, if it is a path of constants.
    pub(super) fn reference(&self) -> Option<Reference> {
        let (root, mut members) = self.path()?;
        members.reverse();
        Some(Reference { root: root.to_owned(), members, optional: matches!(self.kind, NodeKind::Has { .. }) })
    }

    /// Returns the variable and the members, last one first, if this node is a path of constants.
    fn path(&self) -> Option<(&str, Vec<Member>)> {
        let mut members = Vec::new();
        let mut node = self;
        loop {
            node = match &node.kind {
                NodeKind::Name(name) => return Some((name, members)),
                NodeKind::Select { holder, field } | NodeKind::Has { holder, field } => {
                    members.push(Member::Name(field.clone()));
                    holder
                }
                NodeKind::Index { holder, key } => {
                    members.push(match &key.kind {
                        NodeKind::Text(name) => Member::Name(name.clone()),
                        NodeKind::Int(position) => Member::Position(*position),
                        _ => return None,
                    });
                    holder
                }
                _ => return None,
            };
        }
    }
}
