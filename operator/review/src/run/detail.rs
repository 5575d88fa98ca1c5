//! A sentence on a row of a run, which keeps its instant apart from its text.
//!
//! **Invariant:** texts of others are never searched for an instant. Only a sentence that was built with an instant has
//! one.

use std::fmt;

use signoff_api::Moment;

/// A sentence on a row, in one line. The page shows its instant in the time zone of the reader, the plugin in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The text before the instant, or the whole text if there is no instant.
    pub text: String,
    /// The instant, and the text after it.
    pub instant: Option<(Moment, String)>,
}

impl Detail {
    /// Returns a sentence with an instant, which is rounded up to a second.
    pub fn with_instant(before: &str, at: Moment, after: &str) -> Self {
        Self { text: before.to_owned(), instant: Some((at.ceil_to_second(), after.to_owned())) }
    }
}

impl From<String> for Detail {
    fn from(text: String) -> Self {
        Self { text, instant: None }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.instant {
            Some((at, after)) => write!(f, "{at}{after}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_sentence_with_an_instant_reads_as_one_line() {
        let detail = Detail::with_instant("until ", sample::now(), " (in 3h); then it counts as rejected");
        assert_eq!(detail.to_string(), "until 2026-11-22T10:00:00Z (in 3h); then it counts as rejected");
        let plain = Detail::from("asks: is it 2026-11-22T10:00:00Z?".to_owned());
        assert_eq!((plain.to_string().as_str(), plain.instant.is_none()), ("asks: is it 2026-11-22T10:00:00Z?", true));
    }
}
