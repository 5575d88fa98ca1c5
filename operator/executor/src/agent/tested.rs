//! A conversation for the tests of several protocols, and their reading of an answer.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};
use signoff_api::{
    journal::Usage,
    turn::{OpaquePart, RequestedArguments, RequestedCall},
    workflow::Provider,
};
use signoff_engine::transition::{Message, ToolOffer};

use super::{
    TurnRequest,
    collected::{Collected, Finish},
    documents::Documents,
    protocol::{Protocol, Unreadable, Written},
};
use crate::{http::AnswerBody as _, room::UnboundedRoom, secrets::SecretText};

/// Returns a turn of a model with a value in every field, and one tool.
pub(super) fn turn(provider: &str, model: &str, messages: Vec<Message>) -> TurnRequest {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    TurnRequest {
        provider: Provider { name: provider.into(), ..Provider::default() },
        namespace: "finance".into(),
        model: model.into(),
        system: Some("Be brief.".into()),
        messages,
        tools: vec![ToolOffer { name: "weather".into(), description: "Look outside.".into(), parameters }],
        max_tokens: Some(500),
        temperature: Some(0.5),
        timeout: Duration::from_secs(1),
        key: Some(SecretText::from(" a-key\n")),
    }
}

/// Returns a turn as it is sent to a server that does not accept some fields.
pub(super) fn write_turn(protocol: &dyn Protocol, turn: &TurnRequest, left_out: &[&str]) -> Written {
    let left_out = left_out.iter().map(|name| (*name).to_owned()).collect();
    protocol.write(turn, &left_out).ok().unwrap()
}

pub(super) fn body(written: &Written) -> Value {
    serde_json::from_str(&written.body).unwrap()
}

/// Reads an answer that arrives in pieces of seven bytes.
pub(super) fn collect(protocol: &dyn Protocol, body: &[u8]) -> Result<Collected, Unreadable> {
    let mut documents = Documents::new(&UnboundedRoom, protocol.reading(), protocol.has_lines(), 8 << 20);
    for piece in body.chunks(7) {
        if documents.add(piece).is_err() {
            return Err(documents.take_failure().unwrap());
        }
    }
    documents.end()
}

/// An answer in a comparable form.
#[derive(Debug, PartialEq)]
pub(super) struct ReadAnswer {
    pub(super) text: String,
    /// The id, the tool and the arguments of each call.
    pub(super) calls: Vec<[String; 3]>,
    pub(super) dropped: usize,
    /// The opaque parts as JSON. Those of a call begin with its number, those of the message with `message`.
    pub(super) parts: Vec<String>,
    pub(super) usage: Option<Usage>,
    pub(super) finish: Option<Finish>,
}

pub(super) fn read(protocol: &dyn Protocol, body: &[u8]) -> Result<ReadAnswer, Unreadable> {
    let collected = collect(protocol, body)?;
    let (text, usage, finish) = (collected.text.clone(), collected.usage, collected.finish.clone());
    let (calls, dropped, parts) = collected.into_parts();
    let calls = calls.iter().map(|call| [call.id.clone(), call.tool.clone(), arguments_of(call)]).collect();
    let part = |part: &OpaquePart| match part {
        OpaquePart::Item(json) => json.clone(),
        OpaquePart::Call(number, json) => format!("{number} {json}"),
        OpaquePart::Message(json) => format!("message {json}"),
    };
    Ok(ReadAnswer { text, calls, dropped, parts: parts.unwrap().iter().map(part).collect(), usage, finish })
}

pub(super) fn arguments_of(call: &RequestedCall) -> String {
    match &call.arguments {
        RequestedArguments::Text(text) => text.clone(),
        RequestedArguments::TooLong(bytes) => format!("{bytes} bytes"),
    }
}

/// Returns the reason why an answer is not used.
pub(super) fn why<A: std::fmt::Debug>(read: Result<A, Unreadable>) -> String {
    match read.unwrap_err() {
        Unreadable::Form(line, column) => format!("form {line}:{column}"),
        Unreadable::Because(why) | Unreadable::Refused(why) => why,
        Unreadable::Failed(json) => format!("failed {json}"),
        Unreadable::Page => "page".to_owned(),
    }
}
