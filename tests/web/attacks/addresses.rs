//! Addresses to which a user was lured: their paths, their queries, and their redirects.

use serde_json::json;
use signoff_api::Workflow;
use signoff_tests::browser::{Look, css};

use super::visitor::{Visitor, assert_only_reads, requests_of_users, token};
use crate::harness::Harness;
use crate::runs::path;

#[tokio::test]
async fn path_names_one_object_of_one_kind_or_is_refused() {
    let (harness, [runs]) = Harness::with_runs(["paths"]).await.unwrap();
    let approval = runs.start_gate("one", json!({})).await;
    let name = approval.metadata.name.clone().unwrap();
    let alice = Visitor::of(&harness, "alice").await;
    let here = runs.name();
    let long = "a".repeat(300);
    let objects = [
        format!("/n/{here}/a/..%2f..%2fworkflows%2f{name}"),
        format!("/n/{here}/a/..%2F..%2F..%2F..%2F..%2F..%2Fapi%2Fv1%2Fsecrets"),
        format!("/n/{here}/a/{name}%2fstatus"),
        format!("/n/{here}/a/{name}%3Fwatch=true"),
        format!("/n/{here}/a/{name}%23x"),
        format!("/n/{here}/a/%2e%2e"),
        format!("/n/{here}/a/."),
        format!("/n/{here}/a/%252e%252e%252fsecrets"),
        format!("/n/{here}/a/{name}%00"),
        format!("/n/{here}/a/{name}%0d%0aImpersonate-User:%20admin"),
        format!("/n/{here}/a/%ff%fe"),
        format!("/n/{here}/a/{long}"),
        format!("/n/{here}/a/%F0%9F%92%A9"),
        format!("/n/{here}/a/{}", name.to_uppercase()),
        format!("/n/{here}/a/{name}%20"),
        format!("/n/..%2f..%2f..%2f..%2fapi%2fv1%2fnamespaces%2f{here}/a/{name}"),
        format!("/n/{here}%2fworkflows%2fone%3Fx=/a/{name}"),
        format!("/n/%2e%2e/a/{name}"),
        format!("/n/{long}/a/{name}"),
        format!("/n/kube-system%2fservices%2fevil:80%2fproxy%2f/a/{name}"),
        format!("/n/{here}/a/"),
        format!("/n//a/{name}"),
        format!("/n/{here}/a/{name}/..%2f..%2fdecide"),
        format!("//n/{here}/a/{name}"),
        format!("/n/{here}/../../n/{here}/a/{name}"),
    ];
    let body = super::visitor::form(&super::visitor::approval_fields(&approval));
    for object in &objects {
        harness.witness.forget();
        let (status, answer) = alice.send_raw("GET", object, "").await;
        assert!([400, 404].contains(&status), "{object}: {answer}");
        let more = format!(
            "Origin: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            alice.url,
            body.len()
        );
        let (status, answer) = alice.send_raw("POST", &format!("{object}/decide"), &more).await;
        assert!([400, 404, 405].contains(&status), "{object}/decide: {answer}");
        let paths: Vec<_> = requests_of_users(&harness.witness).into_iter().map(|seen| seen.path).collect();
        let usual = format!("/apis/signoff.dev/v1alpha1/namespaces/{here}/approvals/");
        for path in paths {
            let part = path.strip_prefix(&usual).unwrap_or("/");
            let is_usual = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.?".contains(&byte));
            // The requests of every page, whatever its address: the user, their rights, one open run, and the
            // operator's Lease.
            let open_runs = format!("/apis/signoff.dev/v1alpha1/namespaces/{here}/workflows?&limit=1&");
            let common_paths = [
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "/apis/signoff.dev/v1alpha1/workflows?&limit=1&",
                open_runs.as_str(),
                "/apis/coordination.k8s.io/v1/namespaces/signoff-system/leases/signoff-operator",
            ];
            let is_common = common_paths.iter().any(|known| path.starts_with(known));
            assert!(is_usual || is_common, "{object} asks for {path}");
        }
    }
    assert!(runs.read_decision(&approval, "alice").await.is_null());
    assert_eq!(alice.send_raw("GET", &path(&approval), "").await.0, 200);
}

