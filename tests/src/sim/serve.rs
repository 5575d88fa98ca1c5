//! The transport: a `tower` service that takes a client's requests through the faults to the API and back. `faults`
//! decides what goes wrong, and `api` answers.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, DATE, RETRY_AFTER};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use tower::{BoxError, Service};

use super::ApiServer;
use super::api::Answer;
use super::faults::{Crash, Plan, Stop};
use super::life::{Incarnation, never};
use super::log::{Outcome, Request};
use super::route;
use super::status::Refusal;
use super::watch::Watching;

type Response = http::Response<UnsyncBoxBody<Bytes, BoxError>>;

/// One client's connection to the server, in one life.
#[derive(Clone)]
pub struct Connection {
    server: ApiServer,
    life: Incarnation,
}

impl Connection {
    pub(crate) fn new(server: ApiServer, life: Incarnation) -> Self {
        Self { server, life }
    }
}

impl Service<http::Request<Body>> for Connection {
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Self { server, life } = self.clone();
        Box::pin(async move {
            let mut response = server.serve(&life, request).await?;
            let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&server.clock().now())?;
            response.headers_mut().insert(DATE, date.parse()?);
            Ok(response)
        })
    }
}

impl ApiServer {
    async fn serve(&self, life: &Incarnation, request: http::Request<Body>) -> Result<Response, BoxError> {
        if !life.is_alive() {
            return never().await;
        }
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let request = match route::read(&parts, body, life, self.clock()) {
            Ok(request) => Arc::new(request),
            Err(refusal) => return refusal_response(&refusal),
        };
        let (number, plan) = self.change(|state| (state.log.begin(&request), state.faults.plan(&request)));
        let end = |outcome| self.change(|state| state.log.end(number, outcome));

        self.prepare(&request, &plan);
        if let Some(crash) = plan.crash {
            return self.crash(life, &request, number, crash).await;
        }
        match plan.stop {
            Some(Stop::Reset) => {
                end(Outcome::Lost { applied: false });
                return Err(connection_reset());
            }
            Some(stop) => {
                let refusal = refusal_of(&request, stop);
                end(Outcome::Answered(refusal.code));
                return refusal_response(&refusal);
            }
            None => {}
        }
        let answer = self.apply(&request, number);
        if plan.lose_response {
            end(Outcome::Lost { applied: (200..300).contains(&answer.code()) });
            return Err(connection_reset());
        }
        if !plan.slow_response.is_zero() {
            tokio::time::sleep(plan.slow_response).await;
        }
        // Another task may have ended this life, which then gets no answer.
        if life.is_alive() { self.respond(life, answer) } else { never().await }
    }

    /// Runs the hooks and edits that come before the request.
    fn prepare(&self, request: &Request, plan: &Plan) {
        for hook in &plan.before {
            hook.run(self);
        }
        if let Some(key) = request.key().filter(|_| plan.label_edit) {
            self.touch(&key);
        }
    }

    /// Ends the life at this request, whose answer never comes.
    async fn crash(
        &self,
        life: &Incarnation,
        request: &Arc<Request>,
        number: usize,
        crash: Crash,
    ) -> Result<Response, BoxError> {
        let applied = match crash {
            Crash::Applied => (200..300).contains(&self.apply(request, number).code()),
            Crash::NotApplied => false,
            Crash::AppliedAfter(delay) => {
                self.apply_later(Arc::clone(request), number, delay);
                false
            }
        };
        self.change(|state| state.log.end(number, Outcome::Lost { applied }));
        life.kill();
        never().await
    }

    /// Applies a request in flight later, whether its sender lives or not.
    fn apply_later(&self, request: Arc<Request>, number: usize, delay: Duration) {
        let server = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let applied = (200..300).contains(&server.apply(&request, number).code());
            server.change(|state| state.log.end(number, Outcome::Lost { applied }));
        });
    }

    fn apply(&self, request: &Request, number: usize) -> Answer {
        self.change(|state| {
            let answer = state.api.apply(request);
            state.log.end(number, Outcome::Answered(answer.code()));
            answer
        })
    }

    fn respond(&self, life: &Incarnation, answer: Answer) -> Result<Response, BoxError> {
        match answer {
            Answer::Refused(refusal) => refusal_response(&refusal),
            Answer::Body(code, body) => json_response(code, body),
            Answer::Watch(opening) => {
                let watching = Watching::start(*opening, self, life);
                let lines = futures::stream::unfold(watching, |mut watching| async move {
                    let line = watching.next().await?;
                    Some((line.map(Frame::data).map_err(BoxError::from), watching))
                });
                let body = StreamBody::new(lines).boxed_unsync();
                Ok(http::Response::builder().header(CONTENT_TYPE, "application/json").body(body)?)
            }
        }
    }
}

/// Returns the refusal of a request that is not applied.
fn refusal_of(request: &Request, stop: Stop) -> Refusal {
    match (stop, request.key()) {
        (Stop::Refuse(refusal), _) => refusal,
        (_, Some(key)) => Refusal::modified(&key),
        (_, None) => Refusal::new(409, "Conflict", "simulated conflict"),
    }
}

fn refusal_response(refusal: &Refusal) -> Result<Response, BoxError> {
    let mut response = json_response(refusal.code, refusal.bytes())?;
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    Ok(response)
}

fn json_response(code: u16, body: Bytes) -> Result<Response, BoxError> {
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    Ok(http::Response::builder().status(code).header(CONTENT_TYPE, "application/json").body(body)?)
}

fn connection_reset() -> BoxError {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}
