//! Tests of the PagerDuty channel with real answers of PagerDuty.

use serde_json::json;
use signoff_notify::config::PagerDutyConfig;
use signoff_notify::pagerduty::PagerDutyChannel;
use signoff_notify::{Channel, NoticeEvent, Recipient, SendError};
use wiremock::ResponseTemplate;

use super::{Receiver, assert_no_secret, client, notice};

const KEY: &str = "0123456789SECRET0123456789abcdef";
const ENQUEUE: &str = "/v2/enqueue";

fn channel(pagerduty: &Receiver) -> PagerDutyChannel {
    let settings = PagerDutyConfig { routing_key_file: pagerduty.write_secret("key", KEY), api: None };
    PagerDutyChannel::new(settings, client()).with_api(format!("{}{ENQUEUE}", pagerduty.server.uri()))
}

#[tokio::test]
async fn incident_is_opened_and_resolved_with_one_key() {
    let pagerduty = Receiver::start().await;
    let accepted = json!({"status": "success", "message": "Event processed", "dedup_key": "c0ffee"});
    pagerduty.set_answer(ENQUEUE, ResponseTemplate::new(202).set_body_json(accepted)).await;
    let channel = channel(&pagerduty);
    for event in [
        NoticeEvent::Asked,
        NoticeEvent::Reminded,
        NoticeEvent::Escalated,
        NoticeEvent::Taken,
        NoticeEvent::VoteVoided,
        NoticeEvent::Ended,
    ] {
        assert_eq!(channel.send(&notice(event), &Recipient::Channel, None).await, Ok(None));
    }
    let bodies = pagerduty.bodies(ENQUEUE).await;
    let actions: Vec<_> = bodies.iter().map(|body| body["event_action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["trigger", "trigger", "trigger", "resolve"]);
    assert!(bodies.iter().all(|body| body["dedup_key"] == "c0ffee" && body["routing_key"] == KEY));
    assert_eq!(bodies[0]["payload"]["summary"], "Decision needed: pay of prod/refund-7");
    assert_eq!(bodies[0]["payload"]["source"], "prod");
    assert_eq!(bodies[0]["payload"]["custom_details"]["Then"], "the run is aborted");
    assert!(bodies[0]["links"][0]["href"].as_str().unwrap().starts_with("https://signoff.example.com/n/"));
    assert!(bodies[3].get("payload").is_none());
}

#[tokio::test]
async fn refused_event_is_final_and_a_full_queue_is_not() {
    let invalid = json!({
        "status": "invalid event",
        "message": "Event object is invalid",
        "errors": [format!("Length of 'routing_key' is incorrect: {KEY}")],
    });
    for (answer, is_dead) in [
        (ResponseTemplate::new(400).set_body_json(invalid), true),
        (ResponseTemplate::new(429).set_body_string("Requests rate limit exceeded"), false),
        (ResponseTemplate::new(500), false),
    ] {
        let pagerduty = Receiver::start().await;
        pagerduty.set_answer(ENQUEUE, answer).await;
        let error = channel(&pagerduty).send(&notice(NoticeEvent::Asked), &Recipient::Channel, None).await.unwrap_err();
        assert_no_secret(&error, &["SECRET", "enqueue"]);
        assert_eq!(matches!(error, SendError::Dead { .. }), is_dead, "{error:?}");
    }
}
