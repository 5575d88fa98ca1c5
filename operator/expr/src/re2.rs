//! Regular expressions that the API server evaluates too. Patterns that RE2 reads differently from this program are
//! refused, and the others are rewritten so that both have the same matches.
//!
//! The API server uses Go's `regexp`. `tests/contract/patterns.json` has the matches of both, and is checked with a
//! real API server.

use regex_syntax::ast::{
    AssertionKind, Ast, ClassPerl, ClassPerlKind, ClassSetBinaryOp, ClassSetItem, ClassUnicode, ClassUnicodeKind, Flag,
    Flags, FlagsItemKind, GroupKind, HexLiteralKind, Literal, LiteralKind, RepetitionKind, RepetitionRange, Span,
    Visitor, parse::Parser, visit,
};

use super::text::display;

/// The maximum number of repetitions in RE2, with nested repetitions multiplied.
const MAX_REPETITIONS: u32 = 1000;

/// The general categories that are the same in both programs in all versions. `C` is excluded: it includes unassigned
/// characters here and none there.
const CATEGORIES: [&str; 34] = [
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi",
    "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf", "Co",
];

/// Scripts that are in use today.
const SCRIPTS: [&str; 34] = [
    "Arabic",
    "Armenian",
    "Bengali",
    "Bopomofo",
    "Cherokee",
    "Common",
    "Cyrillic",
    "Devanagari",
    "Ethiopic",
    "Georgian",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hebrew",
    "Hiragana",
    "Inherited",
    "Kannada",
    "Katakana",
    "Khmer",
    "Lao",
    "Latin",
    "Malayalam",
    "Mongolian",
    "Myanmar",
    "Oriya",
    "Sinhala",
    "Syriac",
    "Tamil",
    "Telugu",
    "Thaana",
    "Thai",
    "Tibetan",
];

/// Rewrites a pattern so that this program has the same matches as RE2: `\d`, `\w`, `\s` and `\b` match ASCII only.
///
/// # Errors
/// The construct that RE2 does not read or reads differently, with the remedy.
pub fn read(pattern: &str) -> Result<String, String> {
    let ast =
        Parser::new().parse(pattern).map_err(|why| format!("is not a regular expression (RE2): {}", why.kind()))?;
    let mut rewritten = pattern.to_owned();
    let replacements =
        visit(&ast, PatternReader { pattern, in_class: 0, budgets: vec![MAX_REPETITIONS], ascii: Vec::new() })?;
    // From the end, so that earlier positions stay valid.
    for (span, ascii) in replacements.into_iter().rev() {
        rewritten.replace_range(span.start.offset..span.end.offset, ascii);
    }
    Ok(rewritten)
}

/// Compiles the pattern so that it matches only the whole text, as it does in the API server.
///
/// # Errors
/// One sentence for the author of the pattern.
pub fn whole(pattern: &str) -> Result<regex::Regex, String> {
    compile_anchored("^", pattern, "$")
}

/// Compiles the pattern so that it matches only at the beginning of the text.
///
/// # Errors
/// As [`whole`].
pub fn prefix(pattern: &str) -> Result<regex::Regex, String> {
    compile_anchored("^", pattern, "")
}

/// Compiles the pattern so that it matches only at the end of the text.
///
/// # Errors
/// As [`whole`].
pub fn suffix(pattern: &str) -> Result<regex::Regex, String> {
    compile_anchored("", pattern, "$")
}

fn compile_anchored(start: &str, pattern: &str, end: &str) -> Result<regex::Regex, String> {
    let describe = |why: &str| format!("{} {why}", display(pattern, 120));
    let read = read(pattern).map_err(|why| describe(&why))?;
    let compiled = regex::RegexBuilder::new(&format!("{start}(?:{read}){end}")).size_limit(1 << 20).build();
    compiled.map_err(|_| describe("is too large: repeat less"))
}

/// Whether the character could also begin a range or end a class.
fn is_verbatim(literal: &Literal) -> bool {
    matches!(literal.c, '-' | ']') && literal.kind == LiteralKind::Verbatim
}

