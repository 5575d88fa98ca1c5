//! The evaluation of a condition in a scope.
//!
//! The evaluation walks over a bounded tree with a bounded amount of work. It has no state between two evaluations: the
//! same tree and scope always give the same answer or fault.

use std::cell::Cell;
use std::rc::Rc;

use super::Fault;
use super::functions;
use super::tree::{Comprehension, Macro, Node, NodeKind, Operator};
use super::value::{Evaluated, Text, Value, are_equal, compare_values};
use crate::{Scope, budget};

/// The maximum number of elements of a list that is created or iterated over.
pub const MAX_LIST: usize = 1000;
/// The maximum work: one unit for a node, and one for 32 bytes of text that are read or created.
pub const MAX_WORK: usize = 1_000_000;

/// The bytes of text for a unit of work.
const UNIT: usize = 32;

/// The remaining work of an evaluation.
#[derive(Debug)]
pub(super) struct Work {
    left: Cell<usize>,
}

impl Work {
    pub(super) fn spend(&self, units: usize, at: usize) -> Result<(), Fault> {
        budget::charge(units.saturating_mul(UNIT)).map_err(|_| Fault::stopped(at))?;
        match self.left.get().checked_sub(units) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.left.set(0);
                Err(Fault::limit(at, "the condition needs too much work on values this large; move it into a step"))
            }
        }
    }

    pub(super) fn spend_text(&self, bytes: usize, at: usize) -> Result<(), Fault> {
        self.spend(bytes / UNIT, at)
    }
}

/// Returns the value of `tree` in `scope`.
pub(super) fn evaluate<'a>(tree: &'a Node, scope: &'a Scope) -> Evaluated<'a> {
    Evaluator { scope, work: Work { left: Cell::new(MAX_WORK) } }.evaluate(tree, None)
}

struct Evaluator<'a> {
    scope: &'a Scope,
    work: Work,
}

