//! The names that a template defines itself: variables of its loops, and those of `set`.

use std::ops::Range;

use crate::{names::Names, tokens::Token};

/// A name that a template defines, by a loop or by `set`.
pub(super) struct TemplateVar {
    pub(super) name: String,
    pub(super) of: VarSource,
    /// Whether it is a loop over every item, so that its index is the item's number.
    pub(super) numbers: bool,
    /// Whether a loop defines it.
    pub(super) is_loop: bool,
    /// The tokens in which it is defined.
    pub(super) within: Range<usize>,
}

/// The meaning of such a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VarSource {
    /// An item of `iterations`.
    Iterations,
    /// A node, a task or a branch, or its id.
    Ids,
    Others,
}

/// Returns the names that a template defines: those of a loop until its end, and those of `set` until the end of the
/// template.
pub(super) fn template_vars(source: &[Token], names: &Names) -> Vec<TemplateVar> {
    let mut bound: Vec<TemplateVar> = Vec::new();
    // The ranges of the names of the open loops.
    let mut open: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < source.len() {
        let is_loop = source[at].is_name("for");
        if source[at].is_name("endfor")
            && let Some(given) = open.pop()
        {
            bound[given].iter_mut().for_each(|name| name.within.end = at);
        }
        if is_loop || source[at].is_name("set") {
            let rest = source[at + 1..].iter().take_while(|token| !matches!(token, Token::Mark(_)));
            let rest: Vec<&Token> = rest.filter(|token| !matches!(token, Token::Space(_))).collect();
            let given = |token: &&&Token| matches!(token, Token::Name(_)) && !token.is_name("in") || token.is_sign(",");
            let first = rest.iter().take_while(given).count();
            let of = match rest.get(first + 1) {
                Some(token) if token.is_name("iterations") => VarSource::Iterations,
                Some(token) if is_loop && !names.root.is_empty() && token.is_name(names.root) => VarSource::Ids,
                _ => VarSource::Others,
            };
            let before = bound.len();
            let words = rest[..first].iter().filter(|token| matches!(token, Token::Name(_)));
            let numbers = is_loop && !rest.iter().any(|token| token.is_name("if"));
            bound.extend(words.map(|word| TemplateVar {
                name: word.text().to_owned(),
                of,
                numbers,
                is_loop,
                within: at..source.len(),
            }));
            if is_loop {
                open.push(before..bound.len());
            }
        }
        at += 1;
    }
    bound
}
