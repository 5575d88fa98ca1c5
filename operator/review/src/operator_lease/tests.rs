//! Tests of the state by one reading of a Lease, and by two.
#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};

use super::*;

const UID: &str = "6f1c3e5a-0000-4000-8000-000000000001";

/// Returns a reading of a Lease at this second after 10:00.
fn reading(second: u8, spec: Value) -> Option<Reading> {
    let now = parse_date_header(&format!("Sun, 22 Nov 2026 10:00:{second:02} GMT")).unwrap();
    let lease = json!({"metadata": {"name": "signoff-operator"}, "spec": spec});
    Reading::new(&serde_json::from_value(lease).unwrap(), now, Duration::from_secs(15))
}

/// Returns the spec of a Lease that was renewed at this time by the clock of its holder.
fn spec_renewed_at(renewed: &str) -> Value {
    json!({"holderIdentity": format!("{UID}_1795558734402508"), "leaseDurationSeconds": 15, "renewTime": renewed})
}

#[test]
fn a_lease_is_stale_when_it_was_not_renewed_for_its_duration() {
    let judged = |at: &str| reading(42, spec_renewed_at(at)).unwrap().judge();
    let alive = judged("2026-11-22T10:00:39.000000Z");
    assert!(!alive.is_gone());
    assert_eq!(alive.to_string(), format!("the operator in the Pod with the UID {UID} renewed its Lease 3 s ago"));
    let stale = judged("2026-11-22T10:00:00.000000Z");
    assert!(stale.is_gone());
    let words = "no operator has renewed its Lease for 42 s (the last was";
    assert_eq!(stale.to_string(), format!("{words} in the Pod with the UID {UID})"));
    // The clock of this holder is ahead.
    assert!(!judged("2026-11-22T10:00:50.000000Z").is_gone());
}

#[test]
fn a_lease_is_stale_only_if_it_was_not_renewed_between_two_readings() {
    let reading_at = |second, at: &str| reading(second, spec_renewed_at(at)).unwrap();
    let first = reading_at(42, "2026-11-22T10:00:00.000000Z");
    assert_eq!(first.pause(), Duration::from_secs(6), "a third of 15 s, and one");

    let gone = first.judge_again(&reading_at(48, "2026-11-22T10:00:00.000000Z"));
    assert!(gone.is_gone());
    assert!(gone.to_string().starts_with("no operator has renewed its Lease for 48 s"), "{gone}");

    // An older operator, whose clock is 40 s behind: a renewal at 10:00:45 has the time 10:00:05.
    let behind = first.judge_again(&reading_at(48, "2026-11-22T10:00:05.000000Z"));
    assert!(!behind.is_gone());
    let words = "the clock of its machine is 37 s behind that of the API server: correct it";
    assert!(behind.to_string().contains(words), "{behind}");

    // Another operator has started.
    let started = first.judge_again(&reading_at(48, "2026-11-22T10:00:46.000000Z"));
    assert!(started.to_string().ends_with("renewed its Lease 2 s ago"), "{started}");
    // It was released in between.
    let released = reading(48, json!({"leaseDurationSeconds": 1, "renewTime": "2026-11-22T10:00:05.000000Z"})).unwrap();
    assert!(first.judge_again(&released).is_gone());
}

#[test]
fn a_wrong_clock_of_the_operators_machine_is_reported_in_both_directions() {
    for (machine, words) in [
        ("2026-11-23T11:00:40Z", "the clock of its machine is 25h ahead of that of the API server"),
        ("2026-11-22T09:50:40Z", "the clock of its machine is 10m behind that of the API server"),
        ("2026-11-22T10:00:46Z", "the clock of its machine is 6 s ahead of that of the API server"),
        ("2026-11-22T10:00:44.9Z", ""),
        ("2026-11-22T10:00:35.1Z", ""),
        ("soon", ""),
    ] {
        let now = parse_date_header("Sun, 22 Nov 2026 10:00:42 GMT").unwrap();
        let lease = json!({
            "metadata": {"name": "signoff-operator", "annotations": {"signoff.dev/machine-clock": machine}},
            "spec": spec_renewed_at("2026-11-22T10:00:40.000000Z"),
        });
        let lease = serde_json::from_value(lease).unwrap();
        let state = Reading::new(&lease, now, Duration::from_secs(15)).unwrap().judge();
        assert!(!state.is_gone());
        assert_eq!(state.has_wrong_clock(), !words.is_empty(), "{machine}: {state}");
        assert!(state.to_string().contains(words), "{machine}: {state}");
    }
}

#[test]
fn the_pause_between_two_readings_is_bounded() {
    let spec =
        json!({"holderIdentity": "x", "leaseDurationSeconds": i32::MAX, "renewTime": "2026-11-22T10:00:00.000000Z"});
    assert_eq!(reading(0, spec).unwrap().pause(), LONGEST_PAUSE);
}

#[test]
fn a_lease_that_was_released_is_stale_at_once() {
    let released = json!({"leaseDurationSeconds": 1, "renewTime": "2026-11-22T10:00:42.000000Z"});
    let released = reading(42, released).unwrap().judge();
    assert!(released.is_gone());
    assert_eq!(released.to_string(), "no operator holds the Lease for 0 s (the last one released it)");
}

#[test]
fn a_lease_that_was_never_taken_is_absent() {
    assert_eq!(reading(42, json!({})), None);
    let absent = OperatorState::Absent { namespace: "signoff-system".into() };
    assert!(absent.is_gone());
    assert_eq!(absent.to_string(), "no operator has taken the Lease signoff-system/signoff-operator");
}

#[test]
fn a_holder_is_named_by_its_pod_where_that_is_listed() {
    let pod = |uid: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "signoff-operator-x2x7k", "uid": uid}})).unwrap()
    };
    let state = reading(42, spec_renewed_at("2026-11-22T10:00:00.000000Z")).unwrap().judge();
    let words = "no operator has renewed its Lease for 42 s (the last was";
    let named = state.clone().with_pod(&[pod("another"), pod(UID)]).to_string();
    assert_eq!(named, format!("{words} signoff-operator-x2x7k)"));
    let other = state.with_pod(&[pod("another")]).to_string();
    assert_eq!(other, format!("{words} in the Pod with the UID {UID})"));
}

#[test]
fn the_name_of_a_holder_cannot_move_the_cursor() {
    for identity in ["\u{1b}[2Jx", "\u{1b}[2Jx_42"] {
        let spec = json!({"holderIdentity": identity, "renewTime": "2026-11-22T10:00:42.000000Z"});
        let alive = reading(42, spec).unwrap().judge().to_string();
        assert_eq!(alive, "the operator [2Jx renewed its Lease 0 s ago");
    }
}
