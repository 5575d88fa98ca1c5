//! The message that a workflow of Teams posts into a channel: an adaptive card in which Teams reads no text as
//! Markdown.

use serde_json::{Value, json};

use crate::{
    notice::Notice,
    text::{DETAILS_LABEL, LINK_LABEL, Rendering, Wording},
};

/// The most UTF-16 code units of details. A message of Teams has at most 28 KiB.
const DETAILS_UNITS: usize = 4_000;

/// Returns the body of the request. Untrusted text is only in `TextRun` elements, because Teams reads Markdown in a
/// `TextBlock` and in a `FactSet`.
pub(crate) fn render_card(notice: &Notice) -> Value {
    let words = Wording::new(notice, Rendering::Card, DETAILS_UNITS);
    let bold = |text: &str| json!({"type": "TextRun", "text": text, "weight": "Bolder"});
    let plain = |text: &str| json!({"type": "TextRun", "text": text});
    let block = |runs: Vec<Value>| json!({"type": "RichTextBlock", "inlines": runs});
    // Teams does not show the id. A receiver can recognize a repeated notice by the id.
    let title = json!({"type": "RichTextBlock", "id": notice.id, "inlines": [bold(&words.title)]});
    let mut body = vec![title];
    body.extend(words.facts.iter().map(|fact| block(vec![bold(&format!("{}: ", fact.label)), plain(&fact.value)])));
    if let Some(details) = &words.details {
        body.push(block(vec![bold(DETAILS_LABEL)]));
        body.push(block(vec![plain(details)]));
    }
    let actions = notice.link.iter().map(|link| json!({"type": "Action.OpenUrl", "title": LINK_LABEL, "url": link}));
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.2",
                "body": body,
                "actions": actions.collect::<Vec<Value>>(),
            },
        }],
    })
}
