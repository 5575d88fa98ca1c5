//! Stored texts with markup, scripts, formulas and hidden characters, wherever a page shows them: they stay text.

use kube::api::ListParams;
use serde_json::json;
use signoff_api::{Approval, Workflow};
use signoff_tests::browser::{Look, Page, css, role, text};

use super::visitor::{Visitor, bind_group, token};
use crate::harness::Harness;
use crate::runs::{Runs, path};

/// Markup that would run, load or close something.
const HOSTILE: &str = r#""><script>document.title='pwned'</script><img src=x onerror="document.title='pwned'"></textarea></pre><svg onload=alert(1)><a href="javascript:alert(1)">x</a>{{7*7}}${7*7}<style>*{display:none}</style><meta http-equiv=refresh content="0;url=//evil.example">"#;

/// Finds the request of a run.
async fn find_request(runs: &Runs, run: &str) -> Approval {
    let all = runs.api::<Approval>().list(&ListParams::default()).await.unwrap();
    all.items.into_iter().find(|approval| approval.spec.request.workflow.name == run).unwrap()
}

/// Fails if a page contains an element that comes from a hostile text.
async fn assert_no_markup(page: &Page, what: &str) {
    let script = "[document.querySelectorAll('img, iframe, object, embed, base, style, form[action*=evil], a[href^=javascript], main script, meta[http-equiv], [onerror], [onload], [onclick]').length, document.title.includes('pwned')]";
    assert_eq!(page.evaluate(script).await.unwrap(), json!([0, false]), "{what}: {}", page.html().await.unwrap());
    let complaints = page.complaints().await.unwrap();
    assert!(!complaints.iter().any(|answer| answer.contains("Content Security Policy")), "{what}: {complaints:?}");
}

/// Lets a user with a hostile name and a reason that begins like a formula decide one run, while another waits.
async fn start_with_hostile_texts() -> (Harness, Runs, Visitor, String) {
    let (harness, [runs]) = Harness::with_runs(["texts"]).await.unwrap();
    bind_group(&harness.cluster, &runs, "signoff-approver", runs.name()).await;
    let name = format!("<img/src=x/onerror=alert(1)>.{}@example.com", runs.name());
    let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    let token = token(&harness, &format!("email={encoded}&groups={}", runs.name())).await;
    let approver = json!({"kind": "User", "name": name});
    let steps = json!({"steps": [
        {"name": "draft", "set": {"value": HOSTILE}},
        {"name": "review", "hitl": {"prompt": HOSTILE, "approvers": [approver], "allowedVerdicts": ["Approve", "Reject", "Modify", "Defer"]}},
    ]});
    for run in ["waits", "decided"] {
        runs.start_as("dana", run, steps.clone()).await;
    }
    let person = Visitor::with_token(&harness.web, &token).await;
    let decided = runs.wait_for_request("decided").await;
    let fields = [
        ("digest", decided.spec.request.digest.as_str()),
        ("verdict", "Approve"),
        ("reason", "=HYPERLINK(\"http://evil.example\",\"<script>alert(1)</script>\")"),
    ];
    let answer = person.decide(&path(&decided), &fields).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    runs.wait_for_end("decided").await;
    (harness, runs, person, name)
}

#[tokio::test]
async fn markup_in_stored_and_sent_texts_stays_text_on_every_page() {
    let (harness, runs, person, name) = start_with_hostile_texts().await;
    let (waits, decided) = (runs.wait_for_request("waits").await, find_request(&runs, "decided").await);
    let page = harness.open_with_token(&person.token, &Look::default()).await.unwrap();
    let lists = ["/", "/history", "/policies", "/runs"].map(str::to_owned);
    let pages = [path(&waits), path(&decided)];
    let run = ["waits", "decided"].map(|run| format!("/n/{}/w/{run}", runs.name()));
    let together = format!("/together?like={}", path(&waits).replace("/n/", "").replace("/a/", "/"));
    for at in lists.iter().chain(&pages).chain(&run).chain([&together]) {
        assert_eq!(page.goto(&harness.url(at)).await.unwrap(), 200, "{at}");
        assert_no_markup(&page, at).await;
    }
    page.goto(&harness.url(&path(&waits))).await.unwrap();
    page.wait(text("onerror=\"document.title='pwned'\"").nth(0)).await.unwrap();
    assert!(page.html().await.unwrap().contains(&name.replace('<', "&lt;").replace('>', "&gt;")), "the name is shown");
    // The page shows the typed text again in the confirmation, and with an error.
    page.fill(css("#reason"), HOSTILE).await.unwrap();
    page.click(css("button[value=Approve]")).await.unwrap();
    page.wait(text("A decision is final").nth(0)).await.unwrap();
    assert_no_markup(&page, "the confirmation").await;
    page.close().await.unwrap();
    let fields = [("digest", HOSTILE), ("verdict", HOSTILE), ("reason", HOSTILE), (HOSTILE, HOSTILE)];
    let answer = person.post(&format!("{}/decide", path(&waits)), &fields).await;
    assert_eq!(answer.status, 409);
    for part in ["<img", "<script>", "</textarea></pre>", "onerror=\""] {
        assert!(!answer.text.contains(part), "{part}: {}", answer.text);
    }
    for filter in ["workflow", "namespace", "by", "verdict", "from", "until", "page", "phase"] {
        let value: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
        let answer = person.get(&format!("/history?{filter}={value}")).await;
        assert!(!answer.text.contains("<img") && !answer.text.contains("<script>"), "{filter}: {}", answer.text);
    }
    for filter in ["q", "kind", "run", "policy", "due", "namespace", "sort", "tab", "alike", "page"] {
        let value: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
        let answer = person.get(&format!("/?{filter}={value}")).await;
        assert_eq!(answer.status, 200, "{filter}");
        assert!(!answer.text.contains("<img") && !answer.text.contains("<script>"), "{filter}: {}", answer.text);
    }
}

