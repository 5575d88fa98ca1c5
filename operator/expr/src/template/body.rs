//! Advice on templates that write JSON: a value inside quotes of the template is not escaped and could end the quoted
//! text.
//!
//! A heuristic on the tokens of a valid template. It only warns.

use std::fmt::Write as _;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The filters whose result cannot end a JSON text.
const SAFE_IN_TEXT: &[&str] = &["urlencode", "int", "float", "length", "count", "round", "abs", "bool"];
/// The filters whose result is one JSON value.
const SAFE_AS_VALUE: &[&str] = &["tojson", "int", "float", "length", "count", "round", "abs", "bool"];

/// A piece of a template.
enum Part<'s> {
    /// One character of the template's own text.
    Char(char),
    /// An expression, and its last filter.
    Value { source: &'s str, filter: Option<String> },
    /// A tag such as `if` or `for`.
    Block,
}

/// Returns one sentence for each value that a JSON body contains unescaped, with the remedy, or an empty list if the
/// template does not look like JSON. `is_plain` says whether an expression is never a text.
pub(super) fn advise(source: &str, is_plain: impl Fn(&str) -> bool) -> Vec<String> {
    let parts = parse_parts(source);
    if !looks_like_json(&parts) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut text: Option<Vec<&Part<'_>>> = None;
    let mut is_escaped = false;
    for part in &parts {
        match (part, &mut text) {
            (Part::Char('"'), None) => text = Some(Vec::new()),
            (Part::Char('"'), Some(inside)) if !is_escaped => {
                found.extend(advise_on_text(inside));
                text = None;
            }
            (part, Some(inside)) => {
                is_escaped = !is_escaped && matches!(part, Part::Char('\\'));
                inside.push(part);
            }
            (Part::Value { source, filter }, None) if !is_one_of(filter, SAFE_AS_VALUE) && !is_plain(source) => {
                let written = render_with_tojson(source);
                found.push(format!("`{{{{ {source} }}}}` is put into JSON as it is, so that its text could add fields; write `{written}`"));
            }
            _ => {}
        }
    }
    found
}

