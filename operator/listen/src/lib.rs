//! Serves HTTP/1 to whoever connects, so that nobody can keep others out.
//!
//! **Invariant:** a connection waits for a request, or for the rest of one, only for a bounded time, and those of one peer that do are a
//! part of all. The peer is the address at the other end of the connection: no header of a request says who it is.

mod peers;
mod request;

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::ConnectInfo,
    http::{HeaderValue, header},
    response::Response,
};
use hyper::{Request, body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tower::{Service, ServiceExt as _};

use peers::{Peers, Waiting};
use request::WholeBody;

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections at once. Others wait until one of them ends.
    pub connections: usize,
    /// The most connections of one peer that wait for a request or for the rest of one. Others of that peer are closed.
    pub waiting_of_peer: usize,
    /// How long the head of a request may take, from when the connection is open, or the answer before it was sent.
    pub head: Duration,
    /// How long its body may take.
    pub body: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1024, waiting_of_peer: 256, head: Duration::from_secs(10), body: Duration::from_secs(30) }
    }
}

/// The pause after a failure of the listener itself, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `ends` is ready, and then until the requests in flight have been answered. Handlers can take the peer as
/// `ConnectInfo<SocketAddr>`.
pub async fn serve(listener: TcpListener, pages: Router, limits: Limits, ends: impl Future<Output = ()>) {
    let (connections, peers) = (Arc::new(Semaphore::new(limits.connections)), Arc::new(Peers::new(limits)));
    let graceful = GracefulShutdown::new();
    let mut ends = pin!(ends);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut ends => break,
            accepted = accept(&listener, &connections) => accepted,
        };
        let Some((stream, peer, place)) = accepted else { break };
        let Some(waiting) = peers.begin(peer.ip()) else {
            tracing::debug!(%peer, "closed: its peer has too many connections that wait for a request");
            continue;
        };
        let service = TowerToHyperService::new(service(pages.clone(), peer, limits, waiting));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // How a stranger's connection ends is no news.
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "a connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// Waits for a place, and then for a connection.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    // It is never closed.
    let place = Arc::clone(connections).acquire_owned().await.ok()?;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return Some((stream, peer, place)),
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted; it is tried again");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Whether an error concerns only the connection that was to be accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The pages, for one connection.
fn service(
    pages: Router,
    peer: SocketAddr,
    limits: Limits,
    waiting: Waiting,
) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + Clone {
    let waiting = Arc::new(waiting);
    let waits = Arc::clone(&waiting);
    let pages = pages.map_request(move |request: Request<Incoming>| {
        let mut request = request.map(|body| Body::new(WholeBody::new(body, limits.body, waiting.take())));
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    pages.map_response(move |mut response: Response| {
        // Nobody knows when a stream ends: nothing follows it.
        let is_stream = response.body().size_hint().exact().is_none();
        if is_stream || !waits.again() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    })
}

#[cfg(test)]
mod tests;
