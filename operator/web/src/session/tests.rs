//! Sign-in and sessions against a fake identity provider and a fake API server.
//!
//! Each rule is tested with the attack that it is for.

#![allow(clippy::unwrap_used)]

use axum_extra::extract::cookie::Key;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use super::fake::*;

const IMPERSONATION: [&str; 6] =
    ["--auth", "impersonation", "--username-prefix", "idp:", "--oidc-groups-claim", "groups"];

/// Returns a world whose API server accepts every id_token as a token of alice.
fn world() -> World {
    let world = World::new(&[]);
    world.accept_token("*", "alice");
    world
}

fn header_values(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

/// Signs in with a token that `make` creates from the claims of the provider, and returns the text of the refusal.
async fn refusal_of(make: impl Fn(Value) -> String + Send + 'static) -> String {
    let (world, mut browser) = (world(), Browser::default());
    world.idp.lock().unwrap().make = Some(Box::new(make));
    let response = browser.sign_in(&world).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(!browser.cookies.contains_key("__Host-signoff"), "no session");
    assert_eq!(world.count_requests(), 0, "the API server has not seen the token");
    text(response).await
}

#[tokio::test]
async fn sign_in_sends_exactly_the_token_of_the_provider() {
    let (world, mut browser) = (world(), Browser::default());
    assert_eq!(location(&browser.sign_in(&world).await), "/");
    assert!(browser.is_signed_in(&world).await);
    let seen = world.seen.lock().unwrap();
    for headers in seen.iter() {
        let bearer = &header_values(headers, "authorization")[0];
        assert!(bearer.starts_with("Bearer ey") && bearer.split('.').count() == 3, "{bearer}");
        assert!(!headers.keys().any(|name| name.as_str().starts_with("impersonate")), "{headers:?}");
    }
    assert_eq!(seen.len(), 6);
}

#[tokio::test]
async fn tokens_of_others_and_for_others_are_refused() {
    let said = refusal_of(|mut claims| {
        claims["aud"] = json!("another");
        FIRST.sign(&claims)
    });
    assert!(said.await.contains("Invalid audiences"));
    let said = refusal_of(|mut claims| {
        claims["aud"] = json!(["signoff", "another"]);
        FIRST.sign(&claims)
    });
    assert!(said.await.contains("not a trusted audience"));
    let said = refusal_of(|mut claims| {
        claims["azp"] = json!("another");
        FIRST.sign(&claims)
    });
    assert!(said.await.contains("made for another client (azp)"));
    let said = refusal_of(|mut claims| {
        claims["iss"] = json!("https://evil.example");
        FIRST.sign(&claims)
    });
    assert!(said.await.contains("Invalid issuer"));
    let said = refusal_of(|mut claims| {
        claims["nonce"] = json!("another");
        FIRST.sign(&claims)
    });
    assert!(said.await.contains("nonce mismatch"));
    let said = refusal_of(|mut claims| {
        claims.as_object_mut().unwrap().remove("nonce");
        FIRST.sign(&claims)
    });
    assert!(said.await.contains("missing nonce"));
}

#[tokio::test]
async fn tokens_out_of_time_are_refused() {
    let said = refusal_of(|mut claims| {
        claims["exp"] = json!(seconds(-31));
        FIRST.sign(&claims)
    });
    assert!(said.await.contains("Expired"));
    let said = refusal_of(|mut claims| {
        claims["nbf"] = json!(seconds(60));
        FIRST.sign(&claims)
    });
    assert!(said.await.contains("does not hold yet"));
    for unreadable in [json!("soon"), json!(null), json!(1e300), json!([0])] {
        let said = refusal_of(move |mut claims| {
            claims["nbf"] = unreadable.clone();
            FIRST.sign(&claims)
        });
        assert!(said.await.contains("its time nbf is no number of seconds"));
    }
}

#[tokio::test]
async fn signatures_that_anybody_can_make_are_refused() {
    assert!(refusal_of(|claims| unsigned_token(&claims)).await.contains("signature does not hold"));
    assert!(refusal_of(|claims| sign_with_secret("secret", &claims)).await.contains("Disallowed signature algorithm"));
    let said = refusal_of(|claims| SigningKey(9, FIRST.1).sign(&claims)).await;
    assert!(said.contains("signature does not hold"), "{said}");
    let said = refusal_of(|claims| {
        let signed = FIRST.sign(&claims);
        let mut other = claims;
        other["sub"] = json!("root");
        let other = FIRST.sign(&other);
        let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
        format!("{}.{}.{}", parts(&signed)[0], parts(&other)[1], parts(&signed)[2])
    });
    assert!(said.await.contains("signature does not hold"));
}

#[tokio::test(start_paused = true)]
async fn unknown_key_is_read_once_a_minute_and_a_withdrawn_key_is_refused() {
    let (world, mut browser) = (world(), Browser::default());
    browser.sign_in(&world).await;
    world.idp.lock().unwrap().keys = vec![SECOND];
    let mut other = Browser::default();
    assert_eq!(location(&other.sign_in(&world).await), "/", "the new key is found");
    assert_eq!(world.idp.lock().unwrap().asked_for_keys, 2);
    assert!(!browser.is_signed_in(&world).await, "its key was withdrawn");
    for _ in 0..3 {
        world.idp.lock().unwrap().make = Some(Box::new(|claims| SigningKey(3, "third").sign(&claims)));
        assert_eq!(other.clone().sign_in(&world).await.status(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(world.idp.lock().unwrap().asked_for_keys, 2, "not within a minute");
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    other.clone().sign_in(&world).await;
    assert_eq!(world.idp.lock().unwrap().asked_for_keys, 3);
}

#[tokio::test(start_paused = true)]
async fn old_keys_are_read_again_once_in_the_background() {
    use std::time::Duration;
    let (world, mut browser) = (world(), Browser::default());
    browser.sign_in(&world).await;
    tokio::time::advance(Duration::from_secs(3601)).await;
    world.idp.lock().unwrap().is_silent = true;
    let begun = tokio::time::Instant::now();
    for _ in 0..5 {
        assert!(browser.is_signed_in(&world).await);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody waits");
    assert_eq!(world.idp.lock().unwrap().unanswered, 1, "one asks for all");
    tokio::time::sleep(Duration::from_secs(61)).await;
    {
        let mut idp = world.idp.lock().unwrap();
        (idp.is_silent, idp.keys) = (false, vec![SECOND]);
    }
    assert!(browser.is_signed_in(&world).await, "the new keys are on their way");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!browser.is_signed_in(&world).await, "its key was withdrawn");
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_day_ago_do_not_count_while_the_provider_is_silent() {
    use std::time::Duration;
    let (world, mut browser) = (world(), Browser::default());
    browser.sign_in(&world).await;
    world.idp.lock().unwrap().is_silent = true;
    tokio::time::advance(Duration::from_secs(24 * 3600 - 1)).await;
    assert!(browser.is_signed_in(&world).await);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let response = browser.get(&world, "/sign-in").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    world.idp.lock().unwrap().is_silent = false;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(browser.is_signed_in(&world).await, "it answers again");
}

#[tokio::test]
async fn requests_of_other_sites_do_not_count_as_sign_ins() {
    let (world, mut browser) = (world(), Browser::default());
    let back = browser.begin(&world).await;
    for at in 0..300 {
        let answer = Browser::default().get(&world, &format!("/sign-in/callback?code=a&state={at}")).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{at}");
    }
    assert_eq!(location(&browser.get(&world, &back).await), "/", "the same address signs in");
    let mut last = StatusCode::OK;
    for _ in 0..300 {
        last = Browser::default().post(&world, "/sign-in/start", "").await.status();
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    let mut begun = Browser { cookies: browser.cookies.clone(), ..Browser::default() };
    let (jar, flow) = (axum_extra::extract::PrivateCookieJar::new(world.state.key.clone()), "s");
    let flow = super::flow::Flow {
        state: flow.to_owned(),
        nonce: "n".to_owned(),
        verifier: "v".to_owned(),
        since: super::now(),
    };
    let jar = axum::response::IntoResponse::into_response((super::flow::add(jar, flow, super::now()), ""));
    let line = jar.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
    begun.cookies.insert(name.to_owned(), value.to_owned());
    let answer = begun.get(&world, "/sign-in/callback?code=a&state=s").await;
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "one that was begun is counted");
    assert!(begun.cookies.contains_key(name), "and can be ended later");
}

#[tokio::test]
async fn session_of_a_pasted_token_ends_if_the_page_takes_no_tokens() {
    let session =
        super::Session { token: secrecy::SecretString::from("good".to_owned()), nonce: None, since: super::now() };
    for (flags, holds) in [(&[][..], true), (&["--no-token-sign-in"][..], false)] {
        let world = World::new(flags);
        world.accept_token("good", "alice");
        let said = world.state.sessions.verify(&session, super::now()).await;
        assert_eq!(said.is_ok(), holds, "{flags:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_provider_is_an_error_and_is_requested_again_later() {
    let (world, mut browser) = (world(), Browser::default());
    world.idp.lock().unwrap().is_away = true;
    let response = browser.post(&world, "/sign-in/start", "").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let said = text(response).await;
    assert!(said.contains("idp.example cannot be used now: connection refused"), "{said}");
    world.idp.lock().unwrap().is_away = false;
    assert_eq!(browser.post(&world, "/sign-in/start", "").await.status(), StatusCode::SERVICE_UNAVAILABLE, "a moment");
    tokio::time::advance(std::time::Duration::from_secs(4)).await;
    assert_eq!(location(&browser.sign_in(&world).await), "/");
}

#[tokio::test]
async fn sign_in_ends_once_and_only_in_its_own_browser_and_state() {
    let (world, mut browser) = (world(), Browser::default());
    let back = browser.begin(&world).await;
    let stranger = Browser::default().get(&world, &back).await;
    assert_eq!(stranger.status(), StatusCode::UNAUTHORIZED, "another browser");
    let wrong = back.split("state=").next().unwrap().to_owned() + "state=other";
    assert_eq!(browser.clone().get(&world, &wrong).await.status(), StatusCode::UNAUTHORIZED, "another state");
    assert_eq!(world.idp.lock().unwrap().asked_for_tokens, 0, "no code was shown");
    let before = browser.clone();
    assert_eq!(location(&browser.get(&world, &back).await), "/");
    let again = browser.get(&world, &back).await;
    assert!(text(again).await.contains("has ended already"));
    let kept = before.clone().get(&world, &back).await;
    assert!(text(kept).await.contains("invalid_grant"), "the provider takes a code once");
}

#[tokio::test]
async fn a_code_of_another_sign_in_is_refused_by_its_proof() {
    let (world, mut browser, mut thief) = (world(), Browser::default(), Browser::default());
    let stolen = browser.begin(&world).await;
    let own = thief.begin(&world).await;
    let code = stolen.split(['=', '&']).nth(1).unwrap();
    let mixed = format!("/sign-in/callback?code={code}&state={}", own.split("state=").nth(1).unwrap());
    let response = thief.get(&world, &mixed).await;
    assert!(text(response).await.contains("invalid_grant"));
}

#[tokio::test]
async fn two_tabs_sign_in_beside_each_other() {
    let (world, mut browser) = (world(), Browser::default());
    let (first, second) = (browser.begin(&world).await, browser.begin(&world).await);
    assert_eq!(location(&browser.get(&world, &first).await), "/");
    assert_eq!(location(&browser.get(&world, &second).await), "/");
}

#[tokio::test]
async fn text_of_the_provider_is_escaped_and_another_issuer_is_refused() {
    let (world, mut browser) = (world(), Browser::default());
    let state = |back: &str| back.split("state=").nth(1).unwrap().to_owned();
    let back = browser.begin(&world).await;
    let denied =
        format!("/sign-in/callback?error=access_denied&error_description=%3Cb%3Eno%1b%5B31m&state={}", state(&back));
    let said = text(browser.get(&world, &denied).await).await;
    assert!(said.contains("does not let you in: access_denied") && !said.contains("<b>no"), "{said}");
    let back = browser.begin(&world).await;
    let mixed = format!("{back}&iss=https://evil.example");
    assert!(text(browser.get(&world, &mixed).await).await.contains("Another identity provider"));
    assert_eq!(world.idp.lock().unwrap().asked_for_tokens, 0);
}

#[tokio::test]
async fn token_that_the_api_server_refuses_begins_no_session() {
    let (world, mut browser) = (World::new(&[]), Browser::default());
    let response = browser.sign_in(&world).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(text(response).await.contains("API server does not accept the token of this identity provider"));
    assert!(!browser.is_signed_in(&world).await);
}

#[tokio::test]
async fn impersonated_session_sends_the_names_of_its_token_and_the_channel() {
    let (world, mut browser) = (World::new(&IMPERSONATION), Browser::default());
    world.idp.lock().unwrap().claims = json!({"groups": ["finance", "ops"]});
    assert_eq!(location(&browser.sign_in(&world).await), "/");
    let seen = world.seen.lock().unwrap();
    assert_eq!(header_values(&seen[0], "impersonate-user"), ["idp:alice"]);
    assert_eq!(header_values(&seen[0], "impersonate-group"), ["finance", "ops"]);
    assert_eq!(header_values(&seen[0], "impersonate-extra-signoff.dev%2fchannel"), ["web"]);
    assert!(header_values(&seen[0], "authorization").is_empty(), "the user's token stays here");
}

#[tokio::test]
async fn invalid_names_are_refused_at_the_sign_in_and_named() {
    for (claims, why) in [
        (json!({"groups": ["system:masters"]}), "the group system:masters is refused"),
        (json!({"sub": ""}), "no text in its claim sub"),
        (json!({"sub": "bob via agent"}), "those of agents"),
    ] {
        let (world, mut browser) = (World::new(&IMPERSONATION), Browser::default());
        world.idp.lock().unwrap().claims = claims;
        let response = browser.sign_in(&world).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        let said = text(response).await;
        assert!(said.contains(why), "{said}");
        assert_eq!(world.count_requests(), 0);
    }
}

/// Returns the claims of a user in more groups than a provider puts into a token. The fake provider panics at requests
/// to any other address.
fn overage() -> Value {
    let endpoint = format!("{ISSUER}/users/alice/getMemberObjects");
    json!({"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": endpoint}}})
}

/// Returns the notice for a signed-in user about their groups.
async fn groups_notice(world: &World, claims: Value) -> Option<String> {
    world.idp.lock().unwrap().claims = claims;
    let mut browser = Browser::default();
    assert_eq!(location(&browser.sign_in(world).await), "/");
    let cookies: Vec<_> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let headers = HeaderMap::from_iter([(header::COOKIE, cookies.join("; ").parse().unwrap())]);
    let jar = axum_extra::extract::PrivateCookieJar::from_headers(&headers, world.state.key.clone());
    let session = super::cookie::read(&jar).unwrap();
    super::Caller::of(&session, &world.state).await.unwrap().groups_left_out
}

#[tokio::test]
async fn groups_that_the_provider_left_out_are_a_notice_and_not_fetched() {
    let pass_through = world();
    for world in [&pass_through, &World::new(&IMPERSONATION)] {
        let said = groups_notice(world, overage()).await.unwrap();
        assert!(said.starts_with("your identity provider left the groups out of your token"), "{said}");
        assert!(said.contains("more than 200 groups: its administrators can"), "{said}");
        assert_eq!(groups_notice(world, json!({"groups": ["finance"]})).await, None);
        assert_eq!(groups_notice(world, json!({})).await, None);
    }
    let renamed = World::new(&["--auth", "impersonation", "--oidc-groups-claim", "roles"]);
    assert_eq!(groups_notice(&renamed, overage()).await, None, "the page reads another claim");
    let without = World::new(&["--auth", "impersonation"]);
    assert_eq!(groups_notice(&without, overage()).await, None, "the page reads no groups");
}

#[tokio::test]
async fn refusal_of_a_token_without_groups_is_explained() {
    let (world, mut browser) = (World::new(&[]), Browser::default());
    world.idp.lock().unwrap().claims = overage();
    let response = browser.sign_in(&world).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let said = text(response).await;
    assert!(
        said.contains("does not accept your token, perhaps because your identity provider left the groups out"),
        "{said}"
    );
}

#[tokio::test]
async fn stolen_cookie_key_does_not_forge_a_session() {
    use axum::response::IntoResponse;
    use axum_extra::extract::PrivateCookieJar;
    use secrecy::SecretString;

    let key = Key::generate();
    let forged = |token: String, nonce: Option<&str>| {
        let session =
            super::Session { token: SecretString::from(token), nonce: nonce.map(str::to_owned), since: super::now() };
        let response =
            (super::cookie::write(PrivateCookieJar::new(key.clone()), &session).unwrap(), "").into_response();
        let line = response.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
        let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
        Browser { cookies: [(name.to_owned(), value.to_owned())].into(), ..Browser::default() }
    };
    let claims =
        json!({"iss": ISSUER, "aud": "signoff", "sub": "root", "nonce": "n", "iat": seconds(0), "exp": seconds(600)});
    for flags in [&[][..], &IMPERSONATION[..]] {
        let world = World::with_key(flags, key.clone());
        world.accept_token("good", "alice");
        for (token, nonce) in [
            (unsigned_token(&claims), Some("n")),
            (sign_with_secret("signoff", &claims), Some("n")),
            (SigningKey(9, FIRST.1).sign(&claims), Some("n")),
            (FIRST.sign(&claims), Some("of another sign-in")),
            ("root".to_owned(), None),
        ] {
            assert!(!forged(token.clone(), nonce).is_signed_in(&world).await, "{token}");
        }
        assert_eq!(forged("good".to_owned(), None).is_signed_in(&world).await, flags.is_empty());
        let foreign = World::with_key(flags, Key::generate());
        foreign.accept_token("good", "alice");
        assert!(!forged("good".to_owned(), None).is_signed_in(&foreign).await, "a cookie of another key");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_a_pasted_one_too() {
    let (world, mut browser) = (world(), Browser::default());
    world.idp.lock().unwrap().claims = json!({"exp": seconds(-20)});
    assert_eq!(location(&browser.sign_in(&world).await), "/", "within the leeway");
    let expired = FIRST.sign(&json!({"exp": seconds(-31)}));
    let asked = world.count_requests();
    let response = Browser::default().post(&world, "/sign-in/token", &format!("token={expired}")).await;
    assert_eq!((response.status(), world.count_requests()), (StatusCode::UNAUTHORIZED, asked));
    let session = |exp: i64| super::Session {
        token: secrecy::SecretString::from(FIRST.sign(&json!({"exp": exp}))),
        nonce: None,
        since: super::now(),
    };
    let soon = world.state.sessions.verify(&session(seconds(60)), super::now()).await.unwrap().1;
    assert!(soon.since(super::now()).as_secs() <= 60);
    let late = world.state.sessions.verify(&session(seconds(100_000)), super::now()).await.unwrap().1;
    assert!(late.since(super::now()).as_secs() <= 8 * 3600);
    let old = session(seconds(100_000));
    let later = super::now().after(std::time::Duration::from_secs(8 * 3600 + 1));
    assert!(world.state.sessions.verify(&old, later).await.is_err());
}
