//! The part of the parser for functions, methods and comprehensions.
//!
//! Unknown functions and wrong arguments are refused here, so that they cannot occur during an evaluation.

use super::Fault;
use super::parse::{Parsed, Parser, max_depth};
use super::signature::{self, Function};
use super::tree::{Comprehension, Macro, Node, NodeKind};
use crate::pattern;

/// The macro that tests for a field.
pub(super) const HAS: &str = "has";
/// The method that searches for a pattern.
pub(super) const MATCHES: &str = "matches";
/// The functions over a list, or over the keys of a map.
pub(super) const MACROS: [(&str, Macro); 6] = [
    ("all", Macro::All),
    ("exists", Macro::Exists),
    ("exists_one", Macro::ExistsOne),
    ("existsOne", Macro::ExistsOne),
    ("map", Macro::Map),
    ("filter", Macro::Filter),
];

impl Parser {
    pub(super) fn parse_function(&mut self, name: String, at: usize) -> Parsed {
        let mut arguments = self.parse_separated(")", Self::parse_expression)?;
        if name == HAS {
            return match arguments.pop() {
                Some(Node { depth, kind: NodeKind::Select { holder, field }, .. }) if arguments.is_empty() => {
                    self.new_node(at, depth, NodeKind::Has { holder, field })
                }
                _ => Err(Fault::new(at, "`has` takes one field, as in `has(inputs.note)`")),
            };
        }
        self.new_call(name, arguments, false, at)
    }

    pub(super) fn parse_method(&mut self, target: Node, name: String, at: usize) -> Parsed {
        let Some((_, macro_)) = MACROS.into_iter().find(|(known, _)| *known == name) else {
            let mut arguments = vec![target];
            arguments.extend(self.parse_separated(")", Self::parse_expression)?);
            if name == MATCHES {
                return self.parse_matches(arguments, at);
            }
            return self.new_call(name, arguments, true, at);
        };
        if self.in_comprehension {
            return Err(Fault::limit(
                at,
                format!(
                    "`{name}` must not be nested in another one, because each would multiply the other's work; put one in an earlier step"
                ),
            ));
        }
        self.in_comprehension = true;
        let parts = self.parse_separated(")", Self::parse_expression);
        self.in_comprehension = false;
        let mut parts = parts?.into_iter();
        let (variable, second, third, rest) = (parts.next(), parts.next(), parts.next(), parts.next());
        let usage =
            || Fault::new(at, format!("`{name}` takes a variable and an expression, as in `steps.{name}(s, …)`"));
        let Some(Node { kind: NodeKind::Name(variable), .. }) = variable else {
            return Err(usage());
        };
        let (filter, body) = match (second, third, rest) {
            (Some(body), None, None) => (None, body),
            (Some(filter), Some(body), None) if macro_ == Macro::Map => (Some(filter), body),
            _ => return Err(usage()),
        };
        let below = target.depth.max(body.depth).max(filter.as_ref().map_or(0, |f| f.depth));
        self.new_node(
            at,
            below,
            NodeKind::Comprehension(Box::new(Comprehension { macro_, range: target, variable, filter, body })),
        )
    }

    /// Parses `text.matches('pattern')`. The pattern must be a literal, so that it is checked before a run and no other
    /// text is compiled.
    fn parse_matches(&mut self, mut arguments: Vec<Node>, at: usize) -> Parsed {
        let (pattern, text) = match (arguments.pop(), arguments.pop(), arguments.len()) {
            (Some(pattern), Some(text), 0) => (pattern, text),
            _ => return Err(Fault::new(at, "`matches` takes one pattern")),
        };
        let NodeKind::Text(source) = &pattern.kind else {
            return Err(Fault::new(
                at,
                "the pattern of `matches` must be written out as a text, it cannot be computed",
            ));
        };
        let pattern = pattern::Pattern::compile_literal(source).map_err(|problem| Fault::new(pattern.at, problem))?;
        let below = text.depth;
        self.new_node(at, below, NodeKind::Matches { text: Box::new(text), pattern })
    }

    fn new_call(&mut self, name: String, arguments: Vec<Node>, is_method: bool, at: usize) -> Parsed {
        let Some((function, minimum, maximum)) = Function::find(&name, is_method) else {
            return Err(Fault::new(at, signature::describe_unknown(&name, is_method)));
        };
        if !(minimum..=maximum).contains(&arguments.len()) {
            let receiver = usize::from(is_method);
            return Err(Fault::new(
                at,
                format!(
                    "`{name}` takes {} argument(s), not {}",
                    if minimum == maximum {
                        format!("{}", minimum - receiver)
                    } else {
                        format!("{} to {}", minimum - receiver, maximum - receiver)
                    },
                    arguments.len() - receiver
                ),
            ));
        }
        self.new_node(at, max_depth(&arguments), NodeKind::Call { function, arguments })
    }
}
