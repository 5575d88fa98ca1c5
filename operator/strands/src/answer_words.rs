//! The words that a file compares with people's answers. Approve and Reject answer with such a word.

use signoff_api::{Verdict, verdict::Word};

use super::tokens::{self, Token};

/// One comparison of an answer with a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerComparison {
    /// The compared path as written: `hitl_response`, `nodes.review.response`.
    pub(super) path: String,
    /// The word that the answer is compared with.
    pub(super) word: String,
    /// The path of the last gate before the comparison.
    pub(super) after: Option<String>,
}

/// Adds the comparisons of answers with words in a template or a condition to `list`. `after`: the path of the last
/// gate before the source.
pub(super) fn add_comparisons(source: &str, after: Option<&str>, list: &mut Vec<AnswerComparison>) {
    let with_spaces = if source.contains("{{") || source.contains("{%") {
        tokens::parse_template(source)
    } else {
        tokens::parse_expression(source)
    };
    let tokens: Vec<&Token> = with_spaces.iter().filter(|token| !matches!(token, Token::Space(_))).collect();
    let mut add = |path: Option<String>, word: &Token| {
        if let (Some(path), Some(word)) = (path, word.unquoted()) {
            list.push(AnswerComparison { path, word: word.to_owned(), after: after.map(ToOwned::to_owned) });
        }
    };
    for (position, token) in tokens.iter().enumerate() {
        if token.is_sign("==") || token.is_sign("!=") {
            let before = position.checked_sub(1).and_then(|before| tokens.get(before));
            let behind = tokens.get(position + 1);
            match (before, behind) {
                (_, Some(word @ Token::Quoted(_))) => add(path_before(&tokens[..position]), word),
                (Some(word @ Token::Quoted(_)), Some(_)) => add(path_from(&tokens[position + 1..]), word),
                _ => {}
            }
        } else if token.is_name("in") && tokens.get(position + 1).is_some_and(|token| token.is_sign("[")) {
            let words = tokens[position + 2..].iter().take_while(|token| !token.is_sign("]"));
            for word in words.filter(|token| matches!(token, Token::Quoted(_))) {
                add(path_before(&tokens[..position]), word);
            }
        }
    }
}

/// Returns the path at the end of the tokens, without a final `.lower()` or `| trim`.
fn path_before(tokens: &[&Token]) -> Option<String> {
    let is_part = |token: &&&Token| {
        matches!(token, Token::Name(_) | Token::Number(_) | Token::Quoted(_)) && !is_word(token)
            || [".", "[", "]", "(", ")", "|", "-"].iter().any(|sign| token.is_sign(sign))
    };
    let mut length = 0;
    for token in tokens.iter().rev().take_while(is_part) {
        // Two adjacent names are words of a sentence, and not a path.
        let next = tokens.get(tokens.len() - length);
        if matches!((*token, next), (Token::Name(_), Some(Token::Name(_)))) {
            break;
        }
        length += 1;
    }
    path_from(&tokens[tokens.len() - length..])
}

fn is_word(token: &Token) -> bool {
    ["if", "elif", "and", "or", "not", "in", "else"].iter().any(|word| token.is_name(word))
}

/// Returns the path at the beginning of the tokens.
fn path_from(tokens: &[&Token]) -> Option<String> {
    let start = tokens.iter().position(|token| !token.is_sign("("))?;
    let mut path = String::new();
    let mut rest = tokens.get(start..)?;
    let Some((Token::Name(root), after)) = rest.split_first().map(|(first, after)| (*first, after)) else {
        return None;
    };
    path.push_str(root);
    rest = after;
    loop {
        match rest {
            [dot, name, open, ..] if dot.is_sign(".") && matches!(name, Token::Name(_)) && open.is_sign("(") => break,
            [dot, Token::Name(name), after @ ..] if dot.is_sign(".") => {
                path.push('.');
                path.push_str(name);
                rest = after;
            }
            [open, key, close, after @ ..] if open.is_sign("[") && close.is_sign("]") => {
                match key {
                    Token::Quoted(_) => {
                        path.push('.');
                        path.push_str(key.unquoted().unwrap_or_default());
                    }
                    other => path.push_str(&format!("[{}]", other.text())),
                }
                rest = after;
            }
            _ => break,
        }
    }
    Some(path)
}

/// Returns the words of a pattern that consists of words only: `^(yes|no)$`.
pub(super) fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let inner = pattern.trim_start_matches("(?i)").trim_start_matches('^').trim_end_matches('$');
    let inner = inner.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(inner);
    let inner = inner.strip_prefix("?:").unwrap_or(inner);
    let words: Vec<String> = inner.split('|').map(ToOwned::to_owned).collect();
    let is_plain =
        |word: &String| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    (words.len() > 1 && words.iter().all(is_plain)).then_some(words)
}

/// Returns the first word that means the verdict.
pub(super) fn first_word_for<'w>(verdict: Verdict, words: &[&'w str]) -> Option<&'w str> {
    words.iter().copied().find(|word| Word::read(word) == Word::Verdict(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparisons(source: &str) -> Vec<(String, String)> {
        let mut list = Vec::new();
        add_comparisons(source, None, &mut list);
        list.into_iter().map(|compared| (compared.path, compared.word)).collect()
    }

    #[test]
    fn comparisons_are_found_in_every_form() {
        let comparison = |path: &str, word: &str| vec![(path.to_owned(), word.to_owned())];
        assert_eq!(comparisons("hitl_response == 'approve'"), comparison("hitl_response", "approve"));
        assert_eq!(
            comparisons("{% if nodes['a_b'].response.lower() == \"yes\" %}x{% endif %}"),
            comparison("nodes.a_b.response", "yes")
        );
        assert_eq!(comparisons("{{ 'no' != steps[1].response }}"), comparison("steps[1].response", "no"));
        assert_eq!(comparisons("x and (last_response | trim == 'ok')"), comparison("last_response", "ok"));
        assert_eq!(
            comparisons("hitl_response in ['a', 'b']"),
            [comparison("hitl_response", "a"), comparison("hitl_response", "b")].concat()
        );
        assert_eq!(comparisons("plain text == 'x' outside"), comparison("text", "x"));
        assert_eq!(comparisons("1 == 2"), []);
    }

    #[test]
    fn a_pattern_of_words_gives_its_words() {
        assert_eq!(alternatives("^(approve|reject|revise)$").unwrap_or_default(), ["approve", "reject", "revise"]);
        assert_eq!(alternatives("yes|no").unwrap_or_default(), ["yes", "no"]);
        assert_eq!(alternatives("^.+$"), None);
        assert_eq!(alternatives("^(a|b.*)$"), None);
    }
}
