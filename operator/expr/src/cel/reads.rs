//! The check of the parts of answers that a condition reads against the schemas of the answers, and of inputs,
//! arguments and status codes against their types.
//!
//! A part whose presence the condition tests, by `has(…)` or `in`, can be missing without a problem.

use std::collections::BTreeSet;

use super::tree::{Node, NodeKind, Operator};
use crate::answer_shape::{AnswerShape, Kind};
use crate::reference::{Known, Member, Reference, describe_remedy};

/// A problem with a part of an answer that a condition reads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadProblem {
    /// Whether the part can never be read, or the condition never holds. Otherwise the part may be missing.
    pub is_certain: bool,
    /// The problem with its remedy.
    pub problem: String,
}

/// Returns the problems of a condition, in the order of their texts.
pub(super) fn find_problems(tree: &Node, known: &Known, consequence: &str) -> BTreeSet<ReadProblem> {
    let mut reads = Reads { known, consequence, guarded: Vec::new(), found: BTreeSet::new() };
    reads.collect_guards(tree);
    reads.check_node(tree, None);
    reads.found
}

struct Reads<'a> {
    known: &'a Known,
    consequence: &'a str,
    /// The paths whose presence the condition tests.
    guarded: Vec<Reference>,
    found: BTreeSet<ReadProblem>,
}

