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
const PATIENCE: Duration = Duration::from_secs(20);
/// A request whose answer ends the connection.
const ASK: &str = "GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
/// A request whose answer leaves the connection open.
const KEEP: &str = "GET /peer HTTP/1.1\r\nhost: x\r\n\r\n";
const SLOW: &str = "GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
/// More than the buffers of a connection hold.
const LARGE: usize = 32 * 1024 * 1024;

struct Served {
    at: SocketAddr,
    end: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

async fn listen(limits: Limits) -> Served {
    let large = Bytes::from(vec![b'x'; LARGE]);
    let beats =
        || stream::unfold((), async |()| Some((Ok::<_, Infallible>(Event::default().data("beat")), sleep(BEAT).await)));
    let pages = Router::new()
        .route("/peer", get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() }))
        .route("/large", get(|| async { large }))
        .route("/events", get(move || async move { Sse::new(beats()) }))
        .route("/slow", get(|| sleep(Duration::from_millis(300))).post(|body: String| async { body }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (end, ends) = oneshot::channel();
    let served = tokio::spawn(async move {
        serve(listener, pages, limits, async { drop(ends.await) }).await;
    });
    Served { at, end, served }
}

/// The time between two events of a stream.
const BEAT: Duration = Duration::from_millis(50);

fn short() -> Limits {
    let short = Duration::from_millis(300);
    Limits { head: short, body: short, answer: short, ..Limits::default() }
}

async fn connect(served: &Served, sent: &str) -> TcpStream {
    connect_from(1, served, sent).await
}

/// Connects from the loopback address with this last byte.
async fn connect_from(peer: u8, served: &Served, sent: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // With a small buffer, unread bytes stay with the listener.
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, peer), 0).into()).unwrap();
    let mut stream = timeout(PATIENCE, socket.connect(served.at)).await.unwrap().unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

/// Reads until the other end closes.
async fn read(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the bytes that arrive next.
async fn some(stream: &mut TcpStream) -> String {
    let mut text = [0; 1024];
    let read = timeout(PATIENCE, stream.read(&mut text)).await.unwrap().unwrap();
    String::from_utf8_lossy(&text[..read]).into_owned()
}

async fn ask(served: &Served) -> String {
    read(connect(served, ASK).await).await
}

/// Whether the other end has not closed.
async fn is_open(stream: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(50), stream.read(&mut [0])).await.is_err()
}

