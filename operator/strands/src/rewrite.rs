//! Templates and conditions with the names of the imported Workflow: changed token by token, so that the rest stays as
//! it is.
//!
//! A text in quotes changes only if it is compared with a name that changed.

use std::collections::BTreeSet;

use signoff_expr::is_identifier;

use super::{
    infix,
    names::Names,
    tokens::{self, Token},
};

pub(super) mod cli_paths;
mod template_vars;
mod token_walk;

use self::{
    template_vars::{VarSource, template_vars},
    token_walk::{NamePath, TokenWalk},
};

/// The references of a rewritten text that do not exist in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnresolvedNames {
    /// Paths to ids that do not exist.
    pub(super) strangers: BTreeSet<String>,
    /// Names that are compared with numbers.
    pub(super) numeric: BTreeSet<String>,
    /// Paths that only the Strands CLI has, without an equivalent.
    pub(super) missing: BTreeSet<String>,
}

/// Returns a template with the names of the imported Workflow.
pub(super) fn template(source: &str, names: &Names, found: &mut UnresolvedNames) -> String {
    tokens::join(&tokens(&tokens::template(source), names, found))
}

/// Returns the tokens of an expression without marks.
pub(super) fn expression(source: &str, names: &Names, found: &mut UnresolvedNames) -> Vec<Token> {
    tokens(&infix::to_calls(&tokens::expression(source)), names, found)
}

fn tokens(source: &[Token], names: &Names, found: &mut UnresolvedNames) -> Vec<Token> {
    let source = &cli_paths::replaced(source, names, found);
    let bound = template_vars(source, names);
    let walk = TokenWalk { source, names, bound: &bound };
    let mut out = Vec::new();
    let mut at = 0;
    let mut closes_default = None;
    while at < source.len() {
        if closes_default == Some(at) {
            out.extend(tokens::expression(", true"));
        }
        at = match &source[at] {
            Token::Name(name) if walk.is_root(at, name) => {
                walk.note_number(at, name, found);
                let path = walk.path(at);
                if names.optional.contains(name) && path.members.is_empty() {
                    closes_default = walk.end_of_default(path.end).or(closes_default);
                }
                walk.replaced(&path, &mut out, found)
            }
            Token::Quoted(_) => {
                out.push(walk.compared(at));
                at + 1
            }
            Token::Name(name) if names.judged && walk.is_of_iteration(at) => {
                out.extend(tokens::expression(&of_judgement(name)));
                at + 1
            }
            other => {
                out.push(other.clone());
                at + 1
            }
        };
    }
    out
}

