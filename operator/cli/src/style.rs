//! The style of output: its width, and the colours and signs of a terminal.
//!
//! [`crate::terminal::style`] reads the width and the colours from the terminal and the environment.

use anstyle::{AnsiColor, Style as Ansi};

/// The width of output without a terminal, in columns.
pub const PLAIN_WIDTH: usize = 80;

/// The width, the colours and the signs of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The most columns of a line.
    pub width: usize,
    /// Whether text is coloured.
    pub colour: bool,
    /// Whether states have signs and trees have lines; otherwise both are ASCII.
    pub signs: bool,
    /// The number of rows above which a tree is folded. `None`: it is never folded.
    pub fold_above: Option<usize>,
}

impl Style {
    /// The style of plain text of 80 columns, without colour and signs.
    pub const PLAIN: Self = Self { width: PLAIN_WIDTH, colour: false, signs: false, fold_above: Some(40) };

    /// Returns the text in the colour of a tone, or the text itself if the style has no colour.
    #[must_use]
    pub fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let ansi = tone.ansi();
        format!("{ansi}{text}{ansi:#}")
    }
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// In progress.
    Busy,
    /// A person must act.
    Attention,
    /// Less important.
    Quiet,
    /// A title.
    Strong,
}

impl From<signoff_review::run::Tone> for Tone {
    fn from(tone: signoff_review::run::Tone) -> Self {
        use signoff_review::run::Tone as RunTone;
        match tone {
            RunTone::Good => Self::Good,
            RunTone::Bad => Self::Bad,
            RunTone::Busy => Self::Busy,
            RunTone::Attention => Self::Attention,
            RunTone::Quiet => Self::Quiet,
        }
    }
}

impl Tone {
    /// Returns the sign of a state on a terminal.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Good => "✔",
            Self::Bad => "✖",
            Self::Busy => "●",
            Self::Attention => "◷",
            Self::Quiet | Self::Strong => "·",
        }
    }

    fn ansi(self) -> Ansi {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Busy => AnsiColor::Cyan.on_default(),
            Self::Attention => AnsiColor::Yellow.on_default().bold(),
            Self::Quiet => Ansi::new().dimmed(),
            Self::Strong => Ansi::new().bold(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_coloured_only_if_the_style_has_colour() {
        assert_eq!(Style::PLAIN.paint(Tone::Good, "done"), "done");
        let coloured = Style { colour: true, ..Style::PLAIN };
        assert_eq!(coloured.paint(Tone::Good, "done"), "\u{1b}[32mdone\u{1b}[0m");
        assert_eq!(coloured.paint(Tone::Good, ""), "");
    }
}
