//! The translation of conditions of the Strands CLI into CEL.
//!
//! **Invariant:** a condition that CEL cannot express is never approximated: the caller gets `None` and reports it.

use signoff_expr::Condition;

use super::{
    expr_type::ExprType,
    names::Names,
    rewrite::{self, UnresolvedNames},
    token_split::{COMPARES, cut, cut_last, is_bracketed, is_shallow, split, trim},
    tokens::Token,
};

/// Returns the condition in CEL, or `None` if CEL cannot express the condition. A value that is not a boolean is not a
/// condition.
pub(super) fn cel(source: &str, names: &Names, found: &mut UnresolvedNames) -> Option<String> {
    translate(source, names, false, found)
}

/// Returns the condition of an edge: `else`, or CEL. As in a template, a value counts as true unless it is empty, zero,
/// false or missing. Returns `None` if CEL cannot express the condition.
pub(super) fn when(source: &str, names: &Names, found: &mut UnresolvedNames) -> Option<String> {
    if source.trim().eq_ignore_ascii_case("else") {
        return Some("else".to_owned());
    }
    translate(source, names, true, found)
}

fn translate(source: &str, names: &Names, takes_values: bool, found: &mut UnresolvedNames) -> Option<String> {
    let expression = rewrite::rewrite_expression(strip_marks(source), names, found);
    if !is_shallow(&expression) {
        return None;
    }
    let text = Conditions { names, takes_values }.translate_disjunction(&expression)?;
    Condition::parse(&text, "").ok().map(|_| text)
}

/// Returns the expression without the marks around it.
fn strip_marks(source: &str) -> &str {
    let source = source.trim();
    source.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).unwrap_or(source).trim()
}

/// The translator of expressions into CEL.
struct Conditions<'n> {
    names: &'n Names,
    /// Whether other values than booleans are conditions too, by whether they are empty, zero or missing.
    takes_values: bool,
}

