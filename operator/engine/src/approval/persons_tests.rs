#![allow(clippy::unwrap_used)]
//! Tests of the mapping of user names to persons.

use serde_json::json;
use signoff_api::gate::PersonRule;

use super::{Persons, ambiguity};

fn persons(rules: &[(&str, &str)]) -> Persons {
    let rules: Vec<_> =
        rules.iter().map(|&(pattern, person)| PersonRule { pattern: pattern.into(), person: person.into() }).collect();
    Persons::new(&rules)
}

#[test]
fn a_name_is_a_person_of_its_own_without_rules() {
    let none = persons(&[]);
    assert_eq!(none.voter("alice").as_deref(), Some("alice"));
    assert!(none.is("alice", "alice") && !none.is("alice", "bob"));
}

#[test]
fn the_first_rule_that_matches_the_whole_name_applies() {
    let rules = persons(&[("alice@example[.]com", "Alice"), ("(.+)@example[.]com", "$1"), ("oidc:(.+)", "$1")]);
    assert_eq!(rules.voter("alice@example.com").as_deref(), Some("Alice"));
    assert_eq!(rules.voter("bob@example.com").as_deref(), Some("bob"));
    assert_eq!(rules.voter("oidc:bob").as_deref(), Some("bob"));
    assert_eq!(rules.voter("bob@example.community"), None);
    assert_eq!(rules.voter("bob"), None);
}

#[test]
fn a_listed_name_that_no_rule_matches_stands_for_itself() {
    let rules = persons(&[("oidc:(.+)", "$1@example.com")]);
    assert!(rules.is("dana@example.com", "dana@example.com"));
    assert!(rules.is("dana@example.com", "oidc:dana"));
    assert_eq!(rules.voter("dana@example.com"), None);
}

#[test]
fn an_ambiguous_name_is_no_voter_and_excludes_both_persons() {
    // The API server takes the text around the group, of which `.*` leaves nothing.
    let rules = persons(&[(".*(a|b)", "$1")]);
    assert_eq!(rules.voter("xa"), None);
    assert!(rules.is("a", "xa") && rules.is("", "xa") && !rules.is("b", "xa"));
    let either = persons(&[("x|(.+)y", "$1")]);
    assert_eq!(either.voter("fooy").as_deref(), Some("foo"));
    assert_eq!((either.voter("x"), either.voter("xfooy")), (None, None));
}

#[test]
fn an_invalid_rule_maps_no_name_to_a_person() {
    for pattern in ["(", "(a)?b", "(a)*", "[a&&b]"] {
        let rules = persons(&[("alice", "alice"), (pattern, "$1")]);
        assert_eq!(rules.voter("alice"), None, "{pattern}");
        assert!(rules.is("alice", "alice"));
    }
}

#[test]
fn a_pattern_that_programs_read_differently_is_refused() {
    let why = |pattern: &str, person: &str| {
        let rule = serde_json::from_value(json!({"pattern": pattern, "person": person})).unwrap();
        ambiguity(&rule).is_some()
    };
    for pattern in [
        r"\d+",
        r"a\w",
        "(?i)alice",
        "[a-z&&[^b]]",
        "[[a]b]",
        "[a--b]",
        "a**",
        "a{2}{3}",
        "a{1001}",
        "a{1,2000}",
        "(",
        "[~~]",
    ] {
        assert!(why(pattern, "x"), "{pattern}");
    }
    for pattern in
        [r"(.+)@example\.com", "oidc:[^/]+/([a-z0-9.-]+)", "a+?b{2,3}", "[]x]", "[^]-]", "(alice|bob)", r"a\.b\+c"]
    {
        assert!(!why(pattern, "x"), "{pattern}");
    }
    for person in ["$2", "$0", "${1}", "$1x", "$1_team", "$$1", "a$"] {
        assert!(why("(.+)", person), "{person}");
    }
    assert!(why("(a)?b", "$1"), "the API server cannot read what follows the group");
    assert!(!why("(.+)@example.com", "$1@corp") && !why("(.+)", "$1"));
}

#[test]
fn listed_names_are_mapped_to_distinct_persons() {
    let rules = persons(&[("github:([a-z]+)", "$1@example.com")]);
    let listed = ["github:dana", "github:dana", "erin"].map(str::to_owned);
    assert_eq!(rules.persons_of(&listed), ["dana@example.com", "erin"]);
    assert_eq!(persons(&[]).persons_of(&listed), ["erin", "github:dana"]);
}
