//! Regular expressions written by others, bounded.
//!
//! Matching takes time linear in the text whatever the pattern, and at most linear in the states of the pattern. A
//! pattern must not be large, deep, or grow when it is compiled.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Characters of a pattern.
pub const MAX_PATTERN: usize = 256;
/// Bytes a pattern may compile to, and those its matching may use besides.
const MAX_COMPILED: usize = 1 << 18;
/// Groups within each other.
const MAX_NESTING: u32 = 16;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    regex: regex::Regex,
    states: usize,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Why there is none, in words for its author.
    pub(super) fn compile(pattern: &str) -> Result<Self, &'static str> {
        const NONE: &str = "the pattern is not a regular expression (RE2 syntax)";
        if pattern.chars().count() > MAX_PATTERN {
            return Err("the pattern is longer than 256 characters");
        }
        let regex = regex::RegexBuilder::new(pattern)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .nest_limit(MAX_NESTING)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => "the pattern is too large once compiled; use smaller repetitions",
                _ => NONE,
            })?;
        Ok(Self { regex, states: states(pattern).ok_or(NONE)? })
    }

    /// Bytes to charge for matching a text of `bytes`.
    pub(super) fn cost(&self, bytes: usize) -> usize {
        bytes.saturating_mul(1 + self.states / 8)
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    pub(super) fn find<'t>(&self, text: &'t str) -> Option<regex::Match<'t>> {
        self.regex.find(text)
    }
}

/// Returns the most states of a pattern that one character of a text keeps busy, repetitions expanded; `None` for what is no
/// regular expression.
#[must_use]
pub fn states(pattern: &str) -> Option<usize> {
    regex_syntax::Parser::new().parse(pattern).ok().map(|hir| hir_states(&hir))
}

fn hir_states(hir: &Hir) -> usize {
    let sum = |parts: &[Hir]| parts.iter().fold(1_usize, |sum, part| sum.saturating_add(hir_states(part)));
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        // A character outside ASCII is up to four bytes, with a state each.
        HirKind::Class(Class::Unicode(class)) if !class.is_ascii() => 4,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            hir_states(&repetition.sub).saturating_add(1).saturating_mul(usize::try_from(most).unwrap_or(usize::MAX))
        }
        HirKind::Capture(capture) => hir_states(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_a_pattern_count_its_repetitions() {
        for (pattern, least, most) in [
            ("abc", 3, 3),
            ("a{10}", 10, 20),
            ("(?:a{10}){10}", 100, 300),
            (r"(?:\pL{50}){10}", 2000, 4000),
            ("(", 0, 0),
        ] {
            let states = states(pattern).unwrap_or(0);
            assert!((least..=most).contains(&states), "{pattern}: {states}");
        }
    }
}