/// The variable of the comprehension around a node. There is at most one.
type Local<'l, 'a> = Option<(&'l str, &'l Value<'a>)>;

impl<'a> Evaluator<'a> {
    fn evaluate(&self, node: &'a Node, local: Local<'_, 'a>) -> Evaluated<'a> {
        let at = node.at;
        self.work.spend(1, at)?;
        match &node.kind {
            NodeKind::Null => Ok(Value::Null),
            NodeKind::Bool(b) => Ok(Value::Bool(*b)),
            NodeKind::Int(int) => Ok(Value::Int(*int)),
            NodeKind::Double(double) => Ok(Value::Double(*double)),
            NodeKind::Text(text) => Ok(Value::Text(Text::Borrowed(text))),
            NodeKind::Name(name) => self.read_variable(name, local, at),
            NodeKind::Not(operand) => self.evaluate_bool(operand, local).map(|b| Value::Bool(!b)),
            NodeKind::And(terms) => self.evaluate_logical(terms, false, local),
            NodeKind::Or(terms) => self.evaluate_logical(terms, true, local),
            NodeKind::Conditional { test, yes, no } => {
                let chosen = if self.evaluate_bool(test, local)? { yes } else { no };
                self.evaluate(chosen, local)
            }
            NodeKind::Comprehension(comprehension) => self.evaluate_comprehension(comprehension, local, at),
            _ => self.evaluate_composite(node, local),
        }
    }

    /// Evaluates the other nodes of [`Self::evaluate`]. It is a separate function to keep the frame of the recursion
    /// small.
    fn evaluate_composite(&self, node: &'a Node, local: Local<'_, 'a>) -> Evaluated<'a> {
        let at = node.at;
        match &node.kind {
            NodeKind::Select { holder, field } => {
                let holder = self.evaluate(holder, local)?;
                self.read_member(&holder, &Value::Text(Text::Borrowed(field)), at)
            }
            NodeKind::Index { holder, key } => {
                let holder = self.evaluate(holder, local)?;
                let key = self.evaluate(key, local)?;
                self.read_member(&holder, &key, at)
            }
            NodeKind::Has { holder, field } => {
                let holder = self.evaluate(holder, local)?;
                holder.has(field, &self.work, at).map(Value::Bool)
            }
            NodeKind::Negate(operand) => match self.evaluate(operand, local)? {
                Value::Int(int) => int.checked_neg().map(Value::Int).ok_or_else(|| functions::overflow(at)),
                Value::Double(double) => Ok(Value::Double(-double)),
                other => Err(Fault::evaluation(at, format!("{} cannot be negated", other.kind()))),
            },
            NodeKind::Binary { operator, left, right } => {
                let left = self.evaluate(left, local)?;
                let right = self.evaluate(right, local)?;
                self.evaluate_binary(*operator, left, right, at)
            }
            NodeKind::Matches { text, pattern } => match self.evaluate(text, local)? {
                Value::Text(text) => {
                    // Matching costs more per byte than reading.
                    self.work.spend(1000, at)?;
                    self.work.spend_text(pattern.cost(text.as_str().len()), at)?;
                    Ok(Value::Bool(pattern.is_match(text.as_str())))
                }
                other => Err(Fault::evaluation(at, format!("`matches` needs a text, not {}", other.kind()))),
            },
            NodeKind::Call { function, arguments } => {
                let arguments =
                    arguments.iter().map(|argument| self.evaluate(argument, local)).collect::<Result<Vec<_>, _>>()?;
                functions::call(*function, &arguments, &self.work, at)
            }
            NodeKind::List(elements) => {
                self.collect_list(elements.iter().map(|element| self.evaluate(element, local)), at)
            }
            NodeKind::Map(entries) => self.evaluate_map(entries, local),
            // The caller evaluates the other nodes.
            _ => Err(Fault::evaluation(at, "this expression has no value")),
        }
    }

    fn read_variable(&self, name: &str, local: Local<'_, 'a>, at: usize) -> Evaluated<'a> {
        if let Some((_, value)) = local.filter(|(variable, _)| *variable == name) {
            return Ok(value.clone());
        }
        match self.scope.root(name) {
            Some(root) => Value::from_root(root, at),
            None => Err(Fault::evaluation(at, format!("unknown name `{name}`"))),
        }
    }

    fn read_member(&self, holder: &Value<'a>, key: &Value<'a>, at: usize) -> Evaluated<'a> {
        holder.get(key, &self.work, at)?.ok_or_else(|| {
            let missing = match key {
                Value::Text(name) => format!("member `{}`", crate::text::display(name.as_str(), 40)),
                Value::Int(position) => format!("element {position}"),
                _ => "such member".to_owned(),
            };
            Fault::evaluation(at, format!("{} has no {missing}; {}", holder.kind(), holder.describe_members()))
        })
    }

    fn evaluate_bool(&self, node: &'a Node, local: Local<'_, 'a>) -> Result<bool, Fault> {
        match self.evaluate(node, local)? {
            Value::Bool(b) => Ok(b),
            other => Err(Fault::evaluation(
                node.at,
                format!("this must be true or false, it is {}; compare it with something", other.kind()),
            )),
        }
    }

    /// Evaluates `&&` and `||`. As in CEL, a term equal to `decisive` decides, even if other terms are faults;
    /// otherwise the first fault is returned.
    fn evaluate_logical(&self, terms: &'a [Node], decisive: bool, local: Local<'_, 'a>) -> Evaluated<'a> {
        let mut fault = None;
        for term in terms {
            match self.evaluate_bool(term, local) {
                Ok(b) if b == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(new) => fault = fault.or(Some(new)),
            }
        }
        fault.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn evaluate_binary(&self, operator: Operator, left: Value<'a>, right: Value<'a>, at: usize) -> Evaluated<'a> {
        let compare = |accept: fn(std::cmp::Ordering) -> bool| {
            // "Not a number" is not less than, equal to or greater than any value.
            compare_values(&left, &right, &self.work, at).map(|o| Value::Bool(o.is_some_and(accept)))
        };
        match operator {
            Operator::Equal => are_equal(&left, &right, &self.work, at).map(Value::Bool),
            Operator::NotEqual => are_equal(&left, &right, &self.work, at).map(|b| Value::Bool(!b)),
            Operator::Less => compare(|o| o.is_lt()),
            Operator::LessOrEqual => compare(|o| o.is_le()),
            Operator::Greater => compare(|o| o.is_gt()),
            Operator::GreaterOrEqual => compare(|o| o.is_ge()),
            Operator::In => self.contains(&right, &left, at).map(Value::Bool),
            Operator::Add => {
                let length = left.length().unwrap_or(0).saturating_add(right.length().unwrap_or(0));
                self.work.spend(length, at)?;
                match (left.elements(at)?, right.elements(at)?) {
                    (Some(left), Some(right)) => self.collect_list(left.into_iter().chain(right).map(Ok), at),
                    _ => functions::calculate(operator, &left, &right, &self.work, at),
                }
            }
            _ => functions::calculate(operator, &left, &right, &self.work, at),
        }
    }

    /// Evaluates `needle in haystack`: an element of a list, a key of a map, the name of a record.
    fn contains(&self, haystack: &Value<'a>, needle: &Value<'a>, at: usize) -> Result<bool, Fault> {
        if let (Value::Records(records), Value::Text(name)) = (haystack, needle) {
            self.work.spend(records.len(), at)?;
            self.work.spend_text(name.as_str().len(), at)?;
            return Ok(records.by_name(name.as_str()).is_some());
        }
        self.work.spend(haystack.length().unwrap_or(0), at)?;
        let items = match (haystack.elements(at)?, haystack.keys()) {
            (Some(items), _) | (None, Some(items)) => items,
            (None, None) => {
                return Err(Fault::evaluation(
                    at,
                    format!("`in` looks into lists and maps, not into {}; texts have `.contains(…)`", haystack.kind()),
                ));
            }
        };
        for item in &items {
            if are_equal(item, needle, &self.work, at)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn collect_list(&self, items: impl Iterator<Item = Evaluated<'a>>, at: usize) -> Evaluated<'a> {
        let mut list = Vec::new();
        for item in items {
            if list.len() == MAX_LIST {
                return Err(too_long(at));
            }
            self.work.spend(1, at)?;
            list.push(item?);
        }
        Ok(Value::List(Rc::new(list)))
    }

    fn evaluate_map(&self, entries: &'a [(Node, Node)], local: Local<'_, 'a>) -> Evaluated<'a> {
        let mut map: Vec<(Value<'a>, Value<'a>)> = Vec::new();
        for (key_node, value) in entries {
            let key = self.evaluate(key_node, local)?;
            if !matches!(key, Value::Bool(_) | Value::Int(_) | Value::Text(_)) {
                return Err(Fault::evaluation(key_node.at, format!("{} cannot be a key", key.kind())));
            }
            for (existing, _) in &map {
                if are_equal(existing, &key, &self.work, key_node.at)? {
                    return Err(Fault::evaluation(key_node.at, "duplicate key in the map"));
                }
            }
            let value = self.evaluate(value, local)?;
            map.push((key, value));
        }
        Ok(Value::Map(Rc::new(map)))
    }

    fn evaluate_comprehension(&self, c: &'a Comprehension, local: Local<'_, 'a>, at: usize) -> Evaluated<'a> {
        let range = self.evaluate(&c.range, local)?;
        if range.length().is_some_and(|length| length > MAX_LIST) {
            return Err(too_long(at));
        }
        let items = match (range.elements(at)?, range.keys()) {
            (Some(items), _) | (None, Some(items)) => items,
            (None, None) => {
                return Err(Fault::evaluation(at, format!("{} cannot be iterated over", range.kind())));
            }
        };
        let test = |item: &Value<'a>| self.evaluate_bool(&c.body, Some((&c.variable, item)));
        match c.macro_ {
            Macro::Exists | Macro::All => {
                let decisive = c.macro_ == Macro::Exists;
                let mut fault = None;
                for item in &items {
                    match test(item) {
                        Ok(b) if b == decisive => return Ok(Value::Bool(decisive)),
                        Ok(_) => {}
                        Err(new) => fault = fault.or(Some(new)),
                    }
                }
                fault.map_or(Ok(Value::Bool(!decisive)), Err)
            }
            Macro::ExistsOne => {
                let mut count = 0;
                for item in &items {
                    count += usize::from(test(item)?);
                }
                Ok(Value::Bool(count == 1))
            }
            Macro::Filter => {
                let mut kept = Vec::new();
                for item in items {
                    if test(&item)? {
                        kept.push(item);
                    }
                }
                Ok(Value::List(Rc::new(kept)))
            }
            Macro::Map => {
                let mut results = Vec::new();
                for item in &items {
                    let local = Some((c.variable.as_str(), item));
                    let is_included = match &c.filter {
                        Some(filter) => self.evaluate_bool(filter, local)?,
                        None => true,
                    };
                    if is_included {
                        results.push(self.evaluate(&c.body, local)?);
                    }
                }
                Ok(Value::List(Rc::new(results)))
            }
        }
    }
}

fn too_long(at: usize) -> Fault {
    Fault::limit(at, format!("a list here is longer than {MAX_LIST} elements; count or filter in a step"))
}
