//! The way to the API server that no object can block: every program of Signoff makes its client here.
//!
//! Whoever may write one object of a list, and be it the `managedFields` of a ConfigMap, can nest JSON deeper than
//! serde_json reads; the whole list is lost then, with everybody's objects in it. The layer put around a client here
//! hides what nests too deep in every answer, whoever asked: reads and lists, our own watches and those of kube.
//!
//! It must not know any kind, cache, retry, or change an answer that is no JSON.

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

/// A client of the API server that `config` names.
///
/// # Errors
/// A configuration from which no client can be made: certificates that cannot be read, an address that is none.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    Ok(ClientBuilder::try_from(config)?.with_layer(&MapResponseLayer::new(shallow)).build())
}

/// As [`connect`], with a client that tells of everything it reads before it asks for it, and sets a clock by every
/// answer.
///
/// # Errors
/// As [`connect`].
pub fn connect_with_observer(
    config: Config,
    clock: &ServerClock,
    tell: impl Fn(ReadRequest) + Clone + Send + Sync + 'static,
) -> Result<Client, kube::Error> {
    let told = MapRequestLayer::new(move |request: Request<RequestBody>| {
        if let Some(asked) = ReadRequest::from_parts(request.method(), request.uri()) {
            tell(asked);
        }
        request
    });
    let builder = ClientBuilder::try_from(config)?.with_layer(&MapResponseLayer::new(shallow));
    Ok(builder.with_layer(&reads_clock(clock)).with_layer(&told).build())
}

/// A client over the connections of another one, which sends these headers with every request: the identity of somebody
/// who is not this process.
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
    // The depth of answers is limited beneath it already.
    ClientBuilder::new(identified, namespace).build()
}

/// A client over any other connection, such as a simulated one.
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

/// As [`connect_service`], with a client that sets a clock by every answer.
pub fn connect_service_with_clock<S, B>(service: S, namespace: &str, clock: &ServerClock) -> Client
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let builder = ClientBuilder::new(service, namespace).with_layer(&MapResponseLayer::new(shallow));
    builder.with_layer(&reads_clock(clock)).build()
}

type Answer<B, E> = Result<Response<B>, E>;

/// The same answer, or the same failure, after a clock was told of it.
fn reads_clock<B, E>(clock: &ServerClock) -> MapResultLayer<impl Fn(Answer<B, E>) -> Answer<B, E> + Clone + use<B, E>> {
    let clock = clock.clone();
    MapResultLayer::new(move |answer: Answer<B, E>| {
        match &answer {
            Ok(answer) => clock.read(answer.status(), answer.headers()),
            Err(_) => clock.note_no_answer(),
        }
        answer
    })
}

/// The same answer, as it arrives; where it is JSON, what nests too deep in it is `null`.
fn shallow<B: Body<Data = Bytes>>(mut answer: Response<B>) -> Response<impl Body<Data = Bytes, Error = B::Error>> {
    let mut filter = is_json(&answer).then(DepthFilter::default);
    if filter.is_some() {
        // It may become shorter.
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

/// Logs are text, and are none of our business.
fn is_json<B>(answer: &Response<B>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

#[cfg(test)]
mod tests;
