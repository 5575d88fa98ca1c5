//! Serves HTTP/1 with bounded connections, so that no client can keep others out. The programs bind the sockets, in
//! `signoff-operator/main.rs` and `signoff-web/main.rs`.
//!
//! **Invariant:** a connection waits for its peer only for a bounded time: for a request, for the rest of a request, or
//! until its answer is read. It ends earlier if another connection needs its place. The peer is the address at the
//! other end of the connection, whatever the headers of a request say.

mod peers;
mod request;
mod stream;

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::ConnectInfo,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use hyper::{Request, body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown, service::TowerToHyperService};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tower::{Service, ServiceExt as _};

use peers::{ConnectionProgress, Peers};
use request::WholeBody;
use stream::TimedStream;

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections at once. When one more arrives, a connection that waits for its peer ends. Connections
    /// whose answer is a stream of events do not count: the handler of the stream bounds them.
    pub connections: usize,
    /// The most connections of one peer that wait for a request or for the rest of a request. When one more arrives,
    /// the oldest of them ends.
    pub waiting_of_peer: usize,
    /// The time in which the head of a request must be whole, from its first byte. For the first request of a
    /// connection it begins when the connection opens.
    pub head: Duration,
    /// The time in which the body of a request must be whole.
    pub body: Duration,
    /// The time in which the next request must begin after an answer. It is longer than most proxies keep a connection
    /// (60 or 90 seconds), so that the connection does not end while a proxy sends.
    pub rest: Duration,
    /// The time in which a peer must read 16 KiB of an answer.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            waiting_of_peer: 256,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            rest: Duration::from_secs(120),
            answer: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Returns the bounds of a port for probes and metrics, which has few clients.
    #[must_use]
    pub fn of_probes() -> Self {
        Self { connections: 128, waiting_of_peer: 32, ..Self::default() }
    }
}

/// The pause after a failure of the listener itself, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest head of a request, in bytes. The cookies of a session need 16 KiB; the default of hyper is 408 KiB a
/// connection.
const LONGEST_HEAD: usize = 64 * 1024;

/// Raises the limit of open files to the most that the system allows, because each connection is an open file.
///
/// # Errors
/// The system refuses it.
pub fn raise_open_files() -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Serves until `ends` is ready, and then until the requests in flight are answered. Handlers can extract the peer as
/// `ConnectInfo<SocketAddr>`.
pub async fn serve(listener: TcpListener, pages: Router, limits: Limits, ends: impl Future<Output = ()>) {
    let (places, peers) = (Arc::new(Semaphore::new(limits.connections)), Arc::new(Peers::new(limits)));
    let graceful = GracefulShutdown::new();
    let mut ends = pin!(ends);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut ends => break,
            accepted = accept(&listener, &places, &peers) => accepted,
        };
        let Some((stream, peer, place)) = accepted else { break };
        let progress = Arc::new(peers.register(peer.ip(), place));
        let service = TowerToHyperService::new(build_service(pages.clone(), peer, limits, Arc::clone(&progress)));
        let stream = TokioIo::new(TimedStream::new(stream, Arc::clone(&progress), limits));
        let connection = http1::Builder::new()
            // The stream measures the time instead.
            .header_read_timeout(None)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(stream, service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                // The error of a single connection is not worth more than a debug line.
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "a connection ended");
                },
                () = progress.wait_for_end() => tracing::debug!(%peer, "closed: it waited for its peer, and another one needed its place"),
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// Waits for a connection, and then for a place for it. If the listener itself fails, ends the oldest waiting
/// connection and tries again after [`PAUSE`]. Never returns `None`, because the places are never closed.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    peers: &Peers,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return Some((stream, peer, acquire_place(places, peers).await?)),
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted; it is tried again");
                peers.end_oldest();
                sleep(PAUSE).await;
            }
        }
    }
}

/// Acquires a place for a new connection. While no place is free, ends the oldest connection that waits for its peer.
async fn acquire_place(places: &Arc<Semaphore>, peers: &Peers) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Some(place);
        }
        let has_ended_one = peers.end_oldest();
        tokio::select! {
            place = Arc::clone(places).acquire_owned() => return place.ok(),
            () = peers.wait_for_another(), if !has_ended_one => {}
        }
    }
}

/// Whether an error concerns only the connection that was about to be accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Returns the service that serves the pages on one connection. The service gives handlers the address of the peer,
/// bounds the time of each request body, and answers a late one with status 408. It sets `Connection: close` where no
/// request can follow.
fn build_service(
    pages: Router,
    peer: SocketAddr,
    limits: Limits,
    progress: Arc<ConnectionProgress>,
) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + Clone {
    let progress_of_answers = Arc::clone(&progress);
    let pages = pages.map_request(move |request: Request<Incoming>| {
        let body = |body| Body::new(WholeBody::new(body, limits.body, Arc::clone(&progress)));
        let mut request = request.map(body);
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    pages.map_response(move |mut response: Response| {
        if progress_of_answers.take_body_late() {
            *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
        }
        if !note_answer(&progress_of_answers, &response) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    })
}

/// Updates the progress of a connection after an answer: a stream of events frees the place of the connection, and
/// after any other answer the connection waits for its peer again. Returns whether another request can follow.
fn note_answer(progress: &ConnectionProgress, response: &Response) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if content_type.is_some_and(|value| value.starts_with(b"text/event-stream")) {
        progress.free_place();
        return false;
    }
    // The end of an answer without a length is not known here, so no request follows such an answer.
    if response.body().size_hint().exact().is_none() || response.status() == StatusCode::REQUEST_TIMEOUT {
        progress.count_until_read();
        return false;
    }
    progress.count_for_next_request()
}

#[cfg(test)]
mod tests;
