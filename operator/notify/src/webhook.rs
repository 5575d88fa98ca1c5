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
use crate::text::{Rendering, Wording, harmless_line};

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
            WebhookFormat::Standard => ("application/json", standard(notice)),
            WebhookFormat::S1 => ("application/json", s1(notice)),
            WebhookFormat::CloudEvents => ("application/cloudevents+json; charset=utf-8", cloud_event(notice)),
            WebhookFormat::Teams => ("application/json", teams::card(notice)),
        };
        let body = body.to_string();
        let timestamp = self.clock.now().as_second();
        let mut headers = vec![
            ("content-type".to_owned(), content_type.to_owned()),
            ("webhook-id".to_owned(), notice.id.clone()),
            ("webhook-timestamp".to_owned(), timestamp.to_string()),
        ];
        if let Some(file) = &self.settings.secret_file {
            let signature = signatures(&read_secret(file).await?, &notice.id, timestamp, &body)?;
            headers.push(("webhook-signature".to_owned(), signature));
        }
        let post = Post { service: "webhook", url: url.expose_secret().to_owned(), headers, body };
        post.deliver(self.http.as_ref()).await?;
        Ok(None)
    }
}

/// Returns the value of the header `webhook-signature`, with a signature for each secret. While a secret is rotated,
/// there are two.
fn signatures(secrets: &SecretText, id: &str, timestamp: i64, body: &str) -> Result<String, SendError> {
    let signed = format!("{id}.{timestamp}.{body}");
    let signature = |secret: &str| {
        let bytes = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok();
        let bytes = bytes.filter(|bytes| KEY_BYTES.contains(&bytes.len()))?;
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &bytes), signed.as_bytes());
        Some(format!("v1,{}", STANDARD.encode(tag)))
    };
    let all: Option<Vec<String>> = secrets.expose_secret().split_whitespace().map(signature).collect();
    let why = "webhook: the signing secret is not `whsec_` and 24 to 64 bytes in base64; correct its file";
    all.map(|all| all.join(" ")).ok_or_else(|| SendError::Later { why: why.to_owned(), after: None })
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

/// Returns a name for programs. A plain name is unchanged, so that a program can look the object up; any other name is
/// escaped as untrusted text.
fn name(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-._@+".contains(character);
    match text.chars().all(is_plain) {
        true => display(text, NAME_CHARACTERS),
        false => harmless_line(text, Rendering::Chat, NAME_CHARACTERS),
    }
}

/// Returns the data of a notice: names and times for programs, and texts for people.
fn data(notice: &Notice) -> Value {
    let words = wording(notice);
    json!({
        "correlationId": notice.correlation,
        "namespace": name(&notice.namespace),
        "run": name(&notice.run),
        "approval": notice.approval.as_deref().map(name),
        "gate": notice.gate.as_deref().map(name),
        "requester": name(&notice.requester),
        "deadline": notice.deadline,
        "title": words.title,
        "text": words.lines(),
        "details": words.details,
        "link": notice.link,
    })
}

fn standard(notice: &Notice) -> Value {
    json!({"type": event_name(notice), "timestamp": notice.at, "data": data(notice)})
}

fn cloud_event(notice: &Notice) -> Value {
    let mut event = json!({
        "specversion": "1.0",
        "id": notice.id,
        "source": format!("/namespaces/{}/workflows/{}", name(&notice.namespace), name(&notice.run)),
        "type": format!("dev.signoff.{}", event_name(notice)),
        "time": notice.at,
        "datacontenttype": "application/json",
        "correlationid": notice.correlation,
        "data": data(notice),
    });
    // CloudEvents does not allow an empty subject.
    let subject = notice.approval.as_ref().unwrap_or(&notice.run);
    if !subject.is_empty() {
        event["subject"] = name(subject).into();
    }
    event
}

/// Returns the fields of the Strands CLI, followed by the event and its ids. `step_index` is always 0, because steps of
/// a workflow have names and no index.
fn s1(notice: &Notice) -> Value {
    let words = wording(notice);
    let object = notice.approval.as_ref().unwrap_or(&notice.run);
    json!({
        "session_id": format!("{}.{}", name(&notice.namespace), name(object)),
        "workflow_name": name(&notice.run),
        "step_index": 0,
        "gate": notice.gate.as_deref().map(name),
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
    fn a_body_is_signed_as_standard_webhooks_says() {
        let body = r#"{"test": 2432232314}"#;
        let sign =
            |secrets: &str| signatures(&SecretText::from(secrets), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        assert_eq!(sign(secret), Ok(expected.to_owned()));
        let other = format!("{}\nwhsec_{}", secret, STANDARD.encode([7; 32]));
        let both = sign(&other).unwrap_or_default();
        assert!(both.starts_with(&format!("{expected} v1,")) && both.split(' ').count() == 2, "{both}");
    }

    #[test]
    fn a_plain_name_stays_and_any_other_is_harmless() {
        for plain in ["refund-7.v2", "alice+x@example.com", "system:serviceaccount:prod:bot"] {
            assert_eq!(name(plain), plain);
        }
        assert_eq!(name("<https://evil.example|Alice>"), "‹https(colon)//evil(dot)example|Alice›");
        assert_eq!(name("https://evil.example"), "https(colon)//evil(dot)example");
    }

    #[test]
    fn invalid_secret_is_an_error_without_its_text() {
        for wrong in ["whsec_SECRET", "whsec_U0VDUkVU", "SECRET SECRET", &STANDARD.encode([1; 65])] {
            let refused = signatures(&SecretText::from(wrong), "id", 0, "{}");
            assert!(refused.is_err() && !format!("{refused:?}").contains("SECRET"), "{refused:?}");
        }
    }
}
