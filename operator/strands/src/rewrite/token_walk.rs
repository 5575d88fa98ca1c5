//! The walk over the tokens of a template: the names that are values of the scope, and the ends of their paths.

use super::template_vars::{TemplateVar, VarSource};
use crate::{names::Names, token_split::depth_change, tokens::Token};

/// The words that are not names.
const KEYWORDS: [&str; 26] = [
    "if",
    "elif",
    "else",
    "endif",
    "for",
    "endfor",
    "in",
    "set",
    "endset",
    "and",
    "or",
    "not",
    "is",
    "true",
    "false",
    "none",
    "True",
    "False",
    "None",
    "null",
    "defined",
    "undefined",
    "raw",
    "endraw",
    "recursive",
    "filter",
];

/// The walk over the tokens of a template.
pub(super) struct TokenWalk<'a> {
    pub(super) source: &'a [Token],
    pub(super) names: &'a Names,
    pub(super) vars: &'a [TemplateVar],
}

/// A name and its members.
pub(super) struct NamePath {
    pub(super) root: String,
    /// The position of the first token.
    pub(super) start: usize,
    pub(super) members: Vec<String>,
    /// The position of the token after the path.
    pub(super) end: usize,
    /// Whether the last member is called.
    pub(super) calls: bool,
}

impl TokenWalk<'_> {
    /// Returns the source of a name that the template defines itself, by its last definition before `at`.
    pub(super) fn var_source(&self, at: usize, name: &str) -> Option<VarSource> {
        self.vars.iter().rev().find(|var| var.name == name && var.within.contains(&at)).map(|var| var.source)
    }

    /// Whether `loop.index` is the number of the item that a name means.
    pub(super) fn is_numbered(&self, at: usize, name: &str) -> bool {
        let mut visible = self.vars.iter().filter(|var| var.within.contains(&at));
        let innermost = visible.clone().filter(|var| var.is_loop).map(|var| var.within.start).max();
        visible.rfind(|var| var.name == name).is_some_and(|var| var.numbers && Some(var.within.start) == innermost)
    }

    /// Returns the first token after the members, items and arguments that follow a name.
    pub(super) fn end_of_operand(&self, from: usize) -> usize {
        let mut end = from;
        loop {
            end = match self.source.get(end..).unwrap_or_default() {
                [dot, Token::Name(_) | Token::Number(_), ..] if dot.is_sign(".") => end + 2,
                rest @ [open, ..] if open.is_sign("(") || open.is_sign("[") => {
                    let mut depth = 0;
                    let close = rest.iter().position(|token| {
                        depth += depth_change(token);
                        depth == 0
                    });
                    end + close.map_or(rest.len(), |close| close + 1)
                }
                _ => return end,
            };
        }
    }

    /// Whether a member belongs to an item of `iterations`.
    pub(super) fn is_of_iteration(&self, at: usize) -> bool {
        let before = |sign: &str, at: usize| self.source.get(at).is_some_and(|token| token.is_sign(sign));
        let closes = at.checked_sub(2).filter(|close| before(".", at - 1) && before("]", *close));
        let opens = closes.and_then(|close| self.source[..close].iter().rposition(|token| token.is_sign("[")));
        opens.and_then(|open| open.checked_sub(1)).is_some_and(|root| self.source[root].is_name("iterations"))
    }

    /// Returns the first token from here on that is not a space.
    pub(super) fn next(&self, from: usize) -> Option<(usize, &Token)> {
        self.source.iter().enumerate().skip(from).find(|(_, token)| !matches!(token, Token::Space(_)))
    }

    /// Returns the last token before here that is not a space.
    pub(super) fn before(&self, at: usize) -> Option<(usize, &Token)> {
        self.source.iter().enumerate().take(at).rev().find(|(_, token)| !matches!(token, Token::Space(_)))
    }

    /// Whether a name is a value of the scope, and not a keyword, member, filter, test or the name of an argument.
    pub(super) fn is_root(&self, at: usize, name: &str) -> bool {
        let before = self.before(at).map(|(_, token)| token);
        let follows = before.is_some_and(|t| t.is_sign(".") || t.is_sign("|") || t.is_name("is"));
        let is_argument = self.next(at + 1).is_some_and(|(_, token)| token.is_sign("="));
        !KEYWORDS.contains(&name) && !follows && !is_argument
    }

    /// Returns the path that begins with the name at a position.
    pub(super) fn path(&self, at: usize) -> NamePath {
        let root = self.source[at].text().to_owned();
        let mut path = NamePath { root, start: at, members: Vec::new(), end: at + 1, calls: false };
        loop {
            let rest = &self.source[path.end..];
            let (member, length) = match rest {
                [dot, Token::Name(name) | Token::Number(name), ..] if dot.is_sign(".") => (name.clone(), 2),
                [open, key @ Token::Quoted(_), close, ..] if open.is_sign("[") && close.is_sign("]") => {
                    (key.unquoted().unwrap_or_default().to_owned(), 3)
                }
                _ => break,
            };
            path.members.push(member);
            path.end += length;
        }
        path.calls = !path.members.is_empty() && self.source.get(path.end).is_some_and(|token| token.is_sign("("));
        path
    }
}
