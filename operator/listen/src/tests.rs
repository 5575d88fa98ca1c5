//! Strangers at a listener, on loopback.
#![allow(clippy::unwrap_used)]

use std::{net::SocketAddr, time::Duration};

use axum::{Router, extract::ConnectInfo, routing::get};
use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use super::{Limits, serve};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// A request whose answer ends the connection.
const ASK: &str = "GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

struct Served {
    at: SocketAddr,
    end: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

async fn listen(limits: Limits) -> Served {
    let pages = Router::new()
        .route("/peer", get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() }))
        .route(
            "/slow",
            get(|| async { tokio::time::sleep(Duration::from_millis(300)).await }).post(|body: String| async { body }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (end, ends) = oneshot::channel();
    let served = tokio::spawn(async move {
        serve(listener, pages, limits, async { drop(ends.await) }).await;
    });
    Served { at, end, served }
}

async fn connect(served: &Served, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(served.at).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

/// Everything until the other end closes.
async fn read(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

async fn ask(served: &Served) -> String {
    read(connect(served, ASK).await).await
}

#[tokio::test]
async fn a_request_that_is_never_whole_is_closed_and_one_that_is_whole_is_answered() {
    let bounds = Limits { head: Duration::from_millis(200), body: Duration::from_millis(200), ..Limits::default() };
    let served = listen(bounds).await;
    assert!(ask(&served).await.ends_with("127.0.0.1"));
    assert_eq!(read(connect(&served, "").await).await, "");
    assert!(!read(connect(&served, "GET /peer HTTP/1.1\r\nhost:").await).await.contains("200 OK"));
    let half = "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf";
    assert!(read(connect(&served, half).await).await.starts_with("HTTP/1.1 400"));
    // An answer may take longer than a request.
    let slow = "GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(read(connect(&served, slow).await).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn half_requests_of_a_peer_are_bounded_and_end_by_themselves() {
    let served = listen(Limits { waiting_of_peer: 3, head: Duration::from_millis(500), ..Limits::default() }).await;
    let half = join_all((0..3).map(|_| connect(&served, "GET /peer HTTP/1.1\r\n"))).await;
    assert_eq!(ask(&served).await, "", "the share of this peer is used up");
    join_all(half.into_iter().map(read)).await;
    assert!(ask(&served).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn whole_requests_are_no_part_of_the_share_and_two_hundred_readers_behind_one_proxy_are_served() {
    let served = listen(Limits { waiting_of_peer: 1, ..Limits::default() }).await;
    let slow = "GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let stream = connect(&served, slow).await;
        // Its request has arrived.
        tokio::time::sleep(Duration::from_millis(50)).await;
        waiting.push(stream);
    }
    for answer in join_all(waiting.into_iter().map(read)).await {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let served = listen(Limits::default()).await;
    let readers = join_all((0..200).map(|_| ask(&served))).await;
    assert!(readers.iter().all(|answer| answer.ends_with("127.0.0.1")));
}

#[tokio::test]
async fn connections_that_only_wait_for_another_request_are_half_of_what_a_peer_can_have() {
    let served = listen(Limits { waiting_of_peer: 4, ..Limits::default() }).await;
    let keeps = "GET /peer HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut open = Vec::new();
    for is_kept in [true, true, false, false] {
        let mut stream = connect(&served, keeps).await;
        let mut answer = [0; 1024];
        let read = timeout(PATIENCE, stream.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).to_ascii_lowercase();
        assert_eq!(!answer.contains("connection: close"), is_kept, "{answer}");
        open.push(stream);
    }
    // One that is kept answers again.
    open[0].write_all(ASK.as_bytes()).await.unwrap();
    assert!(read(open.remove(0)).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn beyond_the_most_connections_others_wait_until_one_ends() {
    let served = listen(Limits { connections: 2, head: Duration::from_millis(300), ..Limits::default() }).await;
    let open = [connect(&served, "").await, connect(&served, "").await];
    assert!(ask(&served).await.ends_with("127.0.0.1"), "when the two have ended");
    drop(open);
}

#[tokio::test]
async fn at_the_end_requests_in_flight_are_answered() {
    let served = listen(Limits::default()).await;
    let slow = connect(&served, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    served.end.send(()).unwrap();
    assert!(read(slow).await.starts_with("HTTP/1.1 200"));
    timeout(PATIENCE, served.served).await.unwrap().unwrap();
    assert!(TcpStream::connect(served.at).await.is_err());
}
