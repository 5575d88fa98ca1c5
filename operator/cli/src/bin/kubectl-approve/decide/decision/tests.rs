//! The checks before and after a decision is sent, without a cluster.
#![allow(clippy::unwrap_used)]
use serde_json::json;
use signoff_api::{Decision, Verdict};
use signoff_review::sample;

use super::*;

#[test]
fn an_unusable_payload_is_refused_before_it_is_sent() {
    let approval = sample::approval();
    let modify = |json: serde_json::Value| Decision {
        parameters: serde_json::from_value(json).ok(),
        ..Decision::new(Verdict::Modify)
    };
    let entry = |decision| Entry { key: "alice@example.com".into(), decision };
    assert!(check_usable(&approval, &entry(modify(serde_json::json!({"response": "better"}))), sample::now()).is_ok());
    let refusal = check_usable(&approval, &entry(modify(serde_json::json!({"respnse": "better"}))), sample::now());
    assert!(refusal.is_err_and(|failure| failure.to_string().contains("response")));
}

#[test]
fn a_request_with_any_problem_is_refused_and_a_verified_one_is_not() {
    let args = |verdict| DecisionArgs {
        name: "refund-4711-review".into(),
        verdict,
        payload: Payload::Nothing,
        common: crate::args::CommonArgs::default(),
    };
    let reading = |problem: Option<&Problem>| {
        let (seen, run) = sample::read_with(problem);
        Reading { seen, run, me: sample::me("alice@example.com", &[]) }
    };
    for problem in sample::problems() {
        if matches!(problem, Problem::OtherText(_) | Problem::NoText(_) | Problem::TextUnread(_)) {
            // The plugin shows the beginnings of long texts, and says before its question that they are cut.
            continue;
        }
        let mut reading = reading(Some(&problem));
        for refused in [reading.check(&args(Verdict::Approve)), reading.verified().map(|_| ())] {
            assert_eq!(refused.unwrap_err().to_string(), format!("refused: {problem}"));
        }
        let own = json!({"alice@example.com": {"verdict": "Approve"}});
        reading.seen.raw["spec"]["decisions"] = own;
        let waits = reading.check(&args(Verdict::Approve)).is_ok();
        // The digest covers the request, and not the decisions.
        assert_eq!(waits, !problem.is_of_request(), "{problem}: a recorded decision is waited for");
    }
    assert!(reading(None).check(&args(Verdict::Approve)).is_ok() && reading(None).verified().is_ok());
}

#[test]
fn a_changed_decision_is_reported_field_by_field() {
    let entry = Entry { key: "alice".into(), decision: Decision::new(Verdict::Approve) };
    let text = tampered_failure(&entry.key, &["verdict: sent \"Approve\", stored \"Reject\"".into()]).to_string();
    assert!(text.contains("WHAT WAS STORED IS NOT WHAT YOU SENT, under alice:\n  | verdict: sent"), "{text}");
}

#[test]
fn a_file_in_an_encoding_of_windows_is_read_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answer.txt");
    let utf_16: Vec<u8> = "\u{feff}Main €".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in ["\u{feff}Main €".as_bytes().to_vec(), utf_16, "Main €".as_bytes().to_vec()] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(read_file(path.to_str().unwrap()).unwrap(), "Main €");
    }
    std::fs::write(&path, b"\xA3").unwrap();
    let refused = read_file(path.to_str().unwrap()).unwrap_err();
    assert_eq!(refused.code(), 2);
    assert!(refused.to_string().ends_with("answer.txt: not UTF-8 from byte 0 on; save it as UTF-8"), "{refused}");
}
