//! A connection to a server, over HTTP or standard streams, with one request at a time.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use signoff_executor::{
    CallError, ErrorClass, HttpClient, HttpRequest, ToolServer, excerpt,
    http::{Answer, Scrubber},
};
use tokio::time::Instant;

use crate::{
    answer::{AnswerReader, UnreadBody},
    message::{Answered, RpcError, notification, read_error, request},
    param_headers::encode,
    protocol::Protocol,
    session::{Endings, Session},
};

/// The maximum length of the id of a session, in characters.
const MAX_SESSION: usize = 512;

/// The interface of a connection to a server.
#[async_trait]
pub(crate) trait Connection: Send {
    /// Returns the version of the protocol.
    fn protocol(&self) -> Protocol;

    /// Returns the name of the server for people.
    fn target(&self) -> &str;

    /// Sends one request, once.
    async fn ask(&mut self, question: Question) -> Result<Answered, CallError>;
}

/// A request to a server, before it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    pub(crate) method: &'static str,
    pub(crate) params: Map<String, Value>,
    /// The called tool.
    pub(crate) tool: Option<String>,
    /// The arguments that are also sent as headers.
    pub(crate) headers: Vec<(String, String)>,
    /// The number of runs before the calling run, in the chain in which each run started the next. `None` if the
    /// request calls no tool.
    pub(crate) depth: Option<u32>,
}

impl Question {
    /// Returns a question without parameters.
    pub(crate) fn new(method: &'static str) -> Self {
        Self { method, ..Self::default() }
    }
}

/// A connection over HTTP: each request is one POST.
pub(crate) struct HttpConnection<'a> {
    http: &'a HttpClient,
    endings: &'a Endings,
    protocol: Protocol,
    deadline: Instant,
    /// The request without a body, with the headers of every request.
    request: HttpRequest,
    /// The remover of the server's key from its answers.
    scrubber: Scrubber,
    /// The name of the server for people.
    target: String,
    next_id: u64,
    /// The session, if the server has one.
    session: Option<Session>,
}

/// The answer to a POST, with its HTTP status.
pub(crate) struct PostAnswer {
    pub(crate) status: u16,
    /// The answer, or an error if its body is not a message.
    pub(crate) answered: Result<Answered, CallError>,
    /// The session id from the server.
    pub(crate) session: Option<String>,
}

impl<'a> HttpConnection<'a> {
    /// Returns a connection without a request yet.
    ///
    /// # Errors
    /// The server has no URL.
    pub(crate) fn new(
        http: &'a HttpClient,
        server: &ToolServer,
        endings: &'a Endings,
        protocol: Protocol,
        deadline: Instant,
    ) -> Result<Self, CallError> {
        let headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let request = HttpRequest {
            method: "POST".to_owned(),
            url: server.url()?.to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            secret_headers: server.key.iter().cloned().collect(),
            body: None,
            expect_status: Vec::new(),
            timeout: Duration::ZERO,
        };
        let target = format!("MCP server {} ({})", server.name, request.place());
        let scrubber = Scrubber::of_headers(&request.secret_headers);
        Ok(Self { http, endings, protocol, deadline, request, scrubber, target, next_id: 1, session: None })
    }

