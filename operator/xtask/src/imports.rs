//! The imports of one source file: its `use` declarations, and every other path of two segments or more. Code under
//! `#[cfg(test)]` is skipped.
//!
//! **Invariant:** reads tokens, not text, so that no comment and no string counts.

use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The words that begin an item. An item ends at `;`, and most also at the end of a block.
const ITEMS: [&str; 13] =
    ["pub", "use", "mod", "fn", "const", "static", "type", "struct", "enum", "impl", "trait", "async", "let"];
/// The items that end at `;` only.
const TO_SEMICOLON: [&str; 5] = ["use", "const", "static", "type", "let"];

/// The imports of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Imports {
    /// The paths, as written.
    pub(crate) paths: Vec<Path>,
    /// The names that `use` declarations bring into a module.
    pub(crate) names: Vec<Name>,
    /// The modules in files of their own that are declared under `#[cfg(test)]`.
    pub(crate) tests: Vec<String>,
}

/// A path in a module of the file: `inline` names the modules within the file, from the outermost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) inline: Vec<String>,
    pub(crate) segments: Vec<String>,
}

/// A name and the path that it stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) name: String,
    pub(crate) path: Path,
}

impl Imports {
    /// Reads the source of a file.
    ///
    /// # Errors
    /// The source has no tokens, such as one with a string that does not end.
    pub(crate) fn read(source: &str) -> Result<Self> {
        let tokens = TokenStream::from_str(source).map_err(|error| anyhow!("is not Rust: {error}"))?;
        let mut imports = Self::default();
        imports.scan(tokens, &[]);
        Ok(imports)
    }

    /// Adds the imports of another file of the same module.
    pub(crate) fn add(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.names.extend(other.names);
        self.tests.extend(other.tests);
    }

    /// Records the imports among tokens, in the module `inline` of the file.
    fn scan(&mut self, tokens: TokenStream, inline: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at = match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' && is_test(tokens.get(at + 1)) => {
                    self.skip_item(&tokens, at + 2)
                }
                TokenTree::Ident(word) if word == "pub" => at + 1 + usize::from(is_visibility(tokens.get(at + 1))),
                TokenTree::Ident(word) if word == "use" => {
                    let end = (at..tokens.len()).find(|&end| is_mark(&tokens[end], ';')).unwrap_or(tokens.len());
                    self.add_use(&tokens[at + 1..end], &[], inline);
                    end
                }
                TokenTree::Ident(word) if word == "mod" => match (tokens.get(at + 1), tokens.get(at + 2)) {
                    (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) => {
                        self.scan(body.stream(), &[inline, &[name.to_string()]].concat());
                        at + 3
                    }
                    _ => at + 1,
                },
                TokenTree::Ident(_) => {
                    let (segments, end) = read_path(&tokens, at);
                    // A path after `::` continues a type, such as in `<T as A>::B::c`.
                    let is_continuation = at > 1 && tokens[at - 2..at].iter().all(|token| is_mark(token, ':'));
                    if segments.len() > 1 && !is_continuation {
                        self.paths.push(Path { inline: inline.to_vec(), segments });
                    }
                    end
                }
                TokenTree::Group(group) => {
                    self.scan(group.stream(), inline);
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    /// Returns the position after the item that follows `#[cfg(test)]`, and records a module that it declares.
    fn skip_item(&mut self, tokens: &[TokenTree], from: usize) -> usize {
        let mut start = from;
        while tokens.get(start).is_some_and(|token| is_mark(token, '#')) {
            start += 2;
        }
        let word = |at: usize| tokens.get(at).map(ToString::to_string).unwrap_or_default();
        let is_item = ITEMS.contains(&word(start).as_str());
        let mut kind = start;
        while word(kind) == "pub" || matches!(tokens.get(kind), Some(TokenTree::Group(_))) {
            kind += 1;
        }
        if word(kind) == "mod" && word(kind + 2) == ";" {
            self.tests.push(word(kind + 1));
        }
        let to_semicolon = TO_SEMICOLON.contains(&word(kind).as_str());
        let ends = |token: &TokenTree| {
            is_mark(token, ';') || (!is_item && is_mark(token, ',')) || (!to_semicolon && is_block(token))
        };
        (start..tokens.len()).find(|&at| ends(&tokens[at])).map_or(tokens.len(), |end| end + 1)
    }

    /// Records the paths of a `use` declaration, one for each leaf.
    fn add_use(&mut self, tokens: &[TokenTree], before: &[String], inline: &[String]) {
        let (own, end) = read_path(tokens, 0);
        let segments = [before, &own].concat();
        if let Some(TokenTree::Group(group)) = tokens.get(end) {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            for part in inner.split(|token| is_mark(token, ',')).filter(|part| !part.is_empty()) {
                self.add_use(part, &segments, inline);
            }
            return;
        }
        let renamed = match (tokens.get(end), tokens.get(end + 1)) {
            (Some(TokenTree::Ident(word)), Some(name)) if word == "as" => Some(name.to_string()),
            _ => None,
        };
        // `use a::b::{self}` names `a::b`.
        let ends_in_self = segments.len() > 1 && segments.last().is_some_and(|last| last == "self");
        let segments = if ends_in_self { segments[..segments.len() - 1].to_vec() } else { segments };
        let Some(last) = segments.last() else { return };
        let name = renamed.unwrap_or_else(|| last.clone());
        let path = Path { inline: inline.to_vec(), segments };
        self.names.push(Name { name, path: path.clone() });
        self.paths.push(path);
    }
}

/// Returns the segments of a path that begins at `at`, and the position after it.
fn read_path(tokens: &[TokenTree], at: usize) -> (Vec<String>, usize) {
    let (mut segments, mut at) = (Vec::new(), at);
    while let Some(TokenTree::Ident(segment)) = tokens.get(at) {
        segments.push(segment.to_string());
        at += 1;
        let is_continued = [0, 1].iter().all(|next| tokens.get(at + next).is_some_and(|token| is_mark(token, ':')));
        if !is_continued {
            break;
        }
        at += 2;
    }
    (segments, at)
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Whether a token is the `(in crate::a)` of a visibility, which imports nothing.
fn is_visibility(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else { return false };
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(word)) if word == "in")
}

