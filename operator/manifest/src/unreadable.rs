//! Remedies for text that is not readable as YAML: guesses from the line at which the reader stopped.
//!
//! Without a guess the message of the reader is kept.

/// The characters that have a special meaning at the beginning of an unquoted text.
const INDICATORS: [char; 5] = ['@', '`', '%', '*', '!'];

/// Returns a better position of the error, and the error with its remedy. `at` is the byte at which the reader stopped,
/// `why` its message.
pub(crate) fn explain(text: &str, at: usize, why: &str) -> (usize, String) {
    let line = line_start(text, at);
    let guess = find_tab(text, line)
        .or_else(|| find_template(text, line))
        .or_else(|| find_unquoted(text, line, why))
        .or_else(|| find_unclosed(text, line, why));
    guess.unwrap_or_else(|| (at, format!("not valid YAML: {why}{}", remedy(why))))
}

/// Returns the remedy for a message of the reader alone.
fn remedy(why: &str) -> &'static str {
    if why.contains("unclosed quote") {
        ": close the quote"
    } else if why.contains("unclosed bracket '['") {
        ": close it with ]"
    } else if why.contains("unclosed bracket '{'") {
        ": close it with }"
    } else if ["did not find expected key", "indentation", "simple key", "is only valid inside a block", "not allowed"]
        .iter()
        .any(|words| why.contains(words))
    {
        ": indent the fields of an object alike, and write each as `name: value`"
    } else {
        ""
    }
}

/// Finds a tab in the indentation of a line or of the next one: the reader stops before the line that it cannot indent.
fn find_tab(text: &str, line: usize) -> Option<(usize, String)> {
    let mut start = line;
    for line in text.get(line..)?.split_inclusive('\n').take(2) {
        let indentation = &line[..line.len() - line.trim_start().len()];
        if let Some(tab) = indentation.find('\t') {
            return Some((start + tab, "a tab in the indentation: indent with spaces".to_owned()));
        }
        start += line.len();
    }
    None
}

/// Finds a template outside of quotes: YAML reads `{{` as the beginning of an object.
fn find_template(text: &str, line: usize) -> Option<(usize, String)> {
    let content = text.get(line..)?.lines().next()?;
    let start = find_outside_of_quotes(content, "{{")?;
    let message = "a template outside of quotes, where `{{` begins an object: put the whole text in quotes, such as \"Dear {{ inputs.customer }}\"";
    Some((line + start, message.to_owned()))
}

/// Finds a text that must be quoted, because it contains `: ` or begins with a special character.
fn find_unquoted(text: &str, line: usize, why: &str) -> Option<(usize, String)> {
    let content = text.get(line..)?.lines().next()?;
    let value = value_start(content)?;
    let first = content[value..].chars().next()?;
    let problem = if INDICATORS.contains(&first) {
        format!("a text must not begin with {first}")
    } else if !["\"", "'", "[", "{", "|", ">"].iter().any(|mark| content[value..].starts_with(mark))
        && content[value..].contains(": ")
        && why.contains("mapping values")
    {
        "a text with `: ` in it looks like a field".to_owned()
    } else {
        return None;
    };
    Some((line + value, format!("{problem}: put the text in quotes")))
}

/// Finds a quote or a bracket that is still open at the end of the line before the line that begins at the byte
/// `line`, if the message `why` of the reader can mean that.
fn find_unclosed(text: &str, line: usize, why: &str) -> Option<(usize, String)> {
    if !["quoted scalar", "placement", "flow"].iter().any(|words| why.contains(words)) {
        return None;
    }
    let previous_line = line_start(text, line.checked_sub(1)?);
    let content = text.get(previous_line..line)?;
    let mut open_brackets: Vec<(usize, char)> = Vec::new();
    let unclosed_quote = scan(content, |at, c| {
        match c {
            '[' | '{' => open_brackets.push((at, c)),
            ']' | '}' => drop(open_brackets.pop()),
            _ => {}
        }
        false
    });
    match (unclosed_quote, open_brackets.first()) {
        (Some(at), _) => Some((previous_line + at, "an unclosed quote: close the quote".to_owned())),
        (None, Some((at, '['))) => Some((previous_line + at, "an unclosed bracket '[': close it with ]".to_owned())),
        (None, Some((at, _))) => Some((previous_line + at, "an unclosed bracket '{': close it with }".to_owned())),
        (None, None) => None,
    }
}

