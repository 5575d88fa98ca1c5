//! The tokenizer of conditions: CEL source text as tokens with their positions.

use super::Fault;

/// A token and the column (1-based, in characters) at which it starts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedToken {
    pub(super) token: Token,
    pub(super) at: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// An integer without its sign, which is an operator.
    Int(u64),
    Double(f64),
    Text(String),
    Name(String),
    Symbol(&'static str),
    End,
}

impl Token {
    /// Renders the token for an error message.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Int(n) => format!("`{n}`"),
            Token::Double(n) => format!("`{n}`"),
            Token::Text(_) => "a text".to_owned(),
            Token::Name(name) => format!("`{name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".to_owned(),
        }
    }
}

/// The longest first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", ".", ":", "?", "!", "-", "+", "*", "/", "%",
    "<", ">", ";",
];

/// Splits a source into tokens, of which the last is [`Token::End`].
pub(super) fn tokenize(source: &str) -> Result<Vec<PlacedToken>, Fault> {
    let chars: Vec<char> = source.chars().collect();
    let mut lexer = Lexer { chars, next: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let at = lexer.next + 1;
        let token = lexer.read_token(at)?;
        let is_end = token == Token::End;
        tokens.push(PlacedToken { token, at });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer {
    chars: Vec<char>,
    next: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.next + ahead).copied()
    }

    fn starts_with(&self, prefix: &str) -> bool {
        prefix.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c))
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let taken: String = self.chars[self.next..].iter().copied().take_while(|&c| accept(c)).collect();
        self.next += taken.chars().count();
        taken
    }

    fn skip_blank(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}'));
            if !self.starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn read_token(&mut self, at: usize) -> Result<Token, Fault> {
        let Some(c) = self.peek(0) else {
            return Ok(Token::End);
        };
        if c.is_ascii_digit() || (c == '.' && self.peek(1).is_some_and(|d| d.is_ascii_digit())) {
            return self.read_number(at);
        }
        if c == '\'' || c == '"' {
            return self.read_text(false, at);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let is_quote = |ahead| matches!(self.peek(ahead), Some('\'' | '"'));
            match c {
                'r' | 'R' if is_quote(1) => {
                    self.next += 1;
                    return self.read_text(true, at);
                }
                'b' | 'B' if is_quote(1) => {
                    return Err(Fault::new(at, "bytes are not available in conditions; use a text"));
                }
                _ => {}
            }
            return Ok(Token::Name(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')));
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|s| self.starts_with(s)) {
            self.next += symbol.len();
            return Ok(Token::Symbol(symbol));
        }
        Err(Fault::new(
            at,
            match c {
                '=' => "`=` is not an operator; `==` compares".to_owned(),
                '&' => "`&` is not an operator; write `&&` for and".to_owned(),
                '|' => "`|` is not an operator; write `||` for or (filters are for templates)".to_owned(),
                _ => format!("unexpected character `{}`", super::text::display(&c.to_string(), 12)),
            },
        ))
    }

    fn read_number(&mut self, at: usize) -> Result<Token, Fault> {
        if self.starts_with("0x") || self.starts_with("0X") {
            self.next += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let value =
                u64::from_str_radix(&digits, 16).map_err(|_| Fault::new(at, "not a hexadecimal 64-bit number"))?;
            return self.check_end_of_number(Token::Int(value), at);
        }
        let mut digits = self.take_while(|c| c.is_ascii_digit());
        let mut is_integer = true;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            is_integer = false;
            self.next += 1;
            digits.push('.');
            digits.push_str(&self.take_while(|c| c.is_ascii_digit()));
        }
        let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
        if matches!(self.peek(0), Some('e' | 'E')) && self.peek(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
            is_integer = false;
            digits.extend(self.chars[self.next..=self.next + sign].iter());
            self.next += 1 + sign;
            digits.push_str(&self.take_while(|c| c.is_ascii_digit()));
        }
        let token = if is_integer {
            Token::Int(digits.parse().map_err(|_| Fault::new(at, "the number is beyond 64-bit signed integers"))?)
        } else {
            let value: f64 = digits.parse().map_err(|_| Fault::new(at, "not a number"))?;
            if !value.is_finite() {
                return Err(Fault::new(at, "the number is beyond double precision"));
            }
            Token::Double(value)
        };
        self.check_end_of_number(token, at)
    }

    fn check_end_of_number(&self, token: Token, at: usize) -> Result<Token, Fault> {
        match self.peek(0) {
            Some('u' | 'U') => {
                Err(Fault::new(at, "unsigned numbers are not available in conditions; leave out the `u`"))
            }
            Some(c) if c.is_ascii_alphanumeric() || c == '_' => {
                Err(Fault::new(at, "a name cannot start with a digit; write `['…']` to reach such a field"))
            }
            _ => Ok(token),
        }
    }

    /// Reads a text in single or double quotes, which can be tripled. A `raw` text has no escapes.
    fn read_text(&mut self, raw: bool, at: usize) -> Result<Token, Fault> {
        let quote = if self.peek(0) == Some('\'') { '\'' } else { '"' };
        let triple = (0..3).all(|i| self.peek(i) == Some(quote));
        let width = if triple { 3 } else { 1 };
        self.next += width;
        let mut text = String::new();
        loop {
            let Some(c) = self.peek(0) else {
                return Err(Fault::new(at, "the text that starts here is never closed"));
            };
            if (0..width).all(|i| self.peek(i) == Some(quote)) {
                self.next += width;
                return Ok(Token::Text(text));
            }
            if !triple && matches!(c, '\n' | '\r') {
                return Err(Fault::new(at, "the text that starts here is not closed on its line"));
            }
            self.next += 1;
            if c == '\\' && !raw {
                text.push(self.read_escape()?);
            } else {
                text.push(c);
            }
        }
    }

    fn read_escape(&mut self) -> Result<char, Fault> {
        let at = self.next;
        let unknown = || Fault::new(at, "unknown escape; write `\\\\` for a backslash");
        let c = self.peek(0).ok_or_else(unknown)?;
        self.next += 1;
        let (digits, radix) = match c {
            'a' => return Ok('\u{7}'),
            'b' => return Ok('\u{8}'),
            'f' => return Ok('\u{c}'),
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'v' => return Ok('\u{b}'),
            '\\' | '?' | '"' | '\'' | '`' => return Ok(c),
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => {
                self.next -= 1;
                (3, 8)
            }
            _ => return Err(unknown()),
        };
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.peek(0).and_then(|c| c.to_digit(radix)).ok_or_else(unknown)?;
            // Eight hexadecimal digits fit exactly into 32 bits.
            code = code * radix + digit;
            self.next += 1;
        }
        char::from_u32(code).ok_or_else(|| Fault::new(at, "no such character"))
    }
}
