//! The operator `contains` of conditions: `a contains b` becomes the call `contains(a, b)`, which [`super::condition`]
//! reads. Pure: tokens in, tokens out.

use super::{
    token_split::depth_change,
    tokens::{self, Token},
};

/// The operator.
const CONTAINS: &str = "contains";

/// The words and signs at which an operand ends.
const ENDS: [&str; 18] =
    ["and", "or", "not", "in", "is", "if", "else", CONTAINS, "&&", "||", "!", "==", "!=", "<=", ">=", "<", ">", ","];

/// Replaces the operator by calls.
pub(super) fn to_calls(source: &[Token]) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::new();
    let mut rest = source;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let infix = first.is_name(CONTAINS).then(|| left_operand(&out).zip(right_operand_end(after))).flatten();
        let Some((left, end)) = infix else {
            out.push(first.clone());
            continue;
        };
        out.truncate(left.end);
        let opening = if left.negated { "not contains(" } else { "contains(" };
        out.splice(left.start..left.start, tokens::parse_expression(opening));
        out.extend(tokens::parse_expression(", "));
        out.extend(after.iter().take(end).skip_while(|token| matches!(token, Token::Space(_))).cloned());
        out.push(Token::Sign(")".to_owned()));
        rest = after.get(end..).unwrap_or_default();
    }
    out
}

/// The operand before the operator.
struct LeftOperand {
    start: usize,
    end: usize,
    /// Whether the operator is `not contains`.
    negated: bool,
}

/// Returns the operand at the end of the tokens, or `None` if the word `contains` after the tokens is not the operator.
fn left_operand(before: &[Token]) -> Option<LeftOperand> {
    let mut end = trimmed_length(before);
    let negated = before[..end].last()?.is_name("not");
    if negated {
        end = trimmed_length(&before[..end - 1]);
    }
    let is_operand = match before[..end].last()? {
        Token::Sign(sign) => sign == ")" || sign == "]",
        Token::Plain(_) | Token::Mark(_) | Token::Space(_) => false,
        token => !is_end(token),
    };
    if !is_operand {
        return None;
    }
    let mut depth = 0;
    let boundary = before[..end].iter().rposition(|token| {
        depth -= depth_change(token);
        depth < 0 || depth == 0 && is_end(token)
    });
    let start = boundary.map_or(0, |at| at + 1);
    let spaces = before[start..end].iter().take_while(|token| matches!(token, Token::Space(_))).count();
    Some(LeftOperand { start: start + spaces, end, negated })
}

/// Returns the end of the operand at the beginning of the tokens, or `None` if there is no operand.
fn right_operand_end(after: &[Token]) -> Option<usize> {
    let is_operand = match after.iter().find(|token| !matches!(token, Token::Space(_)))? {
        Token::Sign(sign) => ["(", "[", "-"].contains(&sign.as_str()),
        Token::Plain(_) | Token::Mark(_) | Token::Space(_) => false,
        token => !is_end(token),
    };
    let mut depth = 0;
    let boundary = after.iter().position(|token| {
        depth += depth_change(token);
        depth < 0 || depth == 0 && is_end(token)
    });
    is_operand.then(|| trimmed_length(&after[..boundary.unwrap_or(after.len())]))
}

fn is_end(token: &Token) -> bool {
    ENDS.iter().any(|end| token.is_name(end) || token.is_sign(end))
}

/// Returns the number of tokens without the spaces at the end.
fn trimmed_length(source: &[Token]) -> usize {
    source.iter().rposition(|token| !matches!(token, Token::Space(_))).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn becomes(source: &str, expected: &str) {
        assert_eq!(tokens::join(&to_calls(&tokens::parse_expression(source))), expected, "{source}");
    }

    #[test]
    fn an_operator_becomes_a_call() {
        becomes("a.response contains 'x'", "contains(a.response, 'x')");
        becomes("a contains 'x' and not b contains 'y'", "contains(a, 'x') and not contains(b, 'y')");
        becomes("a | lower not contains 'x' || c", "not contains(a | lower, 'x') || c");
        becomes("(a['k'] contains f(b, 'c')) == true", "(contains(a['k'], f(b, 'c'))) == true");
        becomes("!( x contains ('y') )", "!( contains(x, ('y')) )");
        becomes("(a contains 'x') contains 'y'", "contains((contains(a, 'x')), 'y')");
    }

    #[test]
    fn calls_members_tests_and_names_stay() {
        for same in [
            "contains(a, 'x')",
            "not contains(a, 'x') && contains(b, 'y')",
            "a.contains('x')",
            "a is contains('x')",
            "a is not contains('x')",
            "contains == 'x'",
            "a == contains",
            "'a contains b' == c",
            "a contains",
            "contains 'x'",
            "a contains and b",
        ] {
            becomes(same, same);
        }
    }
}
