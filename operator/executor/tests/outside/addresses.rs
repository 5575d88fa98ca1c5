//! Tests of names that resolve to addresses which calls must not reach: the connection itself is refused.
//!
//! The tests have a resolver of their own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use signoff_executor::{AddressSettings, ErrorClass, Http as _, HttpClient};

use crate::server::{Server, client, get, post, settings};

/// A resolver that answers the n-th look-up of any name with the n-th list of addresses, and later look-ups with the
/// last list.
struct Names {
    answers: Vec<Vec<IpAddr>>,
    lookups: AtomicUsize,
}

impl Resolve for Names {
    fn resolve(&self, _name: Name) -> Resolving {
        let turn = self.lookups.fetch_add(1, Ordering::SeqCst).min(self.answers.len() - 1);
        let found: Vec<_> = self.answers[turn].iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
        Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
    }
}

/// Returns a client whose resolver answers with `answers`, and which may reach the addresses `allow`.
fn client_with_names(answers: &[&[&str]], allow: &[&str]) -> HttpClient {
    let parse = |list: &&[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
    let names = Names { answers: answers.iter().map(parse).collect(), lookups: AtomicUsize::new(0) };
    let addresses =
        AddressSettings { allow: allow.iter().map(|entry| entry.parse().unwrap()).collect(), ..Default::default() };
    HttpClient::with_resolver(settings(addresses), Arc::new(names)).unwrap()
}

#[tokio::test]
async fn a_name_that_leads_to_a_special_address_is_refused_and_nothing_is_sent() {
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "168.63.129.16",
        "0.0.0.0",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "198.18.0.1",
        "192.88.99.1",
        "fec0::1",
        "100::1",
        "5f00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::127.0.0.1",
    ] {
        let client = client_with_names(&[&[address]], &[]);
        let error = client.call(post("http://letters.example.com/send", "x")).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Refused, "{address}: {error}");
        assert!(!error.sent && !error.retryable(true) && error.outcome_known());
        let shown: IpAddr = address.parse().unwrap();
        let place = format!("{shown} (to which letters.example.com resolves) is a");
        assert!(error.message.contains(&place), "{error}");
        let remedy = format!("--allow-address {} allows it", SocketAddr::new(shown, 80));
        assert!(error.message.contains(&remedy), "{error}");
    }
}

#[tokio::test]
async fn a_name_is_checked_again_at_every_connection() {
    let server = Server::answering("200 OK", "", "the inside").await;
    let client = client_with_names(&[&["127.0.0.1"], &["169.254.169.254"]], &["127.0.0.0/8"]);
    let url = format!("http://letters.example.com:{}/", server.address.port());
    assert!(client.call(get(&url)).await.is_ok());
    // The same name now resolves to the metadata service.
    assert_eq!(client.call(get(&url)).await.unwrap_err().class, ErrorClass::Refused);
}

#[tokio::test]
async fn only_the_allowed_addresses_of_a_name_are_tried() {
    let server = Server::answering("200 OK", "", "ok").await;
    let client = client_with_names(&[&["169.254.169.254", "127.0.0.1", "::1"]], &["127.0.0.1"]);
    let url = format!("http://letters.example.com:{}/", server.address.port());
    assert_eq!(client.call(get(url)).await.unwrap().body, "ok");
}

#[tokio::test]
async fn an_exception_for_a_port_applies_to_a_name_too() {
    let (server, other) = (Server::answering("200 OK", "", "ok").await, Server::answering("200 OK", "", "no").await);
    let (port, other_port) = (server.address.port(), other.address.port());
    for allow in [format!("127.0.0.1:{port}"), format!("letters.example.com:{port}")] {
        let client = client_with_names(&[&["127.0.0.1"]], &[allow.as_str()]);
        assert_eq!(client.call(get(format!("http://letters.example.com:{port}/"))).await.unwrap().body, "ok");
        let refused = client.call(get(format!("http://letters.example.com:{other_port}/"))).await.unwrap_err();
        assert_eq!(refused.class, ErrorClass::Refused, "{allow}: {refused}");
    }
    assert!(other.received().is_empty());
}

#[tokio::test]
async fn a_literal_special_address_is_refused_before_anything_is_opened() {
    let server = Server::answering("200 OK", "", "the inside").await;
    let strict = HttpClient::new(settings(AddressSettings::default())).unwrap();
    let error = strict.call(get(server.url("/"))).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Refused);
    let localhost = format!("http://localhost:{}/", server.address.port());
    assert_eq!(strict.call(get(&localhost)).await.unwrap_err().class, ErrorClass::Refused);
    assert!(server.received().is_empty());
    assert_eq!(client().call(get(server.url("/"))).await.unwrap().body, "the inside");
}

#[tokio::test]
async fn a_name_that_resolves_to_a_protected_address_is_refused() {
    let server = Server::answering("200 OK", "", "the inside").await;
    let names = Names { answers: vec![vec!["127.0.0.1".parse().unwrap()]], lookups: AtomicUsize::new(0) };
    let addresses = AddressSettings { allow: vec!["127.0.0.0/8".parse().unwrap()], ..Default::default() };
    let protected = addresses.protected.clone();
    let client = HttpClient::with_resolver(settings(addresses), Arc::new(names)).unwrap();
    let (name, literal) = (format!("http://letters.example.com:{}/", server.address.port()), server.url("/"));
    protected.announce("a node of the cluster");
    let mut early = get(&name);
    early.timeout = Duration::from_millis(50);
    let error = client.call(early).await.unwrap_err();
    assert_eq!((error.class, error.sent), (ErrorClass::Unreachable, false), "{error}");

    // A call that is made before the report waits for the report.
    let waiting = tokio::spawn({
        let (client, name) = (client.clone(), name.clone());
        async move { client.call(get(name)).await }
    });
    protected.set_addresses("a node of the cluster", Default::default());
    assert_eq!(waiting.await.unwrap().unwrap().body, "the inside");
    protected.set_addresses("a node of the cluster", ["127.0.0.1".parse().unwrap()].into());
    for url in [&name, &literal] {
        let error = client.call(get(url)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Refused, "{url}: {error}");
        assert!(error.message.contains("is a node of the cluster"), "{error}");
    }
    protected.set_addresses("a node of the cluster", Default::default());
    assert!(client.call(get(&name)).await.is_ok());
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_name_without_addresses_is_unreachable() {
    let error = client_with_names(&[&[]], &[]).call(post("http://nowhere.example.com/", "x")).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreachable, "{error}");
    assert!(!error.sent);
}
