//! Tests of hostile texts of people, agents and tools in every channel that sends JSON.

use serde_json::{Value, json};
use signoff_notify::config::PagerDutyConfig;
use signoff_notify::config::SlackConfig;
use signoff_notify::config::WebhookFormat;
use signoff_notify::pagerduty::PagerDutyChannel;
use signoff_notify::slack::SlackChannel;
use signoff_notify::{Channel, Notice, NoticeEvent, Recipient};
use wiremock::ResponseTemplate;

use super::webhooks::send;
use super::{Receiver, client, notice};

/// The fields with URLs of the operator, which contain no untrusted text.
const NO_TEXT: [&str; 6] = ["url", "href", "link", "resume_url", "$schema", "contentType"];

/// The parts of text that must be escaped in every channel.
const HARMFUL: [&str; 18] = [
    "://",
    "evil.com",
    "evil。com",
    "evil．com",
    "evil｡com",
    "evil\u{fe52}com",
    "\r",
    "\u{202e}",
    "\u{200b}",
    "\u{1b}",
    "\u{0}",
    r"\\",
    "mailto:",
    "tel:+",
    "javascript:",
    "@here",
    "@channel",
    "@everyone",
];

fn hostile_texts() -> Vec<String> {
    let texts = [
        "<!channel> <!here> <@U012AB3CD> <#C123> @everyone",
        "<https://evil.com|the page> &lt;https://evil.com&gt;",
        "[the page](https://evil.com) ![x](https://evil.com/p.png) **bold** `code`",
        "<a href=\"https://evil.com\">the page</a><script>x</script><at>Bob</at>",
        "evil.com www.evil.com evil。com ev\u{200b}il.com mailto:eve@evil.com",
        "x\r\nBcc: eve@evil.com\r\n\r\nDecide by: never",
        "{{DATE(2026-11-28T09:00:00Z, SHORT)}} ${secrets} @{triggerBody()}",
        "\u{202e}moc.live\u{1b}[2J\u{0}\u{7}",
        r"\\evil\share file://evil/share javascript://evil",
        "\"}]}, \"routing_key\": \"x\"",
        "<https://evil.com|Alice>",
        "evil.com:8080/x www. evil．com evil｡com evil\u{fe52}com",
        "slack://channel?id=1 tel:+15550100 mailto:eve@evil.com javascript:x",
        "@here @channel @everyone :tada:",
        "a\u{85}b\u{2028}c\u{b}d",
    ];
    let long = ["evil.com ", "<!channel>", "\u{202e}", "💩"].map(|text| text.repeat(40 * 1024 / text.len()));
    texts.map(str::to_owned).into_iter().chain(long).collect()
}

/// Returns a notice whose texts are all `text`.
fn hostile_notice(text: &str) -> Notice {
    let text = || Some(text.to_owned());
    Notice {
        namespace: text().unwrap(),
        run: text().unwrap(),
        approval: text(),
        gate: text(),
        requester: text().unwrap(),
        kind: text(),
        then: text(),
        outcome: text(),
        details: text(),
        ..notice(NoticeEvent::Asked)
    }
}

/// Adds the texts of a JSON value that people may see to `texts`.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => {
            let shown = fields.iter().filter(|(name, _)| !NO_TEXT.contains(&name.as_str()));
            shown.for_each(|(_, value)| collect_texts(value, texts));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Asserts that no text of a body contains one of `parts` or of [`HARMFUL`], or has more than `max_units` UTF-16 code
/// units.
#[track_caller]
fn assert_harmless(body: &Value, parts: &[&str], max_units: usize) {
    let mut texts = Vec::new();
    collect_texts(body, &mut texts);
    assert!(texts.len() > 4, "{body}");
    for text in texts {
        for part in parts.iter().chain(&HARMFUL) {
            assert!(!text.contains(part), "{part:?} in {text}");
        }
        assert!(text.encode_utf16().count() <= max_units, "{} units", text.encode_utf16().count());
    }
}

#[tokio::test]
async fn slack_gets_plain_text_without_mentions_and_links() {
    for text in hostile_texts() {
        let slack = Receiver::start().await;
        let ok = json!({"ok": true, "channel": "C1", "ts": "1.2"});
        slack.set_answer("/chat.postMessage", ResponseTemplate::new(200).set_body_json(ok)).await;
        let token_file = slack.write_secret("token", "xoxb-1");
        let settings = SlackConfig { token_file, channel: "C1".into(), direct_messages: false, api: None };
        let channel = SlackChannel::new(settings, client()).with_api(slack.server.uri());
        channel.send(&hostile_notice(&text), &Recipient::Channel, None).await.unwrap();
        let body = slack.bodies("/chat.postMessage").await.remove(0);
        assert_harmless(&body, &["<", ">", "&"], 3_000);
        let blocks = body["blocks"].as_array().unwrap();
        let sections = blocks.iter().filter(|block| block["type"] == "section");
        assert!(sections.map(|block| &block["text"]["type"]).all(|kind| kind == "plain_text"), "{body}");
    }
}

#[tokio::test]
async fn teams_gets_runs_of_text_without_markdown() {
    for text in hostile_texts() {
        let body = send(&hostile_notice(&text), WebhookFormat::Teams).await;
        assert_harmless(&body, &["<", ">", "&", "[", "]", "`", "{{", "${", "@{"], 4_000);
        let written = body.to_string();
        assert!(!written.contains("\"TextBlock\"") && written.contains("\"TextRun\""), "{written}");
        assert!(!written.contains("FactSet") && written.len() < 28 * 1024, "{} bytes", written.len());
    }
}

#[tokio::test]
async fn webhooks_get_text_that_is_harmless_in_a_chat_or_a_page() {
    for text in hostile_texts() {
        for format in [WebhookFormat::Standard, WebhookFormat::S1, WebhookFormat::CloudEvents] {
            assert_harmless(&send(&hostile_notice(&text), format).await, &["<", ">", "&"], 16_000);
        }
    }
}

#[tokio::test]
async fn pagerduty_gets_text_and_no_further_field() {
    for text in hostile_texts() {
        let pagerduty = Receiver::start().await;
        pagerduty.set_answer("/v2/enqueue", ResponseTemplate::new(202)).await;
        let settings = PagerDutyConfig { routing_key_file: pagerduty.write_secret("key", "k"), api: None };
        let api = format!("{}/v2/enqueue", pagerduty.server.uri());
        let channel = PagerDutyChannel::new(settings, client()).with_api(api);
        channel.send(&hostile_notice(&text), &Recipient::Channel, None).await.unwrap();
        let body = pagerduty.bodies("/v2/enqueue").await.remove(0);
        assert_harmless(&body, &["<", ">", "&"], 3_000);
        assert_eq!(body["routing_key"], "k");
        assert!(body["payload"]["summary"].as_str().unwrap().chars().count() <= 1_024);
    }
}
