//! The calls of a run to the outside: the trait, and its implementation with models, HTTP and servers of tools.
//!
//! A call is made once. The caller decides whether it is made, and whether it is made again.

mod tool_call;

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt as _;
use serde_json::json;
use signoff_api::{
    FailureClass, Moment,
    journal::{FACT_CALLS, FACT_TRUNCATED, FACT_UNKNOWN},
    turn::TurnCalls,
    workflow::{ProviderKind, SecretEntry},
};
use signoff_engine::transition::{AgentCall, Call, CallContent, Failure, HttpCall, Reply, SentSecret};
use tokio::time::{Instant, timeout};

use crate::{
    AnswerRoom, CallError, ErrorClass, Evaluator, ExposeSecret as _, Http, HttpRequest, Model, SecretText, Secrets,
    Stopped, Subject, ToolServers, TurnReply, TurnRequest, UnboundedRoom, clock::Clock, http::HeaderSecret,
    secrets::SecretUse,
};

/// The prefix of the fact with the version of a Secret. The name of its entry follows.
const FACT_SECRET: &str = "secret:";

/// The additional time for a call, so that the call's own timeout, which has a better message, comes first.
const LENIENCE: Duration = Duration::from_millis(250);

/// The run on whose behalf a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRef {
    /// The Workflow's namespace.
    pub namespace: String,
    /// The Workflow's name.
    pub workflow: String,
    /// The Workflow's uid.
    pub uid: String,
}

/// The interface through which a run makes calls.
#[async_trait]
pub trait Caller: Send + Sync {
    /// Makes one call, once. The caller also limits its time by `call.timeout`. `room` reserves the memory for its
    /// answer.
    ///
    /// # Errors
    /// The failure, and whether the call may have had its effect.
    async fn call(&self, run: &RunRef, call: Call, room: &dyn AnswerRoom) -> Result<Reply, Failure>;
}

/// Makes one call, once, within its time. A panic of the caller is caught.
///
/// # Errors
/// As [`Caller::call`]. Also `Timeout`, and `Panic` after a panic of the caller.
pub async fn make(caller: &dyn Caller, run: &RunRef, call: Call, room: &dyn AnswerRoom) -> Result<Reply, Failure> {
    let (limit, idempotent) = (call.timeout, call.idempotent);
    let outcome = AssertUnwindSafe(async { caller.call(run, call, room).await }).catch_unwind();
    match timeout(limit + LENIENCE, outcome).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(unanswered_failure(
            FailureClass::Panic,
            "internal error during the call; report this as a bug".to_owned(),
            idempotent,
        )),
        Err(_) => Err(unanswered_failure(FailureClass::Timeout, format!("no answer within {limit:?}"), idempotent)),
    }
}

/// Returns the failure of a call that ended without an answer.
fn unanswered_failure(class: FailureClass, message: String, idempotent: bool) -> Failure {
    Failure {
        class: class.name().to_owned(),
        message,
        retryable: idempotent,
        unknown: !idempotent,
        not_before: None,
        facts: BTreeMap::new(),
        log: None,
    }
}

/// The caller with real clients: HTTP, models and servers of tools.
pub struct DefaultCaller {
    http: Arc<dyn Http>,
    model: Arc<dyn Model>,
    secrets: Arc<dyn Secrets>,
    clock: Arc<dyn Clock>,
    /// The evaluator that searches scripted replies.
    evaluator: Evaluator,
    /// The client of servers of tools, if this program has one.
    servers: Option<Arc<dyn ToolServers>>,
}

impl DefaultCaller {
    /// Returns a caller that uses these clients.
    #[must_use]
    pub fn new(http: Arc<dyn Http>, model: Arc<dyn Model>, secrets: Arc<dyn Secrets>, clock: Arc<dyn Clock>) -> Self {
        Self { http, model, secrets, clock, evaluator: Evaluator::inline(), servers: None }
    }

    /// Sets the client for MCP servers.
    #[must_use]
    pub fn with_tool_servers(self, servers: Arc<dyn ToolServers>) -> Self {
        Self { servers: Some(servers), ..self }
    }

    /// Sets the evaluator that searches scripted replies within its limits. Their author also controls the text that
    /// they are compared with, by templates.
    #[must_use]
    pub fn with_evaluator(self, evaluator: Evaluator) -> Self {
        Self { evaluator, ..self }
    }

