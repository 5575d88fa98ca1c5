//! Conditions of the Strands CLI as conditions of a Workflow: CEL where it says the same, else a template.
//!
//! It may not guess: a condition that cannot be told in CEL is none, and the caller says so.

use signoff_engine::language::Condition;

use super::{
    names::Names,
    rewrite::{self, Found},
    tokens::{self, Token},
};

/// How deep expressions may be.
const MAX_DEPTH: usize = 24;

/// The signs that compare.
const COMPARES: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];

/// A condition in CEL that says what the source says; none where there is none.
pub(super) fn cel(source: &str, names: &Names, found: &mut Found) -> Option<String> {
    let expression = rewrite::expression(bare(source), names, found);
    if !is_shallow(&expression) {
        return None;
    }
    let text = disjunction(&expression)?;
    Condition::parse(&text, "").ok().map(|_| text)
}

/// The condition of an edge: `else`, CEL, or a template that comes to `true` or `false`.
pub(super) fn when(source: &str, names: &Names, found: &mut Found) -> String {
    if source.trim().eq_ignore_ascii_case("else") {
        return "else".to_owned();
    }
    if !source.trim().starts_with("{{")
        && let Some(cel) = cel(source, names, &mut found.clone())
    {
        // What was found is kept below, or by this second reading.
        let _ = rewrite::expression(bare(source), names, found);
        return cel;
    }
    let expression = rewrite::expression(bare(source), names, found);
    let text = tokens::join(&expression);
    if is_shallow(&expression) && is_boolean(&expression) {
        format!("{{{{ {text} }}}}")
    } else {
        format!("{{{{ true if ({text}) else false }}}}")
    }
}

/// Whether brackets and negations stand no deeper in each other than conditions allow.
fn is_shallow(source: &[Token]) -> bool {
    let mut depth = 0;
    let negations = source.iter().filter(|token| token.is_name("not") || token.is_sign("!")).count();
    negations <= MAX_DEPTH
        && source.iter().all(|token| {
            depth += deeper(token);
            usize::try_from(depth).is_ok_and(|depth| depth <= MAX_DEPTH)
        })
}

/// The expression without the marks around it.
fn bare(source: &str) -> &str {
    let source = source.trim();
    source.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).unwrap_or(source).trim()
}

fn disjunction(source: &[Token]) -> Option<String> {
    joined(source, &["or", "||"], " || ", |part| joined(part, &["and", "&&"], " && ", term))
}

fn joined(source: &[Token], words: &[&str], with: &str, one: impl Fn(&[Token]) -> Option<String>) -> Option<String> {
    let parts: Option<Vec<String>> = split(source, words).into_iter().map(one).collect();
    Some(parts?.join(with))
}

fn term(source: &[Token]) -> Option<String> {
    let source = trim(source);
    let (first, rest) = source.split_first()?;
    if first.is_name("not") || first.is_sign("!") {
        return Some(format!("!({})", term(rest)?));
    }
    if let Some((left, rest)) = cut(source, |token| token.is_name("is")) {
        return tested(left, rest);
    }
    if let Some((left, right)) = cut(source, |token| token.is_name("in")) {
        let (left, not) = match trim(left).split_last() {
            Some((last, before)) if last.is_name("not") => (before, "!"),
            _ => (left, ""),
        };
        let right = trim(right);
        // A text within a text; in a list it is `in` for both.
        return match trim(left) {
            [text @ Token::Quoted(_)] if !right.first()?.is_sign("[") => {
                Some(format!("{not}{}.contains({})", operand(right)?, operand(std::slice::from_ref(text))?))
            }
            left if not.is_empty() => Some(format!("{} in {}", operand(left)?, operand(right)?)),
            left => Some(format!("!({} in {})", operand(left)?, operand(right)?)),
        };
    }
    let sign = |token: &Token| COMPARES.iter().any(|sign| token.is_sign(sign));
    match cut(source, sign) {
        Some((left, right)) => {
            let sign = source.get(left.len())?.text();
            Some(format!("{} {sign} {}", operand(left)?, operand(right)?))
        }
        None => operand(source),
    }
}

/// `x is defined`, `x is not none`.
fn tested(left: &[Token], rest: &[Token]) -> Option<String> {
    let words: Vec<&str> = rest.iter().filter(|t| !matches!(t, Token::Space(_))).map(Token::text).collect();
    let value = operand(left)?;
    match words.as_slice() {
        ["none" | "None" | "null"] => Some(format!("{value} == null")),
        ["not", "none" | "None" | "null"] => Some(format!("{value} != null")),
        ["defined"] if value.contains('.') => Some(format!("has({value})")),
        ["not", "defined"] | ["undefined"] if value.contains('.') => Some(format!("!has({value})")),
        _ => None,
    }
}

