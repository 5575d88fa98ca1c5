//! Templates and conditions with the names of the imported Workflow. Only the tokens of names change.
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
    pub(super) unknown_ids: BTreeSet<String>,
    /// Names that are compared with numbers.
    pub(super) numeric: BTreeSet<String>,
    /// Paths that only the Strands CLI has, without an equivalent.
    pub(super) missing: BTreeSet<String>,
}

/// Returns a template with the names of the imported Workflow.
pub(super) fn rewrite_template(source: &str, names: &Names, found: &mut UnresolvedNames) -> String {
    tokens::join(&rewrite_tokens(&tokens::parse_template(source), names, found))
}

/// Returns the tokens of an expression without marks, with the names of the imported Workflow and with `contains` as a
/// call.
pub(super) fn rewrite_expression(source: &str, names: &Names, found: &mut UnresolvedNames) -> Vec<Token> {
    rewrite_tokens(&infix::to_calls(&tokens::parse_expression(source)), names, found)
}

/// Returns the tokens with the names of the imported Workflow.
fn rewrite_tokens(source: &[Token], names: &Names, found: &mut UnresolvedNames) -> Vec<Token> {
    let source = &cli_paths::replace_paths(source, names, found);
    let vars = template_vars(source, names);
    let walk = TokenWalk { source, names, vars: &vars };
    let mut out = Vec::new();
    let mut position = 0;
    let mut closes_default = None;
    while position < source.len() {
        if closes_default == Some(position) {
            out.extend(tokens::parse_expression(", true"));
        }
        position = match &source[position] {
            Token::Name(name) if walk.is_root(position, name) => {
                walk.note_number(position, name, found);
                let path = walk.path(position);
                if names.optional.contains(name) && path.members.is_empty() {
                    closes_default = walk.end_of_default(path.end).or(closes_default);
                }
                walk.rewrite_path(&path, &mut out, found)
            }
            Token::Quoted(_) => {
                out.push(walk.rewrite_compared_text(position));
                position + 1
            }
            Token::Name(name) if names.judged && walk.is_of_iteration(position) => {
                out.extend(tokens::parse_expression(&evaluation_member(name)));
                position + 1
            }
            other => {
                out.push(other.clone());
                position + 1
            }
        };
    }
    out
}

