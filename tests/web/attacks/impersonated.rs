//! A page that impersonates: its own token and the names of exactly this session, and names for which it refuses to
//! act.

use serde_json::json;
use signoff_api::{Approval, Workflow};
use signoff_tests::browser::{Look, Page, css, label, role, text};
use signoff_tests::cargo::root;
use signoff_tests::control_plane::{Cluster, Seen, Witness, named};

use super::visitor::{Visitor, asked, only_reads};
use crate::harness::Harness;
use crate::runs::{Runs, path, user};
use crate::turns::{turn, waits};

/// Starts a page that impersonates with an administrator's token, so that no request is missing for lack of a right.
async fn impersonating(prefix: &str) -> (Harness, Runs, String) {
    impersonating_with(prefix, &[]).await
}

/// Starts a page as [`impersonating`] does, with more arguments.
async fn impersonating_with(prefix: &str, more: &[&str]) -> (Harness, Runs, String) {
    let cluster = Cluster::web().unwrap();
    let runs = Runs::of(&cluster, prefix).await;
    let own = crate::instruments::admin_token(&cluster);
    let witness = Witness::start(&cluster).await.unwrap();
    let harness = Harness::set_with(|options| {
        options.kubeconfig = witness.kubeconfig(Some(&own)).unwrap();
        options.arguments = ["--auth=legacy-impersonation", "--i-accept-legacy-impersonation", "--username-prefix=-"]
            .map(str::to_owned)
            .to_vec();
        options.arguments.push(format!("--namespace={}", runs.name()));
        options.arguments.extend(more.iter().map(|&one| one.to_owned()));
    });
    let mut harness = harness.await.unwrap();
    harness.witness = witness;
    (harness, runs, own)
}

/// Signs a user in at the issuer, in a browser.
async fn at_the_issuer(harness: &Harness, email: &str, groups: &str) -> Page {
    let page = harness.visitor(&Look::default(), "/sign-in").await.unwrap();
    page.click(css("form[action='/sign-in/start'] button")).await.unwrap();
    page.fill(label("Email"), email).await.unwrap();
    page.fill(label("Groups"), groups).await.unwrap();
    page.click(role("button", "Sign in")).await.unwrap();
    page.wait_url(&harness.at("/")).await.unwrap();
    page
}

/// Returns a visitor with the cookies of a browser, for requests that no browser would send.
async fn visitor(harness: &Harness, page: &Page) -> Visitor {
    let mut visitor = Visitor::stranger(&harness.web);
    let cookies = page.cookies().await.unwrap().into_iter().filter(|cookie| cookie.name.starts_with("__Host-"));
    visitor.cookies = cookies.map(|cookie| (cookie.name, cookie.value)).collect();
    visitor
}

/// Checks that a request has the page's own token, and the names of a person of the cast.
fn is_as(seen: &Seen, own: &str, person: &str) {
    let person = named(person).unwrap();
    let mut wanted = vec![("impersonate-user".to_owned(), person.user.to_owned())];
    wanted.extend(person.groups.iter().map(|group| ("impersonate-group".to_owned(), (*group).to_owned())));
    wanted.push(("impersonate-extra-signoff.dev%2fchannel".to_owned(), "web".to_owned()));
    wanted.sort();
    let mut sent = seen.impersonates();
    sent.sort();
    assert_eq!(sent, wanted, "{} {}", seen.method, seen.path);
    assert_eq!(seen.headers.get_all("authorization").iter().count(), 1);
    assert_eq!(seen.token(), Some(own), "{} {}", seen.method, seen.path);
}

