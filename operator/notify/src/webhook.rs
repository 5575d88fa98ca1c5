//! Webhooks: a POST request with JSON in one of four formats, signed according to Standard Webhooks.

use std::sync::Arc;

use async_trait::async_trait;
use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use signoff_executor::{Clock, ExposeSecret, Http, SecretText};
use signoff_expr::text::display;

use crate::channel::{Channel, MessageHandle, Recipient, SendError};
use crate::config::{WebhookConfig, WebhookFormat};
use crate::notice::{Notice, NoticeEvent};
use crate::post::Post;
use crate::secret_file::read_secret;
use crate::teams;
use crate::text::{Rendering, Wording, escape_line};

/// The most UTF-16 code units of details.
const DETAILS_UNITS: usize = 16_000;

/// The most characters of a name. Kubernetes does not limit the length of user names.
const NAME_CHARACTERS: usize = 253;

/// The number of bytes of a signing key, according to Standard Webhooks.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A channel that sends to one webhook URL.
pub struct WebhookChannel {
    settings: WebhookConfig,
    http: Arc<dyn Http>,
    clock: Arc<dyn Clock>,
}

impl WebhookChannel {
    /// Returns a channel that sends with this client. `clock`: the source of the signed times.
    #[must_use]
    pub fn new(settings: WebhookConfig, http: Arc<dyn Http>, clock: Arc<dyn Clock>) -> Self {
        Self { settings, http, clock }
    }
}

#[async_trait]
impl Channel for WebhookChannel {
    async fn send(
        &self,
        notice: &Notice,
        _to: &Recipient,
        _earlier: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError> {
        let url = read_secret(&self.settings.url_file).await?;
        let (content_type, body) = match self.settings.format {
            WebhookFormat::Standard => ("application/json", standard_body(notice)),
            WebhookFormat::S1 => ("application/json", s1_body(notice)),
            WebhookFormat::CloudEvents => ("application/cloudevents+json; charset=utf-8", cloud_event_body(notice)),
            WebhookFormat::Teams => ("application/json", teams::render_card(notice)),
        };
        let body = body.to_string();
        let timestamp = self.clock.now().as_second();
        let mut headers = vec![
            ("content-type".to_owned(), content_type.to_owned()),
            ("webhook-id".to_owned(), notice.id.clone()),
            ("webhook-timestamp".to_owned(), timestamp.to_string()),
        ];
        if let Some(file) = &self.settings.secret_file {
            let signature = sign_body(&read_secret(file).await?, &notice.id, timestamp, &body)?;
            headers.push(("webhook-signature".to_owned(), signature));
        }
        let post = Post { service: "webhook", url: url.expose_secret().to_owned(), headers, body };
        post.deliver(self.http.as_ref()).await?;
        Ok(None)
    }
}

/// Signs a request with each secret, and returns the value of the header `webhook-signature`. While a secret is
/// rotated, there are two secrets. Fails if a secret is not a signing key.
fn sign_body(secrets: &SecretText, id: &str, timestamp: i64, body: &str) -> Result<String, SendError> {
    let signed = format!("{id}.{timestamp}.{body}");
    let signature = |secret: &str| {
        let bytes = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok();
        let bytes = bytes.filter(|bytes| KEY_BYTES.contains(&bytes.len()))?;
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &bytes), signed.as_bytes());
        Some(format!("v1,{}", STANDARD.encode(tag)))
    };
    let signatures: Option<Vec<String>> = secrets.expose_secret().split_whitespace().map(signature).collect();
    let why = "webhook: the signing secret is not `whsec_` and 24 to 64 bytes in base64; correct its file";
    signatures
        .map(|signatures| signatures.join(" "))
        .ok_or_else(|| SendError::Later { why: why.to_owned(), after: None })
}

/// Returns the machine-readable name of an event.
fn event_name(notice: &Notice) -> &'static str {
    if notice.run.is_empty() {
        // Channels for machines do not fold notices, so only a test has no run.
        return "test";
    }
    match notice.event {
        NoticeEvent::Asked => "approval.asked",
        NoticeEvent::Reminded => "approval.reminded",
        NoticeEvent::Escalated => "approval.escalated",
        NoticeEvent::Taken => "approval.taken",
        NoticeEvent::VoteVoided => "approval.vote_voided",
        NoticeEvent::Ended => "run.ended",
    }
}

