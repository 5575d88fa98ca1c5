//! Tests of the instruments of these tests: issuer, API server, witness and browser.

use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ListParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use signoff_tests::browser::{Look, Page, any, css, label, role, text};
use signoff_tests::control_plane::{CAST, CLIENT, Cluster, Issuer, OTHER_CLIENT, Witness, named};

use crate::harness::submit_issuer_form;

#[tokio::test]
async fn token_of_the_issuer_identifies_the_user_to_the_api_server() {
    let cluster = Cluster::web().unwrap();
    let issuer = Issuer::of(&cluster).unwrap();
    for name in ["alice", "bob", "dana", "slash", "via"] {
        let person = named(name).unwrap();
        let token = issuer.tokens(CLIENT, person.user).await.unwrap().id_token;
        let (user, mut groups) = cluster.who_is(&token).await.unwrap();
        assert_eq!(user, person.user);
        groups.retain(|group| group != "system:authenticated");
        assert_eq!(groups, person.groups);
    }
    assert!(CAST.len() > 5);
}

#[tokio::test]
async fn a_token_for_another_audience_is_refused() {
    let cluster = Cluster::web().unwrap();
    let issuer = Issuer::of(&cluster).unwrap();
    let tokens = issuer.tokens(OTHER_CLIENT, "alice@example.com").await.unwrap();
    assert_eq!(tokens.claims().unwrap()["aud"], OTHER_CLIENT);
    let refused = cluster.who_is(&tokens.id_token).await.unwrap_err();
    assert!(format!("{refused:#}").contains("Unauthorized"), "{refused:#}");
}

#[tokio::test]
async fn service_account_has_a_token() {
    let cluster = Cluster::web().unwrap();
    let token = cluster.account_token("default", "default").await.unwrap();
    assert_eq!(cluster.who_is(&token).await.unwrap().0, "system:serviceaccount:default:default");
    assert!(cluster.account_token("default", "nobody").await.is_err());
}