/// A value: a path, a literal, a call, something in parentheses, or one of these through a filter.
fn operand(source: &[Token]) -> Option<String> {
    let source = trim(source);
    if let Some((value, filter)) = cut_last(source, |token| token.is_sign("|")) {
        return filtered(&operand(value)?, trim(filter));
    }
    match source {
        [] => None,
        [open, inner @ .., close] if open.is_sign("(") && close.is_sign(")") && is_whole(source) => {
            let text = disjunction(inner)?;
            // A single call or path needs no parentheses.
            Some(if text.contains(' ') { format!("({text})") } else { text })
        }
        [Token::Name(name), open, inner @ .., close]
            if open.is_sign("(") && close.is_sign(")") && is_whole(&source[1..]) =>
        {
            called(name, inner)
        }
        _ => plain(source),
    }
}

fn filtered(value: &str, filter: &[Token]) -> Option<String> {
    match filter {
        [Token::Name(name)] => match name.as_str() {
            "length" | "count" => Some(format!("size({value})")),
            "lower" => Some(format!("{value}.lowerAscii()")),
            "upper" => Some(format!("{value}.upperAscii()")),
            "trim" => Some(format!("{value}.trim()")),
            _ => None,
        },
        _ => None,
    }
}

/// The functions of JMESPath that conditions have too.
fn called(name: &str, inner: &[Token]) -> Option<String> {
    let arguments: Option<Vec<String>> = split(inner, &[","]).into_iter().map(operand).collect();
    match (name, arguments?.as_slice()) {
        ("contains", [value, part]) => Some(format!("{value}.contains({part})")),
        ("starts_with", [value, part]) => Some(format!("{value}.startsWith({part})")),
        ("ends_with", [value, part]) => Some(format!("{value}.endsWith({part})")),
        ("length" | "len" | "size", [value]) => Some(format!("size({value})")),
        _ => None,
    }
}

fn plain(source: &[Token]) -> Option<String> {
    let mut text = String::new();
    let mut after_dot = false;
    for token in source {
        match token {
            Token::Name(name) if after_dot => text.push_str(match name.as_str() {
                "lower" => "lowerAscii",
                "upper" => "upperAscii",
                "strip" => "trim",
                "startswith" => "startsWith",
                "endswith" => "endsWith",
                other => other,
            }),
            Token::Name(name) => match name.as_str() {
                "None" | "none" => text.push_str("null"),
                "True" => text.push_str("true"),
                "False" => text.push_str("false"),
                "if" | "else" | "is" | "in" | "for" | "not" => return None,
                other => text.push_str(other),
            },
            // JMESPath puts literals into backticks.
            Token::Quoted(quoted) if quoted.starts_with('`') => {
                let literal: serde_json::Value = serde_json::from_str(token.unquoted()?.trim()).ok()?;
                text.push_str(&literal.to_string());
            }
            Token::Sign(sign) if sign == "|" || sign == "~" => return None,
            other => text.push_str(other.text()),
        }
        after_dot = token.is_sign(".");
    }
    Some(text)
}

/// Whether an expression can only be true or false.
fn is_boolean(source: &[Token]) -> bool {
    split(source, &["or", "||"]).into_iter().all(|part| {
        split(part, &["and", "&&"]).into_iter().all(|part| {
            let part = trim(part);
            let decides = |token: &Token| {
                ["in", "is"].iter().any(|word| token.is_name(word)) || COMPARES.iter().any(|sign| token.is_sign(sign))
            };
            match part {
                [first, ..] if first.is_name("not") => true,
                [only] => ["true", "false", "True", "False"].iter().any(|word| only.is_name(word)),
                [open, inner @ .., close] if open.is_sign("(") && close.is_sign(")") && is_whole(part) => {
                    is_boolean(inner)
                }
                _ => cut(part, decides).is_some() && cut(part, |token| token.is_name("if")).is_none(),
            }
        })
    })
}

/// Whether the first bracket closes with the last.
fn is_whole(source: &[Token]) -> bool {
    let mut depth = 0;
    source.iter().enumerate().all(|(at, token)| {
        depth += deeper(token);
        depth > 0 || at + 1 == source.len()
    })
}

