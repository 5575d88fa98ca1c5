//! The names that a template defines itself: variables of its loops, and those of `set`.

use std::ops::Range;

use crate::{names::Names, tokens::Token};

/// A name that a template defines, by a loop or by `set`.
pub(super) struct TemplateVar {
    pub(super) name: String,
    pub(super) source: VarSource,
    /// Whether a loop over every item defines the name, so that `loop.index` is the number of the item.
    pub(super) numbers: bool,
    /// Whether a loop defines the name, and not `set`.
    pub(super) is_loop: bool,
    /// The positions of the tokens in which the name is defined.
    pub(super) within: Range<usize>,
}

/// The values of a name that a template defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VarSource {
    /// An item of `iterations`.
    Iterations,
    /// A node, a task or a branch, or its id.
    Ids,
    /// Any other value.
    Others,
}

/// Returns the names that a template defines: those of a loop until its end, and those of `set` until the end of the
/// template.
pub(super) fn template_vars(source: &[Token], names: &Names) -> Vec<TemplateVar> {
    let mut vars: Vec<TemplateVar> = Vec::new();
    // For each open loop, the range of its names in `vars`.
    let mut open_loops: Vec<Range<usize>> = Vec::new();
    for (position, token) in source.iter().enumerate() {
        if token.is_name("endfor")
            && let Some(of_loop) = open_loops.pop()
        {
            vars[of_loop].iter_mut().for_each(|var| var.within.end = position);
        }
        let is_loop = token.is_name("for");
        if is_loop || token.is_name("set") {
            let first = vars.len();
            vars.extend(defined_vars(source, position, is_loop, names));
            if is_loop {
                open_loops.push(first..vars.len());
            }
        }
    }
    vars
}

/// Returns the names that the `for` or `set` at a position defines, each until the end of the template.
fn defined_vars(source: &[Token], position: usize, is_loop: bool, names: &Names) -> Vec<TemplateVar> {
    let statement = source[position + 1..].iter().take_while(|token| !matches!(token, Token::Mark(_)));
    let statement: Vec<&Token> = statement.filter(|token| !matches!(token, Token::Space(_))).collect();
    let is_target = |token: &&&Token| matches!(token, Token::Name(_)) && !token.is_name("in") || token.is_sign(",");
    let targets = statement.iter().take_while(is_target).count();
    let value = match statement.get(targets + 1) {
        Some(token) if token.is_name("iterations") => VarSource::Iterations,
        Some(token) if is_loop && !names.root.is_empty() && token.is_name(names.root) => VarSource::Ids,
        _ => VarSource::Others,
    };
    let numbers = is_loop && !statement.iter().any(|token| token.is_name("if"));
    let targets = statement[..targets].iter().filter(|token| matches!(token, Token::Name(_)));
    let var = |target: &&Token| TemplateVar {
        name: target.text().to_owned(),
        source: value,
        numbers,
        is_loop,
        within: position..source.len(),
    };
    targets.map(var).collect()
}
