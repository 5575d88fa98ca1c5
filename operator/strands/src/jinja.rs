//! Conditions that CEL cannot say, as templates that come to `true` or `false`.
//!
//! It must not change what a condition asks: only JMESPath's words become those of templates.

use super::{
    parts::{COMPARES, cut, is_shallow, is_whole, split, trim},
    tokens::{self, Token},
};

/// The condition as a template.
pub(super) fn decision(source: &[Token]) -> String {
    let expression = if is_shallow(source) { tokens::expression(&said(source)) } else { source.to_vec() };
    let text = tokens::join(&expression);
    if is_shallow(&expression) && is_boolean(&expression) {
        format!("{{{{ {text} }}}}")
    } else {
        format!("{{{{ true if ({text}) else false }}}}")
    }
}

/// The expression with the words of templates in place of JMESPath's signs, literals and functions.
fn said(source: &[Token]) -> String {
    let mut text = String::new();
    let mut rest = source;
    while let Some((first, after)) = rest.split_first() {
        let member = text.trim_end().ends_with('.');
        if let (Token::Name(name), false, Some(end)) = (first, member, closing(after)) {
            let arguments: Vec<String> = split(&after[1..end], &[","]).into_iter().map(|one| said(trim(one))).collect();
            if let Some(call) = called(name, &arguments) {
                text.push_str(&call);
                rest = &after[end + 1..];
                continue;
            }
        }
        match first {
            Token::Sign(sign) if sign == "&&" => text.push_str("and"),
            Token::Sign(sign) if sign == "||" => text.push_str("or"),
            Token::Sign(sign) if sign == "!" => text.push_str("not "),
            Token::Quoted(quoted) if quoted.starts_with('`') => {
                text.push_str(&literal(first).unwrap_or(quoted.clone()))
            }
            other => text.push_str(other.text()),
        }
        rest = after;
    }
    text
}

/// The position of the bracket that closes the arguments which begin here.
fn closing(source: &[Token]) -> Option<usize> {
    source.first().filter(|token| token.is_sign("("))?;
    (1..source.len()).find(|end| source[*end].is_sign(")") && is_whole(&source[..=*end]))
}

fn called(name: &str, arguments: &[String]) -> Option<String> {
    match (name, arguments) {
        ("contains", [value, part]) => Some(format!("({part} in {value})")),
        ("starts_with", [value, part]) => Some(format!("{value}.startswith({part})")),
        ("ends_with", [value, part]) => Some(format!("{value}.endswith({part})")),
        ("length" | "len" | "size", [value]) => Some(format!("({value} | length)")),
        _ => None,
    }
}

/// Returns a literal in the form of JMESPath, which uses backticks.
pub(super) fn literal(token: &Token) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(token.unquoted()?.trim()).ok()?;
    Some(value.to_string())
}

/// Whether an expression can only be true or false.
fn is_boolean(source: &[Token]) -> bool {
    split(source, &["or", "||"]).into_iter().all(|part| {
        split(part, &["and", "&&"]).into_iter().all(|part| {
            let part = trim(part);
            let decides = |token: &Token| {
                ["in", "is"].iter().any(|word| token.is_name(word)) || COMPARES.iter().any(|sign| token.is_sign(sign))
            };
            match part {
                [first, ..] if first.is_name("not") => true,
                [only] => ["true", "false", "True", "False"].iter().any(|word| only.is_name(word)),
                [open, inner @ .., close] if open.is_sign("(") && close.is_sign(")") && is_whole(part) => {
                    is_boolean(inner)
                }
                _ => cut(part, decides).is_some() && cut(part, |token| token.is_name("if")).is_none(),
            }
        })
    })
}
