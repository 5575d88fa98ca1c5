//! The allowed content of a template, checked on its tokens and its syntax tree before anything runs, and the names
//! that the template uses.
//!
//! The template engine bounds the steps of a rendering, but not the memory of these steps or the stack of the parser.
//! Constructs that could use much of either are refused here.

use std::collections::BTreeSet;

use minijinja::machinery::{Span, Token, ast, parse, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::shape::{constant_member, is_number, read_path};
use super::vocabulary::{CONSTANTS, FILTERS, FUNCTIONS, METHODS, TESTS, has_word, split_words};
use crate::{LanguageError, Reference, nearest::is_near, reference::Member, text};

/// The maximum size of the source, in bytes.
pub const MAX_SOURCE: usize = 16 << 10;
/// The maximum number of tokens in one tag. Chains of operators become deep trees, so it limits their depth too.
pub const MAX_WORDS: usize = 256;
/// The maximum nesting of brackets, and of blocks (each `elif` counts).
pub const MAX_NESTING: usize = 24;
/// The maximum magnitude of the step of a slice.
const MAX_STEP: u64 = 1_000_000;
/// The maximum size of a computed text, as a multiple of a variable's size.
pub const MAX_GROWTH: u32 = 32;
/// The maximum size of a text that is computed inside of a loop, as a multiple of a variable's size.
pub const MAX_GROWTH_IN_LOOP: u32 = 4;

/// A refusal, with its line.
pub(super) struct Refusal {
    line: u16,
    problem: String,
    is_limit: bool,
}

impl Refusal {
    fn new(span: Span, problem: impl Into<String>) -> Self {
        Self { line: span.start_line, problem: problem.into(), is_limit: false }
    }

    fn limit(span: Span, problem: impl Into<String>) -> Self {
        Self { is_limit: true, ..Self::new(span, problem) }
    }

    pub(super) fn into_error(self, what: &str) -> LanguageError {
        let what = what.to_owned();
        let problem = if self.line == 0 { self.problem } else { format!("line {}: {}", self.line, self.problem) };
        if self.is_limit { LanguageError::Limit { what, problem } } else { LanguageError::Syntax { what, problem } }
    }
}

impl From<minijinja::Error> for Refusal {
    fn from(error: minijinja::Error) -> Self {
        let problem = error.detail().map_or_else(|| error.kind().to_string(), |detail| text::display(detail, 300));
        let remedy = match problem.rsplit_once(", expected end of ") {
            Some((_, "variable block")) => ": close it with `}}`",
            Some((_, "block")) => ": close it with `%}`",
            _ => "",
        };
        Self {
            line: error.line().and_then(|line| line.try_into().ok()).unwrap_or(0),
            problem: problem + remedy,
            is_limit: false,
        }
    }
}

/// Returns the names in `source`, or refuses a construct that templates must not have.
pub(super) fn check(source: &str) -> Result<BTreeSet<Reference>, Refusal> {
    if source.len() > MAX_SOURCE {
        return Err(Refusal::limit(
            Span::default(),
            format!(
                "the template has {} bytes; at most {MAX_SOURCE} are allowed, pass long texts as values",
                source.len()
            ),
        ));
    }
    check_nesting(source)?;
    let tree = parse(source, "template", SyntaxConfig::default())?;
    let mut walk = Walk { locals: Vec::new(), loops: 0, references: BTreeSet::new() };
    walk.check_statement(&tree)?;
    Ok(walk.references)
}

/// Refuses tags with too many tokens and too deep nesting, which would need much of the parser's stack. The tokens are
/// read without recursion.
fn check_nesting(source: &str) -> Result<(), Refusal> {
    let (mut words, mut brackets, mut blocks): (usize, usize, usize) = (0, 0, 0);
    let mut opens_block = false;
    // The number of blocks for each open `if`: itself and its `elif`s.
    let mut arms: Vec<usize> = Vec::new();
    for word in tokenize(source, false, SyntaxConfig::default()) {
        let (token, span) = word?;
        words += 1;
        match token {
            Token::VariableStart | Token::BlockStart => (words, brackets) = (0, 0),
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => brackets += 1,
            Token::BracketClose | Token::ParenClose | Token::BraceClose => {
                brackets = brackets.saturating_sub(1);
            }
            Token::TemplateData(_) => words = 0,
            Token::Ident(name) if opens_block => match name {
                "elif" => {
                    blocks += 1;
                    if let Some(arm) = arms.last_mut() {
                        *arm += 1;
                    }
                }
                "else" => {}
                _ if name.starts_with("end") => {
                    blocks = blocks.saturating_sub(arms.pop().unwrap_or(0));
                }
                _ => {
                    blocks += 1;
                    arms.push(1);
                }
            },
            _ => {}
        }
        opens_block = matches!(token, Token::BlockStart);
        if words > MAX_WORDS {
            return Err(Refusal::limit(span, format!("one tag holds more than {MAX_WORDS} words; split it")));
        }
        if brackets > MAX_NESTING || blocks > MAX_NESTING {
            return Err(Refusal::limit(span, format!("brackets or blocks are nested deeper than {MAX_NESTING}")));
        }
    }
    Ok(())
}

/// The walk over the syntax tree, which collects names and refuses forbidden constructs.
///
/// Every expression has a *growth*: the maximum size of its text as a multiple of the largest value of the scope.
/// Constants have no growth (they are in the source), variables have one, concatenation adds up, and filters start
/// again at one because their results are limited.
struct Walk<'s> {
    /// The variables of the loops around the current position, with their growth.
    locals: Vec<(&'s str, u32)>,
    loops: usize,
    references: BTreeSet<Reference>,
}

type Growth = Result<u32, Refusal>;

impl<'s> Walk<'s> {
    fn check_body(&mut self, body: &[ast::Stmt<'s>]) -> Result<(), Refusal> {
        body.iter().try_for_each(|statement| self.check_statement(statement))
    }

    fn check_statement(&mut self, statement: &ast::Stmt<'s>) -> Result<(), Refusal> {
        let (span, name) = match statement {
            ast::Stmt::Template(template) => return self.check_body(&template.children),
            ast::Stmt::EmitRaw(_) => return Ok(()),
            ast::Stmt::EmitExpr(emit) => return self.check_expression(&emit.expr).map(drop),
            ast::Stmt::IfCond(branch) => {
                self.check_expression(&branch.expr)?;
                self.check_body(&branch.true_body)?;
                return self.check_body(&branch.false_body);
            }
            ast::Stmt::ForLoop(for_loop) => return self.check_for_loop(for_loop, for_loop.span()),
            ast::Stmt::WithBlock(s) => (s.span(), "with"),
            ast::Stmt::Set(s) => (s.span(), "set"),
            ast::Stmt::SetBlock(s) => (s.span(), "set"),
            ast::Stmt::AutoEscape(s) => (s.span(), "autoescape"),
            ast::Stmt::FilterBlock(s) => (s.span(), "filter"),
            ast::Stmt::Do(s) => (s.span(), "do"),
            // Statements of features that are not enabled here, in case another crate enables them.
            #[allow(unreachable_patterns)]
            _ => (Span::default(), "this"),
        };
        Err(Refusal::new(
            span,
            format!(
                "`{name}` is not available in templates; there are `for` and `if`, and `set` steps for intermediate values"
            ),
        ))
    }

    fn check_for_loop(&mut self, for_loop: &ast::ForLoop<'s>, span: Span) -> Result<(), Refusal> {
        if for_loop.recursive {
            return Err(Refusal::new(span, "`recursive` is not available in templates"));
        }
        let growth = self.check_expression(&for_loop.iter)?;
        let outside = self.locals.len();
        self.locals.push(("loop", 0));
        self.add_locals(&for_loop.target, growth)?;
        self.loops += 1;
        if let Some(filter) = &for_loop.filter_expr {
            self.check_expression(filter)?;
        }
        self.check_body(&for_loop.body)?;
        self.loops -= 1;
        self.locals.truncate(outside);
        self.check_body(&for_loop.else_body)
    }

    /// Adds the variables of the target of a loop, with the growth of the list that the loop iterates over.
    fn add_locals(&mut self, target: &ast::Expr<'s>, growth: u32) -> Result<(), Refusal> {
        match target {
            ast::Expr::Var(var) => self.locals.push((var.id, growth)),
            ast::Expr::List(list) => {
                list.items.iter().try_for_each(|item| self.add_locals(item, growth))?;
            }
            ast::Expr::Tuple(tuple) => {
                tuple.items.iter().try_for_each(|item| self.add_locals(item, growth))?;
            }
            other => {
                return Err(Refusal::new(other.span(), "a loop needs a name for its element"));
            }
        }
        Ok(())
    }

    /// Checks an expression and its parts, and returns its growth.
    fn check_expression(&mut self, expr: &ast::Expr<'s>) -> Growth {
        let growth = self.measure_growth(expr)?;
        let maximum = if self.loops > 0 { MAX_GROWTH_IN_LOOP } else { MAX_GROWTH };
        if growth > maximum {
            return Err(Refusal::limit(
                expr.span(),
                format!(
                    "more than {maximum} values are put together here; write them one after the other as `{{{{ a }}}}{{{{ b }}}}`, or use `join`"
                ),
            ));
        }
        Ok(growth)
    }

    fn sum_growth<'e>(&mut self, exprs: impl IntoIterator<Item = &'e ast::Expr<'s>>) -> Growth
    where
        's: 'e,
    {
        exprs.into_iter().try_fold(0_u32, |sum, expr| Ok(sum.saturating_add(self.check_expression(expr)?)))
    }

    /// Checks the parts of an expression, and returns the growth of the expression, which can be above the maximum.
    fn measure_growth(&mut self, expr: &ast::Expr<'s>) -> Growth {
        if let Some((root, members)) = read_path(expr) {
            return Ok(self.add_reference(root, members, false));
        }
        match expr {
            ast::Expr::Const(_) => Ok(0),
            // A variable is a path without members.
            ast::Expr::Var(_) => Ok(1),
            ast::Expr::GetAttr(get) => self.check_expression(&get.expr),
            ast::Expr::GetItem(get) => {
                self.check_expression(&get.subscript_expr)?;
                self.check_expression(&get.expr)
            }
            ast::Expr::Slice(slice) => {
                // The engine negates the step without a check.
                let is_small = match slice.step.as_ref().map(constant_member) {
                    None => true,
                    Some(Some(Member::Position(step))) => (1..=MAX_STEP).contains(&step.unsigned_abs()),
                    Some(_) => false,
                };
                if !is_small {
                    return Err(Refusal::new(
                        slice.span(),
                        "the step of a slice must be a small number that is written out",
                    ));
                }
                self.sum_growth([&slice.start, &slice.stop, &slice.step].into_iter().flatten())?;
                self.check_expression(&slice.expr)
            }
            ast::Expr::UnaryOp(op) => self.check_expression(&op.expr).map(|_| 0),
            ast::Expr::BinOp(op) => self.check_operator(op),
            ast::Expr::Compare(compare) => {
                self.check_expression(&compare.expr)?;
                self.sum_growth(compare.ops.iter().map(|op| &op.expr)).map(|_| 0)
            }
            ast::Expr::IfExpr(choice) => {
                self.check_expression(&choice.test_expr)?;
                let if_true = self.check_expression(&choice.true_expr)?;
                let if_false =
                    choice.false_expr.as_ref().map(|if_false| self.check_expression(if_false)).transpose()?;
                Ok(if_true.max(if_false.unwrap_or(0)))
            }
            ast::Expr::List(list) => self.sum_growth(&list.items),
            ast::Expr::Tuple(tuple) => self.sum_growth(&tuple.items),
            ast::Expr::Map(map) => self.sum_growth(map.keys.iter().chain(&map.values)),
            ast::Expr::Filter(filter) => {
                check_word("filter", filter.name, FILTERS, filter.span())?;
                let guards = matches!(filter.name, "d" | "default");
                if let Some(subject) = &filter.expr {
                    self.check_subject(subject, guards)?;
                }
                self.check_arguments(&filter.args, filter.span())?;
                Ok(1)
            }
            ast::Expr::Test(test) => {
                check_word("test", test.name, TESTS, test.span())?;
                self.check_subject(&test.expr, matches!(test.name, "defined" | "undefined"))?;
                self.check_arguments(&test.args, test.span())?;
                Ok(0)
            }
            ast::Expr::Call(call) => self.check_call(call, call.span()),
        }
    }

    /// Checks the operand of a filter or test. `guards`: whether the filter or test accepts a missing operand.
    fn check_subject(&mut self, subject: &ast::Expr<'s>, guards: bool) -> Growth {
        match read_path(subject) {
            Some((root, members)) if guards => Ok(self.add_reference(root, members, true)),
            _ => self.check_expression(subject),
        }
    }

    fn add_reference(&mut self, root: &str, members: Vec<Member>, optional: bool) -> u32 {
        if let Some((_, growth)) = self.locals.iter().rev().find(|(name, _)| *name == root) {
            return *growth;
        }
        if has_word(CONSTANTS, root) {
            return 0;
        }
        self.references.insert(Reference { root: root.to_owned(), members, optional });
        1
    }

    fn check_operator(&mut self, op: &ast::Spanned<ast::BinOp<'s>>) -> Growth {
        let (left, right) = (self.check_expression(&op.left)?, self.check_expression(&op.right)?);
        match op.op {
            ast::BinOpKind::Add | ast::BinOpKind::Concat => Ok(left.saturating_add(right)),
            ast::BinOpKind::ScAnd | ast::BinOpKind::ScOr => Ok(left.max(right)),
            ast::BinOpKind::Mul if !(is_number(&op.left) && is_number(&op.right)) => Err(Refusal::new(
                op.span(),
                "`*` needs a number on both sides, for example `inputs.amount|float * 2`, because it would repeat a text or a list",
            )),
            _ => Ok(0),
        }
    }

    fn check_call(&mut self, call: &ast::Call<'s>, span: Span) -> Growth {
        match &call.expr {
            ast::Expr::Var(function) => {
                check_word("function", function.id, FUNCTIONS, span)?;
                self.check_arguments(&call.args, span)?;
                Ok(0)
            }
            ast::Expr::GetAttr(method) => {
                let of_loop = matches!(&method.expr, ast::Expr::Var(var) if var.id == "loop");
                if !(of_loop && matches!(method.name, "cycle" | "changed")) {
                    check_word("method", method.name, METHODS, span)?;
                }
                // The engine divides by the number of positional arguments.
                if of_loop && !matches!(call.args.first(), Some(ast::CallArg::Pos(_))) {
                    return Err(Refusal::new(span, format!("`loop.{}` needs a value", method.name)));
                }
                self.check_expression(&method.expr)?;
                self.check_arguments(&call.args, span)?;
                Ok(1)
            }
            _ => Err(Refusal::new(span, "a value cannot be called")),
        }
    }

    fn check_arguments(&mut self, arguments: &[ast::CallArg<'s>], span: Span) -> Result<(), Refusal> {
        arguments.iter().try_for_each(|argument| match argument {
            ast::CallArg::Pos(expr) | ast::CallArg::Kwarg(_, expr) => self.check_expression(expr).map(drop),
            ast::CallArg::PosSplat(_) | ast::CallArg::KwargSplat(_) => {
                Err(Refusal::new(span, "`*` and `**` before an argument are not available"))
            }
        })
    }
}

/// Refuses a word that is not in the vocabulary, and suggests the nearest one.
fn check_word(sort: &str, name: &str, existing: &'static str, span: Span) -> Result<(), Refusal> {
    if has_word(existing, name) {
        return Ok(());
    }
    let name = text::display(name, 40);
    let remedy = match split_words(existing).find(|candidate| is_near(&name, candidate)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", split_words(existing).collect::<Vec<_>>().join(", ")),
    };
    Err(Refusal::new(span, format!("there is no {sort} `{name}`; {remedy}")))
}
