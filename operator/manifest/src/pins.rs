//! The editor that writes the pins of a server into the text of a Workflow, and keeps the rest of the text *(pure)*.
//!
//! find the server -> place the edits -> edit -> read again and compare. An edit is refused if the new text does not
//! have the same objects with these pins.

use std::ops::Range;

use serde_json::{Value as Json, json};
use signoff_api::server::ToolPin;

use crate::source::{Node, Value, documents};

/// The maximum number of pins of a server.
const MOST: usize = 64;

/// The remedy if the text of a file is not edited.
const BY_HAND: &str = "write the pins into it by hand";

/// An edit: a range of a text and its replacement.
struct Edit {
    at: Range<usize>,
    with: String,
}

/// Returns the text of a Workflow in which a server has these pins, in addition to its pins of other tools. Comments
/// and layout stay.
///
/// # Errors
/// The reason why the text is not edited, and the remedy.
pub fn with_pins(text: &str, server: &str, pins: &[ToolPin]) -> Result<String, String> {
    let documents = parse_documents(text)?;
    let (document, index) = find_server(&documents, server)?;
    let pointer = format!("/spec/servers/{index}");
    let node = documents.get(document).and_then(|node| node.get("spec")?.get("servers")?.items().get(index));
    let node = node.ok_or_else(|| refusal("it is not there any more"))?;
    let mut edits = match node.get("pins") {
        Some(list) => edit_list(text, node, list, pins)?,
        None => vec![add_list(text, node, pins)?],
    };
    edits.sort_by_key(|edit| edit.at.start);
    let mut edited = text.to_owned();
    for Edit { at, with } in edits.into_iter().rev() {
        if edited.get(at.clone()).is_none() {
            return Err(refusal("its layout is not understood"));
        }
        edited.replace_range(at, &with);
    }
    let mut expected: Vec<Json> = documents.iter().map(Node::to_json).collect();
    let object = expected.get_mut(document).and_then(|document| document.pointer_mut(&pointer)?.as_object_mut());
    let object = object.ok_or_else(|| refusal("the server is not an object"))?;
    let merged = merge_pins(object.get("pins"), pins);
    if merged.len() > MOST {
        return Err(format!(
            "server {server} would have {} pins, and at most {MOST} are possible: choose the tools with --tool, or name those that \
             the run needs in `only`",
            merged.len()
        ));
    }
    object.insert("pins".to_owned(), Json::Array(merged));
    let result: Vec<Json> = parse_documents(&edited)?.iter().map(Node::to_json).collect();
    if result == expected { Ok(edited) } else { Err(refusal("its layout is not understood")) }
}

/// Returns the error that a file is not edited, with the remedy.
fn refusal(why: &str) -> String {
    format!("the file is not edited, because {why}: {BY_HAND}")
}

fn parse_documents(text: &str) -> Result<Vec<Node>, String> {
    let nodes: Result<Vec<Node>, _> = documents(text).into_iter().collect();
    nodes.map_err(|unreadable| refusal(&format!("it cannot be read ({})", unreadable.why)))
}

/// Returns the index of the document with a server, and the position of the server in its list.
fn find_server(documents: &[Node], server: &str) -> Result<(usize, usize), String> {
    let mut places = documents.iter().enumerate().filter_map(|(number, document)| {
        let servers = document.get("spec")?.get("servers")?.items();
        let index = servers.iter().position(|listed| listed.get("name").and_then(Node::text) == Some(server))?;
        Some((number, index))
    });
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (None, _) => Err(refusal(&format!("no Workflow in it has a server {server}"))),
        (Some(_), Some(_)) => Err(refusal(&format!("several Workflows in it have a server {server}"))),
    }
}

/// Returns the existing pins of a server, with `pins` changed or added.
fn merge_pins(existing: Option<&Json>, pins: &[ToolPin]) -> Vec<Json> {
    let mut merged = existing.and_then(Json::as_array).cloned().unwrap_or_default();
    for pin in pins {
        match merged.iter_mut().find(|old| old.get("tool").and_then(Json::as_str) == Some(pin.tool.as_str())) {
            Some(Json::Object(old)) => _ = old.insert("definition".to_owned(), json!(pin.definition)),
            Some(_) | None => merged.push(json!({"tool": pin.tool, "definition": pin.definition})),
        }
    }
    merged
}