struct PatternReader<'p> {
    pattern: &'p str,
    /// The number of classes around the visited node.
    in_class: usize,
    /// The remaining repetitions of the visited node, for each repetition around it.
    budgets: Vec<u32>,
    ascii: Vec<(Span, &'static str)>,
}

impl PatternReader<'_> {
    fn source(&self, span: &Span) -> &str {
        self.pattern.get(span.start.offset..span.end.offset).unwrap_or_default()
    }

    fn refuse<T>(&self, span: &Span, remedy: &str) -> Result<T, String> {
        Err(format!("has {}, which the API server (RE2) reads differently: {remedy}", display(self.source(span), 60)))
    }

    fn check_flags(&self, flags: &Flags) -> Result<(), String> {
        let is_known =
            |flag| matches!(flag, Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed);
        if flags.items.iter().any(|item| matches!(item.kind, FlagsItemKind::Flag(flag) if !is_known(flag))) {
            return self.refuse(&flags.span, "the flags are i, m, s and U");
        }
        Ok(())
    }

    fn check_literal(&self, literal: &Literal) -> Result<(), String> {
        match literal.kind {
            LiteralKind::HexFixed(HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong)
            | LiteralKind::HexBrace(HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong) => {
                self.refuse(&literal.span, r"write \x{...}, or the character itself")
            }
            _ => Ok(()),
        }
    }

    fn check_unicode_class(&self, class: &ClassUnicode) -> Result<(), String> {
        let letter;
        let name = match &class.kind {
            ClassUnicodeKind::OneLetter(character) => {
                letter = character.to_string();
                letter.as_str()
            }
            ClassUnicodeKind::Named(name) => name.as_str(),
            ClassUnicodeKind::NamedValue { .. } => "",
        };
        if name == "Any" || CATEGORIES.contains(&name) || SCRIPTS.contains(&name) {
            return Ok(());
        }
        let remedy = r"write the short name of a general category, as \p{L}, or a script of today, as \p{Greek}";
        self.refuse(&class.span, remedy)
    }

    fn rewrite_perl_class(&mut self, class: &ClassPerl) {
        let ascii = match (&class.kind, class.negated, self.in_class > 0) {
            (ClassPerlKind::Digit, false, false) => "[0-9]",
            (ClassPerlKind::Digit, false, true) => "0-9",
            (ClassPerlKind::Digit, true, _) => "[^0-9]",
            (ClassPerlKind::Word, false, false) => "[0-9A-Za-z_]",
            (ClassPerlKind::Word, false, true) => "0-9A-Za-z_",
            (ClassPerlKind::Word, true, _) => "[^0-9A-Za-z_]",
            (ClassPerlKind::Space, false, false) => r"[\t\n\f\r ]",
            (ClassPerlKind::Space, false, true) => r"\t\n\f\r ",
            (ClassPerlKind::Space, true, _) => r"[^\t\n\f\r ]",
        };
        self.ascii.push((class.span, ascii));
    }

    /// Checks a repetition. RE2 counts an unbounded repetition by its minimum.
    fn check_repetition(&mut self, repetition: &regex_syntax::ast::Repetition) -> Result<(), String> {
        if matches!(*repetition.ast, Ast::Repetition(_)) {
            return self.refuse(&repetition.span, "put the inner repetition into a group, as in (?:a*)*");
        }
        let RepetitionKind::Range(range) = &repetition.op.kind else {
            self.budgets.extend(self.budgets.last().copied());
            return Ok(());
        };
        let (bounds, maximum) = match *range {
            RepetitionRange::Exactly(n) => (n.to_string(), n),
            RepetitionRange::AtLeast(n) => (format!("{n},"), n),
            RepetitionRange::Bounded(n, m) => (format!("{n},{m}"), m),
        };
        if self.source(&repetition.op.span).trim_end_matches('?') != format!("{{{bounds}}}") {
            return self.refuse(&repetition.op.span, "write {2}, {2,} or {2,5}, without spaces and zeros in front");
        }
        let remaining = self.budgets.last().copied().unwrap_or(MAX_REPETITIONS);
        if maximum > remaining {
            return self.refuse(&repetition.op.span, "it repeats something at most 1000 times in all");
        }
        self.budgets.push(remaining / maximum.max(1));
        Ok(())
    }
}