impl Reads<'_> {
    /// Collects the tests of the condition: `has(a.b)`, and `'b' in a`.
    fn collect_guards(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::Has { .. } => self.guarded.extend(node.reference()),
            NodeKind::Binary { operator: Operator::In, left, right } => {
                if let (NodeKind::Text(name), Some(mut path)) = (&left.kind, right.reference()) {
                    path.members.push(Member::Name(name.clone()));
                    self.guarded.push(path);
                }
            }
            _ => {}
        }
        node.children().into_iter().for_each(|child| self.collect_guards(child));
    }

    /// Checks a node and the nodes below it. `local` is the variable of the comprehension around it.
    fn check_node(&mut self, node: &Node, local: Option<&str>) {
        if let Some(read) = node.reference() {
            if local != Some(read.root.as_str()) {
                self.resolve_shape(&read);
            }
            return;
        }
        if let NodeKind::Binary { operator, left, right } = &node.kind {
            self.check_comparison(*operator, left, right, local);
        }
        if let NodeKind::Comprehension(c) = &node.kind {
            self.check_node(&c.range, local);
            let local = Some(c.variable.as_str());
            c.filter.iter().chain([&c.body]).for_each(|part| self.check_node(part, local));
            return;
        }
        node.children().into_iter().for_each(|child| self.check_node(child, local));
    }

    /// Reports a comparison of a value with a literal of a kind that the value never has.
    fn check_comparison(&mut self, operator: Operator, left: &Node, right: &Node, local: Option<&str>) {
        let (read, literal) = match (left.reference(), right.reference()) {
            (Some(read), None) => (read, right),
            // `'x' in list` tests the elements of the list.
            (None, Some(read)) if operator != Operator::In => (read, left),
            _ => return,
        };
        let literals = match (operator, &literal.kind) {
            (Operator::In, NodeKind::List(items)) => items.iter().collect(),
            (Operator::In, _) => return,
            _ => vec![literal],
        };
        let is_compared = matches!(
            operator,
            Operator::Equal
                | Operator::NotEqual
                | Operator::Less
                | Operator::LessOrEqual
                | Operator::Greater
                | Operator::GreaterOrEqual
                | Operator::In
        );
        let kinds: Option<Vec<Kind>> = literals.iter().map(|literal| literal.literal_kind()).collect();
        let (Some(literal_kinds), true, true) = (kinds, is_compared, local != Some(read.root.as_str())) else { return };
        let Some(AnswerShape::Value { kinds, .. }) = self.resolve_shape(&read) else { return };
        // A skipped or replaced value can be null, whatever its schema allows.
        if let (Some(first), false) =
            (literal_kinds.first(), literal_kinds.iter().any(|kind| *kind == Kind::Null || kinds.contains(kind)))
        {
            let problem = format!(
                "`{read}` is {0}{2}, and is compared with {1}: compare it with {0}, or correct the type",
                join_kinds(&kinds),
                first.name(),
                self.source_of_shape(&read)
            );
            self.found.insert(ReadProblem { is_certain: true, problem });
        }
    }

    /// Returns the source of the shape of a path for messages: the schema of an answer, or an empty text for a built-in
    /// type.
    fn source_of_shape(&self, read: &Reference) -> &'static str {
        let position = self.known.answer(read).and_then(|(_, depth)| depth.checked_sub(1));
        match position.and_then(|position| read.members.get(position)) {
            Some(Member::Name(name)) if name == "response" => " by its outputSchema",
            _ => "",
        }
    }

    /// Returns the shape at a path, as far as it is known, and reports problems along the path.
    fn resolve_shape(&mut self, read: &Reference) -> Option<AnswerShape> {
        let (answer, depth) = self.known.answer(read)?;
        let mut shape = answer;
        let path = |to: usize| {
            let members = read.members.iter().take(to).cloned().collect();
            Reference { root: read.root.clone(), members, optional: false }
        };
        for (index, member) in read.members.iter().enumerate().skip(depth) {
            let (holder, part) = (path(index), path(index + 1));
            let is_guarded = self.guarded.iter().any(|guard| guard.root == part.root && guard.members == part.members);
            let (is_certain, problem) = match (shape, member) {
                (AnswerShape::Any, _) => return None,
                (AnswerShape::Unchecked, _) => {
                    let step = path(depth.saturating_sub(1));
                    let name = match member {
                        Member::Name(name) => format!("a field such as `{}`", crate::text::display(name, 63)),
                        Member::Position(_) => "positions".to_owned(),
                    };
                    (
                        false,
                        format!(
                            "`{step}` has no outputSchema, so its response is a text without {name}, and {}: give the step an outputSchema that requires what is read here",
                            self.consequence
                        ),
                    )
                }
                (AnswerShape::Value { kinds, .. }, Member::Name(_)) if !kinds.contains(&Kind::Object) => (
                    true,
                    format!(
                        "`{holder}` is {}{}, and has no fields: read `{holder}` itself, or correct the schema",
                        join_kinds(kinds),
                        self.source_of_shape(read)
                    ),
                ),
                (AnswerShape::Value { kinds, .. }, Member::Position(_)) if !kinds.contains(&Kind::List) => (
                    true,
                    format!(
                        "`{holder}` is {}{}, and has no positions: read `{holder}` itself, or correct the schema",
                        join_kinds(kinds),
                        self.source_of_shape(read)
                    ),
                ),
                (AnswerShape::Value { items, .. }, Member::Position(_)) => {
                    shape = items;
                    continue;
                }
                (AnswerShape::Value { fields, is_closed, .. }, Member::Name(name)) => match fields.get(name) {
                    Some(next) => {
                        shape = next;
                        continue;
                    }
                    None if is_guarded => return None,
                    None if *is_closed => {
                        let instead = describe_remedy(name, fields.keys(), &holder.to_string());
                        (
                            true,
                            format!(
                                "`{part}` can never be there, because the outputSchema has no such property and allows no other: {instead}"
                            ),
                        )
                    }
                    None => (
                        false,
                        format!(
                            "`{part}` is not among the properties of the outputSchema, so it may be missing, and {}: add it to properties and required, or ask with `has({part}) && …`",
                            self.consequence
                        ),
                    ),
                },
            };
            self.found.insert(ReadProblem { is_certain, problem });
            return None;
        }
        Some(shape.clone())
    }
}

/// Renders the kinds for a message: `a number or null`.
fn join_kinds(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ")
}

