//! A page that impersonates users. Each of its requests has its own token and the names of the session. The page
//! refuses to impersonate certain names.

use serde_json::json;
use signoff_api::{Approval, Workflow};
use signoff_tests::browser::{Look, Page, css, label, role, text};
use signoff_tests::cargo::root;
use signoff_tests::control_plane::{Cluster, Seen, Witness, named};

use super::visitor::{Visitor, assert_only_reads, requests_of_users};
use crate::harness::Harness;
use crate::runs::{Runs, path, user};
use crate::turns::{start_waiting_turn, turn_path};

/// Starts a page that impersonates with an administrator's token, so that no request is missing for lack of a right.
async fn start_impersonating(prefix: &str) -> (Harness, Runs, String) {
    start_impersonating_with(prefix, &[]).await
}

/// Starts a page as [`start_impersonating`] does, with more arguments.
async fn start_impersonating_with(prefix: &str, more: &[&str]) -> (Harness, Runs, String) {
    let cluster = Cluster::web().unwrap();
    let runs = Runs::create(&cluster, prefix).await;
    let own = crate::instruments::admin_token(&cluster);
    let witness = Witness::start(&cluster).await.unwrap();
    let harness = Harness::start_with(|options| {
        options.kubeconfig = witness.kubeconfig(Some(&own)).unwrap();
        options.arguments = ["--auth=legacy-impersonation", "--i-accept-legacy-impersonation", "--username-prefix=-"]
            .map(str::to_owned)
            .to_vec();
        options.arguments.push(format!("--namespace={}", runs.name()));
        options.arguments.extend(more.iter().map(|&argument| argument.to_owned()));
    });
    let mut harness = harness.await.unwrap();
    harness.witness = witness;
    (harness, runs, own)
}

/// Opens a browser in which a user with this address and these groups has signed in at the issuer.
async fn open_as_issuer_user(harness: &Harness, email: &str, groups: &str) -> Page {
    let page = harness.open_signed_out(&Look::default(), "/sign-in").await.unwrap();
    page.click(css("form[action='/sign-in/start'] button")).await.unwrap();
    page.fill(label("Email"), email).await.unwrap();
    page.fill(label("Groups"), groups).await.unwrap();
    page.click(role("button", "Sign in")).await.unwrap();
    page.wait_url(&harness.url("/")).await.unwrap();
    page
}

/// Returns a visitor with the session cookies of a browser, for requests that no browser would send.
async fn visitor_with_cookies(harness: &Harness, page: &Page) -> Visitor {
    let mut visitor = Visitor::stranger(&harness.web);
    let cookies = page.cookies().await.unwrap().into_iter().filter(|cookie| cookie.name.starts_with("__Host-"));
    visitor.cookies = cookies.map(|cookie| (cookie.name, cookie.value)).collect();
    visitor
}

/// Checks that a request has the page's own token, and the names of a person of the cast.
fn assert_sent_as(seen: &Seen, own: &str, person: &str) {
    let person = named(person).unwrap();
    let mut expected = vec![("impersonate-user".to_owned(), person.user.to_owned())];
    expected.extend(person.groups.iter().map(|group| ("impersonate-group".to_owned(), (*group).to_owned())));
    expected.push(("impersonate-extra-signoff.dev%2fchannel".to_owned(), "web".to_owned()));
    expected.sort();
    let mut sent = seen.impersonates();
    sent.sort();
    assert_eq!(sent, expected, "{} {}", seen.method, seen.path);
    assert_eq!(seen.headers.get_all("authorization").iter().count(), 1);
    assert_eq!(seen.token(), Some(own), "{} {}", seen.method, seen.path);
}

#[tokio::test]
async fn impersonating_page_sends_only_the_names_of_its_session() {
    let (harness, runs, own) = start_impersonating("as-whom").await;
    let asks = json!({"approvers": [user("alice"), user("bob")], "threshold": 2});
    let approval = runs.start_gate("one", asks).await;
    let browsers = [
        open_as_issuer_user(&harness, "alice@example.com", "").await,
        open_as_issuer_user(&harness, "bob@example.com", "").await,
    ];
    let (alice, bob) =
        (visitor_with_cookies(&harness, &browsers[0]).await, visitor_with_cookies(&harness, &browsers[1]).await);
    for page in browsers {
        page.close().await.unwrap();
    }
    let smuggled = [
        ("impersonate-user", "admin"),
        ("impersonate-group", "system:masters"),
        ("impersonate-extra-signoff.dev%2fchannel", "terminal"),
        ("impersonate-uid", "0"),
        ("authorization", "Bearer smuggled"),
        ("x-remote-user", "admin"),
    ];
    for (person, visitor) in [("alice", &alice), ("bob", &bob)] {
        harness.witness.forget();
        for page in ["/", &path(&approval), "/history", "/policies", &format!("/n/{}/w/one", runs.name())] {
            assert_eq!(visitor.send("GET", page, &smuggled, None).await.status, 200, "{page}");
        }
        let fields = super::visitor::approval_fields(&approval);
        let ours = [("origin", visitor.url.as_str()), ("sec-fetch-site", "same-origin"), super::visitor::FORM];
        let headers = [&smuggled[..], &ours].concat();
        let answer = visitor.decide_with(&format!("{}/decide", path(&approval)), &fields[..2], &headers).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        let seen = requests_of_users(&harness.witness);
        assert!(seen.len() > 8 && seen.iter().any(|seen| seen.method == http::Method::PATCH));
        seen.iter().for_each(|seen| assert_sent_as(seen, &own, person));
        let decision = runs.read_decision(&approval, person).await;
        assert_eq!((&decision["verdict"], &decision["channel"]), (&json!("Approve"), &json!("web")));
    }
    assert_eq!(runs.read_request(&approval).await.spec.decisions.len(), 2);
}

