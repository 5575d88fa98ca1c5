//! The result of a tool as data: structured content, otherwise texts, with a marker for each other part.
//!
//! **Invariant:** metadata is dropped, no content is fetched, and content that is not text is only counted and
//! digested.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use signoff_api::{Digest, values::count_values};
use signoff_executor::{Attachment, ToolEnding, ToolOutput, excerpt};

use crate::message::{Unreadable, request_word};

/// The maximum number of blocks of a result.
const MAX_BLOCKS: usize = 256;
/// The maximum size of structured content in bytes. Longer content stays a text.
const MAX_STRUCTURED: usize = 256 * 1024;
/// The maximum number of values of structured content. Content with more stays a text, because as values it could take
/// a hundred times its memory.
const MAX_VALUES: usize = 4096;

/// A result, as written by the server.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenResult<'a> {
    #[serde(default)]
    result_type: Option<String>,
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
    #[serde(default)]
    input_requests: BTreeMap<String, InputRequest>,
    #[serde(borrow, default)]
    task: Option<&'a RawValue>,
}

/// A request of the server instead of a result.
#[derive(Deserialize)]
struct InputRequest {
    method: String,
    #[serde(default)]
    params: InputParams,
}

#[derive(Default, Deserialize)]
struct InputParams {
    #[serde(default)]
    mode: Option<String>,
}

/// A block of a result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    mime_type: Option<String>,
    #[serde(default)]
    uri: Option<String>,
    #[serde(default)]
    resource: Option<Resource>,
}

/// The content of an embedded resource.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    blob: Option<String>,
    #[serde(default)]
    mime_type: Option<String>,
}

/// Parses the JSON of a result.
///
/// # Errors
/// The JSON is not a result of a tool.
pub(crate) fn read(json: &str) -> Result<ToolEnding, Unreadable> {
    const FORM: Unreadable = Unreadable::Form("something other than a result of a tool");
    let written: WrittenResult<'_> = serde_json::from_str(json).map_err(|_| FORM)?;
    match written.result_type.as_deref() {
        None | Some("complete") => {}
        Some("input_required") => return Ok(ToolEnding::AskedBack(request_words(written.input_requests))),
        Some("task") => return Ok(ToolEnding::AskedBack(vec!["tasks".to_owned()])),
        Some(_) => return Err(Unreadable::Form("a result of an unknown type")),
    }
    if written.content.len() > MAX_BLOCKS {
        return Err(Unreadable::Form("a result of more than 256 blocks"));
    }
    let is_empty = written.content.is_empty() && written.structured_content.is_none();
    if is_empty && written.task.is_some() {
        return Ok(ToolEnding::AskedBack(vec!["tasks".to_owned()]));
    }
    let (mut texts, mut attachments) = (Vec::new(), Vec::new());
    for block in written.content {
        match read_block(serde_json::from_str(block.get()).map_err(|_| FORM)?, block.get()) {
            Content::Text(text) => texts.push(text),
            Content::Other(attachment) => {
                texts.push(marker(&attachment));
                attachments.push(attachment);
            }
        }
    }
    let is_error = written.is_error.unwrap_or_default();
    let text = texts.join("\n");
    // The text of an error describes the failure.
    let structured = written.structured_content.filter(|_| !is_error || text.is_empty());
    let response = match structured {
        Some(json) if json.get().len() <= MAX_STRUCTURED && count_values(json.get()) <= MAX_VALUES => {
            serde_json::from_str(json.get()).map_err(|_| FORM)?
        }
        Some(json) => Value::String(json.get().to_owned()),
        None => Value::String(text),
    };
    Ok(ToolEnding::Result(ToolOutput { response, is_error, attachments, bytes: json.len() }))
}

/// The content of a block.
enum Content {
    Text(String),
    Other(Attachment),
}

/// Returns the content of a block. `json`: the whole block, whose digest is used if the kind of the block is unknown.
fn read_block(block: Block, json: &str) -> Content {
    let Block { kind, text, data, mime_type, uri, resource } = block;
    let (kind, media_type, bytes) = match kind.as_str() {
        "text" => return Content::Text(text.unwrap_or_default()),
        "image" | "audio" => (kind, mime_type, decode(data.unwrap_or_default())),
        "resource" => {
            let Resource { text, blob, mime_type } =
                resource.unwrap_or(Resource { text: None, blob: None, mime_type: None });
            let bytes = text.map(String::into_bytes).unwrap_or_else(|| decode(blob.unwrap_or_default()));
            (kind, mime_type, bytes)
        }
        "resource_link" => ("link".to_owned(), mime_type, uri.unwrap_or_default().into_bytes()),
        other => (excerpt(other, []), mime_type, json.as_bytes().to_vec()),
    };
    let media_type = excerpt(&media_type.unwrap_or_default(), []);
    Content::Other(Attachment { kind, media_type, bytes: bytes.len(), digest: Digest::of_bytes(&bytes) })
}

/// Returns the bytes that a text encodes, or the bytes of the text if it encodes none.
fn decode(text: String) -> Vec<u8> {
    BASE64_STANDARD.decode(&text).unwrap_or_else(|_| text.into_bytes())
}