fn wording(notice: &Notice) -> Wording {
    Wording::new(notice, Rendering::Chat, DETAILS_UNITS)
}

/// Returns a name for programs. A plain name is unchanged, so that a program can look the object up. Any other name is
/// escaped as untrusted text. Both are bounded.
fn escape_name(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-._@+".contains(character);
    match text.chars().all(is_plain) {
        true => display(text, NAME_CHARACTERS),
        false => escape_line(text, Rendering::Chat, NAME_CHARACTERS),
    }
}

/// Returns the data of a notice: names and times for programs, and texts for people.
fn notice_data(notice: &Notice) -> Value {
    let words = wording(notice);
    json!({
        "correlationId": notice.correlation,
        "namespace": escape_name(&notice.namespace),
        "run": escape_name(&notice.run),
        "approval": notice.approval.as_deref().map(escape_name),
        "gate": notice.gate.as_deref().map(escape_name),
        "requester": escape_name(&notice.requester),
        "deadline": notice.deadline,
        "title": words.title,
        "text": words.lines(),
        "details": words.details,
        "link": notice.link,
    })
}

fn standard_body(notice: &Notice) -> Value {
    json!({"type": event_name(notice), "timestamp": notice.at, "data": notice_data(notice)})
}

fn cloud_event_body(notice: &Notice) -> Value {
    let mut event = json!({
        "specversion": "1.0",
        "id": notice.id,
        "source": format!("/namespaces/{}/workflows/{}", escape_name(&notice.namespace), escape_name(&notice.run)),
        "type": format!("dev.signoff.{}", event_name(notice)),
        "time": notice.at,
        "datacontenttype": "application/json",
        "correlationid": notice.correlation,
        "data": notice_data(notice),
    });
    // CloudEvents does not allow an empty subject.
    let subject = notice.approval.as_ref().unwrap_or(&notice.run);
    if !subject.is_empty() {
        event["subject"] = escape_name(subject).into();
    }
    event
}

/// Returns the body of the format S1: the fields of the Strands CLI, and then the event and the ids of the notice.
/// `step_index` is always 0, because the steps of a Workflow have names and no index.
fn s1_body(notice: &Notice) -> Value {
    let words = wording(notice);
    let object = notice.approval.as_ref().unwrap_or(&notice.run);
    json!({
        "session_id": format!("{}.{}", escape_name(&notice.namespace), escape_name(object)),
        "workflow_name": escape_name(&notice.run),
        "step_index": 0,
        "gate": notice.gate.as_deref().map(escape_name),
        "prompt": words.title,
        "context": words.details.clone().unwrap_or_else(|| words.lines()),
        "timeout_at": notice.deadline,
        "resume_url": notice.link,
        "event": event_name(notice),
        "notice_id": notice.id,
        "correlation_id": notice.correlation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the example from the tests of the Standard Webhooks libraries.
    #[test]
    fn body_is_signed_according_to_standard_webhooks() {
        let body = r#"{"test": 2432232314}"#;
        let sign =
            |secrets: &str| sign_body(&SecretText::from(secrets), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        assert_eq!(sign(secret), Ok(expected.to_owned()));
        let two_secrets = format!("{}\nwhsec_{}", secret, STANDARD.encode([7; 32]));
        let both = sign(&two_secrets).unwrap_or_default();
        assert!(both.starts_with(&format!("{expected} v1,")) && both.split(' ').count() == 2, "{both}");
    }

    #[test]
    fn plain_name_stays_and_any_other_is_escaped() {
        for plain in ["refund-7.v2", "alice+x@example.com", "system:serviceaccount:prod:bot"] {
            assert_eq!(escape_name(plain), plain);
        }
        assert_eq!(escape_name("<https://evil.example|Alice>"), "‹https(colon)//evil(dot)example|Alice›");
        assert_eq!(escape_name("https://evil.example"), "https(colon)//evil(dot)example");
    }

    #[test]
    fn invalid_secret_is_an_error_without_its_text() {
        for secret in ["whsec_SECRET", "whsec_U0VDUkVU", "SECRET SECRET", &STANDARD.encode([1; 65])] {
            let refusal = sign_body(&SecretText::from(secret), "id", 0, "{}");
            assert!(refusal.is_err() && !format!("{refusal:?}").contains("SECRET"), "{refusal:?}");
        }
    }
}
