//! Regular expressions of authors, with limits.
//!
//! Matching takes time linear in the text for every pattern, and at most linear in the states of the pattern. The size,
//! the nesting and the compiled size of a pattern are limited.

use regex_syntax::hir::{Class, Hir, HirKind};

use super::{re2, text};

/// The maximum length of a pattern, in characters.
pub const MAX_PATTERN: usize = 256;
/// The maximum compiled size of a pattern, and the maximum memory of its matching, in bytes.
const MAX_COMPILED: usize = 1 << 18;
/// The maximum nesting of groups.
const MAX_NESTING: u32 = 16;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    regex: regex::Regex,
    states: usize,
}

impl Pattern {
    /// Compiles a literal pattern. Unlike in [`Self::compile`], the error names the pattern and the construct that RE2
    /// does not read or reads differently.
    ///
    /// # Errors
    /// The problem and the remedy, for the author of the pattern.
    pub(super) fn compile_literal(pattern: &str) -> Result<Self, String> {
        if pattern.chars().count() <= MAX_PATTERN {
            re2::read(pattern).map_err(|why| format!("the pattern {} {why}", text::display(pattern, 120)))?;
        }
        Ok(Self::compile(pattern)?)
    }

    /// Compiles a pattern.
    ///
    /// # Errors
    /// The problem without the pattern, which can contain a secret value.
    pub(super) fn compile(pattern: &str) -> Result<Self, &'static str> {
        if pattern.chars().count() > MAX_PATTERN {
            return Err("the pattern is longer than 256 characters");
        }
        let read = re2::read(pattern).map_err(|_| "the pattern is not a regular expression (RE2)")?;
        let regex = regex::RegexBuilder::new(&read)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .nest_limit(MAX_NESTING)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => "the pattern is too large once compiled; use smaller repetitions",
                _ => "the pattern nests deeper than 16 levels; use fewer groups",
            })?;
        Ok(Self { regex, states: states(&read) })
    }

    /// Returns the charge, in bytes, for matching a text of `bytes` bytes.
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

/// Returns the maximum number of states of a pattern that are active for one character, with repetitions expanded.
/// Returns `usize::MAX` for a text that is not a regular expression.
#[must_use]
pub fn states(pattern: &str) -> usize {
    regex_syntax::Parser::new().parse(pattern).map_or(usize::MAX, |hir| count_states(&hir))
}

fn count_states(hir: &Hir) -> usize {
    let sum = |parts: &[Hir]| parts.iter().fold(1_usize, |sum, part| sum.saturating_add(count_states(part)));
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        // A character outside of ASCII has up to four bytes, with a state for each.
        HirKind::Class(Class::Unicode(class)) if !class.is_ascii() => 4,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let maximum = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            count_states(&repetition.sub)
                .saturating_add(1)
                .saturating_mul(usize::try_from(maximum).unwrap_or(usize::MAX))
        }
        HirKind::Capture(capture) => count_states(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_a_pattern_count_its_repetitions() {
        for (pattern, minimum, maximum) in [
            ("abc", 3, 3),
            ("a{10}", 10, 20),
            ("(?:a{10}){10}", 100, 300),
            (r"(?:\pL{50}){10}", 2000, 4000),
            ("(", usize::MAX, usize::MAX),
        ] {
            let states = states(pattern);
            assert!((minimum..=maximum).contains(&states), "{pattern}: {states}");
        }
    }
}