#[tokio::test]
async fn markup_stays_text_on_pages_and_in_forms_of_runs() {
    let (harness, runs, person, _) = start_with_hostile_texts().await;
    let value: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    for filter in ["phase", "requester", "namespace", "search", "page"] {
        let answer = person.get(&format!("/runs?{filter}={value}")).await;
        assert_eq!(answer.status, 200, "{filter}");
        assert!(!answer.text.contains("<img") && !answer.text.contains("<script>"), "{filter}: {}", answer.text);
    }
    let page = harness.open_as("dana", &Look::default()).await.unwrap();
    for (run, verb) in [("waits", "Suspend"), ("waits", "Cancel"), ("decided", "Rerun")] {
        page.goto(&harness.url(&format!("/n/{}/w/{run}", runs.name()))).await.unwrap();
        assert_no_markup(&page, run).await;
        page.click(role("button", &format!("{verb}…"))).await.unwrap();
        page.wait(role("heading", &format!("{verb} run {run}?"))).await.unwrap();
        assert_no_markup(&page, verb).await;
    }
    page.close().await.unwrap();
    let dana = Visitor::of(&harness, "dana").await;
    let run = runs.api::<Workflow>().get("decided").await.unwrap();
    let uid = run.metadata.uid.unwrap();
    harness.witness.forget();
    for fields in [
        [("verb", HOSTILE), ("uid", uid.as_str()), ("name", ""), ("confirmed", "")],
        [("verb", "Rerun"), ("uid", HOSTILE), ("name", ""), ("confirmed", "")],
        [("verb", "Rerun"), ("uid", uid.as_str()), ("name", HOSTILE), ("confirmed", HOSTILE)],
        [("verb", "Rerun"), ("uid", uid.as_str()), ("name", ""), ("confirmed", HOSTILE)],
    ] {
        let answer = dana.post(&format!("/n/{}/w/decided/change", runs.name()), &fields).await;
        assert!((400..500).contains(&answer.status), "{}: {}", answer.status, answer.text);
        for part in ["<img", "onerror=\"", "<meta http-equiv"] {
            assert!(!answer.text.contains(part), "{part}: {}", answer.text);
        }
    }
    for seen in super::visitor::requests_of_users(&harness.witness) {
        let is_tried = seen.path.contains("dryRun=All");
        assert!(is_tried || seen.reads() || !seen.path.contains("/workflows"), "{} {}", seen.method, seen.path);
    }
}

#[tokio::test]
async fn exported_history_has_no_formula_and_is_an_attachment() {
    let (_harness, _runs, person, _) = start_with_hostile_texts().await;
    let file = person.get("/history.csv").await;
    assert_eq!(file.status, 200, "{}", file.text);
    assert!(file.header("content-type").starts_with("text/csv"));
    assert!(file.header("content-disposition").starts_with("attachment;"));
    assert_eq!(file.header("x-content-type-options"), "nosniff");
    assert!(file.text.contains("\"'=HYPERLINK("), "{}", file.text);
    for cell in file.text.split("\",\"").flat_map(|part| part.split("\"\r\n\"").flat_map(|part| part.split("\"\n\""))) {
        let cell = cell.trim_start_matches('"');
        assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']), "{cell}: {}", file.text);
    }
}

#[tokio::test]
async fn long_value_is_a_plain_text_attachment() {
    let (harness, [runs]) = Harness::with_runs(["values"]).await.unwrap();
    let part = format!("<html><script>alert(1)</script>{}", "é".repeat(6_000));
    let value = part.repeat(4);
    let steps = json!({"steps": [
        {"name": "part", "set": {"value": part}},
        {"name": "draft", "set": {"value": "{{ steps.part.response }}".repeat(4)}},
        {"name": "review", "hitl": {"prompt": "Go on?", "approvers": [crate::runs::user("alice")]}},
    ]});
    runs.start_as("dana", "long", steps).await;
    runs.wait_for_request("long").await;
    let alice = Visitor::of(&harness, "alice").await;
    let run = format!("/n/{}/w/long", runs.name());
    let page = alice.get(&run).await;
    let link = page.text.split('"').find(|text| text.contains("/value/")).unwrap_or_else(|| panic!("{}", page.text));
    let link = link.replace("&#38;", "&").replace("&amp;", "&");
    let file = alice.get(&link).await;
    assert_eq!(file.status, 200, "{link}");
    assert!([&part, &value].contains(&&file.text), "{link}: {} bytes", file.text.len());
    assert!(file.header("content-type").starts_with("text/plain"), "{:?}", file.headers);
    assert!(file.header("content-disposition").starts_with("attachment"), "{:?}", file.headers);
    assert_eq!(file.header("x-content-type-options"), "nosniff");
    assert!(file.header("content-security-policy").contains("sandbox"), "{:?}", file.headers);
    let mallory = Visitor::of(&harness, "mallory").await;
    assert_eq!(mallory.get(&link).await.status, 403);
    harness.witness.forget();
    let path = link.split('?').next().unwrap();
    let other = format!("{}{}", &path[..path.len() - 4], "0000");
    for lure in [other, format!("{run}/value/..%2f..%2fsecrets"), format!("{run}/value/x%00"), format!("{run}/value/")]
    {
        let (status, answer) = alice.send_raw("GET", &lure, "").await;
        assert!([400, 404, 422].contains(&status), "{lure}: {answer}");
    }
    for seen in super::visitor::requests_of_users(&harness.witness) {
        assert!(!seen.path.contains("secrets") && !seen.path.contains(".."), "{}", seen.path);
    }
}
