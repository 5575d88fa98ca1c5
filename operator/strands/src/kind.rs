//! The kinds of values of the fields of the format, and the check of a value against them. Nothing is converted here.

use std::{fmt, ops::Range};

use signoff_manifest::source::{Node, Value};

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything: it is kept as it is, or not read.
    Any,
    /// A text. A number, `true` and `false` are read as texts.
    Text,
    /// A number.
    Number,
    /// An integer from 0.
    Whole,
    /// An object with its own fields.
    Object,
    /// A list of values of this kind.
    List(&'static Kind),
    /// An object with values of this kind under names that the file chooses.
    Map(&'static Kind),
    /// A value of either kind.
    Either(&'static Kind, &'static Kind),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => write!(f, "anything"),
            Self::Text => write!(f, "a text"),
            Self::Number => write!(f, "a number"),
            Self::Whole => write!(f, "a whole number from 0"),
            Self::Object => write!(f, "an object"),
            Self::List(Self::Any) => write!(f, "a list"),
            Self::List(Self::Text) => write!(f, "a list of texts"),
            Self::List(of) => write!(f, "a list, each item {of}"),
            Self::Map(of) => write!(f, "an object, each value {of}"),
            Self::Either(one, other) => write!(f, "{one}, or {other}"),
        }
    }
}

/// A value of a wrong kind.
pub(super) struct KindError {
    /// The path from the field to the value: `[2]`, or empty for the field's own value.
    pub(super) below: String,
    pub(super) at: Range<usize>,
    /// The error and the expected value.
    pub(super) message: String,
}

impl Kind {
    /// Returns the first value of a wrong kind. A field without a value counts as missing, an item without one does
    /// not.
    pub(super) fn kind_error(self, node: &Node) -> Option<KindError> {
        match (self, &node.value) {
            (Self::Any, _)
            | (_, Value::Null)
            | (Self::Text, Value::Text(_) | Value::Number(_) | Value::Bool(_))
            | (Self::Number, Value::Number(_))
            | (Self::Object, Value::Map(_)) => None,
            (Self::Whole, Value::Number(number)) if number.is_u64() => None,
            (Self::List(of), Value::List(items)) => items.iter().enumerate().find_map(|(at, item)| {
                let wrong =
                    if item.is_null() && *of != Self::Any { Some(of.wrong_kind(item)) } else { of.kind_error(item) };
                wrong.map(|wrong| KindError { below: format!("[{at}]{}", wrong.below), ..wrong })
            }),
            (Self::Map(of), Value::Map(fields)) => fields.iter().find_map(|(key, value)| {
                let wrong = of.kind_error(value)?;
                Some(KindError { below: format!(".{}{}", key.name, wrong.below), ..wrong })
            }),
            (Self::Either(one, other), _) => {
                let (first, second) = (one.kind_error(node)?, other.kind_error(node)?);
                // The error at the deeper path is closer to the intended kind.
                match (first.below.is_empty(), second.below.is_empty()) {
                    (true, true) => Some(self.wrong_kind(node)),
                    (true, false) => Some(second),
                    (false, _) => Some(first),
                }
            }
            _ => Some(self.wrong_kind(node)),
        }
    }

    fn wrong_kind(self, node: &Node) -> KindError {
        let message = format!("this is {}: write {self}", node.kind());
        KindError { below: String::new(), at: node.at.clone(), message }
    }
}
