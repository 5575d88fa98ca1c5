//! Reads a page of the documentation: its fenced blocks, so that tests run its commands as they are, and its links.
//!
//! **Invariant:** contains no command of its own.

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
    /// The command, with the lines that continue it.
    pub script: String,
    /// The lines that it must print, among others; `…` matches any text.
    pub printed: Vec<&'p str>,
}

impl<'p> Block<'p> {
    /// Returns the value of a word of the opening line; empty for a word without a value.
    #[must_use]
    pub fn word(&self, key: &str) -> Option<&'p str> {
        self.words.get(key).copied()
    }

    /// Returns the text of the block, as a file has it.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// Returns the commands. A block of `sh` is one command. In a block of `console`, a command begins with `$ `, and
    /// lines that begin with four spaces continue the command.
    #[must_use]
    pub fn commands(&self) -> Vec<Command<'p>> {
        if self.language == "sh" {
            return vec![Command { script: self.text(), printed: Vec::new() }];
        }
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

/// Returns the fenced blocks of a page, without the indentation of their fences.
///
/// # Panics
/// A fence is not closed.
#[must_use]
pub fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for line in page.lines() {
        match (fence(line), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(block, _)| block)),
            (Some(info), None) => {
                let mut words = info.split_whitespace();
                let language = words.next().unwrap_or_default();
                let words = words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
                let indentation = line.len() - line.trim_start().len();
                open = Some((Block { language, words, lines: Vec::new() }, indentation));
            }
            (None, Some((block, indentation))) => block.lines.push(line.get(*indentation..).unwrap_or_default()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed: {open:?}");
    blocks
}

fn fence(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("```").map(str::trim)
}

/// Returns a page without its fenced blocks.
#[must_use]
pub fn prose(page: &str) -> String {
    let mut is_fenced = false;
    let lines = page.lines().filter(|line| {
        let is_fence = fence(line).is_some();
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the targets of the links of a page, with their anchors, except for those to other sites.
#[must_use]
pub fn links(page: &str) -> Vec<String> {
    let targets = |prose: &str| -> Vec<String> {
        prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
    };
    targets(&prose(page)).into_iter().filter(|link| !link.contains("://")).collect()
}

/// Returns whether a line is the expected line of a page; `…` matches any text, and the width of columns is ignored.
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
        Some(start) => {
            rest = &rest[start + piece.len()..];
            true
        }
        None => false,
    })
}

/// Returns the first line of `printed` that the output of a command lacks after the lines before it.
#[must_use]
pub fn missing<'p>(printed: &[&'p str], written: &str) -> Option<&'p str> {
    let mut lines = written.lines();
    printed.iter().find(|expected| !lines.any(|line| is_printed(expected, line))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_commands_and_the_lines_that_they_print() {
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
    fn a_block_of_sh_is_one_command() {
        let blocks = blocks("```sh\ncat <<END\n    x\nEND\n```\n");
        assert_eq!(
            blocks[0].commands(),
            [Command { script: "cat <<END\n    x\nEND\n".to_owned(), printed: Vec::new() }]
        );
    }

    #[test]
    fn a_block_in_a_list_is_read_without_the_indentation_of_its_fence() {
        let blocks = blocks("* so:\n  ```yaml workflow\n  a:\n    b: c\n  ```\n");
        assert_eq!((blocks[0].word("workflow"), blocks[0].text().as_str()), (Some(""), "a:\n  b: c\n"));
    }

    #[test]
    fn links_to_files_are_read_outside_of_blocks() {
        let page = "[a](../README.md#top) [b](https://example.com/x) [c](#here)\n```\n[d](x)\n```\n";
        assert_eq!(links(page), ["../README.md#top", "#here"]);
    }

    #[test]
    fn a_printed_line_can_differ_in_spaces_and_ellipses() {
        assert!(is_printed("a …  c", "a   bb c") && is_printed("…", "") && is_printed("x", " x "));
        assert!(!is_printed("a … c", "a b") && !is_printed("x", "xy") && !is_printed("a…b…c", "acb"));
        assert_eq!(missing(&["b", "a"], "a\nb\n"), Some("a"));
        assert_eq!(missing(&["a", "b"], "a\nx\nb\n"), None);
    }
}