/// Approves and confirms the three calls of a turn together as alice. Checks that each call has one vote, which is hers
/// and has the channel `web`.
async fn approve_turn(harness: &Harness, runs: &Runs, page: &Page, calls: &[Approval]) {
    page.goto(&harness.url(&turn_path(&calls[0]))).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 3 of 3 calls?")).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 3 of 3 calls recorded")).await.unwrap();
    for call in calls {
        let vote = json!({"verdict": "Approve", "channel": "web", "requestDigest": call.spec.request.digest});
        assert_eq!(runs.read_decision(call, "alice").await, vote);
        assert_eq!(runs.read_request(call).await.spec.decisions.len(), 1, "nobody else voted");
    }
}

#[tokio::test]
async fn impersonating_page_decides_the_calls_of_a_turn_as_its_user() {
    let (harness, runs, own) = start_impersonating("turn-as").await;
    let calls = start_waiting_turn(&runs, "turn", &["refunded 17"]).await;
    let erin = open_as_issuer_user(&harness, "erin@example.com", "").await;
    erin.goto(&harness.url(&turn_path(&calls[0]))).await.unwrap();
    erin.wait(text("You cannot decide it.").nth(0)).await.unwrap();
    assert!(!erin.visible(role("button", "Approve")).await.unwrap(), "whom the gate does not list decides nothing");
    erin.close().await.unwrap();
    let page = open_as_issuer_user(&harness, "alice@example.com", "").await;
    harness.witness.forget();
    approve_turn(&harness, &runs, &page, &calls).await;
    let seen = requests_of_users(&harness.witness);
    seen.iter().for_each(|seen| assert_sent_as(seen, &own, "alice"));
    let sent = seen.iter().filter(|seen| seen.method == http::Method::PATCH && !seen.path.contains("dryRun=All"));
    assert_eq!(sent.count(), 3, "one vote for each call");
    assert_eq!(runs.wait_for_result("turn").await, "told: refunded 17");
    page.close().await.unwrap();
}

#[tokio::test]
async fn impersonating_page_changes_runs_only_with_the_option() {
    let option: &[&str] = &["--impersonation-runs"];
    for (prefix, more, is_set) in [("runs-off", &option[..0], false), ("runs-on", option, true)] {
        let (harness, runs, own) = start_impersonating_with(prefix, more).await;
        runs.start_gate("one", json!({})).await;
        let uid = runs.api::<Workflow>().get("one").await.unwrap().metadata.uid.unwrap();
        let browser = open_as_issuer_user(&harness, "dana@example.com", "").await;
        let dana = visitor_with_cookies(&harness, &browser).await;
        browser.close().await.unwrap();
        harness.witness.forget();
        let run = format!("/n/{}/w/one", runs.name());
        let page = dana.get(&run).await;
        assert_eq!(page.status, 200, "{}", page.text);
        assert_eq!(page.text.contains(&format!("action=\"{run}/change\"")), is_set, "{}", page.text);
        let (change, fields) = (format!("{run}/change"), [("verb", "Suspend"), ("uid", uid.as_str())]);
        let shown = dana.post(&change, &fields).await;
        assert_eq!(shown.status, if is_set { 200 } else { 403 }, "{}", shown.text);
        if !is_set {
            assert_only_reads(&harness.witness);
            continue;
        }
        let confirmed = shown.confirmation().unwrap();
        let sent = dana.post(&change, &[&fields[..], &[("confirmed", confirmed)]].concat()).await;
        assert_eq!(sent.status, 303, "{}", sent.text);
        let seen = requests_of_users(&harness.witness);
        seen.iter().for_each(|seen| assert_sent_as(seen, &own, "dana"));
        let is_sent = |seen: &&Seen| seen.method == http::Method::PATCH && !seen.path.contains("dryRun=All");
        assert_eq!(seen.iter().filter(is_sent).count(), 1);
        assert_eq!(runs.api::<Workflow>().get("one").await.unwrap().spec.suspend, Some(true));
    }
}