/// Returns the edits of a list of pins: changed definitions, and new pins at its end.
fn edit_list(text: &str, server: &Node, list: &Node, pins: &[ToolPin]) -> Result<Vec<Edit>, String> {
    let Some(last) = list.items().last() else {
        let end = end_of_flow(text, list.at.start).filter(|_| list.is_flow_style(text));
        let range = end.map(|end| list.at.start..end);
        let range = range.filter(|range| text.get(range.clone()).is_some_and(|list| !list.contains('#')));
        let at = range.ok_or_else(|| refusal("its `pins` have no value, or a comment in it"))?;
        let with = format!("[{}]", flow_style_pins(pins, has_quoted_keys(text, server)));
        return Ok(vec![Edit { at, with }]);
    };
    let (mut edits, mut new) = (Vec::new(), Vec::new());
    for pin in pins {
        let is_same = |item: &&Node| item.get("tool").and_then(Node::text) == Some(pin.tool.as_str());
        match list.items().iter().find(is_same).map(|item| item.get("definition")) {
            None => new.push(pin.clone()),
            Some(None) => return Err(refusal(&format!("its pin of {} has no definition", pin.tool))),
            Some(Some(old)) if old.text() == Some(pin.definition.as_str()) => {}
            Some(Some(old)) => edits.push(Edit { at: old.at.clone(), with: format!("\"{}\"", pin.definition) }),
        }
    }
    if new.is_empty() {
        return Ok(edits);
    }
    let end = end_of(text, last).ok_or_else(|| refusal("the end of its `pins` is not found"))?;
    edits.push(match list.is_flow_style(text) {
        true => Edit { at: end..end, with: format!(", {}", flow_style_pins(&new, has_quoted_keys(text, last))) },
        false => {
            let indent = indent_of(text, last.at.start)?;
            let dash = indent.trim_end().strip_suffix('-').ok_or_else(|| refusal("its `pins` are not a plain list"))?;
            insert_below(text, end, &pin_lines(text, dash, &new))
        }
    });
    Ok(edits)
}

/// Returns the edit that adds a list of pins to a server.
fn add_list(text: &str, server: &Node, pins: &[ToolPin]) -> Result<Edit, String> {
    let fields = server.fields();
    let (first, last) = fields.first().zip(fields.last()).ok_or_else(|| refusal("the server is empty"))?;
    if server.is_flow_style(text) {
        let is_quoted = has_quoted_keys(text, server);
        let end = end_of(text, &last.1).unwrap_or(last.0.at.end).max(last.0.at.end);
        let name = if is_quoted { "\"pins\"" } else { "pins" };
        return Ok(Edit { at: end..end, with: format!(", {name}: [{}]", flow_style_pins(pins, is_quoted)) });
    }
    let end = end_of(text, server).ok_or_else(|| refusal("the end of the server is not found"))?;
    let indent = indent_of(text, first.0.at.start)?.replace('-', " ");
    let newline = line_end_of(text);
    Ok(insert_below(text, end, &format!("{newline}{indent}pins:{}", pin_lines(text, &indent, pins))))
}

/// Renders pins for a list in flow style.
fn flow_style_pins(pins: &[ToolPin], has_quoted_keys: bool) -> String {
    let quote = if has_quoted_keys { "\"" } else { "" };
    let item = |ToolPin { tool, definition }: &ToolPin| {
        format!("{{{quote}tool{quote}: \"{tool}\", {quote}definition{quote}: \"{definition}\"}}")
    };
    pins.iter().map(item).collect::<Vec<_>>().join(", ")
}

/// Renders a line for each pin, each after a line end.
fn pin_lines(text: &str, indent: &str, pins: &[ToolPin]) -> String {
    let newline = line_end_of(text);
    pins.iter().map(|pin| format!("{newline}{indent}- {}", flow_style_pins(std::slice::from_ref(pin), false))).collect()
}

/// Returns the line end of a text.
fn line_end_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Returns the edit that inserts `lines` below the line of a value. `end` is the byte after the value; a comment can
/// follow on the line.
fn insert_below(text: &str, end: usize, lines: &str) -> Edit {
    // The range of a text block includes its last line end.
    let end = if text.get(..end).is_some_and(|before| before.ends_with('\n')) { end - 1 } else { end };
    let newline = text.get(end..).and_then(|rest| rest.find('\n')).map_or(text.len(), |length| end + length);
    let has_return = text.get(..newline).is_some_and(|before| before.ends_with('\r'));
    let line_end = if has_return { newline - 1 } else { newline };
    Edit { at: line_end..line_end, with: lines.to_owned() }
}

