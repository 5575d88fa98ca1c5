//! Templates of `-o jsonpath`, in kubectl's dialect: text, `{.a.b[*].c}`, `{"\n"}`, `{range .items[*]}…{end}`.
//!
//! Paths are translated to RFC 9535 and evaluated by `jsonpath_rust`. A path that cannot be translated is refused.

use std::str::Chars;

use jsonpath_rust::{JsonPath, parser::parse_json_path};
use serde_json::Value;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Node>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Text(String),
    Values(Path),
    Range(Path, Vec<Node>),
}

/// A path to values of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Whether the path begins at the document, even within `{range}`.
    from_root: bool,
    /// The path as RFC 9535 writes it.
    query: String,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// The problem with the text, and the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.chars();
        let (nodes, is_closed) = parse_nodes(&mut rest)?;
        if is_closed {
            return Err("{end} without {range}; write {range .items[*]}…{end}".to_owned());
        }
        Ok(Self(nodes))
    }

    /// Renders the template for a document. A path without a value renders as nothing.
    pub fn render(&self, document: &Value) -> String {
        let mut text = String::new();
        render(&self.0, document, document, &mut text);
        text
    }
}

impl Path {
    /// Parses the path of a column, with or without braces and the first dot, as kubectl allows.
    ///
    /// # Errors
    /// The problem with the text, and the remedy.
    pub fn parse_relaxed(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text).trim();
        if inner.starts_with(['.', '[', '$', '@']) { Self::parse(inner) } else { Self::parse(&format!(".{inner}")) }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let problem = |why: &str| format!("{{{text}}}: {why}; write a path such as {{.metadata.name}}");
        let (from_root, mut rest) = match (text.strip_prefix('$'), text.strip_prefix('@')) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => (false, text),
        };
        let mut query = "$".to_owned();
        // `{.}` is the document itself.
        if rest == "." {
            rest = "";
        }
        while !rest.is_empty() {
            if rest.starts_with('[') {
                let end = bracket_length(rest).ok_or_else(|| problem("a bracket is not closed"))?;
                query.push_str(&rest[..end]);
                rest = &rest[end..];
                continue;
            }
            let Some(after) = rest.strip_prefix('.') else {
                return Err(problem(&format!("`{rest}` is not a path")));
            };
            let (after, is_descent) = after.strip_prefix('.').map_or((after, false), |after| (after, true));
            query.push_str(if is_descent { ".." } else { "" });
            let (name, end) = read_name(after);
            rest = &after[end..];
            match name.as_str() {
                "*" => query.push_str("[*]"),
                // Such as `.[0]`.
                "" if rest.starts_with('[') => {}
                "" => return Err(problem("a name is missing after the dot")),
                name if name.contains([' ', '{', '}']) => return Err(problem("a path has no spaces")),
                name => {
                    query.push_str(&format!("['{}']", name.replace('\\', "\\\\").replace('\'', "\\'")));
                }
            }
        }
        parse_json_path(&query).map_err(|_| problem("not a path that this version reads"))?;
        Ok(Self { from_root, query })
    }

    /// Returns the values at the path. `current`: the item of the enclosing `{range}`, where a path without `$` begins.
    pub fn values<'v>(&self, document: &'v Value, current: &'v Value) -> Vec<&'v Value> {
        // A parsed query does not fail: it finds no value at worst.
        (if self.from_root { document } else { current }).query(&self.query).unwrap_or_default()
    }
}

/// Reads nodes to the end of the template or to `{end}`. The flag is true after `{end}`.
fn parse_nodes(rest: &mut Chars<'_>) -> Result<(Vec<Node>, bool), String> {
    let mut nodes = Vec::new();
    let mut text = String::new();
    while let Some(next) = rest.next() {
        if next != '{' {
            text.push(next);
            continue;
        }
        if !text.is_empty() {
            nodes.push(Node::Text(std::mem::take(&mut text)));
        }
        let action = read_action(rest)?;
        let action = action.trim();
        if action == "end" {
            return Ok((nodes, true));
        } else if let Some(path) = action.strip_prefix("range ") {
            let path = Path::parse(path.trim())?;
            let (body, is_closed) = parse_nodes(rest)?;
            if !is_closed {
                return Err(format!("{{{action}}} is not closed; write {{end}} after what is repeated"));
            }
            nodes.push(Node::Range(path, body));
        } else if let Some(quote) = action.chars().next().filter(|first| ['"', '\''].contains(first)) {
            nodes.push(Node::Text(unquote(action, quote)?));
        } else {
            nodes.push(Node::Values(Path::parse(action)?));
        }
    }
    if !text.is_empty() {
        nodes.push(Node::Text(text));
    }
    Ok((nodes, false))
}

/// Reads an action up to its closing brace. A brace within quotes does not close it.
fn read_action(rest: &mut Chars<'_>) -> Result<String, String> {
    let (mut action, mut quote, mut is_escaped) = (String::new(), None, false);
    for next in rest.by_ref() {
        match (quote, next) {
            _ if is_escaped => is_escaped = false,
            (_, '\\') => is_escaped = true,
            (None, '}') => return Ok(action),
            (None, '"' | '\'') => quote = Some(next),
            (Some(open), _) if open == next => quote = None,
            _ => {}
        }
        action.push(next);
    }
    Err(format!("{{{action} is not closed; write }} at its end"))
}