#[tokio::test]
async fn impersonating_page_refuses_agents_system_names_and_tokens() {
    let (harness, runs, own) = start_impersonating("refuses").await;
    let approval = runs.start_gate("one", json!({})).await;
    harness.witness.forget();
    for (email, groups) in [
        ("eve via mallory", "finance"),
        ("system:admin", "finance"),
        ("system:serviceaccount:signoff-system:signoff", "finance"),
        ("masters@example.com", "finance,system:masters"),
        ("nodes@example.com", "system:nodes"),
    ] {
        let page = harness.open_signed_out(&Look::default(), "/sign-in").await.unwrap();
        page.click(css("form[action='/sign-in/start'] button")).await.unwrap();
        page.fill(label("Email"), email).await.unwrap();
        page.fill(label("Groups"), groups).await.unwrap();
        page.click(role("button", "Sign in")).await.unwrap();
        page.wait(css("[role=alert]")).await.unwrap();
        assert!(page.text(css("[role=alert]")).await.unwrap().contains("refused"), "{email}");
        let visitor = visitor_with_cookies(&harness, &page).await;
        assert_eq!(visitor.get("/").await.status, 303, "{email}");
        assert_eq!(visitor.approve(&approval).await.status, 401, "{email}");
        page.close().await.unwrap();
    }
    let stranger = Visitor::stranger(&harness.web);
    for token in [own, super::visitor::token(&harness, "alice@example.com").await] {
        let answer = stranger.post("/sign-in/token", &[("token", &token)]).await;
        assert_eq!((answer.status, answer.headers.get("set-cookie")), (403, None), "{}", answer.text);
    }
    assert_only_reads(&harness.witness);
    assert!(requests_of_users(&harness.witness).is_empty(), "{:?}", requests_of_users(&harness.witness));
}

#[tokio::test]
async fn rights_of_the_chart_suffice_and_votes_have_their_channel() {
    let cluster = Cluster::web().unwrap();
    let runs = Runs::create(&cluster, "constrained").await;
    // Constrained impersonation: the account of the page has this role and nothing else.
    let chart = root().join("charts/signoff").display().to_string();
    let values = "web.enabled=true,web.url=https://signoff.example.com,web.auth=impersonation,\
                  web.oidc.issuer=https://login.example.com,web.oidc.clientId=signoff";
    let words = ["template", "signoff", &chart, "--namespace", runs.name(), "--set", values];
    let only = ["--show-only", "templates/web-rbac.yaml"];
    let rights = cluster.helm(words.iter().chain(&only).copied()).run().await.unwrap().ok().unwrap();
    cluster.kubectl(["apply", "-f", "-"]).input(rights).run().await.unwrap().ok().unwrap();
    let account = ["create", "serviceaccount", "signoff-web", "--namespace", runs.name()];
    cluster.kubectl(account).run().await.unwrap().ok().unwrap();
    let own = cluster.account_token(runs.name(), "signoff-web").await.unwrap();
    let witness = Witness::start(&cluster).await.unwrap();
    let harness = Harness::start_with(|options| {
        options.kubeconfig = witness.kubeconfig(Some(&own)).unwrap();
        options.arguments = ["--auth=impersonation", "--username-prefix=-"].map(str::to_owned).to_vec();
        options.arguments.push(format!("--namespace={}", runs.name()));
    });
    let harness = harness.await.unwrap();
    let approval = runs.start_gate("one", json!({"approvers": [user("alice")]})).await;
    let page = open_as_issuer_user(&harness, "alice@example.com", "").await;
    let alice = visitor_with_cookies(&harness, &page).await;
    for shown in ["/", &path(&approval), "/history", &format!("/n/{}/w/one", runs.name())] {
        assert_eq!(alice.get(shown).await.status, 200, "{shown}");
    }
    let answer = alice.approve(&approval).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let decision = runs.read_decision(&approval, "alice").await;
    assert_eq!((&decision["verdict"], &decision["channel"]), (&json!("Approve"), &json!("web")));
    runs.wait_for_result("one").await;
    page.goto(&harness.url(&path(&approval))).await.unwrap();
    page.wait(css("ul.votes li.mine")).await.unwrap();
    assert!(page.text(css("ul.votes li.mine")).await.unwrap().contains("by web"), "the API server vouches for the way");
    let calls = start_waiting_turn(&runs, "turn", &["refunded 17"]).await;
    approve_turn(&harness, &runs, &page, &calls).await;
    assert_eq!(runs.wait_for_result("turn").await, "told: refunded 17");
    page.close().await.unwrap();
}
