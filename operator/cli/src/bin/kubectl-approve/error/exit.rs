//! The exit codes of `kubectl approve`, as its help and the documentation list them.
//!
//! [`crate::error::Failure::code`] chooses the code.

/// All codes with their meanings, ascending. Scripts rely on the numbers, so no number ever gets another meaning.
pub const CODES: [(u8, &str); 6] = [
    (0, "success"),
    (1, "the API server refused it, the confirmation was declined, or the command failed"),
    (2, "the command line is invalid"),
    (3, "there is no such object"),
    (4, "there was no outcome when --wait ended"),
    (5, "the gate was not decided as the decision says, or the decision does not count"),
];

/// Returns the table at the end of `kubectl approve --help`.
pub fn table() -> String {
    CODES.iter().fold("Exit codes:\n".to_owned(), |text, (code, meaning)| text + &format!("  {code:>2}  {meaning}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;

    #[test]
    fn the_documentation_has_the_same_table() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/exit-codes.md"));
        let (_, section) = page.split_once("\n## `kubectl approve`\n").unwrap_or_default();
        let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        assert_eq!(rows, CODES.map(|(code, meaning)| format!("| {code} | {meaning} |")));
    }

    #[test]
    fn every_failure_has_a_code_of_the_table() {
        let text = || "x".to_owned();
        let all = [
            Failure::Refused(text()),
            Failure::refused(text(), Some(signoff_api::Code::TOO_LATE)),
            Failure::NotFound(text()),
            Failure::Usage(text()),
            Failure::Declined,
            Failure::Unchanged,
            Failure::Unguarded,
            Failure::NotDecided,
            Failure::DecidedOtherwise,
            Failure::Several { failed: 1, of: 2, code: 3 },
            Failure::Other(text()),
        ];
        for failure in all {
            assert!(CODES.iter().any(|(code, _)| *code == failure.code()), "{failure}");
            let message = failure.to_string();
            let is_own = matches!(failure, Failure::Declined | Failure::Unchanged);
            assert!(is_own || message.starts_with("error: ") || message.starts_with("refused: "), "{message}");
        }
    }
}