impl Visitor for PatternReader<'_> {
    type Output = Vec<(Span, &'static str)>;
    type Err = String;

    fn finish(self) -> Result<Self::Output, String> {
        Ok(self.ascii)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            Ast::Flags(set) => self.check_flags(&set.flags),
            Ast::Literal(literal) => self.check_literal(literal),
            Ast::ClassUnicode(class) => self.check_unicode_class(class),
            Ast::ClassPerl(class) => {
                self.rewrite_perl_class(class);
                Ok(())
            }
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::WordBoundary => {
                    self.ascii.push((assertion.span, r"(?-u:\b)"));
                    Ok(())
                }
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText => Ok(()),
                _ => self.refuse(&assertion.span, r"of the ends of words write \b alone"),
            },
            Ast::ClassBracketed(_) => {
                self.in_class += 1;
                Ok(())
            }
            Ast::Repetition(repetition) => self.check_repetition(repetition),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(flags) => self.check_flags(flags),
                GroupKind::CaptureName { name, .. }
                    if !name.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
                {
                    self.refuse(&name.span, "a group's name has letters and digits of ASCII, and _")
                }
                _ => Ok(()),
            },
            Ast::Empty(_) | Ast::Dot(_) | Ast::Alternation(_) | Ast::Concat(_) => Ok(()),
        }
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            Ast::ClassBracketed(_) => self.in_class -= 1,
            Ast::Repetition(_) => drop(self.budgets.pop()),
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), String> {
        match item {
            ClassSetItem::Literal(literal) => self.check_literal(literal),
            ClassSetItem::Range(range) => {
                self.check_literal(&range.start).and_then(|()| self.check_literal(&range.end))
            }
            ClassSetItem::Unicode(class) => self.check_unicode_class(class),
            ClassSetItem::Perl(class) => {
                self.rewrite_perl_class(class);
                Ok(())
            }
            ClassSetItem::Bracketed(class) => {
                self.refuse(&class.span, r"write what it holds without the inner brackets, or \[ for the character")
            }
            ClassSetItem::Union(union) => match union.items.as_slice() {
                // Before a further item, the two literals begin a range in one of the two programs.
                [ClassSetItem::Literal(one), ClassSetItem::Literal(two), _, ..]
                    if two.c == '-' && [one, two].iter().all(|first| is_verbatim(first)) =>
                {
                    self.refuse(&union.span, r"write \- and \] for the characters")
                }
                _ => Ok(()),
            },
            ClassSetItem::Empty(_) | ClassSetItem::Ascii(_) => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, op: &ClassSetBinaryOp) -> Result<(), String> {
        self.refuse(&op.span, r"list what the class has, and write \& \- \~ for the characters")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use super::whole;

    fn table(list: &str) -> Vec<Value> {
        let table: Value = serde_json::from_str(include_str!("../../../tests/contract/patterns.json")).unwrap();
        table[list].as_array().unwrap().clone()
    }

    #[test]
    fn patterns_match_the_same_texts_as_in_the_api_server() {
        for row in table("read") {
            let pattern = whole(row["pattern"].as_str().unwrap()).unwrap();
            for (list, matches) in [("yes", true), ("no", false)] {
                for text in row[list].as_array().unwrap() {
                    assert_eq!(pattern.is_match(text.as_str().unwrap()), matches, "{} and {text}", row["pattern"]);
                }
            }
        }
    }

    #[test]
    fn patterns_that_the_api_server_reads_differently_are_refused() {
        for row in table("refused") {
            let why = whole(row["pattern"].as_str().unwrap()).unwrap_err();
            assert!(why.contains(row["why"].as_str().unwrap()), "{why}");
        }
    }
}
