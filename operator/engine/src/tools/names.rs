//! The names of tools: the built-in ones, and the names on the wire.
//!
//! Providers accept names of `[A-Za-z0-9_-]{1,64}`. YAML, gates and people use the name of the Workflow.
//!
//! **Invariant:** a name on the wire depends on the tool's name alone. [`collisions`] is checked before the first turn.

use std::collections::BTreeMap;

use signoff_api::Digest;

/// The built-in tool by which an agent asks a person.
pub(crate) const ASK_HUMAN: &str = "ask-human";

/// The name of the built-in tool with the arguments of the generic human-in-the-loop tool.
pub(crate) const REQUEST: &str = "human_intervention.request";

/// The name of the built-in tool with the arguments of the Strands SDK.
pub(crate) const HANDOFF: &str = "handoff_to_user";

/// The names of the built-in tool.
pub(crate) const BUILT_IN: [&str; 3] = [ASK_HUMAN, REQUEST, HANDOFF];

/// The maximum number of characters of a name on the wire.
const MAX_WIRE_CHARS: usize = 64;

/// The number of hex digits of the digest at the end of a shortened name.
const HASH_DIGITS: usize = 16;

/// Whether a name is one of the three names of the built-in tool.
#[must_use]
pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.contains(&name)
}

/// Whether a name is reserved, because a model could confuse a tool of that name with a built-in tool.
pub(crate) fn is_reserved(name: &str) -> bool {
    let wired = wire(name);
    BUILT_IN.iter().any(|built_in| wire(built_in) == wired)
}

/// Returns the name that is sent to providers.
pub(crate) fn wire(name: &str) -> String {
    let mut wired = String::new();
    for c in name.chars() {
        match c {
            '.' => wired.push_str("__"),
            c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') => wired.push(c),
            _ => wired.push('_'),
        }
    }
    if wired.is_empty() {
        wired.push('_');
    }
    if wired.len() > MAX_WIRE_CHARS {
        // The digest covers the whole name, so that long names with the same beginning stay different.
        wired.truncate(MAX_WIRE_CHARS - 1 - HASH_DIGITS);
        wired.push('_');
        wired.push_str(Digest::of_bytes(name.as_bytes()).short(HASH_DIGITS));
    }
    wired
}

/// Returns the pairs of different names with the same name on the wire. Each pair has the first such name and another.
pub(crate) fn collisions<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<(String, String)> {
    let mut by_wire: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        let alike = by_wire.entry(wire(name)).or_default();
        if !alike.contains(&name) {
            alike.push(name);
        }
    }
    let pairs = by_wire.values().filter_map(|alike| alike.split_first());
    pairs.flat_map(|(first, rest)| rest.iter().map(|other| ((*first).to_owned(), (*other).to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_name_has_only_characters_that_providers_accept() {
        for (name, expected) in [
            ("search", "search"),
            ("send-letter_2", "send-letter_2"),
            ("crm.refund", "crm__refund"),
            ("a.b.c", "a__b__c"),
            ("ask-human", "ask-human"),
            ("human_intervention.request", "human_intervention__request"),
            ("handoff_to_user", "handoff_to_user"),
            ("größe/€ 1", "gr__e___1"),
            ("a\u{0}\u{202e}b", "a__b"),
            ("", "_"),
        ] {
            assert_eq!(wire(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_with_a_hash_and_stays_different() {
        let most = "x".repeat(64);
        assert_eq!(wire(&most), most);
        let (one, two) = ("x".repeat(65), "x".repeat(66));
        for name in [&one, &two, &"é.".repeat(5000)] {
            let wired = wire(name);
            assert_eq!(wired.len(), 64, "{wired}");
            assert!(wired.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')), "{wired}");
        }
        assert_ne!(wire(&one), wire(&two));
        assert_eq!(collisions([one.as_str(), two.as_str()]), []);
        // A name with 33 dots is 66 characters on the wire.
        assert_eq!(wire(&".".repeat(33)).len(), 64);
    }

    #[test]
    fn different_names_with_the_same_wire_name_collide() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        for (names, expected) in [
            (vec!["a", "b", "a.b", "a-b", "A"], vec![]),
            (vec!["a", "a"], vec![]),
            (vec!["a.b", "a__b"], vec![pair("a.b", "a__b")]),
            (vec!["a__b", "c", "a.b", "a/.b"], vec![pair("a__b", "a.b")]),
            (vec!["a b", "a/b", "a_b", "a/b"], vec![pair("a b", "a/b"), pair("a b", "a_b")]),
        ] {
            assert_eq!(collisions(names.iter().copied()), expected, "{names:?}");
        }
    }

    #[test]
    fn built_in_names_are_exact_and_reserved_on_the_wire_too() {
        for (name, built_in, reserved) in [
            ("ask-human", true, true),
            ("human_intervention.request", true, true),
            ("handoff_to_user", true, true),
            ("human_intervention__request", false, true),
            ("human_intervention  request", false, true),
            ("Ask-Human", false, false),
            ("ask_human", false, false),
            ("search", false, false),
        ] {
            assert_eq!((is_built_in(name), is_reserved(name)), (built_in, reserved), "{name}");
        }
    }
}