impl Node {
    /// Returns the kind of a literal, or `None` for a computed value.
    fn literal_kind(&self) -> Option<Kind> {
        Some(match &self.kind {
            NodeKind::Null => Kind::Null,
            NodeKind::Bool(_) => Kind::Bool,
            NodeKind::Int(_) | NodeKind::Double(_) => Kind::Number,
            NodeKind::Negate(operand) => operand.literal_kind().filter(|kind| *kind == Kind::Number)?,
            NodeKind::Text(_) => Kind::Text,
            NodeKind::List(_) => Kind::List,
            NodeKind::Map(_) => Kind::Object,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::{Condition, Members};

    fn problems_of(schema: Option<Value>, source: &str) -> Vec<(bool, String)> {
        let shape = match schema {
            Some(schema) => AnswerShape::of_schema(schema.as_object().unwrap()),
            None => AnswerShape::Unchecked,
        };
        let record =
            Members::shapes([("response".to_owned(), Members::answer(shape)), ("status".to_owned(), Members::Open)]);
        let known = Known::new().with("steps", Members::records([("look".to_owned(), record)]));
        let condition = Condition::parse(source, "spec.when").unwrap();
        assert!(crate::check(&condition.references(), &known, "spec.when").is_empty(), "{source}");
        condition.read_problems(&known, "the step then fails").into_iter().map(|p| (p.is_certain, p.problem)).collect()
    }

    fn closed_schema() -> Option<Value> {
        Some(json!({"type": "object", "additionalProperties": false, "required": ["status"], "properties": {
            "status": {"enum": ["paid", "refunded"]}, "score": {"type": "number"}, "note": {"type": ["string", "null"]},
            "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "free": {}, "either": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        }}))
    }

    #[test]
    fn listed_fields_and_matching_types_are_accepted() {
        for source in [
            "steps.look.response.status == 'refunded'",
            "steps.look.response.score > 5 || steps.look.response.score == -1.5",
            "steps.look.response.note == null || steps.look.response.note == 'x'",
            "steps.look.response.status in ['paid', 'refunded']",
            "steps.look.response.rows[0].n == 3",
            "steps.look.response.rows.exists(row, row.other == 'x')",
            "steps.look.response.free == 'x' && steps.look.response.either == 5 && steps.look.response.either.deep == 1",
            "has(steps.look.response.missing)",
            "!('missing' in steps.look.response) || steps.look.response.missing == 5",
            "steps.look.response == null",
            "steps.look.status == 'skipped'",
            "'x' in steps.look.response.rows",
            "size(steps.look.response.rows) > 2",
        ] {
            assert_eq!(problems_of(closed_schema(), source), [], "{source}");
        }
    }

    #[test]
    fn impossible_fields_and_comparisons_are_certain_problems() {
        for (source, why) in [
            ("steps.look.response.staus == 'x'", "`steps.look.response.staus` can never be there"),
            (
                "steps.look.response.status.code == 5",
                "`steps.look.response.status` is a text by its outputSchema, and has no fields",
            ),
            (
                "steps.look.response[0] == 5",
                "`steps.look.response` is an object by its outputSchema, and has no positions",
            ),
            ("steps.look.response.score == 'high'", "`steps.look.response.score` is a number by its outputSchema"),
            ("'high' != steps.look.response.score", "and is compared with a text"),
            ("steps.look.response.status > 5", "and is compared with a number"),
            ("steps.look.response.score in ['a', 'b']", "and is compared with a text"),
            ("steps.look.response.note == true", "is a text or null by its outputSchema"),
            ("steps.look.response == 'paid'", "`steps.look.response` is an object by its outputSchema"),
            ("steps.look.response.rows[0].n == 'x'", "`steps.look.response.rows[0].n` is a number"),
        ] {
            let found = problems_of(closed_schema(), source);
            assert!(found.len() == 1 && found[0].0 && found[0].1.contains(why), "{source}: {found:?}");
        }
        let scalar = Some(json!({"type": "string"}));
        assert!(problems_of(scalar.clone(), "steps.look.response.status == 'x'")[0].0);
        assert_eq!(problems_of(scalar, "steps.look.response == 'x'"), []);
    }

    #[test]
    fn a_field_that_may_be_missing_is_an_uncertain_problem_unless_tested() {
        let open_schema = || Some(json!({"type": "object", "properties": {"status": {"type": "string"}}}));
        let unlisted = problems_of(open_schema(), "steps.look.response.code == 5");
        assert!(unlisted.len() == 1 && !unlisted[0].0, "{unlisted:?}");
        assert!(
            unlisted[0].1.contains("may be missing, and the step then fails: add it to properties"),
            "{unlisted:?}"
        );
        for guarded in [
            "has(steps.look.response.code) && steps.look.response.code == 5",
            "'code' in steps.look.response && steps.look.response.code == 5",
            "has(steps.look.response.code) ? steps.look.response.code.deep == 5 : false",
        ] {
            assert_eq!(problems_of(open_schema(), guarded), [], "{guarded}");
        }
        let text = problems_of(None, "has(steps.look.response.status) && steps.look.response.status == 'refunded'");
        assert!(text.len() == 1 && !text[0].0 && text[0].1.contains("`steps.look` has no outputSchema"), "{text:?}");
        assert_eq!(problems_of(None, "steps.look.response == 'refunded' || steps.look.response.contains('x')"), []);
    }
}
