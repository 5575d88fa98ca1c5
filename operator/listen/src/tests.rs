//! Tests of a listener on loopback with slow, silent and many peers.
#![allow(clippy::unwrap_used)]

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::ConnectInfo,
    response::sse::{Event, Sse},
    routing::get,
};
use futures::{future::join_all, stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{Limits, serve};

/// The time in which each step of a test must end.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// A request whose answer ends the connection.
const LAST_REQUEST: &str = "GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
/// A request whose answer leaves the connection open.
const FURTHER_REQUEST: &str = "GET /peer HTTP/1.1\r\nhost: x\r\n\r\n";
/// A request that the handler answers after 300 ms.
const SLOW_REQUEST: &str = "GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
/// The size of an answer that the buffers of a connection cannot hold, in bytes.
const LARGE_BYTES: usize = 32 * 1024 * 1024;

struct Server {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn start_server(limits: Limits) -> Server {
    let large = Bytes::from(vec![b'x'; LARGE_BYTES]);
    let beats =
        || stream::unfold((), async |()| Some((Ok::<_, Infallible>(Event::default().data("beat")), sleep(BEAT).await)));
    let pages = Router::new()
        .route("/peer", get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() }))
        .route("/large", get(|| async { large }))
        .route("/events", get(move || async move { Sse::new(beats()) }))
        .route("/slow", get(|| sleep(Duration::from_millis(300))).post(|body: String| async { body }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ends) = oneshot::channel();
    let task = tokio::spawn(async move {
        serve(listener, pages, limits, async { drop(ends.await) }).await;
    });
    Server { address, end, task }
}

/// The time between two events of a stream.
const BEAT: Duration = Duration::from_millis(50);

fn short_limits() -> Limits {
    let time = Duration::from_millis(300);
    Limits { head: time, body: time, answer: time, ..Limits::default() }
}

async fn connect(server: &Server, sent: &str) -> TcpStream {
    connect_from(1, server, sent).await
}

/// Connects from the loopback address whose last byte is `last_byte`, and sends `sent`.
async fn connect_from(last_byte: u8, server: &Server, sent: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // With a small buffer, unread bytes stay with the listener.
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, last_byte), 0).into()).unwrap();
    let mut stream = timeout(STEP_TIMEOUT, socket.connect(server.address)).await.unwrap().unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

