//! Globs of names: `*` matches any characters, and a glob matches whole names.

/// Whether a glob, in which `*` matches any characters, matches a whole name.
#[must_use]
pub fn is_like(glob: &str, name: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_means_whole_names() {
        for (glob, name) in
            [("*", ""), ("*", "x"), ("a*", "a"), ("a*c", "abc"), ("*b*", "abc"), ("a*b*c", "a-b-b-c"), ("a", "a")]
        {
            assert!(is_like(glob, name), "{glob} {name}");
        }
        for (glob, name) in [("a", "ab"), ("a*", "ba"), ("a*c", "ab"), ("ab*b", "ab"), ("a*b*c", "acb"), ("", "x")] {
            assert!(!is_like(glob, name), "{glob} {name}");
        }
    }
}
