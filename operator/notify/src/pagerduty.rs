//! PagerDuty: a request opens an incident, and its outcome resolves the incident, with the Events API v2.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use signoff_executor::{ExposeSecret, Http};

use crate::channel::{Channel, MessageHandle, Recipient, SendError};
use crate::config::PagerDutyConfig;
use crate::notice::{Notice, NoticeEvent};
use crate::post::Post;
use crate::secret_file::read_secret;
use crate::text::{LINK_LABEL, Rendering, Wording, escape_line};

/// The URL of the Events API. Accounts in the EU service region have another one.
pub(crate) const API: &str = "https://events.pagerduty.com/v2/enqueue";

/// The most UTF-16 code units of a summary.
const SUMMARY_UNITS: usize = 1_024;

/// The most UTF-16 code units of details.
const DETAILS_UNITS: usize = 3_000;

/// A channel that opens and resolves incidents of one service in PagerDuty.
pub struct PagerDutyChannel {
    settings: PagerDutyConfig,
    http: Arc<dyn Http>,
    api: String,
}

impl PagerDutyChannel {
    /// Returns a channel that sends with this client.
    #[must_use]
    pub fn new(settings: PagerDutyConfig, http: Arc<dyn Http>) -> Self {
        let api = settings.api.clone().unwrap_or_else(|| API.to_owned());
        Self { settings, http, api }
    }

    /// Replaces the URL of the Events API.
    #[must_use]
    pub fn with_api(self, api: String) -> Self {
        Self { api, ..self }
    }
}

#[async_trait]
impl Channel for PagerDutyChannel {
    async fn send(
        &self,
        notice: &Notice,
        _to: &Recipient,
        _earlier: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError> {
        let Some(event) = render_event(notice) else { return Ok(None) };
        let key = read_secret(&self.settings.routing_key_file).await?;
        let mut body = Map::new();
        body.insert("routing_key".to_owned(), key.expose_secret().into());
        body.extend(event);
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let post = Post { service: "PagerDuty", url: self.api.clone(), headers, body: Value::from(body).to_string() };
        post.deliver(self.http.as_ref()).await?;
        Ok(None)
    }
}

/// Returns the event of a notice without the routing key; or `None` for a voided vote and for the end of a run. They
/// demand nothing of the person on call, and an incident about the end of a run would never be resolved.
fn render_event(notice: &Notice) -> Option<Map<String, Value>> {
    let is_open = match notice.event {
        NoticeEvent::Asked | NoticeEvent::Reminded | NoticeEvent::Escalated => true,
        NoticeEvent::Taken => false,
        NoticeEvent::VoteVoided | NoticeEvent::Ended => return None,
    };
    let mut event = Map::new();
    let action = if is_open { "trigger" } else { "resolve" };
    event.insert("event_action".to_owned(), action.into());
    event.insert("dedup_key".to_owned(), notice.correlation.as_str().into());
    if !is_open {
        return Some(event);
    }
    let words = Wording::new(notice, Rendering::Chat, DETAILS_UNITS);
    let mut facts: Map<String, Value> =
        words.facts.iter().map(|fact| (fact.label.to_owned(), fact.value.as_str().into())).collect();
    facts.extend(words.details.map(|details| ("Text of the request".to_owned(), details.into())));
    let payload = json!({
        // The title is already escaped. Here it is only cut to the length that PagerDuty allows.
        "summary": escape_line(&words.title, Rendering::Chat, SUMMARY_UNITS),
        "source": escape_line(&notice.namespace, Rendering::Chat, SUMMARY_UNITS),
        "severity": "warning",
        "timestamp": notice.at,
        "component": "signoff",
        "custom_details": facts,
    });
    event.insert("payload".to_owned(), payload);
    let links: Vec<Value> = notice.link.iter().map(|link| json!({"href": link, "text": LINK_LABEL})).collect();
    event.insert("links".to_owned(), links.into());
    Some(event)
}