/// Returns the marker for an attachment.
fn marker(attachment: &Attachment) -> String {
    let Attachment { kind, media_type, bytes, digest } = attachment;
    let space = if media_type.is_empty() { "" } else { " " };
    format!("[{kind}{space}{media_type}, {bytes} bytes, {digest}, left out]")
}

/// Returns the words for the requests of a server, without duplicates.
fn request_words(requests: BTreeMap<String, InputRequest>) -> Vec<String> {
    let mut words: Vec<String> = requests
        .into_values()
        .map(|InputRequest { method, params }| match (request_word(&method), params.mode.as_deref()) {
            (word, Some("url")) if word == "elicitation" => "elicitation by a web page".to_owned(),
            (word, _) => word,
        })
        .collect();
    words.sort();
    words.dedup();
    if words.is_empty() {
        words.push("another request".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use serde_json::json;

    use super::*;

    fn output(result: Value) -> ToolOutput {
        match read(&result.to_string()).unwrap() {
            ToolEnding::Result(output) => output,
            other => panic!("{other:?}"),
        }
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text, "_meta": {"secret": "hidden"}})
    }

    #[test]
    fn texts_are_joined_and_structured_content_comes_before_them() {
        let result = output(json!({"content": [text("a"), text("b")], "_meta": {"hidden": 1}}));
        assert_eq!((result.response, result.is_error), (json!("a\nb"), false));
        let result = output(json!({"content": [text("{}")], "structuredContent": {"n": [1, null]}}));
        assert_eq!(result.response, json!({"n": [1, null]}));
        let result = output(json!({"content": [text("no")], "structuredContent": {"n": 1}, "isError": true}));
        assert_eq!((result.response, result.is_error), (json!("no"), true));
        assert_eq!(output(json!({"content": []})).response, json!(""));
        assert_eq!(output(json!({"resultType": "complete", "structuredContent": 7})).response, json!(7));
    }

    #[test]
    fn content_that_is_not_text_is_a_marker_with_size_and_digest() {
        let result = output(json!({"content": [
            text("see"),
            {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png\u{1b}[2J"},
            {"type": "audio", "data": "not base64!"},
            {"type": "resource", "resource": {"uri": "file:///etc/passwd", "text": "root:", "mimeType": "text/plain"}},
            {"type": "resource", "resource": {"uri": "x:", "blob": "aGVsbG8="}},
            {"type": "resource_link", "uri": "https://evil.example/", "name": "x"},
            {"type": "hologram", "more": 7},
        ]}));
        let hello = Digest::of_bytes(b"hello");
        let Value::String(told) = &result.response else { panic!("{result:?}") };
        let lines: Vec<_> = told.lines().collect();
        let image = format!("[image image/png[2J, 5 bytes, {hello}, left out]");
        assert_eq!(lines[..2], ["see", image.as_str()]);
        let kinds: Vec<_> = result.attachments.iter().map(|part| (part.kind.as_str(), part.bytes)).collect();
        assert_eq!(kinds[..5], [("image", 5), ("audio", 11), ("resource", 5), ("resource", 5), ("link", 21)]);
        assert_eq!(kinds[5].0, "hologram");
        assert!(!told.contains("passwd") && !told.contains("evil.example") && !told.contains("root:"), "{told}");
    }

    #[test]
    fn long_structured_content_stays_a_text() {
        let long = "x".repeat(MAX_STRUCTURED);
        assert_eq!(output(json!({"structuredContent": {"a": long}})).response, json!(format!("{{\"a\":\"{long}\"}}")));
    }

    #[test]
    fn structured_content_of_very_many_values_stays_a_text() {
        let many = json!({"a": vec![json!([0]); MAX_VALUES / 2]});
        assert_eq!(output(json!({"structuredContent": many})).response, json!(many.to_string()));
        let few = json!({"a": vec![json!([0]); MAX_VALUES / 2 - 2]});
        assert_eq!(output(json!({"structuredContent": few})).response, few);
    }

    #[test]
    fn only_the_kinds_of_requests_of_a_server_are_named() {
        let ending = read(
            &json!({"resultType": "input_required", "requestState": "s", "inputRequests": {
                "a": {"method": "elicitation/create", "params": {"mode": "form", "message": "your password?"}},
                "b": {"method": "elicitation/create", "params": {"mode": "url", "url": "https://evil.example"}},
                "c": {"method": "sampling/createMessage"},
                "d": {"method": "roots/list"},
                "e": {"method": "roots/list"},
            }})
            .to_string(),
        );
        let words = ["elicitation", "elicitation by a web page", "roots", "sampling"].map(str::to_owned);
        assert_eq!(ending, Ok(ToolEnding::AskedBack(words.to_vec())));
        let task = read(r#"{"task":{"taskId":"1","status":"working"}}"#);
        assert_eq!(task, Ok(ToolEnding::AskedBack(vec!["tasks".to_owned()])));
    }

    #[test]
    fn an_invalid_result_is_refused() {
        for result in [
            json!({"content": {}}),
            json!({"content": ["a"]}),
            json!({"content": [{"text": "a"}]}),
            json!({"content": [{"type": "text", "text": 7}]}),
            json!({"content": [], "isError": "no"}),
            json!({"resultType": "other", "content": []}),
            json!({"content": vec![text("a"); MAX_BLOCKS + 1]}),
        ] {
            assert!(matches!(read(&result.to_string()), Err(Unreadable::Form(_))), "{result}");
        }
    }
}