impl Conditions<'_> {
    /// Translates a boolean expression.
    fn translate_disjunction(&self, source: &[Token]) -> Option<String> {
        let conjunction = |part: &[Token]| join_parts(part, &["and", "&&"], " && ", |term| self.translate_term(term));
        join_parts(source, &["or", "||"], " || ", conjunction)
    }

    /// Translates a part of a boolean expression without `and` and `or`.
    fn translate_term(&self, source: &[Token]) -> Option<String> {
        let source = trim(source);
        let (first, rest) = source.split_first()?;
        if first.is_name("not") || first.is_sign("!") {
            return Some(format!("!({})", self.translate_term(rest)?));
        }
        if let Some((left, rest)) = cut(source, |token| token.is_name("is")) {
            return translate_test(&self.translate_operand(left)?, rest);
        }
        if let Some((left, right)) = cut(source, |token| token.is_name("in")) {
            return match trim(left).split_last() {
                Some((last, before)) if last.is_name("not") => self.translate_contains(right, before).map(negate),
                _ => self.translate_contains(right, left),
            };
        }
        let sign = |token: &Token| COMPARES.iter().any(|sign| token.is_sign(sign));
        match cut(source, sign) {
            Some((left, right)) => {
                let sign = source.get(left.len())?.text();
                Some(format!("{} {sign} {}", self.translate_operand(left)?, self.translate_operand(right)?))
            }
            None => self
                .translate_boolean(source)
                .or_else(|| self.takes_values.then(|| self.translate_not_empty(source))?),
        }
    }

    /// Translates an expression that is a boolean itself.
    fn translate_boolean(&self, source: &[Token]) -> Option<String> {
        match source {
            [Token::Name(word)] if ["true", "True", "false", "False"].contains(&word.as_str()) => {
                translate_plain(source)
            }
            [open, inner @ .., close] if open.is_sign("(") && close.is_sign(")") && is_bracketed(source) => {
                self.translate_disjunction(inner).map(parenthesize)
            }
            [Token::Name(name), open, ..] if open.is_sign("(") => match name.as_str() {
                "contains" | "starts_with" | "ends_with" => self.translate_operand(source),
                _ => None,
            },
            _ => (ExprType::of(source, self.names) == ExprType::Decision).then(|| translate_plain(source))?,
        }
    }

    /// Returns the condition that a value is not empty, zero, false or missing.
    fn translate_not_empty(&self, source: &[Token]) -> Option<String> {
        let value = self.translate_operand(source)?;
        Some(match (source, ExprType::of(source, self.names)) {
            ([Token::Name(name), open, .., close], _)
                if ["length", "len", "size"].contains(&name.as_str())
                    && open.is_sign("(")
                    && close.is_sign(")")
                    && is_bracketed(&source[1..]) =>
            {
                format!("{value} > 0")
            }
            (_, ExprType::Decision) => value,
            (_, ExprType::Text) => format!("!({value} in ['', null])"),
            (_, ExprType::List) => format!("size({value}) > 0"),
            (_, ExprType::Unknown) => format!("!({value} in ['', null, false, 0, [], {{}}])"),
        })
    }

    /// Translates the test whether a text contains a text, or a list an item.
    fn translate_contains(&self, whole: &[Token], part: &[Token]) -> Option<String> {
        let (whole_in_cel, part_in_cel) = (self.translate_operand(whole)?, self.translate_operand(part)?);
        match ExprType::of(whole, self.names) {
            ExprType::Text => Some(format!("{whole_in_cel}.contains({part_in_cel})")),
            ExprType::List => Some(format!("{part_in_cel} in {whole_in_cel}")),
            ExprType::Decision | ExprType::Unknown => None,
        }
    }

    /// Translates a value: a path, a literal, a call, an expression in parentheses, or one of these with a filter.
    fn translate_operand(&self, source: &[Token]) -> Option<String> {
        let source = trim(source);
        if let Some((value, filter)) = cut_last(source, |token| token.is_sign("|")) {
            return apply_filter(&self.translate_operand(value)?, trim(filter));
        }
        match source {
            [] => None,
            [open, inner @ .., close] if open.is_sign("(") && close.is_sign(")") && is_bracketed(source) => {
                // The operand of a comparison is a value, even if it could be a condition.
                let comparison = Self { takes_values: false, ..*self }.translate_disjunction(inner);
                comparison.or_else(|| self.translate_operand(inner)).map(parenthesize)
            }
            [Token::Name(name), open, inner @ .., close]
                if open.is_sign("(") && close.is_sign(")") && is_bracketed(&source[1..]) =>
            {
                self.translate_call(name, &split(inner, &[","]))
            }
            _ => translate_plain(source),
        }
    }

    /// Translates a call of a function of JMESPath that conditions also have.
    fn translate_call(&self, name: &str, arguments: &[&[Token]]) -> Option<String> {
        match (name, arguments) {
            ("contains", [whole, part]) => self.translate_contains(whole, part),
            ("starts_with", [value, part]) => {
                Some(format!("{}.startsWith({})", self.translate_operand(value)?, self.translate_operand(part)?))
            }
            ("ends_with", [value, part]) => {
                Some(format!("{}.endsWith({})", self.translate_operand(value)?, self.translate_operand(part)?))
            }
            ("length" | "len" | "size", [value]) => Some(format!("size({})", self.translate_operand(value)?)),
            _ => None,
        }
    }
}

/// Translates the parts between `words`, and joins them.
fn join_parts(
    source: &[Token],
    words: &[&str],
    separator: &str,
    translate: impl Fn(&[Token]) -> Option<String>,
) -> Option<String> {
    let parts: Option<Vec<String>> = split(source, words).into_iter().map(translate).collect();
    Some(parts?.join(separator))
}

/// Puts a text in parentheses, unless it is a single call or path.
fn parenthesize(text: String) -> String {
    if text.contains(' ') { format!("({text})") } else { text }
}

fn negate(condition: String) -> String {
    if condition.contains(' ') { format!("!({condition})") } else { format!("!{condition}") }
}

/// Translates `x is defined` and `x is not none`.
fn translate_test(value: &str, test: &[Token]) -> Option<String> {
    let words: Vec<&str> = test.iter().filter(|t| !matches!(t, Token::Space(_))).map(Token::text).collect();
    match words.as_slice() {
        ["none" | "None" | "null"] => Some(format!("{value} == null")),
        ["not", "none" | "None" | "null"] => Some(format!("{value} != null")),
        ["defined"] if value.contains('.') => Some(format!("has({value})")),
        ["not", "defined"] | ["undefined"] if value.contains('.') => Some(format!("!has({value})")),
        _ => None,
    }
}

