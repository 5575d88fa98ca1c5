//! The codes of refusals: the title of each, and the page that has its section.

use signoff_api::Code;

/// The page of the codes, from the repository's root.
const PAGE: &str = "docs/reference/codes.md";

/// The kind of these names and the first and last of them, for a list of everything that can be explained.
pub const REFUSALS: (&str, &str) = ("code of a refusal", "SO0001 to SO0307, as programs and pages print them");

/// Returns the title of a code and where its section is, or `None` if this is the name of no code.
pub(super) fn explain(name: &str) -> Option<String> {
    let code = Code::parse(name)?;
    let (sort, title) = (REFUSALS.0, code.title());
    let link = [PAGE, &anchor(&format!("{code} {title}"))].join("#");
    Some(format!("{code} ({sort})\n  {title}.\n  The reason and the remedy: {link}\n"))
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ').collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_explained_by_its_title_and_its_section() {
        let expected = "SO0007 (code of a refusal)\n  The requester must not decide.\n  \
            The reason and the remedy: docs/reference/codes.md#so0007-the-requester-must-not-decide\n";
        assert_eq!(explain("so0007").as_deref(), Some(expected));
        assert_eq!(explain("SO9999"), None);
    }

    #[test]
    fn the_list_of_everything_names_the_first_and_the_last_code() {
        let all: Vec<String> = Code::all().map(|code| code.to_string()).collect();
        let ends: Vec<&str> = all.first().into_iter().chain(all.last()).map(String::as_str).collect();
        assert!(REFUSALS.1.starts_with(&ends.join(" to ")), "{ends:?}");
    }
}
