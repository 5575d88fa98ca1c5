//! Tests of the Slack channel with real answers of Slack.

use std::time::Duration;

use serde_json::{Value, json};
use signoff_notify::config::SlackConfig;
use signoff_notify::slack::SlackChannel;
use signoff_notify::{Channel, MessageHandle, NoticeEvent, Recipient, SendError};
use wiremock::ResponseTemplate;

use super::{Receiver, assert_no_secret, client, notice};

const TOKEN: &str = "xoxb-17653672481-SECRET";
const POST: &str = "/api/chat.postMessage";
const UPDATE: &str = "/api/chat.update";
const LOOK_UP: &str = "/api/users.lookupByEmail";

fn channel(slack: &Receiver) -> SlackChannel {
    let token_file = slack.write_secret("token", TOKEN);
    let settings = SlackConfig { token_file, channel: "#finance-approvals".into(), direct_messages: true, api: None };
    SlackChannel::new(settings, client()).with_api(format!("{}/api", slack.server.uri()))
}

fn message_answer(conversation: &str, ts: &str) -> ResponseTemplate {
    let answer = json!({
        "ok": true, "channel": conversation, "ts": ts,
        "message": {"type": "message", "subtype": "bot_message", "text": "…", "ts": ts},
    });
    ResponseTemplate::new(200).set_body_json(answer)
}

/// Returns an answer of Slack with an error code.
fn error_answer(code: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({"ok": false, "error": code}))
}

#[tokio::test]
async fn request_is_posted_as_plain_text_and_replaced_by_the_outcome() {
    let slack = Receiver::start().await;
    slack.set_answer(POST, message_answer("C0FINANCE", "1503435956.000247")).await;
    slack.set_answer(UPDATE, message_answer("C0FINANCE", "1503435956.000247")).await;
    let channel = channel(&slack);

    let handle = channel.send(&notice(NoticeEvent::Asked), &Recipient::Channel, None).await.unwrap().unwrap();
    let body = slack.bodies(POST).await.remove(0);
    assert_eq!(body["channel"], "#finance-approvals");
    assert_eq!(body["text"], "Decision needed: pay of prod/refund-7");
    assert_eq!(
        (&body["parse"], &body["unfurl_links"], &body["mrkdwn"]),
        (&json!("none"), &json!(false), &json!(false))
    );
    assert_eq!(body["blocks"][0]["text"]["type"], "plain_text");
    let metadata = json!({"event_type": "signoff_notice", "event_payload": {"id": "0123456789abcdef-Asked"}});
    assert_eq!(body["metadata"], metadata, "a repetition has the same id");
    let link = &body["blocks"][2]["elements"][0]["elements"][0];
    assert_eq!((&link["type"], &link["text"]), (&json!("link"), &json!("Open the page")));
    let request = slack.server.received_requests().await.unwrap().remove(0);
    assert_eq!(request.headers["authorization"], format!("Bearer {TOKEN}"));

    let edited = channel.send(&notice(NoticeEvent::Taken), &Recipient::Channel, Some(&handle)).await.unwrap();
    assert_eq!(edited, Some(handle));
    let body = slack.bodies(UPDATE).await.remove(0);
    assert_eq!((&body["channel"], &body["ts"]), (&json!("C0FINANCE"), &json!("1503435956.000247")));
    assert_eq!(body["text"], "Approved by bob: pay of prod/refund-7");
}

#[tokio::test]
async fn reminder_is_posted_as_an_answer_that_the_whole_channel_sees() {
    let slack = Receiver::start().await;
    slack.set_answer(POST, message_answer("C0FINANCE", "1503435999.000001")).await;
    let handle = MessageHandle("C0FINANCE 1503435956.000247".into());
    let kept = channel(&slack).send(&notice(NoticeEvent::Reminded), &Recipient::Channel, Some(&handle)).await;
    assert_eq!(kept, Ok(Some(handle)), "the outcome edits the first message");
    let body = slack.bodies(POST).await.remove(0);
    assert_eq!((&body["thread_ts"], &body["reply_broadcast"]), (&json!("1503435956.000247"), &json!(true)));
}

#[tokio::test]
async fn a_deleted_message_is_replaced_by_a_new_one() {
    let slack = Receiver::start().await;
    slack.set_answer(UPDATE, error_answer("message_not_found")).await;
    slack.set_answer(POST, message_answer("C0FINANCE", "1503436000.000002")).await;
    let handle = MessageHandle("C0FINANCE 1503435956.000247".into());
    let new = channel(&slack).send(&notice(NoticeEvent::Taken), &Recipient::Channel, Some(&handle)).await;
    assert_eq!(new, Ok(Some(MessageHandle("C0FINANCE 1503436000.000002".into()))));
}

