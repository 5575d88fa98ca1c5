//! The parser of conditions: from tokens to a syntax tree, within fixed limits.
//!
//! Every limit is checked before the part that it limits is built. So no source, however hostile, costs more than its
//! own length in time or a few dozen frames of stack.

use super::Fault;
use super::token::{PlacedToken, Token, tokenize};
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
    let mut parser = Parser { tokens: tokenize(source)?, next: 0, nodes: 0, nesting: 0, in_comprehension: false };
    let tree = parser.parse_expression()?;
    match &parser.current().token {
        Token::End => Ok(tree),
        found => Err(parser.unexpected(found, "an operator or the end")),
    }
}

pub(super) struct Parser {
    tokens: Vec<PlacedToken>,
    next: usize,
    nodes: usize,
    nesting: usize,
    /// Whether the parser is in the body of a comprehension, where no other comprehension is allowed.
    pub(super) in_comprehension: bool,
}

impl Parser {
    /// Returns the current token. The last token is the end, which is never consumed.
    fn current(&self) -> &PlacedToken {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn at(&self) -> usize {
        self.current().at
    }

    fn advance(&mut self) -> Token {
        let token = self.current().token.clone();
        self.next += 1;
        token
    }

    fn is_at(&self, symbol: &str) -> bool {
        matches!(&self.current().token, Token::Symbol(s) if *s == symbol)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let is_accepted = self.is_at(symbol);
        if is_accepted {
            self.next += 1;
        }
        is_accepted
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Fault> {
        if self.accept(symbol) {
            return Ok(());
        }
        Err(self.unexpected(&self.current().token, &format!("`{symbol}`")))
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

    /// Creates a node, within the limits of the number of nodes and of the depth. `below` is the depth of the deepest
    /// child.
    pub(super) fn new_node(&mut self, at: usize, below: usize, kind: NodeKind) -> Parsed {
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

    /// Runs the parser `inner` one bracket or sign deeper, within [`MAX_NESTING`].
    fn parse_nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
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

    pub(super) fn parse_expression(&mut self) -> Parsed {
        let at = self.at();
        let test = self.parse_or()?;
        if !self.accept("?") {
            return Ok(test);
        }
        let yes = self.parse_or()?;
        self.expect(":")?;
        let no = self.parse_nested(Self::parse_expression)?;
        let below = test.depth.max(yes.depth).max(no.depth);
        self.new_node(at, below, NodeKind::Conditional { test: Box::new(test), yes: Box::new(yes), no: Box::new(no) })
    }

    fn parse_or(&mut self) -> Parsed {
        self.parse_terms("||", Self::parse_and, NodeKind::Or)
    }

    fn parse_and(&mut self) -> Parsed {
        self.parse_terms("&&", |parser| parser.parse_binary(0), NodeKind::And)
    }

    /// Parses terms between which `symbol` stands. Several terms become one node of `kind`.
    fn parse_terms(&mut self, symbol: &str, term: fn(&mut Self) -> Parsed, kind: fn(Vec<Node>) -> NodeKind) -> Parsed {
        let at = self.at();
        let first = term(self)?;
        if !self.is_at(symbol) {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.accept(symbol) {
            terms.push(term(self)?);
        }
        self.new_node(at, max_depth(&terms), kind(terms))
    }

    fn find_operator(&self, level: usize) -> Option<Operator> {
        let written = match &self.current().token {
            Token::Symbol(symbol) => symbol,
            Token::Name(name) => name.as_str(),
            _ => return None,
        };
        LEVELS[level].iter().find(|(symbol, _)| *symbol == written).map(|(_, operator)| *operator)
    }

    /// Parses the operators of a level and of all higher levels. Operators of the same level are left-associative.
    fn parse_binary(&mut self, level: usize) -> Parsed {
        if level == LEVELS.len() {
            return self.parse_unary();
        }
        let mut left = self.parse_binary(level + 1)?;
        while let Some(operator) = self.find_operator(level) {
            let at = self.at();
            self.next += 1;
            let right = self.parse_binary(level + 1)?;
            let below = left.depth.max(right.depth);
            left =
                self.new_node(at, below, NodeKind::Binary { operator, left: Box::new(left), right: Box::new(right) })?;
        }
        Ok(left)
    }

    fn parse_unary(&mut self) -> Parsed {
        let at = self.at();
        if self.accept("!") {
            let operand = self.parse_nested(Self::parse_unary)?;
            let below = operand.depth;
            return self.new_node(at, below, NodeKind::Not(Box::new(operand)));
        }
        if self.accept("-") {
            // The smallest integer has no positive counterpart, so the sign belongs to the number.
            if let Token::Int(magnitude) = self.current().token {
                self.next += 1;
                let value = 0_i64
                    .checked_sub_unsigned(magnitude)
                    .ok_or_else(|| Fault::new(at, "the number is beyond 64-bit signed integers"))?;
                let number = self.new_node(at, 0, NodeKind::Int(value))?;
                return self.parse_members(number);
            }
            let operand = self.parse_nested(Self::parse_unary)?;
            let below = operand.depth;
            return self.new_node(at, below, NodeKind::Negate(Box::new(operand)));
        }
        let value = self.parse_primary()?;
        self.parse_members(value)
    }

    /// Parses `.field`, `.method(…)` and `[key]` after a value.
    fn parse_members(&mut self, mut value: Node) -> Parsed {
        loop {
            let at = self.at();
            if self.accept(".") {
                let Token::Name(name) = self.advance() else {
                    self.next -= 1;
                    return Err(self.unexpected(&self.current().token, "a field's name"));
                };
                value = if self.accept("(") {
                    self.parse_nested(|parser| parser.parse_method(value, name, at))?
                } else {
                    let below = value.depth;
                    self.new_node(at, below, NodeKind::Select { holder: Box::new(value), field: name })?
                };
            } else if self.accept("[") {
                let position = self.at();
                let key = self.parse_nested(Self::parse_expression)?;
                self.expect("]")?;
                if let (NodeKind::Int(..0), false) = (&key.kind, matches!(value.kind, NodeKind::Map(_))) {
                    let why = "positions count from 0: the last one of a list `l` is `l[size(l) - 1]`";
                    return Err(Fault::new(position, why));
                }
                let below = value.depth.max(key.depth);
                value = self.new_node(at, below, NodeKind::Index { holder: Box::new(value), key: Box::new(key) })?;
            } else if self.is_at("{") {
                return Err(Fault::new(at, "messages are not available in conditions; write a map, as in `{'a': 1}`"));
            } else {
                return Ok(value);
            }
        }
    }

    fn parse_primary(&mut self) -> Parsed {
        let at = self.at();
        match self.advance() {
            Token::Int(magnitude) => {
                let value = i64::try_from(magnitude)
                    .map_err(|_| Fault::new(at, "the number is beyond 64-bit signed integers"))?;
                self.new_node(at, 0, NodeKind::Int(value))
            }
            Token::Double(value) => self.new_node(at, 0, NodeKind::Double(value)),
            Token::Text(text) => self.new_node(at, 0, NodeKind::Text(text)),
            Token::Name(name) => self.parse_name(name, at),
            Token::Symbol("(") => {
                let inner = self.parse_nested(Self::parse_expression)?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Symbol("[") => {
                let elements = self.parse_nested(|parser| parser.parse_separated("]", Self::parse_expression))?;
                self.new_node(at, max_depth(&elements), NodeKind::List(elements))
            }
            Token::Symbol("{") => {
                let entries = self.parse_nested(|parser| {
                    parser.parse_separated("}", |parser| {
                        let key = parser.parse_expression()?;
                        parser.expect(":")?;
                        Ok((key, parser.parse_expression()?))
                    })
                })?;
                let below = entries.iter().map(|(key, value)| key.depth.max(value.depth)).max().unwrap_or(0);
                self.new_node(at, below, NodeKind::Map(entries))
            }
            found => {
                self.next -= 1;
                Err(self.unexpected(&found, "a value"))
            }
        }
    }

    /// Parses items between commas up to `close`; one trailing comma is allowed.
    pub(super) fn parse_separated<T>(
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
    fn parse_name(&mut self, name: String, at: usize) -> Parsed {
        let kind = match name.as_str() {
            "true" => NodeKind::Bool(true),
            "false" => NodeKind::Bool(false),
            "null" => NodeKind::Null,
            word if RESERVED.contains(&word) => {
                return Err(Fault::new(at, format!("`{word}` is a reserved word and cannot be a variable")));
            }
            _ if self.accept("(") => return self.parse_nested(|parser| parser.parse_function(name, at)),
            _ => NodeKind::Name(name),
        };
        self.new_node(at, 0, kind)
    }
}

pub(super) fn max_depth(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| node.depth).max().unwrap_or(0)
}
