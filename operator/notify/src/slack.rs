//! Slack: messages to a channel or to persons. The outcome of a request replaces the text of its message.
//!
//! **Invariant:** Slack parses no text of a notice: all blocks with text are plain text, `parse` is `none`, and links
//! are not unfurled.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lru::LruCache;
use serde_json::{Value, json};
use signoff_executor::{ExposeSecret, Http, SecretText};
use tokio::time::Instant;
use url::form_urlencoded;

use crate::channel::{Channel, MessageHandle, Recipient, SendError};
use crate::config::SlackConfig;
use crate::notice::{Notice, NoticeEvent};
use crate::post::Post;
use crate::queue::LONGEST_PAUSE;
use crate::secret_file::read_secret;
use crate::text::{DETAILS_LABEL, LINK_LABEL, Rendering, Wording};

/// The base URL of Slack's methods.
pub(crate) const API: &str = "https://slack.com/api";

/// The most UTF-16 code units of details. A block has at most 3,000 characters.
const DETAILS_UNITS: usize = 2_900;

/// The most look-ups of persons that are remembered. Slack allows about 50 look-ups a minute.
const LOOK_UPS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999);

/// The time for which an unknown person is not looked up again.
const UNKNOWN_FOR: Duration = Duration::from_secs(600);

/// A channel that posts as an app of one Slack workspace.
pub struct SlackChannel {
    settings: SlackConfig,
    http: Arc<dyn Http>,
    api: String,
    /// The results of look-ups, by the address of the person.
    look_ups: Mutex<LruCache<String, LookUp>>,
    /// The time from which look-ups are allowed again, after Slack asked to wait. Slack has a rate limit for each
    /// method, so other requests do not wait.
    look_ups_from: Mutex<Option<Instant>>,
}

/// The result of a look-up of a person.
enum LookUp {
    /// The id of the conversation with the person.
    Conversation(String),
    /// Slack has no such person, or the person cannot be written to.
    Unknown {
        /// The error code from Slack.
        code: String,
        /// The time until which the result is valid.
        until: Instant,
    },
}

/// The id of a sent message: its conversation, and its time, which is unique in the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlackMessage {
    conversation: String,
    ts: String,
}

/// The failure of a call of a method.
enum SlackFailure {
    /// The request failed, or the answer is not one of Slack's API.
    NotAnswered(SendError),
    /// The error code of an answer with `ok: false`.
    Code(String),
}

impl SlackMessage {
    fn from_handle(handle: &MessageHandle) -> Option<Self> {
        let (conversation, ts) = handle.0.split_once(' ')?;
        Some(Self { conversation: slack_id(conversation)?, ts: slack_time(ts)? })
    }

    fn from_answer(answer: &Value) -> Option<Self> {
        let text = |name: &str| answer.get(name).and_then(Value::as_str);
        Some(Self { conversation: slack_id(text("channel")?)?, ts: slack_time(text("ts")?)? })
    }

    fn handle(&self) -> MessageHandle {
        MessageHandle(format!("{} {}", self.conversation, self.ts))
    }
}

/// Returns `text` if it has the form of an id of Slack.
fn slack_id(text: &str) -> Option<String> {
    let is_id = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then(|| text.to_owned())
}

/// Returns `text` if it has the form of the time of a message.
fn slack_time(text: &str) -> Option<String> {
    let is_time = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_time.then(|| text.to_owned())
}

impl SlackChannel {
    /// Returns a channel that sends with this client.
    #[must_use]
    pub fn new(settings: SlackConfig, http: Arc<dyn Http>) -> Self {
        let look_ups = Mutex::new(LruCache::new(LOOK_UPS));
        let api = settings.api.clone().unwrap_or_else(|| API.to_owned());
        Self { settings, http, api, look_ups, look_ups_from: Mutex::default() }
    }

    /// Replaces the base URL of Slack's methods. `api`: the URL without a slash at its end.
    #[must_use]
    pub fn with_api(self, api: String) -> Self {
        Self { api, ..self }
    }