/// Translates a filter as a function of CEL.
fn apply_filter(value: &str, filter: &[Token]) -> Option<String> {
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

/// Translates a path or a literal, or returns `None` if CEL has no such form.
fn translate_plain(source: &[Token]) -> Option<String> {
    let mut text = String::new();
    let mut before: Option<&Token> = None;
    for token in source {
        let is_after = |sign: &str| before.is_some_and(|before| before.is_sign(sign));
        match token {
            Token::Name(name) if is_after(".") => text.push_str(match name.as_str() {
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
            // Literals of JMESPath are in backticks.
            Token::Quoted(quoted) if quoted.starts_with('`') => text.push_str(&literal(token)?),
            Token::Sign(sign) if sign == "|" || sign == "~" => return None,
            // CEL cannot count positions from the end.
            Token::Sign(sign) if sign == "-" && is_after("[") => return None,
            other => text.push_str(other.text()),
        }
        before = Some(token).filter(|token| !matches!(token, Token::Space(_))).or(before);
    }
    Some(text)
}

/// Returns the value of a literal of JMESPath, which is in backticks.
fn literal(token: &Token) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(token.unquoted()?.trim()).ok()?;
    Some(value.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use serde_json::json;

    use super::*;

    fn names() -> Names {
        let mut names = Names { root: "nodes", root_now: "steps", ..Names::default() };
        names.assign_names(["a_b", "c"]);
        names
            .types
            .extend([("tags", "array"), ("fast", "boolean")].map(|(name, kind)| (name.to_owned(), kind.to_owned())));
        names
    }

    #[track_caller]
    fn is_cel(source: &str, expected: &str) {
        assert_eq!(cel(source, &names(), &mut UnresolvedNames::default()).as_deref(), Some(expected), "{source}");
    }

    #[test]
    fn conditions_that_cel_can_express_are_translated() {
        is_cel("hitl_response == 'approve'", "hitl_response == 'approve'");
        is_cel("risk_level < 5", "risk_level < 5");
        is_cel("risk_level < `5` && mode == `\"fast\"`", "risk_level < 5 && mode == \"fast\"");
        is_cel("nodes.a_b.response == null", "steps['a-b'].response == null");
        is_cel("{{ nodes.a_b.response == None or not fast }}", "steps['a-b'].response == null || !(fast)");
        is_cel("'yes' in nodes.c.response.lower()", "steps.c.response.lowerAscii().contains('yes')");
        is_cel("'no' not in steps[0].response", "!steps[0].response.contains('no')");
        is_cel("x in ['a', 'b'] and y not in ['c']", "x in ['a', 'b'] && !(y in ['c'])");
        is_cel("topic in steps[0].response", "steps[0].response.contains(topic)");
        is_cel("contains(tags, 'x') and 'y' not in inputs.tags", "'x' in tags && !('y' in inputs.tags)");
        is_cel(
            "fast and (last_response.startswith('a') or not fast)",
            "fast && (last_response.startsWith('a') || !(fast))",
        );
        is_cel(
            "contains(steps[0].response, 'x') || length(items) > `3`",
            "steps[0].response.contains('x') || size(items) > 3",
        );
        is_cel("nodes.a_b.iteration >= 3", "size(steps['a-b'].visits) >= 3");
        is_cel("nodes.c.response contains 'x'", "steps.c.response.contains('x')");
        is_cel("tags contains 'x' and y not contains 'z'", "'x' in tags && !(y.contains('z'))");
        is_cel("nodes.c is not defined", "steps.c.response == null");
        is_cel("(a == 1 or b == 2) and c | length > 0", "(a == 1 || b == 2) && size(c) > 0");
    }

    #[test]
    fn conditions_that_cel_cannot_express_are_not_translated() {
        for source in
            ["x | default('a') == 'b'", "a if b else c", "x ~ y == 'z'", "foo[?bar==`1`]", "", "max_by(a, &b)"]
        {
            assert_eq!(cel(source, &names(), &mut UnresolvedNames::default()), None, "{source}");
        }
    }

    /// CEL would refuse each of these in every run, and a step with such a condition would never be skipped.
    #[test]
    fn conditions_that_cel_refuses_at_run_time_are_not_translated() {
        for source in [
            "steps[0].response",
            "ready",
            "(ready)",
            "not x",
            "{{ not steps[0].response and x == 'a' }}",
            "tags",
            "length(tags)",
            "steps[-1].response == 'yes'",
            "steps[ -1].response == 'yes'",
            "'x' in subtasks",
            "contains(evaluation.issues, 'x')",
            "subtasks contains 'x'",
        ] {
            assert_eq!(cel(source, &names(), &mut UnresolvedNames::default()), None, "{source}");
        }
    }

    #[test]
    fn an_edge_gets_a_condition_in_cel() {
        for (source, expected) in [
            (" Else ", "else"),
            ("hitl_response == 'revise'", "hitl_response == 'revise'"),
            ("{{ 'x' in nodes.a_b.response.lower() }}", "steps['a-b'].response.lowerAscii().contains('x')"),
            ("{{ nodes.a_b.iteration >= 3 }}", "size(steps['a-b'].visits) >= 3"),
            ("{{ nodes.c.response or x == 1 }}", "!(steps.c.response in ['', null]) || x == 1"),
            ("{{ (a == 1) and not b }}", "(a == 1) && !(!(b in ['', null]))"),
            ("not fast && x < `5`", "!(fast) && x < 5"),
            ("tags", "size(tags) > 0"),
            ("{{ (nodes.a_b.iteration) >= 3 and (a) == b }}", "size(steps['a-b'].visits) >= 3 && a == b"),
            ("nodes.a_b.visits contains 'x'", "'x' in steps['a-b'].visits"),
            ("(subtasks)", "(!(subtasks in ['', null, false, 0, [], {}]))"),
            ("nodes.a_b.response contains 'x'", "steps['a-b'].response.contains('x')"),
            ("!starts_with(a, 'x') || length(b)", "!(a.startsWith('x')) || size(b) > 0"),
            ("contains(tags, 'x')", "'x' in tags"),
        ] {
            assert_eq!(when(source, &names(), &mut UnresolvedNames::default()).as_deref(), Some(expected), "{source}");
        }
    }

    #[test]
    fn an_edge_gets_no_condition_where_cel_cannot_express_it() {
        for source in [
            "x | default('a') == 'b'",
            "steps[-1].response == 'yes'",
            "contains(subtasks, 'x')",
            "not a and subtasks not contains 'x'",
            "a if b else c",
            "{% if a %}true{% endif %}",
            "",
        ] {
            assert_eq!(when(source, &names(), &mut UnresolvedNames::default()), None, "{source}");
        }
    }

    /// Templates treat these values as false, and the translation must do the same.
    #[test]
    fn a_value_of_an_edge_holds_unless_it_is_empty_zero_false_or_missing() {
        let holds = |source: &str, value: serde_json::Value| {
            let text = when(source, &names(), &mut UnresolvedNames::default()).expect(source);
            let mut scope = signoff_expr::Scope::new();
            scope.set(source, value);
            Condition::parse(&text, "when").expect(&text).evaluate(&scope)
        };
        for value in [json!(""), json!(null), json!(false), json!(0), json!(0.0), json!([]), json!({})] {
            assert_eq!(holds("subtasks", value.clone()), Ok(false), "{value}");
        }
        for value in [json!("x"), json!(true), json!(1), json!([0]), json!({"a": null})] {
            assert_eq!(holds("subtasks", value.clone()), Ok(true), "{value}");
        }
        assert_eq!(holds("last_response", json!("")), Ok(false));
        assert_eq!(holds("last_response", json!(null)), Ok(false));
        assert_eq!(holds("last_response", json!("x")), Ok(true));
        assert_eq!(holds("tags", json!([])), Ok(false));
        assert_eq!(holds("tags", json!(["x"])), Ok(true));
    }
}
