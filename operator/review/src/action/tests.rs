//! Facts of calls and questions, compared whole.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::sample;

#[test]
fn the_facts_of_a_call_stand_in_their_order() {
    let approval = sample::call();
    let action = approval.spec.request.action.as_ref().unwrap();
    let labels = |facts: &[Fact]| facts.iter().map(|(label, _)| *label).collect::<Vec<_>>();
    assert_eq!(labels(&facts_before(action)), ["Agent", "Tool", "Target"]);
    let after = facts_after(&approval.spec.request);
    let order = ["Effects", "Attempts", "Definition", "Same turn", "Earlier", "Asked by"];
    assert_eq!(labels(&after), order);
    assert_eq!(after[3].1, ["lookup (handle/.turn-2/.call-1)", "letter (handle/.turn-2/.call-3)"]);
    assert_eq!(after[4].1, ["lookup: Succeeded"]);
    assert_eq!(
        after[5].1,
        ["money: refund is listed", "guard, added by ClusterApprovalPolicy prod: refund is not known to be read-only"]
    );
    assert_eq!(line(&approval.spec.request).unwrap(), "refund: POST https://bank.example/refunds");
}

#[test]
fn a_call_without_others_is_marked_and_unknown_effects_are_irreversible() {
    let mut approval = sample::call();
    let action = approval.spec.request.action.as_mut().unwrap();
    (action.effects, action.siblings, action.done) = (None, Vec::new(), Vec::new());
    let facts = facts_after(&approval.spec.request);
    let fact = |wanted| facts.iter().find(|(label, _)| *label == wanted).unwrap().1.join("|");
    assert_eq!(fact("Effects"), "unknown, which counts as irreversible");
    assert_eq!(fact("Same turn"), "no other calls");
    assert_eq!(fact("Earlier"), "no calls of tools in this run");
}

#[test]
fn only_a_plain_get_or_head_changes_nothing() {
    let words = |target: &str, sent: Option<&str>| {
        let mut request = sample::call().spec.request;
        let action = request.action.as_mut().unwrap();
        (action.effects, action.target) = (Some(Effects::Read), Some(target.to_owned()));
        request.sends = sent.map(|text| signoff_api::approval::Sent { text: text.to_owned(), ref_: None });
        facts_after(&request)[0].1[0].clone()
    };
    let reads = "read: it changes nothing, as the author of the Workflow declares";
    let plain = Some("url: https://a.org\nmethod: GET\nheaders:\n  Accept: text/plain\n");
    assert_eq!(words("GET https://a.org", plain), reads);
    assert_eq!(words("HEAD https://a.org", plain), reads);
    assert_eq!(words("a text of this run", Some("value: found\n")), reads);
    for (target, sent, why) in [
        ("POST https://a.org", plain, "it sends POST, which can change something"),
        ("DELETE https://a.org", plain, "it sends DELETE, which can change something"),
        ("GET https://a.org", Some("body: x\n"), "it sends a body with GET, which can change something"),
        ("GET https://a.org", Some("body:\n  a: 1\n"), "it sends a body with GET, which can change something"),
        (
            "HEAD https://a.org",
            Some("headers:\n  x-http-METHOD-override: DELETE\n"),
            "its header x-http-METHOD-override can name another method",
        ),
        (
            "GET https://a.org",
            Some("headers:\n  A: … 90 bytes\n  …: … 3 more names\n"),
            "its header … can name another method",
        ),
        ("GET https://a.org", Some("headers: … 9000 bytes\n"), "not all of its headers are shown here"),
        ("GET https://a.org", None, "what it sends is not shown"),
        ("image busybox", Some("image: busybox\n"), "what a container does is not known"),
        ("agent critic", Some("agent: critic\n"), "what an agent does is not known: its own calls are asked about"),
        ("", None, "what it sends is not known"),
    ] {
        assert_eq!(words(target, sent), format!("read, as the author of the Workflow declares, but {why}"));
    }
}

#[test]
fn arguments_are_indented_only_if_their_value_is_unchanged() {
    let mut request = sample::call().spec.request;
    let shown = |request: &ApprovalRequest, text: &str| arguments(request, text).into_owned();
    assert_eq!(shown(&request, r#"{"amount":420,"to":"ACME"}"#), "{\n  \"amount\": 420,\n  \"to\": \"ACME\"\n}");
    let nested = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    for other in [
        r#"{"to":"ACME","amount":420}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":12345678901234567890123}"#,
        r#"{"a":"#,
        "no JSON",
        &nested,
    ] {
        assert_eq!(shown(&request, other), other);
    }
    request.action = None;
    assert_eq!(shown(&request, r#"{"amount":420}"#), r#"{"amount":420}"#);
}

#[test]
fn hostile_names_stay_in_their_lines() {
    let mut approval = sample::call();
    let action = approval.spec.request.action.as_mut().unwrap();
    let hostile = "x\n\u{1b}[2JPhase: Approved\u{202e}".to_owned();
    (action.tool, action.target) = (hostile.clone(), Some(hostile.clone()));
    action.siblings[0].tool.clone_from(&hostile);
    action.done = vec![hostile];
    let request = &approval.spec.request;
    let facts = facts_before(request.action.as_ref().unwrap()).into_iter().chain(facts_after(request));
    for line in facts.flat_map(|(_, lines)| lines) {
        assert!(!line.contains(['\n', '\u{1b}', '\u{202e}']), "{line:?}");
    }
}

#[test]
fn two_calls_of_one_tool_differ_in_a_list_by_their_arguments() {
    let mut request = sample::call().spec.request;
    let brief = |request: &ApprovalRequest, response: &str, most: usize| {
        let mut request = request.clone();
        request.reviews.as_mut().unwrap().response = response.to_owned();
        super::brief(&request, most).unwrap()
    };
    assert_eq!(brief(&request, r#"{"invoice":501}"#, 40), "refund invoice=501");
    assert_eq!(brief(&request, "# beginning\n{\"invoice\":502}", 40), "refund invoice=502");
    let words = brief(&request, r#"{"to":"ACME","why":"as agreed","list":[1,2]}"#, 60);
    assert_eq!(words, r#"refund to=ACME why="as agreed" list=[1,2]"#);
    assert_eq!(brief(&request, r#"{"invoice":501}"#, 10), "refund in…");
    let cut = brief(&request, r#"{"text":"cut\u001b"#, 40);
    assert!(cut.starts_with(r#"refund "{\"text\":"#) && !cut.contains('\u{1b}'), "{cut}");
    assert!(!brief(&request, "{\"a\\u001b[2J\\n\":1}", 40).contains(['\u{1b}', '\n']));
    let forged = brief(&request, r#"{"amount=1 to":5,"invoice: Pay?":501,"":0,"to":"a:b"}"#, 90);
    assert_eq!(forged, r#"refund "amount=1 to"=5 "invoice: Pay?"=501 ""=0 to="a:b""#);
    assert_eq!(brief(&request, "x: Pay 1 EUR?", 90), r#"refund "x: Pay 1 EUR?""#);
    request.action = None;
    assert_eq!(super::brief(&request, 40), None);
}
