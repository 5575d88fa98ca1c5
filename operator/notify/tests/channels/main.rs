//! Tests of the channels against servers on loopback with the answers of Slack, PagerDuty, Teams and receivers of
//! webhooks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hostile;
mod pagerduty;
mod slack;
mod test_notice;
mod webhooks;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use signoff_executor::http::HttpSettings;
use signoff_executor::{AddressSettings, Http, HttpClient};
use signoff_notify::{Notice, NoticeEvent, SendError};
use tempfile::TempDir;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

/// A receiver of notices: a server, and a folder with the secrets of its channel.
struct Receiver {
    server: MockServer,
    secrets: TempDir,
}

impl Receiver {
    async fn start() -> Self {
        Self { server: MockServer::start().await, secrets: TempDir::new().unwrap() }
    }

    /// Sets the answer to POST requests to a path.
    async fn set_answer(&self, path: &str, answer: ResponseTemplate) {
        Mock::given(matchers::method("POST")).and(matchers::path(path)).respond_with(answer).mount(&self.server).await;
    }

    /// Writes a secret, and returns the path of its file.
    fn write_secret(&self, name: &str, text: &str) -> PathBuf {
        let file = self.secrets.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Returns the bodies of the requests to a path, in order.
    async fn bodies(&self, path: &str) -> Vec<Value> {
        let requests = self.server.received_requests().await.unwrap();
        let sent = requests.iter().filter(|request| request.url.path() == path);
        sent.map(|request| serde_json::from_slice(&request.body).unwrap_or_default()).collect()
    }
}

/// Returns the executor's HTTP client, with access to loopback.
fn client() -> Arc<dyn Http> {
    let addresses = AddressSettings::default().with_loopback();
    Arc::new(HttpClient::new(HttpSettings { addresses, ..HttpSettings::default() }).unwrap())
}

fn notice(event: NoticeEvent) -> Notice {
    let moment = |text: &str| serde_json::from_value(text.into()).unwrap();
    Notice {
        id: format!("0123456789abcdef-{event:?}"),
        event,
        correlation: "c0ffee".into(),
        namespace: "prod".into(),
        run: "refund-7".into(),
        approval: Some("refund-7-pay-0123456789".into()),
        gate: Some("pay".into()),
        kind: Some("a call of a tool".into()),
        requester: "alice".into(),
        deadline: Some(moment("2026-11-28T12:30:00Z")),
        then: Some("the run is aborted".into()),
        outcome: (event == NoticeEvent::Taken).then(|| "Approved by bob".into()),
        details: None,
        link: Some("https://signoff.example.com/n/prod/a/refund-7-pay-0123456789?d=0123456789abcdef".into()),
        at: moment("2026-11-28T09:00:00Z"),
    }
}

/// Asserts that an error contains none of `secrets` and no address.
#[track_caller]
fn assert_no_secret(error: &SendError, secrets: &[&str]) {
    let message = format!("{error:?}");
    for secret in secrets.iter().chain(&["127.0.0.1", "://", "localhost"]) {
        assert!(!message.contains(secret), "{secret} in {message}");
    }
}
