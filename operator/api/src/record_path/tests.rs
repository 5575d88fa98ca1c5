//! Tests of paths: their laws over texts of any form and over paths of the grammar, and the paths of recorded runs.

#![allow(clippy::unwrap_used)]
use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*};
use serde_json::Value;

use super::*;

fn path(text: &str) -> RecordPath<'_> {
    RecordPath::new(text)
}

/// The names of a grammatical path.
fn name() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(&PARTS[..]).prop_map(str::to_owned);
    let numbered = |part: &'static str, first: u32| (first..300).prop_map(move |number| format!("{part}-{number}"));
    let given = proptest::sample::select(&["draft", "send-refund", "a", "step-2", "7", "call-1"][..]);
    prop_oneof![
        3 => given.prop_map(str::to_owned),
        2 => part,
        2 => numbered(TURN, 1),
        3 => numbered(CALL, 1),
        1 => numbered(ASK, 2),
        1 => numbered(WORKER, 0),
    ]
}

fn segment() -> impl Strategy<Value = String> {
    (name(), prop_oneof![3 => Just(1), 1 => 2..1001]).prop_map(|(name, visit)| match visit {
        1 => name,
        visit => format!("{name}#{visit}"),
    })
}

fn grammatical() -> impl Strategy<Value = String> {
    vec(segment(), 1..7).prop_map(|segments| segments.join("/"))
}

/// Texts that are nearly paths, and others.
fn any_text() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(
        &["/", "#", ".", "-", ".call-", ".turn-", "a", "0", "01", "2", "+2", "-1", "4294967296", "é", " ", "\n", "\0"]
            [..],
    );
    prop_oneof![vec(piece, 0..14).prop_map(|pieces| pieces.concat()), ".{0,24}", grammatical()]
}

proptest! {
    #[test]
    fn every_text_is_a_path_that_keeps_its_text(text in any_text()) {
        let path = path(&text);
        prop_assert_eq!(path.as_str(), &text);
        prop_assert_eq!(path.to_string(), text.clone());
        prop_assert_eq!(path.to_buf().into_string(), text.clone());
        let segments: Vec<_> = path.segments().map(PathSegment::as_str).collect();
        prop_assert_eq!(segments.join("/"), text.clone());
        prop_assert_eq!(Some(path.last().as_str()), segments.last().copied());
        prop_assert_eq!(path.ancestors().count(), segments.len());
        for segment in path.segments() {
            prop_assert_eq!(segment.is_call(), matches!(segment.kind(), SegmentKind::Call(_)));
            prop_assert_eq!(segment.is_turn(), matches!(segment.kind(), SegmentKind::Turn(_)));
            prop_assert_eq!(segment.is_ask(), matches!(segment.kind(), SegmentKind::Ask(_)));
            prop_assert!(segment.as_str().starts_with(segment.name()) && segment.name().starts_with(segment.unnumbered()));
        }
        for shorter in [path.without_visits(), path.place(), path.without_last_visit().to_buf(), path.before_visits().to_buf()] {
            prop_assert!(shorter.len() <= text.len());
        }
        prop_assert!(path.call_around().is_none_or(|call| text.starts_with(call.turn.as_str()) && call.number > 0));
        prop_assert!(path.visit_before().is_none_or(|before| text.contains('#') && before.path().parent() == path.parent()));
        prop_assert!(text.starts_with(path.step_of_answer().as_str()));
        prop_assert!(path.place_of_tool().is_none_or(|place| text.ends_with(place.as_str())));
        prop_assert!(path.agents_around().all(|agent| text.starts_with(agent.as_str())));
    }

    #[test]
    fn a_path_is_its_parent_with_its_last_segment(text in any_text()) {
        let path = path(&text);
        if let Some(parent) = path.parent() {
            prop_assert_eq!(parent.child(path.last().as_str()).into_string(), text.clone());
            prop_assert_eq!(path.sibling("b").into_string(), parent.child("b").into_string());
            prop_assert!(path.is_within(parent.as_str()));
            prop_assert_eq!(path.beneath(parent.as_str()).map(RecordPath::as_str), Some(path.last().as_str()));
        }
        prop_assert!(path.is_within("") && path.is_within(&text));
    }

    #[test]
    fn each_segment_of_the_grammar_is_known(text in grammatical()) {
        for segment in path(&text).segments() {
            prop_assert_ne!(segment.kind(), SegmentKind::Other, "{}", segment.as_str());
            prop_assert_eq!(segment.is_part(), segment.kind() != SegmentKind::Step);
        }
    }

    #[test]
    fn a_built_path_is_read_as_it_was_built(text in grammatical(), number in 1u32..300, visit in 2i32..2000) {
        let agent = path(&text);
        let turn = agent.turn(number);
        prop_assert_eq!(turn.path().agent_of_turn(), Some((agent, number)));
        prop_assert_eq!(turn.path().agents_around().last(), Some(agent));
        let call = turn.path().call_at(usize::try_from(number).unwrap());
        let place = CallPlace { turn: turn.path(), number: number + 1 };
        for below in [call.path().gate(), call.path().check(), call.path().error(), call.path().child("pay")] {
            prop_assert_eq!(below.path().call_around(), Some(place));
            prop_assert_eq!(below.path().turn_above(), Some(turn.path()));
            prop_assert!(below.path().is_in_call() && call.path().is_call() && !below.path().is_call());
            let gate = below.path().start();
            prop_assert_eq!(gate.path().call_around(), Some(place));
            prop_assert_eq!(gate.path().call_above(), None);
        }
        let first = agent.without_last_visit();
        let visited = first.at_visit(visit);
        prop_assert_eq!(visited.path().last().visit(), visit);
        prop_assert_eq!(visited.path().without_last_visit(), first);
        prop_assert_eq!(visited.path().visit_before(), Some(first.at_visit(visit - 1)));
        prop_assert_eq!(first.visit_before(), None);
        prop_assert_eq!(visited.path().without_visits(), agent.without_visits());
        prop_assert!(!agent.without_visits().contains('#') && agent.place().segments_are_unnumbered());
    }
}

