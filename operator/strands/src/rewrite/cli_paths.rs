//! Paths that only the Strands CLI has: `execution_context.*`, `runtime.*` and `context_policy.*`.
//!
//! Such a path becomes a name of the pattern or a literal of the file, never an input. Without an equivalent it becomes
//! an empty text, and [`UnresolvedNames::missing`] records it.

use std::collections::{BTreeMap, BTreeSet};

use signoff_manifest::source::{Node, Value};

use super::{
    Names, UnresolvedNames, render_path,
    template_vars::template_vars,
    token_walk::{NamePath, TokenWalk},
};
use crate::tokens::{self, Token};

/// The root of the values of a run for its artifacts.
const EXECUTION: &str = "execution_context";

/// The fields of the file that templates can refer to.
const FIELDS: [&str; 2] = ["runtime", "context_policy"];

/// The equivalents of these paths in one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct CliPaths {
    /// The roots that have no other meaning in the file.
    roots: BTreeSet<&'static str>,
    /// Members of `execution_context`, as expressions with the names of the file.
    members: BTreeMap<&'static str, String>,
    /// Single values of the file by their paths, as literals.
    literals: BTreeMap<Vec<String>, String>,
}

impl CliPaths {
    /// Collects the equivalents for one file. `is_taken`: whether an input or a variable has a name.
    pub(crate) fn new(file: &Node, kind: &str, config: &Node, is_taken: impl Fn(&str) -> bool) -> Self {
        let roots = FIELDS.into_iter().chain([EXECUTION]).filter(|root| !is_taken(root)).collect();
        let mut literals = BTreeMap::new();
        for field in FIELDS {
            if let Some(node) = file.get(field) {
                collect_literals(node, vec![field.to_owned()], &mut literals);
            }
        }
        let unchanged: &[&str] = match kind {
            "chain" => &["steps"],
            "workflow" => &["tasks"],
            "routing" => &["steps", "chosen_route"],
            "parallel" => &["branches"],
            "orchestrator_workers" => {
                &["workers", "worker_count", "round_count", "reduce_response", "writeup_response"]
            }
            "graph" => &["nodes", "terminal_node", "total_steps"],
            _ => &[],
        };
        let everywhere = ["name", "description", "timestamp", "last_response", "hitl_response"];
        let mut members: BTreeMap<&'static str, String> =
            everywhere.into_iter().chain(unchanged.iter().copied()).map(|name| (name, name.to_owned())).collect();
        if kind == "evaluator_optimizer" {
            for (member, equivalent) in [
                ("history", "iterations"),
                ("iterations", "(iterations | length)"),
                ("final_score", "evaluation.score"),
                ("last_evaluation", "evaluation"),
            ] {
                members.insert(member, equivalent.to_owned());
            }
            for limit in ["min_score", "max_iters"] {
                if let Some(literal) = config.get("accept").and_then(|accept| accept.get(limit)).and_then(literal) {
                    members.insert(limit, literal);
                }
            }
        }
        Self { roots, members, literals }
    }

    /// Returns the equivalent of a path, and the number of the members that it replaces.
    fn equivalent(&self, path: &NamePath) -> Option<(&str, usize)> {
        if path.root == EXECUTION {
            let first = path.members.first().filter(|_| path.members.len() > 1 || !path.calls)?;
            return self.members.get(first.as_str()).map(|now| (now.as_str(), 1));
        }
        let count = path.members.len() - usize::from(path.calls);
        let key: Vec<String> = std::iter::once(&path.root).chain(path.members.iter().take(count)).cloned().collect();
        self.literals.get(&key).map(|literal| (literal.as_str(), count))
    }
}

/// Replaces paths that only the Strands CLI has by their equivalents.
pub(super) fn replace_paths(source: &[Token], names: &Names, found: &mut UnresolvedNames) -> Vec<Token> {
    let is_cli_root = |token: &Token| names.context.roots.iter().any(|root| token.is_name(root));
    if !source.iter().any(is_cli_root) {
        return source.to_vec();
    }
    let vars = template_vars(source, names);
    let walk = TokenWalk { source, names, vars: &vars };
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(token) = source.get(at) {
        let name = token.text();
        if !is_cli_root(token) || !walk.is_root(at, name) || walk.var_source(at, name).is_some() {
            out.push(token.clone());
            at += 1;
            continue;
        }
        let path = walk.path(at);
        match names.context.equivalent(&path) {
            Some((now, members)) => {
                out.extend(tokens::parse_expression(now));
                at = after_members(source, at + 1, members);
            }
            None => {
                let count = path.members.len() - usize::from(path.calls);
                found.missing.insert(render_path(&path.root, path.members.get(..count).unwrap_or_default()));
                let is_looped_over = walk.before(at).is_some_and(|(_, token)| token.is_name("in"));
                out.extend(tokens::parse_expression(if is_looped_over { "[]" } else { "''" }));
                at = walk.end_of_operand(path.end);
            }
        }
    }
    out
}

/// Returns the position of the token after the given number of members. `from`: the position of the first member.
fn after_members(source: &[Token], from: usize, members: usize) -> usize {
    (0..members).fold(from, |at, _| at + if source.get(at).is_some_and(|token| token.is_sign("[")) { 3 } else { 2 })
}

/// Collects every single value of a node by its path.
fn collect_literals(node: &Node, path: Vec<String>, literals: &mut BTreeMap<Vec<String>, String>) {
    for (key, value) in node.fields() {
        let path = [path.as_slice(), std::slice::from_ref(&key.name)].concat();
        collect_literals(value, path.clone(), literals);
        if let Some(literal) = literal(value) {
            literals.insert(path, literal);
        }
    }
}

/// Renders a text as a literal of a template.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}

/// Renders a single value as a literal of a template.
fn literal(node: &Node) -> Option<String> {
    match &node.value {
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Text(text) => Some(quoted(text)),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}
