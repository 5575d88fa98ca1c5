//! The known word that is most similar to a mistyped one.
//!
//! Only spelling counts, because a wrong suggestion is worse than none. Comparing words is charged as work. A stopped
//! evaluation has no suggestion.

use super::budget;

/// Returns the known word that `typed` most likely means, or `None` if no word is similar. Case, dashes, underscores
/// and spaces do not count.
#[must_use]
pub fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let normalize = |word: &str| -> Vec<char> {
        word.chars().take(64).filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
    };
    let typed = normalize(typed);
    let similar = known.into_iter().filter_map(|word| {
        let known = normalize(word);
        let shorter = known.len().min(typed.len());
        let edits = count_edits(&typed, &known, (shorter / 3).max(1))?;
        // A word of one letter must keep its letter.
        (edits < shorter.max(1)).then_some((edits, word))
    });
    similar.min_by_key(|(edits, _)| *edits).map(|(_, word)| word)
}

/// Returns the end of a message about an unknown name: `; did you mean x?`, or an empty text without a similar name.
#[must_use]
pub fn did_you_mean<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(typed, known).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

/// Whether `typed` is similar to `name`.
///
/// `my` is similar to `my-step`, because `steps.my-step` is parsed as a subtraction of `step` from `steps.my`.
pub(super) fn is_near(typed: &str, name: &str) -> bool {
    let (typed, name) = (typed.to_lowercase(), name.to_lowercase());
    let typed: Vec<char> = typed.chars().take(64).map(replace_underscore).collect();
    let name: Vec<char> = name.chars().take(64).map(replace_underscore).collect();
    let allowed = if name.len() < 4 { 1 } else { 2 };
    let prefix = !typed.is_empty() && name.starts_with(&typed) && name.get(typed.len()) == Some(&'-');
    prefix || count_edits(&typed, &name, allowed).is_some()
}

fn replace_underscore(c: char) -> char {
    if c == '_' { '-' } else { c }
}

/// Returns the number of edits between two words, or `None` if it is more than `maximum`. Two swapped neighbors count
/// as one.
fn count_edits(a: &[char], b: &[char], maximum: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > maximum {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        budget::charge(b.len()).ok()?;
        // Later rows can only have larger values than these two.
        if row.iter().chain(&before).all(|edits| *edits > maximum) {
            return None;
        }
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (row[j] + usize::from(x != y)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    Some(row[b.len()]).filter(|edits| *edits <= maximum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_word_is_suggested() {
        let known = ["contextDisplay", "prompt", "approvers", "form"];
        let near = |typed: &str| nearest(typed, known);
        assert_eq!(near("context_display"), Some("contextDisplay"));
        assert_eq!(near("aprovers"), Some("approvers"));
        assert_eq!(near("frm"), Some("form"));
        assert_eq!(near("timeout"), None);
        assert_eq!((nearest("t", ["s"]), nearest("T", ["t"])), (None, Some("t")));
        assert_eq!(did_you_mean("promt", known), "; did you mean prompt?");
        assert_eq!(did_you_mean("timeout", known), "");
    }
}
