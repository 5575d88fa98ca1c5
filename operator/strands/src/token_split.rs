//! The split of expressions into parts: at operators and words, outside of brackets.

use super::tokens::Token;

/// The maximum nesting of expressions.
const MAX_DEPTH: usize = 24;

/// The comparison signs.
pub(super) const COMPARES: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];

/// Whether the nesting of brackets and negations is within the limit of conditions.
pub(super) fn is_shallow(source: &[Token]) -> bool {
    let mut depth = 0;
    let negations = source.iter().filter(|token| token.is_name("not") || token.is_sign("!")).count();
    negations <= MAX_DEPTH
        && source.iter().all(|token| {
            depth += depth_change(token);
            usize::try_from(depth).is_ok_and(|depth| depth <= MAX_DEPTH)
        })
}

/// Whether the last token closes the bracket that the first token opens.
pub(super) fn is_bracketed(source: &[Token]) -> bool {
    let mut depth = 0;
    source.iter().enumerate().all(|(at, token)| {
        depth += depth_change(token);
        depth > 0 || at + 1 == source.len()
    })
}

pub(super) fn depth_change(token: &Token) -> i32 {
    match token {
        Token::Sign(sign) => match sign.as_str() {
            "(" | "[" | "{" => 1,
            ")" | "]" | "}" => -1,
            _ => 0,
        },
        _ => 0,
    }
}

/// Splits at words or signs outside of brackets.
pub(super) fn split<'t>(source: &'t [Token], words: &[&str]) -> Vec<&'t [Token]> {
    let is_word = |token: &Token| words.iter().any(|word| token.is_name(word) || token.is_sign(word));
    let mut parts = Vec::new();
    let mut rest = source;
    while let Some((part, after)) = cut(rest, is_word) {
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Splits at the first token outside of brackets for which `is` holds. Returns `None` if there is none.
pub(super) fn cut(source: &[Token], is: impl Fn(&Token) -> bool) -> Option<(&[Token], &[Token])> {
    let mut depth = 0;
    let at = source.iter().position(|token| {
        depth += depth_change(token);
        depth == 0 && is(token)
    })?;
    Some((&source[..at], &source[at + 1..]))
}

/// Splits at the last token outside of brackets for which `is` holds. Returns `None` if there is none.
pub(super) fn cut_last(source: &[Token], is: impl Fn(&Token) -> bool) -> Option<(&[Token], &[Token])> {
    let mut depth = 0;
    let at = source.iter().rposition(|token| {
        depth += depth_change(token);
        depth == 0 && is(token)
    })?;
    Some((&source[..at], &source[at + 1..]))
}

/// Returns the tokens without the spaces around them.
pub(super) fn trim(source: &[Token]) -> &[Token] {
    let mut source = source;
    while let [Token::Space(_), rest @ ..] = source {
        source = rest;
    }
    while let [rest @ .., Token::Space(_)] = source {
        source = rest;
    }
    source
}
