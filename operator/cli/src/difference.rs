//! The difference between a shown text and its edited version, by lines.

use similar::TextDiff;

/// Returns the changed lines, with three unchanged lines before and after each change.
#[must_use]
pub fn lines(before: &str, after: &str) -> String {
    TextDiff::from_lines(before, after).unified_diff().context_radius(3).header("shown", "yours").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_changed_lines_and_their_context() {
        let shown = lines("{\n  \"amount\": 420\n}\n", "{\n  \"amount\": 42\n}\n");
        assert_eq!(shown, "--- shown\n+++ yours\n@@ -1,3 +1,3 @@\n {\n-  \"amount\": 420\n+  \"amount\": 42\n }\n");
    }
}