#[tokio::test]
async fn person_is_looked_up_by_mail_once() {
    let slack = Receiver::start().await;
    let user = json!({"ok": true, "user": {"id": "W012A3CDE", "team_id": "T012AB3C4", "name": "bob"}});
    slack.set_answer("/api/users.lookupByEmail", ResponseTemplate::new(200).set_body_json(user)).await;
    let opened = json!({"ok": true, "channel": {"id": "D069C7QFK"}});
    slack.set_answer("/api/conversations.open", ResponseTemplate::new(200).set_body_json(opened)).await;
    slack.set_answer(POST, message_answer("D069C7QFK", "1503435956.000247")).await;
    let channel = channel(&slack);
    let to = Recipient::Person("bob@example.com".into());
    for _ in 0..2 {
        let handle = channel.send(&notice(NoticeEvent::Asked), &to, None).await.unwrap();
        assert_eq!(handle, Some(MessageHandle("D069C7QFK 1503435956.000247".into())));
    }
    let requests = slack.server.received_requests().await.unwrap();
    let paths: Vec<&str> = requests.iter().map(|request| request.url.path()).collect();
    assert_eq!(paths, ["/api/users.lookupByEmail", "/api/conversations.open", POST, POST]);
    assert_eq!(requests[0].body, b"email=bob%40example.com");
    assert_eq!(slack.bodies("/api/conversations.open").await, [json!({"users": "W012A3CDE"})]);
    assert_eq!(slack.bodies(POST).await[0]["channel"], "D069C7QFK");
}

#[tokio::test]
async fn error_is_final_or_temporary_by_the_answer_and_has_no_secret() {
    let cases: [(ResponseTemplate, bool, Option<u64>, &str); 10] = [
        (error_answer("ratelimited"), false, None, "ratelimited"),
        (error_answer("ratelimited").insert_header("retry-after", "30"), false, None, "ratelimited"),
        (ResponseTemplate::new(429).insert_header("retry-after", "30"), false, Some(30), "429"),
        (ResponseTemplate::new(503).set_body_string(TOKEN), false, None, "503"),
        (ResponseTemplate::new(200).set_body_string("<html>down</html>"), false, None, "not understood"),
        (error_answer("channel_not_found"), true, None, "invite the app"),
        (error_answer("invalid_auth"), true, None, "token"),
        (error_answer("is_archived"), true, None, "archived"),
        (error_answer("missing_scope"), true, None, "chat:write"),
        (error_answer(&format!("{TOKEN} bob@example.com")), true, None, "refuses"),
    ];
    for (answer, is_dead, wait, reason) in cases {
        let slack = Receiver::start().await;
        slack.set_answer(POST, answer).await;
        let error = channel(&slack).send(&notice(NoticeEvent::Asked), &Recipient::Channel, None).await.unwrap_err();
        assert_no_secret(&error, &["SECRET", "xoxb-1", "bob@"]);
        let (dead, why, after) = match error {
            SendError::Dead { why } => (true, why, None),
            SendError::Later { why, after } => (false, why, after),
        };
        assert_eq!((dead, after), (is_dead, wait.map(Duration::from_secs)), "{why}");
        assert!(why.contains(reason), "{reason} in {why}");
    }
}

#[tokio::test]
async fn person_unknown_to_slack_is_final_and_not_named() {
    let slack = Receiver::start().await;
    slack.set_answer("/api/users.lookupByEmail", error_answer("users_not_found")).await;
    let to = Recipient::Person("bob@example.com".into());
    let error = channel(&slack).send(&notice(NoticeEvent::Asked), &to, None).await.unwrap_err();
    assert!(matches!(&error, SendError::Dead { why } if why.contains("users_not_found")), "{error:?}");
    assert_no_secret(&error, &["bob"]);
    assert_eq!(slack.bodies(POST).await, [] as [Value; 0]);
}

#[tokio::test]
async fn unknown_person_is_looked_up_once_in_ten_minutes() {
    let slack = Receiver::start().await;
    slack.set_answer(LOOK_UP, error_answer("users_not_found")).await;
    let channel = channel(&slack);
    let to = Recipient::Person("bob@example.com".into());
    for _ in 0..3 {
        let error = channel.send(&notice(NoticeEvent::Asked), &to, None).await.unwrap_err();
        assert!(matches!(&error, SendError::Dead { why } if why.contains("users_not_found")), "{error:?}");
    }
    assert_eq!(slack.bodies(LOOK_UP).await.len(), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    channel.send(&notice(NoticeEvent::Asked), &to, None).await.unwrap_err();
    assert_eq!(slack.bodies(LOOK_UP).await.len(), 2, "a person may be added meanwhile");
}

#[tokio::test]
async fn refusal_that_does_not_concern_the_person_is_not_remembered() {
    let slack = Receiver::start().await;
    slack.set_answer(LOOK_UP, error_answer("missing_scope")).await;
    let channel = channel(&slack);
    let to = Recipient::Person("bob@example.com".into());
    for _ in 0..2 {
        channel.send(&notice(NoticeEvent::Asked), &to, None).await.unwrap_err();
    }
    assert_eq!(slack.bodies(LOOK_UP).await.len(), 2);
}

#[tokio::test]
async fn pause_of_look_ups_delays_only_look_ups() {
    let slack = Receiver::start().await;
    slack.set_answer(LOOK_UP, ResponseTemplate::new(429).insert_header("retry-after", "40")).await;
    slack.set_answer(POST, message_answer("C0FINANCE", "1503435956.000247")).await;
    let channel = channel(&slack);
    for person in ["bob@example.com", "carol@example.com"] {
        let error =
            channel.send(&notice(NoticeEvent::Asked), &Recipient::Person(person.into()), None).await.unwrap_err();
        assert!(matches!(&error, SendError::Later { after: None, .. }), "the channel does not pause: {error:?}");
    }
    assert_eq!(slack.bodies(LOOK_UP).await.len(), 1);
    channel.send(&notice(NoticeEvent::Asked), &Recipient::Channel, None).await.unwrap();
}