#[tokio::test]
async fn impersonating_page_sends_only_the_names_of_its_session() {
    let (harness, runs, own) = impersonating("as-whom").await;
    let asks = json!({"approvers": [user("alice"), user("bob")], "threshold": 2});
    let approval = runs.gate("one", asks).await;
    let browsers =
        [at_the_issuer(&harness, "alice@example.com", "").await, at_the_issuer(&harness, "bob@example.com", "").await];
    let (alice, bob) = (visitor(&harness, &browsers[0]).await, visitor(&harness, &browsers[1]).await);
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
        let fields = super::visitor::approve(&approval);
        let ours = [("origin", visitor.url.as_str()), ("sec-fetch-site", "same-origin"), super::visitor::FORM];
        let headers = [&smuggled[..], &ours].concat();
        let said = visitor.decide_with(&format!("{}/decide", path(&approval)), &fields[..2], &headers).await;
        assert_eq!(said.status, 303, "{}", said.text);
        let seen = asked(&harness.witness);
        assert!(seen.len() > 8 && seen.iter().any(|seen| seen.method == http::Method::PATCH));
        seen.iter().for_each(|seen| is_as(seen, &own, person));
        let decision = runs.decision(&approval, person).await;
        assert_eq!((&decision["verdict"], &decision["channel"]), (&json!("Approve"), &json!("web")));
    }
    assert_eq!(runs.stored(&approval).await.spec.decisions.len(), 2);
}

/// Approves the three calls of a turn together, and confirms it. Each vote is of the person who signed in, and came
/// through the page.
async fn approves_the_turn(harness: &Harness, runs: &Runs, page: &Page, calls: &[Approval]) {
    page.goto(&harness.at(&turn(&calls[0]))).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 3 of 3 calls?")).await.unwrap();
    page.click(role("button", "Approve")).await.unwrap();
    page.wait(role("heading", "Approve: 3 of 3 calls recorded")).await.unwrap();
    for call in calls {
        let vote = json!({"verdict": "Approve", "channel": "web", "requestDigest": call.spec.request.digest});
        assert_eq!(runs.decision(call, "alice").await, vote);
        assert_eq!(runs.stored(call).await.spec.decisions.len(), 1, "nobody else voted");
    }
}

#[tokio::test]
async fn an_impersonating_page_decides_the_calls_of_a_turn_as_the_person_who_signed_in() {
    let (harness, runs, own) = impersonating("turn-as").await;
    let calls = waits(&runs, "turn", &["refunded 17"]).await;
    let erin = at_the_issuer(&harness, "erin@example.com", "").await;
    erin.goto(&harness.at(&turn(&calls[0]))).await.unwrap();
    erin.wait(text("You cannot decide it.").nth(0)).await.unwrap();
    assert!(!erin.visible(role("button", "Approve")).await.unwrap(), "whom the gate does not list decides nothing");
    erin.close().await.unwrap();
    let page = at_the_issuer(&harness, "alice@example.com", "").await;
    harness.witness.forget();
    approves_the_turn(&harness, &runs, &page, &calls).await;
    let seen = asked(&harness.witness);
    seen.iter().for_each(|seen| is_as(seen, &own, "alice"));
    let sent = seen.iter().filter(|seen| seen.method == http::Method::PATCH && !seen.path.contains("dryRun=All"));
    assert_eq!(sent.count(), 3, "one vote for each call");
    assert_eq!(runs.result("turn").await, "told: refunded 17");
    page.close().await.unwrap();
}

#[tokio::test]
async fn impersonating_page_changes_runs_as_its_user_if_that_is_set() {
    let set: &[&str] = &["--impersonation-runs"];
    for (prefix, more, is_set) in [("runs-off", &set[..0], false), ("runs-on", set, true)] {
        let (harness, runs, own) = impersonating_with(prefix, more).await;
        runs.gate("one", json!({})).await;
        let uid = runs.all::<Workflow>().get("one").await.unwrap().metadata.uid.unwrap();
        let browser = at_the_issuer(&harness, "dana@example.com", "").await;
        let dana = visitor(&harness, &browser).await;
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
            only_reads(&harness.witness);
            continue;
        }
        let confirmed = shown.confirmed().unwrap();
        let sent = dana.post(&change, &[&fields[..], &[("confirmed", confirmed)]].concat()).await;
        assert_eq!(sent.status, 303, "{}", sent.text);
        let seen = asked(&harness.witness);
        seen.iter().for_each(|seen| is_as(seen, &own, "dana"));
        let is_sent = |seen: &&Seen| seen.method == http::Method::PATCH && !seen.path.contains("dryRun=All");
        assert_eq!(seen.iter().filter(is_sent).count(), 1);
        assert_eq!(runs.all::<Workflow>().get("one").await.unwrap().spec.suspend, Some(true));
    }
}

