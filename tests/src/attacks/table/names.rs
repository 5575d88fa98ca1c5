//! Names that a careless comparison, pointer, header or map key would break on.

use serde_json::{Value, json};

use crate::attacks::Actor::{Approver, Named, Unlisted};
use crate::attacks::{CHANGES, Row, Way, approve, group, own, user};

const NOT_LISTED: &str = "is not an approver of this gate";
const NOT_ONES_OWN: &str = "you may record a decision only under your own user name";

/// Names that look like a listed name to a person or to a careless program: the attempt, the name, the listed name.
const LOOK_ALIKES: [(&str, &str, &str); 9] = [
    ("looks like the approver, with a Cyrillic letter,", "\u{430}lice@example.com", "alice@example.com"),
    ("is the approver with a capital", "Alice@example.com", "alice@example.com"),
    ("is the approver with a zero-width space", "alice\u{200b}@example.com", "alice@example.com"),
    ("is the approver read backwards by an override", "alice\u{202e}@example.com", "alice@example.com"),
    ("spells the listed name in decomposed letters", "jose\u{301}@example.com", "jos\u{e9}@example.com"),
    ("spells the listed name in composed letters", "jos\u{e9}@example.com", "jose\u{301}@example.com"),
    ("is a listed name as a JSON pointer writes it", "a~1b", "a/b"),
    ("is a listed name as a JSON pointer reads it", "a/b", "a~1b"),
    ("is the listed name in full-width letters", "\u{ff41}lice@example.com", "alice@example.com"),
];

/// Unusual names that belong to real people.
const ODD: [&str; 8] = [
    "oidc:a/b~c@x",
    "a~1b",
    "o\"brien@example.com",
    "CORP\\carl",
    "{\"verdict\":\"Approve\"}",
    "$(id)`'%s",
    "\u{430}\u{43b}\u{438}\u{441}\u{430}@example.com",
    "jose\u{301}@example.com",
];

/// A name of 300 characters, the longest that fits.
const LONG: &str = concat!(
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
    "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz@example.com",
);

fn vote_of_alice(decision: Value) -> Value {
    json!({"spec": {"decisions": {"alice@example.com": decision}}})
}

pub(super) fn rows() -> Vec<Row> {
    let look_alikes = LOOK_ALIKES.into_iter().map(|(what, attacker, listed)| {
        Row::new(what, [Named(attacker)], CHANGES, own(approve()))
            .with_request(json!({"approvers": [user(listed)]}))
            .refused(NOT_LISTED)
            .honest("the vote of whom the gate lists", own(approve()))
            .by(Named(listed))
    });
    let odd = ODD.into_iter().map(|name| {
        Row::new("votes as another", [Named(name)], CHANGES, vote_of_alice(approve()))
            .with_request(json!({"approvers": [user(name), user("alice@example.com")]}))
            .refused(NOT_ONES_OWN)
            .honest("a vote under that very name", own(approve()))
    });
    let mut rows: Vec<_> = look_alikes.chain(odd).collect();
    rows.extend([
        Row::new(
            "votes under all but the last of its characters",
            [Named(LONG)],
            CHANGES,
            json!({
                "spec": {"decisions": {&LONG[..LONG.len() - 1]: approve()}},
            }),
        )
        .with_request(json!({"approvers": [group("finance")]}))
        .refused(NOT_ONES_OWN)
        .honest("a vote under all of them", own(approve())),
        Row::new(
            "votes, a name that says it speaks for somebody,",
            [Named("eve via mallory"), Named("alice@example.com via bob@example.com")],
            CHANGES,
            own(approve()),
        )
        .with_request(json!({"approvers": [group("finance")]}))
        .refused(NOT_ONES_OWN)
        .honest("the vote of a name that does not", own(approve()))
        .by(Unlisted),
        Row::new(
            "votes for the person in its name",
            [Named("alice@example.com via bob@example.com")],
            CHANGES,
            own(json!({"verdict": "Approve", "onBehalfOf": "alice@example.com"})),
        )
        .with_request(json!({"approvers": [group("finance"), user("alice@example.com")]}))
        .refused(NOT_ONES_OWN)
        .honest("that person's own vote", own(approve()))
        .by(Approver),
        Row::new(
            "votes under no name at all",
            [Approver],
            [Way::Merge, Way::Json, Way::Replace],
            json!({"spec": {"decisions": {"": approve()}}}),
        )
        .refused(NOT_ONES_OWN)
        .honest("a vote under their own", own(approve())),
        Row::new("votes as the administrator of k3s", [Named("system:admin")], CHANGES, own(approve()))
            .refused("no gate lists users of system:, so decide as a user whom it lists")
            .honest("the vote of whom the gate lists", own(approve()))
            .by(Approver),
        Row::new("takes an asterisk in the list for everybody", [Unlisted], CHANGES, own(approve()))
            .with_request(json!({"approvers": [user("*"), user(".*"), group("*"), user("alice@example.com")]}))
            .refused(NOT_LISTED)
            .honest("the vote of whom the gate lists", own(approve()))
            .by(Approver),
    ]);
    rows
}
