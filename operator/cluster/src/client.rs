//! The clients of the API server. Every program of Signoff makes its client here, so that no object can block it.
//!
//! A user who can write one object of a list, even only the `managedFields` of a ConfigMap, can nest JSON deeper than
//! serde_json reads. Without protection, the whole list could then not be read. The layer around each client replaces
//! too deeply nested values in every answer: of reads, of lists, and of watches by this crate and by kube.
//!
//! **Invariant:** knows no kind, caches and retries nothing, and changes no answer that is not JSON.

mod depth;
mod read_request;

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, Request, Response,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::{Body as RequestBody, ClientBuilder},
};
use tower::{
    BoxError, Service,
    util::{MapRequestLayer, MapResponseLayer, MapResultLayer},
};

use crate::server_clock::ServerClock;

pub use depth::{DepthFilter, MAX_DEPTH};
pub use read_request::ReadRequest;

/// Returns a client of the API server that `config` names.
///
/// # Errors
/// The configuration is invalid, such as certificates that cannot be read or an invalid address.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    Ok(ClientBuilder::try_from(config)?.with_layer(&MapResponseLayer::new(limit_depth)).build())
}

/// Returns a client as [`connect`] does. Before each request that reads, it calls `observe`, and every answer sets
/// `clock`.
///
/// # Errors
/// As [`connect`].
pub fn connect_with_observer(
    config: Config,
    clock: &ServerClock,
    observe: impl Fn(ReadRequest) + Clone + Send + Sync + 'static,
) -> Result<Client, kube::Error> {
    let observing_layer = MapRequestLayer::new(move |request: Request<RequestBody>| {
        if let Some(read) = ReadRequest::from_parts(request.method(), request.uri()) {
            observe(read);
        }
        request
    });
    let builder = ClientBuilder::try_from(config)?.with_layer(&MapResponseLayer::new(limit_depth));
    Ok(builder.with_layer(&clock_layer(clock)).with_layer(&observing_layer).build())
}

/// Returns a client over the connections of another client. Every request gets the headers `identity`, which name
/// another user.
pub fn connect_as(connection: &Client, identity: HeaderMap) -> Client {
    let namespace = connection.default_namespace().to_owned();
    let connection = connection.clone();
    let identified = tower::service_fn(move |mut request: Request<RequestBody>| {
        for (name, value) in &identity {
            request.headers_mut().append(name, value.clone());
        }
        let connection = connection.clone();
        async move { connection.send(request).await }
    });
    // The other client limits the depth of answers already.
    ClientBuilder::new(identified, namespace).build()
}

/// Returns a client over any other connection, such as a simulated one.
pub fn connect_service<S, B>(service: S, namespace: &str) -> Client
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    connect_service_with_clock(service, namespace, &ServerClock::new(Arc::new(jiff::Timestamp::now)))
}

/// Returns a client as [`connect_service`] does. Every answer sets `clock`.
pub fn connect_service_with_clock<S, B>(service: S, namespace: &str, clock: &ServerClock) -> Client
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let builder = ClientBuilder::new(service, namespace).with_layer(&MapResponseLayer::new(limit_depth));
    builder.with_layer(&clock_layer(clock)).build()
}

type Answer<B, E> = Result<Response<B>, E>;

/// Returns a layer that passes on each answer and each failure, and sets a clock by it.
fn clock_layer<B, E>(clock: &ServerClock) -> MapResultLayer<impl Fn(Answer<B, E>) -> Answer<B, E> + Clone + use<B, E>> {
    let clock = clock.clone();
    MapResultLayer::new(move |answer: Answer<B, E>| {
        match &answer {
            Ok(answer) => clock.record_answer(answer.status(), answer.headers()),
            Err(_) => clock.note_no_answer(),
        }
        answer
    })
}

/// Returns the answer with `null` in place of too deeply nested values, if it is JSON. Its bytes pass on as they
/// arrive.
fn limit_depth<B: Body<Data = Bytes>>(mut answer: Response<B>) -> Response<impl Body<Data = Bytes, Error = B::Error>> {
    let mut filter = is_json(&answer).then(DepthFilter::default);
    if filter.is_some() {
        // The body may become shorter.
        answer.headers_mut().remove(CONTENT_LENGTH);
    }
    answer.map(|body| {
        body.map_frame(move |frame| match (&mut filter, frame.into_data()) {
            (Some(filter), Ok(bytes)) => Frame::data(filter.pass(bytes)),
            (None, Ok(bytes)) => Frame::data(bytes),
            (_, Err(trailers)) => trailers,
        })
    })
}

/// Whether an answer is JSON. Logs of containers are not JSON.
fn is_json<B>(answer: &Response<B>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

#[cfg(test)]
mod tests;
