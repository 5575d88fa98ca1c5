//! A watch that broke: a note, because it starts again by itself, or a refusal, which ends the command.
//!
//! **Invariant:** an error that can pass never ends a command.

use kube::runtime::watcher::Error;
use signoff_cli::{sanitize::one_line, terminal};

use super::client::Session;
use crate::error::Failure;

/// The status code of a watch whose resource version is too old, which is usual after a while.
const GONE: u16 = 410;

/// The status codes of a request that the API server refuses, however often it is repeated.
const REFUSED: [u16; 2] = [401, 403];

/// Prints a note about the error of a watch.
///
/// # Errors
/// The API server refuses the watch.
pub fn report(session: &Session, error: &Error) -> Result<(), Failure> {
    if let Some(refusal) = refusal(error) {
        return Err(session.explain(refusal));
    }
    if let Some(note) = note(error) {
        terminal::note(&note);
    }
    Ok(())
}

/// Returns the API server's refusal, which another attempt would not change. `None` for any other error.
pub fn refusal(error: &Error) -> Option<kube::Error> {
    let status = match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => status,
        _ => return None,
    };
    REFUSED.contains(&status.code).then(|| kube::Error::Api(status.clone()))
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

    #[test]
    fn only_401_and_403_are_refusals() {
        let status = |code| Box::new(Status { code, ..Status::default() });
        let all = |code| {
            [
                Error::InitialListFailed(kube::Error::Api(status(code))),
                Error::WatchStartFailed(kube::Error::Api(status(code))),
                Error::WatchFailed(kube::Error::Api(status(code))),
                Error::WatchError(status(code)),
            ]
        };
        for (code, is_refusal) in [(401, true), (403, true), (404, false), (410, false), (500, false)] {
            assert!(all(code).iter().all(|error| refusal(error).is_some() == is_refusal), "{code}");
        }
        assert!(refusal(&Error::NoResourceVersion).is_none());
    }
}