    /// Calls a method, and returns its answer if the answer has `ok: true`.
    async fn call(
        &self,
        token: &SecretText,
        method: &str,
        arguments: MethodArguments<'_>,
    ) -> Result<Value, SlackFailure> {
        let (content_type, body) = match arguments {
            MethodArguments::Json(value) => ("application/json; charset=utf-8", value.to_string()),
            MethodArguments::Form(name, value) => {
                let form = form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
                ("application/x-www-form-urlencoded", form)
            }
        };
        let headers = vec![
            ("authorization".to_owned(), format!("Bearer {}", token.expose_secret())),
            ("content-type".to_owned(), content_type.to_owned()),
        ];
        let post = Post { service: "Slack", url: format!("{}/{method}", self.api), headers, body };
        let reply = post.send(self.http.as_ref()).await.map_err(SlackFailure::NotAnswered)?;
        let answer: Value = serde_json::from_str(&reply.body).map_err(|_| unreadable_answer())?;
        match (answer.get("ok").and_then(Value::as_bool), answer.get("error").and_then(Value::as_str)) {
            (Some(true), _) => Ok(answer),
            (Some(false), Some(code)) => Err(SlackFailure::Code(code.to_owned())),
            _ => Err(unreadable_answer()),
        }
    }

    /// Returns the id of the conversation with a person: a remembered id, or the result of a look-up, which is then
    /// remembered. While Slack limits look-ups, only remembered ids are returned. `person`: a mail address or the id of
    /// a member.
    async fn find_conversation(&self, token: &SecretText, person: &str) -> Result<String, SlackFailure> {
        if let Some(remembered) = self.remembered_look_up(person) {
            return remembered;
        }
        if self.look_ups_from().is_some_and(|from| Instant::now() < from) {
            let why = "Slack: it answered 429 to looking persons up; write their member ids into the file of people";
            return Err(SlackFailure::NotAnswered(SendError::Later { why: why.to_owned(), after: None }));
        }
        let mut result = self.look_up(token, person).await;
        if let Err(SlackFailure::NotAnswered(SendError::Later { after, .. })) = &mut result
            && let Some(wait) = after.take()
        {
            *self.look_ups_from() = Some(Instant::now() + wait.min(LONGEST_PAUSE));
        }
        self.remember_look_up(person, &result);
        result
    }

    /// Returns the remembered result of looking a person up; or `None` if there is none, or if it is no longer valid.
    fn remembered_look_up(&self, person: &str) -> Option<Result<String, SlackFailure>> {
        match self.look_ups().get(person)? {
            LookUp::Conversation(conversation) => Some(Ok(conversation.clone())),
            LookUp::Unknown { code, until } if Instant::now() < *until => Some(Err(SlackFailure::Code(code.clone()))),
            LookUp::Unknown { .. } => None,
        }
    }

    /// Remembers the result of looking a person up, unless it is a failure that does not concern the person.
    fn remember_look_up(&self, person: &str, result: &Result<String, SlackFailure>) {
        let look_up = match result {
            Ok(conversation) => LookUp::Conversation(conversation.clone()),
            Err(SlackFailure::Code(code)) if is_unknown_person(code) => {
                LookUp::Unknown { code: code.clone(), until: Instant::now() + UNKNOWN_FOR }
            }
            Err(SlackFailure::Code(_) | SlackFailure::NotAnswered(_)) => return,
        };
        self.look_ups().put(person.to_owned(), look_up);
    }

    /// Asks Slack for the id of the conversation with a person. Opens the conversation if there is none.
    async fn look_up(&self, token: &SecretText, person: &str) -> Result<String, SlackFailure> {
        let user = if person.contains('@') {
            let answer = self.call(token, "users.lookupByEmail", MethodArguments::Form("email", person)).await?;
            answer.pointer("/user/id").and_then(Value::as_str).and_then(slack_id)
        } else {
            slack_id(person)
        };
        let user = user.ok_or_else(|| SlackFailure::Code("user_not_found".to_owned()))?;
        let answer = self.call(token, "conversations.open", MethodArguments::Json(json!({"users": user}))).await?;
        let conversation = answer.pointer("/channel/id").and_then(Value::as_str).and_then(slack_id);
        conversation.ok_or_else(unreadable_answer)
    }