#[tokio::test]
async fn incomplete_request_is_closed_with_a_reason() {
    let served = listen(short()).await;
    assert_eq!(read(connect(&served, "").await).await, "");
    let half = read(connect(&served, "GET /peer HTTP/1.1\r\nhost:").await).await;
    assert!(half.starts_with("HTTP/1.1 408") && half.ends_with("not whole within 300ms\n"), "{half}");
    let half = "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf";
    let half = read(connect(&served, half).await).await;
    assert!(half.starts_with("HTTP/1.1 408") && half.contains("connection: close"), "{half}");
    // A peer that sends single bytes is late too.
    let (began, mut drip) = (Instant::now(), connect(&served, "G").await);
    while drip.write_all(b"x").await.is_ok() {
        assert!(began.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn complete_request_is_answered_after_any_time() {
    let served = listen(short()).await;
    assert!(ask(&served).await.ends_with("127.0.0.1"));
    assert!(read(connect(&served, SLOW).await).await.starts_with("HTTP/1.1 200"));
    let (first, rest) = ASK.split_at(20);
    let mut stream = connect(&served, first).await;
    sleep(Duration::from_millis(100)).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    assert!(read(stream).await.ends_with("127.0.0.1"));
    let mut stream =
        connect(&served, "POST /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nwh").await;
    sleep(Duration::from_millis(100)).await;
    stream.write_all(b"at").await.unwrap();
    assert!(read(stream).await.ends_with("what"));
}

#[tokio::test]
async fn half_requests_of_a_peer_are_bounded_and_its_whole_ones_are_answered() {
    let served = listen(Limits { waiting_of_peer: 3, ..Limits::default() }).await;
    let mut half = join_all((0..3).map(|_| connect(&served, "GET /peer HTTP/1.1\r\n"))).await;
    half.extend(
        join_all((0..3).map(|_| connect(&served, "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"))).await,
    );
    for _ in 0..10 {
        assert!(ask(&served).await.ends_with("127.0.0.1"));
    }
    let mut open = 0;
    for stream in &mut half {
        open += usize::from(is_open(stream).await);
    }
    assert!(open <= 2, "the last one took the place of the oldest: {open}");
}

#[tokio::test]
async fn half_requests_of_many_peers_end_for_complete_ones() {
    let served = listen(Limits { connections: 8, waiting_of_peer: 4, ..Limits::default() }).await;
    let mut half = Vec::new();
    for peer in [2, 3, 4, 5] {
        for sent in [
            "",
            "GET",
            "GET /peer HTTP/1.1\r\nhost:",
            "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf",
        ] {
            half.push(connect_from(peer, &served, sent).await);
        }
    }
    let began = Instant::now();
    for _ in 0..10 {
        assert!(ask(&served).await.ends_with("127.0.0.1"));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "none of them was waited for: {:?}", began.elapsed());
    drop(half);
}

#[tokio::test]
async fn complete_requests_of_one_proxy_do_not_count_for_its_share() {
    let served = listen(Limits { waiting_of_peer: 1, ..Limits::default() }).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let stream = connect(&served, SLOW).await;
        // Its request has arrived.
        sleep(Duration::from_millis(50)).await;
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
async fn idle_connections_are_at_most_half_of_the_share_of_a_peer() {
    let served = listen(Limits { waiting_of_peer: 4, ..Limits::default() }).await;
    let mut open = Vec::new();
    for is_kept in [true, true, false, false] {
        let mut stream = connect(&served, KEEP).await;
        let answer = some(&mut stream).await.to_ascii_lowercase();
        assert_eq!(!answer.contains("connection: close"), is_kept, "{answer}");
        open.push(stream);
    }
    // A kept connection answers again.
    open[0].write_all(ASK.as_bytes()).await.unwrap();
    assert!(read(open.remove(0)).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn idle_connection_ends_after_its_own_time_limit() {
    let rest = Duration::from_millis(900);
    let served = listen(Limits { rest, ..short() }).await;
    let (mut first, mut second) = (connect(&served, KEEP).await, connect(&served, KEEP).await);
    for stream in [&mut first, &mut second] {
        assert!(some(stream).await.ends_with("127.0.0.1"));
    }
    sleep(Duration::from_millis(500)).await;
    first.write_all(KEEP.as_bytes()).await.unwrap();
    assert!(some(&mut first).await.ends_with("127.0.0.1"));
    let began = Instant::now();
    second.write_all(b"GET /peer HTTP/1.1\r\n").await.unwrap();
    assert!(read(second).await.starts_with("HTTP/1.1 408"));
    assert!(began.elapsed() < rest, "a head that has begun has the time of a head: {:?}", began.elapsed());
    assert_eq!(read(first).await, "");
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_an_answered_request() {
    let served = listen(Limits { connections: 2, ..Limits::default() }).await;
    let slow = [connect(&served, SLOW).await, connect(&served, SLOW).await];
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    assert!(ask(&served).await.ends_with("127.0.0.1"));
    assert!(began.elapsed() > Duration::from_millis(100), "{:?}", began.elapsed());
    for answer in join_all(slow.map(read)).await {
        assert!(answer.starts_with("HTTP/1.1 200"), "nothing that is served ends: {answer}");
    }
}

#[tokio::test]
async fn unread_answer_ends_and_a_slowly_read_one_does_not() {
    const ASK: &str = "GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let served = listen(short()).await;
    let never = connect(&served, ASK).await;
    let mut slowly = TcpStream::connect(served.at).await.unwrap();
    slowly.write_all(ASK.as_bytes()).await.unwrap();
    let (mut total, mut bytes) = (0, vec![0; 64 * 1024]);
    for _ in 0..10 {
        sleep(Duration::from_millis(100)).await;
        total += slowly.read(&mut bytes).await.unwrap();
    }
    assert!(read(never).await.len() < LARGE);
    loop {
        match timeout(PATIENCE, slowly.read(&mut bytes)).await.unwrap().unwrap() {
            0 => break,
            read => total += read,
        }
    }
    assert!(total > LARGE, "{total}");
}

#[tokio::test]
async fn requests_with_unread_answers_end_for_others() {
    let served = listen(Limits { connections: 4, ..short() }).await;
    let pipelined = "GET /large HTTP/1.1\r\nhost: x\r\n\r\n".repeat(20);
    let unread = join_all((0..8).map(|_| connect(&served, &pipelined))).await;
    let began = Instant::now();
    assert!(ask(&served).await.ends_with("127.0.0.1"));
    assert!(began.elapsed() < Duration::from_secs(5));
    sleep(Duration::from_secs(1)).await;
    for answer in join_all(unread.into_iter().map(read)).await {
        assert!(answer.len() < LARGE);
    }
}

#[tokio::test]
async fn streams_of_events_do_not_count_as_connections() {
    let served = listen(Limits { connections: 2, waiting_of_peer: 2, ..short() }).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(&served, "GET /events HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(some(&mut stream).await.starts_with("HTTP/1.1 200"));
        streams.push(stream);
    }
    assert!(ask(&served).await.ends_with("127.0.0.1"));
    sleep(Duration::from_secs(1)).await;
    for stream in &mut streams {
        for _ in 0..3 {
            assert!(some(stream).await.contains("beat"));
        }
    }
}

#[tokio::test]
async fn requests_that_come_together_are_answered_in_turn() {
    let served = listen(Limits::default()).await;
    let answers = read(connect(&served, &format!("{KEEP}{KEEP}{ASK}")).await).await;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 3, "{answers}");
    assert!(read(connect(&served, "GET /peer HTTP/1.0\r\n\r\n").await).await.starts_with("HTTP/1.0 200"));
}

#[tokio::test]
async fn invalid_request_is_refused_and_closed() {
    let served = listen(Limits::default()).await;
    for (sent, status) in [
        ("\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03", "400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"),
        ("GET /peer HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "400"),
        ("CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\nconnection: close\r\n\r\n", "404"),
        ("GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close, upgrade\r\nupgrade: websocket\r\n\r\n", "200"),
    ] {
        let answer = read(connect(&served, sent).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) || answer.is_empty(), "{sent:?}: {answer}");
    }
    // A task of its own sends it, because it is refused before it was sent whole.
    let mut stream = connect(&served, "GET /peer HTTP/1.1\r\n").await;
    let long = format!("x: {}\r\n", "y".repeat(1000)).repeat(90);
    let _ = stream.write_all(long.as_bytes()).await;
    assert!(timeout(Duration::from_secs(5), read(stream)).await.is_ok(), "a head is at most 64 KiB");
    let mut fits = connect(&served, ASK.trim_end()).await;
    let long = format!("\r\nx: {}", "y".repeat(1000)).repeat(40);
    fits.write_all(format!("{long}\r\n\r\n").as_bytes()).await.unwrap();
    assert!(read(fits).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn shutdown_answers_only_requests_in_flight() {
    let served = listen(Limits { head: Duration::from_secs(2), ..Limits::default() }).await;
    let mut rests = connect(&served, KEEP).await;
    assert!(some(&mut rests).await.ends_with("127.0.0.1"));
    let half = connect(&served, "GET /slow HTTP/1.1\r\n").await;
    let slow = connect(&served, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    sleep(Duration::from_millis(100)).await;
    served.end.send(()).unwrap();
    assert_eq!(timeout(Duration::from_secs(1), read(rests)).await.unwrap(), "");
    assert!(read(slow).await.starts_with("HTTP/1.1 200"));
    timeout(PATIENCE, served.served).await.unwrap().unwrap();
    assert!(TcpStream::connect(served.at).await.is_err());
    drop(half);
}

#[tokio::test]
async fn the_process_has_as_many_open_files_as_it_is_allowed() {
    super::raise_open_files().unwrap();
    let now = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(now.current, now.maximum);
}
