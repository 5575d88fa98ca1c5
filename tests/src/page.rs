//! Reads the fenced blocks of a page of the documentation, so that tests run its commands as they stand there.
//! Must not contain any command of its own.

use std::collections::BTreeMap;

/// A fenced block: the words of its opening line by `key=value`, and its lines.
#[derive(Debug)]
pub struct Block<'p> {
    /// The language, such as `console`.
    pub language: &'p str,
    words: BTreeMap<&'p str, &'p str>,
    /// The lines between the fences.
    pub lines: Vec<&'p str>,
}

/// A command of a block, and the lines that it must print, in this order.
#[derive(Debug, PartialEq, Eq)]
pub struct Command<'p> {
    /// What is typed, with the lines that continue it.
    pub script: String,
    /// What is printed, among other lines; `…` stands for anything.
    pub printed: Vec<&'p str>,
}

impl<'p> Block<'p> {
    /// Returns the value of a word of the opening line; empty for a word without one.
    #[must_use]
    pub fn word(&self, key: &str) -> Option<&'p str> {
        self.words.get(key).copied()
    }

    /// Returns the text of the block, as it stands in a file.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// Returns the commands: lines behind `$ `, continued by lines that begin with four spaces.
    #[must_use]
    pub fn commands(&self) -> Vec<Command<'p>> {
        let mut commands: Vec<Command<'p>> = Vec::new();
        let mut continued = false;
        for line in &self.lines {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(first), _) => {
                    commands.push(Command { script: format!("{first}\n"), printed: Vec::new() });
                    continued = true;
                }
                (None, Some(last)) if continued && line.starts_with("    ") => {
                    last.script.push_str(&line[4..]);
                    last.script.push('\n');
                }
                (None, Some(last)) => {
                    last.printed.push(line);
                    continued = false;
                }
                (None, None) => {}
            }
        }
        commands
    }

    /// Returns the commands as one script.
    #[must_use]
    pub fn script(&self) -> String {
        self.commands().into_iter().map(|command| command.script).collect()
    }

    /// Returns every line that must be printed.
    #[must_use]
    pub fn printed(&self) -> Vec<&'p str> {
        self.commands().into_iter().flat_map(|command| command.printed).collect()
    }
}

/// Returns the fenced blocks of a page.
#[must_use]
pub fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut open): (Vec<Block<'_>>, Option<Block<'_>>) = (Vec::new(), None);
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(opening), None) => {
                let mut words = opening.split_whitespace();
                let language = words.next().unwrap_or_default();
                let words = words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
                open = Some(Block { language, words, lines: Vec::new() });
            }
            (None, Some(block)) => block.lines.push(line),
            (None, None) => {}
        }
    }
    blocks
}

/// Whether a line is as the page has it; `…` stands for anything, and the width of columns does not matter.
#[must_use]
pub fn is_printed(expected: &str, line: &str) -> bool {
    let narrow = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, line) = (narrow(expected), narrow(line));
    let pieces: Vec<_> = expected.split('…').collect();
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return false };
    if pieces.len() == 1 {
        return line == *first;
    }
    let Some(mut rest) = line.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
    pieces[1..pieces.len() - 1].iter().all(|piece| match rest.find(piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    })
}

/// Returns the first line of `printed` that does not follow, in this order, in what a command wrote.
#[must_use]
pub fn missing<'p>(printed: &[&'p str], written: &str) -> Option<&'p str> {
    let mut lines = written.lines();
    printed.iter().find(|expected| !lines.any(|line| is_printed(expected, line))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_commands_with_their_continuations_and_what_they_print() {
        let page = "text\n```console as=alice refused\n$ one \\\n      --two\nout\n    not typed\n$ three\n```\n```yaml file=a.yaml\na: b\n```\n";
        let blocks = blocks(page);
        assert_eq!(
            (blocks[0].language, blocks[0].word("as"), blocks[0].word("refused")),
            ("console", Some("alice"), Some(""))
        );
        let one = Command { script: "one \\\n  --two\n".to_owned(), printed: vec!["out", "    not typed"] };
        assert_eq!(blocks[0].commands(), [one, Command { script: "three\n".to_owned(), printed: Vec::new() }]);
        assert_eq!((blocks[1].word("file"), blocks[1].text().as_str()), (Some("a.yaml"), "a: b\n"));
    }

    #[test]
    fn a_line_is_printed_where_only_the_ellipsis_and_the_spaces_differ() {
        assert!(is_printed("a …  c", "a   bb c") && is_printed("…", "") && is_printed("x", " x "));
        assert!(!is_printed("a … c", "a b") && !is_printed("x", "xy") && !is_printed("a…b…c", "acb"));
        assert_eq!(missing(&["b", "a"], "a\nb\n"), Some("a"));
        assert_eq!(missing(&["a", "b"], "a\nx\nb\n"), None);
    }
}