/// Returns the indentation before a byte: only spaces, and the dashes of lists.
fn indent_of(text: &str, at: usize) -> Result<&str, String> {
    let before = text.get(..at).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
    match before.chars().all(|c| matches!(c, ' ' | '-')) {
        true => Ok(before),
        false => Err(refusal("the server does not begin on a line of its own")),
    }
}

/// Whether the keys of an object are in quotes, as in JSON.
fn has_quoted_keys(text: &str, node: &Node) -> bool {
    let first = node.fields().first().and_then(|(key, _)| text.get(key.at.clone()));
    first.is_some_and(|key| key.starts_with('"'))
}

/// Returns the byte after a value.
fn end_of(text: &str, node: &Node) -> Option<usize> {
    if node.is_flow_style(text) {
        return end_of_flow(text, node.at.start);
    }
    match &node.value {
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::Text(_) => Some(node.at.end),
        Value::List(items) => end_of(text, items.last()?),
        // A field without a value ends with its name.
        Value::Map(fields) => {
            let (key, value) = fields.last()?;
            Some(end_of(text, value).unwrap_or(key.at.end))
        }
    }
}

/// Returns the byte after a list or an object in flow style that begins at `start`.
fn end_of_flow(text: &str, start: usize) -> Option<usize> {
    let (mut depth, mut quote, mut before) = (0_usize, None, ' ');
    let mut chars = text.get(start..)?.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some('"'), '\\') => _ = chars.next(),
            // Two single quotes within quotes are an escaped one.
            (Some('\''), '\'') if chars.peek().is_some_and(|(_, next)| *next == '\'') => _ = chars.next(),
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if before.is_whitespace() || matches!(before, '[' | '{' | ',' | ':') => quote = Some(c),
            (None, '#') if before.is_whitespace() => while chars.next_if(|(_, next)| *next != '\n').is_some() {},
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(start + at + c.len_utf8());
                }
            }
            (None, _) => {}
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use signoff_api::Digest;

    use super::*;

    fn pin(tool: &str, content: &str) -> ToolPin {
        ToolPin { tool: tool.to_owned(), definition: Digest::of_bytes(content.as_bytes()) }
    }

    fn digest(content: &str) -> String {
        Digest::of_bytes(content.as_bytes()).to_string()
    }

    /// Adds pins of `refund` and `yes` to the server `crm`.
    fn add_two_pins(text: &str) -> Result<String, String> {
        with_pins(text, "crm", &[pin("refund", "a"), pin("yes", "b")])
    }

    #[test]
    fn a_server_without_pins_gets_a_list_below_its_last_line() {
        let text = "# top\nspec:\n  servers:   # two\n  - name: erp\n    url: \"https://erp.example.com/mcp\"\n  \
                    - name: crm  # ours\n    url: 'https://crm.example.com/mcp'\n    only: [\n      get_*, # reads\n      \
                    refund]   # pays\n\n  # next\n  steps: []\n";
        let (a, b) = (digest("a"), digest("b"));
        let expected = text.replace(
            "refund]   # pays\n",
            &format!(
                "refund]   # pays\n    pins:\n    - {{tool: \"refund\", definition: \"{a}\"}}\n    \
                 - {{tool: \"yes\", definition: \"{b}\"}}\n"
            ),
        );
        assert_eq!(add_two_pins(text).unwrap(), expected);
        assert_eq!(add_two_pins(&text.replace('\n', "\r\n")).unwrap(), expected.replace('\n', "\r\n"));
    }

    #[test]
    fn the_last_field_of_a_server_can_be_of_any_kind() {
        for last in ["trust: hints", "read:\n    - get_*", "read:\n      - a\n      - \"b # c\" # d", "only: []"] {
            for end in ["", "\n", "\n\n# the end\n", "\n  steps: []\n"] {
                let text = format!("spec:\n  servers:\n  - name: crm\n    {last}{end}");
                let edited = add_two_pins(&text).unwrap();
                assert!(edited.contains("\n    pins:\n    - {tool: \"refund\","), "{edited}");
                assert_eq!(add_two_pins(&edited).unwrap(), edited, "once more it is the same");
            }
        }
    }

    #[test]
    fn a_server_in_one_line_stays_in_one_line() {
        let (a, b) = (digest("a"), digest("b"));
        let text = "spec: {servers: [{name: erp}, {name: crm, url: \"https://a/{b}\"}], steps: []} # end\n";
        let row = format!("{{tool: \"refund\", definition: \"{a}\"}}, {{tool: \"yes\", definition: \"{b}\"}}");
        assert_eq!(add_two_pins(text).unwrap(), text.replace("{b}\"}", &format!("{{b}}\", pins: [{row}]}}")));
        let json = r#"{"spec": {"servers": [{"name": "crm", "only": ["a"]}]}}"#;
        let edited = add_two_pins(json).unwrap();
        assert!(
            edited.contains(&format!(r#""only": ["a"], "pins": [{{"tool": "refund", "definition": "{a}"}}"#)),
            "{edited}"
        );
        assert!(serde_json::from_str::<Json>(&edited).is_ok());
    }

    #[test]
    fn a_pin_that_has_changed_gets_its_new_definition_and_others_stay() {
        let (a, b, old, other) = (digest("a"), digest("b"), digest("old"), digest("other"));
        let text = format!(
            "spec:\n  servers:\n  - name: crm\n    pins:   # reviewed\n    - tool: refund\n      definition: {old} # by Dana\n    \
             - {{tool: drop, definition: '{other}'}} # by Erin\n    trust: hints\n"
        );
        let expected = text
            .replace(&format!("{old} "), &format!("\"{a}\" "))
            .replace("# by Erin\n", &format!("# by Erin\n    - {{tool: \"yes\", definition: \"{b}\"}}\n"));
        assert_eq!(add_two_pins(&text).unwrap(), expected);
        let row =
            format!("spec: {{servers: [{{name: crm, pins: [{{tool: refund, definition: \"{old}\"}}], url: x}}]}}\n");
        let expected = row.replace(&format!("{old}\"}}"), &format!("{a}\"}}, {{tool: \"yes\", definition: \"{b}\"}}"));
        assert_eq!(add_two_pins(&row).unwrap(), expected);
        let empty = "spec:\n  servers:\n  - name: crm\n    pins: [] # none\n";
        let expected = format!(
            "pins: [{{tool: \"refund\", definition: \"{a}\"}}, {{tool: \"yes\", definition: \"{b}\"}}] # none\n"
        );
        assert!(add_two_pins(empty).unwrap().ends_with(&expected));
    }

    #[test]
    fn a_text_of_unknown_layout_is_refused_with_the_remedy() {
        for (text, why) in [
            ("spec: [", "it cannot be read"),
            ("spec: {servers: [{name: erp}]}", "no Workflow in it has a server crm"),
            ("spec: {servers: [{name: crm}]}\n---\nspec: {servers: [{name: crm}]}\n", "several Workflows"),
            ("spec:\n  servers:\n  - &x\n    name: crm\n  - *x\n", ""),
            ("spec:\n  servers:\n  - ? name\n    : crm\n", ""),
            ("spec:\n  servers:\n  - name: crm\n    pins:\n", ""),
        ] {
            // A text that can be edited without doubt is edited correctly.
            if let Err(refused) = add_two_pins(text) {
                assert!(refused.contains(why) && refused.ends_with(BY_HAND), "{text}: {refused}");
            } else {
                assert_eq!(why, "", "{text}");
            }
        }
        let many: Vec<_> = (0..65).map(|at| pin(&format!("tool-{at}"), "a")).collect();
        let refused = with_pins("spec: {servers: [{name: crm}]}", "crm", &many).unwrap_err();
        assert!(refused.contains("at most 64"), "{refused}");
    }

    #[test]
    fn the_end_of_a_value_in_flow_style_is_found_behind_quotes_and_comments() {
        for text in ["[a, ']', \"\\\"]\", b'], # ]", "{a: it's, b: [1, {c: 2}]} ]", "[ # ]\n a ] x", "['it''s ]', x]]"]
        {
            let end = end_of_flow(text, 0).unwrap();
            assert!(documents(text.get(..end).unwrap()).iter().all(Result::is_ok), "{text}: {end}");
        }
        assert_eq!(end_of_flow("[a, b", 0), None);
        assert_eq!(end_of_flow("", 0), None);
    }
}
