//! `/healthz` and `/readyz`, on a port of their own: the page itself answers only under its public address.
//!
//! **Invariant:** no answer here has a fact about a run, a request or a user.

use std::{future::pending, net::SocketAddr};

use anyhow::Context;
use axum::{Router, extract::State, routing::get};
use http::StatusCode;
use signoff_listen::Limits;
use signoff_web::api_server::Connection;
use tokio::{net::TcpListener, task::JoinHandle};

/// Serves until aborted.
pub async fn listen(at: SocketAddr, connection: Connection) -> anyhow::Result<JoinHandle<()>> {
    let listener = TcpListener::bind(at).await.with_context(|| format!("listening on {at} (--health-listen)"))?;
    let pages = Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .with_state(connection);
    Ok(tokio::spawn(signoff_listen::serve(listener, pages, Limits::of_probes(), pending())))
}

/// Returns that the page is ready, with a note if the API server does not answer. Without an API server the page still
/// shows this to people, and keeps their drafts.
async fn readyz(State(connection): State<Connection>) -> (StatusCode, String) {
    let said = match connection.is_reachable().await {
        Ok(()) => "ready\n".to_owned(),
        Err(why) => format!("ready; the API server cannot be reached: {why}\n"),
    };
    (StatusCode::OK, said)
}
