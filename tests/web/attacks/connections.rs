//! Connections that never send a whole request, from one peer and from many, and many readers behind one proxy.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use signoff_tests::control_plane::{Cluster, program};
use signoff_tests::half_requests::{HalfRequests, with_few_files};
use tokio::time::timeout;

use super::visitor::{FORM, Visitor, bind_group, form, send_raw, token};
use crate::harness::Harness;
use crate::runs::{Runs, path};

/// The longest wait of an honest reader.
const READER_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait of a reader for news, while 200 readers sign in on one machine.
const NEWS_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of readers behind one proxy.
const READERS: usize = 200;

/// Reads a page ten times, each time as a new reader, and fails if one takes too long.
async fn read_pages(host: &str) {
    for _ in 0..10 {
        let approval = format!("GET /sign-in HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let (status, answer) =
            timeout(READER_TIMEOUT, send_raw(host, &approval)).await.expect("an honest reader waits");
        assert_eq!(status, 200, "{answer}");
    }
}

#[tokio::test]
async fn half_requests_block_no_reader_and_end_after_ten_seconds() {
    let harness = Harness::start_with(|options| {
        let page = program("signoff-web", "signoff-web").unwrap();
        let folder = options.kubeconfig.parent().unwrap();
        options.program = Some(with_few_files(&page, folder).unwrap());
    });
    let harness = harness.await.unwrap();
    let host = harness.web.url().strip_prefix("http://").unwrap();
    let mut half = HalfRequests::at(harness.web.url()).unwrap();
    half.open(1, 1200).await.unwrap();
    // The honest reader has the same address.
    read_pages(host).await;
    // All are connections of one peer.
    let open = half.at_most(256, READER_TIMEOUT).await.unwrap();
    assert!(open > 200, "{open} of one peer");
    for peer in 2..=6 {
        half.open(peer, 256).await.unwrap();
    }
    let opened = Instant::now();
    read_pages(host).await;
    let open = half.at_most(1024, READER_TIMEOUT).await.unwrap();
    assert!(open > 900, "{open} of six peers");
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(timeout(READER_TIMEOUT, harness.web.health(probe)).await.unwrap().unwrap().0, 200);
    }
    let answer = half.last_answer(Duration::from_secs(15)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("not whole within 10s"), "{answer}");
    assert!(opened.elapsed() > Duration::from_secs(8), "{:?}", opened.elapsed());
    half.at_most(0, READER_TIMEOUT).await.unwrap();
    assert!(
        !harness.web.log().unwrap().contains("no connection can be accepted"),
        "the limit on open files was raised"
    );
}

#[tokio::test]
async fn two_hundred_readers_behind_one_proxy_are_served_and_get_live_updates() {
    let cluster = Cluster::web().unwrap();
    let runs = Runs::create(&cluster, "readers").await;
    bind_group(&cluster, &runs, "signoff-approver", runs.name()).await;
    let arguments = vec![format!("--namespace={}", runs.name()), "--proxies=1".to_owned()];
    let harness = Harness::start_with(|options| options.arguments = arguments).await.unwrap();
    let hints = (0..READERS).map(|n| format!("email=reader-{n}@example.com&groups={}", runs.name()));
    let tokens = join_all(hints.map(async |hint| token(&harness, &hint).await)).await;
    let readers = join_all(tokens.iter().enumerate().map(async |(n, token)| {
        let mut reader = Visitor::stranger(&harness.web);
        // The address that the proxy reports.
        let address = format!("192.0.2.{n}");
        let headers = [("origin", harness.web.url()), FORM, ("x-forwarded-for", address.as_str())];
        let answer = reader.send("POST", "/sign-in/token", &headers, Some(form(&[("token", token)]))).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        reader.store_cookies(&answer);
        (reader, answer.header("connection") != "close")
    }))
    .await;
    let kept = readers.iter().filter(|(_, is_kept)| *is_kept).count();
    assert!((100..=128).contains(&kept), "a proxy can send other requests on {kept} of its connections");
    let readers: Vec<_> = readers.into_iter().map(|(reader, _)| reader).collect();
    let mut streams = join_all(readers.iter().map(async |reader| {
        let mut stream = reader.send_open("GET", "/events", &[], None).await;
        assert_eq!(stream.status().as_u16(), 200);
        let first = timeout(NEWS_TIMEOUT, stream.chunk()).await.unwrap().unwrap().unwrap();
        assert!(String::from_utf8_lossy(&first).contains("\"waiting\":0"), "{first:?}");
        stream
    }))
    .await;
    // Half requests behind the same proxy do not disturb the readers.
    let mut half = HalfRequests::at(harness.web.url()).unwrap();
    half.open(1, 300).await.unwrap();
    let group = json!({"kind": "Group", "name": runs.name()});
    let approval = runs.start_gate("one", json!({"approvers": [group]})).await;
    let news = join_all(streams.iter_mut().map(async |stream| {
        loop {
            let chunk = timeout(NEWS_TIMEOUT, stream.chunk()).await.unwrap().unwrap().unwrap();
            if String::from_utf8_lossy(&chunk).contains("\"waiting\":1") {
                return;
            }
        }
    }));
    news.await;
    let page = path(&approval);
    let shown = join_all(readers.iter().map(|reader| reader.get(&page))).await;
    let statuses: BTreeSet<_> = shown.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, BTreeSet::from([200]));
    drop((streams, half));
}