    /// Sends one request, and returns the answer with its status. The session cancels the request if it ends before the
    /// answer.
    pub(crate) async fn exchange(&mut self, question: &Question) -> Result<PostAnswer, CallError> {
        let id = self.next_id;
        self.next_id += 1;
        let params = self.protocol.with_meta(question.params.clone(), question.depth);
        let mut call = self.build_post(request(id, question.method, &params))?;
        match self.protocol {
            Protocol::Stateless => {
                call.headers.push(("mcp-protocol-version".to_owned(), self.protocol.version().to_owned()));
                call.headers.push(("mcp-method".to_owned(), question.method.to_owned()));
                call.headers.extend(question.tool.as_deref().map(|tool| ("mcp-name".to_owned(), encode(tool))));
                call.headers.extend(question.headers.iter().cloned());
            }
            Protocol::Session => {}
        }
        let mut reader = AnswerReader::new(id, self.http.max_response());
        if let Some(session) = &mut self.session {
            session.set_in_flight(Some(id));
        }
        let answer = match self.http.exchange(&mut call, &mut reader).await {
            Ok(answer) => answer,
            Err(error) => return Err(reader.failure().map_or(error, |why| why.into_error(&self.target))),
        };
        // These status codes are errors of the connection, whatever message the body has.
        let is_about_connection = matches!(answer.code(), 401 | 403 | 407 | 408 | 429 | 500..);
        let answered = if (200..300).contains(&answer.code()) {
            Ok(reader.end().map_err(|why| why.into_error(&self.target))?)
        } else {
            let error = read_error(answer.beginning(), id).filter(|_| !is_about_connection);
            error.ok_or_else(|| self.refusal(&answer, id))
        };
        let answered = answered.map(|answered| self.without_key(answered));
        if let Some(session) = &mut self.session
            && !matches!(answered, Ok(Answered::AskedBack(_)))
        {
            session.set_in_flight(None);
        }
        let session = answer.header("mcp-session-id").map(str::to_owned);
        Ok(PostAnswer { status: answer.code(), answered, session })
    }

    /// Begins a session that the server accepted: adds the version and the session id to all further requests, and
    /// notifies the server. `id`: the session id from the server, or `None` if it has no sessions.
    pub(crate) async fn begin(&mut self, id: Option<String>) -> Result<(), CallError> {
        let version = ("mcp-protocol-version".to_owned(), self.protocol.version().to_owned());
        self.request.headers.push(version);
        if let Some(id) = id {
            if id.is_empty() || id.len() > MAX_SESSION || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(self.protocol_error("gave its session a number that is not 1 to 512 visible characters"));
            }
            self.request.headers.push(("mcp-session-id".to_owned(), id));
            self.session = Some(Session::new(self.http.clone(), self.request.clone(), self.endings.clone()));
        }
        let mut call = self.build_post(notification("notifications/initialized", &json!({})))?;
        let answer = self.http.exchange(&mut call, &mut UnreadBody).await?;
        if (200..300).contains(&answer.code()) { Ok(()) } else { Err(self.refusal(&answer, 0)) }
    }

    /// Returns a POST with this body and the remaining time. Fails if no time remains.
    fn build_post(&self, body: String) -> Result<HttpRequest, CallError> {
        let timeout = self.deadline.saturating_duration_since(Instant::now());
        if timeout.is_zero() {
            let why = format!("{} was not asked: the time of the call is over", self.target);
            return Err(CallError::new(ErrorClass::Timeout, false, why));
        }
        Ok(HttpRequest { body: Some(body), timeout, ..self.request.clone() })
    }

    /// Returns an answer without the key. A cut text can end with a part of the key.
    fn without_key(&self, answered: Answered) -> Answered {
        match answered {
            Answered::Result(json) => Answered::Result(self.scrubber.scrub(json)),
            Answered::Error(RpcError { code, message, data }) => {
                Answered::Error(RpcError { code, message: self.scrubber.scrub_beginning(message), data })
            }
            Answered::AskedBack(wanted) => {
                Answered::AskedBack(wanted.into_iter().map(|word| self.scrubber.scrub_beginning(word)).collect())
            }
        }
    }

    /// Returns the error for a status of the answer to request `id`.
    fn refusal(&self, answer: &Answer, id: u64) -> CallError {
        let text = match read_error(answer.beginning(), id) {
            Some(Answered::Error(error)) => error.message,
            Some(Answered::Result(_) | Answered::AskedBack(_)) | None => {
                String::from_utf8_lossy(answer.beginning()).into_owned()
            }
        };
        let text = self.scrubber.scrub_beginning(text);
        // A page of HTML does not explain the error, so its text is left out.
        let explanation = if text.trim_start().starts_with('<') { String::new() } else { excerpt(&text, []) };
        answer.unexpected(&self.target, &explanation)
    }

    fn protocol_error(&self, why: &str) -> CallError {
        CallError::new(ErrorClass::Protocol, true, format!("{} {why}", self.target))
    }
}

#[async_trait]
impl Connection for HttpConnection<'_> {
    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn target(&self) -> &str {
        &self.target
    }

    async fn ask(&mut self, question: Question) -> Result<Answered, CallError> {
        self.exchange(&question).await?.answered
    }
}
