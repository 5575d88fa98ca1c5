//! The scripted provider: replies written down beforehand.
//!
//! It must not vary: no clock, no randomness, no memory of earlier turns. A script that holds no
//! reply for a turn is an error, never a guess.

use signoff_api::journal::Usage;

use super::{TurnReply, TurnRequest};
use crate::error::{CallError, ErrorClass};

/// One prepared reply; exactly one of `text` and `error` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptedReply {
    /// Answers only when the last user message holds this text; `None` fits always.
    pub contains: Option<String>,
    /// The answer.
    pub text: Option<String>,
    /// Fails the turn with this message instead.
    pub error: Option<String>,
}

/// The first fitting reply. Usage is counted in words, which stand in for tokens.
pub(super) fn answer(replies: &[ScriptedReply], request: &TurnRequest) -> Result<TurnReply, CallError> {
    let asked = request.last_user_message();
    let fits = |reply: &&ScriptedReply| reply.contains.as_deref().is_none_or(|part| asked.contains(part));
    let Some(reply) = replies.iter().find(fits) else {
        return Err(CallError::invalid(format!(
            "none of the {} scripted replies fits this turn: add one without `contains`, \
             or one whose `contains` occurs in the last user message",
            replies.len()
        )));
    };
    match (&reply.text, &reply.error) {
        (Some(text), None) => Ok(TurnReply {
            text: text.clone(),
            usage: Some(Usage { input_tokens: request.prompts().map(words).sum(), output_tokens: words(text) }),
            truncated: false,
        }),
        // As a provider's own failure would be: an author scripts one to see retries and `onError`
        // at work.
        (None, Some(error)) => Err(CallError::new(ErrorClass::Status(500), true, format!("scripted error: {error}"))),
        _ => Err(CallError::invalid("a scripted reply needs exactly one of `text` and `error`")),
    }
}

fn words(text: &str) -> i64 {
    i64::try_from(text.split_whitespace().count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use signoff_engine::transition::{Message, Role};

    use super::super::ProviderConfig;
    use super::*;

    fn turn(messages: &[(Role, &str)]) -> TurnRequest {
        TurnRequest {
            provider: ProviderConfig::Scripted { replies: vec![] },
            model: "any".into(),
            system: Some("be kind".into()),
            messages: messages.iter().map(|(role, text)| Message::text(*role, *text)).collect(),
            max_tokens: None,
            temperature: None,
            timeout: Duration::from_secs(1),
            key: None,
        }
    }

    fn says(contains: Option<&str>, text: &str) -> ScriptedReply {
        ScriptedReply { contains: contains.map(Into::into), text: Some(text.into()), error: None }
    }

    #[test]
    fn the_first_reply_that_fits_the_last_user_message_answers() {
        let script = [says(Some("refund"), "Dear customer"), says(None, "hello")];
        let request = turn(&[(Role::User, "a refund please"), (Role::Assistant, "refund"), (Role::User, "hi there")]);
        assert_eq!(answer(&script, &request).unwrap().text, "hello");
        assert_eq!(answer(&script, &turn(&[(Role::User, "a refund")])).unwrap().text, "Dear customer");
        // The same turn again: the same reply.
        assert_eq!(answer(&script, &request).unwrap().text, "hello");
    }

    #[test]
    fn usage_counts_words_of_system_messages_and_answer() {
        let reply = answer(&[says(None, "one two three")], &turn(&[(Role::User, " a  b\nc ")])).unwrap();
        assert_eq!(reply.usage, Some(Usage { input_tokens: 5, output_tokens: 3 }));
    }

    #[test]
    fn a_script_without_a_fitting_reply_is_an_error_that_says_what_to_add() {
        let error = answer(&[says(Some("x"), "y")], &turn(&[(Role::User, "abc")])).unwrap_err();
        assert_eq!(error.class, ErrorClass::Invalid);
        assert!(error.message.contains("none of the 1 scripted replies fits"), "{error}");
        assert!(!error.retryable(true));
        assert!(answer(&[], &turn(&[])).is_err());
    }

    #[test]
    fn a_scripted_error_fails_the_turn_as_a_provider_would() {
        let script = [ScriptedReply { error: Some("overloaded".into()), ..ScriptedReply::default() }];
        let error = answer(&script, &turn(&[])).unwrap_err();
        assert_eq!(error.message, "scripted error: overloaded");
        assert!(error.retryable(true));
    }

    #[test]
    fn a_reply_with_neither_or_both_is_refused() {
        let both = ScriptedReply { contains: None, text: Some("a".into()), error: Some("b".into()) };
        for reply in [both, ScriptedReply::default()] {
            assert_eq!(answer(&[reply], &turn(&[])).unwrap_err().class, ErrorClass::Invalid);
        }
    }
}