    fn look_ups_from(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.look_ups_from.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_ups(&self) -> std::sync::MutexGuard<'_, LruCache<String, LookUp>> {
        self.look_ups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a new message. `thread`: the message that the new one answers; the answer is also shown in the
    /// conversation.
    async fn post(
        &self,
        token: &SecretText,
        notice: &Notice,
        conversation: &str,
        thread: Option<&SlackMessage>,
    ) -> Result<Option<MessageHandle>, SlackFailure> {
        let mut body = message_arguments(notice, conversation);
        if let (Some(thread), Some(fields)) = (thread, body.as_object_mut()) {
            fields.insert("thread_ts".to_owned(), thread.ts.as_str().into());
            fields.insert("reply_broadcast".to_owned(), true.into());
        }
        let answer = self.call(token, "chat.postMessage", MethodArguments::Json(body)).await?;
        Ok(SlackMessage::from_answer(&answer).map(|message| message.handle()))
    }

    /// Reports a further event about the object of an earlier message. An outcome replaces the text of the message. Any
    /// other event is posted as an answer to the message.
    async fn follow_up(&self, token: &SecretText, notice: &Notice, earlier: &SlackMessage) -> Result<(), SlackFailure> {
        if notice.event != NoticeEvent::Taken {
            return self.post(token, notice, &earlier.conversation, Some(earlier)).await.map(|_| ());
        }
        let mut body = message_arguments(notice, &earlier.conversation);
        if let Some(fields) = body.as_object_mut() {
            fields.insert("ts".to_owned(), earlier.ts.as_str().into());
        }
        self.call(token, "chat.update", MethodArguments::Json(body)).await.map(|_| ())
    }
}

/// The arguments of a method. Some methods accept forms only.
enum MethodArguments<'a> {
    Json(Value),
    Form(&'a str, &'a str),
}