impl TokenWalk<'_> {
    /// Appends the new form of a path, and returns the position of the next token.
    fn rewrite_path(&self, path: &NamePath, out: &mut Vec<Token>, found: &mut UnresolvedNames) -> usize {
        let NamePath { root, members, end, .. } = path;
        if let Some(source) = self.var_source(path.start, root) {
            out.extend(tokens::parse_expression(&self.render_var(path, source, found)));
            return *end;
        }
        if *root == self.names.root {
            return self.rewrite_id_path(path, out, found);
        }
        let mut push = |text: &str| out.extend(tokens::parse_expression(text));
        if let (Some(text), true) = (self.names.special.get(root.as_str()), members.is_empty()) {
            push(text);
        } else if let (Some(text), true) = (self.names.inputs.get(root), members.is_empty()) {
            push(text);
        } else if root == "inputs" && members.first().is_some_and(|first| first == "values") && members.len() > 1 {
            push(&render_path(root, &members[1..]));
        } else if root == "router" && members.len() == 1 && members[0] == "chosen_route" {
            push("router.chosen_route");
        } else {
            push(&tokens::join(&self.source[path.start..*end]));
        }
        *end
    }

    /// Renders the new form of a path that begins with a name which the template defines.
    fn render_var(&self, path: &NamePath, source: VarSource, found: &mut UnresolvedNames) -> String {
        let NamePath { start, root, members, .. } = path;
        let is_iteration = self.names.judged && source == VarSource::Iterations;
        let is_node = self.names.root == "nodes" && source == VarSource::Ids;
        match members.as_slice() {
            [member] if is_iteration && member == "iteration" && self.is_numbered(*start, root) => {
                "loop.index".to_owned()
            }
            [member] if is_iteration && member == "iteration" => {
                found.missing.insert(render_path(root, members));
                "''".to_owned()
            }
            [member] if is_iteration => format!("{root}.{}", evaluation_member(member)),
            [member] if is_node && member == "iteration" => format!("({root}.visits | length)"),
            [member] if is_node && member == "agent" => format!("{}[{root}.name]", self.names.agents_by_name()),
            _ => render_path(root, members),
        }
    }

    /// Appends the new form of a path in the map of ids, such as `nodes.review.response`. Returns the position of the
    /// next token.
    fn rewrite_id_path(&self, path: &NamePath, out: &mut Vec<Token>, found: &mut UnresolvedNames) -> usize {
        let NamePath { members, end, calls, .. } = path;
        let (map, is_graph) = (self.names.root_now, self.names.root == "nodes");
        let is_method_of_map = members.len() == 1 && *calls;
        let Some(id) = members.first().filter(|_| !is_method_of_map) else {
            out.extend(tokens::parse_expression(&render_path(map, members)));
            let is_loop = is_graph && is_method_of_map && members[0] == "items";
            return if is_loop { self.rewrite_node_loop(*end, out) } else { *end };
        };
        let Some(name) = self.names.ids.get(id) else {
            found.unknown_ids.insert(render_path(self.names.root, members));
            // A method of the missing value becomes a method of the empty text.
            let method = members.last().filter(|_| *calls && members.len() > 1);
            let method = method.map_or_else(String::new, |method| format!(".{method}"));
            out.extend(tokens::parse_expression(&format!("''{method}")));
            return *end;
        };
        let base = render_path(map, std::slice::from_ref(name));
        let has_filter = self.next(*end).is_some_and(|(_, token)| token.is_sign("|") || token.is_sign("["));
        let text = match &members[1..] {
            [member] if is_graph && member == "iteration" => format!("({base}.visits | length)"),
            [member] if is_graph && member == "agent" => format!("{}['{name}']", self.names.agents_by_name()),
            [] if is_graph && !has_filter => {
                // All nodes exist from the start, so the test is whether one has run.
                out.extend(tokens::parse_expression(&format!("{base}.response")));
                return self.rewrite_is_defined(*end, out);
            }
            rest => render_path(&base, rest),
        };
        out.extend(tokens::parse_expression(&text));
        *end
    }

    /// Rewrites `is defined` of a node to a test whether it has run.
    fn rewrite_is_defined(&self, end: usize, out: &mut Vec<Token>) -> usize {
        let Some((is, _)) = self.next(end).filter(|(_, token)| token.is_name("is")) else { return end };
        let Some((first, word)) = self.next(is + 1) else { return end };
        let (last, word, not) = match self.next(first + 1) {
            Some((second, next)) if word.is_name("not") => (second, next, true),
            _ => (first, word, false),
        };
        let is_run = match word.text() {
            "defined" => !not,
            "undefined" => not,
            _ => return end,
        };
        out.extend(tokens::parse_expression(if is_run { " is not none" } else { " is none" }));
        last + 1
    }

    /// Rewrites a loop over all nodes to one over those that have run.
    fn rewrite_node_loop(&self, end: usize, out: &mut Vec<Token>) -> usize {
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
                out.extend(tokens::parse_expression(&format!("() if {value}.response is not none")));
                // The space before the mark stays.
                if matches!(self.source.get(mark - 1), Some(Token::Space(_))) { mark - 1 } else { mark }
            }
            _ => end,
        }
    }

    /// Returns the token for a quoted text: the new name if the text is an id that is compared with a value for ids.
    fn rewrite_compared_text(&self, at: usize) -> Token {
        let token = self.source[at].clone();
        let Some((sign, _)) = self.before(at).filter(|(_, t)| t.is_sign("==") || t.is_sign("!=")) else { return token };
        let Some((left, Token::Name(name))) = self.before(sign) else { return token };
        let after_dot = left > 0 && self.source[left - 1].is_sign(".");
        let is_id = match after_dot {
            true => name == "chosen_route",
            false => {
                self.var_source(left, name) == Some(VarSource::Ids)
                    || ["terminal_node", "chosen_route"].contains(&name.as_str())
            }
        };
        match token.unquoted().and_then(|id| self.names.ids.get(id)).filter(|_| is_id) {
            Some(name) => Token::Quoted(format!("'{name}'")),
            None => token,
        }
    }

    /// Adds a name to `numeric` if it is compared with a number.
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

/// Returns the name in a Workflow for a member of an item of `iterations`.
fn evaluation_member(member: &str) -> String {
    match member {
        "score" | "issues" | "fixes" => format!("evaluation.{member}"),
        "draft_preview" => "draft[:200]".to_owned(),
        other => other.to_owned(),
    }
}

/// Renders a path: `steps.review.response`, or `steps['initial plan']` for a member that is not an identifier.
pub(super) fn render_path(root: &str, members: &[String]) -> String {
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