/// Returns a quoted text without its quotes and escapes.
fn unquote(action: &str, quote: char) -> Result<String, String> {
    let problem = || format!("{{{action}}} is not one quoted text; write {{\"\\n\"}}");
    let inner = action.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).ok_or_else(problem)?;
    let (mut text, mut rest) = (String::new(), inner.chars());
    while let Some(next) = rest.next() {
        match next {
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some(other @ ('\\' | '"' | '\'')) => text.push(other),
                _ => return Err(problem()),
            },
            other if other == quote => return Err(problem()),
            other => text.push(other),
        }
    }
    Ok(text)
}

/// Returns the name at the beginning of the text, and its length in bytes. A character after a backslash belongs to the
/// name.
fn read_name(text: &str) -> (String, usize) {
    let (mut name, mut is_escaped) = (String::new(), false);
    for (at, next) in text.char_indices() {
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' => {
                is_escaped = true;
                continue;
            }
            '.' | '[' => return (name, at),
            _ => {}
        }
        name.push(next);
    }
    (name, text.len())
}

/// Returns the length of the bracketed part at the beginning, in bytes, or `None` if it is not closed.
fn bracket_length(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut is_escaped) = (0_u32, None, false);
    for (at, next) in text.char_indices() {
        match (quote, next) {
            _ if is_escaped => is_escaped = false,
            (_, '\\') => is_escaped = true,
            (Some(open), _) if open == next => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(next),
            (None, '[') => depth += 1,
            (None, ']') if depth == 1 => return Some(at + 1),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn render(nodes: &[Node], document: &Value, current: &Value, text: &mut String) {
    for node in nodes {
        match node {
            Node::Text(literal) => text.push_str(literal),
            Node::Values(path) => {
                let values: Vec<_> = path.values(document, current).into_iter().map(render_plain).collect();
                text.push_str(&values.join(" "));
            }
            Node::Range(path, body) => {
                for item in path.values(document, current) {
                    render(body, document, item, text);
                }
            }
        }
    }
}

/// Returns a string as it is, nothing for null, and any other value as JSON.
pub fn render_plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"signoff.dev/gate": "review", "with-dash": "x"}}, "n": 1, "list": [1, 2, 3]},
            {"metadata": {"name": "b", "labels": {}}, "n": 2.5, "deep": {"name": "c"}},
        ]})
    }

    #[test]
    fn templates_render_as_kubectl_renders_them() {
        for (template, expected) in [
            ("{.kind}", "List"),
            ("{$.kind}{'\\t'}{@.kind}", "List\tList"),
            ("{.items[*].metadata.name}", "a b"),
            ("{.items[0].metadata.labels.signoff\\.dev/gate}", "review"),
            ("{.items[0].metadata.labels['signoff.dev/gate']}", "review"),
            ("{.items[0].metadata.labels.with-dash}", "x"),
            ("{.items[-1].metadata.name}", "b"),
            ("{.items[0].list[1:3]}", "2 3"),
            ("{.items[0].list}", "[1,2,3]"),
            ("{.items[?(@.metadata.name==\"b\")].n}", "2.5"),
            ("{..name}", "a b c"),
            ("{.items[*].nothing}", ""),
            ("name: {.items[0].metadata.name}!", "name: a!"),
            ("{range .items[*]}{.metadata.name}={.n}{\"\\n\"}{end}", "a=1\nb=2.5\n"),
            ("{range .items[*]}{$.kind}/{@.metadata.name} {end}", "List/a List/b "),
            ("{range .items[*]}{range .list[*]}<{@}>{end}{end}", "<1><2><3>"),
            ("{\"}\"}", "}"),
        ] {
            assert_eq!(Template::parse(template).unwrap().render(&document()), expected, "{template}");
        }
    }

    #[test]
    fn a_template_that_cannot_be_read_is_refused_with_a_remedy() {
        for (template, why) in [
            ("{.a", "is not closed"),
            ("{range .items[*]}x", "write {end}"),
            ("x{end}", "{end} without {range}"),
            ("{name}", "`name` is not a path"),
            ("{.a .b}", "a path has no spaces"),
            ("{.a[0}", "a bracket is not closed"),
            ("{.a.}", "a name is missing after the dot"),
            ("{.a[?(@.b=~\"c\")]}", "not a path that this version reads"),
            ("{\"a\\x\"}", "is not one quoted text"),
            ("{\"a\" \"b\"}", "is not one quoted text"),
        ] {
            let refusal = Template::parse(template).unwrap_err();
            assert!(refusal.contains(why), "{template}: {refusal}");
        }
    }

    #[test]
    fn the_path_of_a_column_needs_neither_braces_nor_the_first_dot() {
        let document = document();
        for path in ["{.items[0].metadata.name}", ".items[0].metadata.name", "items[0].metadata.name"] {
            let path = Path::parse_relaxed(path).unwrap();
            assert_eq!(path.values(&document, &document), [&json!("a")]);
        }
    }
}