fn deeper(token: &Token) -> i32 {
    match token {
        Token::Sign(sign) => match sign.as_str() {
            "(" | "[" | "{" => 1,
            ")" | "]" | "}" => -1,
            _ => 0,
        },
        _ => 0,
    }
}

/// The parts between words or signs that stand in no brackets.
fn split<'t>(source: &'t [Token], words: &[&str]) -> Vec<&'t [Token]> {
    let is_word = |token: &Token| words.iter().any(|word| token.is_name(word) || token.is_sign(word));
    let mut parts = Vec::new();
    let mut rest = source;
    while let Some((part, after)) = cut(rest, is_word) {
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Before and after the first such token that stands in no brackets.
fn cut(source: &[Token], is: impl Fn(&Token) -> bool) -> Option<(&[Token], &[Token])> {
    let mut depth = 0;
    let at = source.iter().position(|token| {
        depth += deeper(token);
        depth == 0 && is(token)
    })?;
    Some((&source[..at], &source[at + 1..]))
}

/// Before and after the last such token that stands in no brackets.
fn cut_last(source: &[Token], is: impl Fn(&Token) -> bool) -> Option<(&[Token], &[Token])> {
    let mut depth = 0;
    let at = source.iter().rposition(|token| {
        depth += deeper(token);
        depth == 0 && is(token)
    })?;
    Some((&source[..at], &source[at + 1..]))
}

fn trim(source: &[Token]) -> &[Token] {
    let mut source = source;
    while let [Token::Space(_), rest @ ..] = source {
        source = rest;
    }
    while let [rest @ .., Token::Space(_)] = source {
        source = rest;
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names { root: "nodes", root_now: "nodes", ..Names::default() };
        names.give(["a_b", "c"]);
        names
    }

    #[track_caller]
    fn is_cel(source: &str, expected: &str) {
        assert_eq!(cel(source, &names(), &mut Found::default()).as_deref(), Some(expected), "{source}");
    }

    #[test]
    fn what_cel_can_say_is_cel() {
        is_cel("hitl_response == 'approve'", "hitl_response == 'approve'");
        is_cel("risk_level < 5", "risk_level < 5");
        is_cel("risk_level < `5` && mode == `\"fast\"`", "risk_level < 5 && mode == \"fast\"");
        is_cel("nodes.a_b.response == null", "nodes['a-b'].response == null");
        is_cel("{{ nodes.a_b.response == None or not x }}", "nodes['a-b'].response == null || !(x)");
        is_cel("'yes' in nodes.c.response.lower()", "nodes.c.response.lowerAscii().contains('yes')");
        is_cel("'no' not in steps[0].response", "!steps[0].response.contains('no')");
        is_cel("x in ['a', 'b'] and y not in ['c']", "x in ['a', 'b'] && !(y in ['c'])");
        is_cel(
            "contains(steps[0].response, 'x') || length(items) > `3`",
            "steps[0].response.contains('x') || size(items) > 3",
        );
        is_cel("nodes.a_b.iteration >= 3", "size(nodes['a-b'].visits) >= 3");
        is_cel("nodes.c is not defined", "nodes.c.response == null");
        is_cel("(a == 1 or b == 2) and c | length > 0", "(a == 1 || b == 2) && size(c) > 0");
    }

    #[test]
    fn what_cel_cannot_say_is_no_cel() {
        for source in
            ["x | default('a') == 'b'", "a if b else c", "x ~ y == 'z'", "foo[?bar==`1`]", "", "max_by(a, &b)"]
        {
            assert_eq!(cel(source, &names(), &mut Found::default()), None, "{source}");
        }
    }

    #[test]
    fn an_edge_is_decided_by_cel_or_by_a_template() {
        let when = |source: &str| when(source, &names(), &mut Found::default());
        assert_eq!(when(" Else "), "else");
        assert_eq!(when("hitl_response == 'revise'"), "hitl_response == 'revise'");
        assert_eq!(when("{{ 'x' in nodes.a_b.response.lower() }}"), "{{ 'x' in nodes['a-b'].response.lower() }}");
        assert_eq!(when("{{ nodes.a_b.iteration >= 3 }}"), "{{ (nodes['a-b'].visits | length) >= 3 }}");
        assert_eq!(when("{{ nodes.c.response or x == 1 }}"), "{{ true if (nodes.c.response or x == 1) else false }}");
        assert_eq!(when("x | default('a') == 'b'"), "{{ x | default('a') == 'b' }}");
        assert_eq!(when("{{ (a == 1) and not b }}"), "{{ (a == 1) and not b }}");
    }
}