#[tokio::test]
async fn impersonating_page_refuses_agents_system_names_and_tokens() {
    let (harness, runs, own) = impersonating("refuses").await;
    let approval = runs.gate("one", json!({})).await;
    harness.witness.forget();
    for (email, groups) in [
        ("eve via mallory", "finance"),
        ("system:admin", "finance"),
        ("system:serviceaccount:signoff-system:signoff", "finance"),
        ("masters@example.com", "finance,system:masters"),
        ("nodes@example.com", "system:nodes"),
    ] {
        let page = harness.visitor(&Look::default(), "/sign-in").await.unwrap();
        page.click(css("form[action='/sign-in/start'] button")).await.unwrap();
        page.fill(label("Email"), email).await.unwrap();
        page.fill(label("Groups"), groups).await.unwrap();
        page.click(role("button", "Sign in")).await.unwrap();
        page.wait(css("[role=alert]")).await.unwrap();
        assert!(page.text(css("[role=alert]")).await.unwrap().contains("refused"), "{email}");
        let visitor = visitor(&harness, &page).await;
        assert_eq!(visitor.get("/").await.status, 303, "{email}");
        assert_eq!(visitor.approve(&approval).await.status, 401, "{email}");
        page.close().await.unwrap();
    }
    let stranger = Visitor::stranger(&harness.web);
    for token in [own, super::visitor::token(&harness, "alice@example.com").await] {
        let said = stranger.post("/sign-in/token", &[("token", &token)]).await;
        assert_eq!((said.status, said.headers.get("set-cookie")), (403, None), "{}", said.text);
    }
    only_reads(&harness.witness);
    assert!(asked(&harness.witness).is_empty(), "{:?}", asked(&harness.witness));
}

#[tokio::test]
async fn rights_of_the_chart_suffice_and_the_vote_has_its_channel() {
    let cluster = Cluster::web().unwrap();
    let runs = Runs::of(&cluster, "constrained").await;
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
    let harness = Harness::set_with(|options| {
        options.kubeconfig = witness.kubeconfig(Some(&own)).unwrap();
        options.arguments = ["--auth=impersonation", "--username-prefix=-"].map(str::to_owned).to_vec();
        options.arguments.push(format!("--namespace={}", runs.name()));
    });
    let harness = harness.await.unwrap();
    let approval = runs.gate("one", json!({"approvers": [user("alice")]})).await;
    let page = at_the_issuer(&harness, "alice@example.com", "").await;
    let alice = visitor(&harness, &page).await;
    for shown in ["/", &path(&approval), "/history", &format!("/n/{}/w/one", runs.name())] {
        assert_eq!(alice.get(shown).await.status, 200, "{shown}");
    }
    let said = alice.approve(&approval).await;
    assert_eq!(said.status, 303, "{}", said.text);
    let decision = runs.decision(&approval, "alice").await;
    assert_eq!((&decision["verdict"], &decision["channel"]), (&json!("Approve"), &json!("web")));
    runs.result("one").await;
    page.goto(&harness.at(&path(&approval))).await.unwrap();
    page.wait(css("ul.votes li.mine")).await.unwrap();
    assert!(page.text(css("ul.votes li.mine")).await.unwrap().contains("by web"), "the API server vouches for the way");
    let calls = waits(&runs, "turn", &["refunded 17"]).await;
    approves_the_turn(&harness, &runs, &page, &calls).await;
    assert_eq!(runs.result("turn").await, "told: refunded 17");
    page.close().await.unwrap();
}