#[tokio::test]
async fn path_names_one_run_which_only_a_confirmed_form_changes() {
    let (harness, [runs]) = Harness::with_runs(["run-paths"]).await.unwrap();
    runs.start_gate("one", json!({})).await;
    let run = runs.api::<Workflow>().get("one").await.unwrap();
    let uid = run.metadata.uid.unwrap();
    let dana = Visitor::of(&harness, "dana").await;
    let here = runs.name();
    let fields = [("verb", "Cancel"), ("uid", uid.as_str())];
    let body = super::visitor::form(&fields);
    harness.witness.forget();
    for lure in ["..%2fapprovals", "one%2fstatus", "one%3Fwatch=true", "one%23x", "one%00", "%2e%2e", "ONE", "%ff"] {
        let (status, answer) = dana.send_raw("GET", &format!("/n/{here}/w/{lure}"), "").await;
        assert!([400, 404].contains(&status), "{lure}: {answer}");
        let more = format!(
            "Origin: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            dana.url,
            body.len()
        );
        let (status, answer) = dana.send_raw("POST", &format!("/n/{here}/w/{lure}/change"), &more).await;
        assert!([400, 404, 405].contains(&status), "{lure}/change: {answer}");
    }
    // A link changes nothing, whatever its query.
    let confirmed = "confirmed=sha256:00";
    for query in ["", &format!("?{body}"), &format!("?{body}&{confirmed}")] {
        let redirect = dana.get(&format!("/n/{here}/w/one/change{query}")).await;
        assert_eq!(
            (redirect.status, redirect.header("location")),
            (303, format!("/n/{here}/w/one").as_str()),
            "{query}"
        );
        assert_eq!(dana.get(&format!("/n/{here}/w/one{query}")).await.status, 200, "{query}");
    }
    for query in ["namespace=..%2fkube-system", "namespace=kube-system%3Fwatch=true", "phase=Failed,status.phase!=x"] {
        assert_eq!(dana.get(&format!("/runs?{query}")).await.status, 200, "{query}");
    }
    for seen in requests_of_users(&harness.witness) {
        assert!(!seen.path.contains("..") && !seen.path.contains("kube-system"), "{}", seen.path);
    }
    assert_only_reads(&harness.witness);
    // A made-up confirmation changes nothing.
    let address = format!("/n/{here}/w/one/change");
    let made_up = dana.post(&address, &[&fields[..], &[("confirmed", "sha256:00")]].concat()).await;
    assert_eq!(made_up.status, 409, "{}", made_up.text);
    let other = dana.post(&address, &[("verb", "Cancel"), ("uid", "another")]).await;
    assert_eq!(other.status, 409, "{}", other.text);
    let stored = runs.api::<Workflow>().get("one").await.unwrap();
    assert_eq!((stored.spec.cancel, stored.spec.suspend), (None, None));
}

#[tokio::test]
async fn address_fills_no_field_and_chooses_no_verdict() {
    let (harness, [runs]) = Harness::with_runs(["prefill"]).await.unwrap();
    let verdicts = json!(["Approve", "Reject", "Modify", "Defer", "Retry"]);
    let approval = runs.start_gate("one", json!({"allowedVerdicts": verdicts})).await;
    let alice = Visitor::of(&harness, "alice").await;
    let digest = approval.spec.request.digest.as_str();
    let query = format!(
        "reason=planted&verdict=Approve&guidance=planted&confirmed=yes&parameters.response=planted&to=0&digest={digest}&answers.size=planted"
    );
    let plain = alice.get(&path(&approval)).await;
    for address in [format!("{}?{query}", path(&approval)), format!("{}?{query}#decide", path(&approval))] {
        let answer = alice.get(&address).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.text.contains("planted"), "{}", answer.text);
        assert_eq!(answer.text.matches(" checked").count(), plain.text.matches(" checked").count());
    }
    let several = path(&approval).replace("/n/", "").replace("/a/", "/");
    let answer = alice.get(&format!("/together?a={several}&{query}")).await;
    assert!(answer.status == 200 && answer.text.contains("type=\"checkbox\" name=\"call\""), "{}", answer.text);
    let is_chosen = |line: &str| line.contains("name=\"call\"") && line.contains(" checked>");
    assert!(!answer.text.contains("planted") && !answer.text.lines().any(is_chosen), "{}", answer.text);
    for page in ["/", "/policies", "/sign-in"] {
        assert!(
            !alice
                .get(&format!("{page}?token=planted&namespaces=planted&reason=planted"))
                .await
                .text
                .contains("planted")
        );
    }
    let page = harness.open_as("alice", &Look::default()).await.unwrap();
    page.goto(&harness.url(&format!("{}?{query}#reason=planted", path(&approval)))).await.unwrap();
    assert_eq!(page.value(css("#reason")).await.unwrap(), "", "nor does a script");
    assert!(!page.html().await.unwrap().contains("planted"));
    page.close().await.unwrap();
    assert_only_reads(&harness.witness);
}

