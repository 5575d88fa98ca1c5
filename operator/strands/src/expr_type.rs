//! The type of an expression, as far as it is determined before a run. CEL tests lists and texts in different ways, and
//! accepts only booleans as conditions.
//!
//! An expression that can be of several types is of unknown type.

use super::{
    names::Names,
    token_split::{cut_last, is_bracketed, trim},
    tokens::Token,
};

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExprType {
    Text,
    /// A list, or the names of an object.
    List,
    /// True or false.
    Decision,
    Unknown,
}

/// The built-in names that are texts.
const TEXTS: [&str; 5] = ["hitl_response", "last_response", "draft", "current_draft", "task"];
/// The built-in names that are not texts.
const OTHERS: [&str; 15] = [
    "steps",
    "branches",
    "router",
    "reduce",
    "workers",
    "subtasks",
    "num_workers",
    "task_count",
    "index",
    "evaluation",
    "current_evaluation",
    "iteration",
    "iterations",
    "run",
    "hitl",
];

impl ExprType {
    /// Returns the type of an expression with the names of the Workflow.
    pub(super) fn of(source: &[Token], names: &Names) -> Self {
        let source = trim(source);
        if let Some((_, filter)) = cut_last(source, |token| token.is_sign("|")) {
            return match trim(filter) {
                [filter] if ["lower", "upper", "trim"].iter().any(|word| filter.is_name(word)) => Self::Text,
                _ => Self::Unknown,
            };
        }
        match source {
            [Token::Quoted(text)] if !text.starts_with('`') => Self::Text,
            [open, .., close] if open.is_sign("[") && close.is_sign("]") && is_bracketed(source) => Self::List,
            [open, inner @ .., close] if open.is_sign("(") && close.is_sign(")") && is_bracketed(source) => {
                Self::of(inner, names)
            }
            [.., close] if close.is_sign(")") => method_type(source),
            [.., dot, member] if dot.is_sign(".") && member.is_name("response") => Self::Text,
            [.., dot, member] if dot.is_sign(".") && member.is_name("visits") => Self::List,
            [inputs, dot, input] if inputs.is_name("inputs") && dot.is_sign(".") => input_type(input.text(), names),
            [Token::Name(name)] if TEXTS.contains(&name.as_str()) => Self::Text,
            [Token::Name(name)] if OTHERS.contains(&name.as_str()) => Self::Unknown,
            [Token::Name(name)] => input_type(name, names),
            _ => Self::Unknown,
        }
    }
}

/// Returns the type of the result of a method call, such as `draft.lower()`.
fn method_type(source: &[Token]) -> ExprType {
    let open = (0..source.len()).rev().find(|open| source[*open].is_sign("(") && is_bracketed(&source[*open..]));
    match open.map(|open| &source[..open]) {
        Some([.., dot, method]) if dot.is_sign(".") => match method.text() {
            "lower" | "upper" | "strip" | "trim" => ExprType::Text,
            "startswith" | "endswith" | "startsWith" | "endsWith" | "contains" => ExprType::Decision,
            _ => ExprType::Unknown,
        },
        _ => ExprType::Unknown,
    }
}

/// Returns the type of an input; an undeclared input is a text.
fn input_type(name: &str, names: &Names) -> ExprType {
    match names.types.get(name).map_or("string", String::as_str) {
        "string" => ExprType::Text,
        "array" | "object" => ExprType::List,
        "boolean" => ExprType::Decision,
        _ => ExprType::Unknown,
    }
}