impl RecordPathBuf {
    fn segments_are_unnumbered(&self) -> bool {
        self.path().segments().all(|segment| segment.name() == segment.unnumbered() && segment.visit() == 1)
    }
}

#[test]
fn the_call_around_a_record_is_the_innermost_one() {
    let around = |text| path(text).call_around().map(|place| (place.turn.as_str(), place.number));
    assert_eq!(around("handle/.turn-2/.call-11/.gate#2"), Some(("handle/.turn-2", 11)));
    assert_eq!(around("handle/.turn-2/.call-1/pay#3/.start"), Some(("handle/.turn-2", 1)));
    let nested = "handle/.turn-2/.call-1/critic/.turn-1#2/.call-3/.gate";
    assert_eq!(around(nested), Some(("handle/.turn-2/.call-1/critic/.turn-1#2", 3)));
    for other in
        ["review", "handle/.call-1/.gate", "handle/.turn-2/.gate", "handle/.turn-2/.call-x/.gate", "", "/", "#"]
    {
        assert_eq!(around(other), None, "{other}");
    }
    let agents: Vec<_> = path(nested).agents_around().map(RecordPath::as_str).collect();
    assert_eq!(agents, ["handle", "handle/.turn-2/.call-1/critic"]);
}

#[test]
fn only_calls_with_a_number_are_calls() {
    for call in ["a/.turn-1/.call-1", "a/.turn-1/.call-256#2", "a/.turn-1/.call-1/pay/.answer"] {
        assert!(path(call).is_in_call(), "{call}");
    }
    for other in
        ["a", "call-1/a", ".call/pay", "a/call-1", "a/.call-", "a/.call-x", "a/.call-01x/b", "a/.call-+1", "a/.calls-1"]
    {
        assert!(!path(other).is_in_call(), "{other}");
    }
}

#[test]
fn the_visit_before_is_of_the_same_place() {
    let before = |text| path(text).visit_before().map(RecordPathBuf::into_string);
    assert_eq!(before("review#3").as_deref(), Some("review#2"));
    assert_eq!(before("loop#2/review#2").as_deref(), Some("loop#2/review"));
    for first in ["review", "loop#2/review", "review#1", "review#0", "review#x", "review#"] {
        assert_eq!(before(first), None, "{first}");
    }
}

#[test]
fn a_place_has_no_visits_and_no_numbers_of_parts() {
    let place = |text| path(text).place().into_string();
    assert_eq!(place(".worker-3#2/.error"), ".worker/.error");
    assert_eq!(place("loop#2/handle/.turn-12/.call-1/send-2#4"), "loop/handle/.turn/.call/send-2");
    assert_eq!(place(".reduce-review#2"), ".reduce-review");
    assert_eq!(
        path("loop#2/handle/.turn-12/.call-1/send-2#4").without_visits().into_string(),
        "loop/handle/.turn-12/.call-1/send-2"
    );
}

