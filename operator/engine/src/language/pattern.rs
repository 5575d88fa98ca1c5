//! Regular expressions written by others, bounded.
//!
//! Matching takes time linear in the text whatever the pattern. A pattern may not be large, not
//! deep, and not grow when it is compiled.

/// Characters of a pattern.
pub(super) const MAX_PATTERN: usize = 256;
/// Bytes a pattern may compile to, and those its matching may use besides.
const MAX_COMPILED: usize = 1 << 18;
/// Groups within each other.
const MAX_NESTING: u32 = 16;

/// The compiled pattern, or why there is none.
pub(super) fn compile(pattern: &str) -> Result<regex::Regex, &'static str> {
    if pattern.chars().count() > MAX_PATTERN {
        return Err("the pattern is longer than 256 characters");
    }
    regex::RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(MAX_NESTING)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "the pattern is too large once compiled; use smaller repetitions",
            _ => "the pattern is not a regular expression (RE2 syntax)",
        })
}
