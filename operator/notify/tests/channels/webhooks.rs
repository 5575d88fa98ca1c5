//! Tests of webhooks in every format, and of the answers of receivers.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use signoff_notify::config::{WebhookConfig, WebhookFormat};
use signoff_notify::webhook::WebhookChannel;
use signoff_notify::{Channel, Notice, NoticeEvent, Recipient, SendError};
use wiremock::ResponseTemplate;

use super::{Receiver, assert_no_secret, client, notice};

const HOOK: &str = "/hooks/SECRET-PATH";
const KEY: [u8; 32] = *b"0123456789SECRET0123456789SECRET";

pub(crate) fn channel(receiver: &Receiver, format: WebhookFormat) -> WebhookChannel {
    let url_file = receiver.write_secret("url", &format!("{}{HOOK}?sig=SECRET\n", receiver.server.uri()));
    let secret_file = Some(receiver.write_secret("secret", &format!("whsec_{}", STANDARD.encode(KEY))));
    let now = notice(NoticeEvent::Asked).at;
    let settings = WebhookConfig { url_file, secret_file, format };
    WebhookChannel::new(settings, client(), Arc::new(move || now.timestamp()))
}

/// Starts a receiver that accepts every notice.
pub(crate) async fn start_receiver() -> Receiver {
    let receiver = Receiver::start().await;
    receiver.set_answer(HOOK, ResponseTemplate::new(202)).await;
    receiver
}

/// Sends one notice, and returns the body of the request.
pub(crate) async fn send(notice: &Notice, format: WebhookFormat) -> serde_json::Value {
    let receiver = start_receiver().await;
    assert_eq!(channel(&receiver, format).send(notice, &Recipient::Channel, None).await, Ok(None));
    receiver.bodies(HOOK).await.remove(0)
}

#[tokio::test]
async fn a_webhook_is_signed_over_its_id_time_and_body() {
    let receiver = start_receiver().await;
    let asked = notice(NoticeEvent::Asked);
    channel(&receiver, WebhookFormat::Standard).send(&asked, &Recipient::Channel, None).await.unwrap();
    let request = receiver.server.received_requests().await.unwrap().remove(0);
    let header = |name: &str| request.headers[name].to_str().unwrap().to_owned();
    assert_eq!((header("webhook-id"), header("webhook-timestamp")), (asked.id.clone(), "1795856400".to_owned()));
    let signed = [format!("{}.1795856400.", asked.id).as_bytes(), &request.body].concat();
    let tag = STANDARD.decode(header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &KEY), &signed, &tag).unwrap();
}

#[tokio::test]
async fn standard_webhooks_have_a_type_a_time_and_data() {
    let body = send(&notice(NoticeEvent::Asked), WebhookFormat::Standard).await;
    assert_eq!((&body["type"], &body["timestamp"]), (&json!("approval.asked"), &json!("2026-11-28T09:00:00Z")));
    assert_eq!(body["data"]["correlationId"], "c0ffee");
    assert_eq!(body["data"]["approval"], "refund-7-pay-0123456789");
    assert_eq!(body["data"]["title"], "Decision needed: pay of prod/refund-7");
}

#[tokio::test]
async fn format_s1_has_the_fields_of_the_strands_cli() {
    let body = send(&notice(NoticeEvent::Asked), WebhookFormat::S1).await;
    assert_eq!(body["session_id"], "prod.refund-7-pay-0123456789");
    assert_eq!(body["workflow_name"], "refund-7");
    assert_eq!(body["prompt"], "Decision needed: pay of prod/refund-7");
    assert_eq!(body["timeout_at"], "2026-11-28T12:30:00Z");
    assert!(body["resume_url"].as_str().unwrap().starts_with("https://signoff.example.com/n/prod/a/"));
    assert!(body["context"].as_str().unwrap().contains("Then: the run is aborted"));
    assert_eq!(body.get("step_index"), Some(&0.into()), "an integer, as in the Strands CLI");
}

#[tokio::test]
async fn a_cloud_event_has_every_required_attribute() {
    let body = send(&notice(NoticeEvent::Taken), WebhookFormat::CloudEvents).await;
    assert_eq!((&body["specversion"], &body["type"]), (&json!("1.0"), &json!("dev.signoff.approval.taken")));
    assert_eq!(body["id"], "0123456789abcdef-Taken");
    assert_eq!(body["source"], "/namespaces/prod/workflows/refund-7");
    assert_eq!((&body["correlationid"], &body["datacontenttype"]), (&json!("c0ffee"), &json!("application/json")));
    assert_eq!(body["data"]["title"], "Approved by bob: pay of prod/refund-7");
}

#[tokio::test]
async fn teams_gets_a_card_with_a_link_of_the_operator() {
    let body = send(&notice(NoticeEvent::Asked), WebhookFormat::Teams).await;
    let card = &body["attachments"][0]["content"];
    assert_eq!((&body["type"], &card["type"]), (&json!("message"), &json!("AdaptiveCard")));
    assert_eq!(card["body"][0]["inlines"][0]["text"], "Decision needed: pay of prod/refund-7");
    assert_eq!(card["body"][0]["id"], "0123456789abcdef-Asked", "a repetition has the same id");
    assert_eq!(card["actions"][0]["type"], "Action.OpenUrl");
}

#[tokio::test]
async fn error_is_final_or_temporary_by_the_answer_and_has_no_secret() {
    let cases = [
        (ResponseTemplate::new(400).set_body_string("sig=SECRET"), true, None),
        (ResponseTemplate::new(401), true, None),
        (ResponseTemplate::new(404), true, None),
        (ResponseTemplate::new(410), true, None),
        (ResponseTemplate::new(408), false, None),
        (ResponseTemplate::new(429).insert_header("retry-after", "120"), false, Some(120)),
        (ResponseTemplate::new(500), false, None),
        (ResponseTemplate::new(302).insert_header("location", "/elsewhere"), false, None),
    ];
    for (answer, is_dead, wait) in cases {
        let receiver = Receiver::start().await;
        receiver.set_answer(HOOK, answer).await;
        receiver.set_answer("/elsewhere", ResponseTemplate::new(200)).await;
        let channel = channel(&receiver, WebhookFormat::Standard);
        let error = channel.send(&notice(NoticeEvent::Asked), &Recipient::Channel, None).await.unwrap_err();
        assert_no_secret(&error, &["SECRET", "sig=", "hooks"]);
        let after = match &error {
            SendError::Dead { .. } => None,
            SendError::Later { after, .. } => *after,
        };
        assert_eq!(matches!(error, SendError::Dead { .. }), is_dead, "{error:?}");
        assert_eq!(after, wait.map(Duration::from_secs), "{error:?}");
        assert!(receiver.bodies("/elsewhere").await.is_empty(), "a redirect was followed");
    }
}

#[tokio::test]
async fn unreachable_or_refused_receiver_is_tried_again() {
    for (url, reason) in [
        ("http://127.0.0.1:9/SECRET", "no connection"),
        ("http://169.254.169.254/SECRET", "allowedAddresses"),
        ("SECRET", "not valid"),
        ("", "empty"),
    ] {
        let receiver = Receiver::start().await;
        let channel = channel(&receiver, WebhookFormat::Standard);
        receiver.write_secret("url", url);
        let error = channel.send(&notice(NoticeEvent::Asked), &Recipient::Channel, None).await.unwrap_err();
        assert!(matches!(&error, SendError::Later { why, .. } if why.contains(reason)), "{error:?}");
        assert_no_secret(&error, &["SECRET", "169.254"]);
    }
}