#[test]
fn the_step_of_an_answer_is_above_its_turns_and_requests() {
    for (text, step) in [
        ("a/rate/.ask-2", "a/rate"),
        ("rate/.turn-2/.ask-3#2", "rate"),
        ("rate/.turn/.ask", "rate"),
        ("rate/.turn-1/.call-1/critic/.turn-2", "rate/.turn-1/.call-1/critic"),
        ("rate/.answer", "rate/.answer"),
        (".turn-2", ".turn-2"),
    ] {
        assert_eq!(path(text).step_of_answer().as_str(), step, "{text}");
    }
}

#[test]
fn the_step_of_a_tool_has_one_place_in_a_plan() {
    let place = path("handle/.turn-2/.call-1/critic/.turn-1/.call-3/pay#2/.start").place();
    assert_eq!(place.path().place_of_tool().map(RecordPath::as_str), Some(".call/pay/.start"));
    assert_eq!(path("handle/.turn").place_of_tool(), None);
    assert_eq!(path("loop#2/review#3").before_visits().as_str(), "loop");
    assert_eq!(path("loop/review").before_visits().as_str(), "loop/review");
    assert!(path("a/rate/.answer").last().is_answer() && !path("a/.answer/rate").last().is_answer());
    let nested = format!("a{LONGEST_CALL}").replace("/#", "/pay#");
    assert!(path(&nested).segments().all(|segment| segment.kind() != SegmentKind::Other), "{nested}");
    assert_eq!(path(&nested).call_around().unwrap().number as usize, crate::turn::TurnCalls::MAX_CALLS);
}

#[test]
fn a_place_contains_only_paths_below_it() {
    for (text, place, is_within) in [
        ("a", "a", true),
        ("a#2", "a", true),
        ("a/b", "a", true),
        ("ab", "a", false),
        ("a", "a/b", false),
        ("a/b", "a/", true),
        ("a/b", "", true),
    ] {
        assert_eq!(path(text).is_within(place), is_within, "{text} {place}");
    }
}

#[test]
fn each_segment_of_a_recorded_run_is_known_and_each_path_keeps_its_text() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let histories = fs::read_dir(tests.join("sim/histories")).unwrap().map(|entry| entry.unwrap().path());
    let (mut paths, mut calls) = (0, 0);
    for file in histories.chain([tests.join("contract/upgrade/objects.json")]) {
        let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for text in recorded(&value) {
            let path = path(text);
            assert_eq!(path.to_string(), text);
            for segment in path.segments() {
                assert_ne!(segment.kind(), SegmentKind::Other, "{}: {text}", file.display());
            }
            (paths, calls) = (paths + 1, calls + usize::from(path.is_in_call()));
        }
    }
    assert!(paths > 150 && calls > 15, "{paths} paths, {calls} of calls: where are they?");
}

/// Returns the paths of records, gates, reviews, edits and siblings in an object.
fn recorded(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| held(name, value).chain(recorded(value))).collect()
        }
        Value::Array(values) => values.iter().flat_map(recorded).collect(),
        _ => Vec::new(),
    }
}

fn held<'v>(name: &str, value: &'v Value) -> impl Iterator<Item = &'v str> + use<'v> {
    let holds = ["steps", "gate", "reviews", "siblings", "edits"].contains(&name);
    let values: Vec<&Value> = match value {
        Value::Array(values) => values.iter().collect(),
        one => vec![one],
    };
    values.into_iter().filter(move |_| holds).filter_map(|value| value["path"].as_str())
}

#[test]
fn a_catalogue_and_the_step_of_a_tool_of_a_server_have_places_of_their_own() {
    assert_eq!(&*RecordPathBuf::of_catalogue("crm", 1), ".tools/crm");
    assert_eq!(&*RecordPathBuf::of_catalogue("crm", 3), ".tools/crm#3");
    assert_eq!(RecordPath::new(".tools/crm").place_of_tool(), None);
    let place = RecordPath::new("handle/.turn-2/.call-1/crm.refund#2/release-crm").place();
    assert_eq!(place.path().place_of_tool().map(RecordPath::as_str), Some(".call/crm.refund/release-crm"));
    assert!(RecordPath::new("handle/.turn-2/.call-1/crm.refund").is_in_call());
}
