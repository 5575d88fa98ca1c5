//! What a run calls outside: the trait, and the real thing over models and http.
//!
//! It must not decide whether a call is made, or made again: it makes one, once, and says how it went.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt as _;
use signoff_api::{Moment, workflow::Provider};
use signoff_engine::transition::{AgentCall, Call, CallContent, Failure, HttpCall, Reply};
use tokio::time::timeout;

use crate::{
    CallError, ErrorClass, Http, HttpRequest, Model, ProviderConfig, ScriptedReply, SecretText, Secrets, TurnRequest,
    clock::Clock,
};

/// A call may take this much longer than it was given, so that its own, better informed end comes first.
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
    /// Makes one call, once. Whoever calls bounds its time by `call.timeout` too.
    ///
    /// # Errors
    /// How it failed, and whether it may have happened all the same.
    async fn call(&self, run: &RunRef, call: Call) -> Result<Reply, Failure>;
}

/// Makes one call, once, within its time and whatever becomes of it.
///
/// # Errors
/// As [`Caller::call`]; also `Timeout`, and `Panic` where the caller itself failed.
pub async fn make(caller: &dyn Caller, run: &RunRef, call: Call) -> Result<Reply, Failure> {
    let (limit, idempotent) = (call.timeout, call.idempotent);
    let made = AssertUnwindSafe(async { caller.call(run, call).await }).catch_unwind();
    match timeout(limit + LENIENCE, made).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => {
            Err(given_up("Panic", "internal error during the call; report this as a bug".to_owned(), idempotent))
        }
        Err(_) => Err(given_up("Timeout", format!("no answer within {limit:?}"), idempotent)),
    }
}

fn given_up(class: &str, message: String, idempotent: bool) -> Failure {
    Failure {
        class: class.to_owned(),
        message,
        retryable: idempotent,
        unknown: !idempotent,
        not_before: None,
        facts: BTreeMap::new(),
        log: None,
    }
}

/// Makes real calls: HTTP and models.
pub struct DefaultCaller {
    http: Arc<dyn Http>,
    model: Arc<dyn Model>,
    secrets: Arc<dyn Secrets>,
    clock: Arc<dyn Clock>,
}

impl DefaultCaller {
    /// Returns a caller that uses these clients.
    #[must_use]
    pub fn new(http: Arc<dyn Http>, model: Arc<dyn Model>, secrets: Arc<dyn Secrets>, clock: Arc<dyn Clock>) -> Self {
        Self { http, model, secrets, clock }
    }

    async fn http(&self, call: HttpCall, timeout: std::time::Duration) -> Result<Reply, CallError> {
        let request = HttpRequest {
            method: call.method,
            url: call.url,
            headers: call.headers.into_iter().collect(),
            body: call.body,
            expect_status: call.expect_status,
            timeout,
        };
        let reply = self.http.call(request).await?;
        Ok(Reply {
            response: reply.body.into(),
            facts: BTreeMap::from([("statusCode".to_owned(), reply.status.to_string())]),
            ..Reply::default()
        })
    }

    async fn agent(&self, run: &RunRef, call: AgentCall, timeout: std::time::Duration) -> Result<Reply, CallError> {
        let (provider, key) = self.provider(run, &call.provider).await?;
        let request = TurnRequest {
            provider,
            model: call.model.unwrap_or_default(),
            system: call.system,
            messages: call.messages,
            max_tokens: call.max_tokens.and_then(|tokens| u32::try_from(tokens).ok()),
            temperature: call.temperature,
            timeout,
            key,
        };
        let reply = self.model.turn(request).await?;
        Ok(Reply {
            response: reply.text.into(),
            facts: if reply.truncated {
                BTreeMap::from([("truncated".to_owned(), "true".to_owned())])
            } else {
                BTreeMap::new()
            },
            usage: reply.usage,
            log: None,
        })
    }

    async fn provider(
        &self,
        run: &RunRef,
        provider: &Provider,
    ) -> Result<(ProviderConfig, Option<SecretText>), CallError> {
        match (&provider.openai, &provider.scripted) {
            (Some(openai), None) => {
                let key = match &openai.key_from {
                    None => None,
                    Some(from) => {
                        let url = openai.base_url.parse().map_err(|why| {
                            CallError::invalid(format!("provider {}: baseURL is not a URL: {why}", provider.name))
                        })?;
                        Some(self.secrets.get(&run.namespace, &from.name, &from.key, &url).await?)
                    }
                };
                Ok((ProviderConfig::OpenAi { base_url: openai.base_url.clone() }, key))
            }
            (None, Some(script)) => {
                let replies = script.replies.iter();
                let replies = replies
                    .map(|r| ScriptedReply {
                        contains: r.contains.clone(),
                        text: r.text.clone(),
                        error: r.error.clone(),
                    })
                    .collect();
                Ok((ProviderConfig::Scripted { replies }, None))
            }
            _ => Err(CallError::invalid(format!(
                "provider {}: it must have exactly one of openai and scripted",
                provider.name
            ))),
        }
    }
}

#[async_trait]
impl Caller for DefaultCaller {
    async fn call(&self, run: &RunRef, call: Call) -> Result<Reply, Failure> {
        let Call { idempotent, timeout, content, .. } = call;
        let result = match content {
            CallContent::Http(http) => self.http(http, timeout).await,
            CallContent::Agent(agent) => self.agent(run, agent, timeout).await,
            CallContent::Pod(_) => {
                Err(CallError::invalid("a container runs as a Pod, which needs a cluster: apply the Workflow to one"))
            }
        };
        result.map_err(|error| failure(error, idempotent, self.clock.now().into()))
    }
}

fn failure(error: CallError, idempotent: bool, now: Moment) -> Failure {
    let (class, status) = match error.class {
        ErrorClass::Invalid => ("Invalid", None),
        ErrorClass::Refused => ("Refused", None),
        ErrorClass::Unreachable => ("Unreachable", None),
        ErrorClass::Timeout => ("Timeout", None),
        ErrorClass::TooLarge => ("TooLarge", None),
        ErrorClass::Auth => ("Auth", None),
        ErrorClass::RateLimited => ("RateLimited", Some(429)),
        ErrorClass::Status(status) => ("Status", Some(status)),
        ErrorClass::Protocol => ("Protocol", None),
    };
    Failure {
        class: class.to_owned(),
        retryable: error.retryable(idempotent),
        unknown: !idempotent && !error.outcome_known(),
        not_before: error.retry_after.map(|pause| now.after(pause)),
        facts: status.map(|status: u16| ("statusCode".to_owned(), status.to_string())).into_iter().collect(),
        log: None,
        message: error.message,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lost_answer_is_unknown_only_where_a_repetition_would_do_harm() {
        let now = Moment::from(jiff::Timestamp::UNIX_EPOCH);
        let lost = || CallError::new(ErrorClass::Timeout, true, "no answer");
        assert!(failure(lost(), false, now).unknown);
        assert!(!failure(lost(), false, now).retryable);
        assert!(!failure(lost(), true, now).unknown);
        assert!(failure(lost(), true, now).retryable);
    }

    #[test]
    fn what_the_other_side_asked_for_is_kept() {
        let now = Moment::from(jiff::Timestamp::UNIX_EPOCH);
        let mut slow_down = CallError::new(ErrorClass::RateLimited, true, "slow down");
        slow_down.retry_after = Some(Duration::from_secs(7));
        let failure = failure(slow_down, false, now);
        assert_eq!(failure.not_before, Some(now.after(Duration::from_secs(7))));
        assert_eq!(failure.facts.get("statusCode").map(String::as_str), Some("429"));
    }
}
