//! The server of `/metrics`, `/healthz` and `/readyz`.
//!
//! **Invariant:** serves only text that any workload of the cluster may read.

use std::future::pending;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use signoff_controller::Probe;
use signoff_listen::Limits;
use tokio::net::TcpListener;

/// Serves the pages until aborted.
pub async fn serve(listener: TcpListener, probe: Probe) {
    let pages = Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(probe);
    signoff_listen::serve(listener, pages, Limits::of_probes(), pending()).await;
}

/// Answers with the state of the operator: 200 if it is ready, otherwise 503.
async fn readyz(State(probe): State<Probe>) -> (StatusCode, String) {
    match probe.ready() {
        Ok(how) => (StatusCode::OK, format!("{how}\n")),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// Answers with all metrics as OpenMetrics text.
async fn metrics(State(probe): State<Probe>) -> impl IntoResponse {
    match probe.metrics() {
        Ok(text) => {
            (StatusCode::OK, [(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
        }
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "text/plain")], why.to_string()),
    }
}
