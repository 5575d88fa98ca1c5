//! The parser of conditions: from tokens to a syntax tree, within fixed limits.
//!
//! Every limit is checked before the part that it limits is built. So no source, however hostile, costs more than its
//! own length in time or a few dozen frames of stack.

use super::Fault;
use super::token::{Token, Word, words};
use super::tree::{Node, NodeKind, Operator};

/// The maximum length of the source, in characters.
pub const MAX_SOURCE: usize = 1024;
/// The maximum number of nodes in the tree.
pub const MAX_NODES: usize = 200;
/// The maximum nesting of brackets, signs and nodes.
pub const MAX_NESTING: usize = 24;
const MAX_DEPTH: usize = 64;

/// The words that CEL reserves and that cannot be variables.
const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

/// The error of a template in a condition. No condition begins with these signs.
const TEMPLATE: &str =
    "a condition is CEL, not a template; write it without `{{ }}`, as in hitl_response == 'approved'";

/// The binary operators by precedence, lowest first.
const LEVELS: [&[(&str, Operator)]; 3] = [
    &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<", Operator::Less),
        ("<=", Operator::LessOrEqual),
        (">", Operator::Greater),
        (">=", Operator::GreaterOrEqual),
        ("in", Operator::In),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
];

pub(super) type Parsed = Result<Node, Fault>;

/// Parses `source` to a syntax tree.
pub(super) fn parse(source: &str) -> Parsed {
    let length = source.chars().count();
    if length > MAX_SOURCE {
        return Err(Fault::limit(
            1,
            format!("the condition has {length} characters; at most {MAX_SOURCE} are allowed, move work into a step"),
        ));
    }
    let start = source.trim_start();
    if start.starts_with("{{") || start.starts_with("{%") {
        return Err(Fault::new(1, TEMPLATE));
    }
    let mut parser = Parser { words: words(source)?, next: 0, nodes: 0, nesting: 0, in_comprehension: false };
    let tree = parser.expression()?;
    match &parser.word().token {
        Token::End => Ok(tree),
        found => Err(parser.unexpected(found, "an operator or the end")),
    }
}

pub(super) struct Parser {
    words: Vec<Word>,
    next: usize,
    nodes: usize,
    nesting: usize,
    /// Whether the parser is in the body of a comprehension, where no other comprehension is allowed.
    pub(super) in_comprehension: bool,
}

impl Parser {
    /// Returns the current token. The last token is the end, which is never consumed.
    fn word(&self) -> &Word {
        &self.words[self.next.min(self.words.len() - 1)]
    }

    fn at(&self) -> usize {
        self.word().at
    }

    fn advance(&mut self) -> Token {
        let token = self.word().token.clone();
        self.next += 1;
        token
    }