/// Whether a token is the `[cfg(test)]` of an attribute, also as a condition of `all`.
fn is_test(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(attribute)) = token else { return false };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    let all = text.strip_prefix("cfg(all(").and_then(|all| all.strip_suffix("))"));
    text == "cfg(test)" || all.is_some_and(|all| all.split(',').any(|condition| condition == "test"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Imports, Name, Path};

    fn path(inline: &[&str], written: &str) -> Path {
        let inline = inline.iter().map(|name| (*name).to_owned()).collect();
        Path { inline, segments: written.split("::").map(str::to_owned).collect() }
    }

    fn paths(source: &str) -> Vec<Path> {
        Imports::read(source).unwrap().paths
    }

    #[test]
    fn every_leaf_of_a_use_declaration_is_a_path() {
        let found = paths("use crate::{a, b::{self, c as d, e::*}};\npub(crate) use super::f;");
        let expected = ["crate::a", "crate::b", "crate::b::c", "crate::b::e", "super::f"];
        assert_eq!(found, expected.map(|written| path(&[], written)));
        let imports = Imports::read("use gate::Gate as Door;").unwrap();
        assert_eq!(imports.names, [Name { name: "Door".to_owned(), path: path(&[], "gate::Gate") }]);
    }

    #[test]
    fn paths_in_code_and_macros_are_found_and_those_in_text_are_not() {
        let source = "// crate::comment\nfn f() -> crate::a::B { let x = \"crate::text\"; json!({\"k\": super::c()}); 'l: loop {} }";
        assert_eq!(paths(source), [path(&[], "crate::a::B"), path(&[], "super::c")]);
        let source = "fn f() { child::g(x.collect::<Vec<_>>(), <T as A>::B::c()) }";
        assert_eq!(paths(source), [path(&[], "child::g")]);
        assert_eq!(paths("pub(in crate::a) struct S { pub(in crate::b) c: crate::d::E }"), [path(&[], "crate::d::E")]);
    }

    #[test]
    fn a_module_within_the_file_is_noted() {
        assert_eq!(paths("mod a { mod b { use super::super::c; } }"), [path(&["a", "b"], "super::super::c")]);
    }

    #[test]
    fn code_of_tests_is_left_out() {
        for code in [
            "#[cfg(test)] mod tests { use crate::a; }",
            "#[cfg(test)]\n#[allow(unused)]\npub(crate) use crate::{a, b};",
            "#[cfg(all(test, unix))] fn f() { crate::a::b() }",
            "struct S { #[cfg(test)] field: crate::a::B, }",
            "#[cfg(test)] const A: B = B { c: crate::a::D };",
        ] {
            assert_eq!(paths(code), [], "{code}");
            assert_eq!(paths(&format!("{code} use crate::after;")), [path(&[], "crate::after")], "{code}");
        }
        for cfg in ["not(test)", "all(unix, not(test))", "any(test, unix)"] {
            assert_eq!(paths(&format!("#[cfg({cfg})] use crate::a;")), [path(&[], "crate::a")], "{cfg}");
        }
        assert_eq!(Imports::read("#[cfg(test)]\n#[path = \"x.rs\"]\nmod x;").unwrap().tests, ["x"]);
    }
}
