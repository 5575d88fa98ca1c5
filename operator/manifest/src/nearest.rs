//! The nearest known word to one that was typed.
//!
//! It may not guess across words that merely sound alike: a wrong suggestion is worse than none.

/// The one of the known words that was most likely meant.
pub(crate) fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| word.to_lowercase().replace(['_', '-', ' '], "");
    let typed = plain(typed);
    known
        .map(|word| (strsim::osa_distance(&typed, &plain(word)), word))
        .filter(|(distance, word)| *distance <= (plain(word).chars().count().min(typed.chars().count()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_a_near_word_is_meant() {
        let known = ["contextDisplay", "prompt", "approvers", "form"];
        let near = |typed: &str| nearest(typed, known.into_iter());
        assert_eq!(near("context_display"), Some("contextDisplay"));
        assert_eq!(near("aprovers"), Some("approvers"));
        assert_eq!(near("frm"), Some("form"));
        assert_eq!(near("timeout"), None);
    }
}