/// Reads until the other end closes, and returns the text.
async fn read(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end too.
    let _ = timeout(STEP_TIMEOUT, stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the bytes that arrive next.
async fn read_some(stream: &mut TcpStream) -> String {
    let mut text = [0; 1024];
    let read = timeout(STEP_TIMEOUT, stream.read(&mut text)).await.unwrap().unwrap();
    String::from_utf8_lossy(&text[..read]).into_owned()
}

async fn send_request(server: &Server) -> String {
    read(connect(server, LAST_REQUEST).await).await
}

/// Whether the other end has not closed.
async fn is_open(stream: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(50), stream.read(&mut [0])).await.is_err()
}

#[tokio::test]
async fn incomplete_request_is_closed_with_a_reason() {
    let server = start_server(short_limits()).await;
    assert_eq!(read(connect(&server, "").await).await, "");
    let half = read(connect(&server, "GET /peer HTTP/1.1\r\nhost:").await).await;
    assert!(half.starts_with("HTTP/1.1 408") && half.ends_with("not whole within 300ms\n"), "{half}");
    let half = "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf";
    let half = read(connect(&server, half).await).await;
    assert!(half.starts_with("HTTP/1.1 408") && half.contains("connection: close"), "{half}");
    // A peer that sends single bytes is late too.
    let (began, mut drip) = (Instant::now(), connect(&server, "G").await);
    while drip.write_all(b"x").await.is_ok() {
        assert!(began.elapsed() < STEP_TIMEOUT);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn complete_request_is_answered_after_any_time() {
    let server = start_server(short_limits()).await;
    assert!(send_request(&server).await.ends_with("127.0.0.1"));
    assert!(read(connect(&server, SLOW_REQUEST).await).await.starts_with("HTTP/1.1 200"));
    let (first, rest) = LAST_REQUEST.split_at(20);
    let mut stream = connect(&server, first).await;
    sleep(Duration::from_millis(100)).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    assert!(read(stream).await.ends_with("127.0.0.1"));
    let mut stream =
        connect(&server, "POST /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nwh").await;
    sleep(Duration::from_millis(100)).await;
    stream.write_all(b"at").await.unwrap();
    assert!(read(stream).await.ends_with("what"));
}

#[tokio::test]
async fn incomplete_requests_of_a_peer_are_bounded_and_complete_ones_are_answered() {
    let server = start_server(Limits { waiting_of_peer: 3, ..Limits::default() }).await;
    let mut half = join_all((0..3).map(|_| connect(&server, "GET /peer HTTP/1.1\r\n"))).await;
    half.extend(
        join_all((0..3).map(|_| connect(&server, "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"))).await,
    );
    for _ in 0..10 {
        assert!(send_request(&server).await.ends_with("127.0.0.1"));
    }
    let mut open = 0;
    for stream in &mut half {
        open += usize::from(is_open(stream).await);
    }
    assert!(open <= 2, "the last one took the place of the oldest: {open}");
}

#[tokio::test]
async fn incomplete_requests_of_many_peers_end_when_complete_ones_arrive() {
    let server = start_server(Limits { connections: 8, waiting_of_peer: 4, ..Limits::default() }).await;
    let mut half = Vec::new();
    for peer in [2, 3, 4, 5] {
        for sent in [
            "",
            "GET",
            "GET /peer HTTP/1.1\r\nhost:",
            "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf",
        ] {
            half.push(connect_from(peer, &server, sent).await);
        }
    }
    let began = Instant::now();
    for _ in 0..10 {
        assert!(send_request(&server).await.ends_with("127.0.0.1"));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "none of them was waited for: {:?}", began.elapsed());
    drop(half);
}

#[tokio::test]
async fn complete_requests_do_not_count_for_the_share_of_a_peer() {
    let server = start_server(Limits { waiting_of_peer: 1, ..Limits::default() }).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let stream = connect(&server, SLOW_REQUEST).await;
        // The request has arrived.
        sleep(Duration::from_millis(50)).await;
        waiting.push(stream);
    }
    for answer in join_all(waiting.into_iter().map(read)).await {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let server = start_server(Limits::default()).await;
    let answers = join_all((0..200).map(|_| send_request(&server))).await;
    assert!(answers.iter().all(|answer| answer.ends_with("127.0.0.1")));
}

#[tokio::test]
async fn idle_connections_are_at_most_half_of_the_share_of_a_peer() {
    let server = start_server(Limits { waiting_of_peer: 4, ..Limits::default() }).await;
    let mut open = Vec::new();
    for is_kept in [true, true, false, false] {
        let mut stream = connect(&server, FURTHER_REQUEST).await;
        let answer = read_some(&mut stream).await.to_ascii_lowercase();
        assert_eq!(!answer.contains("connection: close"), is_kept, "{answer}");
        open.push(stream);
    }
    // A kept connection answers again.
    open[0].write_all(LAST_REQUEST.as_bytes()).await.unwrap();
    assert!(read(open.remove(0)).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn idle_connection_ends_after_the_time_limit_for_rest() {
    let rest = Duration::from_millis(900);
    let server = start_server(Limits { rest, ..short_limits() }).await;
    let (mut first, mut second) = (connect(&server, FURTHER_REQUEST).await, connect(&server, FURTHER_REQUEST).await);
    for stream in [&mut first, &mut second] {
        assert!(read_some(stream).await.ends_with("127.0.0.1"));
    }
    sleep(Duration::from_millis(500)).await;
    first.write_all(FURTHER_REQUEST.as_bytes()).await.unwrap();
    assert!(read_some(&mut first).await.ends_with("127.0.0.1"));
    let began = Instant::now();
    second.write_all(b"GET /peer HTTP/1.1\r\n").await.unwrap();
    assert!(read(second).await.starts_with("HTTP/1.1 408"));
    assert!(began.elapsed() < rest, "a head that has begun has the time of a head: {:?}", began.elapsed());
    assert_eq!(read(first).await, "");
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_an_answered_request() {
    let server = start_server(Limits { connections: 2, ..Limits::default() }).await;
    let slow = [connect(&server, SLOW_REQUEST).await, connect(&server, SLOW_REQUEST).await];
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    assert!(send_request(&server).await.ends_with("127.0.0.1"));
    assert!(began.elapsed() > Duration::from_millis(100), "{:?}", began.elapsed());
    for answer in join_all(slow.map(read)).await {
        assert!(answer.starts_with("HTTP/1.1 200"), "nothing that is served ends: {answer}");
    }
}

#[tokio::test]
async fn connection_ends_when_its_answer_is_unread_but_not_when_it_is_read_slowly() {
    const LARGE_REQUEST: &str = "GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let server = start_server(short_limits()).await;
    let never = connect(&server, LARGE_REQUEST).await;
    let mut slowly = TcpStream::connect(server.address).await.unwrap();
    slowly.write_all(LARGE_REQUEST.as_bytes()).await.unwrap();
    let (mut total, mut bytes) = (0, vec![0; 64 * 1024]);
    for _ in 0..10 {
        sleep(Duration::from_millis(100)).await;
        total += slowly.read(&mut bytes).await.unwrap();
    }
    assert!(read(never).await.len() < LARGE_BYTES);
    loop {
        match timeout(STEP_TIMEOUT, slowly.read(&mut bytes)).await.unwrap().unwrap() {
            0 => break,
            read => total += read,
        }
    }
    assert!(total > LARGE_BYTES, "{total}");
}

#[tokio::test]
async fn connections_with_unread_answers_end_when_another_needs_a_place() {
    let server = start_server(Limits { connections: 4, ..short_limits() }).await;
    let pipelined = "GET /large HTTP/1.1\r\nhost: x\r\n\r\n".repeat(20);
    let unread = join_all((0..8).map(|_| connect(&server, &pipelined))).await;
    let began = Instant::now();
    assert!(send_request(&server).await.ends_with("127.0.0.1"));
    assert!(began.elapsed() < Duration::from_secs(5));
    sleep(Duration::from_secs(1)).await;
    for answer in join_all(unread.into_iter().map(read)).await {
        assert!(answer.len() < LARGE_BYTES);
    }
}

#[tokio::test]
async fn streams_of_events_do_not_count_as_connections() {
    let server = start_server(Limits { connections: 2, waiting_of_peer: 2, ..short_limits() }).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(&server, "GET /events HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(read_some(&mut stream).await.starts_with("HTTP/1.1 200"));
        streams.push(stream);
    }
    assert!(send_request(&server).await.ends_with("127.0.0.1"));
    sleep(Duration::from_secs(1)).await;
    for stream in &mut streams {
        for _ in 0..3 {
            assert!(read_some(stream).await.contains("beat"));
        }
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_turn() {
    let server = start_server(Limits::default()).await;
    let answers = read(connect(&server, &format!("{FURTHER_REQUEST}{FURTHER_REQUEST}{LAST_REQUEST}")).await).await;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 3, "{answers}");
    assert!(read(connect(&server, "GET /peer HTTP/1.0\r\n\r\n").await).await.starts_with("HTTP/1.0 200"));
}

#[tokio::test]
async fn invalid_request_is_refused_and_closed() {
    let server = start_server(Limits::default()).await;
    for (sent, status) in [
        ("\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03", "400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"),
        ("GET /peer HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "400"),
        ("CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\nconnection: close\r\n\r\n", "404"),
        ("GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close, upgrade\r\nupgrade: websocket\r\n\r\n", "200"),
    ] {
        let answer = read(connect(&server, sent).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) || answer.is_empty(), "{sent:?}: {answer}");
    }
    // The write fails when the listener refuses the head before all of it is sent.
    let mut stream = connect(&server, "GET /peer HTTP/1.1\r\n").await;
    let long = format!("x: {}\r\n", "y".repeat(1000)).repeat(90);
    let _ = stream.write_all(long.as_bytes()).await;
    assert!(timeout(Duration::from_secs(5), read(stream)).await.is_ok(), "a head is at most 64 KiB");
    let mut fits = connect(&server, LAST_REQUEST.trim_end()).await;
    let long = format!("\r\nx: {}", "y".repeat(1000)).repeat(40);
    fits.write_all(format!("{long}\r\n\r\n").as_bytes()).await.unwrap();
    assert!(read(fits).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn shutdown_answers_only_requests_in_flight() {
    let server = start_server(Limits { head: Duration::from_secs(2), ..Limits::default() }).await;
    let mut idle = connect(&server, FURTHER_REQUEST).await;
    assert!(read_some(&mut idle).await.ends_with("127.0.0.1"));
    let half = connect(&server, "GET /slow HTTP/1.1\r\n").await;
    let slow = connect(&server, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    sleep(Duration::from_millis(100)).await;
    server.end.send(()).unwrap();
    assert_eq!(timeout(Duration::from_secs(1), read(idle)).await.unwrap(), "");
    assert!(read(slow).await.starts_with("HTTP/1.1 200"));
    timeout(STEP_TIMEOUT, server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    drop(half);
}

#[tokio::test]
async fn open_files_are_limited_only_by_the_system_after_raise_open_files() {
    super::raise_open_files().unwrap();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(limit.current, limit.maximum);
}
