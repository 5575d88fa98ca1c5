//! The meaning of a field or a word of a file, a status or a message. The explanation is the same for all objects.

mod classes;
mod field;
mod refusals;
mod terms;

pub use refusals::REFUSALS;
pub use terms::{TERMS, Term};

use signoff_expr::nearest;

use classes::classes;

/// Returns the meaning of a field (`workflow.spec.steps.hitl.timeout`, also from its middle on: `hitl.timeout`), of a
/// word (`Superseded`) or of a code (`SO0007`).
///
/// # Errors
/// The name is unknown; the error has the nearest name.
pub fn explain(name: &str) -> Result<String, String> {
    let name = name.trim();
    if let Some(page) = explain_term(name).or_else(|| refusals::explain(name)) {
        return Ok(page);
    }
    let as_field = field::explain(name);
    // `quorums` is the plural of a term, and `steps` is a field.
    let plural = || explain_term(name.strip_suffix('s')?);
    match (as_field, nearest(name, all_terms().map(|term| term.word))) {
        (Ok(page), _) => Ok(page),
        (Err(why), near) => plural().ok_or_else(|| match near {
            Some(near) if !name.contains('.') => format!("unknown term {name}: did you mean {near}?"),
            _ => why,
        }),
    }
}

/// Returns the words that can be explained, by their kind.
#[must_use]
pub fn topics() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut topics: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for term in all_terms() {
        match topics.iter_mut().find(|(sort, _)| *sort == term.sort) {
            Some((_, words)) if words.contains(&term.word) => {}
            Some((_, words)) => words.push(term.word),
            None => topics.push((term.sort, vec![term.word])),
        }
    }
    topics
}

/// Returns all terms.
fn all_terms() -> impl Iterator<Item = Term> {
    TERMS.iter().copied().chain(classes())
}

/// Returns the meanings of a term, or `None` for another word.
fn explain_term(word: &str) -> Option<String> {
    let found = all_terms().filter(|term| term.word.eq_ignore_ascii_case(word));
    let page: String = found.map(|term| format!("{} ({})\n  {}\n", term.word, term.sort, term.text)).collect();
    (!page.is_empty()).then_some(page)
}

#[cfg(test)]
mod tests;
