//! Tokens with which no user can sign in, and a user name that resembles another one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use signoff_tests::control_plane::{OTHER_CLIENT, named};

use super::visitor::{Visitor, assert_only_reads, requests_of_users, token};
use crate::harness::Harness;
use crate::runs::path;

/// Fails unless a token is refused with an error message, and without a session cookie.
async fn assert_refused(harness: &Harness, token: &str, what: &str) {
    let answer = Visitor::stranger(&harness.web).post("/sign-in/token", &[("token", token)]).await;
    assert_eq!(answer.status, 401, "{what}: {}", answer.text);
    assert!(answer.text.contains("role=\"alert\""), "{what}: {}", answer.text);
    let is_session = |cookie: &str| cookie.starts_with("__Host-signoff=") && !cookie.starts_with("__Host-signoff=;");
    assert!(!answer.headers.get_all("set-cookie").iter().any(|cookie| is_session(cookie.to_str().unwrap())), "{what}");
    assert!(token.len() < 20 || !answer.text.contains(token), "{what}: the page repeats it");
}

#[tokio::test]
async fn token_that_the_api_server_refuses_begins_no_session() {
    let harness = Harness::start().await.unwrap();
    let good = token(&harness, "alice@example.com").await;
    let other = harness.issuer.tokens(OTHER_CLIENT, named("alice").unwrap().user).await.unwrap().id_token;
    let tokens = harness.issuer.tokens("signoff", named("alice").unwrap().user).await.unwrap();
    let [header, claims, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claimed = |change: serde_json::Value| {
        let mut all: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        for (name, value) in change.as_object().unwrap() {
            all[name] = value.clone();
        }
        encode(all)
    };
    let none = encode(json!({"alg": "none", "typ": "JWT"}));
    let symmetric = encode(json!({"alg": "HS256", "typ": "JWT", "kid": "signoff-tests"}));
    let key = encode(json!({"alg": "RS256", "jku": "https://evil.example/keys", "kid": "evil"}));
    let forged = [
        ("of another audience", other),
        ("the access token", tokens.access_token),
        ("alg none", format!("{none}.{claims}.")),
        ("alg none, with a signature", format!("{none}.{claims}.{signature}")),
        ("a symmetric signature", format!("{symmetric}.{claims}.{signature}")),
        ("a key of somebody else's", format!("{key}.{claims}.{signature}")),
        ("another name", format!("{header}.{}.{signature}", claimed(json!({"email": "bob@example.com"})))),
        ("more groups", format!("{header}.{}.{signature}", claimed(json!({"groups": ["system:masters"]})))),
        ("without a signature", format!("{header}.{claims}")),
        ("a broken signature", format!("{header}.{claims}.{}", signature.chars().rev().collect::<String>())),
        ("nothing", String::new()),
        ("with a line end", format!("{good}\r\nImpersonate-User: admin")),
        ("with another header", format!("{good}, Bearer x")),
        ("a scheme before it", format!("Bearer {good}")),
        ("an accent", "tökén".to_owned()),
    ];
    for (what, token) in forged {
        assert_refused(&harness, &token, what).await;
    }
    assert_only_reads(&harness.witness);
    assert!(requests_of_users(&harness.witness).iter().all(|seen| seen.impersonates().is_empty()));
    // Blanks around a token from a clipboard are not part of it.
    Visitor::with_token(&harness.web, &format!("  {good}\r\n")).await;
}

#[tokio::test]
async fn expired_token_begins_no_session() {
    let harness = Harness::start().await.unwrap();
    let expired = token(&harness, "email=expired@example.com&groups=none&seconds=1").await;
    // Its second passes; the API server has not seen it yet, and has nothing cached.
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    assert_refused(&harness, &expired, "expired").await;
}

#[tokio::test]
async fn user_whose_name_contains_via_cannot_decide_for_another_user() {
    let (harness, [runs]) = Harness::with_runs(["via"]).await.unwrap();
    let approval = runs
        .start_gate(
            "one",
            json!({"approvers": [{"kind": "Group", "name": "finance"}, {"kind": "User", "name": "eve"}]}),
        )
        .await;
    // `eve via mallory` is a user name of the cast: it cannot decide for eve.
    let via = Visitor::of(&harness, "via").await;
    harness.witness.forget();
    let answer = via.approve(&approval).await;
    let stored = runs.read_request(&approval).await.spec.decisions;
    assert!(answer.status >= 400 && stored.is_empty(), "{}: {stored:?} {}", answer.status, answer.text);
    assert!(requests_of_users(&harness.witness).iter().all(|seen| seen.token() == Some(&via.token)));
}

#[tokio::test]
async fn form_sends_nothing_after_its_token_has_expired() {
    let (harness, [runs]) = Harness::with_runs(["ends"]).await.unwrap();
    super::visitor::bind_group(&harness.cluster, &runs, "signoff-approver", runs.name()).await;
    let email = format!("ends.{}@example.com", runs.name());
    let approval = runs.start_gate("one", json!({"approvers": [{"kind": "User", "name": email}]})).await;
    let short = token(&harness, &format!("email={email}&groups={}&seconds=6", runs.name())).await;
    let person = Visitor::with_token(&harness.web, &short).await;
    assert_eq!(person.get(&path(&approval)).await.status, 200, "the form is open");
    // The API server accepts a token that it has seen for a few more seconds.
    let ended = async {
        while harness.cluster.who_is(&short).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), ended).await.unwrap();
    harness.witness.forget();
    let answer = person.approve(&approval).await;
    assert_eq!(answer.status, 401, "{}", answer.text);
    assert!(
        answer.text.contains("href=\"/sign-in\"") && answer.text.contains("Nothing was decided"),
        "{}",
        answer.text
    );
    assert_only_reads(&harness.witness);
    assert!(runs.read_request(&approval).await.spec.decisions.is_empty());
    // After a new sign-in, the same form is accepted.
    let long = token(&harness, &format!("email={email}&groups={}", runs.name())).await;
    let again = Visitor::with_token(&harness.web, &long).await;
    assert_eq!(again.approve(&approval).await.status, 303);
    assert_eq!(runs.read_request(&approval).await.spec.decisions.into_keys().collect::<Vec<_>>(), [email]);
}
