//! Messages of JSON-RPC: written requests, and parsed answers.
//!
//! Parts of an answer stay text until their length is checked, because parsed values take up to forty times the memory.

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use signoff_executor::{CallError, ErrorClass, excerpt};

/// The maximum length of the text of an error, in characters.
const MAX_MESSAGE: usize = 2000;
/// The maximum size of the data of an error that is read, in bytes.
const MAX_DATA: usize = 4096;

/// An answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answered {
    /// The result as JSON.
    Result(String),
    /// An error.
    Error(RpcError),
    /// Requests of the server instead of an answer, by their names.
    AskedBack(Vec<String>),
}

/// An error of JSON-RPC.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

/// The reason why an answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The answer is not a message, or lacks the form that the request requires.
    Form(&'static str),
    /// The answer is to another request, whose number is known if the message has one.
    OtherId(Option<u64>),
    /// The stream ended before the request was answered.
    Missing,
    /// The answer has more bytes than this limit.
    TooLarge(usize),
}

impl Unreadable {
    /// Returns the error of a call to `target`.
    pub(crate) fn into_error(self, target: &str) -> CallError {
        let (class, why) = match self {
            Self::Form(why) => (ErrorClass::Protocol, format!("answered {why}")),
            Self::OtherId(_) => (ErrorClass::Protocol, "answered another request than was sent".to_owned()),
            Self::Missing => (ErrorClass::Protocol, "ended its answer before the request was answered".to_owned()),
            Self::TooLarge(limit) => {
                (ErrorClass::TooLarge, format!("answered with more than the limit of {limit} bytes"))
            }
        };
        CallError::new(class, true, format!("{target} {why}"))
    }
}

impl Answered {
    /// Returns the result of a request that is not a call of a tool. Any other answer is an error.
    pub(crate) fn result(self, target: &str) -> Result<String, CallError> {
        match self {
            Self::Result(result) => Ok(result),
            Self::Error(RpcError { code, message, .. }) => Err(CallError::new(
                ErrorClass::Protocol,
                true,
                format!("{target} answered with error {code}: {}", excerpt(&message, [])),
            )),
            Self::AskedBack(wanted) => Err(CallError::new(
                ErrorClass::Refused,
                true,
                format!("{target} asked for {}, which is declined", wanted.join(", ")),
            )),
        }
    }
}

/// Returns the text of a request.
pub(crate) fn request(id: u64, method: &str, params: &Map<String, Value>) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// Returns the text of a notification.
pub(crate) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// A message of a server.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    jsonrpc: String,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorBody<'a> {
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// Parses a message. Returns the answer to request `id`, or `None` for a message that is ignored: a notification, or a
/// ping.
///
/// # Errors
/// The document is not a message, or answers another request. An error without a number counts as the answer.
pub(crate) fn read(document: &[u8], id: u64) -> Result<Option<Answered>, Unreadable> {
    const NO_MESSAGE: Unreadable = Unreadable::Form("something other than a message of JSON-RPC");
    // Serde would also read a struct from a list.
    if !document.trim_ascii_start().starts_with(b"{") {
        return Err(NO_MESSAGE);
    }
    let envelope: Envelope<'_> = serde_json::from_slice(document).map_err(|_| NO_MESSAGE)?;
    if envelope.jsonrpc != "2.0" {
        return Err(Unreadable::Form("a message that is not of JSON-RPC 2.0"));
    }
    if let Some(method) = envelope.method {
        let is_request = envelope.id.is_some() && method != "ping";
        return Ok(is_request.then(|| Answered::AskedBack(vec![request_word(&method)])));
    }
    let is_ours = |raw: &RawValue| raw.get() == id.to_string();
    match (envelope.id, envelope.result, envelope.error) {
        (Some(raw), _, _) if !is_ours(raw) => Err(Unreadable::OtherId(raw.get().parse().ok())),
        (Some(_), Some(result), None) if result.get().starts_with('{') => {
            Ok(Some(Answered::Result(result.get().to_owned())))
        }
        (Some(_), Some(_), None) => Err(Unreadable::Form("a result that is no object")),
        (_, None, Some(error)) => Ok(Some(Answered::Error(rpc_error(error)?))),
        (None, _, _) => Err(Unreadable::OtherId(None)),
        (Some(_), _, _) => Err(Unreadable::Form("a message with neither a result nor an error, or with both")),
    }
}

/// Parses the answer to request `id`. Returns `None` unless the answer is an error.
pub(crate) fn read_error(document: &[u8], id: u64) -> Option<Answered> {
    read(document, id).ok().flatten().filter(|answered| matches!(answered, Answered::Error(_)))
}

fn rpc_error(error: &RawValue) -> Result<RpcError, Unreadable> {
    let body: ErrorBody<'_> =
        serde_json::from_str(error.get()).map_err(|_| Unreadable::Form("an error without a code"))?;
    let data = body.data.filter(|data| data.get().len() <= MAX_DATA);
    Ok(RpcError {
        code: body.code,
        message: body.message.chars().take(MAX_MESSAGE).collect(),
        data: data.and_then(|data| serde_json::from_str(data.get()).ok()),
    })
}

/// Returns the word by which people see a request of a server.
pub(crate) fn request_word(method: &str) -> String {
    match method {
        "sampling/createMessage" => "sampling".to_owned(),
        "elicitation/create" => "elicitation".to_owned(),
        "roots/list" => "roots".to_owned(),
        // The server chose the method, so its text is not shown.
        _ => "another request".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    fn answer(text: &str) -> Result<Option<Answered>, Unreadable> {
        read(text.as_bytes(), 7)
    }

    #[test]
    fn only_the_answer_to_the_request_is_read() {
        let result = answer(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#);
        assert_eq!(result, Ok(Some(Answered::Result(r#"{"a":1}"#.to_owned()))));
        assert_eq!(answer(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#), Err(Unreadable::OtherId(Some(8))));
        for id in ["\"7\"", "7.0", "70", "[7]", "null"] {
            let other = answer(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
            assert!(matches!(other, Err(Unreadable::OtherId(_))), "{id}: {other:?}");
        }
    }

    #[test]
    fn an_invalid_message_is_refused() {
        for text in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"jsonrpc":"1.0","id":7,"result":{}}"#,
            r#"{"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1}}"#,
            r#"{"jsonrpc":"2.0","id":7,"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":"x"}}"#,
            r#"["2.0",7,null,{},null]"#,
            r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}"#,
        ] {
            assert!(matches!(answer(text), Err(Unreadable::Form(_))), "{text}: {:?}", answer(text));
        }
        assert!(matches!(read(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}", 7), Err(Unreadable::Form(_))));
    }

    #[test]
    fn an_error_is_data_and_bounded() {
        let long = "x".repeat(5000);
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-1,"message":"{long}","data":["{long}"]}}}}"#);
        let Ok(Some(Answered::Error(error))) = answer(&text) else { panic!("{text}") };
        assert_eq!((error.code, error.message.len(), error.data), (-1, MAX_MESSAGE, None));
    }

    #[test]
    fn requests_of_the_server_are_named_and_notifications_ignored() {
        for (method, word) in [
            ("sampling/createMessage", "sampling"),
            ("elicitation/create", "elicitation"),
            ("roots/list", "roots"),
            ("other/\\u001bthing", "another request"),
        ] {
            let asked = answer(&format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{}}}}"#));
            assert_eq!(asked, Ok(Some(Answered::AskedBack(vec![word.to_owned()]))));
        }
        assert_eq!(answer(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#), Ok(None));
        assert_eq!(answer(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), Ok(None));
    }
}
