//! A watch that broke, as a note. It starts again by itself.
//!
//! It must not end a watch.

use kube::runtime::watcher::Error;

use crate::{sanitize::one_line, terminal};

/// The status code of a watch whose resource version is too old, which is usual after a while.
const GONE: u16 = 410;

/// Reports a watch that broke.
pub fn report(error: &Error) {
    if let Some(note) = note(error) {
        terminal::note(&note);
    }
}

fn note(error: &Error) -> Option<String> {
    if let Error::WatchError(status) = error
        && status.code == GONE
    {
        return None;
    }
    Some(format!("error: the watch broke and starts again: {}", one_line(&error.to_string(), 500)))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_a_watch_that_is_too_old_is_not_reported() {
        let error = |code| Error::WatchError(Box::new(Status { code, ..Status::default() }));
        assert_eq!(note(&error(GONE)), None);
        assert!(note(&error(500)).is_some_and(|note| note.starts_with("error: the watch broke")));
    }
}