    fn sees(&self, symbol: &str) -> bool {
        matches!(&self.word().token, Token::Symbol(s) if *s == symbol)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let seen = self.sees(symbol);
        if seen {
            self.next += 1;
        }
        seen
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Fault> {
        if self.accept(symbol) {
            return Ok(());
        }
        Err(self.unexpected(&self.word().token, &format!("`{symbol}`")))
    }

    fn unexpected(&self, found: &Token, wanted: &str) -> Fault {
        let hint = match found {
            Token::Name(name) => match name.as_str() {
                "and" => "; write `&&`",
                "or" => "; write `||`",
                "not" => "; write `!`",
                "is" => "; write `== null` or `has(…)`",
                _ => "",
            },
            _ => "",
        };
        Fault::new(self.at(), format!("found {} where {wanted} was expected{hint}", found.describe()))
    }

    /// Creates a node, and checks the limits of the number of nodes and the depth.
    pub(super) fn node(&mut self, at: usize, below: usize, kind: NodeKind) -> Parsed {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Fault::limit(
                at,
                format!("the condition has more than {MAX_NODES} parts; move work into a step"),
            ));
        }
        let depth = below + 1;
        if depth > MAX_DEPTH {
            return Err(Fault::limit(
                at,
                format!(
                    "more than {MAX_DEPTH} operations build on each other here; put parentheses around parts of it"
                ),
            ));
        }
        Ok(Node { at, depth, kind })
    }

    /// Runs `inner` one bracket or sign deeper.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.nesting == MAX_NESTING {
            return Err(Fault::limit(
                self.at(),
                format!("brackets and signs are nested deeper than {MAX_NESTING} here"),
            ));
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    pub(super) fn expression(&mut self) -> Parsed {
        let at = self.at();
        let test = self.or()?;
        if !self.accept("?") {
            return Ok(test);
        }
        let yes = self.or()?;
        self.expect(":")?;
        let no = self.nested(Self::expression)?;
        let below = test.depth.max(yes.depth).max(no.depth);
        self.node(at, below, NodeKind::Conditional { test: Box::new(test), yes: Box::new(yes), no: Box::new(no) })
    }

    fn or(&mut self) -> Parsed {
        self.run("||", Self::and, NodeKind::Or)
    }

    fn and(&mut self) -> Parsed {
        self.run("&&", |parser| parser.binary(0), NodeKind::And)
    }

    /// Parses terms joined by one logical operator to one node.
    fn run(&mut self, symbol: &str, term: fn(&mut Self) -> Parsed, kind: fn(Vec<Node>) -> NodeKind) -> Parsed {
        let at = self.at();
        let first = term(self)?;
        if !self.sees(symbol) {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.accept(symbol) {
            terms.push(term(self)?);
        }
        self.node(at, deepest(&terms), kind(terms))
    }

    fn operator(&self, level: usize) -> Option<Operator> {
        let word = match &self.word().token {
            Token::Symbol(symbol) => symbol,
            Token::Name(name) => name.as_str(),
            _ => return None,
        };
        LEVELS[level].iter().find(|(symbol, _)| *symbol == word).map(|(_, operator)| *operator)
    }

    /// Parses operators of one level, which are left-associative.
    fn binary(&mut self, level: usize) -> Parsed {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(level) {
            let at = self.at();
            self.next += 1;
            let right = self.binary(level + 1)?;
            let below = left.depth.max(right.depth);
            left = self.node(at, below, NodeKind::Binary { operator, left: Box::new(left), right: Box::new(right) })?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        if self.accept("!") {
            let of = self.nested(Self::unary)?;
            let below = of.depth;
            return self.node(at, below, NodeKind::Not(Box::new(of)));
        }
        if self.accept("-") {
            // The smallest integer has no positive counterpart, so the sign belongs to the number.
            if let Token::Int(magnitude) = self.word().token {
                self.next += 1;
                let value = 0_i64
                    .checked_sub_unsigned(magnitude)
                    .ok_or_else(|| Fault::new(at, "the number is beyond 64-bit signed integers"))?;
                let number = self.node(at, 0, NodeKind::Int(value))?;
                return self.members(number);
            }
            let of = self.nested(Self::unary)?;
            let below = of.depth;
            return self.node(at, below, NodeKind::Negate(Box::new(of)));
        }
        let of = self.primary()?;
        self.members(of)
    }

    /// Parses `.field`, `.method(…)` and `[key]` after a value.
    fn members(&mut self, mut of: Node) -> Parsed {
        loop {
            let at = self.at();
            if self.accept(".") {
                let Token::Name(name) = self.advance() else {
                    self.next -= 1;
                    return Err(self.unexpected(&self.word().token, "a field's name"));
                };
                of = if self.accept("(") {
                    self.nested(|parser| parser.method(of, name, at))?
                } else {
                    let below = of.depth;
                    self.node(at, below, NodeKind::Select { of: Box::new(of), field: name })?
                };
            } else if self.accept("[") {
                let position = self.at();
                let key = self.nested(Self::expression)?;
                self.expect("]")?;
                if let (NodeKind::Int(..0), false) = (&key.kind, matches!(of.kind, NodeKind::Map(_))) {
                    let why = "positions count from 0: the last one of a list `l` is `l[size(l) - 1]`";
                    return Err(Fault::new(position, why));
                }
                let below = of.depth.max(key.depth);
                of = self.node(at, below, NodeKind::Index { of: Box::new(of), key: Box::new(key) })?;
            } else if self.sees("{") {
                return Err(Fault::new(at, "messages are not available in conditions; write a map, as in `{'a': 1}`"));
            } else {
                return Ok(of);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        match self.advance() {
            Token::Int(magnitude) => {
                let value = i64::try_from(magnitude)
                    .map_err(|_| Fault::new(at, "the number is beyond 64-bit signed integers"))?;
                self.node(at, 0, NodeKind::Int(value))
            }
            Token::Double(value) => self.node(at, 0, NodeKind::Double(value)),
            Token::Text(text) => self.node(at, 0, NodeKind::Text(text)),
            Token::Name(name) => self.name(name, at),
            Token::Symbol("(") => {
                let inner = self.nested(Self::expression)?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Symbol("[") => {
                let elements = self.nested(|parser| parser.separated("]", Self::expression))?;
                self.node(at, deepest(&elements), NodeKind::List(elements))
            }
            Token::Symbol("{") => {
                let entries = self.nested(|parser| {
                    parser.separated("}", |parser| {
                        let key = parser.expression()?;
                        parser.expect(":")?;
                        Ok((key, parser.expression()?))
                    })
                })?;
                let below = entries.iter().map(|(key, value)| key.depth.max(value.depth)).max().unwrap_or(0);
                self.node(at, below, NodeKind::Map(entries))
            }
            found => {
                self.next -= 1;
                Err(self.unexpected(&found, "a value"))
            }
        }
    }

    /// Parses items between commas up to `close`; one trailing comma is allowed.
    pub(super) fn separated<T>(
        &mut self,
        close: &str,
        item: impl Fn(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut items = Vec::new();
        while !self.accept(close) {
            items.push(item(self)?);
            if !self.accept(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    /// Parses an expression that begins with a name: a constant, a variable or a function.
    fn name(&mut self, name: String, at: usize) -> Parsed {
        let kind = match name.as_str() {
            "true" => NodeKind::Bool(true),
            "false" => NodeKind::Bool(false),
            "null" => NodeKind::Null,
            word if RESERVED.contains(&word) => {
                return Err(Fault::new(at, format!("`{word}` is a reserved word and cannot be a variable")));
            }
            _ if self.accept("(") => return self.nested(|parser| parser.function(name, at)),
            _ => NodeKind::Name(name),
        };
        self.node(at, 0, kind)
    }
}

pub(super) fn deepest(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| node.depth).max().unwrap_or(0)
}