#[tokio::test]
async fn sign_in_and_sign_out_redirect_only_within_the_page() {
    let harness = Harness::start().await.unwrap();
    let token = token(&harness, "alice@example.com").await;
    let lures = [
        "//evil.example/",
        "//evil.example/%2f..",
        "/%5cevil.example",
        "/%2f%2fevil.example",
        "/%09/evil.example",
        "/n/a/../../..//evil.example",
        "/history?next=https://evil.example",
    ];
    for lure in lures {
        let mut stranger = Visitor::stranger(&harness.web);
        let (_, answer) = stranger.send_raw("GET", lure, "").await;
        for cookie in answer.lines().filter_map(|line| line.strip_prefix("set-cookie: ")) {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            stranger.cookies.insert(name.to_owned(), value.to_owned());
        }
        let query = "next=https://evil.example&return=//evil.example&redirect_uri=//evil.example&to=//evil.example";
        let redirect =
            stranger.post(&format!("/sign-in/token?{query}"), &[("token", &token), ("next", "//evil.example")]).await;
        assert_stays_on_page(&redirect, lure);
        assert_stays_on_page(&stranger.post(&format!("/sign-out?{query}"), &[("next", "//evil.example")]).await, lure);
        assert_stays_on_page(&stranger.get(&format!("/history?{query}")).await, lure);
    }
}

/// Checks that an answer is a redirect within the page.
fn assert_stays_on_page(answer: &super::visitor::PageAnswer, lure: &str) {
    let to = answer.header("location");
    assert_eq!(answer.status, 303, "{lure}: {}", answer.text);
    assert!(to.starts_with('/') && !to.starts_with("//") && !to.contains(['\\', '\t']), "{lure} leads to {to}");
    assert!(!to.contains("evil.example") || to.starts_with("/n/"), "{lure} leads to {to}");
}

#[tokio::test]
async fn decision_with_another_digest_is_not_even_tried() {
    let (harness, [runs]) = Harness::with_runs(["digests"]).await.unwrap();
    let (one, other) =
        (runs.start_gate("one", json!({})).await, runs.start_gate("other", json!({"prompt": "Another?"})).await);
    let alice = Visitor::of(&harness, "alice").await;
    harness.witness.forget();
    let decide = format!("{}/decide", path(&one));
    let theirs = other.spec.request.digest.to_string();
    let own = one.spec.request.digest.to_string();
    let cut = own[..own.len() - 1].to_owned();
    let upper = own.to_uppercase();
    for digest in [theirs.as_str(), "", "sha256:", &cut, &upper, &format!("{own} ")] {
        let fields = [("digest", digest), ("verdict", "Approve"), ("confirmed", "yes")];
        assert_eq!(alice.post(&decide, &fields).await.status, 409, "{digest}");
    }
    let twice = [("digest", own.as_str()), ("digest", &theirs), ("verdict", "Approve"), ("confirmed", "yes")];
    assert_eq!(alice.post(&decide, &twice).await.status, 409);
    assert_eq!(alice.post(&decide, &[("verdict", "Approve"), ("confirmed", "yes")]).await.status, 409);
    assert_only_reads(&harness.witness);
    for verdict in ["", "approve", "Delete", "Approve,Reject", "Expire", "__proto__"] {
        let answer = alice.post(&decide, &[("digest", &own), ("verdict", verdict), ("confirmed", "yes")]).await;
        assert_eq!(answer.status, 422, "{verdict}: {}", answer.text);
    }
    assert_only_reads(&harness.witness);
    assert!(runs.read_request(&one).await.spec.decisions.is_empty());
}