#[async_trait]
impl Channel for SlackChannel {
    async fn send(
        &self,
        notice: &Notice,
        to: &Recipient,
        earlier: Option<&MessageHandle>,
    ) -> Result<Option<MessageHandle>, SendError> {
        let token = read_secret(&self.settings.token_file).await?;
        if let Some(earlier) = earlier.and_then(SlackMessage::from_handle) {
            match self.follow_up(&token, notice, &earlier).await {
                Ok(()) => return Ok(Some(earlier.handle())),
                // The message was deleted, or is too old to be edited. A new message is posted.
                Err(SlackFailure::Code(code)) if is_lost_message(&code) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        let conversation = match to {
            Recipient::Channel => self.settings.channel.clone(),
            Recipient::Person(_) if !self.settings.direct_messages => {
                let why = "Slack: the channel sends no direct messages (directMessages)".to_owned();
                return Err(SendError::Dead { why });
            }
            Recipient::Person(person) => self.find_conversation(&token, person).await?,
        };
        self.post(&token, notice, &conversation, None).await.map_err(SendError::from)
    }
}

/// Returns the arguments of `chat.postMessage` and `chat.update`. Untrusted text is only in plain-text blocks, and the
/// link is a separate element.
fn message_arguments(notice: &Notice, conversation: &str) -> Value {
    let words = Wording::new(notice, Rendering::Chat, DETAILS_UNITS);
    let section = |text: &str| json!({"type": "section", "text": {"type": "plain_text", "text": text, "emoji": false}});
    let lines = words.lines();
    let details = words.details.as_deref().filter(|details| !details.is_empty());
    // Slack refuses a block without text.
    let title_and_facts = [Some(words.title.as_str()), Some(lines.as_str()).filter(|lines| !lines.is_empty())];
    let texts = title_and_facts.into_iter().chain([details.map(|_| DETAILS_LABEL), details]);
    let mut blocks: Vec<Value> = texts.flatten().map(section).collect();
    if let Some(link) = &notice.link {
        let link = json!({"type": "link", "url": link, "text": LINK_LABEL});
        blocks.push(json!({"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [link]}]}));
    }
    json!({
        "channel": conversation,
        // Slack shows this text in notifications on devices, which have no blocks.
        "text": words.title,
        "blocks": blocks,
        "parse": "none",
        "link_names": false,
        "mrkdwn": false,
        "unfurl_links": false,
        "unfurl_media": false,
        // Receivers can recognize a repeated notice by this id: https://docs.slack.dev/messaging/message-metadata
        "metadata": {"event_type": "signoff_notice", "event_payload": {"id": notice.id}},
    })
}

/// Returns the failure for an answer that is not one of Slack's API.
fn unreadable_answer() -> SlackFailure {
    SlackFailure::NotAnswered(SendError::Later { why: "Slack: its answer was not understood".to_owned(), after: None })
}

/// Whether a code means that an earlier message no longer exists, or cannot be edited or answered.
fn is_lost_message(code: &str) -> bool {
    let message_codes = ["message_not_found", "thread_not_found", "cant_update_message", "edit_window_closed"];
    let conversation_codes = ["cannot_reply_to_message", "is_archived", "channel_not_found", "not_in_channel"];
    message_codes.contains(&code) || conversation_codes.contains(&code)
}

/// Whether a code means that a person does not exist or cannot be written to.
fn is_unknown_person(code: &str) -> bool {
    ["users_not_found", "user_not_found", "user_disabled", "cannot_dm_bot"].contains(&code)
}

impl From<SlackFailure> for SendError {
    fn from(failure: SlackFailure) -> Self {
        match failure {
            SlackFailure::NotAnswered(error) => error,
            SlackFailure::Code(code) => send_error_of_code(&code),
        }
    }
}

/// Returns the error that a code of Slack means: `Later` for a temporary failure, and `Dead` for any other code, also
/// for an unlisted one.
fn send_error_of_code(code: &str) -> SendError {
    let dead = |why: &str| SendError::Dead { why: format!("Slack: {why}") };
    match code {
        "ratelimited"
        | "rate_limited"
        | "internal_error"
        | "fatal_error"
        | "service_unavailable"
        | "request_timeout"
        | "team_added_to_org"
        | "org_login_required" => SendError::Later { why: format!("Slack: {code}"), after: None },
        "invalid_auth" | "not_authed" | "token_revoked" | "token_expired" | "account_inactive" => {
            dead(&format!("{code}: the token is refused; put a bot token (xoxb-…) that is valid into its file"))
        }
        "missing_scope" | "no_permission" | "not_allowed_token_type" => dead(&format!(
            "{code}: the app needs the scopes chat:write, and for direct messages im:write and users:read.email"
        )),
        "channel_not_found" | "not_in_channel" => {
            dead(&format!("{code}: the app sees no such channel; correct the name or invite the app"))
        }
        "is_archived" => dead("is_archived: the channel is archived"),
        code if is_unknown_person(code) => dead(&format!("{code}: Slack has no such person to write to")),
        // Slack's codes are lower-case letters and underscores. Other text is not repeated in the error, because it may
        // be untrusted.
        other if other.len() <= 64 && other.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => {
            dead(&format!("it refuses the message: {other}"))
        }
        _ => dead("it refuses the message"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_codes_are_tried_again() {
        for code in ["ratelimited", "internal_error", "service_unavailable"] {
            assert!(matches!(send_error_of_code(code), SendError::Later { .. }), "{code}");
        }
        for code in ["invalid_auth", "channel_not_found", "is_archived", "missing_scope", "users_not_found", "new_code"]
        {
            assert!(matches!(send_error_of_code(code), SendError::Dead { why } if why.contains(code)), "{code}");
        }
        assert_eq!(
            send_error_of_code("xoxb-SECRET"),
            SendError::Dead { why: "Slack: it refuses the message".to_owned() }
        );
    }

    #[test]
    fn stored_handle_is_parsed_only_in_the_form_of_slack() {
        let message = SlackMessage { conversation: "C123ABC".into(), ts: "1503435956.000247".into() };
        assert_eq!(SlackMessage::from_handle(&message.handle()), Some(message));
        for malformed in ["", "C1", "C1 ", "C1 <!channel>", "#general 1.2", " 1.2"] {
            assert_eq!(SlackMessage::from_handle(&MessageHandle(malformed.to_owned())), None, "{malformed}");
        }
    }
}