#[tokio::test]
async fn witness_records_requests_and_can_be_unreachable() {
    let cluster = Cluster::web().unwrap();
    let token = Issuer::of(&cluster).unwrap().tokens(CLIENT, "alice@example.com").await.unwrap().id_token;
    let witness = Witness::start(&cluster).await.unwrap();

    let alice = client(&witness, Some(&token), None).await;
    let maps: Api<ConfigMap> = Api::namespaced(alice, "default");
    let refused = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("alice@example.com"), "the API server took her token: {refused}");
    let seen = witness.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].token(), Some(token.as_str()));
    assert_eq!(seen[0].status, Some(403));
    assert!(seen[0].reads() && seen[0].impersonates().is_empty());

    witness.forget();
    let nobody = client(&witness, None, Some("bob@example.com")).await;
    let _ = Api::<ConfigMap>::namespaced(nobody, "default").get("none").await.unwrap_err();
    let seen = witness.seen();
    assert_eq!(seen[0].impersonates(), [("impersonate-user".to_owned(), "bob@example.com".to_owned())]);
    assert_eq!(seen[0].token(), None);

    // An open watch breaks, new requests fail, and then everything works again.
    let admin = admin_token(&cluster);
    let maps: Api<ConfigMap> = Api::namespaced(client(&witness, Some(&admin), None).await, "default");
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap());
    assert!(watch.next().await.unwrap().is_ok(), "kube-root-ca.crt is in every namespace");
    witness.close().await;
    let end = tokio::time::timeout(Duration::from_secs(20), async { while let Some(Ok(_)) = watch.next().await {} });
    end.await.expect("the watch goes on without an API server");
    assert!(maps.list(&ListParams::default()).await.is_err());
    witness.open().await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn browser_acts_as_a_person_and_axe_finds_violations() {
    let url = serve().await;
    let page = Page::open(&Look::default()).await.unwrap();
    assert_eq!(page.goto(&url).await.unwrap(), 200);
    assert_eq!(page.title().await.unwrap(), "Proof");
    assert_eq!(page.response().await.unwrap().header("content-type"), "text/html; charset=utf-8");
    page.accessible().await.unwrap();
    page.fits().await.unwrap();

    page.fill(label("Name"), "Dana").await.unwrap();
    page.tab_to("button Greet", 3).await.unwrap();
    page.press("Enter").await.unwrap();
    page.wait(text("Hello Dana")).await.unwrap();
    assert_eq!(page.text("output").await.unwrap(), "Hello Dana");
    assert_eq!(page.count(any("button")).await.unwrap(), 1);
    page.look(&Look::default().small().dark()).await.unwrap();
    assert_eq!(page.evaluate("innerWidth").await.unwrap(), 360);
    assert_eq!(page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches").await.unwrap(), true);
    let picture = page.screenshot("instruments-proof").await.unwrap();
    assert!(std::fs::read(picture).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(page.complaints().await.unwrap(), Vec::<String>::new());

    page.goto(&format!("{url}/broken")).await.unwrap();
    let found = page.accessible().await.unwrap_err();
    assert!(format!("{found:#}").contains("image-alt"), "{found:#}");
    let complaints = page.complaints().await.unwrap();
    assert!(complaints.iter().any(|line| line.contains("Content Security Policy")), "{complaints:?}");
    page.close().await.unwrap();

    let plain = Page::open(&Look::default().without_scripts()).await.unwrap();
    plain.goto(&url).await.unwrap();
    plain.click(role("button", "Greet")).await.unwrap();
    assert_eq!(plain.count(css("output:empty")).await.unwrap(), 1, "no script ran");
    plain.close().await.unwrap();
}

#[tokio::test]
async fn form_of_the_issuer_signs_in_for_a_stated_time() {
    let issuer = Issuer::of(&Cluster::web().unwrap()).unwrap();
    let url = serve().await;
    let page = Page::open(&Look::default()).await.unwrap();
    let start = format!(
        "{}/auth?client_id={CLIENT}&response_type=code&scope=openid&state=here&redirect_uri={url}/sign-in/callback\
         &code_challenge={}&code_challenge_method=S256",
        issuer.url,
        "a".repeat(43)
    );
    page.goto(&start).await.unwrap();
    submit_issuer_form(&page, "alice", Some(60)).await.unwrap();
    page.wait_url("/sign-in/callback?code=").await.unwrap();
    assert!(page.url().await.unwrap().contains("state=here"));
    page.close().await.unwrap();
}

#[tokio::test]
async fn missing_element_is_named_with_a_screenshot() {
    let page = Page::open(&Look::default()).await.unwrap();
    page.goto(&serve().await).await.unwrap();
    assert_eq!(page.attribute(role("button", "Greet"), "nothing").await.unwrap(), None);
    let error = page.select(role("button", "Greet"), "x").await.unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains(r#"choosing in the button "Greet""#) && message.contains(".png"), "{message}");
    page.close().await.unwrap();
}

/// Serves three pages on loopback: an accessible one, a broken one, and the target of the sign-in. Returns their URL.
async fn serve() -> String {
    let page = Html(
        "<!doctype html><html lang=en><meta name=viewport content='width=device-width'><link rel=icon href='data:,'><title>Proof</title>
         <main><h1>Proof</h1><form onsubmit=\"document.querySelector('output').value = 'Hello ' + this.n.value; return false\"
         action=\"javascript:0\"><label>Name <input name=n></label> <button>Greet</button></form><output></output></main></html>",
    );
    let broken = (
        [("content-security-policy", "script-src 'none'")],
        Html(
            "<!doctype html><html lang=en><title>Broken</title><main><h1>Broken</h1><img src=x><script>1</script></main></html>",
        ),
    );
    let callback = Html("<!doctype html><title>Back</title>");
    let app = Router::new()
        .route("/", get(async move || page))
        .route("/broken", get(async move || broken))
        .route("/sign-in/callback", get(async move || callback));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// Returns a client that connects through the witness.
async fn client(witness: &Witness, token: Option<&str>, impersonate: Option<&str>) -> Client {
    let file = Kubeconfig::read_from(witness.kubeconfig(token).unwrap()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info.impersonate = impersonate.map(str::to_owned);
    Client::try_from(config).unwrap()
}

/// Returns the administrator's own token from the kubeconfig.
pub(crate) fn admin_token(cluster: &Cluster) -> String {
    let file = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let file: serde_json::Value = serde_saphyr::from_str(&file).unwrap();
    let users = file["users"].as_array().unwrap();
    let admin = users.iter().find(|user| user["name"] == "admin").unwrap();
    admin["user"]["token"].as_str().unwrap().to_owned()
}