    /// Makes an HTTP request of a step. `facts` receives the versions of the read Secrets, also if the request fails.
    async fn call_http(
        &self,
        run: &RunRef,
        call: HttpCall,
        limit: Duration,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<Reply, CallError> {
        let entries: Vec<_> = call.secret_headers.iter().map(|header| header.entry.name.clone()).collect();
        let (secret_headers, left) =
            self.read_secret_headers(run, &call.url, call.secret_headers, limit, facts).await?;
        let request = HttpRequest {
            method: call.method,
            url: call.url,
            headers: call.headers.into_iter().collect(),
            secret_headers,
            body: call.body,
            expect_status: call.expect_status,
            timeout: left,
        };
        let reply = self.http.call(request).await.map_err(|error| with_key_advice(error, &entries))?;
        Ok(Reply {
            response: reply.body.into(),
            facts: BTreeMap::from([("statusCode".to_owned(), reply.status.to_string())]),
            ..Reply::default()
        })
    }

    /// Reads the values of headers for a request to a URL, within `limit`. Returns the headers, and the remaining time
    /// of `limit`. `facts` receives the versions of the Secrets.
    async fn read_secret_headers(
        &self,
        run: &RunRef,
        url: &str,
        headers: Vec<SentSecret>,
        limit: Duration,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(Vec<HeaderSecret>, Duration), CallError> {
        let start = Instant::now();
        let headers = timeout(limit, self.read_values(run, url, headers, facts)).await;
        let headers = headers.map_err(|_| {
            let place = HttpRequest::place_of(url);
            let why = format!("{place} was not sent: its Secrets were not read within {limit:?}");
            CallError::new(ErrorClass::Unreachable, false, why)
        })??;
        Ok((headers, limit.saturating_sub(start.elapsed()).max(Duration::from_millis(1))))
    }

    /// Reads the value of each header, and records the version of its Secret in `facts`.
    async fn read_values(
        &self,
        run: &RunRef,
        url: &str,
        headers: Vec<SentSecret>,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<Vec<HeaderSecret>, CallError> {
        let mut values = Vec::new();
        for header in headers {
            let url: url::Url =
                url.parse().map_err(|why| CallError::invalid(format!("the URL of the request: {why}")))?;
            let SecretEntry { name, secret, key } = header.entry.clone();
            let read = self.secrets.read(&run.namespace, &secret, &key, SecretUse::Header(&url)).await?;
            facts.extend(read.version.map(|version| (format!("{FACT_SECRET}{name}"), version)));
            values.push(HeaderSecret::new(header, read.value)?);
        }
        Ok(values)
    }

    /// Makes one turn of an agent: at its provider, or by its script. Adds the cost if the price is known, and a remedy
    /// if the provider refuses the key.
    async fn call_model(
        &self,
        run: &RunRef,
        call: AgentCall,
        timeout: std::time::Duration,
        room: &dyn AnswerRoom,
    ) -> Result<Reply, CallError> {
        let (key, price) = (self.read_provider_key(run, &call).await?, call.price.clone());
        let (entry, provider) = (call.key.clone(), call.provider.name.clone());
        let request = TurnRequest {
            provider: call.provider,
            namespace: run.namespace.clone(),
            model: call.model.unwrap_or_default(),
            system: call.system,
            messages: call.messages,
            tools: call.tools,
            max_tokens: call.max_tokens.and_then(|tokens| u32::try_from(tokens).ok()),
            temperature: call.temperature,
            timeout,
            key,
        };
        let turn = match request.provider.kind() {
            Some(ProviderKind::Scripted(_)) => self.answer_scripted_turn(run, request).await,
            Some(
                ProviderKind::OpenAi(_)
                | ProviderKind::Anthropic(_)
                | ProviderKind::Gemini(_)
                | ProviderKind::Ollama(_),
            )
            | None => self.model.turn(request, room).await,
        };
        let mut reply = turn.map(Reply::from).map_err(|mut error| {
            if let ErrorClass::Auth(status) = error.class {
                error.message = format!("{}; {}", error.message, key_advice(status, entry.as_ref(), &provider));
            }
            error
        })?;
        if let Some((usage, price)) = reply.usage.as_mut().zip(price) {
            usage.cost = Some(price.of(*usage));
        }
        Ok(reply)
    }

    /// Answers a scripted turn on a thread for evaluations, charged to its namespace.
    async fn answer_scripted_turn(&self, run: &RunRef, request: TurnRequest) -> Result<TurnReply, CallError> {
        let subject = Subject {
            kind: "Workflow".to_owned(),
            namespace: run.namespace.clone(),
            name: run.workflow.clone(),
            uid: run.uid.clone(),
            generation: 0,
        };
        let model = Arc::clone(&self.model);
        let result = self.evaluator.run(subject, move || model.turn(request, &UnboundedRoom).now_or_never()).await;
        match result {
            Ok(Some(turn)) => turn,
            Ok(None) => Err(CallError::invalid("a scripted turn waits: internal error; report this as a bug")),
            Err(why @ (Stopped::Closed | Stopped::Withdrawn)) => {
                Err(CallError::new(ErrorClass::Unreachable, false, why.to_string()))
            }
            Err(why) => Err(CallError::invalid(format!(
                "its scripted reply was not found: {why}; use fewer replies with `contains`, or a shorter input"
            ))),
        }
    }

    /// Reads the key for a provider from its Secret; `None` if the provider needs no key.
    ///
    /// # Errors
    /// The Secret cannot be read, or the key is empty.
    async fn read_provider_key(&self, run: &RunRef, call: &AgentCall) -> Result<Option<SecretText>, CallError> {
        let endpoint = call.provider.kind().and_then(ProviderKind::endpoint);
        let Some((url, entry)) = endpoint.zip(call.key.as_ref()) else { return Ok(None) };
        let url = url.parse().map_err(|why| {
            CallError::invalid(format!("provider {}: baseURL is not a URL: {why}", call.provider.name))
        })?;
        let key = self.secrets.get(&run.namespace, &entry.secret, &entry.key, &url).await?;
        if key.expose_secret().trim().is_empty() {
            let SecretEntry { secret, key, .. } = entry;
            return Err(CallError::invalid(format!(
                "provider {}: the key {key} of the Secret {secret} is empty: give it a value",
                call.provider.name
            )));
        }
        Ok(Some(key))
    }
}

/// Adds the remedy to the error of a request with these entries of `spec.secrets`, if the server refuses the
/// credentials.
fn with_key_advice(mut error: CallError, entries: &[String]) -> CallError {
    if matches!(error.class, ErrorClass::Auth(_)) && !entries.is_empty() {
        let advice = format!("it was sent {} of spec.secrets: check the value", entries.join(", "));
        error.message = format!("{}; {advice}", error.message);
    }
    error
}

/// Returns the remedy if a provider refuses the credentials. It names the entry of the key and not the Secret, because
/// models and templates can read the text.
fn key_advice(status: u16, entry: Option<&SecretEntry>, provider: &str) -> String {
    let Some(SecretEntry { name, .. }) = entry else {
        return format!("it was sent no key: give provider {provider} a key from spec.secrets");
    };
    let right = if status == 403 { ", or the account lacks the right to this model" } else { "" };
    format!("it was sent the key {name} of spec.secrets: check its value{right}")
}

#[async_trait]
impl Caller for DefaultCaller {
    async fn call(&self, run: &RunRef, call: Call, room: &dyn AnswerRoom) -> Result<Reply, Failure> {
        let Call { idempotent, timeout, content, .. } = call;
        let mut facts = BTreeMap::new();
        let fail = |error| to_failure(error, idempotent, self.clock.now().into());
        let result = match content {
            CallContent::Http(http) => self.call_http(run, http, timeout, &mut facts).await.map_err(fail),
            CallContent::Agent(agent) => self.call_model(run, *agent, timeout, room).await.map_err(fail),
            CallContent::Mcp(mcp) => self.call_tool_server(run, *mcp, (idempotent, timeout), &mut facts).await,
            CallContent::Pod(_) => {
                let why = "a container runs as a Pod, which needs a cluster: apply the Workflow to one";
                Err(fail(CallError::invalid(why)))
            }
        };
        match result {
            Ok(mut reply) => {
                reply.facts.extend(facts);
                Ok(reply)
            }
            Err(mut failure) => {
                failure.facts.extend(facts);
                Err(failure)
            }
        }
    }
}

impl From<TurnReply> for Reply {
    /// Returns the text as the response of a turn without calls, otherwise its calls as the journal records them.
    fn from(turn: TurnReply) -> Self {
        let TurnReply { text, calls, dropped, opaque, usage, truncated } = turn;
        let (response, facts) = if calls.is_empty() {
            (text.into(), truncated.then(|| (FACT_TRUNCATED.to_owned(), "true".to_owned())).into_iter().collect())
        } else {
            let fact = [(FACT_CALLS.to_owned(), calls.len().to_string())];
            (json!(TurnCalls::recorded(text, calls, truncated, dropped)), BTreeMap::from(fact))
        };
        Self { response, facts, opaque: opaque.map(Box::new), usage, log: None }
    }
}

/// Converts an error to the failure of a run's call. A wait that the server asked for begins at `now`.
fn to_failure(error: CallError, idempotent: bool, now: Moment) -> Failure {
    let is_known = error.outcome_known();
    let (class, status) = match error.class {
        ErrorClass::Invalid => (FailureClass::Invalid, None),
        ErrorClass::Refused => (FailureClass::Refused, None),
        ErrorClass::Unreachable => (FailureClass::Unreachable, None),
        ErrorClass::Timeout => (FailureClass::Timeout, None),
        ErrorClass::TooLarge | ErrorClass::NoRoom => (FailureClass::TooLarge, None),
        ErrorClass::Auth(_) => (FailureClass::Auth, None),
        ErrorClass::RateLimited => (FailureClass::RateLimited, Some(429)),
        ErrorClass::Status(status) => (FailureClass::Status, Some(status)),
        ErrorClass::Protocol => (FailureClass::Protocol, None),
    };
    let unknown = (!is_known).then(|| (FACT_UNKNOWN.to_owned(), "true".to_owned()));
    let status = status.map(|status: u16| ("statusCode".to_owned(), status.to_string()));
    Failure {
        class: class.name().to_owned(),
        retryable: error.retryable(idempotent),
        unknown: !idempotent && !is_known,
        not_before: error.retry_after.map(|pause| now.after(pause)),
        facts: status.into_iter().chain(unknown).collect(),
        log: None,
        message: error.message,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use signoff_api::{
        turn::{RequestedArguments, RequestedCall},
        workflow::Provider,
    };

    use super::*;
    use crate::secrets::FoundSecret;

    #[test]
    fn a_lost_answer_is_unknown_unless_the_call_is_idempotent() {
        let now = Moment::from(jiff::Timestamp::UNIX_EPOCH);
        let lost = || CallError::new(ErrorClass::Timeout, true, "no answer");
        assert!(to_failure(lost(), false, now).unknown);
        assert!(!to_failure(lost(), false, now).retryable);
        assert!(!to_failure(lost(), true, now).unknown);
        assert!(to_failure(lost(), true, now).retryable);
    }

    #[test]
    fn the_pause_that_a_server_asked_for_is_kept() {
        let now = Moment::from(jiff::Timestamp::UNIX_EPOCH);
        let mut slow_down = CallError::new(ErrorClass::RateLimited, true, "slow down");
        slow_down.retry_after = Some(Duration::from_secs(7));
        let failure = to_failure(slow_down, false, now);
        assert_eq!(failure.not_before, Some(now.after(Duration::from_secs(7))));
        assert_eq!(failure.facts.get("statusCode").map(String::as_str), Some("429"));
    }

    /// A model that answers with the name of its thread, or works until it is stopped.
    struct ThreadName;

    #[async_trait]
    impl Model for ThreadName {
        async fn turn(&self, request: TurnRequest, _: &dyn AnswerRoom) -> Result<TurnReply, CallError> {
            while request.model == "endless" && signoff_expr::budget::charge(1).is_ok() {}
            let text = std::thread::current().name().unwrap_or_default().to_owned();
            Ok(TurnReply { text, calls: vec![], dropped: 0, opaque: None, usage: None, truncated: false })
        }
    }

    struct Nothing;

    #[async_trait]
    impl Http for Nothing {
        async fn call(&self, _: HttpRequest) -> Result<crate::HttpReply, CallError> {
            Err(CallError::invalid("nothing is called"))
        }
    }

    #[async_trait]
    impl Secrets for Nothing {
        async fn read(&self, _: &str, _: &str, _: &str, _: SecretUse<'_>) -> Result<FoundSecret, CallError> {
            Err(CallError::invalid("there are no Secrets"))
        }
    }

    /// Answers a turn of a provider, on the threads of an evaluator with a limit of 50 ms.
    async fn turn_of(provider: Provider, model: &str) -> Result<Reply, Failure> {
        let settings = crate::EvaluatorSettings { limit: Duration::from_millis(50), ..Default::default() };
        let clock: Arc<dyn Clock> = Arc::new(jiff::Timestamp::now);
        let caller = DefaultCaller::new(Arc::new(Nothing), Arc::new(ThreadName), Arc::new(Nothing), clock);
        let caller = caller.with_evaluator(Evaluator::start(settings).unwrap());
        let run = RunRef { namespace: "a".into(), workflow: "b".into(), uid: "c".into() };
        let agent = AgentCall {
            agent: "writer".into(),
            provider,
            key: None,
            model: Some(model.into()),
            system: None,
            messages: vec![],
            temperature: None,
            max_tokens: None,
            tools: vec![],
            price: None,
        };
        let content = CallContent::Agent(Box::new(agent));
        let timeout = Duration::from_secs(60);
        let call = Call { path: "draft".into(), attempt: 1, idempotent: true, timeout, content };
        caller.call(&run, call, &UnboundedRoom).await
    }

    fn scripted() -> Provider {
        Provider { scripted: Some(Default::default()), ..Provider::default() }
    }

    #[tokio::test]
    async fn a_scripted_turn_is_answered_on_a_limited_evaluation_thread() {
        let reply = turn_of(scripted(), "small").await.map(|reply| reply.response);
        assert!(reply.as_ref().is_ok_and(|thread| thread.as_str().is_some_and(|name| name.starts_with("evaluation-"))));
        let stopped = turn_of(scripted(), "endless").await.map(|_| ()).unwrap_err();
        assert!(stopped.class == "Invalid" && !stopped.retryable, "{stopped:?}");
        assert!(stopped.message.contains("more than 0.05 s of CPU time; use fewer replies"), "{stopped:?}");
        // A model is called on the task that waits for it.
        let openai = Some(signoff_api::workflow::OpenAi { base_url: Some("http://x".into()), ..Default::default() });
        let reply = turn_of(Provider { openai, ..Provider::default() }, "small").await.map(|reply| reply.response);
        assert!(
            reply.as_ref().is_ok_and(|thread| !thread.as_str().is_some_and(|name| name.starts_with("evaluation-")))
        );
    }

    /// Secrets with empty values.
    struct AllEmpty;

    #[async_trait]
    impl Secrets for AllEmpty {
        async fn read(&self, _: &str, _: &str, _: &str, _: SecretUse<'_>) -> Result<FoundSecret, CallError> {
            Ok(FoundSecret { value: SecretText::from("\n"), version: None })
        }
    }

    #[tokio::test]
    async fn an_empty_key_is_never_sent() {
        let clock: Arc<dyn Clock> = Arc::new(jiff::Timestamp::now);
        let caller = DefaultCaller::new(Arc::new(Nothing), Arc::new(ThreadName), Arc::new(AllEmpty), clock);
        let run = RunRef { namespace: "a".into(), workflow: "b".into(), uid: "c".into() };
        let provider: Provider = serde_json::from_value(json!({"name": "p", "openai": {"key": "k"}})).unwrap();
        let call = AgentCall {
            agent: "writer".into(),
            provider,
            key: Some(SecretEntry { name: "k".into(), secret: "models".into(), key: "token".into() }),
            model: Some("small".into()),
            system: None,
            messages: vec![],
            temperature: None,
            max_tokens: None,
            tools: vec![],
            price: None,
        };
        let error = caller.call_model(&run, call, Duration::from_secs(60), &UnboundedRoom).await.unwrap_err();
        assert_eq!(error.message, "provider p: the key token of the Secret models is empty: give it a value");
        assert!(!error.sent);
    }

    fn turn(calls: Vec<RequestedCall>, truncated: bool) -> Reply {
        Reply::from(TurnReply { text: "I write.".into(), calls, dropped: 0, opaque: None, usage: None, truncated })
    }

    fn facts(reply: &Reply) -> Vec<(&str, &str)> {
        reply.facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    #[test]
    fn a_turn_without_calls_is_its_text() {
        let reply = turn(vec![], false);
        assert_eq!((&reply.response, facts(&reply)), (&json!("I write."), vec![]));
        let cut = turn(vec![], true);
        assert_eq!((&cut.response, facts(&cut)), (&json!("I write."), vec![("truncated", "true")]));
    }

    #[test]
    fn a_turn_with_calls_is_an_object_and_a_fact_with_their_number() {
        let call = |id: &str, arguments| RequestedCall { id: id.into(), tool: "letter".into(), arguments };
        let calls = || {
            vec![
                call("a", RequestedArguments::Text(r#"{"to": "ACME"}"#.into())),
                call("a", RequestedArguments::Text("no JSON".into())),
                call("", RequestedArguments::TooLong(5_242_880)),
            ]
        };
        let reply = turn(calls(), false);
        let expected = json!({"text": "I write.", "calls": [
            {"id": "a", "tool": "letter", "arguments": "{\"to\": \"ACME\"}"},
            {"id": "a-2", "tool": "letter", "arguments": "no JSON"},
            {"id": "call-3", "tool": "letter", "tooLong": 5_242_880},
        ]});
        assert_eq!((&reply.response, facts(&reply)), (&expected, vec![("calls", "3")]));
        let cut = turn(calls(), true);
        assert_eq!(cut.response["truncated"], json!(true));
        assert_eq!((&cut.response["calls"], facts(&cut)), (&expected["calls"], vec![("calls", "3")]));
    }
}
