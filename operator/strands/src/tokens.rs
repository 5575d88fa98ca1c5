//! Templates as tokens, so that names can be changed without any other change. Unknown text is kept as it is.

/// A piece of a template. All pieces joined are the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Text, comments and raw blocks.
    Plain(String),
    /// `{{`, `{%`, `}}`, `%}`, with their dashes.
    Mark(String),
    /// A name or a keyword.
    Name(String),
    /// A string with its quotes.
    Quoted(String),
    /// A number.
    Number(String),
    /// White space within an expression.
    Space(String),
    /// One or two characters of an operator.
    Sign(String),
}

impl Token {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Plain(text)
            | Self::Mark(text)
            | Self::Name(text)
            | Self::Quoted(text)
            | Self::Number(text)
            | Self::Space(text)
            | Self::Sign(text) => text,
        }
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Self::Sign(text) if text == sign)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self, Self::Name(text) if text == name)
    }

    /// Returns the content of a quoted string; escapes are kept.
    pub(super) fn unquoted(&self) -> Option<&str> {
        match self {
            Self::Quoted(text) => text.get(1..text.len().saturating_sub(1)),
            _ => None,
        }
    }
}

/// Joins tokens to their text.
pub(super) fn join(tokens: &[Token]) -> String {
    tokens.iter().map(Token::text).collect()
}

/// Splits a template into tokens.
pub(super) fn parse_template(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while !rest.is_empty() {
        let open = ["{{", "{%", "{#"].iter().filter_map(|mark| rest.find(mark)).min();
        let Some(open) = open else {
            tokens.push(Token::Plain(rest.to_owned()));
            break;
        };
        if open > 0 {
            tokens.push(Token::Plain(rest[..open].to_owned()));
        }
        rest = &rest[open..];
        if rest.starts_with("{#") {
            rest = plain_until(rest, "#}", &mut tokens);
            continue;
        }
        let close = if rest.starts_with("{{") { "}}" } else { "%}" };
        let mark = if rest[2..].starts_with(['-', '+']) { 3 } else { 2 };
        tokens.push(Token::Mark(rest[..mark].to_owned()));
        rest = &rest[mark..];
        let first_of_mark = tokens.len();
        rest = expression_until(rest, close, &mut tokens);
        let is_raw = tokens[first_of_mark..]
            .iter()
            .find(|token| !matches!(token, Token::Space(_)))
            .is_some_and(|token| token.is_name("raw"));
        if close == "%}" && is_raw {
            rest = plain_until(rest, "endraw", &mut tokens);
        }
    }
    tokens
}

/// Splits an expression without marks into tokens.
pub(super) fn parse_expression(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while !rest.is_empty() {
        rest = read_token(rest, &mut tokens);
    }
    tokens
}

/// Appends the source up to and including `end` as plain text, and returns the rest.
fn plain_until<'s>(source: &'s str, end: &str, tokens: &mut Vec<Token>) -> &'s str {
    let at = source.find(end).map_or(source.len(), |at| at + end.len());
    tokens.push(Token::Plain(source[..at].to_owned()));
    &source[at..]
}

/// Appends the tokens of an expression up to and including the mark `close`, and returns the rest.
fn expression_until<'s>(source: &'s str, close: &str, tokens: &mut Vec<Token>) -> &'s str {
    let mut rest = source;
    while !rest.is_empty() {
        let has_dash = rest.strip_prefix(['-', '+']).is_some_and(|after| after.starts_with(close));
        if has_dash || rest.starts_with(close) {
            let length = close.len() + usize::from(has_dash);
            tokens.push(Token::Mark(rest[..length].to_owned()));
            return &rest[length..];
        }
        rest = read_token(rest, tokens);
    }
    rest
}

/// Appends the first token of an expression, and returns the rest.
fn read_token<'s>(source: &'s str, tokens: &mut Vec<Token>) -> &'s str {
    let first = source.chars().next().unwrap_or(' ');
    let length_while = |keep: &dyn Fn(char) -> bool| source.find(|c: char| !keep(c)).unwrap_or(source.len());
    let (length, make): (usize, fn(String) -> Token) = if first.is_whitespace() {
        (length_while(&char::is_whitespace), Token::Space)
    } else if first.is_ascii_digit() {
        (length_while(&|c| c.is_ascii_digit()), Token::Number)
    } else if first.is_alphabetic() || first == '_' {
        (length_while(&|c| c.is_alphanumeric() || c == '_'), Token::Name)
    } else if matches!(first, '\'' | '"' | '`') {
        (quoted_length(source, first), Token::Quoted)
    } else {
        let double = ["==", "!=", "<=", ">=", "&&", "||", "//", "**"].iter().any(|sign| source.starts_with(sign));
        (if double { 2 } else { first.len_utf8() }, Token::Sign)
    };
    tokens.push(make(source[..length].to_owned()));
    &source[length..]
}

/// Returns the length of a string with its quotes, or of the whole rest if it does not end.
fn quoted_length(source: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in source.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_a_template_are_its_text_again() {
        for source in [
            "a {{ nodes.x['y'][0].z | default(\"it's\") }} b {%- if a == 'b' -%} {# {{ no }} #} {% endif %}",
            "{% raw %}{{ nodes.a }}{% endraw %}{{ 'unclosed",
            "{{",
            "{% for k, v in d.items() %}{{ k }}é{% endfor %}",
            "}} {%%} {{}} {#",
        ] {
            assert_eq!(join(&parse_template(source)), source);
        }
    }

    #[test]
    fn comments_and_raw_blocks_are_plain() {
        let names = |source: &str| {
            parse_template(source)
                .into_iter()
                .filter(|t| matches!(t, Token::Name(_)))
                .map(|t| t.text().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("{# a #}{{ b }}"), ["b"]);
        assert_eq!(names("{% raw %}{{ a }}{% endraw %}{{ b }}"), ["raw", "b"]);
    }
}