impl TokenWalk<'_> {
    /// Appends the new form of a path, and returns the next token.
    fn replaced(&self, path: &NamePath, out: &mut Vec<Token>, found: &mut UnresolvedNames) -> usize {
        let NamePath { root, members, end, .. } = path;
        let mut push = |text: &str| out.extend(tokens::expression(text));
        if let Some(of) = self.var_source(path.start, root) {
            if self.names.judged && of == VarSource::Iterations && members.as_slice() == ["iteration"] {
                push(if self.is_numbered(path.start, root) { "loop.index" } else { "''" });
                if !self.is_numbered(path.start, root) {
                    found.missing.insert(written(root, members));
                }
                return *end;
            }
            if let (true, VarSource::Iterations, [member]) = (self.names.judged, of, members.as_slice()) {
                push(&format!("{root}.{}", of_judgement(member)));
                return *end;
            }
            if self.names.root == "nodes" && of == VarSource::Ids && members.len() == 1 && members[0] == "iteration" {
                push(&format!("({root}.visits | length)"));
                return *end;
            }
            if self.names.root == "nodes" && of == VarSource::Ids && members.as_slice() == ["agent"] {
                push(&format!("{}[{root}.name]", self.names.agents_by_name()));
                return *end;
            }
            push(&written(root, members));
            return *end;
        }
        if *root == self.names.root {
            return self.member(path, out, found);
        }
        if let (Some(text), true) = (self.names.special.get(root.as_str()), members.is_empty()) {
            push(text);
        } else if let (Some(text), true) = (self.names.inputs.get(root), members.is_empty()) {
            push(text);
        } else if root == "inputs" && members.first().is_some_and(|first| first == "values") && members.len() > 1 {
            push(&written(root, &members[1..]));
        } else if root == "router" && members.len() == 1 && members[0] == "chosen_route" {
            push("router.chosen_route");
        } else {
            push(&tokens::join(&self.source[path.start..*end]));
        }
        *end
    }

    /// Appends the new form of a path with an id.
    fn member(&self, path: &NamePath, out: &mut Vec<Token>, found: &mut UnresolvedNames) -> usize {
        let NamePath { members, end, calls, .. } = path;
        let root = self.names.root_now;
        let graph = self.names.root == "nodes";
        let mut push = |text: &str| out.extend(tokens::expression(text));
        let method = members.len() == 1 && *calls;
        let Some(id) = members.first().filter(|_| !method) else {
            push(&written(root, members));
            let items = method && members[0] == "items";
            return if graph && items { self.executed_only(*end, out) } else { *end };
        };
        let Some(name) = self.names.ids.get(id) else {
            found.strangers.insert(written(self.names.root, members));
            push("''");
            // A method of the missing value becomes a method of the empty text.
            if *calls && members.len() > 1 {
                push(&format!(".{}", members[members.len() - 1]));
            }
            return *end;
        };
        let base = written(root, std::slice::from_ref(name));
        let rest = &members[1..];
        let filtered = self.next(*end).is_some_and(|(_, token)| token.is_sign("|") || token.is_sign("["));
        match rest {
            [only] if graph && only == "iteration" => push(&format!("({base}.visits | length)")),
            [only] if graph && only == "agent" => push(&format!("{}['{name}']", self.names.agents_by_name())),
            [] if graph && !filtered => {
                // All nodes exist from the start, so the test is whether one has run.
                push(&format!("{base}.response"));
                return self.has_run(*end, out);
            }
            _ => push(&written(&base, rest)),
        }
        *end
    }

    /// Rewrites `is defined` of a node to a test whether it has run.
    fn has_run(&self, end: usize, out: &mut Vec<Token>) -> usize {
        let Some((is, _)) = self.next(end).filter(|(_, token)| token.is_name("is")) else { return end };
        let Some((first, word)) = self.next(is + 1) else { return end };
        let (last, word, not) = match self.next(first + 1) {
            Some((second, next)) if word.is_name("not") => (second, next, true),
            _ => (first, word, false),
        };
        let asks = match word.text() {
            "defined" => !not,
            "undefined" => not,
            _ => return end,
        };
        out.extend(tokens::expression(if asks { " is not none" } else { " is none" }));
        last + 1
    }

    /// Rewrites a loop over all nodes to one over those that have run.
    fn executed_only(&self, end: usize, out: &mut Vec<Token>) -> usize {
        let value = self
            .before(end)
            .and_then(|(at, _)| self.source[..at].iter().rposition(|token| token.is_name("in")))
            .and_then(|at| self.before(at))
            .map(|(_, token)| token.text().to_owned());
        let closed = self.next(end).zip(self.next(end + 1)).zip(self.next(end + 2));
        match (value, closed) {
            (Some(value), Some((((_, open), (_, close)), (mark, Token::Mark(_)))))
                if open.is_sign("(") && close.is_sign(")") =>
            {
                out.extend(tokens::expression(&format!("() if {value}.response is not none")));
                // The space before the mark stays.
                if matches!(self.source.get(mark - 1), Some(Token::Space(_))) { mark - 1 } else { mark }
            }
            _ => end,
        }
    }

    /// Returns the token for a quoted text: a name if it is an id that is compared with a name for ids.
    fn compared(&self, at: usize) -> Token {
        let token = self.source[at].clone();
        let Some((sign, _)) = self.before(at).filter(|(_, t)| t.is_sign("==") || t.is_sign("!=")) else { return token };
        let Some((left, Token::Name(name))) = self.before(sign) else { return token };
        let after_dot = left > 0 && self.source[left - 1].is_sign(".");
        let stands_for_ids = match after_dot {
            true => name == "chosen_route",
            false => {
                self.var_source(left, name) == Some(VarSource::Ids)
                    || ["terminal_node", "chosen_route"].contains(&name.as_str())
            }
        };
        match token.unquoted().and_then(|id| self.names.ids.get(id)).filter(|_| stands_for_ids) {
            Some(name) => Token::Quoted(format!("'{name}'")),
            None => token,
        }
    }

    fn note_number(&self, at: usize, name: &str, found: &mut UnresolvedNames) {
        let Some((sign, token)) = self.next(at + 1) else { return };
        let compares = ["<", ">", "<=", ">=", "==", "!="].iter().any(|sign| token.is_sign(sign));
        if compares && matches!(self.next(sign + 1), Some((_, Token::Number(_)))) {
            found.numeric.insert(name.to_owned());
        }
    }

    /// Returns the position of the parenthesis that closes `| default(…)`, if the filter has one argument.
    fn end_of_default(&self, end: usize) -> Option<usize> {
        let (pipe, _) = self.next(end).filter(|(_, token)| token.is_sign("|"))?;
        let (name, _) = self.next(pipe + 1).filter(|(_, token)| token.is_name("default") || token.is_name("d"))?;
        let (open, _) = self.next(name + 1).filter(|(_, token)| token.is_sign("("))?;
        let mut depth = 0;
        for (at, token) in self.source.iter().enumerate().skip(open) {
            match token.text() {
                "(" | "[" | "{" if matches!(token, Token::Sign(_)) => depth += 1,
                ")" | "]" | "}" if matches!(token, Token::Sign(_)) => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                "," if depth == 1 => return None,
                _ => {}
            }
        }
        None
    }
}

/// Returns Signoff's name for a member of an evaluation.
fn of_judgement(member: &str) -> String {
    match member {
        "score" | "issues" | "fixes" => format!("evaluation.{member}"),
        "draft_preview" => "draft[:200]".to_owned(),
        other => other.to_owned(),
    }
}

/// Renders a path.
pub(super) fn written(root: &str, members: &[String]) -> String {
    members.iter().fold(root.to_owned(), |path, member| {
        if is_identifier(member) || member.chars().all(|c| c.is_ascii_digit()) {
            format!("{path}.{member}")
        } else {
            format!("{path}['{member}']")
        }
    })
}

#[cfg(test)]
mod tests;
