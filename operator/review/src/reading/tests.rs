//! Each problem of a request, and the request that has none.
#![allow(clippy::unwrap_used, clippy::panic)]
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use signoff_api::Outcome;

use super::*;
use crate::{sample, whole::WholeTextError};

fn seen() -> Seen {
    Seen::of_value(serde_json::to_value(sample::approval()).unwrap()).unwrap()
}

fn condition(type_: &str, status: &str) -> Condition {
    serde_json::from_value(json!({
        "type": type_, "status": status, "reason": "PoliciesDiffer", "message": "signoff-approvals differs",
        "lastTransitionTime": "2026-11-22T10:00:00Z",
    }))
    .unwrap()
}

fn run_with(found: RunFound) -> RunNow {
    RunNow { found, ..RunNow::default() }
}

#[test]
fn a_request_with_its_run_and_the_policies_in_force_is_verified() {
    let (seen, run) = (seen(), sample::run());
    assert!(verify(&seen, &run, Texts::OfRequest).is_ok());
    assert!(verify(&seen, &run, Texts::Whole(&Ok(Whole::default()))).is_ok());
    let guarded =
        RunNow { conditions: vec![condition(GUARDED, "True"), condition("Waiting", "False")], ..sample::run() };
    assert!(verify(&seen, &guarded, Texts::OfRequest).is_ok());
}

#[test]
fn each_part_that_is_not_verified_is_a_problem_of_its_own() {
    for problem in sample::problems() {
        let (seen, run) = sample::read_with(Some(&problem));
        let is_of_text = matches!(problem, Problem::OtherText(_) | Problem::NoText(_) | Problem::TextUnread(_))
            .then(|| problem.clone());
        let whole = is_of_text.map_or_else(|| Ok(Whole::default()), Err);
        assert_eq!(verify(&seen, &run, Texts::Whole(&whole)).unwrap_err(), problem);
    }
    let unasked = verify(&seen(), &RunNow::default(), Texts::OfRequest).map(|_| ()).unwrap_err();
    assert!(matches!(unasked, Problem::RunUnread { .. }), "{unasked}");
}

#[test]
fn the_kind_of_a_problem_of_a_text_is_that_of_its_error() {
    for (error, expected) in [
        (WholeTextError::Nowhere, Problem::NoText as fn(String) -> Problem),
        (WholeTextError::NoRun { what: "the context" }, Problem::NoText),
        (WholeTextError::Mismatch { what: "the context".to_owned(), why: "x".to_owned() }, Problem::OtherText),
    ] {
        let sentence = error.to_string();
        assert_eq!(Problem::from(error), expected(sentence));
    }
}

#[test]
fn a_request_that_has_ended_needs_no_run() {
    let mut ended = sample::approval();
    ended.status.get_or_insert_default().outcome = Some(Outcome::default());
    let ended = Seen::of_value(serde_json::to_value(ended).unwrap()).unwrap();
    assert!(verify(&ended, &run_with(RunFound::Missing), Texts::OfRequest).is_ok());
}

#[test]
fn a_problem_is_a_sentence_and_says_whether_the_request_is_wrong() {
    for problem in sample::problems() {
        let sentence = problem.to_string();
        let is_of_request = problem.heading() == "Do not decide this request.";
        assert_eq!(is_of_request, problem.is_of_request(), "{sentence}");
        assert!(
            !sentence.is_empty() && (is_of_request || problem.heading() == "This request cannot be decided now."),
            "{sentence}"
        );
    }
    assert!(Problem::RunName.is_of_request() && !Problem::Unguarded(String::new()).is_of_request());
}

#[test]
fn a_run_is_missing_only_if_the_api_server_says_so() {
    let answered = |code: u16, name: &str, message: &str| {
        let status = json!({"status": "Failure", "code": code, "message": message, "details": {"name": name}});
        RunNow::answered(Err(kube::Error::Api(serde_json::from_value(status).unwrap()))).found
    };
    assert_eq!(answered(404, "refund-4711", "not found"), RunFound::Missing);
    assert_eq!(answered(404, "", "no such kind"), RunFound::Unread("no such kind".to_owned()));
    let refused = "workflows.signoff.dev \"x\" is forbidden: User \"bob\" cannot get resource \"workflows\" in API group \"signoff.dev\" in the namespace \"finance\"";
    let RunFound::Unread(why) = answered(403, "x", refused) else { panic!("it was not read") };
    assert!(why.ends_with("; the ClusterRole signoff-viewer, bound in that namespace, allows it"), "{why}");
}