/// Returns advice about one JSON text of the template.
fn advise_on_text(inside: &[&Part<'_>]) -> Option<String> {
    let unsafe_value =
        |part: &&&Part<'_>| matches!(part, Part::Value { filter, .. } if !is_one_of(filter, SAFE_IN_TEXT));
    inside.iter().find(unsafe_value)?;
    let mut shown = String::new();
    let mut literal = String::new();
    let mut terms = Vec::new();
    for part in inside {
        match part {
            Part::Char(c) => {
                shown.push(*c);
                literal.push(*c);
            }
            Part::Value { source, .. } => {
                // Writing to a String cannot fail.
                let _ = write!(shown, "{{{{ {source} }}}}");
                if !literal.is_empty() {
                    terms.push(format!("\"{}\"", std::mem::take(&mut literal)));
                }
                terms.push(render_term(source));
            }
            Part::Block => {
                return Some(
                    "a text in quotes has `{% %}` and values that are not escaped, so that a value could end the text and add \
                     fields; make the text in a `set` step NAME before, and write `{{ steps.NAME.response | tojson }}` \
                     without quotes"
                        .to_owned(),
                );
            }
        }
    }
    if !literal.is_empty() {
        terms.push(format!("\"{literal}\""));
    }
    let rewrite = match terms.as_slice() {
        [term] => format!("{{{{ {term} | tojson }}}}"),
        terms => format!("{{{{ ({}) | tojson }}}}", terms.join(" ~ ")),
    };
    Some(format!("`\"{shown}\"` does not escape its value, which could end the text and add fields; write `{rewrite}`"))
}

/// Renders an expression with `tojson` in a tag.
fn render_with_tojson(source: &str) -> String {
    format!("{{{{ {} | tojson }}}}", render_term(source))
}

/// Renders an expression without a last `tojson`, in brackets if a filter or `~` would otherwise apply only to a part
/// of it.
fn render_term(source: &str) -> String {
    let source =
        source.strip_suffix("tojson").and_then(|rest| rest.trim_end().strip_suffix('|')).unwrap_or(source).trim();
    let is_one = source.split('|').all(|piece| !piece.trim().contains(' '));
    if is_one { source.to_owned() } else { format!("({source})") }
}

fn is_one_of(filter: &Option<String>, filters: &[&str]) -> bool {
    filter.as_deref().is_some_and(|filter| filters.contains(&filter))
}

/// Whether the template's own text is JSON, or begins like an object.
fn looks_like_json(parts: &[Part<'_>]) -> bool {
    let mut text = String::new();
    let (mut is_in_text, mut is_escaped) = (false, false);
    for part in parts {
        match part {
            Part::Char(c) => {
                is_in_text ^= *c == '"' && !is_escaped;
                is_escaped = is_in_text && !is_escaped && *c == '\\';
                text.push(*c);
            }
            Part::Value { .. } if !is_in_text => text.push('0'),
            Part::Value { .. } | Part::Block => {}
        }
    }
    let text = text.trim();
    let object = text.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"'));
    object || (text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

/// Returns the pieces of a valid template.
fn parse_parts(source: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut filter, mut is_after_pipe) = (0, None, false);
    for word in tokenize(source, false, SyntaxConfig::default()) {
        let Ok((token, span)) = word else { break };
        let follows_pipe = std::mem::replace(&mut is_after_pipe, matches!(token, Token::Pipe));
        match token {
            Token::TemplateData(text) => parts.extend(text.chars().map(Part::Char)),
            Token::VariableStart => (start, filter) = (span.end_offset as usize, None),
            Token::VariableEnd => {
                let source = source.get(start..span.start_offset as usize).unwrap_or_default().trim();
                parts.push(Part::Value { source, filter: filter.take() });
            }
            Token::BlockStart => parts.push(Part::Block),
            Token::Ident(name) if follows_pipe => filter = Some(name.to_owned()),
            // A filter does not apply to the operand after an operator.
            Token::Tilde | Token::Plus => filter = None,
            _ => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::advise;

    fn advice_on(source: &str) -> Vec<String> {
        advise(source, |expression| expression == "inputs.amount")
    }

    #[track_caller]
    fn assert_rewrite(source: &str, rewrite: &str) {
        let found = advice_on(source);
        assert_eq!(found.len(), 1, "{source}: {found:?}");
        assert!(found.iter().all(|why| why.ends_with(&format!("write `{rewrite}`"))), "{source}: {found:?}");
    }

    #[test]
    fn advice_on_a_value_in_quotes_has_the_rewrite() {
        assert_rewrite(r#"{"to": "{{ inputs.customer }}"}"#, "{{ inputs.customer | tojson }}");
        assert_rewrite(r#"{"to": "{{- inputs.customer | upper -}}"}"#, "{{ inputs.customer | upper | tojson }}");
        assert_rewrite(r#"{"to": "Dear {{ a.b['c'] }}!"}"#, r#"{{ ("Dear " ~ a.b['c'] ~ "!") | tojson }}"#);
        assert_rewrite(r#"{"to": "a\"{{ a }}\"\\"}"#, r#"{{ ("a\"" ~ a ~ "\"\\") | tojson }}"#);
        assert_rewrite(r#"{"to": "{{ a if b else c }}"}"#, "{{ (a if b else c) | tojson }}");
        assert_rewrite(r#"{"to": "{{ a }}, {{ b or c }}"}"#, r#"{{ (a ~ ", " ~ (b or c)) | tojson }}"#);
        assert_rewrite(r#"["{{ a }}"]"#, "{{ a | tojson }}");
        assert_rewrite("\n {\n \"a\": 1, \"b\": \"{{ a }}\"}", "{{ a | tojson }}");
        // Quotes around `tojson` would be doubled.
        assert_rewrite(r#"{"to": "{{ a | tojson }}"}"#, "{{ a | tojson }}");
        assert_rewrite(r#"{"{{ a }}": 1}"#, "{{ a | tojson }}");
    }

    #[test]
    fn advice_on_a_value_without_quotes_has_the_rewrite() {
        assert_rewrite(r#"{"to": {{ a }}}"#, "{{ a | tojson }}");
        assert_rewrite("[{{ a }}, 1]", "{{ a | tojson }}");
        assert_rewrite(r#"{"n": {{ a | int ~ b }}}"#, "{{ (a | int ~ b) | tojson }}");
        assert_rewrite(r#"{"to": {{ inputs.amount }}, "x": {{ a or b }}}"#, "{{ (a or b) | tojson }}");
    }

    #[test]
    fn advice_on_a_text_with_tags_names_a_set_step() {
        let found = advice_on(r#"{"to": "{% if a %}{{ a }}{% endif %}"}"#);
        assert!(found.iter().all(|why| why.contains("`set` step")) && found.len() == 1, "{found:?}");
    }

    #[test]
    fn escaped_json_and_other_text_get_no_advice() {
        for source in [
            r#"{"to": {{ inputs.customer | tojson }}, "n": {{ a | int }}, "m": {{ inputs.amount }}}"#,
            r#"{"list": [{% for i in a %}{{ i | tojson }}{% if not loop.last %},{% endif %}{% endfor %}]}"#,
            r#"{"url": "https://x.example/{{ a | urlencode }}", "n": "{{ a | length }}"}"#,
            r#"{"to": {{ ("Dear " ~ a ~ "!") | tojson }}}"#,
            "{{ steps.draft.response }}",
            "Dear \"{{ a }}\"",
            "[INFO] \"{{ a }}\"",
            "{not json} \"{{ a }}\"",
            "a={{ a | urlencode }}&b=\"{{ b }}\"",
            "",
            "{",
            r#"{"a": 1}"#,
            r#"{% raw %}{"a": "{{ b }}"}{% endraw %}"#,
        ] {
            assert_eq!(advice_on(source), Vec::<String>::new(), "{source}");
        }
    }
}
