//! What a field or a word means, for whoever met it in a file, a status or a message.
//!
//! It must not look at any object: it knows only what is true of all of them.

mod field;
mod terms;

pub use terms::{TERMS, Term};

use signoff_expr::nearest;

/// What a field (`workflow.spec.steps.hitl.timeout`, also from its middle on: `hitl.timeout`) or a word
/// (`Superseded`) means.
///
/// # Errors
/// Nothing is called so: the nearest name there is.
pub fn explain(name: &str) -> Result<String, String> {
    let name = name.trim();
    let one = name.strip_suffix('s').unwrap_or(name);
    let is_it = |term: &&Term| [name, one].iter().any(|name| term.word.eq_ignore_ascii_case(name));
    let found: Vec<&Term> = TERMS.iter().filter(is_it).collect();
    if !found.is_empty() {
        return Ok(found.iter().map(|term| format!("{} ({})\n  {}\n", term.word, term.sort, term.text)).collect());
    }
    let as_field = field::explain(name);
    match (as_field, nearest(name, TERMS.iter().map(|term| term.word))) {
        (Ok(page), _) => Ok(page),
        (Err(_), Some(near)) if !name.contains('.') => Err(format!("unknown term {name}: did you mean {near}?")),
        (Err(why), _) => Err(why),
    }
}

#[cfg(test)]
mod tests;