fn line_start(text: &str, at: usize) -> usize {
    let at = text.floor_char_boundary(at);
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Returns the position at which the value of a line in block style begins, behind `- ` and `name: `.
fn value_start(line: &str) -> Option<usize> {
    let mut at = line.len() - line.trim_start_matches([' ', '-']).len();
    if let Some(colon) = line[at..].find(": ") {
        at += colon + 2;
    }
    let rest = &line[at..];
    let start = at + rest.len() - rest.trim_start().len();
    (start < line.len()).then_some(start)
}

/// Finds a text in a line, outside of quotes and before a comment.
fn find_outside_of_quotes(line: &str, wanted: &str) -> Option<usize> {
    let mut found = None;
    scan(line, |at, _| {
        found = line[at..].starts_with(wanted).then_some(at);
        found.is_some()
    });
    found
}

/// Reads the characters of a line outside of quotes and before a comment, until `stop` holds. Returns the position of a
/// quote that the line does not close.
fn scan(line: &str, mut stop: impl FnMut(usize, char) -> bool) -> Option<usize> {
    let mut quote = None;
    let (mut before, mut escaped) = (' ', false);
    for (at, c) in line.char_indices() {
        match quote {
            Some(('"', _)) if escaped => escaped = false,
            Some(('"', _)) if c == '\\' => escaped = true,
            Some((open, _)) if c == open => quote = None,
            Some(_) => {}
            // A quote within a text is an apostrophe.
            None if matches!(c, '"' | '\'') && matches!(before, ' ' | '[' | '{' | ',') => quote = Some((c, at)),
            None if c == '#' && before == ' ' => break,
            None if stop(at, c) => break,
            None => {}
        }
        before = c;
    }
    quote.map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, at: usize, why: &str) -> (String, String) {
        let (place, message) = explain(text, at, why);
        (text[place..].lines().next().unwrap_or_default().to_owned(), message)
    }

    #[test]
    fn a_tab_is_found_on_the_line_after_the_error() {
        let (place, message) = shown("a:\n\tb: 1\n", 0, "tabs disallowed");
        assert_eq!((place.as_str(), message.as_str()), ("\tb: 1", "a tab in the indentation: indent with spaces"));
    }

    #[test]
    fn a_template_is_found_outside_of_quotes_only() {
        let line = |text: &str| find_outside_of_quotes(text, "{{").map(|at| text[at..].to_owned());
        assert_eq!(line("a: {{ x }}").as_deref(), Some("{{ x }}"));
        assert_eq!(line("a: {b: it's {{ x }}}").as_deref(), Some("{{ x }}}"));
        for quoted in ["a: \"{{ x }}\"", "a: ['{{ x }}']", "a: \"\\\"{{ x }}\"", "a: b # {{ x }}"] {
            assert_eq!(line(quoted), None, "{quoted}");
        }
    }

    #[test]
    fn an_unclosed_quote_or_bracket_of_the_line_before_is_found() {
        let stopped = |text: &str, why: &str| shown(text, text.find('\n').map_or(0, |end| end + 3), why);
        let (place, message) = stopped("a: \"b?\n  c: \"d\"\n", "invalid indentation in multiline quoted scalar");
        assert_eq!((place.as_str(), message.as_str()), ("\"b?", "an unclosed quote: close the quote"));
        let (place, message) = stopped("a: [{b: c}\n  d: e\n", "illegal placement of ':' indicator");
        assert_eq!((place.as_str(), message.as_str()), ("[{b: c}", "an unclosed bracket '[': close it with ]"));
        assert_eq!(stopped("a: [b]\n  c: d\n", "illegal placement").1, "not valid YAML: illegal placement");
    }

    #[test]
    fn a_text_that_needs_quotes_is_found_behind_its_field() {
        let why = "mapping values are not allowed in this context";
        assert_eq!(shown("- prompt: Send: now?\n", 15, why).0, "Send: now?");
        assert_eq!(shown("  a: @b\n", 0, "unexpected").0, "@b");
        assert_eq!(shown("  a: \"b: c\" d\n", 8, "x"), (" c\" d".to_owned(), "not valid YAML: x".to_owned()));
    }
}
