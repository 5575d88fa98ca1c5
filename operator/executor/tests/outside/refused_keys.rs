//! Tests of turns whose key the server refuses: the error names the entry of `spec.secrets`, neither the value nor the
//! Secret.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use signoff_api::workflow::SecretEntry;
use signoff_engine::transition::{AgentCall, Call, CallContent};
use signoff_executor::{
    CallError, Caller as _, Clock, DefaultCaller, Providers, RunRef, SecretText, Secrets, UnboundedRoom,
    secrets::{FoundSecret, SecretUse},
};

use crate::{
    models::{KEY, request},
    server::{Server, client},
};

/// Secrets that all have the same value.
struct OneValue;

#[async_trait]
impl Secrets for OneValue {
    async fn read(&self, _: &str, _: &str, _: &str, _: SecretUse<'_>) -> Result<FoundSecret, CallError> {
        Ok(FoundSecret { value: SecretText::from(KEY), version: None })
    }
}

/// Makes a turn that the server answers with `status` and `sentence`. Returns the message of the failure, from the
/// status on.
async fn message_after(status: &str, sentence: &str, key: Option<SecretEntry>) -> String {
    let body = json!({"error": {"message": sentence}}).to_string();
    let server = Server::answering(status, "", &body).await;
    let clock: Arc<dyn Clock> = Arc::new(jiff::Timestamp::now);
    let caller = DefaultCaller::new(Arc::new(client()), Arc::new(Providers::new(client())), Arc::new(OneValue), clock);
    let mut turn = request(server.url("/v1"));
    turn.provider.name = "p".into();
    let (has_key, timeout) = (key.is_some(), turn.timeout);
    let agent = AgentCall {
        agent: "writer".into(),
        provider: turn.provider,
        key,
        model: Some(turn.model),
        system: None,
        messages: turn.messages,
        temperature: None,
        max_tokens: None,
        tools: vec![],
        price: None,
    };
    let content = CallContent::Agent(Box::new(agent));
    let call = Call { path: "draft".into(), attempt: 1, idempotent: true, timeout, content };
    let run = RunRef { namespace: "finance".into(), workflow: "letters".into(), uid: "u".into() };
    let failure = caller.call(&run, call, &UnboundedRoom).await.map(drop).unwrap_err();
    assert_eq!(server.received()[0].contains(KEY), has_key, "the server was sent the key");
    assert_eq!((failure.class.as_str(), failure.retryable), ("Auth", false));
    failure.message.split_once(" answered ").unwrap().1.to_owned()
}

#[tokio::test]
async fn the_error_of_a_refused_key_names_only_its_entry() {
    let entry = || Some(SecretEntry { name: "small".into(), secret: "team-vault".into(), key: "api-token".into() });
    let quoted = format!("Incorrect API key: {KEY}");
    let advice = "Incorrect API key: [redacted]; it was sent the key small of spec.secrets: check its value";
    assert_eq!(message_after("401 Unauthorized", &quoted, entry()).await, format!("401 Unauthorized: {advice}"));
    assert_eq!(
        message_after("403 Forbidden", &quoted, entry()).await,
        format!("403 Forbidden: {advice}, or the account lacks the right to this model")
    );
}

#[tokio::test]
async fn the_error_of_a_missing_key_names_the_provider() {
    assert_eq!(
        message_after("401 Unauthorized", "no key", None).await,
        "401 Unauthorized: no key; it was sent no key: give provider p a key from spec.secrets"
    );
}
